/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copy on write for transfers: the writer goes on with new memory, the device keeps
 * the old.
 *
 * Only private anonymous memory, and only if nobody but transfers that send has a
 * lease of it: a device that writes into the old page would write where nobody
 * reads.  The order, in slot 1:
 *   1  COPYING, full fence: it covers its pages, so nobody opens them, and a begin
 *      waits (shm/transfer.h, T1)
 *   2  the area is changing (label C2): no get is answered until the end; what is
 *      live there is void for new leases, and what is being made starts over
 *   3  leases are counted; any that is not of a sending transfer ends it here
 *   4  the pages are closed once more, and their bytes read, by the kernel (the
 *      memory may be gone); only then, since this cannot be undone without opening
 *      them, they are registered in MISSING mode as well, so that a thread that finds
 *      one gone sleeps
 *   5  they are removed (an event, which somebody reads), and put back by
 *      UFFDIO_COPY, open
 *   6  back to WP mode; what came to be live meanwhile is void again
 * An unmap by a hooked call waits while its range is COPYING: it must not put other
 * memory where step 5 removes.  Without hooks a copy is of the one page that
 * the writer waits for, which nobody can unmap without having lost the race already.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define CHUNK_PAGES 16
#define CHUNK_BYTES (CHUNK_PAGES * RTAB_PAGE)

static char bounce[CHUNK_BYTES] __attribute__((aligned(4096)));

/* Is a copy still what the access wants, and of which pages? */
static bool choose(uint64_t addr, uint64_t *low, uint64_t *high)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;
	struct rtab_verdict verdict;

	rtab_transfer_decide(rt.area.area, rtab_load_acquire(&rt.connected) ?
						   rt.table.table : NULL,
			     addr, false, &verdict);
	if (verdict.decision != RTAB_DECIDE_COPY)
		return false;
	*low = rtab_round_down(addr, RTAB_PAGE);
	*high = *low + (rtab_load_relaxed(&rt.mode) == RTAB_MODE_FAST ?
				CHUNK_BYTES : RTAB_PAGE);
	/* No further than all that cover the page cover as well. */
	while (rtab_transfer_next(rt.area.area, &slot, *low, *low + RTAB_PAGE, &v))
		if (rtab_transfer_active(v.word) && v.t.low <= *low &&
		    v.t.high > *low)
			*high = rtab_min_u64(*high, v.t.high);
	return true;
}

/* Waits for those that open; false: somebody receives there, or other pages are his. */
static bool others_agree(uint64_t low, uint64_t high)
{
	uint32_t slot = RTAB_TRANSFER_OPENER;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, low, high, &v)) {
		if (v.slot == RTAB_TRANSFER_COPIER)
			continue;
		if (rtab_transfer_state(v.word) == RTAB_CLOSING) {
			sched_yield();
			slot = v.slot;
		} else if (v.t.direction == RTAB_RECEIVE ||
			   v.t.guard != RTAB_GUARD_WP) {
			return false;
		}
	}
	return true;
}

/* Leases of slot that belong to transfers under way. */
static uint32_t leases_of_transfers(uint32_t lease_slot)
{
	uint32_t slot = RTAB_TRANSFER_FIRST, n = 0;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, 0, UINT64_MAX, &v))
		n += rtab_transfer_active(v.word) && v.t.lease == lease_slot;
	return n;
}

/* Exact because a transfer has a lease of its own (regc_transfer_begin()). */
static bool leased_by_others(uint64_t low, uint64_t high)
{
	bool found = false;
	uint32_t slot, n;

	rtab_heavy_fence();
	rt_cache_lock();
	found = rt.uncached_bytes != 0; /* of which memory nobody knows here */
	for (slot = 0; slot < rt.n_slots && !found; slot++) {
		const struct rt_slot *s = &rt.slots[slot];

		if ((s->state != RT_LIVE && s->state != RT_VOID) ||
		    !rtab_overlaps(s->start, s->end, low, high))
			continue;
		n = rtab_area_lease_count(&rt.area, slot, NULL);
		found = n && n > leases_of_transfers(slot);
	}
	rt_cache_unlock();
	return found;
}

static void void_all_of(uint64_t low, uint64_t high)
{
	rtab_area_log_change(rt.area.area, low, high, RTAB_CAUSE_UFFD_REMOVE);
	changes_void_range(low, high);
}

/* ---- the pages ---------------------------------------------------------- */

static int watch_as(uint64_t low, uint64_t high, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { .start = low, .len = high - low }, .mode = mode,
	};

	return ioctl(rt.uffd, UFFDIO_REGISTER, &reg) < 0 ? -errno : 0;
}

/* The kernel keeps MISSING when asked for WP alone, so out and in again. */
static void watch_as_before(uint64_t low, uint64_t high)
{
	monitor_uffd_unwatch(low, high);
	watch_as(low, high, UFFDIO_REGISTER_MODE_WP);
}

static int put_back(uint64_t low, uint64_t high)
{
	uint64_t done = 0, bytes = high - low;

	while (done < bytes) {
		struct uffdio_copy copy = {
			.dst = low + done, .len = bytes - done,
			.src = (uintptr_t)bounce + done,
		};

		if (ioctl(rt.uffd, UFFDIO_COPY, &copy) == 0)
			return 0;
		if (copy.copy > 0)
			done += (uint64_t)copy.copy;
		else if (errno == EEXIST)
			done += RTAB_PAGE;
		else if (errno == EAGAIN || errno == ENOMEM)
			sched_yield(); /* an event is unread; memory may come */
		else
			return -errno; /* it is another mapping now */
	}
	return 0;
}

/* Locked memory too, where the kernel can (5.18). */
static int remove_pages(uint64_t low, uint64_t high)
{
	void *mem = (void *)(uintptr_t)low;
	int r = rtab_raw_madvise(mem, high - low, MADV_DONTNEED_LOCKED);

	return r ? rtab_raw_madvise(mem, high - low, MADV_DONTNEED) : 0;
}

static void spoil(uint64_t low, uint64_t high)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	guard_close(RTAB_GUARD_WP, low, high);
	while (rtab_transfer_next(rt.area.area, &slot, low, high, &v))
		if (rtab_transfer_active(v.word))
			transfer_add_flags(v.slot, rtab_transfer_id(v.word),
					   RTAB_TRANSFER_DAMAGED);
}

/* All that cover the pages keep the old ones; what cannot be copied waits. */
static void note(uint64_t low, uint64_t high, bool done)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, low, high, &v)) {
		if (!rtab_transfer_active(v.word))
			continue;
		if (done)
			transfer_add_flags(v.slot, rtab_transfer_id(v.word),
					   RTAB_TRANSFER_COPIED);
		else if (v.t.policy == RTAB_COPY)
			rtab_store_relaxed(
				&rt.area.area->transfers[v.slot].policy,
				RTAB_BLOCK);
	}
}

static bool replace(uint64_t low, uint64_t high)
{
	struct iovec to = { bounce, high - low };
	struct iovec from = { (void *)(uintptr_t)low, high - low };
	bool done;

	if (guard_close(RTAB_GUARD_WP, low, high) ||
	    process_vm_readv(getpid(), &to, 1, &from, 1, 0) !=
		    (ssize_t)(high - low) ||
	    watch_as(low, high,
		     UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MISSING))
		return false;
	done = remove_pages(low, high) == 0;
	if (done) {
		note(low, high, true); /* before the writer goes on */
		put_back(low, high);
	}
	watch_as_before(low, high);
	/* It was open for a moment: who wrote then, wrote into what is sent. */
	if (!done)
		spoil(low, high);
	return done;
}

/* ---- the whole ---------------------------------------------------------- */

static bool copy_in_slot(uint64_t low, uint64_t high)
{
	bool done = false;

	if (!others_agree(low, high))
		return false;
	rtab_fetch_add(&rt.area.area->changing, 1); /* C2 */
	void_all_of(low, high);
	if (!leased_by_others(low, high)) {
		done = replace(low, high);
		void_all_of(low, high);
	}
	rtab_fetch_sub(&rt.area.area->changing, 1); /* C2 */
	changes_wake_guardian();
	return done;
}

bool copy_pages(uint64_t addr)
{
	uint64_t low, high, id;
	bool done;

	if (!choose(addr, &low, &high))
		return false;
	id = transfer_new_ids(1);
	transfer_occupy(RTAB_TRANSFER_COPIER, id, RTAB_COPYING, low, high);
	done = changes_is_anonymous(low, high) && copy_in_slot(low, high);
	if (!done) {
		note(low, high, false);
		/* T1: whoever ended meanwhile left the pages closed for this. */
		transfer_occupy(RTAB_TRANSFER_COPIER, id, RTAB_CLOSING, low, high);
		guard_open(RTAB_GUARD_WP, low, high, false);
	}
	transfer_release(RTAB_TRANSFER_COPIER, id);
	/*
	 * Who waits looks again: at an open page, or by another rule.  Also where
	 * nothing was copied: a transfer that ended meanwhile left its pages to us.
	 */
	guard_wake(low, high);
	return done;
}
