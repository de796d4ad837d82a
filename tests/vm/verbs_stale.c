/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 on real verbs: what the NIC moves is what the program sees, although
 * the memory at the address changes again and again.  With a control that has no
 * tracking and must fail, or the oracle would be blind.
 *
 * REGC_TEST_ROUNDS says how often the memory changes (1000).
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"
#include "tests/vm/rdma.h"

#define PAGE 4096ul
#define BYTES (4 * PAGE)
#define ACCESS                                                    \
	(REGC_ACCESS_LOCAL_WRITE | REGC_ACCESS_REMOTE_READ | \
	 REGC_ACCESS_REMOTE_WRITE)
#define CONTROL_ROUNDS 20

static struct broker broker;
static struct rdma rdma;
static struct regc_library *mpi, *pfs;
static struct regc_domain *dom, *dom2;

struct stale {
	uint64_t send, put, read, write; /* bytes */
};

/* ---- memory that changes ------------------------------------------------ */

enum how {
	HOW_LIBC,    /* munmap, mmap */
	HOW_RAW,     /* the same without libc */
	HOW_FIXED,   /* mmap over it */
	HOW_DISCARD, /* madvise(MADV_DONTNEED) */
	HOW_MOVE,    /* mremap to elsewhere; empty pages stay */
	N_HOW
};

static void map_again(char *mem)
{
	void *p = mmap(mem, BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	ck_assert_ptr_eq(p, mem);
}

static void change(char *mem, unsigned int how)
{
	void *p;

	switch (how) {
	case HOW_LIBC:
		ck_assert_int_eq(munmap(mem, BYTES), 0);
		map_again(mem);
		break;
	case HOW_RAW:
		raw_munmap(mem, BYTES);
		raw_mmap_at(mem, BYTES);
		break;
	case HOW_FIXED:
		map_again(mem);
		break;
	case HOW_DISCARD:
		ck_assert_int_eq(madvise(mem, BYTES, MADV_DONTNEED), 0);
		break;
	default:
		p = mremap(mem, BYTES, BYTES,
			   MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
		ck_assert_ptr_ne(p, MAP_FAILED);
		ck_assert_int_eq(munmap(p, BYTES), 0);
		break;
	}
}

/* Numbers that come in no other round. */
static void fill(char *mem, uint64_t round)
{
	uint64_t i, value;

	for (i = 0; i < BYTES; i += sizeof(value)) {
		value = (round + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
		memcpy(mem + i, &value, sizeof(value));
	}
}

static uint64_t bytes_different(const char *a, const char *b)
{
	uint64_t n = 0, i;

	for (i = 0; i < BYTES; i++)
		n += a[i] != b[i];
	return n;
}

/* ---- one round ---------------------------------------------------------- */

/* Each direction once, with the keys given; adds what is wrong. */
static void move(char *mem, uint64_t round, uint32_t lkey, uint32_t rkey,
		 struct stale *s)
{
	fill(mem, 4 * round);
	ck_assert_int_eq(rdma_send(&rdma, mem, BYTES, lkey), IBV_WC_SUCCESS);
	s->send += bytes_different(mem, rdma.peer_buf);
	fill(mem, 4 * round + 1);
	ck_assert_int_eq(rdma_put(&rdma, mem, BYTES, lkey), IBV_WC_SUCCESS);
	s->put += bytes_different(mem, rdma.peer_buf);
	fill(mem, 4 * round + 2);
	ck_assert_int_eq(rdma_peer_reads(&rdma, mem, BYTES, rkey),
			 IBV_WC_SUCCESS);
	s->read += bytes_different(mem, rdma.peer_buf);
	fill(rdma.peer_buf, 4 * round + 3);
	ck_assert_int_eq(rdma_peer_writes(&rdma, mem, BYTES, rkey),
			 IBV_WC_SUCCESS);
	s->write += bytes_different(mem, rdma.peer_buf);
}

/* One direction, another one each time. */
static void move_one(char *mem, uint64_t round, uint32_t lkey, uint32_t rkey,
		     struct stale *s)
{
	enum ibv_wc_status status;

	fill(mem, round);
	switch (round % 4) {
	case 0:
		status = rdma_send(&rdma, mem, BYTES, lkey);
		s->send += bytes_different(mem, rdma.peer_buf);
		break;
	case 1:
		status = rdma_put(&rdma, mem, BYTES, lkey);
		s->put += bytes_different(mem, rdma.peer_buf);
		break;
	case 2:
		status = rdma_peer_reads(&rdma, mem, BYTES, rkey);
		s->read += bytes_different(mem, rdma.peer_buf);
		break;
	default:
		fill(rdma.peer_buf, round + 1);
		status = rdma_peer_writes(&rdma, mem, BYTES, rkey);
		s->write += bytes_different(mem, rdma.peer_buf);
		break;
	}
	ck_assert_int_eq(status, IBV_WC_SUCCESS);
}

static void show(const char *what, unsigned int rounds, const struct stale *s)
{
	printf("%s: %u rounds, stale bytes: send %llu, write %llu, "
	       "read by peer %llu, write by peer %llu\n", what, rounds,
	       (unsigned long long)s->send, (unsigned long long)s->put,
	       (unsigned long long)s->read, (unsigned long long)s->write);
	fflush(stdout);
}

START_TEST(without_tracking_old_bytes_are_moved)
{
	struct stale s = { 0 };
	unsigned int round;
	struct ibv_mr *mr;
	char *mem;

	rdma_open(&rdma, BYTES);
	mem = test_map(BYTES, 1);
	mr = ibv_reg_mr(rdma.ours.pd, mem, BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(mr);
	move(mem, 0, mr->lkey, mr->rkey, &s);
	ck_assert_uint_eq(s.send + s.put + s.read + s.write, 0);
	for (round = 1; round <= CONTROL_ROUNDS; round++) {
		change(mem, round % N_HOW);
		move(mem, round, mr->lkey, mr->rkey, &s);
	}
	show("no tracking", CONTROL_ROUNDS, &s);
	ck_assert_uint_gt(s.send, 0);
	ck_assert_uint_gt(s.put, 0);
	ck_assert_uint_gt(s.read, 0);
	ck_assert_uint_gt(s.write, 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	rdma_close(&rdma);
}
END_TEST

/* ---- with regc ---------------------------------------------------------- */

static struct regc_stats stats_of(struct regc_library *lib)
{
	struct regc_stats s = { .size = sizeof(s) };

	ck_assert_int_eq(regc_stats(lib, &s), 0);
	return s;
}

static void setup(void)
{
	struct regc_status st = { .size = sizeof(st) };

	broker_start(&broker, NULL);
	rdma_open(&rdma, BYTES);
	ck_assert_int_eq(regc_open("mpi", NULL, &mpi), 0);
	ck_assert_int_eq(regc_open("pfs", NULL, &pfs), 0);
	ck_assert_int_eq(regc_status(mpi, &st), 0);
	ck_assert_msg(st.connected && st.mode, "not caching: %s", st.why);
	ck_assert_int_eq(regc_domain_verbs(mpi, rdma.ours.pd, &dom), 0);
	ck_assert_int_eq(regc_domain_verbs(pfs, rdma.ours.pd, &dom2), 0);
}

static void setup_strict(void)
{
	setenv("REGC_MODE", "strict", 1);
	setup();
}

/* The PD can be ended: nothing of regc's is left in it. */
static void teardown(void)
{
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_int_eq(regc_domain_close(dom2), 0);
	ck_assert_int_eq(regc_close(mpi), 0);
	ck_assert_int_eq(regc_close(pfs), 0);
	rdma_close(&rdma);
	broker_stop(&broker);
}

static struct regc_lease get(struct regc_domain *d, char *mem)
{
	struct regc_lease lease;

	ck_assert_int_eq(regc_get(d, mem, BYTES, ACCESS, &lease), 0);
	return lease;
}

static unsigned int n_rounds(void)
{
	const char *text = getenv("REGC_TEST_ROUNDS");

	return text ? (unsigned int)strtoul(text, NULL, 10) : 1000;
}

/* With many rounds each library moves in one direction a round. */
#define MANY_ROUNDS 5000

START_TEST(with_regc_no_byte_is_stale)
{
	unsigned int round, rounds = n_rounds(), uncached = 0;
	struct stale s = { 0 };
	struct regc_stats st;
	char *mem = test_map(BYTES, 1);

	for (round = 1; round <= rounds; round++) {
		struct regc_lease a, b;

		change(mem, round % N_HOW);
		fill(mem, 0);
		a = get(dom, mem);
		b = get(dom2, mem);
		uncached += a.flags & REGC_LEASE_UNCACHED;
		if (rounds > MANY_ROUNDS) {
			move_one(mem, 3 * round, a.lkey, a.rkey, &s);
			move_one(mem, 3 * round + 1, b.lkey, b.rkey, &s);
		} else {
			move(mem, 2 * round, a.lkey, a.rkey, &s);
			move(mem, 2 * round + 1, b.lkey, b.rkey, &s);
		}
		regc_put(&a);
		regc_put(&b);
	}
	st = stats_of(mpi);
	show(getenv("REGC_MODE") ? "strict" : "fast", rounds, &s);
	printf("  uncached %u, registrations %llu, "
	       "hits of the second library %llu\n", uncached, (unsigned long long)st.registrations,
	       (unsigned long long)stats_of(pfs).hits);
	ck_assert_uint_eq(s.send + s.put + s.read + s.write, 0);
	ck_assert_uint_lt(uncached, rounds / 10);
	/* Without hooks nothing is cached for a while after each change. */
	if (!getenv("REGC_MODE"))
		ck_assert_uint_gt(stats_of(pfs).hits, rounds / 10);
}
END_TEST

static bool stays_cached(char *mem)
{
	struct regc_lease a = get(dom, mem);

	regc_put(&a);
	return regc_query(dom, mem, BYTES, ACCESS) == 1;
}

START_TEST(two_libraries_share_one_memory_region)
{
	char *mem = test_map(BYTES, 1);
	uint64_t regs, hits = stats_of(pfs).hits;
	struct regc_lease a, b;
	const struct ibv_mr *mr;

	/* Just after a removal of pages nothing is: the self-test's, say. */
	WAIT_FOR(stays_cached(mem), 30);
	regs = stats_of(mpi).registrations;
	a = get(dom, mem);
	b = get(dom2, mem);
	mr = (const void *)(uintptr_t)a.handle;
	ck_assert_uint_eq(a.flags | b.flags, 0);
	ck_assert_uint_eq(a.lkey, b.lkey);
	ck_assert_uint_eq(a.rkey, b.rkey);
	ck_assert_uint_eq(a.handle, b.handle);
	ck_assert_ptr_eq(mr->pd, rdma.ours.pd);
	ck_assert_uint_eq(stats_of(mpi).registrations, regs);
	ck_assert_uint_eq(stats_of(pfs).hits, hits + 1);
	regc_put(&a);
	regc_put(&b);
}
END_TEST

/* Until the peer is refused; ns since from. */
static uint64_t wait_refused(char *mem, uint32_t rkey, uint64_t from)
{
	enum ibv_wc_status status;

	do {
		status = rdma_peer_writes(&rdma, mem, BYTES, rkey);
		ck_assert_msg(test_now_ns() - from < UINT64_C(10000000000),
			      "the old rkey still works");
	} while (status == IBV_WC_SUCCESS);
	ck_assert_int_eq(status, IBV_WC_REM_ACCESS_ERR);
	return test_now_ns() - from;
}

START_TEST(remote_key_is_refused_once_the_memory_is_gone)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease a = get(dom, mem);
	uint64_t from;

	ck_assert_int_eq(rdma_peer_writes(&rdma, mem, BYTES, a.rkey),
			 IBV_WC_SUCCESS);
	regc_put(&a);
	from = test_now_ns();
	if (_i == 0)
		ck_assert_int_eq(munmap(mem, BYTES), 0);
	else
		raw_munmap(mem, BYTES);
	printf("rkey refused %llu us after %s munmap began\n",
	       (unsigned long long)(wait_refused(mem, a.rkey, from) / 1000),
	       _i == 0 ? "libc's" : "a raw");
	rdma_reconnect(&rdma);
}
END_TEST

START_TEST(remote_key_of_leased_memory_works_until_the_put)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease a = get(dom, mem);

	ck_assert_int_eq(munmap(mem, BYTES), 0);
	WAIT_FOR(regc_lease_ok(&a) == 0, 10);
	ck_assert_int_eq(rdma_peer_writes(&rdma, mem, BYTES, a.rkey),
			 IBV_WC_SUCCESS);
	regc_put(&a);
	wait_refused(mem, a.rkey, test_now_ns());
	rdma_reconnect(&rdma);
}
END_TEST

START_TEST(read_only_memory_is_sent_and_not_written)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease a;

	ck_assert_int_eq(mprotect(mem, BYTES, PROT_READ), 0);
	ck_assert_int_eq(regc_get(dom, mem, BYTES, REGC_ACCESS_REMOTE_READ, &a),
			 0);
	ck_assert_int_eq(rdma_peer_reads(&rdma, mem, BYTES, a.rkey),
			 IBV_WC_SUCCESS);
	ck_assert_uint_eq(bytes_different(mem, rdma.peer_buf), 0);
	ck_assert_int_eq(rdma_peer_writes(&rdma, mem, BYTES, a.rkey),
			 IBV_WC_REM_ACCESS_ERR);
	rdma_reconnect(&rdma);
	regc_put(&a);
	ck_assert_int_lt(regc_get(dom, mem, BYTES, ACCESS, &a), 0);
}
END_TEST

static TCase *with_regc(const char *name, void (*before)(void))
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 7200);
	tcase_add_checked_fixture(tc, before, teardown);
	tcase_add_test(tc, two_libraries_share_one_memory_region);
	tcase_add_loop_test(tc, remote_key_is_refused_once_the_memory_is_gone,
			    0, 2);
	tcase_add_test(tc, remote_key_of_leased_memory_works_until_the_put);
	tcase_add_test(tc, read_only_memory_is_sent_and_not_written);
	tcase_add_test(tc, with_regc_no_byte_is_stale);
	return tc;
}

int main(void)
{
	Suite *s = suite_create("verbs_stale");
	TCase *control = tcase_create("control");

	tcase_set_timeout(control, 120);
	tcase_add_test(control, without_tracking_old_bytes_are_moved);
	suite_add_tcase(s, control);
	suite_add_tcase(s, with_regc("fast", setup));
	suite_add_tcase(s, with_regc("strict", setup_strict));
	return suite_run(s);
}
