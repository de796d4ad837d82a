/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers: buffers that a device uses now, and whose pages are closed to the
 * program until it is done.
 *
 * States, the low byte of area->transfer_words[slot]; above it the number of the
 * transfer (id), which never comes back:
 *
 *   FREE -> TAKEN -> ARMING -> ARMED -> POSTED -> CLOSING -> FREE
 *             |         |        +--------------> CLOSING
 *             +-> FREE  +-> CLOSING (refused, or no page could be closed)
 *
 * Who moves what.  A word is moved by the client alone: into TAKEN by whoever
 * finds it FREE (compare and exchange), on to ARMED by the same thread, and out of
 * ARMED or POSTED by the one thread whose compare and exchange wins; so of two
 * completions one finds the transfer gone.  Only ARMING, ARMED and POSTED cover
 * their pages.  The broker never writes a word.  What it learns as the reader of
 * the userfaultfd (who is blocked, what was let through, what was unmapped) goes
 * into table->marks[slot] under the id; what the client learns in the broker's
 * place goes into the second half of area->transfers[slot].  The side states are
 * bits in both, and the state of a transfer is its word and either's bits: as with
 * registrations (layout.h), each side can speak alone and at once.
 *
 * One page, several transfers (label T1).  Pages are opened by whoever closes
 * a transfer, if no other transfer covers them; they are closed by whoever begins
 * one, always.  So:
 *   begin      word = ARMING; full fence; read all words; wait while one is
 *              CLOSING and has a page of ours; close our pages; word = ARMED
 *   complete   word = CLOSING; full fence; read all words; open those of our
 *              pages that nobody covers; word = FREE
 * Either the second reads the first's ARMING, and leaves the page closed, or the
 * first reads the second's CLOSING, and closes the page after it was opened.  Two
 * that are CLOSING both open a page they share: nobody covers it.
 * A page that is closed though nobody covers it (memory moved by mremap(2) takes
 * its protection along) is opened by the guardian, in slot 0, as if it had
 * been a transfer: CLOSING, read, open, FREE.
 *
 * A registration (libregc/pin.c) is a slot in CLOSING as well, from before the
 * device pins until after: who begins waits for it, and it begins anew if it reads
 * an ARMING.
 *
 * Two transfers that conflict (label T2): they share a byte, and one of them
 * receives.  The one that begins yields to what is ARMED or POSTED, and to what is
 * ARMING under a smaller id; while there is one ARMING under a larger id it waits
 * for that to become ARMED (and yields) or CLOSING (and goes on).  Of two
 * that read each other's ARMING exactly one yields; the larger never waits.
 *
 * A group takes its ids at once, and is ARMING as a whole before it looks at others:
 * so of two groups, too, exactly one yields.
 *
 * Accesses.  A thread that faults on a closed page sleeps in the kernel, until the
 * page is opened.  Whoever reads the event (the broker; the guardian, if the
 * broker is dead or stopped) asks rtab_transfer_decide():
 *   block   some transfer that covers the page wants it: nothing is done, the
 *           thread sleeps on; a mark says since when, the guardian ends the wait
 *           at the time limit, and a helper thread runs the library's progress
 *           callback
 *   copy    the helper gives the page new memory with the same bytes (COPYING in
 *           slot 1 meanwhile, which covers); the device keeps the old memory
 *   open    all that cover it report only, or are timed out: they are damaged; or
 *           nobody covers it
 * Whoever stops covering a page that others cover (a completion, a time limit) wakes
 * who sleeps there: they fault again, and are noted as waiting for the others.  Side
 * states that the client adds carry the id (label T4: transfers[].flags), so that
 * none falls on the next transfer of the slot.
 *
 * Opening is done by the guardian, which runs no foreign code and touches no
 * memory of the program, so a wait has an end whatever a library does.
 *
 * Death.
 *   of a thread     words belong to the process; any other thread may complete
 *   of the process  the kernel unpins, the broker frees the space with its table
 *   of the broker   pages stay closed: protection is in the page tables, and the
 *                   client keeps the userfaultfd.  The guardian adds the broker's
 *                   marks to the area's, wakes every sleeper once (it faults
 *                   again, so its event comes again, to whoever reads now), and
 *                   decides in the broker's place until there is a new one.  The
 *                   same wake-up covers an event that was read and not acted on;
 *                   of a broker that is only stopped, too: everybody who sleeps is
 *                   made to look again every few seconds
 *   fork            the child has no transfer: its copy of the memory is open
 *
 * tests/model/transfer.pml is this protocol as a model, without registrations and
 * copies; the suite has spin check it.
 */
#ifndef REGC_SHM_TRANSFER_H
#define REGC_SHM_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/layout.h"

#define RTAB_TRANSFER_OPENER 0 /* slot of the guardian */
#define RTAB_TRANSFER_COPIER 1 /* slot of the helper */
#define RTAB_TRANSFER_FIRST 2
#define RTAB_TRANSFER_ID_BITS 56

static inline uint64_t rtab_transfer_word(uint64_t id, enum rtab_transfer_state state)
{
	return id << 8 | state;
}

static inline enum rtab_transfer_state rtab_transfer_state(uint64_t word)
{
	return (enum rtab_transfer_state)(word & 0xff);
}

static inline uint64_t rtab_transfer_id(uint64_t word)
{
	return word >> 8;
}

/* ARMING, ARMED, POSTED: its pages are or become closed. */
static inline bool rtab_transfer_active(uint64_t word)
{
	enum rtab_transfer_state state = rtab_transfer_state(word);

	return state >= RTAB_ARMING && state <= RTAB_POSTED;
}

/* Slots that may be in use; the area may be hostile. */
static inline uint32_t rtab_n_transfers(const struct rtab_area *area)
{
	uint32_t n = rtab_load_acquire(&area->n_transfers);

	return n < RTAB_N_TRANSFERS ? n : RTAB_N_TRANSFERS;
}

/* What a transfer is, read while its word stayed the same. */
struct rtab_transfer_view {
	uint64_t word;
	uint32_t slot;
	struct rtab_transfer t;
};

/*
 * The next slot >= *slot whose word is not FREE or TAKEN and whose pages or bytes
 * share a page with [low, high) (page aligned); *slot is set to one beyond it.
 * False: no more.  Lock-free; loads each word once with acquire.
 */
bool rtab_transfer_next(const struct rtab_area *area, uint32_t *slot, uint64_t low,
			uint64_t high, struct rtab_transfer_view *ret);

/* Reads slot whole; false: its word is not of id, or changed meanwhile. */
bool rtab_transfer_read(const struct rtab_area *area, uint32_t slot, uint64_t id,
			struct rtab_transfer_view *ret);

/* Do two transfers conflict, by bytes and directions? */
static inline bool rtab_transfer_conflict(const struct rtab_transfer *a,
					  const struct rtab_transfer *b)
{
	return (a->direction == RTAB_RECEIVE || b->direction == RTAB_RECEIVE) &&
	       rtab_overlaps(a->start, a->end, b->start, b->end);
}

/* ---- marks -------------------------------------------------------------- */

/* The broker's mark of a transfer; false: there is none of id. */
bool rtab_mark_read(const struct rtab_table *table, uint32_t slot, uint64_t id,
		    struct rtab_mark *ret);

/* Broker: the mark of (slot, id), emptied if it was another's (label T3). */
struct rtab_mark *rtab_mark_begin(struct rtab_table *table, uint32_t slot, uint64_t id);
void rtab_mark_end(struct rtab_mark *mark, uint64_t id);

/* Adds the broker's mark, if there is one, to what the area says of a transfer. */
void rtab_transfer_add_mark(const struct rtab_table *table,
			    struct rtab_transfer_view *view);

/* ---- deciding ----------------------------------------------------------- */

enum rtab_decision {
	RTAB_DECIDE_OPEN,  /* ret[] are damaged by it; none: a page left closed */
	RTAB_DECIDE_BLOCK, /* ret[] have a blocked access */
	RTAB_DECIDE_COPY,  /* ret[] keep their memory */
};

#define RTAB_MAX_COVERS 16 /* that are noted; more still count */

struct rtab_verdict {
	enum rtab_decision decision;
	uint32_t n;
	uint32_t slot[RTAB_MAX_COVERS];
	uint64_t id[RTAB_MAX_COVERS];
};

/*
 * What is to be done for an access to the page at addr; table (or NULL) for the
 * broker's half of what happened before.  minor: the page is not mapped, so only a
 * receive can have closed it; else the access is a write.
 */
void rtab_transfer_decide(const struct rtab_area *area,
			  const struct rtab_table *table, uint64_t addr,
			  bool minor, struct rtab_verdict *ret);

/*
 * Does a device register a page of [low, high) now?  Then whoever is ARMING there
 * waits for it, and has not closed it: it must not keep the page closed to the device.
 */
bool rtab_transfer_pinned(const struct rtab_area *area, uint64_t low,
			  uint64_t high);

/*
 * Is the removal of [start, end) that an event tells of how a receive closes its
 * pages?  They are taken out of the page tables, and the memory stays.
 */
bool rtab_transfer_own_removal(const struct rtab_area *area, uint64_t start,
			       uint64_t end);

/* The same of how the helper replaces pages, which are back in a moment. */
bool rtab_transfer_own_copy(const struct rtab_area *area, uint64_t start,
			    uint64_t end);

/* Is a page of [start, end), page aligned, being given new memory by the helper? */
bool rtab_transfer_copying(const struct rtab_area *area, uint64_t start,
			   uint64_t end);

#endif
