/* SPDX-License-Identifier: BSD-2-Clause */
/* The buffers of the demo: memory that changes as programs' memory does. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/demo/block.h"

static int block_map(struct block *block, void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *addr = mmap(at, block->len, PROT_READ | PROT_WRITE,
			  at ? flags | MAP_FIXED_NOREPLACE : flags, -1, 0);

	block->addr = addr == MAP_FAILED ? NULL : addr;
	return block->addr ? 0 : -errno;
}

int block_init(struct block *block, enum block_kind kind, size_t len)
{
	block->kind = kind;
	block->len = len;
	if (kind != BLOCK_HEAP)
		return block_map(block, NULL);
	block->addr = malloc(len);
	return block->addr ? 0 : -ENOMEM;
}

void block_deinit(struct block *block)
{
	if (block->kind == BLOCK_HEAP)
		free(block->addr);
	else if (block->addr)
		munmap(block->addr, block->len);
	block->addr = NULL;
}

int block_change(struct block *block)
{
	void *addr = block->addr;

	switch (block->kind) {
	case BLOCK_MAPPED:
		if (munmap(addr, block->len) < 0)
			return -errno;
		return block_map(block, addr);
	case BLOCK_ADVISED:
		return madvise(addr, block->len, MADV_DONTNEED) < 0 ? -errno :
								      0;
	case BLOCK_HEAP:
		free(addr);
		block->addr = malloc(block->len);
		return block->addr ? 0 : -ENOMEM;
	default:
		return 0;
	}
}

/* Nearly every byte differs between two seeds and between two places. */
static uint64_t pattern_word(uint64_t seed, uint64_t i)
{
	return (seed * UINT64_C(0x9e3779b97f4a7c15) ^ i) *
	       UINT64_C(0xd6e8feb86659fd93);
}

void pattern_fill(void *addr, size_t len, uint64_t seed)
{
	uint64_t *words = addr;
	size_t i;

	for (i = 0; i < len / 8; i++)
		words[i] = pattern_word(seed, i);
}

uint64_t pattern_wrong_bytes(const void *addr, size_t len, uint64_t seed)
{
	const uint64_t *words = addr;
	uint64_t wrong = 0, diff;
	size_t i;

	for (i = 0; i < len / 8; i++) {
		diff = words[i] ^ pattern_word(seed, i);
		for (; diff; diff >>= 8)
			wrong += (diff & 0xff) != 0;
	}
	return wrong;
}
