/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of law L1 share: a client in fast or in strict mode, the roads by
 * which a change of memory can be made, and the question of L1.
 *
 * No stale answer means: after a change, and after new memory appeared at the same
 * address, what the device moves for a lease is what the CPU sees there.  Whether
 * the lease came from the cache does not matter for that; cached() makes sure that
 * there was something to go stale.
 */
#ifndef REGC_TESTS_STALE_H
#define REGC_TESTS_STALE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/harness.h"

#define PAGE 4096ul
#define W REGC_ACCESS_LOCAL_WRITE
#define SKIPPED 77 /* exit status of a helper program that cannot run here */

/* Of kernel 5.18 and 6.13, for headers that do not have them. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

extern struct broker broker;
extern struct regc_library *lib;
extern struct oracle oracle; /* oracle.dom: a ring */
extern struct fake fake;
extern struct regc_domain *fake_dom;

/* Fixtures: a broker, and this process as its client. */
void stale_setup_fast(void);
void stale_setup_strict(void);
void stale_teardown(void);
/* The client part alone, in the given mode; broker is there. */
void stale_open(uint32_t mode);
bool is_strict(void);
struct regc_stats stats_now(void);

/* ---- roads -------------------------------------------------------------- */

enum road {
	ROAD_LIBC,	  /* the function of libc */
	ROAD_RAW,	  /* syscall() */
	ROAD_LIBC_THREAD, /* the same in another thread */
	ROAD_RAW_THREAD,
	N_ROADS
};

extern const char *const road_names[N_ROADS];

/* The system call nr by a road; -1 and errno on failure. */
long road_call(enum road road, long nr, long a, long b, long c, long d, long e,
	       long f);
#define ROAD_CALL(road, nr, a, b, c, d, e, f)                                \
	road_call(road, nr, (long)(a), (long)(b), (long)(c), (long)(d),      \
		  (long)(e), (long)(f))
bool road_is_raw(enum road road);
/* Runs fn(arg) in the other thread that roads use, and waits. */
void in_other_thread(void (*fn)(void *arg), void *arg);

/* Free addresses, far from where the kernel puts what others map. */
char *window(size_t bytes);
/* Private anonymous memory at addr, which is free, by a road; filled. */
char *road_map_at(enum road road, char *addr, size_t bytes, int value);
void road_unmap(enum road road, char *addr, size_t bytes);

/* ---- the question ------------------------------------------------------- */

/* Makes [mem, mem + len) cached, and is sure of it. */
void cached(const char *mem, size_t len);
bool is_cached(const char *mem, size_t len);
/* Law L1; what: for the message. */
void not_stale(const char *mem, size_t len, const char *what);

/* Runs body for every road, or says which one fails by ck_assert's message. */
#define EACH_ROAD(r) \
	for (enum road r = ROAD_LIBC; r < N_ROADS; r++)

/* A word why something is not tested here; the test then passes. */
#define SKIP(...)                                                            \
	do {                                                                 \
		printf("skipped: ");                                         \
		printf(__VA_ARGS__);                                         \
		printf("\n");                                                \
		fflush(stdout);                                              \
		return;                                                      \
	} while (0)

/* Runs every test of tc in both modes: a case for each. */
Suite *stale_suite(const char *name, void (*add)(TCase *tc), int timeout);
int stale_run(Suite *s);

/* Numbers that a seed repeats. */
static inline uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) +
		 UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

/* RSS of this process, bytes. */
uint64_t rss_now(void);

#endif
