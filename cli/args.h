/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line: options by one table, the other words as they came. */
#ifndef REGC_CLI_ARGS_H
#define REGC_CLI_ARGS_H

#include <stdint.h>

/* Options, as bits of what was given and of what a command takes. */
enum {
	OPT_SOCKET = 1 << 0,
	OPT_JSON = 1 << 1,
	OPT_TAB = 1 << 2,
	OPT_HELP = 1 << 3,
	OPT_VERSION = 1 << 4,
	OPT_PID = 1 << 5,
	OPT_GROUP = 1 << 6,
	OPT_LIBRARY = 1 << 7,
	OPT_ADDR = 1 << 8,
	OPT_LEN = 1 << 9,
	OPT_STATE = 1 << 10,
	OPT_ACCESS = 1 << 11,
	OPT_ALL = 1 << 12,
	OPT_WATCH = 1 << 13,
	OPT_GLOBAL = OPT_SOCKET | OPT_JSON | OPT_TAB | OPT_HELP | OPT_VERSION,
};

#define ARGS_MAX_WORDS 8

/* Texts are borrowed from argv. */
struct args {
	unsigned int given; /* OPT_* */
	const char *socket, *group, *library;
	uint64_t pid, addr, len, state, access;
	const char *words[ARGS_MAX_WORDS]; /* what is no option */
	unsigned int n_words;
};

enum args_kind {
	ARGS_NONE,
	ARGS_TEXT,   /* const char *; not empty */
	ARGS_PID,    /* uint64_t, as all others */
	ARGS_ADDR,
	ARGS_BYTES,
	ARGS_STATE,
	ARGS_ACCESS,
};

/* 0, or -1: a usage error, printed. */
int args_parse(struct args *ret, int argc, char **argv);

/*
 * Turns text into the field of args at offset; what is the option or operand as
 * the user wrote it.  0, or -1: printed.
 */
int args_value(struct args *args, enum args_kind kind, unsigned int offset,
	       const char *what, const char *text);

/* Prints one line on stderr and where help is; returns -1. */
int args_usage_error(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

/* Prints the options in bits, for help. */
void args_print_options(unsigned int bits);

/* Name of the first option in bits, without dashes. */
const char *args_option_name(unsigned int bits);

#endif
