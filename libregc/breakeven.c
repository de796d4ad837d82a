/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copy or zero-copy?  Measured once on this machine, for small and huge pages.
 *
 * Arming and disarming costs a fixed part (two system calls) and a part for each
 * page table entry; a copy costs by the byte.  Both lines go through two points,
 * the best of a few rounds at each, with a source that is not in the cache.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define SMALL_BYTES (UINT64_C(64) << 10)
#define LARGE_BYTES (UINT64_C(2) << 20)
#define ARENA_BYTES (UINT64_C(32) << 20) /* more than a cache, so copies are cold */
#define ROUNDS 7

struct line {
	double fixed_ns, per_byte_ns;
};

static uint32_t measured[2]; /* 1: being measured, 2: done */
static uint64_t break_even[2];

static struct line through(double small, double large)
{
	struct line l;

	l.per_byte_ns = (large - small) / (double)(LARGE_BYTES - SMALL_BYTES);
	if (l.per_byte_ns < 0)
		l.per_byte_ns = 0;
	l.fixed_ns = small - l.per_byte_ns * (double)SMALL_BYTES;
	return l;
}

static double copy_ns(char *arena, char *to, uint64_t bytes)
{
	double best = 1e18;
	uint64_t i, at, from;

	for (i = 0; i < ROUNDS; i++) {
		/* The other end of the arena, so that this one is cold. */
		at = i * LARGE_BYTES % (ARENA_BYTES - LARGE_BYTES);
		memset(arena + ARENA_BYTES / 2, (int)i, ARENA_BYTES / 2);
		from = rtab_now_ns();
		memcpy(to, arena + at % (ARENA_BYTES / 2), bytes);
		best = (double)rtab_min_u64((uint64_t)best, rtab_now_ns() - from);
	}
	return best;
}

static double arm_ns(char *mem, uint64_t bytes)
{
	uint64_t start = (uintptr_t)mem, i, from;
	double best = 1e18;

	for (i = 0; i < ROUNDS; i++) {
		from = rtab_now_ns();
		if (guard_close(RTAB_GUARD_WP, start, start + bytes) ||
		    guard_open(RTAB_GUARD_WP, start, start + bytes, false))
			return 1e18; /* nothing protects here: copy */
		best = (double)rtab_min_u64((uint64_t)best, rtab_now_ns() - from);
	}
	return best;
}

/* SIZE_MAX: a copy is always cheaper. */
static uint64_t measure(bool huge)
{
	struct line copy, arm;
	uint64_t bytes = ARENA_BYTES + 2 * LARGE_BYTES;
	char *mem, *arena, *to;
	double small, large;

	mem = rtab_raw_mmap(NULL, bytes + LARGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, NULL);
	if (!mem)
		return 0;
	arena = (char *)rtab_round_up((uintptr_t)mem, LARGE_BYTES);
	to = arena + ARENA_BYTES;
	rtab_raw_madvise(arena, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(arena, 1, bytes);
	small = copy_ns(arena, to, SMALL_BYTES);
	large = copy_ns(arena, to, LARGE_BYTES);
	copy = through(small, large);
	/* Part of a huge page is protected by splitting it: whole ones only. */
	small = huge ? arm_ns(arena, LARGE_BYTES) : arm_ns(arena, SMALL_BYTES);
	large = huge ? small : arm_ns(arena, LARGE_BYTES);
	arm = through(small, large);
	munmap(mem, bytes + LARGE_BYTES);
	if (arm.per_byte_ns >= copy.per_byte_ns)
		return SIZE_MAX;
	if (arm.fixed_ns <= copy.fixed_ns)
		return huge ? LARGE_BYTES : RTAB_PAGE;
	return (uint64_t)((arm.fixed_ns - copy.fixed_ns) /
			  (copy.per_byte_ns - arm.per_byte_ns));
}

int regc_copy_is_cheaper(struct regc_library *lib, size_t len, int huge)
{
	int which = huge != 0, saved = errno;
	uint32_t none = 0;

	(void)lib;
	if (rt_enter() || !rtab_load_acquire(&rt.attached) ||
	    rtab_load_relaxed(&rt.uffd) < 0)
		return 1;
	if (rtab_load_acquire(&measured[which]) != 2 &&
	    rtab_cas(&measured[which], &none, 1)) {
		rtab_store_relaxed(&break_even[which], measure(huge != 0));
		rtab_store_release(&measured[which], 2);
	}
	errno = saved;
	/* While another thread measures: a copy is never wrong. */
	return rtab_load_acquire(&measured[which]) != 2 ||
	       len < rtab_load_relaxed(&break_even[which]);
}
