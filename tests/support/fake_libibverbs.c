/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * With fake_verbs.c, a whole libibverbs.so.1 without a device, for programs that
 * are not to know: it has the symbol versions of the real one.  Two NICs, fake0
 * and fake1; a context is a struct fake_nic, a PD a struct fake_pd.
 */
#include "tests/support/fake_verbs.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/atomic.h"

#undef ibv_reg_mr_iova
#undef ibv_get_device_list

static struct ibv_device devices[] = { { .name = "fake0" }, { .name = "fake1" } };
uint32_t fake_contexts;

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(3, sizeof(*list));

	list[0] = &devices[0];
	list[1] = &devices[1];
	if (num_devices)
		*num_devices = 2;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(UINT64_C(0x0123456789abcde0) +
		       (uint64_t)(device - devices));
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fake_nic *nic = calloc(1, sizeof(*nic));

	fake_nic_init(nic, device->name);
	nic->context.device = device;
	rtab_fetch_add(&fake_contexts, 1);
	return &nic->context;
}

int ibv_close_device(struct ibv_context *context)
{
	rtab_fetch_sub(&fake_contexts, 1);
	free(context);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static uint32_t handles;
	struct fake_pd *pd = calloc(1, sizeof(*pd));

	fake_pd_init(pd, (struct fake_nic *)context,
		     rtab_fetch_add(&handles, 1) + 1);
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (rtab_load_acquire(&((struct fake_pd *)pd)->live))
		return EBUSY;
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
	errno = ENOSYS;
	return IBV_REREG_MR_ERR_INPUT;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	memset(event, 0, sizeof(*event));
	event->element.port_num = 1;
	event->event_type = ((struct fake_nic *)context)->next_event;
	return 0;
}
