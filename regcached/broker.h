/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The broker: owns the objects and wires them together.
 *
 *   listener -> client (a connection) -> space (a process) -> uffd
 *                                          |  regions, history, ledger
 *                                        group (user and name), ledger
 *                                          |
 *                                        node ledger
 *   reclaim: Needs that wait, and the eviction that is under way
 *   admin:   listings that are under way, one a connection, in turns a user
 *   aside:   the few calls that may wait for a client, in threads
 *
 * One turn of the loop
 *   1. pieces of work (struct work) get a bounded step each, in turns, until the
 *      slice of this turn is over; the rest is first in the next one
 *   2. connections that are to end are freed (only here)
 *   3. life->asleep = 1, then every request ring is looked at (label B1), until a
 *      slice is over: then the rest is first in the next turn
 *   4. wait: not at all if there is work left, until the next deadline if a Need
 *      waits, else for ever: an idle broker has no timer
 *   5. life->asleep = 0, handlers of what is ready
 * A handler does a bounded amount of work whatever the peer sends (L5).
 *
 * Locks: only the one inside aside.c; the rest is one thread.
 */
#ifndef REGCACHED_BROKER_H
#define REGCACHED_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "libregc/wire.h"
#include "regcached/aside.h"
#include "regcached/life.h"
#include "regcached/limits.h"
#include "regcached/listener.h"
#include "regcached/loop.h"
#include "regcached/options.h"
#include "regcached/reclaim.h"
#include "regcached/work.h"
#include "shm/layout.h"

struct admin_page;
struct client;
struct group;
struct space;

/* Connections of one user, and the questions on them. */
struct user {
	uint32_t uid;
	uint32_t n_connections;
	uint32_t n_needs; /* reclaim.c */
	struct admin_job *jobs; /* utlist; of these one is worked on, in turns */
	struct work work;	/* admin.c */
	UT_hash_handle hh;
};

struct broker_stats {
	uint64_t connections; /* ever accepted */
	uint64_t refused;     /* connections and Hellos over a limit */
	uint64_t attached;    /* spaces ever attached */
	uint64_t dropped;     /* connections ended for breaking the protocol */
	uint64_t records;     /* request ring records read */
	uint64_t rejected;    /* of these, refused */
	uint64_t events_unmap, events_remap, events_remove;
	uint64_t events_fault, events_other, events_lost;
	uint64_t voids[RTAB_N_CAUSES];
	uint64_t grants, denials, reclaims, evictions;
	uint64_t unanswered; /* reclaims without an answer in time */
	uint64_t rescans;
	uint64_t turns;
};

/* Slots to be told to one client in one message. */
struct voided_batch {
	struct client *client;
	uint32_t cause;
	uint32_t n;
	uint32_t slots[REGC_WIRE_MAX_SLOTS];
};

struct broker {
	struct loop loop;
	struct options options;
	struct life life;
	struct listener listener;
	struct loop_source listen_source;
	struct ledger node;
	struct reclaim reclaim;
	struct aside *aside;

	struct client *clients; /* utlist */
	struct client *dying;	/* utlist: to be freed in this turn */
	struct space *spaces;	/* uthash by id, in order of id */
	uint64_t stamped_ns;	/* set_stamps() */
	struct group *groups;	/* uthash by key */
	struct user *users;	/* uthash by uid */
	struct work *work;	/* utlist */
	uint32_t drain_from;	/* id of the space whose ring is next */
	uint64_t slice_end_ns;	/* of what work may take in this turn */
	uint32_t n_clients, n_spaces, n_attached;
	uint32_t max_clients; /* by descriptors */
	uint32_t n_ready;     /* slots that count, see space.c */
	uint32_t last_space_id;
	int uffd_device; /* /dev/userfaultfd, or -1 */
	uid_t uid;	 /* the broker's own */
	uint64_t started_ns;
	struct broker_stats stats;

	struct voided_batch voided;
	struct admin_page *page;
	struct regc_wire wire;
	uint8_t scratch[REGC_WIRE_MAX_BYTES];
};

/*
 * Makes everything and listens.  options are copied; path: of the socket.  On
 * failure one error was logged.  *ret is the caller's.
 */
int broker_new(const struct options *options, const char *path,
	       struct broker **ret);
/* Ends every connection and removes the socket; NULL is allowed. */
struct broker *broker_free(struct broker *b);

/* One turn of the loop, as above. */
void broker_turn(struct broker *b);

/* Limits and the rest of new options apply from now on. */
void broker_apply_options(struct broker *b, const struct options *options);

static inline uint64_t broker_option(const struct broker *b, enum option_id id)
{
	return b->options.value[id];
}

void broker_add_work(struct broker *b, struct work *w);
void broker_del_work(struct broker *b, struct work *w);
/* A step that could go on should end. */
bool broker_slice_is_over(const struct broker *b);

/* Are there descriptors for the connections that there are, one of uid's? */
bool broker_has_fds(const struct broker *b, uint32_t uid);
/* How many uid may have: no user but the broker's and root takes them all. */
uint64_t broker_user_connections(const struct broker *b, uint32_t uid);

/* The space with the least id >= id, or NULL. */
struct space *broker_space_from(struct broker *b, uint32_t id);
struct space *broker_find_space(struct broker *b, uint32_t id);

#endif
