/* SPDX-License-Identifier: BSD-2-Clause */
/* The worker, see worker.h. */
#include "libregc/worker.h"

#include "libregc/link.h"

#include <sys/prctl.h>

#define RETRY_MS 50 /* registrations that a device did not let go of */

void worker_wake(void)
{
	rtab_fetch_add(&rt.worker_turn, 1); /* K1: pairs with worker_main() */
	rt_futex_wake(&rt.worker_turn);
}

/* Cache lock: the answers that are due after the next retire_pending(). */
static uint32_t take_answers(struct rt_answer *ret)
{
	uint32_t n = rt.n_answers, i;

	for (i = 0; i < n; i++)
		ret[i] = rt.answers[i];
	rt.n_answers = 0;
	return n;
}

void worker_give_back(uint64_t ticket, uint64_t bytes, uint64_t regions)
{
	struct rt_answer answer = { ticket, bytes, regions };
	bool room;

	rt_cache_lock();
	room = rt.n_answers < RT_N_ANSWERS;
	if (room)
		rt.answers[rt.n_answers++] = answer;
	rt_cache_unlock();
	if (room)
		worker_wake();
	else
		link_give_back(&answer); /* what is spare already */
}

/*
 * Whatever was void before the load of turn (K1: pairs with worker_wake()) is found
 * by the look after it; what comes later changes turn, and the wait does not wait.
 */
static void *worker_main(void *arg)
{
	struct rt_answer answers[RT_N_ANSWERS];
	uint32_t turn, n, i;

	(void)arg;
	prctl(PR_SET_NAME, "regc-worker");
	for (;;) {
		bool again;

		turn = rtab_load_acquire(&rt.worker_turn); /* K1 */
		rt_cache_lock();
		n = take_answers(answers);
		rt_cache_unlock();
		retire_pending();
		for (i = 0; i < n; i++)
			link_give_back(&answers[i]);
		again = rtab_load_relaxed(&rt.void_list.n) ||
			rtab_load_relaxed(&rt.refused);
		rt_futex_wait(&rt.worker_turn, turn, again ? RETRY_MS : -1);
	}
	return NULL;
}

int worker_start(void)
{
	int r = rt.worker_runs ? 0 : rt_start_thread(worker_main);

	if (!r)
		rt.worker_runs = true;
	return r;
}
