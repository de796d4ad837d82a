/* SPDX-License-Identifier: BSD-2-Clause */
/* The listing of counters: of clients, summed up, and of the broker. */
#include "regcached/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "regcached/broker.h"
#include "regcached/group.h"
#include "regcached/space.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/cause.h"

static const struct admin_column columns[] = {
	{ "spaces", CELL_NUMBER },
	{ "regions", CELL_NUMBER },
	{ "bytes", CELL_BYTES },
	{ "pinned_bytes", CELL_BYTES },
	{ "hits", CELL_NUMBER },
	{ "misses", CELL_NUMBER },
	{ "uncached", CELL_NUMBER },
	{ "failed", CELL_NUMBER },
	{ "puts", CELL_NUMBER },
	{ "hit_rate", CELL_TEXT },
	{ "restarts", CELL_NUMBER },
	{ "waits", CELL_NUMBER },
	{ "reg_ns", CELL_NS },
	{ "registrations", CELL_NUMBER },
	{ "clones", CELL_NUMBER },
	{ "deregistrations", CELL_NUMBER },
	{ "freed_leased", CELL_NUMBER },
	{ "all_voids", CELL_NUMBER },
	{ "transfers", CELL_NUMBER },
	{ "transfers_refused", CELL_NUMBER },
	{ "accesses_blocked", CELL_NUMBER },
	{ "blocked_ns", CELL_NS },
	{ "transfers_copied", CELL_NUMBER },
	{ "transfers_damaged", CELL_NUMBER },
	{ "transfers_timed_out", CELL_NUMBER },
	{ "transfers_detached", CELL_NUMBER },
	/* of the broker since it started, whatever was asked for */
	{ "connections", CELL_NUMBER },
	{ "refused", CELL_NUMBER },
	{ "attached", CELL_NUMBER },
	{ "dropped", CELL_NUMBER },
	{ "records", CELL_NUMBER },
	{ "records_rejected", CELL_NUMBER },
	{ "events_unmap", CELL_NUMBER },
	{ "events_remap", CELL_NUMBER },
	{ "events_remove", CELL_NUMBER },
	{ "events_fault", CELL_NUMBER },
	{ "events_other", CELL_NUMBER },
	{ "events_lost", CELL_NUMBER },
	{ "grants", CELL_NUMBER },
	{ "denials", CELL_NUMBER },
	{ "reclaims", CELL_NUMBER },
	{ "reclaims_unanswered", CELL_NUMBER },
	{ "evictions", CELL_NUMBER },
	{ "rescans", CELL_NUMBER },
	{ "turns", CELL_NUMBER },
	{ "voids", CELL_TEXT },
};

static void add_transfers(struct rtab_transfer_counters *sum, const struct space *s)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_LIBRARIES; i++) {
		const struct rtab_transfer_counters *c =
			&s->area->transfer_counters[i];

		/* relaxed: for show */
		sum->begun += rtab_load_relaxed(&c->begun);
		sum->refused += rtab_load_relaxed(&c->refused);
		sum->blocked += rtab_load_relaxed(&c->blocked);
		sum->blocked_ns += rtab_load_relaxed(&c->blocked_ns);
		sum->copied += rtab_load_relaxed(&c->copied);
		sum->damaged += rtab_load_relaxed(&c->damaged);
		sum->timed_out += rtab_load_relaxed(&c->timed_out);
		sum->detached += rtab_load_relaxed(&c->detached);
	}
}

static void stats_add(struct admin_sums *sums, const struct space *s)
{
	const struct rtab_area *area = s->area;
	struct rtab_counters c;

	admin_sum_libraries(s, &c);
	counters_add(&sums->counters, &c);
	add_transfers(&sums->transfers, s);
	/* relaxed: for show */
	sums->registrations += rtab_load_relaxed(&area->regs);
	sums->clones += rtab_load_relaxed(&area->clones);
	sums->deregistrations += rtab_load_relaxed(&area->deregs);
	sums->freed_leased += rtab_load_relaxed(&area->freed_leased);
	sums->all_voids += rtab_load_relaxed(&area->all_voids);
	sums->pinned_bytes += rtab_load_relaxed(&area->pinned_bytes);
	sums->regions += s->told[LEDGER_REGIONS];
	sums->bytes += s->told[LEDGER_BYTES];
}

static void stats_client_cells(struct admin_page *page, const struct admin_job *job)
{
	const struct admin_sums *sums = &job->sums;
	const struct rtab_transfer_counters *t = &sums->transfers;
	const struct rtab_counters *c = &sums->counters;

	page_number(page, job->n_spaces);
	page_number(page, sums->regions);
	page_number(page, sums->bytes);
	page_number(page, sums->pinned_bytes);
	page_number(page, c->hits);
	page_number(page, c->misses);
	page_number(page, c->uncached);
	page_number(page, c->failed);
	page_number(page, c->puts);
	admin_page_rate(page, c);
	page_number(page, c->restarts);
	page_number(page, c->waits);
	page_number(page, c->reg_ns);
	page_number(page, sums->registrations);
	page_number(page, sums->clones);
	page_number(page, sums->deregistrations);
	page_number(page, sums->freed_leased);
	page_number(page, sums->all_voids);
	page_number(page, t->begun);
	page_number(page, t->refused);
	page_number(page, t->blocked);
	page_number(page, t->blocked_ns);
	page_number(page, t->copied);
	page_number(page, t->damaged);
	page_number(page, t->timed_out);
	page_number(page, t->detached);
}

/* "munmap 12, evicted 3" */
static void page_voids(struct admin_page *page, const struct broker_stats *stats)
{
	char text[512] = "";
	size_t used = 0;
	uint32_t i;

	for (i = 0; i < RTAB_N_CAUSES && used < sizeof(text); i++)
		if (stats->voids[i])
			used += (size_t)snprintf(text + used,
						 sizeof(text) - used,
						 "%s%s %" PRIu64,
						 used ? ", " : "",
						 rtab_cause_name(i),
						 stats->voids[i]);
	page_text(page, text);
}

static void stats_broker_cells(struct admin_page *page,
			       const struct broker_stats *stats)
{
	page_number(page, stats->connections);
	page_number(page, stats->refused);
	page_number(page, stats->attached);
	page_number(page, stats->dropped);
	page_number(page, stats->records);
	page_number(page, stats->rejected);
	page_number(page, stats->events_unmap);
	page_number(page, stats->events_remap);
	page_number(page, stats->events_remove);
	page_number(page, stats->events_fault);
	page_number(page, stats->events_other);
	page_number(page, stats->events_lost);
	page_number(page, stats->grants);
	page_number(page, stats->denials);
	page_number(page, stats->reclaims);
	page_number(page, stats->unanswered);
	page_number(page, stats->evictions);
	page_number(page, stats->rescans);
	page_number(page, stats->turns);
	page_voids(page, stats);
}

static enum admin_step stats_step(struct admin_job *job, struct admin_page *page)
{
	struct space *s;
	int n;

	for (n = 0; (s = admin_next_space(job)); job->space++) {
		if (n++ && broker_slice_is_over(job->broker))
			return ADMIN_AGAIN;
		stats_add(&job->sums, s);
		job->n_spaces++;
	}
	page_begin_row(page);
	stats_client_cells(page, job);
	stats_broker_cells(page, &job->broker->stats);
	page_end_row(page);
	return ADMIN_DONE;
}

const struct admin_listing admin_stats = {
	columns, RTAB_ARRAY_SIZE(columns), stats_step,
};
