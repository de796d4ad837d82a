/* SPDX-License-Identifier: BSD-2-Clause */
/* A space: one process and what the broker knows of it; see space.h. */
#define HASH_NONFATAL_OOM 1
#include "regcached/space.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/group.h"
#include "regcached/log.h"
#include "regcached/uffd.h"
#include "shm/area.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"

#define AREA_MAPPED_BYTES offsetof(struct rtab_area, threads)
#define ADDRESS_MAX (UINT64_C(1) << 57) /* five-level page tables */
#define VOID_BATCH 512

/* ---- making and freeing -------------------------------------------------- */

void space_set_limits(struct space *s)
{
	struct broker *b = s->broker;
	int unit;

	s->ledger.max[LEDGER_BYTES] = broker_option(b, OPTION_SPACE_BYTES);
	s->ledger.max[LEDGER_REGIONS] =
		rtab_min_u64(broker_option(b, OPTION_SPACE_REGIONS),
			     s->writer.view.index.capacity);
	s->chunk_max[LEDGER_BYTES] = SPACE_CHUNK_MIN_BYTES;
	s->chunk_max[LEDGER_REGIONS] = SPACE_CHUNK_MIN_REGIONS;
	for (unit = 0; unit < LEDGER_N_UNITS; unit++)
		s->chunk_max[unit] = rtab_max_u64(s->chunk_max[unit],
						  s->ledger.max[unit] /
							  SPACE_CHUNK_DIVISOR);
}

void space_want(const struct space *s, uint64_t ret[LEDGER_N_UNITS])
{
	uint64_t chunk, unused;
	int unit;

	for (unit = 0; unit < LEDGER_N_UNITS; unit++) {
		chunk = rtab_min_u64(s->chunk[unit], s->chunk_max[unit]);
		unused = s->ledger.used[unit] - s->told[unit];
		ret[unit] = chunk > unused ? chunk - unused : 0;
	}
}

void space_granted(struct space *s, const uint64_t want[LEDGER_N_UNITS])
{
	int unit;

	for (unit = 0; unit < LEDGER_N_UNITS; unit++)
		if (want[unit])
			s->chunk[unit] = rtab_min_u64(2 * s->chunk[unit],
						      s->chunk_max[unit]);
}

/* The next free number; they only come round after 2^32 attaches. */
static uint32_t new_id(struct broker *b)
{
	do
		b->last_space_id++;
	while (!b->last_space_id || broker_find_space(b, b->last_space_id));
	return b->last_space_id;
}

int space_new(struct broker *b, struct client *c, const char *group,
	      const char *program, uint32_t capacity, struct space **ret)
{
	struct space *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->broker = b;
	s->client = c;
	s->pid = c->pid;
	s->uid = c->uid;
	s->area_fd = -1;
	log_escape(s->program, sizeof(s->program), program, strlen(program));
	r = group_ref(b, c->uid, group, &s->group);
	if (r)
		goto err_space;
	ledger_init(&s->ledger, &s->group->ledger,
		    option_row(OPTION_SPACE_BYTES)->name,
		    option_row(OPTION_SPACE_REGIONS)->name);
	s->id = new_id(b);
	r = rtab_writer_init(&s->writer, s->id, capacity);
	if (r)
		goto err_group;
	space_set_limits(s);
	s->chunk[LEDGER_BYTES] = SPACE_CHUNK_FIRST_BYTES;
	s->chunk[LEDGER_REGIONS] = SPACE_CHUNK_FIRST_REGIONS;
	history_init(&s->history,
		     (uint32_t)broker_option(b, OPTION_HISTORY_EVENTS));
	HASH_ADD(hh, b->spaces, id, sizeof(s->id), s);
	if (!s->hh.tbl) {
		r = -ENOMEM;
		goto err_writer;
	}
	b->n_spaces++;
	*ret = s;
	return 0;

err_writer:
	history_deinit(&s->history);
	rtab_writer_deinit(&s->writer);
err_group:
	group_unref(s->group);
err_space:
	free(s);
	return r;
}

/*
 * A sealed memfd of small pages: on huge pages a read of a hole can end in
 * SIGBUS.  The seals come first: only memory has them, and asking does not wait
 * for anybody, as fstatfs(2) on a user's own file system would.
 */
static int check_area_file(int fd)
{
	struct statfs fs;

	if (fcntl(fd, F_GET_SEALS) < 0)
		return -EPROTO;
	if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	return rtab_segment_check(fd, 0, sizeof(struct rtab_area), NULL);
}

static int check_area_head(int fd, const struct rtab_area *area, uint32_t max,
			   uint32_t *ret_capacity)
{
	/* relaxed: one read; it is the client's to keep it as it was */
	uint32_t capacity = rtab_load_relaxed(&area->capacity);
	int r;

	if (rtab_load_relaxed(&area->magic) != RTAB_AREA_MAGIC ||
	    rtab_load_relaxed(&area->major) != RTAB_MAJOR || capacity == 0 ||
	    capacity > max)
		return -EPROTO;
	r = rtab_segment_check(fd, rtab_area_bytes(capacity), 0, NULL);
	if (!r)
		*ret_capacity = capacity;
	return r;
}

int space_attach(struct space *s, const char *why, int area_fd, int uffd_fd)
{
	const struct rtab_area *area;
	uint32_t capacity;
	int r;

	r = check_area_file(area_fd);
	if (r)
		return r;
	area = rtab_raw_mmap(NULL, AREA_MAPPED_BYTES, PROT_READ, MAP_SHARED,
			     area_fd, 0, &r);
	if (!area)
		return r;
	r = check_area_head(area_fd, area,
			    (uint32_t)rtab_max_u64(s->hello_capacity,
				s->writer.view.index.capacity),
			    &capacity);
	if (!r && uffd_fd >= 0)
		r = uffd_new(s, uffd_fd, &s->uffd);
	if (r) {
		rtab_raw_munmap((void *)area, AREA_MAPPED_BYTES);
		return r;
	}
	s->area = area;
	s->area_fd = area_fd;
	s->area_capacity = capacity;
	/* R1: what is in the ring was meant for an earlier broker. */
	s->ring_tail = rtab_load_acquire(&area->ring_head);
	rtab_store_release(&s->writer.view.table->ring_tail, s->ring_tail);
	log_escape(s->why, sizeof(s->why), why, strlen(why));
	s->attached = true;
	s->attached_ns = rtab_now_ns();
	s->broker->n_attached++;
	s->broker->stats.attached++;
	return 0;
}

/* Of so many ready slots those that count against limits. */
static uint32_t ready_charged(uint32_t ready)
{
	return ready > SPACE_READY_FREE ? ready - SPACE_READY_FREE : 0;
}

/* From here on no answer from this table is trusted, whoever still reads it. */
static void close_table(struct space *s)
{
	struct rtab_table *table = s->writer.view.table;
	uint32_t slot;

	rtab_store_relaxed(&table->closed, 1);
	/* C1: no later event will be read, so this change never ends */
	rtab_exchange(&table->changing, 1);
	for (slot = 0; slot < s->writer.ready; slot++)
		rtab_fetch_add(&s->writer.view.gens[slot], 1);
}

struct space *space_free(struct space *s)
{
	struct broker *b;

	if (!s)
		return NULL;
	b = s->broker;
	close_table(s);
	s->uffd = uffd_free(s->uffd);
	ledger_give_all(&s->ledger);
	ledger_deinit(&s->ledger);
	if (s->attached)
		b->n_attached--;
	if (s->area)
		rtab_raw_munmap((void *)s->area, AREA_MAPPED_BYTES);
	/* Often the last one, and then as long as its memory is large. */
	if (s->area_fd >= 0)
		aside_close(b->aside, s->uid, ASIDE_OURS, &s->area_fd, 1);
	s->group->n_ready -= ready_charged(s->writer.ready);
	b->n_ready -= ready_charged(s->writer.ready);
	rtab_writer_deinit(&s->writer);
	history_deinit(&s->history);
	free(s->regions);
	HASH_DEL(b->spaces, s);
	b->n_spaces--;
	group_unref(s->group);
	free(s);
	return NULL;
}

/* ---- regions ------------------------------------------------------------- */

uint32_t space_n_slots(const struct space *s)
{
	return (uint32_t)rtab_min_u64(s->writer.ready, s->area_capacity);
}

struct region *space_region(struct space *s, uint32_t slot)
{
	if (slot >= s->n_room || s->regions[slot].state == REGION_NONE)
		return NULL;
	return &s->regions[slot];
}

/* Nothing is told: what was kept for regions is not needed. */
static void drop_room(struct space *s)
{
	free(s->regions);
	s->regions = NULL;
	s->n_room = 0;
}

/* Room for slot, below space_n_slots(), and those of the same step. */
static int make_room(struct space *s, uint32_t slot)
{
	uint32_t room = (uint32_t)rtab_round_up((uint64_t)slot + 1,
						RTAB_READY_STEP);
	struct region *regions;

	if (slot < s->n_room)
		return 0;
	regions = realloc(s->regions, (size_t)room * sizeof(*regions));
	if (!regions)
		return -ENOMEM;
	memset(regions + s->n_room, 0,
	       (size_t)(room - s->n_room) * sizeof(*regions));
	s->regions = regions;
	s->n_room = room;
	return 0;
}

static void note(struct space *s, uint32_t what, uint32_t slot, uint64_t start,
		 uint64_t end, uint32_t cause, uint32_t library)
{
	struct history_event event = {
		.time_ns = s->record_ns ? s->record_ns : rtab_now_ns(),
		.start = start,
		.end = end,
		.slot = slot,
		.what = (uint8_t)what,
		.cause = (uint8_t)cause,
		.library = (uint8_t)library,
	};

	history_add(&s->history, &event);
}

void space_note_evicting(struct space *s, uint32_t slot, uint32_t cause,
			 uint32_t limit)
{
	struct region *region = space_region(s, slot);
	struct history_event event = {
		.time_ns = rtab_now_ns(),
		.start = region->start,
		.end = region->end,
		.slot = slot,
		.what = HISTORY_EVICTING,
		.limit = (uint8_t)limit,
		.cause = (uint8_t)cause,
		.library = region->library,
	};

	s->n_evicted += cause == RTAB_CAUSE_EVICTED;
	history_add(&s->history, &event);
}

void space_void(struct space *s, uint32_t slot, uint32_t cause)
{
	struct region *region = space_region(s, slot);
	int r;

	if (region && region->state == REGION_VOID)
		return;
	r = rtab_writer_void(&s->writer, slot);
	assert(!r || r == -ENOMEM); /* void it is, either way */
	if (!region)
		return;
	region->state = REGION_VOID;
	s->n_live--;
	s->n_voided++;
	s->broker->stats.voids[cause]++;
	note(s, HISTORY_VOIDED, slot, region->start, region->end, cause,
	     region->library);
}

bool space_void_range(struct space *s, uint64_t start, uint64_t end,
		      uint32_t cause, uint32_t *budget)
{
	uint32_t slots[VOID_BATCH], n, i;

	for (;;) {
		n = rtab_writer_overlaps(&s->writer, start, end, slots, VOID_BATCH);
		if (!n)
			return true;
		for (i = 0; i < n; i++) {
			space_void(s, slots[i], cause);
			client_tell_voided(s->client, slots[i], cause);
		}
		if (n >= *budget) {
			*budget = 0;
			return false;
		}
		*budget -= n;
	}
}

void space_void_blank(struct space *s)
{
	uint32_t slot;

	for (slot = 0; slot < s->writer.ready; slot++)
		if (!space_region(s, slot))
			rtab_writer_void(&s->writer, slot);
}

/* ---- records ------------------------------------------------------------- */

/* Is req acceptable as a new region?  0 or the errno to log. */
static int check_add(struct space *s, const struct rtab_request *req)
{
	if (req->slot >= space_n_slots(s) || req->domain >= RTAB_N_DOMAINS ||
	    req->library >= RTAB_N_LIBRARIES ||
	    (req->access & ~(uint32_t)REGC_ACCESS_ALL))
		return -EINVAL;
	if (req->start >= req->end || req->end > ADDRESS_MAX ||
	    (req->start | req->end) % RTAB_PAGE)
		return -EINVAL;
	if (space_region(s, req->slot))
		return -EBUSY; /* its last life is not over */
	if (req->end - req->start >
		    s->ledger.used[LEDGER_BYTES] - s->told[LEDGER_BYTES] ||
	    s->told[LEDGER_REGIONS] >= s->ledger.used[LEDGER_REGIONS])
		return -EDQUOT;
	return 0;
}

static void reject(struct space *s, const struct rtab_request *req, int err)
{
	uint32_t cause = err == -EDQUOT ? RTAB_CAUSE_LIMIT : RTAB_CAUSE_REJECTED;

	s->n_rejected++;
	s->broker->stats.rejected++;
	log_debug("record refused: pid %u slot %u: %s", s->pid, req->slot,
		  strerror(-err));
	note(s, HISTORY_REFUSED, req->slot, req->start, req->end, cause,
	     req->library % RTAB_N_LIBRARIES);
	if (req->slot >= s->writer.ready)
		return;
	space_void(s, req->slot, RTAB_CAUSE_REJECTED);
	client_tell_voided(s->client, req->slot, RTAB_CAUSE_REJECTED);
}

/*
 * More slots, as told regions need them: the client uses low ones first, and what
 * it has and did not tell yet fits the ring, which is less than half a step.  They
 * stay, so what a space has beyond SPACE_READY_FREE counts against the limits of
 * its group and of the node (L5).  Without, the client stays with what it has.
 */
static void make_ready(struct space *s)
{
	uint32_t *of_group = &s->group->n_ready, *of_node = &s->broker->n_ready;
	uint32_t had = s->writer.ready, more;
	uint32_t slot = (uint32_t)s->told[LEDGER_REGIONS];

	if (slot + RTAB_READY_STEP / 2 < had)
		return;
	if (had >= SPACE_READY_FREE &&
	    (*of_group + RTAB_READY_STEP > s->group->ledger.max[LEDGER_REGIONS] ||
	     *of_node + RTAB_READY_STEP > s->broker->node.max[LEDGER_REGIONS]))
		return;
	if (rtab_writer_make_ready(&s->writer, slot))
		return;
	more = ready_charged(s->writer.ready) - ready_charged(had);
	*of_group += more;
	*of_node += more;
}

static void record_add(struct space *s, const struct rtab_request *req)
{
	uint64_t now = rtab_now_ns();
	struct region *region;
	int r = check_add(s, req);

	if (!r)
		r = make_room(s, req->slot);
	if (!r)
		r = rtab_writer_add(&s->writer, req->slot, req->start, req->end,
				    req->access);
	if (r) {
		reject(s, req, r);
		return;
	}
	region = &s->regions[req->slot];
	region->start = req->start;
	region->end = req->end;
	region->told_ns = req->time_ns && req->time_ns < now ? req->time_ns : now;
	region->access = req->access;
	region->domains = (uint16_t)(1u << req->domain);
	region->library = (uint8_t)req->library;
	region->state = REGION_LIVE;
	s->told[LEDGER_BYTES] += region_bytes(region);
	s->told[LEDGER_REGIONS]++;
	s->n_live++;
	note(s, HISTORY_ADDED, req->slot, req->start, req->end, 0, req->library);
	make_ready(s);
}

static void record_del(struct space *s, const struct rtab_request *req)
{
	struct region *region = space_region(s, req->slot);

	if (!region)
		return; /* it was refused, and the client knows by now */
	if (region->state == REGION_LIVE)
		space_void(s, req->slot, req->cause);
	note(s, HISTORY_GONE, req->slot, region->start, region->end, req->cause,
	     region->library);
	s->told[LEDGER_BYTES] -= region_bytes(region);
	s->told[LEDGER_REGIONS]--;
	region->state = REGION_NONE;
}

static void record_domain(struct space *s, const struct rtab_request *req)
{
	struct region *region = space_region(s, req->slot);

	if (!region || req->domain >= RTAB_N_DOMAINS)
		return;
	region->domains |= (uint16_t)(1u << req->domain);
	note(s, HISTORY_DOMAIN, req->slot, region->start, region->end, 0,
	     req->library % RTAB_N_LIBRARIES);
}

static void record_void(struct space *s, const struct rtab_request *req)
{
	if (req->slot < s->writer.ready)
		space_void(s, req->slot, req->cause);
}

/*
 * When it happened, by the client's word: records may be read much later.  For
 * show, and in order; a time that cannot be is now.
 */
static uint64_t record_time(const struct space *s, uint64_t time_ns)
{
	uint64_t now = rtab_now_ns();

	return time_ns < s->attached_ns || time_ns > now ? now : time_ns;
}

/* req is our copy. */
static void record(struct space *s, struct rtab_request *req)
{
	s->record_ns = record_time(s, req->time_ns);
	s->n_records++;
	s->broker->stats.records++;
	if (req->cause >= RTAB_N_CAUSES)
		req->cause = RTAB_CAUSE_NONE;
	switch (req->op) {
	case RTAB_OP_ADD:
		record_add(s, req);
		break;
	case RTAB_OP_ADD_DOMAIN:
		record_domain(s, req);
		break;
	case RTAB_OP_VOID:
		record_void(s, req);
		break;
	case RTAB_OP_DEL:
		record_del(s, req);
		break;
	case RTAB_OP_NOTE:
		note(s, HISTORY_NOTE, HISTORY_NO_SLOT, req->start, req->end,
		     req->cause, req->library % RTAB_N_LIBRARIES);
		break;
	default:
		s->n_rejected++;
		s->broker->stats.rejected++;
		break;
	}
	s->record_ns = 0;
}

bool space_ring_pending(const struct space *s)
{
	return s->attached &&
	       rtab_load_acquire(&s->area->ring_head) != s->ring_tail; /* R1 */
}

int space_drain(struct space *s)
{
	struct rtab_request req;
	int n, r = 1;

	if (!s->attached)
		return 0;
	for (n = 0; n < RTAB_N_RING; n++) {
		r = rtab_ring_pop(s->area, &s->ring_tail, &req);
		if (r <= 0)
			break;
		record(s, &req);
	}
	if (!s->told[LEDGER_REGIONS] && s->n_room > RTAB_READY_STEP)
		drop_room(s);
	if (r < 0)
		return r;
	if (n)
		/* R1 release: what was told is in the table by now */
		rtab_store_release(&s->writer.view.table->ring_tail, s->ring_tail);
	return n;
}

/* ---- what the area says -------------------------------------------------- */

static uint32_t n_threads(const struct space *s)
{
	/* relaxed: a bound on what is read, no order needed */
	return (uint32_t)rtab_min_u64(rtab_load_relaxed(&s->area->n_threads),
				      RTAB_N_THREADS);
}

void space_read_leases(const struct space *s, uint32_t first, uint32_t n,
		       uint64_t now_ns, struct evict_lease *ret)
{
	uint64_t words[SPACE_LEASE_CHUNK];
	uint32_t threads = n_threads(s), t, i;

	assert(n <= SPACE_LEASE_CHUNK);
	for (i = 0; i < n; i++)
		ret[i] = (struct evict_lease){ .age = UINT64_MAX };
	for (t = 0; t < threads; t++) {
		uint64_t at = rtab_off_leases(s->area_capacity, t) +
			      (uint64_t)first * 8;

		if (pread(s->area_fd, words, (size_t)n * 8, (off_t)at) !=
		    (ssize_t)n * 8)
			continue;
		for (i = 0; i < n; i++)
			if (words[i])
				evict_lease_add(&ret[i], words[i], now_ns);
	}
}

void counters_add(struct rtab_counters *sum, const struct rtab_counters *c)
{
	sum->hits += c->hits;
	sum->misses += c->misses;
	sum->uncached += c->uncached;
	sum->failed += c->failed;
	sum->puts += c->puts;
	sum->restarts += c->restarts;
	sum->waits += c->waits;
	sum->reg_ns += c->reg_ns;
}

void space_read_counters(const struct space *s, struct rtab_counters *ret)
{
	struct rtab_counters c[RTAB_N_LIBRARIES];
	uint32_t threads = s->attached ? n_threads(s) : 0, t, lib;

	memset(ret, 0, sizeof(c));
	for (t = 0; t < threads; t++) {
		uint64_t at = offsetof(struct rtab_area, threads) +
			      (uint64_t)t * sizeof(struct rtab_thread) +
			      offsetof(struct rtab_thread, counters);

		if (pread(s->area_fd, c, sizeof(c), (off_t)at) != sizeof(c))
			continue;
		for (lib = 0; lib < RTAB_N_LIBRARIES; lib++)
			counters_add(&ret[lib], &c[lib]);
	}
}

char *space_area_text(const char *text, size_t n, char *buf, size_t size)
{
	char copy[128]; /* once: it may change while it is being read */

	n = rtab_min_u64(n, sizeof(copy));
	memcpy(copy, text, n);
	return log_escape(buf, size, copy, n);
}

char *space_library_name(const struct space *s, uint32_t library, char *buf,
			 size_t size)
{
	if (!s->attached || library >= RTAB_N_LIBRARIES)
		return log_escape(buf, size, "?", 1);
	space_area_text(s->area->libraries[library].name, RTAB_NAME_BYTES, buf,
			size);
	return *buf ? buf : log_escape(buf, size, "?", 1);
}
