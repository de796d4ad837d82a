/* SPDX-License-Identifier: BSD-2-Clause */
/* A libibverbs without a device; see the header. */
#include "tests/support/fake_verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/atomic.h"

void fake_nic_init(struct fake_nic *nic, const char *name)
{
	memset(nic, 0, sizeof(*nic));
	nic->context.device = &nic->device;
	snprintf(nic->device.name, sizeof(nic->device.name), "%s", name);
	nic->attr.max_mr = 1000;
	nic->attr.max_mr_size = UINT64_C(1) << 40;
	nic->attr.atomic_cap = IBV_ATOMIC_HCA;
}

void fake_pd_init(struct fake_pd *pd, struct fake_nic *nic, uint32_t handle)
{
	memset(pd, 0, sizeof(*pd));
	pd->pd.context = &nic->context;
	pd->pd.handle = handle;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct fake_nic *nic = (struct fake_nic *)context;

	if (!nic->query_error)
		*attr = nic->attr;
	return nic->query_error;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *ibpd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	static uint32_t keys;
	struct fake_pd *pd = (struct fake_pd *)ibpd;
	struct ibv_mr *mr;

	errno = pd->reg_error;
	if (!errno && pd->max_live &&
	    rtab_load_acquire(&pd->live) >= pd->max_live)
		errno = ENOMEM;
	if (errno)
		return NULL;
	if (pd->in_reg)
		pd->in_reg(pd->in_reg_arg);
	mr = calloc(1, sizeof(*mr));
	mr->pd = ibpd;
	mr->context = ibpd->context;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = rtab_fetch_add(&keys, 2) + 1;
	mr->rkey = mr->lkey + 1;
	pd->last_access = access;
	pd->last_iova = iova;
	pd->last_addr = addr;
	pd->last_len = length;
	rtab_fetch_add(&pd->regs, 1);
	rtab_fetch_add(&pd->live, 1);
	return mr;
}

/* The header's macro would hide the function.  A call through the loader, as in
 * libibverbs: libregc-verbs.so may stand before it. */
#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uint64_t)(uintptr_t)addr,
				(unsigned int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *ibpd, uint64_t offset,
				 size_t length, uint64_t iova, int fd, int access)
{
	struct fake_pd *pd = (struct fake_pd *)ibpd;

	pd->last_offset = offset;
	pd->last_dmabuf = fd;
	return ibv_reg_mr_iova2(ibpd, NULL, length, iova, (unsigned int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct fake_pd *pd = (struct fake_pd *)mr->pd;

	if (rtab_load_acquire(&pd->dereg_error))
		return pd->dereg_error;
	free(mr);
	rtab_fetch_add(&pd->deregs, 1);
	rtab_fetch_sub(&pd->live, 1);
	errno = EPERM; /* to be kept from the caller */
	return 0;
}
