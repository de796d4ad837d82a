/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA NICs through libibverbs: a registration is a memory region (MR) of a
 * protection domain (PD) of the application's, the keys are its lkey and rkey,
 * and the handle is its struct ibv_mr *.
 *
 * There is no state here: the PD itself is the context.  So two libraries that
 * give the same PD name the same domain (domain_open()), and nothing is left
 * when the last handle of it is closed.  The application keeps its PD until
 * then; the kernel refuses to end a PD that still has MRs.
 *
 * Access is mapped one to one (L9), with one exception that is the
 * specification's own: an MR for remote writes or atomics has to be for local
 * writes as well.  Memory that is mapped read-only takes neither, so nothing
 * becomes writable that was not.  Relaxed ordering is a wish: libibverbs drops
 * it where the kernel does not know it.
 *
 * Who calls: reg on the thread in regc_get(); dereg there, in regc_put(), in
 * regc_domain_close() and on the worker, so ibv_dereg_mr() may run on a
 * thread that the application never made.  libibverbs takes calls from any
 * thread.  No lock of regc is held, and never inside a hook (L8).
 *
 * With verbs_nic.c the only files of libregc that know libibverbs.  Built without
 * it, regc_domain_verbs() is there and says so.
 */
#include "libregc/runtime.h"

#include <errno.h>

#ifdef HAVE_VERBS

#include <infiniband/verbs.h>
#include <stdio.h>

#include "libregc/verbs_real.h"

#define NEEDS_LOCAL_WRITE (REGC_ACCESS_REMOTE_WRITE | REGC_ACCESS_REMOTE_ATOMIC)

/* What the kernel answers when it does not say why. */
static int errno_or_eio(int err)
{
	return err > 0 ? -err : -EIO;
}

static unsigned int verbs_access(unsigned int access)
{
	static const struct {
		unsigned int regc, verbs;
	} map[] = {
		{ REGC_ACCESS_LOCAL_WRITE | NEEDS_LOCAL_WRITE,
		  IBV_ACCESS_LOCAL_WRITE },
		{ REGC_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
		{ REGC_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ REGC_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC },
		{ REGC_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING },
	};
	unsigned int verbs = 0, i;

	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (access & map[i].regc)
			verbs |= map[i].verbs;
	return verbs;
}

/* libibverbs itself, where libregc-verbs.so stands before it; else NULL. */
static const struct verbs_real *past_preload(void)
{
	return regc_verbs_real ? regc_verbs_real() : NULL;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     uint64_t iova, unsigned int flags)
{
	const struct verbs_real *real = past_preload();

	/* ibv_reg_mr() itself would come back to libregc-verbs.so. */
	if (real)
		return real->reg_mr_iova2(pd, addr, len, iova, flags);
	return iova == (uintptr_t)addr ? ibv_reg_mr(pd, addr, len, flags) :
					 ibv_reg_mr_iova2(pd, addr, len, iova,
							  flags);
}

static int dereg_mr(struct ibv_mr *mr)
{
	const struct verbs_real *real = past_preload();

	return real ? real->dereg_mr(mr) : ibv_dereg_mr(mr);
}

/* What libibverbs made, or its errno; errno is put back. */
static int take_mr(const struct ibv_mr *mr, int saved, struct regc_key *ret_key)
{
	int r = 0;

	if (mr) {
		ret_key->lkey = mr->lkey;
		ret_key->rkey = mr->rkey;
		ret_key->handle = (uint64_t)(uintptr_t)mr;
	} else {
		r = errno_or_eio(errno);
	}
	errno = saved;
	return r;
}

static int verbs_reg(void *ctx, void *addr, size_t len, unsigned int access,
		     struct regc_key *ret_key)
{
	int saved = errno;

	errno = 0;
	return take_mr(reg_mr(ctx, addr, len, (uintptr_t)addr,
			      verbs_access(access)),
		       saved, ret_key);
}

/* ODP and dmabuf: the kernel says what the device cannot. */
int device_verbs_region(void *pd, const struct regc_region_attr *attr,
			struct regc_key *ret_key)
{
	unsigned int flags = verbs_access(attr->access);
	uint64_t iova = (uintptr_t)attr->addr;
	int saved = errno;

	if (attr->flags & REGC_REGION_ON_DEMAND)
		flags |= IBV_ACCESS_ON_DEMAND;
	if (attr->flags & REGC_REGION_ZERO_BASED)
		flags |= IBV_ACCESS_ZERO_BASED;
	if (attr->flags & REGC_REGION_IOVA)
		iova = attr->iova;
	errno = 0;
	return take_mr(attr->addr ?
			       reg_mr(pd, attr->addr, attr->len, iova, flags) :
			       ibv_reg_dmabuf_mr(pd, attr->offset, attr->len,
						 iova, attr->dmabuf, (int)flags),
		       saved, ret_key);
}

/* -EBUSY: a memory window is bound to it; regc tries again later. */
static int verbs_dereg(void *ctx, const struct regc_key *key)
{
	int saved = errno, r;

	(void)ctx;
	r = dereg_mr((struct ibv_mr *)(uintptr_t)key->handle);
	errno = saved;
	return r ? errno_or_eio(r) : 0;
}

/* All PDs of a device share its MRs; it says itself when it is full. */
static void verbs_limits(void *ctx, struct regc_device_limits *ret)
{
	const struct ibv_pd *pd = ctx;
	struct ibv_device_attr attr = { .max_mr = 0 };
	int saved = errno;

	if (ibv_query_device(pd->context, &attr) == 0) {
		if (attr.max_mr > 0)
			ret->max_registrations = (uint64_t)attr.max_mr;
		ret->max_bytes = attr.max_mr_size;
		ret->access = REGC_ACCESS_ALL;
		if (attr.atomic_cap == IBV_ATOMIC_NONE)
			ret->access &= ~(uint32_t)REGC_ACCESS_REMOTE_ATOMIC;
	}
	errno = saved;
}

static const struct regc_device_ops verbs_ops = {
	.size = sizeof(verbs_ops),
	.name = "verbs",
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.limits = verbs_limits,
};

bool device_is_verbs(const struct regc_device_ops *ops)
{
	return ops->reg == verbs_reg;
}

int regc_domain_verbs(struct regc_library *lib, struct ibv_pd *pd,
		      struct regc_domain **ret_dom)
{
	int saved = errno, r;
	char name[RTAB_NAME_BYTES];

	if (!pd)
		return -EINVAL;
	r = rt_enter();
	if (!r) {
		snprintf(name, sizeof(name), "verbs:%.14s:%u",
			 ibv_get_device_name(pd->context->device), pd->handle);
		r = domain_open(lib, &verbs_ops, pd, name, ret_dom, NULL);
	}
	errno = saved;
	return r;
}

#else

bool device_is_verbs(const struct regc_device_ops *ops)
{
	(void)ops;
	return false;
}

int device_verbs_region(void *pd, const struct regc_region_attr *attr,
			struct regc_key *ret_key)
{
	(void)pd, (void)attr, (void)ret_key;
	return -EOPNOTSUPP;
}

int regc_domain_verbs(struct regc_library *lib, struct ibv_pd *pd,
		      struct regc_domain **ret_dom)
{
	(void)lib;
	(void)ret_dom;
	return pd ? -ENOTSUP : -EINVAL;
}

#endif
