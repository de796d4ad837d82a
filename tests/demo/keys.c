/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a layer of the demo gets the fixed-buffer index of a buffer.
 *
 * Three ways, so that they can be compared.  KEYS_REGC is all that a library
 * needs to use regc: a handle, a domain, get and put.  KEYS_PRIVATE is what many
 * libraries do today: a table by address, filled on first use, the oldest entry
 * thrown out when it is full or the kernel allows no more pinned memory.  It
 * does not learn that memory went away, so it answers with a registration of
 * pages that are no longer there.  KEYS_NONE is correct without a cache, and
 * pays for it in every transfer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/demo/keys.h"

#define N_ENTRIES 64

struct entry {
	uintptr_t start, end; /* half-open; end 0: free */
};

struct keys {
	enum keys_mode mode;
	struct io_uring *ring;
	struct regc_library *lib;
	struct regc_domain *dom;
	struct entry entries[N_ENTRIES]; /* number: the fixed-buffer index */
	unsigned int next; /* the oldest entry */
	struct keys_stats stats;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* ---- without regc ------------------------------------------------------ */

/* addr NULL: takes the slot out of the table. */
static int slot_update(struct keys *keys, unsigned int i, void *addr,
		       size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	__u64 tag = 0;
	int r = io_uring_register_buffers_update_tag(keys->ring, i, &iov, &tag,
						     1);

	return r < 0 ? r : 0;
}

static void entry_drop(struct keys *keys, unsigned int i)
{
	if (keys->entries[i].end)
		slot_update(keys, i, NULL, 0);
	keys->entries[i].end = 0;
}

static int entry_add(struct keys *keys, const void *addr, size_t len,
		     unsigned int *ret_index)
{
	unsigned int i = keys->next, n;
	uint64_t t;
	int r = -ENOMEM;

	for (n = 0; n < N_ENTRIES && r == -ENOMEM; n++) {
		i = keys->next;
		keys->next = (i + 1) % N_ENTRIES;
		entry_drop(keys, i);
		t = now_ns();
		r = slot_update(keys, i, (void *)addr, len);
		keys->stats.reg_ns += now_ns() - t;
	}
	if (r < 0)
		return r;
	keys->stats.registrations++;
	keys->entries[i].start = (uintptr_t)addr;
	keys->entries[i].end = (uintptr_t)addr + len;
	*ret_index = i;
	return 0;
}

static int private_get(struct keys *keys, const void *addr, size_t len,
		       unsigned int *ret_index)
{
	uintptr_t start = (uintptr_t)addr;
	unsigned int i;

	for (i = 0; i < N_ENTRIES; i++) {
		if (keys->entries[i].start <= start &&
		    start + len <= keys->entries[i].end) {
			keys->stats.hits++;
			*ret_index = i;
			return 0;
		}
	}
	return entry_add(keys, addr, len, ret_index);
}

/* ---- with regc --------------------------------------------------------- */

static int open_regc(struct keys *keys, const char *name)
{
	int r = regc_open(name, NULL, &keys->lib);

	if (r < 0)
		return r;
	r = regc_domain_uring(keys->lib, keys->ring->ring_fd, 0, &keys->dom);
	if (r < 0)
		regc_close(keys->lib);
	return r;
}

static int close_regc(struct keys *keys)
{
	int r = regc_domain_close(keys->dom);

	return r < 0 ? r : regc_close(keys->lib);
}

static int stats_regc(struct keys *keys, struct keys_stats *ret)
{
	struct regc_stats stats = { .size = sizeof(stats) };
	struct regc_status status = { .size = sizeof(status) };
	int r = regc_stats(keys->lib, &stats);

	if (r == 0)
		r = regc_status(keys->lib, &status);
	if (r < 0)
		return r;
	ret->hits = stats.hits;
	ret->registrations = stats.registrations;
	ret->clones = stats.clones;
	ret->reg_ns = stats.reg_ns;
	ret->mode = status.mode;
	ret->connected = status.connected;
	memcpy(ret->why, status.why, sizeof(ret->why));
	return 0;
}

/* ---- either way -------------------------------------------------------- */

int keys_open(const char *name, enum keys_mode mode, struct io_uring *ring,
	      struct keys **ret)
{
	struct keys *keys = calloc(1, sizeof(*keys));
	int r;

	if (!keys)
		return -ENOMEM;
	keys->mode = mode;
	keys->ring = ring;
	if (mode == KEYS_REGC)
		r = open_regc(keys, name);
	else
		r = io_uring_register_buffers_sparse(ring, N_ENTRIES);
	if (r < 0) {
		free(keys);
		return r;
	}
	*ret = keys;
	return 0;
}

int keys_close(struct keys *keys)
{
	int r;

	if (keys->mode == KEYS_REGC)
		r = close_regc(keys);
	else
		r = io_uring_unregister_buffers(keys->ring);
	free(keys);
	return r;
}

int keys_get(struct keys *keys, const void *addr, size_t len,
	     unsigned int access, struct key *ret)
{
	uint64_t t = now_ns();
	int r;

	keys->stats.gets++;
	if (keys->mode == KEYS_REGC) {
		r = regc_get(keys->dom, addr, len, access, &ret->lease);
		if (r == 0)
			ret->index = ret->lease.lkey;
	} else if (keys->mode == KEYS_PRIVATE) {
		r = private_get(keys, addr, len, &ret->index);
	} else {
		r = entry_add(keys, addr, len, &ret->index);
	}
	keys->stats.total_ns += now_ns() - t;
	return r;
}

void keys_put(struct keys *keys, struct key *key)
{
	uint64_t t = now_ns();

	if (keys->mode == KEYS_REGC)
		regc_put(&key->lease);
	else if (keys->mode == KEYS_NONE)
		entry_drop(keys, key->index);
	keys->stats.total_ns += now_ns() - t;
}

int keys_stats(struct keys *keys, struct keys_stats *ret)
{
	*ret = keys->stats;
	return keys->mode == KEYS_REGC ? stats_regc(keys, ret) : 0;
}
