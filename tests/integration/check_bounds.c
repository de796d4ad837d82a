/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What L1 costs is bounded: memory that changes for ever without a get, many
 * regions voided by one call, and more changes than the logs hold.
 *
 * REGC_TEST_ROUNDS: rounds without a get; 10000000 is the long form.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/integration/stale.h"

#define MIB (1ul << 20)
#define WATCHED (64 * MIB)

static uint64_t rounds(uint64_t by_default)
{
	const char *text = getenv("REGC_TEST_ROUNDS");

	if (text)
		return strtoull(text, NULL, 0);
	return RTAB_TSAN ? by_default / 10 : by_default;
}

static uint64_t broker_rss(void)
{
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)broker.pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	return pages * PAGE;
}

static void flat(uint64_t mine, uint64_t its)
{
	/* Tables of a fixed size fill up once; ThreadSanitizer has its own. */
	ck_assert_msg(RTAB_TSAN || rss_now() <= mine + 4 * MIB,
		      "this process: %llu KiB more",
		      (unsigned long long)(rss_now() - mine) >> 10);
	ck_assert_msg(broker_rss() <= its + MIB, "the broker: %llu KiB more",
		      (unsigned long long)(broker_rss() - its) >> 10);
}

/* One mapping, watched as a whole because a page of it was registered once. */
static char *watched_mapping(void)
{
	char *mem = mmap(NULL, WATCHED, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(mem, MAP_FAILED);
	mem[0] = 1;
	cached(mem, PAGE);
	return mem;
}

static void unmap_pages(enum road road, char *mem, size_t from, size_t to)
{
	for (; from < to; from += PAGE)
		road_unmap(road, mem + from, PAGE);
}

/* Fault H3: nothing drains what nobody asks for. */
static void change_without_a_get(enum road road, uint64_t n)
{
	uint64_t i, mine, its;
	char *mem = watched_mapping();

	/* Once around before it counts. */
	unmap_pages(road, mem, PAGE, 400 * PAGE);
	mine = rss_now();
	its = broker_rss();
	for (i = 0; i < n; i++) {
		size_t page = i % (WATCHED / PAGE - 400);

		if (page == 0 && i) {
			munmap(mem, WATCHED);
			mem = watched_mapping();
			page = 1;
		}
		if (i & 1)
			road_unmap(road, mem + WATCHED - page * PAGE, PAGE);
		else
			ck_assert_int_eq(ROAD_CALL(road, SYS_madvise,
						   mem + 401 * PAGE, PAGE,
						   MADV_DONTNEED, 0, 0, 0), 0);
	}
	flat(mine, its);
	not_stale(mem, PAGE, "after many changes");
	munmap(mem, WATCHED);
}

START_TEST(changes_by_libc_without_a_get_take_no_memory)
{
	change_without_a_get(ROAD_LIBC, rounds(is_strict() ? 15000 : 150000));
}
END_TEST

START_TEST(raw_changes_without_a_get_take_no_memory)
{
	change_without_a_get(ROAD_RAW, rounds(20000));
}
END_TEST

START_TEST(mapping_and_unmapping_without_a_get_takes_no_memory)
{
	uint64_t i, n = rounds(is_strict() ? 50000 : 200000), mine, its;
	char *mem = test_map(4 * PAGE, 1);

	cached(mem, 4 * PAGE);
	mine = rss_now();
	its = broker_rss();
	for (i = 0; i < n; i++) {
		munmap(mem, 4 * PAGE);
		ck_assert_ptr_eq(mmap(mem, 4 * PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS |
					      MAP_FIXED_NOREPLACE,
				      -1, 0), mem);
	}
	flat(mine, its);
	memset(mem, 2, 4 * PAGE);
	not_stale(mem, 4 * PAGE, "after many changes");
}
END_TEST

/* Fault H4. */
START_TEST(allocating_sending_and_freeing_takes_no_memory)
{
	uint64_t i, n = rounds(4000), mine = 0, its = 0;
	struct regc_lease lease;

	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	for (i = 0; i < 2 * n; i++) {
		char *p = malloc(100000 + i % 7 * 4096);

		if (i == n) {
			mine = rss_now();
			its = broker_rss();
		}
		ck_assert_int_eq(regc_get(fake_dom, p, 100000, W, &lease), 0);
		regc_put(&lease);
		free(p);
	}
	flat(mine, its);
	/*
	 * A block of the heap, not freed to the system, may stay cached;
	 * ThreadSanitizer's malloc gives nothing back.
	 */
	if (!RTAB_TSAN)
		WAIT_FOR(rtab_load_acquire(&fake.live) <= 1, 10);
}
END_TEST

/* ---- many at once ------------------------------------------------------- */

#define MANY 500

START_TEST(many_regions_voided_by_one_call_are_right_and_quick)
{
	EACH_ROAD(road) {
		char *mem = window(2 * MANY * PAGE);
		struct regc_lease lease;
		uint64_t t0;
		int i;

		road_map_at(ROAD_LIBC, mem, 2 * MANY * PAGE, 1);
		for (i = 0; i < MANY; i++) {
			cached(mem + 2 * i * PAGE, PAGE);
			ck_assert_int_eq(regc_get(fake_dom, mem + 2 * i * PAGE,
						  PAGE, W, &lease), 0);
			regc_put(&lease);
		}
		ck_assert_uint_eq(rtab_load_acquire(&fake.live), MANY);
		t0 = test_now_ns();
		road_unmap(road, mem, 2 * MANY * PAGE);
		ck_assert_uint_lt(test_now_ns() - t0, 500000000u);
		for (i = 0; i < MANY; i++)
			ck_assert(!is_cached(mem + 2 * i * PAGE, PAGE));
		WAIT_FOR(rtab_load_acquire(&fake.live) == 0, 5);
		road_map_at(road, mem, 2 * MANY * PAGE, 2);
		for (i = 0; i < MANY; i += 50)
			not_stale(mem + 2 * i * PAGE, PAGE, road_names[road]);
		munmap(mem, 2 * MANY * PAGE);
		WAIT_FOR(stats_now().pinned_bytes == 0, 5);
	}
}
END_TEST

/* ---- more changes than a log holds -------------------------------------- */

struct flood {
	enum road road;
	char *own;	/* changed first */
	char *elsewhere; /* then this, n times: watched, but not own */
	unsigned int n;
	int left;
};

static void flood(void *arg, void *addr, size_t len)
{
	struct flood *f = arg;
	unsigned int i;

	(void)addr;
	(void)len;
	if (f->left-- <= 0)
		return;
	if (f->own) {
		road_unmap(f->road, f->own, PAGE);
		raw_mmap_at(f->own, PAGE);
	}
	for (i = 0; i < f->n; i++)
		ck_assert_int_eq(ROAD_CALL(f->road, SYS_madvise, f->elsewhere,
					   PAGE, MADV_DONTNEED, 0, 0, 0), 0);
}

static void forget_a_change(enum road road, char *other, unsigned int n)
{
	char *mem = test_map(8 * PAGE, 1);
	struct flood f = { road, mem + PAGE, other + 4 * PAGE, n, 1 };
	uint64_t restarts = stats_now().restarts;
	struct regc_lease lease;

	fake.in_reg = flood;
	fake.in_reg_arg = &f;
	ck_assert_int_eq(regc_get(fake_dom, mem, 8 * PAGE, W, &lease), 0);
	ck_assert_int_lt(f.left, 0);
	ck_assert_uint_gt(stats_now().restarts, restarts);
	regc_put(&lease);
	fake.in_reg = NULL;
	/* And changes that nobody waits for, more than the log holds. */
	not_stale(mem, 8 * PAGE, "after a flood");
	f.own = NULL;
	f.left = 1;
	flood(&f, NULL, 0);
	memset(mem, 2, 8 * PAGE);
	not_stale(mem, 8 * PAGE, "after a flood");
	road_unmap(road, mem, PAGE);
	road_map_at(road, mem, PAGE, 3);
	flood(&f, NULL, 0);
	not_stale(mem, 8 * PAGE, "after a flood");
	munmap(mem, 8 * PAGE);
}

/* The logs hold 64 (hooks) and 256 (events). */
START_TEST(change_that_the_log_has_forgotten_is_still_a_change)
{
	static const unsigned int sizes[] = { 1, 62, 63, 64, 65, 128, 254, 255,
					      256, 257, 1000 };
	char *other = watched_mapping();
	size_t i;

	EACH_ROAD(road)
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			forget_a_change(road, other, sizes[i]);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, changes_by_libc_without_a_get_take_no_memory);
	tcase_add_test(tc, raw_changes_without_a_get_take_no_memory);
	tcase_add_test(tc, mapping_and_unmapping_without_a_get_takes_no_memory);
	tcase_add_test(tc, allocating_sending_and_freeing_takes_no_memory);
	tcase_add_test(tc, many_regions_voided_by_one_call_are_right_and_quick);
	tcase_add_test(tc, change_that_the_log_has_forgotten_is_still_a_change);
}

int main(void)
{
	return stale_run(stale_suite("bounds", add,
				     getenv("REGC_TEST_ROUNDS") ? 7200 : 60));
}
