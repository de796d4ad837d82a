/* SPDX-License-Identifier: BSD-2-Clause */
/* The option table and all that is made from it; see options.h. */
#include "regcached/options.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "regcached/log.h"
#include "shm/base.h"
#include "shm/layout.h"

#define FILE_MAX_BYTES (64 * 1024)
#define WORD_BYTES 128

static const char *const mode_words[] = { "off", "fast", "strict", "auto", NULL };
static const char *const device_words[] = { "no", "yes", "allowed", NULL };
static const char *const level_words[] = { "error", "warn", "info", "debug",
					   NULL };

#define MAX_U63 (UINT64_MAX >> 1)

static const struct option_row rows[OPTION_N] = {
	[OPTION_SOCKET] = {
		"socket", OPTION_UNIT_PATH, "", 0, 0, NULL, false,
		"Path of the control socket. Empty: "
		"/run/regc/regcached.sock for root, the user's run-time "
		"directory otherwise." },
	[OPTION_NODE_BYTES] = {
		"limit.node.bytes", OPTION_UNIT_BYTES, "50%", 4096, MAX_U63,
		NULL, true,
		"Bytes that all processes together may keep registered in "
		"the cache." },
	[OPTION_GROUP_BYTES] = {
		"limit.group.bytes", OPTION_UNIT_BYTES, "50%", 4096, MAX_U63,
		NULL, true,
		"The same for the processes of one group." },
	[OPTION_SPACE_BYTES] = {
		"limit.space.bytes", OPTION_UNIT_BYTES, "25%", 4096, MAX_U63,
		NULL, true,
		"The same for one process." },
	[OPTION_SPACE_HARD_BYTES] = {
		"limit.space.hard_bytes", OPTION_UNIT_BYTES, "50%", 4096,
		MAX_U63, NULL, true,
		"Bytes that one process may have registered at one time, "
		"cached or not; beyond, a get fails. Told to a process when "
		"it attaches." },
	[OPTION_NODE_REGIONS] = {
		"limit.node.regions", OPTION_UNIT_NUMBER, "1048576", 1,
		UINT32_MAX, NULL, true,
		"Regions that all processes together may keep in the cache." },
	[OPTION_GROUP_REGIONS] = {
		"limit.group.regions", OPTION_UNIT_NUMBER, "1048576", 1,
		UINT32_MAX, NULL, true,
		"The same for the processes of one group." },
	[OPTION_SPACE_REGIONS] = {
		"limit.space.regions", OPTION_UNIT_NUMBER, "131072", 1,
		RTAB_MAX_CAPACITY, NULL, true,
		"The same for one process. The table of a process that is "
		"attached keeps its size." },
	[OPTION_REGION_MAX_BYTES] = {
		"region.max_bytes", OPTION_UNIT_BYTES, "1G", 4096, MAX_U63, NULL,
		true,
		"A region does not grow beyond this by being joined with "
		"its neighbours. Told to a process when it attaches." },
	[OPTION_NODE_SPACES] = {
		"limit.node.spaces", OPTION_UNIT_NUMBER, "4096", 1, 65536, NULL,
		true,
		"Processes that may be attached." },
	[OPTION_GROUP_SPACES] = {
		"limit.group.spaces", OPTION_UNIT_NUMBER, "4096", 1, 65536, NULL,
		true,
		"Processes of one group that may be attached." },
	[OPTION_USER_CONNECTIONS] = {
		"limit.user.connections", OPTION_UNIT_NUMBER, "2048", 1, 65536,
		NULL, true,
		"Connections that one user may have open, attached or not." },
	[OPTION_MODE] = {
		"mode", OPTION_UNIT_WORD, "auto", 0, 0, mode_words, true,
		"How processes that attach from now on make sure that a hit "
		"is not stale: auto takes fast where the self-test passes, "
		"else strict; off caches nothing. A process may ask for a "
		"stricter mode, not for a weaker one." },
	[OPTION_UFFD_DEVICE] = {
		"uffd.device", OPTION_UNIT_WORD, "allowed", 0, 0, device_words,
		true,
		"Which processes get a descriptor of /dev/userfaultfd: all "
		"(yes), none (no), or those of root, of the broker's user and "
		"of users whom the mode of the device allows to open it "
		"(allowed). With it a process can make a userfaultfd that "
		"stops the kernel inside a system call, which most systems "
		"deny to users on purpose; tracking works without it." },
	[OPTION_HISTORY_EVENTS] = {
		"history.events", OPTION_UNIT_NUMBER, "1024", 16, 1048576, NULL,
		true,
		"Events kept for each process that attaches from now on, "
		"for regc-ctl explain." },
	[OPTION_LOG_LEVEL] = {
		"log.level", OPTION_UNIT_WORD, "info", 0, 0, level_words, true,
		"What is logged to standard error." },
};

const struct option_row *option_row(enum option_id id)
{
	return &rows[id];
}

int option_find(const char *name, size_t n)
{
	int i;

	for (i = 0; i < OPTION_N; i++)
		if (strlen(rows[i].name) == n && !memcmp(rows[i].name, name, n))
			return i;
	return -1;
}

const char *option_unit_name(enum option_unit unit)
{
	static const char *const names[] = {
		[OPTION_UNIT_BYTES] = "bytes",
		[OPTION_UNIT_NUMBER] = "number",
		[OPTION_UNIT_WORD] = "word",
		[OPTION_UNIT_PATH] = "path",
	};

	return names[unit];
}

/* ---- values -------------------------------------------------------------- */

static int value_error(char *error, enum option_id id, const char *value,
		       const char *what)
{
	char shown[WORD_BYTES];

	snprintf(error, OPTION_ERROR_BYTES, "option %s: \"%s\" %s", rows[id].name,
		 log_escape(shown, sizeof(shown), value, strlen(value)), what);
	return -EINVAL;
}

/* Power of two of a suffix, or -1; "" is 0. */
static int suffix_shift(const char *s)
{
	static const char letters[] = "KMGT";
	const char *p;

	if (!*s)
		return 0;
	p = strchr(letters, toupper((unsigned char)s[0]));
	if (!p || s[1])
		return -1;
	return 10 * (int)(p - letters + 1);
}

static int parse_number(const struct options *o, enum option_id id,
			const char *value, uint64_t *ret, char *error)
{
	const struct option_row *row = &rows[id];
	char what[WORD_BYTES], *end;
	unsigned long long v;
	int shift;

	errno = 0;
	if (!isdigit((unsigned char)value[0]))
		return value_error(error, id, value, "is not a number");
	v = strtoull(value, &end, 10);
	if (errno)
		return value_error(error, id, value, "is too large");
	if (row->unit == OPTION_UNIT_BYTES && !strcmp(end, "%")) {
		if (v > 100)
			return value_error(error, id, value, "is above 100%");
		v = o->memory_bytes / 100 * v;
	} else {
		shift = row->unit == OPTION_UNIT_BYTES ? suffix_shift(end) :
			*end			       ? -1 :
							 0;
		if (shift < 0)
			return value_error(error, id, value,
					   row->unit == OPTION_UNIT_BYTES ?
					   "is not a size (K, M, G, T or %)" :
					   "is not a number");
		if (v > UINT64_MAX >> shift)
			return value_error(error, id, value, "is too large");
		v <<= shift;
	}
	if (v < row->min || v > row->max) {
		snprintf(what, sizeof(what),
			 "is not within %" PRIu64 " and %" PRIu64, row->min,
			 row->max);
		return value_error(error, id, value, what);
	}
	*ret = v;
	return 0;
}

static int parse_word(enum option_id id, const char *value, uint64_t *ret,
		      char *error)
{
	const struct option_row *row = &rows[id];
	char what[WORD_BYTES] = "is not one of";
	uint64_t i;

	for (i = 0; row->words[i]; i++) {
		if (!strcmp(row->words[i], value)) {
			*ret = i;
			return 0;
		}
		strncat(what, i ? ", " : " ", sizeof(what) - strlen(what) - 1);
		strncat(what, row->words[i], sizeof(what) - strlen(what) - 1);
	}
	return value_error(error, id, value, what);
}

int options_set(struct options *o, const char *name, size_t name_len,
		const char *value, char *error)
{
	char shown[WORD_BYTES];
	uint64_t v = 0;
	int id = option_find(name, name_len), r = 0;

	if (id < 0) {
		snprintf(error, OPTION_ERROR_BYTES, "unknown option \"%s\"",
			 log_escape(shown, sizeof(shown), name, name_len));
		return -EINVAL;
	}
	switch (rows[id].unit) {
	case OPTION_UNIT_BYTES:
	case OPTION_UNIT_NUMBER:
		r = parse_number(o, (enum option_id)id, value, &v, error);
		break;
	case OPTION_UNIT_WORD:
		r = parse_word((enum option_id)id, value, &v, error);
		break;
	case OPTION_UNIT_PATH:
		if (strlen(value) >= sizeof(o->socket))
			return value_error(error, (enum option_id)id, value,
					   "is longer than a socket path can be");
		snprintf(o->socket, sizeof(o->socket), "%s", value);
		break;
	}
	if (r)
		return r;
	o->value[id] = v;
	o->set[id] = true;
	return 0;
}

int options_set_pair(struct options *o, const char *pair, char *error)
{
	const char *eq = strchr(pair, '=');
	char shown[WORD_BYTES];

	if (!eq) {
		snprintf(error, OPTION_ERROR_BYTES, "\"%s\" is not NAME=VALUE",
			 log_escape(shown, sizeof(shown), pair, strlen(pair)));
		return -EINVAL;
	}
	return options_set(o, pair, (size_t)(eq - pair), eq + 1, error);
}

void options_init(struct options *o, uint64_t memory_bytes)
{
	char error[OPTION_ERROR_BYTES];
	int i;

	memset(o, 0, sizeof(*o));
	o->memory_bytes = memory_bytes;
	for (i = 0; i < OPTION_N; i++) {
		if (options_set(o, rows[i].name, strlen(rows[i].name),
				rows[i].initial, error) &&
		    rows[i].unit == OPTION_UNIT_BYTES)
			o->value[i] = rows[i].min; /* a machine of 8 KiB */
		o->set[i] = false;
	}
}

char *option_text(const struct options *o, enum option_id id, char *buf,
		  size_t size)
{
	static const char letters[] = "KMGT";
	uint64_t v = o->value[id];
	int i = -1;

	switch (rows[id].unit) {
	case OPTION_UNIT_PATH:
		log_escape(buf, size, o->socket, sizeof(o->socket));
		break;
	case OPTION_UNIT_WORD:
		snprintf(buf, size, "%s", rows[id].words[v]);
		break;
	case OPTION_UNIT_NUMBER:
		snprintf(buf, size, "%" PRIu64, v);
		break;
	case OPTION_UNIT_BYTES:
		while (v && !(v & 1023) && i < 3) {
			v >>= 10;
			i++;
		}
		snprintf(buf, size, i < 0 ? "%" PRIu64 : "%" PRIu64 "%c", v,
			 letters[i < 0 ? 0 : i]);
		break;
	}
	return buf;
}

/* ---- file ---------------------------------------------------------------- */

static char *trim(char *s)
{
	size_t n;

	while (isspace((unsigned char)*s))
		s++;
	n = strlen(s);
	while (n && isspace((unsigned char)s[n - 1]))
		s[--n] = 0;
	return s;
}

/* A # begins a comment at the start of a line and after a blank. */
static void cut_comment(char *line)
{
	size_t i;

	for (i = 0; line[i]; i++)
		if (line[i] == '#' &&
		    (i == 0 || isspace((unsigned char)line[i - 1]))) {
			line[i] = 0;
			return;
		}
}

static int parse_line(struct options *o, char *line, bool *seen, char *error)
{
	char *name, *value, shown[WORD_BYTES];
	int id, r;

	cut_comment(line);
	name = trim(line);
	if (!*name)
		return 0;
	value = strchr(name, '=');
	if (!value) {
		snprintf(error, OPTION_ERROR_BYTES, "\"%s\" is not NAME = VALUE",
			 log_escape(shown, sizeof(shown), name, strlen(name)));
		return -EINVAL;
	}
	*value++ = 0;
	name = trim(name);
	r = options_set(o, name, strlen(name), trim(value), error);
	if (r)
		return r;
	id = option_find(name, strlen(name));
	if (seen[id]) {
		snprintf(error, OPTION_ERROR_BYTES, "option %s stands here twice",
			 name);
		return -EINVAL;
	}
	seen[id] = true;
	return 0;
}

int options_parse(struct options *o, const char *path, const char *text,
		  char *error)
{
	char line[512], what[OPTION_ERROR_BYTES];
	bool seen[OPTION_N] = { false };
	unsigned int number = 0;
	size_t n;
	int r;

	while (*text) {
		n = strcspn(text, "\n");
		number++;
		if (n >= sizeof(line)) {
			r = -EINVAL;
			snprintf(what, sizeof(what), "line is too long");
		} else {
			memcpy(line, text, n);
			line[n] = 0;
			r = parse_line(o, line, seen, what);
		}
		if (r) {
			n = (size_t)snprintf(error, OPTION_ERROR_BYTES,
					     "%.150s:%u: ", path, number);
			snprintf(error + n, OPTION_ERROR_BYTES - n, "%.300s",
				 what);
			return r;
		}
		text += n + (text[n] == '\n');
	}
	return 0;
}

int options_read(struct options *o, const char *path, char *error)
{
	char *text = malloc(FILE_MAX_BYTES + 1);
	size_t n = 0;
	ssize_t got = -1;
	int fd, r = -ENOMEM;

	if (!text)
		goto err_text;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		goto err_errno;
	do {
		got = read(fd, text + n, FILE_MAX_BYTES + 1 - n);
		if (got > 0)
			n += (size_t)got;
	} while ((got > 0 && n <= FILE_MAX_BYTES) || (got < 0 && errno == EINTR));
	if (got < 0)
		goto err_errno;
	close(fd);
	r = -EINVAL;
	if (n > FILE_MAX_BYTES || memchr(text, 0, n)) {
		snprintf(error, OPTION_ERROR_BYTES,
			 "%.200s: not a configuration file", path);
	} else {
		text[n] = 0;
		r = options_parse(o, path, text, error);
	}
	free(text);
	return r;

err_errno:
	r = -errno;
	if (fd >= 0)
		close(fd);
err_text:
	snprintf(error, OPTION_ERROR_BYTES, "%.200s: %s", path, strerror(-r));
	free(text);
	return r;
}

/* ---- output -------------------------------------------------------------- */

static void put(const struct option_out *out, const char *text)
{
	out->put(out->arg, text);
}

/* Text in lines of at most width bytes, each after prefix. */
static void put_wrapped(const struct option_out *out, const char *prefix,
			const char *text, size_t width)
{
	char line[256];
	size_t n;

	while (*text) {
		n = strlen(text);
		if (n > width) {
			n = width;
			while (n && text[n] != ' ')
				n--;
		}
		snprintf(line, sizeof(line), "%s%.*s\n", prefix, (int)n, text);
		put(out, line);
		text += n;
		while (*text == ' ')
			text++;
	}
}

/* "bytes, default 50%", "auto, fast, strict or off; default auto" */
static void describe(const struct option_row *row, char *buf, size_t size)
{
	size_t n = 0, i;

	if (row->unit == OPTION_UNIT_WORD) {
		for (i = 0; row->words[i]; i++)
			n += (size_t)snprintf(buf + n, size - n, "%s%s",
					      i ? ", " : "", row->words[i]);
	} else if (row->unit == OPTION_UNIT_NUMBER) {
		n = (size_t)snprintf(buf, size,
				     "number, %" PRIu64 " to %" PRIu64, row->min,
				     row->max);
	} else {
		n = (size_t)snprintf(buf, size, "%s",
				     option_unit_name(row->unit));
	}
	snprintf(buf + n, size - n, "; default %s%s",
		 *row->initial ? row->initial : "empty",
		 row->reloads ? "" : "; not changed by a reload");
}

void options_print_sample(const struct option_out *out)
{
	char line[256], what[192];
	int i;

	put(out,
	    "# regcached.conf - options of the broker; regcached.conf(5).\n"
	    "# Sizes take K, M, G, T, or N% of the memory of the machine.\n"
	    "# What is commented out is the default.\n");
	for (i = 0; i < OPTION_N; i++) {
		put(out, "\n");
		put_wrapped(out, "# ", rows[i].doc, 76);
		describe(&rows[i], what, sizeof(what));
		snprintf(line, sizeof(line), "# (%s)\n#%s = %s\n", what,
			 rows[i].name, rows[i].initial);
		put(out, line);
	}
}

void options_print_man(const struct option_out *out)
{
	char line[256], what[192];
	int i;

	for (i = 0; i < OPTION_N; i++) {
		describe(&rows[i], what, sizeof(what));
		snprintf(line, sizeof(line), ".TP\n.B %s\n(%s)\n.br\n",
			 rows[i].name, what);
		put(out, line);
		put_wrapped(out, "", rows[i].doc, 76);
	}
}

void options_print_help(const struct option_out *out)
{
	char line[256], what[192];
	int i;

	for (i = 0; i < OPTION_N; i++) {
		describe(&rows[i], what, sizeof(what));
		snprintf(line, sizeof(line), "  %s  (%s)\n", rows[i].name, what);
		put(out, line);
		put_wrapped(out, "      ", rows[i].doc, 72);
	}
}
