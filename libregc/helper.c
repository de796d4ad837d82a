/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The helper: a thread that does for transfers what the guardian must not do.
 *
 * It runs the progress callbacks of libraries while an access waits for a transfer
 * of theirs, and it makes copies, for which it reads memory of the program.  Both
 * may take long or wait; nothing else waits for it without a time limit.  It starts
 * with the first transfer that may need it, and sleeps else.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>

#define N_COPIES 64
#define EAGER_ROUNDS 50 /* calls of a callback without a pause */
#define PAUSE_MS 1

/* Written by the guardian, read by the helper; single producer and consumer. */
static struct {
	struct {
		uint64_t addr, since_ns;
	} entry[N_COPIES];
	uint32_t head, tail;
} copies;

static uint32_t running = RTAB_N_LIBRARIES; /* whose callback, helper lock */
static uint32_t running_turn; /* futex: changes after each callback */
static uint32_t helper_tid;

void helper_wake(void)
{
	if (!rtab_load_relaxed(&rt.helper_runs))
		return;
	rtab_fetch_add(&rt.wipe->helper_turn, 1);
	rt_futex_wake(&rt.wipe->helper_turn);
}

bool helper_copy(uint64_t addr)
{
	uint32_t head = copies.head;

	if (!rtab_load_relaxed(&rt.helper_runs) ||
	    head - rtab_load_acquire(&copies.tail) == N_COPIES)
		return false;
	copies.entry[head % N_COPIES].addr = addr;
	copies.entry[head % N_COPIES].since_ns = rtab_now_ns();
	rtab_store_release(&copies.head, head + 1);
	helper_wake();
	return true;
}

static void run_copies(void)
{
	while (copies.tail != rtab_load_acquire(&copies.head)) {
		copy_pages(copies.entry[copies.tail % N_COPIES].addr);
		rtab_store_release(&copies.tail, copies.tail + 1);
	}
}

uint64_t helper_copies_since(uint64_t low, uint64_t high)
{
	uint32_t i = rtab_load_acquire(&copies.tail);

	for (; i != copies.head; i++)
		if (copies.entry[i % N_COPIES].addr >= low &&
		    copies.entry[i % N_COPIES].addr < high)
			return copies.entry[i % N_COPIES].since_ns;
	return 0;
}

bool helper_is(uint32_t tid)
{
	return tid && rtab_load_relaxed(&rt.helper_runs) &&
	       tid == rtab_load_acquire(&helper_tid);
}

/* ---- progress ----------------------------------------------------------- */

/* Bit i: an access waits, or waited, for a transfer of library i. */
static uint32_t libraries_waited_for(void)
{
	uint32_t slot = RTAB_TRANSFER_FIRST, mask = 0;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &slot, 0, UINT64_MAX, &v)) {
		if (!rtab_transfer_active(v.word))
			continue;
		if (rtab_load_acquire(&rt.connected))
			rtab_transfer_add_mark(rt.table.table, &v);
		if (v.t.flags & RTAB_TRANSFER_BLOCKED)
			mask |= UINT32_C(1) << v.t.library % RTAB_N_LIBRARIES;
	}
	return mask;
}

/* One call, if the library is there and wants it; >0: something was done. */
static int call_progress(uint32_t index)
{
	int (*progress)(void *arg) = NULL;
	struct regc_library *lib;
	void *arg = NULL;
	int r = 0;

	rt_lock_take(&rt.wipe->helper_lock);
	lib = rtab_load_acquire(&rt.libraries[index]);
	if (lib && lib->progress) {
		progress = lib->progress;
		arg = lib->progress_arg;
		rtab_store_relaxed(&running, index);
	}
	rt_lock_drop(&rt.wipe->helper_lock);
	if (!progress)
		return -ENOENT;
	r = progress(arg);
	rtab_store_release(&running, RTAB_N_LIBRARIES);
	rtab_fetch_add(&running_turn, 1);
	rt_futex_wake(&running_turn);
	return r;
}

/* Has every library that is waited for do something; false: none can. */
static bool run_progress(uint32_t *idle_rounds)
{
	uint32_t mask = libraries_waited_for(), i;
	bool any = false, done = false;
	int r;

	for (i = 0; mask; i++, mask >>= 1) {
		if (!(mask & 1))
			continue;
		r = call_progress(i);
		any |= r != -ENOENT;
		done |= r > 0;
	}
	*idle_rounds = done ? 0 : *idle_rounds + 1;
	return any;
}

static void *helper_main(void *arg)
{
	uint32_t turn, idle_rounds = 0;

	(void)arg;
	prctl(PR_SET_NAME, "regc-helper");
	rtab_store_release(&helper_tid, rt_tid());
	for (;;) {
		turn = rtab_load_acquire(&rt.wipe->helper_turn);
		run_copies();
		if (!run_progress(&idle_rounds)) {
			idle_rounds = 0;
			rt_futex_wait(&rt.wipe->helper_turn, turn, -1);
		} else if (idle_rounds < EAGER_ROUNDS) {
			sched_yield();
		} else {
			rt_futex_wait(&rt.wipe->helper_turn, turn, PAUSE_MS);
		}
	}
	return NULL;
}

/* Under the init lock: pthread_create() allocates, and maps a stack. */
int helper_start(void)
{
	int r = 0;

	if (RTAB_LIKELY(rtab_load_acquire(&rt.helper_runs)))
		return 0;
	rt_lock_take(&rt.wipe->init_lock);
	if (!rt.helper_runs) {
		copies.head = copies.tail = 0; /* a parent's, in a child of fork */
		running = RTAB_N_LIBRARIES;
		r = rt_start_thread(helper_main);
		if (!r)
			rtab_store_release(&rt.helper_runs, true);
	}
	rt_lock_drop(&rt.wipe->init_lock);
	return r;
}

int helper_forget(struct regc_library *lib)
{
	uint32_t turn;

	rt_lock_take(&rt.wipe->helper_lock);
	rtab_store_relaxed(&lib->progress, NULL);
	rt_lock_drop(&rt.wipe->helper_lock);
	for (;;) {
		turn = rtab_load_acquire(&running_turn);
		if (rtab_load_acquire(&running) != lib->index)
			return 0;
		if (rtab_load_relaxed(&helper_tid) == rt_tid())
			return -EDEADLK;
		rt_futex_wait(&running_turn, turn, -1);
	}
}

int regc_progress(struct regc_library *lib, int (*progress)(void *arg), void *arg)
{
	int r = rt_enter();

	if (!r)
		r = helper_forget(lib);
	if (r || !progress)
		return r;
	rt_lock_take(&rt.wipe->helper_lock);
	lib->progress_arg = arg;
	rtab_store_relaxed(&lib->progress, progress);
	rt_lock_drop(&rt.wipe->helper_lock);
	return rtab_load_acquire(&rt.attached) ? helper_start() : 0;
}
