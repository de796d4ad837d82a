/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Needs that wait for budget, and getting it back from those who have it.
 *
 * A Need that cannot be granted waits in one queue, oldest first.  For the first
 * one whose blocking ledger has no Reclaim under way, in this order:
 *   1. budget that spaces under that ledger hold and do not use is asked back;
 *   2. if that is not enough, regions without lease are picked, least recently
 *      used first, by reading the lease words a piece a turn (a job), and their
 *      owners are asked to evict them.
 * A turn in which something came back serves the queue again, once.  A Need ends with Grant,
 * or with Deny when nothing is left to ask back, or 150 ms after it came.  A space
 * that did not answer by then is not asked again until it says something.
 *
 * A younger Need does not overtake an older one that waits for the same ledger.
 */
#ifndef REGCACHED_RECLAIM_H
#define REGCACHED_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "regcached/evict.h"
#include "regcached/limits.h"
#include "regcached/work.h"

struct broker;
struct client;
struct ledger;
struct need;
struct space;

#define RECLAIM_WAIT_NS UINT64_C(150000000)
#define RECLAIM_MAX_NEEDS 64 /* of one client at a time */
#define RECLAIM_MAX_NEEDS_A_USER 2048

struct reclaim {
	struct broker *broker;
	struct need *needs; /* utlist, oldest first */
	uint64_t pass;	    /* number of the pass over the queue */
	uint64_t last_ticket;
	bool dirty; /* the queue is to be looked at, once a turn */
	/* the job */
	struct ledger *scope; /* NULL: no job */
	struct need *need;    /* for which */
	uint32_t limit;	      /* option_id, for the history */
	struct evict_pick pick;
	struct work work;
	uint32_t space, slot; /* how far it came */
};

void reclaim_init(struct reclaim *r, struct broker *b);
void reclaim_deinit(struct reclaim *r);

/* A Need of a client that is attached: Grant, Deny, or it waits. */
void reclaim_need(struct reclaim *r, struct client *c, uint64_t ticket,
		  const uint64_t amount[LEDGER_N_UNITS]);

/* Something came back: the queue is looked at once more in this turn. */
static inline void reclaim_serve(struct reclaim *r)
{
	r->dirty = true;
}

/* Grants and denies, if something came back or a deadline passed. */
void reclaim_run(struct reclaim *r);

/* A space goes away: its Needs, its part in the job. */
void reclaim_forget(struct reclaim *r, struct space *s);

/* Milliseconds until the next deadline, -1: none. */
int reclaim_timeout_ms(const struct reclaim *r);

uint32_t reclaim_n_waiting(const struct reclaim *r);

/*
 * Asks the owner of s to evict n slots (REGC_WIRE_MAX_SLOTS at most) and to give
 * back amount besides; limit (option_id) is for its history.  0, or -EAGAIN: its
 * socket is full.  *ret_ticket may be NULL.
 */
int reclaim_send(struct reclaim *r, struct space *s, uint32_t *slots, uint32_t n,
		 const uint64_t amount[LEDGER_N_UNITS], uint32_t cause,
		 uint32_t limit, uint64_t *ret_ticket);

#endif
