/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libibverbs itself: what comes after this library in the order of the loader,
 * by the symbol versions that the functions have had since they came to be.
 */
#include "libregc/preload/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "shm/atomic.h"

static struct verbs_real found;
static uint32_t ready;

static struct ibv_mr *no_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				      uint64_t iova, unsigned int access)
{
	(void)pd, (void)addr, (void)length, (void)iova, (void)access;
	errno = ENOSYS; /* rdma-core before version 28 */
	return NULL;
}

static void find(void *ret_function, const char *name, const char *version)
{
	void *function = dlvsym(RTLD_NEXT, name, version);

	if (function)
		memcpy(ret_function, &function, sizeof(function));
}

/* More than one thread may come here: all find the same. */
const struct verbs_real *regc_verbs_real(void)
{
	struct verbs_real v = { .reg_mr_iova2 = no_reg_mr_iova2 };

	if (rtab_load_acquire(&ready))
		return &found;
	find(&v.open_device, "ibv_open_device", "IBVERBS_1.1");
	find(&v.close_device, "ibv_close_device", "IBVERBS_1.1");
	find(&v.alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1");
	find(&v.dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1");
	find(&v.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	find(&v.rereg_mr, "ibv_rereg_mr", "IBVERBS_1.1");
	find(&v.dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1");
	find(&v.get_async_event, "ibv_get_async_event", "IBVERBS_1.1");
	found = v;
	rtab_store_release(&ready, 1);
	return &found;
}
