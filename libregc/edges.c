/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The bytes of a send on pages that it does not fill, which are not closed: kept
 * at the beginning, compared at the end.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define EDGE_BYTES RTAB_PAGE /* at each end */

/* The bytes of a buffer on pages that are not closed, head and tail. */
static void edges_of(const struct rtab_transfer *t, uint64_t *head_end,
		     uint64_t *tail_start)
{
	if (t->low < t->high) {
		*head_end = t->low;
		*tail_start = t->high;
	} else { /* at most two pages, none of them whole */
		*head_end = rtab_min_u64(rtab_round_down(t->start, RTAB_PAGE) +
						 RTAB_PAGE, t->end);
		*tail_start = *head_end;
	}
}

/* Room for the edges of every slot, touched where used; NULL: no memory. */
static char *edge_room(uint32_t slot)
{
	static char *room;
	char *mem = rtab_load_acquire(&room), *none = NULL;
	size_t bytes = (size_t)RTAB_N_TRANSFERS * 2 * EDGE_BYTES;

	if (!mem) {
		mem = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				    0, NULL);
		if (!mem)
			return NULL;
		if (!rtab_cas(&room, &none, mem)) {
			rtab_raw_munmap(mem, bytes);
			mem = none;
		}
	}
	return mem + (size_t)slot * 2 * EDGE_BYTES;
}

/* The kernel reads: the memory may be gone, which must not kill the process. */
static bool read_edge(char *to, uint64_t start, uint64_t end)
{
	struct iovec local = { to, end - start };
	struct iovec remote = { (void *)(uintptr_t)start, end - start };

	return start >= end || process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
				       (ssize_t)(end - start);
}

/* Where the kernel may not (seccomp): by hand, of a lease that is valid still. */
static int keep_edge(char *to, uint64_t start, uint64_t end)
{
	if (read_edge(to, start, end))
		return 0;
	if (errno != EPERM && errno != ENOSYS)
		return -ESTALE;
	memcpy(to, (void *)(uintptr_t)start, end - start);
	return 0;
}

/*
 * Does a transfer that receives keep [start, end) closed to readers?  To wait for it
 * here would be to wait in the middle of a word's move.
 */
static bool closed_to_readers(uint64_t start, uint64_t end)
{
	uint32_t slot = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (start < end &&
	       rtab_transfer_next(rt.area.area, &slot,
				  rtab_round_down(start, RTAB_PAGE),
				  rtab_round_up(end, RTAB_PAGE), &v))
		if (rtab_transfer_active(v.word) && v.t.direction == RTAB_RECEIVE &&
		    rtab_overlaps(start, end, v.t.low, v.t.high))
			return true;
	return false;
}

int edges_keep(uint32_t slot, const struct rtab_transfer *t)
{
	uint64_t head_end, tail_start;
	int saved = errno, r;
	char *room;

	edges_of(t, &head_end, &tail_start);
	if (t->start == head_end && tail_start == t->end)
		return 0;
	if (closed_to_readers(t->start, head_end) ||
	    closed_to_readers(tail_start, t->end))
		return -EBUSY;
	room = edge_room(slot);
	if (!room)
		return -ENOMEM;
	r = keep_edge(room, t->start, head_end);
	if (!r)
		r = keep_edge(room + EDGE_BYTES, tail_start, t->end);
	errno = saved;
	return r;
}

/* What cannot be read any more counts as unchanged. */
static bool edge_changed(const char *kept, uint64_t start, uint64_t end)
{
	char now[EDGE_BYTES];

	return start < end && read_edge(now, start, end) &&
	       memcmp(kept, now, end - start) != 0;
}

bool edges_changed(uint32_t slot, const struct rtab_transfer *t)
{
	uint64_t head_end, tail_start;
	bool changed;
	char *room;
	int saved = errno;

	edges_of(t, &head_end, &tail_start);
	if (t->start == head_end && tail_start == t->end)
		return false;
	/* A completion waits for no other: what cannot be read may have changed. */
	if (closed_to_readers(t->start, head_end) ||
	    closed_to_readers(tail_start, t->end))
		return true;
	room = edge_room(slot);
	changed = room && (edge_changed(room, t->start, head_end) ||
			   edge_changed(room + EDGE_BYTES, tail_start, t->end));
	errno = saved;
	return changed;
}
