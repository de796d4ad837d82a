/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holds a registration for scripts that look at it with regc-ctl.
 *
 * hold LIBRARY: registers two buffers of 256 KiB under that name and keeps the
 * first one leased, prints "PID LEASED FREE LEN", waits for the end of standard
 * input, puts and exits.  77: not cached here.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libregc/regc.h"

#define LEN (UINT64_C(256) << 10)

static int fail(const char *what, int r)
{
	fprintf(stderr, "%s: %s\n", what, regc_strerror(r));
	return 1;
}

/* Leaves *ret_lease open, or put if it is not cached: 77. */
static int get(struct regc_domain *dom, void *buf, struct regc_lease *ret_lease)
{
	int r = regc_get(dom, buf, LEN, REGC_ACCESS_LOCAL_WRITE, ret_lease);

	if (r < 0)
		return fail("regc_get", r);
	if (ret_lease->flags & REGC_LEASE_UNCACHED) {
		fprintf(stderr, "hold: the lease is not cached\n");
		regc_put(ret_lease);
		return 77;
	}
	return 0;
}

static int hold(struct regc_domain *dom, char *leased, char *unleased)
{
	struct regc_lease lease;
	char c;
	int status = get(dom, unleased, &lease);

	if (status)
		return status;
	regc_put(&lease);
	status = get(dom, leased, &lease);
	if (status)
		return status;
	printf("%d 0x%" PRIxPTR " 0x%" PRIxPTR " %" PRIu64 "\n", (int)getpid(),
	       (uintptr_t)leased, (uintptr_t)unleased, LEN);
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	regc_put(&lease);
	return 0;
}

int main(int argc, char **argv)
{
	struct regc_library *lib;
	struct regc_domain *dom;
	char *buf;
	int r, status;

	buf = mmap(NULL, 3 * LEN, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argc != 2 || buf == MAP_FAILED)
		return 1;
	r = regc_open(argv[1], NULL, &lib);
	if (r < 0)
		return fail("regc_open", r);
	r = regc_domain_null(lib, &dom);
	if (r < 0)
		return fail("regc_domain_null", r);
	status = hold(dom, buf, buf + 2 * LEN);
	r = regc_domain_close(dom);
	if (r < 0)
		return fail("regc_domain_close", r);
	r = regc_close(lib);
	return r < 0 ? fail("regc_close", r) : status;
}
