/* SPDX-License-Identifier: BSD-2-Clause */
/* Two queue pairs of one NIC; see the header. */
#include "tests/vm/rdma.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/harness.h"

/* Of rxe on a dummy interface: the entry made of the interface's address. */
#define GID_INDEX 0
#define PORT 1
#define LIMIT_NS UINT64_C(30000000000)

static void end_open(struct rdma_end *e, struct ibv_context *context)
{
	e->pd = ibv_alloc_pd(context);
	e->send_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	e->recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	ck_assert(e->pd && e->send_cq && e->recv_cq);
}

static void qp_open(struct rdma_end *e)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->send_cq,
		.recv_cq = e->recv_cq,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};

	e->qp = ibv_create_qp(e->pd, &init);
	ck_assert_ptr_nonnull(e->qp);
	ck_assert_int_eq(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
			 0);
}

static void qp_connect(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = to,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = PORT },
	};

	attr.ah_attr.grh.sgid_index = GID_INDEX;
	attr.ah_attr.grh.hop_limit = 1;
	ck_assert_int_eq(ibv_query_gid(qp->context, PORT, GID_INDEX,
				       &attr.ah_attr.grh.dgid), 0);
	ck_assert_int_eq(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV |
					       IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					       IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18; /* 1 s: emulation is slow */
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	ck_assert_int_eq(ibv_modify_qp(qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void connect_both(struct rdma *r)
{
	qp_open(&r->ours);
	qp_open(&r->peer);
	qp_connect(r->ours.qp, r->peer.qp->qp_num);
	qp_connect(r->peer.qp, r->ours.qp->qp_num);
}

void rdma_open(struct rdma *r, size_t bytes)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(r, 0, sizeof(*r));
	ck_assert_msg(list && list[0], "no RDMA device");
	r->context = ibv_open_device(list[0]);
	ck_assert_ptr_nonnull(r->context);
	ibv_free_device_list(list);
	end_open(&r->ours, r->context);
	end_open(&r->peer, r->context);
	r->bytes = bytes;
	r->peer_buf = test_map(bytes, 0);
	r->peer_mr = ibv_reg_mr(r->peer.pd, r->peer_buf, bytes,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ck_assert_ptr_nonnull(r->peer_mr);
	connect_both(r);
}

static void empty(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		/* Flushed by the end of the queue pair. */
	}
}

static void disconnect(struct rdma *r)
{
	ck_assert_int_eq(ibv_destroy_qp(r->ours.qp), 0);
	ck_assert_int_eq(ibv_destroy_qp(r->peer.qp), 0);
	empty(r->ours.send_cq);
	empty(r->ours.recv_cq);
	empty(r->peer.send_cq);
	empty(r->peer.recv_cq);
}

void rdma_reconnect(struct rdma *r)
{
	disconnect(r);
	connect_both(r);
}

static void end_close(struct rdma_end *e)
{
	ck_assert_int_eq(ibv_destroy_cq(e->send_cq), 0);
	ck_assert_int_eq(ibv_destroy_cq(e->recv_cq), 0);
	ck_assert_int_eq(ibv_dealloc_pd(e->pd), 0);
}

void rdma_close(struct rdma *r)
{
	disconnect(r);
	ck_assert_int_eq(ibv_dereg_mr(r->peer_mr), 0);
	munmap(r->peer_buf, r->bytes);
	end_close(&r->ours);
	end_close(&r->peer);
	ck_assert_int_eq(ibv_close_device(r->context), 0);
}

/* ---- transfers ---------------------------------------------------------- */

static enum ibv_wc_status completion(struct ibv_cq *cq)
{
	uint64_t limit = test_now_ns() + LIMIT_NS;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		ck_assert_msg(test_now_ns() < limit, "no completion");
		test_pause();
	}
	ck_assert_int_eq(n, 1);
	return wc.status;
}

static enum ibv_wc_status transfer(struct rdma_end *e, enum ibv_wr_opcode opcode,
				   const struct ibv_sge *local, uint64_t remote,
				   uint32_t rkey)
{
	struct ibv_sge sge = *local;
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	}, *bad;

	ck_assert_int_eq(ibv_post_send(e->qp, &wr, &bad), 0);
	return completion(e->send_cq);
}

static struct ibv_sge sge_of(const void *addr, size_t len, uint32_t lkey)
{
	return (struct ibv_sge){ (uintptr_t)addr, (uint32_t)len, lkey };
}

enum ibv_wc_status rdma_send(struct rdma *r, const void *addr, size_t len,
			     uint32_t lkey)
{
	struct ibv_sge from = sge_of(addr, len, lkey);
	struct ibv_sge to = sge_of(r->peer_buf, len, r->peer_mr->lkey);
	struct ibv_recv_wr wr = { .sg_list = &to, .num_sge = 1 }, *bad;
	enum ibv_wc_status status;

	ck_assert_int_eq(ibv_post_recv(r->peer.qp, &wr, &bad), 0);
	status = transfer(&r->ours, IBV_WR_SEND, &from, 0, 0);
	return status ? status : completion(r->peer.recv_cq);
}

enum ibv_wc_status rdma_put(struct rdma *r, const void *addr, size_t len,
			    uint32_t lkey)
{
	struct ibv_sge from = sge_of(addr, len, lkey);

	return transfer(&r->ours, IBV_WR_RDMA_WRITE, &from,
			(uintptr_t)r->peer_buf, r->peer_mr->rkey);
}

enum ibv_wc_status rdma_peer_reads(struct rdma *r, const void *addr, size_t len,
				   uint32_t rkey)
{
	struct ibv_sge to = sge_of(r->peer_buf, len, r->peer_mr->lkey);

	return transfer(&r->peer, IBV_WR_RDMA_READ, &to, (uintptr_t)addr, rkey);
}

enum ibv_wc_status rdma_peer_writes(struct rdma *r, void *addr, size_t len,
				    uint32_t rkey)
{
	struct ibv_sge from = sge_of(r->peer_buf, len, r->peer_mr->lkey);

	return transfer(&r->peer, IBV_WR_RDMA_WRITE, &from, (uintptr_t)addr, rkey);
}
