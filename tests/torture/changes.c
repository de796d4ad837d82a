/* SPDX-License-Identifier: BSD-2-Clause */
/* The windows of torture_stale and every change that is made to them. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/torture/torture.h"

#define HUGE_BYTES ((size_t)2 << 20)
/* Window 0 is here, in a mapping that can become huge pages. */
#define HUGE (LOW - 4 * HUGE_BYTES)

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

struct window windows[WINDOWS];

void fill(char *mem, size_t bytes)
{
	static uint32_t pattern;
	uint32_t value = rtab_fetch_add(&pattern, 1) * 2654435761u;
	size_t i;

	for (i = 0; i < bytes; i += 64)
		*(uint32_t *)(mem + i) = value + (uint32_t)i;
}

/* ---- calls -------------------------------------------------------------- */

static char *map_as(char *at, size_t bytes, int prot, int flags, bool raw)
{
	int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;

	if (raw)
		return (char *)syscall(SYS_mmap, at, bytes, prot, all, -1, 0L);
	return mmap(at, bytes, prot, all, -1, 0);
}

char *map_at(char *at, size_t bytes, int flags, bool raw)
{
	return map_as(at, bytes, PROT_READ | PROT_WRITE, flags, raw);
}

static void map_over(char *at, size_t bytes, int prot, bool raw)
{
	if (map_as(at, bytes, prot, MAP_FIXED, raw) != at)
		die("mmap over a range");
}

void unmap(char *at, size_t bytes, bool raw)
{
	if (raw ? syscall(SYS_munmap, at, bytes) : munmap(at, bytes))
		die("munmap");
}

static int advise(char *at, size_t bytes, int advice, bool raw)
{
	return (int)(raw ? syscall(SYS_madvise, at, bytes, advice) :
			   madvise(at, bytes, advice));
}

/* False: the kernel takes no such advice (before 6.13, for the process itself). */
static bool discard_by_process_madvise(char *at, size_t bytes)
{
	struct iovec iov = { at, bytes };
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	long r;

	if (pidfd < 0)
		die("pidfd_open");
	r = syscall(SYS_process_madvise, pidfd, &iov, 1, MADV_DONTNEED, 0);
	close(pidfd);
	return r == (long)bytes;
}

/* Hooks see guard pages, no event does. */
static bool discard_by_guard(char *at, size_t bytes, bool raw)
{
	if (raw || strict || madvise(at, bytes, MADV_GUARD_INSTALL))
		return false;
	if (madvise(at, bytes, MADV_GUARD_REMOVE))
		die("MADV_GUARD_REMOVE");
	return true;
}

void discard(char *at, size_t bytes, uint64_t x, bool raw)
{
	switch (x % 8) {
	case 0:
		if (discard_by_process_madvise(at, bytes))
			return;
		break;
	case 1:
		if (discard_by_guard(at, bytes, raw))
			return;
		break;
	case 2:
		if (advise(at, bytes, MADV_FREE, raw) == 0)
			return;
		break;
	case 3:
		if (advise(at, bytes, MADV_DONTNEED_LOCKED, raw) == 0)
			return;
		break;
	}
	if (advise(at, bytes, MADV_DONTNEED, raw))
		die("madvise");
}

/* Moves [at, at + bytes) away and back. */
static void move_mapping(char *at, size_t bytes, bool raw)
{
	char *there = map_at(NULL, bytes, 0, raw), *r;

	if (raw)
		r = (char *)syscall(SYS_mremap, at, bytes, bytes,
				    MREMAP_MAYMOVE | MREMAP_FIXED, there);
	else
		r = mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			   there);
	/* EFAULT: it was two mappings, and the kernel moves only one. */
	if (r != there && errno != EFAULT)
		die("mremap");
	map_over(at, bytes, PROT_READ | PROT_WRITE, raw);
	unmap(there, bytes, raw);
}

/* Nobody can access it, and then everybody again; the pages stay. */
static void close_and_open(char *at, size_t bytes, bool raw)
{
	static const int prots[] = { PROT_NONE, PROT_READ | PROT_WRITE };
	int i;

	for (i = 0; i < 2; i++)
		if (raw ? syscall(SYS_mprotect, at, bytes, prots[i]) :
			  mprotect(at, bytes, prots[i]))
			die("mprotect");
}

/* ---- the heap ----------------------------------------------------------- */

static void renew_heap(struct window *w, uint64_t x)
{
	/* Large blocks are mappings of their own, small ones the heap. */
	size_t bytes = (x & 1 ? 40 : WINDOW_PAGES) * PAGE;

	free(w->mem);
	w->mem = aligned_alloc(PAGE, bytes);
	if (!w->mem)
		die("aligned_alloc");
	fill(w->mem, WINDOW_BYTES);
}

/* malloc of the main thread moves the break as well, but not while others run. */
static void make_brk(struct window *w)
{
	sbrk((intptr_t)(-(uintptr_t)sbrk(0) & (PAGE - 1)));
	w->mem = sbrk((intptr_t)WINDOW_BYTES);
	if (w->mem == (char *)-1)
		die("sbrk");
	w->kind = WINDOW_BRK;
}

static void move_break(char *to, bool raw)
{
	if (raw ? (char *)syscall(SYS_brk, to) != to : brk(to) != 0)
		die("brk");
}

/* Down to at and up again. */
static void renew_brk(const struct window *w, char *at, bool raw)
{
	char *end = w->mem + WINDOW_BYTES;

	if ((char *)syscall(SYS_brk, 0) == end) {
		move_break(at, raw);
		move_break(end, raw);
	} else {
		discard(at, (size_t)(end - at), 7, raw);
	}
	fill(at, (size_t)(end - at));
}

/* ---- windows ------------------------------------------------------------ */

void windows_make(void)
{
	char *arena = map_at(LOW, 2 * WINDOWS * WINDOW_BYTES, MAP_FIXED, false);
	uint32_t i;

	for (i = 0; i < WINDOWS; i++) {
		struct window *w = &windows[i];

		w->mem = arena + 2 * i * WINDOW_BYTES;
		if (i == 0) {
			w->mem = map_at(HUGE, 2 * HUGE_BYTES, MAP_FIXED, false) +
				 HUGE_BYTES / 2;
		} else if (i == 1) {
			make_brk(w);
		} else if (i % 4 == 3) {
			w->kind = WINDOW_HEAP;
			w->mem = NULL;
			renew_heap(w, i);
		}
		fill(w->mem, WINDOW_BYTES);
	}
	/* Windows do not touch, so one is not part of a neighbour's region. */
	for (i = 0; i < WINDOWS; i++)
		unmap(arena + (2 * i + 1) * WINDOW_BYTES, WINDOW_BYTES, true);
}

static void renew_whole(struct window *w, bool raw)
{
	unmap(w->mem, WINDOW_BYTES, raw);
	if (map_at(w->mem, WINDOW_BYTES, MAP_FIXED_NOREPLACE, raw) != w->mem)
		die("mmap of a free window");
	w->closed_from = w->closed_to = 0;
	fill(w->mem, WINDOW_BYTES);
}

static void change_mapped(struct window *w, char *at, size_t bytes, uint64_t x,
			  bool raw)
{
	if (w->closed_to) {
		renew_whole(w, raw);
		return;
	}
	switch (x % 8) {
	case 0:
		unmap(at, bytes, raw);
		if (map_at(at, bytes, MAP_FIXED_NOREPLACE, raw) != at)
			die("mmap of a free range");
		break;
	case 1:
		map_over(at, bytes, PROT_READ | PROT_WRITE, raw);
		break;
	case 2:
	case 3:
		discard(at, bytes, x >> 3, raw);
		break;
	case 4:
		move_mapping(at, bytes, raw);
		break;
	case 5:
		close_and_open(at, bytes, raw);
		break;
	case 6:
		map_over(at, bytes, PROT_NONE, raw);
		w->closed_from = (size_t)(at - w->mem);
		w->closed_to = w->closed_from + bytes;
		return;
	default:
		renew_whole(w, raw);
		return;
	}
	fill(at, bytes);
}

void window_change(struct window *w, uint64_t x)
{
	size_t first = (x >> 8) % WINDOW_PAGES;
	size_t n = 1 + (x >> 16) % (WINDOW_PAGES - first);
	char *at = w->mem + first * PAGE;
	bool raw = x >> 24 & 1;

	rtab_fetch_add(&totals->changes, 1);
	switch (w->kind) {
	case WINDOW_HEAP:
		renew_heap(w, x >> 32);
		return;
	case WINDOW_BRK:
		renew_brk(w, at, raw);
		return;
	default:
		change_mapped(w, at, n * PAGE, x >> 32, raw);
	}
}

/* ---- another process ---------------------------------------------------- */

void outsider_start(void)
{
	static const int advices[] = { MADV_COLD, MADV_PAGEOUT, MADV_COLLAPSE };
	struct iovec iov = { HUGE, 2 * HUGE_BYTES };
	pid_t pid = getpid();
	uint32_t i;
	int pidfd;

	if (fork() != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	for (i = 0; pidfd >= 0 && getppid() == pid; i++) {
		/* Refused where nothing is mapped, and without privilege. */
		syscall(SYS_process_madvise, pidfd, &iov, 1, advices[i % 3], 0);
		poll(NULL, 0, 5);
	}
	_exit(0);
}
