/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What happened to the regions of one space, the last so many events.
 *
 * The ring grows by doubling up to its bound, so a space that does little costs
 * little; without memory to grow it forgets earlier.
 */
#ifndef REGCACHED_HISTORY_H
#define REGCACHED_HISTORY_H

#include <stdint.h>

enum history_what {
	HISTORY_ADDED,    /* registered */
	HISTORY_DOMAIN,   /* one more domain */
	HISTORY_VOIDED,   /* cause */
	HISTORY_GONE,     /* the last registration was undone */
	HISTORY_REFUSED,  /* record not accepted; cause */
	HISTORY_EVICTING, /* eviction was asked for; cause */
	HISTORY_NOTE,     /* told by the client; cause */
	HISTORY_N
};

struct history_event {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t start, end;
	uint32_t slot; /* UINT32_MAX: none */
	uint8_t what;   /* enum history_what */
	uint8_t limit;  /* EVICTING: option_id of the limit, else 0 */
	uint8_t cause; /* enum rtab_cause */
	uint8_t library;
};

#define HISTORY_NO_SLOT UINT32_MAX

struct history {
	struct history_event *ring; /* owned */
	uint32_t room, max;
	uint64_t n_ever; /* events ever added */
	uint64_t first;  /* number of the oldest one kept */
};

void history_init(struct history *h, uint32_t max);
void history_deinit(struct history *h);
void history_add(struct history *h, const struct history_event *event);

/* Number of events kept. */
uint32_t history_count(const struct history *h);
/* Kept event i, 0 = the newest; NULL beyond. */
const struct history_event *history_get(const struct history *h, uint32_t i);

const char *history_what_name(uint32_t what);

#endif
