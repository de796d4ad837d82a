/* SPDX-License-Identifier: BSD-2-Clause */
/* Two libraries, one cache: what get and put promise, with a real broker. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"

#define PAGE 4096ul
#define W REGC_ACCESS_LOCAL_WRITE

static struct broker broker;
static struct regc_library *mpi, *pfs;
static struct regc_domain *dom, *dom2;
static struct fake fake;

static struct regc_stats stats_of(struct regc_library *lib)
{
	struct regc_stats s = { .size = sizeof(s) };

	ck_assert_int_eq(regc_stats(lib, &s), 0);
	return s;
}

static void open_all(void)
{
	struct regc_status st = { .size = sizeof(st) };

	memset(&fake, 0, sizeof(fake));
	ck_assert_int_eq(regc_open("mpi", NULL, &mpi), 0);
	ck_assert_int_eq(regc_open("pfs", NULL, &pfs), 0);
	ck_assert_int_eq(regc_status(mpi, &st), 0);
	ck_assert_msg(st.connected && st.mode, "not caching: %s", st.why);
	ck_assert_int_eq(regc_domain_custom(mpi, &fake_ops, &fake, &dom), 0);
	ck_assert_int_eq(regc_domain_custom(pfs, &fake_ops, &fake, &dom2), 0);
}

static void setup(void)
{
	broker_start(&broker, NULL);
	open_all();
}

static void teardown(void)
{
	broker_stop(&broker);
}

static struct regc_lease get_in(struct regc_domain *d, const void *addr, size_t len,
				unsigned int access)
{
	struct regc_lease lease;

	ck_assert_int_eq(regc_get(d, addr, len, access, &lease), 0);
	return lease;
}

static struct regc_lease get(const void *addr, size_t len, unsigned int access)
{
	struct regc_lease lease = get_in(dom, addr, len, access);

	ck_assert_uint_eq(lease.flags, 0);
	return lease;
}

START_TEST(two_libraries_share_one_registration)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get_in(dom, mem, 4 * PAGE, W);
	struct regc_lease b = get_in(dom2, mem, 4 * PAGE, W);

	ck_assert_uint_eq(a.lkey, b.lkey);
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 1);
	ck_assert_uint_eq(stats_of(mpi).misses, 1);
	ck_assert_uint_eq(stats_of(mpi).hits, 0);
	ck_assert_uint_eq(stats_of(pfs).hits, 1);
	regc_put(&a);
	ck_assert_int_eq(regc_lease_ok(&b), 1);
	regc_put(&b);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
}
END_TEST

START_TEST(second_get_hits_and_any_part_of_a_region_hits)
{
	char *mem = test_map(16 * PAGE, 1);
	struct regc_lease a = get(mem, 16 * PAGE, W), b;
	uint64_t start, len;
	size_t off;

	regc_put(&a);
	for (off = 0; off < 16 * PAGE; off += 1000) {
		b = get(mem + off, 16 * PAGE - off < 300 ? 16 * PAGE - off : 300,
			0);
		ck_assert_uint_eq(b.lkey, a.lkey);
		ck_assert_int_eq(regc_lease_range(&b, &start, &len), 0);
		ck_assert_uint_eq(start, (uintptr_t)mem);
		ck_assert_uint_eq(len, 16 * PAGE);
		regc_put(&b);
	}
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 1);
}
END_TEST

START_TEST(pages_of_an_unaligned_range_are_registered)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(mem + 100, PAGE, W);

	ck_assert_uint_eq(fake.last_start, (uintptr_t)mem);
	ck_assert_uint_eq(fake.last_len, 2 * PAGE);
	regc_put(&a);
}
END_TEST

START_TEST(overlapping_requests_grow_one_region)
{
	char *mem = test_map(8 * PAGE, 1);
	struct regc_lease a = get(mem, 3 * PAGE, W);
	struct regc_lease b = get(mem + 2 * PAGE, 3 * PAGE, W);

	/* One region of the union; the first lease keeps the old registration. */
	ck_assert_uint_eq(fake.last_start, (uintptr_t)mem);
	ck_assert_uint_eq(fake.last_len, 5 * PAGE);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 2);
	ck_assert_int_eq(regc_lease_ok(&a), 0);
	ck_assert_int_eq(regc_lease_ok(&b), 1);
	regc_put(&a);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	regc_put(&b);
	ck_assert_uint_eq(stats_of(mpi).regions, 1);
	ck_assert_int_eq(regc_query(dom, mem, 5 * PAGE, W), 1);
	ck_assert_int_eq(regc_query(dom, mem, 6 * PAGE, W), 0);
}
END_TEST

START_TEST(access_is_never_widened)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease r = get(mem, 2 * PAGE, 0);
	struct regc_lease w = get(mem + PAGE, 2 * PAGE, W), again;

	/* The pages that were asked for, no more; the first stays valid. */
	ck_assert_uint_eq(fake.last_start, (uintptr_t)mem + PAGE);
	ck_assert_uint_eq(fake.last_len, 2 * PAGE);
	ck_assert_uint_eq(fake.last_access, W);
	ck_assert_int_eq(regc_lease_ok(&r), 1);
	ck_assert_int_eq(regc_lease_ok(&w), 1);
	again = get(mem + 2 * PAGE, PAGE, 0);
	ck_assert_uint_eq(again.lkey, w.lkey);
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 2);
	regc_put(&again);
	regc_put(&r);
	regc_put(&w);
}
END_TEST

START_TEST(read_only_memory_registers_for_read)
{
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	ck_assert_int_eq(mprotect(mem, PAGE, PROT_READ), 0);
	a = get(mem, PAGE, 0);
	ck_assert_uint_eq(fake.last_access, 0);
	regc_put(&a);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	ck_assert_int_eq(regc_get(dom, mem, 0, W, &a), -EINVAL);
	ck_assert_int_eq(regc_get(dom, mem, SIZE_MAX, W, &a), -EINVAL);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, 1u << 20, &a), -EINVAL);
	ck_assert_int_eq(regc_get_many(&dom, 0, mem, PAGE, W, &a), -EINVAL);
	ck_assert_int_eq(regc_get_many(&dom, 17, mem, PAGE, W, &a), -EINVAL);
	ck_assert_int_eq(regc_open("", NULL, &mpi), -EINVAL);
	ck_assert_int_eq(regc_open("a name that is longer than thirty-one",
				   NULL, &mpi), -EINVAL);
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 0);
}
END_TEST

START_TEST(failed_registration_is_not_remembered)
{
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	fake.fail_next = -EIO;
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &a), -EIO);
	a = get(mem, PAGE, W);
	regc_put(&a);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	ck_assert_uint_eq(stats_of(mpi).failed, 1);
}
END_TEST

START_TEST(several_domains_are_all_or_nothing)
{
	struct fake other = { .fail_next = -EIO };
	struct regc_domain *doms[2] = { dom };
	struct regc_lease leases[2];
	char *mem = test_map(PAGE, 1);

	ck_assert_int_eq(regc_domain_custom(mpi, &fake_ops, &other, &doms[1]), 0);
	ck_assert_int_eq(regc_get_many(doms, 2, mem, PAGE, W, leases), -EIO);
	ck_assert_int_eq(regc_get_many(doms, 2, mem, PAGE, W, leases), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	ck_assert_uint_eq(rtab_load_acquire(&other.live), 1);
	regc_put(&leases[0]);
	regc_put(&leases[1]);
	/* One region, two domains: voiding it undoes both. */
	ck_assert_int_eq(regc_invalidate(mpi, mem, PAGE), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
	ck_assert_uint_eq(rtab_load_acquire(&other.live), 0);
	ck_assert_int_eq(regc_domain_close(doms[1]), 0);
}
END_TEST

START_TEST(invalidate_voids_what_overlaps_and_nothing_else)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(mem, PAGE, W), b = get(mem + 2 * PAGE, PAGE, W);

	regc_put(&a);
	ck_assert_int_eq(regc_invalidate(pfs, mem, PAGE), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	ck_assert_int_eq(regc_lease_ok(&b), 1);
	ck_assert_int_eq(regc_invalidate(pfs, mem + 3 * PAGE - 1, 1), 0);
	ck_assert_int_eq(regc_lease_ok(&b), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1); /* under lease (L2) */
	regc_put(&b);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
}
END_TEST

START_TEST(leased_memory_may_be_freed)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(mem, 4 * PAGE, W);

	ck_assert_int_eq(munmap(mem, 4 * PAGE), 0);
	ck_assert_int_eq(regc_lease_ok(&a), 0);
	WAIT_FOR(stats_of(mpi).freed_leased == 1, 5);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	regc_put(&a);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
}
END_TEST

START_TEST(freed_memory_is_unpinned_without_another_call)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(mem, 4 * PAGE, W);

	regc_put(&a);
	munmap(mem, 4 * PAGE);
	WAIT_FOR(rtab_load_acquire(&fake.live) == 0, 5);
	mem = test_map(4 * PAGE, 1);
	a = get(mem, 4 * PAGE, W);
	regc_put(&a);
	raw_munmap(mem, 4 * PAGE);
	WAIT_FOR(rtab_load_acquire(&fake.live) == 0, 5);
	WAIT_FOR(stats_of(mpi).pinned_bytes == 0, 5);
}
END_TEST

START_TEST(domain_with_a_lease_out_does_not_close)
{
	char *mem = test_map(PAGE, 1);
	struct regc_lease a = get(mem, PAGE, W), b;

	ck_assert_int_eq(regc_domain_close(dom2), 0);
	ck_assert_int_eq(regc_domain_close(dom), -EBUSY);
	ck_assert_int_eq(regc_get(dom, mem + 1, 1, W, &b), -ESHUTDOWN);
	ck_assert_int_eq(regc_close(mpi), -EBUSY);
	regc_put(&a);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
	ck_assert_int_eq(regc_close(mpi), 0);
	ck_assert_int_eq(regc_close(pfs), 0);
}
END_TEST

/* ---- callbacks ---------------------------------------------------------- */

static void discard_other(void *arg, void *addr, size_t len)
{
	(void)addr;
	(void)len;
	ck_assert_int_eq(madvise(arg, PAGE, MADV_DONTNEED), 0);
}

START_TEST(callback_may_change_another_cached_range)
{
	char *one = test_map(PAGE, 1), *two = test_map(PAGE, 2);
	struct regc_lease a = get(one, PAGE, W);

	regc_put(&a);
	fake.in_reg = discard_other;
	fake.in_reg_arg = one;
	a = get(two, PAGE, W);
	ck_assert_int_eq(regc_lease_ok(&a), 1);
	ck_assert_int_eq(regc_query(dom, one, PAGE, W), 0);
	regc_put(&a);
}
END_TEST

static void remap_self(void *arg, void *addr, size_t len)
{
	int *left = arg;

	if ((*left)-- <= 0)
		return;
	raw_munmap(addr, len);
	raw_mmap_at(addr, len);
}

START_TEST(memory_that_changes_while_it_is_registered_starts_over)
{
	char *mem = test_map(4 * PAGE, 1);
	int left = 1;
	struct regc_lease a;

	fake.in_reg = remap_self;
	fake.in_reg_arg = &left;
	a = get(mem, 4 * PAGE, W);
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 2);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	ck_assert_int_eq(regc_lease_ok(&a), 1);
	ck_assert_uint_ge(stats_of(mpi).restarts, 1);
	regc_put(&a);
}
END_TEST

START_TEST(memory_that_always_changes_is_served_uncached)
{
	char *mem = test_map(4 * PAGE, 1);
	int left = 1000000;
	struct regc_lease a;

	fake.in_reg = remap_self;
	fake.in_reg_arg = &left;
	a = get_in(dom, mem, 4 * PAGE, W);
	ck_assert_uint_eq(a.flags, REGC_LEASE_UNCACHED);
	regc_put(&a);
	fake.in_reg = NULL;
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
}
END_TEST

static void get_again(void *arg, void *addr, size_t len)
{
	struct regc_lease a;

	*(int *)arg = regc_get(dom, addr, len, W, &a);
}

START_TEST(get_of_the_same_range_in_a_callback_is_refused)
{
	char *mem = test_map(PAGE, 1);
	int r = 0;
	struct regc_lease a;

	fake.in_reg = get_again;
	fake.in_reg_arg = &r;
	a = get(mem, PAGE, W);
	ck_assert_int_eq(r, -EDEADLK);
	fake.in_reg = NULL;
	regc_put(&a);
}
END_TEST

/* ---- threads ------------------------------------------------------------ */

static char *common;

static void *get_and_put_common(void *arg)
{
	long i, n = (long)arg;

	for (i = 0; i < n; i++) {
		struct regc_lease a = get_in(i & 1 ? dom : dom2, common, 8 * PAGE, W);

		regc_put(&a);
	}
	return NULL;
}

static void run_threads(int n, void *(*fn)(void *), long arg)
{
	pthread_t threads[64];
	int i;

	for (i = 0; i < n; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fn,
						(void *)arg), 0);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

START_TEST(threads_that_ask_at_once_make_one_registration)
{
	common = test_map(8 * PAGE, 1);
	run_threads(32, get_and_put_common, 20000);
	ck_assert_uint_eq(rtab_load_acquire(&fake.regs), 1);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	/* Every lease came back: now nothing holds it. */
	ck_assert_int_eq(regc_invalidate(mpi, common, 1), 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
	ck_assert_uint_eq(stats_of(mpi).hits + stats_of(mpi).misses +
				  stats_of(pfs).hits + stats_of(pfs).misses,
			  32 * 20000);
}
END_TEST

static struct regc_lease given;

static void *put_given(void *arg)
{
	(void)arg;
	regc_put(&given);
	return NULL;
}

START_TEST(put_in_another_thread_ends_the_lease)
{
	char *mem = test_map(PAGE, 1);

	given = get(mem, PAGE, W);
	regc_invalidate(mpi, mem, PAGE);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	run_threads(1, put_given, 0);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
}
END_TEST

static void *churn(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)&arg;
	int i;

	(void)arg;
	for (i = 0; i < 300; i++) {
		size_t n = (1 + (unsigned int)rand_r(&seed) % 8) * PAGE;
		char *mem = malloc(n);
		struct regc_lease a = get_in(dom, mem, n, W);

		regc_put(&a);
		free(mem);
	}
	return NULL;
}

START_TEST(threads_that_allocate_and_free_do_not_hang)
{
	run_threads(16, churn, 0);
}
END_TEST

/* ---- fork --------------------------------------------------------------- */

static void in_child(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		fn();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		      "child: status %x", (unsigned int)status);
}

static struct regc_lease inherited;
static struct fake child_fake;

static void child_uses_regc(void)
{
	struct regc_status st = { .size = sizeof(st) };
	struct regc_domain *own;
	struct regc_lease a;
	char *mem = test_map(PAGE, 1);

	regc_put(&inherited); /* the parent's: ignored */
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &a), -ENOTUNIQ);
	ck_assert_int_eq(regc_domain_custom(mpi, &fake_ops, &child_fake, &own), 0);
	a = get_in(own, mem, PAGE, W); /* attaches by itself */
	ck_assert_uint_eq(a.flags, 0);
	regc_put(&a);
	ck_assert_int_eq(regc_status(mpi, &st), 0);
	ck_assert_uint_eq(st.connected, 1);
}

START_TEST(child_of_fork_starts_with_nothing_and_attaches)
{
	char *mem = test_map(PAGE, 1);

	inherited = get(mem, PAGE, W);
	in_child(child_uses_regc);
	ck_assert_int_eq(regc_lease_ok(&inherited), 1);
	regc_put(&inherited);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
}
END_TEST

static void child_ignores_regc(void)
{
	int i;

	for (i = 0; i < 1000; i++) {
		char *mem = malloc(200000);

		memset(mem, 1, 200000);
		munmap(test_map(PAGE, 1), PAGE);
		free(mem);
	}
}

START_TEST(child_that_does_not_use_regc_is_left_alone)
{
	char *mem = test_map(PAGE, 1);
	struct regc_lease a = get(mem, PAGE, W);

	in_child(child_ignores_regc);
	ck_assert_int_eq(regc_lease_ok(&a), 1);
	regc_put(&a);
}
END_TEST

/* ---- broker ------------------------------------------------------------- */

START_TEST(without_a_broker_gets_are_uncached)
{
	char *mem = test_map(PAGE, 1);
	struct regc_status st = { .size = sizeof(st) };
	struct regc_lease a;

	setenv("REGC_SOCKET", "/nonexistent/broker.sock", 1);
	memset(&fake, 0, sizeof(fake));
	ck_assert_int_eq(regc_open("mpi", NULL, &mpi), 0);
	ck_assert_int_eq(regc_domain_custom(mpi, &fake_ops, &fake, &dom), 0);
	ck_assert_int_eq(regc_status(mpi, &st), 0);
	ck_assert_uint_eq(st.connected, 0);
	ck_assert_str_ne(st.why, "");
	a = get_in(dom, mem, PAGE, W);
	ck_assert_uint_eq(a.flags, REGC_LEASE_UNCACHED);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
	ck_assert_int_eq(regc_lease_ok(&a), 1);
	regc_put(&a);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 0);
	ck_assert_uint_eq(stats_of(mpi).uncached, 1);
}
END_TEST

static bool caches_again(char *mem)
{
	struct regc_lease a = get_in(dom, mem, PAGE, W);
	bool cached = !(a.flags & REGC_LEASE_UNCACHED);

	regc_put(&a);
	return cached;
}

START_TEST(client_outlives_its_broker_and_joins_the_next)
{
	char *mem = test_map(2 * PAGE, 1);
	struct regc_lease a = get(mem, PAGE, W), b = get(mem + PAGE, PAGE, W);

	regc_put(&a);
	broker_kill(&broker);
	ck_assert_int_eq(regc_query(dom, mem, PAGE, W), 0);
	ck_assert_int_eq(regc_lease_ok(&b), 0);
	a = get_in(dom, mem, PAGE, W);
	ck_assert_uint_eq(a.flags, REGC_LEASE_UNCACHED);
	regc_put(&a);
	/* What was cached goes by itself; what is leased stays (L2). */
	WAIT_FOR(rtab_load_acquire(&fake.live) == 1, 5);
	broker_restart(&broker, NULL);
	WAIT_FOR(caches_again(mem), 10);
	WAIT_FOR(regc_query(dom, mem, PAGE, W) == 1, 5);
	regc_put(&b);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 1);
}
END_TEST

START_TEST(library_may_be_strict_in_a_fast_process)
{
	struct regc_open_attr attr = { .size = sizeof(attr),
				       .mode = REGC_MODE_STRICT };
	char *mem = test_map(2 * PAGE, 1);
	struct regc_library *own;
	struct regc_domain *strict;
	struct regc_lease a;

	ck_assert_int_eq(regc_open("own", &attr, &own), 0);
	ck_assert_int_eq(regc_domain_custom(own, &fake_ops, &fake, &strict), 0);
	a = get_in(strict, mem, PAGE, W);
	regc_put(&a);
	a = get_in(strict, mem, PAGE, W);
	ck_assert_uint_eq(stats_of(own).hits, 1);
	regc_put(&a);
	raw_munmap(mem, PAGE);
	ck_assert_int_eq(regc_query(strict, mem, PAGE, W), 0);
}
END_TEST

static void *unmap_raw(void *arg)
{
	raw_munmap(arg, PAGE);
	return NULL;
}

START_TEST(nobody_hangs_when_the_broker_is_stopped_or_killed)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(mem, 4 * PAGE, W);
	pthread_t t;

	regc_put(&a);
	kill(broker.pid, SIGSTOP);
	/* Waits for a reader of the event: the guardian takes the broker's place. */
	pthread_create(&t, NULL, unmap_raw, mem);
	pthread_join(t, NULL);
	ck_assert_int_eq(regc_query(dom, mem, 4 * PAGE, W), 0);
	pthread_create(&t, NULL, unmap_raw, mem + PAGE);
	broker_kill(&broker);
	pthread_join(t, NULL);
	raw_munmap(mem + 2 * PAGE, PAGE);
	ck_assert_int_eq(regc_query(dom, mem + 3 * PAGE, PAGE, W), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache");
	TCase *tc = tcase_create("with a broker");
	TCase *alone = tcase_create("without a broker");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, two_libraries_share_one_registration);
	tcase_add_test(tc, second_get_hits_and_any_part_of_a_region_hits);
	tcase_add_test(tc, pages_of_an_unaligned_range_are_registered);
	tcase_add_test(tc, overlapping_requests_grow_one_region);
	tcase_add_test(tc, access_is_never_widened);
	tcase_add_test(tc, read_only_memory_registers_for_read);
	tcase_add_test(tc, bad_arguments_are_refused);
	tcase_add_test(tc, failed_registration_is_not_remembered);
	tcase_add_test(tc, several_domains_are_all_or_nothing);
	tcase_add_test(tc, invalidate_voids_what_overlaps_and_nothing_else);
	tcase_add_test(tc, leased_memory_may_be_freed);
	tcase_add_test(tc, freed_memory_is_unpinned_without_another_call);
	tcase_add_test(tc, domain_with_a_lease_out_does_not_close);
	tcase_add_test(tc, callback_may_change_another_cached_range);
	tcase_add_test(tc, memory_that_changes_while_it_is_registered_starts_over);
	tcase_add_test(tc, memory_that_always_changes_is_served_uncached);
	tcase_add_test(tc, get_of_the_same_range_in_a_callback_is_refused);
	tcase_add_test(tc, threads_that_ask_at_once_make_one_registration);
	tcase_add_test(tc, put_in_another_thread_ends_the_lease);
	tcase_add_test(tc, threads_that_allocate_and_free_do_not_hang);
	tcase_add_test(tc, child_of_fork_starts_with_nothing_and_attaches);
	tcase_add_test(tc, child_that_does_not_use_regc_is_left_alone);
	tcase_add_test(tc, client_outlives_its_broker_and_joins_the_next);
	tcase_add_test(tc, library_may_be_strict_in_a_fast_process);
	tcase_add_test(tc, nobody_hangs_when_the_broker_is_stopped_or_killed);
	tcase_add_test(alone, without_a_broker_gets_are_uncached);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, alone);
	return suite_run(s);
}
