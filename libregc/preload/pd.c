/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains (PDs): for each that MRs were asked in, a domain of regc.
 *
 * Each PD is a library of regc by itself, "verbs:" and the device's name.  So its
 * counters are those of one PD, and regc knows exactly when no lease of it is
 * left: closing it does not depend on leases of the same memory in another PD.
 *
 * A row is found without a lock: its pd is stored last.
 */
#include "libregc/preload/preload.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shm/atomic.h"

#define N_PDS 64

struct pd {
	struct ibv_pd *pd; /* NULL: free */
	struct ibv_context *context;
	struct regc_library *lib; /* NULL: regc had no room, or no domain */
	struct regc_domain *dom;
	char name[32];
};

static struct pd pds[N_PDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* rows: writing */
static bool off, show_stats;

void preload_lock(void)
{
	pthread_mutex_lock(&lock);
}

void preload_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

bool preload_is_off(void)
{
	return off;
}

static struct pd *find(const struct ibv_pd *pd)
{
	unsigned int i;

	for (i = 0; i < N_PDS; i++)
		if (rtab_load_acquire(&pds[i].pd) == pd)
			return &pds[i];
	return NULL;
}

/* Lock: a domain, or none, which is remembered as well. */
static void make_domain(struct pd *p, struct ibv_pd *pd)
{
	p->context = pd->context;
	p->lib = NULL;
	p->dom = NULL;
	snprintf(p->name, sizeof(p->name), "verbs:%.25s",
		 ibv_get_device_name(pd->context->device));
	if (regc_open(p->name, NULL, &p->lib))
		p->lib = NULL;
	else if (regc_domain_verbs(p->lib, pd, &p->dom)) {
		regc_close(p->lib);
		p->lib = NULL;
		p->dom = NULL;
	}
	rtab_store_release(&p->pd, pd);
}

struct regc_domain *pd_domain(struct ibv_pd *pd)
{
	struct pd *p = find(pd);

	if (!p) {
		preload_lock();
		p = find(pd);
		if (!p) {
			p = find(NULL);
			if (p)
				make_domain(p, pd);
		}
		preload_unlock();
	}
	return p ? p->dom : NULL;
}

/* REGC_VERBS_STATS: what a PD came to. */
static void say_stats(const struct pd *p)
{
	struct regc_stats s = { .size = sizeof(s) };

	if (!show_stats || !p->lib || regc_stats(p->lib, &s))
		return;
	fprintf(stderr, "regc: process %d %s hits %" PRIu64 " misses %" PRIu64
		" uncached %" PRIu64 " failed %" PRIu64 " puts %" PRIu64 "\n",
		(int)getpid(), p->name, s.hits, s.misses, s.uncached, s.failed,
		s.puts);
}

/* Lock.  -EBUSY: another library has leases of the same memory. */
static int end_domain(struct pd *p)
{
	int r = regc_domain_close(p->dom);

	if (r)
		return r;
	say_stats(p);
	regc_close(p->lib);
	rtab_store_release(&p->pd, NULL);
	return 0;
}

int pd_close(struct ibv_pd *pd)
{
	struct pd *p;
	int r = 0;

	preload_lock();
	p = find(pd);
	if (p && mr_next(NULL, pd))
		r = EBUSY;
	else if (p && end_domain(p))
		r = EBUSY;
	preload_unlock();
	return r;
}

/* A program may leave MRs behind when it closes a device; they end here. */
void pd_close_all_of(const struct ibv_context *context)
{
	struct mr *m;
	unsigned int i;

	preload_lock();
	for (i = 0; i < N_PDS; i++) {
		if (!pds[i].pd || pds[i].context != context)
			continue;
		for (m = NULL; (m = mr_next(m, pds[i].pd));) {
			regc_put(&m->lease);
			mr_give_back(m);
		}
		if (end_domain(&pds[i]))
			rtab_store_release(&pds[i].pd, NULL);
	}
	preload_unlock();
}

void pd_lose_all_of(const struct ibv_context *context)
{
	unsigned int i;

	preload_lock();
	for (i = 0; i < N_PDS; i++)
		if (pds[i].pd && pds[i].context == context && pds[i].dom)
			regc_domain_lost(pds[i].dom);
	preload_unlock();
}

void pd_make_room(const struct ibv_pd *pd)
{
	struct pd *p = find(pd);

	if (p && p->lib)
		regc_invalidate(p->lib, NULL, SIZE_MAX);
}

/* ---- the process -------------------------------------------------------- */

/* Handles of the parent's stay behind: regc knows them for what they are. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(pds, 0, sizeof(pds));
}

void pd_begin(void)
{
	const char *value = secure_getenv("REGC_VERBS");

	off = value && strcmp(value, "off") == 0;
	value = secure_getenv("REGC_VERBS_STATS");
	show_stats = value && value[0] && strcmp(value, "0") != 0;
	pthread_atfork(NULL, NULL, in_child);
}

static void __attribute__((destructor)) end(void)
{
	unsigned int i;

	for (i = 0; i < N_PDS; i++)
		if (rtab_load_acquire(&pds[i].pd))
			say_stats(&pds[i]);
}
