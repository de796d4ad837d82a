/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers to regc-ctl: jobs and pages; see admin.h. */
#include "regcached/admin.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/group.h"
#include "regcached/space.h"

#define PAGE_ROWS 256
#define PAGE_CELLS 3072
#define PAGE_TEXT_BYTES (24 * 1024)
#define PAGE_WIRE_BYTES (28 * 1024)

/*
 * One answer in the making.  Its bounds keep the packet below
 * REGC_WIRE_MAX_BYTES and what unpacking takes below half of
 * REGC_WIRE_ARENA_BYTES (64 bytes a cell, 64 a row, and the text).
 */
struct admin_page {
	uint32_t n_columns, n_rows, n_cells, text_used;
	uint32_t row_cells, row_text; /* where the row began */
	size_t wire_bytes;
	bool overflow; /* the row does not fit */
	Regc__Row rows[PAGE_ROWS];
	Regc__Row *row_list[PAGE_ROWS];
	Regc__Cell cells[PAGE_CELLS];
	Regc__Cell *cell_list[PAGE_CELLS];
	char text[PAGE_TEXT_BYTES];
};

struct admin_page *admin_page_new(void)
{
	return calloc(1, sizeof(struct admin_page));
}

void admin_page_free(struct admin_page *page)
{
	free(page);
}

static void page_clear(struct admin_page *page, uint32_t n_columns)
{
	page->n_columns = n_columns;
	page->n_rows = 0;
	page->n_cells = 0;
	page->text_used = 0;
	page->wire_bytes = 2048; /* columns, sentence */
}

void page_begin_row(struct admin_page *page)
{
	page->row_cells = page->n_cells;
	page->row_text = page->text_used;
	page->overflow = page->n_rows == PAGE_ROWS;
}

static Regc__Cell *add_cell(struct admin_page *page)
{
	Regc__Cell *cell;

	if (page->overflow || page->n_cells == PAGE_CELLS) {
		page->overflow = true;
		return NULL;
	}
	cell = &page->cells[page->n_cells];
	regc__cell__init(cell);
	page->cell_list[page->n_cells++] = cell;
	return cell;
}

void page_text(struct admin_page *page, const char *text)
{
	Regc__Cell *cell = add_cell(page);
	size_t n = strlen(text) + 1;

	if (!cell || n > PAGE_TEXT_BYTES - page->text_used) {
		page->overflow = true;
		return;
	}
	cell->text = memcpy(page->text + page->text_used, text, n);
	page->text_used += (uint32_t)n;
}

void page_number(struct admin_page *page, uint64_t number)
{
	Regc__Cell *cell = add_cell(page);

	if (cell)
		cell->number = number;
}

bool page_end_row(struct admin_page *page)
{
	Regc__Row *row = &page->rows[page->n_rows];
	size_t n = 0;

	if (!page->overflow) {
		assert(page->n_cells - page->row_cells == page->n_columns);
		regc__row__init(row);
		row->n_cells = page->n_columns;
		row->cells = &page->cell_list[page->row_cells];
		n = regc__row__get_packed_size(row) + 4;
	}
	if (page->overflow || page->wire_bytes + n > PAGE_WIRE_BYTES) {
		page->n_cells = page->row_cells;
		page->text_used = page->row_text;
		return false;
	}
	page->wire_bytes += n;
	page->row_list[page->n_rows++] = row;
	return true;
}

char *admin_duration(uint64_t ns, char *buf, size_t size)
{
	uint64_t ms = ns / 1000000;

	if (ms < 100)
		snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " ms", ms,
			 ns / 100000 % 10);
	else if (ms < 10000)
		snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " s", ms / 1000,
			 ms / 100 % 10);
	else if (ms < 120000)
		snprintf(buf, size, "%" PRIu64 " s", ms / 1000);
	else if (ms < 7200000)
		snprintf(buf, size, "%" PRIu64 " min", ms / 60000);
	else
		snprintf(buf, size, "%" PRIu64 " h", ms / 3600000);
	return buf;
}

/* ---- who sees what ------------------------------------------------------- */

static bool sees_all(const struct client *c)
{
	return c->uid == 0 || c->uid == c->broker->uid;
}

bool admin_wants(const struct admin_job *job, const struct space *s)
{
	if (!s->attached || (!sees_all(job->client) && s->uid != job->client->uid))
		return false;
	if (job->pid && s->pid != job->pid)
		return false;
	return !job->group[0] || !strcmp(job->group, s->group->key.name);
}

struct space *admin_next_space(struct admin_job *job)
{
	struct space *s = broker_space_from(job->broker, job->space);

	while (s && !admin_wants(job, s))
		s = s->hh.next;
	if (s && s->id != job->space) {
		job->space = s->id;
		job->at = 0;
	}
	return s;
}

/* ---- jobs ---------------------------------------------------------------- */

static void send_reply(struct admin_job *job, struct admin_page *page, bool more)
{
	const struct admin_listing *listing = job->listing;
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Column columns[64], *list[64];
	uint32_t i;

	assert(listing->n_columns <= 64);
	for (i = 0; i < listing->n_columns; i++) {
		regc__column__init(&columns[i]);
		columns[i].name = (char *)listing->columns[i].name;
		columns[i].kind = listing->columns[i].kind;
		list[i] = &columns[i];
	}
	reply.err = job->err;
	reply.text = job->text;
	reply.more = more;
	if (!job->err) {
		reply.n_columns = listing->n_columns;
		reply.columns = list;
		reply.n_rows = page->n_rows;
		reply.rows = page->row_list;
	}
	frame.body_case = REGC__FRAME__BODY_ADMIN_REPLY;
	frame.admin_reply = &reply;
	client_send(job->client, &frame);
	job->text[0] = 0;
}

static void queue_job(struct admin_job *job)
{
	struct user *u = job->client->user;

	if (job->queued)
		return;
	job->queued = true;
	DL_APPEND(u->jobs, job);
	broker_add_work(job->broker, &u->work);
}

static void unqueue_job(struct admin_job *job)
{
	if (!job->queued)
		return;
	job->queued = false;
	DL_DELETE(job->client->user->jobs, job);
}

void admin_cancel(struct client *c)
{
	struct admin_job *job = c->job;

	if (!job)
		return;
	unqueue_job(job);
	c->job = NULL;
	free(job);
}

/* True: it can go on. */
static bool job_step(struct admin_job *job)
{
	struct client *c = job->client;
	struct admin_page *page = job->broker->page;
	enum admin_step step;

	if (c->dead || c->out)
		return false; /* admin_resume() goes on */
	page_clear(page, job->listing->n_columns);
	step = job->listing->step(job, page);
	if (step == ADMIN_AGAIN && !page->n_rows)
		return true;
	send_reply(job, page, step != ADMIN_DONE);
	if (step != ADMIN_DONE)
		return true;
	admin_cancel(c);
	client_update_events(c);
	return false;
}

/* One step of one job of a user; the next step is the next job's. */
static bool user_step(void *arg)
{
	struct user *u = arg;
	struct admin_job *job = u->jobs;

	if (!job)
		return false;
	unqueue_job(job);
	if (job_step(job))
		queue_job(job);
	return u->jobs != NULL;
}

void admin_user_init(struct user *u)
{
	u->work.fn = user_step;
	u->work.arg = u;
}

void admin_user_deinit(struct broker *b, struct user *u)
{
	assert(!u->jobs);
	broker_del_work(b, &u->work);
}

void admin_resume(struct client *c)
{
	if (c->job && !c->out)
		queue_job(c->job);
}

static void send_error(struct client *c, int err, const char *text)
{
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	reply.err = err;
	reply.text = (char *)text;
	frame.body_case = REGC__FRAME__BODY_ADMIN_REPLY;
	frame.admin_reply = &reply;
	client_send(c, &frame);
}

static const struct admin_listing *find_listing(uint32_t kind)
{
	if (kind == REGC__ADMIN_KIND__ADMIN_EXPLAIN)
		return &admin_explain;
	if (kind == REGC__ADMIN_KIND__ADMIN_STATS)
		return &admin_stats;
	if (kind == REGC__ADMIN_KIND__ADMIN_TRANSFERS)
		return &admin_transfers;
	if (kind >= admin_n_listings || !admin_listings[kind].step)
		return NULL;
	return &admin_listings[kind];
}

void admin_start(struct client *c, const Regc__Admin *question)
{
	const struct admin_listing *listing =
		find_listing((uint32_t)question->kind);
	struct admin_job *job;

	if (!listing) {
		send_error(c, -EOPNOTSUPP, "this broker knows no such listing");
		return;
	}
	if (question->len > UINT64_MAX - question->addr) {
		send_error(c, -EINVAL, "the range is beyond 64 bits");
		return;
	}
	job = calloc(1, sizeof(*job));
	if (!job) {
		send_error(c, -ENOMEM, "the broker has no memory");
		return;
	}
	job->client = c;
	job->broker = c->broker;
	job->listing = listing;
	job->pid = question->pid;
	job->access = question->access;
	job->state = question->state;
	snprintf(job->group, sizeof(job->group), "%s", question->group);
	snprintf(job->library, sizeof(job->library), "%s", question->library);
	job->addr = question->addr;
	if (question->addr || question->len)
		job->end = question->addr + (question->len ? question->len : 1);
	job->event = UINT64_MAX;
	c->job = job;
	queue_job(job);
	client_update_events(c);
}
