/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two reliable queue pairs of one NIC that are connected to each other: ours,
 * and a peer with a protection domain and a buffer of its own.  Everything fails
 * the test that uses it, except what a transfer says.
 */
#ifndef REGC_TESTS_VM_RDMA_H
#define REGC_TESTS_VM_RDMA_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct rdma_end {
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
};

struct rdma {
	struct ibv_context *context;
	struct rdma_end ours, peer;
	char *peer_buf; /* bytes of it, registered by hand */
	size_t bytes;
	struct ibv_mr *peer_mr;
};

/* On the first NIC; fails the test if there is none. */
void rdma_open(struct rdma *r, size_t bytes);
void rdma_close(struct rdma *r);
/* New queue pairs, after one went into error. */
void rdma_reconnect(struct rdma *r);

/* Each waits for its completion and gives its status. */
enum ibv_wc_status rdma_send(struct rdma *r, const void *addr, size_t len,
			     uint32_t lkey);
/* We write to the peer's buffer. */
enum ibv_wc_status rdma_put(struct rdma *r, const void *addr, size_t len,
			    uint32_t lkey);
/* The peer reads our memory into its buffer, or writes its buffer to it. */
enum ibv_wc_status rdma_peer_reads(struct rdma *r, const void *addr, size_t len,
				   uint32_t rkey);
enum ibv_wc_status rdma_peer_writes(struct rdma *r, void *addr, size_t len,
				    uint32_t rkey);

#endif
