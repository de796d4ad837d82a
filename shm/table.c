/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of one space; states, orders and labels are in table.h. */
#include "shm/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"

static void view_init(struct rtab_view *view, void *mem, uint32_t capacity)
{
	struct rtab_table *table = mem;
	char *base = mem;

	view->table = table;
	view->bytes = rtab_table_bytes(capacity);
	view->gens = (uint64_t *)(base + rtab_off_gens());
	view->records = (struct rtab_record *)(base + rtab_off_records(capacity));
	view->index.seq = &table->index_seq;
	view->index.classes = table->classes;
	view->index.nodes = (struct rtab_node *)(base + rtab_off_nodes(capacity));
	view->index.n_nodes = rtab_n_nodes(capacity);
	view->index.capacity = capacity;
}

/* ---- broker ------------------------------------------------------------- */

int rtab_writer_init(struct rtab_writer *w, uint32_t space_id, uint32_t capacity)
{
	struct rtab_table *table;
	void *mem;
	int r;

	if (capacity == 0 || capacity > RTAB_MAX_CAPACITY)
		return -EINVAL;
	memset(w, 0, sizeof(*w));
	w->fd = -1;
	capacity = (uint32_t)rtab_round_up(capacity, RTAB_READY_STEP);
	r = rtab_segment_new("regc-table", rtab_table_bytes(capacity), true,
			     &w->fd, &mem);
	if (r)
		return r;
	table = mem;
	table->magic = RTAB_TABLE_MAGIC;
	table->major = RTAB_MAJOR;
	table->minor = RTAB_MINOR;
	table->header_bytes = sizeof(*table);
	table->total_bytes = rtab_table_bytes(capacity);
	table->capacity = capacity;
	table->n_nodes = rtab_n_nodes(capacity);
	table->space_id = space_id;
	table->gen_base = rtab_boot_ns();
	view_init(&w->view, mem, capacity);
	r = rtab_index_writer_new(table, &w->index);
	if (!r)
		r = rtab_writer_make_ready(w, 0);
	if (r)
		rtab_writer_deinit(w);
	return r;
}

void rtab_writer_deinit(struct rtab_writer *w)
{
	w->index = rtab_index_writer_free(w->index);
	if (w->view.table)
		rtab_raw_munmap(w->view.table, w->view.bytes);
	if (w->fd >= 0)
		close(w->fd);
	memset(w, 0, sizeof(*w));
	w->fd = -1;
}

/* Memory is asked for before use, so that its lack is an error, not a SIGBUS. */
static int populate(void *from, uint64_t bytes)
{
	uintptr_t start = rtab_round_down((uintptr_t)from, RTAB_PAGE);
	uintptr_t end = rtab_round_up((uintptr_t)from + bytes, RTAB_PAGE);

	if (madvise((void *)start, end - start, MADV_POPULATE_WRITE) < 0 &&
	    errno != EINVAL) /* before kernel 5.14 */
		return -ENOMEM;
	return 0;
}

int rtab_writer_make_ready(struct rtab_writer *w, uint32_t slot)
{
	uint32_t capacity = w->view.index.capacity, to, s;
	int r;

	if (slot >= capacity)
		return -EINVAL;
	to = (uint32_t)rtab_round_up((uint64_t)slot + 1 + RTAB_READY_STEP / 2,
				     RTAB_READY_STEP);
	if (to > capacity)
		to = capacity;
	if (to <= w->ready)
		return 0;
	r = populate(&w->view.gens[w->ready], (uint64_t)(to - w->ready) * 8);
	if (!r)
		r = populate(&w->view.records[w->ready],
			     (uint64_t)(to - w->ready) *
				     sizeof(struct rtab_record));
	if (r)
		return r;
	for (s = w->ready; s < to; s++)
		rtab_store_relaxed(&w->view.gens[s], w->view.table->gen_base + 1);
	w->ready = to;
	rtab_store_release(&w->view.table->slots_ready, to);
	return 0;
}

/* The class of access, made if need be; -ENOSPC. */
static int class_of(struct rtab_writer *w, uint32_t access)
{
	struct rtab_class *classes = w->view.table->classes;
	uint32_t c;

	for (c = 0; c < RTAB_N_CLASSES; c++) {
		if (classes[c].access == (access | RTAB_CLASS_USED))
			return (int)c;
		if (classes[c].access == 0) {
			rtab_store_release(&classes[c].access,
					   access | RTAB_CLASS_USED);
			return (int)c;
		}
	}
	return -ENOSPC;
}

static bool record_told(const struct rtab_writer *w, uint32_t slot)
{
	return w->view.records[slot].gen == w->view.gens[slot];
}

int rtab_writer_add(struct rtab_writer *w, uint32_t slot, uint64_t start,
		    uint64_t end, uint32_t access)
{
	struct rtab_record *record = &w->view.records[slot];
	uint32_t near[4];
	int64_t n, i;
	int c, r;

	if (slot >= w->ready || start >= end || (start | end) % RTAB_PAGE ||
	    (access & RTAB_CLASS_USED) || record_told(w, slot))
		return -EINVAL;
	c = class_of(w, access);
	if (c < 0)
		return c;
	n = rtab_index_range(&w->view.index, (uint32_t)c, start, end, near, 4,
			     NULL);
	for (i = 0; i < n && i < 4; i++)
		if (rtab_overlaps(start, end, w->view.records[near[i]].start,
				  w->view.records[near[i]].end))
			return -EEXIST;
	rtab_store_relaxed(&record->start, start);
	rtab_store_relaxed(&record->end, end);
	rtab_store_relaxed(&record->cls, (uint32_t)c);
	/* T1 release: pairs with slot_covers(); range before generation */
	rtab_store_release(&record->gen, w->view.gens[slot]);
	r = rtab_index_insert(w->index, (uint32_t)c, start, slot);
	if (r) {
		rtab_store_release(&record->gen, 0);
		return r;
	}
	w->view.table->classes[c].n_regions++;
	return 0;
}

int rtab_writer_void(struct rtab_writer *w, uint32_t slot)
{
	struct rtab_record *record = &w->view.records[slot];
	bool told;

	if (slot >= w->ready)
		return -EINVAL;
	told = record_told(w, slot);
	/* T2 release: from here on nobody takes the registration for live */
	rtab_store_release(&w->view.gens[slot], w->view.gens[slot] + 1);
	if (told) {
		/*
		 * Without memory for a node the entry stays in the tree and
		 * points at a void slot: a miss, and its start is taken.
		 */
		w->view.table->classes[record->cls].n_regions--;
		return rtab_index_remove(w->index, record->cls, record->start) ?
			       -ENOMEM : 0;
	}
	return 0;
}

uint32_t rtab_writer_overlaps(struct rtab_writer *w, uint64_t start, uint64_t end,
			      uint32_t *ret_slots, uint32_t max)
{
	uint32_t c, n = 0;
	int64_t got, i, kept;

	for (c = 0; c < RTAB_N_CLASSES && n < max; c++) {
		uint32_t *out = ret_slots + n;

		got = rtab_index_range(&w->view.index, c, start, end, out, max - n,
				       NULL);
		if (got > (int64_t)(max - n))
			got = max - n;
		for (i = 0, kept = 0; i < got; i++)
			if (w->view.records[out[i]].end > start)
				out[kept++] = out[i];
		n += (uint32_t)kept;
	}
	return n;
}

void rtab_writer_log_change(struct rtab_writer *w, uint64_t start, uint64_t end)
{
	struct rtab_table *table = w->view.table;
	uint64_t seq = table->change_seq;
	struct rtab_change *change =
		&table->changes[seq % RTAB_N_TABLE_CHANGES];

	/* H2: a reader of this entry as an older one sees the count move on */
	rtab_store_release(&table->change_seq, seq + 1);
	rtab_fence_release();
	rtab_store_relaxed(&change->start, start);
	rtab_store_relaxed(&change->end, end);
	rtab_store_release(&table->changes_done, seq + 1); /* H2 */
	rtab_fence_full();
}

void rtab_writer_log_remove(struct rtab_writer *w, uint64_t start, uint64_t end)
{
	struct rtab_table *table = w->view.table;
	uint64_t seq = table->remove_seq;
	struct rtab_remove *remove = &table->removes[seq % RTAB_N_REMOVES];

	/* H3: as H2 */
	rtab_store_release(&table->remove_seq, seq + 1);
	rtab_fence_release();
	rtab_store_relaxed(&remove->start, start);
	rtab_store_relaxed(&remove->end, end);
	rtab_store_relaxed(&remove->time_ns, rtab_now_ns());
	rtab_store_release(&table->removes_done, seq + 1); /* H3 */
}

/* ---- readers ------------------------------------------------------------ */

int rtab_view_map(struct rtab_view *view, int fd, void *fixed)
{
	struct rtab_table *table;
	uint64_t bytes, capacity;
	int flags = MAP_SHARED | (fixed ? MAP_FIXED : 0), r = 0;
	bool good;

	r = rtab_segment_check(fd, 0, sizeof(*table), &bytes);
	if (r)
		return r;
	/* Look before it takes the place of another table. */
	table = rtab_raw_mmap(NULL, sizeof(*table), PROT_READ, MAP_SHARED, fd, 0,
			      &r);
	if (!table)
		return r;
	capacity = table->capacity;
	good = table->magic == RTAB_TABLE_MAGIC && table->major == RTAB_MAJOR &&
	       capacity > 0 && capacity <= RTAB_MAX_CAPACITY &&
	       rtab_table_bytes((uint32_t)capacity) == bytes &&
	       table->n_nodes == rtab_n_nodes((uint32_t)capacity);
	rtab_raw_munmap(table, sizeof(*table));
	if (!good)
		return -EPROTO;
	table = rtab_raw_mmap(fixed, bytes, PROT_READ, flags, fd, 0, &r);
	if (!table)
		return r;
	view_init(view, table, (uint32_t)capacity);
	return 0;
}

void rtab_view_unmap(struct rtab_view *view)
{
	if (view->table)
		rtab_raw_munmap(view->table, view->bytes);
	memset(view, 0, sizeof(*view));
}

/* Does slot hold a told, live region that covers the range?  T1, T2. */
static bool slot_covers(const struct rtab_view *view, uint32_t slot,
			uint64_t start, uint64_t end, struct rtab_hit *ret)
{
	const struct rtab_record *record = &view->records[slot];
	uint64_t gen = rtab_load_acquire(&view->gens[slot]); /* T2 */

	if (rtab_load_acquire(&record->gen) != gen) /* T1 */
		return false;
	ret->slot = slot;
	ret->gen = gen;
	ret->start = rtab_load_relaxed(&record->start);
	ret->end = rtab_load_relaxed(&record->end);
	rtab_fence_acquire();
	if (rtab_load_relaxed(&record->gen) != gen ||
	    rtab_load_relaxed(&view->gens[slot]) != gen) /* T2 */
		return false;
	return ret->start <= start && end <= ret->end;
}

int rtab_lookup_slot(const struct rtab_view *view, uint64_t start, uint32_t access,
		     uint32_t *cls_cursor, uint32_t *ret_slot)
{
	uint32_t c, class_access;
	uint64_t found;
	int r;

	for (c = *cls_cursor; c < RTAB_N_CLASSES; c++) {
		class_access = rtab_load_acquire(&view->index.classes[c].access);
		if (class_access == 0)
			break;
		if (!rtab_access_serves(class_access, access))
			continue;
		r = rtab_index_floor(&view->index, c, start, ret_slot, &found);
		if (r == -ENOENT)
			continue;
		*cls_cursor = c + 1;
		return r;
	}
	*cls_cursor = RTAB_N_CLASSES;
	return -ENOENT;
}

int rtab_lookup(const struct rtab_view *view, uint64_t start, uint64_t end,
		uint32_t access, struct rtab_hit *ret)
{
	uint32_t cursor = 0, slot;
	int r;

	for (;;) {
		r = rtab_lookup_slot(view, start, access, &cursor, &slot);
		if (r)
			return r;
		if (!slot_covers(view, slot, start, end, ret))
			continue;
		ret->access = rtab_load_relaxed(
				      &view->index.classes[cursor - 1].access) &
			      ~RTAB_CLASS_USED;
		return 0;
	}
}

int rtab_for_each_overlap(const struct rtab_view *view, uint64_t start, uint64_t end,
			  void (*fn)(void *arg, uint32_t slot), void *arg)
{
	uint32_t slots[RTAB_OVERLAP_BATCH], c;
	int64_t n, i;

	for (c = 0; c < RTAB_N_CLASSES; c++) {
		uint64_t from = start, last = start;

		if (!rtab_load_acquire(&view->index.classes[c].access))
			break;
		do {
			n = rtab_index_range(&view->index, c, from, end, slots,
					     RTAB_OVERLAP_BATCH, &last);
			if (n < 0)
				return RTAB_BUSY;
			for (i = 0; i < n && i < RTAB_OVERLAP_BATCH; i++)
				fn(arg, slots[i]);
			from = last;
		} while (n > RTAB_OVERLAP_BATCH);
	}
	return 0;
}

bool rtab_changed_since(const struct rtab_table *table, uint64_t seq, uint64_t start,
			uint64_t end)
{
	uint64_t now = rtab_load_acquire(&table->change_seq); /* H2 */
	uint64_t i;
	bool hit = false;

	if (now == seq)
		return false;
	if (now - seq > RTAB_N_TABLE_CHANGES ||
	    rtab_load_acquire(&table->changes_done) != now) /* H2 */
		return true;
	for (i = seq; i != now && !hit; i++) {
		const struct rtab_change *change =
			&table->changes[i % RTAB_N_TABLE_CHANGES];

		hit = rtab_overlaps(start, end, rtab_load_relaxed(&change->start),
				    rtab_load_relaxed(&change->end));
	}
	rtab_fence_acquire();
	/* Overwritten meanwhile?  Then it is not known, so: yes. */
	return hit || rtab_load_relaxed(&table->change_seq) - seq >
			      RTAB_N_TABLE_CHANGES;
}

bool rtab_removed_since(const struct rtab_table *table, uint64_t since_ns,
			uint64_t start, uint64_t end)
{
	uint64_t now = rtab_load_acquire(&table->remove_seq); /* H3 */
	uint64_t first = now > RTAB_N_REMOVES ? now - RTAB_N_REMOVES : 0, i;
	bool hit = rtab_load_acquire(&table->removes_done) != now; /* H3 */
	bool reached = first == 0; /* back to since_ns */

	for (i = now; i > first && !hit; i--) {
		const struct rtab_remove *remove =
			&table->removes[(i - 1) % RTAB_N_REMOVES];

		if (rtab_load_relaxed(&remove->time_ns) < since_ns) {
			reached = true;
			break;
		}
		hit = rtab_overlaps(start, end, rtab_load_relaxed(&remove->start),
				    rtab_load_relaxed(&remove->end));
	}
	rtab_fence_acquire();
	return hit || !reached || rtab_load_relaxed(&table->remove_seq) != now;
}
