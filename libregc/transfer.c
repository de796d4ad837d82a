/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: begin, posted, complete, wait, query; see transfer.h. */
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT_MS 30000
#define LEASE_WAIT_MS 200    /* for a change that another thread makes */
#define QUEUE_LOOK_MS 20     /* whoever gave up meanwhile wakes nobody */

/* What a begin is made of; one of a group, whose ids are n from first_id on. */
struct begin {
	const struct regc_lease *lease;
	struct regc_library *lib;
	uint64_t start, end;
	uint64_t low, high;
	uint32_t direction, policy, edges, conflict, limit_ms;
	enum rtab_guard guard;
	uint32_t slot; /* RT_NO_SLOT: not begun */
	uint64_t id, first_id, n;
};

/* ---- words (T1) --------------------------------------------------------- */

static uint64_t *word_of(uint32_t slot)
{
	return &rt.area.area->transfer_words[slot];
}

static void set_word(uint32_t slot, uint64_t id, enum rtab_transfer_state state)
{
	rtab_store_release(word_of(slot), rtab_transfer_word(id, state));
}

/* Out of ARMED or POSTED; false: it is over, or another thread is at it. */
static bool move_word(uint32_t slot, uint64_t id, enum rtab_transfer_state to)
{
	uint64_t word = rtab_load_relaxed(word_of(slot));

	while (rtab_transfer_id(word) == id &&
	       (rtab_transfer_state(word) == RTAB_ARMED ||
		rtab_transfer_state(word) == RTAB_POSTED))
		if (rtab_cas(word_of(slot), &word, rtab_transfer_word(id, to)))
			return true;
	return false;
}

static void raise_n_transfers(struct rtab_area *area, uint32_t n)
{
	uint32_t old = rtab_load_relaxed(&area->n_transfers);

	while (old < n && !rtab_cas(&area->n_transfers, &old, n))
		;
}

uint64_t transfer_new_ids(uint64_t n)
{
	return rtab_fetch_add(&rt.area.area->transfer_ids, n) + 1;
}

void transfer_occupy(uint32_t slot, uint64_t id, enum rtab_transfer_state state,
		     uint64_t low, uint64_t high)
{
	struct rtab_transfer *t = &rt.area.area->transfers[slot];

	set_word(slot, id, RTAB_TAKEN);
	rtab_fence_release(); /* whoever sees a field sees the word, or a later one */
	rtab_store_relaxed(&t->start, low);
	rtab_store_relaxed(&t->end, high);
	rtab_store_relaxed(&t->low, low);
	rtab_store_relaxed(&t->high, high);
	rtab_store_relaxed(&t->guard, RTAB_GUARD_NONE);
	rtab_store_relaxed(&t->direction, RTAB_SEND);
	rtab_store_relaxed(&t->policy, RTAB_BLOCK);
	rtab_store_relaxed(&t->lease, RT_NO_SLOT);
	rtab_store_relaxed(&t->flags, id << 8);
	set_word(slot, id, state);
	rtab_fence_full(); /* T1 */
}

void transfer_release(uint32_t slot, uint64_t id)
{
	set_word(slot, id, RTAB_FREE);
}

/* The lowest slot that is free: scans are as long as the highest one in use. */
int transfer_take(uint64_t id, uint32_t *ret_slot)
{
	struct rtab_area *area = rt.area.area;
	uint32_t i;

	for (i = RTAB_TRANSFER_FIRST; i < RTAB_N_TRANSFERS; i++) {
		uint64_t word = rtab_load_relaxed(word_of(i));

		if (rtab_transfer_state(word) != RTAB_FREE ||
		    !rtab_cas(word_of(i), &word,
			      rtab_transfer_word(id, RTAB_TAKEN)))
			continue;
		/* Whoever reads a field of this transfer sees that it is new. */
		rtab_fence_release();
		/* Before ARMING: whoever scans must not miss this slot. */
		raise_n_transfers(area, i + 1);
		*ret_slot = i;
		return 0;
	}
	return -ENOSPC;
}

void transfer_turn(void)
{
	rtab_fetch_add(&rt.wipe->transfer_turn, 1);
	rt_futex_wake(&rt.wipe->transfer_turn);
}

/* ---- begin -------------------------------------------------------------- */

/*
 * Is the registration still of the memory that is there?  A change that is under
 * way, maybe of other memory, is waited for.
 */
static int check_lease(const struct regc_lease *lease)
{
	const struct rtab_reg *reg = lease->priv[0];
	uint64_t limit = 0;

	while (RTAB_UNLIKELY(!regc_lease_ok(lease))) {
		if (rtab_load_acquire(&reg->live_gen) != lease->gen ||
		    rtab_load_acquire(&rt.window->gens[lease->slot]) != lease->gen ||
		    !link_broker_alive())
			return -ESTALE;
		if (!limit)
			limit = rtab_now_ns() + LEASE_WAIT_MS * UINT64_C(1000000);
		if (rtab_now_ns() > limit)
			return -ESTALE;
		sched_yield();
	}
	return 0;
}

static void choose_pages(struct begin *b)
{
	if (b->edges == REGC_EDGES_WHOLE) {
		b->low = rtab_round_down(b->start, RTAB_PAGE);
		b->high = rtab_round_up(b->end, RTAB_PAGE);
	} else {
		b->low = rtab_round_up(b->start, RTAB_PAGE);
		b->high = rtab_round_down(b->end, RTAB_PAGE);
	}
	if (b->low >= b->high)
		b->low = b->high = rtab_round_down(b->start, RTAB_PAGE);
}

static void fill(const struct begin *b)
{
	struct rtab_transfer *t = &rt.area.area->transfers[b->slot];

	rtab_store_relaxed(&t->start, b->start);
	rtab_store_relaxed(&t->end, b->end);
	rtab_store_relaxed(&t->low, b->low);
	rtab_store_relaxed(&t->high, b->high);
	rtab_store_relaxed(&t->begun_ns, rtab_now_ns());
	rtab_store_relaxed(&t->direction, (uint8_t)b->direction);
	rtab_store_relaxed(&t->policy, (uint8_t)b->policy);
	rtab_store_relaxed(&t->guard, (uint8_t)b->guard);
	rtab_store_relaxed(&t->library, (uint16_t)b->lib->index);
	rtab_store_relaxed(&t->domain,
			   (uint16_t)((struct regc_domain *)b->lease->priv[1])
				   ->shared->index);
	rtab_store_relaxed(&t->limit_ms, b->limit_ms);
	rtab_store_relaxed(&t->tid, rt_tid());
	rtab_store_relaxed(&t->lease, b->lease->flags & REGC_LEASE_UNCACHED ?
					      RT_NO_SLOT : b->lease->slot);
	rtab_store_relaxed(&t->flags, b->id << 8);
	rtab_store_relaxed(&t->n_blocked, 0);
	rtab_store_relaxed(&t->blocked_ns, 0);
	rtab_store_relaxed(&t->n_through, 0);
	rtab_store_relaxed(&t->addr, 0);
	rtab_store_relaxed(&t->last_tid, 0);
}

/*
 * The word is ARMING and a full fence is behind it.  Waits for what is CLOSING
 * (T1), and says whether this one has to yield (T2): -EBUSY.
 */
static int look_at_others(const struct begin *b)
{
	const struct rtab_transfer *mine = &rt.area.area->transfers[b->slot];
	uint32_t slot = RTAB_TRANSFER_OPENER;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot,
				  rtab_round_down(b->start, RTAB_PAGE),
				  rtab_round_up(b->end, RTAB_PAGE), &v)) {
		enum rtab_transfer_state state = rtab_transfer_state(v.word);

		if (v.slot == b->slot)
			continue;
		if (rtab_transfer_id(v.word) - b->first_id < b->n) {
			if (rtab_transfer_conflict(mine, &v.t) &&
			    b->conflict != REGC_CONFLICT_ALLOW)
				return -EINVAL; /* the group's own */
			continue;
		}
		if (state == RTAB_CLOSING || state == RTAB_COPYING) {
			sched_yield();
			slot = v.slot; /* look again */
			continue;
		}
		if (b->conflict == REGC_CONFLICT_ALLOW ||
		    !rtab_transfer_conflict(mine, &v.t))
			continue;
		if (state == RTAB_ARMING && rtab_transfer_id(v.word) > b->id) {
			sched_yield();
			slot = v.slot;
			continue;
		}
		return -EBUSY;
	}
	return 0;
}

/*
 * CLOSING, then what is nobody's is opened, then FREE.  Whoever queues is woken
 * by transfers that end, not by a begin that gives up: two that give up for each
 * other would wake each other again and again.
 */
static void open_and_free(uint32_t slot, uint64_t id)
{
	const struct rtab_transfer *t = &rt.area.area->transfers[slot];

	rtab_fence_full(); /* T1: after CLOSING, before the words of others */
	if (t->guard == RTAB_GUARD_MPROTECT) {
		mprotect_open(slot, t->low, t->high);
		/* What was closed before it turned out that not all could be. */
		if (t->direction == RTAB_SEND && rtab_load_relaxed(&rt.uffd) >= 0)
			guard_open(RTAB_GUARD_WP, t->low, t->high, false);
	} else if (t->low < t->high && t->guard != RTAB_GUARD_NONE)
		guard_open((enum rtab_guard)t->guard, t->low, t->high, false);
	set_word(slot, id, RTAB_FREE);
}

static int close_by(struct begin *b, enum rtab_guard guard)
{
	rtab_store_relaxed(&rt.area.area->transfers[b->slot].guard,
			   (uint8_t)guard);
	b->guard = guard;
	if (guard == RTAB_GUARD_MPROTECT)
		return mprotect_close(b->slot, b->low, b->high, b->direction);
	return guard_close(guard, b->low, b->high);
}

/* Closes the pages in the best way there is. */
static int close_pages(struct begin *b)
{
	bool weak = rt.uffd_user_only;
	int r;

	if (b->low == b->high || RT_BROKEN(RT_SAFE_GUARD)) {
		b->guard = RTAB_GUARD_NONE;
		transfer_add_flags(b->slot, b->id, RTAB_TRANSFER_OPEN);
		return 0;
	}
	r = close_by(b, b->guard);
	if (r == -ENOTSUP && b->guard != RTAB_GUARD_MPROTECT)
		r = close_by(b, RTAB_GUARD_MPROTECT);
	if (b->guard == RTAB_GUARD_MPROTECT)
		weak = true;
	if (r == -ENOTSUP && b->policy == REGC_POLICY_REPORT) {
		rtab_store_relaxed(&rt.area.area->transfers[b->slot].guard,
				   RTAB_GUARD_NONE);
		transfer_add_flags(b->slot, b->id, RTAB_TRANSFER_OPEN);
		return 0;
	}
	if (!r && weak)
		transfer_add_flags(b->slot, b->id, RTAB_TRANSFER_WEAK);
	return r;
}

static int announce(struct begin *b)
{
	int r = transfer_take(b->id, &b->slot);

	if (r)
		return r;
	fill(b);
	rtab_store_relaxed(&rt.wipe->transfers_begun, 1);
	set_word(b->slot, b->id, RTAB_ARMING);
	return 0;
}

static int close_buffer(struct begin *b)
{
	int r = check_lease(b->lease);

	if (!r)
		r = close_pages(b);
	if (!r && b->direction == REGC_SEND && b->edges == REGC_EDGES_INNER)
		r = edges_keep(b->slot, &rt.area.area->transfers[b->slot]);
	/* Again after closing: a change from here on finds the transfer. */
	return r ? r : check_lease(b->lease);
}

static void give_up(struct begin *b)
{
	if (b->slot == RT_NO_SLOT)
		return;
	set_word(b->slot, b->id, RTAB_CLOSING);
	open_and_free(b->slot, b->id);
}

static uint32_t or_default(uint32_t asked, const uint32_t *of_library,
			   uint32_t otherwise)
{
	uint32_t theirs = rtab_load_relaxed(of_library);

	return asked ? asked : theirs ? theirs : otherwise;
}

static int check_attr(const struct regc_transfer_attr *attr)
{
	if (!attr)
		return 0;
	if (attr->size < sizeof(*attr) || attr->policy > REGC_POLICY_REPORT ||
	    attr->edges > REGC_EDGES_WHOLE || attr->conflict > REGC_CONFLICT_ALLOW ||
	    (attr->limit_ms > UINT32_C(1) << 31 && attr->limit_ms != REGC_NO_LIMIT))
		return -EINVAL;
	return 0;
}

static int prepare(struct begin *b, const struct regc_lease *lease, const void *addr,
		   size_t len, unsigned int direction,
		   const struct regc_transfer_attr *attr)
{
	static const struct regc_transfer_attr none;
	const struct regc_domain *dom = lease ? lease->priv[1] : NULL;
	uint64_t start, bytes;
	int r;

	memset(b, 0, sizeof(*b));
	b->start = (uintptr_t)addr;
	b->end = b->start + len;
	if (!dom || b->end <= b->start ||
	    (direction != REGC_SEND && direction != REGC_RECEIVE))
		return -EINVAL;
	r = regc_lease_range(lease, &start, &bytes);
	if (r)
		return r;
	if (b->start < start || b->end > start + bytes)
		return -EINVAL;
	if (!attr)
		attr = &none;
	b->lease = lease;
	b->lib = dom->owner;
	b->direction = direction;
	b->policy = or_default(attr->policy, &b->lib->policy, REGC_POLICY_BLOCK);
	b->edges = or_default(attr->edges, &b->lib->edges, REGC_EDGES_INNER);
	b->conflict = or_default(attr->conflict, &b->lib->conflict,
				 REGC_CONFLICT_REFUSE);
	b->limit_ms = or_default(attr->limit_ms, &b->lib->limit_ms,
				 DEFAULT_LIMIT_MS);
	/* The device writes into what the program sees: no copy of that. */
	if (b->policy == REGC_POLICY_COPY && direction == REGC_RECEIVE)
		b->policy = REGC_POLICY_BLOCK;
	choose_pages(b);
	b->guard = b->low == b->high ? RTAB_GUARD_NONE :
				       guard_choose(direction, b->low, b->high);
	if (b->policy == REGC_POLICY_COPY ||
	    rtab_load_relaxed(&b->lib->progress))
		return helper_start();
	return 0;
}

static struct rtab_transfer_counters *counters_of(const struct regc_library *lib)
{
	return &rt.area.area->transfer_counters[lib->index];
}

/* Waits for a transfer to end; false: the time is over. */
static bool wait_turn(uint32_t turn, uint64_t limit_ns)
{
	uint64_t now = rtab_now_ns();

	if (now >= limit_ns)
		return false;
	rt_futex_wait(&rt.wipe->transfer_turn, turn,
		      (int)rtab_min_u64(QUEUE_LOOK_MS, (limit_ns - now) / 1000000 + 1));
	return true;
}

static uint64_t limit_after_ms(uint64_t ms)
{
	return rtab_now_ns() + ms * 1000000;
}

/*
 * All of bs or none: all are ARMING before the first looks at others, so that of
 * two groups that conflict exactly one yields (T2).
 */
static int begin_all(struct begin *bs, unsigned int n)
{
	uint64_t first = transfer_new_ids(n);
	unsigned int i;
	int r = 0;

	for (i = 0; i < n; i++) {
		bs[i].id = first + i;
		bs[i].first_id = first;
		bs[i].n = n;
		bs[i].slot = RT_NO_SLOT;
	}
	for (i = 0; i < n && !r; i++)
		r = announce(&bs[i]);
	rtab_fence_full(); /* T1: pairs with the fence after CLOSING */
	for (i = 0; i < n && !r; i++)
		r = look_at_others(&bs[i]);
	for (i = 0; i < n && !r; i++)
		r = close_buffer(&bs[i]);
	for (i = 0; i < n; i++)
		if (r)
			give_up(&bs[i]);
		else
			set_word(bs[i].slot, bs[i].id, RTAB_ARMED);
	return r;
}

static int begin_or_queue(struct begin *bs, unsigned int n)
{
	uint64_t limit_ns = bs->limit_ms == REGC_NO_LIMIT ?
				    UINT64_MAX : limit_after_ms(bs->limit_ms);
	uint32_t turn;
	int r;

	for (;;) {
		/* Counted before the look: whoever ends after it wakes. */
		if (bs->conflict == REGC_CONFLICT_QUEUE)
			rtab_fetch_add(&rt.wipe->transfer_waiters, 1);
		turn = rtab_load_acquire(&rt.wipe->transfer_turn);
		r = begin_all(bs, n);
		if (r == -EBUSY && bs->conflict == REGC_CONFLICT_QUEUE &&
		    !wait_turn(turn, limit_ns))
			r = -ETIMEDOUT;
		if (bs->conflict == REGC_CONFLICT_QUEUE)
			rtab_fetch_sub(&rt.wipe->transfer_waiters, 1);
		if (r != -EBUSY || bs->conflict != REGC_CONFLICT_QUEUE)
			return r;
	}
}

static void count_begun(const struct begin *b, int r)
{
	struct rtab_transfer_counters *c = counters_of(b->lib);

	if (!r)
		rtab_fetch_add(&c->begun, 1);
	else if (r == -EBUSY || r == -ETIMEDOUT)
		rtab_fetch_add(&c->refused, 1);
}

/* In a child of fork nothing is attached until it has a domain of its own. */
static int enter(void)
{
	int r = rt_enter();

	if (r)
		return r;
	return rtab_load_acquire(&rt.attached) ? 0 : -ENOTCONN;
}

int regc_transfer_begin(const struct regc_lease *lease, const void *addr, size_t len,
			unsigned int direction, const struct regc_transfer_attr *attr,
			struct regc_transfer *ret)
{
	struct begin b;
	int r = enter();

	if (!r)
		r = check_attr(attr);
	if (!r)
		r = prepare(&b, lease, addr, len, direction, attr);
	if (r)
		return r;
	r = begin_or_queue(&b, 1);
	count_begun(&b, r);
	if (!r)
		*ret = (struct regc_transfer){ .id = b.id, .slot = b.slot };
	return r;
}

int regc_transfer_begin_many(const struct regc_transfer_part *parts, unsigned int n,
			     unsigned int direction,
			     const struct regc_transfer_attr *attr,
			     struct regc_transfer *ret)
{
	struct begin *bs;
	unsigned int i;
	int r = enter();

	if (!r)
		r = check_attr(attr);
	if (r || n == 0)
		return r;
	bs = calloc(n, sizeof(*bs));
	if (!bs)
		return -ENOMEM;
	for (i = 0; i < n && !r; i++)
		r = prepare(&bs[i], parts[i].lease, parts[i].addr, parts[i].len,
			    direction, attr);
	if (!r) {
		r = begin_or_queue(bs, n);
		for (i = 0; i < n; i++) {
			count_begun(&bs[i], r);
			if (!r)
				ret[i] = (struct regc_transfer){
					.id = bs[i].id, .slot = bs[i].slot };
		}
	}
	free(bs);
	return r;
}

/* ---- side states -------------------------------------------------------- */

/* T4: the slot may be another's by now, and then nothing is added. */
bool transfer_add_flags(uint32_t slot, uint64_t id, uint32_t flags)
{
	uint64_t *word = &rt.area.area->transfers[slot].flags;
	uint64_t old = rtab_load_relaxed(word);

	while (old >> 8 == id)
		if (rtab_cas(word, &old, old | flags))
			return true;
	return false;
}

void transfer_note_access(uint32_t slot, uint64_t id, uint64_t addr, uint32_t tid,
			  bool through)
{
	struct rtab_transfer *t = &rt.area.area->transfers[slot];
	uint64_t none = 0;

	/* Counts are for show: one that is late by a transfer is borne. */
	if (rtab_load_relaxed(&t->flags) >> 8 != id)
		return;
	if (!through)
		rtab_cas(&t->blocked_ns, &none, rtab_now_ns());
	if (!transfer_add_flags(slot, id, through ? RTAB_TRANSFER_DAMAGED :
						    RTAB_TRANSFER_BLOCKED))
		return;
	if (through)
		rtab_fetch_add(&t->n_through, 1);
	else
		rtab_fetch_add(&t->n_blocked, 1);
	rtab_store_relaxed(&t->addr, addr);
	rtab_store_relaxed(&t->last_tid, tid);
}

bool transfer_detach(uint64_t start, uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;
	bool any = false;

	while (rtab_transfer_next(rt.area.area, &slot, start, end, &v)) {
		if (!rtab_transfer_active(v.word) ||
		    !rtab_overlaps(v.t.start, v.t.end, start, end))
			continue;
		transfer_add_flags(v.slot, rtab_transfer_id(v.word),
				   RTAB_TRANSFER_DETACHED);
		any = true;
	}
	return any;
}

bool transfer_before_change(uint64_t start, uint64_t end)
{
	while (rtab_transfer_copying(rt.area.area, start, end))
		sched_yield();
	return transfer_detach(start, end);
}

/* ---- what a transfer is ------------------------------------------------- */

static void fill_info(struct rtab_transfer_view *v, struct regc_transfer_info *ret)
{
	struct regc_transfer_info info = { .size = ret->size };
	enum rtab_transfer_state state = rtab_transfer_state(v->word);

	/* When the broker was lost its marks were added to the area's. */
	if (rtab_load_acquire(&rt.connected))
		rtab_transfer_add_mark(rt.table.table, v);
	info.start = v->t.start;
	info.end = v->t.end;
	info.direction = v->t.direction;
	info.state = state == RTAB_ARMING || state == RTAB_ARMED ?
			     REGC_TRANSFER_ARMED :
		     state == RTAB_POSTED ? REGC_TRANSFER_IN_FLIGHT :
					    REGC_TRANSFER_COMPLETE;
	info.flags = (uint32_t)v->t.flags;
	info.n_blocked = v->t.n_blocked;
	info.begun_ns = v->t.begun_ns;
	info.blocked_ns = v->t.blocked_ns ? rtab_now_ns() - v->t.blocked_ns : 0;
	info.n_through = v->t.n_through;
	info.addr = v->t.addr;
	info.tid = v->t.last_tid;
	/* The area's copy of the name: the library may be closed at this moment. */
	memcpy(info.library, rt.area.area->libraries[v->t.library %
						     RTAB_N_LIBRARIES].name,
	       sizeof(info.library) - 1);
	*ret = info;
}

int regc_transfer_state(const struct regc_transfer *t, struct regc_transfer_info *ret)
{
	struct rtab_transfer_view v;

	if (ret->size < sizeof(*ret) || t->slot >= RTAB_N_TRANSFERS)
		return -EINVAL;
	if (enter() || !rtab_transfer_read(rt.area.area, t->slot, t->id, &v))
		return -ESTALE;
	fill_info(&v, ret);
	return 0;
}

int regc_in_flight(struct regc_library *lib, const void *addr, size_t len,
		   struct regc_transfer_info *ret, unsigned int max)
{
	uint64_t start = (uintptr_t)addr, end = start + len;
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;
	unsigned int n = 0, i;

	(void)lib;
	if (end <= start)
		return -EINVAL;
	for (i = 0; i < max; i++)
		if (ret[i].size < sizeof(*ret))
			return -EINVAL;
	if (enter())
		return 0;
	while (rtab_transfer_next(rt.area.area, &slot,
				  rtab_round_down(start, RTAB_PAGE),
				  rtab_round_up(end, RTAB_PAGE), &v)) {
		if (!rtab_transfer_active(v.word) ||
		    !rtab_overlaps(v.t.start, v.t.end, start, end))
			continue;
		if (n < max)
			fill_info(&v, &ret[n]);
		n++;
	}
	return (int)n;
}

int regc_transfer_wait(struct regc_library *lib, const void *addr, size_t len,
		       int timeout_ms)
{
	uint64_t limit_ns = timeout_ms < 0 ? UINT64_MAX :
					     limit_after_ms((uint64_t)timeout_ms);
	uint32_t turn;
	int n, r = enter();

	if (r)
		return r == -ENOTCONN ? 0 : r;
	rtab_fetch_add(&rt.wipe->transfer_waiters, 1);
	do {
		turn = rtab_load_acquire(&rt.wipe->transfer_turn);
		n = regc_in_flight(lib, addr, len, NULL, 0);
	} while (n > 0 && wait_turn(turn, limit_ns));
	rtab_fetch_sub(&rt.wipe->transfer_waiters, 1);
	return n > 0 ? -ETIMEDOUT : n;
}

/* ---- posted, complete, abort -------------------------------------------- */

int regc_transfer_posted(const struct regc_transfer *t)
{
	if (t->slot >= RTAB_N_TRANSFERS || enter() ||
	    !move_word(t->slot, t->id, RTAB_POSTED))
		return -ESTALE;
	return 0;
}

static void count_ended(const struct regc_transfer_info *info, uint16_t library)
{
	struct rtab_transfer_counters *c;

	if (RTAB_LIKELY(!(info->flags & ~(uint32_t)(RTAB_TRANSFER_OPEN |
						    RTAB_TRANSFER_WEAK))))
		return;
	c = &rt.area.area->transfer_counters[library % RTAB_N_LIBRARIES];
	rtab_fetch_add(&c->blocked, info->n_blocked);
	rtab_fetch_add(&c->blocked_ns, info->blocked_ns);
	if (info->flags & RTAB_TRANSFER_COPIED)
		rtab_fetch_add(&c->copied, 1);
	if (info->flags & RTAB_TRANSFER_DAMAGED)
		rtab_fetch_add(&c->damaged, 1);
	if (info->flags & RTAB_TRANSFER_TIMED_OUT)
		rtab_fetch_add(&c->timed_out, 1);
	if (info->flags & RTAB_TRANSFER_DETACHED)
		rtab_fetch_add(&c->detached, 1);
}

static int end_transfer(const struct regc_transfer *t, uint32_t flags,
			struct regc_transfer_info *ret)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	struct rtab_transfer_view v;

	if (ret && ret->size < sizeof(*ret))
		return -EINVAL;
	if (t->slot >= RTAB_N_TRANSFERS || enter() ||
	    !move_word(t->slot, t->id, RTAB_CLOSING))
		return -ESTALE;
	/* Still closed, so the edges of a neighbour's page are, too. */
	rtab_transfer_read(rt.area.area, t->slot, t->id, &v);
	v.t.flags |= flags;
	if (v.t.direction == RTAB_SEND && !(flags & RTAB_TRANSFER_ABORTED) &&
	    edges_changed(t->slot, &v.t))
		v.t.flags |= RTAB_TRANSFER_DAMAGED;
	fill_info(&v, &info);
	count_ended(&info, v.t.library);
	open_and_free(t->slot, t->id);
	/* Pairs with the count, and then the look, of who waits. */
	rtab_fence_full();
	if (RTAB_UNLIKELY(rtab_load_relaxed(&rt.wipe->transfer_waiters)))
		transfer_turn();
	if (ret) {
		info.size = ret->size;
		*ret = info;
	}
	return 0;
}

int regc_transfer_complete(const struct regc_transfer *t,
			   struct regc_transfer_info *ret)
{
	return end_transfer(t, 0, ret);
}

int regc_transfer_abort(const struct regc_transfer *t, struct regc_transfer_info *ret)
{
	return end_transfer(t, RTAB_TRANSFER_ABORTED, ret);
}

int regc_transfer_posted_many(const struct regc_transfer *t, unsigned int n)
{
	unsigned int i;
	int r, first = 0;

	for (i = 0; i < n; i++) {
		r = regc_transfer_posted(&t[i]);
		first = first ? first : r;
	}
	return first;
}

int regc_transfer_complete_many(const struct regc_transfer *t, unsigned int n,
				struct regc_transfer_info *ret)
{
	unsigned int i;
	int r, first = 0;

	for (i = 0; i < n; i++) {
		r = regc_transfer_complete(&t[i], ret ? &ret[i] : NULL);
		first = first ? first : r;
	}
	return first;
}

int regc_transfer_defaults(struct regc_library *lib,
			   const struct regc_transfer_attr *attr)
{
	if (!attr || check_attr(attr))
		return -EINVAL;
	if (attr->policy)
		rtab_store_relaxed(&lib->policy, attr->policy);
	if (attr->edges)
		rtab_store_relaxed(&lib->edges, attr->edges);
	if (attr->conflict)
		rtab_store_relaxed(&lib->conflict, attr->conflict);
	if (attr->limit_ms)
		rtab_store_relaxed(&lib->limit_ms, attr->limit_ms);
	return 0;
}
