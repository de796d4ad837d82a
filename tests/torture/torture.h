/* SPDX-License-Identifier: BSD-2-Clause */
/* What the parts of torture_stale share: counts, windows, changes of memory. */
#ifndef REGC_TESTS_TORTURE_H
#define REGC_TESTS_TORTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/atomic.h"

#define PAGE ((size_t)4096)
#define WINDOWS 48
#define WINDOW_PAGES 8
#define WINDOW_BYTES (WINDOW_PAGES * PAGE)
/*
 * Far below where the kernel places mappings, so that nobody else takes a free
 * hole, and outside of what the sanitizers use.
 */
#if RTAB_TSAN
#define LOW ((char *)UINT64_C(0x7e9000000000))
#else
#define LOW ((char *)UINT64_C(0x200000000000))
#endif

enum window_kind {
	WINDOW_MAPPED,
	WINDOW_HEAP, /* a block of malloc */
	WINDOW_BRK,  /* what ends at the break */
};

struct window {
	uint32_t lock;
	enum window_kind kind;
	char *mem; /* at least WINDOW_BYTES */
	/* This part cannot be accessed: half-open, bytes; else both are 0. */
	size_t closed_from, closed_to;
};

struct totals {
	uint64_t changes, gets, hits, uncached, wrong, errors, races, refused;
};

extern struct totals *totals; /* shared by the processes */
extern struct window windows[WINDOWS];
extern bool strict;

void die(const char *what) __attribute__((noreturn));

/* Writes what never was there before. */
void fill(char *mem, size_t bytes);

/* Private anonymous memory through libc or raw; MAP_FAILED. */
char *map_at(char *at, size_t bytes, int flags, bool raw);
void unmap(char *at, size_t bytes, bool raw);
/* MADV_DONTNEED or a call that does as much; x chooses. */
void discard(char *at, size_t bytes, uint64_t x, bool raw);

void windows_make(void);
/* Any call that takes or replaces pages of w; x chooses.  w is locked. */
void window_change(struct window *w, uint64_t x);

/*
 * Starts a process that advises about this one's memory, as far as the kernel
 * lets another process: pages become cold or huge.  It ends with this one.
 */
void outsider_start(void);

#endif
