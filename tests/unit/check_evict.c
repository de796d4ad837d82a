/* SPDX-License-Identifier: BSD-2-Clause */
/* Eviction: the oldest, enough, no more than wanted; lease words that wrap. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "regcached/evict.h"
#include "shm/layout.h"
#include "tests/support/suite.h"

#define UNIT_NS (UINT64_C(1) << RTAB_STAMP_SHIFT_NS)

static struct evict_pick pick;

static void offer(uint64_t age, uint64_t bytes, uint32_t space, uint32_t slot)
{
	const struct evict_item item = { age, bytes, space, slot };

	evict_offer(&pick, &item);
}

static void teardown(void)
{
	evict_deinit(&pick);
}

START_TEST(oldest_are_kept_in_whatever_order_they_come)
{
	uint32_t i, seen[100] = { 0 };

	evict_init(&pick, 0, 10, 4096);
	for (i = 0; i < 100; i++)
		offer((i * 37) % 100, 4096, 1, (i * 37) % 100);
	evict_finish(&pick);
	ck_assert_uint_eq(pick.n, 10);
	for (i = 0; i < pick.n; i++) {
		ck_assert_uint_ge(pick.heap[i].slot, 90);
		ck_assert_uint_eq(seen[pick.heap[i].slot]++, 0);
		ck_assert_uint_eq(pick.heap[i].age, 99 - i); /* oldest first */
	}
}
END_TEST

START_TEST(bytes_wanted_are_reached_and_not_passed_by_a_region)
{
	uint32_t i;

	evict_init(&pick, 10 * 4096 + 1, 1, 4096);
	for (i = 0; i < 50; i++)
		offer(i, 4096, 1, i);
	ck_assert_uint_eq(pick.n, 11);
	ck_assert_uint_eq(pick.bytes, 11 * 4096);
}
END_TEST

START_TEST(less_than_wanted_is_kept_whole)
{
	evict_init(&pick, 1 << 20, 5, 4096);
	offer(1, 4096, 1, 1);
	offer(2, 4096, 1, 2);
	ck_assert_uint_eq(pick.n, 2);
	evict_deinit(&pick);
	evict_init(&pick, 1 << 20, 5, 4096);
	evict_finish(&pick);
	ck_assert_uint_eq(pick.n, 0);
}
END_TEST

START_TEST(maximum_is_not_passed_and_the_oldest_stay)
{
	uint32_t i;

	evict_init(&pick, UINT64_MAX, 0, 64);
	for (i = 0; i < 65; i++)
		offer(i, 1, 1, i);
	ck_assert_uint_eq(pick.n, 64);
	for (i = 0; i < pick.n; i++)
		ck_assert_uint_ne(pick.heap[i].slot, 0); /* the youngest */
}
END_TEST

START_TEST(result_is_grouped_by_space)
{
	uint32_t i;

	evict_init(&pick, 0, 30, 4096);
	for (i = 0; i < 30; i++)
		offer(i, 1, i % 3, i);
	evict_finish(&pick);
	for (i = 1; i < pick.n; i++)
		ck_assert_uint_ge(pick.heap[i].space, pick.heap[i - 1].space);
}
END_TEST

START_TEST(one_large_region_may_take_the_place_of_many_younger_ones)
{
	uint32_t i;

	evict_init(&pick, 1 << 20, 1, 4096);
	for (i = 0; i < 256; i++)
		offer(10, 4096, 1, i);
	ck_assert_uint_eq(pick.n, 256);
	offer(20, 1 << 20, 1, 999);
	ck_assert_uint_eq(pick.n, 1);
	ck_assert_uint_eq(pick.heap[0].slot, 999);
}
END_TEST

static uint64_t word(uint64_t now_ns, uint64_t age, uint64_t count)
{
	uint64_t stamp = (now_ns >> RTAB_STAMP_SHIFT_NS) - age;

	return stamp << RTAB_COUNT_BITS | (count & RTAB_COUNT_MASK);
}

START_TEST(counts_of_threads_cancel_and_the_latest_use_counts)
{
	struct evict_lease lease = { UINT64_MAX, 0 };
	uint64_t now = UNIT_NS * 5000000;

	evict_lease_add(&lease, word(now, 100, 3), now);
	ck_assert_uint_eq(lease.count, 3);
	ck_assert_uint_eq(lease.age, 100);
	evict_lease_add(&lease, word(now, 50, (uint64_t)-2), now);
	ck_assert_uint_eq(lease.count, 1);
	ck_assert_uint_eq(lease.age, 50);
	evict_lease_add(&lease, word(now, 70, (uint64_t)-1), now);
	ck_assert_uint_eq(lease.count, 0);
	ck_assert_uint_eq(lease.age, 50);
}
END_TEST

START_TEST(count_wraps_at_24_bits_only)
{
	struct evict_lease lease = { UINT64_MAX, 0 };

	evict_lease_add(&lease, RTAB_COUNT_MASK, 0);
	ck_assert_uint_eq(lease.count, RTAB_COUNT_MASK);
	evict_lease_add(&lease, 1, 0);
	ck_assert_uint_eq(lease.count, 0);
}
END_TEST

START_TEST(stamp_of_before_the_wrap_is_old_not_new)
{
	struct evict_lease lease = { UINT64_MAX, 0 };
	/* 2^40 units are 52 days; one day after. */
	uint64_t now = UNIT_NS * ((UINT64_C(1) << 40) + 1000);

	evict_lease_add(&lease, word(now, 2000, 0), now);
	ck_assert_uint_eq(lease.age, 2000);
}
END_TEST

START_TEST(stamp_of_the_future_is_now)
{
	struct evict_lease lease = { UINT64_MAX, 0 };
	uint64_t now = UNIT_NS * 1000;

	evict_lease_add(&lease, word(now, (uint64_t)-5, 0), now);
	ck_assert_uint_eq(lease.age, 0);
}
END_TEST

START_TEST(word_that_was_never_written_says_nothing)
{
	struct evict_lease lease = { UINT64_MAX, 0 };

	evict_lease_add(&lease, 0, UNIT_NS * 77);
	ck_assert_uint_eq(lease.age, UINT64_MAX);
	ck_assert_uint_eq(lease.count, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("evict");
	TCase *t = tcase_create("evict");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, oldest_are_kept_in_whatever_order_they_come);
	tcase_add_test(t, bytes_wanted_are_reached_and_not_passed_by_a_region);
	tcase_add_test(t, less_than_wanted_is_kept_whole);
	tcase_add_test(t, maximum_is_not_passed_and_the_oldest_stay);
	tcase_add_test(t, result_is_grouped_by_space);
	tcase_add_test(t, one_large_region_may_take_the_place_of_many_younger_ones);
	tcase_add_test(t, counts_of_threads_cancel_and_the_latest_use_counts);
	tcase_add_test(t, count_wraps_at_24_bits_only);
	tcase_add_test(t, stamp_of_before_the_wrap_is_old_not_new);
	tcase_add_test(t, stamp_of_the_future_is_now);
	tcase_add_test(t, word_that_was_never_written_says_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
