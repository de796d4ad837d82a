/* SPDX-License-Identifier: BSD-2-Clause */
/* What regc-ctl is told: listings, pages, who sees what, and explain. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"
#include "tests/integration/raw.h"
#include "tests/support/suite.h"

#define START UINT64_C(0x40000000)
#define PAGES(n) ((uint64_t)(n) * RTAB_PAGE)
#define WRITE REGC_ACCESS_LOCAL_WRITE

static struct raw_broker broker;
static struct raw_client c;

static void name_library(struct raw_client *client, uint32_t i, const char *name)
{
	struct rtab_library *lib = &client->area.area->libraries[i];

	memcpy(lib->name, name, strnlen(name, RTAB_NAME_BYTES));
	lib->in_use = 1;
}

static void setup(void)
{
	raw_broker_init(&broker);
	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "job", -1);
	name_library(&c, 0, "mpi");
	name_library(&c, 1, "pvfs");
}

static void teardown(void)
{
	raw_close(&c);
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	raw_broker_deinit(&broker);
}

static struct rtab_counters *counters(uint32_t thread, uint32_t library)
{
	struct rtab_area *area = c.area.area;

	if (area->n_threads <= thread)
		area->n_threads = thread + 1;
	return &area->threads[thread].counters[library];
}

/* ---- listings ------------------------------------------------------------ */

START_TEST(status_has_one_row_with_what_the_broker_holds)
{
	struct raw_rows rows;

	raw_add(&c, 0, START, PAGES(3), WRITE);
	raw_wait_drained(&c);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_STATUS, &rows);
	ck_assert_uint_eq(rows.n_rows, 1);
	ck_assert_uint_eq(raw_number(&rows, 0, "pid"), (uint64_t)broker.pid);
	ck_assert_str_eq(raw_text(&rows, 0, "socket"), broker.socket);
	ck_assert_uint_eq(raw_number(&rows, 0, "regions"), 1);
	ck_assert_uint_eq(raw_number(&rows, 0, "bytes"), PAGES(3));
	ck_assert_uint_eq(raw_number(&rows, 0, "bytes_granted"), c.bytes);
	raw_rows_free(&rows);
}
END_TEST

START_TEST(counters_of_threads_are_summed_by_library)
{
	struct raw_rows rows;

	counters(0, 0)->hits = 5;
	counters(3, 0)->hits = 90;
	counters(3, 0)->misses = 5;
	counters(3, 0)->puts = 98;
	counters(1, 1)->uncached = 7;
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_LIBRARIES, &rows);
	ck_assert_uint_eq(rows.n_rows, 2);
	ck_assert_str_eq(raw_text(&rows, 0, "library"), "mpi");
	ck_assert_uint_eq(raw_number(&rows, 0, "hits"), 95);
	ck_assert_uint_eq(raw_number(&rows, 0, "leases"), 2);
	ck_assert_str_eq(raw_text(&rows, 0, "hit_rate"), "95.00%");
	ck_assert_str_eq(raw_text(&rows, 1, "library"), "pvfs");
	ck_assert_uint_eq(raw_number(&rows, 1, "uncached"), 7);
	raw_rows_free(&rows);
	ck_assert_uint_eq(raw_stat(&broker, "hits"), 95);
}
END_TEST

START_TEST(groups_spaces_and_monitors_show_what_the_area_says)
{
	struct raw_client d;
	struct raw_rows rows;

	raw_attach(&d, &broker, "job", -1);
	strcpy(c.area.area->mode_why, "hooks do not work");
	strcpy(c.area.area->monitor_note, "seccomp");
	c.area.area->mode = RTAB_MODE_STRICT;
	c.area.area->hook_mask = 5;
	c.area.area->pinned_bytes = 12345;
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_GROUPS, &rows);
	ck_assert_uint_eq(rows.n_rows, 1);
	ck_assert_str_eq(raw_text(&rows, 0, "group"), "job");
	ck_assert_uint_eq(raw_number(&rows, 0, "spaces"), 2);
	ck_assert_uint_eq(raw_number(&rows, 0, "bytes_granted"),
			  c.bytes + d.bytes);
	raw_rows_free(&rows);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_SPACES, &rows);
	ck_assert_uint_eq(rows.n_rows, 2);
	ck_assert_str_eq(raw_text(&rows, 0, "mode"), "strict");
	ck_assert_str_eq(raw_text(&rows, 0, "why"), "hooks do not work");
	ck_assert_str_eq(raw_text(&rows, 0, "program"), "raw");
	ck_assert_uint_eq(raw_number(&rows, 0, "pinned_bytes"), 12345);
	ck_assert_uint_eq(raw_number(&rows, 0, "libraries"), 2);
	ck_assert_str_eq(raw_text(&rows, 1, "why"), "raw");
	raw_rows_free(&rows);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_MONITORS, &rows);
	ck_assert_str_eq(raw_text(&rows, 0, "hooks"), "munmap,mremap");
	ck_assert_str_eq(raw_text(&rows, 0, "note"), "seccomp");
	ck_assert_uint_eq(raw_number(&rows, 0, "uffd"), 0);
	raw_rows_free(&rows);
	raw_close(&d);
}
END_TEST

START_TEST(text_of_a_client_is_made_printable)
{
	struct raw_rows rows;

	/* No NUL, a terminal sequence, a line break, a byte that is no text. */
	name_library(&c, 2, "\x1b[2J\n\xff\\" "abcdefghijklmnopqrstuvwxyz");
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_LIBRARIES, &rows);
	ck_assert_uint_eq(rows.n_rows, 3);
	ck_assert_str_eq(raw_text(&rows, 2, "library"),
			 "\\x1b[2J\\x0a\\xff\\x5cabcdefghijklmnopqrstuvwxy");
	raw_rows_free(&rows);
}
END_TEST

START_TEST(many_regions_come_in_pages_each_once)
{
	struct raw_rows rows;
	uint32_t i, n = 5000;
	Regc__Admin question = REGC__ADMIN__INIT;

	raw_have(&c, PAGES(n), n);
	for (i = 0; i < n; i++) {
		raw_wait(rtab_load_acquire(&c.table.table->slots_ready) > i);
		raw_add(&c, i, START + PAGES(2 * i), PAGES(1), i % 2);
	}
	raw_wait_drained(&c);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_REGIONS, &rows);
	ck_assert_uint_eq(rows.n_rows, n);
	ck_assert_uint_gt(rows.n_replies, 10);
	for (i = 0; i < n; i++)
		ck_assert_uint_eq(raw_number(&rows, i, "start"),
				  START + PAGES(2 * i));
	ck_assert_str_eq(raw_text(&rows, 1, "access"), "read,write");
	ck_assert_str_eq(raw_text(&rows, 1, "state"), "live");
	raw_rows_free(&rows);

	question.kind = REGC__ADMIN_KIND__ADMIN_REGIONS;
	question.addr = START + PAGES(8) + 1;
	question.len = PAGES(4);
	raw_admin(&broker, &question, &rows);
	ck_assert_uint_eq(rows.n_rows, 3);
	raw_rows_free(&rows);
	question.state = 2; /* void */
	raw_admin(&broker, &question, &rows);
	ck_assert_uint_eq(rows.n_rows, 0);
	raw_rows_free(&rows);
	question.state = 0;
	question.library = (char *)"pvfs";
	raw_admin(&broker, &question, &rows);
	ck_assert_uint_eq(rows.n_rows, 0);
	raw_rows_free(&rows);
}
END_TEST

START_TEST(space_that_ends_between_two_pages_does_no_harm)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Admin admin = REGC__ADMIN__INIT;
	const Regc__AdminReply *reply;
	struct raw_client ctl, d;
	uint32_t i, n = 0;
	int r = 0;

	raw_attach(&d, &broker, "job", -1);
	raw_have(&d, PAGES(20000), 20000);
	for (i = 0; i < 20000; i++) {
		raw_wait(rtab_load_acquire(&d.table.table->slots_ready) > i);
		raw_add(&d, i, START + PAGES(2 * i), PAGES(1), 0);
	}
	raw_wait_drained(&d);
	raw_connect(&ctl, &broker);
	admin.kind = REGC__ADMIN_KIND__ADMIN_REGIONS;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	raw_send(&ctl, &frame);
	do {
		reply = raw_expect(&ctl, REGC__FRAME__BODY_ADMIN_REPLY)
				->admin_reply;
		if (n++ == 0)
			r = kill(getpid(), 0); /* reads nothing meanwhile */
		if (n == 1) {
			raw_close(&d);
			raw_wait(raw_stat(&broker, "spaces") == 1);
		}
	} while (reply->more);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_lt(n, 100);
	raw_close(&ctl);
}
END_TEST

START_TEST(other_users_see_nothing_of_ours)
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		return; /* nobody to become */
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_wait_drained(&c);
	pid = fork();
	if (pid == 0) {
		static const int kinds[] = {
			REGC__ADMIN_KIND__ADMIN_GROUPS,
			REGC__ADMIN_KIND__ADMIN_SPACES,
			REGC__ADMIN_KIND__ADMIN_LIBRARIES,
			REGC__ADMIN_KIND__ADMIN_REGIONS,
			REGC__ADMIN_KIND__ADMIN_MONITORS,
		};
		Regc__Admin question = REGC__ADMIN__INIT;
		struct raw_rows rows;
		struct raw_client own;
		size_t i;

		if (setgid(65534) || setuid(65534))
			_exit(2);
		for (i = 0; i < RTAB_ARRAY_SIZE(kinds); i++) {
			raw_admin_kind(&broker, kinds[i], &rows);
			if (rows.n_rows)
				_exit(3);
		}
		question.kind = REGC__ADMIN_KIND__ADMIN_EXPLAIN;
		question.pid = (uint32_t)getppid();
		question.addr = START;
		question.len = 1;
		raw_admin(&broker, &question, &rows);
		if (rows.err != -ESRCH)
			_exit(4);
		question.kind = REGC__ADMIN_KIND__ADMIN_FLUSH;
		raw_admin(&broker, &question, &rows);
		if (rows.err != -ESRCH)
			_exit(5);
		/* The same name is another group. */
		raw_attach(&own, &broker, "job", -1);
		raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_GROUPS, &rows);
		_exit(rows.n_rows == 1 &&
		      raw_number(&rows, 0, "spaces") == 1 ? 0 : 6);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	raw_expect_silence(&c, 0);
}
END_TEST

START_TEST(flush_asks_for_all_without_lease_and_says_how_many)
{
	Regc__Admin question = REGC__ADMIN__INIT;
	struct raw_rows rows;
	Regc__Frame *frame;
	uint32_t i;

	for (i = 0; i < 10; i++)
		raw_add(&c, i, START + PAGES(i), PAGES(1), 0);
	raw_wait_drained(&c);
	c.area.area->n_threads = 2;
	rtab_lease_get(&rtab_area_leases(&c.area, 1)[4], 1);
	question.kind = REGC__ADMIN_KIND__ADMIN_FLUSH;
	question.group = (char *)"job";
	raw_admin(&broker, &question, &rows);
	ck_assert_int_eq(rows.err, 0);
	ck_assert_uint_eq(raw_number(&rows, 0, "regions"), 9);
	raw_rows_free(&rows);
	frame = raw_expect(&c, REGC__FRAME__BODY_RECLAIM);
	ck_assert_uint_eq(frame->reclaim->cause, RTAB_CAUSE_FLUSHED);
	ck_assert_uint_eq(frame->reclaim->n_slots, 9);
	raw_send_released(&c, 0, 0, frame->reclaim->ticket);
}
END_TEST

START_TEST(flush_asks_for_all_whoever_reads_slowly)
{
	Regc__Frame frame = REGC__FRAME__INIT, *reply;
	Regc__Admin admin = REGC__ADMIN__INIT;
	uint32_t n = 100000, asked = 0, i;
	struct raw_client ctl;

	raw_have(&c, PAGES(n), n);
	for (i = 0; i < n; i++) {
		raw_wait(rtab_load_acquire(&c.table.table->slots_ready) > i);
		raw_add(&c, i, START + PAGES(i), PAGES(1), 0);
	}
	raw_wait_drained(&c);
	raw_connect(&ctl, &broker);
	admin.kind = REGC__ADMIN_KIND__ADMIN_FLUSH;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	raw_send(&ctl, &frame);
	while (asked < n) {
		poll(NULL, 0, 1); /* its socket fills up meanwhile */
		reply = raw_expect(&c, REGC__FRAME__BODY_RECLAIM);
		asked += (uint32_t)reply->reclaim->n_slots;
	}
	ck_assert_uint_eq(asked, n);
	raw_expect(&ctl, REGC__FRAME__BODY_ADMIN_REPLY);
	raw_close(&ctl);
}
END_TEST

/* ---- explain ------------------------------------------------------------- */

static void explain(uint64_t addr, uint64_t len, uint32_t access,
		    struct raw_rows *ret)
{
	Regc__Admin question = REGC__ADMIN__INIT;

	question.kind = REGC__ADMIN_KIND__ADMIN_EXPLAIN;
	question.pid = (uint32_t)getpid();
	question.addr = addr;
	question.len = len;
	question.access = access;
	raw_admin(&broker, &question, ret);
}

static void expect_explained(uint64_t addr, uint64_t len, uint32_t access,
			     const char *text)
{
	struct raw_rows rows;

	explain(addr, len, access, &rows);
	ck_assert_msg(strstr(rows.text, text) != NULL, "\"%s\" is not in \"%s\"",
		      text, rows.text);
	raw_rows_free(&rows);
}

START_TEST(explain_says_hit_access_and_part)
{
	raw_add(&c, 0, START, PAGES(4), 0);
	raw_wait_drained(&c);
	expect_explained(START + 100, 4096, 0, "would hit: region 0x40000000-"
			 "0x40004000 (access read) registered");
	expect_explained(START, 1, 0, "by library mpi, 0 leases now");
	expect_explained(START, 1, WRITE,
			 "access differs: region 0x40000000-0x40004000 (access "
			 "read) covers it, asked for is read,write");
	expect_explained(START, PAGES(5), 0, "covered only in part");
	/* The process has it no more, and the record is on its way. */
	rtab_area_regs(&c.area, 0)[0].live_gen = 0;
	expect_explained(START, 1, 0, "voided by the process itself");
}
END_TEST

START_TEST(explain_says_what_became_of_it)
{
	struct rtab_request req = { .op = RTAB_OP_VOID, .slot = 1,
				    .cause = RTAB_CAUSE_HOOK_MUNMAP };
	struct raw_rows rows;

	expect_explained(START, 1, 0, "never registered since this process "
			 "attached");
	raw_add(&c, 1, START, PAGES(1), 0);
	raw_push(&c, &req);
	raw_del(&c, 1);
	raw_wait_drained(&c);
	explain(START, 1, 0, &rows);
	ck_assert_ptr_nonnull(strstr(rows.text, "by library mpi and voided by "
						"munmap"));
	ck_assert_uint_eq(rows.n_rows, 3);
	ck_assert_str_eq(raw_text(&rows, 0, "event"), "deregistered");
	ck_assert_str_eq(raw_text(&rows, 1, "event"), "voided");
	ck_assert_str_eq(raw_text(&rows, 1, "cause"), "munmap");
	ck_assert_str_eq(raw_text(&rows, 2, "event"), "registered");
	raw_rows_free(&rows);
	expect_explained(START + PAGES(1), 1, 0, "never registered");
}
END_TEST

START_TEST(explain_names_the_limit_of_an_eviction)
{
	struct rtab_request req = { .op = RTAB_OP_VOID, .slot = 0,
				    .cause = RTAB_CAUSE_EVICTED };

	raw_add(&c, 0, START, PAGES(1), 0);
	raw_push(&c, &req);
	raw_wait_drained(&c);
	expect_explained(START, 1, 0, "evicted to stay within a limit "
			 "(limit.space of the process)");
}
END_TEST

START_TEST(explain_says_why_nothing_was_cached)
{
	struct rtab_request req = { .op = RTAB_OP_NOTE, .start = START,
				    .end = START + PAGES(1),
				    .cause = RTAB_CAUSE_UNWATCHABLE };

	raw_push(&c, &req);
	raw_wait_drained(&c);
	expect_explained(START, 1, 0, "the memory cannot be tracked");
	c.area.area->mode = RTAB_MODE_OFF;
	strcpy(c.area.area->mode_why, "no userfaultfd");
	expect_explained(START, 1, 0, "this process caches nothing: no "
			 "userfaultfd");
}
END_TEST

START_TEST(explain_wants_a_process_and_an_address)
{
	Regc__Admin question = REGC__ADMIN__INIT;
	struct raw_rows rows;

	question.kind = REGC__ADMIN_KIND__ADMIN_EXPLAIN;
	raw_admin(&broker, &question, &rows);
	ck_assert_int_eq(rows.err, -EINVAL);
	question.pid = 1;
	question.addr = UINT64_MAX - 1;
	question.len = 1;
	raw_admin(&broker, &question, &rows);
	ck_assert_int_eq(rows.err, -ESRCH);
	question.len = 2;
	raw_admin(&broker, &question, &rows);
	ck_assert_int_eq(rows.err, -EINVAL);
}
END_TEST

START_TEST(history_of_much_more_than_it_keeps_can_be_listed)
{
	struct raw_rows rows;
	uint32_t i;

	for (i = 0; i < 3000; i++) {
		raw_add(&c, i % 500, START, PAGES(1), 0);
		raw_del(&c, i % 500);
	}
	raw_wait_drained(&c);
	explain(START, 1, 0, &rows);
	ck_assert_uint_eq(rows.n_rows, 1024);
	raw_rows_free(&rows);
	expect_explained(START + PAGES(7), 1, 0, "not registered within the "
			 "last 1024 events");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("admin");
	TCase *t = tcase_create("listings");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, status_has_one_row_with_what_the_broker_holds);
	tcase_add_test(t, counters_of_threads_are_summed_by_library);
	tcase_add_test(t, groups_spaces_and_monitors_show_what_the_area_says);
	tcase_add_test(t, text_of_a_client_is_made_printable);
	tcase_add_test(t, many_regions_come_in_pages_each_once);
	tcase_add_test(t, space_that_ends_between_two_pages_does_no_harm);
	tcase_add_test(t, other_users_see_nothing_of_ours);
	tcase_add_test(t, flush_asks_for_all_without_lease_and_says_how_many);
	tcase_add_test(t, flush_asks_for_all_whoever_reads_slowly);
	suite_add_tcase(s, t);

	t = tcase_create("explain");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, explain_says_hit_access_and_part);
	tcase_add_test(t, explain_says_what_became_of_it);
	tcase_add_test(t, explain_names_the_limit_of_an_eviction);
	tcase_add_test(t, explain_says_why_nothing_was_cached);
	tcase_add_test(t, explain_wants_a_process_and_an_address);
	tcase_add_test(t, history_of_much_more_than_it_keeps_can_be_listed);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
