/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The options of the broker, from one table.
 *
 * A row of the table drives the parsing of the file and of --set, --help, the
 * sample file, the section of the man page and the CONFIG listing.  No default
 * and no sentence about an option stands anywhere else.
 *
 * (The file is not called config.h because the build's config.h, which comes
 * first in every file, is.)
 */
#ifndef REGCACHED_OPTIONS_H
#define REGCACHED_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_id {
	OPTION_SOCKET,
	OPTION_NODE_BYTES,
	OPTION_GROUP_BYTES,
	OPTION_SPACE_BYTES,
	OPTION_SPACE_HARD_BYTES,
	OPTION_NODE_REGIONS,
	OPTION_GROUP_REGIONS,
	OPTION_SPACE_REGIONS,
	OPTION_REGION_MAX_BYTES,
	OPTION_NODE_SPACES,
	OPTION_GROUP_SPACES,
	OPTION_USER_CONNECTIONS,
	OPTION_MODE,
	OPTION_UFFD_DEVICE,
	OPTION_HISTORY_EVENTS,
	OPTION_LOG_LEVEL,
	OPTION_N
};

/* Values of uffd.device. */
enum { OPTION_DEVICE_NO, OPTION_DEVICE_YES, OPTION_DEVICE_ALLOWED };

enum option_unit {
	OPTION_UNIT_BYTES,  /* K M G T, N% of memory */
	OPTION_UNIT_NUMBER,
	OPTION_UNIT_WORD,   /* one of words */
	OPTION_UNIT_PATH,
};

struct option_row {
	const char *name;
	enum option_unit unit;
	const char *initial; /* the default, as a user would write it */
	uint64_t min, max;
	const char *const *words; /* NULL-terminated; value = position */
	bool reloads;             /* a reload changes it */
	const char *doc;          /* one sentence or more, no line breaks */
};

#define OPTION_PATH_BYTES 108 /* sun_path */
#define OPTION_ERROR_BYTES 512

/* Values by option_id; a WORD is its position in words. */
struct options {
	uint64_t memory_bytes; /* what N% is taken of */
	uint64_t value[OPTION_N];
	bool set[OPTION_N]; /* by the file or the command line */
	char socket[OPTION_PATH_BYTES];
};

const struct option_row *option_row(enum option_id id);

/* "limit.node.bytes" -> id, or -1. */
int option_find(const char *name, size_t n);

/* Fills in the defaults. */
void options_init(struct options *o, uint64_t memory_bytes);

/*
 * Takes one value.  -EINVAL with a sentence in error (OPTION_ERROR_BYTES), and
 * *o unchanged.
 */
int options_set(struct options *o, const char *name, size_t name_len,
		const char *value, char *error);

/* "name=value", as after --set. */
int options_set_pair(struct options *o, const char *pair, char *error);

/*
 * Reads text of a file called path: lines "name = value", '#' starts a comment.
 * -EINVAL with "path:line: ..." in error; *o may have changed then.
 */
int options_parse(struct options *o, const char *path, const char *text,
		  char *error);

/* The same from the file.  -errno. */
int options_read(struct options *o, const char *path, char *error);

/* Value as a user would write it; returns buf. */
char *option_text(const struct options *o, enum option_id id, char *buf,
		  size_t size);

/* "bytes", "number" ... */
const char *option_unit_name(enum option_unit unit);

/* Output of --sample-config, --man-options, and the list in --help. */
struct option_out {
	void (*put)(void *arg, const char *text);
	void *arg;
};
void options_print_sample(const struct option_out *out);
void options_print_man(const struct option_out *out);
void options_print_help(const struct option_out *out);

#endif
