/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A parallel file system as small as can be, whose client is a library of its own
 * in somebody else's process: data moves by RDMA, over a queue pair between the
 * client and a server process.
 *
 * To write, the client leases the buffer from regc and tells the server where it
 * is; the server reads it.  To read, the server writes to it.  Both say how many
 * bytes and what their sum is, so that each end can tell whether the other saw the
 * same.  Functions return 0 or a negative errno.
 */
#ifndef REGC_TESTS_VM_PFS_H
#define REGC_TESTS_VM_PFS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "libregc/regc.h"

#define PFS_BYTES (4u << 20) /* of a transfer, at most */

enum pfs_op { PFS_WRITE = 1, PFS_READ = 2 };

struct pfs_request {
	uint32_t op, rkey;
	uint64_t addr, len;
};

struct pfs_reply {
	uint32_t status; /* enum ibv_wc_status */
	uint32_t pad;
	uint64_t sum;	 /* of what the server read, or wrote */
};

/* One end of a queue pair, and the socket beside it. */
struct pfs_end {
	int sock;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* A queue pair in pd, connected to the one at the other end of sock. */
int pfs_connect(struct pfs_end *e, struct ibv_pd *pd, int sock);
void pfs_disconnect(struct pfs_end *e);
int pfs_send_all(int sock, const void *data, size_t len);
int pfs_receive_all(int sock, void *data, size_t len);
uint64_t pfs_sum(const void *data, size_t len);

struct pfs_client {
	struct regc_library *lib;
	struct regc_domain *dom;
	struct pfs_end end;
};

/* To the server at a port of this machine, on a NIC by its name. */
int pfs_open(struct pfs_client *c, const char *device, uint16_t port);
/* len <= PFS_BYTES.  -EIO: the server saw other bytes than we have. */
int pfs_write(struct pfs_client *c, const void *buf, size_t len);
int pfs_read(struct pfs_client *c, void *buf, size_t len);
int pfs_close(struct pfs_client *c);

#endif
