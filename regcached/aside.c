/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that take the lock of a client's address space; see aside.h.
 *
 * A job is on the list waiting or running; its thread frees it and then takes
 * the next one that waits.  The threads are not joined: the end of the process
 * ends them.
 */
#include "regcached/aside.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "shm/base.h"
#include "shm/layout.h"

#define MAX_THREADS 32
#define MAX_UNPROTECT 4 /* of one owner */
#define STACK_BYTES (64 * 1024)

struct aside_job {
	struct aside *aside;
	uint32_t owner;
	int fds[ASIDE_MAX_FDS]; /* owned, or -1 */
	bool unprotect;		/* through fds[0], before the close */
	bool drain;		/* fds[0], before the close */
	uint64_t addr;
	struct aside_job *prev, *next;
};

struct aside {
	pthread_mutex_t lock; /* of all below; a leaf, held for moments */
	struct aside_job *waiting; /* utlist */
	struct aside_job *running; /* utlist */
	unsigned int n_threads;
	bool orphan; /* the broker ended: the last thread frees */
};

int aside_new(struct aside **ret)
{
	struct aside *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	pthread_mutex_init(&a->lock, NULL);
	*ret = a;
	return 0;
}

static void destroy(struct aside *a)
{
	pthread_mutex_destroy(&a->lock);
	free(a);
}

struct aside *aside_free(struct aside *a)
{
	bool last;

	if (!a)
		return NULL;
	pthread_mutex_lock(&a->lock);
	last = a->n_threads == 0;
	a->orphan = true;
	pthread_mutex_unlock(&a->lock);
	if (last)
		destroy(a);
	return NULL;
}

static void close_all(const int *fds, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void run(struct aside_job *job)
{
	struct uffdio_writeprotect wp = {
		.range = { job->addr, RTAB_PAGE },
		.mode = 0, /* off, and wakes who waits */
	};
	struct uffdio_range wake = { job->addr, RTAB_PAGE };
	char byte;

	if (job->unprotect && ioctl(job->fds[0], UFFDIO_WRITEPROTECT, &wp) < 0)
		ioctl(job->fds[0], UFFDIO_WAKE, &wake);
	/* Nothing can be added (shutdown), so this ends. */
	while (job->drain && recv(job->fds[0], &byte, 1, MSG_DONTWAIT) > 0)
		;
	close_all(job->fds, ASIDE_MAX_FDS);
}

static void *thread_main(void *arg)
{
	struct aside_job *job = arg;
	struct aside *a = job->aside;
	bool last = false;

	while (job) {
		run(job);
		pthread_mutex_lock(&a->lock);
		DL_DELETE(a->running, job);
		free(job);
		job = a->waiting;
		if (job) {
			DL_DELETE(a->waiting, job);
			DL_APPEND(a->running, job);
		} else {
			last = --a->n_threads == 0 && a->orphan;
		}
		pthread_mutex_unlock(&a->lock);
	}
	if (last)
		destroy(a);
	return NULL;
}

static int start_thread(struct aside_job *job)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr,
				  rtab_max_u64((size_t)PTHREAD_STACK_MIN,
					       STACK_BYTES));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = -pthread_create(&thread, &attr, thread_main, job);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return r;
}

/* Runs job now if there is a thread to be had, else later. */
static void submit(struct aside *a, struct aside_job *job)
{
	bool now;

	pthread_mutex_lock(&a->lock);
	now = a->n_threads < MAX_THREADS;
	if (now) {
		a->n_threads++;
		DL_APPEND(a->running, job);
	} else {
		DL_APPEND(a->waiting, job);
	}
	pthread_mutex_unlock(&a->lock);
	if (!now || !start_thread(job))
		return;
	/* No thread: the next job's thread takes it. */
	pthread_mutex_lock(&a->lock);
	a->n_threads--;
	DL_DELETE(a->running, job);
	DL_APPEND(a->waiting, job);
	pthread_mutex_unlock(&a->lock);
}

static unsigned int count(struct aside_job *list, uint32_t owner)
{
	struct aside_job *job;
	unsigned int n = 0;

	DL_FOREACH(list, job)
		n += job->owner == owner;
	return n;
}

static struct aside_job *job_new(struct aside *a, uint32_t owner)
{
	struct aside_job *job = calloc(1, sizeof(*job));
	int i;

	if (!job)
		return NULL;
	job->aside = a;
	job->owner = owner;
	for (i = 0; i < ASIDE_MAX_FDS; i++)
		job->fds[i] = -1;
	return job;
}

void aside_close(struct aside *a, uint32_t owner, const int *fds, int n)
{
	struct aside_job *job;
	bool any = false;
	int i;

	assert(n <= ASIDE_MAX_FDS);
	for (i = 0; i < n; i++)
		any = any || fds[i] >= 0;
	if (!any)
		return;
	job = job_new(a, owner);
	if (!job) {
		close_all(fds, n); /* may wait; the alternative is to leak */
		return;
	}
	memcpy(job->fds, fds, (size_t)n * sizeof(*fds));
	submit(a, job);
}

void aside_close_socket(struct aside *a, uint32_t owner, int fd)
{
	struct aside_job *job = job_new(a, owner);

	shutdown(fd, SHUT_RDWR);
	if (!job) {
		close(fd);
		return;
	}
	job->fds[0] = fd;
	job->drain = true;
	submit(a, job);
}

int aside_unprotect(struct aside *a, uint32_t owner, int fd, uint64_t addr)
{
	struct aside_job *job;
	unsigned int n;
	int r;

	pthread_mutex_lock(&a->lock);
	n = count(a->running, owner) + count(a->waiting, owner);
	pthread_mutex_unlock(&a->lock);
	if (n >= MAX_UNPROTECT)
		return -EBUSY;
	job = job_new(a, owner);
	if (!job)
		return -ENOMEM;
	job->unprotect = true;
	job->addr = addr;
	job->fds[0] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (job->fds[0] < 0) {
		r = -errno;
		free(job);
		return r;
	}
	submit(a, job);
	return 0;
}
