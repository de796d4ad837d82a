/* SPDX-License-Identifier: BSD-2-Clause */
/* Which regions to evict; see evict.h. */
#include "regcached/evict.h"

#include <stdlib.h>
#include <string.h>

#include "shm/base.h"
#include "shm/layout.h"

#define ROOM_START 64
#define STAMP_BITS (64 - RTAB_COUNT_BITS)
#define STAMP_MASK ((UINT64_C(1) << STAMP_BITS) - 1)

void evict_init(struct evict_pick *pick, uint64_t want_bytes,
		uint64_t want_regions, uint32_t max)
{
	memset(pick, 0, sizeof(*pick));
	pick->want_bytes = want_bytes;
	pick->want_regions = want_regions;
	pick->max = max;
}

void evict_deinit(struct evict_pick *pick)
{
	free(pick->heap);
	memset(pick, 0, sizeof(*pick));
}

/* Younger ones are given up first. */
static bool younger(const struct evict_item *a, const struct evict_item *b)
{
	return a->age < b->age;
}

static void swap(struct evict_item *a, struct evict_item *b)
{
	struct evict_item t = *a;

	*a = *b;
	*b = t;
}

static void sift_up(struct evict_pick *pick, uint32_t i)
{
	while (i && younger(&pick->heap[i], &pick->heap[(i - 1) / 2])) {
		swap(&pick->heap[i], &pick->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
}

static void sift_down(struct evict_pick *pick)
{
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < pick->n) {
		if (child + 1 < pick->n &&
		    younger(&pick->heap[child + 1], &pick->heap[child]))
			child++;
		if (!younger(&pick->heap[child], &pick->heap[i]))
			return;
		swap(&pick->heap[child], &pick->heap[i]);
		i = child;
	}
}

static void pop(struct evict_pick *pick)
{
	pick->bytes -= pick->heap[0].bytes;
	pick->heap[0] = pick->heap[--pick->n];
	sift_down(pick);
}

static bool grow(struct evict_pick *pick)
{
	uint32_t room = pick->room ? pick->room * 2 : ROOM_START;
	struct evict_item *heap;

	heap = realloc(pick->heap, (size_t)room * sizeof(*heap));
	if (!heap)
		return false;
	pick->heap = heap;
	pick->room = room;
	return true;
}

/* Would the youngest one be more than is wanted? */
static bool spare(const struct evict_pick *pick)
{
	return pick->n > pick->max ||
	       (pick->n > pick->want_regions &&
		pick->bytes - pick->heap[0].bytes >= pick->want_bytes);
}

void evict_offer(struct evict_pick *pick, const struct evict_item *item)
{
	if (pick->n == pick->room && !grow(pick)) {
		pick->lost = true;
		if (!pick->n || !younger(&pick->heap[0], item))
			return;
		pop(pick);
	}
	pick->heap[pick->n] = *item;
	pick->bytes += item->bytes;
	sift_up(pick, pick->n++);
	while (pick->n && spare(pick))
		pop(pick);
}

static int by_space(const void *pa, const void *pb)
{
	const struct evict_item *a = pa, *b = pb;

	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	if (a->age != b->age)
		return a->age > b->age ? -1 : 1;
	return 0;
}

void evict_finish(struct evict_pick *pick)
{
	if (pick->n)
		qsort(pick->heap, pick->n, sizeof(*pick->heap), by_space);
}

void evict_lease_add(struct evict_lease *lease, uint64_t word, uint64_t now_ns)
{
	uint64_t now = (now_ns >> RTAB_STAMP_SHIFT_NS) & STAMP_MASK;
	uint64_t age = (now - (word >> RTAB_COUNT_BITS)) & STAMP_MASK;

	lease->count = (lease->count + (uint32_t)(word & RTAB_COUNT_MASK)) &
		       (uint32_t)RTAB_COUNT_MASK;
	if (word >> RTAB_COUNT_BITS == 0)
		return; /* never used by this thread */
	if (age > STAMP_MASK / 2)
		age = 0; /* a stamp from after now_ns was taken */
	lease->age = rtab_min_u64(lease->age, age);
}
