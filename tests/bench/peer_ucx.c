/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The registration cache of UCX as a peer of the hit rows.
 *
 * The cache is in libucs, which is loaded at run time, so a machine without it
 * only lacks a column.  Its memory events are on, as in every real use; its
 * registration callbacks do nothing.  setup proves that a region was registered
 * exactly once, and each run that it registered nothing more: all gets were hits.
 */
#include <errno.h>

#include "tests/bench/bench.h"

#ifdef HAVE_UCX

#include <dlfcn.h>
#include <limits.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

struct ucx {
	ucs_rcache_t *cache;
	__typeof__(&ucs_rcache_create) create;
	__typeof__(&ucs_rcache_get) get;
	__typeof__(&ucs_rcache_region_put) put;
	uint64_t n_registered;
	uint64_t n_gone;
};

static struct ucx ucx;

static ucs_status_t on_reg(void *context, ucs_rcache_t *cache, void *arg,
			   ucs_rcache_region_t *region, uint16_t flags)
{
	(void)context, (void)cache, (void)arg, (void)region, (void)flags;
	ucx.n_registered++;
	return UCS_OK;
}

static void on_dereg(void *context, ucs_rcache_t *cache,
		     ucs_rcache_region_t *region)
{
	(void)context, (void)cache, (void)region;
	ucx.n_gone++;
}

static void on_dump(void *context, ucs_rcache_t *cache,
		    ucs_rcache_region_t *region, char *buf, size_t max)
{
	(void)context, (void)cache, (void)region;
	if (max)
		buf[0] = '\0';
}

static const ucs_rcache_ops_t ops = {
	.mem_reg = on_reg,
	.mem_dereg = on_dereg,
	.dump_region = on_dump,
};

static int load(struct bench_worker *w)
{
	void *lib = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);

	if (lib) {
		ucx.create = (__typeof__(ucx.create))dlsym(lib,
							   "ucs_rcache_create");
		ucx.get = (__typeof__(ucx.get))dlsym(lib, "ucs_rcache_get");
		ucx.put = (__typeof__(ucx.put))dlsym(lib,
						     "ucs_rcache_region_put");
	}
	if (ucx.create && ucx.get && ucx.put)
		return 0;
	bench_why(w, 0, "libucs.so.0 or a symbol of it is missing");
	return -ENOENT;
}

static int ucx_loop(struct bench_worker *w, uint32_t thread, uint32_t *pos,
		    uint64_t rounds)
{
	const uint32_t *order = w->order[thread];
	uint32_t n = w->row->regions, k = *pos;
	ucs_rcache_region_t *region;
	ucs_rcache_t *cache = ucx.cache;
	ucs_status_t status;

	for (uint64_t i = 0; i < rounds; i++) {
		status = ucx.get(cache, w->mem + order[k] * BENCH_REGION_BYTES,
				 BENCH_REGION_BYTES, PROT_READ | PROT_WRITE,
				 NULL, &region);
		if (status != UCS_OK)
			return -EIO;
		ucx.put(cache, region);
		if (++k == n)
			k = 0;
	}
	*pos = k;
	return 0;
}

static int check(struct bench_worker *w)
{
	if (ucx.n_registered == w->row->regions && !ucx.n_gone)
		return 0;
	bench_why(w, 0, "regions were registered more than once");
	return -EIO;
}

static int ucx_setup(struct bench_worker *w)
{
	ucs_rcache_params_t params = {
		.region_struct_size = sizeof(ucs_rcache_region_t),
		.alignment = UCS_RCACHE_MIN_ALIGNMENT,
		.max_alignment = 4096,
		.ucm_events = UCM_EVENT_VM_UNMAPPED,
		.ucm_event_priority = 1000,
		.ops = &ops,
		.flags = UCS_RCACHE_FLAG_NO_PFN_CHECK,
		.max_regions = ULONG_MAX,
		.max_size = SIZE_MAX,
		.max_unreleased = SIZE_MAX,
	};
	uint32_t pos = 0;
	int err = load(w);

	if (!err)
		err = bench_memory_new(w);
	if (err)
		return err;
	if (ucx.create(&params, "regc-bench", NULL, &ucx.cache) != UCS_OK) {
		bench_why(w, 0, "ucs_rcache_create() failed");
		return -EIO;
	}
	err = ucx_loop(w, 0, &pos, w->row->regions);
	if (!err)
		err = check(w);
	return err ? err : bench_hit_calibrate(w, ucx_loop);
}

static int ucx_run(struct bench_worker *w, double *ret_ns)
{
	int err = bench_hit_run(w, ucx_loop, ret_ns);

	return err ? err : check(w);
}

#else

static int ucx_setup(struct bench_worker *w)
{
	bench_why(w, 0, "built without UCX");
	return -ENOSYS;
}

static int ucx_run(struct bench_worker *w, double *ret_ns)
{
	(void)w, (void)ret_ns;
	return -ENOSYS;
}

#endif

const struct bench_side bench_ucx_hit = {
	.name = "UCX rcache",
	.setup = ucx_setup,
	.run = ucx_run,
};
