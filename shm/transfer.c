/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading transfers, for both sides; see transfer.h. */
#include "shm/transfer.h"

#include <errno.h>
#include <string.h>

/*
 * Copies what the owner wrote while TAKEN, field by field: the client may change
 * it at any time, and then the word is another.
 */
static void copy_transfer(const struct rtab_transfer *from, struct rtab_transfer *to)
{
	memset(to, 0, sizeof(*to));
	to->start = rtab_load_relaxed(&from->start);
	to->end = rtab_load_relaxed(&from->end);
	to->low = rtab_load_relaxed(&from->low);
	to->high = rtab_load_relaxed(&from->high);
	to->begun_ns = rtab_load_relaxed(&from->begun_ns);
	to->direction = rtab_load_relaxed(&from->direction);
	to->policy = rtab_load_relaxed(&from->policy);
	to->guard = rtab_load_relaxed(&from->guard);
	to->library = rtab_load_relaxed(&from->library);
	to->domain = rtab_load_relaxed(&from->domain);
	to->limit_ms = rtab_load_relaxed(&from->limit_ms);
	to->tid = rtab_load_relaxed(&from->tid);
	to->lease = rtab_load_relaxed(&from->lease);
	to->flags = rtab_load_relaxed(&from->flags) & RTAB_TRANSFER_FLAGS;
	to->n_blocked = rtab_load_relaxed(&from->n_blocked);
	to->blocked_ns = to->flags & RTAB_TRANSFER_BLOCKED ?
				 rtab_load_relaxed(&from->blocked_ns) : 0;
	to->n_through = rtab_load_relaxed(&from->n_through);
	to->addr = rtab_load_relaxed(&from->addr);
	to->last_tid = rtab_load_relaxed(&from->last_tid);
}

bool rtab_transfer_read(const struct rtab_area *area, uint32_t slot, uint64_t id,
			struct rtab_transfer_view *ret)
{
	const uint64_t *word = &area->transfer_words[slot];

	ret->slot = slot;
	ret->word = rtab_load_acquire(word); /* T1 */
	if (rtab_transfer_id(ret->word) != id)
		return false;
	copy_transfer(&area->transfers[slot], &ret->t);
	rtab_fence_acquire();
	return rtab_transfer_id(rtab_load_relaxed(word)) == id;
}

/*
 * One slot; its fields belong to the word that is read after them, too.  A slot
 * that is another transfer's at each of so many looks is a hostile client's: the
 * broker's time is bounded.
 */
static bool touches(const struct rtab_area *area, uint32_t slot, uint64_t low,
		    uint64_t high, struct rtab_transfer_view *ret)
{
	const uint64_t *word = &area->transfer_words[slot];
	const struct rtab_transfer *t = &area->transfers[slot];
	int looks = 8;
	uint64_t a, b;

	for (;;) {
		if (!looks--)
			return false;
		ret->word = rtab_load_acquire(word); /* T1 */
		if (rtab_transfer_state(ret->word) <= RTAB_TAKEN)
			return false;
		a = rtab_load_relaxed(&t->start);
		b = rtab_load_relaxed(&t->end);
		if (!rtab_overlaps(rtab_round_down(a, RTAB_PAGE), b, low, high))
			return false;
		copy_transfer(t, &ret->t);
		rtab_fence_acquire();
		if (rtab_transfer_id(rtab_load_relaxed(word)) ==
		    rtab_transfer_id(ret->word))
			break;
	}
	ret->slot = slot;
	return true;
}

bool rtab_transfer_next(const struct rtab_area *area, uint32_t *slot, uint64_t low,
			uint64_t high, struct rtab_transfer_view *ret)
{
	uint32_t n = rtab_n_transfers(area), i;

	for (i = *slot; i < n; i++) {
		if (rtab_transfer_state(rtab_load_relaxed(
			    &area->transfer_words[i])) <= RTAB_TAKEN)
			continue;
		if (touches(area, i, low, high, ret)) {
			*slot = i + 1;
			return true;
		}
	}
	*slot = n;
	return false;
}

/* ---- marks -------------------------------------------------------------- */

bool rtab_mark_read(const struct rtab_table *table, uint32_t slot, uint64_t id,
		    struct rtab_mark *ret)
{
	const struct rtab_mark *mark = &table->marks[slot];

	ret->id = rtab_load_acquire(&mark->id); /* T3 */
	if (ret->id != id)
		return false;
	ret->flags = rtab_load_relaxed(&mark->flags);
	ret->n_blocked = rtab_load_relaxed(&mark->n_blocked);
	ret->blocked_ns = rtab_load_relaxed(&mark->blocked_ns);
	ret->n_through = rtab_load_relaxed(&mark->n_through);
	ret->addr = rtab_load_relaxed(&mark->addr);
	ret->tid = rtab_load_relaxed(&mark->tid);
	rtab_fence_acquire();
	return rtab_load_relaxed(&mark->id) == id;
}

struct rtab_mark *rtab_mark_begin(struct rtab_table *table, uint32_t slot, uint64_t id)
{
	struct rtab_mark *mark = &table->marks[slot];

	if (mark->id == id)
		return mark; /* counts and bits only grow, one by one */
	rtab_store_relaxed(&mark->id, 0);
	rtab_fence_release(); /* T3: a reader of what follows finds no id */
	rtab_store_relaxed(&mark->flags, 0);
	rtab_store_relaxed(&mark->n_blocked, 0);
	rtab_store_relaxed(&mark->blocked_ns, 0);
	rtab_store_relaxed(&mark->n_through, 0);
	rtab_store_relaxed(&mark->addr, 0);
	rtab_store_relaxed(&mark->tid, 0);
	return mark;
}

void rtab_mark_end(struct rtab_mark *mark, uint64_t id)
{
	rtab_store_release(&mark->id, id); /* T3 */
}

void rtab_transfer_add_mark(const struct rtab_table *table,
			    struct rtab_transfer_view *view)
{
	struct rtab_transfer *t = &view->t;
	struct rtab_mark mark;

	if (!rtab_mark_read(table, view->slot, rtab_transfer_id(view->word), &mark))
		return;
	t->flags |= mark.flags;
	t->n_blocked += mark.n_blocked;
	t->n_through += mark.n_through;
	if (mark.blocked_ns && (!t->blocked_ns || mark.blocked_ns < t->blocked_ns))
		t->blocked_ns = mark.blocked_ns;
	if (mark.tid || !t->last_tid) {
		t->addr = mark.addr;
		t->last_tid = mark.tid;
	}
}

/* ---- deciding ----------------------------------------------------------- */

bool rtab_transfer_pinned(const struct rtab_area *area, uint64_t low,
			  uint64_t high)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(area, &slot, low, high, &v))
		if (rtab_transfer_state(v.word) == RTAB_CLOSING &&
		    v.t.guard == RTAB_GUARD_PIN &&
		    rtab_overlaps(v.t.low, v.t.high, low, high))
			return true;
	return false;
}

void rtab_transfer_decide(const struct rtab_area *area,
			  const struct rtab_table *table, uint64_t addr,
			  bool minor, struct rtab_verdict *ret)
{
	uint64_t page = rtab_round_down(addr, RTAB_PAGE);
	bool pinned = rtab_transfer_pinned(area, page, page + RTAB_PAGE);
	bool block = false, copy = false;
	struct rtab_transfer_view v;
	uint32_t slot = RTAB_TRANSFER_COPIER;

	ret->n = 0;
	while (rtab_transfer_next(area, &slot, page, page + RTAB_PAGE, &v)) {
		if (v.slot == RTAB_TRANSFER_COPIER) {
			block = true; /* the helper opens it, in a moment */
			break;
		}
		if (pinned && rtab_transfer_state(v.word) == RTAB_ARMING)
			continue;
		if (!rtab_transfer_active(v.word) || page < v.t.low ||
		    page >= v.t.high || (minor && v.t.guard != RTAB_GUARD_MINOR))
			continue;
		if (table)
			rtab_transfer_add_mark(table, &v);
		if (ret->n < RTAB_MAX_COVERS) {
			ret->slot[ret->n] = v.slot;
			ret->id[ret->n++] = rtab_transfer_id(v.word);
		}
		if (v.t.flags & RTAB_TRANSFER_TIMED_OUT)
			continue;
		if (v.t.policy == RTAB_COPY)
			copy = true;
		else if (v.t.policy != RTAB_REPORT)
			block = true;
	}
	/* What must wait for one is not served by the copy that another allows. */
	ret->decision = block ? RTAB_DECIDE_BLOCK :
			copy  ? RTAB_DECIDE_COPY :
				RTAB_DECIDE_OPEN;
}

bool rtab_transfer_own_removal(const struct rtab_area *area, uint64_t start,
			       uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(area, &slot, start, end, &v))
		if (rtab_transfer_state(v.word) == RTAB_ARMING &&
		    v.t.guard == RTAB_GUARD_MINOR && v.t.low <= start &&
		    end <= v.t.high)
			return true;
	return false;
}

bool rtab_transfer_copying(const struct rtab_area *area, uint64_t start,
			   uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_COPIER;
	struct rtab_transfer_view v;

	return rtab_transfer_next(area, &slot, start, end, &v) &&
	       v.slot == RTAB_TRANSFER_COPIER;
}

bool rtab_transfer_own_copy(const struct rtab_area *area, uint64_t start,
			    uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_COPIER;
	struct rtab_transfer_view v;

	return rtab_transfer_next(area, &slot, start, end, &v) &&
	       v.slot == RTAB_TRANSFER_COPIER && v.t.low <= start &&
	       end <= v.t.high;
}
