/* SPDX-License-Identifier: BSD-2-Clause */
/* What both sides of the miss row share. */
#include <string.h>
#include <sys/mman.h>

#include "tests/bench/miss.h"

unsigned char *bench_miss_map(void)
{
	unsigned char *mem = mmap(NULL, BENCH_MISS_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return NULL;
	memset(mem, 1, BENCH_MISS_BYTES);
	return mem;
}

int bench_miss_run(struct bench_worker *w, bench_batch_fn batch, double *ret_ns)
{
	static struct bench_slices slices;
	double limit = bench_now_ns() + w->run_ms * 1e6, ns;
	int err;

	slices.n = 0;
	do {
		ns = 0;
		err = batch(w, &ns);
		bench_slice_add(&slices, ns / BENCH_MISS_BUFFERS);
	} while (!err && bench_now_ns() < limit);
	*ret_ns = bench_slice_median(&slices);
	return err;
}
