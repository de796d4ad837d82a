/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults that caches of this kind have had, groups A, B, C, D, E, G, I and J: the
 * rows that no other program tests, and where the others are.
 *
 *  A1  check_cache callback_may_change_another_cached_range; check_programs
 *	program_with_jemalloc_is_right
 *  A3  lock_of_a_foreign_hook_and_of_a_device_make_no_cycle
 *  A4  heap_given_back_is_undone_outside_the_allocator; check_stale_libc heap_*
 *  A5, A6  check_stale_threads change_in_the_middle_of_a_get_makes_it_start_over
 *  A7  no lock of libregc is held over free; A4's test frees in every callback
 *  A8  libregc does not log; broker_that_logs_everything_does_not_hang
 *  A9, A14  the hooks call nothing that is hooked; A4's test, jemalloc
 *  A10  no rwlock is used; A12's test
 *  A11  fork_from_a_signal_handler_leaves_a_child_that_ends
 *  A12  check_cache threads_that_allocate_and_free_do_not_hang
 *  A15  eviction_and_unmapping_at_once_do_not_hang
 *  A17  check_cache get_of_the_same_range_in_a_callback_is_refused
 *  B1, B2, B5  hooks_are_placed_under_running_threads
 *  B3  the self-test calls every hook; B1's test
 *  B4  the whole suite under AddressSanitizer
 *  B6, B8, B9  check_programs plugin_loaded_later*, static_program_is_right
 *  B11  what_is_void_contains_what_was_unmapped
 *  C1, C2  check_rivals hooks_overwritten_*, ucx_*
 *  C4  nobody else's events are used
 *  C5  check_cache two_libraries_share_one_registration; closing_one_library_*
 *  C6  no fork initialisation is needed; check_stale_memory memory_written_after*
 *  C9  check_cache several domains, refuse_overlap; the layer above is not ours
 *  D1, D4, D5, D17  check_stale
 *  D2, D3, D19  check_stale pages_given_back_*
 *  D7  leased_memory_may_be_freed (check_cache, check_stale_libc)
 *  D8, D9, D11, D14  check_stale_threads
 *  D12  check_programs without_userfaultfd_nothing_is_cached_*
 *  D13  lease_stays_valid_while_its_neighbours_change
 *  D16  check_stale_files
 *  E2, E6  check_programs without_userfaultfd_*;  E3, E7  mode_in_force_*
 *  E4  check_stale_memory page_that_was_never_touched_*, check_stale_libc stack_*
 *  E5  broker_that_is_interrupted_all_the_time_reads_every_event
 *  E8, E9, E10  user_without_privilege_is_tracked
 *  E11  check_cache nobody_hangs_when_the_broker_is_stopped_or_killed
 *  E13  nothing is armed before there are transfers
 *  G1, G4  check_stale_memory slice_of_huge_pages_*
 *  G2  no environment variable is read, no smaps
 *  G5  check_cache several_domains_are_all_or_nothing
 *  I2  check_cache access_is_never_widened; overlapping_access_is_kept_apart
 *  I3  overlapping_gets_of_three_threads_leave_one_region
 *  I4  region_inside_another_goes_alone
 *  I6  check_cache threads_that_ask_at_once_make_one_registration
 *  I9  check_cache failed_registration_is_not_remembered
 *  I10  each_device_has_its_own_key
 *  I11  access_that_a_device_lacks_is_never_asked_for
 *  I12  check_stale_threads random_calls_*
 *  J2  check_cache domain_with_a_lease_out_does_not_close
 *  J3  check_cache threads_that_ask_at_once_make_one_registration
 *  J4  check_cache without_a_broker_gets_are_uncached; check_programs mode_in_force
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/integration/stale.h"

#define BYTES (8 * PAGE)

static void get_put(struct regc_domain *dom, const char *mem, size_t len)
{
	struct regc_lease lease;
	int r = regc_get(dom, mem, len, W, &lease);

	ck_assert_msg(r == 0, "get: %s", strerror(-r));
	regc_put(&lease);
}

static bool stop;

static bool stopped(void)
{
	return rtab_load_acquire(&stop);
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	rtab_store_release(&stop, false);
	ck_assert_int_eq(pthread_create(t, NULL, fn, arg), 0);
}

static void finish(pthread_t t)
{
	rtab_store_release(&stop, true);
	pthread_join(t, NULL);
}

/* ---- A: deadlocks ------------------------------------------------------- */

static pthread_mutex_t foreign = PTHREAD_MUTEX_INITIALIZER;

static void take_foreign(void *arg, void *addr, size_t len)
{
	(void)arg;
	(void)addr;
	(void)len;
	pthread_mutex_lock(&foreign);
	pthread_mutex_unlock(&foreign);
}

static void *unmap_under_foreign(void *arg)
{
	(void)arg;
	while (!stopped()) {
		char *mem = test_map(BYTES, 1);

		get_put(oracle.dom, mem, BYTES);
		pthread_mutex_lock(&foreign);
		munmap(mem, BYTES);
		pthread_mutex_unlock(&foreign);
	}
	return NULL;
}

START_TEST(lock_of_a_foreign_hook_and_of_a_device_make_no_cycle)
{
	pthread_t t;
	int i;

	fake.in_reg = take_foreign;
	start(&t, unmap_under_foreign, NULL);
	for (i = 0; i < 300; i++) {
		char *mem = test_map(BYTES, 1);

		get_put(fake_dom, mem, BYTES);
		munmap(mem, BYTES);
	}
	finish(t);
}
END_TEST

/* A device that allocates and frees in every call, as drivers do. */
static int greedy_reg(void *ctx, void *addr, size_t len, unsigned int access,
		      struct regc_key *ret_key)
{
	char *p = malloc(100000);

	memset(p, 1, 100000);
	free(p);
	malloc_trim(0);
	return fake_ops.reg(ctx, addr, len, access, ret_key);
}

static int greedy_dereg(void *ctx, const struct regc_key *key)
{
	char *p = malloc(200000);

	memset(p, 1, 200000);
	free(p);
	malloc_trim(0);
	return fake_ops.dereg(ctx, key);
}

START_TEST(heap_given_back_is_undone_outside_the_allocator)
{
	struct regc_device_ops ops = fake_ops;
	static struct fake greedy;
	struct regc_domain *dom;
	int i;

	ops.name = "greedy";
	ops.reg = greedy_reg;
	ops.dereg = greedy_dereg;
	mallopt(M_TRIM_THRESHOLD, 4096);
	ck_assert_int_eq(regc_domain_custom(lib, &ops, &greedy, &dom), 0);
	for (i = 0; i < 300; i++) {
		char *p = malloc(64 << 10), *q = malloc(200 << 10);

		get_put(dom, p, 64 << 10);
		get_put(dom, q, 200 << 10);
		free(p);
		free(q);
		malloc_trim(0);
	}
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_uint_eq(rtab_load_acquire(&greedy.live), 0);
}
END_TEST

/*
 * A device whose dereg frees memory, while the thread that holds the allocator's
 * lock unmaps memory and waits for its event: a broker that is stopped reads none.
 */
static uint32_t undoing;

static int dereg_under_foreign(void *ctx, const struct regc_key *key)
{
	char *p;

	rtab_store_release(&undoing, 1);
	pthread_mutex_lock(&foreign);
	p = malloc(200000);
	memset(p, 1, 200000);
	free(p);
	pthread_mutex_unlock(&foreign);
	munmap(test_map(BYTES, 1), BYTES);
	return fake_ops.dereg(ctx, key);
}

START_TEST(device_that_frees_while_the_broker_is_stopped_does_not_hang)
{
	char *first = test_map(BYTES, 1), *second = window(BYTES);
	struct regc_device_ops ops = fake_ops;
	static struct fake greedy;
	struct regc_domain *dom;

	ops.name = "greedy";
	ops.dereg = dereg_under_foreign;
	ck_assert_int_eq(regc_domain_custom(lib, &ops, &greedy, &dom), 0);
	raw_mmap_at(second, BYTES);
	get_put(dom, first, BYTES);
	get_put(fake_dom, second, BYTES);
	kill(broker.pid, SIGSTOP);
	pthread_mutex_lock(&foreign);
	munmap(first, BYTES);
	WAIT_FOR(rtab_load_acquire(&undoing), 10);
	raw_munmap(second, BYTES); /* until somebody reads the event */
	pthread_mutex_unlock(&foreign);
	WAIT_FOR(rtab_load_acquire(&greedy.live) == 0, 10);
	kill(broker.pid, SIGCONT);
}
END_TEST

static uint32_t n_forks, bad_children;

static void fork_here(int sig)
{
	int status, saved = errno;
	pid_t pid = _Fork(); /* the one that a handler may call */

	(void)sig;
	if (pid == 0)
		_exit(munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE |
				  MAP_ANONYMOUS, -1, 0), PAGE) ? 1 : 0);
	if (waitpid(pid, &status, 0) != pid || status)
		rtab_fetch_add(&bad_children, 1);
	rtab_fetch_add(&n_forks, 1);
	errno = saved;
}

static void *miss_for_ever(void *arg)
{
	char *mem = test_map(BYTES, 1);

	while (!stopped()) {
		get_put(arg, mem, BYTES);
		regc_invalidate(lib, mem, BYTES);
	}
	return NULL;
}

START_TEST(fork_from_a_signal_handler_leaves_a_child_that_ends)
{
	struct sigaction sa = { .sa_handler = fork_here };
	pthread_t t;
	int i;

	sigaction(SIGUSR1, &sa, NULL);
	start(&t, miss_for_ever, fake_dom);
	for (i = 0; i < 50; i++) {
		uint32_t before = rtab_load_relaxed(&n_forks);

		pthread_kill(t, SIGUSR1);
		WAIT_FOR(rtab_load_acquire(&n_forks) != before, 10);
	}
	finish(t);
	ck_assert_uint_eq(bad_children, 0);
}
END_TEST

static void *unmap_cached(void *arg)
{
	while (!stopped()) {
		char *mem = test_map(BYTES, 1);

		get_put(arg, mem, BYTES);
		munmap(mem, BYTES);
	}
	return NULL;
}

START_TEST(eviction_and_unmapping_at_once_do_not_hang)
{
	char *mem = test_map(64 * BYTES, 1);
	pthread_t t;
	int i;

	fake.max_live = 8;
	start(&t, unmap_cached, fake_dom);
	for (i = 0; i < 2000; i++)
		get_put(fake_dom, mem + (size_t)(i % 64) * BYTES, PAGE);
	finish(t);
	ck_assert_uint_le(rtab_load_acquire(&fake.live), 8);
}
END_TEST

/* ---- B: hooks ----------------------------------------------------------- */

static void *map_and_unmap(void *arg)
{
	(void)arg;
	while (!stopped()) {
		char *mem = test_map(2 * PAGE, 1);

		ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
		ck_assert_int_eq(mem[0], 0);
		mem = mremap(mem, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
		ck_assert_ptr_ne(mem, MAP_FAILED);
		ck_assert_int_eq(mem[PAGE], 1);
		ck_assert_int_eq(munmap(mem, 4 * PAGE), 0);
	}
	return NULL;
}

static void *open_and_close(void *arg)
{
	struct regc_open_attr attr = { .size = sizeof(attr), .mode = *(uint32_t *)arg };
	int i;

	for (i = 0; i < 100; i++) {
		struct regc_library *l;
		struct regc_domain *d;
		struct regc_status st = { .size = sizeof(st) };

		ck_assert_int_eq(regc_open("again", &attr, &l), 0);
		ck_assert_int_eq(regc_status(l, &st), 0);
		ck_assert_uint_eq(st.mode, attr.mode);
		ck_assert_int_eq(regc_domain_null(l, &d), 0);
		ck_assert_int_eq(regc_domain_close(d), 0);
		ck_assert_int_eq(regc_close(l), 0);
	}
	return NULL;
}

static void *open_and_close_domains(void *arg)
{
	int i;

	for (i = 0; i < 3000; i++) {
		struct regc_domain *d;

		ck_assert_int_eq(regc_domain_null(arg, &d), 0);
		ck_assert_int_eq(regc_domain_close(d), 0);
	}
	return NULL;
}

START_TEST(opening_a_domain_that_another_thread_closes_succeeds)
{
	pthread_t t[2];
	int i;

	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, open_and_close_domains, lib);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}
END_TEST

static void patch_under_fire(uint32_t mode)
{
	pthread_t busy[6], openers[2];
	int i;

	for (i = 0; i < 6; i++)
		start(&busy[i], map_and_unmap, NULL);
	for (i = 0; i < 2; i++)
		pthread_create(&openers[i], NULL, open_and_close, &mode);
	for (i = 0; i < 2; i++)
		pthread_join(openers[i], NULL);
	for (i = 0; i < 6; i++)
		finish(busy[i]);
}

/* In children, which have not been patched: a new program is needed for each. */
START_TEST(hooks_are_placed_under_running_threads)
{
	broker_start(&broker, NULL);
	patch_under_fire(_i % 4 == 3 ? REGC_MODE_STRICT : REGC_MODE_FAST);
	broker_stop(&broker);
}
END_TEST

START_TEST(what_is_void_contains_what_was_unmapped)
{
	size_t first, n;

	for (first = 0; first < 6; first++)
		for (n = 1; n <= 6 - first; n++) {
			char *mem = test_map(6 * PAGE, 1);
			size_t i;

			for (i = 0; i < 6; i++)
				get_put(fake_dom, mem + i * PAGE, PAGE);
			munmap(mem + first * PAGE, n * PAGE);
			for (i = first; i < first + n; i++)
				ck_assert_int_eq(regc_query(fake_dom,
							    mem + i * PAGE, 1, W),
						 0);
			munmap(mem, 6 * PAGE);
		}
}
END_TEST

/* ---- C, D, E ------------------------------------------------------------ */

START_TEST(closing_one_library_leaves_the_others_their_events)
{
	struct regc_library *second;
	struct regc_domain *dom;
	char *mem = test_map(BYTES, 1);

	ck_assert_int_eq(regc_open("second", NULL, &second), 0);
	ck_assert_int_eq(regc_domain_custom(second, &fake_ops, &fake, &dom), 0);
	get_put(dom, mem, BYTES);
	get_put(oracle.dom, mem, BYTES);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_int_eq(regc_close(second), 0);
	ck_assert(is_cached(mem, BYTES));
	raw_munmap(mem, BYTES);
	road_map_at(ROAD_LIBC, mem, BYTES, 2);
	not_stale(mem, BYTES, "after another library closed");
}
END_TEST

START_TEST(lease_stays_valid_while_its_neighbours_change)
{
	char *mem = raw_mmap_at(NULL, 3 * BYTES);
	struct regc_lease lease;
	int i;

	memset(mem, 1, 3 * BYTES);
	ck_assert_int_eq(regc_get(oracle.dom, mem + BYTES, BYTES, W, &lease), 0);
	for (i = 0; i < 200; i++) {
		enum road road = (enum road)(i % N_ROADS);
		char *side = i & 4 ? mem : mem + 2 * BYTES;

		road_unmap(road, side, BYTES);
		road_map_at(road, side, BYTES, i);
		not_stale(side, BYTES, road_names[road]);
		WAIT_FOR(regc_lease_ok(&lease), 5);
		memset(mem + BYTES, i, PAGE);
		ck_assert(oracle_agrees(&oracle, &lease, mem + BYTES, BYTES));
	}
	regc_put(&lease);
}
END_TEST

static void *interrupt_broker(void *arg)
{
	(void)arg;
	while (!stopped()) {
		kill(broker.pid, SIGSTOP);
		sched_yield();
		kill(broker.pid, SIGCONT);
		test_pause();
	}
	kill(broker.pid, SIGCONT);
	return NULL;
}

START_TEST(broker_that_is_interrupted_all_the_time_reads_every_event)
{
	char *mem = raw_mmap_at(NULL, BYTES);
	pthread_t t;
	int i;

	start(&t, interrupt_broker, NULL);
	for (i = 0; i < 300; i++) {
		memset(mem, i, BYTES);
		not_stale(mem, BYTES, "interrupted broker");
		raw_munmap(mem, BYTES);
		ck_assert_ptr_eq(raw_mmap_at(mem, BYTES), mem);
	}
	finish(t);
}
END_TEST

START_TEST(broker_that_logs_everything_does_not_hang)
{
	static const char *const debug[] = { "log.level=debug", NULL };
	char *mem = test_map(BYTES, 1);
	struct regc_lease lease;
	int null = dup(2);

	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
	broker_kill(&broker);
	broker_restart(&broker, debug);
	dup2(null, 2);
	EACH_ROAD(road) {
		memset(mem, 1, BYTES);
		ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, W, &lease), 0);
		regc_put(&lease);
		road_unmap(road, mem, BYTES);
		road_map_at(road, mem, BYTES, 2);
		not_stale(mem, BYTES, road_names[road]);
	}
}
END_TEST

static void as_nobody(void *arg)
{
	char *mem;

	(void)arg;
	stale_open(is_strict() ? REGC_MODE_STRICT : REGC_MODE_FAST);
	mem = test_map(BYTES, 1);
	cached(mem, BYTES);
	raw_munmap(mem, BYTES);
	raw_mmap_at(mem, BYTES);
	not_stale(mem, BYTES, "without privilege");
	/* Not user-mode-only: the kernel may write to what is watched. */
	cached(mem, BYTES);
	ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
	not_stale(mem, BYTES, "without privilege");
}

START_TEST(user_without_privilege_is_tracked)
{
	int status;
	pid_t pid;

	if (getuid())
		SKIP("this user has none");
	chmod(broker.dir, 0755);
	chmod(broker.socket, 0666);
	pid = fork();
	if (pid == 0) {
		if (setresgid(65534, 65534, 65534) ||
		    setresuid(65534, 65534, 65534))
			_exit(1);
		as_nobody(NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- I: overlap and access ---------------------------------------------- */

START_TEST(overlapping_access_is_kept_apart)
{
	char *mem = test_map(3 * PAGE, 1);
	struct regc_lease r, w, both;

	ck_assert_int_eq(regc_get(fake_dom, mem, 2 * PAGE, 0, &r), 0);
	ck_assert_int_eq(regc_get(fake_dom, mem + PAGE, 2 * PAGE, W, &w), 0);
	ck_assert_int_eq(regc_get(fake_dom, mem, 3 * PAGE, W, &both), 0);
	ck_assert_uint_eq(fake.last_access, W);
	ck_assert_uint_eq(fake.last_len, 3 * PAGE);
	ck_assert_int_eq(regc_lease_ok(&r), 1);
	ck_assert_int_eq(regc_lease_ok(&w), 0); /* replaced by the union */
	regc_put(&r);
	regc_put(&w);
	regc_put(&both);
	get_put(fake_dom, mem + PAGE, PAGE);
	WAIT_FOR(rtab_load_acquire(&fake.live) == 2, 5);
}
END_TEST

static char *overlap;

static void *get_overlapping(void *arg)
{
	size_t from = (size_t)(uintptr_t)arg;
	struct regc_lease a, b;
	int i;

	for (i = 0; i < 2000; i++) {
		ck_assert_int_eq(regc_get(fake_dom, overlap + from * PAGE,
					  3 * PAGE, W, &a), 0);
		ck_assert_int_eq(regc_get(fake_dom, overlap + (i % 5) * PAGE,
					  PAGE, W, &b), 0);
		if (i & 1) {
			regc_put(&a);
			regc_put(&b);
		} else {
			regc_put(&b);
			regc_put(&a);
		}
		if (i % 50 == 0)
			regc_invalidate(lib, overlap + 2 * PAGE, PAGE);
	}
	return NULL;
}

START_TEST(overlapping_gets_of_three_threads_leave_one_region)
{
	pthread_t t[3];
	uintptr_t i;

	overlap = test_map(5 * PAGE, 1);
	for (i = 0; i < 3; i++)
		start(&t[i], get_overlapping, (void *)i);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	get_put(fake_dom, overlap, 5 * PAGE);
	WAIT_FOR(rtab_load_acquire(&fake.live) == 1, 5);
	ck_assert_uint_eq(stats_now().regions, 1);
	/* Nobody holds it any more. */
	ck_assert_int_eq(regc_invalidate(lib, overlap, 1), 0);
	WAIT_FOR(rtab_load_acquire(&fake.live) == 0, 5);
}
END_TEST

START_TEST(region_inside_another_goes_alone)
{
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease outer;

	ck_assert_int_eq(regc_get(fake_dom, mem, 4 * PAGE, 0, &outer), 0);
	get_put(fake_dom, mem + PAGE, PAGE);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 2);
	/* Full: the one that nobody holds is evicted, the one around it stays. */
	fake.max_live = 2;
	get_put(fake_dom, test_map(PAGE, 1), PAGE);
	ck_assert_int_eq(regc_query(fake_dom, mem, 4 * PAGE, 0), 1);
	ck_assert_int_eq(regc_query(fake_dom, mem + PAGE, PAGE, W), 0);
	ck_assert_int_eq(regc_lease_ok(&outer), 1);
	regc_put(&outer);
}
END_TEST

START_TEST(each_device_has_its_own_key)
{
	static struct fake second;
	struct regc_domain *dom;
	char *mem = test_map(PAGE, 1);
	struct regc_lease a, b;

	ck_assert_int_eq(regc_domain_custom(lib, &fake_ops, &second, &dom), 0);
	get_put(fake_dom, test_map(PAGE, 1), PAGE);
	ck_assert_int_eq(regc_get(fake_dom, mem, PAGE, W, &a), 0);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &b), 0);
	ck_assert_uint_eq(rtab_load_acquire(&second.live), 1);
	ck_assert_uint_eq(rtab_load_acquire(&fake.live), 2);
	ck_assert_uint_eq(a.lkey, 1);
	ck_assert_uint_eq(b.lkey, 0);
	regc_put(&a);
	regc_put(&b);
}
END_TEST

static void few_rights(void *ctx, struct regc_device_limits *ret)
{
	(void)ctx;
	ret->access = REGC_ACCESS_LOCAL_WRITE | REGC_ACCESS_REMOTE_READ;
}

START_TEST(access_that_a_device_lacks_is_never_asked_for)
{
	struct regc_device_ops ops = fake_ops;
	static struct fake poor;
	struct regc_domain *dom;
	char *mem = test_map(PAGE, 1);
	struct regc_lease lease;

	ops.limits = few_rights;
	ck_assert_int_eq(regc_domain_custom(lib, &ops, &poor, &dom), 0);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, REGC_ACCESS_REMOTE_ATOMIC,
				  &lease), -EOPNOTSUPP);
	ck_assert_uint_eq(rtab_load_acquire(&poor.regs), 0);
	get_put(dom, mem, PAGE);
	ck_assert_uint_eq(poor.last_access, W);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, lock_of_a_foreign_hook_and_of_a_device_make_no_cycle);
	tcase_add_test(tc, heap_given_back_is_undone_outside_the_allocator);
	tcase_add_test(tc,
		       device_that_frees_while_the_broker_is_stopped_does_not_hang);
	tcase_add_test(tc, fork_from_a_signal_handler_leaves_a_child_that_ends);
	tcase_add_test(tc, eviction_and_unmapping_at_once_do_not_hang);
	tcase_add_test(tc, what_is_void_contains_what_was_unmapped);
	tcase_add_test(tc, closing_one_library_leaves_the_others_their_events);
	tcase_add_test(tc, opening_a_domain_that_another_thread_closes_succeeds);
	tcase_add_test(tc, lease_stays_valid_while_its_neighbours_change);
	tcase_add_test(tc,
		       broker_that_is_interrupted_all_the_time_reads_every_event);
	tcase_add_test(tc, broker_that_logs_everything_does_not_hang);
	tcase_add_test(tc, user_without_privilege_is_tracked);
	tcase_add_test(tc, overlapping_access_is_kept_apart);
	tcase_add_test(tc, overlapping_gets_of_three_threads_leave_one_region);
	tcase_add_test(tc, region_inside_another_goes_alone);
	tcase_add_test(tc, each_device_has_its_own_key);
	tcase_add_test(tc, access_that_a_device_lacks_is_never_asked_for);
}

int main(void)
{
	Suite *s = stale_suite("faults", add, 60);
	TCase *fire = tcase_create("under fire");

	tcase_set_timeout(fire, 60);
	tcase_add_loop_test(fire, hooks_are_placed_under_running_threads, 0, 8);
	/* There are no hooks under ThreadSanitizer. */
	if (!RTAB_TSAN)
		suite_add_tcase(s, fire);
	return stale_run(s);
}
