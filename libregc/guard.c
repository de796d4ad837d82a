/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Closing and opening pages by userfaultfd.
 *
 * WP     Write protection of single pages (UFFDIO_WRITEPROTECT).  The range is
 *        registered in WP mode, as everything that is cached is.  A store sleeps,
 *        in a system call too.  Opening wakes.
 * MINOR  For memory of regc_alloc(), which is registered in MINOR mode as well: the
 *        pages are taken out of this process's page tables and stay in the memfd,
 *        so that any access sleeps; UFFDIO_CONTINUE puts them back.  Taking them
 *        out is an madvise(2) that raises an event, which is known for what it is
 *        by the transfer that is ARMING (rtab_transfer_own_removal()).
 *
 * Both answer EAGAIN while an event of the userfaultfd is unread: somebody reads
 * it, the broker at once or the guardian after a while, and it is tried again.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#ifndef UFFDIO_CONTINUE
#error "kernel headers before 5.13 lack UFFDIO_CONTINUE"
#endif

#define CONTINUE_MODE_WP (UINT64_C(1) << 1) /* 6.4 */
#define LOWEST UINT64_C(65536) /* address: vm.mmap_min_addr */

static int protect(uint64_t low, uint64_t high, uint64_t mode)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = low, .len = high - low }, .mode = mode,
	};

	return ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_WRITEPROTECT, &wp) < 0 ?
		       -errno : 0;
}

/* wp: closed to writers still; kernels before 6.4 cannot do both at once. */
static int map_again(uint64_t low, uint64_t high, bool wp)
{
	uint64_t page = RTAB_PAGE;

	pool_has(low, high, &page);
	while (low < high) {
		struct uffdio_continue c = {
			.range = { .start = low, .len = high - low },
			.mode = wp ? CONTINUE_MODE_WP : 0,
		};

		if (ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_CONTINUE, &c) == 0)
			return 0;
		if (c.mapped > 0)
			low += (uint64_t)c.mapped;
		else if (errno == EEXIST)
			low += page; /* in its place already */
		else if (errno == EINVAL && wp)
			wp = false;
		else
			return -errno;
	}
	return 0;
}

void guard_wake_all(void)
{
	static uint32_t bits = 47; /* of an address of a program */
	struct uffdio_range range = { .start = LOWEST };
	uint32_t n = rtab_load_relaxed(&bits);

	for (; n > 30; n--) {
		range.len = (UINT64_C(1) << n) - 2 * LOWEST;
		if (ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_WAKE, &range) == 0)
			break;
	}
	rtab_store_relaxed(&bits, n);
}

void guard_wake(uint64_t low, uint64_t high)
{
	struct uffdio_range range = { .start = low, .len = high - low };

	ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_WAKE, &range);
}

/* ---- closing ------------------------------------------------------------ */

static int close_writes(uint64_t low, uint64_t high)
{
	bool watched = false, shared;
	uint32_t cause;
	int r;

	for (;;) {
		r = protect(low, high, UFFDIO_WRITEPROTECT_MODE_WP);
		if (r == -EAGAIN) {
			sched_yield();
		} else if (r == -ENOENT && !watched) {
			watched = true;
			if (watch_range(low, high, &shared, &cause))
				return -ENOTSUP;
		} else if (r == -ENOENT || r == -EINVAL) {
			/* Not all of it is watched, or huge pages cut in two. */
			return -ENOTSUP;
		} else {
			return r;
		}
	}
}

/* Registered already, as a rule; not if the program discarded or remapped it. */
static int close_all_accesses(uint64_t low, uint64_t high)
{
	struct uffdio_register reg = {
		.range = { .start = low, .len = high - low },
		.mode = UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP,
	};

	if (ioctl(rtab_load_relaxed(&rt.uffd), UFFDIO_REGISTER, &reg) < 0)
		return -ENOTSUP; /* other memory, or none of it watched */
	return rtab_raw_madvise((void *)(uintptr_t)low, high - low, MADV_DONTNEED);
}

int guard_close(enum rtab_guard guard, uint64_t low, uint64_t high)
{
	int saved = errno, r;

	r = guard == RTAB_GUARD_MINOR ? close_all_accesses(low, high) :
					close_writes(low, high);
	errno = saved;
	return r;
}

enum rtab_guard guard_choose(uint32_t direction, uint64_t low, uint64_t high)
{
	uint64_t page;

	if (rtab_load_relaxed(&rt.uffd) < 0)
		return RTAB_GUARD_MPROTECT;
	if (direction == RTAB_SEND)
		return RTAB_GUARD_WP;
	if (pool_has(low, high, &page) && !(low & (page - 1)) &&
	    !(high & (page - 1)))
		return RTAB_GUARD_MINOR;
	return RTAB_GUARD_MPROTECT;
}

/* ---- opening ------------------------------------------------------------ */

/*
 * Pages that are put back are closed to writers if any of them is to be: what is so
 * beyond need is opened by the guardian when somebody meets it.
 */
static int open_once(enum rtab_guard guard, uint64_t low, uint64_t high)
{
	uint64_t cover_low, cover_high;

	if (guard != RTAB_GUARD_MINOR)
		return protect(low, high, 0);
	return map_again(low, high, guard_first_cover(RTAB_GUARD_WP, low, high, false,
						      &cover_low, &cover_high));
}

/*
 * The kernel stops at the first mapping that is not watched (the program put it
 * there meanwhile), and what is behind it would stay closed: so in halves.
 */
static int open_pages(enum rtab_guard guard, uint64_t low, uint64_t high,
		      bool wait)
{
	uint64_t middle;
	int r, r2;

	while ((r = open_once(guard, low, high)) == -EAGAIN && wait)
		sched_yield();
	if (r == 0 || r == -EAGAIN)
		return r;
	if (high - low <= RTAB_PAGE) {
		guard_wake(low, high); /* it is nobody's page now */
		return 0;
	}
	middle = rtab_round_down(low + (high - low) / 2, RTAB_PAGE);
	r = open_pages(guard, low, middle, wait);
	r2 = open_pages(guard, middle, high, wait);
	return r ? r : r2;
}

void guard_open_left(uint64_t low, uint64_t high)
{
	int saved = errno;
	uint64_t page;

	while (protect(low, high, 0) == -EAGAIN)
		sched_yield();
	while (low < high && pool_has(low, low + 1, &page)) {
		page = rtab_min_u64(rtab_round_down(low, page) + page, high);
		while (map_again(low, page, false) == -EAGAIN)
			sched_yield();
		low = page;
	}
	errno = saved;
}

static bool covers(struct rtab_transfer_view *v, enum rtab_guard guard, bool guardian)
{
	if (v->slot == RTAB_TRANSFER_COPIER)
		return rtab_transfer_state(v->word) == RTAB_COPYING;
	if (!rtab_transfer_active(v->word) || v->t.guard != guard)
		return false;
	if (!guardian)
		return true;
	return v->t.policy != RTAB_REPORT &&
	       !(v->t.flags & RTAB_TRANSFER_TIMED_OUT);
}

/*
 * The first piece of [low, high) that somebody covers; false: none.  Loads of
 * words after the caller's full fence (T1).
 */
bool guard_first_cover(enum rtab_guard guard, uint64_t low, uint64_t high,
		       bool guardian, uint64_t *ret_low, uint64_t *ret_high)
{
	uint32_t slot = RTAB_TRANSFER_COPIER;
	struct rtab_transfer_view v;
	bool pinned = guardian && rtab_transfer_pinned(rt.area.area, low, high);
	bool found = false;

	while (rtab_transfer_next(rt.area.area, &slot, low, high, &v)) {
		if (pinned && rtab_transfer_state(v.word) == RTAB_ARMING)
			continue;
		if (!covers(&v, guard, guardian) ||
		    !rtab_overlaps(low, high, v.t.low, v.t.high) ||
		    (found && v.t.low >= *ret_low))
			continue;
		*ret_low = rtab_max_u64(low, v.t.low);
		*ret_high = rtab_min_u64(high, v.t.high);
		found = true;
	}
	return found;
}

int guard_open(enum rtab_guard guard, uint64_t low, uint64_t high, bool guardian)
{
	uint64_t cover_low = 0, cover_high = 0;
	int saved = errno, r = 0;

	while (!r && low < high) {
		if (!guard_first_cover(guard, low, high, guardian, &cover_low,
				       &cover_high)) {
			r = open_pages(guard, low, high, !guardian);
			break;
		}
		if (low < cover_low)
			r = open_pages(guard, low, cover_low, !guardian);
		/* Who waits there waits by another transfer's rules from now on. */
		guard_wake(cover_low, cover_high);
		low = cover_high;
	}
	errno = saved;
	return r;
}
