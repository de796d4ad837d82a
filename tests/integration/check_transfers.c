/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers together: conflicts, groups, progress, changes of memory, death. */
#include "tests/integration/transfer.h"

#include <check.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* ---- conflicts, queries, groups ------------------------------------------- */

START_TEST(conflicting_begin_is_refused_queued_or_let_through_as_asked)
{
	char *mem = test_map(BYTES, 1);
	struct regc_transfer_info info[4];
	struct buffer send, receive, second;
	int i;

	for (i = 0; i < 4; i++)
		info[i].size = sizeof(info[i]);
	lease(&send, mem, BYTES);
	lease(&receive, mem + 4 * PAGE, PAGE);
	lease(&second, mem, BYTES);
	begin(&send, REGC_SEND, 0);
	begin(&second, REGC_SEND, 0); /* several readers do not conflict */
	ck_assert_int_eq(regc_in_flight(lib, mem + 8 * PAGE, 1, info, 4), 2);
	ck_assert_str_eq(info[0].library, "sender");
	ck_assert_uint_eq(info[0].direction, REGC_SEND);
	ck_assert_uint_eq(info[0].state, REGC_TRANSFER_IN_FLIGHT);
	complete(&second);
	ck_assert_int_eq(try_begin(&receive, REGC_RECEIVE, 0, REGC_CONFLICT_REFUSE,
				   0), -EBUSY);
	ck_assert_int_eq(try_begin(&receive, REGC_RECEIVE, 0, REGC_CONFLICT_QUEUE,
				   50), -ETIMEDOUT);
	ck_assert_int_eq(try_begin(&receive, REGC_RECEIVE, 0, REGC_CONFLICT_ALLOW,
				   0), 0);
	complete(&receive);
	ck_assert_int_eq(regc_transfer_wait(lib, mem, BYTES, 10), -ETIMEDOUT);
	complete(&send);
	ck_assert_int_eq(regc_transfer_wait(lib, mem, BYTES, 10), 0);
	ck_assert_int_eq(regc_in_flight(lib, mem, BYTES, NULL, 0), 0);
	memset(mem, 2, BYTES);
	end(&send);
	end(&receive);
	end(&second);
}
END_TEST

static void *complete_when_queued(void *arg)
{
	struct buffer *b = arg;

	test_pause();
	complete(b);
	return NULL;
}

START_TEST(queued_begin_goes_on_when_the_other_is_complete)
{
	char *mem = test_map(BYTES, 1);
	struct buffer send, receive;
	pthread_t t;

	lease(&send, mem, BYTES);
	lease(&receive, mem, PAGE);
	begin(&send, REGC_SEND, 0);
	pthread_create(&t, NULL, complete_when_queued, &send);
	ck_assert_int_eq(try_begin(&receive, REGC_RECEIVE, 0, REGC_CONFLICT_QUEUE,
				   REGC_NO_LIMIT), 0);
	pthread_join(t, NULL);
	complete(&receive);
	end(&send);
	end(&receive);
}
END_TEST

START_TEST(group_begins_all_or_none)
{
	struct regc_transfer_part parts[8];
	struct regc_transfer ts[8];
	struct regc_transfer_info infos[8];
	char *mem = test_map(BYTES, 1);
	struct buffer b[8], receive;
	int i;

	for (i = 0; i < 8; i++) {
		lease(&b[i], mem + (size_t)i * 2 * PAGE, PAGE);
		parts[i] = (struct regc_transfer_part){
			&b[i].lease, b[i].mem, PAGE };
		infos[i].size = sizeof(infos[i]);
	}
	lease(&receive, mem + 14 * PAGE, PAGE);
	begin(&receive, REGC_RECEIVE, 0);
	ck_assert_int_eq(regc_transfer_begin_many(parts, 8, REGC_SEND, NULL, ts),
			 -EBUSY);
	ck_assert_int_eq(regc_in_flight(lib, mem, 14 * PAGE, NULL, 0), 0);
	memset(mem, 2, 14 * PAGE);
	complete(&receive);
	ck_assert_int_eq(regc_transfer_begin_many(parts, 8, REGC_SEND, NULL, ts), 0);
	ck_assert_int_eq(regc_transfer_posted_many(ts, 8), 0);
	ck_assert_int_eq(regc_in_flight(lib, mem, BYTES, NULL, 0), 8);
	ck_assert_int_eq(regc_transfer_complete_many(ts, 8, infos), 0);
	for (i = 0; i < 8; i++) {
		ck_assert_uint_eq(infos[i].flags, 0);
		end(&b[i]);
	}
	end(&receive);
	memset(mem, 3, BYTES);
}
END_TEST

START_TEST(begin_refuses_what_makes_no_sense)
{
	struct regc_transfer_attr attr = { .size = 4 };
	struct regc_transfer t;
	struct buffer b;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, b.mem, 0, REGC_SEND, NULL,
					     &t), -EINVAL);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, b.mem, BYTES + 1, REGC_SEND,
					     NULL, &t), -EINVAL);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, b.mem, BYTES, 3, NULL, &t),
			 -EINVAL);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, b.mem, BYTES, REGC_SEND,
					     &attr, &t), -EINVAL);
	ck_assert_int_eq(regc_transfer_begin(NULL, b.mem, BYTES, REGC_SEND, NULL,
					     &t), -EINVAL);
	end(&b);
}
END_TEST

/* The device would send pages that are not there any more. */
START_TEST(begin_on_a_lease_whose_memory_changed_is_refused)
{
	struct buffer b;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(madvise(b.mem, BYTES, MADV_DONTNEED), 0);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, b.mem, BYTES, REGC_SEND, NULL,
					     &b.t), -ESTALE);
	memset(b.mem, 2, BYTES);
	end(&b);
}
END_TEST

/* ---- progress ------------------------------------------------------------- */

static int complete_one(void *arg)
{
	struct buffer *b = arg;

	if (info_of(b).state == REGC_TRANSFER_COMPLETE)
		return 0;
	complete(b);
	return 1;
}

START_TEST(thread_that_faults_on_its_own_transfer_is_freed_by_progress)
{
	struct buffer b;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(regc_progress(lib, complete_one, &b), 0);
	begin(&b, REGC_SEND, REGC_POLICY_BLOCK);
	b.mem[0] = 2; /* nobody else could complete it */
	ck_assert_int_eq(b.mem[0], 2);
	ck_assert_uint_eq(info_of(&b).state, REGC_TRANSFER_COMPLETE);
	ck_assert_int_eq(regc_progress(lib, NULL, NULL), 0);
	end(&b);
}
END_TEST

static void *store_into(void *arg)
{
	*(volatile char *)arg = 2;
	return NULL;
}

START_TEST(two_threads_that_wait_for_each_others_transfers_both_go_on)
{
	struct buffer b[2];
	pthread_t t[2];
	int i;

	for (i = 0; i < 2; i++) {
		lease(&b[i], test_map(BYTES, 1), BYTES);
		ck_assert_int_eq(try_begin(&b[i], REGC_SEND, 0, 0, 100), 0);
	}
	/* Each thread would complete its own after its store into the other's. */
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, store_into, b[1 - i].mem);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 2; i++) {
		ck_assert(complete(&b[i]).flags & REGC_TRANSFER_TIMED_OUT);
		end(&b[i]);
	}
}
END_TEST

/* ---- changes of memory, fork, death ---------------------------------------- */

static void unmapping_ends_waits(bool raw)
{
	struct regc_transfer_info info;
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	access_start(&a, STORE, b.mem + PAGE, 2);
	wait_until_blocked(&b, 1);
	if (raw)
		raw_mmap_at(b.mem, BYTES);
	else
		ck_assert_ptr_eq(mmap(b.mem, BYTES, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
				      0), b.mem);
	access_end(&a); /* into the new mapping */
	ck_assert_int_eq(b.mem[PAGE], 2);
	WAIT_FOR(info_of(&b).flags & REGC_TRANSFER_DETACHED, 10);
	info = complete(&b);
	ck_assert(info.flags & REGC_TRANSFER_DETACHED);
	end(&b);
	munmap(b.mem, BYTES);
}

START_TEST(mapping_over_a_transfer_detaches_it_and_frees_who_waits)
{
	unmapping_ends_waits(false);
	unmapping_ends_waits(true);
}
END_TEST

START_TEST(unmapping_and_moving_a_transfer_detaches_it)
{
	struct buffer b;
	char *there;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	munmap(b.mem, BYTES);
	ck_assert_uint_eq(complete(&b).flags, REGC_TRANSFER_DETACHED);
	end(&b);
	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	there = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_eq((void *)syscall(SYS_mremap, b.mem, BYTES, BYTES,
					 MREMAP_MAYMOVE | MREMAP_FIXED, there),
			 there);
	/* Its protection moved along; nobody is left who would open it. */
	memset(there, 2, BYTES);
	WAIT_FOR(info_of(&b).flags & REGC_TRANSFER_DETACHED, 10);
	complete(&b);
	end(&b);
}
END_TEST

START_TEST(discarding_pages_of_a_transfer_detaches_it)
{
	struct buffer b;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	ck_assert_int_eq(syscall(SYS_madvise, b.mem, BYTES, MADV_DONTNEED), 0);
	WAIT_FOR(info_of(&b).flags & REGC_TRANSFER_DETACHED, 10);
	b.mem[0] = 2;
	complete(&b);
	end(&b);
}
END_TEST

/* The userfaultfd of libregc, which no call gives. */
static int find_userfaultfd(void)
{
	char path[64], link[64];
	ssize_t n;
	int fd;

	for (fd = 3; fd < 1000; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, link, sizeof(link) - 1);
		link[n < 0 ? 0 : n] = '\0';
		if (!strcmp(link, "anon_inode:[userfaultfd]"))
			return fd;
	}
	return -1;
}

/* As a copy leaves it whose buffer is moved away at that moment by a raw call. */
START_TEST(page_that_went_missing_for_good_hangs_nobody)
{
	struct uffdio_register reg = {
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};
	struct buffer b;
	struct access a;
	char *mem;
	int round;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0); /* there was one: pages may be missing from now on */
	complete(&b);
	end(&b);
	for (round = 0; round < 2; round++) {
		mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		reg.range.start = (uintptr_t)mem;
		reg.range.len = BYTES;
		ck_assert_int_eq(ioctl(find_userfaultfd(), UFFDIO_REGISTER, &reg), 0);
		if (round == 1) /* and without a broker to tell it */
			broker_kill(&broker);
		access_start(&a, STORE, mem + PAGE + 1, 2);
		access_end(&a);
		ck_assert_int_eq(mem[PAGE], 0);
		ck_assert_int_eq(mem[PAGE + 1], 2);
	}
}
END_TEST

START_TEST(child_of_fork_writes_freely_and_has_no_transfer)
{
	struct buffer b, r;
	struct access a;
	pid_t pid;
	int status;

	lease(&b, test_map(BYTES, 1), BYTES);
	lease(&r, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	begin(&r, REGC_RECEIVE, 0);
	pid = fork();
	if (pid == 0) {
		alarm(20);
		memset(b.mem, 3, BYTES);
		memset(r.mem, 3, BYTES);
		_exit(regc_transfer_complete(&b.t, NULL) != -ESTALE);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	/* The parent's are closed still. */
	access_start(&a, STORE, b.mem, 2);
	wait_until_blocked(&b, 1);
	complete(&b);
	access_end(&a);
	complete(&r);
	end(&b);
	end(&r);
}
END_TEST

START_TEST(protection_outlives_the_broker_and_waits_end)
{
	struct buffer b, c;
	struct access a, late;

	lease(&b, test_map(BYTES, 1), BYTES);
	lease(&c, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	ck_assert_int_eq(try_begin(&c, REGC_SEND, 0, 0, 200), 0);
	access_start(&a, STORE, b.mem, 2);
	wait_until_blocked(&b, 1);
	broker_kill(&broker);
	access_start(&late, STORE, c.mem, 2);
	access_end(&late); /* by its limit, without a broker */
	ck_assert(complete(&c).flags & REGC_TRANSFER_TIMED_OUT);
	ck_assert_int_eq(b.mem[0], 1);
	ck_assert(!rtab_load_acquire(&a.done));
	broker_restart(&broker, NULL);
	ck_assert_int_eq(b.mem[0], 1);
	ck_assert(complete(&b).flags & REGC_TRANSFER_BLOCKED);
	access_end(&a);
	end(&b);
	end(&c);
}
END_TEST

START_TEST(stopped_broker_delays_nobody)
{
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, REGC_POLICY_REPORT);
	kill(broker.pid, SIGSTOP);
	access_start(&a, STORE, b.mem, 2);
	access_end(&a);
	ck_assert(complete(&b).flags & REGC_TRANSFER_DAMAGED);
	begin(&b, REGC_SEND, REGC_POLICY_BLOCK);
	access_start(&a, STORE, b.mem, 2);
	wait_until_blocked(&b, 1);
	complete(&b);
	access_end(&a);
	kill(broker.pid, SIGCONT);
	end(&b);
}
END_TEST

/* ---- what an operator sees -------------------------------------------------- */

/* Column name of the first row of a listing with tabs. */
static void column(const char *listing, const char *name, char *ret, size_t size)
{
	const char *row = strchr(listing, '\n') + 1, *at = listing;

	while (strncmp(at, name, strlen(name)) != 0) {
		at += strcspn(at, "\t\n") + 1;
		ck_assert(at < row);
		row += strcspn(row, "\t\n") + 1;
	}
	snprintf(ret, size, "%.*s", (int)strcspn(row, "\t\n"), row);
}

static void list_transfers(char *ret, size_t size)
{
	const char *build = getenv("REGC_BUILDDIR");
	char command[4096];
	FILE *f;
	size_t n;

	snprintf(command, sizeof(command),
		 "%s/cli/regc-ctl transfers --tab --pid %d", build ? build : "../..",
		 (int)getpid());
	f = popen(command, "r");
	ck_assert_ptr_nonnull(f);
	n = fread(ret, 1, size - 1, f);
	ret[n] = '\0';
	ck_assert_int_eq(pclose(f), 0);
}

START_TEST(listing_says_which_thread_waits_for_what_and_where)
{
	char text[4096], cell[128], want[128];
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	access_start(&a, STORE, b.mem + PAGE, 2);
	wait_until_blocked(&b, 1);
	list_transfers(text, sizeof(text));
	column(text, "library", cell, sizeof(cell));
	ck_assert_str_eq(cell, "sender");
	column(text, "direction", cell, sizeof(cell));
	ck_assert_str_eq(cell, "send");
	column(text, "state", cell, sizeof(cell));
	ck_assert_str_eq(cell, "in flight");
	column(text, "happened", cell, sizeof(cell));
	ck_assert_str_eq(cell, "blocked");
	column(text, "thread", cell, sizeof(cell));
	ck_assert_int_eq(atoi(cell), (int)a.tid);
	snprintf(want, sizeof(want), "0x%llx",
		 (unsigned long long)(uintptr_t)b.mem + PAGE);
	column(text, "at_address", cell, sizeof(cell));
	ck_assert_str_eq(cell, want);
	/* In the program, that is in one page or the next of a function of it. */
	column(text, "instruction", cell, sizeof(cell));
	ck_assert_uint_lt(strtoull(cell, NULL, 16) - (uintptr_t)access_start + 65536,
			  131072);
	complete(&b);
	access_end(&a);
	list_transfers(text, sizeof(text));
	ck_assert_str_eq(strchr(text, '\n'), "\n"); /* the names alone */
	end(&b);
}
END_TEST

/* ---- many at once ---------------------------------------------------------- */

#define BUFFERS 4

static char *shared_mem;
static uint32_t stop;

static void *begin_and_complete(void *arg)
{
	uint64_t x = (uintptr_t)arg * 7919 + 1;
	struct buffer b;

	while (!rtab_load_relaxed(&stop)) {
		size_t first, n;
		char before;
		int r;

		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		first = (x >> 33) % 12;
		n = 1 + (x >> 40) % 4;
		lease(&b, shared_mem + first * PAGE, n * PAGE);
		r = try_begin(&b, REGC_SEND, 0, 0, 0);
		ck_assert_int_eq(r, 0);
		before = b.mem[0];
		sched_yield();
		ck_assert_int_eq(b.mem[0], before);
		ck_assert(!(complete(&b).flags & REGC_TRANSFER_TIMED_OUT));
		end(&b);
	}
	return NULL;
}

static void *store_at_random(void *arg)
{
	uint64_t x = 99, n = 0;

	(void)arg;
	while (!rtab_load_relaxed(&stop)) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		shared_mem[(x >> 33) % BYTES / PAGE * PAGE] = (char)n++;
	}
	return NULL;
}

START_TEST(no_page_opens_early_or_stays_closed_among_many_threads)
{
	uint64_t limit = test_now_ns() + 1500000000u;
	struct buffer all;
	pthread_t t[5];
	int i;

	shared_mem = test_map(BYTES, 1);
	lease(&all, shared_mem, BYTES); /* they register nothing themselves */
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, begin_and_complete,
			       (void *)(uintptr_t)i);
	pthread_create(&t[4], NULL, store_at_random, NULL);
	while (test_now_ns() < limit)
		test_pause();
	rtab_store_release(&stop, 1);
	for (i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	memset(shared_mem, 1, BYTES); /* all open */
	end(&all);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("transfers together");
	TCase *tc = tcase_create("together");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, conflicting_begin_is_refused_queued_or_let_through_as_asked);
	tcase_add_test(tc, queued_begin_goes_on_when_the_other_is_complete);
	tcase_add_test(tc, group_begins_all_or_none);
	tcase_add_test(tc, begin_refuses_what_makes_no_sense);
	tcase_add_test(tc, begin_on_a_lease_whose_memory_changed_is_refused);
	tcase_add_test(tc, thread_that_faults_on_its_own_transfer_is_freed_by_progress);
	tcase_add_test(tc, two_threads_that_wait_for_each_others_transfers_both_go_on);
	tcase_add_test(tc, no_page_opens_early_or_stays_closed_among_many_threads);
	suite_add_tcase(s, tc);

	tc = tcase_create("changes and death");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, mapping_over_a_transfer_detaches_it_and_frees_who_waits);
	tcase_add_test(tc, unmapping_and_moving_a_transfer_detaches_it);
	tcase_add_test(tc, discarding_pages_of_a_transfer_detaches_it);
	tcase_add_test(tc, page_that_went_missing_for_good_hangs_nobody);
	tcase_add_test(tc, child_of_fork_writes_freely_and_has_no_transfer);
	tcase_add_test(tc, protection_outlives_the_broker_and_waits_end);
	tcase_add_test(tc, stopped_broker_delays_nobody);
	tcase_add_test(tc, listing_says_which_thread_waits_for_what_and_where);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
