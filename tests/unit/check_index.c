/* SPDX-License-Identifier: BSD-2-Clause */
/* The index and the table against a plain array; the seed is printed. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/index.h"
#include "shm/segment.h"
#include "shm/table.h"
#include "tests/support/suite.h"

#define CAPACITY 4096u
#define PAGE RTAB_PAGE
#define READ 0u
#define WRITE 1u

static struct rtab_writer w;

static void setup(void)
{
	ck_assert_int_eq(rtab_writer_init(&w, 7, CAPACITY), 0);
	ck_assert_int_eq(rtab_writer_make_ready(&w, CAPACITY - 1), 0);
}

static void teardown(void)
{
	rtab_writer_deinit(&w);
}

static int lookup(uint64_t start, uint64_t end, uint32_t access,
		  struct rtab_hit *hit)
{
	return rtab_lookup(&w.view, start, end, access, hit);
}

START_TEST(empty_table_finds_nothing)
{
	struct rtab_hit hit;

	ck_assert_int_eq(lookup(0, 1, READ, &hit), -ENOENT);
	ck_assert_int_eq(lookup(PAGE, UINT64_MAX, READ, &hit), -ENOENT);
}
END_TEST

START_TEST(lookup_needs_the_whole_range_inside)
{
	struct rtab_hit hit;

	ck_assert_int_eq(rtab_writer_add(&w, 3, 4 * PAGE, 8 * PAGE, READ), 0);
	ck_assert_int_eq(lookup(4 * PAGE, 8 * PAGE, READ, &hit), 0);
	ck_assert_uint_eq(hit.slot, 3);
	ck_assert_int_eq(lookup(8 * PAGE - 1, 8 * PAGE, READ, &hit), 0);
	ck_assert_int_eq(lookup(4 * PAGE - 1, 5 * PAGE, READ, &hit), -ENOENT);
	ck_assert_int_eq(lookup(7 * PAGE, 8 * PAGE + 1, READ, &hit), -ENOENT);
	ck_assert_int_eq(lookup(8 * PAGE, 9 * PAGE, READ, &hit), -ENOENT);
}
END_TEST

START_TEST(lookup_needs_every_access_bit)
{
	struct rtab_hit hit;

	ck_assert_int_eq(rtab_writer_add(&w, 0, PAGE, 2 * PAGE, READ), 0);
	ck_assert_int_eq(lookup(PAGE, 2 * PAGE, WRITE, &hit), -ENOENT);
	ck_assert_int_eq(rtab_writer_add(&w, 1, PAGE, 3 * PAGE, WRITE), 0);
	ck_assert_int_eq(lookup(PAGE, 2 * PAGE, WRITE, &hit), 0);
	ck_assert_uint_eq(hit.access, WRITE);
	/* A region with more access serves, if no other covers. */
	ck_assert_int_eq(lookup(PAGE, 3 * PAGE, READ, &hit), 0);
	ck_assert_uint_eq(hit.slot, 1);
}
END_TEST

START_TEST(lookup_misses_after_void_and_generation_grows)
{
	struct rtab_hit hit;
	uint64_t gen;

	ck_assert_int_eq(rtab_writer_add(&w, 5, PAGE, 2 * PAGE, READ), 0);
	ck_assert_int_eq(lookup(PAGE, 2 * PAGE, READ, &hit), 0);
	gen = hit.gen;
	ck_assert_int_eq(rtab_writer_void(&w, 5), 0);
	ck_assert_int_eq(lookup(PAGE, 2 * PAGE, READ, &hit), -ENOENT);
	ck_assert_int_eq(rtab_writer_add(&w, 5, PAGE, 2 * PAGE, READ), 0);
	ck_assert_int_eq(lookup(PAGE, 2 * PAGE, READ, &hit), 0);
	ck_assert_uint_gt(hit.gen, gen);
}
END_TEST

START_TEST(void_of_a_blank_slot_counts)
{
	uint64_t gen = w.view.gens[9];

	ck_assert_int_eq(rtab_writer_void(&w, 9), 0);
	ck_assert_uint_eq(w.view.gens[9], gen + 1);
}
END_TEST

START_TEST(bad_records_are_refused_and_change_nothing)
{
	struct rtab_hit hit;

	ck_assert_int_eq(rtab_writer_add(&w, CAPACITY, PAGE, 2 * PAGE, 0), -EINVAL);
	ck_assert_int_eq(rtab_writer_add(&w, 0, PAGE, PAGE, 0), -EINVAL);
	ck_assert_int_eq(rtab_writer_add(&w, 0, 2 * PAGE, PAGE, 0), -EINVAL);
	ck_assert_int_eq(rtab_writer_add(&w, 0, 1, PAGE, 0), -EINVAL);
	ck_assert_int_eq(rtab_writer_add(&w, 0, PAGE, 3 * PAGE, 0), 0);
	ck_assert_int_eq(rtab_writer_add(&w, 0, 9 * PAGE, 10 * PAGE, 0), -EINVAL);
	ck_assert_int_eq(rtab_writer_add(&w, 1, 2 * PAGE, 4 * PAGE, 0), -EEXIST);
	ck_assert_int_eq(rtab_writer_add(&w, 1, 0, 2 * PAGE, 0), -EEXIST);
	ck_assert_int_eq(rtab_writer_add(&w, 1, 0, PAGE, 0), 0);
	ck_assert_int_eq(rtab_writer_void(&w, CAPACITY), -EINVAL);
	ck_assert_int_eq(lookup(PAGE, 3 * PAGE, 0, &hit), 0);
}
END_TEST

START_TEST(seventeenth_access_finds_no_class)
{
	uint32_t i;

	for (i = 0; i < RTAB_N_CLASSES; i++)
		ck_assert_int_eq(rtab_writer_add(&w, i, PAGE, 2 * PAGE, i), 0);
	ck_assert_int_eq(rtab_writer_add(&w, i, PAGE, 2 * PAGE, i), -ENOSPC);
}
END_TEST

START_TEST(changes_are_seen_until_they_fall_out)
{
	uint64_t seq = w.view.table->change_seq;
	int i;

	ck_assert(!rtab_changed_since(w.view.table, seq, 0, UINT64_MAX));
	rtab_writer_log_change(&w, PAGE, 2 * PAGE);
	ck_assert(rtab_changed_since(w.view.table, seq, PAGE, 2 * PAGE));
	ck_assert(rtab_changed_since(w.view.table, seq, 0, PAGE + 1));
	ck_assert(!rtab_changed_since(w.view.table, seq, 0, PAGE));
	ck_assert(!rtab_changed_since(w.view.table, seq, 2 * PAGE, 3 * PAGE));
	ck_assert(!rtab_changed_since(w.view.table, seq + 1, 0, UINT64_MAX));
	for (i = 0; i < RTAB_N_TABLE_CHANGES; i++)
		rtab_writer_log_change(&w, 9 * PAGE, 10 * PAGE);
	/* The first is gone: not known, so yes. */
	ck_assert(rtab_changed_since(w.view.table, seq, 50 * PAGE, 51 * PAGE));
}
END_TEST

START_TEST(clients_cannot_write_the_table)
{
	struct rtab_view view;

	ck_assert_int_eq(rtab_view_map(&view, w.fd, NULL), 0);
	ck_assert_uint_eq(view.table->space_id, 7);
	ck_assert_ptr_null(rtab_raw_mmap(NULL, PAGE, 3, 1, w.fd, 0, NULL));
	rtab_view_unmap(&view);
}
END_TEST

/* ---- against a plain array ---------------------------------------------- */

#define PAGES 20000u

struct model {
	uint64_t start[CAPACITY], end[CAPACITY];
	bool told[CAPACITY];
	uint32_t owner[PAGES]; /* slot + 1 of each page */
};

static struct model model;

static void model_add(uint32_t slot, uint64_t from, uint64_t to)
{
	bool free = true;
	uint64_t p;
	int r;

	for (p = from; p < to; p++)
		free &= model.owner[p] == 0;
	r = rtab_writer_add(&w, slot, from * PAGE, to * PAGE, 0);
	ck_assert_int_eq(r, free ? 0 : -EEXIST);
	if (!free)
		return;
	for (p = from; p < to; p++)
		model.owner[p] = slot + 1;
	model.start[slot] = from;
	model.end[slot] = to;
	model.told[slot] = true;
}

static void model_void(uint32_t slot)
{
	uint64_t p;

	ck_assert_int_eq(rtab_writer_void(&w, slot), 0);
	for (p = model.start[slot]; p < model.end[slot]; p++)
		model.owner[p] = 0;
	model.told[slot] = false;
}

static void model_compare(void)
{
	uint64_t from = (uint64_t)rand() % PAGES, to, p;
	bool seen[CAPACITY] = { false };
	uint32_t slots[CAPACITY], n, i, owner;
	struct rtab_hit hit;
	int r;

	to = from + 1 + (uint64_t)rand() % 40;
	if (to > PAGES)
		to = PAGES;
	owner = model.owner[from];
	for (p = from; p < to; p++)
		if (model.owner[p] != owner)
			owner = 0;
	r = lookup(from * PAGE, to * PAGE, 0, &hit);
	ck_assert_int_eq(r, owner ? 0 : -ENOENT);
	if (owner)
		ck_assert_uint_eq(hit.slot, owner - 1);
	n = rtab_writer_overlaps(&w, from * PAGE, to * PAGE, slots, CAPACITY);
	for (i = 0; i < n; i++)
		seen[slots[i]] = true;
	for (p = from; p < to; p++)
		if (model.owner[p])
			ck_assert(seen[model.owner[p] - 1]);
	for (i = 0; i < n; i++)
		ck_assert(model.told[slots[i]] && model.start[slots[i]] < to &&
			  model.end[slots[i]] > from);
}

START_TEST(random_operations_agree_with_a_plain_array)
{
	const char *text = getenv("REGC_TEST_SEED");
	unsigned int seed = text ? (unsigned int)strtoul(text, NULL, 0) :
				   (unsigned int)rtab_now_ns();
	uint32_t i, slot;

	printf("check_index: seed %u\n", seed);
	srand(seed);
	memset(&model, 0, sizeof(model));
	for (i = 0; i < 100000; i++) {
		uint64_t from = (uint64_t)rand() % (PAGES - 8);

		slot = (uint32_t)rand() % CAPACITY;
		/* Fill, then empty, then fill ... */
		if (model.told[slot] && rand() % 4 >= (int)(i / 20000 % 2) * 2)
			model_void(slot);
		else if (!model.told[slot])
			model_add(slot, from, from + 1 + (uint64_t)rand() % 7);
		if (i % 4 == 0)
			model_compare();
	}
	for (slot = 0; slot < CAPACITY; slot++)
		if (model.told[slot])
			model_void(slot);
	ck_assert_uint_eq(rtab_index_nodes_used(w.index), 0);
}
END_TEST

static void fill(bool ascending)
{
	uint32_t i, n = CAPACITY;

	for (i = 0; i < n; i++) {
		uint32_t at = ascending ? i : n - 1 - i;

		ck_assert_int_eq(rtab_writer_add(&w, i, at * 4 * PAGE,
						 (at * 4 + 4) * PAGE, 0), 0);
	}
}

START_TEST(ascending_keys_fill_the_nodes)
{
	fill(true);
	ck_assert_uint_le(rtab_index_nodes_used(w.index), CAPACITY / 16);
}
END_TEST

START_TEST(nodes_stay_a_third_full_when_thinned_out)
{
	uint32_t i;

	fill(false);
	for (i = 0; i < CAPACITY; i++)
		if (i % 8)
			ck_assert_int_eq(rtab_writer_void(&w, i), 0);
	ck_assert_uint_le(rtab_index_nodes_used(w.index), CAPACITY / 8 / 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("index");
	TCase *tc = tcase_create("table");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, empty_table_finds_nothing);
	tcase_add_test(tc, lookup_needs_the_whole_range_inside);
	tcase_add_test(tc, lookup_needs_every_access_bit);
	tcase_add_test(tc, lookup_misses_after_void_and_generation_grows);
	tcase_add_test(tc, void_of_a_blank_slot_counts);
	tcase_add_test(tc, bad_records_are_refused_and_change_nothing);
	tcase_add_test(tc, seventeenth_access_finds_no_class);
	tcase_add_test(tc, changes_are_seen_until_they_fall_out);
	tcase_add_test(tc, clients_cannot_write_the_table);
	tcase_add_test(tc, random_operations_agree_with_a_plain_array);
	tcase_add_test(tc, ascending_keys_fill_the_nodes);
	tcase_add_test(tc, nodes_stay_a_third_full_when_thinned_out);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
