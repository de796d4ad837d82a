/* SPDX-License-Identifier: BSD-2-Clause */
/* What miss.c and uncached.c share: one get under way. */
#ifndef REGC_MISS_H
#define REGC_MISS_H

#include <errno.h>

#include "libregc/runtime.h"

#define MISS_ROOM_TRIES 64 /* evictions for one get, when others are faster */

struct miss {
	struct regc_domain *dom;
	struct rt_domain *d;
	struct rt_thread *ts; /* NULL: this thread has no thread slot */
	uint64_t start, end;  /* as asked */
	uint64_t low, high;   /* to register, page aligned */
	uint32_t access;
	bool alone;	      /* do not join with neighbours */
	uint32_t slot;
	uint32_t turn;
	uint64_t gen, table_seq, area_seq; /* samples of step 1 */
	uint64_t lack_bytes;
	uint32_t cause;	      /* why uncached */
	struct regc_lease *lease;
};

/* Adds to a counter of the library of m's domain. */
#define COUNT(m, field, n)                                                   \
	do {                                                                 \
		if ((m)->ts)                                                 \
			(m)->ts->counters[(m)->dom->library].field += (n);   \
		else                                                         \
			rtab_fetch_add(                                      \
				&rt_shared_counters((m)->dom->owner)->field, \
				(n));                                        \
	} while (0)

/* The device says that it is full. */
static inline bool miss_device_full(int r)
{
	return r == -ENOMEM || r == -ENOSPC;
}

/* Before anything else of a get: 0 or the error that it is answered with. */
int miss_prepare(struct miss *m);

/* Makes room in the device among what is cached, the oldest first. */
bool miss_make_room(struct rt_domain *d);

/* A registration for this get alone, undone by uncached_put(). */
int uncached_get(struct miss *m);
void uncached_put(struct uncached *u);

#endif
