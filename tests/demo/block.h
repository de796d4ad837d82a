/* SPDX-License-Identifier: BSD-2-Clause */
/* The buffers of the demo: memory that changes as programs' memory does. */
#ifndef REGC_DEMO_BLOCK_H
#define REGC_DEMO_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum block_kind {
	BLOCK_KEPT,    /* stays */
	BLOCK_MAPPED,  /* munmap, then mmap at the same address */
	BLOCK_ADVISED, /* madvise(MADV_DONTNEED) */
	BLOCK_HEAP,    /* free, then malloc of the same size */
	BLOCK_N_KINDS,
};

struct block {
	enum block_kind kind;
	size_t len; /* a multiple of 8 */
	void *addr;
};

/* 0 or a negative errno; on failure addr is NULL. */
int block_init(struct block *block, enum block_kind kind, size_t len);
void block_deinit(struct block *block);

/* Does to the block what its kind says; its bytes are undefined afterwards. */
int block_change(struct block *block);

/* Writes the pattern of seed, and counts the bytes that differ from it. */
void pattern_fill(void *addr, size_t len, uint64_t seed);
uint64_t pattern_wrong_bytes(const void *addr, size_t len, uint64_t seed);

#endif
