/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The struct ibv_mr that programs hold: all in one array, so that an address
 * tells whose it is.  Free ones are on a list without a lock, whose head has a
 * count beside it that no two states share (ABA).
 */
#include "libregc/preload/preload.h"

#include <string.h>

#include "shm/atomic.h"

#define N_MRS 131072u /* 16 MiB, which is there only as far as it is used */

static struct mr mrs[N_MRS];
static uint32_t n_ever;	   /* the rest was never used; may pass N_MRS */
static uint64_t free_head; /* count << 32 | number + 1, or 0 */

static struct mr *pop(void)
{
	uint64_t head = rtab_load_acquire(&free_head), next;
	uint32_t at;

	do {
		at = (uint32_t)head;
		if (!at)
			return NULL;
		next = ((head >> 32) + 1) << 32 |
		       rtab_load_relaxed(&mrs[at - 1].next);
	} while (!rtab_cas(&free_head, &head, next));
	return &mrs[at - 1];
}

struct mr *mr_take(void)
{
	struct mr *m = pop();
	uint32_t at;

	if (!m && rtab_load_relaxed(&n_ever) < N_MRS) {
		at = rtab_fetch_add(&n_ever, 1);
		if (at < N_MRS)
			m = &mrs[at];
	}
	return m;
}

void mr_give_back(struct mr *m)
{
	uint64_t head = rtab_load_acquire(&free_head), next;

	rtab_store_release(&m->used, 0);
	do {
		rtab_store_relaxed(&m->next, (uint32_t)head);
		next = ((head >> 32) + 1) << 32 | (uint32_t)(m - mrs + 1);
	} while (!rtab_cas(&free_head, &head, next));
}

struct mr *mr_of(struct ibv_mr *mr)
{
	uintptr_t offset = (uintptr_t)mr - (uintptr_t)mrs;

	return offset < sizeof(mrs) ? &mrs[offset / sizeof(mrs[0])] : NULL;
}

struct mr *mr_next(struct mr *last, const struct ibv_pd *pd)
{
	uint32_t n = rtab_load_acquire(&n_ever);
	struct mr *m = last ? last + 1 : mrs;

	for (; m < mrs + (n < N_MRS ? n : N_MRS); m++)
		if (rtab_load_acquire(&m->used) && m->mr.pd == pd)
			return m;
	return NULL;
}
