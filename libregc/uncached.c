/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Uncached registrations: made for one get, undone by its put.  Always possible
 * and always right (L3), with or without a broker; bounded by the hard limit.  And
 * those that are asked for as such, since no cached one can serve (regc_get_region).
 */
#include "libregc/miss.h"
#include "libregc/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct uncached {
	struct uncached *next; /* of rt.refused */
	struct rt_domain *d;
	struct regc_key key;
	uint64_t start, end;
	uint64_t attach;
	uint32_t library;
};

static int charge(uint64_t bytes)
{
	int r = 0;

	rt_cache_lock();
	if (rt.connected &&
	    rt.used_bytes + rt.uncached_bytes + bytes > rt.hard_bytes)
		r = -EDQUOT;
	else
		rt.uncached_bytes += bytes;
	if (rt.attached)
		rt_show_pinned();
	rt_cache_unlock();
	return r;
}

static void uncharge(uint64_t bytes)
{
	rt_cache_lock();
	rt.uncached_bytes -= bytes;
	if (rt.attached)
		rt_show_pinned();
	rt_cache_unlock();
}

static void note(const struct miss *m, uint64_t start, uint64_t end)
{
	struct rtab_request request = {
		.op = RTAB_OP_NOTE, .start = start, .end = end,
		.access = m->access, .library = (uint16_t)m->dom->library,
		.domain = (uint16_t)m->d->index, .cause = m->cause,
		.time_ns = rtab_now_ns(),
	};

	if (!rtab_load_relaxed(&rt.connected))
		return;
	rt_cache_lock();
	if (rt.connected && link_ring_room() > RTAB_N_RING / 2)
		link_push(&request);
	rt_cache_unlock();
	if (link_stalled())
		link_doorbell(); /* so that it shows when it is back */
	else
		link_doorbell_lazy();
}

/* The device call, with room made as long as it is full. */
static int reg(struct miss *m, const struct regc_region_attr *attr,
	       struct uncached *u)
{
	uint64_t t0 = rtab_now_ns();
	int r, tries = 0;

	do {
		r = attr ? domain_reg_region(m->d, attr, &u->key) :
			   domain_reg(m->d, u->start, u->end, m->access, NULL,
				      NULL, &u->key);
	} while (miss_device_full(r) && ++tries < MISS_ROOM_TRIES &&
		 miss_make_room(m->d));
	COUNT(m, reg_ns, rtab_now_ns() - t0);
	return r;
}

/* attr NULL: the pages of m's range. */
static int get(struct miss *m, const struct regc_region_attr *attr)
{
	uint64_t page = attr ? 1 : (uint64_t)sysconf(_SC_PAGESIZE);
	struct uncached *u = malloc(sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	u->d = m->d;
	u->attach = rt.attach;
	u->library = m->dom->library;
	u->start = rtab_round_down(m->start, page);
	u->end = rtab_round_up(m->end, page);
	r = charge(u->end - u->start);
	if (r == -EDQUOT && u->end - u->start <= rt.hard_bytes && miss_make_room(m->d))
		r = charge(u->end - u->start);
	if (r)
		goto err_free;
	r = reg(m, attr, u);
	if (r)
		goto err_uncharge;
	memset(m->lease, 0, sizeof(*m->lease));
	m->lease->lkey = u->key.lkey;
	m->lease->rkey = u->key.rkey;
	m->lease->handle = u->key.handle;
	m->lease->flags = REGC_LEASE_UNCACHED;
	m->lease->slot = RT_NO_SLOT;
	m->lease->priv[0] = u;
	m->lease->priv[1] = m->dom;
	COUNT(m, uncached, 1);
	if (!attr) /* that one was asked for so is no news */
		note(m, u->start, u->end);
	return 0;

err_uncharge:
	uncharge(u->end - u->start);
err_free:
	free(u);
	return r;
}

int uncached_get(struct miss *m)
{
	return get(m, NULL);
}

static bool attr_is_good(const struct regc_region_attr *attr)
{
	const uint32_t flags = REGC_REGION_ON_DEMAND | REGC_REGION_ZERO_BASED |
			       REGC_REGION_IOVA;
	uint64_t start = (uintptr_t)attr->addr;

	return attr->size >= sizeof(*attr) && attr->len &&
	       start + attr->len > start && !(attr->flags & ~flags) &&
	       !(attr->access & ~(uint32_t)REGC_ACCESS_ALL) &&
	       (attr->addr || attr->dmabuf >= 0);
}

int regc_get_region(struct regc_domain *dom, const struct regc_region_attr *attr,
		    struct regc_lease *ret_lease)
{
	struct miss m = { .dom = dom, .d = dom->shared, .lease = ret_lease };
	int saved = errno, cancel, r;

	if (!attr_is_good(attr))
		return -EINVAL;
	if (!device_is_verbs(&dom->shared->ops))
		return -EOPNOTSUPP;
	m.start = (uintptr_t)attr->addr;
	m.end = m.start + attr->len;
	m.access = attr->access;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	r = miss_prepare(&m);
	if (!r) {
		r = get(&m, attr);
		if (r)
			COUNT(&m, failed, 1);
	}
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
	return r;
}

void uncached_put(struct uncached *u)
{
	int r;

	if (u->attach != rt.attach)
		return; /* the parent's */
	r = domain_dereg(u->d, &u->key);
	if (r == -EBUSY || r == -EEXIST) {
		/* "Not now" (a ring of another thread): it stays charged. */
		rt_cache_lock();
		u->next = rt.refused;
		rtab_store_relaxed(&rt.refused, u);
		rt_cache_unlock();
		return;
	}
	uncharge(u->end - u->start);
	free(u);
}

void miss_retry_refused(void)
{
	struct uncached *u, *next;

	if (!rtab_load_relaxed(&rt.refused))
		return;
	rt_cache_lock();
	u = rt.refused;
	rtab_store_relaxed(&rt.refused, NULL);
	rt_cache_unlock();
	for (; u; u = next) {
		next = u->next;
		uncached_put(u);
	}
}

int miss_uncached_range(const struct regc_lease *lease, uint64_t *ret_start,
			uint64_t *ret_len)
{
	const struct uncached *u = lease->priv[0];

	*ret_start = u->start;
	*ret_len = u->end - u->start;
	return 0;
}
