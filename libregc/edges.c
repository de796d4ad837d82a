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

int edges_keep(uint32_t slot, const struct rtab_transfer *t)
{
	uint64_t head_end, tail_start;
	char *room;

	edges_of(t, &head_end, &tail_start);
	if (t->start == head_end && tail_start == t->end)
		return 0;
	room = edge_room(slot);
	if (!room)
		return -ENOMEM;
	memcpy(room, (void *)(uintptr_t)t->start, head_end - t->start);
	memcpy(room + EDGE_BYTES, (void *)(uintptr_t)tail_start,
	       t->end - tail_start);
	return 0;
}

/*
 * The memory may be gone by now, which must not kill the process, so the kernel
 * reads it.  Where it may not (seccomp) an edge counts as unchanged.
 */
static bool edge_changed(const char *kept, uint64_t start, uint64_t end)
{
	char now[EDGE_BYTES];
	struct iovec to = { now, end - start };
	struct iovec from = { (void *)(uintptr_t)start, end - start };

	return start < end &&
	       process_vm_readv(getpid(), &to, 1, &from, 1, 0) ==
		       (ssize_t)(end - start) &&
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
	room = edge_room(slot);
	changed = room && (edge_changed(room, t->start, head_end) ||
			   edge_changed(room + EDGE_BYTES, tail_start, t->end));
	errno = saved;
	return changed;
}
