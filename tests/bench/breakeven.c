/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The size from which on protecting a buffer costs less than copying it: from the
 * rows measured, and as regc_copy_is_cheaper() tells a program.
 */
#include <stdio.h>
#include <string.h>

#include "libregc/regc.h"
#include "tests/bench/bench.h"

#define MAX_BYTES ((size_t)64 << 20)

static void print_bytes(double bytes)
{
	if (bytes >= 1 << 20)
		printf("%.1f MiB", bytes / (1 << 20));
	else
		printf("%.0f KiB", bytes / (1 << 10));
}

/* The rows of a kind follow each other, their sizes grow. */
static bool is_of(const struct bench_result *r, const char *kind)
{
	size_t len = strlen(kind);

	return !strncmp(r->name, kind, len) && r->name[len] >= '0' &&
	       r->name[len] <= '9' && r->regc > 0 && r->peer > 0;
}

/* Where the difference of the two costs crosses zero between two sizes. */
static double crossing(const struct bench_result *a, const struct bench_result *b)
{
	double da = a->regc - a->peer, db = b->regc - b->peer;

	return (double)a->bytes +
	       (double)(b->bytes - a->bytes) * da / (da - db);
}

static void print_kind(const struct bench_result *results, uint32_t n,
		       const char *kind, const char *words)
{
	const struct bench_result *last = NULL, *last_loss = NULL, *win = NULL;

	for (uint32_t i = 0; i < n; i++) {
		const struct bench_result *r = &results[i];

		if (!is_of(r, kind))
			continue;
		last = r;
		if (r->regc >= r->peer) {
			last_loss = r;
			win = NULL;
		} else if (!win) {
			win = r;
		}
	}
	if (!last)
		return;
	printf("protecting costs less than a %s", words);
	if (!win) {
		printf(": at no size up to ");
		print_bytes((double)last->bytes);
	} else {
		printf(" from ");
		print_bytes(last_loss ? crossing(last_loss, win) :
					(double)win->bytes);
		printf("%s", last_loss ? " on" : " on or less");
	}
	putchar('\n');
}

void bench_break_even(const struct bench_result *results, uint32_t n)
{
	print_kind(results, n, "copy_hot_", "hot copy, 4 KiB pages");
	print_kind(results, n, "copy_cold_", "cold copy, 4 KiB pages");
	print_kind(results, n, "copy_hot_huge_", "hot copy, huge pages");
	print_kind(results, n, "copy_cold_huge_", "cold copy, huge pages");
}

/* The first size for which regc says that protecting costs less. */
static void print_answer(struct regc_library *lib, int huge, const char *words)
{
	size_t bytes = 4096;

	while (bytes <= MAX_BYTES && regc_copy_is_cheaper(lib, bytes, huge) == 1)
		bytes *= 2;
	printf("regc_copy_is_cheaper(), %s: ", words);
	if (bytes > MAX_BYTES) {
		puts("copy all");
		return;
	}
	printf("copy what is smaller than ");
	print_bytes((double)bytes);
	putchar('\n');
}

/* In this process, which has no other use of regc: after all rows. */
void bench_copy_is_cheaper(void)
{
	struct regc_library *lib;

	if (regc_open("bench", NULL, &lib))
		return;
	print_answer(lib, 0, "4 KiB pages");
	print_answer(lib, 1, "huge pages");
	regc_close(lib);
}
