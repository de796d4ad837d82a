/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that allocates, sends, frees and looks, under whatever allocator and
 * linkage it was given.
 *
 * churn [REFUSE]: prints "mode M cached N: WHY"; exit status 0: every answer was
 * right, 1: one was stale, 2: something else failed, 77: REFUSE is not possible
 * here.  REFUSE takes something away before regc starts:
 *   uffd    userfaultfd, by a filter of system calls
 *   patch   executable memory, by a filter
 *   mdwe    memory that was writable becoming executable, by prctl
 * churn_run() alone is what a plug-in made of this file does.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libregc/regc.h"

#define N_HELD 16
#define ROUNDS 400
#define SET_MDWE 65 /* PR_SET_MDWE, kernel 6.3 */
#define NEW_UFFD 0xaa00 /* USERFAULTFD_IOC_NEW */

int churn_run(void);

static struct regc_library *lib;
static struct regc_domain *dom;
static int memfd;
static uint64_t cached;

/* ---- asking ------------------------------------------------------------- */

static int moved_right(const struct regc_lease *lease, const char *mem, size_t len)
{
	struct io_uring *ring = regc_domain_ring(dom);
	struct io_uring_cqe *cqe;
	char seen[8192];
	size_t at, n;
	int r;

	io_uring_prep_write_fixed(io_uring_get_sqe(ring), memfd, mem,
				  (unsigned int)len, 0, (int)lease->lkey);
	if (io_uring_submit_and_wait(ring, 1) < 0 ||
	    io_uring_wait_cqe(ring, &cqe))
		return 2;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	if (r != (int)len)
		return 2;
	for (at = 0; at < len; at += n) {
		n = len - at < sizeof(seen) ? len - at : sizeof(seen);
		if (pread(memfd, seen, n, (off_t)at) != (ssize_t)n)
			return 2;
		if (memcmp(seen, mem + at, n))
			return 1;
	}
	return 0;
}

static int ask(const char *mem, size_t len)
{
	struct regc_lease lease;
	int r = regc_get(dom, mem, len, REGC_ACCESS_LOCAL_WRITE, &lease);

	if (r) {
		fprintf(stderr, "churn: get: %s\n", regc_strerror(r));
		return 2;
	}
	if (!(lease.flags & REGC_LEASE_UNCACHED))
		cached++;
	r = moved_right(&lease, mem, len);
	regc_put(&lease);
	return r;
}

static uint32_t next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

/* ---- changing ----------------------------------------------------------- */

static int heap(void)
{
	static char *held[N_HELD];
	uint32_t i, at;
	size_t len;
	int r;

	for (i = 0; i < ROUNDS; i++) {
		at = next_random() % N_HELD;
		len = 1 + next_random() % (i % 64 ? 200 * 1024 : 4 << 20);
		if (i % 8 == 0 && held[at]) {
			held[at] = realloc(held[at], len);
		} else {
			free(held[at]);
			held[at] = malloc(len);
		}
		if (!held[at])
			return 2;
		memset(held[at], (int)i, len);
		r = ask(held[at], len);
		if (r)
			return r;
	}
	for (at = 0; at < N_HELD; at++) {
		free(held[at]);
		held[at] = NULL;
	}
	return 0;
}

static int pages(void)
{
	const int prot = PROT_READ | PROT_WRITE;
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	const size_t len = 8 * 4096;
	char *mem = mmap(NULL, len, prot, flags, -1, 0);
	int i, r = 0;

	if (mem == MAP_FAILED)
		return 2;
	for (i = 0; i < 200 && !r; i++) {
		memset(mem, i, len);
		r = ask(mem, len);
		switch (i % 4) {
		case 0:
			munmap(mem, len);
			break;
		case 1:
			syscall(SYS_munmap, mem, len);
			break;
		case 2:
			madvise(mem, len, MADV_DONTNEED);
			break;
		default:
			syscall(SYS_madvise, mem + 4096, len / 2, MADV_DONTNEED);
			break;
		}
		if (i % 4 < 2 && mmap(mem, len, prot,
				      flags | MAP_FIXED_NOREPLACE, -1, 0) != mem)
			return 2;
		memset(mem, i + 1, 4096);
		if (!r)
			r = ask(mem, len);
	}
	munmap(mem, len);
	return r;
}

__attribute__((visibility("default"))) int churn_run(void)
{
	struct regc_status st = { .size = sizeof(st) };
	int r = regc_open("churn", NULL, &lib);

	if (!r)
		r = regc_domain_uring_new(lib, 8, 256, &dom);
	if (!r)
		r = regc_status(lib, &st);
	if (r) {
		fprintf(stderr, "churn: %s\n", regc_strerror(r));
		return 2;
	}
	memfd = memfd_create("churn", MFD_CLOEXEC);
	r = heap();
	if (!r)
		r = pages();
	if (!r)
		r = heap();
	printf("mode %u cached %llu: %s\n", st.mode, (unsigned long long)cached,
	       st.why);
	if (r == 1)
		fprintf(stderr, "churn: stale\n");
	close(memfd);
	regc_domain_close(dom);
	regc_close(lib);
	return r;
}

/* ---- refusing ----------------------------------------------------------- */

#define LOAD(field) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* Goes on if equal, else over n. */
#define IF(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n)
#define IF_BITS(value, n) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, value, 0, n)
#define REFUSE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int filter(struct sock_filter *code, size_t n)
{
	struct sock_fprog prog = { (unsigned short)n, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0))
		return -1;
	return 0;
}

static int refuse(const char *what)
{
	struct sock_filter uffd[] = {
		LOAD(nr), IF(SYS_userfaultfd, 1), REFUSE,
		IF(SYS_ioctl, 3), LOAD(args[1]), IF(NEW_UFFD, 1), REFUSE, ALLOW,
	};
	struct sock_filter patch[] = {
		LOAD(nr), IF(SYS_mprotect, 3), LOAD(args[2]),
		IF_BITS(PROT_EXEC, 1), REFUSE,
		LOAD(nr), IF(SYS_mmap, 3), LOAD(args[2]),
		IF_BITS(PROT_EXEC, 1), REFUSE, ALLOW,
	};

	if (strcmp(what, "uffd") == 0)
		return filter(uffd, sizeof(uffd) / sizeof(uffd[0]));
	if (strcmp(what, "patch") == 0)
		return filter(patch, sizeof(patch) / sizeof(patch[0]));
	if (strcmp(what, "mdwe") == 0)
		return prctl(SET_MDWE, 1, 0, 0, 0);
	return -1;
}

int main(int argc, char **argv)
{
	if (argc > 1 && refuse(argv[1]) < 0)
		return 77;
	return churn_run();
}
