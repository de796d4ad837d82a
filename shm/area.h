/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The area of one space: lease words, request ring, log of changes.
 *
 * The client writes; the broker maps only the header (rtab_area) read-only and
 * reads the arrays with pread(2), and believes nothing.
 *
 * Labels
 *  R1  request ring.  Client: record, then ring_head (release); broker:
 *      ring_head (acquire), record, then ring_tail (release).  The client
 *      writes a record again only after ring_tail (acquire) passed it.
 *  H1  log of changes, many writers (hooks in any thread), no lock.  A writer
 *      takes a number (change_seq + 1), fills the entry, then stores the number
 *      into it (release).  A reader that finds another number in an entry takes
 *      it for a change of everything.  A writer that dies in between leaves just
 *      that: everything void, never a change unseen.  A writer that sleeps in
 *      between until its entry is another's writes its range under the other's
 *      number: check, over all three, does not fit then.
 */
#ifndef REGC_SHM_AREA_H
#define REGC_SHM_AREA_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/atomic.h"
#include "shm/layout.h"

struct rtab_area_view {
	struct rtab_area *area;
	uint32_t capacity;
	uint64_t bytes;
};

/* Makes and maps an area; *ret_fd is the caller's.  As rtab_segment_new(). */
int rtab_area_new(struct rtab_area_view *view, uint32_t capacity, uint32_t pid,
		  int *ret_fd);
void rtab_area_unmap(struct rtab_area_view *view);

static inline uint64_t *rtab_area_leases(const struct rtab_area_view *view,
					 uint32_t thread)
{
	return (uint64_t *)((char *)view->area +
			    rtab_off_leases(view->capacity, thread));
}

static inline struct rtab_reg *rtab_area_regs(const struct rtab_area_view *view,
					      uint32_t domain)
{
	return (struct rtab_reg *)((char *)view->area +
				   rtab_off_regs(view->capacity, domain));
}

/* The stamp for a get now; stamps wrap. */
static inline uint64_t rtab_stamp_now(const struct rtab_area *area,
				      const struct rtab_table *table)
{
	uint64_t ours = rtab_load_relaxed(&area->stamp);
	uint64_t theirs = rtab_load_relaxed(&table->stamp);

	return (int64_t)(theirs - ours) > 0 ? theirs : ours;
}

/* ---- lease words -------------------------------------------------------- */

/*
 * One get by the thread that owns the word; stamp as in the area.
 * relaxed: the heavy fence of whoever retires the slot orders it
 */
static inline void rtab_lease_get(uint64_t *word, uint64_t stamp)
{
	uint64_t count = (rtab_load_relaxed(word) + 1) & RTAB_COUNT_MASK;

	rtab_store_relaxed(word, stamp | count);
}

static inline void rtab_lease_put(uint64_t *word)
{
	uint64_t old = rtab_load_relaxed(word);

	if ((old & RTAB_COUNT_MASK) == 0) /* another thread's get: wrap */
		old += RTAB_COUNT_MASK + 1;
	/* release: what was done under the lease is done */
	rtab_store_release(word, old - 1);
}

/* The same for thread slot 0, which several threads share. */
void rtab_lease_get_shared(uint64_t *word, uint64_t stamp);
void rtab_lease_put_shared(uint64_t *word);

/*
 * Leases of slot over all threads, mod 2^24.  Exact only after the slot was
 * voided and rtab_heavy_fence() ran; *ret_stamp (or NULL): the latest use, in
 * units of RTAB_STAMP_ONE, 0: never.
 */
uint32_t rtab_area_lease_count(const struct rtab_area_view *view, uint32_t slot,
			       uint64_t *ret_stamp);

/* ---- request ring ------------------------------------------------------- */

/* False: full.  The caller is the only writer (its lock). */
bool rtab_ring_push(struct rtab_area *area, uint64_t tail,
		    const struct rtab_request *request);

/*
 * Broker: copies request number *tail if there is one and advances *tail; the
 * caller publishes it in table->ring_tail when it has acted.  1: copied, 0:
 * empty, -EPROTO: the head makes no sense.
 */
int rtab_ring_pop(const struct rtab_area *area, uint64_t *tail,
		  struct rtab_request *ret);

/* ---- changes made by the client ----------------------------------------- */

/* Async-signal-safe, lock-free.  Ends with a full fence. */
void rtab_area_log_change(struct rtab_area *area, uint64_t start, uint64_t end,
			  uint32_t cause);

/* As rtab_changed_since(). */
bool rtab_area_changed_since(const struct rtab_area *area, uint64_t seq,
			     uint64_t start, uint64_t end);

/*
 * Change number *cursor, if it is there; advances *cursor.  1: read; 0: no more;
 * -EOVERFLOW: some were lost or are incomplete: take everything for changed;
 * *cursor is at the end then.
 */
int rtab_area_next_change(const struct rtab_area *area, uint64_t *cursor,
			  struct rtab_area_change *ret);

#endif
