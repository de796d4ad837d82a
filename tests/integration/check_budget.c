/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits of node, group and space, between clients that speak by hand. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"
#include "tests/integration/raw.h"
#include "tests/support/suite.h"

#define START UINT64_C(0x20000000)
#define PAGES(n) ((uint64_t)(n) * RTAB_PAGE)

static struct raw_broker broker;

static void setup(void)
{
	raw_broker_init(&broker);
}

static void teardown(void)
{
	raw_broker_deinit(&broker);
}

/* Takes budget until regions are held. */
static void take_regions(struct raw_client *c, uint64_t regions)
{
	Regc__Frame *frame;

	if (c->regions >= regions)
		return;
	raw_send_need(c, 0, regions - c->regions, 77);
	frame = raw_expect(c, REGC__FRAME__BODY_GRANT);
	ck_assert_uint_eq(frame->grant->ticket, 77);
	c->bytes += frame->grant->bytes;
	c->regions += frame->grant->regions;
	ck_assert_uint_ge(c->regions, regions);
}

static void add_regions(struct raw_client *c, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		raw_add(c, i, START + PAGES(2 * i), PAGES(1), 0);
	raw_wait_drained(c);
}

/* The word of slot in thread slot 1, as a thread that got it age_ms ago has it. */
static void set_lease(struct raw_client *c, uint32_t slot, uint64_t age_ms,
		      uint64_t count)
{
	uint64_t stamp = (rtab_now_ns() - age_ms * 1000000) >>
			 RTAB_STAMP_SHIFT_NS;

	c->area.area->n_threads = 2;
	rtab_area_leases(&c->area, 1)[slot] = stamp << RTAB_COUNT_BITS | count;
}

/* ---- grants -------------------------------------------------------------- */

START_TEST(space_gets_up_to_its_limit_and_not_one_more)
{
	static const char *const sets[] = { "limit.space.regions=100", NULL };
	struct raw_client c;
	Regc__Frame *frame;

	raw_broker_start(&broker, sets);
	raw_attach(&c, &broker, "", -1);
	ck_assert_uint_eq(c.capacity, 1024); /* rounded up; the limit is not */
	ck_assert_uint_le(c.regions, 100);
	take_regions(&c, 100);
	ck_assert_uint_eq(c.regions, 100);
	add_regions(&c, 100);
	raw_expect_silence(&c, 0);
	raw_add(&c, 100, START + PAGES(1000), PAGES(1), 0);
	frame = raw_expect(&c, REGC__FRAME__BODY_VOIDED);
	ck_assert_uint_eq(frame->voided->slots[0], 100);
	ck_assert_uint_eq(frame->voided->cause, RTAB_CAUSE_REJECTED);
	ck_assert(!raw_is_live(&c, START + PAGES(1000), 1, 0));
	raw_close(&c);
}
END_TEST

START_TEST(need_beyond_the_limit_is_denied_at_once_by_its_name)
{
	static const char *const sets[] = { "limit.space.bytes=1M",
					    "limit.group.bytes=2M", NULL };
	struct raw_client c;
	Regc__Frame *frame;

	raw_broker_start(&broker, sets);
	raw_attach(&c, &broker, "", -1);
	raw_send_need(&c, (1 << 20) + 1, 0, 5);
	frame = raw_expect(&c, REGC__FRAME__BODY_DENY);
	ck_assert_uint_eq(frame->deny->ticket, 5);
	ck_assert_str_eq(frame->deny->limit, "limit.space.bytes");
	raw_send_need(&c, UINT64_MAX, UINT64_MAX, 6); /* and nothing wraps */
	raw_expect(&c, REGC__FRAME__BODY_DENY);
	raw_close(&c);
}
END_TEST

START_TEST(excess_bytes_are_refused)
{
	static const char *const sets[] = { "limit.space.bytes=1M", NULL };
	struct raw_client c;

	raw_broker_start(&broker, sets);
	raw_attach(&c, &broker, "", -1);
	ck_assert_uint_eq(c.bytes, 1 << 20);
	raw_add(&c, 0, START, (1 << 20) + RTAB_PAGE, 0);
	raw_expect(&c, REGC__FRAME__BODY_VOIDED);
	raw_add(&c, 0, START, 1 << 20, 0);
	raw_wait_drained(&c);
	ck_assert(raw_is_live(&c, START, 1 << 20, 0));
	raw_add(&c, 1, START * 2, RTAB_PAGE, 0);
	raw_expect(&c, REGC__FRAME__BODY_VOIDED);
	raw_del(&c, 0);
	raw_add(&c, 1, START * 2, RTAB_PAGE, 0);
	raw_wait_drained(&c);
	ck_assert(raw_is_live(&c, START * 2, 1, 0));
	raw_close(&c);
}
END_TEST

/* ---- from one to the other ----------------------------------------------- */

START_TEST(unused_budget_is_asked_back_from_others)
{
	static const char *const sets[] = { "limit.group.regions=100", NULL };
	struct raw_client a, b;
	Regc__Frame *frame;
	uint64_t ticket, want;

	raw_broker_start(&broker, sets);
	raw_attach(&a, &broker, "", -1);
	take_regions(&a, 90);
	raw_attach(&b, &broker, "", -1);
	want = 100 - a.regions + 5;
	raw_send_need(&b, 0, want - b.regions, 1);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	ck_assert_uint_eq(frame->reclaim->n_slots, 0);
	ck_assert_uint_ge(frame->reclaim->regions, 5);
	ticket = frame->reclaim->ticket;
	raw_send_released(&a, 0, frame->reclaim->regions, ticket);
	frame = raw_expect(&b, REGC__FRAME__BODY_GRANT);
	ck_assert_uint_eq(frame->grant->ticket, 1);
	ck_assert_uint_ge(b.regions + frame->grant->regions, want);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(other_groups_are_not_asked_for_a_group_limit)
{
	static const char *const sets[] = { "limit.group.regions=50", NULL };
	struct raw_client a, b;
	Regc__Frame *frame;

	raw_broker_start(&broker, sets);
	raw_attach(&a, &broker, "one", -1);
	take_regions(&a, 50);
	raw_attach(&b, &broker, "two", -1);
	raw_send_need(&b, 0, 51, 1);
	frame = raw_expect(&b, REGC__FRAME__BODY_DENY);
	ck_assert_str_eq(frame->deny->limit, "limit.group.regions");
	raw_expect_silence(&a, 0);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

/* A holds 100 of 100, all in use; B wants some. */
static void full_node(struct raw_client *a, struct raw_client *b)
{
	static const char *const sets[] = { "limit.node.regions=100", NULL };
	uint32_t i;

	raw_broker_start(&broker, sets);
	raw_attach(a, &broker, "one", -1);
	take_regions(a, 100);
	add_regions(a, 100);
	for (i = 0; i < 100; i++)
		set_lease(a, i, 1000 + 10 * i, 0);
	raw_attach(b, &broker, "two", -1);
	ck_assert_uint_eq(b->regions, 0);
}

static bool has_slot(const Regc__Reclaim *reclaim, uint32_t slot)
{
	size_t i;

	for (i = 0; i < reclaim->n_slots; i++)
		if (reclaim->slots[i] == slot)
			return true;
	return false;
}

START_TEST(least_recently_used_regions_without_lease_are_evicted)
{
	struct raw_client a, b;
	Regc__Frame *frame;
	uint32_t n, i;
	uint64_t ticket;

	full_node(&a, &b);
	/* Told just now, so old stamps are of an earlier life: make them used. */
	for (i = 0; i < 100; i++)
		set_lease(&a, i, 0, i == 7);
	set_lease(&a, 3, 5000, 0); /* as old as the telling, then; the rest is
				      younger by the time it is looked at */
	raw_send_need(&b, 0, 6, 1);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	ck_assert_uint_eq(frame->reclaim->cause, RTAB_CAUSE_EVICTED);
	n = (uint32_t)frame->reclaim->n_slots;
	ck_assert_uint_ge(n, 6);
	ck_assert_uint_le(n, 6 + 64);
	ck_assert(has_slot(frame->reclaim, 3));
	ck_assert(!has_slot(frame->reclaim, 7)); /* leased */
	ticket = frame->reclaim->ticket;
	for (i = 0; i < n; i++)
		raw_del(&a, frame->reclaim->slots[i]);
	raw_send_released(&a, 0, n, ticket);
	frame = raw_expect(&b, REGC__FRAME__BODY_GRANT);
	ck_assert_uint_ge(frame->grant->regions, 6);
	ck_assert_uint_eq(raw_stat(&broker, "evictions"), n);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(nothing_to_evict_is_denied_without_waiting)
{
	struct raw_client a, b;
	Regc__Frame *frame;
	uint64_t began;
	uint32_t i;

	full_node(&a, &b);
	for (i = 0; i < 100; i++)
		set_lease(&a, i, 0, 1);
	began = rtab_now_ns();
	raw_send_need(&b, 0, 1, 9);
	frame = raw_expect(&b, REGC__FRAME__BODY_DENY);
	ck_assert_uint_eq(frame->deny->ticket, 9);
	ck_assert_str_eq(frame->deny->limit, "limit.node.regions");
	ck_assert_uint_lt(rtab_now_ns() - began, 140000000);
	raw_expect_silence(&a, 0);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(silent_holder_costs_one_wait_and_is_not_asked_again)
{
	struct raw_client a, b;
	uint64_t began;

	full_node(&a, &b);
	began = rtab_now_ns();
	raw_send_need(&b, 0, 1, 1);
	raw_expect(&a, REGC__FRAME__BODY_RECLAIM); /* and says nothing */
	raw_expect(&b, REGC__FRAME__BODY_DENY);
	ck_assert_uint_ge(rtab_now_ns() - began, 140000000);
	began = rtab_now_ns();
	raw_send_need(&b, 0, 1, 2);
	raw_expect(&b, REGC__FRAME__BODY_DENY);
	ck_assert_uint_lt(rtab_now_ns() - began, 140000000); /* no second */
	raw_expect_silence(&a, 0);
	/* It said something: asked again. */
	raw_send_released(&a, 0, 0, 0);
	raw_send_need(&b, 0, 1, 3);
	raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(answer_of_nothing_does_not_make_the_broker_spin)
{
	struct raw_client a, b;
	Regc__Frame *frame;

	full_node(&a, &b);
	raw_send_need(&b, 0, 1, 1);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	raw_send_released(&a, 0, 0, frame->reclaim->ticket);
	raw_expect(&b, REGC__FRAME__BODY_DENY);
	raw_expect_silence(&a, 0);
	ck_assert_uint_eq(raw_stat(&broker, "reclaims"), 1);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(death_of_the_holder_serves_who_waits)
{
	struct raw_client a, b;

	full_node(&a, &b);
	raw_send_need(&b, 0, 50, 1);
	raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	ck_assert_int_eq(shutdown(a.sock, SHUT_RDWR), 0);
	raw_expect(&b, REGC__FRAME__BODY_GRANT);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(younger_need_does_not_overtake_an_older_one)
{
	struct raw_client a, b, d;
	Regc__Frame *frame;
	uint64_t ticket;

	full_node(&a, &b);
	raw_attach(&d, &broker, "three", -1);
	raw_send_need(&b, 0, 3, 1);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	ticket = frame->reclaim->ticket;
	raw_send_need(&d, 0, 1, 2);
	/* One came back: enough for the younger, not for the older. */
	raw_del(&a, 0);
	raw_send_released(&a, 0, 1, ticket);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	raw_expect_silence(&d, 0);
	raw_del(&a, 1);
	raw_del(&a, 2);
	raw_del(&a, 3);
	raw_send_released(&a, 0, 3, frame->reclaim->ticket);
	raw_expect(&b, REGC__FRAME__BODY_GRANT);
	raw_close(&a);
	raw_close(&b);
	raw_close(&d);
}
END_TEST

START_TEST(bytes_are_evicted_until_they_suffice)
{
	static const char *const sets[] = { "limit.node.bytes=8M", NULL };
	struct raw_client a, b;
	Regc__Frame *frame;
	uint32_t i;

	raw_broker_start(&broker, sets);
	raw_attach(&a, &broker, "one", -1);
	if (a.bytes < 8 << 20) {
		raw_send_need(&a, (8 << 20) - a.bytes, 0, 1);
		raw_expect(&a, REGC__FRAME__BODY_GRANT);
	}
	for (i = 0; i < 32; i++)
		raw_add(&a, i, START + i * (1 << 20), 256 << 10, 0);
	raw_wait_drained(&a);
	raw_attach(&b, &broker, "two", -1);
	raw_send_need(&b, 3 << 20, 1, 1);
	frame = raw_expect(&a, REGC__FRAME__BODY_RECLAIM);
	ck_assert_uint_eq(frame->reclaim->n_slots, 12); /* 12 * 256 KiB */
	raw_close(&a);
	raw_close(&b);
}
END_TEST

START_TEST(gift_is_taken_and_too_much_drops_the_client)
{
	struct raw_client c;
	struct raw_rows rows;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	raw_send_released(&c, c.bytes, c.regions, 0);
	raw_wait((raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_SPACES, &rows),
		  raw_number(&rows, 0, "bytes_granted") == 0));
	raw_rows_free(&rows);
	raw_send_released(&c, 1, 0, 0);
	raw_expect_end(&c);
	ck_assert_uint_eq(raw_stat(&broker, "dropped"), 1);
	raw_close(&c);
}
END_TEST

START_TEST(budget_in_use_cannot_be_given_back)
{
	struct raw_client c;
	struct raw_rows rows;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	add_regions(&c, 10);
	raw_send_released(&c, c.bytes, c.regions, 0);
	raw_send_need(&c, 0, 0, 1);
	raw_expect(&c, REGC__FRAME__BODY_GRANT);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_SPACES, &rows);
	ck_assert_uint_ge(raw_number(&rows, 0, "regions_granted"), 10);
	ck_assert_uint_eq(raw_number(&rows, 0, "regions"), 10);
	raw_rows_free(&rows);
	raw_close(&c);
}
END_TEST

START_TEST(sum_of_256_clients_stays_below_the_node_limit)
{
	static const char *const sets[] = { "limit.node.regions=2000",
					    "limit.node.bytes=64M", NULL };
	static struct raw_client c[256];
	uint64_t regions = 0, bytes = 0;
	unsigned int i;

	raw_broker_start(&broker, sets);
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++) {
		raw_attach(&c[i], &broker, i % 2 ? "a" : "b", -1);
		regions += c[i].regions;
		bytes += c[i].bytes;
	}
	ck_assert_uint_le(regions, 2000);
	ck_assert_uint_le(bytes, 64 << 20);
	ck_assert_uint_eq(raw_stat(&broker, "spaces"), 256);
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
	raw_wait(raw_stat(&broker, "spaces") == 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("budget");
	TCase *t = tcase_create("grants");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, space_gets_up_to_its_limit_and_not_one_more);
	tcase_add_test(t, need_beyond_the_limit_is_denied_at_once_by_its_name);
	tcase_add_test(t, excess_bytes_are_refused);
	tcase_add_test(t, unused_budget_is_asked_back_from_others);
	tcase_add_test(t, other_groups_are_not_asked_for_a_group_limit);
	tcase_add_test(t, gift_is_taken_and_too_much_drops_the_client);
	tcase_add_test(t, budget_in_use_cannot_be_given_back);
	tcase_add_test(t, sum_of_256_clients_stays_below_the_node_limit);
	suite_add_tcase(s, t);

	t = tcase_create("eviction");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, least_recently_used_regions_without_lease_are_evicted);
	tcase_add_test(t, nothing_to_evict_is_denied_without_waiting);
	tcase_add_test(t, silent_holder_costs_one_wait_and_is_not_asked_again);
	tcase_add_test(t, answer_of_nothing_does_not_make_the_broker_spin);
	tcase_add_test(t, death_of_the_holder_serves_who_waits);
	tcase_add_test(t, younger_need_does_not_overtake_an_older_one);
	tcase_add_test(t, bytes_are_evicted_until_they_suffice);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
