/* SPDX-License-Identifier: BSD-2-Clause */
/* The area of one space; labels are in area.h. */
#include "shm/area.h"

#include <errno.h>
#include <string.h>

#include "shm/base.h"
#include "shm/segment.h"

int rtab_area_new(struct rtab_area_view *view, uint32_t capacity, uint32_t pid,
		  int *ret_fd)
{
	struct rtab_area *area;
	void *mem;
	int r;

	r = rtab_segment_new("regc-area", rtab_area_bytes(capacity), false, ret_fd,
			     &mem);
	if (r)
		return r;
	area = mem;
	area->magic = RTAB_AREA_MAGIC;
	area->major = RTAB_MAJOR;
	area->minor = RTAB_MINOR;
	area->header_bytes = sizeof(*area);
	area->total_bytes = rtab_area_bytes(capacity);
	area->capacity = capacity;
	area->pid = pid;
	area->n_threads = 1; /* slot 0, the shared one */
	view->area = area;
	view->capacity = capacity;
	view->bytes = area->total_bytes;
	return 0;
}

void rtab_area_unmap(struct rtab_area_view *view)
{
	if (view->area)
		rtab_raw_munmap(view->area, view->bytes);
	memset(view, 0, sizeof(*view));
}

void rtab_lease_get_shared(uint64_t *word, uint64_t stamp)
{
	uint64_t old = rtab_load_relaxed(word), new;

	do {
		new = stamp | ((old + 1) & RTAB_COUNT_MASK);
	} while (!rtab_cas(word, &old, new));
}

void rtab_lease_put_shared(uint64_t *word)
{
	uint64_t old = rtab_load_relaxed(word), new;

	do {
		new = (old & ~RTAB_COUNT_MASK) | ((old - 1) & RTAB_COUNT_MASK);
	} while (!rtab_cas(word, &old, new));
}

uint32_t rtab_area_lease_count(const struct rtab_area_view *view, uint32_t slot,
			       uint64_t *ret_stamp)
{
	uint32_t n = rtab_load_acquire(&view->area->n_threads), t, sum = 0;
	uint64_t word, stamp = 0;

	for (t = 0; t < n; t++) {
		word = rtab_load_relaxed(&rtab_area_leases(view, t)[slot]);
		sum += (uint32_t)(word & RTAB_COUNT_MASK);
		word &= ~RTAB_COUNT_MASK;
		/* Stamps wrap after 52 days; 0 is "never". */
		if (word && (!stamp || (int64_t)(word - stamp) > 0))
			stamp = word;
	}
	if (ret_stamp)
		*ret_stamp = stamp;
	return sum & RTAB_COUNT_MASK;
}

/* ---- request ring ------------------------------------------------------- */

bool rtab_ring_push(struct rtab_area *area, uint64_t tail,
		    const struct rtab_request *request)
{
	uint64_t head = rtab_load_relaxed(&area->ring_head);

	if (head - tail >= RTAB_N_RING)
		return false;
	area->ring[head % RTAB_N_RING] = *request;
	/* R1 release: pairs with rtab_ring_pop() */
	rtab_store_release(&area->ring_head, head + 1);
	return true;
}

int rtab_ring_pop(const struct rtab_area *area, uint64_t *tail,
		  struct rtab_request *ret)
{
	uint64_t head = rtab_load_acquire(&area->ring_head); /* R1 */

	if (head == *tail)
		return 0;
	if (head - *tail > RTAB_N_RING)
		return -EPROTO;
	memcpy(ret, &area->ring[*tail % RTAB_N_RING], sizeof(*ret));
	(*tail)++;
	return 1;
}

/* ---- changes made by the client ----------------------------------------- */

static uint32_t change_check(uint64_t seq, uint64_t start, uint64_t end)
{
	uint64_t x = (seq ^ start * UINT64_C(0x9e3779b97f4a7c15)) +
		     end * UINT64_C(0xc2b2ae3d27d4eb4f);

	return (uint32_t)(x ^ x >> 32);
}

void rtab_area_log_change(struct rtab_area *area, uint64_t start, uint64_t end,
			  uint32_t cause)
{
	uint64_t seq = rtab_fetch_add(&area->change_seq, 1); /* H1 */
	struct rtab_area_change *change =
		&area->changes[seq % RTAB_N_AREA_CHANGES];

	rtab_store_relaxed(&change->seq, 0);
	rtab_fence_release();
	rtab_store_relaxed(&change->start, start);
	rtab_store_relaxed(&change->end, end);
	rtab_store_relaxed(&change->cause, cause);
	rtab_store_relaxed(&change->check, change_check(seq, start, end));
	/* H1 release: the entry is whole */
	rtab_store_release(&change->seq, seq + 1);
	rtab_fence_full();
}

/* False: the entry is not, or no longer, change number seq. */
static bool change_read(const struct rtab_area *area, uint64_t seq,
			struct rtab_area_change *ret)
{
	const struct rtab_area_change *change =
		&area->changes[seq % RTAB_N_AREA_CHANGES];

	if (rtab_load_acquire(&change->seq) != seq + 1) /* H1 */
		return false;
	ret->seq = seq + 1;
	ret->start = rtab_load_relaxed(&change->start);
	ret->end = rtab_load_relaxed(&change->end);
	ret->cause = rtab_load_relaxed(&change->cause);
	ret->check = rtab_load_relaxed(&change->check);
	rtab_fence_acquire();
	return rtab_load_relaxed(&change->seq) == seq + 1 &&
	       ret->check == change_check(seq, ret->start, ret->end);
}

bool rtab_area_changed_since(const struct rtab_area *area, uint64_t seq,
			     uint64_t start, uint64_t end)
{
	uint64_t now = rtab_load_acquire(&area->change_seq);
	struct rtab_area_change change;

	if (now - seq > RTAB_N_AREA_CHANGES)
		return true;
	for (; seq != now; seq++)
		if (!change_read(area, seq, &change) ||
		    rtab_overlaps(start, end, change.start, change.end))
			return true;
	return false;
}

int rtab_area_next_change(const struct rtab_area *area, uint64_t *cursor,
			  struct rtab_area_change *ret)
{
	uint64_t now = rtab_load_acquire(&area->change_seq);

	if (*cursor == now)
		return 0;
	if (now - *cursor > RTAB_N_AREA_CHANGES ||
	    !change_read(area, *cursor, ret)) {
		*cursor = now;
		return -EOVERFLOW;
	}
	(*cursor)++;
	return 1;
}
