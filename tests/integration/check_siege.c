/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One user does what he can to stop the broker for all others (L5): descriptors
 * whose close waits, questions without end, tables that only grow, the lock.  Where
 * the test may, the besieger is another user, and a process of its own.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"
#include "tests/integration/raw.h"
#include "tests/support/suite.h"

#define START UINT64_C(0x30000000)
#define PAGES(n) ((uint64_t)(n) * RTAB_PAGE)
#define NOBODY 65534
#define LINGER_S 30
#define SOON_MS 2000 /* far below LINGER_S; what is expected is 1 ms */

static struct raw_broker broker;

static void setup_with(const char *const *sets)
{
	raw_broker_init(&broker);
	raw_broker_start(&broker, sets);
}

static void setup(void)
{
	setup_with(NULL);
}

static void teardown(void)
{
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	raw_broker_deinit(&broker);
}

/* How long the broker takes to answer somebody new. */
static uint64_t status_ms(void)
{
	uint64_t then = rtab_now_ns();
	struct raw_rows rows;

	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_STATUS, &rows);
	raw_rows_free(&rows);
	return (rtab_now_ns() - then) / 1000000;
}

/* Descriptors or threads of the broker. */
static unsigned int count_in(const char *name)
{
	struct dirent *entry;
	unsigned int n = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)broker.pid, name);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* A process of another user that runs fn, says so, and waits to be ended. */
static pid_t besieger(void (*fn)(int arg), int arg)
{
	int pipes[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (geteuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
			_exit(1);
		if (fn)
			fn(arg);
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	return pid;
}

static void end_besieger(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* ---- descriptors whose close waits --------------------------------------- */

/* A connection over which nothing goes any more; *ret_peer keeps it so. */
static int full_socket(int *ret_peer)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	const struct linger linger = { 1, LINGER_S };
	static char bytes[65536];
	socklen_t len = sizeof(addr);
	int listener, fd, small = 4096;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(listener, 0);
	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, len), 0);
	*ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(*ret_peer, 0);
	close(listener);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger,
				    sizeof(linger)), 0);
	return fd;
}

#define MAX_SENT 64

/* One packet with fd, n times; 0 or -errno. */
static int send_fd(int sock, const void *data, size_t size, int fd, int n)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(MAX_SENT * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)data, size };
	struct msghdr msg = { 0 };
	int fds[MAX_SENT], i;

	for (i = 0; i < n; i++)
		fds[i] = fd;
	memset(&control, 0, sizeof(control));
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
	memcpy(CMSG_DATA(&control.head), fds, (size_t)n * sizeof(int));
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control.bytes;
	msg.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Well-formed: an Admin of status, as control.proto numbers it. */
static const uint8_t question[] = { REGC__FRAME__BODY_ADMIN << 3 | 2, 0 };

/* Sends it so that the broker's is the last descriptor there is. */
static void send_full_socket(int sock, bool garbage, int n)
{
	int peer, fd = full_socket(&peer); /* peer stays open */

	ck_assert_int_eq(send_fd(sock, garbage ? (const void *)"\xff\xff" :
						 (const void *)question, 2, fd, n),
			 0);
	close(fd); /* it is under way: not the last */
}

START_TEST(close_that_waits_does_not_stop_the_broker)
{
	static const struct {
		bool garbage;
		int n;
	} packets[] = {
		{ true, 1 }, /* is not unpacked */
		{ true, 4 },
		{ true, 6 }, /* more than a frame may bring */
		{ false, 64 },
		{ false, 1 },
		{ false, 4 },
	};
	struct raw_client c;

	ck_assert_int_eq(kill(broker.pid, SIGSTOP), 0);
	raw_connect(&c, &broker);
	send_full_socket(c.sock, packets[_i].garbage, packets[_i].n);
	ck_assert_int_eq(kill(broker.pid, SIGCONT), 0);
	ck_assert_uint_lt(status_ms(), SOON_MS);
	raw_close(&c);
	ck_assert_uint_lt(status_ms(), SOON_MS);
}
END_TEST

START_TEST(unread_descriptors_of_a_connection_do_not_stop_the_broker)
{
	struct raw_client c;
	int i;

	ck_assert_int_eq(kill(broker.pid, SIGSTOP), 0);
	raw_connect(&c, &broker);
	for (i = 0; i < 4; i++)
		send_full_socket(c.sock, true, 1);
	raw_close(&c);
	ck_assert_int_eq(kill(broker.pid, SIGCONT), 0);
	ck_assert_uint_lt(status_ms(), SOON_MS);
}
END_TEST

/* ---- a user whose descriptors do not close ------------------------------- */

#define N_CLOGGED 80

static void clog_lanes(int arg)
{
	int sock, i;

	for (i = 0; i < N_CLOGGED; i++) {
		if (regc_wire_connect(broker.socket, &sock, NULL, 0))
			_exit(1);
		send_full_socket(sock, arg, 4);
		send_full_socket(sock, arg, 4);
		send_full_socket(sock, arg, 4);
	}
}

static void expect_refusal(int arg)
{
	struct raw_client c;

	raw_connect(&c, &broker);
	if (raw_expect(&c, REGC__FRAME__BODY_ERROR)->error->err != arg)
		_exit(1);
	raw_close(&c);
}

START_TEST(user_whose_descriptors_do_not_close_is_alone_with_them)
{
	struct raw_client c[20];
	unsigned int then, i;
	pid_t pids[2];

	if (geteuid() != 0)
		return; /* it takes two users */
	ck_assert_int_eq(kill(broker.pid, SIGSTOP), 0);
	pids[0] = besieger(clog_lanes, _i);
	ck_assert_int_eq(kill(broker.pid, SIGCONT), 0);
	ck_assert_uint_lt(status_ms(), SOON_MS);
	pids[1] = besieger(expect_refusal, -EBUSY);
	ck_assert_uint_lt(count_in("task"), 16);
	then = count_in("fd");
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_attach(&c[i], &broker, "", raw_uffd());
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
	raw_wait(count_in("fd") <= then);
	end_besieger(pids[0]);
	end_besieger(pids[1]);
	ck_assert_uint_lt(status_ms(), SOON_MS);
}
END_TEST

/* ---- questions without end ----------------------------------------------- */

#define N_ASKING 400

static void ask_for_ever(int kind)
{
	static struct raw_client asking[N_ASKING];
	struct raw_client space[16];
	Regc__Frame frame = REGC__FRAME__INIT, *reply;
	Regc__Admin admin = REGC__ADMIN__INIT;
	unsigned int i;

	for (i = 0; i < RTAB_ARRAY_SIZE(space); i++) {
		raw_attach(&space[i], &broker, "", -1);
		space[i].area.area->n_threads = RTAB_N_THREADS;
	}
	for (i = 0; i < N_ASKING; i++)
		raw_connect(&asking[i], &broker);
	if (fork())
		return; /* the parent says that it has begun */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	admin.kind = (Regc__AdminKind)kind;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	for (i = 0;; i = (i + 1) % N_ASKING) {
		regc_wire_send(asking[i].sock, &frame, NULL, 0,
			       asking[i].scratch);
		while (!regc_wire_recv(asking[i].wire, asking[i].sock, &reply))
			;
	}
}

START_TEST(questions_of_one_user_do_not_delay_another)
{
	static const int kinds[] = { REGC__ADMIN_KIND__ADMIN_STATS,
				     REGC__ADMIN_KIND__ADMIN_SPACES,
				     REGC__ADMIN_KIND__ADMIN_LIBRARIES };
	uint64_t best = UINT64_MAX;
	pid_t pid;
	int i;

	if (geteuid() != 0)
		return; /* it takes two users */
	pid = besieger(ask_for_ever, kinds[_i]);
	for (i = 0; i < 5; i++)
		best = rtab_min_u64(best, status_ms());
	end_besieger(pid);
	ck_assert_uint_lt(best, 200);
}
END_TEST

/* ---- what others have not ------------------------------------------------ */

static void expect_device(int arg)
{
	struct raw_client c;

	raw_hello(&c, &broker, "");
	if ((c.device >= 0) != arg)
		_exit(1);
	raw_close(&c);
}

START_TEST(device_is_for_those_who_could_open_it)
{
	const char *const sets[] = { "uffd.device=yes", NULL };
	struct raw_client c;
	struct stat st;
	bool root_has;

	if (geteuid() != 0 || stat("/dev/userfaultfd", &st) || st.st_mode & 06)
		return; /* it takes two users and a device for one of them */
	raw_hello(&c, &broker, "");
	root_has = c.device >= 0;
	raw_close(&c);
	end_besieger(besieger(expect_device, 0));
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	raw_broker_start(&broker, sets);
	end_besieger(besieger(expect_device, root_has));
}
END_TEST

/* As many connections as are let in; then one more is told why not. */
static void connect_all(int arg)
{
	struct raw_client c;
	Regc__Frame *frame;
	int n = 0;

	(void)arg;
	for (;;) {
		raw_connect(&c, &broker);
		if (!regc_wire_recv_wait(c.wire, c.sock, 50, &frame))
			break;
		if (++n > 60)
			_exit(1);
	}
	if (frame->body_case != REGC__FRAME__BODY_ERROR ||
	    frame->error->err != -EDQUOT)
		_exit(1);
}

START_TEST(no_user_takes_all_descriptors)
{
	const struct rlimit few = { 150, 150 };
	pid_t pid;

	if (geteuid() != 0)
		return; /* it takes two users */
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	/* It stays so here: this process is for this test alone. */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	raw_broker_start(&broker, NULL);
	pid = besieger(connect_all, 0);
	ck_assert_uint_lt(status_ms(), SOON_MS);
	ck_assert(raw_log_has(&broker, "connection refused"));
	end_besieger(pid);
}
END_TEST

START_TEST(who_only_attaches_holds_little)
{
	struct raw_client c[64];
	struct raw_rows rows;
	uint32_t i;

	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_attach(&c[i], &broker, "", -1);
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_STATUS, &rows);
	ck_assert_uint_le(raw_number(&rows, 0, "regions_granted"),
			  raw_number(&rows, 0, "regions_limit") / 8);
	ck_assert_uint_le(raw_number(&rows, 0, "bytes_granted"),
			  raw_number(&rows, 0, "bytes_limit") / 8);
	raw_rows_free(&rows);
	/* And many small Needs do not add up to a hoard. */
	for (i = 0; i < 100; i++) {
		raw_send_need(&c[0], PAGES(1), 1, i + 1);
		raw_expect(&c[0], REGC__FRAME__BODY_GRANT);
	}
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_STATUS, &rows);
	ck_assert_uint_le(raw_number(&rows, 0, "regions_granted"),
			  raw_number(&rows, 0, "regions_limit") / 8);
	raw_rows_free(&rows);
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
}
END_TEST

START_TEST(area_is_not_larger_than_was_told)
{
	struct raw_client c;
	int fd;

	raw_hello(&c, &broker, "");
	ck_assert_int_eq(rtab_area_new(&c.area, RTAB_MAX_CAPACITY, 1, &fd), 0);
	raw_send_attach(&c, &fd, 1, false);
	raw_expect_end(&c);
	close(fd);
	raw_close(&c);
}
END_TEST

/* ---- tables that only grow ----------------------------------------------- */

static uint32_t ready(const struct raw_client *c)
{
	return rtab_load_acquire(&c->table.table->slots_ready);
}

START_TEST(slots_become_ready_as_regions_need_them)
{
	struct raw_client c;
	uint32_t i;

	raw_attach(&c, &broker, "", -1);
	/* One region at a time, always in the last slot. */
	for (i = 0; i < 64; i++) {
		raw_add(&c, ready(&c) - 1, START, PAGES(1), 0);
		raw_del(&c, ready(&c) - 1);
		raw_wait_drained(&c);
	}
	ck_assert_uint_eq(ready(&c), RTAB_READY_STEP);
	/* And for whoever does have regions there are always more. */
	raw_have(&c, PAGES(5000), 5000);
	for (i = 0; i < 5000; i++) {
		raw_add(&c, i, START + PAGES(i), PAGES(1), 0);
		if (i % 100)
			continue;
		raw_wait_drained(&c);
		ck_assert_uint_gt(ready(&c), i + RTAB_N_RING);
	}
	raw_wait_drained(&c);
	ck_assert_uint_le(ready(&c), 6 * RTAB_READY_STEP);
	raw_close(&c);
}
END_TEST

static void setup_small(void)
{
	static const char *const sets[] = { "limit.group.regions=4096", NULL };

	setup_with(sets);
}

START_TEST(slots_that_are_ready_count_for_the_group)
{
	struct raw_client c[8];
	uint32_t all = 0, i, j;

	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++) {
		raw_attach(&c[i], &broker, "", -1);
		raw_have(&c[i], PAGES(3000), 3000);
		for (j = 0; j < 3000 && j < ready(&c[i]); j++) {
			raw_add(&c[i], j, START + PAGES(j), PAGES(1), 0);
			if (j % 100 == 0)
				raw_wait_drained(&c[i]);
		}
		ck_assert_uint_ge(j, 2 * RTAB_READY_STEP); /* these are free */
		while (j--)
			raw_del(&c[i], j);
		raw_wait_drained(&c[i]);
		raw_send_released(&c[i], 0, 3000, 0);
		all += ready(&c[i]);
	}
	ck_assert_uint_le(all, 4096 + 8 * 2 * RTAB_READY_STEP);
	for (i = 0; i < RTAB_ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
}
END_TEST

/* ---- the lock ------------------------------------------------------------ */

START_TEST(lock_file_is_for_the_owner_alone)
{
	char path[128];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s.lock", broker.socket);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	/* Of an older version, and held by somebody who has it open. */
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	ck_assert_int_eq(chmod(path, 0644), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	ck_assert(raw_log_has(&broker, "is held by another process"));
	ck_assert(!raw_log_has(&broker, "another regcached"));
	close(fd);
	raw_broker_start(&broker, NULL);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
}
END_TEST

START_TEST(lock_file_of_another_user_is_refused)
{
	char path[128], other[136];

	if (geteuid() != 0)
		return; /* it takes two users */
	snprintf(path, sizeof(path), "%s.lock", broker.socket);
	snprintf(other, sizeof(other), "%s.conf", path);
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	ck_assert_int_eq(chown(path, NOBODY, NOBODY), 0);
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	ck_assert(raw_log_has(&broker, "belongs to user 65534"));
	ck_assert_int_eq(chown(path, 0, 0), 0);
	/* One of its own that somebody has under another name too. */
	ck_assert_int_eq(link(path, other), 0);
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	ck_assert_int_eq(unlink(other), 0);
	raw_broker_start(&broker, NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("siege");
	TCase *t = tcase_create("descriptors");

	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, close_that_waits_does_not_stop_the_broker, 0, 6);
	tcase_add_test(t, unread_descriptors_of_a_connection_do_not_stop_the_broker);
	tcase_add_loop_test(t, user_whose_descriptors_do_not_close_is_alone_with_them,
			    0, 2);
	suite_add_tcase(s, t);

	t = tcase_create("share");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, questions_of_one_user_do_not_delay_another, 0, 3);
	tcase_add_test(t, device_is_for_those_who_could_open_it);
	tcase_add_test(t, no_user_takes_all_descriptors);
	tcase_add_test(t, who_only_attaches_holds_little);
	tcase_add_test(t, area_is_not_larger_than_was_told);
	tcase_add_test(t, slots_become_ready_as_regions_need_them);
	tcase_add_test(t, lock_file_is_for_the_owner_alone);
	tcase_add_test(t, lock_file_of_another_user_is_refused);
	suite_add_tcase(s, t);

	t = tcase_create("small");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup_small, teardown);
	tcase_add_test(t, slots_that_are_ready_count_for_the_group);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
