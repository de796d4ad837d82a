/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io_uring fixed buffers: they behave like an RDMA registration.
 *
 * The first tests are the oracle of law L1: what the device moved is compared
 * with what the CPU sees.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kernel/kernel.h"

/* Kernel 6.12; newer than many installed headers. */
#define REGISTER_CLONE_BUFFERS 30
#define CLONE_DST_REPLACE (1U << 1)

struct clone_buffers {
	uint32_t src_fd;
	uint32_t flags;
	uint32_t src_off;
	uint32_t dst_off;
	uint32_t nr;
	uint32_t pad[3];
};

#define N_SLOTS 8U
#define LEN (16 * PAGE)

static bool ring_new(struct io_uring *ring, unsigned int flags)
{
	int err = io_uring_queue_init(8, ring, flags);

	if (!err)
		err = io_uring_register_buffers_sparse(ring, N_SLOTS);
	return kernel_need("uring", !err, strerror(-err));
}

static int update(struct io_uring *ring, unsigned int slot, void *addr, size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(ring, slot, &iov, &tag, 1);

	return ret < 0 ? ret : 0;
}

static int file_new(void)
{
	int fd = memfd_create("check", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)LEN), 0);
	return fd;
}

/* One fixed write (or read) of a page; result of the completion. */
static int move_page(struct io_uring *ring, bool write, int file, void *addr,
		     int slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int res;

	if (write)
		io_uring_prep_write_fixed(sqe, file, addr, PAGE, 0, slot);
	else
		io_uring_prep_read_fixed(sqe, file, addr, PAGE, 0, slot);
	ck_assert_int_eq(io_uring_submit(ring), 1);
	ck_assert_int_eq(io_uring_wait_cqe(ring, &cqe), 0);
	res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

/* First byte that a fixed write of addr moves; -1 if it fails. */
static int sent_byte(struct io_uring *ring, void *addr, int slot)
{
	int file = file_new();
	unsigned char byte;

	if (move_page(ring, true, file, addr, slot) != (int)PAGE)
		return -1;
	ck_assert_int_eq(pread(file, &byte, 1, 0), 1);
	close(file);
	return byte;
}

static unsigned char *remap(unsigned char *p, int fill)
{
	ck_assert_int_eq(munmap(p, LEN), 0);
	ck_assert(mmap(p, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		       0) == p);
	memset(p, fill, LEN);
	return p;
}

START_TEST(fixed_write_sends_the_old_page_after_a_remap)
{
	struct io_uring ring;
	unsigned char *p;

	if (!ring_new(&ring, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	ck_assert_int_eq(update(&ring, 0, p, LEN), 0);
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'o');
	p[0] = 'O';
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'O');
	remap(p, 'n');
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'O');
	ck_assert_int_eq(update(&ring, 0, p, LEN), 0);
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'n');
}
END_TEST

START_TEST(fixed_read_is_lost_after_a_remap)
{
	struct io_uring ring;
	unsigned char *p;
	int file;

	if (!ring_new(&ring, 0))
		return;
	file = file_new();
	ck_assert_int_eq(pwrite(file, "f", 1, 0), 1);
	p = kernel_map(LEN / PAGE);
	ck_assert_int_eq(update(&ring, 0, p, LEN), 0);
	remap(p, 'n');
	ck_assert_int_eq(move_page(&ring, false, file, p, 0), (int)PAGE);
	ck_assert_int_eq(p[0], 'n');
}
END_TEST

START_TEST(dontneed_makes_it_stale_too)
{
	struct io_uring ring;
	unsigned char *p;

	if (!ring_new(&ring, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	ck_assert_int_eq(update(&ring, 0, p, LEN), 0);
	ck_assert_int_eq(madvise(p, LEN, MADV_DONTNEED), 0);
	memset(p, 'n', LEN);
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'o');
}
END_TEST

START_TEST(read_only_memory_and_holes_are_refused)
{
	struct io_uring ring;
	unsigned char *p;

	if (!ring_new(&ring, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 1, LEN);
	ck_assert_int_eq(mprotect(p, LEN, PROT_READ), 0);
	ck_assert_int_eq(update(&ring, 0, p, LEN), -EFAULT);
	ck_assert_int_eq(mprotect(p, LEN, PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(munmap(p + 4 * PAGE, PAGE), 0);
	ck_assert_int_eq(update(&ring, 0, p, LEN), -EFAULT);
	ck_assert_int_eq(update(&ring, 0, p + 4 * PAGE, PAGE), -EFAULT);
	/* What is there still works. */
	ck_assert_int_eq(update(&ring, 0, p, 4 * PAGE), 0);
}
END_TEST

START_TEST(pin_follows_the_parent_across_fork)
{
	struct io_uring ring;
	unsigned char *p;
	int status;
	pid_t pid;

	if (!ring_new(&ring, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	ck_assert_int_eq(update(&ring, 0, p, LEN), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		memset(p, 'c', LEN);
		_exit(0);
	}
	p[0] = 'p'; /* before the child is gone or after: both stay ours */
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'p');
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	p[0] = 'q';
	ck_assert_int_eq(sent_byte(&ring, p, 0), 'q');
}
END_TEST

/* ---- threads -------------------------------------------------------------- */

struct other {
	struct io_uring *ring;
	void *addr;
	int err;
};

static void do_update(void *arg)
{
	struct other *o = arg;

	o->err = update(o->ring, 0, o->addr, o->addr ? LEN : 0);
}

START_TEST(another_thread_may_update)
{
	struct kernel_thread t;
	struct io_uring ring;
	struct other o = { .ring = &ring };

	if (!ring_new(&ring, 0))
		return;
	o.addr = kernel_map(LEN / PAGE);
	kernel_thread_start(&t, do_update, &o);
	kernel_thread_go(&t);
	kernel_thread_join(&t);
	ck_assert_int_eq(o.err, 0);
}
END_TEST

START_TEST(single_issuer_ring_refuses_another_thread)
{
	struct kernel_thread t;
	struct io_uring ring;
	struct other o = { .ring = &ring };

	if (!ring_new(&ring, IORING_SETUP_SINGLE_ISSUER))
		return;
	o.addr = kernel_map(LEN / PAGE);
	ck_assert_int_eq(update(&ring, 0, o.addr, LEN), 0);
	o.addr = NULL;
	kernel_thread_start(&t, do_update, &o);
	kernel_thread_go(&t);
	kernel_thread_join(&t);
	ck_assert_int_eq(o.err, -EEXIST);
	ck_assert_int_eq(update(&ring, 0, NULL, 0), 0);
}
END_TEST

/* ---- clones --------------------------------------------------------------- */

static int clone_into(struct io_uring *dst, struct io_uring *src,
		      unsigned int flags, unsigned int src_off,
		      unsigned int dst_off, unsigned int nr)
{
	struct clone_buffers arg = { .src_fd = (uint32_t)src->ring_fd,
				     .flags = flags, .src_off = src_off,
				     .dst_off = dst_off, .nr = nr };
	long ret = syscall(SYS_io_uring_register, dst->ring_fd,
			   REGISTER_CLONE_BUFFERS, &arg, 1);

	return ret < 0 ? -errno : 0;
}

/* False: the kernel has no clone. */
static bool clone_there(void)
{
	struct io_uring a, b;
	int err;

	if (io_uring_queue_init(8, &a, 0) || io_uring_queue_init(8, &b, 0))
		return kernel_need("uring-clone", false, "no io_uring");
	ck_assert_int_eq(io_uring_register_buffers_sparse(&a, N_SLOTS), 0);
	err = clone_into(&b, &a, 0, 0, 0, 0);
	io_uring_queue_exit(&a);
	io_uring_queue_exit(&b);
	return kernel_need("uring-clone", !err, strerror(-err));
}

START_TEST(clone_of_a_table_needs_an_empty_ring)
{
	struct io_uring a, b;
	unsigned char *p;

	if (!clone_there() || !ring_new(&a, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	ck_assert_int_eq(update(&a, 3, p, LEN), 0);
	ck_assert_int_eq(io_uring_queue_init(8, &b, 0), 0);
	ck_assert_int_eq(clone_into(&b, &a, 0, 0, 0, 0), 0);
	ck_assert_int_eq(sent_byte(&b, p, 3), 'o');
	ck_assert_int_eq(clone_into(&b, &a, 0, 0, 0, 0), -EBUSY);
}
END_TEST

/*
 * One buffer into a table that is in use: ranges and DST_REPLACE are newer than
 * the clone itself (6.13), and regc uses a clone only if this works.
 */
START_TEST(clone_of_one_buffer_keeps_the_others)
{
	struct io_uring a, b;
	unsigned char *p, *q;
	int err;

	if (!clone_there() || !ring_new(&a, 0) || !ring_new(&b, 0))
		return;
	p = kernel_map(LEN / PAGE);
	q = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	memset(q, 'q', LEN);
	ck_assert_int_eq(update(&a, 3, p, LEN), 0);
	ck_assert_int_eq(update(&b, 1, q, LEN), 0);
	err = clone_into(&b, &a, CLONE_DST_REPLACE, 3, 5, 1);
	if (!kernel_need("uring-clone-range", !err, strerror(-err)))
		return;
	ck_assert_int_eq(sent_byte(&b, p, 5), 'o');
	ck_assert_int_eq(sent_byte(&b, q, 1), 'q');
	/* It lives on without its source, and pins the same pages. */
	ck_assert_int_eq(update(&a, 3, NULL, 0), 0);
	ck_assert_int_eq(sent_byte(&b, p, 5), 'o');
	remap(p, 'n');
	ck_assert_int_eq(sent_byte(&b, p, 5), 'o');
	/* And is replaced and removed like any other. */
	ck_assert_int_eq(update(&b, 5, p, LEN), 0);
	ck_assert_int_eq(sent_byte(&b, p, 5), 'n');
	ck_assert_int_eq(update(&b, 5, NULL, 0), 0);
	ck_assert_int_eq(sent_byte(&b, p, 5), -1);
	ck_assert_int_eq(sent_byte(&b, q, 1), 'q');
}
END_TEST

START_TEST(clone_beyond_the_table_makes_it_larger)
{
	struct io_uring a, b;
	unsigned char *p;
	int err;

	if (!clone_there() || !ring_new(&a, 0) || !ring_new(&b, 0))
		return;
	p = kernel_map(LEN / PAGE);
	memset(p, 'o', LEN);
	ck_assert_int_eq(update(&a, 3, p, LEN), 0);
	err = clone_into(&b, &a, CLONE_DST_REPLACE, 3, N_SLOTS, 1);
	if (!kernel_need("uring-clone-range", !err, strerror(-err)))
		return;
	ck_assert_int_eq(sent_byte(&b, p, (int)N_SLOTS), 'o');
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: io_uring");
	TCase *t = tcase_create("buffers");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, fixed_write_sends_the_old_page_after_a_remap);
	tcase_add_test(t, fixed_read_is_lost_after_a_remap);
	tcase_add_test(t, dontneed_makes_it_stale_too);
	tcase_add_test(t, read_only_memory_and_holes_are_refused);
	tcase_add_test(t, pin_follows_the_parent_across_fork);
	tcase_add_test(t, another_thread_may_update);
	tcase_add_test(t, single_issuer_ring_refuses_another_thread);
	tcase_add_test(t, clone_of_a_table_needs_an_empty_ring);
	tcase_add_test(t, clone_of_one_buffer_keeps_the_others);
	tcase_add_test(t, clone_beyond_the_table_makes_it_larger);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
