/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libregc-fabric.so: a memory monitor for libfabric's cache, so that it trusts
 * regc's tracking instead of patching libc itself.
 *
 * Loaded (LD_PRELOAD or dlopen) before the first domain is opened, it is imported
 * as libfabric's monitor of system memory (fi_ext.h).  What libfabric subscribes is
 * a lease of regc, in a domain whose registrations cost nothing; libfabric asks
 * whether it is valid at each hit, and gets regc's answer about the lease.  So
 * nothing is notified from inside a hook (L8), and a hit of libfabric's is as good
 * as one of regc's (L1).
 *
 * libfabric calls subscribe, valid and unsubscribe with the range of its entry;
 * leases are kept by range.  Entries of two domains may have the same range and
 * cannot be told apart here.  So once the memory of a range has changed, nothing in
 * it is valid until all that subscribed it before have let go of it.  A lease that
 * cannot be cached is never valid either: libfabric then registers anew (L3).
 *
 * libfabric finds out when it looks for the range, or when its own limits make it
 * look at old entries; until then memory that is gone stays registered.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include "libregc/regc.h"

#define N_CHAINS 4096u

struct watch {
	struct watch *next;
	const void *addr;
	size_t len;
	unsigned int n; /* subscriptions */
	bool over;	/* the memory changed under some of them */
	struct regc_lease lease;
};

static struct watch *chains[N_CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* chains; never in a hook */
static uint64_t n_subscribed, n_valid, n_invalid; /* lock */
static struct regc_library *lib;
static struct regc_domain *dom;

static struct watch **chain_of(const void *addr)
{
	return &chains[((uintptr_t)addr >> 12) * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

/* Lock. */
static struct watch **find(const void *addr, size_t len)
{
	struct watch **at = chain_of(addr);

	while (*at && ((*at)->addr != addr || (*at)->len != len))
		at = &(*at)->next;
	return at;
}

static int monitor_start(struct fid_mem_monitor *monitor)
{
	(void)monitor;
	return 0;
}

static void monitor_stop(struct fid_mem_monitor *monitor)
{
	(void)monitor;
}

static bool usable(const struct regc_lease *lease)
{
	return !(lease->flags & REGC_LEASE_UNCACHED) && regc_lease_ok(lease) == 1;
}

/* Lock: the first subscription of a range, or the first that can be cached. */
static struct watch *watch_new(const void *addr, size_t len)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->addr = addr;
	w->len = len;
	if (regc_get(dom, addr, len, REGC_ACCESS_LOCAL_READ, &w->lease)) {
		free(w);
		return NULL;
	}
	return w;
}

static int monitor_subscribe(struct fid_mem_monitor *monitor, const void *addr,
			     size_t len)
{
	struct watch **at;
	bool done;

	(void)monitor;
	pthread_mutex_lock(&lock);
	at = find(addr, len);
	if (!*at)
		*at = watch_new(addr, len);
	else if (!usable(&(*at)->lease))
		(*at)->over = true;
	done = *at != NULL;
	n_subscribed += done;
	if (done)
		(*at)->n++;
	pthread_mutex_unlock(&lock);
	return done ? 0 : -FI_ENOMEM;
}

static void monitor_unsubscribe(struct fid_mem_monitor *monitor, const void *addr,
				size_t len)
{
	struct watch **at, *w;

	(void)monitor;
	pthread_mutex_lock(&lock);
	at = find(addr, len);
	w = *at;
	if (w && --w->n == 0) {
		*at = w->next;
		regc_put(&w->lease);
		free(w);
	}
	pthread_mutex_unlock(&lock);
}

static bool monitor_valid(struct fid_mem_monitor *monitor, const void *addr,
			  size_t len)
{
	struct watch *w;
	bool valid;

	(void)monitor;
	pthread_mutex_lock(&lock);
	w = *find(addr, len);
	valid = w && !w->over && usable(&w->lease);
	n_valid += valid;
	n_invalid += !valid;
	pthread_mutex_unlock(&lock);
	return valid;
}

static int no_close(struct fid *fid)
{
	(void)fid;
	return 0;
}

static struct fi_ops fid_ops = { .size = sizeof(fid_ops), .close = no_close };
static struct fi_ops_mem_monitor monitor_ops = {
	.size = sizeof(monitor_ops),
	.start = monitor_start,
	.stop = monitor_stop,
	.subscribe = monitor_subscribe,
	.unsubscribe = monitor_unsubscribe,
	.valid = monitor_valid,
};
static struct fid_mem_monitor monitor = {
	.fid = { .fclass = FI_CLASS_MEM_MONITOR, .ops = &fid_ops },
	.export_ops = &monitor_ops,
};

static void __attribute__((constructor)) begin(void)
{
	const char *value = secure_getenv("REGC_FABRIC");
	struct regc_status st = { .size = sizeof(st) };

	if (value && strcmp(value, "off") == 0)
		return;
	if (regc_open("fabric", NULL, &lib))
		return;
	if (regc_status(lib, &st) || st.mode == REGC_MODE_OFF ||
	    regc_domain_null(lib, &dom)) {
		regc_close(lib);
		return;
	}
	if (fi_import(FI_VERSION(1, 13), "mr_cache", NULL, 0, 0, &monitor.fid,
		      &monitor)) {
		regc_domain_close(dom);
		regc_close(lib);
	}
}

static void __attribute__((destructor)) end(void)
{
	const char *value = secure_getenv("REGC_FABRIC_STATS");

	if (value && value[0] && strcmp(value, "0") != 0)
		fprintf(stderr, "regc: process %d fabric subscribed %" PRIu64
			" valid %" PRIu64 " invalid %" PRIu64 "\n",
			(int)getpid(), n_subscribed, n_valid, n_invalid);
}
