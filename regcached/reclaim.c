/* SPDX-License-Identifier: BSD-2-Clause */
/* Needs that wait for budget, and getting it back; see reclaim.h. */
#include "regcached/reclaim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/log.h"
#include "regcached/space.h"
#include "shm/base.h"
#include "shm/segment.h"

#define BATCH_MAX 64	  /* regions evicted beyond the need ... */
#define BATCH_DIVISOR 16  /* ... at most this part of the scope's */
#define READ_A_TURN (256 * 1024) /* bytes of lease words */

struct need {
	struct client *client;
	uint64_t amount[LEDGER_N_UNITS];
	uint64_t ticket;
	uint64_t deadline_ns;
	const char *limit; /* that it waits for */
	struct need *prev, *next;
};

static const uint64_t nothing[LEDGER_N_UNITS];

static void job_end(struct reclaim *r)
{
	broker_del_work(r->broker, &r->work);
	evict_deinit(&r->pick);
	r->scope = NULL;
	r->need = NULL;
}

/* ---- answers ------------------------------------------------------------- */

static void need_free(struct reclaim *r, struct need *need)
{
	if (r->need == need)
		job_end(r);
	DL_DELETE(r->needs, need);
	need->client->n_needs--;
	need->client->user->n_needs--;
	free(need);
}

static void send_deny(struct broker *b, struct client *c, uint64_t ticket,
		      const char *limit)
{
	Regc__Deny deny = REGC__DENY__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	b->stats.denials++;
	deny.ticket = ticket;
	deny.limit = (char *)limit;
	frame.body_case = REGC__FRAME__BODY_DENY;
	frame.deny = &deny;
	client_send(c, &frame);
}

static void send_grant(struct broker *b, struct client *c, uint64_t ticket,
		       const uint64_t got[LEDGER_N_UNITS])
{
	Regc__Grant grant = REGC__GRANT__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	b->stats.grants++;
	grant.ticket = ticket;
	grant.bytes = got[LEDGER_BYTES];
	grant.regions = got[LEDGER_REGIONS];
	frame.body_case = REGC__FRAME__BODY_GRANT;
	frame.grant = &grant;
	client_send(c, &frame);
}

int reclaim_send(struct reclaim *r, struct space *s, uint32_t *slots, uint32_t n,
		 const uint64_t amount[LEDGER_N_UNITS], uint32_t cause,
		 uint32_t limit, uint64_t *ret_ticket)
{
	Regc__Reclaim reclaim = REGC__RECLAIM__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;
	uint32_t i;
	int err;

	reclaim.ticket = ++r->last_ticket;
	reclaim.n_slots = n;
	reclaim.slots = slots;
	reclaim.bytes = amount[LEDGER_BYTES];
	reclaim.regions = amount[LEDGER_REGIONS];
	reclaim.cause = cause;
	frame.body_case = REGC__FRAME__BODY_RECLAIM;
	frame.reclaim = &reclaim;
	err = client_try_send(s->client, &frame);
	if (err)
		return err;
	r->broker->stats.reclaims++;
	for (i = 0; i < n; i++)
		space_note_evicting(s, slots[i], cause, limit);
	if (ret_ticket)
		*ret_ticket = reclaim.ticket;
	return 0;
}

/* ---- whom to ask --------------------------------------------------------- */

static bool is_under(const struct ledger *l, const struct ledger *scope)
{
	while (l && l != scope)
		l = l->parent;
	return l != NULL;
}

/* An answer is still to be expected. */
static bool ask_is_out(struct space *s, uint64_t now)
{
	if (!s->ask.ticket)
		return false;
	if (now < s->ask.until_ns)
		return true;
	log_info("pid %u does not answer a reclaim", s->pid);
	s->broker->stats.unanswered++;
	s->ask.ticket = 0;
	s->ask.silent = true;
	return false;
}

static bool may_ask(const struct space *s, uint64_t now)
{
	return s->attached && !s->client->dead && !s->ask.silent &&
	       (!s->ask.dry_ns || now - s->ask.dry_ns >= RECLAIM_WAIT_NS);
}

static bool more_to_come(struct reclaim *r, const struct ledger *scope,
			 uint64_t now)
{
	struct space *s;

	if (r->scope)
		return true;
	for (s = r->broker->spaces; s; s = s->hh.next)
		if (is_under(&s->ledger, scope) && ask_is_out(s, now))
			return true;
	return false;
}

static void ask(struct reclaim *r, struct space *s, uint32_t *slots, uint32_t n,
		const uint64_t amount[LEDGER_N_UNITS], uint64_t until_ns)
{
	if (reclaim_send(r, s, slots, n, amount, RTAB_CAUSE_EVICTED,
			 r->limit, &s->ask.ticket)) {
		s->ask.silent = true; /* until it reads and says something */
		return;
	}
	s->ask.until_ns = until_ns;
}

/* Asks for budget that is held and not used; missing[] shrinks. */
static void ask_unused(struct reclaim *r, const struct ledger *scope,
		       const struct need *need,
		       uint64_t missing[LEDGER_N_UNITS], uint64_t now)
{
	struct space *s;
	int unit;

	for (s = r->broker->spaces; s; s = s->hh.next) {
		uint64_t amount[LEDGER_N_UNITS], unused;
		bool any = false;

		if (s == need->client->space || !may_ask(s, now) ||
		    !is_under(&s->ledger, scope))
			continue;
		for (unit = 0; unit < LEDGER_N_UNITS; unit++) {
			unused = s->ledger.used[unit] - s->told[unit];
			/* Half of it at once, or they ask for every page. */
			amount[unit] = missing[unit] ? rtab_min_u64(unused,
				rtab_max_u64(missing[unit], unused / 2)) : 0;
			missing[unit] -= rtab_min_u64(missing[unit],
						      amount[unit]);
			any = any || amount[unit];
		}
		if (any)
			ask(r, s, NULL, 0, amount, now + RECLAIM_WAIT_NS);
	}
}

/* ---- the job ------------------------------------------------------------- */

static uint64_t n_live_under(struct reclaim *r, const struct ledger *scope)
{
	struct space *s;
	uint64_t n = 0;

	for (s = r->broker->spaces; s; s = s->hh.next)
		if (is_under(&s->ledger, scope))
			n += s->n_live;
	return n;
}

static void job_start(struct reclaim *r, struct ledger *scope, struct need *need,
		      const uint64_t missing[LEDGER_N_UNITS])
{
	uint64_t batch = rtab_min_u64(n_live_under(r, scope) / BATCH_DIVISOR,
				      BATCH_MAX);

	/* At least one: more may be wanted than is missing, never nothing. */
	evict_init(&r->pick, missing[LEDGER_BYTES],
		   rtab_max_u64(missing[LEDGER_REGIONS], rtab_max_u64(batch, 1)),
		   REGC_WIRE_MAX_SLOTS);
	r->scope = scope;
	r->need = need;
	r->limit = (uint32_t)option_find(need->limit, strlen(need->limit));
	r->space = 0;
	r->slot = 0;
	broker_add_work(r->broker, &r->work);
}

/* Offers the regions of one piece of a space; returns the bytes read. */
static uint64_t offer_chunk(struct reclaim *r, struct space *s, uint32_t first,
			    uint32_t n)
{
	struct evict_lease leases[SPACE_LEASE_CHUNK];
	uint64_t now = rtab_now_ns(), told;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (s->regions[first + i].state == REGION_LIVE)
			break;
	if (i == n)
		return 0;
	space_read_leases(s, first, n, now, leases);
	for (i = 0; i < n; i++) {
		struct region *region = &s->regions[first + i];
		struct evict_item item = {
			.bytes = region_bytes(region),
			.space = s->id,
			.slot = first + i,
		};

		if (region->state != REGION_LIVE || leases[i].count)
			continue;
		told = (now - region->told_ns) >> RTAB_STAMP_SHIFT_NS;
		item.age = rtab_min_u64(leases[i].age, told);
		evict_offer(&r->pick, &item);
	}
	return (uint64_t)n * 8 *
	       (1 + rtab_min_u64(s->area->n_threads, RTAB_N_THREADS));
}

/* Asks the owners of what was picked. */
static void job_ask(struct reclaim *r)
{
	uint32_t slots[REGC_WIRE_MAX_SLOTS], n = 0, i;
	struct evict_item *items = r->pick.heap;

	evict_finish(&r->pick);
	for (i = 0; i < r->pick.n; i++) {
		struct space *s = broker_find_space(r->broker, items[i].space);
		struct region *region = s ? space_region(s, items[i].slot) : NULL;

		if (region && region->state == REGION_LIVE)
			slots[n++] = items[i].slot;
		if (i + 1 < r->pick.n && items[i + 1].space == items[i].space)
			continue;
		if (n) {
			r->broker->stats.evictions += n;
			ask(r, s, slots, n, nothing,
			    rtab_now_ns() + RECLAIM_WAIT_NS);
		}
		n = 0;
	}
}

static void job_finish(struct reclaim *r)
{
	struct ledger *scope = r->scope;
	struct need *need = r->need;

	job_ask(r);
	job_end(r);
	if (need && !more_to_come(r, scope, rtab_now_ns())) {
		send_deny(r->broker, need->client, need->ticket, need->limit);
		need_free(r, need);
	}
	reclaim_serve(r);
}

/* One step: some of the scope's lease words. */
static bool job_step(void *arg)
{
	struct reclaim *r = arg;
	uint64_t read = 0, now = rtab_now_ns();
	uint32_t n_spaces = 0, n;
	struct space *s;

	while (read < READ_A_TURN && n_spaces < 1024) {
		s = broker_space_from(r->broker, r->space);
		if (!s) {
			job_finish(r);
			return r->scope != NULL;
		}
		if (s->id != r->space)
			r->slot = 0;
		r->space = s->id;
		if (!may_ask(s, now) || !is_under(&s->ledger, r->scope) ||
		    r->slot >= s->n_room) {
			r->space++;
			r->slot = 0;
			n_spaces++;
			continue;
		}
		n = (uint32_t)rtab_min_u64(s->n_room - r->slot,
					   SPACE_LEASE_CHUNK);
		read += offer_chunk(r, s, r->slot, n) + 4096;
		r->slot += n;
	}
	return true;
}

/* ---- the queue ----------------------------------------------------------- */

static bool is_blocked(const struct ledger *l, uint64_t pass)
{
	for (; l; l = l->parent)
		if (l->blocked == pass)
			return true;
	return false;
}

/* It cannot be granted now: deny, or see to it that something comes back. */
static void wait_or_deny(struct reclaim *r, struct need *need,
			 struct ledger_full *full, uint64_t now)
{
	uint64_t rest[LEDGER_N_UNITS];

	need->limit = full->ledger->limit[full->unit];
	if (need->amount[full->unit] > full->ledger->max[full->unit] ||
	    now >= need->deadline_ns) {
		send_deny(r->broker, need->client, need->ticket, need->limit);
		need_free(r, need);
		return;
	}
	full->ledger->blocked = r->pass;
	if (more_to_come(r, full->ledger, now))
		return;
	memcpy(rest, full->missing, sizeof(rest));
	ask_unused(r, full->ledger, need, rest, now);
	if (!more_to_come(r, full->ledger, now))
		job_start(r, full->ledger, need, full->missing);
	else if (rest[LEDGER_BYTES] || rest[LEDGER_REGIONS])
		job_start(r, full->ledger, need, rest);
}

void reclaim_run(struct reclaim *r)
{
	uint64_t now, want[LEDGER_N_UNITS], got[LEDGER_N_UNITS];
	struct need *need, *tmp;
	struct ledger_full full;

	if (!r->dirty && reclaim_timeout_ms(r) != 0)
		return;
	r->dirty = false;
	now = rtab_now_ns();
	r->pass++;
	DL_FOREACH_SAFE(r->needs, need, tmp) {
		struct space *s = need->client->space;

		if (need->client->dead ||
		    (now < need->deadline_ns && is_blocked(&s->ledger, r->pass)))
			continue;
		space_want(s, want);
		if (ledger_take(&s->ledger, need->amount, want, got, &full)) {
			wait_or_deny(r, need, &full, now);
			continue;
		}
		space_granted(s, want);
		send_grant(r->broker, need->client, need->ticket, got);
		need_free(r, need);
	}
}

void reclaim_need(struct reclaim *r, struct client *c, uint64_t ticket,
		  const uint64_t amount[LEDGER_N_UNITS])
{
	struct need *need = NULL;

	if (c->n_needs < RECLAIM_MAX_NEEDS &&
	    c->user->n_needs < RECLAIM_MAX_NEEDS_A_USER)
		need = calloc(1, sizeof(*need));
	if (!need) {
		send_deny(r->broker, c, ticket, c->space->ledger.limit[0]);
		return;
	}
	need->client = c;
	need->ticket = ticket;
	memcpy(need->amount, amount, sizeof(need->amount));
	need->deadline_ns = rtab_now_ns() + RECLAIM_WAIT_NS;
	c->n_needs++;
	c->user->n_needs++;
	DL_APPEND(r->needs, need);
	reclaim_serve(r);
}

void reclaim_forget(struct reclaim *r, struct space *s)
{
	struct need *need, *tmp;

	/* Its ledgers may go away with it; whoever still waits starts anew. */
	if (r->scope == &s->ledger || r->scope == s->ledger.parent ||
	    (r->need && r->need->client == s->client))
		job_end(r);
	DL_FOREACH_SAFE(r->needs, need, tmp)
		if (need->client == s->client)
			need_free(r, need);
}

int reclaim_timeout_ms(const struct reclaim *r)
{
	uint64_t now;

	if (!r->needs)
		return -1;
	if (r->dirty)
		return 0;
	now = rtab_now_ns();
	if (now >= r->needs->deadline_ns)
		return 0;
	return (int)((r->needs->deadline_ns - now + 999999) / 1000000);
}

uint32_t reclaim_n_waiting(const struct reclaim *r)
{
	struct need *need;
	uint32_t n = 0;

	DL_FOREACH(r->needs, need)
		n++;
	return n;
}

void reclaim_init(struct reclaim *r, struct broker *b)
{
	memset(r, 0, sizeof(*r));
	r->broker = b;
	r->work.fn = job_step;
	r->work.arg = r;
}

void reclaim_deinit(struct reclaim *r)
{
	struct need *need, *tmp;

	if (r->scope)
		job_end(r);
	DL_FOREACH_SAFE(r->needs, need, tmp)
		need_free(r, need);
}
