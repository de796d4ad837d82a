/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libregc-verbs.so before a libibverbs without a device (fake_libibverbs.c): the
 * program is one that knows libibverbs alone, except where it looks behind.
 *
 * Started by hand it starts itself, once for each setting, with LD_PRELOAD.
 */
#include <check.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"

#define PAGE 4096ul
#define RW IBV_ACCESS_LOCAL_WRITE
#define FAKE1_GUID "0123:4567:89ab:cde1"
#define REMOTE (RW | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static struct broker broker;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct fake_pd *fake; /* pd, from inside */

static struct ibv_context *open_nic(unsigned int number)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[number]);

	ck_assert_ptr_nonnull(c);
	ibv_free_device_list(list);
	return c;
}

static struct ibv_mr *reg(struct ibv_pd *in, void *addr, size_t len,
			  unsigned int access)
{
	/* Not constant: the header takes ibv_reg_mr_iova2(). */
	struct ibv_mr *mr = ibv_reg_mr(in, addr, len, access);

	ck_assert_ptr_nonnull(mr);
	return mr;
}

static void dereg(struct ibv_mr *mr)
{
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
}

static bool stays_cached(void *mem)
{
	uint32_t before = fake->regs;

	dereg(reg(pd, mem, PAGE, RW));
	dereg(reg(pd, mem, PAGE, RW));
	return fake->regs == before;
}

static void open_pd(void)
{
	context = open_nic(0);
	pd = ibv_alloc_pd(context);
	ck_assert_ptr_nonnull(pd);
	fake = (struct fake_pd *)pd;
}

/* Just after a removal of pages nothing is cached; the self-test makes some. */
static void setup(void)
{
	char *mem = test_map(PAGE, 1);

	broker_start(&broker, NULL);
	open_pd();
	WAIT_FOR(stays_cached(mem), 30);
	munmap(mem, PAGE);
	WAIT_FOR(rtab_load_acquire(&fake->live) == 0, 10);
	fake->regs = fake->deregs = 0;
}

static void teardown(void)
{
	broker_stop(&broker);
}

/* ---- what a program may rely on ----------------------------------------- */

START_TEST(region_is_what_was_asked_for)
{
	char *mem = test_map(4 * PAGE, 1);
	struct ibv_mr *mr;

	errno = ENOTTY;
	mr = ibv_reg_mr(pd, mem + 100, PAGE, RW);
	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_ptr_eq(mr->context, context);
	ck_assert_ptr_eq(mr->pd, pd);
	ck_assert_ptr_eq(mr->addr, mem + 100);
	ck_assert_uint_eq(mr->length, PAGE);
	ck_assert_uint_ne(mr->lkey, 0);
	ck_assert_uint_eq(mr->rkey, mr->lkey + 1);
	ck_assert_ptr_eq(fake->last_addr, mem);
	ck_assert_uint_eq(fake->last_len, 2 * PAGE);
	ck_assert_uint_eq(fake->last_access, RW);
	dereg(mr);
}
END_TEST

START_TEST(second_registration_asks_nothing_of_the_device)
{
	char *mem = test_map(4 * PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, 4 * PAGE, REMOTE);
	uint32_t lkey = mr->lkey;

	ck_assert_uint_eq(fake->regs, 1);
	dereg(mr);
	ck_assert_uint_eq(fake->deregs, 0);
	mr = ibv_reg_mr_iova(pd, mem + PAGE, 10, (uintptr_t)mem + PAGE, REMOTE);
	ck_assert_uint_eq(mr->lkey, lkey);
	ck_assert_ptr_eq(mr->addr, mem + PAGE);
	ck_assert_uint_eq(mr->length, 10);
	ck_assert_uint_eq(fake->regs, 1);
	dereg(mr);
}
END_TEST

START_TEST(regions_of_the_same_memory_are_apart)
{
	char *mem = test_map(PAGE, 1), *other = test_map(PAGE, 1);
	struct ibv_mr *a = reg(pd, mem, PAGE, RW), *b = reg(pd, mem, 10, RW);

	ck_assert_ptr_ne(a, b);
	ck_assert_uint_eq(fake->regs, 1);
	dereg(a);
	ck_assert_int_eq(ibv_dereg_mr(a), EINVAL);
	ck_assert_uint_eq(b->length, 10);
	munmap(mem, PAGE);
	/* b holds it, as a pinned page would be held. */
	dereg(reg(pd, other, PAGE, RW));
	ck_assert_uint_eq(fake->deregs, 0);
	dereg(b);
	WAIT_FOR(rtab_load_acquire(&fake->deregs) == 1, 10);
}
END_TEST

START_TEST(changed_memory_has_a_new_key)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	uint32_t lkey = mr->lkey;

	dereg(mr);
	munmap(mem, PAGE);
	ck_assert_ptr_eq(raw_mmap_at(mem, PAGE), mem);
	mr = reg(pd, mem, PAGE, RW);
	ck_assert_uint_ne(mr->lkey, lkey);
	dereg(mr);
}
END_TEST

static struct ibv_mr *reg_unusual(char *mem, int i)
{
	static const unsigned int flags[] = {
		IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_ON_DEMAND,
		IBV_ACCESS_HUGETLB,
	};

	return i < 4 ? reg(pd, mem, PAGE, RW | flags[i]) :
		       ibv_reg_mr_iova(pd, mem, PAGE, 0x10000, RW);
}

START_TEST(what_cannot_be_cached_goes_to_libibverbs)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg_unusual(mem, _i);

	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(fake->regs, 1);
	ck_assert_ptr_eq(fake->last_addr, mem);
	ck_assert_uint_eq(fake->last_iova, _i < 4 ? (uintptr_t)mem : 0x10000);
	dereg(mr);
	ck_assert_uint_eq(fake->live, 0);
}
END_TEST

START_TEST(error_is_that_of_libibverbs)
{
	char *mem = test_map(PAGE, 1);

	fake->reg_error = EPERM;
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, PAGE, RW));
	ck_assert_int_eq(errno, EPERM);
	fake->reg_error = 0;
	dereg(reg(pd, mem, PAGE, RW));
}
END_TEST

START_TEST(full_device_makes_room_of_what_is_cached)
{
	char *mem = test_map(20 * PAGE, 1);
	struct ibv_mr *mr;
	unsigned int i;

	fake->max_live = 4;
	for (i = 0; i < 8; i++)
		dereg(reg(pd, mem + 2 * i * PAGE, PAGE, RW));
	ck_assert_uint_eq(fake->live, 4);
	/* Also for those that pass by. */
	mr = reg(pd, mem, PAGE, RW | IBV_ACCESS_ON_DEMAND);
	dereg(mr);
}
END_TEST

START_TEST(limit_of_the_operator_is_no_memory)
{
	char *mem = test_map(64 * PAGE, 1);

	ck_assert_ptr_null(ibv_reg_mr(pd, mem, 64 * PAGE, RW));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_uint_eq(fake->regs, 0);
	dereg(reg(pd, mem, 4 * PAGE, RW));
}
END_TEST

static void setup_small(void)
{
	static const char *const settings[] = { "limit.space.hard_bytes=65536", NULL };

	broker_start(&broker, settings);
	open_pd();
}

START_TEST(region_can_be_registered_anew)
{
	char *mem = test_map(4 * PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	uint32_t lkey = mr->lkey;

	ck_assert_int_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
				      mem + 2 * PAGE, PAGE, 0), 0);
	ck_assert_ptr_eq(mr->addr, mem + 2 * PAGE);
	ck_assert_uint_ne(mr->lkey, lkey);
	ck_assert_int_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
				      0, REMOTE), 0);
	ck_assert_uint_eq(fake->last_access, REMOTE);
	lkey = mr->lkey;
	ck_assert_int_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
				      0, RW | IBV_ACCESS_MW_BIND),
			 IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(ibv_rereg_mr(mr, 64, NULL, NULL, 0, RW),
			 IBV_REREG_MR_ERR_INPUT);
	ck_assert_uint_eq(mr->lkey, lkey);
	dereg(mr);
}
END_TEST

/* ---- teardown ----------------------------------------------------------- */

START_TEST(pd_with_regions_is_busy_and_without_it_ends)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);

	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	ck_assert_uint_eq(fake->live, 1);
	dereg(mr);
	ck_assert_uint_eq(fake->live, 1); /* cached */
	/* The fake says EBUSY while one is live. */
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake_contexts, 0);
}
END_TEST

START_TEST(pd_ends_while_another_has_the_same_memory)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_context *other = open_nic(1);
	struct ibv_pd *pd2 = ibv_alloc_pd(other);
	struct ibv_mr *a = reg(pd, mem, PAGE, RW), *b = reg(pd2, mem, PAGE, RW);

	dereg(a);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(((struct fake_pd *)pd2)->live, 1);
	dereg(b);
	ck_assert_int_eq(ibv_dealloc_pd(pd2), 0);
}
END_TEST

START_TEST(device_closes_with_regions_left)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);

	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake->live, 0);
	ck_assert_uint_eq(fake_contexts, 0);
	ck_assert_int_eq(ibv_dereg_mr(mr), EINVAL);
	open_pd();
	mr = reg(pd, mem, PAGE, RW);
	ck_assert_uint_eq(fake->regs, 1);
	dereg(mr);
}
END_TEST

START_TEST(child_of_fork_has_a_pd_of_its_own)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		int bad = ibv_dereg_mr(mr); /* the parent's: harmless */

		open_pd();
		mr = ibv_reg_mr(pd, mem, PAGE, RW);
		bad |= !mr || mr->pd != pd || fake->regs != 1;
		bad |= ibv_dereg_mr(mr) || ibv_dealloc_pd(pd);
		_exit(bad != 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(fake->live, 1);
	dereg(mr);
}
END_TEST

START_TEST(regions_of_a_device_that_is_gone_pass_by)
{
	struct fake_nic *nic = (struct fake_nic *)context;
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	struct ibv_async_event event;

	dereg(reg(pd, mem, PAGE, RW));
	nic->next_event = IBV_EVENT_PORT_ERR;
	ck_assert_int_eq(ibv_get_async_event(context, &event), 0);
	dereg(reg(pd, mem, PAGE, RW));
	ck_assert_uint_eq(fake->regs, 1);
	nic->next_event = IBV_EVENT_DEVICE_FATAL;
	ck_assert_int_eq(ibv_get_async_event(context, &event), 0);
	ck_assert_int_eq(event.event_type, IBV_EVENT_DEVICE_FATAL);
	dereg(mr);
	WAIT_FOR(rtab_load_acquire(&fake->live) == 0, 10);
	fake->reg_error = EIO;
	ck_assert_ptr_null(ibv_reg_mr(pd, mem, PAGE, RW));
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

/* ---- threads ------------------------------------------------------------ */

#define N_THREADS 4
#define N_BUFFERS 32

static void *use_regions(void *arg)
{
	char *mem = arg;
	struct ibv_mr *held[N_BUFFERS] = { NULL };
	unsigned int i, at;

	for (i = 0; i < 20000; i++) {
		at = (i * 7 + i / 13) % N_BUFFERS;
		if (held[at]) {
			if (ibv_dereg_mr(held[at]))
				return mem;
			held[at] = NULL;
			continue;
		}
		held[at] = ibv_reg_mr(pd, mem + 2 * at * PAGE, PAGE, RW);
		if (!held[at] || held[at]->addr != mem + 2 * at * PAGE)
			return mem;
	}
	for (at = 0; at < N_BUFFERS; at++)
		if (held[at] && ibv_dereg_mr(held[at]))
			return mem;
	return NULL;
}

START_TEST(threads_use_one_pd)
{
	char *mem = test_map(2 * N_BUFFERS * PAGE, 1);
	pthread_t thread[N_THREADS];
	unsigned int i;
	void *bad;

	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, use_regions,
						mem), 0);
	for (i = 0; i < N_THREADS; i++) {
		ck_assert_int_eq(pthread_join(thread[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	ck_assert_uint_le(fake->regs, N_BUFFERS);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

/* ---- beside libraries that know regc ------------------------------------ */

START_TEST(library_that_knows_regc_shares)
{
	struct regc_stats st = { .size = sizeof(st) };
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	struct regc_library *lib;
	struct regc_domain *dom;
	struct regc_lease a;

	ck_assert_int_eq(regc_open("pfs", NULL, &lib), 0);
	ck_assert_int_eq(regc_domain_verbs(lib, pd, &dom), 0);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, REGC_ACCESS_LOCAL_WRITE, &a),
			 0);
	ck_assert_uint_eq(a.lkey, mr->lkey);
	regc_put(&a);
	dereg(mr);
	/* What it registers itself does not come back to the preloaded one. */
	ck_assert_int_eq(regc_get(dom, mem, PAGE, REGC_ACCESS_REMOTE_READ, &a),
			 0);
	regc_put(&a);
	ck_assert_uint_eq(fake->regs, 2);
	ck_assert_int_eq(regc_stats(lib, &st), 0);
	ck_assert_uint_eq(st.hits, 1);
	ck_assert_uint_eq(st.misses, 1);
	ck_assert_uint_eq(st.failed, 0);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(regc_close(lib), 0);
}
END_TEST

START_TEST(libraries_that_know_regc_share_a_pd_by_name)
{
	struct regc_library *lib, *lib2;
	struct regc_domain *a, *b, *c, *dom;
	char *mem = test_map(PAGE, 1);
	struct regc_lease one, two;

	ck_assert_int_eq(regc_open("mpi", NULL, &lib), 0);
	ck_assert_int_eq(regc_open("pfs", NULL, &lib2), 0);
	ck_assert_int_eq(regc_domain_verbs_open(lib, "nobody", &a), -ENODEV);
	ck_assert_int_eq(regc_domain_verbs_open(lib, "00:01", &a), -ENODEV);
	ck_assert_int_eq(regc_domain_verbs_open(lib, NULL, &a), 0);
	ck_assert_int_eq(regc_domain_verbs_open(lib2, "fake0", &b), 0);
	ck_assert_int_eq(regc_domain_verbs_open(lib2, FAKE1_GUID, &c), 0);
	ck_assert_ptr_nonnull(regc_domain_pd(a));
	ck_assert_ptr_eq(regc_domain_pd(a), regc_domain_pd(b));
	ck_assert_ptr_ne(regc_domain_pd(a), regc_domain_pd(c));
	ck_assert_str_eq(ibv_get_device_name(
				 regc_domain_pd(c)->context->device), "fake1");
	ck_assert_int_eq(regc_domain_null(lib, &dom), 0);
	ck_assert_ptr_null(regc_domain_pd(dom));
	ck_assert_uint_eq(fake_contexts, 3); /* with this program's own */
	ck_assert_int_eq(regc_get(a, mem, PAGE, REGC_ACCESS_LOCAL_WRITE, &one),
			 0);
	ck_assert_int_eq(regc_get(b, mem, PAGE, REGC_ACCESS_LOCAL_WRITE, &two),
			 0);
	ck_assert_uint_eq(one.lkey, two.lkey);
	regc_put(&one);
	ck_assert_int_eq(regc_domain_close(a), 0);
	ck_assert_uint_eq(fake_contexts, 3);
	regc_put(&two);
	ck_assert_int_eq(regc_domain_close(b), 0);
	ck_assert_uint_eq(fake_contexts, 2);
	ck_assert_int_eq(regc_domain_close(c), 0);
	ck_assert_uint_eq(fake_contexts, 1);
}
END_TEST

/* ---- REGC_VERBS=off ------------------------------------------------------ */

START_TEST(switched_off_everything_goes_to_libibverbs)
{
	char *mem = test_map(PAGE, 1);

	open_pd();
	dereg(reg(pd, mem, PAGE, RW));
	dereg(reg(pd, mem, PAGE, RW));
	ck_assert_uint_eq(fake->regs, 2);
	ck_assert_uint_eq(fake->deregs, 2);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(context), 0);
}
END_TEST

/* ---- REGC_VERBS_SHARED_PD=1 ---------------------------------------------- */

START_TEST(libraries_have_one_context_and_one_pd)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_context *context2 = open_nic(0), *other = open_nic(1);
	struct ibv_pd *pd2 = ibv_alloc_pd(context2), *pd3 = ibv_alloc_pd(other);
	struct ibv_mr *a = reg(pd, mem, PAGE, RW), *b = reg(pd2, mem, PAGE, RW);

	ck_assert_ptr_eq(context2, context);
	ck_assert_ptr_eq(pd2, pd);
	ck_assert_ptr_ne(other, context);
	ck_assert_ptr_ne(pd3, pd);
	ck_assert_uint_eq(fake_contexts, 2);
	ck_assert_uint_eq(a->lkey, b->lkey);
	ck_assert_uint_eq(fake->regs, 1);

	/* The first to go takes nothing with it. */
	dereg(a);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake->live, 1);
	ck_assert_int_eq(ibv_dealloc_pd(pd2), EBUSY);
	dereg(b);
	ck_assert_int_eq(ibv_dealloc_pd(pd2), 0);
	ck_assert_int_eq(ibv_close_device(context2), 0);
	ck_assert_uint_eq(fake_contexts, 1);
	ck_assert_int_eq(ibv_dealloc_pd(pd3), 0);
	ck_assert_int_eq(ibv_close_device(other), 0);
	ck_assert_uint_eq(fake_contexts, 0);

	/* And the device can be opened again. */
	open_pd();
	dereg(reg(pd, mem, PAGE, RW));
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(context), 0);
}
END_TEST

START_TEST(pd_by_name_is_that_of_the_unmodified_libraries)
{
	char *mem = test_map(PAGE, 1);
	struct ibv_mr *mr = reg(pd, mem, PAGE, RW);
	struct regc_library *lib;
	struct regc_domain *dom;
	struct regc_lease a;

	ck_assert_int_eq(regc_open("pfs", NULL, &lib), 0);
	ck_assert_int_eq(regc_domain_verbs_open(lib, "fake0", &dom), 0);
	ck_assert_ptr_eq(regc_domain_pd(dom), pd);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, REGC_ACCESS_LOCAL_WRITE, &a),
			 0);
	ck_assert_uint_eq(a.lkey, mr->lkey);
	regc_put(&a);
	dereg(mr);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake_contexts, 1);
	ck_assert_int_eq(regc_get(dom, mem, PAGE, REGC_ACCESS_LOCAL_WRITE, &a),
			 0);
	regc_put(&a);
	ck_assert_int_eq(regc_domain_close(dom), 0);
	ck_assert_uint_eq(fake_contexts, 0);
}
END_TEST

START_TEST(shared_device_closes_with_its_pd_left)
{
	char *mem = test_map(PAGE, 1);

	reg(pd, mem, PAGE, RW);
	ck_assert_ptr_eq(open_nic(0), context);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake->live, 1);
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_uint_eq(fake->live, 0);
	ck_assert_uint_eq(fake_contexts, 0);
}
END_TEST

/* ---- the settings ------------------------------------------------------- */

static void add_usual(Suite *s)
{
	TCase *tc = tcase_create("usual"), *small = tcase_create("small");

	tcase_set_timeout(tc, 60);
	tcase_set_timeout(small, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_checked_fixture(small, setup_small, teardown);
	tcase_add_test(tc, region_is_what_was_asked_for);
	tcase_add_test(tc, second_registration_asks_nothing_of_the_device);
	tcase_add_test(tc, regions_of_the_same_memory_are_apart);
	tcase_add_test(tc, changed_memory_has_a_new_key);
	tcase_add_loop_test(tc, what_cannot_be_cached_goes_to_libibverbs, 0, 5);
	tcase_add_test(tc, error_is_that_of_libibverbs);
	tcase_add_test(tc, full_device_makes_room_of_what_is_cached);
	tcase_add_test(small, limit_of_the_operator_is_no_memory);
	tcase_add_test(tc, region_can_be_registered_anew);
	tcase_add_test(tc, pd_with_regions_is_busy_and_without_it_ends);
	tcase_add_test(tc, pd_ends_while_another_has_the_same_memory);
	tcase_add_test(tc, device_closes_with_regions_left);
	tcase_add_test(tc, child_of_fork_has_a_pd_of_its_own);
	tcase_add_test(tc, regions_of_a_device_that_is_gone_pass_by);
	tcase_add_test(tc, threads_use_one_pd);
	tcase_add_test(tc, libraries_that_know_regc_share_a_pd_by_name);
	tcase_add_test(tc, library_that_knows_regc_shares);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, small);
}

static void add_off(Suite *s)
{
	TCase *tc = tcase_create("off");

	tcase_add_test(tc, switched_off_everything_goes_to_libibverbs);
	suite_add_tcase(s, tc);
}

static void add_shared(Suite *s)
{
	TCase *tc = tcase_create("shared");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, libraries_have_one_context_and_one_pd);
	tcase_add_test(tc, pd_by_name_is_that_of_the_unmodified_libraries);
	tcase_add_test(tc, shared_device_closes_with_its_pd_left);
	suite_add_tcase(s, tc);
}

static const struct {
	const char *name, *variable, *value;
	void (*add)(Suite *s);
} settings[] = {
	{ "usual", "REGC_VERBS", "", add_usual },
	{ "off", "REGC_VERBS", "off", add_off },
	{ "shared", "REGC_VERBS_SHARED_PD", "1", add_shared },
};

static int run(unsigned int i)
{
	Suite *s = suite_create(settings[i].name);

	settings[i].add(s);
	return suite_run(s);
}

/* This program with libregc-verbs.so and the fake libibverbs. */
static int start(const char *self, unsigned int i)
{
	const char *build = getenv("REGC_BUILDDIR");
	char number[16], path[4096], preload[4096];
	int status;
	pid_t child;

	if (!build) {
		fprintf(stderr, "REGC_BUILDDIR is not set\n");
		return EXIT_FAILURE;
	}
	snprintf(number, sizeof(number), "%u", i);
	snprintf(path, sizeof(path), "%s/tests/support/.libs", build);
	snprintf(preload, sizeof(preload),
		 "%s/libregc/preload/.libs/libregc-verbs.so", build);
	child = fork();
	if (child == 0) {
		setenv("LD_LIBRARY_PATH", path, 1);
		setenv("LD_PRELOAD", preload, 1);
		setenv(settings[i].variable, settings[i].value, 1);
		/* A sanitizer wants to be loaded first, and need not be. */
		setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
		execl(self, self, number, (char *)NULL);
		_exit(127);
	}
	return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS :
								     EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	unsigned int i;
	int failed = 0;

	if (argc > 1)
		return run((unsigned int)atoi(argv[1]));
	for (i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		failed |= start("/proc/self/exe", i);
	return failed;
}
