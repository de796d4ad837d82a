/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers of the transfer rows: bare userfaultfd and memcpy(3). */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/transfer.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define LIMIT_MS 5000

static struct bench_pool pool, target;
static int uffd;

static int protect(void *addr, size_t len, uint64_t mode)
{
	struct uffdio_writeprotect arg = { .mode = mode };

	arg.range.start = (uintptr_t)addr;
	arg.range.len = len;
	return ioctl(uffd, UFFDIO_WRITEPROTECT, &arg) < 0 ? -errno : 0;
}

static int watch_setup(struct bench_worker *w)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };
	int err = bench_pool_new(w, &pool);

	if (err)
		return err;
	uffd = (int)syscall(SYS_userfaultfd,
			    O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	reg.range.start = (uintptr_t)pool.mem;
	reg.range.len = pool.bytes;
	if (uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0 &&
	    ioctl(uffd, UFFDIO_REGISTER, &reg) == 0)
		return 0;
	bench_why(w, -errno, "userfaultfd");
	return -ENOSYS;
}

/* ---- the pair of calls ---------------------------------------------------- */

static int pair(struct bench_worker *w)
{
	void *addr = bench_pool_next(&pool);
	int err = protect(addr, pool.each, UFFDIO_WRITEPROTECT_MODE_WP);

	(void)w;
	return err ? err : protect(addr, pool.each, 0);
}

static int pair_run(struct bench_worker *w, double *ret_ns)
{
	return bench_op_run(w, pair, ret_ns);
}

const struct bench_side bench_bare_arm = {
	.name = "bare ioctl pair", .setup = watch_setup, .run = pair_run,
};

/* ---- copying -------------------------------------------------------------- */

static int copy_setup(struct bench_worker *w)
{
	int err = bench_pool_new(w, &pool);

	return err ? err : bench_pool_new(w, &target);
}

static int copy(struct bench_worker *w)
{
	(void)w;
	memcpy(bench_pool_next(&target), bench_pool_next(&pool), pool.each);
	return 0;
}

static int copy_run(struct bench_worker *w, double *ret_ns)
{
	return bench_op_run(w, copy, ret_ns);
}

const struct bench_side bench_memcpy = {
	.name = "memcpy", .setup = copy_setup, .run = copy_run,
};

/* ---- a store that conflicts ------------------------------------------------ */

static struct bench_writer writer;

static int await_fault(void)
{
	struct pollfd p = { .fd = uffd, .events = POLLIN };
	struct uffd_msg msg;

	if (poll(&p, 1, LIMIT_MS) != 1)
		return -ETIMEDOUT;
	if (read(uffd, &msg, sizeof(msg)) != (ssize_t)sizeof(msg))
		return -errno;
	return msg.event == UFFD_EVENT_PAGEFAULT ? 0 : -EIO;
}

/* A thread that reads events and opens the page. */
static void *serve(void *arg)
{
	(void)arg;
	bench_pin(0);
	for (;;)
		if (!await_fault())
			protect(pool.mem, pool.each, 0);
	return NULL;
}

static int served_setup(struct bench_worker *w)
{
	pthread_t thread;
	int err = watch_setup(w);

	return err ? err : -pthread_create(&thread, NULL, serve, NULL);
}

static int served_one(struct bench_worker *w, double *ret_ns)
{
	int err = protect(pool.mem, pool.each, UFFDIO_WRITEPROTECT_MODE_WP);
	double start = bench_now_ns();

	(void)w;
	*(volatile unsigned char *)pool.mem += 1;
	*ret_ns = bench_now_ns() - start;
	return err;
}

static int served_run(struct bench_worker *w, double *ret_ns)
{
	return bench_timed_run(w, served_one, ret_ns);
}

static int wake_setup(struct bench_worker *w)
{
	int err = watch_setup(w);

	return err ? err : bench_writer_start(&writer, pool.mem);
}

static int wake_one(struct bench_worker *w, double *ret_ns)
{
	int err = protect(pool.mem, pool.each, UFFDIO_WRITEPROTECT_MODE_WP);
	double start;

	(void)w;
	if (err)
		return err;
	bench_writer_tell(&writer);
	err = await_fault();
	start = bench_now_ns();
	if (!err)
		err = protect(pool.mem, pool.each, 0);
	if (!err)
		err = bench_writer_wait(&writer);
	*ret_ns = writer.done_ns - start;
	return err;
}

static int wake_run(struct bench_worker *w, double *ret_ns)
{
	return bench_timed_run(w, wake_one, ret_ns);
}

const struct bench_side bench_bare_fault = {
	.name = "a thread that reads", .setup = served_setup, .run = served_run,
};
const struct bench_side bench_bare_wake = {
	.name = "bare ioctl", .setup = wake_setup, .run = wake_run,
};
