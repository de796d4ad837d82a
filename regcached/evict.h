/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which regions to evict: the least recently used ones that free enough.
 *
 * Candidates are offered in any order; a bounded heap with the most recently
 * used on top keeps the oldest ones, no more than needed.  A lease word
 * (shm/layout.h) has 40 bits of time, which wrap after 52 days, and a client
 * writes it, so times are turned into ages first.
 *
 * Pure, no sockets.
 */
#ifndef REGCACHED_EVICT_H
#define REGCACHED_EVICT_H

#include <stdbool.h>
#include <stdint.h>

struct evict_item {
	uint64_t age; /* units of 2^RTAB_STAMP_SHIFT_NS */
	uint64_t bytes;
	uint32_t space;
	uint32_t slot;
};

struct evict_pick {
	struct evict_item *heap; /* owned; youngest first */
	uint32_t n, max, room;
	uint64_t bytes; /* sum of the heap */
	uint64_t want_bytes;
	uint64_t want_regions; /* a batch may be included */
	bool lost; /* no memory for a candidate: fewer than wanted */
};

/* At most max items are kept. */
void evict_init(struct evict_pick *pick, uint64_t want_bytes,
		uint64_t want_regions, uint32_t max);
void evict_deinit(struct evict_pick *pick);

void evict_offer(struct evict_pick *pick, const struct evict_item *item);

/* Sorts what was kept by space, then oldest first; no offers after it. */
void evict_finish(struct evict_pick *pick);

/* What the lease words of one slot add up to, thread by thread. */
struct evict_lease {
	uint64_t age;   /* of the latest use; start with UINT64_MAX */
	uint32_t count; /* mod 2^24 */
};
void evict_lease_add(struct evict_lease *lease, uint64_t word, uint64_t now_ns);

#endif
