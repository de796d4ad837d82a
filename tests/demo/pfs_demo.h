/* SPDX-License-Identifier: BSD-2-Clause */
/* A small file layer: writes buffers to a file. */
#ifndef REGC_DEMO_PFS_H
#define REGC_DEMO_PFS_H

#include <stddef.h>
#include <stdint.h>

#include "tests/demo/keys.h"

struct pfs;

/* To a file, borrowed.  All return 0 or a negative errno. */
int pfs_open(struct pfs **ret, int fd, enum keys_mode mode);
int pfs_close(struct pfs *pfs);
int pfs_write(struct pfs *pfs, const void *buf, size_t len, uint64_t offset);
int pfs_stats(struct pfs *pfs, struct keys_stats *ret);

#endif
