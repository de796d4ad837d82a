/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to regc-ctl: one listing a connection at a time, a page a step.
 *
 * A listing (job) keeps numbers of spaces and slots as its place, never pointers,
 * so whatever goes away between two pages is just not in the rest.  It goes on
 * when the peer has read what was sent; until then it costs nothing.  Those of
 * one user that can go on take turns: together they are one piece of work, so
 * whoever asks on many connections waits for himself (L5).
 *
 * Who sees what: root and the broker's own user everything, others the spaces of
 * their own user (L5).
 */
#ifndef REGCACHED_ADMIN_H
#define REGCACHED_ADMIN_H

#include <stdbool.h>
#include <stdint.h>

#include "libregc/control.pb-c.h"
#include "regcached/history.h"
#include "regcached/work.h"
#include "shm/layout.h"

struct admin_page;
struct broker;
struct client;
struct space;
struct user;

void admin_start(struct client *c, const Regc__Admin *question);
/* The peer may have read what was sent. */
void admin_resume(struct client *c);
void admin_cancel(struct client *c);
/* A user is new, or goes away; his jobs are cancelled by then. */
void admin_user_init(struct user *u);
void admin_user_deinit(struct broker *b, struct user *u);

struct admin_page *admin_page_new(void);
void admin_page_free(struct admin_page *page);

/* ---- for the listings ---------------------------------------------------- */

/* As in control.proto. */
enum { CELL_TEXT, CELL_NUMBER, CELL_BYTES, CELL_ADDRESS, CELL_NS, CELL_YES_NO };

struct admin_column {
	const char *name;
	uint32_t kind;
};

enum admin_step {
	ADMIN_DONE,
	ADMIN_FULL,  /* the page is full: again with the next one */
	ADMIN_AGAIN, /* enough for one turn */
};

/* What regc-ctl sums up for STATS. */
struct admin_sums {
	struct rtab_counters counters;
	struct rtab_transfer_counters transfers;
	uint64_t registrations, clones, deregistrations;
	uint64_t freed_leased, all_voids, pinned_bytes;
	uint64_t regions, bytes;
};

struct admin_job {
	struct client *client;
	struct broker *broker;
	const struct admin_listing *listing;
	struct admin_job *prev, *next; /* of user->jobs */
	bool queued;		       /* there: it can go on */
	/* the question */
	uint32_t pid, access, state;
	char group[64], library[32];
	uint64_t addr, end; /* end 0: no filter */
	/* the place */
	uint32_t space, at;
	uint64_t stuck_ns; /* FLUSH: since when the space's socket is full */
	uint64_t event; /* EXPLAIN: events below are still to come */
	bool begun;
	char text[768];
	int err;
	uint64_t n_regions, n_spaces;
	struct admin_sums sums;
};

struct admin_listing {
	const struct admin_column *columns;
	uint32_t n_columns;
	enum admin_step (*step)(struct admin_job *job, struct admin_page *page);
};

extern const struct admin_listing admin_listings[]; /* by AdminKind */
extern const uint32_t admin_n_listings;
extern const struct admin_listing admin_explain;
extern const struct admin_listing admin_stats;
extern const struct admin_listing admin_transfers;

/* Is s one that the asker may see and asked for? */
bool admin_wants(const struct admin_job *job, const struct space *s);
/* The next such space from job->space on, or NULL. */
struct space *admin_next_space(struct admin_job *job);

/*
 * A row: begin, one call for each column in order, end.  False: there was no room
 * for it, and it is not in the page.  Text is copied.
 */
void page_begin_row(struct admin_page *page);
void page_text(struct admin_page *page, const char *text);
void page_number(struct admin_page *page, uint64_t number);
bool page_end_row(struct admin_page *page);

/* Counters of all libraries of s; returns how many there are. */
uint32_t admin_sum_libraries(const struct space *s, struct rtab_counters *sum);
/* A cell: hits of all gets, in percent. */
void admin_page_rate(struct admin_page *page, const struct rtab_counters *c);

/* "0.1 s", "12 s", "3 min" ...; returns buf. */
char *admin_duration(uint64_t ns, char *buf, size_t size);

#endif
