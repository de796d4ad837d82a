/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The miss row: buffers that were never seen, the same for both sides.
 *
 * A batch is a fresh mapping of BENCH_MISS_BUFFERS buffers with a page between
 * them, every page touched.  Registration alone is timed, not its undoing.
 */
#ifndef REGC_BENCH_MISS_H
#define REGC_BENCH_MISS_H

#include "tests/bench/bench.h"

/* 3 MiB a batch, so that two sides fit into the usual RLIMIT_MEMLOCK. */
#define BENCH_MISS_BUFFERS 48U
#define BENCH_MISS_STRIDE (BENCH_REGION_BYTES + 4096)
#define BENCH_MISS_BYTES (BENCH_MISS_BUFFERS * BENCH_MISS_STRIDE)

unsigned char *bench_miss_map(void);

/* Adds the time of BENCH_MISS_BUFFERS registrations to *ret_ns. */
typedef int (*bench_batch_fn)(struct bench_worker *w, double *ret_ns);

int bench_miss_run(struct bench_worker *w, bench_batch_fn batch, double *ret_ns);

#endif
