/* SPDX-License-Identifier: BSD-2-Clause */
/* Ledgers: who holds how much budget; see limits.h. */
#include "regcached/limits.h"

#include <assert.h>
#include <string.h>

#include "shm/base.h"

#define SHARE 8 /* a chunk takes 1/SHARE of what is left at most ... */
#define SHARE_MIN_BYTES (UINT64_C(1) << 20) /* ... but this is not shared */
#define SHARE_MIN_REGIONS 16

void ledger_init(struct ledger *l, struct ledger *parent, const char *limit_bytes,
		 const char *limit_regions)
{
	memset(l, 0, sizeof(*l));
	l->parent = parent;
	l->limit[LEDGER_BYTES] = limit_bytes;
	l->limit[LEDGER_REGIONS] = limit_regions;
}

void ledger_deinit(struct ledger *l)
{
	assert(l->used[LEDGER_BYTES] == 0 && l->used[LEDGER_REGIONS] == 0);
}

static uint64_t room_here(const struct ledger *l, int unit)
{
	return l->max[unit] > l->used[unit] ? l->max[unit] - l->used[unit] : 0;
}

uint64_t ledger_room(const struct ledger *l, int unit)
{
	uint64_t room = UINT64_MAX;

	for (; l; l = l->parent)
		room = rtab_min_u64(room, room_here(l, unit));
	return room;
}

/* The innermost ledger with less than need; NULL: all have enough. */
static struct ledger *find_full(struct ledger *l, int unit, uint64_t need)
{
	for (; l; l = l->parent)
		if (room_here(l, unit) < need)
			return l;
	return NULL;
}

/* What may be had beyond the need: see ledger_take(). */
static uint64_t share_of(const struct ledger *l, int unit)
{
	uint64_t least = unit == LEDGER_BYTES ? SHARE_MIN_BYTES :
						SHARE_MIN_REGIONS;
	uint64_t share = room_here(l, unit), room;

	for (l = l->parent; l; l = l->parent) {
		room = room_here(l, unit);
		share = rtab_min_u64(share, rtab_max_u64(room / SHARE,
						  rtab_min_u64(room, least)));
	}
	return share;
}

int ledger_take(struct ledger *l, const uint64_t need[LEDGER_N_UNITS],
		const uint64_t chunk[LEDGER_N_UNITS],
		uint64_t ret_got[LEDGER_N_UNITS], struct ledger_full *ret_full)
{
	uint64_t got[LEDGER_N_UNITS], room;
	struct ledger *full = NULL, *up;
	int unit, other;

	for (unit = 0; unit < LEDGER_N_UNITS && !full; unit++)
		full = find_full(l, unit, need[unit]);
	if (full) {
		ret_full->ledger = full;
		ret_full->unit = unit - 1;
		for (other = 0; other < LEDGER_N_UNITS; other++) {
			room = room_here(full, other);
			ret_full->missing[other] =
				need[other] > room ? need[other] - room : 0;
		}
		return LEDGER_E_FULL;
	}
	for (unit = 0; unit < LEDGER_N_UNITS; unit++)
		got[unit] = rtab_max_u64(need[unit],
					 rtab_min_u64(chunk[unit],
						      share_of(l, unit)));
	for (up = l; up; up = up->parent)
		for (unit = 0; unit < LEDGER_N_UNITS; unit++)
			up->used[unit] += got[unit];
	memcpy(ret_got, got, sizeof(got));
	return 0;
}

void ledger_give(struct ledger *l, const uint64_t amount[LEDGER_N_UNITS])
{
	int unit;

	for (; l; l = l->parent)
		for (unit = 0; unit < LEDGER_N_UNITS; unit++) {
			assert(l->used[unit] >= amount[unit]);
			l->used[unit] -= amount[unit];
		}
}

void ledger_give_all(struct ledger *l)
{
	uint64_t amount[LEDGER_N_UNITS];

	memcpy(amount, l->used, sizeof(amount)); /* used changes on the way */
	ledger_give(l, amount);
}
