/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * EXPLAIN: would a get of this range hit, and if not, why not.
 *
 * In this order: the process caches nothing; a live region covers it (and the
 * process holds a live registration of it); its access is not enough; it is
 * covered in part; the history says what became of the last region there, or why
 * none was made; nothing is known.  Then the events of the range, newest first.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "regcached/admin.h"
#include "regcached/broker.h"
#include "regcached/log.h"
#include "regcached/space.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/cause.h"
#include "shm/segment.h"

#define MAX_OVERLAPS 256
#define ACCESS_BYTES 96
#define DURATION_BYTES 32
#define NAME_BYTES (4 * RTAB_NAME_BYTES + 1)

static const struct admin_column explain_columns[] = {
	{ "ago_ns", CELL_NS },	  { "event", CELL_TEXT },
	{ "start", CELL_ADDRESS }, { "end", CELL_ADDRESS },
	{ "cause", CELL_TEXT },	  { "library", CELL_TEXT },
	{ "slot", CELL_TEXT },
};

static const char *ago(uint64_t then, char *buf, size_t size)
{
	uint64_t now = rtab_now_ns();

	return admin_duration(now > then ? now - then : 0, buf, size);
}

/* ---- what is there now --------------------------------------------------- */

/* Does the process itself hold the region for valid, in any domain? */
static bool client_has_it(const struct space *s, uint32_t slot)
{
	uint64_t gen = s->writer.view.gens[slot], live;
	uint16_t domains = s->regions[slot].domains;
	uint32_t d;

	for (d = 0; d < RTAB_N_DOMAINS; d++) {
		uint64_t at = rtab_off_regs(s->area_capacity, d) +
			      (uint64_t)slot * sizeof(struct rtab_reg) +
			      offsetof(struct rtab_reg, live_gen);

		if (domains & (1u << d) &&
		    pread(s->area_fd, &live, sizeof(live), (off_t)at) ==
			    sizeof(live) && live == gen)
			return true;
	}
	return false;
}

/* "region 0x..-0x.. (access read,write)" */
static char *region_text(const struct region *region, char *buf, size_t size)
{
	char access[ACCESS_BYTES];

	snprintf(buf, size, "region 0x%" PRIx64 "-0x%" PRIx64 " (access %s)",
		 region->start, region->end,
		 rtab_access_text(region->access, access, sizeof(access)));
	return buf;
}

static void say_hit(struct admin_job *job, const struct space *s, uint32_t slot)
{
	const struct region *region = &s->regions[slot];
	struct evict_lease lease;
	char where[192], name[NAME_BYTES], age[DURATION_BYTES];
	char used[DURATION_BYTES];

	region_text(region, where, sizeof(where));
	space_library_name(s, region->library, name, sizeof(name));
	ago(region->told_ns, age, sizeof(age));
	if (!client_has_it(s, slot)) {
		snprintf(job->text, sizeof(job->text),
			 "would miss: %s, registered %s ago by library %s, was "
			 "voided by the process itself just now", where, age,
			 name);
		return;
	}
	space_read_leases(s, slot, 1, rtab_now_ns(), &lease);
	if (lease.age < UINT64_MAX >> RTAB_STAMP_SHIFT_NS)
		admin_duration(lease.age << RTAB_STAMP_SHIFT_NS, used,
			       sizeof(used));
	else
		snprintf(used, sizeof(used), "%s", age);
	snprintf(job->text, sizeof(job->text),
		 "would hit: %s registered %s ago by library %s, %u lease%s now, "
		 "last used %s ago", where, age, name, lease.count,
		 lease.count == 1 ? "" : "s", used);
}

static void say_access(struct admin_job *job, const struct region *region)
{
	char where[192], access[ACCESS_BYTES];

	snprintf(job->text, sizeof(job->text),
		 "would miss: access differs: %s covers it, asked for is %s",
		 region_text(region, where, sizeof(where)),
		 rtab_access_text(job->access, access, sizeof(access)));
}

static void say_part(struct admin_job *job, const struct region *region,
		     uint32_t n)
{
	char where[192];

	snprintf(job->text, sizeof(job->text),
		 "would miss: covered only in part: %s%s of [0x%" PRIx64
		 ", 0x%" PRIx64 ")", region_text(region, where, sizeof(where)),
		 n > 1 ? " and others hold some" : " holds some", job->addr,
		 job->end);
}

/* True: something live overlaps the range, and was spoken of. */
static bool explain_live(struct admin_job *job, struct space *s)
{
	uint32_t slots[MAX_OVERLAPS], n, i;
	const struct region *covers = NULL;

	n = rtab_writer_overlaps(&s->writer, job->addr, job->end, slots,
				 MAX_OVERLAPS);
	for (i = 0; i < n; i++) {
		const struct region *region = &s->regions[slots[i]];

		if (region->start > job->addr || region->end < job->end)
			continue;
		covers = region;
		if ((region->access & job->access) == job->access) {
			say_hit(job, s, slots[i]);
			return true;
		}
	}
	if (covers)
		say_access(job, covers);
	else if (n)
		say_part(job, &s->regions[slots[0]], n);
	return n > 0;
}

/* ---- what was there ------------------------------------------------------ */

static bool event_matches(const struct admin_job *job,
			  const struct history_event *event)
{
	return rtab_overlaps(job->addr, job->end, event->start, event->end);
}

/* The event what of the same slot before kept event i, or NULL. */
static const struct history_event *find_before(const struct history *h,
					       uint32_t i, uint32_t what)
{
	const struct history_event *of = history_get(h, i), *event;

	while ((event = history_get(h, ++i)) != NULL) {
		if (event->slot != of->slot)
			continue;
		if (event->what == what)
			return event;
		if (event->what == HISTORY_ADDED)
			break; /* an earlier life of the slot */
	}
	return NULL;
}

static void say_voided(struct admin_job *job, const struct space *s, uint32_t i)
{
	const struct history *h = &s->history;
	const struct history_event *event = history_get(h, i);
	const struct history_event *added = find_before(h, i, HISTORY_ADDED);
	const struct history_event *asked = find_before(h, i, HISTORY_EVICTING);
	char name[NAME_BYTES], first[DURATION_BYTES] = "earlier";
	char then[DURATION_BYTES], limit[64] = "";

	if (added) {
		ago(added->time_ns, first, sizeof(first));
		strncat(first, " ago", sizeof(first) - strlen(first) - 1);
	}
	if (event->cause == RTAB_CAUSE_EVICTED)
		snprintf(limit, sizeof(limit), " (%s)",
			 asked && asked->limit ?
				 option_row(asked->limit)->name :
				 "limit.space of the process");
	snprintf(job->text, sizeof(job->text),
		 "would miss: [0x%" PRIx64 ", 0x%" PRIx64 ") was registered %s "
		 "by library %s and %s%s %s ago", event->start, event->end,
		 first,
		 space_library_name(s, event->library, name, sizeof(name)),
		 rtab_cause_phrase(event->cause), limit,
		 ago(event->time_ns, then, sizeof(then)));
}

static void say_note(struct admin_job *job, const struct history_event *event)
{
	char then[DURATION_BYTES];

	snprintf(job->text, sizeof(job->text),
		 "would miss: [0x%" PRIx64 ", 0x%" PRIx64 ") %s, %s ago",
		 event->start, event->end, rtab_cause_phrase(event->cause),
		 ago(event->time_ns, then, sizeof(then)));
}

static void explain_history(struct admin_job *job, const struct space *s)
{
	const struct history *h = &s->history;
	const struct history_event *event;
	char then[DURATION_BYTES];
	uint32_t i;

	for (i = 0; (event = history_get(h, i)); i++) {
		if (!event_matches(job, event))
			continue;
		if (event->what == HISTORY_VOIDED) {
			say_voided(job, s, i);
			return;
		}
		if (event->what == HISTORY_NOTE ||
		    event->what == HISTORY_REFUSED) {
			say_note(job, event);
			return;
		}
	}
	if (h->first == 0)
		snprintf(job->text, sizeof(job->text),
			 "would miss: never registered since this process "
			 "attached %s ago (history reaches back %u events)",
			 ago(s->attached_ns, then, sizeof(then)),
			 history_count(h));
	else
		snprintf(job->text, sizeof(job->text),
			 "would miss: not registered within the last %u events, "
			 "%s; the history reaches back no further",
			 history_count(h), i ?
			 ago(history_get(h, i - 1)->time_ns, then, sizeof(then)) :
			 "none kept");
}

static void explain(struct admin_job *job, struct space *s)
{
	char why[513];

	if (rtab_load_relaxed(&s->area->mode) == RTAB_MODE_OFF) /* for show */
		snprintf(job->text, sizeof(job->text),
			 "would miss: this process caches nothing: %s",
			 space_area_text(s->area->mode_why,
					 sizeof(s->area->mode_why), why,
					 sizeof(why)));
	else if (!explain_live(job, s))
		explain_history(job, s);
}

/* ---- the listing --------------------------------------------------------- */

static bool event_row(struct admin_page *page, const struct space *s,
		      const struct history_event *event)
{
	uint64_t now = rtab_now_ns();
	char text[NAME_BYTES];

	page_begin_row(page);
	page_number(page, now > event->time_ns ? now - event->time_ns : 0);
	page_text(page, history_what_name(event->what));
	page_number(page, event->start);
	page_number(page, event->end);
	page_text(page, event->cause ? rtab_cause_name(event->cause) : "");
	page_text(page, space_library_name(s, event->library, text, sizeof(text)));
	text[0] = 0;
	if (event->slot != HISTORY_NO_SLOT)
		snprintf(text, sizeof(text), "%u", event->slot);
	page_text(page, text);
	return page_end_row(page);
}

/* Events by number, so that new ones between two pages shift nothing. */
static enum admin_step event_rows(struct admin_job *job, struct admin_page *page,
				  const struct space *s)
{
	const struct history *h = &s->history;
	const struct history_event *event;

	while (job->event > h->first) {
		event = history_get(h, (uint32_t)(h->n_ever - job->event));
		if (event_matches(job, event) && !event_row(page, s, event))
			return ADMIN_FULL;
		job->event--;
	}
	return ADMIN_DONE;
}

static enum admin_step explain_step(struct admin_job *job,
				    struct admin_page *page)
{
	struct space *s = NULL;

	if (!job->pid || !job->end || job->access & RTAB_CLASS_USED) {
		job->err = -EINVAL;
		snprintf(job->text, sizeof(job->text),
			 "a process and an address are wanted");
		return ADMIN_DONE;
	}
	if (job->pid)
		s = admin_next_space(job);
	if (!s || (job->begun && s->id != job->space)) {
		job->err = job->begun ? 0 : -ESRCH;
		if (job->err)
			snprintf(job->text, sizeof(job->text),
				 "no process %u of yours is attached", job->pid);
		return ADMIN_DONE;
	}
	if (!job->begun) {
		job->begun = true;
		job->event = s->history.n_ever;
		explain(job, s);
	}
	return event_rows(job, page, s);
}

const struct admin_listing admin_explain = {
	explain_columns,
	RTAB_ARRAY_SIZE(explain_columns),
	explain_step,
};
