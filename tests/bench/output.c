/* SPDX-License-Identifier: BSD-2-Clause */
/* The table for people and bench.json for programs. */
#include <errno.h>
#include <stdio.h>

#include "tests/bench/bench.h"

void bench_print_head(void)
{
	printf("%-20s %5s %9s %9s %7s  %-18s %-10s %3s %4s %8s\n", "name", "unit",
	       "regc", "peer", "ratio", "peer is", "goal", "thr", "proc",
	       "regions");
}

static void print_number(double value, int width, int digits)
{
	if (value < 0)
		printf(" %*s", width, "-");
	else
		printf(" %*.*f", width, digits, value);
}

static double ratio(const struct bench_result *r)
{
	return r->regc >= 0 && r->peer > 0 ? r->regc / r->peer : -1;
}

void bench_print(const struct bench_result *r)
{
	printf("%-20s %5s", r->name, r->unit);
	print_number(r->regc, 9, 1);
	print_number(r->peer, 9, 1);
	print_number(ratio(r), 7, 3);
	printf("  %-18s %-10s %3u %4u %8u\n", r->peer_name[0] ? r->peer_name : "-",
	       r->goal, r->threads, r->processes, r->regions);
	if (r->note[0])
		printf("    %s\n", r->note);
	fflush(stdout);
}

static void json_number(FILE *f, const char *key, double value)
{
	if (value < 0)
		fprintf(f, "\"%s\": null, ", key);
	else
		fprintf(f, "\"%s\": %.4f, ", key, value);
}

/* Names and units come from this program and need no escapes.  -errno. */
int bench_write_json(const char *path, const struct bench_result *results,
		     uint32_t n)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return -errno;
	fprintf(f, "[");
	for (uint32_t i = 0; i < n; i++) {
		const struct bench_result *r = &results[i];

		fprintf(f, "%s\n  {\"name\": \"%s\", \"unit\": \"%s\", ",
			i ? "," : "", r->name, r->unit);
		json_number(f, "regc", r->regc);
		json_number(f, "peer", r->peer);
		if (r->peer_name[0])
			fprintf(f, "\"peer_name\": \"%s\", ", r->peer_name);
		else
			fprintf(f, "\"peer_name\": null, ");
		json_number(f, "ratio", ratio(r));
		fprintf(f, "\"threads\": %u, \"processes\": %u, \"regions\": %u, "
			   "\"bytes\": %llu}",
			r->threads, r->processes, r->regions,
			(unsigned long long)r->bytes);
	}
	fprintf(f, "\n]\n");
	return fclose(f) ? -errno : 0;
}
