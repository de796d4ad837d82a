/* SPDX-License-Identifier: BSD-2-Clause */
/* The userfaultfd of one space; see uffd.h. */
#include "regcached/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "regcached/broker.h"
#include "regcached/client.h"
#include "regcached/log.h"
#include "regcached/space.h"
#include "regcached/transfers.h"
#include "shm/atomic.h"

#define BATCH 64
#define BATCHES_A_TURN 4
#define TODO_MAX (2 * BATCH + 1) /* a REMAP is two ranges */
#define VOIDS_A_TURN 1024
#define MAX_STRIKES 3
#define GUARD_US 50000

struct change {
	uint64_t start, end;
	uint32_t cause;
};

struct uffd {
	struct space *space;
	int fd; /* owned */
	struct loop_source source;
	struct work work; /* voiding that goes on in the next turn */
	unsigned int strikes;
	bool rescan; /* after the voiding */
	uint32_t n_todo, at_todo;
	struct change todo[TODO_MAX];
};

/* ---- reading ------------------------------------------------------------- */

static void on_alarm(int sig)
{
	(void)sig;
}

/*
 * Kernels before 6.10 know no RWF_NOWAIT here.  There a timer that goes off again
 * and again ends a read that waits, whatever the client did to the descriptor.
 */
static ssize_t read_guarded(int fd, void *buf, size_t size)
{
	const struct itimerval on = { { 0, GUARD_US }, { 0, GUARD_US } };
	const struct itimerval off = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = on_alarm }; /* no SA_RESTART */
	ssize_t n;
	int saved;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &on, NULL);
	n = read(fd, buf, size);
	saved = errno;
	setitimer(ITIMER_REAL, &off, NULL);
	errno = saved;
	return n;
}

/* Number of events, 0: none, -EINTR: it would have waited, -errno. */
static int uffd_read(int fd, struct uffd_msg *ret, unsigned int max)
{
	struct iovec iov = { ret, max * sizeof(*ret) };
	ssize_t n;

	do
		n = preadv2(fd, &iov, 1, -1, RWF_NOWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS ||
		      errno == ESPIPE))
		n = read_guarded(fd, ret, iov.iov_len);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	return n % (ssize_t)sizeof(*ret) ? -EIO : (int)(n / (ssize_t)sizeof(*ret));
}

/* ---- acting -------------------------------------------------------------- */

static void todo_add(struct uffd *u, uint64_t start, uint64_t end, uint32_t cause)
{
	struct change *change = &u->todo[u->n_todo++];

	change->start = start;
	change->end = end < start ? UINT64_MAX : end;
	change->cause = cause;
	rtab_writer_log_change(&u->space->writer, start, change->end);
	if (cause != RTAB_CAUSE_ALL_VOID)
		transfers_on_change(u->space, u->fd, start, change->end);
}

static void on_fault(struct uffd *u, const struct uffd_msg *msg)
{
	u->space->broker->stats.events_fault++;
	if (!transfers_on_fault(u->space, msg))
		client_drop(u->space->client, -EPROTO,
			    "its userfaultfd has faults that nobody serves");
}

static void on_event(struct uffd *u, const struct uffd_msg *msg)
{
	struct broker_stats *stats = &u->space->broker->stats;
	int fork_fd;

	switch (msg->event) {
	case UFFD_EVENT_UNMAP:
		stats->events_unmap++;
		todo_add(u, msg->arg.remove.start, msg->arg.remove.end,
			 RTAB_CAUSE_UFFD_UNMAP);
		break;
	case UFFD_EVENT_REMOVE:
		stats->events_remove++;
		if (transfers_own_removal(u->space, msg->arg.remove.start,
					  msg->arg.remove.end))
			break;
		rtab_writer_log_remove(&u->space->writer, msg->arg.remove.start,
				       msg->arg.remove.end);
		todo_add(u, msg->arg.remove.start, msg->arg.remove.end,
			 RTAB_CAUSE_UFFD_REMOVE);
		break;
	case UFFD_EVENT_REMAP:
		stats->events_remap++;
		todo_add(u, msg->arg.remap.from,
			 msg->arg.remap.from + msg->arg.remap.len,
			 RTAB_CAUSE_UFFD_REMAP);
		todo_add(u, msg->arg.remap.to,
			 msg->arg.remap.to + msg->arg.remap.len,
			 RTAB_CAUSE_UFFD_REMAP);
		break;
	case UFFD_EVENT_PAGEFAULT:
		on_fault(u, msg);
		break;
	case UFFD_EVENT_FORK:
		/* Not asked for, but a client can; it comes with a descriptor. */
		fork_fd = (int)msg->arg.fork.ufd;
		aside_close(u->space->broker->aside, u->space->uid,
			    ASIDE_UNASKED, &fork_fd, 1);
		/* fall through */
	default:
		stats->events_other++;
		break;
	}
}

/* The log has them all: now the records, which may be of what was changed. */
static void drain_after_log(struct uffd *u)
{
	if (space_drain(u->space) < 0)
		client_drop(u->space->client, -EPROTO,
			    "request ring makes no sense");
}

/* Voids what is to do, a bounded part of it; true: all done. */
static bool void_some(struct uffd *u)
{
	uint32_t budget = VOIDS_A_TURN;
	bool done = true;

	while (done && u->at_todo < u->n_todo) {
		struct change *change = &u->todo[u->at_todo];

		done = space_void_range(u->space, change->start, change->end,
					change->cause, &budget);
		u->at_todo += done;
	}
	client_flush_voided(u->space->broker);
	if (!done)
		return false;
	u->n_todo = 0;
	u->at_todo = 0;
	return true;
}

static void begin_changing(struct uffd *u)
{
	/* C1: full fence; before the read.  The hit's load of changing pairs */
	rtab_exchange(&u->space->writer.view.table->changing, 1);
}

static void end_changing(struct uffd *u)
{
	/* C1 release: whoever sees 0 sees the generations too */
	rtab_store_release(&u->space->writer.view.table->changing, 0);
	if (u->rescan && !u->space->client->dead)
		client_tell_rescan(u->space->client);
	u->rescan = false;
}

static bool uffd_work(void *arg)
{
	struct uffd *u = arg;

	if (!void_some(u))
		return true;
	end_changing(u);
	loop_mod(&u->space->broker->loop, &u->source, EPOLLIN);
	return false;
}

/* What is left to void goes on in the next turns; changing stays set. */
static void continue_later(struct uffd *u)
{
	struct broker *b = u->space->broker;

	loop_mod(&b->loop, &u->source, 0);
	broker_add_work(b, &u->work);
}

void uffd_void_all(struct uffd *u)
{
	u->space->broker->stats.events_lost++;
	begin_changing(u);
	/* Later ranges are part of this one. */
	u->n_todo = 0;
	u->at_todo = 0;
	todo_add(u, 0, UINT64_MAX, RTAB_CAUSE_ALL_VOID);
	drain_after_log(u);
	space_void_blank(u->space);
	u->rescan = true;
	if (void_some(u))
		end_changing(u);
	else
		continue_later(u);
}

/* One batch; true: there may be more. */
static bool uffd_batch(struct uffd *u)
{
	struct rtab_table *table = u->space->writer.view.table;
	struct uffd_msg msgs[BATCH];
	int n, i;

	n = uffd_read(u->fd, msgs, BATCH);
	if (n == -EINTR && ++u->strikes < MAX_STRIKES)
		return false;
	if (n < 0) {
		uffd_void_all(u);
		client_drop(u->space->client, n, "its userfaultfd is broken");
		return false;
	}
	if (n == 0)
		return false;
	rtab_store_release(&table->events_read, table->events_read + 1);
	for (i = 0; i < n; i++)
		on_event(u, &msgs[i]);
	drain_after_log(u);
	return void_some(u) && n == BATCH;
}

static void uffd_event(void *arg, uint32_t events)
{
	struct uffd *u = arg;
	int i;

	if (u->space->client->dead)
		return;
	if (events & (EPOLLERR | EPOLLHUP)) {
		/* Also what the kernel says of one that was made to block. */
		uffd_void_all(u);
		client_drop(u->space->client, -EIO, "its userfaultfd is broken");
		return;
	}
	begin_changing(u);
	for (i = 0; i < BATCHES_A_TURN; i++)
		if (!uffd_batch(u) || broker_slice_is_over(u->space->broker))
			break;
	if (u->n_todo)
		continue_later(u);
	else
		end_changing(u);
}

/* ---- making and freeing -------------------------------------------------- */

static bool is_uffd(int fd)
{
	static const char name[] = "anon_inode:[userfaultfd]";
	char path[64], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link));
	return n == sizeof(name) - 1 && !memcmp(link, name, sizeof(name) - 1);
}

/* The kernel reports an error for one that blocks or has no UFFDIO_API. */
static bool is_usable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return false;
	return poll(&pfd, 1, 0) >= 0 && !(pfd.revents & (POLLERR | POLLNVAL));
}

int uffd_new(struct space *s, int fd, struct uffd **ret)
{
	struct uffd *u;
	int r;

	if (!is_uffd(fd) || !is_usable(fd))
		return -EPROTO;
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->space = s;
	u->fd = fd;
	u->source.fd = fd;
	u->source.fn = uffd_event;
	u->source.arg = u;
	u->work.fn = uffd_work;
	u->work.arg = u;
	r = loop_add(&s->broker->loop, &u->source, EPOLLIN);
	if (r) {
		free(u);
		return r;
	}
	*ret = u;
	return 0;
}

struct uffd *uffd_free(struct uffd *u)
{
	struct broker *b;

	if (!u)
		return NULL;
	b = u->space->broker;
	loop_del(&b->loop, &u->source);
	broker_del_work(b, &u->work);
	aside_close(b->aside, u->space->uid, ASIDE_OURS, &u->fd, 1);
	free(u);
	return NULL;
}
