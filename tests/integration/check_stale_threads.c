/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 between threads: the address is taken by another thread at once, others
 * get while one changes, and random calls from several threads side by side.
 *
 * Who asks is always ordered after the change that it asks about: it made the
 * change, or its own mmap of the address could only succeed after it.  Each thread
 * has a ring of its own to ask with.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/integration/stale.h"

#define MAX_PAGES 16

struct one {
	pthread_t thread;
	struct oracle oracle;
	uint64_t seed;
	char *mem;
	size_t bytes; /* now mapped there */
	char *elsewhere; /* a free page */
	/* A pair: odd, the second thread is to unmap. */
	uint32_t turn;
	unsigned int rounds;
	const char *did; /* the last change */
	bool discards;	 /* madvise is among the changes */
	bool stop;
};

static void ask(struct one *o, const char *mem, size_t len)
{
	ck_assert_msg(oracle_check(&o->oracle, mem, len),
		      "stale: %p + %zu after %s", (const void *)mem, len,
		      o->did ? o->did : "munmap and mmap");
}

static size_t some_bytes(struct one *o)
{
	return (1 + next_random(&o->seed) % MAX_PAGES) * PAGE;
}

/* ---- one unmaps, the other takes the address at once -------------------- */

static void *unmap_raw(void *arg)
{
	struct one *o = arg;

	while (!rtab_load_acquire(&o->stop)) {
		if (!(rtab_load_acquire(&o->turn) & 1)) {
			sched_yield();
			continue;
		}
		/* Even before the call is over: the address is free in it. */
		rtab_fetch_add(&o->turn, 1);
		raw_munmap(o->mem, o->bytes);
	}
	return NULL;
}

static bool take(struct one *o, size_t bytes)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	int prot = PROT_READ | PROT_WRITE;

	if (is_strict())
		return syscall(SYS_mmap, o->mem, bytes, prot, flags, -1, 0L) !=
		       -1;
	return mmap(o->mem, bytes, prot, flags, -1, 0) != MAP_FAILED;
}

static void *take_and_ask(void *arg)
{
	struct one *o = arg;
	pthread_t other;
	unsigned int i;

	ck_assert_int_eq(pthread_create(&other, NULL, unmap_raw, o), 0);
	for (i = 0; i < o->rounds; i++) {
		size_t bytes = some_bytes(o);

		if (i % 2 == 0)
			bytes = o->bytes;
		rtab_fetch_add(&o->turn, 1);
		while (!take(o, bytes))
			sched_yield();
		memset(o->mem, (int)i, bytes);
		/* Not more than was unmapped: the rest may still be there. */
		ask(o, o->mem, bytes);
		while (rtab_load_acquire(&o->turn) & 1)
			sched_yield();
		o->bytes = bytes;
	}
	rtab_store_release(&o->stop, true);
	pthread_join(other, NULL);
	return NULL;
}

static void start(struct one *o, int n, void *(*fn)(void *), uint64_t seed)
{
	int i;

	for (i = 0; i < n; i++) {
		o[i].seed = seed + (uint64_t)i * 7919;
		o[i].elsewhere = window(PAGE);
		oracle_open(&o[i].oracle, lib, 64);
	}
	for (i = 0; i < n; i++)
		ck_assert_int_eq(pthread_create(&o[i].thread, NULL, fn, &o[i]),
				 0);
	for (i = 0; i < n; i++)
		pthread_join(o[i].thread, NULL);
}

static void pairs(int n, unsigned int rounds, const char *name)
{
	static struct one o[2];
	int i;

	for (i = 0; i < n; i++) {
		o[i].bytes = MAX_PAGES * PAGE;
		o[i].mem = raw_mmap_at(window(o[i].bytes), o[i].bytes);
		o[i].rounds = rounds;
	}
	start(o, n, take_and_ask, test_seed(name));
}

/* Faults D1 and D8, window (i). */
START_TEST(address_taken_by_another_thread_at_once_is_never_stale)
{
	/* 10 000 rounds in a longer run. */
	pairs(1, test_seconds() > 2 ? 10000 : 2500, "take the address");
}
END_TEST

START_TEST(addresses_taken_by_two_threads_at_once_are_never_stale)
{
	pairs(2, 500, "take two addresses");
}
END_TEST

/* ---- others get while one changes --------------------------------------- */

static struct one shared;

static void *only_get(void *arg)
{
	struct one *o = arg;
	struct regc_lease lease;

	while (!rtab_load_acquire(&shared.stop)) {
		size_t from = next_random(&o->seed) % MAX_PAGES;
		size_t n = 1 + next_random(&o->seed) % (MAX_PAGES - from);
		int r = regc_get(o->oracle.dom, shared.mem + from * PAGE,
				 n * PAGE, W, &lease);

		/* There may be a hole at this moment. */
		ck_assert_msg(r == 0 || r == -EFAULT, "get: %s", strerror(-r));
		if (r == 0)
			regc_put(&lease);
	}
	return NULL;
}

static void change(struct one *o, char *mem, size_t bytes)
{
	static const char *const names[] = {
		"madvise by libc", "mmap over it by libc", "mremap by libc",
		"munmap by libc", "raw madvise", "raw mmap over it",
		"raw mremap", "raw munmap",
	};
	unsigned int which = next_random(&o->seed) % 8;
	enum road road;

	if (which % 4 == 0 && !o->discards)
		which++;
	road = which >= 4 ? ROAD_RAW : ROAD_LIBC;
	o->did = names[which];
	switch (which % 4) {
	case 0:
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, mem, bytes,
					   MADV_DONTNEED, 0, 0, 0), 0);
		break;
	case 1:
		ck_assert_int_eq(ROAD_CALL(road, SYS_mmap, mem, bytes,
					   PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS |
						   MAP_FIXED, -1, 0),
				 (long)mem);
		break;
	case 2:
		/* One page: it is one mapping for sure. */
		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem, PAGE, PAGE,
					   MREMAP_MAYMOVE | MREMAP_FIXED,
					   o->elsewhere, 0), (long)o->elsewhere);
		road_map_at(road, mem, PAGE, 0);
		break;
	default:
		road_unmap(road, mem, bytes);
		road_map_at(road, mem, bytes, 0);
		break;
	}
}

/* Fault D14 from outside: registrations are made across every change. */
START_TEST(registrations_made_during_a_change_are_never_trusted)
{
	static struct one getters[2];
	uint64_t seed = test_seed("get while it changes");
	unsigned int i;
	int t;

	memset(&shared, 0, sizeof(shared));
	shared.seed = seed;
	shared.oracle = oracle;
	shared.mem = raw_mmap_at(window(MAX_PAGES * PAGE), MAX_PAGES * PAGE);
	shared.elsewhere = window(PAGE);
	for (t = 0; t < 2; t++) {
		getters[t].seed = seed + 1 + (uint64_t)t;
		getters[t].oracle = oracle;
		pthread_create(&getters[t].thread, NULL, only_get, &getters[t]);
	}
	for (i = 0; i < 3000; i++) {
		size_t from = next_random(&shared.seed) % MAX_PAGES;
		size_t n = 1 + next_random(&shared.seed) % (MAX_PAGES - from);
		char *mem = shared.mem + from * PAGE;

		/* Later: what is given back is not cached for a moment. */
		shared.discards = i >= 2000;
		change(&shared, mem, n * PAGE);
		if (next_random(&shared.seed) & 1)
			memset(mem, (int)i, PAGE);
		ask(&shared, mem, n * PAGE);
	}
	rtab_store_release(&shared.stop, true);
	for (t = 0; t < 2; t++)
		pthread_join(getters[t].thread, NULL);
}
END_TEST

/* ---- in the middle of a get --------------------------------------------- */

static void fill_hole(void *arg, void *addr, size_t len)
{
	(void)addr;
	(void)len;
	if (*(char **)arg)
		raw_mmap_at(*(char **)arg, PAGE);
	*(char **)arg = NULL;
}

/* The watch was put on a range with a hole, which is full when it is registered. */
START_TEST(hole_filled_while_it_is_registered_is_tracked)
{
	char *mem = raw_mmap_at(window(8 * PAGE), 8 * PAGE), *hole;
	struct regc_lease lease;

	raw_munmap(mem + 3 * PAGE, PAGE);
	hole = mem + 3 * PAGE;
	fake.in_reg = fill_hole;
	fake.in_reg_arg = &hole;
	ck_assert_int_eq(regc_get(fake_dom, mem, 8 * PAGE, W, &lease), 0);
	ck_assert_ptr_null(hole);
	raw_munmap(mem + 3 * PAGE, PAGE);
	raw_mmap_at(mem + 3 * PAGE, PAGE);
	ck_assert_int_eq(regc_query(fake_dom, mem, 8 * PAGE, W), 0);
	regc_put(&lease);
}
END_TEST

struct during {
	char *mem;
	void (*change)(char *mem);
	int left;
};

static void change_during(void *arg, void *addr, size_t len)
{
	struct during *d = arg;

	(void)addr;
	(void)len;
	if (d->left-- > 0)
		d->change(d->mem);
}

static void by_dontneed(char *mem)
{
	ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
}

static void by_raw_dontneed(char *mem)
{
	ck_assert_int_eq(syscall(SYS_madvise, mem, PAGE, MADV_DONTNEED), 0);
}

static void by_munmap(char *mem)
{
	ck_assert_int_eq(munmap(mem, PAGE), 0);
	raw_mmap_at(mem, PAGE);
}

static void by_raw_munmap(char *mem)
{
	raw_munmap(mem, PAGE);
	raw_mmap_at(mem, PAGE);
}

static void by_mmap(char *mem)
{
	ck_assert_ptr_eq(mmap(mem, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
}

static void by_mremap(char *mem)
{
	void *to = mremap(mem, PAGE, PAGE,
			  MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

	ck_assert_ptr_ne(to, MAP_FAILED);
}

/* Faults A1, A5, A6 and D14: the callback of the device makes the change. */
START_TEST(change_in_the_middle_of_a_get_makes_it_start_over)
{
	static void (*const changes[])(char *mem) = {
		by_dontneed, by_raw_dontneed, by_munmap, by_raw_munmap, by_mmap,
		by_mremap,
	};
	size_t i;

	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		char *mem = raw_mmap_at(window(8 * PAGE), 8 * PAGE);
		struct during d = { mem + (i + 1) * PAGE, changes[i], 1 };
		uint64_t restarts = stats_now().restarts;
		struct regc_lease lease;

		fake.in_reg = change_during;
		fake.in_reg_arg = &d;
		ck_assert_int_eq(regc_get(fake_dom, mem, 8 * PAGE, W, &lease), 0);
		ck_assert_int_lt(d.left, 0);
		ck_assert_uint_gt(stats_now().restarts, restarts);
		regc_put(&lease);
		fake.in_reg = NULL;
		memset(mem, 1, 8 * PAGE);
		not_stale(mem, 8 * PAGE, "changed in the middle of a get");
	}
}
END_TEST

/* ---- random calls side by side ------------------------------------------ */

#define N_PAGES 64
#define N_THREADS 4

static void ask_pieces(struct one *o)
{
	struct regc_lease leases[16];
	struct {
		char *at;
		size_t len;
	} piece[16];
	int i;

	/* Small, in any order, not aligned: as the pieces of an iovec. */
	for (i = 0; i < 16; i++) {
		piece[i].len = 1 + next_random(&o->seed) % (2 * PAGE);
		piece[i].at = o->mem + next_random(&o->seed) %
					       (N_PAGES * PAGE - 2 * PAGE);
		ck_assert_int_eq(regc_get(o->oracle.dom, piece[i].at,
					  piece[i].len, W, &leases[i]), 0);
	}
	for (i = 15; i >= 0; i--) {
		ck_assert_msg(oracle_agrees(&o->oracle, &leases[i], piece[i].at,
					    piece[i].len), "stale piece");
		regc_put(&leases[i]);
	}
}

static void *random_calls(void *arg)
{
	struct one *o = arg;
	unsigned int i;

	for (i = 0; i < 1500; i++) {
		size_t from = next_random(&o->seed) % N_PAGES;
		size_t n = 1 + next_random(&o->seed) % 8;
		char *mem = o->mem + from * PAGE;

		if (from + n > N_PAGES)
			n = N_PAGES - from;
		if (next_random(&o->seed) % 4 == 0)
			ask(o, mem, n * PAGE);
		o->discards = i >= 1000;
		change(o, mem, n * PAGE);
		memset(mem + next_random(&o->seed) % n * PAGE, (int)i, PAGE);
		ask(o, mem, n * PAGE);
		if (i % 16 == 0)
			ask_pieces(o);
	}
	return NULL;
}

/* Faults D8, D9 and D11. */
START_TEST(random_calls_of_four_threads_are_never_stale)
{
	static struct one o[N_THREADS];
	/* Neighbours: their mappings join and part. */
	size_t bytes = N_THREADS * N_PAGES * PAGE;
	char *mem = raw_mmap_at(window(bytes), bytes);
	int i;

	for (i = 0; i < N_THREADS; i++)
		o[i].mem = mem + (size_t)i * N_PAGES * PAGE;
	start(o, N_THREADS, random_calls, test_seed("random calls"));
}
END_TEST

/* malloc and free decide; libc's caches and arenas in between. */
static void *allocate_and_free(void *arg)
{
	struct one *o = arg;
	char *held[16] = { NULL };
	unsigned int i;

	for (i = 0; i < 1500; i++) {
		unsigned int at = next_random(&o->seed) % 16;
		size_t len = 1 + next_random(&o->seed) % (300 * 1024);

		free(held[at]);
		held[at] = malloc(len);
		memset(held[at], (int)i, len);
		ask(o, held[at], len);
	}
	for (i = 0; i < 16; i++)
		free(held[i]);
	return NULL;
}

START_TEST(threads_that_allocate_free_and_send_never_see_old_bytes)
{
	static struct one o[N_THREADS];

	start(o, N_THREADS, allocate_and_free, test_seed("allocate and free"));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, address_taken_by_another_thread_at_once_is_never_stale);
	tcase_add_test(tc, addresses_taken_by_two_threads_at_once_are_never_stale);
	tcase_add_test(tc, registrations_made_during_a_change_are_never_trusted);
	tcase_add_test(tc, hole_filled_while_it_is_registered_is_tracked);
	tcase_add_test(tc, change_in_the_middle_of_a_get_makes_it_start_over);
	tcase_add_test(tc, random_calls_of_four_threads_are_never_stale);
	tcase_add_test(tc,
		       threads_that_allocate_free_and_send_never_see_old_bytes);
}

int main(void)
{
	return stale_run(stale_suite("no stale answer between threads", add, 120));
}
