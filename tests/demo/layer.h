/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two layers of the demo have in common: a ring and its keys. */
#ifndef REGC_DEMO_LAYER_H
#define REGC_DEMO_LAYER_H

#include "tests/demo/keys.h"

struct layer {
	struct io_uring ring;
	struct keys *keys;
	int fd; /* borrowed */
};

int layer_init(struct layer *layer, const char *name, int fd,
	       enum keys_mode mode);
int layer_deinit(struct layer *layer);

/*
 * Moves all of [buf, buf + len) between memory and fd by fixed writes or reads;
 * offset -1: a stream.  -ECONNRESET: end of stream.
 */
int layer_move(struct layer *layer, int is_write, void *buf, size_t len,
	       int64_t offset);

#endif
