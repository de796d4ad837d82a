/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regc-bench: the figures of regc beside those of its peers, in one run.
 *
 * Prints a table and writes bench.json.  Nothing here judges: a number that
 * cannot be had is "-" in the table and null in the file, with the reason.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "tests/bench/bench.h"
#include "tests/bench/transfer.h"

#define FAST REGC_MODE_FAST
#define STRICT REGC_MODE_STRICT
#define MAX_RESULTS 64

/* Begin and complete of a transfer, against the bare calls and against copying. */
#define ARM(suffix, size, ...)                                               \
	{ "arm_" suffix, "ns", &bench_regc_arm, &bench_bare_arm, 1, 1, 1,    \
	  FAST, "<= 1.2", "begin and complete of a transfer against the "    \
	  "bare calls", .bytes = (size), __VA_ARGS__ }
#define COPY(suffix, size, goal, ...)                                        \
	{ "copy_" suffix, "ns", &bench_regc_arm, &bench_memcpy, 1, 1, 1,     \
	  FAST, (goal), "the same against copying the buffer",               \
	  .bytes = (size), __VA_ARGS__ }
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

static const struct bench_row rows[] = {
	{ "hit_1", "ns", &bench_regc_hit, &bench_ucx_hit, 1, 1, 1, FAST,
	  "<= 0.2",
	  .what = "get and put of a cached region, the same again and again" },
	{ "hit_1k", "ns", &bench_regc_hit, &bench_ucx_hit, 1000, 1, 1, FAST,
	  "<= 0.2",
	  .what = "of 1,000 at random" },
	{ "hit_1k_2threads", "ns", &bench_regc_hit, &bench_ucx_hit, 1000, 2, 1,
	  FAST, "<= 0.05",
	  .what = "by two threads" },
	{ "hit_same_2threads", "ns", &bench_regc_hit, &bench_ucx_hit, 1, 2, 1,
	  FAST, "<= 0.05",
	  .what = "the same region by two threads" },
	{ "hit_1k_2processes", "ns", &bench_regc_hit, &bench_ucx_hit, 1000, 1, 2,
	  FAST, "<= 0.2",
	  .what = "by two processes" },
	{ "hit_30k", "ns", &bench_regc_hit, &bench_ucx_hit, 30000, 1, 1, FAST,
	  "<= 0.5",
	  .what = "of 30,000 at random" },
	{ "hit_100k", "ns", &bench_regc_hit, &bench_ucx_hit, 100000, 1, 1, FAST,
	  "<= 0.5",
	  .what = "of 100,000 at random" },
	{ "hit_1k_strict", "ns", &bench_regc_hit, &bench_bare_probe, 1000, 1, 1,
	  STRICT, "<= 1.5",
	  .what = "in strict mode" },
	{ "miss_64k", "ns", &bench_regc_miss, &bench_bare_uring, 1, 1, 1, FAST,
	  "+10 us",
	  .what = "get of a buffer never seen" },
	{ "munmap_untracked", "ns", &bench_regc_munmap, &bench_bare_munmap, 1000,
	  1, 1, FAST, "<= 1.05",
	  .what = "munmap of memory that regc does not track" },
	{ "munmap_tracked", "ns", &bench_regc_munmap_tracked, &bench_bare_munmap,
	  1000, 1, 1, FAST, "<= 2.1",
	  .what = "munmap of memory that it tracks" },
	{ "mmap_untracked", "ns", &bench_regc_mmap, &bench_bare_mmap, 1000, 1, 1,
	  FAST, "<= 1.05",
	  .what = "mmap" },
	{ "madvise_untracked", "ns", &bench_regc_madvise, &bench_bare_madvise,
	  1000, 1, 1, FAST, "<= 1.05",
	  .what = "madvise(MADV_DONTNEED) of untracked memory" },
	ARM("4k", 4 * KIB, ),
	ARM("64k", 64 * KIB, ),
	ARM("256k", 256 * KIB, ),
	ARM("1m", 1 * MIB, ),
	ARM("4m", 4 * MIB, ),
	ARM("16m", 16 * MIB, ),
	ARM("64m", 64 * MIB, ),
	ARM("huge_2m", 2 * MIB, .huge = true),
	ARM("huge_8m", 8 * MIB, .huge = true),
	ARM("huge_64m", 64 * MIB, .huge = true),
	COPY("hot_4k", 4 * KIB, "-", ),
	COPY("hot_64k", 64 * KIB, "-", ),
	COPY("hot_256k", 256 * KIB, "-", ),
	COPY("hot_1m", 1 * MIB, "-", ),
	COPY("hot_4m", 4 * MIB, "-", ),
	COPY("hot_16m", 16 * MIB, "-", ),
	COPY("hot_64m", 64 * MIB, "-", ),
	COPY("hot_huge_2m", 2 * MIB, "-", .huge = true),
	COPY("hot_huge_8m", 8 * MIB, "-", .huge = true),
	COPY("hot_huge_64m", 64 * MIB, "-", .huge = true),
	COPY("cold_4k", 4 * KIB, "-", .cold = true),
	COPY("cold_64k", 64 * KIB, "-", .cold = true),
	COPY("cold_256k", 256 * KIB, "-", .cold = true),
	COPY("cold_1m", 1 * MIB, "-", .cold = true),
	COPY("cold_4m", 4 * MIB, "-", .cold = true),
	COPY("cold_16m", 16 * MIB, "-", .cold = true),
	COPY("cold_64m", 64 * MIB, "-", .cold = true),
	COPY("cold_huge_2m", 2 * MIB, "<= 0.1", .huge = true, .cold = true),
	COPY("cold_huge_8m", 8 * MIB, "<= 0.1", .huge = true, .cold = true),
	COPY("cold_huge_64m", 64 * MIB, "<= 0.1", .huge = true, .cold = true),
	{ "fault_report", "ns", &bench_regc_report, &bench_bare_fault, 1, 1, 1,
	  FAST, "-", "a store that conflicts and is let through",
	  .bytes = BENCH_PAGE },
	{ "fault_copy", "ns", &bench_regc_copy, &bench_bare_fault, 1, 1, 1, FAST,
	  "-", "a store that conflicts and gets a copy of the page",
	  .bytes = BENCH_PAGE },
	{ "fault_wake", "ns", &bench_regc_wake, &bench_bare_wake, 1, 1, 1, FAST,
	  "-", "from completion until a blocked store goes on",
	  .bytes = BENCH_PAGE },
	{ "overlap", "ns", &bench_regc_overlap, &bench_blocking_send, 1, 1, 1,
	  FAST, "<= 0.526", "a step of computing and sending, 2 ms each",
	  .bytes = 512 * KIB },
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

struct settings {
	const char *broker;
	const char *json;
	const char *only;
	double run_ms;
	uint32_t n_runs;
};

static struct bench_result results[MAX_RESULTS];
static uint32_t n_results;

static void usage(FILE *out)
{
	fprintf(out,
		"usage: regc-bench [--quick] [--only NAME] [--json FILE] "
		"[--broker FILE]\n"
		"Measures regc beside its peers and prints a table.\n\n"
		"  --quick        short runs\n"
		"  --only NAME    one row, or those that begin with NAME\n"
		"  --json FILE    where the numbers go (bench.json)\n"
		"  --broker FILE  the regcached to start (REGC_BUILDDIR/"
		"regcached/regcached)\n"
		"  --help         this text\n\n"
		"The file is an array of objects: name, unit, regc, peer, "
		"peer_name, ratio (regc /\npeer), threads, processes, regions, "
		"bytes (of a buffer).  Of rows with a size in\ntheir name huge is "
		"huge pages, hot and cold say whether the buffers copied are in\n"
		"a cache.\n\nrows:\n");
	for (size_t i = 0; i < N_ROWS; i++)
		fprintf(out, "  %-20s %s\n", rows[i].name, rows[i].what);
}

/* The yardstick for everything that enters the kernel. */
static void print_machine(void)
{
	double start = bench_now_ns(), ns;
	const int rounds = 200000;

	for (int i = 0; i < rounds; i++)
		syscall(SYS_getppid);
	ns = (bench_now_ns() - start) / rounds;
	printf("a system call (getppid) takes %.0f ns here, %ld CPUs\n\n", ns,
	       sysconf(_SC_NPROCESSORS_ONLN));
}

static struct bench_result *new_result(const struct bench_row *row)
{
	struct bench_result *r = &results[n_results++];

	snprintf(r->name, sizeof(r->name), "%s", row->name);
	snprintf(r->unit, sizeof(r->unit), "%s", row->unit);
	snprintf(r->goal, sizeof(r->goal), "%s", row->goal);
	if (row->peer)
		snprintf(r->peer_name, sizeof(r->peer_name), "%s",
			 row->peer->name);
	r->regc = r->peer = -1;
	r->threads = row->threads;
	r->processes = row->processes;
	r->regions = row->regions;
	r->bytes = row->bytes ? row->bytes : BENCH_REGION_BYTES;
	return r;
}

static void memory_results(const struct bench_row *row,
			   const struct bench_broker *broker)
{
	const struct bench_row rss_row = { .name = "broker_rss_100k",
		.unit = "MiB", .regions = row->regions, .threads = 1,
		.processes = 1, .goal = "<= 32" };
	const struct bench_row table_row = { .name = "table_per_region",
		.unit = "bytes", .regions = row->regions, .threads = 1,
		.processes = 1, .goal = "<= 128" };
	struct bench_result *r;
	uint64_t rss, table;

	if (bench_broker_memory(broker, &rss, &table))
		return;
	r = new_result(&table_row);
	r->regc = table ? (double)table / row->regions : -1;
	bench_print(r);
	r = new_result(&rss_row);
	r->regc = (double)rss / 1048576;
	bench_print(r);
}

static void add_note(struct bench_result *r, const char *side, const char *why)
{
	size_t used = strlen(r->note);

	if (why[0])
		snprintf(r->note + used, sizeof(r->note) - used, "%s%s: %.100s",
			 used ? "; " : "", side, why);
}

static void run_row(const struct bench_row *row, const struct settings *set,
		    const struct bench_broker *broker)
{
	struct bench_team regc, peer;
	struct bench_result *r = new_result(row);

	bench_team_start(&peer, row, row->peer, set->run_ms);
	bench_team_start(&regc, row, row->regc, set->run_ms);
	/* The first run of each only warms up. */
	for (uint32_t i = 0; i <= set->n_runs; i++) {
		bench_team_run(&regc);
		bench_team_run(&peer);
		if (i == 0)
			regc.n_runs = peer.n_runs = 0;
	}
	r->regc = bench_team_median(&regc);
	r->peer = bench_team_median(&peer);
	add_note(r, "regc", regc.why);
	add_note(r, row->peer->name, peer.why);
	if (row->regc == &bench_regc_miss && r->regc >= 0 && r->peer >= 0)
		snprintf(r->note, sizeof(r->note),
			 "a miss takes %.1f us above the bare registration",
			 (r->regc - r->peer) / 1000);
	bench_print(r);
	if (row->regions == 100000 && r->regc >= 0)
		memory_results(row, broker);
	bench_team_stop(&regc);
	bench_team_stop(&peer);
}

/* A broker that died is a finding, but the rows that follow shall have one. */
static void check_broker(struct bench_broker *broker, const char *program)
{
	int status = 0;

	if (!broker->pid || bench_broker_alive(broker, &status))
		return;
	fprintf(stderr, "regc-bench: regcached died, status %#x; another starts\n",
		(unsigned int)status);
	bench_broker_stop(broker);
	bench_broker_start(broker, program);
}

static const struct bench_result *find_result(const char *name)
{
	for (uint32_t i = 0; i < n_results; i++)
		if (!strcmp(results[i].name, name))
			return results[i].regc > 0 ? &results[i] : NULL;
	return NULL;
}

/* Ratios between two rows of regc. */
static void compare(const char *words, const char *name, const char *other,
		    const char *goal)
{
	const struct bench_result *a = find_result(name), *b = find_result(other);

	if (a && b)
		printf("%s: %.2f (goal %s)\n", words, a->regc / b->regc, goal);
}

static int parse(int argc, char **argv, struct settings *set)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "only", required_argument, NULL, 'o' },
		{ "json", required_argument, NULL, 'j' },
		{ "broker", required_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'q') {
			set->run_ms = 10;
			set->n_runs = 5;
		} else if (c == 'o') {
			set->only = optarg;
		} else if (c == 'j') {
			set->json = optarg;
		} else if (c == 'b') {
			set->broker = optarg;
		} else if (c == 'h') {
			usage(stdout);
			exit(0);
		} else {
			return -EINVAL;
		}
	}
	return optind == argc ? 0 : -EINVAL;
}

/* Exact name, or else all that begin with it. */
static bool wanted(const struct bench_row *row, const char *only)
{
	if (!only || !strcmp(row->name, only))
		return true;
	for (size_t i = 0; i < N_ROWS; i++)
		if (!strcmp(rows[i].name, only))
			return false;
	return !strncmp(row->name, only, strlen(only));
}

static const char *default_broker(void)
{
	static char path[4096];
	const char *dir = getenv("REGC_BUILDDIR");

	snprintf(path, sizeof(path), "%s/regcached/regcached", dir ? dir : ".");
	return path;
}

int main(int argc, char **argv)
{
	struct settings set = { .broker = default_broker(), .json = "bench.json",
				.run_ms = 50, .n_runs = 11 };
	struct bench_broker broker = { 0 };
	int err;

	if (parse(argc, argv, &set)) {
		fprintf(stderr, "regc-bench: see regc-bench --help\n");
		return 2;
	}
	err = bench_broker_start(&broker, set.broker);
	if (err)
		fprintf(stderr, "regc-bench: %s does not run: %s\n", set.broker,
			strerror(-err));
	print_machine();
	bench_print_head();
	for (size_t i = 0; i < N_ROWS; i++)
		if (wanted(&rows[i], set.only)) {
			run_row(&rows[i], &set, &broker);
			check_broker(&broker, set.broker);
		}
	compare("two threads against one, different regions", "hit_1k_2threads",
		"hit_1k", "<= 1.5");
	compare("two threads against one, same region", "hit_same_2threads",
		"hit_1", "<= 1.5");
	compare("munmap, tracked against untracked", "munmap_tracked",
		"munmap_untracked", "<= 2");
	bench_break_even(results, n_results);
	if (find_result("copy_hot_64k"))
		bench_copy_is_cheaper();
	bench_broker_stop(&broker);
	err = bench_write_json(set.json, results, n_results);
	if (err)
		fprintf(stderr, "regc-bench: %s: %s\n", set.json, strerror(-err));
	return err || !n_results ? 1 : 0;
}
