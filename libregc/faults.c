/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The guardian's part in transfers; see transfer.h for why it is the guardian's.
 *
 * The broker reads an access that waits from the userfaultfd, notes it, and says
 * so (Fault); or the guardian reads it in the broker's place.  Either way
 * rtab_transfer_decide() is asked here, at this moment: what the broker saw may
 * be over.  Only this thread uses slot 0.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <sys/ioctl.h>

#define RETRY_MS 1
#define NUDGE_MS 5000
#define N_LATER 64

/* Pages that could not be opened because an event was unread. */
static struct {
	uint64_t addr;
	bool minor;
} later[N_LATER];
static unsigned int n_later;
static uint64_t nudged_ns; /* when everybody was last made to look again */
static bool blocked_seen; /* since the last look that found nobody waiting */

void faults_start(void)
{
	n_later = 0;
	blocked_seen = false;
}

static const struct rtab_table *table_of_broker(void)
{
	return rtab_load_acquire(&rt.connected) ? rt.table.table : NULL;
}

/* ---- opening ------------------------------------------------------------ */

/*
 * What lets accesses through is damaged by this one: also if it began after the
 * access was decided on, or if the broker noted that the access has to wait.
 */
static void mark_damaged(uint64_t low, uint64_t high)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, low, high, &v))
		if (rtab_transfer_active(v.word) &&
		    rtab_overlaps(low, high, v.t.low, v.t.high) &&
		    (v.t.policy == RTAB_REPORT ||
		     (v.t.flags & RTAB_TRANSFER_TIMED_OUT)))
			transfer_add_flags(v.slot, rtab_transfer_id(v.word),
					   RTAB_TRANSFER_DAMAGED);
}

/* As a transfer of its own that is closed at once (T1). */
static int open_page(uint64_t page, uint64_t bytes, bool minor)
{
	uint64_t id = transfer_new_ids(1);
	enum rtab_guard guard = minor ? RTAB_GUARD_MINOR : RTAB_GUARD_WP;
	int r;

	transfer_occupy(RTAB_TRANSFER_OPENER, id, RTAB_CLOSING, page,
			page + bytes);
	mark_damaged(page, page + bytes);
	r = guard_open(guard, page, page + bytes, true);
	transfer_release(RTAB_TRANSFER_OPENER, id);
	return r;
}

static void open_or_later(uint64_t addr, bool minor)
{
	uint64_t bytes = RTAB_PAGE, page;

	if (minor)
		pool_has(addr, addr + 1, &bytes);
	page = rtab_round_down(addr, bytes);
	if (open_page(page, bytes, minor) != -EAGAIN)
		return;
	if (n_later < N_LATER) {
		later[n_later].addr = addr;
		later[n_later++].minor = minor;
	} else {
		guard_wake(page, page + bytes); /* its event comes again */
	}
}

/* ---- an access ---------------------------------------------------------- */

void faults_on_access(uint64_t addr, bool minor, uint32_t tid, bool noted)
{
	struct rtab_verdict v;
	uint32_t i;

	rtab_transfer_decide(rt.area.area, table_of_broker(), addr, minor, &v);
	if (!noted && v.decision != RTAB_DECIDE_COPY)
		for (i = 0; i < v.n; i++)
			transfer_note_access(v.slot[i], v.id[i], addr, tid,
					     v.decision == RTAB_DECIDE_OPEN);
	if (v.decision == RTAB_DECIDE_OPEN) {
		open_or_later(addr, minor);
		return;
	}
	/* A callback that writes into what it is to complete: as at the limit. */
	if (helper_is(tid)) {
		for (i = 0; i < v.n; i++)
			transfer_add_flags(v.slot[i], v.id[i],
					   RTAB_TRANSFER_TIMED_OUT);
		guard_wake(rtab_round_down(addr, RTAB_PAGE),
			   rtab_round_down(addr, RTAB_PAGE) + RTAB_PAGE);
		return;
	}
	blocked_seen = true; /* by a copy, too, which may not come */
	if (v.decision == RTAB_DECIDE_BLOCK || !helper_copy(addr))
		helper_wake();
}

void faults_on_missing(uint64_t addr)
{
	uint64_t page = rtab_round_down(addr, RTAB_PAGE);
	struct uffdio_zeropage zero = { .range = { .start = page, .len = RTAB_PAGE } };

	if (rtab_transfer_copying(rt.area.area, page, page + RTAB_PAGE))
		return;
	/* There by now, gone, or an event is unread: it faults again, or goes on. */
	if (ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_ZEROPAGE, &zero) < 0)
		guard_wake(page, page + RTAB_PAGE);
}

void faults_on_change(uint64_t start, uint64_t end)
{
	/* The helper removes what it puts back at once, and then wakes. */
	if (!transfers_used() || rtab_transfer_own_copy(rt.area.area, start, end))
		return;
	transfer_detach(start, end);
	/* Whoever waits there waits for pages that are not there any more. */
	guard_wake(rtab_round_down(start, RTAB_PAGE), rtab_round_up(end, RTAB_PAGE));
}

/* ---- time limits -------------------------------------------------------- */

static bool next_active(uint32_t *slot, struct rtab_transfer_view *v)
{
	while (rtab_transfer_next(rt.area.area, slot, 0, UINT64_MAX, v)) {
		if (!rtab_transfer_active(v->word))
			continue;
		if (table_of_broker())
			rtab_transfer_add_mark(rt.table.table, v);
		return true;
	}
	return false;
}

/*
 * When the waits for v reach their limit; UINT64_MAX: never, or nobody waits.  Who
 * waits for a copy waits for the helper, which may be busy with a callback.
 */
static uint64_t deadline(const struct rtab_transfer *t)
{
	uint64_t since = t->blocked_ns;

	if (t->policy == RTAB_COPY) {
		since = helper_copies_since(t->low, t->high);
		if (since)
			since = rtab_max_u64(since, t->begun_ns);
	}
	if (!since || t->limit_ms == UINT32_MAX ||
	    (t->flags & RTAB_TRANSFER_TIMED_OUT))
		return UINT64_MAX;
	return since + t->limit_ms * UINT64_C(1000000);
}

int faults_timeout(void)
{
	uint64_t first = UINT64_MAX, now;
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	if (n_later)
		return RETRY_MS;
	if (!rtab_load_relaxed(&rt.attached) || !transfers_used())
		return -1;
	if (!blocked_seen)
		return NUDGE_MS;
	while (next_active(&slot, &v))
		first = rtab_min_u64(first, deadline(&v.t));
	if (first == UINT64_MAX) {
		blocked_seen = false;
		return NUDGE_MS;
	}
	now = rtab_now_ns();
	return now >= first ? 0 :
			      (int)rtab_min_u64((first - now) / 1000000 + 1, NUDGE_MS);
}

/*
 * A broker that is stopped after it read an event, and before it said so, leaves a
 * sleeper that nobody knows of.  So whoever sleeps is made to fault again now and
 * then, and the event comes again; who waits already is not counted twice.
 */
static void nudge(uint64_t now)
{
	uint64_t since = now - nudged_ns;

	if (since < NUDGE_MS * UINT64_C(1000000))
		return;
	nudged_ns = now;
	/* Much later: it slept, before the first transfer; the time begins now. */
	if (since < 2 * NUDGE_MS * UINT64_C(1000000))
		guard_wake_all();
}

void faults_look(void)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;
	unsigned int n = n_later, i;
	uint64_t now;

	if (!rtab_load_relaxed(&rt.attached) || !transfers_used())
		return;
	n_later = 0;
	for (i = 0; i < n; i++)
		open_or_later(later[i].addr, later[i].minor);
	now = rtab_now_ns();
	nudge(now);
	if (!blocked_seen)
		return;
	while (next_active(&slot, &v)) {
		if (now < deadline(&v.t))
			continue;
		transfer_add_flags(v.slot, rtab_transfer_id(v.word),
				   RTAB_TRANSFER_TIMED_OUT);
		/* They fault again, and now are let through. */
		guard_wake(v.t.low, v.t.high);
	}
}

/* ---- the broker is gone ------------------------------------------------- */

void faults_broker_lost(void)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, 0, UINT64_MAX, &v)) {
		struct rtab_transfer *t = &rt.area.area->transfers[v.slot];
		struct rtab_mark mark;
		uint64_t none = 0;

		if (!rtab_transfer_active(v.word))
			continue;
		if (rtab_mark_read(rt.table.table, v.slot,
				   rtab_transfer_id(v.word), &mark)) {
			rtab_cas(&t->blocked_ns, &none, mark.blocked_ns);
			transfer_add_flags(v.slot, mark.id, mark.flags);
			rtab_fetch_add(&t->n_blocked, mark.n_blocked);
			rtab_fetch_add(&t->n_through, mark.n_through);
		}
	}
	if (transfers_used())
		guard_wake_all();
}
