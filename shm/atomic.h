/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every ordered access to memory that threads or processes share.
 *
 * Nothing else in the tree names a memory order.  Only lock-free widths are
 * used (static assert below): a lock hidden in libatomic would be a lock in
 * shared memory that dies with its holder.
 *
 * Asymmetric fences: a hit does store(lease) then load(generation), which on
 * most machines needs a full fence.  The hit uses rtab_light_fence(), which
 * costs nothing at run time, and whoever retires a registration uses
 * rtab_heavy_fence(), a membarrier(2) that makes every other running thread of
 * the process execute a full fence.  Either the retirer sees the lease or the
 * hit sees the void generation.
 */
#ifndef REGC_SHM_ATOMIC_H
#define REGC_SHM_ATOMIC_H

#include <stdint.h>

#define rtab_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define rtab_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define rtab_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define rtab_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define rtab_fetch_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define rtab_fetch_sub(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#define rtab_fetch_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define rtab_fetch_and(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
#define rtab_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
/* Strong; *expected is updated on failure.  Both outcomes are full fences. */
#define rtab_cas(p, expected, v)                                  \
	__atomic_compare_exchange_n((p), (expected), (v), 0,      \
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

#if defined(__SANITIZE_THREAD__)
#define RTAB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RTAB_TSAN 1
#endif
#endif
#ifndef RTAB_TSAN
#define RTAB_TSAN 0
#endif

/*
 * ThreadSanitizer does not model fences, so under it they are a
 * read-modify-write of one private word, which it does model.
 */
#if RTAB_TSAN
static inline void rtab_tsan_fence(void)
{
	static uint32_t word;

	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
}
#define rtab_fence_acquire() rtab_tsan_fence()
#define rtab_fence_release() rtab_tsan_fence()
#define rtab_fence_full() rtab_tsan_fence()
#define rtab_light_fence() rtab_tsan_fence()
#else
#define rtab_fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define rtab_fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)
#define rtab_fence_full() __atomic_thread_fence(__ATOMIC_SEQ_CST)
/* The compiler keeps the order; rtab_heavy_fence() makes the processor. */
#define rtab_light_fence() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#endif

static inline void rtab_cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

_Static_assert(__atomic_always_lock_free(8, 0) && __atomic_always_lock_free(4, 0),
	       "shared words must be lock-free");

#endif
