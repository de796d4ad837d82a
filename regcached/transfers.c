/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers of a space; see transfers.h. */
#include "regcached/transfers.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/space.h"
#include "shm/segment.h"
#include "shm/transfer.h"

/* Is what entry w waits for over, so that the entry can be used again? */
static bool is_over(const struct space *s, const struct rtab_waiter *w)
{
	uint64_t word;

	if (!w->tid || w->slot >= RTAB_N_TRANSFERS)
		return true;
	word = rtab_load_relaxed(&s->area->transfer_words[w->slot]);
	return rtab_transfer_id(word) != w->id || !rtab_transfer_active(word);
}

/* One that waits already is the same thread, which was woken and waits again. */
static struct rtab_waiter *waiter_entry(struct space *s, uint32_t slot, uint32_t tid)
{
	struct rtab_waiter *all = s->writer.view.table->waiters, *unused = NULL;
	uint32_t i;

	for (i = 0; i < RTAB_N_TABLE_WAITERS; i++) {
		if (all[i].tid == tid && all[i].slot == slot)
			return &all[i];
		if (!unused && is_over(s, &all[i]))
			unused = &all[i];
	}
	return unused;
}

/* False: it waited already, and was only made to look again. */
static bool note_waiter(struct space *s, uint32_t slot, uint64_t id, uint64_t addr,
			uint32_t tid)
{
	struct rtab_waiter *w = tid ? waiter_entry(s, slot, tid) : NULL;

	if (!w)
		return true; /* none free: it is counted, and not listed */
	if (w->tid == tid && w->id == id && w->addr == addr)
		return false;
	rtab_store_relaxed(&w->id, 0);
	rtab_fence_release();
	rtab_store_relaxed(&w->addr, addr);
	rtab_store_relaxed(&w->since_ns, rtab_now_ns());
	rtab_store_relaxed(&w->slot, slot);
	rtab_store_relaxed(&w->tid, tid);
	rtab_store_release(&w->id, id);
	return true;
}

static void note(struct space *s, const struct rtab_verdict *v, uint32_t i,
		 uint64_t addr, uint32_t tid)
{
	struct rtab_mark *mark;

	/* It hardly waits for a copy; the helper says when there is one. */
	if (v->decision == RTAB_DECIDE_COPY ||
	    (v->decision == RTAB_DECIDE_BLOCK &&
	     !note_waiter(s, v->slot[i], v->id[i], addr, tid)))
		return;
	mark = rtab_mark_begin(s->writer.view.table, v->slot[i], v->id[i]);
	if (v->decision == RTAB_DECIDE_OPEN) {
		rtab_store_relaxed(&mark->n_through, mark->n_through + 1);
		rtab_store_relaxed(&mark->flags, mark->flags | RTAB_TRANSFER_DAMAGED);
	} else {
		rtab_store_relaxed(&mark->n_blocked, mark->n_blocked + 1);
		rtab_store_relaxed(&mark->flags, mark->flags | RTAB_TRANSFER_BLOCKED);
		if (!mark->blocked_ns)
			rtab_store_relaxed(&mark->blocked_ns, rtab_now_ns());
	}
	rtab_store_relaxed(&mark->addr, addr);
	rtab_store_relaxed(&mark->tid, tid);
	rtab_mark_end(mark, v->id[i]);
}

static void tell(struct space *s, uint64_t addr, bool minor, bool missing,
		 uint32_t tid)
{
	Regc__Fault fault = REGC__FAULT__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	fault.addr = addr;
	fault.minor = minor;
	fault.missing = missing;
	fault.tid = tid;
	frame.body_case = REGC__FRAME__BODY_FAULT;
	frame.fault = &fault;
	client_send(s->client, &frame);
}

bool transfers_on_fault(struct space *s, const struct uffd_msg *msg)
{
	uint64_t flags = msg->arg.pagefault.flags, addr = msg->arg.pagefault.address;
	bool minor = flags & UFFD_PAGEFAULT_FLAG_MINOR;
	bool missing = !minor && !(flags & UFFD_PAGEFAULT_FLAG_WP);
	uint32_t tid = msg->arg.pagefault.feat.ptid, i;
	struct rtab_verdict v;

	/* Only the helper's copies make pages go missing. */
	if (missing && !rtab_n_transfers(s->area))
		return false;
	v.n = 0;
	if (!missing)
		rtab_transfer_decide(s->area, s->writer.view.table, addr, minor, &v);
	for (i = 0; i < v.n; i++)
		note(s, &v, i, addr, tid);
	tell(s, addr, minor, missing, tid);
	return true;
}

bool transfers_own_removal(const struct space *s, uint64_t start, uint64_t end)
{
	return rtab_n_transfers(s->area) &&
	       rtab_transfer_own_removal(s->area, start, end);
}

void transfers_on_change(struct space *s, int uffd, uint64_t start, uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct uffdio_range range = { rtab_round_down(start, RTAB_PAGE), 0 };
	struct rtab_transfer_view v;
	struct rtab_mark *mark;

	if (!rtab_n_transfers(s->area))
		return;
	/* The helper removes what it puts back at once, and then wakes. */
	if (rtab_transfer_own_copy(s->area, start, end))
		return;
	while (rtab_transfer_next(s->area, &slot, start, end, &v)) {
		uint64_t id = rtab_transfer_id(v.word);

		if (!rtab_transfer_active(v.word) ||
		    !rtab_overlaps(v.t.start, v.t.end, start, end))
			continue;
		mark = rtab_mark_begin(s->writer.view.table, v.slot, id);
		rtab_store_relaxed(&mark->flags,
				   mark->flags | RTAB_TRANSFER_DETACHED);
		rtab_mark_end(mark, id);
	}
	/* Whoever waits there waits for pages that are not there any more. */
	range.len = rtab_round_up(end, RTAB_PAGE) - range.start;
	ioctl(uffd, UFFDIO_WAKE, &range);
}
