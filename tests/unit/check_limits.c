/* SPDX-License-Identifier: BSD-2-Clause */
/* Ledgers: no sum ever passes a limit, at no level, by no amount. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "regcached/limits.h"
#include "tests/support/suite.h"

static struct ledger node, group, space, other;
static const uint64_t none[LEDGER_N_UNITS];

static void set_max(struct ledger *l, uint64_t bytes, uint64_t regions)
{
	l->max[LEDGER_BYTES] = bytes;
	l->max[LEDGER_REGIONS] = regions;
}

static void setup(void)
{
	ledger_init(&node, NULL, "node.bytes", "node.regions");
	ledger_init(&group, &node, "group.bytes", "group.regions");
	ledger_init(&space, &group, "space.bytes", "space.regions");
	ledger_init(&other, &group, "space.bytes", "space.regions");
	set_max(&node, 1 << 30, 1000);
	set_max(&group, 1 << 30, 1000);
	set_max(&space, 1 << 30, 1000);
	set_max(&other, 1 << 30, 1000);
}

static struct ledger_full full;
static uint64_t got[LEDGER_N_UNITS];

static int take(struct ledger *l, uint64_t bytes, uint64_t regions)
{
	const uint64_t need[LEDGER_N_UNITS] = { bytes, regions };

	return ledger_take(l, need, none, got, &full);
}

static void give(struct ledger *l, uint64_t bytes, uint64_t regions)
{
	const uint64_t amount[LEDGER_N_UNITS] = { bytes, regions };

	ledger_give(l, amount);
}

START_TEST(limit_is_granted_and_one_more_is_not)
{
	ck_assert_int_eq(take(&space, 0, 999), 0);
	ck_assert_int_eq(take(&space, 0, 2), LEDGER_E_FULL);
	ck_assert_int_eq(take(&space, 0, 1), 0);
	ck_assert_int_eq(take(&space, 0, 1), LEDGER_E_FULL);
	ck_assert_int_eq(take(&space, 0, 0), 0);
	ck_assert_uint_eq(node.used[LEDGER_REGIONS], 1000);
	give(&space, 0, 1);
	ck_assert_int_eq(take(&space, 0, 1), 0);
}
END_TEST

START_TEST(innermost_full_ledger_is_named_with_what_is_missing)
{
	set_max(&group, 1 << 30, 10);
	ck_assert_int_eq(take(&space, 0, 11), LEDGER_E_FULL);
	ck_assert_ptr_eq(full.ledger, &group);
	ck_assert_int_eq(full.unit, LEDGER_REGIONS);
	ck_assert_uint_eq(full.missing[LEDGER_REGIONS], 1);
	ck_assert_str_eq(full.ledger->limit[full.unit], "group.regions");
	set_max(&space, 4096, 5);
	ck_assert_int_eq(take(&space, 8192, 11), LEDGER_E_FULL);
	ck_assert_ptr_eq(full.ledger, &space);
	ck_assert_int_eq(full.unit, LEDGER_BYTES);
	ck_assert_uint_eq(full.missing[LEDGER_BYTES], 4096);
	ck_assert_uint_eq(full.missing[LEDGER_REGIONS], 6);
}
END_TEST

START_TEST(refusal_takes_nothing)
{
	set_max(&node, 1 << 30, 10);
	ck_assert_int_eq(take(&space, 4096, 11), LEDGER_E_FULL);
	ck_assert_uint_eq(space.used[LEDGER_BYTES], 0);
	ck_assert_uint_eq(group.used[LEDGER_BYTES], 0);
	ck_assert_uint_eq(node.used[LEDGER_BYTES], 0);
}
END_TEST

START_TEST(what_one_holds_the_other_lacks)
{
	ck_assert_int_eq(take(&space, 1 << 29, 600), 0);
	ck_assert_int_eq(take(&other, 0, 401), LEDGER_E_FULL);
	ck_assert_ptr_eq(full.ledger, &group);
	ck_assert_int_eq(take(&other, 0, 400), 0);
	ck_assert_uint_eq(ledger_room(&space, LEDGER_REGIONS), 0);
	ledger_give_all(&space);
	ck_assert_uint_eq(ledger_room(&other, LEDGER_REGIONS), 600);
	ck_assert_uint_eq(node.used[LEDGER_BYTES], 0);
	ck_assert_uint_eq(node.used[LEDGER_REGIONS], 400);
	ledger_give_all(&other);
	ledger_deinit(&other);
	ledger_deinit(&space);
	ledger_deinit(&group);
	ledger_deinit(&node);
}
END_TEST

START_TEST(amounts_of_a_peer_do_not_wrap)
{
	ck_assert_int_eq(take(&space, 100, 1), 0);
	ck_assert_int_eq(take(&space, UINT64_MAX, 0), LEDGER_E_FULL);
	ck_assert_int_eq(take(&space, UINT64_MAX - 99, UINT64_MAX), LEDGER_E_FULL);
	ck_assert_int_eq(take(&space, 0, UINT64_MAX), LEDGER_E_FULL);
	set_max(&node, UINT64_MAX, UINT64_MAX);
	set_max(&group, UINT64_MAX, UINT64_MAX);
	set_max(&space, UINT64_MAX, UINT64_MAX);
	ck_assert_int_eq(take(&space, UINT64_MAX, 0), LEDGER_E_FULL);
	ck_assert_int_eq(take(&space, UINT64_MAX - 100, 0), 0);
	ck_assert_uint_eq(space.used[LEDGER_BYTES], UINT64_MAX);
}
END_TEST

START_TEST(lowered_limit_grants_nothing_until_enough_is_back)
{
	ck_assert_int_eq(take(&space, 0, 500), 0);
	set_max(&group, 1 << 30, 100);
	ck_assert_uint_eq(ledger_room(&space, LEDGER_REGIONS), 0);
	ck_assert_int_eq(take(&other, 0, 1), LEDGER_E_FULL);
	give(&space, 0, 400);
	ck_assert_int_eq(take(&other, 0, 1), LEDGER_E_FULL);
	give(&space, 0, 1);
	ck_assert_int_eq(take(&other, 0, 1), 0);
}
END_TEST

START_TEST(chunk_takes_a_share_of_what_parents_have_left)
{
	const uint64_t chunk[LEDGER_N_UNITS] = { 1 << 29, 500 };
	const uint64_t need[LEDGER_N_UNITS] = { 0, 400 };

	ck_assert_int_eq(ledger_take(&space, none, chunk, got, &full), 0);
	ck_assert_uint_eq(got[LEDGER_REGIONS], 125);
	ck_assert_uint_eq(got[LEDGER_BYTES], 1 << 27);
	/* A need is met in full. */
	ck_assert_int_eq(ledger_take(&space, need, chunk, got, &full), 0);
	ck_assert_uint_eq(got[LEDGER_REGIONS], 400);
	/* Its own limit is nobody else's: no share of that. */
	set_max(&other, 1 << 30, 7);
	ck_assert_int_eq(ledger_take(&other, none, chunk, got, &full), 0);
	ck_assert_uint_eq(got[LEDGER_REGIONS], 7);
	/* The last few go without sharing. */
	set_max(&node, 1 << 30, node.used[LEDGER_REGIONS] + 16);
	ck_assert_int_eq(ledger_take(&space, none, chunk, got, &full), 0);
	ck_assert_uint_eq(got[LEDGER_REGIONS], 16);
	ck_assert_int_eq(ledger_take(&space, none, chunk, got, &full), 0);
	ck_assert_uint_eq(got[LEDGER_REGIONS], 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("limits");
	TCase *t = tcase_create("limits");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, limit_is_granted_and_one_more_is_not);
	tcase_add_test(t, innermost_full_ledger_is_named_with_what_is_missing);
	tcase_add_test(t, refusal_takes_nothing);
	tcase_add_test(t, what_one_holds_the_other_lacks);
	tcase_add_test(t, amounts_of_a_peer_do_not_wrap);
	tcase_add_test(t, lowered_limit_grants_nothing_until_enough_is_back);
	tcase_add_test(t, chunk_takes_a_share_of_what_parents_have_left);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
