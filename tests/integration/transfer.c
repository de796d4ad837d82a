/* SPDX-License-Identifier: BSD-2-Clause */
/* What tests of transfers share; see transfer.h. */
#include "tests/integration/transfer.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct broker broker;
struct regc_library *lib;
struct oracle oracle;

void setup(void)
{
	broker_start(&broker, NULL);
	ck_assert_int_eq(regc_open("sender", NULL, &lib), 0);
	oracle_open(&oracle, lib, 64);
}

void teardown(void)
{
	oracle_close(&oracle);
	ck_assert_int_eq(regc_close(lib), 0);
	broker_stop(&broker);
}

/* ---- a transfer and those who get in its way ------------------------------ */

void lease(struct buffer *b, char *mem, size_t bytes)
{
	b->mem = mem;
	b->bytes = bytes;
	ck_assert_int_eq(regc_get(oracle.dom, mem, bytes, W, &b->lease), 0);
}

int try_begin(struct buffer *b, unsigned int direction, uint32_t policy,
		     uint32_t conflict, uint32_t limit_ms)
{
	struct regc_transfer_attr attr = {
		.size = sizeof(attr), .policy = policy, .conflict = conflict,
		.limit_ms = limit_ms,
	};

	uint64_t limit = test_now_ns() + 20000000000u;
	int r;

	/* As the manual says: memory that changed, or may have, is leased again. */
	while ((r = regc_transfer_begin(&b->lease, b->mem, b->bytes, direction,
					&attr, &b->t)) == -ESTALE &&
	       test_now_ns() < limit) {
		regc_put(&b->lease);
		lease(b, b->mem, b->bytes);
	}
	return r;
}

void begin(struct buffer *b, unsigned int direction, uint32_t policy)
{
	ck_assert_int_eq(try_begin(b, direction, policy, 0, 0), 0);
	ck_assert_int_eq(regc_transfer_posted(&b->t), 0);
}

struct regc_transfer_info info_of(const struct buffer *b)
{
	struct regc_transfer_info info = { .size = sizeof(info) };

	ck_assert_int_eq(regc_transfer_state(&b->t, &info), 0);
	return info;
}

struct regc_transfer_info complete(struct buffer *b)
{
	struct regc_transfer_info info = { .size = sizeof(info) };

	ck_assert_int_eq(regc_transfer_complete(&b->t, &info), 0);
	return info;
}

void end(struct buffer *b)
{
	regc_put(&b->lease);
}

static void *make_access(void *arg)
{
	struct access *a = arg;

	rtab_store_release(&a->tid, (uint32_t)syscall(SYS_gettid));
	if (a->what == STORE)
		*(volatile char *)a->at = a->value;
	else if (a->what == LOAD)
		a->value = *(volatile char *)a->at;
	else
		ck_assert_int_eq(read(a->pipe, a->at, 1), 1);
	rtab_store_release(&a->done, 1);
	return NULL;
}

void access_start(struct access *a, enum what what, char *at, char value)
{
	int fds[2];

	memset(a, 0, sizeof(*a));
	a->what = what;
	a->at = at;
	a->value = value;
	if (what == READ) {
		ck_assert_int_eq(pipe(fds), 0);
		ck_assert_int_eq(write(fds[1], &value, 1), 1);
		close(fds[1]);
		a->pipe = fds[0];
	}
	pthread_create(&a->thread, NULL, make_access, a);
}

void access_end(struct access *a)
{
	WAIT_FOR(rtab_load_acquire(&a->done), 10);
	pthread_join(a->thread, NULL);
	if (a->what == READ)
		close(a->pipe);
}

void wait_until_blocked(const struct buffer *b, uint32_t n)
{
	WAIT_FOR(info_of(b).n_blocked >= n, 10);
}
