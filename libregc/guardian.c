/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The guardian: hears the broker, the hooks and the kernel.
 *
 * It sleeps until the broker says something, a hook voided something, or an event
 * of userfaultfd stays unread.  It never allocates (L8: messages are unpacked
 * into an arena), never calls a device, which may allocate (worker.h), and never
 * touches user memory, which may be protected or may be waiting for it.
 *
 * In the broker's place: both hold the userfaultfd.  While the broker lives, an
 * event is its business; if it is still unread after STALL_MS (the broker is
 * stopped) or the broker is dead, the guardian reads it, so that nobody hangs
 * (L4).  Before it reads it marks the area as changing (label C2), as the broker
 * marks the table (C1).
 */
#include "libregc/link.h"
#include "libregc/runtime.h"
#include "libregc/transfer.h"
#include "libregc/worker.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STALL_MS 20
#define ATTENTIVE_MS 5 /* looks again so soon after there was something to do */

enum { POLL_WAKE, POLL_SOCK, POLL_UFFD, N_POLL };

/*
 * While hooks void one thing after the other the guardian stays attentive: it
 * looks every ATTENTIVE_MS by itself, wipe->woken stays set, and the hooks need
 * not wake it.  When a look found nothing it lets itself be woken again, and
 * looks once more (the store of woken, then the load of the count of changes:
 * label G1, pairs with the log entry, then the exchange of woken, in a hook).
 */
static bool look(void)
{
	uint64_t before = rtab_load_relaxed(&rt.change_cursor);

	rt_cache_lock();
	changes_consume();
	rt_cache_unlock();
	if (rtab_load_relaxed(&rt.void_list.n))
		worker_wake();
	return rtab_load_relaxed(&rt.change_cursor) != before;
}

static bool on_wake(void)
{
	uint64_t count;

	if (read(rt.wake_fd, &count, sizeof(count)) < 0) {
		/* EAGAIN: it is time to look. */
	}
	if (look())
		return true;
	rtab_exchange(&rt.wipe->woken, 0); /* G1 */
	return look();
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLIN);
}

static void on_socket(short revents)
{
	int r = 0;

	while (!r && rtab_load_relaxed(&rt.sock) >= 0)
		r = link_receive();
	if (r != -EAGAIN || (revents & (POLLHUP | POLLERR))) {
		link_lost(true);
		link_close_socket();
		worker_wake();
	}
}

/* An event that nobody has read: is it the broker's turn still? */
static void on_uffd(void)
{
	struct pollfd p = { .fd = rtab_load_relaxed(&rt.sock),
			    .events = POLLIN };
	uint64_t seen = rtab_load_acquire(&rt.table.table->events_read);

	if (link_broker_alive()) {
		poll(&p, 1, STALL_MS);
		if (link_broker_alive() &&
		    rtab_load_acquire(&rt.table.table->events_read) != seen)
			return; /* it reads */
	}
	if (readable(rt.uffd))
		monitor_uffd_drain();
	worker_wake();
}

/*
 * The program closed descriptors that are not its own (a daemon that closes all).
 * Nothing is tracked any more: everything is void and nothing is cached.
 */
static void on_closed(struct pollfd *p)
{
	int i;

	for (i = 0; i < N_POLL; i++) {
		if (!(p[i].revents & POLLNVAL))
			continue;
		p[i].revents = 0;
		link_lost(true);
		if (i == POLL_SOCK)
			rtab_store_release(&rt.sock, -1);
		else if (i == POLL_UFFD)
			rtab_store_release(&rt.uffd, -1);
		else
			rtab_store_release(&rt.wake_fd,
					   eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	}
}

static void *guardian_main(void *arg)
{
	struct pollfd p[N_POLL];
	bool attentive = false;
	int n, timeout, limit;

	(void)arg;
	prctl(PR_SET_NAME, "regc-guardian");
	faults_start();
	for (;;) {
		memset(p, 0, sizeof(p));
		p[POLL_WAKE] = (struct pollfd){ rt.wake_fd, POLLIN, 0 };
		p[POLL_SOCK] = (struct pollfd){ rtab_load_acquire(&rt.sock),
						POLLIN, 0 };
		p[POLL_UFFD] = (struct pollfd){ rt.uffd, POLLIN, 0 };
		timeout = attentive ? ATTENTIVE_MS : -1;
		limit = faults_timeout();
		if (limit >= 0 && (timeout < 0 || limit < timeout))
			timeout = limit;
		n = poll(p, N_POLL, timeout);
		if (n < 0 && errno != EINTR)
			continue;
		on_closed(p);
		if (p[POLL_SOCK].revents)
			on_socket(p[POLL_SOCK].revents);
		if (p[POLL_UFFD].revents & POLLIN) {
			on_uffd();
			monitor_hooks_check();
		}
		if (p[POLL_WAKE].revents || n == 0)
			attentive = on_wake();
		faults_look();
	}
	return NULL;
}

int guardian_start(void)
{
	int r;

	if (rt.guardian_runs) {
		changes_wake_guardian(); /* look at the new socket */
		return 0;
	}
	rt.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rt.wake_fd < 0)
		return -errno;
	r = rt_start_thread(guardian_main);
	if (!r)
		rt.guardian_runs = true;
	return r;
}
