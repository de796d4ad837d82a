/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The side of regc, as a user's program calls it.
 *
 * The socket of the private broker is in REGC_SOCKET.  Each setup and each run
 * proves by the counters that the row measured what it says: hits were hits,
 * misses were cached registrations.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "libregc/regc.h"
#include "tests/bench/bench.h"
#include "tests/bench/miss.h"
#include "tests/bench/side_regc.h"

#define ACCESS (REGC_ACCESS_LOCAL_WRITE | REGC_ACCESS_REMOTE_WRITE)
#define SETTLE_LIMIT_NS 5e9

static struct regc_library *lib;
static struct regc_domain *dom;

static int open_library(struct bench_worker *w)
{
	struct regc_open_attr attr = { .size = sizeof(attr),
				       .mode = w->row->mode };
	struct regc_status status = { .size = sizeof(status) };
	int err = regc_open("bench", &attr, &lib);

	if (!err)
		err = regc_status(lib, &status);
	if (err) {
		bench_why(w, err, "regc_open");
		return err;
	}
	if (status.connected && status.mode == w->row->mode)
		return 0;
	snprintf(w->why, sizeof(w->why), "%s, mode %u: %.100s",
		 status.connected ? "connected" : "not connected", status.mode,
		 status.why);
	return -ENOTCONN;
}

int bench_regc_open(struct bench_worker *w, struct regc_domain **ret_dom)
{
	int err = open_library(w);

	return err ? err : regc_domain_null(lib, ret_dom);
}

static int get_stats(struct regc_stats *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->size = sizeof(*ret);
	return regc_stats(lib, ret);
}

/* ---- hits ---------------------------------------------------------------- */

static int hit_loop(struct bench_worker *w, uint32_t thread, uint32_t *pos,
		    uint64_t rounds)
{
	const uint32_t *order = w->order[thread];
	uint32_t n = w->row->regions, k = *pos;
	struct regc_domain *d = dom;
	struct regc_lease lease;
	int err;

	for (uint64_t i = 0; i < rounds; i++) {
		err = regc_get(d, w->mem + order[k] * BENCH_REGION_BYTES,
			       BENCH_REGION_BYTES, ACCESS, &lease);
		if (err)
			return err;
		regc_put(&lease);
		if (++k == n)
			k = 0;
	}
	*pos = k;
	return 0;
}

/* No get since *before was anything but a hit. */
static int check_hits(struct bench_worker *w, const struct regc_stats *before)
{
	struct regc_stats now;
	int err = get_stats(&now);

	if (err)
		return err;
	if (now.misses == before->misses && now.uncached == before->uncached &&
	    now.failed == before->failed)
		return 0;
	snprintf(w->why, sizeof(w->why), "%llu misses, %llu uncached in a run",
		 (unsigned long long)(now.misses - before->misses),
		 (unsigned long long)(now.uncached - before->uncached));
	return -EIO;
}

static int hit_setup(struct bench_worker *w)
{
	struct regc_stats stats;
	uint32_t pos = 0;
	int err = open_library(w);

	if (!err)
		err = regc_domain_null(lib, &dom);
	if (!err)
		err = bench_memory_new(w);
	if (!err)
		err = hit_loop(w, 0, &pos, w->row->regions);
	if (!err)
		err = get_stats(&stats);
	if (err)
		return err;
	if (stats.misses != w->row->regions || stats.uncached) {
		snprintf(w->why, sizeof(w->why),
			 "%llu of %u regions cached, %llu uncached",
			 (unsigned long long)stats.misses, w->row->regions,
			 (unsigned long long)stats.uncached);
		return -EIO;
	}
	return bench_hit_calibrate(w, hit_loop);
}

static int hit_run(struct bench_worker *w, double *ret_ns)
{
	struct regc_stats before;
	int err = get_stats(&before);

	if (!err)
		err = bench_hit_run(w, hit_loop, ret_ns);
	return err ? err : check_hits(w, &before);
}

const struct bench_side bench_regc_hit = {
	.name = "regc", .setup = hit_setup, .run = hit_run,
};

/* ---- misses -------------------------------------------------------------- */

static int miss_setup(struct bench_worker *w)
{
	int err = open_library(w);

	if (!err)
		err = regc_domain_uring_new(lib, 8, 4 * BENCH_MISS_BUFFERS, &dom);
	return err;
}

/* Until the registrations of the last batch are undone. */
static int settle(void)
{
	double limit = bench_now_ns() + SETTLE_LIMIT_NS;
	struct regc_stats stats;
	int err;

	do {
		err = get_stats(&stats);
		if (err || stats.deregistrations == stats.registrations)
			return err;
		sched_yield();
	} while (bench_now_ns() < limit);
	return -ETIMEDOUT;
}

static int miss_batch(struct bench_worker *w, double *ret_ns)
{
	unsigned char *mem = bench_miss_map();
	struct regc_lease lease;
	unsigned int uncached = 0;
	double start;
	int err = 0;

	if (!mem)
		return -ENOMEM;
	start = bench_now_ns();
	for (unsigned int i = 0; i < BENCH_MISS_BUFFERS; i++) {
		err = regc_get(dom, mem + i * BENCH_MISS_STRIDE,
			       BENCH_REGION_BYTES, ACCESS, &lease);
		if (err)
			break;
		uncached += lease.flags & REGC_LEASE_UNCACHED;
		regc_put(&lease);
	}
	*ret_ns += bench_now_ns() - start;
	munmap(mem, BENCH_MISS_BYTES);
	if (!err && uncached) {
		snprintf(w->why, sizeof(w->why), "%u of %u gets were uncached",
			 uncached, BENCH_MISS_BUFFERS);
		err = -EIO;
	}
	return err ? err : settle();
}

static int miss_run(struct bench_worker *w, double *ret_ns)
{
	return bench_miss_run(w, miss_batch, ret_ns);
}

const struct bench_side bench_regc_miss = {
	.name = "regc", .setup = miss_setup, .run = miss_run,
};

/* ---- system calls with regc at work --------------------------------------- */

static int track(struct bench_worker *w, void *addr, size_t len)
{
	struct regc_lease lease;
	int err = regc_get(dom, addr, len, ACCESS, &lease);

	if (err)
		return err;
	err = lease.flags & REGC_LEASE_UNCACHED ? -EIO : 0;
	if (err)
		bench_why(w, 0, "a get was uncached");
	regc_put(&lease);
	return err;
}

static int munmap_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MUNMAP, NULL, ret_ns);
}

static int munmap_tracked_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MUNMAP, track, ret_ns);
}

static int mmap_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MMAP, NULL, ret_ns);
}

static int madvise_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MADVISE, NULL, ret_ns);
}

/* All with row->regions other regions cached. */
const struct bench_side bench_regc_munmap = {
	.name = "regc", .setup = hit_setup, .run = munmap_run,
};
const struct bench_side bench_regc_munmap_tracked = {
	.name = "regc", .setup = hit_setup, .run = munmap_tracked_run,
};
const struct bench_side bench_regc_mmap = {
	.name = "regc", .setup = hit_setup, .run = mmap_run,
};
const struct bench_side bench_regc_madvise = {
	.name = "regc", .setup = hit_setup, .run = madvise_run,
};
