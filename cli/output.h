/* SPDX-License-Identifier: BSD-2-Clause */
/* One printer for every listing: text for people, tab-separated, JSON. */
#ifndef REGC_CLI_OUTPUT_H
#define REGC_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "libregc/control.pb-c.h"

#define OUTPUT_MAX_COLUMNS 64

enum output_format {
	OUTPUT_TEXT, /* aligned columns, units */
	OUTPUT_TAB,  /* raw numbers, one row a line, first line: names */
	OUTPUT_JSON, /* an array of objects, raw numbers */
};

/* Initialise file, format and upright; zero the rest. */
struct output {
	FILE *file;
	enum output_format format;
	bool upright; /* text: one value a line instead of one row a line */
	int err; /* negative errno of the first write that failed */
	/* private */
	bool started; /* the names of the columns are out */
	size_t n_columns;
	size_t n_rows;
	int widths[OUTPUT_MAX_COLUMNS];
};

/*
 * Prints one reply of a listing; a query_reply_fn with a struct output.  0, or
 * 1 when a write failed (err says how): then nothing more should be printed.
 */
int output_reply(const Regc__AdminReply *reply, void *output);

/* Ends the listing and flushes; returns as output_reply(). */
int output_end(struct output *out);

#endif
