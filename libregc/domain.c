/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domains: one struct rt_domain for what a key is valid in, shared by every
 * library of the process that names the same device and context, and one handle
 * a library.
 */
#include "libregc/runtime.h"
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- device calls ------------------------------------------------------- */

/* Limits that hold before the device is asked. */
static int may_reg(const struct rt_domain *d, uint64_t bytes)
{
	if (d->limits.max_bytes && bytes > d->limits.max_bytes)
		return -E2BIG;
	if (d->limits.max_registrations &&
	    rtab_load_relaxed(&d->n_regs) >= d->limits.max_registrations)
		return -ENOSPC;
	return 0;
}

static void count_reg(struct rt_domain *d, bool cloned)
{
	rtab_fetch_add(&d->n_regs, 1);
	if (rt.attached) {
		rtab_fetch_add(&rt.area.area->regs, 1);
		if (cloned)
			rtab_fetch_add(&rt.area.area->clones, 1);
	}
}

int domain_reg(struct rt_domain *d, uint64_t start, uint64_t end, uint32_t access,
	       struct rt_domain *from, const struct regc_key *from_key,
	       struct regc_key *ret_key)
{
	void *addr = (void *)(uintptr_t)start;
	struct transfer_pin pin;
	bool cloned = false;
	int r = may_reg(d, end - start);

	if (r)
		return r;
	memset(ret_key, 0, sizeof(*ret_key));
	r = -EOPNOTSUPP;
	if (from && d->ops.clone) {
		r = d->ops.clone(d->ctx, from->ctx, from_key, addr, end - start,
				 access, ret_key);
		cloned = r == 0;
	}
	if (r) {
		transfer_pin_begin(start, end, &pin);
		r = d->ops.reg(d->ctx, addr, end - start, access, ret_key);
		transfer_pin_end(&pin);
	}
	if (!r)
		count_reg(d, cloned);
	return r;
}

int domain_reg_region(struct rt_domain *d, const struct regc_region_attr *attr,
		      struct regc_key *ret_key)
{
	uint64_t start = (uintptr_t)attr->addr;
	struct transfer_pin pin;
	int r = may_reg(d, attr->len);

	if (r)
		return r;
	memset(ret_key, 0, sizeof(*ret_key));
	/* A dmabuf is at no address, so nothing there is closed. */
	transfer_pin_begin(start, start + (attr->addr ? attr->len : 0), &pin);
	r = device_verbs_region(d->ctx, attr, ret_key);
	transfer_pin_end(&pin);
	if (!r)
		count_reg(d, false);
	return r;
}

int domain_dereg(struct rt_domain *d, const struct regc_key *key)
{
	int r = d->ops.dereg(d->ctx, key);

	if (r == -EBUSY || r == -EEXIST)
		return r;
	rtab_fetch_sub(&d->n_regs, 1);
	if (rt.attached)
		rtab_fetch_add(&rt.area.area->deregs, 1);
	return r;
}

/* ---- handles ------------------------------------------------------------ */

void domain_bind(struct regc_domain *dom)
{
	if (rtab_load_acquire(&dom->attach) == rt.attach)
		return;
	dom->regs = rtab_area_regs(&rt.area, dom->shared->index);
	rtab_store_release(&dom->attach, rt.attach);
}

/* Cache lock. */
void domain_show(const struct rt_domain *d)
{
	struct rtab_domain *out;

	if (!rt.attached)
		return;
	out = &rt.area.area->domains[d->index];
	memcpy(out->name, d->name, sizeof(out->name));
	rtab_store_release(&out->in_use, d->in_use);
}

/* Cache lock. */
static struct rt_domain *find(const struct regc_device_ops *ops, void *ctx)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_DOMAINS; i++)
		if (rt.domains[i].in_use && rt.domains[i].ctx == ctx &&
		    rt.domains[i].ops.reg == ops->reg)
			return &rt.domains[i];
	return NULL;
}

/* Cache lock. */
static struct rt_domain *take_free(void)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_DOMAINS; i++)
		if (!rt.domains[i].in_use) {
			memset(&rt.domains[i], 0, sizeof(rt.domains[i]));
			rt.domains[i].index = i;
			return &rt.domains[i];
		}
	return NULL;
}

int domain_open(struct regc_library *lib, const struct regc_device_ops *ops,
		void *ctx, const char *name, struct regc_domain **ret_dom,
		bool *ret_new)
{
	struct regc_device_limits limits = { 0 };
	struct regc_domain *dom = calloc(1, sizeof(*dom));
	struct rt_domain *d;
	uint64_t limit;

	if (!dom)
		return -ENOMEM;
	if (ops->limits)
		ops->limits(ctx, &limits);
	rt_cache_lock();
	for (limit = rtab_now_ns() + 2 * RT_CLOSE_MS * UINT64_C(1000000);;) {
		d = find(ops, ctx);
		if (!d || !d->closing || d->n_handles)
			break;
		/* Another thread closes it at this moment; it ends or gives up. */
		rt_cache_unlock();
		if (rtab_now_ns() > limit) {
			free(dom);
			return -EBUSY;
		}
		sched_yield();
		rt_cache_lock();
	}
	if (d && d->lost) {
		rt_cache_unlock();
		free(dom);
		return -ENODEV;
	}
	if (ret_new)
		*ret_new = !d;
	if (!d) {
		d = take_free();
		if (!d) {
			rt_cache_unlock();
			free(dom);
			return -ENOSPC;
		}
		memcpy(&d->ops, ops, rtab_min_u64(ops->size, sizeof(d->ops)));
		d->ctx = ctx;
		d->limits = limits;
		snprintf(d->name, sizeof(d->name), "%s", name);
		d->in_use = true;
	}
	rtab_store_relaxed(&d->closing, false);
	d->n_handles++;
	lib->n_domains++;
	domain_show(d);
	rt_cache_unlock();
	dom->shared = d;
	dom->owner = lib;
	dom->library = lib->index;
	dom->strict = lib->strict;
	dom->made_in = rt.attach;
	dom->attach = RT_UNBOUND;
	if (rt.attached)
		domain_bind(dom);
	*ret_dom = dom;
	return 0;
}

int regc_domain_custom(struct regc_library *lib,
		       const struct regc_device_ops *ops, void *ctx,
		       struct regc_domain **ret_dom)
{
	int r = rt_enter();

	if (r)
		return r;
	if (ops->size < offsetof(struct regc_device_ops, limits) || !ops->reg ||
	    !ops->dereg || !ops->name)
		return -EINVAL;
	return domain_open(lib, ops, ctx, ops->name, ret_dom, NULL);
}

int regc_domain_null(struct regc_library *lib, struct regc_domain **ret_dom)
{
	int r = rt_enter();

	return r ? r : domain_open(lib, &device_null_ops, NULL, "null", ret_dom,
			       NULL);
}

enum left {
	LEFT_NONE,
	LEFT_LEASED, /* a lease is out */
	LEFT_MOVING, /* another thread is about to undo or to publish one */
};

/* Cache lock: what is left of d. */
static enum left what_is_left(const struct rt_domain *d)
{
	uint32_t slot, bit = 1u << d->index;
	enum left left = LEFT_NONE;

	for (slot = 0; slot < rt.n_slots; slot++) {
		const struct rt_slot *s = &rt.slots[slot];
		bool making = s->state == RT_MAKING || s->busy;

		if (s->state == RT_FREE || s->state == RT_LIMBO ||
		    (!making && !(s->domains & bit)))
			continue;
		if (s->state == RT_VOID && s->parked)
			return LEFT_LEASED;
		left = LEFT_MOVING;
	}
	return left;
}

/*
 * Leases are counted by slot, for all domains together, so another library's lease
 * of the same buffer looks like ours.  The counters tell: if every get of the
 * library was put, none is in this domain, and its registrations may go.  Handles
 * of other libraries were closed only when that held for them.
 */
static bool all_put(struct regc_library *lib)
{
	struct regc_stats s = { .size = sizeof(s) };

	return regc_stats(lib, &s) == 0 &&
	       s.hits + s.misses + s.uncached == s.puts;
}

/* Undoes d's part of slots that others lease. */
static void leave_leased(struct rt_domain *d)
{
	struct rtab_reg *regs = rtab_area_regs(&rt.area, d->index);
	uint32_t slot, bit = 1u << d->index;
	struct regc_key key;
	bool mine;

	for (slot = 0; slot < rt.n_slots; slot++) {
		struct rt_slot *s = &rt.slots[slot];

		rt_cache_lock();
		mine = s->state == RT_VOID && s->parked && (s->domains & bit);
		if (mine) {
			key.lkey = (uint32_t)regs[slot].keys;
			key.rkey = (uint32_t)(regs[slot].keys >> 32);
			key.handle = regs[slot].handle;
			/* From here on whoever retires the slot leaves it out. */
			rtab_store_relaxed(&s->domains,
					   (uint16_t)(s->domains & ~bit));
		}
		rt_cache_unlock();
		if (mine)
			domain_dereg(d, &key);
	}
}

/* Voids and undoes every registration in d; false: a lease is out. */
static bool empty_domain(struct rt_domain *d, struct regc_library *lib)
{
	uint64_t limit = rtab_now_ns() + RT_CLOSE_MS * UINT64_C(1000000);
	uint32_t slot, bit = 1u << d->index;
	enum left left;

	if (!rt.attached)
		return rtab_load_relaxed(&d->n_regs) == 0;
	do {
		rt_cache_lock();
		for (slot = 0; slot < rt.n_slots; slot++)
			if (rt.slots[slot].state == RT_LIVE &&
			    (rt.slots[slot].domains & bit) &&
			    !rt.slots[slot].busy)
				slot_void(slot, RTAB_CAUSE_DOMAIN_CLOSED);
		rt_cache_unlock();
		retire_pending();
		if (all_put(lib))
			leave_leased(d);
		rt_cache_lock();
		left = what_is_left(d);
		rt_cache_unlock();
		if (left == LEFT_MOVING)
			sched_yield();
	} while (left == LEFT_MOVING && rtab_now_ns() < limit);
	return left == LEFT_NONE && rtab_load_relaxed(&d->n_regs) == 0;
}

/*
 * New gets are refused first; what is being registered at this moment is voided by
 * its maker, which looks under the same lock (miss.c).
 */
int regc_domain_lost(struct regc_domain *dom)
{
	uint32_t slot, bit;
	int r = rt_enter();

	if (r)
		return r;
	if (dom->made_in != rt.attach)
		return -ENOTUNIQ;
	rtab_store_release(&dom->shared->lost, true);
	if (!rt.attached)
		return 0;
	bit = 1u << dom->shared->index;
	rt_cache_lock();
	for (slot = 0; slot < rt.n_slots; slot++)
		if (rt.slots[slot].state == RT_LIVE &&
		    (rt.slots[slot].domains & bit) && !rt.slots[slot].busy)
			slot_void(slot, RTAB_CAUSE_DOMAIN_CLOSED);
	rt_cache_unlock();
	retire_settle();
	return 0;
}

int regc_domain_close(struct regc_domain *dom)
{
	struct rt_domain *d;
	bool last;

	if (!dom)
		return 0;
	if (rt_enter())
		return 0;
	if (dom->made_in != rt.attach) { /* the parent's */
		free(dom);
		return 0;
	}
	d = dom->shared;
	/* One lock for "who is last": that one alone empties it. */
	rt_cache_lock();
	last = --d->n_handles == 0;
	rtab_store_relaxed(&d->closing, last);
	rt_cache_unlock();
	if (last ? !empty_domain(d, dom->owner) : !all_put(dom->owner)) {
		rt_cache_lock();
		d->n_handles++; /* refuses new gets until it is closed or opened */
		rt_cache_unlock();
		return -EBUSY;
	}
	if (last && d->ops.release)
		d->ops.release(d->ctx);
	rt_cache_lock();
	dom->owner->n_domains--;
	if (last) {
		d->in_use = false;
		domain_show(d);
	}
	rt_cache_unlock();
	if (dom->nic)
		verbs_nic_drop(dom->nic);
	free(dom);
	return 0;
}
