/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 beside a rival in the same process: another userfaultfd on the same
 * memory, other hooks in the same functions, before and after regc.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libregc/runtime.h"
#include "tests/integration/stale.h"

#define BYTES (12 * PAGE)

static struct regc_status status_now(void)
{
	struct regc_status st = { .size = sizeof(st) };

	ck_assert_int_eq(regc_status(lib, &st), 0);
	return st;
}

static void only_broker(void)
{
	broker_start(&broker, NULL);
}

/* ---- another userfaultfd ------------------------------------------------ */

static int rival_uffd(void)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int claim(int fd, char *mem, size_t bytes)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)mem, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg) < 0 ? -errno : 0;
}

static void disclaim(int fd, char *mem, size_t bytes)
{
	struct uffdio_range range = { (uintptr_t)mem, bytes };

	ck_assert_int_eq(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
}

static void change_all_ways(char *mem)
{
	EACH_ROAD(road) {
		memset(mem, 1, BYTES);
		not_stale(mem, BYTES, "before");
		not_stale(mem, PAGE, "before");
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, mem, PAGE,
					   MADV_DONTNEED, 0, 0, 0), 0);
		not_stale(mem, BYTES, road_names[road]);
		not_stale(mem, PAGE, road_names[road]);
		road_unmap(road, mem + 4 * PAGE, 4 * PAGE);
		road_map_at(road, mem + 4 * PAGE, 4 * PAGE, 2);
		not_stale(mem, BYTES, road_names[road]);
		ck_assert_int_eq(ROAD_CALL(road, SYS_mmap, mem, BYTES,
					   PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
					   -1, 0), (long)mem);
		not_stale(mem, BYTES, road_names[road]);
	}
}

START_TEST(memory_that_another_userfaultfd_has_is_served_uncached)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease lease;
	int fd = rival_uffd();

	if (fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	ck_assert_int_eq(claim(fd, mem, BYTES), 0);
	ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, W, &lease), 0);
	ck_assert_ptr_nonnull(strstr(rt.area.area->monitor_note,
				     "another userfaultfd"));
	ck_assert_uint_eq(lease.flags, REGC_LEASE_UNCACHED);
	ck_assert(oracle_agrees(&oracle, &lease, mem, BYTES));
	regc_put(&lease);
	change_all_ways(mem);
	/* A free range again: cached again. */
	ck_assert_ptr_eq(mmap(mem, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	ck_assert_int_eq(claim(fd, mem, BYTES), 0);
	disclaim(fd, mem, BYTES);
	cached(mem, BYTES);
	close(fd);
}
END_TEST

START_TEST(part_that_another_userfaultfd_has_is_not_trusted)
{
	char *mem = test_map(BYTES, 1);
	int fd = rival_uffd();

	if (fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	ck_assert_int_eq(claim(fd, mem + 4 * PAGE, 4 * PAGE), 0);
	not_stale(mem, BYTES, "part of it");
	ck_assert(!is_cached(mem, BYTES));
	ck_assert(!is_cached(mem + 5 * PAGE, PAGE));
	cached(mem, 4 * PAGE);
	change_all_ways(mem);
	close(fd);
}
END_TEST

START_TEST(other_userfaultfd_that_comes_later_changes_nothing)
{
	char *mem = test_map(BYTES, 1);
	int fd = rival_uffd();

	if (fd < 0)
		SKIP("no userfaultfd: %s", strerror(errno));
	cached(mem, BYTES);
	ck_assert_int_eq(claim(fd, mem, BYTES), -EBUSY);
	ck_assert(is_cached(mem, BYTES));
	change_all_ways(mem);
	close(fd);
}
END_TEST

/* ---- other hooks -------------------------------------------------------- */

static void heap_and_blocks(void)
{
	char *mem = test_map(BYTES, 1);
	int i;

	change_all_ways(mem);
	munmap(mem, BYTES);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 4096);
	for (i = 0; i < 50; i++) {
		char *big = malloc(256 << 10), *small = malloc(64 << 10);

		memset(big, i, 256 << 10);
		memset(small, i + 1, 64 << 10);
		not_stale(big, 256 << 10, "malloc");
		not_stale(small, 64 << 10, "malloc");
		free(big);
		free(small);
		malloc_trim(0);
	}
	for (i = 0; i < 20; i++) {
		mem = sbrk((intptr_t)BYTES + PAGE);
		mem += -(uintptr_t)mem & (PAGE - 1);
		memset(mem, i, BYTES);
		not_stale(mem, BYTES, "sbrk");
		ck_assert_int_eq(brk(mem), 0);
	}
}

static unsigned long (*rival_calls)(void);

static bool rival_install(void)
{
	const char *build = getenv("REGC_BUILDDIR");
	int (*install)(void);
	char path[4096];
	void *handle;

	snprintf(path, sizeof(path), "%s/tests/integration/.libs/rival.so",
		 build ? build : "../..");
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return false;
	install = (int (*)(void))dlsym(handle, "rival_install");
	rival_calls = (unsigned long (*)(void))dlsym(handle, "rival_calls");
	return install && rival_calls && install() == 0;
}

/* Faults C1 and C2: the last one wins, and regc's hooks run no more. */
START_TEST(hooks_overwritten_by_a_rival_leave_it_right)
{
	char *mem = test_map(BYTES, 1);
	struct regc_status st;

	cached(mem, BYTES);
	if (!rival_install())
		SKIP("the rival cannot patch here");
	heap_and_blocks();
	ck_assert_uint_gt(rival_calls(), 0);
	/* It is found out, named, and every hit is verified from then on. */
	if (!is_strict()) {
		st = status_now();
		ck_assert_uint_eq(st.mode, REGC_MODE_STRICT);
		ck_assert_msg(strstr(st.why, "rival.so"), "why: %s", st.why);
		ck_assert_ptr_nonnull(strstr(rt.area.area->monitor_note,
					     "rival.so"));
	}
	not_stale(mem, BYTES, "cached before the rival came");
	munmap(mem, BYTES);
	road_map_at(ROAD_LIBC, mem, BYTES, 2);
	not_stale(mem, BYTES, "cached before the rival came");
}
END_TEST

START_TEST(rival_that_was_there_first_is_found_and_named)
{
	struct regc_open_attr attr = { .size = sizeof(attr),
				       .mode = REGC_MODE_AUTO };
	struct regc_status st;

	if (!rival_install())
		SKIP("the rival cannot patch here");
	ck_assert_int_eq(regc_open("rival", &attr, &lib), 0);
	st = status_now();
	ck_assert_msg(st.mode == REGC_MODE_STRICT && st.why[0], "mode %u: %s",
		      st.mode, st.why);
	printf("beside a rival: %s\n", st.why);
	if (!RTAB_TSAN) /* no hooks there, so nobody looked for a rival */
		ck_assert_ptr_nonnull(strstr(st.why, "rival.so"));
	oracle_open(&oracle, lib, 1024);
	heap_and_blocks();
	ck_assert_uint_gt(rival_calls(), 0);
}
END_TEST

/* ---- UCX ---------------------------------------------------------------- */

#define UCM_VM_MAPPED (1 << 16)
#define UCM_VM_UNMAPPED (1 << 17)

static unsigned int ucm_events;

static void on_ucm_event(int type, void *event, void *arg)
{
	(void)type;
	(void)event;
	(void)arg;
	rtab_fetch_add(&ucm_events, 1);
}

/* 1: events come, 0: it could not install its hooks, -1: it is not there. */
static int ucm_install(void)
{
	int (*set)(int, int, void (*)(int, void *, void *), void *);
	void *handle;

	dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);
	handle = dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
	if (!handle)
		return -1;
	set = (int (*)(int, int, void (*)(int, void *, void *), void *))dlsym(
		handle, "ucm_set_event_handler");
	ck_assert_ptr_nonnull(set);
	return set(UCM_VM_MAPPED | UCM_VM_UNMAPPED, 1000, on_ucm_event, NULL) ==
	       0;
}

START_TEST(ucx_hooks_that_come_later_leave_it_right)
{
	char *mem = test_map(BYTES, 1);
	int r;

	cached(mem, BYTES);
	r = ucm_install();
	if (r < 0)
		SKIP("no libucm");
	heap_and_blocks();
	printf("ucx after regc: hooks %s, %u events of its own\n",
	       r ? "installed" : "refused", ucm_events);
	not_stale(mem, BYTES, "cached before");
}
END_TEST

static void after_ucx(uint32_t mode)
{
	struct regc_open_attr attr = { .size = sizeof(attr), .mode = mode };
	struct regc_status st;

	if (ucm_install() < 0)
		SKIP("no libucm");
	ck_assert_int_eq(regc_open("rival", &attr, &lib), 0);
	st = status_now();
	ck_assert_msg(st.mode != REGC_MODE_OFF && st.why[0], "mode %u: %s",
		      st.mode, st.why);
	printf("ucx before regc: mode %u: %s\n", st.mode, st.why);
	oracle_open(&oracle, lib, 1024);
	heap_and_blocks();
	ck_assert_uint_gt(ucm_events, 0);
}

START_TEST(ucx_hooks_that_were_there_first_leave_it_right)
{
	after_ucx(_i ? REGC_MODE_STRICT : REGC_MODE_AUTO);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, memory_that_another_userfaultfd_has_is_served_uncached);
	tcase_add_test(tc, part_that_another_userfaultfd_has_is_not_trusted);
	tcase_add_test(tc, other_userfaultfd_that_comes_later_changes_nothing);
	tcase_add_test(tc, hooks_overwritten_by_a_rival_leave_it_right);
	tcase_add_test(tc, ucx_hooks_that_come_later_leave_it_right);
}

int main(void)
{
	Suite *s = stale_suite("rivals", add, 60);
	TCase *first = tcase_create("rival first");

	tcase_add_checked_fixture(first, only_broker, stale_teardown);
	tcase_set_timeout(first, 60);
	tcase_add_test(first, rival_that_was_there_first_is_found_and_named);
	tcase_add_loop_test(first, ucx_hooks_that_were_there_first_leave_it_right,
			    0, 2);
	suite_add_tcase(s, first);
	return stale_run(s);
}
