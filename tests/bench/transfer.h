/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the sides of the transfer rows share: buffers, single operations, times.
 *
 * Hot rows use one buffer of row->bytes again and again, cold ones go through a pool
 * that no cache holds.  Every page is touched before.  Rows of huge pages fail where
 * the kernel gives none.
 */
#ifndef REGC_BENCH_TRANSFER_H
#define REGC_BENCH_TRANSFER_H

#include <pthread.h>

#include "tests/bench/bench.h"

#define BENCH_PAGE ((size_t)4096)

struct bench_pool {
	unsigned char *mem;
	size_t bytes; /* of all */
	size_t each;  /* row->bytes */
	size_t next;
};

int bench_pool_new(struct bench_worker *w, struct bench_pool *ret);

static inline unsigned char *bench_pool_next(struct bench_pool *pool)
{
	unsigned char *at = pool->mem + pool->next;

	pool->next += pool->each;
	if (pool->next + pool->each > pool->bytes)
		pool->next = 0;
	return at;
}

/* One operation; -errno ends the run. */
typedef int (*bench_op_fn)(struct bench_worker *w);

/* Until w->run_ms have passed; *ret_ns is the time of one operation. */
int bench_op_run(struct bench_worker *w, bench_op_fn op, double *ret_ns);

/* One operation that takes its own time, 0: it does not count. */
typedef int (*bench_timed_fn)(struct bench_worker *w, double *ret_ns);

int bench_timed_run(struct bench_worker *w, bench_timed_fn op, double *ret_ns);

/*
 * A thread that stores to a page when told to, and says when the store was done;
 * it runs on another processor than the worker.
 */
struct bench_writer {
	pthread_t thread;
	unsigned char *page;
	uint32_t told, done; /* numbers of stores */
	double done_ns;      /* time when the last was done */
};

int bench_writer_start(struct bench_writer *writer, unsigned char *page);
void bench_writer_tell(struct bench_writer *writer);
/* Until the store is done; -ETIMEDOUT. */
int bench_writer_wait(struct bench_writer *writer);

/* A computation of about ns that stores to every page of mem. */
struct bench_work {
	uint32_t rounds;
};

void bench_work_calibrate(struct bench_work *work, unsigned char *mem, size_t bytes,
			  double ns);
void bench_work_do(const struct bench_work *work, unsigned char *mem, size_t bytes);

/*
 * A device made of a timer: each message takes BENCH_WIRE_NS, one after the other;
 * then it calls done() on its own thread.
 */
#define BENCH_WIRE_NS 2e6
#define BENCH_STEPS 16 /* messages of one operation of the overlap row */

struct bench_wire {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t posted, done; /* numbers of messages */
	void (*on_done)(void *arg, uint32_t number);
	void *arg;
};

int bench_wire_start(struct bench_wire *wire,
		     void (*on_done)(void *arg, uint32_t number), void *arg);
/* Returns the number of the message, from 0 on. */
uint32_t bench_wire_post(struct bench_wire *wire);
/* Until message number is done. */
void bench_wire_wait(struct bench_wire *wire, uint32_t number);

#endif
