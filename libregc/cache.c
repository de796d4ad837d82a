/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hit path: get and put of a buffer whose registration is in the cache.
 *
 * Law L7: no system call (strict mode: the probe), no lock, no allocation, and no
 * store to a cache line that another thread writes.  What is stored: the lease
 * word and the counters of this thread, and the caller's lease.
 *
 * Order, which is what L1 and L2 rest on:
 *   1  find the slot and read its registration, generation first;
 *   2  count the lease;
 *   3  light fence (pairs with rtab_heavy_fence() in retire.c, label L2a);
 *   4  strict mode: the probe;
 *   5  the life word, the changing marks;
 *   6  the generations on both sides, again.
 * Nothing found in 1 is believed before 6.  A change that happened before the
 * call is seen in one of: the generation (whoever read the event, or a hook, has
 * voided); a changing mark (set before the event is read, which is before the
 * thread that made the change goes on); the probe (the event is not read yet);
 * the life word (whoever should have read it is dead).  Marks are cleared after
 * the generations were changed, so they must be read before them: 5, then 6.
 */
#include "libregc/runtime.h"

#include <errno.h>

/* The userfaultfd to probe on a hit in dom, or -1 in fast mode. */
static inline int probe_of(const struct regc_domain *dom)
{
	int fd = rtab_load_relaxed(&rt_hot.probe_fd);

	return RTAB_UNLIKELY(dom->strict) ? rtab_load_relaxed(&rt.uffd) : fd;
}

static inline bool reg_covers(const struct rtab_reg *reg, uint64_t start,
			      uint64_t end, uint32_t access)
{
	return rtab_load_relaxed(&reg->start) <= start &&
	       end <= rtab_load_relaxed(&reg->end) &&
	       rtab_access_serves(rtab_load_relaxed(&reg->access), access);
}

/* Steps 4 to 6; gen is what step 1 read.  probe_fd: -1 in fast mode. */
static inline __attribute__((always_inline)) bool
still_valid(int probe_fd, const struct rt_window *window,
	    const struct rtab_area *area, const struct rtab_reg *reg, uint32_t slot,
	    uint64_t gen)
{
	if (probe_fd >= 0 && monitor_uffd_busy(probe_fd) &&
	    !RT_BROKEN(RT_SAFE_PROBE))
		return false;
	if (rtab_load_acquire(&window->life.word) !=
	    rtab_load_relaxed(&rt_hot.life_word))
		return false;
	if ((rtab_load_acquire(&window->table.changing) | /* C1 */
	     rtab_load_acquire(&area->changing)) &&	  /* C2 */
	    !RT_BROKEN(RT_SAFE_MARK))
		return false;
	if (RT_BROKEN(RT_SAFE_GENERATION))
		return true;
	return rtab_load_acquire(&reg->live_gen) == gen &&
	       rtab_load_acquire(&window->gens[slot]) == gen;
}

/*
 * After a lease word went down.  If the slot is void now, whoever voided it may
 * have counted this lease and parked the slot for its last put: look again.
 */
static inline void end_lease(const struct rtab_reg *reg, uint32_t slot, uint64_t gen)
{
	rtab_light_fence(); /* L2a: pairs with retire_batch() */
	if (RTAB_UNLIKELY(rtab_load_relaxed(&reg->live_gen) != gen))
		retire_slot(slot);
}

/*
 * Steps 2 to 6 for one slot; false: a lease was counted that is not to be.  gen
 * is not 0: a lease of a slot that was void before would not be looked for again.
 */
static inline __attribute__((always_inline)) bool
take(struct regc_domain *dom, int probe_fd, struct rt_thread *ts,
     struct rtab_reg *reg, uint32_t slot, uint64_t gen, struct regc_lease *lease)
{
	uint64_t keys = rtab_load_relaxed(&reg->keys);

	rtab_lease_get(&ts->leases[slot],
		       rtab_stamp_now(ts->area, &ts->window->table)); /* 2 */
	lease->lkey = (uint32_t)keys;
	lease->rkey = (uint32_t)(keys >> 32);
	lease->handle = rtab_load_relaxed(&reg->handle);
	lease->flags = 0;
	lease->slot = slot;
	lease->gen = gen;
	lease->priv[0] = reg;
	lease->priv[1] = dom;
	rtab_light_fence(); /* 3, L2a: pairs with retire_batch() */
	return RTAB_LIKELY(still_valid(probe_fd, ts->window, ts->area, reg, slot,
				       gen));
}

/* Not in the memo: ask the index, and remember the answer. */
static __attribute__((noinline)) int
get_by_index(struct regc_domain *dom, uint64_t start, uint64_t end,
	     uint32_t access, struct regc_lease *lease)
{
	struct rt_thread *ts = rt_thread;
	uint32_t cursor = 0, slot;

	while (rtab_lookup_slot(&rt.table, start, access, &cursor, &slot) == 0) {
		struct rtab_reg *reg = &dom->regs[slot];
		uint64_t gen;

		if (slot >= rt.area.capacity)
			continue;
		gen = rtab_load_acquire(&reg->live_gen); /* 1 */
		if (!gen || !reg_covers(reg, start, end, access))
			continue;
		if (take(dom, probe_of(dom), ts, reg, slot, gen, lease)) {
			ts->memo[rt_memo_hash(ts, start)] = slot + 1;
			ts->counters[dom->library].hits++;
			return 0;
		}
		rtab_lease_put(&ts->leases[slot]);
		end_lease(reg, slot, gen);
	}
	return miss_get(dom, start, end - start, access, lease);
}

/* The slot of the memo covered the range, but it is void or in doubt. */
static __attribute__((noinline, cold)) int
get_again(struct regc_domain *dom, uint64_t start, uint64_t end, uint32_t access,
	  struct regc_lease *lease)
{
	rtab_lease_put(&rt_thread->leases[lease->slot]);
	end_lease(lease->priv[0], lease->slot, lease->gen);
	return get_by_index(dom, start, end, access, lease);
}

/* A thread with a slot, a domain that is bound; probe_fd is constant -1 or not. */
static inline __attribute__((always_inline)) int
get_by_memo(struct regc_domain *dom, int probe_fd, struct rt_thread *ts,
	    uint64_t start, uint64_t end, uint32_t access,
	    struct regc_lease *lease)
{
	struct rtab_reg *reg;
	uint32_t slot;
	uint64_t gen;

	slot = ts->memo[rt_memo_hash(ts, start)] - 1;
	if (RTAB_UNLIKELY(slot == RT_NO_SLOT))
		return get_by_index(dom, start, end, access, lease);
	reg = &dom->regs[slot];
	gen = rtab_load_acquire(&reg->live_gen); /* 1 */
	if (RTAB_UNLIKELY(!gen || !reg_covers(reg, start, end, access)))
		return get_by_index(dom, start, end, access, lease);
	if (RTAB_UNLIKELY(!take(dom, probe_fd, ts, reg, slot, gen, lease)))
		return get_again(dom, start, end, access, lease);
	ts->counters[dom->library].hits++;
	return 0;
}

/* Apart, so that the fast hit saves no registers for the probe. */
static __attribute__((noinline)) int
get_strict(struct regc_domain *dom, uint64_t start, uint64_t end, uint32_t access,
	   struct regc_lease *lease)
{
	return get_by_memo(dom, probe_of(dom), rt_thread, start, end, access,
			   lease);
}

int regc_get(struct regc_domain *dom, const void *addr, size_t len,
	     unsigned int access, struct regc_lease *lease)
{
	struct rt_thread *ts = rt_thread;
	uint64_t start = (uintptr_t)addr, end = start + len;

	if (RTAB_UNLIKELY(end <= start || (access & ~(unsigned int)REGC_ACCESS_ALL)))
		return -EINVAL;
	if (RTAB_UNLIKELY(!ts || ts->attach != rtab_load_acquire(&dom->attach)))
		return miss_get(dom, start, len, access, lease);
	if (RTAB_UNLIKELY(probe_of(dom) >= 0))
		return get_strict(dom, start, end, access, lease);
	return get_by_memo(dom, -1, ts, start, end, access, lease);
}

void regc_put(struct regc_lease *lease)
{
	struct rt_thread *ts = rt_thread;
	const struct regc_domain *dom = lease->priv[1];
	const struct rtab_reg *reg = lease->priv[0];

	if (RTAB_UNLIKELY(!ts || ts->attach != dom->attach || lease->flags)) {
		miss_put(lease);
		return;
	}
	rtab_lease_put(&ts->leases[lease->slot]);
	ts->counters[dom->library].puts++;
	end_lease(reg, lease->slot, lease->gen);
}

static bool slot_serves(const struct regc_domain *dom, uint32_t slot,
			uint64_t start, uint64_t end, uint32_t access)
{
	const struct rtab_reg *reg = &dom->regs[slot];
	uint64_t gen;

	if (slot >= rt.area.capacity)
		return false;
	gen = rtab_load_acquire(&reg->live_gen);
	return gen && reg_covers(reg, start, end, access) &&
	       still_valid(probe_of(dom), rt.window, rt.area.area, reg, slot,
			   gen);
}

/* The records that the broker has not taken yet; before the index. */
static bool pending_serves(const struct regc_domain *dom, uint64_t start,
			   uint64_t end, uint32_t access)
{
	struct rtab_area *area = rt.area.area;
	uint64_t tail = rtab_load_acquire(&rt.table.table->ring_tail);
	uint64_t head = rtab_load_acquire(&area->ring_head);

	if (head - tail > RTAB_N_RING) /* the table of another broker */
		tail = head - RTAB_N_RING;
	for (; tail != head; tail++)
		if (slot_serves(dom,
				rtab_load_relaxed(
					&area->ring[tail % RTAB_N_RING].slot),
				start, end, access))
			return true;
	return false;
}

int regc_query(struct regc_domain *dom, const void *addr, size_t len,
	       unsigned int access)
{
	uint64_t start = (uintptr_t)addr, end = start + len;
	uint32_t cursor = 0, slot;

	if (end <= start || (access & ~(unsigned int)REGC_ACCESS_ALL))
		return -EINVAL;
	if (rt_enter() || dom->attach != rt.wipe->attach || !link_broker_alive())
		return 0;
	if (pending_serves(dom, start, end, access))
		return 1;
	while (rtab_lookup_slot(&rt.table, start, access, &cursor, &slot) == 0)
		if (slot_serves(dom, slot, start, end, access))
			return 1;
	return 0;
}

int regc_lease_ok(const struct regc_lease *lease)
{
	const struct regc_domain *dom = lease->priv[1];
	const struct rtab_reg *reg = lease->priv[0];

	if (lease->flags & REGC_LEASE_UNCACHED)
		return 1;
	if (dom->attach != rt.wipe->attach)
		return 0;
	return still_valid(probe_of(dom), rt.window, rt.area.area, reg, lease->slot,
			   lease->gen);
}
