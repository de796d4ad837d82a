/* SPDX-License-Identifier: BSD-2-Clause */
/* How a layer of the demo gets the fixed-buffer index of a buffer. */
#ifndef REGC_DEMO_KEYS_H
#define REGC_DEMO_KEYS_H

#include <liburing.h>
#include <stdint.h>

#include "libregc/regc.h"

enum keys_mode {
	KEYS_NONE,    /* registers for every transfer */
	KEYS_PRIVATE, /* a cache of its own, by address, that tracks nothing */
	KEYS_REGC,    /* the cache of the process */
	KEYS_N_MODES,
};

struct keys_stats {
	uint64_t gets;
	uint64_t hits;
	uint64_t registrations; /* regc: of the whole process */
	uint64_t clones;        /* regc: of the whole process */
	uint64_t reg_ns;        /* in device registration */
	uint64_t total_ns;      /* in get and put, registration included */
	uint32_t mode;          /* regc: REGC_MODE_* in force */
	uint32_t connected;
	char why[128];
};

struct key {
	unsigned int index; /* of the fixed buffer */
	struct regc_lease lease;
};

struct keys;

/* For the ring (borrowed until keys_close()) of the library called name. */
int keys_open(const char *name, enum keys_mode mode, struct io_uring *ring,
	      struct keys **ret);
int keys_close(struct keys *keys);

int keys_get(struct keys *keys, const void *addr, size_t len,
	     unsigned int access, struct key *ret);
void keys_put(struct keys *keys, struct key *key);
int keys_stats(struct keys *keys, struct keys_stats *ret);

#endif
