/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * REGC_VERBS_SHARED_PD=1: one context and one PD of a device for every library of
 * the process, so that libraries that know nothing of regc have their MRs in the
 * same domain and share them.
 *
 * Both are counted by their users.  The context ends with its last close, the PD
 * with its last dealloc, or with the context.  A device is known by its name.
 */
#include "libregc/preload/preload.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_DEVICES 32

struct shared {
	struct ibv_context *context; /* NULL: free */
	struct ibv_pd *pd;	     /* NULL: nobody asked for one */
	unsigned int opens, allocs;
	char name[IBV_SYSFS_NAME_MAX];
};

static struct shared shared[N_DEVICES]; /* the lock of pd.c */
static bool on;

bool shared_is_on(void)
{
	return on;
}

static struct shared *of_context(const struct ibv_context *context)
{
	unsigned int i;

	for (i = 0; i < N_DEVICES; i++)
		if (shared[i].context == context)
			return &shared[i];
	return NULL;
}

static struct shared *of_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < N_DEVICES; i++)
		if (shared[i].context && strcmp(shared[i].name, name) == 0)
			return &shared[i];
	return NULL;
}

static struct shared *of_pd(const struct ibv_pd *pd)
{
	unsigned int i;

	for (i = 0; pd && i < N_DEVICES; i++)
		if (shared[i].pd == pd)
			return &shared[i];
	return NULL;
}

/* Lock; s is free, or NULL: there are more devices than rows. */
static struct ibv_context *open_first(struct shared *s, struct ibv_device *device)
{
	struct ibv_context *context = real->open_device(device);

	if (context && s) {
		s->context = context;
		s->pd = NULL;
		s->opens = 1;
		s->allocs = 0;
		snprintf(s->name, sizeof(s->name), "%s",
			 ibv_get_device_name(device));
	}
	return context;
}

struct ibv_context *shared_open(struct ibv_device *device)
{
	struct ibv_context *context;
	struct shared *s;

	preload_lock();
	s = of_name(ibv_get_device_name(device));
	if (s) {
		s->opens++;
		context = s->context;
	} else {
		context = open_first(of_context(NULL), device);
	}
	preload_unlock();
	return context;
}

bool shared_keep_context(const struct ibv_context *context)
{
	struct shared *s;
	bool keep = false;

	preload_lock();
	s = context ? of_context(context) : NULL;
	if (s) {
		keep = --s->opens > 0;
		if (!keep)
			memset(s, 0, sizeof(*s));
	}
	preload_unlock();
	return keep;
}

struct ibv_pd *shared_alloc_pd(struct ibv_context *context)
{
	struct shared *s;
	struct ibv_pd *pd;

	preload_lock();
	s = of_context(context);
	if (s && s->pd) {
		s->allocs++;
		pd = s->pd;
	} else {
		pd = real->alloc_pd(context);
		if (s && pd) {
			s->pd = pd;
			s->allocs = 1;
		}
	}
	preload_unlock();
	return pd;
}

bool shared_keep_pd(const struct ibv_pd *pd)
{
	struct shared *s;
	bool keep = false;

	preload_lock();
	s = of_pd(pd);
	if (s) {
		keep = --s->allocs > 0;
		if (!keep)
			s->pd = NULL;
	}
	preload_unlock();
	return keep;
}

void shared_restore_pd(struct ibv_pd *pd)
{
	struct shared *s;

	preload_lock();
	s = of_context(pd->context);
	if (s && !s->pd) {
		s->pd = pd;
		s->allocs = 1;
	}
	preload_unlock();
}

/* A context of the parent's does not work in a child. */
static void in_child(void)
{
	memset(shared, 0, sizeof(shared));
}

void shared_begin(void)
{
	const char *value = secure_getenv("REGC_VERBS_SHARED_PD");

	on = value && strcmp(value, "1") == 0 && !preload_is_off();
	pthread_atfork(NULL, NULL, in_child);
}
