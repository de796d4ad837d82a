/* SPDX-License-Identifier: BSD-2-Clause */
/* Library handles: open, close, statistics, status, explicit invalidation. */
#include "libregc/runtime.h"
#include "libregc/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was asked for ------------------------------------------------- */

/*
 * Job identifiers that launchers export, in order of trust: PMIx (Open MPI 4+,
 * Slurm with PMIx), Slurm, Open MPI's own, Hydra (MPICH), PBS, LSF.
 */
static const struct {
	const char *variable;
	const char *prefix;
} launchers[] = {
	{ "PMIX_NAMESPACE", "pmix-" },
	{ "SLURM_JOB_ID", "slurm-" },
	{ "OMPI_MCA_ess_base_jobid", "ompi-" },
	{ "PMI_JOBID", "pmi-" },
	{ "PBS_JOBID", "pbs-" },
	{ "LSB_JOBID", "lsf-" },
};

static void choose_group(const char *asked)
{
	const char *value = asked ? asked : secure_getenv("REGC_GROUP");
	size_t i;

	rt.asked_group[0] = '\0';
	if (value && value[0]) {
		snprintf(rt.asked_group, sizeof(rt.asked_group), "%s", value);
		return;
	}
	for (i = 0; i < RTAB_ARRAY_SIZE(launchers); i++) {
		value = secure_getenv(launchers[i].variable);
		if (!value || !value[0])
			continue;
		snprintf(rt.asked_group, sizeof(rt.asked_group), "%s%s",
			 launchers[i].prefix, value);
		return;
	}
}

static int choose_wanted_mode(uint32_t asked)
{
	static const char *const names[] = {
		[REGC_MODE_OFF] = "off", [REGC_MODE_FAST] = "fast",
		[REGC_MODE_STRICT] = "strict", [REGC_MODE_AUTO] = "auto",
	};
	const char *value = secure_getenv("REGC_MODE");
	uint32_t i;

	rt.asked_mode = asked;
	rt.asked_off = false;
	if (asked || !value || !value[0])
		return 0;
	for (i = 0; i < RTAB_ARRAY_SIZE(names); i++)
		if (strcmp(value, names[i]) == 0) {
			rt.asked_mode = i;
			rt.asked_off = i == REGC_MODE_OFF;
			return 0;
		}
	return -EINVAL;
}

/* init lock; only the first library decides. */
static int choose(const struct regc_open_attr *attr)
{
	const char *path = attr ? attr->socket : NULL;

	choose_group(attr ? attr->group : NULL);
	if (!path)
		path = secure_getenv("REGC_SOCKET");
	if (path && strlen(path) >= sizeof(rt.socket_path))
		return -EINVAL;
	snprintf(rt.socket_path, sizeof(rt.socket_path), "%s", path ? path : "");
	return choose_wanted_mode(attr ? attr->mode : 0);
}

/* ---- open and close ----------------------------------------------------- */

/* Cache lock. */
static void show(const struct regc_library *lib)
{
	struct rtab_library *out;

	if (!rt.attached)
		return;
	out = &rt.area.area->libraries[lib->index];
	memcpy(out->name, lib->name, sizeof(out->name));
	out->index = lib->index;
	out->opened_ns = rtab_now_ns();
	rtab_store_release(&out->in_use, 1);
}

void library_show_all(void)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_LIBRARIES; i++)
		if (rt.libraries[i])
			show(rt.libraries[i]);
	for (i = 0; i < RTAB_N_DOMAINS; i++)
		domain_show(&rt.domains[i]);
}

/* init lock. */
static bool first_library(void)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_LIBRARIES; i++)
		if (rt.libraries[i])
			return false;
	return !rt.attached;
}

/* Cache lock: of a library that was closed and had this number. */
static void forget_counters(uint32_t index)
{
	uint32_t t;

	for (t = 0; rt.attached && t < rt.area.area->n_threads; t++)
		memset(&rt.area.area->threads[t].counters[index], 0,
		       sizeof(struct rtab_counters));
}

static int add_library(struct regc_library *lib)
{
	uint32_t i;

	rt_cache_lock();
	for (i = 0; i < RTAB_N_LIBRARIES - 1 && rt.libraries[i]; i++)
		;
	if (i < RTAB_N_LIBRARIES - 1) {
		lib->index = i;
		forget_counters(i);
		rt.libraries[i] = lib;
		show(lib);
	}
	rt_cache_unlock();
	return i < RTAB_N_LIBRARIES - 1 ? 0 : -ENOSPC;
}

int regc_open(const char *name, const struct regc_open_attr *attr,
	      struct regc_library **ret_lib)
{
	struct regc_library *lib;
	int saved = errno, r;

	if (!name || !name[0] || strlen(name) >= sizeof(lib->name) ||
	    (attr && (attr->size < sizeof(*attr) || attr->mode > REGC_MODE_AUTO)) ||
	    (attr && attr->group && strlen(attr->group) >= sizeof(rt.group)))
		return -EINVAL;
	r = rt_enter();
	if (r)
		return r;
	lib = calloc(1, sizeof(*lib));
	if (!lib)
		return -ENOMEM;
	memcpy(lib->name, name, strlen(name));
	lib->strict = attr && attr->mode == REGC_MODE_STRICT;
	monitor_hooks_resolve();
	rt_lock_take(&rt.wipe->init_lock);
	if (first_library())
		r = choose(attr);
	if (!r)
		r = add_library(lib);
	/* Without a broker gets are uncached, and regc_status() says why. */
	if (!r)
		link_join(RT_OPEN_WAIT_MS);
	rt_lock_drop(&rt.wipe->init_lock);
	errno = saved;
	if (r) {
		free(lib);
		return r;
	}
	*ret_lib = lib;
	return 0;
}

int regc_close(struct regc_library *lib)
{
	if (!lib)
		return 0;
	if (rt_enter())
		return 0;
	rt_cache_lock();
	if (lib->n_domains) {
		rt_cache_unlock();
		return -EBUSY;
	}
	monitor_hooks_listen(lib->index, NULL, NULL);
	rt.libraries[lib->index] = NULL;
	if (rt.attached)
		rtab_store_release(&rt.area.area->libraries[lib->index].in_use,
				   0);
	rt_cache_unlock();
	helper_forget(lib);
	free(lib);
	return 0;
}

/* ---- what it does ------------------------------------------------------- */

static void add_counters(struct regc_stats *out, const struct rtab_counters *c)
{
	out->hits += rtab_load_relaxed(&c->hits);
	out->misses += rtab_load_relaxed(&c->misses);
	out->uncached += rtab_load_relaxed(&c->uncached);
	out->failed += rtab_load_relaxed(&c->failed);
	out->puts += rtab_load_relaxed(&c->puts);
	out->restarts += rtab_load_relaxed(&c->restarts);
	out->waits += rtab_load_relaxed(&c->waits);
	out->reg_ns += rtab_load_relaxed(&c->reg_ns);
}

static void area_stats(const struct regc_library *lib, struct regc_stats *out)
{
	const struct rtab_area *area = rt.area.area;
	uint32_t n = rtab_load_acquire(&area->n_threads), t;

	for (t = 0; t < n; t++)
		add_counters(out, &area->threads[t].counters[lib->index]);
	out->registrations = rtab_load_relaxed(&area->regs);
	out->clones = rtab_load_relaxed(&area->clones);
	out->deregistrations = rtab_load_relaxed(&area->deregs);
	out->regions = rtab_load_relaxed(&rt.n_live);
	out->pinned_bytes = rtab_load_relaxed(&area->pinned_bytes);
	out->freed_leased = rtab_load_relaxed(&area->freed_leased);
	out->all_voids = rtab_load_relaxed(&area->all_voids);
}

int regc_stats(struct regc_library *lib, struct regc_stats *ret)
{
	struct regc_stats out = { .size = ret->size };

	if (ret->size < sizeof(ret->size))
		return -EINVAL;
	if (rt_enter() == 0) {
		add_counters(&out, &lib->slow);
		if (rt.attached)
			area_stats(lib, &out);
	}
	memcpy(ret, &out, rtab_min_u64(ret->size, sizeof(out)));
	return 0;
}

int regc_status(struct regc_library *lib, struct regc_status *ret)
{
	struct regc_status out = { .size = ret->size };

	(void)lib;
	if (ret->size < sizeof(ret->size))
		return -EINVAL;
	if (rt_enter() == 0) {
		rt_lock_take(&rt.wipe->init_lock);
		out.connected = link_broker_alive();
		out.mode = out.connected ? rtab_load_relaxed(&rt.mode) : REGC_MODE_OFF;
		out.broker_pid = out.connected ? rt.broker_pid : 0;
		out.space = rt.space;
		memcpy(out.group, rt.group, sizeof(out.group));
		memcpy(out.why, rt.why, sizeof(out.why));
		if (out.connected && link_stalled())
			snprintf(out.why, sizeof(out.why),
				 "the broker does not answer: misses are uncached");
		rt_lock_drop(&rt.wipe->init_lock);
	}
	memcpy(ret, &out, rtab_min_u64(ret->size, sizeof(out)));
	return 0;
}

int regc_invalidate(struct regc_library *lib, const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr, end = start + len;
	int r = rt_enter();

	(void)lib;
	if (r)
		return r;
	if (end < start)
		return -EINVAL;
	if (!rt.attached || end == start)
		return 0;
	changes_before(start, end, RTAB_CAUSE_INVALIDATE, false);
	rt_cache_lock();
	changes_consume();
	rt_cache_unlock();
	retire_settle();
	return 0;
}

int regc_on_change(struct regc_library *lib, regc_change_fn *fn, void *arg)
{
	int r = rt_enter();

	if (r)
		return r;
	/* Hooks stay when the mode is another later: so do listeners. */
	if (fn && rtab_load_relaxed(&rt.mode) != RTAB_MODE_FAST)
		return -ENOTSUP;
	rt_lock_take(&rt.wipe->init_lock);
	monitor_hooks_listen(lib->index, fn, arg);
	rt_lock_drop(&rt.wipe->init_lock);
	return 0;
}

int regc_lease_range(const struct regc_lease *lease, uint64_t *ret_start,
		     uint64_t *ret_len)
{
	const struct rtab_reg *reg = lease->priv[0];

	const struct regc_domain *dom = lease->priv[1];

	if (lease->flags & REGC_LEASE_UNCACHED)
		return miss_uncached_range(lease, ret_start, ret_len);
	if (dom->attach != rt.wipe->attach)
		return -ENOTUNIQ;
	*ret_start = rtab_load_relaxed(&reg->start);
	*ret_len = rtab_load_relaxed(&reg->end) - *ret_start;
	return 0;
}
