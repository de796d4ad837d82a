/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * io_uring: a registration is an entry of the ring's fixed-buffer table, the key
 * (lkey) its index.
 *
 * The table is sparse and belongs to regc.  A second ring of the process takes a
 * clone of the first one's entry where the kernel can (6.13: clone of a part into
 * a table that exists): the pages are pinned once and both entries refer to it.
 * A clone copies the target's table, so small buffers are simply registered.
 *
 * An operation in flight keeps its buffer; removing the entry under it is safe.
 */
#include "libregc/runtime.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_BUFFERS 16384 /* IORING_MAX_REG_BUFFERS */
#define DEFAULT_BUFFERS 4096
#define MAX_BUFFER_BYTES (UINT64_C(1) << 30)
#define CLONE_MIN_BYTES (UINT64_C(64) << 10)

/* Kernel 6.12 and 6.13, for headers that do not have them. */
#define REGISTER_CLONE_BUFFERS 30
#define CLONE_DST_REPLACE (1u << 1)
struct clone_buffers {
	uint32_t src_fd, flags, src_off, dst_off, nr, pad[3];
};

struct ring {
	int fd;
	unsigned int n;
	unsigned int n_users; /* init lock: the domain, and who opens it */
	bool no_clone; /* tried once, and the kernel cannot */
	struct io_uring *own;
	uint64_t used[MAX_BUFFERS / 64]; /* bit set: index taken */
};

/* init lock. */
static struct ring *rings[RTAB_N_DOMAINS];

static int ring_register(int fd, unsigned int op, void *arg, unsigned int n)
{
	long r = syscall(SYS_io_uring_register, fd, op, arg, n);

	return r < 0 ? -errno : (int)r;
}

static int index_take(struct ring *ring, uint32_t *ret)
{
	uint32_t words = (ring->n + 63) / 64, w;

	for (w = 0; w < words; w++) {
		uint64_t old = rtab_load_relaxed(&ring->used[w]);

		while (old != UINT64_MAX) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~old);

			if (w * 64 + bit >= ring->n)
				return -ENOSPC;
			if (rtab_cas(&ring->used[w], &old,
				     old | UINT64_C(1) << bit)) {
				*ret = w * 64 + bit;
				return 0;
			}
		}
	}
	return -ENOSPC;
}

static void index_give(struct ring *ring, uint32_t index)
{
	rtab_fetch_and(&ring->used[index / 64], ~(UINT64_C(1) << index % 64));
}

static int update(struct ring *ring, uint32_t index, void *addr, size_t len)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	struct io_uring_rsrc_update2 arg = {
		.offset = index,
		.data = (uint64_t)(uintptr_t)&iov,
		.nr = 1,
	};
	int r = ring_register(ring->fd, IORING_REGISTER_BUFFERS_UPDATE, &arg,
			      sizeof(arg));

	return r < 0 ? r : 0;
}

static int uring_reg(void *ctx, void *addr, size_t len, unsigned int access,
		     struct regc_key *ret_key)
{
	struct ring *ring = ctx;
	uint32_t index;
	int r = index_take(ring, &index);

	(void)access; /* the kernel pins for writing, always */
	if (r)
		return r;
	r = update(ring, index, addr, len);
	if (r) {
		index_give(ring, index);
		return r;
	}
	ret_key->lkey = index;
	return 0;
}

static int uring_dereg(void *ctx, const struct regc_key *key)
{
	struct ring *ring = ctx;
	int r = update(ring, key->lkey, NULL, 0);

	if (r != -EEXIST && r != -EBUSY)
		index_give(ring, key->lkey);
	return r;
}

static int uring_clone(void *ctx, void *from_ctx, const struct regc_key *from_key,
		       void *addr, size_t len, unsigned int access,
		       struct regc_key *ret_key)
{
	struct ring *ring = ctx, *from = from_ctx;
	struct clone_buffers arg = {
		.src_fd = (uint32_t)from->fd,
		.flags = CLONE_DST_REPLACE,
		.src_off = from_key->lkey,
		.nr = 1,
	};
	int r;

	(void)addr;
	(void)access;
	if (len < CLONE_MIN_BYTES || rtab_load_relaxed(&ring->no_clone))
		return -EOPNOTSUPP;
	r = index_take(ring, &arg.dst_off);
	if (r)
		return r;
	r = ring_register(ring->fd, REGISTER_CLONE_BUFFERS, &arg, 1);
	if (r < 0) {
		index_give(ring, arg.dst_off);
		if (r == -EINVAL || r == -EOPNOTSUPP)
			rtab_store_relaxed(&ring->no_clone, true);
		return -EOPNOTSUPP;
	}
	ret_key->lkey = arg.dst_off;
	return 0;
}

static void uring_limits(void *ctx, struct regc_device_limits *ret)
{
	const struct ring *ring = ctx;

	ret->max_registrations = ring->n;
	ret->max_bytes = MAX_BUFFER_BYTES;
}

static void uring_release(void *ctx)
{
	struct ring *ring = ctx;
	bool last;
	uint32_t i;

	rt_lock_take(&rt.wipe->init_lock);
	last = --ring->n_users == 0;
	for (i = 0; last && i < RTAB_N_DOMAINS; i++)
		if (rings[i] == ring)
			rings[i] = NULL;
	rt_lock_drop(&rt.wipe->init_lock);
	if (!last)
		return;
	if (ring->own) {
		io_uring_queue_exit(ring->own);
		free(ring->own);
	} else {
		ring_register(ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0);
	}
	free(ring);
}

const struct regc_device_ops device_uring_ops = {
	.size = sizeof(device_uring_ops),
	.name = "uring",
	.reg = uring_reg,
	.dereg = uring_dereg,
	.limits = uring_limits,
	.clone = uring_clone,
	.release = uring_release,
};

void device_uring_forget(void)
{
	memset(rings, 0, sizeof(rings));
}

/* ---- domains ------------------------------------------------------------ */

static int ring_new(int fd, unsigned int n, struct ring **ret)
{
	struct io_uring_rsrc_register arg = {
		.nr = n ? n : DEFAULT_BUFFERS,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};
	struct ring *ring;
	int r;

	if (n > MAX_BUFFERS)
		return -EINVAL;
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	r = ring_register(fd, IORING_REGISTER_BUFFERS2, &arg, sizeof(arg));
	if (r < 0) {
		free(ring);
		/* Not a ring; the kernel's word for a file that is none. */
		return r == -EOPNOTSUPP ? -EINVAL : r;
	}
	ring->fd = fd;
	ring->n = arg.nr;
	*ret = ring;
	return 0;
}

/* init lock: the ring of fd, if a domain has it already. */
static struct ring *ring_find(int fd, uint32_t *ret_free)
{
	uint32_t i;

	*ret_free = RTAB_N_DOMAINS;
	for (i = 0; i < RTAB_N_DOMAINS; i++) {
		if (rings[i] && rings[i]->fd == fd)
			return rings[i];
		if (!rings[i])
			*ret_free = i;
	}
	return NULL;
}

static int open_ring(struct regc_library *lib, int fd, struct io_uring *own,
		     unsigned int n, struct regc_domain **ret_dom)
{
	char name[RTAB_NAME_BYTES];
	struct ring *ring;
	bool is_new = false;
	uint32_t at;
	int r = 0;

	snprintf(name, sizeof(name), "uring:%d", fd);
	rt_lock_take(&rt.wipe->init_lock);
	ring = ring_find(fd, &at);
	if (!ring) {
		r = at == RTAB_N_DOMAINS ? -ENOSPC : ring_new(fd, n, &ring);
		if (!r) {
			ring->own = own;
			rings[at] = ring;
		}
	}
	if (!r)
		ring->n_users++;
	rt_lock_drop(&rt.wipe->init_lock);
	if (r)
		return r;
	r = domain_open(lib, &device_uring_ops, ring, name, ret_dom, &is_new);
	if (r && own)
		ring->own = NULL; /* the caller's still */
	if (!is_new)
		uring_release(ring); /* the domain has its own */
	return r;
}

int regc_domain_uring(struct regc_library *lib, int ring_fd,
		      unsigned int n_buffers, struct regc_domain **ret_dom)
{
	int saved = errno, r = rt_enter();

	if (!r)
		r = open_ring(lib, ring_fd, NULL, n_buffers, ret_dom);
	errno = saved;
	return r;
}

int regc_domain_uring_new(struct regc_library *lib, unsigned int entries,
			  unsigned int n_buffers, struct regc_domain **ret_dom)
{
	struct io_uring *own;
	int saved = errno, r = rt_enter();

	if (r)
		return r;
	own = calloc(1, sizeof(*own));
	if (!own)
		return -ENOMEM;
	r = io_uring_queue_init(entries, own, 0);
	if (!r) {
		r = open_ring(lib, own->ring_fd, own, n_buffers, ret_dom);
		if (r)
			io_uring_queue_exit(own);
	}
	if (r)
		free(own);
	errno = saved;
	return r;
}

struct io_uring *regc_domain_ring(struct regc_domain *dom)
{
	if (dom->shared->ops.reg != uring_reg)
		return NULL;
	return ((struct ring *)dom->shared->ctx)->own;
}
