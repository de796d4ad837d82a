/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of libibverbs that libregc-verbs.so stands before.  What libregc
 * itself calls must not come back to it, so libregc asks, where that library is
 * loaded, for what lies behind.
 */
#ifndef REGC_VERBS_REAL_H
#define REGC_VERBS_REAL_H

#include <stddef.h>
#include <stdint.h>

struct ibv_async_event;
struct ibv_context;
struct ibv_device;
struct ibv_mr;
struct ibv_pd;

struct verbs_real {
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr,
				       size_t length, uint64_t iova,
				       unsigned int access);
	int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	int (*get_async_event)(struct ibv_context *context,
			       struct ibv_async_event *event);
};

/* Only in libregc-verbs.so; a null pointer where it is not loaded. */
const struct verbs_real *regc_verbs_real(void)
	__attribute__((weak, visibility("default")));

#endif
