/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clients that break every rule (L5): whatever one sends, the broker lives, a
 * client beside it keeps what it has, and nothing is left of the one.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"
#include "tests/integration/raw.h"
#include "tests/support/suite.h"

#define START UINT64_C(0x30000000)
#define PAGES(n) ((uint64_t)(n) * RTAB_PAGE)

static struct raw_broker broker;
static struct raw_client good; /* must not notice anything */

static void setup_with(const char *const *sets)
{
	raw_broker_init(&broker);
	raw_broker_start(&broker, sets);
	raw_attach(&good, &broker, "good", -1);
	raw_add(&good, 0, START, PAGES(16), 0);
	raw_wait_drained(&good);
}

static void setup(void)
{
	setup_with(NULL);
}

static void teardown(void)
{
	struct raw_rows rows;

	/* The only one left, and as it was. */
	raw_wait(raw_stat(&broker, "spaces") == 1);
	ck_assert(raw_is_live(&good, START, PAGES(16), 0));
	raw_add(&good, 1, START * 2, PAGES(1), 0);
	raw_wait_drained(&good);
	ck_assert(raw_is_live(&good, START * 2, 1, 0));
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_STATUS, &rows);
	ck_assert_uint_eq(raw_number(&rows, 0, "regions"), 2);
	ck_assert_uint_eq(raw_number(&rows, 0, "bytes"), PAGES(17));
	raw_rows_free(&rows);
	raw_expect_silence(&good, 0);
	raw_close(&good);
	ck_assert_int_eq(raw_broker_end(&broker, SIGTERM), 0);
	raw_broker_deinit(&broker);
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(*state >> 32);
}

/* ---- frames -------------------------------------------------------------- */

START_TEST(garbage_ends_the_connection)
{
	struct raw_client c;
	uint8_t bytes[REGC_WIRE_MAX_BYTES];
	uint64_t seed = 12345;
	unsigned int round;
	size_t i, n;

	for (round = 0; round < 300; round++) {
		raw_connect(&c, &broker);
		n = next_random(&seed) % (round % 3 ? 64 : sizeof(bytes)) + 1;
		for (i = 0; i < n; i++)
			bytes[i] = (uint8_t)next_random(&seed);
		if (round % 2)
			bytes[0] = (uint8_t)(round % 15) << 3 | 2;
		send(c.sock, bytes, n, MSG_NOSIGNAL);
		/* A frame by chance may be answered; the rest is the end. */
		shutdown(c.sock, SHUT_WR);
		raw_expect_end(&c);
		raw_close(&c);
	}
}
END_TEST

START_TEST(packet_beyond_the_maximum_ends_the_connection)
{
	static uint8_t bytes[REGC_WIRE_MAX_BYTES + 1];
	struct raw_client c;

	raw_connect(&c, &broker);
	ck_assert_int_eq(send(c.sock, bytes, sizeof(bytes), 0), sizeof(bytes));
	raw_expect_end(&c);
	raw_close(&c);
}
END_TEST

START_TEST(unknown_request_gets_an_error_and_may_go_on)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Grant grant = REGC__GRANT__INIT;
	struct raw_client c;

	raw_connect(&c, &broker);
	frame.body_case = REGC__FRAME__BODY_GRANT; /* not for a client */
	frame.grant = &grant;
	raw_send(&c, &frame);
	raw_expect(&c, REGC__FRAME__BODY_ERROR);
	raw_send(&c, &frame);
	raw_expect(&c, REGC__FRAME__BODY_ERROR);
	raw_close(&c);
}
END_TEST

START_TEST(messages_out_of_turn_end_the_connection)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Hello hello = REGC__HELLO__INIT;
	struct raw_client c;

	raw_connect(&c, &broker);
	raw_send_need(&c, 1, 1, 1);
	raw_expect_end(&c);
	raw_close(&c);

	raw_connect(&c, &broker);
	raw_send_attach(&c, NULL, 0, false);
	raw_expect_end(&c);
	raw_close(&c);

	raw_hello(&c, &broker, "");
	hello.version_max = REGC_WIRE_VERSION;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	raw_send(&c, &frame);
	raw_expect_end(&c);
	raw_close(&c);
}
END_TEST

START_TEST(bad_hello_is_refused_with_a_sentence)
{
	static const char *const groups[] = { "a b", "\x01", "caf\xc3\xa9",
		"0123456789012345678901234567890123456789012345678901234567890123"
	};
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Hello hello = REGC__HELLO__INIT;
	struct raw_client c;
	size_t i;

	raw_connect(&c, &broker);
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	hello.version_min = REGC_WIRE_VERSION + 1;
	hello.version_max = REGC_WIRE_VERSION + 9;
	raw_send(&c, &frame);
	ck_assert_int_eq(raw_expect(&c, REGC__FRAME__BODY_ERROR)->error->err,
			 -EPROTONOSUPPORT);
	hello.version_min = 1;
	hello.capacity = 1023;
	raw_send(&c, &frame);
	raw_expect(&c, REGC__FRAME__BODY_ERROR);
	hello.capacity = 0;
	for (i = 0; i < RTAB_ARRAY_SIZE(groups); i++) {
		hello.group = (char *)groups[i];
		raw_send(&c, &frame);
		ck_assert_int_eq(raw_expect(&c, REGC__FRAME__BODY_ERROR)->error
					 ->err, -EINVAL);
	}
	raw_close(&c);
}
END_TEST

START_TEST(peer_that_does_not_read_is_dropped)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Admin admin = REGC__ADMIN__INIT;
	struct raw_client c;
	struct pollfd pfd;
	int r;

	raw_attach(&c, &broker, "", -1);
	admin.kind = (Regc__AdminKind)1000; /* answered at once, every time */
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	do {
		r = regc_wire_send(c.sock, &frame, NULL, 0, c.scratch);
		pfd = (struct pollfd){ .fd = c.sock, .events = POLLOUT };
		if (r == -EAGAIN)
			poll(&pfd, 1, RAW_LIMIT_MS);
	} while (r == 0 || r == -EAGAIN);
	ck_assert(r == -EPIPE || r == -ECONNRESET);
	raw_wait(raw_log_has(&broker, "does not read"));
	raw_close(&c);
}
END_TEST

/* ---- descriptors --------------------------------------------------------- */

static void attach_with(int fd, int second)
{
	struct raw_client c;
	int fds[2] = { fd, second };

	raw_hello(&c, &broker, "");
	raw_send_attach(&c, fds, fd < 0 ? 0 : second < 0 ? 1 : 2, second >= 0);
	raw_expect_end(&c);
	raw_close(&c);
	if (fd >= 0)
		close(fd);
}

static int memfd(uint64_t bytes, int seals, unsigned int flags)
{
	int fd = memfd_create("area", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return fd;
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

START_TEST(what_is_not_an_area_is_not_taken)
{
	const uint64_t bytes = rtab_area_bytes(1024);
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	struct rtab_area_view view;
	int pipes[2], fd;

	attach_with(-1, -1);
	attach_with(open("/dev/null", O_RDWR), -1);
	attach_with(open("/proc/self/exe", O_RDONLY), -1);
	ck_assert_int_eq(pipe(pipes), 0);
	attach_with(pipes[0], -1);
	attach_with(memfd(bytes, 0, 0), -1);		  /* not sealed */
	attach_with(memfd(bytes, F_SEAL_GROW, 0), -1);	  /* may shrink */
	attach_with(memfd(0, seals, 0), -1);		  /* empty */
	attach_with(memfd(4096, seals, 0), -1);		  /* short */
	attach_with(memfd(bytes, seals, 0), -1);	  /* no magic */
	attach_with(memfd(UINT64_C(1) << 40, seals, 0), -1);
	fd = memfd(UINT64_C(2) << 30, seals, MFD_HUGETLB);
	if (fd >= 0)
		attach_with(fd, -1);
	/* Another size than it says. */
	ck_assert_int_eq(rtab_area_new(&view, 1024, 1, &fd), 0);
	view.area->capacity = 2048;
	attach_with(fd, -1);
	rtab_area_unmap(&view);
	/* A second descriptor that is no userfaultfd. */
	ck_assert_int_eq(rtab_area_new(&view, 1024, 1, &fd), 0);
	attach_with(fd, pipes[1]);
	rtab_area_unmap(&view);
	close(pipes[1]);
}
END_TEST

START_TEST(descriptors_that_nobody_asked_for_are_closed)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Admin admin = REGC__ADMIN__INIT;
	struct raw_client c;
	int pipes[2], fds[4], i;
	char byte;

	ck_assert_int_eq(pipe2(pipes, O_NONBLOCK), 0);
	raw_connect(&c, &broker);
	admin.kind = REGC__ADMIN_KIND__ADMIN_STATUS;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	for (i = 0; i < 4; i++)
		fds[i] = pipes[1];
	for (i = 0; i < 50; i++) { /* fewer than end a connection */
		ck_assert_int_eq(regc_wire_send(c.sock, &frame, fds, 4,
						c.scratch), 0);
		raw_expect(&c, REGC__FRAME__BODY_ADMIN_REPLY);
	}
	close(pipes[1]);
	raw_wait(read(pipes[0], &byte, 1) == 0); /* no writer is left */
	raw_close(&c);
}
END_TEST

START_TEST(more_descriptors_than_allowed_end_the_connection)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(64 * sizeof(int))];
	} control;
	struct msghdr msg = { 0 };
	struct iovec iov = { (void *)(uintptr_t)"x", 1 };
	struct raw_client c;
	int fds[64], i;

	raw_connect(&c, &broker);
	for (i = 0; i < 64; i++)
		fds[i] = STDIN_FILENO;
	memset(&control, 0, sizeof(control));
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control.bytes;
	msg.msg_controllen = sizeof(control.bytes);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
	ck_assert_int_eq(sendmsg(c.sock, &msg, 0), 1);
	raw_expect_end(&c);
	raw_close(&c);
}
END_TEST

/* ---- records ------------------------------------------------------------- */

START_TEST(records_that_make_no_sense_are_refused)
{
	const struct rtab_request bad[] = {
		{ .op = RTAB_OP_ADD, .slot = 0, .start = 4096, .end = 4096 },
		{ .op = RTAB_OP_ADD, .slot = 0, .start = 8192, .end = 4096 },
		{ .op = RTAB_OP_ADD, .slot = 0, .start = 1, .end = 4096 },
		{ .op = RTAB_OP_ADD, .slot = 0, .start = 4096, .end = 8191 },
		{ .op = RTAB_OP_ADD, .slot = 0, .end = UINT64_MAX & ~4095ull },
		{ .op = RTAB_OP_ADD, .slot = 1023, .end = 4096, .library = 32 },
		{ .op = RTAB_OP_ADD, .slot = 0, .end = 4096, .domain = 16 },
		{ .op = RTAB_OP_ADD, .slot = 0, .end = 4096, .access = 32 },
		{ .op = RTAB_OP_ADD, .slot = 0, .end = 4096, .access = ~0u },
		{ .op = RTAB_OP_ADD, .slot = 1u << 20, .end = 4096 },
		{ .op = RTAB_OP_ADD, .slot = ~0u, .end = 4096 },
		{ .op = 6, .slot = 0 },
		{ .op = ~0u, .slot = ~0u },
	};
	const struct rtab_request odd[] = { /* nothing to refuse, nor to do */
		{ .op = RTAB_OP_VOID, .slot = ~0u, .cause = ~0u },
		{ .op = RTAB_OP_VOID, .slot = 5, .cause = 1000 },
		{ .op = RTAB_OP_DEL, .slot = ~0u, .cause = ~0u },
		{ .op = RTAB_OP_DEL, .slot = 5 },
		{ .op = RTAB_OP_ADD_DOMAIN, .slot = ~0u, .domain = 65535 },
		{ .op = RTAB_OP_ADD_DOMAIN, .slot = 5, .library = 65535 },
		{ .op = RTAB_OP_NOTE, .start = 9, .end = 1, .cause = ~0u,
		  .library = 65535 },
	};
	struct raw_client c;
	size_t i;

	raw_attach(&c, &broker, "", -1);
	for (i = 0; i < RTAB_ARRAY_SIZE(bad); i++)
		raw_push(&c, &bad[i]);
	for (i = 0; i < RTAB_ARRAY_SIZE(odd); i++)
		raw_push(&c, &odd[i]);
	raw_wait_drained(&c);
	ck_assert_uint_eq(raw_stat(&broker, "records_rejected"),
			  RTAB_ARRAY_SIZE(bad));
	ck_assert_uint_eq(raw_stat(&broker, "regions"), 1);
	/* And it may go on. */
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_wait_drained(&c);
	ck_assert(raw_is_live(&c, START, 1, 0));
	raw_close(&c);
}
END_TEST

START_TEST(overlap_is_refused_and_the_first_stays)
{
	struct raw_client c;

	raw_attach(&c, &broker, "", -1);
	raw_add(&c, 0, START, PAGES(4), 0);
	raw_add(&c, 1, START + PAGES(3), PAGES(4), 0);
	raw_add(&c, 2, START - PAGES(1), PAGES(2), 0);
	raw_add(&c, 3, START + PAGES(4), PAGES(1), 0); /* touches only */
	raw_wait_drained(&c);
	ck_assert(raw_is_live(&c, START, PAGES(4), 0));
	ck_assert(raw_is_live(&c, START + PAGES(4), PAGES(1), 0));
	ck_assert(!raw_is_live(&c, START + PAGES(5), 1, 0));
	ck_assert(!raw_is_live(&c, START - PAGES(1), 1, 0));
	ck_assert_uint_eq(raw_stat(&broker, "records_rejected"), 2);
	raw_close(&c);
}
END_TEST

START_TEST(slot_that_is_told_twice_is_void)
{
	struct raw_client c;

	raw_attach(&c, &broker, "", -1);
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_add(&c, 0, START + PAGES(8), PAGES(1), 0);
	raw_wait_drained(&c);
	ck_assert(!raw_is_live(&c, START, 1, 0));
	ck_assert(!raw_is_live(&c, START + PAGES(8), 1, 0));
	raw_close(&c);
}
END_TEST

START_TEST(ring_head_that_jumps_drops_the_client)
{
	const uint64_t jumps[] = { RTAB_N_RING + 1, UINT64_C(1) << 40,
				   UINT64_MAX };
	struct raw_client c;
	uint64_t one = 1;
	size_t i;

	for (i = 0; i < RTAB_ARRAY_SIZE(jumps); i++) {
		raw_attach(&c, &broker, "", -1);
		rtab_store_release(&c.area.area->ring_head,
				   c.area.area->ring_head + jumps[i]);
		ck_assert_int_eq(write(c.doorbell, &one, sizeof(one)), 8);
		raw_expect_end(&c);
		ck_assert_uint_eq(rtab_load_acquire(&c.table.table->closed), 1);
		raw_close(&c);
	}
}
END_TEST

START_TEST(random_records_and_areas_do_no_harm)
{
	struct raw_client c;
	struct rtab_request req;
	uint64_t seed = 99;
	unsigned int i;

	raw_attach(&c, &broker, "", -1);
	for (i = 0; i < 20000; i++) {
		memset(&req, 0, sizeof(req));
		req.op = next_random(&seed) % 7;
		req.slot = next_random(&seed) % 1100;
		req.start = PAGES(next_random(&seed) % 4096);
		req.end = req.start + PAGES(next_random(&seed) % 8);
		req.access = next_random(&seed) % 40;
		req.library = (uint16_t)(next_random(&seed) % 40);
		req.domain = (uint16_t)(next_random(&seed) % 20);
		req.cause = next_random(&seed) % 40;
		req.time_ns = (uint64_t)next_random(&seed) << 32;
		raw_push(&c, &req);
		if (i % 1000 == 0) {
			uint32_t *words = (uint32_t *)c.area.area;
			unsigned int j;

			/* Not the ring's head: that would end it. */
			for (j = 64; j < 4096; j++)
				words[j] = next_random(&seed);
			c.area.area->n_threads = next_random(&seed);
			raw_stat(&broker, "hits");
		}
		/* Whatever was voided: it must be read, or there is a Rescan. */
		while (i % 100 == 0) {
			Regc__Frame *frame;

			if (regc_wire_recv(c.wire, c.sock, &frame))
				break;
		}
	}
	raw_wait_drained(&c);
	raw_close(&c);
}
END_TEST

static uint32_t stop;

/* Words and fields of transfers that change all the time, over all addresses. */
static void *scribble(void *arg)
{
	struct rtab_area *area = arg;
	uint64_t x = 88172645463325252u;
	uint32_t i;

	while (!rtab_load_relaxed(&stop)) {
		for (i = 0; i < RTAB_N_TRANSFERS; i++) {
			struct rtab_transfer *t = &area->transfers[i];

			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			rtab_store_relaxed(&area->transfer_words[i],
					   x << 8 | x % 8);
			rtab_store_relaxed(&t->start, x & 1 ? 0 : x);
			rtab_store_relaxed(&t->end, UINT64_MAX);
			rtab_store_relaxed(&t->low, x & 2 ? 0 : x);
			rtab_store_relaxed(&t->high, UINT64_MAX - (x & 4));
			rtab_store_relaxed(&t->direction, (uint8_t)x);
			rtab_store_relaxed(&t->policy, (uint8_t)(x >> 8));
			rtab_store_relaxed(&t->guard, (uint8_t)(x >> 16));
			rtab_store_relaxed(&t->library, (uint16_t)(x >> 24));
		}
		for (i = 0; i < RTAB_N_AREA_WAITERS; i++) {
			area->waiters[i].slot = (uint32_t)x + i;
			area->waiters[i].tid = (uint32_t)x;
		}
		rtab_store_relaxed(&area->n_transfers, UINT32_MAX);
	}
	return NULL;
}

static void *store_into(void *at)
{
	*(volatile char *)at = 2;
	return NULL;
}

START_TEST(transfers_that_make_no_sense_are_only_shown)
{
	struct uffdio_writeprotect wp = { .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	struct raw_client c;
	struct raw_rows rows;
	pthread_t scribbler, writer;
	int uffd = raw_uffd(), i;
	char *mem;

	if (uffd < 0) {
		ck_assert_ptr_null(getenv("REGC_TEST_REQUIRE"));
		return;
	}
	mem = mmap(NULL, PAGES(64), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem, 1, PAGES(64));
	reg.range.start = wp.range.start = (uintptr_t)mem;
	reg.range.len = PAGES(64);
	wp.range.len = PAGES(1);
	raw_attach(&c, &broker, "", uffd);
	ck_assert_int_eq(ioctl(uffd, UFFDIO_REGISTER, &reg), 0);
	pthread_create(&scribbler, NULL, scribble, c.area.area);
	ck_assert_int_eq(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp), 0);
	pthread_create(&writer, NULL, store_into, mem);
	raw_expect(&c, REGC__FRAME__BODY_FAULT);
	for (i = 1; i < 64; i++)
		ck_assert_int_eq(munmap(mem + PAGES(i), PAGES(1)), 0);
	for (i = 0; i < 5; i++) {
		raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_TRANSFERS, &rows);
		ck_assert_int_eq(rows.err, 0);
		raw_rows_free(&rows);
	}
	wp.mode = 0;
	ck_assert_int_eq(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp), 0);
	pthread_join(writer, NULL);
	rtab_store_release(&stop, 1);
	pthread_join(scribbler, NULL);
	ck_assert_uint_eq(raw_stat(&broker, "dropped"), 0);
	raw_close(&c);
	close(uffd);
}
END_TEST

START_TEST(doorbell_cannot_be_used_to_stop_the_broker)
{
	struct raw_client c;
	uint64_t most = UINT64_MAX - 1;

	raw_attach(&c, &broker, "", -1);
	ck_assert_int_eq(fcntl(c.doorbell, F_SETFL, 0), 0);
	ck_assert_int_eq(write(c.doorbell, &most, sizeof(most)), 8);
	raw_add(&good, 2, START * 3, PAGES(1), 0);
	raw_wait_drained(&good);
	raw_del(&good, 2);
	raw_wait_drained(&good);
	raw_close(&c);
}
END_TEST

/* ---- limits -------------------------------------------------------------- */

static uint64_t n_connections(void)
{
	Regc__Admin question = REGC__ADMIN__INIT;
	struct raw_rows rows;
	uint64_t n;

	question.kind = REGC__ADMIN_KIND__ADMIN_STATUS;
	raw_admin_on(&good, &question, &rows);
	n = raw_number(&rows, 0, "connections");
	raw_rows_free(&rows);
	return n;
}

START_TEST(connections_of_a_user_are_limited)
{
	static struct raw_client c[12];
	struct raw_client d;
	Regc__Frame *frame;
	unsigned int i;

	/* The good one has one of the ten. */
	for (i = 0; i < 9; i++)
		raw_connect(&c[i], &broker);
	raw_wait(n_connections() == 10);
	for (; i < RTAB_ARRAY_SIZE(c); i++) {
		raw_connect(&c[i], &broker);
		frame = raw_expect(&c[i], REGC__FRAME__BODY_ERROR);
		ck_assert_int_eq(frame->error->err, -EDQUOT);
		raw_expect_end(&c[i]);
	}
	raw_close(&c[0]);
	raw_wait(n_connections() == 9);
	raw_hello(&d, &broker, "");
	raw_close(&d);
	for (i = 1; i < RTAB_ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
	raw_wait(n_connections() == 1);
}
END_TEST

static void setup_few(void)
{
	static const char *const sets[] = { "limit.user.connections=10",
					    "limit.node.spaces=3",
					    "limit.group.spaces=2", NULL };

	setup_with(sets);
}

static int hello_error(struct raw_client *c, const char *group)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Hello hello = REGC__HELLO__INIT;

	raw_connect(c, &broker);
	hello.version_min = 1;
	hello.version_max = 1;
	hello.group = (char *)group;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	raw_send(c, &frame);
	return raw_expect(c, REGC__FRAME__BODY_ERROR)->error->err;
}

START_TEST(spaces_of_node_and_group_are_limited)
{
	struct raw_client a, b, c;

	raw_hello(&a, &broker, "good"); /* with the good one: two */
	ck_assert_int_eq(hello_error(&b, "good"), -EDQUOT);
	raw_close(&b);
	raw_hello(&b, &broker, "other");
	ck_assert_int_eq(hello_error(&c, "third"), -EDQUOT);
	raw_close(&c);
	raw_close(&a);
	raw_close(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("hostile");
	TCase *t = tcase_create("hostile");

	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, garbage_ends_the_connection);
	tcase_add_test(t, packet_beyond_the_maximum_ends_the_connection);
	tcase_add_test(t, unknown_request_gets_an_error_and_may_go_on);
	tcase_add_test(t, messages_out_of_turn_end_the_connection);
	tcase_add_test(t, bad_hello_is_refused_with_a_sentence);
	tcase_add_test(t, peer_that_does_not_read_is_dropped);
	tcase_add_test(t, what_is_not_an_area_is_not_taken);
	tcase_add_test(t, descriptors_that_nobody_asked_for_are_closed);
	tcase_add_test(t, more_descriptors_than_allowed_end_the_connection);
	tcase_add_test(t, records_that_make_no_sense_are_refused);
	tcase_add_test(t, overlap_is_refused_and_the_first_stays);
	tcase_add_test(t, slot_that_is_told_twice_is_void);
	tcase_add_test(t, ring_head_that_jumps_drops_the_client);
	tcase_add_test(t, random_records_and_areas_do_no_harm);
	tcase_add_test(t, transfers_that_make_no_sense_are_only_shown);
	tcase_add_test(t, doorbell_cannot_be_used_to_stop_the_broker);
	suite_add_tcase(s, t);

	t = tcase_create("limits");
	tcase_set_timeout(t, 40);
	tcase_add_checked_fixture(t, setup_few, teardown);
	tcase_add_test(t, connections_of_a_user_are_limited);
	tcase_add_test(t, spaces_of_node_and_group_are_limited);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
