/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ledgers: who holds how much budget, in bytes and in regions.
 *
 * A space's ledger has its group's as parent, a group's the node's.  What a
 * space holds (granted and not yet released) is in all three, so the invariant
 *
 *   used of a parent == sum of used of its children,   used <= max
 *
 * holds at every level at all times, except that a reload may put max below
 * used; then nothing is granted until enough came back.
 *
 * Pure arithmetic, no sockets.  Amounts come from peers: nothing here may wrap.
 */
#ifndef REGCACHED_LIMITS_H
#define REGCACHED_LIMITS_H

#include <stdint.h>

enum { LEDGER_BYTES, LEDGER_REGIONS, LEDGER_N_UNITS };

struct ledger {
	struct ledger *parent; /* NULL: the node's */
	uint64_t max[LEDGER_N_UNITS];
	uint64_t used[LEDGER_N_UNITS];
	const char *limit[LEDGER_N_UNITS]; /* option names, static */
	uint64_t blocked; /* reclaim.c: number of the pass that found it full */
};

#define LEDGER_E_FULL 1 /* positive: a named outcome of ledger_take() */

/* Which ledger had not enough, of what, and how much is missing there. */
struct ledger_full {
	struct ledger *ledger;
	int unit;
	uint64_t missing[LEDGER_N_UNITS]; /* in that ledger */
};

void ledger_init(struct ledger *l, struct ledger *parent, const char *limit_bytes,
		 const char *limit_regions);
/* Everything must have been given back. */
void ledger_deinit(struct ledger *l);

/* What l and its parents have left of unit. */
uint64_t ledger_room(const struct ledger *l, int unit);

/*
 * Takes at least need of each unit, and up to chunk where there is plenty: of
 * what a parent has left, a chunk takes an eighth at most, so that one space
 * does not take it all in advance.  0 and ret_got, or LEDGER_E_FULL and
 * *ret_full (nothing was taken).
 */
int ledger_take(struct ledger *l, const uint64_t need[LEDGER_N_UNITS],
		const uint64_t chunk[LEDGER_N_UNITS],
		uint64_t ret_got[LEDGER_N_UNITS], struct ledger_full *ret_full);

/* Gives back; amounts must not be above l->used. */
void ledger_give(struct ledger *l, const uint64_t amount[LEDGER_N_UNITS]);
/* The same with everything that l holds. */
void ledger_give_all(struct ledger *l);

#endif
