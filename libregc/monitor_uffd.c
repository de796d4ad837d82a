/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd: making it, watching, reading in the broker's place, self-test.
 *
 * Ranges are registered in write-protect mode, which brings events for unmap, remap
 * and remove; nothing is protected, so no page faults, but where a transfer is under
 * way (libregc/guard.c).
 */
#include "libregc/runtime.h"
#include "libregc/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define NEEDED_FEATURES                                         \
	(UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | \
	 UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP)
/*
 * WP_HUGETLBFS_SHMEM (5.19), WP_UNPOPULATED (6.4); for transfers THREAD_ID,
 * MINOR_HUGETLBFS (5.13), MINOR_SHMEM (5.14), EXACT_ADDRESS (5.18).
 */
#define WANTED_FEATURES                                             \
	((UINT64_C(1) << 12) | (UINT64_C(1) << 13) |                \
	 UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_MINOR_HUGETLBFS |    \
	 UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_EXACT_ADDRESS)
#define SELFTEST_MS 1000
#define DRAIN_BATCH 16

static int new_uffd(int dev_fd)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	int fd = (int)syscall(SYS_userfaultfd, flags);

	if (fd < 0 && dev_fd >= 0)
		fd = ioctl(dev_fd, USERFAULTFD_IOC_NEW, flags);
	rt.uffd_user_only = fd < 0;
	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	return fd < 0 ? -errno : fd;
}

/* Asking for a feature that the kernel lacks fails for good, so ask first. */
static uint64_t features_of(int dev_fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = new_uffd(dev_fd);

	if (fd < 0)
		return 0;
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		api.features = 0;
	close(fd);
	return api.features;
}

int monitor_uffd_open(int dev_fd, char *why, size_t size)
{
	uint64_t features = features_of(dev_fd);
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = NEEDED_FEATURES | (WANTED_FEATURES & features),
	};
	int fd = new_uffd(dev_fd);

	if (fd < 0) {
		snprintf(why, size, "userfaultfd: %s", strerror(-fd));
		return fd;
	}
	if ((features & NEEDED_FEATURES) != NEEDED_FEATURES ||
	    ioctl(fd, UFFDIO_API, &api) < 0) {
		snprintf(why, size, "userfaultfd: the kernel lacks an event");
		close(fd);
		return -ENOTSUP;
	}
	rt.uffd = fd;
	rt.uffd_minor = (features & UFFD_FEATURE_MINOR_SHMEM) != 0;
	return 0;
}

int monitor_uffd_watch(uint64_t start, uint64_t end)
{
	struct uffdio_register reg = {
		.range = { .start = start, .len = end - start },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	int saved = errno, r = 0;

	if (ioctl(rt.uffd, UFFDIO_REGISTER, &reg) < 0)
		r = -errno;
	errno = saved;
	return r;
}

int monitor_uffd_watches(uint64_t start, uint64_t end)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = start, .len = end - start },
		.mode = 0, /* protects nothing */
	};
	int saved = errno, r = 0;

	/* EINVAL: huge pages want their own alignment; they are one mapping. */
	if (ioctl(rt.uffd, UFFDIO_WRITEPROTECT, &wp) < 0 && errno != EINVAL)
		r = -errno;
	errno = saved;
	return r;
}

int monitor_uffd_unwatch(uint64_t start, uint64_t end)
{
	struct uffdio_range range = { .start = start, .len = end - start };
	int saved = errno, r = 0;

	if (ioctl(rt.uffd, UFFDIO_UNREGISTER, &range) < 0)
		r = -errno;
	errno = saved;
	return r;
}

/* ---- in the broker's place ---------------------------------------------- */

static void apply(const struct uffd_msg *msg)
{
	struct rtab_area *area = rt.area.area;
	uint64_t start, end;
	uint32_t cause;

	switch (msg->event) {
	case UFFD_EVENT_REMAP:
		start = msg->arg.remap.from;
		end = start + msg->arg.remap.len;
		cause = RTAB_CAUSE_UFFD_REMAP;
		rtab_area_log_change(area, msg->arg.remap.to,
				     msg->arg.remap.to + msg->arg.remap.len,
				     cause);
		faults_on_change(msg->arg.remap.to,
				 msg->arg.remap.to + msg->arg.remap.len);
		changes_void_range(msg->arg.remap.to,
				   msg->arg.remap.to + msg->arg.remap.len);
		break;
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		start = msg->arg.remove.start;
		end = msg->arg.remove.end;
		cause = msg->event == UFFD_EVENT_REMOVE ? RTAB_CAUSE_UFFD_REMOVE :
							  RTAB_CAUSE_UFFD_UNMAP;
		if (msg->event == UFFD_EVENT_REMOVE &&
		    rtab_transfer_own_removal(area, start, end))
			return;
		break;
	case UFFD_EVENT_PAGEFAULT:
		if (msg->arg.pagefault.flags &
		    (UFFD_PAGEFAULT_FLAG_WP | UFFD_PAGEFAULT_FLAG_MINOR))
			faults_on_access(msg->arg.pagefault.address,
					 msg->arg.pagefault.flags &
						 UFFD_PAGEFAULT_FLAG_MINOR,
					 msg->arg.pagefault.feat.ptid, false);
		else
			faults_on_missing(msg->arg.pagefault.address);
		return;
	default:
		changes_void_all();
		return;
	}
	rtab_area_log_change(area, start, end, cause);
	changes_void_range(start, end);
	faults_on_change(start, end);
}

void monitor_uffd_drain(void)
{
	struct uffd_msg msgs[DRAIN_BATCH];
	ssize_t n, i;

	rtab_fetch_add(&rt.area.area->changing, 1); /* C2 */
	rtab_store_relaxed(&rt.drained_ns, rtab_now_ns());
	do {
		n = read(rt.uffd, msgs, sizeof(msgs));
		if (n < 0 && errno == EINTR)
			continue;
		for (i = 0; i < n / (ssize_t)sizeof(msgs[0]); i++)
			apply(&msgs[i]);
	} while (n > 0);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		changes_void_all();
	rtab_fetch_sub(&rt.area.area->changing, 1); /* C2 */
	rt_cache_lock();
	changes_consume();
	rt_cache_unlock();
}

/* ---- self-test ---------------------------------------------------------- */

/*
 * Has the broker noticed the change of [start, end)?  Or, on a slow machine, the
 * guardian in its place?
 */
static bool noticed(uint64_t seq, uint64_t area_seq, uint64_t start, uint64_t end)
{
	const struct timespec pause = { .tv_nsec = 20000 };
	uint64_t limit = rtab_now_ns() + SELFTEST_MS * UINT64_C(1000000);

	while (!rtab_changed_since(rt.table.table, seq, start, end) &&
	       !rtab_area_changed_since(rt.area.area, area_seq, start, end)) {
		if (rtab_now_ns() > limit)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static long raw_change(int which, char *mem, uint64_t bytes)
{
	switch (which) {
	case 0:
		return syscall(SYS_madvise, mem, bytes, MADV_DONTNEED);
	case 1:
		return syscall(SYS_mremap, mem, bytes, bytes,
			       MREMAP_MAYMOVE | MREMAP_FIXED, mem + bytes);
	default:
		return syscall(SYS_munmap, mem + bytes, bytes);
	}
}

/*
 * The addresses are kept, without memory: for RT_REMOVE_MS regions there would
 * not be cached, because of the madvise above.  Where another thread was faster it
 * keeps what it has.
 */
static void keep_addresses(char *mem, uint64_t bytes)
{
	uint64_t at;

	for (at = 0; at < bytes; at += RTAB_PAGE)
		rtab_raw_mmap(mem + at, RTAB_PAGE, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				      MAP_FIXED_NOREPLACE,
			      -1, 0, NULL);
}

int monitor_uffd_selftest(char *why, size_t size)
{
	static const char *const names[] = { "madvise", "mremap", "munmap" };
	uint64_t bytes = 4 * RTAB_PAGE, seq, area_seq, start;
	char *mem;
	int which, r = 0;

	mem = rtab_raw_mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &r);
	if (!mem)
		return r;
	start = (uintptr_t)mem;
	r = monitor_uffd_watch(start, start + 2 * bytes);
	if (r) {
		snprintf(why, size, "cannot watch: %s", strerror(-r));
		rtab_raw_munmap(mem, 2 * bytes);
		return r;
	}
	for (which = 0; which < 3; which++) {
		seq = rtab_load_acquire(&rt.table.table->change_seq);
		area_seq = rtab_load_acquire(&rt.area.area->change_seq);
		if (raw_change(which, mem, bytes) == -1 ||
		    !noticed(seq, area_seq, which == 2 ? start + bytes : start,
			     which == 2 ? start + 2 * bytes : start + bytes)) {
			snprintf(why, size, "no event came for %s",
				 names[which]);
			r = -EIO;
			break;
		}
	}
	keep_addresses(mem, 2 * bytes);
	return r;
}
