/* SPDX-License-Identifier: BSD-2-Clause */
/* The fixtures, the roads and the question of law L1. */
#include "shm/atomic.h"
#include "tests/integration/stale.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/suite.h"

struct broker broker;
struct regc_library *lib;
struct oracle oracle;
struct fake fake;
struct regc_domain *fake_dom;

static uint32_t mode_now;

/* ---- the other thread --------------------------------------------------- */

static struct {
	sem_t go, done;
	void (*fn)(void *arg);
	void *arg;
	pthread_t thread;
	pid_t pid; /* whose thread it is */
} other;

static void *other_main(void *arg)
{
	(void)arg;
	for (;;) {
		while (sem_wait(&other.go) < 0)
			;
		other.fn(other.arg);
		sem_post(&other.done);
	}
	return NULL;
}

void in_other_thread(void (*fn)(void *arg), void *arg)
{
	if (other.pid != getpid()) {
		sem_init(&other.go, 0, 0);
		sem_init(&other.done, 0, 0);
		ck_assert_int_eq(pthread_create(&other.thread, NULL, other_main,
						NULL), 0);
		other.pid = getpid();
	}
	other.fn = fn;
	other.arg = arg;
	sem_post(&other.go);
	while (sem_wait(&other.done) < 0)
		;
}

static void nothing(void *arg)
{
	(void)arg;
}

/* ---- fixtures ----------------------------------------------------------- */

void stale_open(uint32_t mode)
{
	struct regc_open_attr attr = { .size = sizeof(attr), .mode = mode };
	struct regc_status st = { .size = sizeof(st) };

	mode_now = mode;
	memset(&fake, 0, sizeof(fake));
	ck_assert_int_eq(regc_open("stale", &attr, &lib), 0);
	ck_assert_int_eq(regc_status(lib, &st), 0);
	ck_assert_msg(st.connected && st.mode == mode, "mode %u, not %u: %s",
		      st.mode, mode, st.why);
	oracle_open(&oracle, lib, 1024);
	ck_assert_int_eq(regc_domain_custom(lib, &fake_ops, &fake, &fake_dom), 0);
	/* Its stack is mapped now, not between a change and a question. */
	in_other_thread(nothing, NULL);
}

void stale_setup_fast(void)
{
	broker_start(&broker, NULL);
	stale_open(REGC_MODE_FAST);
}

void stale_setup_strict(void)
{
	broker_start(&broker, NULL);
	stale_open(REGC_MODE_STRICT);
}

void stale_teardown(void)
{
	broker_stop(&broker);
}

bool is_strict(void)
{
	return mode_now == REGC_MODE_STRICT;
}

struct regc_stats stats_now(void)
{
	struct regc_stats s = { .size = sizeof(s) };

	ck_assert_int_eq(regc_stats(lib, &s), 0);
	return s;
}

/* ---- roads -------------------------------------------------------------- */

const char *const road_names[N_ROADS] = {
	[ROAD_LIBC] = "libc",
	[ROAD_RAW] = "raw",
	[ROAD_LIBC_THREAD] = "libc in another thread",
	[ROAD_RAW_THREAD] = "raw in another thread",
};

struct call {
	long nr, a[6], ret;
	bool raw;
	int err;
};

static long by_libc(const struct call *c)
{
	const long *a = c->a;
	void *p = (void *)a[0];

	switch (c->nr) {
	case SYS_munmap:
		return munmap(p, (size_t)a[1]);
	case SYS_mmap:
		return (long)mmap(p, (size_t)a[1], (int)a[2], (int)a[3],
				  (int)a[4], a[5]);
	case SYS_mremap:
		return (long)mremap(p, (size_t)a[1], (size_t)a[2], (int)a[3],
				    (void *)a[4]);
	case SYS_madvise:
		return madvise(p, (size_t)a[1], (int)a[2]);
	case SYS_mprotect:
		return mprotect(p, (size_t)a[1], (int)a[2]);
	case SYS_brk:
		return brk(p);
	case SYS_shmat:
		return (long)shmat((int)a[0], (void *)a[1], (int)a[2]);
	case SYS_shmdt:
		return shmdt(p);
	case SYS_ftruncate:
		return ftruncate((int)a[0], a[1]);
	case SYS_fallocate:
		return fallocate((int)a[0], (int)a[1], a[2], a[3]);
	case SYS_remap_file_pages:
		return remap_file_pages(p, (size_t)a[1], (int)a[2],
					(size_t)a[3], (int)a[4]);
	case SYS_process_madvise:
		return process_madvise((int)a[0], (struct iovec *)a[1],
				       (size_t)a[2], (int)a[3],
				       (unsigned int)a[4]);
	default:
		ck_abort_msg("no libc function for call %ld", c->nr);
		return -1;
	}
}

static void make_call(void *arg)
{
	struct call *c = arg;

	if (c->raw)
		c->ret = syscall(c->nr, c->a[0], c->a[1], c->a[2], c->a[3],
				 c->a[4], c->a[5]);
	else
		c->ret = by_libc(c);
	c->err = errno;
}

bool road_is_raw(enum road road)
{
	return road == ROAD_RAW || road == ROAD_RAW_THREAD;
}

long road_call(enum road road, long nr, long a, long b, long c, long d, long e,
	       long f)
{
	struct call call = { .nr = nr, .a = { a, b, c, d, e, f } };

	call.raw = road_is_raw(road);
	if (road == ROAD_LIBC || road == ROAD_RAW)
		make_call(&call);
	else
		in_other_thread(make_call, &call);
	errno = call.err;
	return call.ret;
}

char *road_map_at(enum road road, char *addr, size_t bytes, int value)
{
	long r = ROAD_CALL(road, SYS_mmap, addr, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			   0);

	ck_assert_msg(r == (long)addr, "%s: mmap at %p: %s", road_names[road],
		      (void *)addr, strerror(errno));
	memset(addr, value, bytes);
	return addr;
}

void road_unmap(enum road road, char *addr, size_t bytes)
{
	ck_assert_int_eq(ROAD_CALL(road, SYS_munmap, addr, bytes, 0, 0, 0, 0), 0);
}

char *window(size_t bytes)
{
	/* ThreadSanitizer allows few places. */
	static uintptr_t next = RTAB_TSAN ? UINT64_C(0x7e9000000000) :
					    UINT64_C(0x200000000000);

	return (char *)rtab_fetch_add(&next, (bytes + (1ul << 20)) & ~(PAGE - 1));
}

/* ---- the question ------------------------------------------------------- */

bool is_cached(const char *mem, size_t len)
{
	return regc_query(oracle.dom, mem, len, W) == 1;
}

/* True if the lease was cached; then the oracle has agreed. */
static bool get_cached(const char *mem, size_t len)
{
	struct regc_lease lease;
	int r = regc_get(oracle.dom, mem, len, W, &lease);
	bool is;

	ck_assert_msg(r == 0, "get: %s", strerror(-r));
	is = !(lease.flags & REGC_LEASE_UNCACHED);
	ck_assert(oracle_agrees(&oracle, &lease, mem, len));
	regc_put(&lease);
	return is;
}

void cached(const char *mem, size_t len)
{
	/* For a moment after pages were given back nothing of them is cached. */
	WAIT_FOR(get_cached(mem, len) && is_cached(mem, len), 5);
}

void not_stale(const char *mem, size_t len, const char *what)
{
	bool hit = is_cached(mem, len);

	ck_assert_msg(oracle_check(&oracle, mem, len),
		      "stale (%s, %s mode): the device sends old bytes, query "
		      "said %s", what, is_strict() ? "strict" : "fast",
		      hit ? "hit" : "miss");
}

/* ---- suites ------------------------------------------------------------- */

Suite *stale_suite(const char *name, void (*add)(TCase *tc), int timeout)
{
	Suite *s = suite_create(name);
	TCase *fast = tcase_create("fast"), *strict = tcase_create("strict");

	tcase_set_timeout(fast, timeout);
	tcase_set_timeout(strict, timeout);
	tcase_add_checked_fixture(fast, stale_setup_fast, stale_teardown);
	tcase_add_checked_fixture(strict, stale_setup_strict, stale_teardown);
	add(fast);
	add(strict);
	/* There are no hooks under ThreadSanitizer. */
	if (!RTAB_TSAN)
		suite_add_tcase(s, fast);
	suite_add_tcase(s, strict);
	return s;
}

int stale_run(Suite *s)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	return suite_run(s);
}

uint64_t rss_now(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*u %lu", &pages), 1);
	fclose(f);
	return pages * PAGE;
}
