/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NICs that regc opens itself: one context and one PD of a device, for every
 * library of the process that asks for the device by name or GUID.  They end with
 * the last domain handle that was made so, whatever else there is in the PD.
 *
 * In a child of fork the NICs of its parent stay behind, unused.  The lock is not
 * the init lock: libregc-verbs.so, which libibverbs' calls may lead to, makes
 * libraries under its own.
 *
 * With device_verbs.c the only files of libregc that know libibverbs.
 */
#include "libregc/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_VERBS

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>

struct verbs_nic {
	struct verbs_nic *next;
	struct ibv_context *context;
	struct ibv_pd *pd;
	char name[IBV_SYSFS_NAME_MAX];
	unsigned int n_handles;
	uint64_t made_in; /* rt.attach then */
};

static struct verbs_nic *nics; /* nic lock */

/* "0123:4567:89ab:cdef", as ibv_devinfo(1) shows it, colons or not. */
static bool is_guid(const char *text, uint64_t guid)
{
	unsigned int digits = 0;
	uint64_t value = 0;
	char digit[2] = "";

	for (; *text; text++) {
		if (*text == ':')
			continue;
		digit[0] = *text;
		if (++digits > 16 || !strchr("0123456789abcdefABCDEF", *text))
			return false;
		value = value << 4 | strtoul(digit, NULL, 16);
	}
	return digits == 16 && value == guid;
}

static struct ibv_device *choose(struct ibv_device **list, const char *device)
{
	for (; *list; list++)
		if (!device || strcmp(ibv_get_device_name(*list), device) == 0 ||
		    is_guid(device, be64toh(ibv_get_device_guid(*list))))
			return *list;
	return NULL;
}

/* nic lock. */
static int nic_open(struct ibv_device *device, struct verbs_nic **ret)
{
	struct verbs_nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return -ENOMEM;
	errno = 0;
	nic->context = ibv_open_device(device);
	if (!nic->context)
		goto err_free;
	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd)
		goto err_close;
	snprintf(nic->name, sizeof(nic->name), "%s", ibv_get_device_name(device));
	nic->made_in = rt.attach;
	nic->next = nics;
	nics = nic;
	*ret = nic;
	return 0;

err_close:
	ibv_close_device(nic->context);
err_free:
	free(nic);
	return errno > 0 ? -errno : -EIO;
}

/* nic lock: one handle more. */
static int nic_take(struct ibv_device *device, struct verbs_nic **ret)
{
	struct verbs_nic *nic;
	int r;

	for (nic = nics; nic; nic = nic->next)
		if (nic->made_in == rt.attach &&
		    strcmp(nic->name, ibv_get_device_name(device)) == 0)
			break;
	if (!nic) {
		r = nic_open(device, &nic);
		if (r)
			return r;
	}
	nic->n_handles++;
	*ret = nic;
	return 0;
}

void verbs_nic_drop(struct verbs_nic *nic)
{
	struct verbs_nic **at;
	int saved = errno;

	rt_lock_take(&rt.wipe->nic_lock);
	if (--nic->n_handles == 0) {
		for (at = &nics; *at != nic; at = &(*at)->next)
			;
		*at = nic->next;
		/* Of a PD that others have domains in nothing ends here. */
		if (ibv_dealloc_pd(nic->pd) == 0)
			ibv_close_device(nic->context);
		free(nic);
	}
	rt_lock_drop(&rt.wipe->nic_lock);
	errno = saved;
}

int regc_domain_verbs_open(struct regc_library *lib, const char *device,
			   struct regc_domain **ret_dom)
{
	struct ibv_device **list, *chosen;
	int saved = errno, n = 0, r = rt_enter();
	struct verbs_nic *nic;

	if (r)
		return r;
	errno = 0;
	list = ibv_get_device_list(&n);
	if (!list) {
		r = errno == ENOMEM ? -ENOMEM : -ENODEV;
		errno = saved;
		return r;
	}
	chosen = choose(list, device);
	rt_lock_take(&rt.wipe->nic_lock);
	r = chosen ? nic_take(chosen, &nic) : -ENODEV;
	rt_lock_drop(&rt.wipe->nic_lock);
	ibv_free_device_list(list);
	errno = saved;
	if (r)
		return r;
	r = regc_domain_verbs(lib, nic->pd, ret_dom);
	if (r)
		verbs_nic_drop(nic);
	else
		(*ret_dom)->nic = nic;
	return r;
}

struct ibv_pd *regc_domain_pd(struct regc_domain *dom)
{
	return device_is_verbs(&dom->shared->ops) ? dom->shared->ctx : NULL;
}

#else

void verbs_nic_drop(struct verbs_nic *nic)
{
	(void)nic;
}

int regc_domain_verbs_open(struct regc_library *lib, const char *device,
			   struct regc_domain **ret_dom)
{
	(void)lib, (void)device, (void)ret_dom;
	return -ENOTSUP;
}

struct ibv_pd *regc_domain_pd(struct regc_domain *dom)
{
	(void)dom;
	return NULL;
}

#endif
