/* SPDX-License-Identifier: BSD-2-Clause */
/* The page by which clients see whether the broker lives; see life.h. */
#include "regcached/life.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/segment.h"

int life_init(struct life *life)
{
	void *mem;
	int r;

	life->page = NULL;
	life->fd = -1;
	r = rtab_segment_new("regc-life", RTAB_PAGE, true, &life->fd, &mem);
	if (r)
		return r;
	life->page = mem;
	life->page->magic = RTAB_LIFE_MAGIC;
	life->page->major = RTAB_MAJOR;
	life->page->minor = RTAB_MINOR;
	life->page->broker_pid = (uint32_t)getpid();

	/* The kernel finds the futex at a fixed distance from each entry. */
	life->head.list.next = &life->entry;
	life->entry.next = &life->head.list;
	life->head.futex_offset = (long)((char *)&life->page->word -
					 (char *)&life->entry);
	life->head.list_op_pending = NULL;
	if (syscall(SYS_set_robust_list, &life->head, sizeof(life->head)) < 0) {
		r = -errno;
		life_deinit(life);
		return r;
	}
	rtab_store_release(&life->page->word, (uint32_t)gettid());
	return 0;
}

void life_deinit(struct life *life)
{
	if (life->page) {
		rtab_store_release(&life->page->word, FUTEX_OWNER_DIED);
		life->head.list.next = &life->head.list;
		rtab_raw_munmap(life->page, RTAB_PAGE);
	}
	if (life->fd >= 0)
		close(life->fd);
	life->page = NULL;
	life->fd = -1;
}

void life_sleep(struct life *life)
{
	/*
	 * B1: store(asleep), full fence, load(ring heads) here; store(ring_head),
	 * full fence, load(asleep) in the client.  One of the two sees the other.
	 */
	rtab_store_relaxed(&life->page->asleep, 1);
	rtab_fence_full();
}

void life_wake(struct life *life)
{
	/* relaxed: a doorbell too many does no harm */
	rtab_store_relaxed(&life->page->asleep, 0);
}
