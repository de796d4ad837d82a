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

#define LINE_BYTES 1024 /* below PIPE_BUF: one write, whole or not at all */

static enum log_level level_now = LOG_LEVEL_INFO;
static uint64_t n_dropped, n_told;

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

void log_line(enum log_level level, const char *format, ...)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char line[LINE_BYTES];
	int saved = errno, n, m;
	va_list args;

	if (level > level_now)
		return;
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
