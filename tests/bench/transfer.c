/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sides of the transfer rows share. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "shm/atomic.h"
#include "tests/bench/transfer.h"

#define COLD_BYTES ((size_t)256 << 20) /* more than any cache holds */
#define HUGE_BYTES ((size_t)2 << 20)
#define SLICE_NS 100e3
#define LIMIT_NS 5e9

/* ---- memory -------------------------------------------------------------- */

/* Bytes of huge pages in the mapping that starts at mem. */
static size_t huge_bytes(const void *mem)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long kib = 0;
	uintptr_t start, end;
	char line[256];
	bool here = false;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2)
			here = start == (uintptr_t)mem;
		if (here && sscanf(line, "AnonHugePages: %lu", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib << 10;
}

int bench_pool_new(struct bench_worker *w, struct bench_pool *ret)
{
	size_t bytes = w->row->bytes;

	if (w->row->cold && bytes < COLD_BYTES)
		bytes = COLD_BYTES / bytes * bytes;
	ret->each = w->row->bytes;
	ret->bytes = bytes;
	ret->next = 0;
	ret->mem = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ret->mem == MAP_FAILED) {
		bench_why(w, -errno, "mapping the buffers");
		return -ENOMEM;
	}
	/* A mapping of its own, so that smaps tells of it alone. */
	munmap(ret->mem, -(uintptr_t)ret->mem & (HUGE_BYTES - 1));
	ret->mem += -(uintptr_t)ret->mem & (HUGE_BYTES - 1);
	madvise(ret->mem, bytes, w->row->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(ret->mem, 1, bytes);
	if (!w->row->huge || huge_bytes(ret->mem) >= bytes)
		return 0;
	bench_why(w, 0, "the kernel gives no huge pages");
	return -ENOTSUP;
}

/* ---- times --------------------------------------------------------------- */

int bench_op_run(struct bench_worker *w, bench_op_fn op, double *ret_ns)
{
	static struct bench_slices slices;
	double limit = bench_now_ns() + w->run_ms * 1e6, start, ns;
	uint64_t rounds = 1;
	int err = 0;

	slices.n = 0;
	do {
		start = bench_now_ns();
		for (uint64_t i = 0; i < rounds && !err; i++)
			err = op(w);
		ns = bench_now_ns() - start;
		if (ns < SLICE_NS / 2)
			rounds *= 2;
		else
			bench_slice_add(&slices, ns / (double)rounds);
	} while (!err && (bench_now_ns() < limit || !slices.n));
	*ret_ns = bench_slice_median(&slices);
	return err;
}

int bench_timed_run(struct bench_worker *w, bench_timed_fn op, double *ret_ns)
{
	static struct bench_slices slices;
	double limit = bench_now_ns() + w->run_ms * 1e6, ns;
	int err;

	slices.n = 0;
	do {
		ns = 0;
		err = op(w, &ns);
		if (ns > 0)
			bench_slice_add(&slices, ns);
	} while (!err && bench_now_ns() < limit);
	*ret_ns = bench_slice_median(&slices);
	if (!err && !slices.n) {
		bench_why(w, 0, "no operation counted");
		err = -EAGAIN;
	}
	return err;
}

/* ---- a thread that stores ------------------------------------------------- */

static void *write_on_demand(void *arg)
{
	struct bench_writer *writer = arg;

	bench_pin(0); /* a worker alone has place 1 */
	for (uint32_t n = 1;; n++) {
		while (rtab_load_acquire(&writer->told) != n)
			rtab_cpu_relax();
		rtab_store_release(writer->page, (unsigned char)n);
		writer->done_ns = bench_now_ns();
		rtab_store_release(&writer->done, n);
	}
	return NULL;
}

int bench_writer_start(struct bench_writer *writer, unsigned char *page)
{
	writer->page = page;
	return -pthread_create(&writer->thread, NULL, write_on_demand, writer);
}

void bench_writer_tell(struct bench_writer *writer)
{
	rtab_store_release(&writer->told, writer->told + 1);
}

int bench_writer_wait(struct bench_writer *writer)
{
	double limit = bench_now_ns() + LIMIT_NS;

	while (rtab_load_acquire(&writer->done) != writer->told) {
		if (bench_now_ns() > limit)
			return -ETIMEDOUT;
		rtab_cpu_relax();
	}
	return 0;
}

/* ---- computing and sending ----------------------------------------------- */

void bench_work_do(const struct bench_work *work, unsigned char *mem, size_t bytes)
{
	volatile uint64_t x = 1;

	for (size_t off = 0; off < bytes; off += BENCH_PAGE) {
		for (uint32_t i = 0; i < work->rounds; i++)
			x = x * UINT64_C(6364136223846793005) + 1;
		*(volatile uint64_t *)(mem + off) = x;
	}
}

void bench_work_calibrate(struct bench_work *work, unsigned char *mem, size_t bytes,
			  double ns)
{
	double best = 1e12, start, took;

	work->rounds = 1000;
	for (int i = 0; i < 7; i++) {
		start = bench_now_ns();
		bench_work_do(work, mem, bytes);
		took = bench_now_ns() - start;
		if (took < best)
			best = took;
	}
	work->rounds = (uint32_t)(work->rounds * ns / best) + 1;
}

static void wait_until(double when)
{
	struct timespec left = { 0 };
	double ns;

	while ((ns = when - bench_now_ns()) > 0) {
		left.tv_nsec = (long)ns;
		ppoll(NULL, 0, &left, NULL);
	}
}

static void *run_wire(void *arg)
{
	struct bench_wire *wire = arg;
	double idle_from = 0, now;
	uint32_t n;

	bench_pin(0);
	prctl(PR_SET_TIMERSLACK, 1000);
	for (n = 0;; n++) {
		pthread_mutex_lock(&wire->lock);
		while (wire->posted <= n)
			pthread_cond_wait(&wire->changed, &wire->lock);
		pthread_mutex_unlock(&wire->lock);
		now = bench_now_ns();
		/* It goes on at once if it was there before the last was done. */
		if (idle_from < now - BENCH_WIRE_NS / 20)
			idle_from = now;
		idle_from += BENCH_WIRE_NS;
		wait_until(idle_from);
		wire->on_done(wire->arg, n);
		pthread_mutex_lock(&wire->lock);
		wire->done = n + 1;
		pthread_cond_broadcast(&wire->changed);
		pthread_mutex_unlock(&wire->lock);
	}
	return NULL;
}

int bench_wire_start(struct bench_wire *wire,
		     void (*on_done)(void *arg, uint32_t number), void *arg)
{
	pthread_mutex_init(&wire->lock, NULL);
	pthread_cond_init(&wire->changed, NULL);
	wire->posted = wire->done = 0;
	wire->on_done = on_done;
	wire->arg = arg;
	return -pthread_create(&wire->thread, NULL, run_wire, wire);
}

uint32_t bench_wire_post(struct bench_wire *wire)
{
	uint32_t n;

	pthread_mutex_lock(&wire->lock);
	n = wire->posted++;
	pthread_cond_broadcast(&wire->changed);
	pthread_mutex_unlock(&wire->lock);
	return n;
}

void bench_wire_wait(struct bench_wire *wire, uint32_t number)
{
	pthread_mutex_lock(&wire->lock);
	while (wire->done <= number)
		pthread_cond_wait(&wire->changed, &wire->lock);
	pthread_mutex_unlock(&wire->lock);
}
