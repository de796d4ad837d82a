/* SPDX-License-Identifier: BSD-2-Clause */
/* A small message layer: whole messages between two processes. */
#include <errno.h>
#include <stdlib.h>

#include "tests/demo/layer.h"
#include "tests/demo/mpi_demo.h"

struct mpi {
	struct layer layer;
};

int mpi_open(struct mpi **ret, int sock, enum keys_mode mode)
{
	struct mpi *mpi = malloc(sizeof(*mpi));
	int r;

	if (!mpi)
		return -ENOMEM;
	r = layer_init(&mpi->layer, "mpi", sock, mode);
	if (r < 0) {
		free(mpi);
		return r;
	}
	*ret = mpi;
	return 0;
}

int mpi_close(struct mpi *mpi)
{
	int r = layer_deinit(&mpi->layer);

	free(mpi);
	return r;
}

int mpi_send(struct mpi *mpi, const void *buf, size_t len)
{
	return layer_move(&mpi->layer, 1, (void *)buf, len, -1);
}

int mpi_recv(struct mpi *mpi, void *buf, size_t len)
{
	return layer_move(&mpi->layer, 0, buf, len, -1);
}

int mpi_stats(struct mpi *mpi, struct keys_stats *ret)
{
	return keys_stats(mpi->layer.keys, ret);
}
