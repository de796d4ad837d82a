/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The command line: options by one table, the other words as they came.
 *
 * Options may stand before and after other words and be written --name VALUE,
 * --name=VALUE, -n VALUE; "--" ends them.  One given twice counts the last time.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/parse.h"

#define MAX_PID UINT64_C(0x7fffffff)
#define FIELD(name) ((unsigned int)offsetof(struct args, name))

static const struct option {
	unsigned int bit;
	char letter; /* 0: none */
	const char *name;
	const char *value; /* what help calls its value */
	enum args_kind kind;
	unsigned int field;
	const char *doc;
} options[] = {
	{ OPT_PID, 'p', "pid", "PID", ARGS_PID, FIELD(pid),
	  "only this process" },
	{ OPT_GROUP, 'g', "group", "NAME", ARGS_TEXT, FIELD(group),
	  "only this group" },
	{ OPT_LIBRARY, 'l', "library", "NAME", ARGS_TEXT, FIELD(library),
	  "only this library" },
	{ OPT_ADDR, 0, "addr", "ADDR", ARGS_ADDR, FIELD(addr),
	  "only what overlaps [ADDR, ADDR + LEN)" },
	{ OPT_LEN, 0, "len", "LEN", ARGS_BYTES, FIELD(len),
	  "bytes from --addr on, also 64K, 2M, 1G (default: 1)" },
	{ OPT_STATE, 0, "state", "STATE", ARGS_STATE, FIELD(state),
	  "only regions that are live, or void" },
	{ OPT_ACCESS, 0, "access", "LIST", ARGS_ACCESS, FIELD(access),
	  "access asked for: read,write,remote-read,... (default: read)" },
	{ OPT_ALL, 0, "all", NULL, ARGS_NONE, 0, "every process" },
	{ OPT_WATCH, 'w', "watch", NULL, ARGS_NONE, 0,
	  "again every second, until interrupted" },
	{ OPT_SOCKET, 's', "socket", "PATH", ARGS_TEXT, FIELD(socket),
	  "ask the broker at PATH" },
	{ OPT_JSON, 'j', "json", NULL, ARGS_NONE, 0,
	  "print an array of JSON objects, plain numbers" },
	{ OPT_TAB, 't', "tab", NULL, ARGS_NONE, 0,
	  "print tab-separated rows, plain numbers" },
	{ OPT_HELP, 'h', "help", NULL, ARGS_NONE, 0, "print help" },
	{ OPT_VERSION, 'V', "version", NULL, ARGS_NONE, 0,
	  "print the version" },
};

#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

int args_usage_error(const char *format, ...)
{
	va_list args;

	fputs("regc-ctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("; see regc-ctl help\n", stderr);
	return -1;
}

void args_print_options(unsigned int bits)
{
	char left[32];
	size_t i;

	for (i = 0; i < N_OPTIONS; i++) {
		const struct option *opt = &options[i];

		if (!(opt->bit & bits))
			continue;
		snprintf(left, sizeof(left), "%c%c%c --%s%s%s",
			 opt->letter ? '-' : ' ',
			 opt->letter ? opt->letter : ' ',
			 opt->letter ? ',' : ' ', opt->name,
			 opt->value ? " " : "", opt->value ? opt->value : "");
		printf("  %-19s %s\n", left, opt->doc);
	}
}

const char *args_option_name(unsigned int bits)
{
	size_t i;

	for (i = 0; i < N_OPTIONS; i++) {
		if (options[i].bit & bits)
			return options[i].name;
	}
	return "";
}

int args_value(struct args *args, enum args_kind kind, unsigned int offset,
	       const char *what, const char *text)
{
	void *field = (char *)args + offset;
	int r = 0;

	switch (kind) {
	case ARGS_NONE:
		break;
	case ARGS_TEXT:
		if (!*text)
			return args_usage_error("%s must not be empty", what);
		*(const char **)field = text;
		break;
	case ARGS_PID:
		r = parse_number(text, 1, MAX_PID, field);
		break;
	case ARGS_ADDR:
		r = parse_number(text, 0, UINT64_MAX, field);
		break;
	case ARGS_BYTES:
		r = parse_bytes(text, field);
		break;
	case ARGS_STATE:
		r = parse_state(text, field);
		break;
	case ARGS_ACCESS:
		r = parse_access(text, field);
		break;
	}
	if (r == -ERANGE)
		return args_usage_error("%s '%s' is out of range", what, text);
	if (r < 0)
		return args_usage_error("%s '%s' is not understood", what,
					text);
	return 0;
}

/* word: after the dashes; NULL if there is no such option. */
static const struct option *option_find(const char *word, size_t len,
					int is_long)
{
	size_t i;

	for (i = 0; i < N_OPTIONS; i++) {
		if (is_long ? strlen(options[i].name) == len &&
				      !memcmp(options[i].name, word, len) :
			      len == 1 && options[i].letter == *word)
			return &options[i];
	}
	return NULL;
}

/* argv[*i] is an option; *i moves over its value. */
static int args_option(struct args *args, int argc, char **argv, int *i)
{
	const char *word = argv[*i];
	int is_long = word[1] == '-';
	const char *name = word + 1 + is_long;
	size_t len = is_long ? strcspn(name, "=") : strlen(name);
	const struct option *opt = option_find(name, len, is_long);
	const char *value = name[len] == '=' ? name + len + 1 : NULL;
	char what[32];

	if (!opt)
		return args_usage_error("unknown option '%s'", word);
	args->given |= opt->bit;
	if (!opt->value)
		return value ? args_usage_error("--%s takes no value",
						opt->name) : 0;
	snprintf(what, sizeof(what), "--%s", opt->name);
	if (!value) {
		if (*i + 1 >= argc)
			return args_usage_error("%s wants %s", what,
						opt->value);
		value = argv[++*i];
	}
	return args_value(args, opt->kind, opt->field, what, value);
}

int args_parse(struct args *ret, int argc, char **argv)
{
	int only_words = 0;
	int i;

	memset(ret, 0, sizeof(*ret));
	for (i = 1; i < argc; i++) {
		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = 1;
		} else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
			if (args_option(ret, argc, argv, &i) < 0)
				return -1;
		} else if (ret->n_words == ARGS_MAX_WORDS) {
			return args_usage_error("too many words at '%s'",
						argv[i]);
		} else {
			ret->words[ret->n_words++] = argv[i];
		}
	}
	return 0;
}
