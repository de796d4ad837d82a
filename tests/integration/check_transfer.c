/* SPDX-License-Identifier: BSD-2-Clause */
/* Protect until complete: what an access to a buffer in flight sees. */
#include "tests/integration/transfer.h"

#include <check.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* ---- send ----------------------------------------------------------------- */

START_TEST(store_waits_until_the_send_is_complete)
{
	struct buffer b;
	struct access a;
	struct regc_transfer_info info;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, REGC_POLICY_BLOCK);
	access_start(&a, STORE, b.mem + 5 * PAGE + 7, 2);
	wait_until_blocked(&b, 1);
	ck_assert_int_eq(b.mem[5 * PAGE + 7], 1); /* loads go on */
	ck_assert(!rtab_load_acquire(&a.done));
	ck_assert(oracle_agrees(&oracle, &b.lease, b.mem, BYTES));
	info = complete(&b);
	ck_assert_uint_eq(info.flags, REGC_TRANSFER_BLOCKED);
	ck_assert_uint_eq(info.addr, (uintptr_t)b.mem + 5 * PAGE + 7);
	ck_assert_uint_eq(info.tid, a.tid);
	ck_assert_uint_gt(info.blocked_ns, 0);
	access_end(&a);
	ck_assert_int_eq(b.mem[5 * PAGE + 7], 2);
	end(&b);
}
END_TEST

START_TEST(system_call_into_a_send_waits_like_a_store)
{
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, REGC_POLICY_BLOCK);
	access_start(&a, READ, b.mem + PAGE, 9);
	wait_until_blocked(&b, 1);
	ck_assert_int_eq(b.mem[PAGE], 1);
	complete(&b);
	access_end(&a);
	ck_assert_int_eq(b.mem[PAGE], 9);
	end(&b);
}
END_TEST

START_TEST(writer_of_a_copied_page_goes_on_and_the_device_keeps_the_old)
{
	struct buffer b;
	struct regc_transfer_info info;
	struct access a;
	int i;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(try_begin(&b, REGC_SEND, REGC_POLICY_COPY, 0, 0), 0);
	for (i = 0; i < 16; i += 3) {
		access_start(&a, STORE, b.mem + (size_t)i * PAGE + 1, 2);
		access_end(&a);
		ck_assert_int_eq(b.mem[(size_t)i * PAGE], 1);
		ck_assert_int_eq(b.mem[(size_t)i * PAGE + 1], 2);
	}
	/* The device has what was there at the beginning. */
	ck_assert(!oracle_agrees(&oracle, &b.lease, b.mem, BYTES));
	for (i = 0; i < 16; i += 3)
		b.mem[(size_t)i * PAGE + 1] = 1;
	ck_assert(oracle_agrees(&oracle, &b.lease, b.mem, BYTES));
	ck_assert_int_eq(regc_lease_ok(&b.lease), 0);
	info = complete(&b);
	ck_assert(info.flags & REGC_TRANSFER_COPIED);
	ck_assert(!(info.flags & (REGC_TRANSFER_DAMAGED | REGC_TRANSFER_TIMED_OUT |
				  REGC_TRANSFER_BLOCKED)));
	end(&b);
	ck_assert(oracle_check(&oracle, b.mem, BYTES));
}
END_TEST

START_TEST(page_that_another_library_leases_is_not_copied_but_waits)
{
	struct regc_lease other;
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(regc_get(oracle.dom, b.mem, PAGE, W, &other), 0);
	ck_assert_int_eq(try_begin(&b, REGC_SEND, REGC_POLICY_COPY, 0, 0), 0);
	access_start(&a, STORE, b.mem, 2);
	wait_until_blocked(&b, 1);
	ck_assert_int_eq(b.mem[0], 1);
	ck_assert(!(complete(&b).flags & REGC_TRANSFER_COPIED));
	access_end(&a);
	regc_put(&other);
	end(&b);
}
END_TEST

START_TEST(reported_store_goes_on_and_the_transfer_says_who_it_was)
{
	struct buffer b;
	struct access a;
	struct regc_transfer_info info;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, REGC_POLICY_REPORT);
	access_start(&a, STORE, b.mem + 3 * PAGE, 2);
	access_end(&a);
	info = complete(&b);
	ck_assert_uint_eq(info.flags, REGC_TRANSFER_DAMAGED);
	ck_assert_uint_eq(info.n_through, 1);
	ck_assert_uint_eq(info.addr, (uintptr_t)b.mem + 3 * PAGE);
	ck_assert_uint_eq(info.tid, a.tid);
	end(&b);
}
END_TEST

START_TEST(wait_ends_at_the_time_limit_and_says_so)
{
	struct buffer b;
	struct access a;
	struct regc_transfer_info info;
	uint64_t start = test_now_ns();

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(try_begin(&b, REGC_SEND, REGC_POLICY_BLOCK, 0, 50), 0);
	access_start(&a, STORE, b.mem, 2);
	access_end(&a);
	ck_assert_uint_ge(test_now_ns() - start, 50000000);
	info = complete(&b);
	ck_assert(info.flags & REGC_TRANSFER_TIMED_OUT);
	ck_assert(info.flags & REGC_TRANSFER_DAMAGED);
	end(&b);
}
END_TEST

START_TEST(pages_are_open_after_complete_and_after_abort)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	struct buffer b;

	lease(&b, test_map(BYTES, 1), BYTES);
	begin(&b, REGC_SEND, 0);
	complete(&b);
	memset(b.mem, 2, BYTES);
	begin(&b, REGC_SEND, 0);
	ck_assert_int_eq(regc_transfer_abort(&b.t, &info), 0);
	ck_assert_uint_eq(info.flags, REGC_TRANSFER_ABORTED);
	memset(b.mem, 3, BYTES);
	ck_assert_int_eq(regc_transfer_complete(&b.t, NULL), -ESTALE);
	ck_assert_int_eq(regc_transfer_posted(&b.t), -ESTALE);
	end(&b);
}
END_TEST

START_TEST(last_of_several_transfers_opens_a_page)
{
	struct buffer b[3];
	struct access a;
	char *mem = test_map(BYTES, 1);
	int i;

	/* One region: registering pages in flight would wait, as a store does. */
	lease(&b[0], mem, BYTES);
	end(&b[0]);
	for (i = 0; i < 3; i++) {
		/* pages 0..7, 4..11, 8..15 */
		lease(&b[i], mem + (size_t)i * 4 * PAGE, 8 * PAGE);
		begin(&b[i], REGC_SEND, 0);
	}
	access_start(&a, STORE, mem + 5 * PAGE, 2);
	wait_until_blocked(&b[0], 1);
	complete(&b[0]); /* it looks again, and waits for the other alone */
	mem[0] = 2;	 /* nobody's page any more */
	ck_assert_int_eq(mem[5 * PAGE], 1);
	complete(&b[1]);
	access_end(&a);
	complete(&b[2]);
	memset(mem, 3, BYTES);
	for (i = 0; i < 3; i++)
		end(&b[i]);
}
END_TEST

START_TEST(edges_of_a_buffer_stay_open_and_a_change_of_them_is_reported)
{
	struct buffer b;
	char *mem = test_map(BYTES, 1);

	lease(&b, mem + 100, 3 * PAGE);
	begin(&b, REGC_SEND, 0);
	mem[99] = 2; /* the neighbour */
	mem[3 * PAGE + 100] = 2;
	ck_assert_uint_eq(complete(&b).flags, 0);
	begin(&b, REGC_SEND, 0);
	mem[100] = 2;
	ck_assert_uint_eq(complete(&b).flags, REGC_TRANSFER_DAMAGED);
	begin(&b, REGC_SEND, 0);
	mem[3 * PAGE + 99] = 2;
	ck_assert_uint_eq(complete(&b).flags, REGC_TRANSFER_DAMAGED);
	end(&b);
	/* No whole page at all. */
	lease(&b, mem + PAGE - 10, 20);
	begin(&b, REGC_SEND, 0);
	mem[PAGE + 9] = 7;
	ck_assert_uint_eq(complete(&b).flags,
			  REGC_TRANSFER_DAMAGED | REGC_TRANSFER_OPEN);
	end(&b);
}
END_TEST

START_TEST(whole_pages_are_closed_for_the_neighbour_too_if_asked)
{
	struct regc_transfer_attr attr = {
		.size = sizeof(attr), .edges = REGC_EDGES_WHOLE,
	};
	struct buffer b;
	struct access a;
	char *mem = test_map(BYTES, 1);

	lease(&b, mem + 100, PAGE);
	ck_assert_int_eq(regc_transfer_begin(&b.lease, mem + 100, PAGE, REGC_SEND,
					     &attr, &b.t), 0);
	access_start(&a, STORE, mem, 2);
	wait_until_blocked(&b, 1);
	complete(&b);
	access_end(&a);
	end(&b);
}
END_TEST

/* ---- receive -------------------------------------------------------------- */

static void accesses_wait_for_a_receive(char *mem, uint32_t flags, bool calls)
{
	struct access store, load, call;
	struct buffer b;

	lease(&b, mem, BYTES);
	begin(&b, REGC_RECEIVE, 0);
	access_start(&load, LOAD, mem + 2 * PAGE, 0);
	wait_until_blocked(&b, 1);
	access_start(&store, STORE, mem + 3 * PAGE, 5);
	wait_until_blocked(&b, 2);
	if (calls) {
		access_start(&call, READ, mem + 4 * PAGE, 6);
		wait_until_blocked(&b, 3);
	}
	ck_assert(!rtab_load_acquire(&load.done));
	ck_assert_uint_eq(complete(&b).flags, flags | REGC_TRANSFER_BLOCKED);
	access_end(&load);
	access_end(&store);
	if (calls)
		access_end(&call);
	ck_assert_int_eq(load.value, 1);
	ck_assert_int_eq(mem[3 * PAGE], 5);
	ck_assert_int_eq(mem[5 * PAGE], 1);
	ck_assert(oracle_agrees(&oracle, &b.lease, mem, BYTES));
	/* It is the same registration as before. */
	ck_assert_int_eq(regc_lease_ok(&b.lease), 1);
	end(&b);
	memset(mem, 7, BYTES);
}

START_TEST(readers_and_writers_of_a_receive_wait_on_memory_of_regc)
{
	void *mem;

	ck_assert_int_eq(regc_alloc(lib, BYTES, 0, &mem), 0);
	memset(mem, 1, BYTES);
	accesses_wait_for_a_receive(mem, 0, true);
	ck_assert_int_eq(regc_free(lib, mem, BYTES), 0);
}
END_TEST

/* Without huge pages free it is ordinary memory, and the same. */
START_TEST(readers_of_a_receive_wait_on_huge_pages_of_regc)
{
	size_t bytes = 4 << 20, at;
	struct access first, last;
	struct buffer b;
	void *mem;

	ck_assert_int_eq(regc_alloc(lib, bytes, REGC_ALLOC_HUGE, &mem), 0);
	memset(mem, 1, bytes);
	lease(&b, mem, bytes);
	begin(&b, REGC_RECEIVE, 0);
	access_start(&first, LOAD, b.mem + PAGE, 0);
	wait_until_blocked(&b, 1);
	access_start(&last, STORE, b.mem + bytes - 1, 2);
	wait_until_blocked(&b, 2);
	ck_assert(!(complete(&b).flags & REGC_TRANSFER_WEAK));
	access_end(&first);
	access_end(&last);
	for (at = 0; at < bytes; at += PAGE)
		ck_assert_int_eq(b.mem[at], 1);
	ck_assert_int_eq(b.mem[bytes - 1], 2);
	end(&b);
	ck_assert_int_eq(regc_free(lib, mem, bytes), 0);
}
END_TEST

START_TEST(readers_and_writers_of_a_receive_wait_on_private_memory)
{
	char *mem = test_map(BYTES, 1);

	accesses_wait_for_a_receive(mem, REGC_TRANSFER_WEAK, false);
	munmap(mem, BYTES);
}
END_TEST

static sigjmp_buf fault;

static void on_segv(int sig)
{
	(void)sig;
	siglongjmp(fault, 1);
}

START_TEST(receive_on_private_memory_restores_protections_and_passes_faults_on)
{
	char *mem = test_map(BYTES, 1), *nobodys;
	struct sigaction action = { .sa_handler = on_segv, .sa_flags = SA_NODEFER };
	struct buffer b;
	volatile int faults = 0;

	sigaction(SIGSEGV, &action, NULL);
	nobodys = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, 0, &b.lease), 0);
	b.mem = mem;
	b.bytes = BYTES;
	ck_assert_int_eq(syscall(SYS_mprotect, mem + 4 * PAGE, 4 * PAGE, PROT_READ),
			 0);
	begin(&b, REGC_RECEIVE, 0);
	if (sigsetjmp(fault, 1) == 0)
		*(volatile char *)nobodys = 1;
	else
		faults = faults + 1;
	ck_assert_int_eq(faults, 1);
	complete(&b);
	mem[0] = 2;
	if (sigsetjmp(fault, 1) == 0)
		*(volatile char *)(mem + 4 * PAGE) = 2;
	else
		faults = faults + 1;
	ck_assert_int_eq(faults, 2);
	ck_assert_int_eq(mem[4 * PAGE], 1);
	end(&b);
}
END_TEST

START_TEST(wait_on_private_memory_ends_at_the_time_limit)
{
	struct buffer b;
	struct access a;

	lease(&b, test_map(BYTES, 1), BYTES);
	ck_assert_int_eq(try_begin(&b, REGC_RECEIVE, 0, 0, 50), 0);
	access_start(&a, LOAD, b.mem, 0);
	access_end(&a);
	ck_assert(complete(&b).flags & REGC_TRANSFER_TIMED_OUT);
	end(&b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("transfer");
	TCase *tc = tcase_create("send");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, store_waits_until_the_send_is_complete);
	tcase_add_test(tc, system_call_into_a_send_waits_like_a_store);
	tcase_add_test(tc, writer_of_a_copied_page_goes_on_and_the_device_keeps_the_old);
	tcase_add_test(tc, page_that_another_library_leases_is_not_copied_but_waits);
	tcase_add_test(tc, reported_store_goes_on_and_the_transfer_says_who_it_was);
	tcase_add_test(tc, wait_ends_at_the_time_limit_and_says_so);
	tcase_add_test(tc, pages_are_open_after_complete_and_after_abort);
	tcase_add_test(tc, last_of_several_transfers_opens_a_page);
	tcase_add_test(tc, edges_of_a_buffer_stay_open_and_a_change_of_them_is_reported);
	tcase_add_test(tc, whole_pages_are_closed_for_the_neighbour_too_if_asked);
	suite_add_tcase(s, tc);

	tc = tcase_create("receive");
	tcase_add_unchecked_fixture(tc, huge_pages_reserve, huge_pages_return);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, readers_and_writers_of_a_receive_wait_on_memory_of_regc);
	tcase_add_test(tc, readers_of_a_receive_wait_on_huge_pages_of_regc);
	tcase_add_test(tc, readers_and_writers_of_a_receive_wait_on_private_memory);
	tcase_add_test(tc,
		       receive_on_private_memory_restores_protections_and_passes_faults_on);
	tcase_add_test(tc, wait_on_private_memory_ends_at_the_time_limit);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
