/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two layers of the demo have in common: a ring and its keys. */
#include <errno.h>

#include "tests/demo/layer.h"

int layer_init(struct layer *layer, const char *name, int fd,
	       enum keys_mode mode)
{
	int r = io_uring_queue_init(8, &layer->ring, 0);

	if (r < 0)
		return r;
	layer->fd = fd;
	r = keys_open(name, mode, &layer->ring, &layer->keys);
	if (r < 0)
		io_uring_queue_exit(&layer->ring);
	return r;
}

int layer_deinit(struct layer *layer)
{
	int r = keys_close(layer->keys);

	io_uring_queue_exit(&layer->ring);
	return r;
}

static int complete(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int r = io_uring_submit_and_wait(ring, 1);

	if (r >= 0)
		r = io_uring_wait_cqe(ring, &cqe);
	if (r < 0)
		return r;
	r = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return r;
}

int layer_move(struct layer *layer, int is_write, void *buf, size_t len,
	       int64_t offset)
{
	unsigned int access = is_write ? REGC_ACCESS_LOCAL_READ :
					 REGC_ACCESS_LOCAL_WRITE;
	struct io_uring_sqe *sqe;
	struct key key;
	char *at = buf;
	int r = keys_get(layer->keys, buf, len, access, &key);

	if (r < 0)
		return r;
	while (len > 0) {
		sqe = io_uring_get_sqe(&layer->ring);
		if (is_write)
			io_uring_prep_write_fixed(sqe, layer->fd, at,
						  (unsigned int)len,
						  (__u64)offset,
						  (int)key.index);
		else
			io_uring_prep_read_fixed(sqe, layer->fd, at,
						 (unsigned int)len,
						 (__u64)offset,
						 (int)key.index);
		r = complete(&layer->ring);
		if (r == 0)
			r = -ECONNRESET;
		if (r < 0)
			break;
		at += r;
		len -= (size_t)r;
		if (offset >= 0)
			offset += r;
	}
	keys_put(layer->keys, &key);
	return r < 0 ? r : 0;
}
