/* SPDX-License-Identifier: BSD-2-Clause */
/* userfaultfd: what transfers rely on (shm/transfer.h, libregc/guard.c, copy.c). */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/kernel/kernel.h"

#define N_PAGES ((size_t)8)
#define LEN (N_PAGES * PAGE)
#define WP UFFDIO_REGISTER_MODE_WP

static int open_with(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int watch(int fd, void *mem, uint64_t mode)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)mem, LEN }, .mode = mode,
	};

	return ioctl(fd, UFFDIO_REGISTER, &reg) < 0 ? errno : 0;
}

static int protect(int fd, void *mem, size_t len, uint64_t mode)
{
	struct uffdio_writeprotect wp = {
		.range = { (uintptr_t)mem, len }, .mode = mode,
	};

	return ioctl(fd, UFFDIO_WRITEPROTECT, &wp) < 0 ? errno : 0;
}

static struct uffd_msg next_event(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct uffd_msg msg;

	ck_assert_int_eq(poll(&p, 1, LIMIT_MS), 1);
	ck_assert_int_eq(read(fd, &msg, sizeof(msg)), (int)sizeof(msg));
	return msg;
}

static void wake(int fd, void *mem, size_t len)
{
	struct uffdio_range range = { (uintptr_t)mem, len };

	ck_assert_int_eq(ioctl(fd, UFFDIO_WAKE, &range), 0);
}

static void do_store(void *at)
{
	*(volatile char *)at = 2;
}

static void do_load(void *at)
{
	(void)*(volatile char *)at;
}

static unsigned char *closed_pages(int fd)
{
	unsigned char *mem = kernel_map(N_PAGES);

	memset(mem, 1, LEN);
	ck_assert_int_eq(watch(fd, mem, WP), 0);
	ck_assert_int_eq(protect(fd, mem, LEN, UFFDIO_WRITEPROTECT_MODE_WP), 0);
	return mem;
}

START_TEST(event_names_thread_and_address_where_asked)
{
	int fd = open_with(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_THREAD_ID |
			   UFFD_FEATURE_EXACT_ADDRESS);
	struct kernel_thread t;
	struct uffd_msg msg;
	unsigned char *mem;

	if (!kernel_need("uffd-full", fd >= 0, "userfaultfd with its features"))
		return;
	mem = closed_pages(fd);
	kernel_thread_start(&t, do_store, mem + PAGE + 5);
	kernel_thread_go(&t);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
	ck_assert(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
	ck_assert_uint_eq(msg.arg.pagefault.address, (uintptr_t)mem + PAGE + 5);
	ck_assert_uint_eq(msg.arg.pagefault.feat.ptid, (uint32_t)t.tid);
	/* Woken without being opened it faults again: its event comes again. */
	wake(fd, mem + PAGE, PAGE);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
	ck_assert_int_eq(protect(fd, mem, LEN, 0), 0);
	kernel_thread_join(&t);
	ck_assert_int_eq(mem[PAGE + 5], 2);
}
END_TEST

/* So a hook that takes the range out of the watch has to wake as well. */
START_TEST(unregistering_does_not_wake_who_waits_for_a_write)
{
	int fd = open_with(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	struct uffdio_range range;
	struct kernel_thread t;
	unsigned char *mem;

	if (!kernel_need("uffd-full", fd >= 0, "userfaultfd"))
		return;
	mem = closed_pages(fd);
	kernel_thread_start(&t, do_store, mem);
	kernel_thread_go(&t);
	next_event(fd);
	range.start = (uintptr_t)mem;
	range.len = LEN;
	ck_assert_int_eq(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
	ck_assert(kernel_thread_sleeps(&t));
	wake(fd, mem, PAGE);
	kernel_thread_join(&t);
}
END_TEST

START_TEST(pages_taken_out_of_a_memfd_mapping_make_every_access_wait)
{
	int fd = open_with(UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	struct uffdio_continue c = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	unsigned char *mem;
	int memfd;

	if (!kernel_need("uffd-minor", fd >= 0, "minor faults of memfd memory"))
		return;
	memfd = memfd_create("minor", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(memfd, (off_t)LEN), 0);
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		   memfd, 0);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem, 1, LEN);
	ck_assert_int_eq(watch(fd, mem, UFFDIO_REGISTER_MODE_MINOR | WP), 0);
	/* Asking for WP alone afterwards takes MINOR away from nobody. */
	ck_assert_int_eq(watch(fd, mem, WP), 0);
	ck_assert_int_eq(madvise(mem, LEN, MADV_DONTNEED), 0);
	kernel_thread_start(&t, do_load, mem + PAGE);
	kernel_thread_go(&t);
	msg = next_event(fd);
	ck_assert(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_MINOR);
	c.range.start = (uintptr_t)mem;
	c.range.len = LEN;
	ck_assert_int_eq(ioctl(fd, UFFDIO_CONTINUE, &c), 0);
	kernel_thread_join(&t);
	ck_assert_int_eq(mem[LEN - 1], 1); /* the bytes were there all the time */
	close(memfd);
}
END_TEST

/* E13 of the list of faults: a discarded page is open. */
START_TEST(discarding_takes_the_protection_along)
{
	int fd = open_with(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	unsigned char *mem;

	if (!kernel_need("uffd-full", fd >= 0, "userfaultfd"))
		return;
	mem = closed_pages(fd);
	ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
	mem[0] = 2;
	ck_assert_int_eq(mem[0], 2);
}
END_TEST

START_TEST(copy_puts_a_page_back_open_and_wakes)
{
	int fd = open_with(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	static char page[4096] __attribute__((aligned(4096)));
	struct uffdio_copy copy = { 0 };
	struct kernel_thread t;
	unsigned char *mem;

	if (!kernel_need("uffd-full", fd >= 0, "userfaultfd"))
		return;
	mem = closed_pages(fd);
	kernel_thread_start(&t, do_store, mem + 1);
	kernel_thread_go(&t);
	next_event(fd);
	ck_assert_int_eq(watch(fd, mem, WP | UFFDIO_REGISTER_MODE_MISSING), 0);
	memcpy(page, mem, PAGE);
	ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
	copy.dst = (uintptr_t)mem;
	copy.src = (uintptr_t)page;
	copy.len = PAGE;
	ck_assert_int_eq(ioctl(fd, UFFDIO_COPY, &copy), 0);
	kernel_thread_join(&t);
	ck_assert_int_eq(mem[0], 1);
	ck_assert_int_eq(mem[1], 2);
}
END_TEST

/* So: register first, protect second, and lease before a transfer begins. */
START_TEST(pinning_for_a_write_waits_at_a_closed_page)
{
	int fd = open_with(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
	struct io_uring ring;
	struct iovec iov;
	struct uffd_msg msg;
	pid_t pid;

	if (!kernel_need("uffd-full", fd >= 0, "userfaultfd") ||
	    !kernel_need("uring", io_uring_queue_init(2, &ring, 0) == 0, "io_uring"))
		return;
	iov.iov_base = closed_pages(fd);
	iov.iov_len = LEN;
	/* The opener is another process, so that a wait shows as one. */
	pid = fork();
	if (pid == 0) {
		alarm(LIMIT_MS / 1000);
		msg = next_event(fd);
		_exit(msg.event != UFFD_EVENT_PAGEFAULT ||
		      protect(fd, iov.iov_base, LEN, 0));
	}
	ck_assert_int_eq(io_uring_register_buffers(&ring, &iov, 1), 0);
	io_uring_queue_exit(&ring);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("protect");
	TCase *tc = tcase_create("protect");

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, event_names_thread_and_address_where_asked);
	tcase_add_test(tc, unregistering_does_not_wake_who_waits_for_a_write);
	tcase_add_test(tc, pages_taken_out_of_a_memfd_mapping_make_every_access_wait);
	tcase_add_test(tc, discarding_takes_the_protection_along);
	tcase_add_test(tc, copy_puts_a_page_back_open_and_wakes);
	tcase_add_test(tc, pinning_for_a_write_waits_at_a_closed_page);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return kernel_main(suite());
}
