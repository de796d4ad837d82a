/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * membarrier: the heavy side of the asymmetric fence in shm/atomic.h.
 *
 * Store then load on both sides (the shape of a hit against a retire): with the
 * light fence in one thread and the heavy one in the other, at least one of them
 * sees the other's store, every time.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/kernel/kernel.h"

#define N_ROUNDS 20000U

static int membarrier(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0, 0);
}

static bool there(void)
{
	int mask = membarrier(MEMBARRIER_CMD_QUERY);

	return kernel_need("membarrier",
			   mask > 0 &&
				   (mask & MEMBARRIER_CMD_PRIVATE_EXPEDITED),
			   "private expedited membarrier is missing");
}

START_TEST(must_be_registered_first)
{
	if (!there())
		return;
	ck_assert_int_lt(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
			 0);
	ck_assert_int_eq(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED), 0);
}
END_TEST

/* Each word on a line of its own. */
struct dekker {
	uint32_t lease __attribute__((aligned(64)));
	uint32_t gone __attribute__((aligned(64)));
	uint32_t round __attribute__((aligned(64)));
	uint32_t ready __attribute__((aligned(64)));
	uint32_t seen __attribute__((aligned(64)));
};

/* The hit: lease, light fence, is it gone? */
static void do_hits(void *arg)
{
	struct dekker *d = arg;

	for (uint32_t i = 1; i <= N_ROUNDS; i++) {
		rtab_store_release(&d->ready, i);
		while (rtab_load_acquire(&d->round) != i)
			rtab_cpu_relax();
		rtab_store_relaxed(&d->lease, 1);
		rtab_light_fence();
		rtab_store_release(&d->seen,
				   (i << 1) | rtab_load_relaxed(&d->gone));
	}
}

START_TEST(one_side_sees_the_other)
{
	static struct dekker d;
	struct kernel_thread t;
	uint32_t lease, seen;

	if (!there())
		return;
	ck_assert_int_eq(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
			 0);
	kernel_thread_start(&t, do_hits, &d);
	kernel_thread_go(&t);
	for (uint32_t i = 1; i <= N_ROUNDS; i++) {
		while (rtab_load_acquire(&d.ready) != i)
			sched_yield();
		rtab_store_relaxed(&d.lease, 0);
		rtab_store_relaxed(&d.gone, 0);
		rtab_store_release(&d.round, i);
		rtab_store_relaxed(&d.gone, 1);
		ck_assert_int_eq(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED),
				 0);
		lease = rtab_load_relaxed(&d.lease);
		while (((seen = rtab_load_acquire(&d.seen)) >> 1) != i)
			sched_yield();
		ck_assert_msg(lease || (seen & 1), "both missed, round %u", i);
	}
	kernel_thread_join(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: membarrier");
	TCase *t = tcase_create("membarrier");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, must_be_registered_first);
	tcase_add_test(t, one_side_sees_the_other);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
