/* SPDX-License-Identifier: BSD-2-Clause */
/* What happened to the regions of one space; see history.h. */
#include "regcached/history.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_START 32

void history_init(struct history *h, uint32_t max)
{
	memset(h, 0, sizeof(*h));
	h->max = max;
}

void history_deinit(struct history *h)
{
	free(h->ring);
	memset(h, 0, sizeof(*h));
}

uint32_t history_count(const struct history *h)
{
	return (uint32_t)(h->n_ever - h->first);
}

/* More room; event number k is in place k % room, before and after. */
static void grow(struct history *h)
{
	uint32_t room = h->room ? h->room * 2 : ROOM_START, n, i;
	struct history_event *ring;

	if (room > h->max)
		room = h->max;
	if (room <= h->room)
		return;
	ring = malloc((size_t)room * sizeof(*ring));
	if (!ring)
		return;
	n = history_count(h);
	for (i = 0; i < n; i++)
		ring[(h->first + i) % room] = h->ring[(h->first + i) % h->room];
	free(h->ring);
	h->ring = ring;
	h->room = room;
}

void history_add(struct history *h, const struct history_event *event)
{
	if (history_count(h) == h->room)
		grow(h);
	if (!h->room) {
		h->n_ever++;
		h->first = h->n_ever;
		return;
	}
	if (history_count(h) == h->room)
		h->first++;
	h->ring[h->n_ever % h->room] = *event;
	h->n_ever++;
}

const struct history_event *history_get(const struct history *h, uint32_t i)
{
	if (i >= history_count(h))
		return NULL;
	return &h->ring[(h->n_ever - 1 - i) % h->room];
}

const char *history_what_name(uint32_t what)
{
	static const char *const names[HISTORY_N] = {
		[HISTORY_ADDED] = "registered",
		[HISTORY_DOMAIN] = "domain added",
		[HISTORY_VOIDED] = "voided",
		[HISTORY_GONE] = "deregistered",
		[HISTORY_REFUSED] = "refused",
		[HISTORY_EVICTING] = "asked back",
		[HISTORY_NOTE] = "note",
	};

	return what < HISTORY_N ? names[what] : "unknown";
}
