/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of the command line turned into numbers. */
#ifndef REGC_CLI_PARSE_H
#define REGC_CLI_PARSE_H

#include <stdint.h>

/*
 * Each takes the whole of text, and writes *ret only on success.  0, -EINVAL:
 * not such a word, -ERANGE: a number, but outside the range that is named.
 */

/* Decimal or 0x hexadecimal, from min to max. */
int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret);

/* The same with a suffix K, M, G or T (powers of 1024); 1 or more bytes. */
int parse_bytes(const char *text, uint64_t *ret);

/* "read,write,remote-read,remote-write,remote-atomic,relaxed-ordering" */
int parse_access(const char *text, uint64_t *ret);

/* "live" or "void", as the state field of an Admin request has it */
int parse_state(const char *text, uint64_t *ret);

#endif
