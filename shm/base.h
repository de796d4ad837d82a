/* SPDX-License-Identifier: BSD-2-Clause */
/* Small helpers that every folder uses. */
#ifndef REGC_SHM_BASE_H
#define REGC_SHM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RTAB_LIKELY(x) __builtin_expect(!!(x), 1)
#define RTAB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RTAB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define RTAB_CACHE_LINE 64
#define RTAB_CONTAINER_OF(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

static inline uint64_t rtab_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t rtab_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Rounds to a multiple of align, a power of two; the caller checked overflow. */
static inline uint64_t rtab_round_up(uint64_t v, uint64_t align)
{
	return (v + align - 1) & ~(align - 1);
}

static inline uint64_t rtab_round_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}

/* True if half-open [a, a_end) and [b, b_end) share a byte. */
static inline bool rtab_overlaps(uint64_t a, uint64_t a_end, uint64_t b,
				 uint64_t b_end)
{
	return a < b_end && b < a_end;
}

#endif
