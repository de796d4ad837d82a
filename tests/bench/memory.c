/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls on memory, timed in batches, the same for both sides.
 *
 * A batch maps N_BUFFERS buffers, each a mapping of its own (the kernel joins
 * neighbours, so a page between them is unmapped again).  No page is touched:
 * freeing pages costs the same on both sides and would only hide the rest.
 * Only the calls under test are timed.  What is not timed is done with raw
 * system calls as far as it would otherwise run through hooks for no purpose.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define N_BUFFERS 64
#define GAP_BYTES ((size_t)4096)

static void *map_one(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int map_apart(void **ret_addr)
{
	unsigned char *p = map_one(BENCH_REGION_BYTES + GAP_BYTES);

	if (p == MAP_FAILED)
		return -errno;
	if (syscall(SYS_munmap, p + BENCH_REGION_BYTES, GAP_BYTES) < 0)
		return -errno;
	*ret_addr = p;
	return 0;
}

static void unmap_all(void **addr)
{
	for (int i = 0; i < N_BUFFERS; i++)
		munmap(addr[i], BENCH_REGION_BYTES);
}

static int batch_unmap(struct bench_worker *w, bench_track_fn track, double *ret_ns)
{
	void *addr[N_BUFFERS];
	double start;
	int err = 0;

	for (int i = 0; i < N_BUFFERS && !err; i++) {
		err = map_apart(&addr[i]);
		if (!err && track)
			err = track(w, addr[i], BENCH_REGION_BYTES);
	}
	if (err)
		return err;
	start = bench_now_ns();
	unmap_all(addr);
	*ret_ns += bench_now_ns() - start;
	return 0;
}

static int batch_map(double *ret_ns)
{
	void *addr[N_BUFFERS];
	double start = bench_now_ns();

	for (int i = 0; i < N_BUFFERS; i++)
		addr[i] = map_one(BENCH_REGION_BYTES);
	*ret_ns += bench_now_ns() - start;
	for (int i = 0; i < N_BUFFERS; i++)
		if (addr[i] == MAP_FAILED)
			return -ENOMEM;
	unmap_all(addr);
	return 0;
}

static int batch_advise(double *ret_ns)
{
	void *addr[N_BUFFERS];
	double start;
	int err = 0;

	for (int i = 0; i < N_BUFFERS && !err; i++)
		err = map_apart(&addr[i]);
	if (err)
		return err;
	start = bench_now_ns();
	for (int i = 0; i < N_BUFFERS; i++)
		err |= madvise(addr[i], BENCH_REGION_BYTES, MADV_DONTNEED);
	*ret_ns += bench_now_ns() - start;
	unmap_all(addr);
	return err ? -EINVAL : 0;
}

/* Batches until w->run_ms have passed; *ret_ns is the time of one call. */
int bench_memory_run(struct bench_worker *w, enum bench_call call,
		     bench_track_fn track, double *ret_ns)
{
	static struct bench_slices slices;
	double limit = bench_now_ns() + w->run_ms * 1e6, ns;
	int err;

	slices.n = 0;
	do {
		ns = 0;
		if (call == BENCH_MUNMAP)
			err = batch_unmap(w, track, &ns);
		else if (call == BENCH_MMAP)
			err = batch_map(&ns);
		else
			err = batch_advise(&ns);
		bench_slice_add(&slices, ns / N_BUFFERS);
	} while (!err && bench_now_ns() < limit);
	*ret_ns = bench_slice_median(&slices);
	return err;
}
