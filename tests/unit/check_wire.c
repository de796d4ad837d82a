/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of libregc/wire.h: every message survives the trip, and waiting ends when
 * it should.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm/segment.h"
#include "tests/support/suite.h"
#include "tests/unit/wire_fixture.h"

static Regc__Frame *trip(const Regc__Frame *frame)
{
	Regc__Frame *got = NULL;

	ck_assert_int_eq(regc_wire_send(wire_pair[0], frame, NULL, 0, wire_scratch), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_ptr_nonnull(got);
	ck_assert_int_eq(got->body_case, frame->body_case);
	return got;
}

START_TEST(roundtrip_hello_and_welcome)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Hello hello = REGC__HELLO__INIT;
	Regc__Welcome welcome = REGC__WELCOME__INIT;

	hello.version_min = 1;
	hello.version_max = UINT32_MAX;
	hello.group = (char *)"job \"7\"";
	hello.program = (char *)"a.out";
	hello.mode = 3;
	hello.want_uffd_device = 1;
	hello.capacity = 65536;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	got = trip(&frame);
	ck_assert_uint_eq(got->hello->version_min, 1);
	ck_assert_uint_eq(got->hello->version_max, UINT32_MAX);
	ck_assert_str_eq(got->hello->group, "job \"7\"");
	ck_assert_str_eq(got->hello->program, "a.out");
	ck_assert_uint_eq(got->hello->mode, 3);
	ck_assert(got->hello->want_uffd_device);
	ck_assert_uint_eq(got->hello->capacity, 65536);

	welcome.version = 1;
	welcome.space = 7;
	welcome.group = (char *)"";
	welcome.capacity = 4096;
	welcome.mode = 1;
	welcome.hard_bytes = UINT64_MAX;
	welcome.max_region_bytes = 1ULL << 40;
	welcome.has_uffd_device = 1;
	frame.body_case = REGC__FRAME__BODY_WELCOME;
	frame.welcome = &welcome;
	got = trip(&frame);
	ck_assert_uint_eq(got->welcome->version, 1);
	ck_assert_uint_eq(got->welcome->space, 7);
	ck_assert_str_eq(got->welcome->group, "");
	ck_assert_uint_eq(got->welcome->capacity, 4096);
	ck_assert_uint_eq(got->welcome->mode, 1);
	ck_assert_uint_eq(got->welcome->hard_bytes, UINT64_MAX);
	ck_assert_uint_eq(got->welcome->max_region_bytes, 1ULL << 40);
	ck_assert(got->welcome->has_uffd_device);
}
END_TEST

START_TEST(roundtrip_attach_and_attached)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Attach attach = REGC__ATTACH__INIT;
	Regc__Attached attached = REGC__ATTACHED__INIT;

	attach.mode = 2;
	attach.why = (char *)"munmap: no event";
	attach.has_uffd = 1;
	frame.body_case = REGC__FRAME__BODY_ATTACH;
	frame.attach = &attach;
	got = trip(&frame);
	ck_assert_uint_eq(got->attach->mode, 2);
	ck_assert_str_eq(got->attach->why, "munmap: no event");
	ck_assert(got->attach->has_uffd);

	attached.bytes = 1ULL << 33;
	attached.regions = 1024;
	frame.body_case = REGC__FRAME__BODY_ATTACHED;
	frame.attached = &attached;
	got = trip(&frame);
	ck_assert_uint_eq(got->attached->bytes, 1ULL << 33);
	ck_assert_uint_eq(got->attached->regions, 1024);
}
END_TEST

START_TEST(roundtrip_need_grant_deny)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Need need = REGC__NEED__INIT;
	Regc__Grant grant = REGC__GRANT__INIT;
	Regc__Deny deny = REGC__DENY__INIT;

	need.bytes = 1;
	need.regions = 2;
	need.ticket = UINT64_MAX;
	frame.body_case = REGC__FRAME__BODY_NEED;
	frame.need = &need;
	got = trip(&frame);
	ck_assert_uint_eq(got->need->bytes, 1);
	ck_assert_uint_eq(got->need->regions, 2);
	ck_assert_uint_eq(got->need->ticket, UINT64_MAX);

	grant.bytes = 3;
	grant.regions = 0;
	grant.ticket = 4;
	frame.body_case = REGC__FRAME__BODY_GRANT;
	frame.grant = &grant;
	got = trip(&frame);
	ck_assert_uint_eq(got->grant->bytes, 3);
	ck_assert_uint_eq(got->grant->regions, 0);
	ck_assert_uint_eq(got->grant->ticket, 4);

	deny.ticket = 5;
	deny.limit = (char *)"group-bytes";
	frame.body_case = REGC__FRAME__BODY_DENY;
	frame.deny = &deny;
	got = trip(&frame);
	ck_assert_uint_eq(got->deny->ticket, 5);
	ck_assert_str_eq(got->deny->limit, "group-bytes");
}
END_TEST

/* The longest lists that the protocol has, with the longest numbers. */
START_TEST(roundtrip_full_slot_lists)
{
	static uint32_t slots[REGC_WIRE_MAX_SLOTS];
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Reclaim reclaim = REGC__RECLAIM__INIT;
	Regc__Voided voided = REGC__VOIDED__INIT;
	size_t bytes = sizeof(slots);

	for (uint32_t i = 0; i < REGC_WIRE_MAX_SLOTS; i++)
		slots[i] = UINT32_MAX - i;
	reclaim.ticket = 6;
	reclaim.n_slots = REGC_WIRE_MAX_SLOTS;
	reclaim.slots = slots;
	reclaim.bytes = 7;
	reclaim.regions = 8;
	reclaim.cause = 9;
	frame.body_case = REGC__FRAME__BODY_RECLAIM;
	frame.reclaim = &reclaim;
	got = trip(&frame);
	ck_assert_uint_eq(got->reclaim->n_slots, REGC_WIRE_MAX_SLOTS);
	ck_assert_mem_eq(got->reclaim->slots, slots, bytes);
	ck_assert_uint_eq(got->reclaim->ticket, 6);
	ck_assert_uint_eq(got->reclaim->bytes, 7);
	ck_assert_uint_eq(got->reclaim->regions, 8);
	ck_assert_uint_eq(got->reclaim->cause, 9);

	voided.n_slots = REGC_WIRE_MAX_SLOTS;
	voided.slots = slots;
	voided.cause = 3;
	frame.body_case = REGC__FRAME__BODY_VOIDED;
	frame.voided = &voided;
	got = trip(&frame);
	ck_assert_uint_eq(got->voided->n_slots, REGC_WIRE_MAX_SLOTS);
	ck_assert_mem_eq(got->voided->slots, slots, bytes);
	ck_assert_uint_eq(got->voided->cause, 3);
}
END_TEST

START_TEST(roundtrip_released_rescan_error)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Released released = REGC__RELEASED__INIT;
	Regc__Error error = REGC__ERROR__INIT;

	released.ticket = 0;
	released.bytes = 4096;
	released.regions = 1;
	frame.body_case = REGC__FRAME__BODY_RELEASED;
	frame.released = &released;
	got = trip(&frame);
	ck_assert_uint_eq(got->released->ticket, 0);
	ck_assert_uint_eq(got->released->bytes, 4096);
	ck_assert_uint_eq(got->released->regions, 1);

	wire_assert_works(); /* the empty message, Rescan */

	error.err = -EDQUOT;
	error.text = (char *)"too many spaces: limit 256";
	frame.body_case = REGC__FRAME__BODY_ERROR;
	frame.error = &error;
	got = trip(&frame);
	ck_assert_int_eq(got->error->err, -EDQUOT);
	ck_assert_str_eq(got->error->text, "too many spaces: limit 256");
}
END_TEST

START_TEST(roundtrip_admin)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Admin admin = REGC__ADMIN__INIT;

	admin.kind = REGC__ADMIN_KIND__ADMIN_EXPLAIN;
	admin.pid = 4194304;
	admin.group = (char *)"g";
	admin.library = (char *)"mpi";
	admin.addr = UINT64_MAX;
	admin.len = 1;
	admin.access = 31;
	admin.state = 2;
	admin.cursor = 1ULL << 63;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	got = trip(&frame);
	ck_assert_int_eq(got->admin->kind, REGC__ADMIN_KIND__ADMIN_EXPLAIN);
	ck_assert_uint_eq(got->admin->pid, 4194304);
	ck_assert_str_eq(got->admin->group, "g");
	ck_assert_str_eq(got->admin->library, "mpi");
	ck_assert_uint_eq(got->admin->addr, UINT64_MAX);
	ck_assert_uint_eq(got->admin->len, 1);
	ck_assert_uint_eq(got->admin->access, 31);
	ck_assert_uint_eq(got->admin->state, 2);
	ck_assert_uint_eq(got->admin->cursor, 1ULL << 63);
}
END_TEST

/* A table as large as a packet takes, of rows as regc-ctl lists them. */
START_TEST(roundtrip_full_admin_reply)
{
	enum { N_ROWS = 300, N_CELLS = 12 };
	static Regc__Cell cells[N_CELLS];
	static Regc__Cell *cell_ptrs[N_CELLS];
	static Regc__Row row = REGC__ROW__INIT;
	static Regc__Row *rows[N_ROWS];
	Regc__Column column = REGC__COLUMN__INIT, *columns[] = { &column };
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;
	Regc__Frame frame = REGC__FRAME__INIT, *got;

	for (int i = 0; i < N_CELLS; i++) {
		regc__cell__init(&cells[i]);
		if (i % 4 == 0)
			cells[i].text = (char *)"cached";
		else
			cells[i].number = (uint64_t)i << 16;
		cell_ptrs[i] = &cells[i];
	}
	row.n_cells = N_CELLS;
	row.cells = cell_ptrs;
	for (int i = 0; i < N_ROWS; i++)
		rows[i] = &row;
	column.name = (char *)"state";
	reply.n_columns = 1;
	reply.columns = columns;
	reply.n_rows = N_ROWS;
	reply.rows = rows;
	reply.more = 1;
	reply.cursor = 300;
	frame.body_case = REGC__FRAME__BODY_ADMIN_REPLY;
	frame.admin_reply = &reply;
	got = trip(&frame);
	ck_assert_uint_eq(got->admin_reply->n_rows, N_ROWS);
	ck_assert_str_eq(got->admin_reply->columns[0]->name, "state");
	ck_assert(got->admin_reply->more);
	ck_assert_uint_eq(got->admin_reply->cursor, 300);
	for (int i = 0; i < N_ROWS; i++) {
		const Regc__Row *r = got->admin_reply->rows[i];

		ck_assert_uint_eq(r->n_cells, N_CELLS);
		ck_assert_str_eq(r->cells[8]->text, "cached");
		ck_assert_uint_eq(r->cells[11]->number, 11ULL << 16);
	}
}
END_TEST

START_TEST(descriptors_arrive_close_on_exec_and_can_be_taken)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Rescan rescan = REGC__RESCAN__INIT;
	int before = wire_count_fds(), pipes[2], fd;
	char c = 0;

	ck_assert_int_eq(pipe(pipes), 0);
	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	ck_assert_int_eq(regc_wire_send(wire_pair[0], &frame,
					(int[]){ pipes[0], pipes[1] }, 2, wire_scratch),
			 0);
	close(pipes[0]);
	close(pipes[1]);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(wire_in.n_fds, 2);
	ck_assert_int_eq(wire_count_fds(), before + 2);

	ck_assert_int_eq(regc_wire_take_fd(&wire_in, -1), -1);
	ck_assert_int_eq(regc_wire_take_fd(&wire_in, 2), -1);
	fd = regc_wire_take_fd(&wire_in, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(regc_wire_take_fd(&wire_in, 0), -1);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(write(wire_in.fds[1], "x", 1), 1);
	ck_assert_int_eq(read(fd, &c, 1), 1);
	ck_assert_int_eq(c, 'x');

	/* The next receive closes what nobody took, and nothing else. */
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EAGAIN);
	ck_assert_int_eq(wire_count_fds(), before + 1);
	ck_assert_int_eq(read(fd, &c, 1), 0);
	close(fd);
}
END_TEST

START_TEST(receive_does_not_wait_and_send_does_not_wait)
{
	Regc__Frame *got;
	int r, n = 0;

	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EAGAIN);
	do
		r = wire_send_of_size(REGC_WIRE_MAX_BYTES);
	while (r == 0 && ++n < 1000);
	ck_assert_int_eq(r, -EAGAIN);
	while (n-- > 0)
		ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	wire_assert_works();
}
END_TEST

START_TEST(end_of_stream_is_told_without_signal)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Rescan rescan = REGC__RESCAN__INIT;

	wire_send_rescan();
	close(wire_pair[0]);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -ECONNRESET);
	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], 10000, &got),
			 -ECONNRESET);
	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	/* SIGPIPE would end the test. */
	ck_assert_int_eq(regc_wire_send(wire_pair[1], &frame, NULL, 0, wire_scratch), -EPIPE);
	wire_pair[0] = -1;
}
END_TEST

/* Until the parent sleeps, most likely in poll; not longer than 5 s. */
static void wait_for_parent_to_wait(void)
{
	uint64_t end_ns = rtab_now_ns() + 5000000000;
	char path[64], state = 'R';

	snprintf(path, sizeof(path), "/proc/%d/stat", getppid());
	while (state != 'S' && rtab_now_ns() < end_ns) {
		FILE *f = fopen(path, "re");

		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			_exit(1);
		fclose(f);
	}
}

START_TEST(wait_ends_with_a_frame_or_the_time)
{
	Regc__Frame *got;
	uint64_t from_ns = rtab_now_ns();
	pid_t pid;

	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], 0, &got), -ETIMEDOUT);
	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], -1, &got),
			 -ETIMEDOUT);
	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], 20, &got),
			 -ETIMEDOUT);
	ck_assert_uint_ge(rtab_now_ns() - from_ns, 20000000);

	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		wait_for_parent_to_wait();
		wire_send_rescan();
		_exit(0);
	}
	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], 10000, &got), 0);
	ck_assert_int_eq(got->body_case, REGC__FRAME__BODY_RESCAN);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

static void on_alarm(int sig)
{
	(void)sig;
}

/* Signals neither end the wait early nor make it longer. */
START_TEST(wait_is_deaf_to_signals)
{
	struct sigaction act = { .sa_handler = on_alarm };
	struct itimerspec every = { { 0, 2000000 }, { 0, 2000000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL,
			       .sigev_signo = SIGALRM };
	uint64_t from_ns, took_ns;
	Regc__Frame *got;
	timer_t timer;

	ck_assert_int_eq(sigaction(SIGALRM, &act, NULL), 0);
	ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &ev, &timer), 0);
	ck_assert_int_eq(timer_settime(timer, 0, &every, NULL), 0);
	from_ns = rtab_now_ns();
	ck_assert_int_eq(regc_wire_recv_wait(&wire_in, wire_pair[1], 50, &got),
			 -ETIMEDOUT);
	took_ns = rtab_now_ns() - from_ns;
	timer_delete(timer);
	ck_assert_uint_ge(took_ns, 50000000);
	ck_assert_uint_lt(took_ns, 5000000000);
}
END_TEST

static Suite *wire_suite(void)
{
	Suite *s = suite_create("wire");
	TCase *t = tcase_create("messages");

	tcase_add_checked_fixture(t, wire_setup, wire_teardown);
	tcase_add_test(t, roundtrip_hello_and_welcome);
	tcase_add_test(t, roundtrip_attach_and_attached);
	tcase_add_test(t, roundtrip_need_grant_deny);
	tcase_add_test(t, roundtrip_full_slot_lists);
	tcase_add_test(t, roundtrip_released_rescan_error);
	tcase_add_test(t, roundtrip_admin);
	tcase_add_test(t, roundtrip_full_admin_reply);
	tcase_add_test(t, descriptors_arrive_close_on_exec_and_can_be_taken);
	suite_add_tcase(s, t);

	t = tcase_create("waiting");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, wire_setup, wire_teardown);
	tcase_add_test(t, receive_does_not_wait_and_send_does_not_wait);
	tcase_add_test(t, end_of_stream_is_told_without_signal);
	tcase_add_test(t, wait_ends_with_a_frame_or_the_time);
	tcase_add_test(t, wait_is_deaf_to_signals);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(wire_suite());
}
