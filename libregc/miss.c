/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything a get may need beyond a hit: waiting for a change, one more domain,
 * a new region, eviction, budget, and the uncached registration that is always
 * possible (L3).
 *
 * A new region, in this order (laws L1 and L9, fault D14):
 *   1 cache lock: changes so far are applied; neighbours of the same access that
 *     overlap are voided, their ranges joined; a slot is taken and charged; the
 *     counts of changes and the slot's generation are sampled
 *   2 no lock: the range is put under watch
 *   3 no lock: the device registers; then every page of the range must be mapped
 *     and watched (a hole that was filled after 2 would not be)
 *   4 cache lock: the registration is published under the sampled generation, the
 *     broker's record pushed, full fence (label M1: pairs with the full fence at
 *     the end of rtab_area_log_change() and rtab_writer_log_change(), after which
 *     the voiding side looks for registrations)
 *   5 the changing marks, then the counts of changes again: if a mark is set or a
 *     change overlaps, the registration is void and the get starts over
 * A change before 2 is seen by nobody but is older than the registration; between
 * 2 and 4 the event, or the hook's entry, is in the counts; after 4 whoever sees
 * the change finds the registration and voids it.
 */
#include "libregc/miss.h"
#include "libregc/runtime.h"
#include "libregc/worker.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_SPINS 200
#define DEVICE_TRIES 4

enum step {
	STEP_HIT,
	STEP_WAIT,     /* for the maker of m->slot */
	STEP_DEADLOCK, /* this thread is that maker */
	STEP_ADD,      /* one more domain for m->slot */
	STEP_MAKE,     /* m->slot is ours */
	STEP_BUDGET,   /* m->lack_bytes and a region */
	STEP_FULL,     /* the broker has not kept up with the records */
	STEP_UNCACHED,
	STEP_AGAIN,
};

static uint64_t *lease_word(const struct rt_thread *ts, uint32_t slot)
{
	return ts ? &ts->leases[slot] : &rtab_area_leases(&rt.area, 0)[slot];
}

static void lease_take(const struct rt_thread *ts, uint32_t slot)
{
	uint64_t stamp = rtab_stamp_now(rt.area.area, rt.table.table);

	if (ts)
		rtab_lease_get(lease_word(ts, slot), stamp);
	else
		rtab_lease_get_shared(lease_word(ts, slot), stamp);
}

static void lease_drop(const struct rt_thread *ts, uint32_t slot)
{
	if (ts)
		rtab_lease_put(lease_word(ts, slot));
	else
		rtab_lease_put_shared(lease_word(ts, slot));
}

static void lease_fill(const struct miss *m, uint32_t slot, uint64_t gen)
{
	struct rtab_reg *reg = &m->dom->regs[slot];
	struct regc_lease *lease = m->lease;

	memset(lease, 0, sizeof(*lease));
	lease->lkey = (uint32_t)reg->keys;
	lease->rkey = (uint32_t)(reg->keys >> 32);
	lease->handle = reg->handle;
	lease->slot = slot;
	lease->gen = gen;
	lease->priv[0] = reg;
	lease->priv[1] = m->dom;
}

/* Stamps grow by at least one a miss, so that misses have an order. */
static void advance_stamp(void)
{
	struct rtab_area *area = rt.area.area;
	uint64_t now = (rtab_now_ns() >> RTAB_STAMP_SHIFT_NS) * RTAB_STAMP_ONE;

	if ((int64_t)(now - area->stamp) < (int64_t)RTAB_STAMP_ONE)
		now = area->stamp + RTAB_STAMP_ONE;
	rtab_store_relaxed(&area->stamp, now);
}

/* No change of memory is under way that is not in the counts yet. */
static bool no_change(const struct miss *m)
{
	int probe_fd = m->dom->strict ? rtab_load_relaxed(&rt.uffd) :
					rtab_load_relaxed(&rt_hot.probe_fd);

	return !(probe_fd >= 0 && monitor_uffd_busy(probe_fd)) &&
	       !rtab_load_acquire(&rt.table.table->changing) && /* C1 */
	       !rtab_load_acquire(&rt.area.area->changing);	/* C2 */
}

/* ---- room ------------------------------------------------------------- */

bool miss_make_room(struct rt_domain *d)
{
	uint32_t n = rtab_load_relaxed(&rt.n_live) / 16 + 1;

	return rt.attached && evict_own(n, d->index, RTAB_CAUSE_EVICTED) > 0;
}

/* ---- step 1: cache lock ------------------------------------------------- */

static void sample(struct miss *m)
{
	m->gen = rtab_load_acquire(&rt.table.gens[m->slot]);
	m->table_seq = rtab_load_acquire(&rt.table.table->change_seq);
	/* What was consumed, no more: a later entry is not applied yet. */
	m->area_seq = rt.change_cursor;
}

static bool made_by_other(struct miss *m, uint32_t slot, enum step *ret)
{
	struct rt_slot *s = &rt.slots[slot];

	if (s->state != RT_MAKING && !s->busy)
		return false;
	m->slot = slot;
	m->turn = rtab_load_relaxed(&s->turn);
	s->waited = 1;
	*ret = s->maker == rt_tid() ? STEP_DEADLOCK : STEP_WAIT;
	return true;
}

/*
 * Cache lock: a lease of a slot that is in m's domain; false: it is not live.  The
 * lease holds the generation that was checked, so that its put sees a void that
 * came in between, and retires.
 */
static bool lease_live(struct miss *m, uint32_t slot)
{
	struct rtab_reg *reg = &m->dom->regs[slot];
	uint64_t gen = rtab_load_acquire(&rt.table.gens[slot]);

	lease_take(m->ts, slot);
	rtab_fence_full(); /* L2a: pairs with retire_batch() */
	if (rtab_load_acquire(&reg->live_gen) == gen && slot_is_live(slot)) {
		lease_fill(m, slot, gen);
		return true;
	}
	lease_drop(m->ts, slot);
	return false;
}

/* May m's domain join a region of this access and size?  (L9: as asked.) */
static bool may_join(const struct miss *m, const struct rt_slot *s)
{
	return rt.class_access[s->cls] == m->access &&
	       (!m->d->limits.max_bytes ||
		s->end - s->start <= m->d->limits.max_bytes);
}

/* Is there a region that covers what is asked?  STEP_AGAIN: no. */
static enum step plan_covered(struct miss *m)
{
	enum step step;
	uint32_t c, slot;

	for (c = 0; c < rt.n_classes; c++) {
		struct rt_slot *s;

		if (!rtab_access_serves(rt.class_access[c], m->access))
			continue;
		slot = slots_floor(c, m->start);
		if (slot == RT_NO_SLOT || rt.slots[slot].end < m->end)
			continue;
		s = &rt.slots[slot];
		if (!(s->domains & (1u << m->d->index)) &&
		    rt.class_access[c] != m->access)
			continue;
		if (made_by_other(m, slot, &step))
			return step;
		m->slot = slot;
		if ((s->domains & (1u << m->d->index)) && lease_live(m, slot))
			return STEP_HIT;
		if (!slot_is_live(slot)) {
			slot_void(slot, RTAB_CAUSE_NONE);
			continue;
		}
		m->cause = RTAB_CAUSE_LIMIT;
		if (!may_join(m, s)) /* larger than this device takes */
			return STEP_UNCACHED;
		s->busy = 1;
		s->maker = rt_tid();
		sample(m);
		return STEP_ADD;
	}
	return STEP_AGAIN;
}

/* Joins m's pages with the regions they overlap. */
static enum step plan_union(struct miss *m, uint32_t cls)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t low = rtab_round_down(m->start, page);
	uint64_t high = rtab_round_up(m->end, page), max = rt.max_region_bytes;
	enum step step;
	uint32_t slot;

	m->low = low;
	m->high = high;
	slot = slots_next_overlap(cls, low, high, RT_NO_SLOT);
	for (; slot != RT_NO_SLOT;
	     slot = slots_next_overlap(cls, low, high, slot)) {
		if (made_by_other(m, slot, &step))
			return step;
		if (!slot_is_live(slot))
			continue; /* voided below */
		m->low = rtab_min_u64(m->low, rt.slots[slot].start);
		m->high = rtab_max_u64(m->high, rt.slots[slot].end);
	}
	if (m->d->limits.max_bytes)
		max = rtab_min_u64(max, m->d->limits.max_bytes);
	if (m->alone || m->high - m->low > max) {
		m->low = low;
		m->high = high;
	}
	return STEP_MAKE;
}

static bool over_budget(struct miss *m)
{
	uint64_t bytes = m->high - m->low;

	m->lack_bytes = UINT64_MAX; /* no eviction makes room for it */
	if (bytes > rt.max_region_bytes || bytes > rt.hard_bytes)
		return true;
	if (rt.used_bytes + bytes <= rt.allow_bytes &&
	    rt.used_regions + 1 <= rt.allow_regions)
		return false;
	m->lack_bytes = rt.used_bytes + bytes > rt.allow_bytes ?
				rt.used_bytes + bytes - rt.allow_bytes : 0;
	return true;
}

static enum step plan_new(struct miss *m)
{
	int cls = slots_class(m->access);
	struct rt_slot *s;
	enum step step;
	uint32_t old;

	m->cause = RTAB_CAUSE_LIMIT;
	if (cls < 0)
		return STEP_UNCACHED;
	step = plan_union(m, (uint32_t)cls);
	if (step != STEP_MAKE)
		return step;
	if (over_budget(m))
		return m->lack_bytes == UINT64_MAX ? STEP_UNCACHED : STEP_BUDGET;
	m->cause = RTAB_CAUSE_QUEUE_FULL;
	if (link_ring_room() < RTAB_N_RING / 4)
		return STEP_FULL;
	m->slot = slots_take();
	if (m->slot == RT_NO_SLOT)
		return STEP_FULL;
	/* From low to high, since the joined range may reach beyond the pages. */
	while ((old = slots_next_overlap((uint32_t)cls, m->low, m->high,
					 RT_NO_SLOT)) != RT_NO_SLOT)
		slot_void(old, slot_is_live(old) ? RTAB_CAUSE_GROWN :
						   RTAB_CAUSE_NONE);
	s = &rt.slots[m->slot];
	s->start = m->low;
	s->end = m->high;
	s->cls = (uint8_t)cls;
	s->state = RT_MAKING;
	s->maker = rt_tid();
	s->cause = RTAB_CAUSE_NONE;
	rt_charge((int64_t)(m->high - m->low), 1);
	slots_link(m->slot);
	sample(m);
	return STEP_MAKE;
}

static enum step plan(struct miss *m)
{
	enum step step;

	rt_cache_lock();
	advance_stamp();
	changes_consume();
	step = plan_covered(m);
	if (step == STEP_AGAIN)
		step = plan_new(m);
	rt_cache_unlock();
	return step;
}

/* ---- steps 2 to 5 ------------------------------------------------------- */

/* Cache lock. */
static void made(uint32_t slot)
{
	rtab_fetch_add(&rt.slots[slot].turn, 1);
	if (rt.slots[slot].waited)
		rt_futex_wake(&rt.slots[slot].turn);
	rt.slots[slot].waited = 0;
}

/* Cache lock: step 4 for one registration; not yet the record. */
static void publish(struct miss *m, const struct regc_key *key)
{
	struct rt_slot *s = &rt.slots[m->slot];
	struct rtab_reg *reg = &m->dom->regs[m->slot];

	rtab_store_relaxed(&reg->start, s->start);
	rtab_store_relaxed(&reg->end, s->end);
	rtab_store_relaxed(&reg->access, rt.class_access[s->cls]);
	rtab_store_relaxed(&reg->keys, (uint64_t)key->rkey << 32 | key->lkey);
	rtab_store_relaxed(&reg->handle, key->handle);
	rtab_store_relaxed(&s->domains,
			   (uint16_t)(s->domains | 1u << m->d->index));
	rtab_store_release(&reg->live_gen, m->gen);
	lease_take(m->ts, m->slot);
	lease_fill(m, m->slot, m->gen);
}

static bool push_record(const struct miss *m, uint32_t op)
{
	const struct rt_slot *s = &rt.slots[m->slot];
	struct rtab_request request = {
		.op = op, .slot = m->slot, .start = s->start, .end = s->end,
		.access = rt.class_access[s->cls], .cls = s->cls,
		.library = (uint16_t)m->dom->library,
		.domain = (uint16_t)m->d->index, .time_ns = rtab_now_ns(),
	};

	return link_push(&request);
}

/*
 * madvise takes pages in an order of its own: the event, which it waits for; then
 * a moment in which it holds nothing; then the pages.  Who registers in that
 * moment pins pages that are about to go, and no event will tell.  libc's madvise
 * is voided by its hook once more after the call.  For a raw one nothing in the
 * kernel says when the moment is over, so for RT_REMOVE_MS after the event the
 * range is not cached.  (What is left: a thread that is kept from the processor
 * for longer than that, right there.)
 */
static bool removal_under_way(uint64_t start, uint64_t end)
{
	uint64_t since = rtab_now_ns() - RT_REMOVE_MS * UINT64_C(1000000);

	return rtab_load_relaxed(&rt.drained_ns) > since ||
	       rtab_removed_since(rt.table.table, since, start, end);
}

/* Cache lock: has a device of the slot gone?  See regc_domain_lost(). */
static bool device_lost(const struct rt_slot *s)
{
	uint32_t domains = s->domains, d;

	for (d = 0; domains; d++, domains >>= 1)
		if ((domains & 1) && rt.domains[d].lost)
			return true;
	return false;
}

/* Cache lock: step 5. */
static bool overtaken(const struct miss *m)
{
	const struct rt_slot *s = &rt.slots[m->slot];

	rtab_fence_full(); /* M1 */
	/* A change that was read and is not in the counts yet is a change. */
	return !no_change(m) || rtab_changed_since(rt.table.table, m->table_seq, s->start,
				  s->end) ||
	       rtab_area_changed_since(rt.area.area, m->area_seq, s->start,
				       s->end) ||
	       !slot_is_live(m->slot) || !rt.connected || device_lost(s);
}

/* Cache lock: after publish(); says how the get ends. */
static enum step settle_new(struct miss *m, uint32_t op, bool whole)
{
	struct rt_slot *s = &rt.slots[m->slot];
	bool told;

	if (s->state == RT_MAKING) {
		s->state = RT_LIVE;
		rtab_store_relaxed(&rt.n_live, rt.n_live + 1);
	}
	s->busy = 0;
	told = push_record(m, op);
	if (!whole || overtaken(m)) {
		lease_drop(m->ts, m->slot);
		slot_void(m->slot, RTAB_CAUSE_RACE);
		return STEP_AGAIN;
	}
	/* Good for this lease, but nobody might void it for the next one. */
	if (!told)
		slot_void(m->slot, RTAB_CAUSE_QUEUE_FULL);
	else if (removal_under_way(s->start, s->end))
		slot_void(m->slot, RTAB_CAUSE_RACE);
	return STEP_HIT;
}

/* Cache lock: the slot that was being made is nobody's. */
static void unmake(struct miss *m)
{
	struct rt_slot *s = &rt.slots[m->slot];

	slots_unlink(m->slot);
	rt_charge(-(int64_t)(s->end - s->start), -1);
	slots_give_back(m->slot);
}

/* Errors that a smaller range might not have. */
static bool may_be_size(int r)
{
	return r == -EFAULT || r == -E2BIG || r == -EINVAL;
}

static void find_clone(const struct miss *m, struct rt_domain **ret_from,
		       struct regc_key *ret_key)
{
	uint32_t domains = rt.slots[m->slot].domains, d;

	*ret_from = NULL;
	for (d = 0; m->d->ops.clone && domains; d++, domains >>= 1) {
		const struct rtab_reg *reg;

		if (!(domains & 1) || rt.domains[d].ops.reg != m->d->ops.reg)
			continue;
		reg = &rtab_area_regs(&rt.area, d)[m->slot];
		ret_key->lkey = (uint32_t)reg->keys;
		ret_key->rkey = (uint32_t)(reg->keys >> 32);
		ret_key->handle = reg->handle;
		*ret_from = &rt.domains[d];
		return;
	}
}

/* Steps 2 and 3; *ret_shared: memory of a file. */
static int watch_and_reg(struct miss *m, bool add, bool *ret_shared,
			 struct regc_key *ret_key, bool *ret_watched)
{
	struct rt_slot *s = &rt.slots[m->slot];
	struct rt_domain *from = NULL;
	struct regc_key from_key;
	uint64_t t0;
	int r = 0;

	if (!add)
		r = watch_range(s->start, s->end, ret_shared, &m->cause); /* 2 */
	*ret_watched = r == 0;
	if (r)
		return r;
	if (add)
		find_clone(m, &from, &from_key);
	t0 = rtab_now_ns();
	r = domain_reg(m->d, s->start, s->end, rt.class_access[s->cls], from,
		       &from_key, ret_key); /* 3 */
	COUNT(m, reg_ns, rtab_now_ns() - t0);
	return r;
}

/* STEP_HIT, STEP_AGAIN, STEP_UNCACHED, or *ret_err with STEP_DEADLOCK. */
static enum step make(struct miss *m, bool add, int *ret_err)
{
	struct rt_slot *s = &rt.slots[m->slot];
	bool shared = false, watched, whole;
	struct regc_key key;
	enum step step;
	int r;

	r = watch_and_reg(m, add, &shared, &key, &watched);
	step = watched ? STEP_DEADLOCK : STEP_UNCACHED;
	whole = r || add || watch_is_whole(s->start, s->end);
	rt_cache_lock();
	if (r) {
		*ret_err = r;
		s->busy = 0;
		if (!add)
			unmake(m);
		else if (overtaken(m))
			slot_void(m->slot, RTAB_CAUSE_RACE);
		/* Less than the whole region may still work. */
		if (add && may_be_size(r))
			step = STEP_UNCACHED;
	} else {
		if (shared)
			rtab_store_relaxed(&s->shared, 1);
		publish(m, &key); /* 4 */
		step = settle_new(m, add ? RTAB_OP_ADD_DOMAIN : RTAB_OP_ADD,
				  whole);
	}
	rt_show_pinned();
	made(m->slot);
	rt_cache_unlock();
	link_doorbell_lazy();
	retire_pending();
	return step;
}

/* ---- get and put -------------------------------------------------------- */

static bool room(const struct miss *m)
{
	(void)m;
	return link_ring_room() >= RTAB_N_RING / 2;
}

/* Waits for the broker, RT_WAIT_MS at most; false: it takes too long. */
static bool wait_until(const struct miss *m, bool (*done)(const struct miss *))
{
	const struct timespec pause = { .tv_nsec = 50000 };
	uint64_t limit = rtab_now_ns() + RT_WAIT_MS * UINT64_C(1000000);
	uint32_t spins;

	for (spins = 0; !done(m); spins++) {
		if (!link_broker_alive())
			return false;
		if (spins % 16 == 15 && rtab_now_ns() > limit) {
			link_set_stalled();
			return false;
		}
		if (spins < SETTLE_SPINS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
	return true;
}

/* No change of memory is under way; false: it takes too long to end. */
static bool settle(struct miss *m)
{
	if (!link_broker_alive())
		return false;
	if (RTAB_LIKELY(no_change(m)))
		return !link_stalled();
	if (link_stalled())
		return false;
	COUNT(m, waits, 1);
	return wait_until(m, no_change);
}

/* Budget is short: evict here if the space's own limit binds, else ask. */
static bool get_budget(struct miss *m)
{
	uint32_t n = rtab_load_relaxed(&rt.n_live) / 16;

	if (!rtab_load_relaxed(&rt.own_limit)) {
		if (!link_need(rtab_max_u64(m->lack_bytes, 1), 1))
			return false; /* no answer: not again in this get */
		if (!rtab_load_relaxed(&rt.own_limit))
			return true;
	}
	return evict_own(n ? n : 1, RT_NO_SLOT, RTAB_CAUSE_EVICTED) > 0;
}

/* After a device error: is it worth another try? */
static bool mend(struct miss *m, int r)
{
	if (miss_device_full(r))
		return miss_make_room(m->d);
	if (may_be_size(r) && !m->alone) {
		m->alone = true; /* a neighbour may be gone or different */
		return true;
	}
	return false;
}

static int get_cached(struct miss *m, bool *ret_uncached)
{
	uint64_t limit = rtab_now_ns() + RT_MAKE_WAIT_MS * UINT64_C(1000000);
	uint32_t tries = 0, device_tries = 0;
	enum step step;
	int r = 0;

	monitor_hooks_check();
	*ret_uncached = false;
	while (tries < RT_MISS_TRIES && settle(m)) {
		step = plan(m);
		if (step == STEP_WAIT) {
			m->cause = RTAB_CAUSE_RACE;
			if (rtab_now_ns() > limit)
				break; /* perhaps its maker waits for us */
			rt_futex_wait(&rt.slots[m->slot].turn, m->turn,
				      RT_WAIT_MS);
			continue;
		}
		if (step == STEP_HIT) {
			/* Not in the index yet, and somebody looks there. */
			link_doorbell();
			COUNT(m, hits, 1);
			return 0;
		}
		if (step == STEP_DEADLOCK)
			return -EDEADLK;
		if (step == STEP_FULL) {
			tries++;
			link_doorbell();
			if (wait_until(m, room))
				continue;
			break;
		}
		if (step == STEP_BUDGET) {
			tries++;
			m->cause = RTAB_CAUSE_LIMIT;
			if (get_budget(m))
				continue;
			break;
		}
		if (step == STEP_ADD || step == STEP_MAKE)
			step = make(m, step == STEP_ADD, &r);
		if (step == STEP_HIT) {
			COUNT(m, misses, 1);
			return 0;
		}
		if (step == STEP_UNCACHED)
			break;
		if (step == STEP_AGAIN && rtab_load_relaxed(&m->d->lost))
			return -ENODEV;
		if (step == STEP_AGAIN) {
			COUNT(m, restarts, 1);
			m->cause = RTAB_CAUSE_RACE;
			tries++;
		} else if (++device_tries >= (miss_device_full(r) ? MISS_ROOM_TRIES :
								DEVICE_TRIES) ||
			   !mend(m, r)) {
			return r;
		}
	}
	*ret_uncached = true;
	return 0;
}

int miss_prepare(struct miss *m)
{
	int r = rt_enter();

	if (r)
		return r;
	if (m->dom->made_in != rt.attach)
		return -ENOTUNIQ;
	if (rtab_load_relaxed(&m->d->closing))
		return -ESHUTDOWN;
	if (rtab_load_acquire(&m->d->lost))
		return -ENODEV;
	if (m->d->limits.access && (m->access & ~m->d->limits.access))
		return -EOPNOTSUPP;
	if (m->end > UINT64_MAX - RTAB_PAGE)
		return -EFAULT;
	if (rtab_load_relaxed(&rt.connected) && !link_broker_alive())
		link_lost(false);
	if (!rtab_load_relaxed(&rt.connected))
		link_rejoin();
	if (rt.attached) {
		domain_bind(m->dom);
		if (rt_thread_attach())
			m->ts = rt_thread;
	}
	return 0;
}

int miss_get(struct regc_domain *dom, uint64_t start, uint64_t len,
	     uint32_t access, struct regc_lease *lease)
{
	struct miss m = {
		.dom = dom, .d = dom->shared, .start = start, .end = start + len,
		.access = access, .lease = lease, .cause = RTAB_CAUSE_BROKER_LOST,
	};
	bool uncached = true;
	int saved = errno, cancel, r;

	/* Locks are held and slots half made here: no cancellation. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	r = miss_prepare(&m);
	if (r)
		goto out;
	if (rtab_load_relaxed(&rt.connected) &&
	    rtab_load_relaxed(&rt.mode) != RTAB_MODE_OFF)
		r = get_cached(&m, &uncached);
	if (!r && uncached)
		r = uncached_get(&m);
	if (r)
		COUNT(&m, failed, 1);
	if (m.ts && !r && !uncached) {
		rt_memo_fit(m.ts);
		m.ts->memo[rt_memo_hash(m.ts, start)] = lease->slot + 1;
	}
out:
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return r;
}

void miss_put(struct regc_lease *lease)
{
	struct regc_domain *dom = lease->priv[1];
	struct miss m = { .dom = dom };
	int saved = errno;

	if (rt_enter() || dom->made_in != rt.attach)
		goto out; /* a lease of the parent's */
	if (rt_thread_attach())
		m.ts = rt_thread;
	COUNT(&m, puts, 1);
	if (lease->flags & REGC_LEASE_UNCACHED) {
		uncached_put(lease->priv[0]);
		if (rtab_load_relaxed(&rt.refused))
			worker_wake();
		goto out;
	}
	lease_drop(m.ts, lease->slot);
	rtab_fence_full(); /* L2a: pairs with retire_batch() */
	if (rtab_load_relaxed(&((struct rtab_reg *)lease->priv[0])->live_gen) !=
	    lease->gen)
		retire_slot(lease->slot);
out:
	errno = saved;
}

int regc_get_many(struct regc_domain *const *doms, unsigned int n,
		  const void *addr, size_t len, unsigned int access,
		  struct regc_lease *ret_leases)
{
	struct regc_lease leases[RTAB_N_DOMAINS];
	unsigned int i;
	int r;

	if (n < 1 || n > RTAB_N_DOMAINS)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		r = regc_get(doms[i], addr, len, access, &leases[i]);
		if (r)
			goto err_put;
	}
	memcpy(ret_leases, leases, n * sizeof(leases[0]));
	return 0;

err_put:
	while (i-- > 0)
		regc_put(&leases[i]);
	return r;
}
