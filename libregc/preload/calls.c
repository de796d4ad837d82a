/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that take libibverbs' place.  libregc-verbs.map gives them its
 * symbol versions, so that programs of the old ABI (IBVERBS_1.0) pass by.
 *
 * Access is what was asked for (L9), except that a program may share the key of
 * a larger registration with the same access; libregc-verbs(7) says so.
 */
#include "libregc/preload/preload.h"

#include <errno.h>
#include <string.h>

#include "shm/atomic.h"

/* The header's macros would call what is defined here. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* The IBV_ACCESS_* that regc knows; *ret_ok: there are no others. */
static unsigned int regc_access(unsigned int verbs, bool *ret_ok)
{
	static const struct {
		unsigned int verbs, regc;
	} map[] = {
		{ IBV_ACCESS_LOCAL_WRITE, REGC_ACCESS_LOCAL_WRITE },
		{ IBV_ACCESS_REMOTE_READ, REGC_ACCESS_REMOTE_READ },
		{ IBV_ACCESS_REMOTE_WRITE, REGC_ACCESS_REMOTE_WRITE },
		{ IBV_ACCESS_REMOTE_ATOMIC, REGC_ACCESS_REMOTE_ATOMIC },
		{ IBV_ACCESS_RELAXED_ORDERING, REGC_ACCESS_RELAXED_ORDERING },
	};
	unsigned int regc = 0, i;

	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (verbs & map[i].verbs) {
			regc |= map[i].regc;
			verbs &= ~map[i].verbs;
		}
	/* Remote writes need local ones: libibverbs refuses that, not we. */
	*ret_ok = verbs == 0 &&
		  (!(regc & (REGC_ACCESS_REMOTE_WRITE |
			     REGC_ACCESS_REMOTE_ATOMIC)) ||
		   (regc & REGC_ACCESS_LOCAL_WRITE));
	return regc;
}

/* What the program holds, of a lease. */
static void fill(struct mr *m, struct ibv_pd *pd, void *addr, size_t length,
		 unsigned int access)
{
	const struct ibv_mr *of = (const void *)(uintptr_t)m->lease.handle;

	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.addr = addr;
	m->mr.length = length;
	m->mr.handle = of->handle;
	m->mr.lkey = m->lease.lkey;
	m->mr.rkey = m->lease.rkey;
	m->access = access;
}

/* 0, -EDQUOT: beyond regc's hard limit, or any other: libibverbs is to be asked. */
static int lease(struct ibv_pd *pd, void *addr, size_t length,
		 unsigned int access, struct regc_lease *ret)
{
	unsigned int asked;
	struct regc_domain *dom;
	bool ok;

	if (preload_is_off() || !pd || !length)
		return -ENOTSUP;
	asked = regc_access(access, &ok);
	dom = ok ? pd_domain(pd) : NULL;
	return dom ? regc_get(dom, addr, length, asked, ret) : -ENOTSUP;
}

/* NULL with errno 0: libibverbs is to be asked. */
static struct ibv_mr *cached(struct ibv_pd *pd, void *addr, size_t length,
			     uint64_t iova, unsigned int access)
{
	struct regc_lease got;
	struct mr *m;
	int r;

	r = iova == (uintptr_t)addr ? lease(pd, addr, length, access, &got) :
				      -ENOTSUP;
	if (r) {
		/* The limit that an operator set is as good as a full device. */
		errno = r == -EDQUOT ? ENOMEM : 0;
		return NULL;
	}
	m = mr_take();
	if (!m) {
		regc_put(&got);
		errno = 0;
		return NULL;
	}
	m->lease = got;
	fill(m, pd, addr, length, access);
	rtab_store_release(&m->used, 1);
	return &m->mr;
}

/*
 * All three calls.  libibverbs makes the first two of the third, by a call that
 * would come back here, so what passes by goes to the third at once.
 */
static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length,
			  uint64_t iova, unsigned int access)
{
	int saved = errno;
	struct ibv_mr *mr = cached(pd, addr, length, iova, access);

	if (!mr && errno)
		return NULL;
	errno = saved;
	if (mr)
		return mr;
	mr = real->reg_mr_iova2(pd, addr, length, iova, access);
	if (mr || (errno != ENOMEM && errno != ENOSPC) || preload_is_off())
		return mr;
	pd_make_room(pd);
	return real->reg_mr_iova2(pd, addr, length, iova, access);
}

PRELOAD_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr,
				      size_t length, int access)
{
	return reg(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

PRELOAD_API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr,
					   size_t length, uint64_t iova, int access)
{
	return reg(pd, addr, length, iova, (unsigned int)access);
}

PRELOAD_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
					    size_t length, uint64_t iova,
					    unsigned int access)
{
	return reg(pd, addr, length, iova, access);
}

PRELOAD_API int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr *m = mr_of(mr);

	if (!m)
		return real->dereg_mr(mr);
	if (!rtab_load_acquire(&m->used))
		return EINVAL;
	regc_put(&m->lease);
	mr_give_back(m);
	return 0;
}

/* One of ours: another lease in the same struct.  On error the old one stays. */
static int rereg(struct mr *m, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	struct regc_lease got;
	int r;

	if ((unsigned int)flags & ~(unsigned int)IBV_REREG_MR_FLAGS_SUPPORTED) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_PD))
		pd = m->mr.pd;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION)) {
		addr = m->mr.addr;
		length = m->mr.length;
	}
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		access = (int)m->access;
	r = lease(pd, addr, length, (unsigned int)access, &got);
	if (r) {
		errno = r == -EDQUOT ? ENOMEM : -r;
		return IBV_REREG_MR_ERR_INPUT;
	}
	regc_put(&m->lease);
	m->lease = got;
	fill(m, pd, addr, length, (unsigned int)access);
	return 0;
}

PRELOAD_API int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			     void *addr, size_t length, int access)
{
	struct mr *m = mr_of(mr);

	return m ? rereg(m, flags, pd, addr, length, access) :
		   real->rereg_mr(mr, flags, pd, addr, length, access);
}

/* ---- protection domains and devices ------------------------------------- */

PRELOAD_API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return shared_is_on() ? shared_open(device) : real->open_device(device);
}

PRELOAD_API int ibv_close_device(struct ibv_context *context)
{
	if (shared_is_on() && shared_keep_context(context))
		return 0;
	pd_close_all_of(context);
	return real->close_device(context);
}

PRELOAD_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return shared_is_on() ? shared_alloc_pd(context) :
				real->alloc_pd(context);
}

/* What is cached goes first, or the kernel would say that the PD is in use. */
PRELOAD_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int r;

	if (shared_is_on() && shared_keep_pd(pd))
		return 0;
	r = pd_close(pd);
	if (!r)
		r = real->dealloc_pd(pd);
	if (r && shared_is_on())
		shared_restore_pd(pd);
	return r;
}

/* The program learns that a device is gone, and so does regc. */
PRELOAD_API int ibv_get_async_event(struct ibv_context *context,
				    struct ibv_async_event *event)
{
	int r = real->get_async_event(context, event);

	if (!r && event->event_type == IBV_EVENT_DEVICE_FATAL)
		pd_lose_all_of(context);
	return r;
}

/* Before the program has threads. */
static void __attribute__((constructor)) begin(void)
{
	regc_verbs_real();
	pd_begin();
	shared_begin();
}
