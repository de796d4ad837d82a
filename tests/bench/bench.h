/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pieces of regc-bench: rows, sides, workers, results.
 *
 * A row of the table is one measurement, made by two sides: regc and a peer.
 * Each side runs in processes of its own (workers), so that the hooks of one
 * never slow the other.  The workers of both sides live at the same time and
 * are told to run in turn (regc, peer, regc, peer ...), so that noise of the
 * machine hits both.  A run is timed in slices of a fraction of a millisecond and
 * its figure is their median, so that a worker that loses its CPU for a while
 * does not count it; the figure of the row is the median of the runs.
 */
#ifndef REGC_BENCH_H
#define REGC_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_REGION_BYTES ((size_t)65536)
#define BENCH_MAX_THREADS 2
#define BENCH_MAX_PROCESSES 2
#define BENCH_WHY_BYTES 160
#define BENCH_MAX_RUNS 31

/* The threads and processes of one run; shared memory. */
#define BENCH_MAX_RUNNERS (BENCH_MAX_THREADS * BENCH_MAX_PROCESSES)

struct bench_gate {
	uint32_t arrived; /* at the start line */
	struct {
		uint32_t slices; /* done by this one */
		uint8_t pad[60];
	} runners[BENCH_MAX_RUNNERS] __attribute__((aligned(64)));
};

struct bench_worker;

/* One way to do the work of a row; its functions run in a worker. */
struct bench_side {
	const char *name;
	/* Once.  0, or -errno with the reason in worker->why. */
	int (*setup)(struct bench_worker *w);
	/* One run; *ret_ns is the time of one operation.  0 or -errno. */
	int (*run)(struct bench_worker *w, double *ret_ns);
};

struct bench_row {
	const char *name;
	const char *unit;
	const struct bench_side *regc;
	const struct bench_side *peer; /* NULL: nothing to compare with */
	uint32_t regions;
	uint32_t threads;
	uint32_t processes;
	uint32_t mode;    /* REGC_MODE_* that regc must be in */
	const char *goal; /* what the design asks for, for show */
	const char *what; /* for --help */
	uint64_t bytes;   /* of a buffer; 0: BENCH_REGION_BYTES */
	bool huge;        /* buffers are of huge pages */
	bool cold;        /* buffers are in no cache */
};

/* What a worker knows; one per worker process. */
struct bench_worker {
	const struct bench_row *row;
	const struct bench_side *side;
	struct bench_gate *gate;
	uint32_t process; /* 0 .. row->processes - 1 */
	double run_ms;    /* how long a run should take */
	uint64_t rounds;  /* of one slice, found by calibration */
	uint32_t n_slices; /* of one run */
	unsigned char *mem;          /* row->regions regions in one mapping */
	uint32_t *order[BENCH_MAX_THREADS]; /* random orders of the regions */
	void *priv;       /* of the side */
	char why[BENCH_WHY_BYTES];
};

/* The parent's end of a worker. */
struct bench_handle {
	int pid;
	int fd;
};

/* A side of a row at work. */
struct bench_team {
	struct bench_handle workers[BENCH_MAX_PROCESSES];
	struct bench_gate *gate;
	uint32_t n;
	double ns[BENCH_MAX_RUNS];
	uint32_t n_runs;
	char why[BENCH_WHY_BYTES]; /* why it cannot run; empty: it can */
};

struct bench_result {
	char name[32];
	char unit[16];
	char peer_name[48];
	char goal[32];
	char note[BENCH_WHY_BYTES]; /* why a number is missing */
	double regc, peer;          /* < 0: missing */
	uint32_t threads, processes, regions;
	uint64_t bytes;
};

/* worker.c */
int bench_team_start(struct bench_team *team, const struct bench_row *row,
		     const struct bench_side *side, double run_ms);
int bench_team_run(struct bench_team *team);
void bench_team_stop(struct bench_team *team);
double bench_team_median(struct bench_team *team);
void bench_why(struct bench_worker *w, int err, const char *what);

/* hit.c: what the hit rows of all sides share */

/* Times of the slices of a run. */
#define BENCH_MAX_SLICES 1024

struct bench_slices {
	uint32_t n;
	double ns[BENCH_MAX_SLICES];
};

/* The first BENCH_MAX_SLICES count. */
void bench_slice_add(struct bench_slices *slices, double ns);
double bench_slice_median(struct bench_slices *slices);

/*
 * Does rounds gets and puts in thread's order, from *pos on; -errno if one was
 * no hit.
 */
typedef int (*bench_loop_fn)(struct bench_worker *w, uint32_t thread,
			     uint32_t *pos, uint64_t rounds);

int bench_memory_new(struct bench_worker *w);
int bench_hit_calibrate(struct bench_worker *w, bench_loop_fn loop);
int bench_hit_run(struct bench_worker *w, bench_loop_fn loop, double *ret_ns);
void bench_pin(uint32_t place);
double bench_now_ns(void);

/* memory.c: system calls on memory, timed */
enum bench_call { BENCH_MUNMAP, BENCH_MMAP, BENCH_MADVISE };

/* Called for each new buffer before the timed part; may be NULL. */
typedef int (*bench_track_fn)(struct bench_worker *w, void *addr, size_t len);

int bench_memory_run(struct bench_worker *w, enum bench_call call,
		     bench_track_fn track, double *ret_ns);

/* broker.c: a private regcached */
struct bench_broker {
	int pid; /* 0: none */
	char dir[64];
	char socket[80];
};

int bench_broker_start(struct bench_broker *broker, const char *program);
bool bench_broker_alive(struct bench_broker *broker, int *ret_status);
void bench_broker_stop(struct bench_broker *broker);
/* Resident bytes of the broker, and bytes of its tables; 0 or -errno. */
int bench_broker_memory(const struct bench_broker *broker, uint64_t *ret_rss,
			uint64_t *ret_table);

/* The sides. */
extern const struct bench_side bench_regc_hit;
extern const struct bench_side bench_regc_miss;
extern const struct bench_side bench_regc_munmap;
extern const struct bench_side bench_regc_munmap_tracked;
extern const struct bench_side bench_regc_mmap;
extern const struct bench_side bench_regc_madvise;
extern const struct bench_side bench_ucx_hit;
extern const struct bench_side bench_bare_probe;
extern const struct bench_side bench_bare_uring;
extern const struct bench_side bench_bare_munmap;
extern const struct bench_side bench_bare_mmap;
extern const struct bench_side bench_bare_madvise;
extern const struct bench_side bench_regc_arm;
extern const struct bench_side bench_regc_report;
extern const struct bench_side bench_regc_copy;
extern const struct bench_side bench_regc_wake;
extern const struct bench_side bench_regc_overlap;
extern const struct bench_side bench_bare_arm;
extern const struct bench_side bench_memcpy;
extern const struct bench_side bench_bare_fault;
extern const struct bench_side bench_bare_wake;
extern const struct bench_side bench_blocking_send;

/* breakeven.c: from which size on protecting costs less than copying */
void bench_break_even(const struct bench_result *results, uint32_t n);
void bench_copy_is_cheaper(void);

/* output.c */
void bench_print_head(void);
void bench_print(const struct bench_result *result);
int bench_write_json(const char *path, const struct bench_result *results,
		     uint32_t n);

#endif
