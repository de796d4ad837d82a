/* SPDX-License-Identifier: BSD-2-Clause */
/* A small message layer: whole messages between two processes. */
#ifndef REGC_DEMO_MPI_H
#define REGC_DEMO_MPI_H

#include <stddef.h>

#include "tests/demo/keys.h"

struct mpi;

/* Over a stream socket, borrowed.  All return 0 or a negative errno. */
int mpi_open(struct mpi **ret, int sock, enum keys_mode mode);
int mpi_close(struct mpi *mpi);

/* -ECONNRESET: the other side is gone. */
int mpi_send(struct mpi *mpi, const void *buf, size_t len);
int mpi_recv(struct mpi *mpi, void *buf, size_t len);

int mpi_stats(struct mpi *mpi, struct keys_stats *ret);

#endif
