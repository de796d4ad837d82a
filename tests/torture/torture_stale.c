/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random changes of memory against gets whose data goes through the device (L1).
 *
 *   torture_stale [seconds [threads [processes]]]
 *   REGC_MODE, and what run.h says.
 *
 * Every process has an arena of windows.  A thread takes a window, either changes
 * it (any call that takes or replaces pages, see changes.c, through libc or raw;
 * then it writes a pattern that never was there before) or leases a part of it,
 * lets io_uring write it to a file from the fixed buffer and compares with what
 * the CPU sees.
 * Whoever takes a window next is ordered after the change by the window's lock.
 *
 * Besides, three threads play the races that locks cannot order, see below.
 *
 * Prints counts and fails on any mismatch, on a hang (alarm), or if something is
 * still pinned when everything is unmapped.  Exit status 3: it could not begin.
 */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "shm/segment.h"
#include "tests/torture/run.h"
#include "tests/torture/torture.h"

#define MAX_THREADS 10
#define HANG_SECONDS 60
#define LIMIT_NS UINT64_C(5000000000)

struct totals *totals;
bool strict;
static uint32_t stop;
static struct regc_library *lib;

struct mover {
	struct regc_domain *dom;
	int fd;
	char *seen;
};

void die(const char *what)
{
	fprintf(stderr, "torture_stale: seed %u: %s: %s\n", seed, what,
		strerror(errno));
	abort();
}

/* ---- moving ------------------------------------------------------------- */

static struct mover movers[MAX_THREADS + 2];
static uint32_t n_movers;

static struct mover *mover_open(void)
{
	struct mover *m = &movers[rtab_fetch_add(&n_movers, 1)];

	m->fd = memfd_create("torture", MFD_CLOEXEC);
	m->seen = mmap(NULL, WINDOW_BYTES, PROT_READ, MAP_SHARED, m->fd, 0);
	if (m->fd < 0 || m->seen == MAP_FAILED ||
	    ftruncate(m->fd, (off_t)WINDOW_BYTES) < 0 ||
	    regc_domain_uring_new(lib, 8, 512, &m->dom))
		die("domain");
	return m;
}

static void mover_close(struct mover *m)
{
	munmap(m->seen, WINDOW_BYTES);
	close(m->fd);
	if (regc_domain_close(m->dom)) {
		fprintf(stderr, "torture_stale: seed %u: a domain does not close\n",
			seed);
		rtab_fetch_add(&totals->errors, 1);
	}
}

static bool move(struct mover *m, const struct regc_lease *lease, const char *mem,
		 size_t bytes)
{
	struct io_uring *ring = regc_domain_ring(m->dom);
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int r;

	io_uring_prep_write_fixed(sqe, m->fd, mem, (unsigned int)bytes, 0,
				  (int)lease->lkey);
	if (io_uring_submit_and_wait(ring, 1) < 0 ||
	    io_uring_wait_cqe(ring, &cqe))
		return false;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r == (int)bytes;
}

/* A get of memory that nobody can access: no registration can be of it. */
static void get_refused(struct mover *m, const char *mem, size_t bytes)
{
	struct regc_lease lease;

	rtab_fetch_add(&totals->refused, 1);
	if (regc_get(m->dom, mem, bytes, REGC_ACCESS_LOCAL_WRITE, &lease))
		return;
	rtab_fetch_add(&totals->wrong, 1);
	regc_put(&lease);
}

/* A get that must give the pages that are there now. */
static void get_and_compare(struct mover *m, const char *mem, size_t bytes)
{
	struct regc_lease lease;
	int r = regc_get(m->dom, mem, bytes, REGC_ACCESS_LOCAL_WRITE, &lease);

	/* Void now, but leased: what is under way must go on (L2). */
	if (rtab_fetch_add(&totals->gets, 1) % 8 == 0)
		regc_invalidate(lib, mem, bytes);
	if (r || !move(m, &lease, mem, bytes)) {
		rtab_fetch_add(&totals->errors, 1);
		fprintf(stderr, "torture_stale: seed %u: get or move: %s\n", seed,
			regc_strerror(r));
	} else if (memcmp(m->seen, mem, bytes)) {
		rtab_fetch_add(&totals->wrong, 1);
	}
	if (!r) {
		if (lease.flags & REGC_LEASE_UNCACHED)
			rtab_fetch_add(&totals->uncached, 1);
		regc_put(&lease);
	}
}

/* ---- threads ------------------------------------------------------------ */

static struct window *take_window(uint64_t x)
{
	struct window *w = &windows[x % WINDOWS];
	uint32_t zero = 0;

	return rtab_cas(&w->lock, &zero, 1) ? w : NULL;
}

static void one_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct regc_lease lease;
		struct regc_domain *dom;
		char *mem = map_at(NULL, PAGE, 0, false);

		alarm(HANG_SECONDS);
		if (regc_domain_null(lib, &dom) ||
		    regc_get(dom, mem, PAGE, 0, &lease))
			_exit(1);
		regc_put(&lease);
		_exit(0);
	}
	if (pid > 0) {
		int status;

		if (waitpid(pid, &status, 0) != pid || status) {
			fprintf(stderr, "torture_stale: seed %u: a child ended "
					"with %x\n", seed, (unsigned int)status);
			rtab_fetch_add(&totals->errors, 1);
		}
	}
}

static void *work(void *arg)
{
	uint64_t x = seed * UINT64_C(2654435761) + (uintptr_t)arg + 1, n = 0;
	struct mover *m = mover_open();

	while (!rtab_load_relaxed(&stop)) {
		struct window *w = take_window(next_random(&x) >> 20);
		size_t off, len;

		if (!w)
			continue;
		if (next_random(&x) % 3 == 0) {
			window_change(w, next_random(&x));
		} else {
			off = next_random(&x) % (WINDOW_BYTES - 64);
			len = 1 + next_random(&x) % (WINDOW_BYTES - off);
			if (off < w->closed_to && off + len > w->closed_from)
				get_refused(m, w->mem + off, len);
			else
				get_and_compare(m, w->mem + off, len);
		}
		rtab_store_release(&w->lock, 0);
		if ((uintptr_t)arg % 100 == 0 && ++n % 5000 == 0)
			one_fork();
	}
	return NULL;
}

/* ---- races that no lock orders ------------------------------------------- */

/*
 * A unmaps while B maps the same address the moment it is free, before A's event
 * is read.  One of the two goes through libc, in turn; in strict mode neither.
 */
static struct {
	char *mem;
	uint32_t turn; /* 1: A may unmap raw, 2: through libc, 0: B has it */
} race;

static void *race_unmap(void *arg)
{
	uint32_t turn;

	(void)arg;
	while (!rtab_load_relaxed(&stop)) {
		turn = rtab_load_acquire(&race.turn);
		if (turn == 0)
			continue;
		rtab_store_relaxed(&race.turn, 0);
		unmap(race.mem, WINDOW_BYTES, turn == 1);
	}
	return NULL;
}

static void *race_map(void *arg)
{
	struct mover *m = mover_open();
	uint32_t turn = 1;

	(void)arg;
	race.mem = map_at(LOW - 16 * WINDOW_BYTES, WINDOW_BYTES, MAP_FIXED, true);
	while (!rtab_load_relaxed(&stop)) {
		fill(race.mem, WINDOW_BYTES);
		get_and_compare(m, race.mem, WINDOW_BYTES);
		turn = strict ? 1 : 3 - turn;
		rtab_store_release(&race.turn, turn);
		while (map_at(race.mem, WINDOW_BYTES, MAP_FIXED_NOREPLACE,
			      strict || turn == 2) != race.mem)
			if (rtab_load_relaxed(&stop))
				return NULL;
		fill(race.mem, 64);
		get_and_compare(m, race.mem, WINDOW_BYTES);
		rtab_fetch_add(&totals->races, 1);
	}
	return NULL;
}

/*
 * One thread changes raw, many regions at once, and gets the last of them as soon
 * as the call returns: the event was read, but is everything void already?
 */
static void *race_return(void *arg)
{
	char *mem = LOW - 64 * WINDOW_BYTES;
	size_t bytes = WINDOW_BYTES, i;
	struct mover *m = mover_open();
	uint64_t n;

	(void)arg;
	map_at(mem, bytes, MAP_FIXED, true);
	for (n = 0; !rtab_load_relaxed(&stop); n++) {
		fill(mem, bytes);
		for (i = 0; i < bytes; i += PAGE)
			get_and_compare(m, mem + i, PAGE);
		if (n % 2) {
			unmap(mem, bytes, true);
			map_at(mem, bytes, MAP_FIXED, true);
		} else {
			discard(mem, bytes, n / 2, true);
			fill(mem, bytes);
		}
		get_and_compare(m, mem + bytes - PAGE, PAGE);
		rtab_fetch_add(&totals->races, 1);
	}
	unmap(mem, bytes, true);
	return NULL;
}

/* ---- a process ---------------------------------------------------------- */

static bool all_unpinned(void)
{
	struct regc_stats s = { .size = sizeof(s) };
	uint64_t limit;
	uint32_t i;

	for (i = 0; i < WINDOWS; i++)
		regc_invalidate(lib, windows[i].mem, WINDOW_BYTES);
	unmap(race.mem, WINDOW_BYTES, false);
	for (limit = rtab_now_ns() + LIMIT_NS; rtab_now_ns() < limit; pause_ms(1)) {
		regc_stats(lib, &s);
		if (s.pinned_bytes == 0)
			return true;
	}
	fprintf(stderr, "torture_stale: %llu bytes are still pinned\n",
		(unsigned long long)s.pinned_bytes);
	return false;
}

static int run_process(unsigned int seconds, uint32_t threads, uint32_t me)
{
	struct regc_status st = { .size = sizeof(st) };
	struct regc_stats s = { .size = sizeof(s) };
	pthread_t t[MAX_THREADS + 3];
	uint64_t end;
	uint32_t i;

	alarm(seconds + HANG_SECONDS);
	outsider_start();
	if (!run_open("torture_stale", &lib, &st))
		return RUN_NOT;
	strict = st.mode == REGC_MODE_STRICT;
	windows_make();
	for (i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, work,
			       (void *)(uintptr_t)(me * 100 + i));
	pthread_create(&t[threads], NULL, race_unmap, NULL);
	pthread_create(&t[threads + 1], NULL, race_map, NULL);
	pthread_create(&t[threads + 2], NULL, race_return, NULL);
	end = rtab_now_ns() + seconds * UINT64_C(1000000000);
	while (rtab_now_ns() < end)
		pause_ms(10);
	rtab_store_release(&stop, 1);
	for (i = 0; i < threads + 3; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < n_movers; i++)
		mover_close(&movers[i]);
	regc_stats(lib, &s);
	rtab_fetch_add(&totals->hits, s.hits);
	return all_unpinned() ? 0 : 1;
}

/* ---- main --------------------------------------------------------------- */

static int report(void)
{
	printf("torture_stale: %llu changes, %llu gets (%llu hits, %llu uncached), "
	       "%llu refused, %llu races\n",
	       (unsigned long long)totals->changes,
	       (unsigned long long)totals->gets,
	       (unsigned long long)totals->hits,
	       (unsigned long long)totals->uncached,
	       (unsigned long long)totals->refused,
	       (unsigned long long)totals->races);
	printf("torture_stale: %llu wrong, %llu errors\n",
	       (unsigned long long)totals->wrong,
	       (unsigned long long)totals->errors);
	/* A broker that is killed all the time may leave no time for a hit. */
	return totals->wrong || totals->errors ||
	       (!totals->hits && !getenv("REGC_TEST_KILL"));
}

int main(int argc, char **argv)
{
	static const struct run run = {
		.name = "torture_stale", .max_threads = MAX_THREADS,
		.process = run_process, .report = report,
	};

	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return run_torture(&run, argc, argv);
}
