/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of one space: the broker's side and the readers' side.
 *
 * States of a slot in the table, moved by the broker alone:
 *
 *   blank --add--> told --void--> blank (generation + 1) --add--> ...
 *     |                              ^
 *     +------------- void -----------+
 *
 * blank: records[s].gen != gens[s].  A client that registers slot s under
 * gens[s] uses it before the broker has heard of it; the broker's void of a
 * blank slot counts as well.
 * told: records[s].gen == gens[s]; the range is in the index of its class.
 *
 * Order of add: record (release T1), then index.  Order of void: gens[s]++
 * (release T2), then index.  A reader takes the slot from the index, then gens,
 * then the record, then gens again (T1, T2 acquire): a record is believed only
 * if its gen equals both.
 * If the broker dies between the two stores of add, nobody finds the region; of
 * void, readers find a void slot.  Both are misses.
 */
#ifndef REGC_SHM_TABLE_H
#define REGC_SHM_TABLE_H

#include "shm/index.h"
#include "shm/layout.h"

/* A mapped table, either side. */
struct rtab_view {
	struct rtab_table *table; /* writable for the broker only */
	uint64_t *gens;
	struct rtab_record *records;
	struct rtab_index index;
	uint64_t bytes;
};

/* ---- broker ---- */

struct rtab_writer {
	struct rtab_view view;
	struct rtab_index_writer *index;
	int fd;         /* the memfd, owned */
	uint32_t ready; /* as table->slots_ready */
};

/*
 * Makes a table with capacity slots (rounded up to RTAB_READY_STEP, at most
 * RTAB_MAX_CAPACITY), seals it, and makes the first slots ready.  -EINVAL,
 * -ENOMEM, -errno of memfd_create, mmap, fcntl.
 */
int rtab_writer_init(struct rtab_writer *w, uint32_t space_id, uint32_t capacity);
void rtab_writer_deinit(struct rtab_writer *w);

/* Makes slots up to and including slot + RTAB_READY_STEP ready.  -ENOMEM. */
int rtab_writer_make_ready(struct rtab_writer *w, uint32_t slot);

/*
 * Puts a region of access into the table under the present generation of slot.
 * -EINVAL: not aligned, empty, slot not ready or told already; -EEXIST: overlaps a
 * told region of the class; -ENOSPC: no class or node left.
 */
int rtab_writer_add(struct rtab_writer *w, uint32_t slot, uint64_t start,
		    uint64_t end, uint32_t access);

/*
 * Voids slot, told or blank, at once.  -EINVAL: slot not ready.  -ENOMEM: it is
 * void, but the index still has its start.
 */
int rtab_writer_void(struct rtab_writer *w, uint32_t slot);

/* Slots of any class that overlap [start, end), for the broker; max as above. */
uint32_t rtab_writer_overlaps(struct rtab_writer *w, uint64_t start, uint64_t end,
			      uint32_t *ret_slots, uint32_t max);

/* changes[] and change_seq (label H2); before draining the request ring. */
void rtab_writer_log_change(struct rtab_writer *w, uint64_t start, uint64_t end);

/* removes[] (label H3); besides rtab_writer_log_change(), when the event is read. */
void rtab_writer_log_remove(struct rtab_writer *w, uint64_t start, uint64_t end);

/* ---- readers ---- */

#define RTAB_OVERLAP_BATCH 64

/*
 * Maps the table in fd read-only, at fixed if not NULL (replacing what is
 * there).  Checks magic, version, seals and sizes: -EPROTO; -errno.
 */
int rtab_view_map(struct rtab_view *view, int fd, void *fixed);
void rtab_view_unmap(struct rtab_view *view);

struct rtab_hit {
	uint32_t slot;
	uint64_t gen;
	uint64_t start, end;
	uint32_t access;
};

/*
 * Which live region covers [start, end) with at least access?  Wait-free and
 * bounded, no system call, safe in a signal handler and in a hook.
 * 0, -ENOENT, or RTAB_BUSY.
 */
int rtab_lookup(const struct rtab_view *view, uint64_t start, uint64_t end,
		uint32_t access, struct rtab_hit *ret);

/* The slot only, by the index; the caller checks what it points to. */
int rtab_lookup_slot(const struct rtab_view *view, uint64_t start, uint32_t access,
		     uint32_t *cls_cursor, uint32_t *ret_slot);

/*
 * Calls fn for every told slot of any class that overlaps [start, end), and
 * perhaps for a neighbour below start or for one slot twice: fn looks at the
 * range itself.  0, or RTAB_BUSY (then fn may have been called for some).
 */
int rtab_for_each_overlap(const struct rtab_view *view, uint64_t start, uint64_t end,
			  void (*fn)(void *arg, uint32_t slot), void *arg);

/*
 * True if one of the changes numbered from seq on overlaps [start, end), or if
 * they are no longer all there.  (H2 acquire)
 */
bool rtab_changed_since(const struct rtab_table *table, uint64_t seq, uint64_t start,
			uint64_t end);

/*
 * True if the event of a removal that overlaps [start, end) was read after
 * since_ns, or if that is no longer known.  (H3 acquire)
 */
bool rtab_removed_since(const struct rtab_table *table, uint64_t since_ns,
			uint64_t start, uint64_t end);

#endif
