/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Undoing registrations: void first, then no lease left, then the device (L2).
 *
 * The count of leases is exact only after the void was visible to every thread:
 * one heavy fence between the two (shm/atomic.h).  A slot that is still leased
 * is parked; every put of a void slot comes here, takes the lock and counts, so
 * the last one sees all the others and retires it.
 */
#include "libregc/runtime.h"

#include <errno.h>
#include <sched.h>

#define RETIRE_BATCH 64
#define EVICT_MAX 64

static bool cause_is_memory(uint32_t cause)
{
	return cause >= RTAB_CAUSE_HOOK_MUNMAP && cause <= RTAB_CAUSE_NEW_MAPPING;
}

void slot_void(uint32_t slot, uint32_t cause)
{
	struct rt_slot *s = &rt.slots[slot];
	struct rtab_request request = {
		.op = RTAB_OP_VOID, .slot = slot, .start = s->start,
		.end = s->end, .cause = cause, .time_ns = rtab_now_ns(),
	};
	uint32_t domains = s->domains, d;

	for (d = 0; domains; d++, domains >>= 1)
		if (domains & 1)
			rtab_store_release(
				&rtab_area_regs(&rt.area, d)[slot].live_gen, 0);
	slots_unlink(slot);
	rtab_store_relaxed(&rt.n_live, rt.n_live - 1);
	s->state = RT_VOID;
	s->cause = cause;
	s->parked = 0;
	list_push(&rt.void_list, slot);
	/* A full ring is no harm: DEL follows, and it voids as well. */
	link_push(&request);
}

static struct regc_key reg_key(const struct rtab_reg *reg)
{
	return (struct regc_key){
		.lkey = (uint32_t)reg->keys,
		.rkey = (uint32_t)(reg->keys >> 32),
		.handle = reg->handle,
	};
}

/* RETIRING, no lock.  Bits of domains whose device said "not now" stay. */
static void undo_registrations(uint32_t slot)
{
	struct rt_slot *s = &rt.slots[slot];
	uint32_t d;

	for (d = 0; d < RTAB_N_DOMAINS; d++) {
		struct regc_key key;
		int r;

		if (!(s->domains & (1u << d)))
			continue;
		key = reg_key(&rtab_area_regs(&rt.area, d)[slot]);
		r = domain_dereg(&rt.domains[d], &key);
		if (r != -EBUSY && r != -EEXIST)
			rtab_store_relaxed(&s->domains,
					   (uint16_t)(s->domains & ~(1u << d)));
	}
}

/* Cache lock: after undo_registrations(); false: some are left. */
static bool finish_retiring(uint32_t slot)
{
	struct rt_slot *s = &rt.slots[slot];
	struct rtab_request request = {
		.op = RTAB_OP_DEL, .slot = slot, .start = s->start,
		.end = s->end, .cause = s->cause, .time_ns = rtab_now_ns(),
	};

	if (s->domains || !link_push(&request)) {
		s->state = RT_VOID;
		list_push(&rt.void_list, slot);
		return false;
	}
	rt_charge(-(int64_t)(s->end - s->start), -1);
	rt_show_pinned();
	s->limbo_tail = rtab_load_relaxed(&rt.area.area->ring_head);
	s->state = RT_LIMBO;
	list_push(&rt.limbo_list, slot);
	return true;
}

/* Cache lock, after the heavy fence: to RETIRING, or parked. */
static bool begin_retiring(uint32_t slot)
{
	struct rt_slot *s = &rt.slots[slot];

	if (rtab_area_lease_count(&rt.area, slot, NULL) &&
	    !RT_BROKEN(RT_SAFE_LEASE)) {
		s->parked = 1;
		if (cause_is_memory(s->cause))
			rtab_store_relaxed(&rt.area.area->freed_leased,
					   rt.area.area->freed_leased + 1);
		return false;
	}
	s->parked = 0;
	s->state = RT_RETIRING;
	return true;
}

static bool retire_batch(void)
{
	uint32_t slots[RETIRE_BATCH], n = 0, kept = 0, i;
	bool all = true, fenced;

	rt_cache_lock();
	while (n < RETIRE_BATCH && rt.void_list.head != RT_NO_SLOT)
		slots[n++] = list_pop(&rt.void_list);
	rtab_store_relaxed(&rt.n_retiring, rt.n_retiring + n);
	rt_cache_unlock();
	if (n == 0)
		return false;
	fenced = rtab_heavy_fence(); /* L2a: pairs with take() and end_lease() */
	rt_cache_lock();
	for (i = 0; i < n; i++)
		if (!fenced)
			list_push(&rt.void_list, slots[i]); /* another time */
		else if (begin_retiring(slots[i]))
			slots[kept++] = slots[i];
	rt_cache_unlock();
	for (i = 0; i < kept; i++)
		undo_registrations(slots[i]);
	rt_cache_lock();
	for (i = 0; i < kept; i++)
		all &= finish_retiring(slots[i]);
	rtab_store_relaxed(&rt.n_retiring, rt.n_retiring - n);
	rt_cache_unlock();
	/* What said "not now" waits for another call. */
	return all && fenced;
}

void retire_pending(void)
{
	miss_retry_refused();
	if (rtab_load_relaxed(&rt.void_list.n) == 0)
		return;
	while (retire_batch())
		;
	link_doorbell_lazy();
}

void retire_slot(uint32_t slot)
{
	struct rt_slot *s = &rt.slots[slot];
	bool mine = false;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	rt_cache_lock();
	/* Voided by a hook and not noticed yet? */
	changes_consume();
	if (s->state == RT_VOID && s->parked &&
	    rtab_area_lease_count(&rt.area, slot, NULL) == 0) {
		s->parked = 0;
		s->state = RT_RETIRING;
		mine = true;
		rtab_store_relaxed(&rt.n_retiring, rt.n_retiring + 1);
	}
	rt_cache_unlock();
	if (mine) {
		undo_registrations(slot);
		rt_cache_lock();
		finish_retiring(slot);
		rtab_store_relaxed(&rt.n_retiring, rt.n_retiring - 1);
		rt_cache_unlock();
		link_doorbell_lazy();
	}
	retire_pending();
	pthread_setcancelstate(cancel, NULL);
}

void retire_settle(void)
{
	uint64_t limit = rtab_now_ns() + RT_CLOSE_MS * UINT64_C(1000000);

	retire_pending();
	while (rtab_load_relaxed(&rt.n_retiring) && rtab_now_ns() < limit)
		sched_yield();
}

void retire_rescan(uint32_t cause, bool all)
{
	uint32_t slot;

	for (slot = 0; slot < rt.n_slots; slot++)
		if (rt.slots[slot].state == RT_LIVE && !rt.slots[slot].busy &&
		    (all || !slot_is_live(slot)))
			slot_void(slot, cause);
}

/* ---- eviction ----------------------------------------------------------- */

struct victim {
	uint64_t stamp;
	uint32_t slot;
};

/* Keeps the n oldest in a max-heap, so that the newest of them is at 0. */
static void heap_down(struct victim *heap, uint32_t n, uint32_t i)
{
	for (;;) {
		uint32_t child = 2 * i + 1;
		struct victim tmp;

		if (child >= n)
			return;
		if (child + 1 < n && heap[child + 1].stamp > heap[child].stamp)
			child++;
		if (heap[i].stamp >= heap[child].stamp)
			return;
		tmp = heap[i];
		heap[i] = heap[child];
		heap[child] = tmp;
		i = child;
	}
}

static void heap_offer(struct victim *heap, uint32_t *n, uint32_t max,
		       struct victim v)
{
	uint32_t i;

	if (*n < max) {
		heap[(*n)++] = v;
		if (*n == max)
			for (i = max / 2; i-- > 0;)
				heap_down(heap, max, i);
	} else if (v.stamp < heap[0].stamp) {
		heap[0] = v;
		heap_down(heap, max, 0);
	}
}

uint32_t evict_own(uint32_t n, uint32_t domain, uint32_t cause)
{
	struct victim heap[EVICT_MAX], v;
	uint32_t found = 0, i;
	uint64_t now;

	if (n > EVICT_MAX)
		n = EVICT_MAX;
	rt_cache_lock();
	now = rtab_stamp_now(rt.area.area, rt.table.table);
	for (v.slot = 0; v.slot < rt.n_slots && n; v.slot++) {
		const struct rt_slot *s = &rt.slots[v.slot];

		if (s->state != RT_LIVE || s->busy)
			continue;
		if (domain != RT_NO_SLOT && !(s->domains & (1u << domain)))
			continue;
		if (rtab_area_lease_count(&rt.area, v.slot, &v.stamp))
			continue;
		v.stamp -= now + RTAB_STAMP_ONE; /* wraps: older is smaller */
		heap_offer(heap, &found, n, v);
	}
	for (i = 0; i < found; i++)
		slot_void(heap[i].slot, cause);
	rt_cache_unlock();
	retire_pending();
	return found;
}
