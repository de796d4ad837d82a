/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd: which events come when, and what the probe answers.
 *
 * In every test a second thread makes the change and the test itself plays the
 * broker: it polls, looks at the memory while the event is still unread, reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kernel/kernel.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

#define FEATURES                                                          \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_REMAP |      \
	 UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP)
#define N_PAGES ((size_t)16)
#define LEN (N_PAGES * PAGE)

static int uffd_new(int flags, uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | flags);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) == 0)
		return fd;
	close(fd);
	return -1;
}

/* A full one where privilege allows; both kinds give the same events. */
static int uffd_open_with(uint64_t features)
{
	int fd = uffd_new(O_NONBLOCK, features);

	return fd >= 0 ? fd : uffd_new(O_NONBLOCK | UFFD_USER_MODE_ONLY, features);
}

static int uffd_open(void)
{
	int fd = uffd_open_with(FEATURES);

	kernel_need("uffd", fd >= 0, "userfaultfd with its events is missing");
	return fd;
}

static int watch(int fd, void *addr, size_t len)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_WP };

	reg.range.start = (uintptr_t)addr;
	reg.range.len = len;
	return ioctl(fd, UFFDIO_REGISTER, &reg) < 0 ? errno : 0;
}

static int unwatch(int fd, void *addr, size_t len)
{
	struct uffdio_range range = { .start = (uintptr_t)addr, .len = len };

	return ioctl(fd, UFFDIO_UNREGISTER, &range) < 0 ? errno : 0;
}

static int protect(int fd, void *addr, size_t len, uint64_t mode)
{
	struct uffdio_writeprotect wp = { .mode = mode };

	wp.range.start = (uintptr_t)addr;
	wp.range.len = len;
	return ioctl(fd, UFFDIO_WRITEPROTECT, &wp) < 0 ? errno : 0;
}

/* The probe of strict mode: EAGAIN while a change is under way, else EINVAL. */
static int probe(int fd, void *addr)
{
	return protect(fd, addr, PAGE, UINT64_C(1) << 63);
}

static bool readable(int fd, int limit_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, limit_ms) == 1 && (p.revents & POLLIN);
}

static struct uffd_msg next_event(int fd)
{
	struct uffd_msg msg;

	ck_assert_msg(readable(fd, LIMIT_MS), "no event came");
	ck_assert_int_eq(read(fd, &msg, sizeof(msg)), sizeof(msg));
	return msg;
}

static bool is_mapped(void *addr)
{
	unsigned char vec;

	return mincore(addr, PAGE, &vec) == 0;
}

static unsigned char *new_pages(void)
{
	unsigned char *p = kernel_map(N_PAGES);

	memset(p, 0x5a, LEN);
	return p;
}

/* ---- changes of memory --------------------------------------------------- */

struct change {
	unsigned char *addr;
	unsigned char *target; /* of a move */
	uintptr_t brk;
	int err;
};

static void do_munmap(void *arg)
{
	struct change *c = arg;

	c->err = munmap(c->addr, LEN);
}

static void do_dontneed(void *arg)
{
	struct change *c = arg;

	c->err = madvise(c->addr, LEN, MADV_DONTNEED);
}

static void do_shrink(void *arg)
{
	struct change *c = arg;

	c->err = mremap(c->addr, LEN, PAGE, 0) == MAP_FAILED;
}

static void do_move(void *arg)
{
	struct change *c = arg;

	c->err = mremap(c->addr, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED,
			c->target) == MAP_FAILED;
}

static void do_map_fixed(void *arg)
{
	struct change *c = arg;

	c->err = mmap(c->addr, LEN, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		      0) == MAP_FAILED;
}

static void do_brk(void *arg)
{
	struct change *c = arg;

	c->err = (uintptr_t)syscall(SYS_brk, c->brk) != c->brk;
}

/* ---- events --------------------------------------------------------------- */

START_TEST(unmap_comes_after_the_mapping_is_gone)
{
	struct change c = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	int fd = uffd_open();

	if (fd < 0)
		return;
	c.addr = new_pages();
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	kernel_thread_start(&t, do_munmap, &c);
	kernel_thread_go(&t);
	ck_assert(readable(fd, LIMIT_MS));
	ck_assert_msg(!is_mapped(c.addr), "still mapped when the event is there");
	ck_assert_msg(kernel_thread_sleeps(&t), "munmap does not wait");
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_UNMAP);
	ck_assert_uint_eq(msg.arg.remove.start, (uintptr_t)c.addr);
	ck_assert_uint_eq(msg.arg.remove.end, (uintptr_t)c.addr + LEN);
	/* The read alone lets it go on. */
	kernel_thread_join(&t);
	ck_assert_int_eq(c.err, 0);
}
END_TEST

START_TEST(remove_comes_before_the_pages_go)
{
	struct change c = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	int fd = uffd_open();

	if (fd < 0)
		return;
	c.addr = new_pages();
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	kernel_thread_start(&t, do_dontneed, &c);
	kernel_thread_go(&t);
	ck_assert(kernel_thread_sleeps(&t));
	ck_assert_uint_eq(c.addr[LEN - 1], 0x5a);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_REMOVE);
	ck_assert_uint_eq(msg.arg.remove.start, (uintptr_t)c.addr);
	ck_assert_uint_eq(msg.arg.remove.end, (uintptr_t)c.addr + LEN);
	kernel_thread_join(&t);
	ck_assert_uint_eq(c.addr[LEN - 1], 0);
}
END_TEST

START_TEST(move_gives_remap)
{
	struct change c = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	int fd = uffd_open();

	if (fd < 0)
		return;
	c.addr = new_pages();
	c.target = kernel_map(N_PAGES);
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	kernel_thread_start(&t, do_move, &c);
	kernel_thread_go(&t);
	msg = next_event(fd);
	/* UNMAP of the old range may come first or after, by kernel version. */
	if (msg.event == UFFD_EVENT_UNMAP)
		msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_REMAP);
	ck_assert_uint_eq(msg.arg.remap.from, (uintptr_t)c.addr);
	ck_assert_uint_eq(msg.arg.remap.to, (uintptr_t)c.target);
	ck_assert_uint_eq(msg.arg.remap.len, LEN);
	while (!kernel_thread_done(&t))
		if (readable(fd, 10))
			next_event(fd);
	kernel_thread_join(&t);
	ck_assert_int_eq(c.err, 0);
	/* The watch moved along: protecting the new place works. */
	ck_assert_int_eq(protect(fd, c.target, LEN, 0), 0);
}
END_TEST

START_TEST(brk_shrink_gives_unmap)
{
	struct change c = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	uintptr_t top;
	int fd = uffd_open();

	if (fd < 0)
		return;
	/* The C library must not move the break meanwhile: start first. */
	kernel_thread_start(&t, do_brk, &c);
	top = ((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1);
	c.brk = (uintptr_t)syscall(SYS_brk, 0);
	if ((uintptr_t)syscall(SYS_brk, top + LEN) != top + LEN)
		ck_abort_msg("brk does not grow");
	ck_assert_int_eq(watch(fd, (void *)top, LEN), 0);
	kernel_thread_go(&t);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_UNMAP);
	ck_assert_uint_eq(msg.arg.remove.start, top);
	ck_assert_uint_eq(msg.arg.remove.end, top + LEN);
	kernel_thread_join(&t);
	ck_assert_int_eq(c.err, 0);
}
END_TEST

START_TEST(growth_in_place_gives_no_event)
{
	unsigned char *p;
	int fd = uffd_open();

	if (fd < 0)
		return;
	p = kernel_map(2 * N_PAGES);
	ck_assert_int_eq(munmap(p + LEN, LEN), 0);
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	ck_assert(mremap(p, LEN, 2 * LEN, 0) == p);
	ck_assert(!readable(fd, 0));
}
END_TEST

START_TEST(mprotect_gives_no_event)
{
	unsigned char *p;
	int fd = uffd_open();

	if (fd < 0)
		return;
	p = new_pages();
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	ck_assert_int_eq(mprotect(p, LEN, PROT_READ), 0);
	ck_assert(!readable(fd, 0));
}
END_TEST

START_TEST(unwatched_memory_gives_no_event_and_no_wait)
{
	unsigned char *p;
	int fd = uffd_open();

	if (fd < 0)
		return;
	p = new_pages();
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	ck_assert_int_eq(unwatch(fd, p, LEN), 0);
	ck_assert_int_eq(munmap(p, LEN), 0); /* would wait for ever */
	ck_assert(!readable(fd, 0));
}
END_TEST

START_TEST(child_of_fork_is_not_watched)
{
	unsigned char *p;
	int fd = uffd_open(), status;
	pid_t pid;

	if (fd < 0)
		return;
	p = new_pages();
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(munmap(p, LEN) != 0); /* would wait for ever */
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(!readable(fd, 0));
}
END_TEST

/* ---- the probe ------------------------------------------------------------ */

static const struct {
	const char *name;
	void (*fn)(void *arg);
	bool hole; /* the last page is unmapped afterwards */
} changes[] = {
	{ "munmap", do_munmap, true },
	{ "MADV_DONTNEED", do_dontneed, false },
	{ "mremap shrink", do_shrink, true },
	{ "mremap move", do_move, true },
	{ "MAP_FIXED", do_map_fixed, false },
};

/*
 * The probe must not say EINVAL between the change and the read of its event.
 * It is asked all the time, after a look at whether the page has gone.
 */
START_TEST(probe_says_again_until_the_event_is_read)
{
	double limit = kernel_now_ms() + LIMIT_MS;
	unsigned char *last;
	struct change c = { 0 };
	struct kernel_thread t;
	int fd = uffd_open(), err;
	bool gone;

	if (fd < 0)
		return;
	c.addr = new_pages();
	c.target = kernel_map(N_PAGES);
	last = c.addr + LEN - PAGE;
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	ck_assert_int_eq(probe(fd, c.addr), EINVAL);
	kernel_thread_start(&t, changes[_i].fn, &c);
	kernel_thread_go(&t);
	do {
		gone = changes[_i].hole && !is_mapped(last);
		err = probe(fd, c.addr);
		ck_assert_msg(!gone || err == EAGAIN, "%s: gone, probe says %s",
			      changes[_i].name, strerror(err));
		ck_assert(kernel_now_ms() < limit);
	} while (!readable(fd, 0));
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(probe(fd, c.addr), EAGAIN);
	if (gone) /* somebody else maps the address: it must change nothing */
		ck_assert(mmap(last, PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			       -1, 0) == last);
	ck_assert_int_eq(probe(fd, c.addr), EAGAIN);
	while (!kernel_thread_done(&t))
		if (readable(fd, 0))
			next_event(fd);
	kernel_thread_join(&t);
	ck_assert_int_eq(c.err, 0);
	ck_assert_int_eq(probe(fd, c.addr), EINVAL);
}
END_TEST

START_TEST(valid_probe_tells_a_lost_mapping)
{
	unsigned char *p;
	int fd = uffd_open();

	if (fd < 0)
		return;
	p = new_pages();
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	ck_assert_int_eq(protect(fd, p, LEN, 0), 0);
	ck_assert_int_eq(unwatch(fd, p + PAGE, PAGE), 0);
	ck_assert_int_eq(protect(fd, p, LEN, 0), ENOENT);
}
END_TEST

/* ---- what can be watched -------------------------------------------------- */

static void do_write(void *arg)
{
	struct change *c = arg;

	*(volatile unsigned char *)c->addr = 1;
}

START_TEST(never_touched_memory_is_protected)
{
	struct kernel_thread t;
	struct uffd_msg msg;
	struct change c = { 0 };
	int fd = uffd_open_with(FEATURES | UFFD_FEATURE_WP_UNPOPULATED);

	if (!kernel_need("uffd-unpopulated", fd >= 0,
			 "no protection of pages that were never touched (6.4)"))
		return;
	c.addr = kernel_map(N_PAGES);
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	ck_assert_int_eq(protect(fd, c.addr, LEN, UFFDIO_WRITEPROTECT_MODE_WP),
			 0);
	kernel_thread_start(&t, do_write, &c);
	kernel_thread_go(&t);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
	ck_assert_uint_eq(msg.arg.pagefault.address, (uintptr_t)c.addr);
	ck_assert(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
	ck_assert_int_eq(protect(fd, c.addr, LEN, 0), 0);
	kernel_thread_join(&t);
	ck_assert_uint_eq(c.addr[0], 1);
}
END_TEST

START_TEST(holes_are_allowed_in_a_watched_range)
{
	unsigned char *p;
	int fd = uffd_open(), r;

	if (fd < 0)
		return;
	p = new_pages();
	ck_assert_int_eq(munmap(p + 4 * PAGE, 4 * PAGE), 0);
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	/* The valid probe does not see a hole, unless there is nothing else; that of
	 * 6.1 does. */
	r = protect(fd, p, LEN, 0);
	ck_assert_msg(r == 0 || r == ENOENT, "error %d", r);
	ck_assert_int_eq(protect(fd, p + 4 * PAGE, 4 * PAGE, 0), ENOENT);
	ck_assert_int_eq(watch(fd, p + 4 * PAGE, PAGE), EINVAL);
	/* What is mapped there later is not watched, and that is seen. */
	ck_assert(mmap(p + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		       0) == p + 4 * PAGE);
	ck_assert_int_eq(protect(fd, p, LEN, 0), ENOENT);
}
END_TEST

START_TEST(second_userfaultfd_is_refused)
{
	unsigned char *p;
	int fd = uffd_open(), other;

	if (fd < 0)
		return;
	other = uffd_new(O_NONBLOCK | UFFD_USER_MODE_ONLY, FEATURES);
	ck_assert_int_ge(other, 0);
	p = new_pages();
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	ck_assert_int_eq(watch(other, p, LEN), EBUSY);
}
END_TEST

START_TEST(files_and_sysv_memory_cannot_be_watched)
{
	unsigned char *p;
	int fd = uffd_open(), exe, id;

	if (fd < 0)
		return;
	exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(exe, 0);
	p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, exe, 0);
	ck_assert(p != MAP_FAILED);
	ck_assert_int_ne(watch(fd, p, PAGE), 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, exe, 0);
	ck_assert(p != MAP_FAILED);
	ck_assert_int_eq(watch(fd, p, PAGE), EINVAL);

	id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	if (id < 0)
		return;
	p = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	ck_assert(p != (void *)-1);
	ck_assert_int_eq(watch(fd, p, LEN), EINVAL);
}
END_TEST

START_TEST(memfd_memory_can_be_watched)
{
	unsigned char *p;
	int fd, mem;

	fd = uffd_new(O_NONBLOCK | UFFD_USER_MODE_ONLY,
		      FEATURES | UFFD_FEATURE_WP_HUGETLBFS_SHMEM);
	if (!kernel_need("uffd", fd >= 0, "no write protection of shared memory"))
		return;
	mem = memfd_create("check", MFD_CLOEXEC);
	ck_assert_int_ge(mem, 0);
	ck_assert_int_eq(ftruncate(mem, (off_t)LEN), 0);
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	ck_assert(p != MAP_FAILED);
	ck_assert_int_eq(watch(fd, p, LEN), 0);
	/* A change by way of the file gives no event. */
	ck_assert_int_eq(fallocate(mem, FALLOC_FL_PUNCH_HOLE |
					   FALLOC_FL_KEEP_SIZE, 0, (off_t)LEN), 0);
	ck_assert(!readable(fd, 0));
}
END_TEST

/* ---- kinds of userfaultfd ------------------------------------------------- */

/*
 * preadv2(RWF_NOWAIT) reads without waiting even if the owner of the descriptor
 * made it blocking.  Kernels without it answer EOPNOTSUPP and regc reads under a
 * timer, so both are right; which one it is is printed.
 */
START_TEST(nowait_read_is_an_answer_not_a_wait)
{
	struct uffd_msg msg;
	struct iovec iov = { .iov_base = &msg, .iov_len = sizeof(msg) };
	struct kernel_thread t;
	struct change c = { 0 };
	int fd = uffd_new(UFFD_USER_MODE_ONLY, FEATURES), err; /* blocking */
	ssize_t n;

	if (!kernel_need("uffd", fd >= 0, "userfaultfd is missing"))
		return;
	n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
	err = errno;
	printf("preadv2(RWF_NOWAIT) of a userfaultfd: %s\n",
	       n < 0 && err == EAGAIN ? "works" : strerror(err));
	ck_assert_int_lt(n, 0);
	ck_assert(err == EAGAIN || err == EOPNOTSUPP);
	if (err != EAGAIN)
		return;
	c.addr = new_pages();
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	kernel_thread_start(&t, do_munmap, &c);
	kernel_thread_go(&t);
	ck_assert(kernel_thread_sleeps(&t));
	ck_assert_int_eq(preadv2(fd, &iov, 1, -1, RWF_NOWAIT), sizeof(msg));
	ck_assert_int_eq(msg.event, UFFD_EVENT_UNMAP);
	kernel_thread_join(&t);
}
END_TEST

START_TEST(waiters_go_on_when_the_last_descriptor_is_closed)
{
	struct kernel_thread t;
	struct change c = { 0 };
	int fd = uffd_open(), status;
	pid_t child;

	if (fd < 0)
		return;
	c.addr = new_pages();
	ck_assert_int_eq(watch(fd, c.addr, LEN), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		for (;;)
			pause();
	kernel_thread_start(&t, do_munmap, &c);
	kernel_thread_go(&t);
	ck_assert(kernel_thread_sleeps(&t));
	close(fd);
	ck_assert_msg(kernel_thread_sleeps(&t),
		      "a copy in a child keeps nobody waiting");
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	kernel_thread_join(&t);
	ck_assert_int_eq(c.err, 0);
}
END_TEST

struct pipe_read {
	int fd;
	unsigned char *to;
	ssize_t n;
	int err;
};

static void do_read(void *arg)
{
	struct pipe_read *r = arg;

	r->n = read(r->fd, r->to, 1);
	r->err = errno;
}

static void read_into_protected(int fd, struct pipe_read *r,
				struct kernel_thread *t)
{
	int pair[2];

	ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
	ck_assert_int_eq(write(pair[1], "x", 1), 1);
	r->fd = pair[0];
	r->to = new_pages();
	ck_assert_int_eq(watch(fd, r->to, LEN), 0);
	ck_assert_int_eq(protect(fd, r->to, LEN, UFFDIO_WRITEPROTECT_MODE_WP), 0);
	kernel_thread_start(t, do_read, r);
	kernel_thread_go(t);
}

START_TEST(kernel_access_waits_with_a_full_one)
{
	struct pipe_read r = { 0 };
	struct kernel_thread t;
	struct uffd_msg msg;
	int fd = uffd_new(O_NONBLOCK, FEATURES);

	if (!kernel_need("uffd-full", fd >= 0, "needs privilege"))
		return;
	read_into_protected(fd, &r, &t);
	msg = next_event(fd);
	ck_assert_int_eq(msg.event, UFFD_EVENT_PAGEFAULT);
	ck_assert(msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
	ck_assert_int_eq(protect(fd, r.to, LEN, 0), 0);
	kernel_thread_join(&t);
	ck_assert_int_eq(r.n, 1);
}
END_TEST

START_TEST(kernel_access_fails_with_a_user_mode_one)
{
	struct pipe_read r = { 0 };
	struct kernel_thread t;
	int fd = uffd_new(O_NONBLOCK | UFFD_USER_MODE_ONLY, FEATURES);

	if (!kernel_need("uffd", fd >= 0, "userfaultfd is missing"))
		return;
	read_into_protected(fd, &r, &t);
	kernel_thread_join(&t);
	ck_assert_int_eq(r.n, -1);
	ck_assert_int_eq(r.err, EFAULT);
}
END_TEST

/* In the child, without privilege: 0 good, else the step that failed. */
static int without_privilege(int dev)
{
	struct uffdio_api api = { .api = UFFD_API, .features = FEATURES };
	unsigned char *p;
	int fd;

	if (setgid(65534) || setuid(65534))
		return 1;
	if (open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) >= 0)
		return 77; /* everybody may: nothing to prove */
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return 2;
	if (ioctl(fd, UFFDIO_API, &api))
		return 3;
	p = kernel_map(N_PAGES);
	return watch(fd, p, LEN) ? 4 : 0;
}

START_TEST(device_descriptor_gives_a_full_one_without_privilege)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), status;
	pid_t pid;

	if (!kernel_need("uffd-device", dev >= 0 && geteuid() == 0,
			 "needs root and /dev/userfaultfd"))
		return;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(without_privilege(dev));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) != 77)
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: userfaultfd");
	TCase *t = tcase_create("events");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, unmap_comes_after_the_mapping_is_gone);
	tcase_add_test(t, remove_comes_before_the_pages_go);
	tcase_add_test(t, move_gives_remap);
	tcase_add_test(t, brk_shrink_gives_unmap);
	tcase_add_test(t, growth_in_place_gives_no_event);
	tcase_add_test(t, mprotect_gives_no_event);
	tcase_add_test(t, unwatched_memory_gives_no_event_and_no_wait);
	tcase_add_test(t, child_of_fork_is_not_watched);
	suite_add_tcase(s, t);

	t = tcase_create("probe");
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, probe_says_again_until_the_event_is_read, 0,
			    (int)(sizeof(changes) / sizeof(changes[0])));
	tcase_add_test(t, valid_probe_tells_a_lost_mapping);
	suite_add_tcase(s, t);

	t = tcase_create("reach");
	tcase_set_timeout(t, 30);
	tcase_add_test(t, never_touched_memory_is_protected);
	tcase_add_test(t, holes_are_allowed_in_a_watched_range);
	tcase_add_test(t, second_userfaultfd_is_refused);
	tcase_add_test(t, files_and_sysv_memory_cannot_be_watched);
	tcase_add_test(t, memfd_memory_can_be_watched);
	suite_add_tcase(s, t);

	t = tcase_create("kinds");
	tcase_set_timeout(t, 30);
	tcase_add_test(t, nowait_read_is_an_answer_not_a_wait);
	tcase_add_test(t, waiters_go_on_when_the_last_descriptor_is_closed);
	tcase_add_test(t, kernel_access_waits_with_a_full_one);
	tcase_add_test(t, kernel_access_fails_with_a_user_mode_one);
	tcase_add_test(t, device_descriptor_gives_a_full_one_without_privilege);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
