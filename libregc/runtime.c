/* SPDX-License-Identifier: BSD-2-Clause */
/* The runtime: first use, fork, locks, thread slots, memos. */
#include "libregc/runtime.h"
#include "libregc/transfer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (256 << 10)

struct rt_hot rt_hot = { .life_word = RT_NO_BROKER, .probe_fd = -1 };
struct runtime rt = {
	.sock = -1, .doorbell = -1, .area_fd = -1,
	.uffd = -1, .maps_fd = -1, .wake_fd = -1,
};
__thread struct rt_thread *rt_thread
	__attribute__((tls_model("initial-exec")));

#ifdef REGC_BREAKABLE
uint32_t rt_broken;

static void choose_broken(void)
{
	static const char *const names[] = {
		[RT_SAFE_HOOK] = "hook", [RT_SAFE_MARK] = "mark",
		[RT_SAFE_GENERATION] = "generation", [RT_SAFE_POST] = "post",
		[RT_SAFE_PROBE] = "probe", [RT_SAFE_LEASE] = "lease",
		[RT_SAFE_GUARD] = "guard",
	};
	const char *value = getenv("REGC_BREAK");
	uint32_t i;

	for (i = 1; value && i < RTAB_ARRAY_SIZE(names); i++)
		if (strcmp(value, names[i]) == 0)
			rt_broken = i;
}
#else
static void choose_broken(void)
{
}
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_result;
static pthread_key_t thread_key;

/* ---- futex -------------------------------------------------------------- */

void rt_futex_wait(uint32_t *word, uint32_t value, int timeout_ms)
{
	struct timespec ts = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = (long)(timeout_ms % 1000) * 1000000,
	};
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
		timeout_ms < 0 ? NULL : &ts, NULL, 0);
	errno = saved;
}

void rt_futex_wake(uint32_t *word)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

/* A plain pthread mutex would stay locked in a child of fork. */
void rt_lock_take(struct rt_lock *lock)
{
	uint32_t expected = 0;

	if (rtab_cas(&lock->word, &expected, 1))
		return;
	while (rtab_exchange(&lock->word, 2) != 0)
		rt_futex_wait(&lock->word, 2, -1);
}

bool rt_lock_try(struct rt_lock *lock)
{
	uint32_t expected = 0;

	return rtab_cas(&lock->word, &expected, 1);
}

void rt_lock_drop(struct rt_lock *lock)
{
	int saved = errno;

	if (rtab_exchange(&lock->word, 0) == 2)
		syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL,
			0);
	errno = saved;
}

uint32_t rt_tid(void)
{
	const struct rt_thread *ts = rt_thread;

	if (ts && ts->attach && ts->attach == rt.attach)
		return rtab_load_relaxed(&rt.area.area->threads[ts->index].in_use);
	return (uint32_t)syscall(SYS_gettid);
}

int rt_start_thread(void *(*fn)(void *arg))
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	/* A fault in foreign code that it calls is for whoever handles faults. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGFPE);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	r = -pthread_create(&thread, &attr, fn, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return r;
}

struct rtab_counters *rt_shared_counters(const struct regc_library *lib)
{
	return rt.attached ? &rt.area.area->threads[0].counters[lib->index] :
			     (struct rtab_counters *)&lib->slow;
}

/* ---- threads ------------------------------------------------------------ */

static void memo_free(struct rt_thread *ts)
{
	if (ts->memo)
		rtab_raw_munmap(ts->memo, UINT64_C(4) << ts->memo_bits);
	ts->memo = NULL;
}

/* Lease words stay: they are sums, and the next owner goes on with them. */
static void thread_exit(void *arg)
{
	struct rt_thread *ts = rt_thread;

	(void)arg;
	rt_thread = NULL;
	if (!ts || rt_forked() || ts->attach != rt.attach)
		return;
	memo_free(ts);
	ts->attach = 0;
	rtab_store_release(&rt.area.area->threads[ts->index].in_use, 0);
}

static uint32_t thread_claim(struct rtab_area *area)
{
	uint32_t i, n, zero, tid = rt_tid();

	for (i = 1; i < RTAB_N_THREADS; i++) {
		zero = 0;
		if (rtab_load_relaxed(&area->threads[i].in_use) == 0 &&
		    rtab_cas(&area->threads[i].in_use, &zero, tid))
			break;
	}
	if (i == RTAB_N_THREADS)
		return 0;
	/* Before the first lease: whoever sums must not miss this slot. */
	n = rtab_load_relaxed(&area->n_threads);
	while (n <= i && !rtab_cas(&area->n_threads, &n, i + 1))
		;
	return i;
}

bool rt_thread_attach(void)
{
	struct rt_thread *ts = rt_thread;
	uint32_t i;

	if (ts && ts->attach == rt.attach)
		return true;
	if (!rt.attached)
		return false;
	i = thread_claim(rt.area.area);
	if (i == 0)
		return false;
	ts = &rt.threads[i];
	memset(ts, 0, sizeof(*ts));
	ts->index = (uint16_t)i;
	ts->window = rt.window;
	ts->area = rt.area.area;
	ts->leases = rtab_area_leases(&rt.area, i);
	ts->counters = rt.area.area->threads[i].counters;
	rt_memo_fit(ts);
	if (!ts->memo) {
		rtab_store_release(&rt.area.area->threads[i].in_use, 0);
		return false;
	}
	ts->attach = rt.attach;
	rt_thread = ts;
	pthread_setspecific(thread_key, ts);
	return true;
}

/* log2 of the mean size of a region, at least a page. */
static uint8_t region_shift(void)
{
	uint64_t n = rtab_load_relaxed(&rt.n_live);
	uint64_t mean = rtab_load_relaxed(&rt.used_bytes) / (n ? n : 1);
	uint8_t shift = 12;

	while (shift < 40 && mean >> (shift + 1))
		shift++;
	return shift;
}

void rt_memo_fit(struct rt_thread *ts)
{
	uint8_t bits = RT_MEMO_MIN_BITS, shift = region_shift();
	uint64_t bytes;
	uint32_t *memo;

	while (bits < RT_MEMO_MAX_BITS &&
	       (UINT32_C(1) << bits) < 2 * rtab_load_relaxed(&rt.n_live))
		bits++;
	if (ts->memo && ts->memo_bits >= bits &&
	    shift + 1 >= ts->memo_shift && shift <= ts->memo_shift + 1)
		return;
	/* Grow by four, so that filling a cache maps few memos. */
	if (ts->memo && bits > ts->memo_bits)
		bits += bits < RT_MEMO_MAX_BITS;
	if (ts->memo && bits < ts->memo_bits)
		bits = ts->memo_bits;
	bytes = UINT64_C(4) << bits;
	memo = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, NULL);
	if (!memo)
		return;
	rtab_raw_madvise(memo, bytes, MADV_DONTFORK);
	memo_free(ts);
	ts->memo = memo;
	ts->memo_bits = bits;
	ts->memo_shift = shift;
	ts->memo_mask = (UINT32_C(1) << bits) - 1;
}

/* ---- first use and fork ------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * A child must not keep the userfaultfd open: it would keep threads of the
 * parent waiting when everybody who reads it is gone.  And what is not closed
 * here is not closed later either: by then the program may have closed it, and
 * the number may be a file of its own.  Only async-signal-safe calls here.
 */
static void after_fork_in_child(void)
{
	if (!rt.wipe || !rt_forked())
		return;
	close_fd(&rt.uffd);
	close_fd(&rt.sock);
	close_fd(&rt.doorbell);
	close_fd(&rt.area_fd);
	close_fd(&rt.maps_fd);
	mprotect_after_fork();
	close_fd(&rt.wake_fd);
	if (rt.watch.view.table)
		close_fd(&rt.watch.fd);
}

static void init_once(void)
{
	uint64_t wipe_bytes = RTAB_PAGE;
	uint64_t bytes = wipe_bytes + RTAB_N_THREADS * sizeof(struct rt_thread);
	char *mem;

	choose_broken();
	mem = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &once_result);
	if (!mem)
		return;
	once_result = rtab_raw_madvise(mem, bytes, MADV_WIPEONFORK);
	if (!once_result)
		once_result = -pthread_key_create(&thread_key, thread_exit);
	if (!once_result)
		once_result = -pthread_atfork(NULL, NULL, after_fork_in_child);
	if (once_result) {
		rtab_raw_munmap(mem, bytes);
		return;
	}
	rt.threads = (struct rt_thread *)(mem + wipe_bytes);
	rt.attach = 1;
	rt.fence_err = rtab_heavy_fence_init();
	((struct rt_wipe *)mem)->attach = 1;
	rtab_store_release(&rt.wipe, (struct rt_wipe *)mem);
}

/*
 * init lock held.  Nothing of the parent's is touched: its mappings are not in
 * this process, and their addresses and descriptors may be somebody else's by
 * now.  Until the last store other threads of the child see rt_forked(), wait for
 * the init lock in rt_enter(), and hooks pass everything on.
 */
static void start_over_in_child(void)
{
	size_t kept = offsetof(struct runtime, kept_end);
	uint32_t i;

	rt_hot.life_word = RT_NO_BROKER;
	rt_hot.probe_fd = -1;
	memset((char *)&rt + kept, 0, sizeof(rt) - kept);
	rt.sock = rt.doorbell = rt.area_fd = -1;
	rt.uffd = rt.maps_fd = rt.wake_fd = -1;
	for (i = 0; i < RTAB_N_LIBRARIES; i++) {
		if (!rt.libraries[i])
			continue;
		memset(&rt.libraries[i]->slow, 0, sizeof(rt.libraries[i]->slow));
		rt.libraries[i]->n_domains = 0;
	}
	device_uring_forget();
	rtab_store_release(&rt.attach, rt.attach + 1);
	rtab_store_release(&rt.wipe->attach, rt.attach);
}

int rt_enter(void)
{
	int r = pthread_once(&once, init_once);

	if (r || once_result)
		return r ? -r : once_result;
	if (RTAB_LIKELY(!rt_forked()))
		return 0;
	rt_lock_take(&rt.wipe->init_lock);
	if (rt_forked())
		start_over_in_child();
	rt_lock_drop(&rt.wipe->init_lock);
	return 0;
}

void rt_set_mode(uint32_t mode, const char *fmt, ...)
{
	va_list args;

	rtab_store_relaxed(&rt.mode, mode);
	va_start(args, fmt);
	vsnprintf(rt.why, sizeof(rt.why), fmt, args);
	va_end(args);
	if (rt.attached) {
		rt.area.area->mode = mode;
		memcpy(rt.area.area->mode_why, rt.why, sizeof(rt.why));
	}
}

void rt_note(const char *fmt, ...)
{
	char text[sizeof(rt.area.area->monitor_note)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	rt_cache_lock();
	if (rt.attached)
		memcpy(rt.area.area->monitor_note, text, sizeof(text));
	rt_cache_unlock();
}
