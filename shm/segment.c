/* SPDX-License-Identifier: BSD-2-Clause */
/* Memfds, raw mapping calls and the heavy fence. */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/base.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/*
 * The kernel returns errors as -1 .. -4095.  syscall(3) would do, but it sets
 * errno, which a hook must keep.
 */
static long raw(long nr, long a, long b, long c, long d, long e, long f)
{
	int saved = errno;
	long r = syscall(nr, a, b, c, d, e, f);

	if (r == -1)
		r = -errno;
	errno = saved;
	return r;
}

/*
 * ThreadSanitizer has to see that an address is new memory, or nobody's, or it
 * takes whoever had it before for a racing thread.  There are no hooks under it.
 */
static long seen_mmap(uint64_t bytes, int prot, int flags, int fd, uint64_t offset)
{
	int saved = errno;
	void *mem = mmap(NULL, bytes, prot, flags, fd, (off_t)offset);
	long r = mem == MAP_FAILED ? -errno : (long)mem;

	errno = saved;
	return r;
}

static int seen_munmap(void *addr, uint64_t bytes)
{
	int saved = errno, r = munmap(addr, bytes) < 0 ? -errno : 0;

	errno = saved;
	return r;
}

void *rtab_raw_mmap(void *addr, uint64_t bytes, int prot, int flags, int fd,
		    uint64_t offset, int *ret_err)
{
	long r;

	if (RTAB_TSAN && !addr)
		r = seen_mmap(bytes, prot, flags, fd, offset);
	else
		r = raw(SYS_mmap, (long)addr, (long)bytes, prot, flags, fd,
			(long)offset);
	if (r < 0 && r > -4096) {
		if (ret_err)
			*ret_err = (int)r;
		return NULL;
	}
	return (void *)r;
}

int rtab_raw_munmap(void *addr, uint64_t bytes)
{
	if (RTAB_TSAN)
		return seen_munmap(addr, bytes);
	return (int)raw(SYS_munmap, (long)addr, (long)bytes, 0, 0, 0, 0);
}

int rtab_raw_madvise(void *addr, uint64_t bytes, int advice)
{
	return (int)raw(SYS_madvise, (long)addr, (long)bytes, advice, 0, 0, 0);
}

static int memfd_new(const char *name)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* before kernel 6.3 */
		fd = memfd_create(name, flags);
	return fd < 0 ? -errno : fd;
}

int rtab_segment_new(const char *name, uint64_t bytes, bool read_only_later,
		     int *ret_fd, void **ret_mem)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	struct rlimit limit;
	void *mem = NULL;
	int fd, r = 0;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
		return -EFBIG; /* ftruncate would raise SIGXFSZ */
	fd = memfd_new(name);
	if (fd < 0)
		return fd;
	if (ftruncate(fd, (off_t)bytes) < 0) {
		r = -errno;
		goto err_close;
	}
	mem = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_NORESERVE, fd, 0, &r);
	if (!mem)
		goto err_close;
	if (read_only_later)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) < 0) {
		r = -errno;
		goto err_unmap;
	}
	*ret_fd = fd;
	*ret_mem = mem;
	return 0;

err_unmap:
	rtab_raw_munmap(mem, bytes);
err_close:
	close(fd);
	return r;
}

int rtab_segment_check(int fd, uint64_t bytes, uint64_t min_bytes,
		       uint64_t *ret_bytes)
{
	int want = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & want) != want || fstat(fd, &st) < 0)
		return -EPROTO;
	if (st.st_size < 0 || (uint64_t)st.st_size < min_bytes)
		return -EPROTO;
	if (bytes && (uint64_t)st.st_size != bytes)
		return -EPROTO;
	if (ret_bytes)
		*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int rtab_heavy_fence_init(void)
{
	return (int)raw(SYS_membarrier,
			MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
}

bool rtab_heavy_fence(void)
{
	long r;

	rtab_fence_full();
	r = raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0);
	rtab_fence_full();
	return r == 0;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t rtab_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t rtab_boot_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME);
}
