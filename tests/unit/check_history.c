/* SPDX-License-Identifier: BSD-2-Clause */
/* History: the last so many events, newest first, however it grew. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "regcached/history.h"
#include "tests/support/suite.h"

static struct history h;

static void add(uint64_t n)
{
	const struct history_event event = { .time_ns = n, .slot = 1 };

	history_add(&h, &event);
}

static void teardown(void)
{
	history_deinit(&h);
}

START_TEST(empty_history_has_nothing)
{
	history_init(&h, 100);
	ck_assert_uint_eq(history_count(&h), 0);
	ck_assert_ptr_null(history_get(&h, 0));
}
END_TEST

static void expect_last(uint64_t newest, uint32_t n)
{
	uint32_t i;

	ck_assert_uint_eq(history_count(&h), n);
	for (i = 0; i < n; i++)
		ck_assert_uint_eq(history_get(&h, i)->time_ns, newest - i);
	ck_assert_ptr_null(history_get(&h, n));
}

START_TEST(bound_is_kept_and_the_oldest_go)
{
	uint64_t i;

	history_init(&h, 100);
	for (i = 1; i <= 99; i++)
		add(i);
	expect_last(99, 99);
	add(100);
	expect_last(100, 100);
	add(101);
	expect_last(101, 100);
	for (i = 102; i <= 1000; i++)
		add(i);
	expect_last(1000, 100);
	ck_assert_uint_eq(h.n_ever, 1000);
	ck_assert_uint_eq(h.first, 900);
}
END_TEST

START_TEST(nothing_is_lost_or_moved_while_it_grows)
{
	uint64_t i;

	history_init(&h, 256);
	for (i = 1; i <= 256; i++) {
		add(i);
		expect_last(i, (uint32_t)i);
	}
}
END_TEST

START_TEST(memory_follows_use)
{
	uint64_t i;

	history_init(&h, 1 << 20);
	for (i = 1; i <= 100; i++)
		add(i);
	ck_assert_uint_le(h.room, 256);
}
END_TEST

START_TEST(every_event_has_a_name)
{
	uint32_t i;

	for (i = 0; i < HISTORY_N; i++)
		ck_assert_str_ne(history_what_name(i), "unknown");
	ck_assert_str_eq(history_what_name(HISTORY_N), "unknown");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("history");
	TCase *t = tcase_create("history");

	tcase_add_checked_fixture(t, NULL, teardown);
	tcase_add_test(t, empty_history_has_nothing);
	tcase_add_test(t, bound_is_kept_and_the_oldest_go);
	tcase_add_test(t, nothing_is_lost_or_moved_while_it_grows);
	tcase_add_test(t, memory_follows_use);
	tcase_add_test(t, every_event_has_a_name);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
