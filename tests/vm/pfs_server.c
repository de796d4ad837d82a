/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server of the small file system (pfs.h): plain libibverbs, a process for
 * each client.
 *
 *     pfs_server DEVICE PORT
 *
 * Says "ready" when it listens.  Its store holds what was written last.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/vm/pfs.h"

static char *store;
static struct ibv_mr *store_mr;

static struct ibv_pd *open_pd(const char *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	unsigned int i;

	for (i = 0; list && list[i] && !context; i++)
		if (strcmp(ibv_get_device_name(list[i]), device) == 0)
			context = ibv_open_device(list[i]);
	return context ? ibv_alloc_pd(context) : NULL;
}

static enum ibv_wc_status transfer(struct pfs_end *e, const struct pfs_request *q)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)store, .length = (uint32_t)q->len,
		.lkey = store_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = q->op == PFS_WRITE ? IBV_WR_RDMA_READ :
					       IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = q->addr, .rkey = q->rkey },
	}, *bad;
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(e->qp, &wr, &bad))
		return IBV_WC_GENERAL_ERR;
	while ((n = ibv_poll_cq(e->cq, 1, &wc)) == 0)
		;
	return n == 1 ? wc.status : IBV_WC_GENERAL_ERR;
}

/* Until the client goes. */
static int serve(struct ibv_pd *pd, int sock)
{
	struct pfs_end e = { .sock = sock };
	struct pfs_request request;
	int r = pfs_connect(&e, pd, sock);

	while (!r && !pfs_receive_all(sock, &request, sizeof(request))) {
		struct pfs_reply reply = { .status = IBV_WC_GENERAL_ERR };

		if (request.len <= PFS_BYTES)
			reply.status = transfer(&e, &request);
		reply.sum = pfs_sum(store, request.len);
		r = pfs_send_all(sock, &reply, sizeof(reply));
	}
	return r;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int listener, sock, one = 1;
	struct ibv_pd *pd;

	if (argc != 3)
		return 2;
	signal(SIGCHLD, SIG_IGN);
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) ||
	    listen(listener, 8)) {
		perror("pfs_server");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while ((sock = accept(listener, NULL, NULL)) >= 0) {
		if (fork() == 0) {
			/* Verbs do not survive a fork: each opens its own. */
			pd = open_pd(argv[1]);
			store = aligned_alloc(4096, PFS_BYTES);
			store_mr = pd && store ?
				ibv_reg_mr(pd, store, PFS_BYTES,
					   IBV_ACCESS_LOCAL_WRITE) : NULL;
			_exit(store_mr ? serve(pd, sock) != 0 : 1);
		}
		close(sock);
	}
	return 1;
}
