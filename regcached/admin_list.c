/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The listings of regc-ctl: which columns, and how a row is filled.
 *
 * A step fills rows until the page is full or the slice of the turn is over (one
 * space, or one chunk of regions, is done in any case), and leaves its place in
 * job->space and job->at.  Text that comes from a client was made printable when
 * it was taken (log_escape).
 */
#include "regcached/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/group.h"
#include "regcached/log.h"
#include "regcached/space.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/cause.h"
#include "shm/segment.h"

#define NAME_BYTES (4 * RTAB_NAME_BYTES + 1) /* escaped */

/* After the first piece of a step, *n of them, a step ends with the slice. */
static bool is_enough(const struct admin_job *job, int *n)
{
	return (*n)++ && broker_slice_is_over(job->broker);
}

#define COLUMNS(c) (c), RTAB_ARRAY_SIZE(c)

/* ---- status, config ------------------------------------------------------ */

static const struct admin_column status_columns[] = {
	{ "pid", CELL_NUMBER },
	{ "version", CELL_TEXT },
	{ "uptime_ns", CELL_NS },
	{ "socket", CELL_TEXT },
	{ "uid", CELL_NUMBER },
	{ "mode", CELL_TEXT },
	{ "spaces", CELL_NUMBER },
	{ "groups", CELL_NUMBER },
	{ "connections", CELL_NUMBER },
	{ "regions", CELL_NUMBER },
	{ "regions_granted", CELL_NUMBER },
	{ "regions_limit", CELL_NUMBER },
	{ "bytes", CELL_BYTES },
	{ "bytes_granted", CELL_BYTES },
	{ "bytes_limit", CELL_BYTES },
	{ "waiting", CELL_NUMBER },
	{ "uffd_device", CELL_YES_NO },
	{ "log_dropped", CELL_NUMBER },
};

static enum admin_step status_step(struct admin_job *job, struct admin_page *page)
{
	struct broker *b = job->broker;
	uint64_t bytes = 0, regions = 0;
	char text[64];
	struct space *s;

	for (s = b->spaces; s; s = s->hh.next) {
		bytes += s->told[LEDGER_BYTES];
		regions += s->told[LEDGER_REGIONS];
	}
	page_begin_row(page);
	page_number(page, (uint64_t)getpid());
	snprintf(text, sizeof(text), "%d.%d.%d", REGC_VERSION_MAJOR,
		 REGC_VERSION_MINOR, REGC_VERSION_PATCH);
	page_text(page, text);
	page_number(page, rtab_now_ns() - b->started_ns);
	page_text(page, b->listener.path);
	page_number(page, b->uid);
	page_text(page, option_text(&b->options, OPTION_MODE, text,
				    sizeof(text)));
	page_number(page, b->n_attached);
	page_number(page, HASH_COUNT(b->groups));
	page_number(page, b->n_clients);
	page_number(page, regions);
	page_number(page, b->node.used[LEDGER_REGIONS]);
	page_number(page, b->node.max[LEDGER_REGIONS]);
	page_number(page, bytes);
	page_number(page, b->node.used[LEDGER_BYTES]);
	page_number(page, b->node.max[LEDGER_BYTES]);
	page_number(page, reclaim_n_waiting(&b->reclaim));
	page_number(page, b->uffd_device >= 0);
	page_number(page, log_n_dropped());
	page_end_row(page);
	return ADMIN_DONE;
}

static const struct admin_column config_columns[] = {
	{ "option", CELL_TEXT }, { "value", CELL_TEXT },
	{ "default", CELL_TEXT }, { "unit", CELL_TEXT },
	{ "set", CELL_YES_NO },	 { "reloads", CELL_YES_NO },
	{ "doc", CELL_TEXT },
};

static enum admin_step config_step(struct admin_job *job, struct admin_page *page)
{
	char text[4 * OPTION_PATH_BYTES];
	const struct option_row *row;

	for (; job->at < OPTION_N; job->at++) {
		enum option_id id = (enum option_id)job->at;

		row = option_row(id);
		page_begin_row(page);
		page_text(page, row->name);
		page_text(page, option_text(&job->broker->options, id, text,
					    sizeof(text)));
		page_text(page, row->initial);
		page_text(page, option_unit_name(row->unit));
		page_number(page, job->broker->options.set[id]);
		page_number(page, row->reloads);
		page_text(page, row->doc);
		if (!page_end_row(page))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

/* ---- groups -------------------------------------------------------------- */

static const struct admin_column groups_columns[] = {
	{ "group", CELL_TEXT },
	{ "uid", CELL_NUMBER },
	{ "spaces", CELL_NUMBER },
	{ "regions", CELL_NUMBER },
	{ "regions_granted", CELL_NUMBER },
	{ "regions_limit", CELL_NUMBER },
	{ "bytes", CELL_BYTES },
	{ "bytes_granted", CELL_BYTES },
	{ "bytes_limit", CELL_BYTES },
};

/*
 * A group is listed with its first wanted space, which is what the place can be
 * kept by; so it is looked for among those before.
 */
static bool listed_before(const struct admin_job *job, const struct space *s)
{
	const struct space *other;

	for (other = job->broker->spaces; other != s; other = other->hh.next)
		if (other->group == s->group && admin_wants(job, other))
			return true;
	return false;
}

static enum admin_step groups_step(struct admin_job *job, struct admin_page *page)
{
	uint64_t told[LEDGER_N_UNITS];
	struct space *s, *member;
	const struct ledger *l;
	int n = 0;

	for (; (s = admin_next_space(job)); job->space++) {
		if (is_enough(job, &n))
			return ADMIN_AGAIN;
		if (listed_before(job, s))
			continue;
		memset(told, 0, sizeof(told));
		for (member = s; member; member = member->hh.next) {
			if (member->group != s->group)
				continue;
			told[LEDGER_BYTES] += member->told[LEDGER_BYTES];
			told[LEDGER_REGIONS] += member->told[LEDGER_REGIONS];
		}
		l = &s->group->ledger;
		page_begin_row(page);
		page_text(page, s->group->key.name);
		page_number(page, s->group->key.uid);
		page_number(page, s->group->n_spaces);
		page_number(page, told[LEDGER_REGIONS]);
		page_number(page, l->used[LEDGER_REGIONS]);
		page_number(page, l->max[LEDGER_REGIONS]);
		page_number(page, told[LEDGER_BYTES]);
		page_number(page, l->used[LEDGER_BYTES]);
		page_number(page, l->max[LEDGER_BYTES]);
		if (!page_end_row(page))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

/* ---- spaces, monitors ---------------------------------------------------- */

static const char *mode_name(const struct space *s)
{
	switch (rtab_load_relaxed(&s->area->mode)) { /* for show */
	case RTAB_MODE_OFF:
		return "off";
	case RTAB_MODE_FAST:
		return "fast";
	case RTAB_MODE_STRICT:
		return "strict";
	default:
		return "unknown";
	}
}

/* The area says it as it is now, Attach as it was then. */
static const char *mode_why(const struct space *s, char *buf, size_t size)
{
	space_area_text(s->area->mode_why, sizeof(s->area->mode_why), buf, size);
	return *buf ? buf : s->why;
}

void admin_page_rate(struct admin_page *page, const struct rtab_counters *c)
{
	uint64_t gets = c->hits + c->misses + c->uncached;
	char text[16] = "";

	if (gets)
		snprintf(text, sizeof(text), "%.2f%%",
			 100.0 * (double)c->hits / (double)gets);
	page_text(page, text);
}

uint32_t admin_sum_libraries(const struct space *s, struct rtab_counters *sum)
{
	struct rtab_counters c[RTAB_N_LIBRARIES];
	uint32_t n = 0, i;

	memset(sum, 0, sizeof(*sum));
	space_read_counters(s, c);
	for (i = 0; i < RTAB_N_LIBRARIES; i++) {
		counters_add(sum, &c[i]);
		n += rtab_load_relaxed(&s->area->libraries[i].in_use) != 0;
	}
	return n;
}

static const struct admin_column spaces_columns[] = {
	{ "pid", CELL_NUMBER },
	{ "program", CELL_TEXT },
	{ "uid", CELL_NUMBER },
	{ "group", CELL_TEXT },
	{ "space", CELL_NUMBER },
	{ "mode", CELL_TEXT },
	{ "regions", CELL_NUMBER },
	{ "bytes", CELL_BYTES },
	{ "pinned_bytes", CELL_BYTES },
	{ "regions_granted", CELL_NUMBER },
	{ "bytes_granted", CELL_BYTES },
	{ "libraries", CELL_NUMBER },
	{ "hits", CELL_NUMBER },
	{ "misses", CELL_NUMBER },
	{ "uncached", CELL_NUMBER },
	{ "hit_rate", CELL_TEXT },
	{ "voids", CELL_NUMBER },
	{ "evictions", CELL_NUMBER },
	{ "rejected", CELL_NUMBER },
	{ "age_ns", CELL_NS },
	{ "why", CELL_TEXT },
};

static bool space_row(struct admin_page *page, const struct space *s)
{
	struct rtab_counters sum;
	char text[513];
	uint32_t n = admin_sum_libraries(s, &sum);

	page_begin_row(page);
	page_number(page, s->pid);
	page_text(page, s->program);
	page_number(page, s->uid);
	page_text(page, s->group->key.name);
	page_number(page, s->id);
	page_text(page, mode_name(s));
	page_number(page, s->told[LEDGER_REGIONS]);
	page_number(page, s->told[LEDGER_BYTES]);
	page_number(page, rtab_load_relaxed(&s->area->pinned_bytes));
	page_number(page, s->ledger.used[LEDGER_REGIONS]);
	page_number(page, s->ledger.used[LEDGER_BYTES]);
	page_number(page, n);
	page_number(page, sum.hits);
	page_number(page, sum.misses);
	page_number(page, sum.uncached);
	admin_page_rate(page, &sum);
	page_number(page, s->n_voided);
	page_number(page, s->n_evicted);
	page_number(page, s->n_rejected);
	page_number(page, rtab_now_ns() - s->attached_ns);
	page_text(page, mode_why(s, text, sizeof(text)));
	return page_end_row(page);
}

static enum admin_step spaces_step(struct admin_job *job, struct admin_page *page)
{
	struct space *s;
	int n;

	for (n = 0; (s = admin_next_space(job)); job->space++) {
		if (is_enough(job, &n))
			return ADMIN_AGAIN;
		if (!space_row(page, s))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

static const struct admin_column monitors_columns[] = {
	{ "pid", CELL_NUMBER },	  { "program", CELL_TEXT },
	{ "mode", CELL_TEXT },	  { "uffd", CELL_YES_NO },
	{ "hooks", CELL_TEXT },	  { "events", CELL_NUMBER },
	{ "why", CELL_TEXT },	  { "note", CELL_TEXT },
};

static const char *hooks_text(const struct space *s, char *buf, size_t size)
{
	uint32_t mask = rtab_load_relaxed(&s->area->hook_mask); /* for show */
	size_t used = 0;
	uint32_t i;

	buf[0] = 0;
	for (i = 0; i < RTAB_N_HOOKS && used < size; i++)
		if (mask & (1u << i))
			used += (size_t)snprintf(buf + used, size - used, "%s%s",
						 used ? "," : "",
						 rtab_hook_name(i));
	return buf;
}

static enum admin_step monitors_step(struct admin_job *job,
				     struct admin_page *page)
{
	char why[513], note[513], hooks[192];
	struct space *s;

	for (; (s = admin_next_space(job)); job->space++) {
		page_begin_row(page);
		page_number(page, s->pid);
		page_text(page, s->program);
		page_text(page, mode_name(s));
		page_number(page, s->uffd != NULL);
		page_text(page, hooks_text(s, hooks, sizeof(hooks)));
		page_number(page, s->writer.view.table->events_read);
		page_text(page, mode_why(s, why, sizeof(why)));
		page_text(page, space_area_text(s->area->monitor_note,
					sizeof(s->area->monitor_note), note,
					sizeof(note)));
		if (!page_end_row(page))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

/* ---- libraries ----------------------------------------------------------- */

static const struct admin_column libraries_columns[] = {
	{ "pid", CELL_NUMBER },	    { "program", CELL_TEXT },
	{ "library", CELL_TEXT },   { "hits", CELL_NUMBER },
	{ "misses", CELL_NUMBER },  { "uncached", CELL_NUMBER },
	{ "failed", CELL_NUMBER },  { "puts", CELL_NUMBER },
	{ "leases", CELL_NUMBER },  { "hit_rate", CELL_TEXT },
	{ "restarts", CELL_NUMBER }, { "waits", CELL_NUMBER },
	{ "reg_ns", CELL_NS },	    { "open", CELL_YES_NO },
};

static bool library_row(struct admin_page *page, const struct space *s,
			const char *name, const struct rtab_counters *c,
			bool open)
{
	uint64_t gets = c->hits + c->misses + c->uncached;

	page_begin_row(page);
	page_number(page, s->pid);
	page_text(page, s->program);
	page_text(page, name);
	page_number(page, c->hits);
	page_number(page, c->misses);
	page_number(page, c->uncached);
	page_number(page, c->failed);
	page_number(page, c->puts);
	page_number(page, gets > c->puts ? gets - c->puts : 0);
	admin_page_rate(page, c);
	page_number(page, c->restarts);
	page_number(page, c->waits);
	page_number(page, c->reg_ns);
	page_number(page, open);
	return page_end_row(page);
}

static bool library_rows(struct admin_job *job, struct admin_page *page,
			 const struct space *s)
{
	struct rtab_counters c[RTAB_N_LIBRARIES];
	char name[NAME_BYTES];
	bool open;

	space_read_counters(s, c);
	for (; job->at < RTAB_N_LIBRARIES; job->at++) {
		uint32_t i = job->at;

		open = rtab_load_relaxed(&s->area->libraries[i].in_use);
		space_library_name(s, i, name, sizeof(name));
		if (!open && !c[i].hits && !c[i].misses && !c[i].uncached &&
		    !c[i].failed)
			continue;
		if (job->library[0] && strcmp(job->library, name))
			continue;
		if (!library_row(page, s, name, &c[i], open))
			return false;
	}
	return true;
}

static enum admin_step libraries_step(struct admin_job *job,
				      struct admin_page *page)
{
	struct space *s;
	int n;

	for (n = 0; (s = admin_next_space(job)); job->space++, job->at = 0) {
		if (is_enough(job, &n))
			return ADMIN_AGAIN;
		if (!library_rows(job, page, s))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

/* ---- regions ------------------------------------------------------------- */

static const struct admin_column regions_columns[] = {
	{ "pid", CELL_NUMBER },	   { "start", CELL_ADDRESS },
	{ "end", CELL_ADDRESS },   { "bytes", CELL_BYTES },
	{ "access", CELL_TEXT },   { "library", CELL_TEXT },
	{ "domains", CELL_TEXT },  { "state", CELL_TEXT },
	{ "leases", CELL_NUMBER }, { "age_ns", CELL_NS },
	{ "idle_ns", CELL_NS },	   { "slot", CELL_NUMBER },
};

static const char *domains_text(const struct space *s, uint32_t mask, char *buf,
				size_t size)
{
	char name[NAME_BYTES];
	size_t used = 0, i;

	buf[0] = 0;
	for (i = 0; i < RTAB_N_DOMAINS && used < size; i++) {
		if (!(mask & (1u << i)))
			continue;
		space_area_text(s->area->domains[i].name, RTAB_NAME_BYTES, name,
				sizeof(name));
		used += (size_t)snprintf(buf + used, size - used, "%s%s",
					 used ? "," : "", *name ? name : "?");
	}
	return buf;
}

static bool region_row(struct admin_page *page, const struct space *s,
		       uint32_t slot, const struct evict_lease *lease)
{
	const struct region *region = &s->regions[slot];
	char text[256];
	uint64_t age = rtab_now_ns() - region->told_ns, idle = age;

	if (lease->age < UINT64_MAX >> RTAB_STAMP_SHIFT_NS)
		idle = rtab_min_u64(age, lease->age << RTAB_STAMP_SHIFT_NS);
	page_begin_row(page);
	page_number(page, s->pid);
	page_number(page, region->start);
	page_number(page, region->end);
	page_number(page, region_bytes(region));
	page_text(page, rtab_access_text(region->access, text, sizeof(text)));
	page_text(page, space_library_name(s, region->library, text,
					   sizeof(text)));
	page_text(page, domains_text(s, region->domains, text, sizeof(text)));
	page_text(page, region->state == REGION_LIVE ? "live" : "void");
	page_number(page, lease->count);
	page_number(page, age);
	page_number(page, idle);
	page_number(page, slot);
	return page_end_row(page);
}

static bool region_wanted(const struct admin_job *job, const struct space *s,
			  const struct region *region)
{
	char name[NAME_BYTES];

	if (region->state == REGION_NONE ||
	    (job->state && job->state != region->state))
		return false;
	if (job->end && !rtab_overlaps(job->addr, job->end, region->start,
				       region->end))
		return false;
	return !job->library[0] ||
	       !strcmp(job->library,
		       space_library_name(s, region->library, name,
					  sizeof(name)));
}

/* The rest of one piece of slots; false: the page is full. */
static bool region_rows(struct admin_job *job, struct admin_page *page,
			const struct space *s)
{
	struct evict_lease leases[SPACE_LEASE_CHUNK];
	uint32_t first = job->at, i;
	uint32_t n = (uint32_t)rtab_min_u64(s->n_room - first, SPACE_LEASE_CHUNK);
	bool have_leases = false;

	for (i = 0; i < n; i++) {
		if (!region_wanted(job, s, &s->regions[first + i]))
			continue;
		if (!have_leases)
			space_read_leases(s, first + i, n - i, rtab_now_ns(),
					  leases + i);
		have_leases = true;
		if (!region_row(page, s, first + i, &leases[i])) {
			job->at = first + i;
			return false;
		}
	}
	job->at = first + n;
	return true;
}

static enum admin_step regions_step(struct admin_job *job,
				    struct admin_page *page)
{
	struct space *s;
	int n = 0;

	while ((s = admin_next_space(job))) {
		if (job->at >= s->n_room) {
			job->space++;
			job->at = 0;
			continue;
		}
		if (is_enough(job, &n))
			return ADMIN_AGAIN;
		if (!region_rows(job, page, s))
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

/* ---- flush --------------------------------------------------------------- */

static const struct admin_column flush_columns[] = {
	{ "spaces", CELL_NUMBER },
	{ "regions", CELL_NUMBER },
};

/*
 * Asks for the live regions without lease of one piece of slots.  False: the
 * owner's socket is full, so again; not for ever, he may not read at all.
 */
static bool flush_chunk(struct admin_job *job, struct space *s)
{
	static const uint64_t nothing[LEDGER_N_UNITS];
	struct evict_lease leases[SPACE_LEASE_CHUNK];
	uint32_t slots[SPACE_LEASE_CHUNK], n = 0, i;
	uint32_t all = (uint32_t)rtab_min_u64(s->n_room - job->at,
					      SPACE_LEASE_CHUNK);

	space_read_leases(s, job->at, all, rtab_now_ns(), leases);
	for (i = 0; i < all; i++)
		if (s->regions[job->at + i].state == REGION_LIVE &&
		    !leases[i].count)
			slots[n++] = job->at + i;
	if (n && !reclaim_send(&job->broker->reclaim, s, slots, n, nothing,
			       RTAB_CAUSE_FLUSHED, 0, NULL)) {
		job->n_regions += n;
		job->stuck_ns = 0;
	} else if (n && !s->client->dead) {
		if (!job->stuck_ns)
			job->stuck_ns = rtab_now_ns();
		if (rtab_now_ns() - job->stuck_ns < RECLAIM_WAIT_NS)
			return false;
	}
	job->at += all;
	return true;
}

static enum admin_step flush_step(struct admin_job *job, struct admin_page *page)
{
	char group[4 * sizeof(job->group)];
	struct space *s;
	int n = 0;

	while ((s = admin_next_space(job))) {
		if (is_enough(job, &n))
			return ADMIN_AGAIN;
		if (job->at >= s->n_room) {
			job->n_spaces++;
			job->space++;
			job->at = 0;
			job->stuck_ns = 0;
			continue;
		}
		if (!flush_chunk(job, s))
			return ADMIN_AGAIN;
	}
	if (!job->n_spaces && (job->pid || job->group[0])) {
		job->err = -ESRCH;
		if (job->pid)
			snprintf(job->text, sizeof(job->text),
				 "no process %u of yours is attached", job->pid);
		else
			snprintf(job->text, sizeof(job->text),
				 "no process of group \"%s\" is attached",
				 log_escape(group, sizeof(group), job->group,
					    strlen(job->group)));
		return ADMIN_DONE;
	}
	page_begin_row(page);
	page_number(page, job->n_spaces);
	page_number(page, job->n_regions);
	page_end_row(page);
	return ADMIN_DONE;
}

const struct admin_listing admin_listings[] = {
	[REGC__ADMIN_KIND__ADMIN_STATUS] = { COLUMNS(status_columns),
					     status_step },
	[REGC__ADMIN_KIND__ADMIN_GROUPS] = { COLUMNS(groups_columns),
					     groups_step },
	[REGC__ADMIN_KIND__ADMIN_SPACES] = { COLUMNS(spaces_columns),
					     spaces_step },
	[REGC__ADMIN_KIND__ADMIN_LIBRARIES] = { COLUMNS(libraries_columns),
						libraries_step },
	[REGC__ADMIN_KIND__ADMIN_REGIONS] = { COLUMNS(regions_columns),
					      regions_step },
	[REGC__ADMIN_KIND__ADMIN_MONITORS] = { COLUMNS(monitors_columns),
					       monitors_step },
	[REGC__ADMIN_KIND__ADMIN_FLUSH] = { COLUMNS(flush_columns), flush_step },
	[REGC__ADMIN_KIND__ADMIN_CONFIG] = { COLUMNS(config_columns),
					     config_step },
};
const uint32_t admin_n_listings = RTAB_ARRAY_SIZE(admin_listings);
