/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A space: one process, its table, its area, and what the broker knows of it.
 *
 * States: made at Hello (table), attached at Attach (area, userfaultfd), freed
 * when the process ends, closes its connection or breaks the protocol.
 *
 * States of a region here (struct region.state), by records of the ring, by
 * events and by nothing else:
 *
 *   NONE --ADD--> LIVE --VOID, event--> VOID --DEL--> NONE
 *                   \________DEL (voids first)________/
 *
 * LIVE: told in the table (shm/table.h).  LIVE and VOID: charged, told[] counts
 * it, because the memory is pinned until the client undid the registration.
 * Invariant: told[] <= ledger.used[], or a record is refused.
 *
 * Everything in the area is hostile: copied once, checked, and the copy used.
 */
#ifndef REGCACHED_SPACE_H
#define REGCACHED_SPACE_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "regcached/evict.h"
#include "regcached/history.h"
#include "regcached/limits.h"
#include "shm/layout.h"
#include "shm/table.h"

struct broker;
struct client;
struct group;
struct uffd;

#define SPACE_PROGRAM_BYTES 64
#define SPACE_LEASE_CHUNK 1024 /* slots read at a time */
#define SPACE_READY_FREE (2 * RTAB_READY_STEP) /* slots without charge */
#define SPACE_CHUNK_DIVISOR 8  /* of the limit, granted ahead */
#define SPACE_CHUNK_MIN_BYTES (UINT64_C(64) << 20)
#define SPACE_CHUNK_MIN_REGIONS 1024
#define SPACE_CHUNK_FIRST_BYTES (UINT64_C(8) << 20) /* twice that next time ... */
#define SPACE_CHUNK_FIRST_REGIONS 1024

enum { REGION_NONE, REGION_LIVE, REGION_VOID };

struct region {
	uint64_t start, end;
	uint64_t told_ns; /* CLOCK_MONOTONIC */
	uint32_t access;
	uint16_t domains; /* one bit each */
	uint8_t library;
	uint8_t state;
};

/* A Reclaim that is out. */
struct space_ask {
	uint64_t ticket;   /* 0: none */
	uint64_t until_ns; /* who does not answer by then is silent */
	uint64_t dry_ns;   /* when it last had nothing to give */
	bool silent;	   /* did not answer in time and said nothing since */
};

struct space {
	struct broker *broker;
	struct client *client;
	struct group *group;
	uint32_t id, pid, uid;
	char program[SPACE_PROGRAM_BYTES]; /* escaped */
	struct ledger ledger;
	uint64_t chunk[LEDGER_N_UNITS];	    /* to be had ahead now */
	uint64_t chunk_max[LEDGER_N_UNITS]; /* and ever */
	struct rtab_writer writer;
	uint32_t hello_capacity; /* of the area, as said then; 0: as told */

	/* from Attach on */
	bool attached;
	char why[128]; /* escaped */
	const struct rtab_area *area; /* its first 32 KiB, read-only */
	int area_fd;
	uint32_t area_capacity;
	uint64_t ring_tail; /* as published */
	struct uffd *uffd;  /* or NULL */

	struct region *regions; /* by slot, grown in steps */
	uint32_t n_room, n_live;
	uint64_t told[LEDGER_N_UNITS];
	struct history history;
	struct space_ask ask;
	uint64_t attached_ns;
	uint64_t record_ns; /* of the record that is being read, 0: none */
	uint64_t n_records, n_rejected, n_voided, n_evicted;
	UT_hash_handle hh;
};

/*
 * For Hello: numbered, in its group, with a table of at most capacity slots.
 * -EINVAL: group name; -EDQUOT, -ENOMEM, -errno.
 */
int space_new(struct broker *b, struct client *c, const char *group,
	      const char *program, uint32_t capacity, struct space **ret);

/*
 * For Attach: checks and takes the area (and the userfaultfd, if >= 0); both
 * descriptors are taken on success only.  -EPROTO, -ENOMEM, -errno.
 */
int space_attach(struct space *s, const char *why, int area_fd, int uffd_fd);

/* Voids everything for good (table->closed), then frees.  NULL is allowed. */
struct space *space_free(struct space *s);

void space_set_limits(struct space *s);

/*
 * What s may have ahead: enough for a chunk of what is not told.  Each grant that
 * gave some doubles the chunk, so whoever only attached holds little.
 */
void space_want(const struct space *s, uint64_t ret[LEDGER_N_UNITS]);
void space_granted(struct space *s, const uint64_t want[LEDGER_N_UNITS]);

/* Slots that both the table and the area have. */
uint32_t space_n_slots(const struct space *s);

/* Region of slot, or NULL if nothing was ever there. */
struct region *space_region(struct space *s, uint32_t slot);

static inline uint64_t region_bytes(const struct region *r)
{
	return r->end - r->start;
}

/*
 * Acts on the records that are in the ring now (RTAB_N_RING at most).  Returns
 * their number, or -EPROTO: the ring makes no sense.
 */
int space_drain(struct space *s);

bool space_ring_pending(const struct space *s);

/* Voids slot, told or blank, and notes why; does not tell the client. */
void space_void(struct space *s, uint32_t slot, uint32_t cause);

/*
 * Voids the told regions that overlap [start, end), about *budget of them, and
 * tells the client.  True: done.
 */
bool space_void_range(struct space *s, uint64_t start, uint64_t end,
		      uint32_t cause, uint32_t *budget);

/* The owner of a live region was asked to evict it, for limit (option_id). */
void space_note_evicting(struct space *s, uint32_t slot, uint32_t cause,
			 uint32_t limit);

/* Voids every slot that is not told: registrations that are being made. */
void space_void_blank(struct space *s);

/* Lease words of slots [first, first + n), summed; n <= SPACE_LEASE_CHUNK. */
void space_read_leases(const struct space *s, uint32_t first, uint32_t n,
		       uint64_t now_ns, struct evict_lease *ret);

void counters_add(struct rtab_counters *sum, const struct rtab_counters *c);

/* Counters of all libraries, summed over threads, ret[RTAB_N_LIBRARIES]. */
void space_read_counters(const struct space *s, struct rtab_counters *ret);

/* Name of a library as the client says it, escaped; returns buf. */
char *space_library_name(const struct space *s, uint32_t library, char *buf,
			 size_t size);
/* The same for a text field of the area. */
char *space_area_text(const char *text, size_t n, char *buf, size_t size);

#endif
