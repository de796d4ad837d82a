/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the hit rows of all sides share: memory, order, threads, time.
 *
 * Regions are BENCH_REGION_BYTES each, side by side in one mapping that nobody
 * touches.  They are visited in a random order made once with a fixed seed; both
 * sides use the same.  Each thread goes through all regions before the time is
 * taken, and all threads of all processes of a side start together.  A slice
 * counts only if the others got on meanwhile: a thread whose rival was kept from
 * its CPU measured something else.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "shm/atomic.h"
#include "tests/bench/bench.h"

#define GATE_LIMIT_NS 20e9
#define SLICE_MS 0.25
#define TRIES 4 /* times the slices wanted */

struct job {
	struct bench_worker *w;
	bench_loop_fn loop;
	uint32_t thread;
	int err;
	double ns; /* of one operation */
	pthread_t id;
	struct bench_slices slices;
};

double bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Pins the calling thread to the place-th CPU that it may use, in turn. */
void bench_pin(uint32_t place)
{
	static cpu_set_t all;
	static int n_all;
	cpu_set_t one;

	if (!n_all) {
		if (sched_getaffinity(0, sizeof(all), &all) < 0)
			return;
		n_all = CPU_COUNT(&all);
	}
	place %= (uint32_t)n_all;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || place--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
		return;
	}
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint32_t *new_order(uint32_t n, uint64_t seed)
{
	uint32_t *order = malloc(n * sizeof(*order));

	if (!order)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t j = (uint32_t)(next_random(&seed) % (i + 1));
		uint32_t swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
	return order;
}

/* Sets w->mem and w->order; they stay until the worker ends. */
int bench_memory_new(struct bench_worker *w)
{
	size_t bytes = w->row->regions * BENCH_REGION_BYTES;

	w->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w->mem == MAP_FAILED) {
		bench_why(w, -errno, "mapping the regions");
		return -ENOMEM;
	}
	for (uint32_t t = 0; t < w->row->threads; t++) {
		w->order[t] = new_order(w->row->regions,
					UINT64_C(0x9e3779b97f4a7c15) + t +
						2 * w->process);
		if (!w->order[t])
			return -ENOMEM;
	}
	return 0;
}

/* Finds how many rounds take SLICE_MS. */
int bench_hit_calibrate(struct bench_worker *w, bench_loop_fn loop)
{
	uint64_t rounds = 2 * (uint64_t)w->row->regions + 1000;
	uint32_t pos = 0;
	double start, ns;
	int err;

	for (;;) {
		start = bench_now_ns();
		err = loop(w, 0, &pos, rounds);
		ns = bench_now_ns() - start;
		if (err)
			return err;
		if (ns > 1e6)
			break;
		rounds *= 4;
	}
	w->rounds = (uint64_t)((double)rounds * SLICE_MS * 1e6 / ns) + 1;
	w->n_slices = (uint32_t)(w->run_ms / SLICE_MS) + 1;
	return 0;
}

static int wait_gate(struct bench_worker *w)
{
	uint32_t all = w->row->threads * w->row->processes;
	double limit = bench_now_ns() + GATE_LIMIT_NS;

	rtab_fetch_add(&w->gate->arrived, 1);
	while (rtab_load_acquire(&w->gate->arrived) < all) {
		if (bench_now_ns() > limit)
			return -ETIMEDOUT;
		rtab_cpu_relax();
	}
	return 0;
}

static uint32_t runner_of(const struct job *job)
{
	return job->w->process * job->w->row->threads + job->thread;
}

static void look_at_others(const struct job *job, uint32_t *ret_slices)
{
	uint32_t n = job->w->row->threads * job->w->row->processes;

	for (uint32_t i = 0; i < n; i++)
		ret_slices[i] =
			rtab_load_acquire(&job->w->gate->runners[i].slices);
}

/* True if all others have done something since *before. */
static bool others_went_on(const struct job *job, const uint32_t *before)
{
	uint32_t n = job->w->row->threads * job->w->row->processes;
	uint32_t now[BENCH_MAX_RUNNERS];

	look_at_others(job, now);
	for (uint32_t i = 0; i < n; i++)
		if (i != runner_of(job) && now[i] == before[i])
			return false;
	return true;
}

static int run_slices(struct job *job, uint32_t *pos)
{
	struct bench_worker *w = job->w;
	uint32_t before[BENCH_MAX_RUNNERS];
	double start, ns;
	int err = 0;

	job->slices.n = 0;
	for (uint32_t i = 0; i < TRIES * w->n_slices && !err; i++) {
		look_at_others(job, before);
		start = bench_now_ns();
		err = job->loop(w, job->thread, pos, w->rounds);
		ns = bench_now_ns() - start;
		rtab_fetch_add(&w->gate->runners[runner_of(job)].slices, 1);
		if (others_went_on(job, before))
			bench_slice_add(&job->slices, ns / (double)w->rounds);
		if (job->slices.n == w->n_slices)
			break;
	}
	if (!err && !job->slices.n) {
		bench_why(w, 0, "no two threads ran at the same time");
		err = -EAGAIN;
	}
	return err;
}

static void *run_thread(void *arg)
{
	struct job *job = arg;
	struct bench_worker *w = job->w;
	uint32_t pos = 0;

	if (w->row->threads > 1)
		bench_pin(job->thread);
	job->err = job->loop(w, job->thread, &pos,
			     2 * (uint64_t)w->row->regions + 1000);
	if (!job->err)
		job->err = wait_gate(w);
	if (job->err)
		return NULL;
	job->err = run_slices(job, &pos);
	job->ns = bench_slice_median(&job->slices);
	return NULL;
}

/* One run in row->threads threads; *ret_ns is the mean of what each saw. */
int bench_hit_run(struct bench_worker *w, bench_loop_fn loop, double *ret_ns)
{
	static struct job jobs[BENCH_MAX_THREADS];
	uint32_t n = w->row->threads;
	double sum = 0;
	int err = 0;

	for (uint32_t t = 0; t < n; t++)
		jobs[t] = (struct job){ .w = w, .loop = loop, .thread = t };
	if (n == 1) {
		run_thread(&jobs[0]);
	} else {
		for (uint32_t t = 0; t < n; t++)
			if (pthread_create(&jobs[t].id, NULL, run_thread,
					   &jobs[t]))
				_Exit(1); /* the others wait at the gate */
		for (uint32_t t = 0; t < n; t++)
			pthread_join(jobs[t].id, NULL);
	}
	for (uint32_t t = 0; t < n; t++) {
		if (jobs[t].err)
			err = jobs[t].err;
		sum += jobs[t].ns;
	}
	*ret_ns = sum / n;
	return err;
}
