/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers without any cache: the bare probe, registration and system calls. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/miss.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define PROBE_MODE_INVALID (UINT64_C(1) << 63)

/* ---- the probe of strict mode ------------------------------------------- */

static int probe_loop(struct bench_worker *w, uint32_t thread, uint32_t *pos,
		      uint64_t rounds)
{
	struct uffdio_writeprotect arg = { .mode = PROBE_MODE_INVALID };
	int fd = *(int *)w->priv;
	uint64_t good = 0;

	(void)thread, (void)pos;
	arg.range.start = (uintptr_t)w->mem;
	arg.range.len = BENCH_REGION_BYTES;
	for (uint64_t i = 0; i < rounds; i++)
		good += ioctl(fd, UFFDIO_WRITEPROTECT, &arg) < 0 &&
			errno == EINVAL;
	return good == rounds ? 0 : -EIO;
}

static int probe_setup(struct bench_worker *w)
{
	static int fd;
	struct uffdio_api api = { .api = UFFD_API };
	int err;

	fd = (int)syscall(SYS_userfaultfd,
			  O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0) {
		bench_why(w, -errno, "userfaultfd");
		return -ENOSYS;
	}
	w->priv = &fd;
	err = bench_memory_new(w);
	return err ? err : bench_hit_calibrate(w, probe_loop);
}

static int probe_run(struct bench_worker *w, double *ret_ns)
{
	return bench_hit_run(w, probe_loop, ret_ns);
}

const struct bench_side bench_bare_probe = {
	.name = "bare probe ioctl",
	.setup = probe_setup,
	.run = probe_run,
};

/* ---- registration with an io_uring -------------------------------------- */

static int uring_update(struct io_uring *ring, unsigned int slot, void *addr,
			size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int ret = io_uring_register_buffers_update_tag(ring, slot, &iov, &tag, 1);

	return ret < 0 ? ret : 0;
}

static int uring_setup(struct bench_worker *w)
{
	static struct io_uring ring;
	int err = io_uring_queue_init(8, &ring, 0);

	if (!err)
		err = io_uring_register_buffers_sparse(&ring, BENCH_MISS_BUFFERS);
	if (err) {
		bench_why(w, err, "io_uring");
		return err;
	}
	w->priv = &ring;
	return 0;
}

static int uring_batch(struct bench_worker *w, double *ret_ns)
{
	unsigned char *mem = bench_miss_map();
	double start;
	int err = 0;

	if (!mem)
		return -ENOMEM;
	start = bench_now_ns();
	for (unsigned int i = 0; i < BENCH_MISS_BUFFERS && !err; i++)
		err = uring_update(w->priv, i, mem + i * BENCH_MISS_STRIDE,
				   BENCH_REGION_BYTES);
	*ret_ns += bench_now_ns() - start;
	for (unsigned int i = 0; i < BENCH_MISS_BUFFERS && !err; i++)
		err = uring_update(w->priv, i, NULL, 0);
	munmap(mem, BENCH_MISS_BYTES);
	return err;
}

static int uring_run(struct bench_worker *w, double *ret_ns)
{
	return bench_miss_run(w, uring_batch, ret_ns);
}

const struct bench_side bench_bare_uring = {
	.name = "bare registration",
	.setup = uring_setup,
	.run = uring_run,
};

/* ---- system calls without regc ------------------------------------------ */

static int no_setup(struct bench_worker *w)
{
	(void)w;
	return 0;
}

static int munmap_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MUNMAP, NULL, ret_ns);
}

static int mmap_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MMAP, NULL, ret_ns);
}

static int madvise_run(struct bench_worker *w, double *ret_ns)
{
	return bench_memory_run(w, BENCH_MADVISE, NULL, ret_ns);
}

const struct bench_side bench_bare_munmap = {
	.name = "without regc", .setup = no_setup, .run = munmap_run,
};
const struct bench_side bench_bare_mmap = {
	.name = "without regc", .setup = no_setup, .run = mmap_run,
};
const struct bench_side bench_bare_madvise = {
	.name = "without regc", .setup = no_setup, .run = madvise_run,
};
