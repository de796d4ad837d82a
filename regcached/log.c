/* SPDX-License-Identifier: BSD-2-Clause */
/* Log lines on standard error; see log.h. */
#include "regcached/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/base.h"
#include "shm/segment.h"

#define LINE_BYTES 1024 /* below PIPE_BUF: one write, whole or not at all */

static enum log_level level_now = LOG_LEVEL_INFO;
static uint64_t n_dropped, n_told;
static uint64_t bucket = LOG_BURST, bucket_ns; /* lines that may be written */

void log_set_level(enum log_level level)
{
	level_now = level;
}

enum log_level log_get_level(void)
{
	return level_now;
}

uint64_t log_n_dropped(void)
{
	return n_dropped;
}

/*
 * Asks first: O_NONBLOCK belongs to the open file, which a shell may share, so it
 * is not ours to set.  A pipe that is writable takes PIPE_BUF bytes.
 */
static bool emit(const char *line, size_t n)
{
	struct pollfd pfd = { .fd = STDERR_FILENO, .events = POLLOUT };

	if (poll(&pfd, 1, 0) != 1 || !(pfd.revents & POLLOUT))
		return false;
	return write(STDERR_FILENO, line, n) == (ssize_t)n;
}

static bool within_rate(enum log_level level)
{
	uint64_t now = rtab_now_ns(), more;

	if (level == LOG_LEVEL_DEBUG)
		return true;
	more = (now - bucket_ns) / (1000000000 / LOG_RATE);
	if (more) {
		bucket = rtab_min_u64(LOG_BURST, bucket + more);
		bucket_ns = now;
	}
	if (!bucket)
		return false;
	bucket--;
	return true;
}

void log_line(enum log_level level, const char *format, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[LINE_BYTES];
	int saved = errno, n, m;
	va_list args;

	if (level > level_now)
		return;
	if (!within_rate(level)) {
		n_dropped++;
		return;
	}
	if (n_dropped != n_told) {
		n = snprintf(line, sizeof(line),
			     "regcached: warn: log lines dropped %llu\n",
			     (unsigned long long)(n_dropped - n_told));
		if (emit(line, (size_t)n))
			n_told = n_dropped;
	}
	n = snprintf(line, sizeof(line), "regcached: %s: ", names[level]);
	va_start(args, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	if (m > 0)
		n += m;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (!emit(line, (size_t)n))
		n_dropped++;
	errno = saved;
}

char *log_escape(char *buf, size_t size, const char *text, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	size_t used = 0, i;

	for (i = 0; i < n && text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x20 && c < 0x7f && c != '\\') {
			if (used + 1 >= size)
				break;
			buf[used++] = (char)c;
			continue;
		}
		if (used + 4 >= size)
			break;
		buf[used++] = '\\';
		buf[used++] = 'x';
		buf[used++] = hex[c >> 4];
		buf[used++] = hex[c & 15];
	}
	buf[used] = 0;
	return buf;
}
