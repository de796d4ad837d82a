/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Closing pages by mprotect(2), where userfaultfd cannot: receives into private
 * memory, and sends where there is no userfaultfd.
 *
 * A thread that accesses such a page gets SIGSEGV; the handler finds the transfer
 * without a lock, waits on a futex until it is over, restores nothing, and returns:
 * the access is made again.  A fault that is of no transfer goes to the handler
 * that was there before, as if this one were not.
 *
 * Limits, which regc_transfer(3) states: a system call into such a page fails with
 * EFAULT; mappings are split; a program that puts its own handler in place
 * while a transfer is under way gets the faults; a stack cannot be guarded that a
 * signal handler would run on; a range of more than MAX_PIECES protections is
 * refused.  Two such transfers never share a page: the second gets -EBUSY.
 *
 * The former protection of each piece is kept by slot, and is restored where the
 * protection is still the one that was set: what the program mapped or protected
 * meanwhile is its own.
 *
 *   opened[slot]   0 closed, 1 a handler opens (report, time limit), 2 it has
 *   A completion waits while it is 1, so no handler opens what is closed later.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PIECES 8
#define MAX_FORMER 16
#define WAIT_MS 1000 /* then the handler looks again */

struct kept {
	uint32_t n;
	uint32_t opened;
	struct {
		uint64_t low, high;
		int prot, closed_prot;
	} piece[MAX_PIECES];
};

static struct kept *kept; /* by slot; touched where used; mprotect lock */
static uint32_t kept_slots; /* those below may have something */
/*
 * Handlers that were there before ours, each found when ours was put in front of it
 * (again); written once, before n_former says so.
 */
static struct sigaction former[MAX_FORMER];
static uint32_t n_former;
static uint32_t ends; /* transfers opened so far */

/* What a thread last faulted on without a transfer there. */
static __thread struct {
	uint64_t addr;
	uint32_t ends;
	bool once;
} stray __attribute__((tls_model("initial-exec")));

/*
 * Handlers of this thread that run now because ours passed a fault on, and the frame
 * that called the last of them: one that left by siglongjmp(3) runs no more, which
 * shows when ours is called from no deeper than that frame.
 */
static __thread uint32_t passing __attribute__((tls_model("initial-exec")));
static __thread uintptr_t passing_frame __attribute__((tls_model("initial-exec")));

/* Not mprotect(3): the hook would void the registration. */
static int set_prot(uint64_t low, uint64_t high, int prot)
{
	return syscall(SYS_mprotect, low, high - low, prot) < 0 ? -errno : 0;
}

/* ---- opening ------------------------------------------------------------ */

static void restore(struct kept *k)
{
	struct rt_mapping m;
	uint64_t at, end;
	uint32_t i;

	for (i = 0; i < k->n; i++)
		for (at = k->piece[i].low; at < k->piece[i].high; at = end) {
			end = k->piece[i].high;
			if (changes_mapping(at, &m)) {
				end = at + RTAB_PAGE; /* a hole */
				continue;
			}
			end = rtab_min_u64(end, m.end);
			if (m.prot == k->piece[i].closed_prot)
				set_prot(at, end, k->piece[i].prot);
		}
	rtab_fetch_add(&ends, 1);
}

void mprotect_open(uint32_t slot, uint64_t low, uint64_t high)
{
	struct kept *all = rtab_load_acquire(&kept), *k;
	uint32_t closed = 0;
	int saved = errno;

	if (!all || low >= high || !rtab_load_acquire(&all[slot].n))
		return; /* it was not closed yet */
	k = &all[slot];
	while (!rtab_cas(&k->opened, &closed, 2) && closed == 1) {
		sched_yield();
		closed = 0;
	}
	if (closed == 0)
		restore(k);
	rtab_store_release(&k->n, 0);
	errno = saved;
}

/* In the handler: lets everybody through. */
static void open_by_handler(uint32_t slot)
{
	struct kept *k = &kept[slot];
	uint32_t closed = 0;

	if (!rtab_load_acquire(&k->n) || !rtab_cas(&k->opened, &closed, 1))
		return;
	restore(k);
	rtab_store_release(&k->opened, 2);
	transfer_turn(); /* others wait at these pages as well */
}

/* ---- the handler -------------------------------------------------------- */

static bool find(uint64_t addr, struct rtab_transfer_view *v)
{
	uint64_t page = rtab_round_down(addr, RTAB_PAGE);
	uint32_t slot = RTAB_TRANSFER_FIRST;

	while (rtab_transfer_next(rt.area.area, &slot, page, page + RTAB_PAGE, v))
		if (v->t.guard == RTAB_GUARD_MPROTECT && page >= v->t.low &&
		    page < v->t.high)
			return true;
	return false;
}

static struct rtab_waiter *waiter_begin(const struct rtab_transfer_view *v,
					uint64_t addr, uint32_t tid)
{
	struct rtab_waiter *w = rt.area.area->waiters;
	uint32_t i, none = 0;

	for (i = 0; i < RTAB_N_AREA_WAITERS; i++, none = 0) {
		if (rtab_load_relaxed(&w[i].tid) || !rtab_cas(&w[i].tid, &none, tid))
			continue;
		rtab_store_relaxed(&w[i].addr, addr);
		rtab_store_relaxed(&w[i].since_ns, rtab_now_ns());
		rtab_store_relaxed(&w[i].slot, v->slot);
		rtab_store_release(&w[i].id, rtab_transfer_id(v->word));
		return &w[i];
	}
	return NULL; /* it waits all the same, unseen */
}

/* Until the transfer is over or its limit is reached: false. */
static bool wait_for(const struct rtab_transfer_view *v)
{
	uint64_t id = rtab_transfer_id(v->word), limit = UINT64_MAX;
	const uint64_t *word = &rt.area.area->transfer_words[v->slot];
	uint32_t turn;

	if (v->t.limit_ms != UINT32_MAX)
		limit = rtab_now_ns() + v->t.limit_ms * UINT64_C(1000000);
	for (;;) {
		uint64_t now, w;

		turn = rtab_load_acquire(&rt.wipe->transfer_turn);
		w = rtab_load_acquire(word);
		if (rtab_transfer_id(w) != id || !rtab_transfer_state(w) ||
		    rtab_load_acquire(&kept[v->slot].opened))
			return true;
		now = rtab_now_ns();
		if (now >= limit)
			return false;
		rt_futex_wait(&rt.wipe->transfer_turn, turn,
			      (int)rtab_min_u64(WAIT_MS,
						(limit - now) / 1000000 + 1));
	}
}

static void on_access(const struct rtab_transfer_view *v, uint64_t addr)
{
	uint64_t id = rtab_transfer_id(v->word);
	struct rtab_waiter *w;
	uint32_t tid = rt_tid();
	bool ended;

	/* A callback that writes into what it is to complete: as at the limit. */
	if (helper_is(tid))
		transfer_add_flags(v->slot, id, RTAB_TRANSFER_TIMED_OUT);
	if (v->t.policy == RTAB_REPORT || (v->t.flags & RTAB_TRANSFER_TIMED_OUT) ||
	    helper_is(tid)) {
		transfer_note_access(v->slot, id, addr, tid, true);
		open_by_handler(v->slot);
		return;
	}
	transfer_note_access(v->slot, id, addr, tid, false);
	rtab_fetch_add(&rt.wipe->transfer_waiters, 1);
	w = waiter_begin(v, addr, tid);
	helper_wake();
	ended = wait_for(v);
	if (w)
		rtab_store_release(&w->tid, 0);
	rtab_fetch_sub(&rt.wipe->transfer_waiters, 1);
	if (ended)
		return;
	transfer_add_flags(v->slot, id, RTAB_TRANSFER_TIMED_OUT);
	transfer_note_access(v->slot, id, addr, tid, true);
	open_by_handler(v->slot);
}

/* The page may have been opened between the fault and here: once more, then. */
static bool may_be_late(uint64_t addr)
{
	uint32_t now = rtab_load_acquire(&ends);

	if (stray.once && stray.addr == addr && stray.ends == now) {
		stray.once = false;
		return false;
	}
	stray.once = true;
	stray.addr = addr;
	stray.ends = now;
	return now != 0;
}

/* Nobody was there: the process ends as it would have. */
static void as_by_default(int sig, const siginfo_t *info)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };

	sigaction(sig, &dfl, NULL);
	/* A fault comes again by itself, what was sent does not. */
	if (info->si_code <= 0)
		syscall(SYS_tgkill, getpid(), rt_tid(), sig);
}

/*
 * Handlers chain: one that the program put in front of ours later, and that passes
 * on to ours, is not called again, but the one before it.
 */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	uint32_t n = rtab_load_acquire(&n_former);
	uintptr_t outer = passing_frame;
	const struct sigaction *to;

	if (n <= passing) {
		as_by_default(sig, info);
		return;
	}
	to = &former[n - 1 - passing];
	if (!(to->sa_flags & SA_SIGINFO) && to->sa_handler == SIG_IGN &&
	    info->si_code <= 0)
		return;
	if (!(to->sa_flags & SA_SIGINFO) &&
	    (to->sa_handler == SIG_DFL || to->sa_handler == SIG_IGN)) {
		as_by_default(sig, info);
		return;
	}
	passing++;
	passing_frame = (uintptr_t)__builtin_frame_address(0);
	if (to->sa_flags & SA_SIGINFO)
		to->sa_sigaction(sig, info, context);
	else
		to->sa_handler(sig);
	passing--;
	passing_frame = outer;
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
	uint64_t addr = (uintptr_t)info->si_addr;
	struct rtab_transfer_view v;
	int saved = errno;

	if ((uintptr_t)__builtin_frame_address(0) >= passing_frame)
		passing = 0;
	if (info->si_code == SEGV_ACCERR && !rt_forked() && rt.attached && !passing) {
		if (find(addr, &v)) {
			on_access(&v, addr);
			errno = saved;
			return;
		}
		if (may_be_late(addr)) {
			errno = saved;
			return;
		}
	}
	errno = saved;
	pass_on(sig, info, context);
}

/* mprotect lock.  In front of whatever handler is there now. */
static int put_handler(void)
{
	struct sigaction action = {
		.sa_sigaction = on_segv,
		/* NODEFER: a fault in the former handler is the former handler's. */
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER,
	}, now;

	if (sigaction(SIGSEGV, NULL, &now) < 0)
		return -errno;
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_segv)
		return 0;
	if (n_former == MAX_FORMER)
		return -ENOTSUP; /* the program takes ours away again and again */
	former[n_former] = now;
	rtab_store_release(&n_former, n_former + 1);
	action.sa_mask = now.sa_mask;
	return sigaction(SIGSEGV, &action, NULL) < 0 ? -errno : 0;
}

/* ---- closing ------------------------------------------------------------ */

static int find_pieces(struct kept *k, uint64_t low, uint64_t high, int taken)
{
	struct rt_mapping m;

	for (k->n = 0; low < high; low = m.end) {
		if (k->n == MAX_PIECES || changes_mapping(low, &m)) {
			k->n = 0;
			return -ENOTSUP;
		}
		k->piece[k->n].low = low;
		k->piece[k->n].high = rtab_min_u64(high, m.end);
		k->piece[k->n].prot = m.prot;
		k->piece[k->n++].closed_prot = m.prot & ~taken;
	}
	return 0;
}

static bool page_is_taken(uint32_t slot, uint64_t low, uint64_t high)
{
	uint32_t other = RTAB_TRANSFER_FIRST;
	struct rtab_transfer_view v;

	while (rtab_transfer_next(rt.area.area, &other, low, high, &v))
		if (v.slot != slot && v.t.guard == RTAB_GUARD_MPROTECT &&
		    rtab_overlaps(low, high, v.t.low, v.t.high))
			return true;
	return false;
}

static int close_kept(uint32_t slot, uint64_t low, uint64_t high, int taken)
{
	struct kept *k = &kept[slot];
	uint32_t i;
	int r;

	if (page_is_taken(slot, low, high))
		return -EBUSY;
	if (slot >= kept_slots)
		kept_slots = slot + 1;
	rtab_store_relaxed(&k->opened, 0);
	r = find_pieces(k, low, high, taken);
	for (i = 0; i < k->n && !r; i++)
		r = set_prot(k->piece[i].low, k->piece[i].high,
			     k->piece[i].closed_prot);
	/* Part of a huge page; a file that allows no such change. */
	return r == -EINVAL || r == -EACCES ? -ENOTSUP : r;
}

static int prepare(void)
{
	size_t bytes = RTAB_N_TRANSFERS * sizeof(*kept);
	struct kept *mem;
	int r = 0;

	if (!kept) {
		mem = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
				    0, &r);
		if (!mem)
			return r;
		rtab_store_release(&kept, mem);
	}
	return put_handler();
}

int mprotect_close(uint32_t slot, uint64_t low, uint64_t high, uint32_t direction)
{
	int taken = direction == RTAB_SEND ? PROT_WRITE :
					     PROT_READ | PROT_WRITE | PROT_EXEC;
	int saved = errno, r;

	rt_lock_take(&rt.wipe->mprotect_lock);
	r = prepare();
	if (!r)
		r = close_kept(slot, low, high, taken);
	rt_lock_drop(&rt.wipe->mprotect_lock);
	errno = saved;
	return r;
}

void mprotect_after_fork(void)
{
	uint32_t slot;

	if (!kept_slots)
		return;
	/* The mappings to look at are this process's. */
	rt.maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	for (slot = 0; slot < kept_slots; slot++) {
		restore(&kept[slot]);
		kept[slot].n = 0;
	}
	if (rt.maps_fd >= 0)
		close(rt.maps_fd);
	rt.maps_fd = -1;
}
