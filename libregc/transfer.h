/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers inside libregc; the protocol is in shm/transfer.h.
 *
 *   transfer.c        the calls of regc.h: begin, posted, complete, wait, query
 *   pin.c             registrations, that must not meet a closed page
 *   edges.c           the parts of a buffer whose pages are not closed
 *   guard.c           closing and opening pages by userfaultfd
 *   guard_mprotect.c  the same by mprotect(2) and SIGSEGV
 *   faults.c          the guardian's part: opening, time limits, the broker's place
 *   helper.c          the thread that runs progress callbacks and makes copies
 *   copy.c            what a copy is
 *   pool.c            regc_alloc()
 *   breakeven.c       regc_copy_is_cheaper()
 *
 * No deadlock by construction.  A thread that accesses a closed page waits for a
 * completion.  Completions are made by threads of the program or by the helper in
 * a progress callback; any of these may wait for another transfer, in a circle
 * even.  What ends every wait is the time limit of the transfer, and who ends it
 * is the guardian: it takes no lock that is held over a wait, runs no code of
 * the program, touches none of its memory, and needs nothing of the broker, whose
 * place it takes when that is silent.  begin and complete wait for other
 * threads' opening and closing of pages only (system calls without a wait for
 * the program), and never while a conflict is queued with a page closed.
 */
#ifndef REGC_TRANSFER_H
#define REGC_TRANSFER_H

#include "libregc/runtime.h"
#include "shm/transfer.h"

/* ---- guard.c ------------------------------------------------------------ */

/*
 * Closes [low, high), pages of one lease, and watches them for that if need be.
 * -ENOTSUP: not in this way.
 */
int guard_close(enum rtab_guard guard, uint64_t low, uint64_t high);

/*
 * Opens what of [low, high) no transfer covers, and wakes who waits; the caller's
 * slot is CLOSING, and it made a full fence after.  guardian: transfers that let
 * accesses through do not count; and it does not wait for an event to be read,
 * which may be its own business: -EAGAIN.
 */
int guard_open(enum rtab_guard guard, uint64_t low, uint64_t high, bool guardian);

/*
 * Opens what was left closed of [low, high), which no transfer covers or begins to
 * (a transfer that ended left it to one that then gave up, or was moved).
 */
void guard_open_left(uint64_t low, uint64_t high);

/* Lets every thread that waits for a page of [low, high) look again. */
void guard_wake(uint64_t low, uint64_t high);
/* The same of all pages there are. */
void guard_wake_all(void);

/*
 * The first piece of [low, high) that a transfer covers that closes in the way of
 * guard, or the helper; false: none.  The caller's slot is CLOSING and a full fence
 * is behind it.  guardian: as in guard_open().
 */
bool guard_first_cover(enum rtab_guard guard, uint64_t low, uint64_t high,
		       bool guardian, uint64_t *ret_low, uint64_t *ret_high);

/* What can close pages of this memory for a transfer of direction. */
enum rtab_guard guard_choose(uint32_t direction, uint64_t low, uint64_t high);

/* ---- guard_mprotect.c --------------------------------------------------- */

int mprotect_close(uint32_t slot, uint64_t low, uint64_t high, uint32_t direction);
void mprotect_open(uint32_t slot, uint64_t low, uint64_t high);
/* In a child of fork, which got the protection along; async-signal-safe. */
void mprotect_after_fork(void);

/* ---- edges.c ------------------------------------------------------------ */

/*
 * Keeps the edges of t, in slot.  -ENOMEM; -ESTALE: they are not there; -EBUSY: a
 * receive keeps them closed to readers.
 */
int edges_keep(uint32_t slot, const struct rtab_transfer *t);
bool edges_changed(uint32_t slot, const struct rtab_transfer *t);

/* ---- transfer.c --------------------------------------------------------- */

/* The first of n numbers that no transfer of this process ever had. */
uint64_t transfer_new_ids(uint64_t n);
/* A free slot, TAKEN, under number id; -ENOSPC. */
int transfer_take(uint64_t id, uint32_t *ret_slot);
/*
 * Makes slot, which is the caller's, something that is no transfer of a library:
 * CLOSING or COPYING with the pages [low, high).  A full fence is behind it (T1).
 */
void transfer_occupy(uint32_t slot, uint64_t id, enum rtab_transfer_state state,
		     uint64_t low, uint64_t high);
void transfer_release(uint32_t slot, uint64_t id);
/* Adds side states; any thread, lock-free, async-signal-safe.  False: it is over. */
bool transfer_add_flags(uint32_t slot, uint64_t id, uint32_t flags);
/* Notes an access in the broker's place. */
void transfer_note_access(uint32_t slot, uint64_t id, uint64_t addr, uint32_t tid,
			  bool through);
/* Memory of [start, end) was or is being replaced; lock-free.  True: of any. */
bool transfer_detach(uint64_t start, uint64_t end);
/* The same in a hook, before the call: waits for a copy that is under way there. */
bool transfer_before_change(uint64_t start, uint64_t end);
/* Wakes who waits for a transfer: one ended, or lets through what it closed. */
void transfer_turn(void);
/* True once a transfer was begun in this process; attached. */
static inline bool transfers_used(void)
{
	return rtab_load_relaxed(&rt.wipe->transfers_begun);
}

/* ---- pin.c -------------------------------------------------------------- */

struct transfer_pin {
	uint32_t slot; /* RT_NO_SLOT: none */
	uint64_t id;
};

/*
 * Around a call of a device that pins [start, end): no page of it is closed.  Waits
 * for transfers that keep some closed; the caller holds no lock.
 */
void transfer_pin_begin(uint64_t start, uint64_t end, struct transfer_pin *ret);
void transfer_pin_end(struct transfer_pin *pin);

/*
 * As monitor_uffd_watches(), whose probe takes protection away: only pages that no
 * transfer covers are probed, since those that one covers are watched.
 */
int transfer_probe(uint64_t start, uint64_t end);

/* ---- faults.c; guardian ------------------------------------------------- */

/* A guardian starts; in a child of fork what the parent's knew is not its. */
void faults_start(void);

/*
 * An access that waits: decides, and does what is to be done.  noted: the broker
 * has written it into its marks.
 */
void faults_on_access(uint64_t addr, bool minor, uint32_t tid, bool noted);
/*
 * A thread waits for a page that is not there.  The helper puts it back, if it is
 * copying there; if the mapping was moved away under it, nobody does: zeroes, then.
 */
void faults_on_missing(uint64_t addr);
/* [start, end) was unmapped, emptied or moved: an event in the broker's place. */
void faults_on_change(uint64_t start, uint64_t end);
/* Ends waits that reached their limit, opens what could not be opened. */
void faults_look(void);
/* ms until faults_look() has something to do, -1: nothing is known. */
int faults_timeout(void);
/* The broker is lost; its table is still mapped. */
void faults_broker_lost(void);

/* ---- helper.c ----------------------------------------------------------- */

/* Starts the thread, if there is none; not from a hook or the guardian. */
int helper_start(void);
/* An access waits for a transfer: lock-free, async-signal-safe. */
void helper_wake(void);
/* Asks for copies of the page at addr; false: too many are asked for. */
bool helper_copy(uint64_t addr);
/* Since when a copy of a page of [low, high) is asked for and not made; 0: none is. */
uint64_t helper_copies_since(uint64_t low, uint64_t high);
/* Is tid the helper, who cannot wait for itself? */
bool helper_is(uint32_t tid);
/* Calls nothing of lib any more; -EDEADLK: from inside its callback. */
int helper_forget(struct regc_library *lib);

/* ---- copy.c; helper ----------------------------------------------------- */

/*
 * Gives the page at addr, and some behind it, new memory with the same bytes; the
 * device keeps the old.  False: it cannot be, the writer waits.
 */
bool copy_pages(uint64_t addr);

/* ---- pool.c ------------------------------------------------------------- */

/* Is all of [start, end) memory of one regc_alloc()?  *ret_page: its page size. */
bool pool_has(uint64_t start, uint64_t end, uint64_t *ret_page);

#endif
