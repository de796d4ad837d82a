/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slots of this process and the order of those that are being made or live.
 *
 * The order is one treap an access, over slot numbers, by start address, with
 * the hash of the slot number as priority; it lives in the slots themselves and
 * allocates nothing.  Regions of one access never overlap; regions of different
 * access may.  Only for the slow path, under the cache lock: hits and hooks use
 * the index of the table.
 */
#include "libregc/runtime.h"

#include <sys/mman.h>

int slots_init(uint32_t capacity)
{
	uint32_t c;
	int err = 0;

	rt.slots = rtab_raw_mmap(NULL, (uint64_t)capacity * sizeof(struct rt_slot),
				 PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				 0, &err);
	if (!rt.slots)
		return err;
	rtab_raw_madvise(rt.slots, (uint64_t)capacity * sizeof(struct rt_slot),
			 MADV_DONTFORK);
	for (c = 0; c < RTAB_N_CLASSES; c++)
		rt.roots[c] = RT_NO_SLOT;
	rt.n_classes = 0;
	rt.free_list.head = RT_NO_SLOT;
	rt.void_list.head = RT_NO_SLOT;
	rt.limbo_list.head = RT_NO_SLOT;
	return 0;
}

void list_push(struct rt_list *list, uint32_t slot)
{
	rt.slots[slot].next = RT_NO_SLOT;
	if (list->head == RT_NO_SLOT)
		list->head = slot;
	else
		rt.slots[list->tail].next = slot;
	list->tail = slot;
	rtab_store_relaxed(&list->n, list->n + 1);
}

uint32_t list_pop(struct rt_list *list)
{
	uint32_t slot = list->head;

	if (slot != RT_NO_SLOT) {
		list->head = rt.slots[slot].next;
		rtab_store_relaxed(&list->n, list->n - 1);
	}
	return slot;
}

void slots_start_over(void)
{
	uint32_t slot;

	rt.free_list.head = RT_NO_SLOT;
	rt.limbo_list.head = RT_NO_SLOT;
	rtab_store_relaxed(&rt.free_list.n, 0);
	rtab_store_relaxed(&rt.limbo_list.n, 0);
	for (slot = 0; slot < rt.n_slots; slot++)
		if (rt.slots[slot].state == RT_FREE ||
		    rt.slots[slot].state == RT_LIMBO)
			slots_give_back(slot);
}

void slots_end_limbo(void)
{
	uint64_t tail = rtab_load_acquire(&rt.table.table->ring_tail);

	while (rt.limbo_list.head != RT_NO_SLOT &&
	       (int64_t)(tail - rt.slots[rt.limbo_list.head].limbo_tail) >= 0)
		slots_give_back(list_pop(&rt.limbo_list));
}

uint32_t slots_take(void)
{
	uint32_t ready = rtab_load_acquire(&rt.table.table->slots_ready);
	uint32_t slot;

	slots_end_limbo();
	if (rt.free_list.head != RT_NO_SLOT && rt.free_list.head < ready)
		slot = list_pop(&rt.free_list);
	else if (rt.n_slots < ready && rt.n_slots < rt.area.capacity)
		slot = rt.n_slots++;
	else
		return RT_NO_SLOT;
	rt.slots[slot].left = RT_NO_SLOT;
	rt.slots[slot].right = RT_NO_SLOT;
	rt.slots[slot].domains = 0;
	rt.slots[slot].parked = 0;
	rt.slots[slot].busy = 0;
	rt.slots[slot].waited = 0;
	rt.slots[slot].shared = 0;
	return slot;
}

void slots_give_back(uint32_t slot)
{
	rt.slots[slot].state = RT_FREE;
	list_push(&rt.free_list, slot);
}

bool slot_is_live(uint32_t slot)
{
	uint64_t gen = rtab_load_acquire(&rt.table.gens[slot]);
	uint32_t domains = rt.slots[slot].domains, d;

	for (d = 0; domains; d++, domains >>= 1)
		if ((domains & 1) &&
		    rtab_load_acquire(&rtab_area_regs(&rt.area, d)[slot].live_gen) !=
			    gen)
			return false;
	return true;
}

/* ---- order -------------------------------------------------------------- */

int slots_class(uint32_t access)
{
	uint32_t c;

	for (c = 0; c < rt.n_classes; c++)
		if (rt.class_access[c] == access)
			return (int)c;
	if (c == RTAB_N_CLASSES)
		return -ENOSPC;
	rt.class_access[c] = access;
	rt.n_classes++;
	return (int)c;
}

uint32_t slots_floor(uint32_t cls, uint64_t addr)
{
	uint32_t at = rt.roots[cls], best = RT_NO_SLOT;

	while (at != RT_NO_SLOT) {
		if (rt.slots[at].start <= addr) {
			best = at;
			at = rt.slots[at].right;
		} else {
			at = rt.slots[at].left;
		}
	}
	return best;
}

/* Smallest start above addr. */
static uint32_t slots_above(uint32_t cls, uint64_t addr)
{
	uint32_t at = rt.roots[cls], best = RT_NO_SLOT;

	while (at != RT_NO_SLOT) {
		if (rt.slots[at].start > addr) {
			best = at;
			at = rt.slots[at].left;
		} else {
			at = rt.slots[at].right;
		}
	}
	return best;
}

uint32_t slots_next_overlap(uint32_t cls, uint64_t start, uint64_t end,
			    uint32_t last)
{
	uint32_t slot = last == RT_NO_SLOT ?
				slots_floor(cls, start) :
				slots_above(cls, rt.slots[last].start);

	if (last == RT_NO_SLOT &&
	    (slot == RT_NO_SLOT || rt.slots[slot].end <= start))
		slot = slots_above(cls, start);
	if (slot == RT_NO_SLOT || rt.slots[slot].start >= end)
		return RT_NO_SLOT;
	return slot;
}

static uint32_t priority(uint32_t slot)
{
	uint32_t x = slot * UINT32_C(2654435761);

	x ^= x >> 15;
	return x * UINT32_C(2246822519);
}

static bool before(uint32_t a, uint32_t b)
{
	return rt.slots[a].start < rt.slots[b].start;
}

/* Splits tree into what is before slot and what is not. */
static void split(uint32_t tree, uint32_t slot, uint32_t *ret_low,
		  uint32_t *ret_high)
{
	while (tree != RT_NO_SLOT) {
		if (before(tree, slot)) {
			*ret_low = tree;
			ret_low = &rt.slots[tree].right;
			tree = *ret_low;
		} else {
			*ret_high = tree;
			ret_high = &rt.slots[tree].left;
			tree = *ret_high;
		}
	}
	*ret_low = RT_NO_SLOT;
	*ret_high = RT_NO_SLOT;
}

void slots_link(uint32_t slot)
{
	uint32_t *link = &rt.roots[rt.slots[slot].cls];

	while (*link != RT_NO_SLOT && priority(*link) >= priority(slot))
		link = before(*link, slot) ? &rt.slots[*link].right :
					     &rt.slots[*link].left;
	split(*link, slot, &rt.slots[slot].left, &rt.slots[slot].right);
	*link = slot;
}

void slots_unlink(uint32_t slot)
{
	uint32_t *link = &rt.roots[rt.slots[slot].cls], a, b;

	while (*link != slot) {
		if (*link == RT_NO_SLOT)
			return;
		link = before(*link, slot) ? &rt.slots[*link].right :
					     &rt.slots[*link].left;
	}
	a = rt.slots[slot].left;
	b = rt.slots[slot].right;
	while (a != RT_NO_SLOT && b != RT_NO_SLOT) {
		if (priority(a) >= priority(b)) {
			*link = a;
			link = &rt.slots[a].right;
			a = *link;
		} else {
			*link = b;
			link = &rt.slots[b].left;
			b = *link;
		}
	}
	*link = a != RT_NO_SLOT ? a : b;
}
