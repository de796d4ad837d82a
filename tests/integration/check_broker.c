/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The broker as a process, and the table it writes for a client: start, end,
 * reload, death, idleness, records and events of memory.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "shm/atomic.h"
#include "shm/segment.h"
#include "tests/integration/raw.h"
#include "tests/support/suite.h"

#define START UINT64_C(0x10000000)
#define PAGES(n) ((uint64_t)(n) * RTAB_PAGE)

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED RTAB_TSAN
#endif

static struct raw_broker broker;

static void setup(void)
{
	raw_broker_init(&broker);
}

static void teardown(void)
{
	raw_broker_deinit(&broker);
}

/* ---- process ------------------------------------------------------------- */

START_TEST(second_broker_is_refused_and_names_the_first)
{
	char text[64];

	raw_broker_start(&broker, NULL);
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	snprintf(text, sizeof(text), "pid %d, listens on", (int)broker.pid);
	ck_assert(raw_log_has(&broker, text));
	ck_assert_uint_eq(raw_stat(&broker, "spaces"), 0); /* the first lives */
}
END_TEST

START_TEST(stale_socket_is_replaced)
{
	raw_broker_start(&broker, NULL);
	raw_broker_end(&broker, SIGKILL);
	ck_assert_int_eq(access(broker.socket, F_OK), 0);
	raw_broker_start(&broker, NULL);
	ck_assert_uint_eq(raw_stat(&broker, "spaces"), 0);
}
END_TEST

START_TEST(file_that_is_not_a_socket_is_not_removed)
{
	int fd = open(broker.socket, O_CREAT | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	ck_assert_int_eq(access(broker.socket, F_OK), 0);
	ck_assert(raw_log_has(&broker, "is not a socket"));
}
END_TEST

START_TEST(sigterm_removes_the_socket_and_exits_0)
{
	struct raw_client c;
	int status;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	status = raw_broker_end(&broker, SIGTERM);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ck_assert_int_ne(access(broker.socket, F_OK), 0);
	ck_assert_uint_eq(rtab_load_acquire(&c.life->word), 0x40000000);
	raw_expect_end(&c);
	raw_close(&c);
}
END_TEST

START_TEST(socket_of_a_later_broker_is_left_alone)
{
	int fd;

	raw_broker_start(&broker, NULL);
	ck_assert_int_eq(unlink(broker.socket), 0);
	fd = open(broker.socket, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	raw_broker_end(&broker, SIGTERM);
	ck_assert_int_eq(access(broker.socket, F_OK), 0);
}
END_TEST

START_TEST(kill_marks_the_life_word_before_the_socket_closes)
{
	struct raw_client c;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	ck_assert_uint_eq(rtab_load_acquire(&c.life->word),
			  (uint32_t)broker.pid);
	ck_assert_uint_eq(c.life->broker_pid, (uint32_t)broker.pid);
	ck_assert_int_eq(kill(broker.pid, SIGKILL), 0);
	raw_expect_end(&c);
	ck_assert_uint_eq(rtab_load_acquire(&c.life->word), 0x40000000);
	raw_close(&c);
}
END_TEST

START_TEST(usage_errors_exit_2_and_bad_files_1)
{
	static const char *const bad_name[] = { "limit.nod.bytes=1", NULL };
	static const char *const bad_value[] = { "limit.node.bytes=1X", NULL };
	char text[160];

	ck_assert_int_eq(raw_broker_run(&broker, bad_name), 2);
	ck_assert(raw_log_has(&broker, "unknown option \"limit.nod.bytes\""));
	ck_assert_int_eq(raw_broker_run(&broker, bad_value), 2);
	raw_write_config(&broker, "# one\nmode = fast\nmood = fast\n");
	ck_assert_int_eq(raw_broker_run(&broker, NULL), 1);
	snprintf(text, sizeof(text), "%s:3: unknown option \"mood\"",
		 broker.config);
	ck_assert(raw_log_has(&broker, text));
}
END_TEST

static void config_value(const char *name, char *ret, size_t size)
{
	struct raw_rows rows;
	unsigned int i;

	ret[0] = 0;
	raw_admin_kind(&broker, REGC__ADMIN_KIND__ADMIN_CONFIG, &rows);
	for (i = 0; i < rows.n_rows; i++)
		if (!strcmp(raw_text(&rows, i, "option"), name))
			snprintf(ret, size, "%s", raw_text(&rows, i, "value"));
	raw_rows_free(&rows);
}

START_TEST(reload_takes_a_good_file_and_keeps_all_of_a_bad_one)
{
	static const char *const sets[] = { "limit.space.regions=7", NULL };
	char value[64];

	raw_write_config(&broker, "limit.node.regions = 100\n");
	raw_broker_start(&broker, sets);
	raw_write_config(&broker, "limit.node.regions = 200\n"
				  "limit.space.regions = 9\n"
				  "socket = /elsewhere\n");
	ck_assert_int_eq(kill(broker.pid, SIGHUP), 0);
	raw_wait(raw_log_has(&broker, "options read again"));
	config_value("limit.node.regions", value, sizeof(value));
	ck_assert_str_eq(value, "200");
	config_value("limit.space.regions", value, sizeof(value));
	ck_assert_str_eq(value, "7"); /* the command line stays above the file */
	config_value("socket", value, sizeof(value));
	ck_assert_str_eq(value, broker.socket);

	raw_write_config(&broker, "limit.node.regions = 300\nnonsense\n");
	ck_assert_int_eq(kill(broker.pid, SIGHUP), 0);
	raw_wait(raw_log_has(&broker, "nothing is changed"));
	config_value("limit.node.regions", value, sizeof(value));
	ck_assert_str_eq(value, "200");
}
END_TEST

struct usage {
	unsigned long cpu, switches;
};

static struct usage usage_of(pid_t pid)
{
	struct usage u = { 0, 0 };
	unsigned long user, sys;
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u "
				   "%*u %*u %lu %lu", &user, &sys), 2);
	fclose(f);
	u.cpu = user + sys;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &user) == 1)
			u.switches = user;
	fclose(f);
	return u;
}

static uint64_t own_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

START_TEST(idle_broker_does_not_run_at_all)
{
	struct raw_client c;
	struct usage before, after;
	int uffd = raw_uffd();
	uint64_t end;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", uffd);
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_wait_drained(&c);
	/* Asleep means: nothing left to do but wait. */
	raw_wait(rtab_load_acquire(&c.life->asleep));
	end = own_cpu_ns() + 20000000;
	while (own_cpu_ns() < end)
		;
	before = usage_of(broker.pid);
	end = own_cpu_ns() + 300000000; /* of our own work, not of time */
	while (own_cpu_ns() < end)
		;
	after = usage_of(broker.pid);
	ck_assert_uint_eq(before.cpu, after.cpu);
	ck_assert_uint_eq(before.switches, after.switches);
	close(uffd);
	raw_close(&c);
}
END_TEST

START_TEST(interrupted_waits_do_not_end_the_broker)
{
	struct raw_client c;
	uint32_t i;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	for (i = 0; i < 300; i++) {
		kill(broker.pid, SIGSTOP);
		raw_add(&c, i, START + PAGES(i), PAGES(1), 0);
		kill(broker.pid, SIGCONT);
		if (i % 10 == 0) /* or it never gets to run in between */
			raw_wait_drained(&c);
	}
	raw_wait_drained(&c);
	ck_assert_uint_eq(raw_stat(&broker, "regions"), 300);
	raw_close(&c);
}
END_TEST

/* ---- records ------------------------------------------------------------- */

START_TEST(told_region_is_found_until_it_is_voided)
{
	struct rtab_request req = { .op = RTAB_OP_VOID, .slot = 3,
				    .cause = RTAB_CAUSE_HOOK_MUNMAP };
	struct raw_client c;
	uint64_t gen;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	ck_assert_uint_ge(c.regions, 1024);
	gen = rtab_load_acquire(&c.table.gens[3]);
	raw_add(&c, 3, START, PAGES(4), REGC_ACCESS_LOCAL_WRITE);
	raw_wait_drained(&c);
	ck_assert(raw_is_live(&c, START, PAGES(4), 0));
	ck_assert(raw_is_live(&c, START + 5, 7, REGC_ACCESS_LOCAL_WRITE));
	ck_assert(!raw_is_live(&c, START, PAGES(4) + 1, 0));
	ck_assert(!raw_is_live(&c, START, 1, REGC_ACCESS_REMOTE_READ));
	raw_push(&c, &req);
	raw_wait_drained(&c);
	ck_assert(!raw_is_live(&c, START, 1, 0));
	ck_assert_uint_gt(rtab_load_acquire(&c.table.gens[3]), gen);
	/* Void, but pinned until it says that it is gone. */
	ck_assert_uint_eq(raw_stat(&broker, "bytes"), PAGES(4));
	raw_del(&c, 3);
	raw_wait_drained(&c);
	ck_assert_uint_eq(raw_stat(&broker, "bytes"), 0);
	raw_expect_silence(&c, 0);
	raw_close(&c);
}
END_TEST

START_TEST(slots_become_ready_as_they_are_used)
{
	struct raw_client c;
	uint32_t i;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	raw_have(&c, PAGES(4096), 4096);
	for (i = 0; i < 4096; i++) {
		raw_wait(rtab_load_acquire(&c.table.table->slots_ready) > i);
		raw_add(&c, i, START + PAGES(2 * i), PAGES(1), 0);
	}
	raw_wait_drained(&c);
	ck_assert_uint_eq(raw_stat(&broker, "regions"), 4096);
	for (i = 0; i < 4096; i++)
		ck_assert(raw_is_live(&c, START + PAGES(2 * i), 1, 0));
	raw_close(&c);
}
END_TEST

static uint64_t resident_bytes(pid_t pid)
{
	unsigned long pages = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(hundred_thousand_regions_fit_in_32_mib)
{
	static const char *const sets[] = { "limit.space.regions=131072", NULL };
	const uint32_t n = 100000;
	struct raw_client c;
	uint32_t i;

	raw_broker_start(&broker, sets);
	raw_attach(&c, &broker, "", -1);
	if (c.regions < n) {
		raw_send_need(&c, PAGES(n), n - c.regions, 1);
		raw_expect(&c, REGC__FRAME__BODY_GRANT);
	}
	for (i = 0; i < n; i++) {
		/* In an order that is not that of the addresses. */
		uint64_t at = (uint64_t)i * 7919 % n;

		raw_wait(rtab_load_acquire(&c.table.table->slots_ready) > i);
		raw_add(&c, i, START + PAGES(2 * at), PAGES(1), 0);
	}
	raw_wait_drained(&c);
	ck_assert_uint_eq(raw_stat(&broker, "regions"), n);
	if (!SANITIZED) /* what those hold is not ours */
		ck_assert_uint_le(resident_bytes(broker.pid), 32 << 20);
	raw_close(&c);
}
END_TEST

START_TEST(end_of_a_client_frees_all_and_closes_its_table)
{
	struct raw_client c;
	uint64_t gen;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_wait_drained(&c);
	gen = rtab_load_acquire(&c.table.gens[0]);
	ck_assert_int_eq(shutdown(c.sock, SHUT_RDWR), 0);
	raw_wait(rtab_load_acquire(&c.table.table->closed));
	raw_wait(rtab_load_acquire(&c.table.gens[0]) > gen);
	ck_assert_uint_ne(rtab_load_acquire(&c.table.table->changing), 0);
	raw_wait(raw_stat(&broker, "spaces") == 0);
	raw_close(&c);
}
END_TEST

START_TEST(death_is_seen_though_a_child_keeps_the_socket)
{
	struct raw_client c;
	int pipes[2], status;
	pid_t pid, grandchild;
	ssize_t n;

	raw_broker_start(&broker, NULL);
	ck_assert_int_eq(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		raw_attach(&c, &broker, "", -1);
		grandchild = fork();
		if (grandchild == 0) {
			pause();
			_exit(0);
		}
		n = write(pipes[1], &grandchild, sizeof(grandchild));
		_exit(n == sizeof(grandchild) ? 0 : 1);
	}
	n = read(pipes[0], &grandchild, sizeof(grandchild));
	ck_assert_int_eq(n, sizeof(grandchild));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	raw_wait(raw_stat(&broker, "spaces") == 0);
	ck_assert_int_eq(kill(grandchild, 0), 0);
	kill(grandchild, SIGKILL);
}
END_TEST

START_TEST(area_of_an_earlier_broker_is_taken_with_its_old_ring)
{
	struct raw_client c, d;
	uint64_t head;

	raw_broker_start(&broker, NULL);
	raw_attach(&c, &broker, "", -1);
	raw_add(&c, 0, START, PAGES(1), 0);
	raw_wait_drained(&c);
	c.area.area->ring_head += 1000; /* a long life, and some untold */
	head = c.area.area->ring_head;
	raw_hello(&d, &broker, "");
	raw_send_attach(&d, &c.area_fd, 1, false);
	raw_expect(&d, REGC__FRAME__BODY_ATTACHED);
	ck_assert_uint_eq(rtab_load_acquire(&d.table.table->ring_tail), head);
	raw_close(&d);
	raw_close(&c);
}
END_TEST

/* ---- events of memory ---------------------------------------------------- */

struct mapping {
	struct raw_client c;
	int uffd;
	char *mem;
	uint64_t start, bytes;
	uint32_t stop;
};

static void mapping_init(struct mapping *m, unsigned int n_pages)
{
	unsigned int i;

	m->uffd = raw_uffd();
	if (m->uffd < 0) {
		fprintf(stderr, "no userfaultfd here\n");
		ck_assert_ptr_null(getenv("REGC_TEST_REQUIRE"));
		raw_broker_deinit(&broker);
		exit(0);
	}
	raw_broker_start(&broker, NULL);
	raw_attach(&m->c, &broker, "", m->uffd);
	m->bytes = PAGES(n_pages);
	m->mem = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(m->mem, MAP_FAILED);
	m->start = (uintptr_t)m->mem;
	memset(m->mem, 1, m->bytes);
	raw_watch(m->uffd, m->mem, m->bytes);
	for (i = 0; i < n_pages; i++)
		raw_add(&m->c, i, m->start + PAGES(i), PAGES(1), 0);
	raw_wait_drained(&m->c);
}

static void mapping_deinit(struct mapping *m)
{
	if (m->uffd >= 0)
		close(m->uffd);
	raw_close(&m->c);
}

/* Page i is void by the time the call that changed it came back and settled. */
static bool settled(const struct mapping *m)
{
	return rtab_load_acquire(&m->c.table.table->changing) == 0;
}

static void expect_voided(struct mapping *m, uint32_t slot, uint32_t cause)
{
	Regc__Frame *frame = raw_expect(&m->c, REGC__FRAME__BODY_VOIDED);

	ck_assert_uint_eq(frame->voided->n_slots, 1);
	ck_assert_uint_eq(frame->voided->slots[0], slot);
	ck_assert_uint_eq(frame->voided->cause, cause);
}

START_TEST(munmap_voids_what_it_takes_and_nothing_else)
{
	struct mapping m;

	mapping_init(&m, 8);
	ck_assert_int_eq(munmap(m.mem + PAGES(3), PAGES(1)), 0);
	/* Changing, or void: never a hit. */
	ck_assert(!settled(&m) || !raw_is_live(&m.c, m.start + PAGES(3), 1, 0));
	expect_voided(&m, 3, RTAB_CAUSE_UFFD_UNMAP);
	raw_wait(settled(&m));
	ck_assert(!raw_is_live(&m.c, m.start + PAGES(3), 1, 0));
	ck_assert(raw_is_live(&m.c, m.start + PAGES(2), 1, 0));
	ck_assert(raw_is_live(&m.c, m.start + PAGES(4), 1, 0));
	ck_assert_uint_eq(rtab_load_acquire(&m.c.table.table->events_read), 1);
	mapping_deinit(&m);
}
END_TEST

START_TEST(madvise_voids_before_it_returns)
{
	struct mapping m;

	mapping_init(&m, 8);
	ck_assert_int_eq(madvise(m.mem, PAGES(1), MADV_DONTNEED), 0);
	ck_assert(!settled(&m) || !raw_is_live(&m.c, m.start, 1, 0));
	expect_voided(&m, 0, RTAB_CAUSE_UFFD_REMOVE);
	mapping_deinit(&m);
}
END_TEST

START_TEST(mremap_voids_the_old_place)
{
	struct mapping m;
	void *to;

	mapping_init(&m, 4);
	to = mremap(m.mem, m.bytes, m.bytes * 2, MREMAP_MAYMOVE);
	ck_assert_ptr_ne(to, MAP_FAILED);
	if (to != m.mem) { /* grown in place, the old pages would stay */
		raw_wait(settled(&m) && !raw_is_live(&m.c, m.start, 1, 0));
		ck_assert(!raw_is_live(&m.c, m.start + PAGES(3), 1, 0));
	}
	mapping_deinit(&m);
}
END_TEST

/* L1: what is not told when the event is read must be found by its maker. */
START_TEST(change_is_logged_for_registrations_that_are_not_told)
{
	struct mapping m;
	uint64_t seq;

	mapping_init(&m, 8);
	seq = rtab_load_acquire(&m.c.table.table->change_seq);
	ck_assert_int_eq(munmap(m.mem + PAGES(2), PAGES(2)), 0);
	raw_wait(settled(&m));
	ck_assert(rtab_changed_since(m.c.table.table, seq, m.start + PAGES(3),
				     m.start + PAGES(4)));
	ck_assert(!rtab_changed_since(m.c.table.table, seq, m.start,
				      m.start + PAGES(2)));
	mapping_deinit(&m);
}
END_TEST

static void *unmap_all(void *arg)
{
	struct mapping *m = arg;

	return (void *)(intptr_t)munmap(m->mem, m->bytes);
}

START_TEST(one_unmap_of_many_regions_voids_all)
{
	struct mapping m;
	pthread_t thread;
	uint64_t i, n = 0;

	mapping_init(&m, 900);
	ck_assert_int_eq(pthread_create(&thread, NULL, unmap_all, &m), 0);
	while (n < 900) {
		Regc__Frame *frame = raw_expect(&m.c, REGC__FRAME__BODY_VOIDED);

		n += frame->voided->n_slots;
	}
	pthread_join(thread, NULL);
	raw_wait(settled(&m));
	for (i = 0; i < 900; i++)
		ck_assert(!raw_is_live(&m.c, m.start + PAGES(i), 1, 0));
	mapping_deinit(&m);
}
END_TEST

START_TEST(voids_that_cannot_be_told_become_a_rescan)
{
	struct mapping m;
	Regc__Frame *frame;
	unsigned int i;

	mapping_init(&m, 1000);
	/* Nobody reads: the socket fills up. */
	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(munmap(m.mem + PAGES(i), PAGES(1)), 0);
	raw_wait(settled(&m));
	for (i = 0; i < 1000; i++) {
		frame = NULL;
		ck_assert_int_eq(regc_wire_recv_wait(m.c.wire, m.c.sock,
						     RAW_LIMIT_MS, &frame), 0);
		if (frame->body_case == REGC__FRAME__BODY_RESCAN)
			break;
		ck_assert_int_eq(frame->body_case, REGC__FRAME__BODY_VOIDED);
	}
	for (i = 0; i < 1000; i++)
		ck_assert(!raw_is_live(&m.c, m.start + PAGES(i), 1, 0));
	ck_assert_uint_le(raw_stat(&broker, "dropped"), 0);
	mapping_deinit(&m);
}
END_TEST

static void *store_2(void *at)
{
	*(volatile char *)at = 2;
	return NULL;
}

/* The broker cannot know who closed it: opening is the client's. */
START_TEST(access_to_a_closed_page_is_told_to_its_process)
{
	struct mapping m;
	struct uffdio_writeprotect wp;
	Regc__Frame *frame;
	pthread_t thread;

	mapping_init(&m, 2);
	wp.range.start = m.start;
	wp.range.len = PAGES(1);
	wp.mode = UFFDIO_WRITEPROTECT_MODE_WP;
	ck_assert_int_eq(ioctl(m.uffd, UFFDIO_WRITEPROTECT, &wp), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, store_2, m.mem), 0);
	frame = raw_expect(&m.c, REGC__FRAME__BODY_FAULT);
	ck_assert_uint_eq(frame->fault->addr, m.start);
	ck_assert(!frame->fault->minor);
	wp.mode = 0;
	ck_assert_int_eq(ioctl(m.uffd, UFFDIO_WRITEPROTECT, &wp), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(m.mem[0], 2);
	ck_assert_uint_eq(raw_stat(&broker, "events_fault"), 1);
	mapping_deinit(&m);
}
END_TEST

START_TEST(userfaultfd_that_was_made_to_block_ends_the_space_not_the_broker)
{
	struct mapping m;
	pthread_t thread;

	mapping_init(&m, 4);
	ck_assert_int_eq(fcntl(m.uffd, F_SETFL, 0), 0);
	/* Its poll says "error" from now on, at the next wake-up. */
	ck_assert_int_eq(pthread_create(&thread, NULL, unmap_all, &m), 0);
	raw_wait(rtab_load_acquire(&m.c.table.table->closed));
	close(m.uffd); /* nobody is left to wait for */
	m.uffd = -1;
	pthread_join(thread, NULL);
	ck_assert(!raw_is_live(&m.c, m.start, 1, 0));
	raw_wait(raw_stat(&broker, "spaces") == 0);
	ck_assert_uint_eq(raw_stat(&broker, "dropped"), 1);
	mapping_deinit(&m);
}
END_TEST

static void *churn(void *arg)
{
	struct mapping *m = arg;
	void *mem;

	while (!rtab_load_relaxed(&m->stop)) {
		mem = mmap(NULL, PAGES(4), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mem == MAP_FAILED)
			continue;
		raw_try_watch(rtab_load_relaxed(&m->uffd), mem, PAGES(4));
		munmap(mem, PAGES(4));
	}
	return NULL;
}

START_TEST(end_does_not_wait_for_events_in_flight)
{
	struct mapping m;
	pthread_t thread;
	uint64_t began;
	int round, status;

	for (round = 0; round < 20; round++) {
		memset(&m, 0, sizeof(m));
		mapping_init(&m, 2);
		ck_assert_int_eq(pthread_create(&thread, NULL, churn, &m), 0);
		raw_wait(rtab_load_acquire(&m.c.table.table->events_read) > 3);
		began = rtab_now_ns();
		status = raw_broker_end(&broker, round % 2 ? SIGTERM : SIGKILL);
		ck_assert_int_eq(status, round % 2 ? 0 : SIGKILL);
		if (!SANITIZED) /* which looks for leaks at the end */
			ck_assert_uint_lt(rtab_now_ns() - began, 1000000000);
		rtab_store_relaxed(&m.stop, 1);
		close(m.uffd); /* as the guardian reads, in the broker's place */
		rtab_store_relaxed(&m.uffd, -1);
		pthread_join(thread, NULL);
		mapping_deinit(&m);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("broker");
	TCase *t = tcase_create("process");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, second_broker_is_refused_and_names_the_first);
	tcase_add_test(t, stale_socket_is_replaced);
	tcase_add_test(t, file_that_is_not_a_socket_is_not_removed);
	tcase_add_test(t, sigterm_removes_the_socket_and_exits_0);
	tcase_add_test(t, socket_of_a_later_broker_is_left_alone);
	tcase_add_test(t, kill_marks_the_life_word_before_the_socket_closes);
	tcase_add_test(t, usage_errors_exit_2_and_bad_files_1);
	tcase_add_test(t, reload_takes_a_good_file_and_keeps_all_of_a_bad_one);
	tcase_add_test(t, idle_broker_does_not_run_at_all);
	tcase_add_test(t, interrupted_waits_do_not_end_the_broker);
	suite_add_tcase(s, t);

	t = tcase_create("records");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, told_region_is_found_until_it_is_voided);
	tcase_add_test(t, slots_become_ready_as_they_are_used);
	tcase_add_test(t, hundred_thousand_regions_fit_in_32_mib);
	tcase_add_test(t, end_of_a_client_frees_all_and_closes_its_table);
	tcase_add_test(t, death_is_seen_though_a_child_keeps_the_socket);
	tcase_add_test(t, area_of_an_earlier_broker_is_taken_with_its_old_ring);
	suite_add_tcase(s, t);

	t = tcase_create("events");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, munmap_voids_what_it_takes_and_nothing_else);
	tcase_add_test(t, madvise_voids_before_it_returns);
	tcase_add_test(t, mremap_voids_the_old_place);
	tcase_add_test(t, change_is_logged_for_registrations_that_are_not_told);
	tcase_add_test(t, one_unmap_of_many_regions_voids_all);
	tcase_add_test(t, voids_that_cannot_be_told_become_a_rescan);
	tcase_add_test(t, access_to_a_closed_page_is_told_to_its_process);
	tcase_add_test(t, end_does_not_wait_for_events_in_flight);
	tcase_add_test(t,
		userfaultfd_that_was_made_to_block_ends_the_space_not_the_broker);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
