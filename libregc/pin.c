/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registering memory of which pages are closed.
 *
 * A device that registers pins the pages, and the kernel takes the fault of a closed
 * page in the middle of it.  io_uring holds the lock of its ring meanwhile, and
 * without that no operation of the ring completes: maybe the one that would open the
 * page.  What mprotect(2) has closed cannot be pinned at all.  So a registration
 * first waits, without any lock, as a store would: until the transfers that keep
 * pages of it closed are over, or come to their limit.
 *
 * T1 keeps it so while the device pins.  The registration is a slot in CLOSING: a
 * begin that comes then waits for it; one that is ARMING already is seen.  So what
 * is still closed now is nobody's, and opened: its fault would wait for the
 * begin that waits for this.
 */
#include "libregc/transfer.h"

#include <errno.h>

#define LOOK_MS 20 /* whoever gave up meanwhile wakes nobody */

/* Reports only, or timed out: whoever faults is let through. */
static bool lets_through(const struct rtab_transfer *t)
{
	return t->policy == RTAB_REPORT || (t->flags & RTAB_TRANSFER_TIMED_OUT);
}

/*
 * A transfer that keeps a page of [low, high) closed; *ret_through: there is one that
 * lets accesses through, and is to know of them.
 */
static bool find_closed(uint64_t low, uint64_t high, struct rtab_transfer_view *ret,
			bool *ret_through)
{
	uint32_t slot = RTAB_TRANSFER_COPIER;

	*ret_through = false;
	while (rtab_transfer_next(rt.area.area, &slot, low, high, ret)) {
		if (ret->slot == RTAB_TRANSFER_COPIER)
			return true;
		if (!rtab_overlaps(low, high, ret->t.low, ret->t.high))
			continue;
		/* What is being opened; another that registers closes nothing. */
		if (rtab_transfer_state(ret->word) == RTAB_CLOSING &&
		    ret->t.guard != RTAB_GUARD_NONE &&
		    ret->t.guard != RTAB_GUARD_PIN)
			return true;
		if (!rtab_transfer_active(ret->word))
			continue;
		if (rtab_load_acquire(&rt.connected))
			rtab_transfer_add_mark(rt.table.table, ret);
		if (!lets_through(&ret->t))
			return true;
		*ret_through = true;
	}
	return false;
}

/* At the limit of v, as the guardian ends the waits of threads. */
static void end_at_limit(const struct rtab_transfer_view *v)
{
	const struct rtab_transfer *t = &v->t;

	if (!rtab_transfer_active(v->word) || !t->blocked_ns ||
	    t->limit_ms == UINT32_MAX ||
	    rtab_now_ns() < t->blocked_ns + t->limit_ms * UINT64_C(1000000))
		return;
	transfer_add_flags(v->slot, rtab_transfer_id(v->word),
			   RTAB_TRANSFER_TIMED_OUT);
	guard_wake(t->low, t->high);
}

static void wait_for(const struct rtab_transfer_view *v, uint32_t turn, uint64_t low,
		     uint64_t *noted)
{
	uint64_t id = rtab_transfer_id(v->word);

	if (rtab_transfer_active(v->word) && *noted != id) {
		*noted = id;
		transfer_note_access(v->slot, id, rtab_max_u64(low, v->t.low),
				     rt_tid(), false);
	}
	helper_wake(); /* a completion is wanted */
	rt_futex_wait(&rt.wipe->transfer_turn, turn, LOOK_MS);
	end_at_limit(v);
}

void transfer_pin_begin(uint64_t start, uint64_t end, struct transfer_pin *ret)
{
	uint64_t low = rtab_round_down(start, RTAB_PAGE), noted = 0;
	uint64_t high = rtab_round_up(end, RTAB_PAGE);
	struct rtab_transfer_view v;
	uint32_t turn;
	bool closed, through;

	ret->slot = RT_NO_SLOT;
	if (!rtab_load_relaxed(&rt.attached) || !transfers_used())
		return;
	do {
		rtab_fetch_add(&rt.wipe->transfer_waiters, 1);
		turn = rtab_load_acquire(&rt.wipe->transfer_turn);
		/* All slots in use: it goes on, and may wait in the kernel. */
		ret->id = transfer_new_ids(1);
		if (transfer_take(ret->id, &ret->slot)) {
			ret->slot = RT_NO_SLOT;
			closed = false;
		} else {
			transfer_occupy(ret->slot, ret->id, RTAB_CLOSING, low, high);
			closed = find_closed(low, high, &v, &through);
			if (!closed) /* who is ARMING now waits for this */
				rtab_store_release(
					&rt.area.area->transfers[ret->slot].guard,
					(uint8_t)RTAB_GUARD_PIN);
			if (!closed && !through && rtab_load_relaxed(&rt.uffd) >= 0)
				guard_open_left(low, high);
		}
		if (closed) {
			transfer_pin_end(ret);
			wait_for(&v, turn, low, &noted);
		}
		rtab_fetch_sub(&rt.wipe->transfer_waiters, 1);
	} while (closed);
}

void transfer_pin_end(struct transfer_pin *pin)
{
	if (pin->slot != RT_NO_SLOT)
		transfer_release(pin->slot, pin->id);
}

int transfer_probe(uint64_t start, uint64_t end)
{
	struct transfer_pin pin = { .id = transfer_new_ids(1) };
	uint64_t low = start, cover_low, cover_high;
	int r;

	r = transfer_take(pin.id, &pin.slot);
	if (r)
		return r;
	transfer_occupy(pin.slot, pin.id, RTAB_CLOSING, start, end);
	while (!r && low < end) {
		if (!guard_first_cover(RTAB_GUARD_WP, low, end, false, &cover_low,
				       &cover_high))
			cover_low = cover_high = end;
		if (low < cover_low)
			r = monitor_uffd_watches(low, cover_low);
		low = cover_high;
	}
	transfer_pin_end(&pin);
	return r;
}
