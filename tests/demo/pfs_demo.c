/* SPDX-License-Identifier: BSD-2-Clause */
/* A small file layer: writes buffers to a file. */
#include <errno.h>
#include <stdlib.h>

#include "tests/demo/layer.h"
#include "tests/demo/pfs_demo.h"

struct pfs {
	struct layer layer;
};

int pfs_open(struct pfs **ret, int fd, enum keys_mode mode)
{
	struct pfs *pfs = malloc(sizeof(*pfs));
	int r;

	if (!pfs)
		return -ENOMEM;
	r = layer_init(&pfs->layer, "pfs", fd, mode);
	if (r < 0) {
		free(pfs);
		return r;
	}
	*ret = pfs;
	return 0;
}

int pfs_close(struct pfs *pfs)
{
	int r = layer_deinit(&pfs->layer);

	free(pfs);
	return r;
}

int pfs_write(struct pfs *pfs, const void *buf, size_t len, uint64_t offset)
{
	return layer_move(&pfs->layer, 1, (void *)buf, len, (int64_t)offset);
}

int pfs_stats(struct pfs *pfs, struct keys_stats *ret)
{
	return keys_stats(pfs->layer.keys, ret);
}
