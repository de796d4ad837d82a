/* SPDX-License-Identifier: BSD-2-Clause */
/* Client and queue pairs of the small file system; see the header. */
#include "tests/vm/pfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 1
#define GID_INDEX 0

struct address {
	union ibv_gid gid;
	uint32_t qp_num;
};

int pfs_send_all(int sock, const void *data, size_t len)
{
	ssize_t n;

	for (; len; len -= (size_t)n, data = (const char *)data + n) {
		n = send(sock, data, len, MSG_NOSIGNAL);
		if (n < 0)
			return -errno;
	}
	return 0;
}

int pfs_receive_all(int sock, void *data, size_t len)
{
	ssize_t n;

	for (; len; len -= (size_t)n, data = (char *)data + n) {
		n = recv(sock, data, len, 0);
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
	}
	return 0;
}

uint64_t pfs_sum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t sum = 14695981039346656037u, word;

	for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		sum = (sum ^ word) * 1099511628211u;
	}
	for (; len; len--, p++)
		sum = (sum ^ *p) * 1099511628211u;
	return sum;
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_ready(struct ibv_qp *qp, const struct address *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = to->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = to->gid, .sgid_index = GID_INDEX,
				 .hop_limit = 1 },
		},
	};
	int r;

	r = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER);
	if (r)
		return r;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
						IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC);
}

int pfs_connect(struct pfs_end *e, struct ibv_pd *pd, int sock)
{
	struct address ours, theirs;
	char ready = 1;
	int r;

	e->sock = sock;
	e->cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0);
	if (!e->cq)
		return -errno;
	e->qp = ibv_create_qp(pd, &(struct ibv_qp_init_attr){
		.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	});
	if (!e->qp)
		return -errno;
	memset(&ours, 0, sizeof(ours));
	ours.qp_num = e->qp->qp_num;
	r = ibv_query_gid(pd->context, PORT, GID_INDEX, &ours.gid);
	if (r || to_init(e->qp))
		return -EIO;
	r = pfs_send_all(sock, &ours, sizeof(ours));
	if (!r)
		r = pfs_receive_all(sock, &theirs, sizeof(theirs));
	if (!r && to_ready(e->qp, &theirs))
		r = -EIO;
	/* Nobody sends before both are ready. */
	if (!r)
		r = pfs_send_all(sock, &ready, 1);
	return r ? r : pfs_receive_all(sock, &ready, 1);
}

void pfs_disconnect(struct pfs_end *e)
{
	if (e->qp)
		ibv_destroy_qp(e->qp);
	if (e->cq)
		ibv_destroy_cq(e->cq);
	close(e->sock);
}

/* ---- the client --------------------------------------------------------- */

int pfs_open(struct pfs_client *c, const char *device, uint16_t port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int sock, r;

	memset(c, 0, sizeof(*c));
	r = regc_open("pfs", NULL, &c->lib);
	if (!r)
		r = regc_domain_verbs_open(c->lib, device, &c->dom);
	if (r)
		return r;
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof(to)))
		return -errno;
	return pfs_connect(&c->end, regc_domain_pd(c->dom), sock);
}

/* The server does it, with what the lease lets it; its sum is in *ret_sum. */
static int ask(struct pfs_client *c, enum pfs_op op, const void *buf, size_t len,
	       unsigned int access, uint64_t *ret_sum)
{
	struct pfs_request request = {
		.op = op, .addr = (uintptr_t)buf, .len = len,
	};
	struct regc_lease lease;
	struct pfs_reply reply;
	int r;

	if (len > PFS_BYTES)
		return -EINVAL;
	r = regc_get(c->dom, buf, len, access, &lease);
	if (r)
		return r;
	request.rkey = lease.rkey;
	r = pfs_send_all(c->end.sock, &request, sizeof(request));
	if (!r)
		r = pfs_receive_all(c->end.sock, &reply, sizeof(reply));
	regc_put(&lease);
	if (!r && reply.status != IBV_WC_SUCCESS)
		r = -EREMOTEIO;
	if (!r)
		*ret_sum = reply.sum;
	return r;
}

int pfs_write(struct pfs_client *c, const void *buf, size_t len)
{
	uint64_t sum = 0;
	int r = ask(c, PFS_WRITE, buf, len, REGC_ACCESS_REMOTE_READ, &sum);

	return r ? r : sum == pfs_sum(buf, len) ? 0 : -EIO;
}

int pfs_read(struct pfs_client *c, void *buf, size_t len)
{
	uint64_t sum = 0;
	int r = ask(c, PFS_READ, buf, len,
		    REGC_ACCESS_LOCAL_WRITE | REGC_ACCESS_REMOTE_WRITE, &sum);

	return r ? r : sum == pfs_sum(buf, len) ? 0 : -EIO;
}

int pfs_close(struct pfs_client *c)
{
	int r;

	pfs_disconnect(&c->end);
	r = regc_domain_close(c->dom);
	return r ? r : regc_close(c->lib);
}
