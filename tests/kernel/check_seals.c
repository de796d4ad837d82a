/* SPDX-License-Identifier: BSD-2-Clause */
/* Seals of a memfd: what keeps the table out of the clients' reach. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/kernel/kernel.h"

#define LEN (16 * PAGE)

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* A memfd mapped writable and then sealed as the table is; -1: cannot. */
static int sealed_new(unsigned char **ret_mem)
{
	int fd = memfd_create("check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)LEN), 0);
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(p != MAP_FAILED);
	if (!kernel_need("seals",
			 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
							F_SEAL_FUTURE_WRITE |
							F_SEAL_SEAL) == 0,
			 "F_SEAL_FUTURE_WRITE is missing"))
		return -1;
	*ret_mem = p;
	return fd;
}

START_TEST(old_mapping_stays_writable)
{
	unsigned char *p, *view;
	int fd = sealed_new(&p);

	if (fd < 0)
		return;
	view = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(view != MAP_FAILED);
	p[LEN - 1] = 7;
	ck_assert_uint_eq(view[LEN - 1], 7);
}
END_TEST

START_TEST(nobody_gets_a_new_writable_mapping)
{
	unsigned char *p;
	void *view;
	int fd = sealed_new(&p), again;
	char path[64];

	if (fd < 0)
		return;
	ck_assert(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) ==
		  MAP_FAILED);
	ck_assert_int_eq(errno, EPERM);
	view = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(view != MAP_FAILED);
	ck_assert_int_lt(mprotect(view, LEN, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_lt(pwrite(fd, "x", 1, 0), 0);
	ck_assert_int_eq(errno, EPERM);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0)
		ck_assert(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED,
			       again, 0) == MAP_FAILED);
}
END_TEST

START_TEST(size_and_seals_are_fixed)
{
	unsigned char *p;
	int fd = sealed_new(&p);

	if (fd < 0)
		return;
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(ftruncate(fd, 2 * (off_t)LEN), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	ck_assert_int_eq(errno, EPERM);
}
END_TEST

/* So that pages can be made ready before anyone touches them. */
START_TEST(fallocate_still_makes_pages)
{
	unsigned char *p;
	int fd = sealed_new(&p);

	if (fd < 0)
		return;
	ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)LEN), 0);
	/* But not take them away from under the owner. */
	ck_assert_int_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE |
					       FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)LEN), 0);
	ck_assert_int_eq(errno, EPERM);
}
END_TEST

struct reader {
	unsigned char *view;
	uint32_t stop;
	uint64_t n;
};

static void do_read(void *arg)
{
	struct reader *r = arg;

	while (!rtab_load_relaxed(&r->stop)) {
		(void)*(volatile unsigned char *)r->view; /* must not fault */
		r->n++;
	}
}

/* A client that changes its broker maps the new table over the old one. */
START_TEST(fixed_mapping_replaces_at_once)
{
	unsigned char *one, *two;
	struct kernel_thread t;
	struct reader r = { 0 };
	int a = sealed_new(&one), b;

	if (a < 0)
		return;
	b = sealed_new(&two);
	ck_assert_int_ge(b, 0);
	one[0] = 1;
	two[0] = 2;
	r.view = mmap(NULL, LEN, PROT_READ, MAP_SHARED, a, 0);
	ck_assert(r.view != MAP_FAILED);
	kernel_thread_start(&t, do_read, &r);
	kernel_thread_go(&t);
	for (int i = 1; i <= 2001; i++) {
		/* Raw: to ThreadSanitizer mmap() writes what it maps. */
		ck_assert(syscall(SYS_mmap, r.view, LEN, PROT_READ,
				  MAP_SHARED | MAP_FIXED, i % 2 ? b : a,
				  0L) == (long)r.view);
		ck_assert_uint_eq(r.view[0], i % 2 ? 2 : 1);
	}
	rtab_store_release(&r.stop, 1);
	kernel_thread_join(&t);
	ck_assert_uint_gt(r.n, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: seals");
	TCase *t = tcase_create("seals");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, old_mapping_stays_writable);
	tcase_add_test(t, nobody_gets_a_new_writable_mapping);
	tcase_add_test(t, size_and_seals_are_fixed);
	tcase_add_test(t, fallocate_still_makes_pages);
	tcase_add_test(t, fixed_mapping_replaces_at_once);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
