/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Voiding on behalf of hooks and of the guardian, and the watched ranges.
 *
 * The watch set is a superset of what the kernel watches: it lets a hook pass
 * memory that regc has nothing to do with after one search.  It is a table of
 * its own (shm/table.h): the cache lock writes it, hooks search it without lock.
 *   W1  Every live region lies in the watch set.  A range is added when the
 *       kernel watches it and before the device registers it.  It is removed when
 *       a hook's change is consumed, and a registration that a change overtook
 *       (one that was not consumed when it began) starts over; so no removal can
 *       hit a region that was made after the change.
 *
 * A hook, before the system call (laws L1, L8: no lock, no allocation):
 *   1 take the range out of the watch, so that the call waits for nobody (but for
 *     transfers there: their protection is of the watch);
 *   2 log the change: whoever registers at this moment compares the count of
 *     changes from before its own watch with the one after it published.  Its
 *     watch came before 1: it sees the count of 2.  After 1: the kernel tells;
 *   3 void what is live: first the records that the broker has not taken from
 *     the ring, then the index; what moves from the one to the other meanwhile
 *     is found in the second.
 * Where 3 cannot tell, everything is void (L3).
 */
#include "libregc/runtime.h"
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAKE_AT_CHANGES (RTAB_N_AREA_CHANGES / 2)

static bool hooks_matter(void)
{
	struct rt_wipe *wipe = rtab_load_acquire(&rt.wipe);

	return wipe && rtab_load_relaxed(&wipe->attach) == rt.attach &&
	       rtab_load_acquire(&rt.attached);
}

/*
 * Does the watch set have a byte of [start, end)?  In doubt, yes; also while it
 * is being changed (W2: watch_seq is odd then, and differs after), because a
 * range is taken out before the larger one that replaces it is put in.
 */
static bool watched(uint64_t start, uint64_t end)
{
	uint32_t seq = rtab_load_acquire(&rt.watch_seq), slot; /* W2 */
	uint64_t found;
	bool outside;
	int r = -ENOENT;

	outside = end <= rtab_load_relaxed(&rt.watch_low) ||
		  start >= rtab_load_relaxed(&rt.watch_high);
	if (!outside)
		r = rtab_index_floor(&rt.watch.view.index, 0, end - 1, &slot,
				     &found);
	if (r == 0 && rtab_load_relaxed(&rt.watch.view.records[slot].end) <= start)
		r = -ENOENT;
	rtab_fence_acquire();
	return r != -ENOENT || (seq & 1) ||
	       rtab_load_relaxed(&rt.watch_seq) != seq;
}

static void watch_write_begin(void)
{
	rtab_store_relaxed(&rt.watch_seq, rt.watch_seq + 1);
	rtab_fence_full(); /* W2 */
}

/* Without room for a range the set is "everything": watch_seq stays odd. */
static void watch_write_end(int err)
{
	if (!err && !rt.watch_all)
		rtab_store_release(&rt.watch_seq, rt.watch_seq + 1); /* W2 */
	else
		rt.watch_all = true;
}

struct void_walk {
	uint64_t start, end;
	uint32_t n;
};

static void void_if_overlaps(void *arg, uint32_t slot)
{
	struct void_walk *walk = arg;
	uint32_t domains, d;

	if (slot >= rt.area.capacity)
		return;
	domains = rtab_load_relaxed(&rt.slots[slot].domains);
	for (d = 0; domains; d++, domains >>= 1) {
		struct rtab_reg *reg = &rtab_area_regs(&rt.area, d)[slot];
		uint64_t gen = rtab_load_acquire(&reg->live_gen);

		if (!(domains & 1) || !gen)
			continue;
		if (!rtab_overlaps(walk->start, walk->end,
				   rtab_load_relaxed(&reg->start),
				   rtab_load_relaxed(&reg->end)))
			continue;
		/* Only this generation: the slot may be another's by now. */
		if (rtab_cas(&reg->live_gen, &gen, 0))
			walk->n++;
	}
}

uint32_t changes_void_range(uint64_t start, uint64_t end)
{
	struct void_walk walk = { .start = start, .end = end };
	struct rtab_area *area = rt.area.area;
	uint64_t tail = rtab_load_acquire(&rt.table.table->ring_tail);
	uint64_t head = rtab_load_acquire(&area->ring_head);

	if (head - tail > RTAB_N_RING) /* the table of another broker */
		tail = head - RTAB_N_RING;
	for (; tail != head; tail++) {
		struct rtab_request *request = &area->ring[tail % RTAB_N_RING];

		void_if_overlaps(&walk, rtab_load_relaxed(&request->slot));
	}
	if (rtab_for_each_overlap(&rt.table, start, end, void_if_overlaps, &walk)) {
		changes_void_all();
		walk.n++;
	}
	return walk.n;
}

void changes_void_all(void)
{
	struct void_walk walk = { .start = 0, .end = UINT64_MAX };
	uint32_t n = rtab_load_relaxed(&rt.n_slots), slot;

	rtab_area_log_change(rt.area.area, 0, UINT64_MAX, RTAB_CAUSE_ALL_VOID);
	for (slot = 0; slot < n; slot++)
		void_if_overlaps(&walk, slot);
	rtab_fetch_add(&rt.area.area->all_voids, 1);
}

void changes_wake_guardian(void)
{
	uint64_t one = 1;
	int saved = errno;

	/* Not write(3): that is a point where a thread may be cancelled. */
	if (rtab_load_relaxed(&rt.wipe->woken) == 0 && /* G1 */
	    rtab_exchange(&rt.wipe->woken, 1) == 0 &&
	    syscall(SYS_write, rt.wake_fd, &one, sizeof(one)) < 0) {
		/* Full is as good as written; nothing else can happen. */
	}
	errno = saved;
}

uint32_t changes_moment(void)
{
	return rtab_load_acquire(&rt.watch_seq);
}

bool changes_before(uint64_t start, uint64_t end, uint32_t cause, bool unwatch)
{
	uint64_t page = RTAB_PAGE, lag;
	uint32_t n;

	if (!hooks_matter() || start >= end || RT_BROKEN(RT_SAFE_HOOK))
		return false;
	start = rtab_round_down(start, page);
	end = end > UINT64_MAX - page ? UINT64_MAX : rtab_round_up(end, page);
	if (!watched(start, end))
		return false;
	/* Whoever waits at a closed page there is woken by the event. */
	if (transfers_used() && transfer_before_change(start, end))
		unwatch = false;
	if (unwatch)
		monitor_uffd_unwatch(start, end);
	rtab_area_log_change(rt.area.area, start, end, cause);
	n = changes_void_range(start, end);
	lag = rtab_load_relaxed(&rt.area.area->change_seq) -
	      rtab_load_relaxed(&rt.change_cursor);
	if (n || lag >= WAKE_AT_CHANGES)
		changes_wake_guardian();
	return true;
}

void changes_after(uint64_t start, uint64_t end, uint32_t cause)
{
	if (!hooks_matter() || start >= end || !watched(start, end) ||
	    RT_BROKEN(RT_SAFE_POST))
		return;
	/*
	 * The address was free a moment ago, so what is live there is stale: it
	 * was unmapped in a way no hook saw, and the event is not read yet.
	 */
	rtab_area_log_change(rt.area.area, start, end, cause);
	if (changes_void_range(start, end))
		changes_wake_guardian();
}

void changes_of_files(void)
{
	struct void_walk walk = { .start = 0, .end = UINT64_MAX };
	uint32_t n, slot;

	if (!hooks_matter() || RT_BROKEN(RT_SAFE_HOOK) ||
	    !rtab_load_relaxed(&rt.n_shared))
		return;
	/* Which mapping is of this file nobody knows here: all of them. */
	rtab_area_log_change(rt.area.area, 0, UINT64_MAX, RTAB_CAUSE_HOOK_FILE);
	n = rtab_load_relaxed(&rt.n_slots);
	for (slot = 0; slot < n; slot++)
		if (rtab_load_relaxed(&rt.slots[slot].shared))
			void_if_overlaps(&walk, slot);
	if (walk.n)
		changes_wake_guardian();
}

/* ---- cache lock --------------------------------------------------------- */

/* Puts [start, end) into the watch set; the slot number means nothing. */
static int watch_set_put(uint64_t start, uint64_t end)
{
	uint32_t i, slot;
	int r;

	for (i = rt.watch_next_slot; i < RT_WATCH_CAPACITY; i++) {
		slot = i;
		r = rtab_writer_make_ready(&rt.watch, slot);
		if (r)
			return r;
		if (rt.watch.view.records[slot].gen == rt.watch.view.gens[slot])
			continue;
		rt.watch_next_slot = slot + 1;
		return rtab_writer_add(&rt.watch, slot, start, end, 0);
	}
	return -ENOSPC;
}

/* Takes [start, end) out; *low and *high become what was joined to it. */
static void watch_set_take(uint64_t start, uint64_t end, uint64_t *low,
			   uint64_t *high)
{
	uint32_t slots[16], n, i;

	*low = start;
	*high = end;
	do {
		n = rtab_writer_overlaps(&rt.watch, start, end, slots, 16);
		for (i = 0; i < n; i++) {
			*low = rtab_min_u64(*low,
					    rt.watch.view.records[slots[i]].start);
			*high = rtab_max_u64(*high,
					     rt.watch.view.records[slots[i]].end);
			rtab_writer_void(&rt.watch, slots[i]);
			if (slots[i] < rt.watch_next_slot)
				rt.watch_next_slot = slots[i];
		}
	} while (n > 0);
}

static bool watch_set_covers(uint64_t start, uint64_t end)
{
	struct rtab_hit hit;

	return rt.watch_all || rtab_lookup(&rt.watch.view, start, end, 0, &hit) == 0;
}

static void watch_set_add(uint64_t start, uint64_t end)
{
	uint64_t low, high;

	if (watch_set_covers(start, end))
		return;
	watch_write_begin();
	if (start < rt.watch_low || rt.watch_high == 0)
		rtab_store_relaxed(&rt.watch_low, start);
	if (end > rt.watch_high)
		rtab_store_relaxed(&rt.watch_high, end);
	watch_set_take(start, end, &low, &high);
	watch_write_end(watch_set_put(low, high));
}

static void watch_set_remove(uint64_t start, uint64_t end)
{
	uint64_t low, high;
	int err = 0;

	if (rt.watch_all || !watched(start, end))
		return;
	watch_write_begin();
	watch_set_take(start, end, &low, &high);
	if (low < start)
		err = watch_set_put(low, start);
	if (high > end && !err)
		err = watch_set_put(end, high);
	watch_write_end(err);
}

/* Did the hook take the range out of the watch? */
static bool cause_unwatches(uint32_t cause)
{
	return cause == RTAB_CAUSE_HOOK_MUNMAP || cause == RTAB_CAUSE_HOOK_MMAP ||
	       cause == RTAB_CAUSE_HOOK_MREMAP ||
	       cause == RTAB_CAUSE_HOOK_MADVISE ||
	       cause == RTAB_CAUSE_HOOK_BRK || cause == RTAB_CAUSE_HOOK_SHM;
}

/*
 * Whatever lives in a range that changed goes void, live still or not: the hook
 * logs before it voids, and nobody comes back to this entry.
 */
static void consume_one(const struct rtab_area_change *change)
{
	uint32_t c, slot, next;

	for (c = 0; c < rt.n_classes; c++) {
		slot = slots_next_overlap(c, change->start, change->end,
					  RT_NO_SLOT);
		for (; slot != RT_NO_SLOT; slot = next) {
			const struct rt_slot *s = &rt.slots[slot];

			next = slots_next_overlap(c, change->start, change->end,
						  slot);
			if (s->state != RT_LIVE || s->busy ||
			    (change->cause == RTAB_CAUSE_HOOK_FILE && !s->shared))
				continue;
			slot_void(slot, change->cause);
		}
	}
	if (cause_unwatches(change->cause))
		watch_set_remove(change->start, change->end);
}

void changes_consume(void)
{
	struct rtab_area_change change;
	uint64_t cursor = rt.change_cursor;
	int r;

	for (;;) {
		r = rtab_area_next_change(rt.area.area, &cursor, &change);
		rtab_store_relaxed(&rt.change_cursor, cursor);
		if (r == 0)
			return;
		if (r == 1)
			consume_one(&change);
		else
			retire_rescan(RTAB_CAUSE_ALL_VOID, true);
	}
}

/* ---- watch -------------------------------------------------------------- */

/* PROCMAP_QUERY of kernel 6.11, for headers that do not have it. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size;
	uint64_t vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define RT_PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)
#define RT_PROCMAP_SHARED UINT64_C(8)
#define MAX_MAPPINGS 64 /* of one range; beyond, it counts as shared */

/* The kernel's own file behind private huge pages; no program can open it. */
#define HUGE_ANON "/anon_hugepage"

/* " rwxp OFFSET MAJ:MIN INODE ..." */
static bool has_inode(const char *rest)
{
	unsigned long inode = 0;
	char name[sizeof(HUGE_ANON)] = "";

	if (sscanf(rest, " %*s %*s %*s %lu %14s", &inode, name) < 1)
		return false;
	return inode != 0 && strcmp(name, HUGE_ANON) != 0;
}

/* Before 6.11: the line of /proc/self/maps; costs tens of microseconds. */
static int read_mapping(uint64_t addr, struct rt_mapping *ret)
{
	char buf[4096];
	off_t at = 0;
	ssize_t n;

	while ((n = pread(rt.maps_fd, buf, sizeof(buf) - 1, at)) > 0) {
		char *line = buf, *next;

		buf[n] = '\0';
		for (; (next = strchr(line, '\n')); line = next + 1) {
			char *rest;
			uint64_t start = strtoull(line, &rest, 16);
			uint64_t end = strtoull(rest + 1, &rest, 16);

			if (addr >= end)
				continue;
			ret->start = start;
			ret->end = end;
			ret->shared = rest[4] == 's' || has_inode(rest);
			ret->prot = (rest[1] == 'r' ? PROT_READ : 0) |
				    (rest[2] == 'w' ? PROT_WRITE : 0) |
				    (rest[3] == 'x' ? PROT_EXEC : 0);
			return addr >= start ? 0 : -ENOENT;
		}
		if (line == buf)
			return -EIO;
		at += line - buf;
	}
	return -ENOENT;
}

static bool is_huge_anon(uint64_t addr)
{
	char name[64] = "";
	struct procmap_query q = {
		.size = sizeof(q), .query_addr = addr,
		.vma_name_addr = (uintptr_t)name, .vma_name_size = sizeof(name),
	};

	return ioctl(rt.maps_fd, RT_PROCMAP_QUERY, &q) == 0 &&
	       strncmp(name, HUGE_ANON, sizeof(HUGE_ANON) - 1) == 0;
}

int changes_mapping(uint64_t addr, struct rt_mapping *ret)
{
	struct procmap_query q = { .size = sizeof(q), .query_addr = addr };

	if (rt.maps_fd < 0)
		return -EBADF;
	if (ioctl(rt.maps_fd, RT_PROCMAP_QUERY, &q) < 0)
		return errno == ENOTTY ? read_mapping(addr, ret) : -errno;
	ret->start = q.vma_start;
	ret->end = q.vma_end;
	ret->shared = (q.vma_flags & RT_PROCMAP_SHARED) ||
		      (q.inode && !is_huge_anon(addr));
	ret->prot = (int)(q.vma_flags & (PROT_READ | PROT_WRITE | PROT_EXEC));
	return 0;
}

/*
 * Widens to whole mappings: watching a part splits the mapping, and a process may
 * have only 65,530 of them.  *ret_shared: a part of it is memory of a file (also
 * a private mapping of one), which can lose its pages through the file, without
 * any event.  A hole ends the walk;
 * the device finds it as well.
 */
static bool has_hole(uint64_t start, uint64_t end)
{
	struct rt_mapping m;

	for (; start < end; start = m.end)
		if (changes_mapping(start, &m))
			return true;
	return false;
}

static void extend_to_mappings(uint64_t *start, uint64_t *end, bool *ret_shared)
{
	uint64_t at = *start, want = *end;
	struct rt_mapping m;
	int i;

	*ret_shared = false;
	for (i = 0; at < want; i++) {
		if (i == MAX_MAPPINGS) {
			*ret_shared = true;
			return;
		}
		if (changes_mapping(at, &m))
			return;
		if (i == 0)
			*start = m.start;
		*ret_shared |= m.shared;
		if (m.end > *end)
			*end = m.end;
		at = m.end;
	}
}

/*
 * Not into the set before the kernel agreed: the range may be watched by somebody
 * else's userfaultfd, and a hook must not take it out of that one.
 */
static int register_and_add(uint64_t start, uint64_t end)
{
	int r = monitor_uffd_watch(start, end);

	if (r == -EBUSY)
		rt_note("another userfaultfd watches memory in %#llx-%#llx",
			(unsigned long long)start, (unsigned long long)end);
	if (r)
		return r;
	rt_cache_lock();
	watch_set_add(start, end); /* W1 */
	rt_cache_unlock();
	return 0;
}

bool changes_is_anonymous(uint64_t start, uint64_t end)
{
	struct rt_mapping m;
	int saved = errno;

	for (; start < end; start = m.end)
		if (changes_mapping(start, &m) || m.shared)
			break;
	errno = saved;
	return start >= end;
}

bool watch_is_whole(uint64_t start, uint64_t end)
{
	uint64_t limit = rtab_now_ns() + RT_WAIT_MS * UINT64_C(1000000);
	int saved = errno, r;

	r = has_hole(start, end) ? -ENOENT : transfer_probe(start, end);
	/* Another thread's change, of any range, is about to be noticed. */
	while (r == -EAGAIN && rtab_now_ns() < limit) {
		sched_yield();
		r = transfer_probe(start, end);
	}
	errno = saved;
	return r == 0;
}

int watch_range(uint64_t start, uint64_t end, bool *ret_shared, uint32_t *ret_cause)
{
	uint64_t low = start, high = end, page;
	int saved = errno, r = -ENOTSUP;

	*ret_cause = RTAB_CAUSE_UNWATCHABLE;
	extend_to_mappings(&low, &high, ret_shared);
	/* What regc_alloc() gave is of a file that nobody else has. */
	if (*ret_shared && pool_has(low, high, &page))
		*ret_shared = false;
	/* Only hooks see what happens to a file. */
	if (*ret_shared && (rtab_load_relaxed(&rt.mode) != RTAB_MODE_FAST ||
			    !rt.file_hooks))
		goto out;
	/* Before the device pins: changes_of_files() passes by at 0. */
	if (*ret_shared)
		rtab_fetch_add(&rt.n_shared, 1);
	r = register_and_add(low, high);
	if (r && (low != start || high != end))
		r = register_and_add(start, end);
out:
	errno = saved;
	return r;
}
