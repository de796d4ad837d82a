/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ordered index of disjoint ranges: one writer, any number of lock-free readers
 * in any process, exact answers while it changes.
 *
 * A B+tree whose nodes are never changed once a root reaches them.  The writer
 * builds new nodes for the path from the leaf to the root and swaps the root
 * with one store; the old nodes go to a quarantine and are used again only after
 * RTAB_QUARANTINE more swaps.  There is one tree a class (access); the nodes
 * are shared.
 *
 * Guarantees
 *  I-G1  A search answers from the tree as it was at one instant during the call.
 *  I-G2  A search is bounded: RTAB_MAX_HEIGHT nodes a try, RTAB_SEARCH_TRIES
 *        tries.  A try fails only if RTAB_QUARANTINE swaps happened during it.
 *        After the last failure the answer is RTAB_BUSY, and the caller takes
 *        the safe side (a miss; or, in a hook, everything void: law L3).
 *  I-G3  The writer never waits for a reader.  A writer that dies leaves the
 *        last complete tree: the swap is the commit.
 *  Not promised: that the range found is still live when the call returns; the
 *  caller compares generations.
 *
 * Operations      | search | insert | remove        (x = safe at once)
 *   search        |   x    |   x    |   x
 *   insert,remove |   x    | one writer only
 */
#ifndef REGC_SHM_INDEX_H
#define REGC_SHM_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/layout.h"

#define RTAB_QUARANTINE 64
#define RTAB_MAX_HEIGHT 16
#define RTAB_SEARCH_TRIES 8

#define RTAB_BUSY 1 /* positive: a named outcome, see I-G2 */

/* A reader's view of the index of a table; every field stays constant. */
struct rtab_index {
	const uint64_t *seq;              /* &table->index_seq */
	const struct rtab_class *classes; /* table->classes */
	const struct rtab_node *nodes;
	uint32_t n_nodes;
	uint32_t capacity; /* slots are below */
};

/* The writer's side; private memory of the writer. */
struct rtab_index_writer;

/*
 * Finds the slot with the greatest start <= addr in class cls.  0 and *ret_slot,
 * *ret_start; -ENOENT: there is none; RTAB_BUSY.
 */
int rtab_index_floor(const struct rtab_index *index, uint32_t cls, uint64_t addr,
		     uint32_t *ret_slot, uint64_t *ret_start);

/*
 * Slots of class cls with start in [from, to), ascending, plus the one with the
 * greatest start below from; at most max.  Returns their number (more than max:
 * there are more, max were stored) or -EBUSY.  ret_last may be NULL; else
 * *ret_last is the start of the last slot stored, from which the next call goes
 * on (it returns that slot again, as the first).
 */
int64_t rtab_index_range(const struct rtab_index *index, uint32_t cls,
			 uint64_t from, uint64_t to, uint32_t *ret_slots,
			 uint32_t max, uint64_t *ret_last);

/*
 * Writer for the table's index; the caller is the only writer and keeps the
 * table mapped.  -ENOMEM.
 */
int rtab_index_writer_new(struct rtab_table *table, struct rtab_index_writer **ret);
struct rtab_index_writer *rtab_index_writer_free(struct rtab_index_writer *w);

/* -EEXIST: start is there already; -ENOSPC: no node free.  Nothing changed then. */
int rtab_index_insert(struct rtab_index_writer *w, uint32_t cls, uint64_t start,
		      uint32_t slot);
/* -ENOENT, -ENOSPC: nothing changed. */
int rtab_index_remove(struct rtab_index_writer *w, uint32_t cls, uint64_t start);

/* Nodes in use, without quarantine; for tests and statistics. */
uint32_t rtab_index_nodes_used(const struct rtab_index_writer *w);

#endif
