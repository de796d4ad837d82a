/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that may wait for a client, aside from the loop; see aside.h.
 *
 * A job belongs to the lane of its user (struct lane), which exists while it has
 * a job.  A job runs or waits; its thread frees it and takes the next that may
 * run, of any lane.  Invariant: a job waits only while its lane, or the whole,
 * has as many threads as it may (or none could be made).  The threads are not
 * joined: the end of the process ends them.
 */
#define HASH_NONFATAL_OOM 1
#include "regcached/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <utlist.h>

#include "shm/base.h"


#define MAX_THREADS 256
#define MAX_THREADS_A_LANE 4
#define STACK_BYTES (64 * 1024)

struct lane_key {
	uint32_t uid;
	uint32_t lane; /* enum aside_lane */
};

struct lane {
	struct lane_key key;
	uint32_t n_running;
	uint32_t n_fds; /* of all its jobs */
	struct aside_job *waiting; /* utlist */
	UT_hash_handle hh;
};

struct aside_job {
	struct aside *aside;
	struct lane *lane;
	bool drain; /* fds[0], before the close */
	struct aside_job *prev, *next;
	int n_fds;
	int fds[]; /* owned */
};

struct aside {
	pthread_mutex_t lock; /* of all below; a leaf, held for moments */
	struct lane *lanes;   /* uthash by key */
	struct aside_job *running; /* utlist */
	unsigned int n_threads;
	uint32_t n_fds;
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

/* ---- in the thread ------------------------------------------------------- */

/*
 * As long as it takes.  A socket is not told to stop lingering: that takes its
 * lock, which its sender can hold and no signal ends the wait for.
 */
static void close_all(const int *fds, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void run(struct aside_job *job)
{
	char byte;

	/* Nothing can be added (shutdown), so this ends. */
	while (job->drain && recv(job->fds[0], &byte, 1, MSG_DONTWAIT) > 0)
		;
	close_all(job->fds, job->n_fds);
}

/* Lock held.  From waiting, or new, to running. */
static void begin(struct aside *a, struct aside_job *job)
{
	job->lane->n_running++;
	DL_APPEND(a->running, job);
}

/* Lock held.  The job is over. */
static void end(struct aside *a, struct aside_job *job)
{
	struct lane *lane = job->lane;

	DL_DELETE(a->running, job);
	lane->n_running--;
	lane->n_fds -= (uint32_t)job->n_fds;
	a->n_fds -= (uint32_t)job->n_fds;
	free(job);
	if (lane->n_running || lane->waiting)
		return;
	HASH_DEL(a->lanes, lane);
	free(lane);
}

/* Lock held.  The next that may run, now running, or NULL. */
static struct aside_job *next(struct aside *a)
{
	struct aside_job *job;
	struct lane *lane;

	for (lane = a->lanes; lane; lane = lane->hh.next) {
		job = lane->waiting;
		if (!job || lane->n_running >= MAX_THREADS_A_LANE)
			continue;
		DL_DELETE(lane->waiting, job);
		begin(a, job);
		return job;
	}
	return NULL;
}

static void *thread_main(void *arg)
{
	struct aside_job *job = arg;
	struct aside *a = job->aside;
	bool last = false;

	while (job) {
		run(job);
		pthread_mutex_lock(&a->lock);
		end(a, job);
		job = next(a);
		if (!job)
			last = --a->n_threads == 0 && a->orphan;
		pthread_mutex_unlock(&a->lock);
	}
	if (last)
		destroy(a);
	return NULL;
}

/* ---- in the loop --------------------------------------------------------- */

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

/* Lock held. */
static struct lane *find_lane(struct aside *a, uint32_t uid, enum aside_lane lane)
{
	struct lane_key key = { uid, lane };
	struct lane *l;

	HASH_FIND(hh, a->lanes, &key, sizeof(key), l);
	return l;
}

/* Lock held.  NULL: no memory. */
static struct lane *get_lane(struct aside *a, uint32_t uid, enum aside_lane lane)
{
	struct lane *l = find_lane(a, uid, lane);

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->key.uid = uid;
	l->key.lane = lane;
	HASH_ADD(hh, a->lanes, key, sizeof(l->key), l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	return l;
}

/* Runs job now if there is a thread to be had, else later.  -ENOMEM. */
static int submit(struct aside *a, struct aside_job *job, uint32_t uid,
		  enum aside_lane lane)
{
	bool now;

	pthread_mutex_lock(&a->lock);
	job->lane = get_lane(a, uid, lane);
	if (!job->lane) {
		pthread_mutex_unlock(&a->lock);
		return -ENOMEM;
	}
	job->lane->n_fds += (uint32_t)job->n_fds;
	a->n_fds += (uint32_t)job->n_fds;
	now = a->n_threads < MAX_THREADS &&
	      job->lane->n_running < MAX_THREADS_A_LANE;
	if (now) {
		a->n_threads++;
		begin(a, job);
	} else {
		DL_APPEND(job->lane->waiting, job);
	}
	pthread_mutex_unlock(&a->lock);
	if (!now || !start_thread(job))
		return 0;
	/* No thread: the next job's thread takes it. */
	pthread_mutex_lock(&a->lock);
	a->n_threads--;
	DL_DELETE(a->running, job);
	job->lane->n_running--;
	DL_APPEND(job->lane->waiting, job);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

static struct aside_job *job_new(struct aside *a, const int *fds, int n)
{
	struct aside_job *job = calloc(1, sizeof(*job) + (size_t)n * sizeof(*fds));
	int i;

	if (!job)
		return NULL;
	job->aside = a;
	for (i = 0; i < n; i++)
		if (fds[i] >= 0)
			job->fds[job->n_fds++] = fds[i];
	return job;
}

/* Submits job, which may be NULL; without memory it is done here. */
static void submit_close(struct aside *a, struct aside_job *job, uint32_t uid,
			 enum aside_lane lane, const int *fds, int n)
{
	if (job && !submit(a, job, uid, lane))
		return;
	free(job);
	close_all(fds, n); /* may wait; the alternative is to leak */
}

void aside_close(struct aside *a, uint32_t uid, enum aside_lane lane,
		 const int *fds, int n)
{
	bool any = false;
	int i;

	for (i = 0; i < n; i++)
		any = any || fds[i] >= 0;
	if (any)
		submit_close(a, job_new(a, fds, n), uid, lane, fds, n);
}

void aside_close_socket(struct aside *a, uint32_t uid, int fd)
{
	struct aside_job *job = job_new(a, &fd, 1);

	shutdown(fd, SHUT_RDWR);
	if (job)
		job->drain = true;
	submit_close(a, job, uid, ASIDE_SOCKET, &fd, 1);
}

uint32_t aside_n_fds(struct aside *a, uint32_t uid, enum aside_lane lane)
{
	struct lane *l;
	uint32_t n;

	pthread_mutex_lock(&a->lock);
	l = find_lane(a, uid, lane);
	n = l ? l->n_fds : 0;
	pthread_mutex_unlock(&a->lock);
	return n;
}

uint32_t aside_n_fds_all(struct aside *a)
{
	uint32_t n;

	pthread_mutex_lock(&a->lock);
	n = a->n_fds;
	pthread_mutex_unlock(&a->lock);
	return n;
}
