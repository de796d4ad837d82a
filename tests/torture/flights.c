/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers of torture_transfers, step by step; flights.h says what is checked. */
#include "tests/torture/flights.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/atomic.h"

#define N_FLIGHTS 40
#define N_MOVERS 3
#define N_DONE 65536
#define LIMIT_MS 20000 /* no wait comes near it */
#define OF_CPU (UINT64_C(1) << 63)
#define EDGE UINT64_C(0) /* number of bytes that are not protected */

enum stage { FREE, POSTED, HALF, MOVED };

/* A ring; a file is in three areas a flight: first pass, second pass, source. */
struct mover {
	pthread_mutex_t lock;
	struct regc_domain *dom;
	int fd;
	char *file;
};

enum area { FIRST, SECOND, SOURCE, N_AREAS };

struct flight {
	uint32_t lock;
	enum stage stage;
	uint32_t direction, policy, edges;
	struct mover *mover;
	struct window *window;
	uint32_t n_moves, n_changes; /* of the window, at the begin */
	char *mem;
	size_t len;
	struct regc_lease lease;
	struct regc_transfer transfer;
	uint64_t number;	 /* of what is received */
	char seen[WINDOW_BYTES]; /* what is sent, by the CPU */
};

static struct flight flights[N_FLIGHTS];
static struct mover movers[N_MOVERS];
static uint32_t n_under_way;
static uint64_t last_number;
static uint64_t done_numbers[N_DONE]; /* of number % N_DONE, the last done */

void complain(const char *what, int err)
{
	fprintf(stderr, "torture_transfers: seed %u: %s: %d %s\n", seed, what, err,
		err ? regc_strerror(err) : "");
	rtab_fetch_add(&totals->errors, 1);
}

void die(const char *what)
{
	fprintf(stderr, "torture_transfers: seed %u: %s: %s\n", seed, what,
		strerror(errno));
	abort();
}

/* ---- words --------------------------------------------------------------- */

static uint64_t word_of(uint64_t number, size_t offset)
{
	return number << 16 | offset / 8;
}

uint64_t word_of_cpu(uint64_t *x)
{
	return OF_CPU | next_random(x);
}

void check_word(uint64_t word)
{
	uint64_t number = word >> 16;

	if (word & OF_CPU || number == EDGE)
		return;
	/* The mark is set before the pages are opened. */
	if (rtab_load_acquire(&done_numbers[number % N_DONE]) >= number)
		return;
	if (rtab_fetch_add(&totals->early, 1) < 3)
		fprintf(stderr, "torture_transfers: seed %u: word %llx was read "
				"before its transfer was done\n",
			seed, (unsigned long long)word);
}

/* ---- device -------------------------------------------------------------- */

void flights_open(void)
{
	size_t bytes = N_AREAS * N_FLIGHTS * WINDOW_BYTES;
	int i;

	for (i = 0; i < N_MOVERS; i++) {
		struct mover *m = &movers[i];

		pthread_mutex_init(&m->lock, NULL);
		m->fd = memfd_create("torture", MFD_CLOEXEC);
		if (m->fd < 0 || ftruncate(m->fd, (off_t)bytes) < 0)
			die("memfd");
		m->file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			       m->fd, 0);
		if (m->file == MAP_FAILED ||
		    regc_domain_uring_new(lib, 8, 512, &m->dom))
			die("domain");
	}
}

bool flights_close(void)
{
	bool good = true;
	int i;

	for (i = 0; i < N_MOVERS; i++)
		good = !regc_domain_close(movers[i].dom) && good;
	return good;
}

static size_t place(const struct flight *f, enum area area)
{
	size_t slot = (size_t)(f - flights);

	return (slot * N_AREAS + area) * WINDOW_BYTES;
}

static char *file_at(const struct flight *f, enum area area)
{
	return f->mover->file + place(f, area);
}

/* Moves [from, to) of the buffer between its pages and an area of the file. */
static void move(struct flight *f, bool write, enum area area, size_t from, size_t to)
{
	struct mover *m = f->mover;
	struct io_uring *ring = regc_domain_ring(m->dom);
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	unsigned int n = (unsigned int)(to - from);
	size_t at = place(f, area) + from;
	int r;

	if (!n)
		return;
	pthread_mutex_lock(&m->lock);
	sqe = io_uring_get_sqe(ring);
	if (write)
		io_uring_prep_write_fixed(sqe, m->fd, f->mem + from, n, at,
					  (int)f->lease.lkey);
	else
		io_uring_prep_read_fixed(sqe, m->fd, f->mem + from, n, at,
					 (int)f->lease.lkey);
	r = io_uring_submit_and_wait(ring, 1);
	while ((r = io_uring_wait_cqe(ring, &cqe)) == -EINTR)
		;
	if (!r) {
		r = cqe->res;
		io_uring_cqe_seen(ring, cqe);
	}
	pthread_mutex_unlock(&m->lock);
	if (r != (int)n)
		complain("a move of the device", r < 0 ? r : 0);
}

/* ---- beginning ----------------------------------------------------------- */

static struct flight *flight_take(uint64_t *x)
{
	uint32_t first = (uint32_t)(next_random(x) >> 16), i, zero;

	for (i = 0; i < N_FLIGHTS; i++) {
		struct flight *f = &flights[(first + i) % N_FLIGHTS];

		zero = 0;
		if (!rtab_cas(&f->lock, &zero, 1))
			continue;
		if (f->stage == FREE)
			return f;
		rtab_store_release(&f->lock, 0);
	}
	return NULL;
}

/* A part of a window in whole words, or whole pages half of the time. */
static void choose(struct flight *f, struct window *w, uint64_t *x)
{
	size_t unit = next_random(x) >> 20 & 1 ? PAGE : 8;
	size_t all = WINDOW_BYTES / unit, first, n;
	static const uint32_t policies[] = { REGC_POLICY_BLOCK, REGC_POLICY_BLOCK,
					     REGC_POLICY_COPY, REGC_POLICY_REPORT };

	first = (next_random(x) >> 24) % all;
	n = 1 + (next_random(x) >> 24) % (all - first);
	f->mem = w->mem + first * unit;
	f->len = n * unit;
	f->window = w;
	f->n_moves = rtab_load_acquire(&w->n_moves);
	f->n_changes = rtab_load_acquire(&w->n_changes);
	f->mover = &movers[(next_random(x) >> 24) % N_MOVERS];
	f->direction = w->kind == WINDOW_SEND || (next_random(x) >> 24) % 3 == 0 ?
			       REGC_SEND :
			       REGC_RECEIVE;
	f->policy = policies[(next_random(x) >> 24) % 4];
	if (f->direction == REGC_RECEIVE)
		f->policy = REGC_POLICY_BLOCK;
	f->edges = next_random(x) >> 24 & 1 ? REGC_EDGES_INNER : REGC_EDGES_WHOLE;
}

/* Of bytes that are protected, in [*ret_from, *ret_to) of the buffer. */
static void protected_part(const struct flight *f, size_t *ret_from, size_t *ret_to)
{
	uintptr_t start = (uintptr_t)f->mem, end = start + f->len;
	uintptr_t low = (start + PAGE - 1) & -PAGE, high = end & -PAGE;

	*ret_from = 0;
	*ret_to = f->len;
	if (f->edges == REGC_EDGES_WHOLE)
		return;
	*ret_from = low < end ? low - start : f->len;
	*ret_to = high > start ? high - start : 0;
	if (*ret_to < *ret_from)
		*ret_from = *ret_to = 0;
}

static void make_source(struct flight *f)
{
	uint64_t *words = (uint64_t *)file_at(f, SOURCE);
	size_t from, to, i;

	f->number = rtab_fetch_add(&last_number, 1) + 1;
	protected_part(f, &from, &to);
	for (i = 0; i < f->len; i += 8)
		words[i / 8] = word_of(i >= from && i < to ? f->number : EDGE, i);
}

/* The device has it from now on. */
static void post(struct flight *f)
{
	int r;

	if (f->direction == REGC_SEND) {
		if (f->policy == REGC_POLICY_BLOCK)
			memcpy(f->seen, f->mem, f->len);
		move(f, true, FIRST, 0, f->len);
	} else {
		make_source(f);
	}
	r = regc_transfer_posted(&f->transfer);
	if (r)
		complain("posted", r);
	f->stage = POSTED;
	rtab_fetch_add(&totals->begun, 1);
}

static void undo(struct flight *f)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	int r = regc_transfer_abort(&f->transfer, &info);

	if (r || !(info.flags & REGC_TRANSFER_ABORTED) ||
	    info.state != REGC_TRANSFER_COMPLETE)
		complain("abort", r);
	regc_put(&f->lease);
	rtab_fetch_add(&totals->aborted, 1);
}

static int begin(struct flight **f, unsigned int n, uint64_t *x)
{
	struct regc_transfer_attr attr = {
		.size = sizeof(attr), .policy = f[0]->policy, .edges = f[0]->edges,
		.conflict = next_random(x) >> 24 & 1 ? REGC_CONFLICT_REFUSE :
						       REGC_CONFLICT_QUEUE,
		.limit_ms = LIMIT_MS,
	};
	struct regc_transfer_part parts[2];
	struct regc_transfer t[2];
	unsigned int i;
	int r;

	for (i = 0; i < n; i++)
		parts[i] = (struct regc_transfer_part){ &f[i]->lease, f[i]->mem,
							f[i]->len };
	if (n == 1)
		return regc_transfer_begin(&f[0]->lease, f[0]->mem, f[0]->len,
					   f[0]->direction, &attr,
					   &f[0]->transfer);
	r = regc_transfer_begin_many(parts, n, f[0]->direction, &attr, t);
	for (i = 0; i < n && !r; i++)
		f[i]->transfer = t[i];
	return r;
}

static int get(struct flight *f)
{
	return regc_get(f->mover->dom, f->mem, f->len, REGC_ACCESS_LOCAL_WRITE,
			&f->lease);
}

/*
 * Two that receive into the same bytes would each be torn by the other, and what
 * mprotect(2) closes is one transfer's alone, page for page.
 */
static bool overlap(const struct flight *a, const struct flight *b)
{
	uintptr_t a_page = (uintptr_t)a->mem & -PAGE, b_page = (uintptr_t)b->mem & -PAGE;

	return a_page < (uintptr_t)b->mem + b->len &&
	       b_page < (uintptr_t)a->mem + a->len;
}

static void launch(struct flight **f, unsigned int n, uint64_t *x)
{
	bool abort_it = (next_random(x) >> 24) % 16 == 0;
	unsigned int i;
	int r;

	for (i = 0; i < n; i++) {
		r = get(f[i]);
		if (r) {
			complain("get", r);
			while (i--)
				regc_put(&f[i]->lease);
			return;
		}
	}
	r = begin(f, n, x);
	if (r == -EBUSY || r == -ESTALE)
		rtab_fetch_add(&totals->refused, 1);
	else if (r)
		complain("begin", r);
	for (i = 0; i < n; i++) {
		if (r) {
			regc_put(&f[i]->lease);
		} else if (abort_it) {
			undo(f[i]);
		} else {
			post(f[i]);
			rtab_fetch_add(&n_under_way, 1);
		}
	}
}

void flights_begin(struct window *w, uint64_t *x)
{
	struct flight *f[2] = { NULL, NULL };
	unsigned int n, i;

	for (n = 0; n < 1 + (next_random(x) >> 30 & 1); n++) {
		f[n] = flight_take(x);
		if (!f[n])
			break;
		choose(f[n], w, x);
	}
	if (n == 2) {
		f[1]->direction = f[0]->direction;
		f[1]->policy = f[0]->policy;
		f[1]->edges = f[0]->edges;
	}
	if (n == 2 && f[0]->direction == REGC_RECEIVE && overlap(f[0], f[1])) {
		rtab_store_release(&f[1]->lock, 0);
		n = 1;
	}
	if (n)
		launch(f, n, x);
	for (i = 0; i < n; i++)
		rtab_store_release(&f[i]->lock, 0);
}

/* ---- what came of it ----------------------------------------------------- */

static void torn(const struct flight *f, const char *what, const char *a,
		 const char *b, uint32_t flags)
{
	size_t i = 0;

	while (a[i] == b[i])
		i++;
	if (rtab_fetch_add(&totals->torn, 1) < 3)
		fprintf(stderr, "torture_transfers: seed %u: torn (%s): window kind "
				"%d, direction %u, policy %u, edges %u, flags %x, "
				"buffer %p + %#zx of %#zx, %u moves, %u changes\n",
			seed, what, (int)f->window->kind, f->direction, f->policy,
			f->edges, flags, (void *)f->mem, i, f->len,
			f->window->n_moves - f->n_moves,
			f->window->n_changes - f->n_changes);
}

/* Has it been said that the data may be torn? */
static bool excused(const struct flight *f, uint32_t flags)
{
	if (flags & REGC_TRANSFER_DAMAGED)
		return true;
	/* Memory that was moved is open at its new place. */
	return flags & REGC_TRANSFER_DETACHED &&
	       rtab_load_acquire(&f->window->n_moves) != f->n_moves;
}

/*
 * Bytes at the edges are compared, not protected: what was changed and then emptied
 * with its page may be equal again.
 */
static void part_to_check(const struct flight *f, size_t *ret_from, size_t *ret_to)
{
	if (rtab_load_acquire(&f->window->n_changes) != f->n_changes) {
		protected_part(f, ret_from, ret_to);
	} else {
		*ret_from = 0;
		*ret_to = f->len;
	}
}

static void check_send(const struct flight *f, uint32_t flags)
{
	const char *first = file_at(f, FIRST), *second = file_at(f, SECOND);
	size_t from, to;

	rtab_fetch_add(&totals->sent, 1);
	if (excused(f, flags))
		return;
	part_to_check(f, &from, &to);
	if (memcmp(first + from, second + from, to - from))
		torn(f, "two passes", first + from, second + from, flags);
	else if (f->policy == REGC_POLICY_BLOCK &&
		 memcmp(f->seen + from, first + from, to - from))
		torn(f, "what the CPU saw", f->seen + from, first + from, flags);
}

static void check_receive(const struct flight *f, uint32_t flags)
{
	const char *source = file_at(f, SOURCE), *back = file_at(f, SECOND);
	size_t from, to;

	rtab_fetch_add(&totals->received, 1);
	protected_part(f, &from, &to);
	if (!excused(f, flags) && memcmp(source + from, back + from, to - from))
		torn(f, "read back", source + from, back + from, flags);
}

/* Whole pages and policy block: nothing may have been let through. */
static void check_damage(const struct flight *f, uint32_t flags)
{
	bool whole = f->edges == REGC_EDGES_WHOLE ||
		     (((uintptr_t)f->mem | f->len) & (PAGE - 1)) == 0;

	if (flags & REGC_TRANSFER_TIMED_OUT)
		complain("a wait that came to its limit", 0);
	if (flags & REGC_TRANSFER_DAMAGED && whole &&
	    f->policy != REGC_POLICY_REPORT &&
	    rtab_load_acquire(&f->window->n_moves) == f->n_moves)
		complain("damage to a transfer that should have been protected", 0);
}

static void count_flags(uint32_t flags)
{
	rtab_fetch_add(&totals->blocked, !!(flags & REGC_TRANSFER_BLOCKED));
	rtab_fetch_add(&totals->copied, !!(flags & REGC_TRANSFER_COPIED));
	rtab_fetch_add(&totals->damaged, !!(flags & REGC_TRANSFER_DAMAGED));
	rtab_fetch_add(&totals->detached, !!(flags & REGC_TRANSFER_DETACHED));
	rtab_fetch_add(&totals->weak, !!(flags & REGC_TRANSFER_WEAK));
	rtab_fetch_add(&totals->open, !!(flags & REGC_TRANSFER_OPEN));
}

static void finish(struct flight *f)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	int r;

	if (f->direction == REGC_RECEIVE)
		rtab_store_release(&done_numbers[f->number % N_DONE], f->number);
	r = regc_transfer_complete(&f->transfer, &info);
	if (r || info.state != REGC_TRANSFER_COMPLETE)
		complain("complete", r);
	if (regc_transfer_complete(&f->transfer, NULL) != -ESTALE)
		complain("completed twice", 0);
	if (f->direction == REGC_SEND)
		check_send(f, info.flags);
	else
		check_receive(f, info.flags);
	check_damage(f, info.flags);
	count_flags(info.flags);
	regc_put(&f->lease);
	f->stage = FREE;
	rtab_fetch_sub(&n_under_way, 1);
	rtab_fetch_add(&totals->completed, 1);
}

static void step(struct flight *f)
{
	bool send = f->direction == REGC_SEND;
	size_t half = f->len / 16 * 8;

	switch (f->stage) {
	case POSTED:
		move(f, send, send ? SECOND : SOURCE, 0, half);
		f->stage = HALF;
		break;
	case HALF:
		move(f, send, send ? SECOND : SOURCE, half, f->len);
		f->stage = MOVED;
		break;
	case MOVED:
		if (!send)
			move(f, true, SECOND, 0, f->len);
		finish(f);
		break;
	case FREE:
		break;
	}
}

bool flights_step(uint64_t *x)
{
	uint32_t first = (uint32_t)(next_random(x) >> 16), i, zero;
	bool any = false;

	for (i = 0; i < N_FLIGHTS && !any; i++) {
		struct flight *f = &flights[(first + i) % N_FLIGHTS];

		zero = 0;
		if (!rtab_cas(&f->lock, &zero, 1))
			continue;
		any = f->stage != FREE;
		step(f);
		rtab_store_release(&f->lock, 0);
	}
	return any;
}

uint32_t flights_under_way(void)
{
	return rtab_load_acquire(&n_under_way);
}
