/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs device, against a libibverbs that is made of a few lines. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libregc/runtime.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"

#define PAGE 4096ul
#define W REGC_ACCESS_LOCAL_WRITE

static struct broker broker;
static struct regc_library *mpi, *pfs;
static struct fake_nic nic, nic2;
static struct fake_pd pd, pd2;

static void open_libraries(void)
{
	fake_nic_init(&nic, "fake0");
	fake_nic_init(&nic2, "fake1");
	fake_pd_init(&pd, &nic, 7);
	fake_pd_init(&pd2, &nic2, 8);
	ck_assert_int_eq(regc_open("mpi", NULL, &mpi), 0);
	ck_assert_int_eq(regc_open("pfs", NULL, &pfs), 0);
}

static bool stays_cached(struct regc_domain *dom, const void *addr)
{
	struct regc_lease a;

	ck_assert_int_eq(regc_get(dom, addr, 1, W, &a), 0);
	regc_put(&a);
	return regc_query(dom, addr, 1, W) == 1;
}

/* Just after a removal of pages nothing is cached; the self-test makes some. */
static void setup(void)
{
	struct regc_status st = { .size = sizeof(st) };
	struct regc_domain *dom;
	char *mem = test_map(PAGE, 1);

	broker_start(&broker, NULL);
	open_libraries();
	ck_assert_int_eq(regc_status(mpi, &st), 0);
	ck_assert_msg(st.connected && st.mode, "not caching: %s", st.why);
	ck_assert_int_eq(regc_domain_null(mpi, &dom), 0);
	WAIT_FOR(stays_cached(dom, mem), 30);
	ck_assert_int_eq(regc_domain_close(dom), 0);
}

static void teardown(void)
{
	broker_stop(&broker);
}

static void setup_alone(void)
{
	setenv("REGC_SOCKET", "/nonexistent/broker.sock", 1);
	open_libraries();
}

static struct regc_domain *domain(struct regc_library *lib, struct fake_pd *of)
{
	struct regc_domain *dom;

	ck_assert_int_eq(regc_domain_verbs(lib, &of->pd, &dom), 0);
	return dom;
}

static struct regc_lease get(struct regc_domain *dom, const void *addr, size_t len,
			     unsigned int access)
{
	struct regc_lease lease;

	ck_assert_int_eq(regc_get(dom, addr, len, access, &lease), 0);
	return lease;
}

/* Closes everything; nothing may be left at the device. */
static void close_all(struct regc_domain *a, struct regc_domain *b)
{
	ck_assert_int_eq(regc_domain_close(a), 0);
	ck_assert_int_eq(regc_domain_close(b), 0);
	ck_assert_int_eq(regc_close(mpi), 0);
	ck_assert_int_eq(regc_close(pfs), 0);
	ck_assert_uint_eq(pd.live, 0);
	ck_assert_uint_eq(pd2.live, 0);
	ck_assert_uint_eq(pd.regs, pd.deregs);
}

/* ---- one registration --------------------------------------------------- */

START_TEST(access_is_mapped_one_to_one)
{
	static const struct {
		unsigned int regc, verbs;
	} row[] = {
		{ REGC_ACCESS_LOCAL_READ, 0 },
		{ REGC_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE },
		{ REGC_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
		{ REGC_ACCESS_REMOTE_WRITE,
		  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE },
		{ REGC_ACCESS_REMOTE_ATOMIC,
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE },
		{ REGC_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING },
		{ REGC_ACCESS_ALL,
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
			  IBV_ACCESS_RELAXED_ORDERING },
	};
	struct regc_domain *dom = domain(mpi, &pd);
	struct regc_lease a;
	char *mem = test_map(PAGE, 1);

	a = get(dom, mem, 1, row[_i].regc);
	ck_assert_uint_eq(pd.last_access, row[_i].verbs);
	regc_put(&a);
	close_all(dom, NULL);
}
END_TEST

START_TEST(lease_tells_the_keys_and_the_region)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(dom, mem + PAGE + 1, PAGE, W);
	const struct ibv_mr *mr = (const void *)(uintptr_t)a.handle;

	ck_assert_uint_eq(a.lkey, mr->lkey);
	ck_assert_uint_eq(a.rkey, mr->rkey);
	ck_assert_ptr_eq(mr->pd, &pd.pd);
	ck_assert_ptr_eq(pd.last_addr, mem + PAGE);
	ck_assert_uint_eq(pd.last_len, 2 * PAGE);
	ck_assert_uint_eq(pd.last_iova, (uintptr_t)(mem + PAGE));
	regc_put(&a);
	close_all(dom, NULL);
}
END_TEST

START_TEST(error_of_the_device_is_returned_and_errno_is_kept)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	errno = ENOTTY;
	pd.reg_error = EOPNOTSUPP;
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &a), -EOPNOTSUPP);
	pd.reg_error = 0;
	a = get(dom, mem, PAGE, W);
	regc_put(&a);
	ck_assert_int_eq(regc_invalidate(mpi, mem, PAGE), 0);
	ck_assert_int_eq(errno, ENOTTY);
	close_all(dom, NULL);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
	struct regc_domain *dom = domain(mpi, &pd);
	struct regc_lease a;

	ck_assert_int_eq(regc_domain_verbs(mpi, NULL, &dom), -EINVAL);
	ck_assert_int_eq(regc_get(dom, &a, 1, REGC_ACCESS_ALL + 1, &a), -EINVAL);
	close_all(dom, NULL);
}
END_TEST

/* ---- limits of the device ----------------------------------------------- */

START_TEST(device_limits_hold)
{
	struct regc_domain *dom;
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a;

	nic.attr.max_mr_size = 2 * PAGE;
	nic.attr.atomic_cap = IBV_ATOMIC_NONE;
	dom = domain(mpi, &pd);
	ck_assert_int_eq(regc_get(dom, mem, 3 * PAGE, W, &a), -E2BIG);
	ck_assert_int_eq(regc_get(dom, mem, 1, REGC_ACCESS_REMOTE_ATOMIC, &a),
			 -EOPNOTSUPP);
	a = get(dom, mem, 2 * PAGE, W);
	regc_put(&a);
	close_all(dom, NULL);
}
END_TEST

START_TEST(device_that_tells_nothing_is_asked_for_everything)
{
	struct regc_domain *dom;
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	nic.query_error = EIO;
	dom = domain(mpi, &pd);
	a = get(dom, mem, PAGE, REGC_ACCESS_ALL);
	regc_put(&a);
	close_all(dom, NULL);
}
END_TEST

static void get_alternate_pages(struct regc_domain *dom, unsigned int n)
{
	char *mem = test_map(2 * n * PAGE, 1);
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct regc_lease a = get(dom, mem + 2 * i * PAGE, PAGE, W);

		ck_assert_uint_eq(a.flags, 0);
		regc_put(&a);
	}
}

START_TEST(number_of_regions_is_evicted_for)
{
	struct regc_domain *dom;

	nic.attr.max_mr = 4;
	dom = domain(mpi, &pd);
	get_alternate_pages(dom, 10);
	ck_assert_uint_eq(pd.regs, 10);
	ck_assert_uint_le(pd.live, 4);
	close_all(dom, NULL);
}
END_TEST

START_TEST(device_filled_by_others_is_evicted_for)
{
	struct regc_domain *dom = domain(mpi, &pd);

	pd.max_live = 3;
	get_alternate_pages(dom, 10);
	ck_assert_uint_eq(pd.regs, 10);
	close_all(dom, NULL);
}
END_TEST

/* ---- registrations that no cached one can be ----------------------------- */

START_TEST(region_is_registered_as_it_is_and_alone)
{
	static const struct {
		uint32_t flags;
		unsigned int verbs;
		uint64_t iova; /* 0: the address */
	} row[] = {
		{ 0, 0, 0 },
		{ REGC_REGION_ON_DEMAND, IBV_ACCESS_ON_DEMAND, 0 },
		{ REGC_REGION_ZERO_BASED, IBV_ACCESS_ZERO_BASED, 0 },
		{ REGC_REGION_IOVA, 0, 0x7000 },
	};
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(4 * PAGE, 1);
	struct regc_region_attr attr = {
		.size = sizeof(attr), .addr = mem + 8, .len = PAGE, .iova = 0x7000,
		.access = REGC_ACCESS_REMOTE_WRITE, .flags = row[_i].flags,
	};
	struct regc_lease a = get(dom, mem, PAGE, W), b;
	uint64_t start, len;

	ck_assert_int_eq(regc_get_region(dom, &attr, &b), 0);
	ck_assert_uint_eq(b.flags, REGC_LEASE_UNCACHED);
	ck_assert_uint_ne(b.lkey, a.lkey);
	ck_assert_ptr_eq(pd.last_addr, mem + 8);
	ck_assert_uint_eq(pd.last_len, PAGE);
	ck_assert_uint_eq(pd.last_iova,
			  row[_i].iova ? row[_i].iova : (uintptr_t)(mem + 8));
	ck_assert_uint_eq(pd.last_access, row[_i].verbs | IBV_ACCESS_LOCAL_WRITE |
						  IBV_ACCESS_REMOTE_WRITE);
	ck_assert_int_eq(regc_lease_range(&b, &start, &len), 0);
	ck_assert_uint_eq(start, (uintptr_t)(mem + 8));
	ck_assert_uint_eq(len, PAGE);
	regc_put(&b);
	ck_assert_uint_eq(pd.live, 1);
	regc_put(&a);
	close_all(dom, NULL);
}
END_TEST

START_TEST(dmabuf_is_registered_by_its_descriptor)
{
	struct regc_domain *dom = domain(mpi, &pd);
	struct regc_region_attr attr = {
		.size = sizeof(attr), .len = 3 * PAGE, .offset = PAGE,
		.iova = 0x10000, .flags = REGC_REGION_IOVA, .access = W,
		.dmabuf = 42,
	};
	struct regc_lease a;

	ck_assert_int_eq(regc_get_region(dom, &attr, &a), 0);
	ck_assert_int_eq(pd.last_dmabuf, 42);
	ck_assert_uint_eq(pd.last_offset, PAGE);
	ck_assert_uint_eq(pd.last_iova, 0x10000);
	ck_assert_uint_eq(pd.last_len, 3 * PAGE);
	regc_put(&a);
	ck_assert_uint_eq(pd.live, 0);
	attr.dmabuf = -1;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	pd.reg_error = EOPNOTSUPP;
	attr.dmabuf = 42;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EOPNOTSUPP);
	close_all(dom, NULL);
}
END_TEST

START_TEST(bad_regions_are_refused)
{
	struct regc_domain *dom = domain(mpi, &pd), *null;
	char *mem = test_map(PAGE, 1);
	const struct regc_region_attr good = {
		.size = sizeof(good), .addr = mem, .len = PAGE,
	};
	struct regc_region_attr attr = good;
	struct regc_lease a;

	attr.size--;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	attr = good;
	attr.len = 0;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	attr.len = SIZE_MAX;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	attr = good;
	attr.flags = 8;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	attr = good;
	attr.access = REGC_ACCESS_ALL + 1;
	ck_assert_int_eq(regc_get_region(dom, &attr, &a), -EINVAL);
	ck_assert_int_eq(regc_domain_null(mpi, &null), 0);
	ck_assert_int_eq(regc_get_region(null, &good, &a), -EOPNOTSUPP);
	ck_assert_int_eq(regc_domain_close(null), 0);
	close_all(dom, NULL);
}
END_TEST

/* ---- several libraries, several devices --------------------------------- */

START_TEST(same_pd_is_the_same_domain)
{
	struct regc_domain *a = domain(mpi, &pd), *b = domain(pfs, &pd);
	struct regc_domain *c = domain(pfs, &pd2);
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease one = get(a, mem, 4 * PAGE, W);
	struct regc_lease two = get(b, mem + PAGE, PAGE, W);

	ck_assert_ptr_eq(a->shared, b->shared);
	ck_assert_ptr_ne(a->shared, c->shared);
	ck_assert_str_eq(a->shared->name, "verbs:fake0:7");
	ck_assert_uint_eq(one.handle, two.handle);
	ck_assert_uint_eq(one.lkey, two.lkey);
	ck_assert_uint_eq(pd.regs, 1);
	regc_put(&one);
	regc_put(&two);
	ck_assert_int_eq(regc_domain_close(c), 0);
	ck_assert_int_eq(regc_domain_close(a), 0);
	ck_assert_uint_eq(pd.live, 1); /* the other library has it still */
	close_all(b, NULL);
}
END_TEST

START_TEST(several_nics_are_all_or_nothing)
{
	struct regc_domain *doms[2] = { domain(mpi, &pd), domain(mpi, &pd2) };
	char *mem = test_map(PAGE, 1);
	struct regc_lease lease[2], kept[2];

	memset(lease, 0x55, sizeof(lease));
	memcpy(kept, lease, sizeof(kept));
	pd2.reg_error = EIO;
	ck_assert_int_eq(regc_get_many(doms, 2, mem, PAGE, W, lease), -EIO);
	ck_assert_mem_eq(lease, kept, sizeof(kept));
	/* Nothing is held: what the first device has may go at once. */
	ck_assert_int_eq(regc_invalidate(mpi, mem, PAGE), 0);
	WAIT_FOR(rtab_load_acquire(&pd.live) == 0, 5);
	pd2.reg_error = 0;
	ck_assert_int_eq(regc_get_many(doms, 2, mem, PAGE, W, lease), 0);
	ck_assert_ptr_eq(((struct ibv_mr *)(uintptr_t)lease[0].handle)->pd,
			 &pd.pd);
	ck_assert_ptr_eq(((struct ibv_mr *)(uintptr_t)lease[1].handle)->pd,
			 &pd2.pd);
	regc_put(&lease[0]);
	regc_put(&lease[1]);
	close_all(doms[0], doms[1]);
}
END_TEST

/* ---- the end of a registration ------------------------------------------ */

START_TEST(freed_memory_is_deregistered_without_another_call)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(4 * PAGE, 1);
	struct regc_lease a = get(dom, mem, 4 * PAGE, W);

	regc_put(&a);
	munmap(mem, 4 * PAGE);
	WAIT_FOR(rtab_load_acquire(&pd.live) == 0, 5);
	close_all(dom, NULL);
}
END_TEST

START_TEST(busy_region_is_tried_again)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(PAGE, 1);
	struct regc_lease a = get(dom, mem, PAGE, W);

	regc_put(&a);
	rtab_store_release(&pd.dereg_error, EBUSY); /* a memory window */
	ck_assert_int_eq(regc_invalidate(mpi, mem, PAGE), 0);
	ck_assert_uint_eq(pd.live, 1);
	ck_assert_int_eq(regc_query(dom, mem, PAGE, W), 0);
	rtab_store_release(&pd.dereg_error, 0);
	WAIT_FOR(rtab_load_acquire(&pd.live) == 0, 5);
	close_all(dom, NULL);
}
END_TEST

START_TEST(close_deregisters_all_and_frees_the_pd)
{
	struct regc_domain *dom = domain(mpi, &pd);

	get_alternate_pages(dom, 100);
	ck_assert_uint_eq(pd.live, 100);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_uint_eq(pd.live, 0);
	/* Another PD at the same address is another domain. */
	fake_pd_init(&pd, &nic2, 9);
	dom = domain(mpi, &pd);
	ck_assert_str_eq(dom->shared->name, "verbs:fake1:9");
	close_all(dom, NULL);
}
END_TEST

START_TEST(lost_device_refuses_and_lets_go)
{
	struct regc_domain *dom = domain(mpi, &pd), *dom2 = domain(pfs, &pd2), *no;
	char *mem = test_map(PAGE, 1);
	struct regc_lease a = get(dom, mem, PAGE, W), b = get(dom2, mem, PAGE, W);
	struct regc_lease c;

	ck_assert_int_eq(regc_domain_lost(dom), 0);
	ck_assert_int_eq(regc_lease_ok(&a), 0);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &c), -ENODEV);
	ck_assert_int_eq(regc_domain_verbs(pfs, &pd.pd, &no), -ENODEV);
	/* The other device goes on. */
	regc_put(&b);
	b = get(dom2, mem, PAGE, W);
	ck_assert_uint_eq(b.flags, 0);
	regc_put(&a);
	WAIT_FOR(rtab_load_acquire(&pd.live) == 0, 5);
	regc_put(&b);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	/* Closed, it may be another device's. */
	dom = domain(mpi, &pd);
	a = get(dom, mem, PAGE, W);
	regc_put(&a);
	close_all(dom, dom2);
}
END_TEST

static void lose(void *arg)
{
	ck_assert_int_eq(regc_domain_lost(arg), 0);
}

START_TEST(device_lost_while_it_registers_is_not_trusted)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(PAGE, 1);
	struct regc_lease a;

	pd.in_reg = lose;
	pd.in_reg_arg = dom;
	ck_assert_int_eq(regc_get(dom, mem, PAGE, W, &a), -ENODEV);
	WAIT_FOR(rtab_load_acquire(&pd.live) == 0, 5);
	close_all(dom, NULL);
}
END_TEST

START_TEST(without_a_broker_each_lease_has_its_own_region)
{
	struct regc_domain *dom = domain(mpi, &pd);
	char *mem = test_map(PAGE, 1);
	struct regc_lease a = get(dom, mem, PAGE, W);

	ck_assert_uint_eq(a.flags, REGC_LEASE_UNCACHED);
	ck_assert_uint_ne(a.handle, 0);
	ck_assert_uint_eq(pd.live, 1);
	regc_put(&a);
	ck_assert_uint_eq(pd.live, 0);
	close_all(dom, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("verbs");
	TCase *tc = tcase_create("with a broker");
	TCase *alone = tcase_create("without a broker");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_checked_fixture(alone, setup_alone, NULL);
	tcase_add_loop_test(tc, access_is_mapped_one_to_one, 0, 7);
	tcase_add_test(tc, lease_tells_the_keys_and_the_region);
	tcase_add_test(tc, error_of_the_device_is_returned_and_errno_is_kept);
	tcase_add_test(tc, bad_arguments_are_refused);
	tcase_add_test(tc, device_limits_hold);
	tcase_add_test(tc, device_that_tells_nothing_is_asked_for_everything);
	tcase_add_test(tc, number_of_regions_is_evicted_for);
	tcase_add_test(tc, device_filled_by_others_is_evicted_for);
	tcase_add_loop_test(tc, region_is_registered_as_it_is_and_alone, 0, 4);
	tcase_add_test(tc, dmabuf_is_registered_by_its_descriptor);
	tcase_add_test(tc, bad_regions_are_refused);
	tcase_add_test(tc, same_pd_is_the_same_domain);
	tcase_add_test(tc, several_nics_are_all_or_nothing);
	tcase_add_test(tc, freed_memory_is_deregistered_without_another_call);
	tcase_add_test(tc, busy_region_is_tried_again);
	tcase_add_test(tc, lost_device_refuses_and_lets_go);
	tcase_add_test(tc, device_lost_while_it_registers_is_not_trusted);
	tcase_add_test(tc, close_deregisters_all_and_frees_the_pd);
	tcase_add_test(alone, without_a_broker_each_lease_has_its_own_region);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, alone);
	return suite_run(s);
}
