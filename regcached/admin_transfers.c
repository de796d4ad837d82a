/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The listing of transfers under way: a row each, and one more for each further
 * thread that waits for it.  What the area says is the client's word (L5: it is
 * only shown).
 */
#include "regcached/admin.h"

#include <stdio.h>
#include <string.h>

#include "regcached/broker.h"
#include "regcached/group.h"
#include "regcached/space.h"
#include "shm/segment.h"
#include "shm/transfer.h"

#define NAME_BYTES (4 * RTAB_NAME_BYTES + 1) /* escaped */
#define N_WAITERS (RTAB_N_TABLE_WAITERS + RTAB_N_AREA_WAITERS)

static const struct admin_column columns[] = {
	{ "pid", CELL_NUMBER },	     { "library", CELL_TEXT },
	{ "start", CELL_ADDRESS },   { "bytes", CELL_BYTES },
	{ "direction", CELL_TEXT },  { "state", CELL_TEXT },
	{ "age_ns", CELL_NS },	     { "policy", CELL_TEXT },
	{ "protection", CELL_TEXT }, { "happened", CELL_TEXT },
	{ "accesses", CELL_NUMBER }, { "thread", CELL_NUMBER },
	{ "waits_ns", CELL_NS },     { "at_address", CELL_ADDRESS },
	/* regc-ctl fills it in: only the kernel knows, and only by asking /proc */
	{ "instruction", CELL_ADDRESS },
};

static const char *name_of(const char *const *names, uint32_t n, uint32_t i)
{
	return i < n && names[i] ? names[i] : "?";
}

#define NAME_OF(names, i) name_of((names), RTAB_ARRAY_SIZE(names), (i))

static const char *const directions[] = {
	[RTAB_SEND] = "send", [RTAB_RECEIVE] = "receive",
};
static const char *const states[] = {
	[RTAB_ARMING] = "armed", [RTAB_ARMED] = "armed",
	[RTAB_POSTED] = "in flight", [RTAB_CLOSING] = "complete",
};
static const char *const policies[] = {
	[RTAB_BLOCK] = "block", [RTAB_COPY] = "copy", [RTAB_REPORT] = "report",
};
static const char *const guards[] = {
	[RTAB_GUARD_NONE] = "none", [RTAB_GUARD_WP] = "writes",
	[RTAB_GUARD_MINOR] = "all", [RTAB_GUARD_MPROTECT] = "mprotect",
};

/* "blocked,damaged"; returns buf. */
static char *happened(uint32_t flags, char *buf, size_t size)
{
	static const char *const names[] = {
		"blocked", "copied", "damaged", "timed-out",
		"detached", "aborted", "weak", "open",
	};
	uint32_t i;
	size_t n;

	buf[0] = '\0';
	for (i = 0; i < RTAB_ARRAY_SIZE(names); i++) {
		if (!(flags & UINT32_C(1) << i))
			continue;
		n = strlen(buf);
		snprintf(buf + n, size - n, "%s%s", n ? "," : "", names[i]);
	}
	return buf;
}

/* Waiter k of those for v; false: there are not so many. */
static bool waiter_of(const struct space *s, const struct rtab_transfer_view *v,
		      uint32_t k, struct rtab_waiter *ret)
{
	const struct rtab_table *table = s->writer.view.table;
	uint32_t i;

	/* Timed out: whoever waited went on. */
	for (i = 0; i < N_WAITERS && !(v->t.flags & RTAB_TRANSFER_TIMED_OUT); i++) {
		const struct rtab_waiter *w =
			i < RTAB_N_TABLE_WAITERS ?
				&table->waiters[i] :
				&s->area->waiters[i - RTAB_N_TABLE_WAITERS];

		ret->id = rtab_load_acquire(&w->id);
		ret->slot = rtab_load_relaxed(&w->slot);
		ret->tid = rtab_load_relaxed(&w->tid);
		ret->addr = rtab_load_relaxed(&w->addr);
		ret->since_ns = rtab_load_relaxed(&w->since_ns);
		if (ret->tid && ret->slot == v->slot &&
		    ret->id == rtab_transfer_id(v->word) && k-- == 0)
			return true;
	}
	memset(ret, 0, sizeof(*ret));
	return false;
}

static uint64_t age(uint64_t now, uint64_t then)
{
	return then && then < now ? now - then : 0;
}

static bool row(struct admin_page *page, const struct space *s,
		const struct rtab_transfer_view *v, const struct rtab_waiter *w)
{
	uint64_t now = rtab_now_ns();
	char text[128], name[NAME_BYTES];

	page_begin_row(page);
	page_number(page, s->pid);
	page_text(page, space_library_name(s, v->t.library, name, sizeof(name)));
	page_number(page, v->t.start);
	page_number(page, v->t.end - v->t.start);
	page_text(page, NAME_OF(directions, v->t.direction));
	page_text(page, NAME_OF(states, (uint32_t)rtab_transfer_state(v->word)));
	page_number(page, age(now, v->t.begun_ns));
	page_text(page, NAME_OF(policies, v->t.policy));
	page_text(page, NAME_OF(guards, v->t.guard));
	page_text(page, happened(v->t.flags, text, sizeof(text)));
	page_number(page, v->t.n_blocked + v->t.n_through);
	page_number(page, w->tid);
	page_number(page, w->tid ? age(now, w->since_ns) : 0);
	page_number(page, w->addr);
	page_number(page, 0);
	return page_end_row(page);
}

/* job->at: 256 times the slot, and the row of it. */
static enum admin_step space_rows(struct admin_job *job, struct admin_page *page,
				  const struct space *s)
{
	uint32_t slot = rtab_max_u64(job->at / 256, RTAB_TRANSFER_FIRST), k;
	struct rtab_transfer_view v;
	struct rtab_waiter w;

	while (rtab_transfer_next(s->area, &slot, 0, UINT64_MAX, &v)) {
		if (!rtab_transfer_active(v.word))
			continue;
		rtab_transfer_add_mark(s->writer.view.table, &v);
		k = v.slot == job->at / 256 ? job->at % 256 : 0;
		do {
			if (!waiter_of(s, &v, k, &w) && k)
				break;
			if (!row(page, s, &v, &w)) {
				job->at = v.slot * 256 + k;
				return ADMIN_FULL;
			}
		} while (++k < N_WAITERS);
	}
	return ADMIN_DONE;
}

static enum admin_step step(struct admin_job *job, struct admin_page *page)
{
	struct space *s;
	int n = 0;

	for (; (s = admin_next_space(job)); job->space++, job->at = 0) {
		if (n++ && broker_slice_is_over(job->broker))
			return ADMIN_AGAIN;
		if (space_rows(job, page, s) == ADMIN_FULL)
			return ADMIN_FULL;
	}
	return ADMIN_DONE;
}

const struct admin_listing admin_transfers = {
	columns, RTAB_ARRAY_SIZE(columns), step,
};
