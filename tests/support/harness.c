/* SPDX-License-Identifier: BSD-2-Clause */
/* A private broker, a fake device, the oracle. */
#include "tests/support/harness.h"
#include "shm/atomic.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t test_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void test_pause(void)
{
	const struct timespec pause = { .tv_nsec = 100000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

unsigned int test_seed(const char *name)
{
	const char *text = getenv("REGC_TEST_SEED");
	unsigned int seed = text ? (unsigned int)strtoul(text, NULL, 0) :
				   (unsigned int)(test_now_ns() / 1000);

	printf("%s: seed %u\n", name, seed);
	fflush(stdout);
	return seed;
}

unsigned int test_seconds(void)
{
	const char *text = getenv("REGC_TEST_SECONDS");
	int n = text ? atoi(text) : 2;

	return n > 0 ? (unsigned int)n : 2;
}

char *test_map(size_t bytes, int value)
{
	char *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem, value, bytes);
	return mem;
}

void *raw_mmap_at(void *addr, size_t bytes)
{
	long r = syscall(SYS_mmap, addr, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1,
			 0L);

	ck_assert_int_ne(r, -1);
	return (void *)r;
}

void raw_munmap(void *addr, size_t bytes)
{
	ck_assert_int_eq(syscall(SYS_munmap, addr, bytes), 0);
}

/* ---- broker ------------------------------------------------------------- */

static bool answers(const struct broker *b)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool ok;

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", b->socket);
	ok = connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0;
	close(fd);
	return ok;
}

void broker_restart(struct broker *b, const char *const *settings)
{
	const char *build = getenv("REGC_BUILDDIR"), *argv[32];
	const char *level = getenv("REGC_TEST_LOG");
	char path[4096];
	int n = 0;

	snprintf(path, sizeof(path), "%s/regcached/regcached",
		 build ? build : "../..");
	argv[n++] = path;
	argv[n++] = "--socket";
	argv[n++] = b->socket;
	argv[n++] = "--log-level";
	argv[n++] = level ? level : "error";
	for (; settings && *settings && n < 30; settings++) {
		argv[n++] = "--set";
		argv[n++] = *settings;
	}
	argv[n] = NULL;
	b->pid = fork();
	ck_assert_int_ge(b->pid, 0);
	if (b->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(path, (char *const *)argv);
		_exit(127);
	}
	WAIT_FOR(answers(b) || waitpid(b->pid, NULL, WNOHANG) != 0, 10);
	ck_assert_msg(answers(b), "regcached did not come up");
}

void broker_start(struct broker *b, const char *const *settings)
{
	const char *tmp = getenv("TMPDIR");

	memset(b, 0, sizeof(*b));
	snprintf(b->dir, sizeof(b->dir), "%s/regc-test-XXXXXX",
		 tmp && strlen(tmp) < 32 ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(b->dir));
	snprintf(b->socket, sizeof(b->socket), "%s/broker.sock", b->dir);
	setenv("REGC_SOCKET", b->socket, 1);
	broker_restart(b, settings);
}

static void reap(struct broker *b, int sig)
{
	if (b->pid <= 0)
		return;
	kill(b->pid, sig);
	waitpid(b->pid, NULL, 0);
	b->pid = 0;
}

void broker_kill(struct broker *b)
{
	reap(b, SIGKILL);
}

void broker_stop(struct broker *b)
{
	char path[128];

	reap(b, SIGTERM);
	unlink(b->socket);
	snprintf(path, sizeof(path), "%s.lock", b->socket);
	unlink(path);
	rmdir(b->dir);
}

/* ---- fake device -------------------------------------------------------- */

static void fake_lock(struct fake *f)
{
	while (__sync_lock_test_and_set(&f->lock, 1))
		sched_yield();
}

static void fake_unlock(struct fake *f)
{
	__sync_lock_release(&f->lock);
}

static int fake_enter(struct fake *f, uint64_t start, uint64_t len,
		      unsigned int access, uint32_t *ret)
{
	uint32_t i, at = f->n_entries;

	if (f->fail_next) {
		int r = f->fail_next;

		f->fail_next = 0;
		return r;
	}
	if (f->max_live && f->live >= f->max_live)
		return -ENOSPC;
	for (i = 0; i < f->n_entries; i++) {
		if (!f->entry[i].live)
			at = i;
		else if (f->refuse_overlap && f->entry[i].start < start + len &&
			 start < f->entry[i].start + f->entry[i].len)
			return -EEXIST;
	}
	if (at == f->n_entries && f->n_entries++ >= 4096)
		return -ENOSPC;
	f->entry[at].start = start;
	f->entry[at].len = len;
	f->entry[at].access = access;
	f->entry[at].live = true;
	rtab_fetch_add(&f->regs, 1);
	rtab_fetch_add(&f->live, 1);
	f->live_bytes += len;
	f->last_access = access;
	f->last_start = start;
	f->last_len = len;
	*ret = at;
	return 0;
}

static int fake_reg(void *ctx, void *addr, size_t len, unsigned int access,
		    struct regc_key *ret_key)
{
	struct fake *f = ctx;
	int r;

	fake_lock(f);
	r = fake_enter(f, (uintptr_t)addr, len, access, &ret_key->lkey);
	fake_unlock(f);
	if (!r && f->in_reg)
		f->in_reg(f->in_reg_arg, addr, len);
	return r;
}

static int fake_dereg(void *ctx, const struct regc_key *key)
{
	struct fake *f = ctx;

	fake_lock(f);
	ck_assert(f->entry[key->lkey].live);
	f->entry[key->lkey].live = false;
	rtab_fetch_add(&f->deregs, 1);
	rtab_fetch_sub(&f->live, 1);
	f->live_bytes -= f->entry[key->lkey].len;
	fake_unlock(f);
	return 0;
}

static void fake_limits(void *ctx, struct regc_device_limits *ret)
{
	const struct fake *f = ctx;

	ret->max_bytes = f->max_bytes;
}

const struct regc_device_ops fake_ops = {
	.size = sizeof(fake_ops),
	.name = "fake",
	.reg = fake_reg,
	.dereg = fake_dereg,
	.limits = fake_limits,
};

/* ---- oracle ------------------------------------------------------------- */

void oracle_open(struct oracle *o, struct regc_library *lib, unsigned int n)
{
	ck_assert_int_eq(regc_domain_uring_new(lib, 8, n, &o->dom), 0);
	o->fd = memfd_create("oracle", MFD_CLOEXEC);
	ck_assert_int_ge(o->fd, 0);
}

void oracle_close(struct oracle *o)
{
	close(o->fd);
	ck_assert_int_eq(regc_domain_close(o->dom), 0);
}

/* In small pieces: a large buffer would be new memory at a telling moment. */
static bool received_same(int fd, const char *addr, size_t len)
{
	char seen[16384];
	size_t at, n;

	for (at = 0; at < len; at += n) {
		n = len - at < sizeof(seen) ? len - at : sizeof(seen);
		ck_assert_int_eq(pread(fd, seen, n, (off_t)at), (ssize_t)n);
		if (memcmp(seen, addr + at, n) != 0)
			return false;
	}
	return true;
}

bool oracle_agrees(struct oracle *o, const struct regc_lease *lease,
		   const void *addr, size_t len)
{
	struct io_uring *ring = regc_domain_ring(o->dom);
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int r;

	io_uring_prep_write_fixed(sqe, o->fd, addr, (unsigned int)len, 0,
				  (int)lease->lkey);
	r = io_uring_submit_and_wait(ring, 1);
	ck_assert_int_ge(r, 0);
	ck_assert_int_eq(io_uring_wait_cqe(ring, &cqe), 0);
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	ck_assert_int_eq(r, (int)len);
	return received_same(o->fd, addr, len);
}

bool oracle_check(struct oracle *o, const void *addr, size_t len)
{
	struct regc_lease lease;
	bool same;

	ck_assert_int_eq(regc_get(o->dom, addr, len, REGC_ACCESS_LOCAL_WRITE,
				  &lease), 0);
	same = oracle_agrees(o, &lease, addr, len);
	regc_put(&lease);
	return same;
}

/* ---- huge pages --------------------------------------------------------- */

#define NR_HUGEPAGES "/proc/sys/vm/nr_hugepages"

static long huge_before = -1;

static long number_in(const char *path, long set)
{
	FILE *f = fopen(path, set >= 0 ? "r+e" : "re");
	long n = -1;

	if (!f)
		return -1;
	if (set >= 0)
		fprintf(f, "%ld\n", set);
	else if (fscanf(f, "%ld", &n) != 1)
		n = -1;
	fclose(f);
	return n;
}

void huge_pages_reserve(void)
{
	huge_before = number_in(NR_HUGEPAGES, -1);
	if (huge_before >= 0 && huge_before < 8)
		number_in(NR_HUGEPAGES, 8);
}

void huge_pages_return(void)
{
	if (huge_before >= 0 && huge_before < 8)
		number_in(NR_HUGEPAGES, huge_before);
}

bool have_huge_pages(void)
{
	return number_in(NR_HUGEPAGES, -1) >= 8;
}
