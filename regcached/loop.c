/* SPDX-License-Identifier: BSD-2-Clause */
/* One epoll and the sources in it; see loop.h. */
#include "regcached/loop.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

int loop_init(struct loop *loop)
{
	loop->n = 0;
	loop->at = 0;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_deinit(struct loop *loop)
{
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	loop->epoll_fd = -1;
}

int loop_add(struct loop *loop, struct loop_source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	assert(!s->in);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) < 0)
		return -errno;
	s->events = events;
	s->in = 1;
	return 0;
}

void loop_mod(struct loop *loop, struct loop_source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (!s->in || s->events == events)
		return;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev) < 0)
		assert(0 && "a source that was added cannot be changed");
	s->events = events;
}

void loop_del(struct loop *loop, struct loop_source *s)
{
	int i;

	if (!s->in)
		return;
	s->in = 0;
	/*
	 * The descriptor may be open elsewhere as well (a client's userfaultfd
	 * is), so closing it would not take it out.
	 */
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	for (i = loop->at; i < loop->n; i++)
		if (loop->batch[i].data.ptr == s)
			loop->batch[i].data.ptr = NULL;
}

void loop_wait(struct loop *loop, int timeout_ms)
{
	loop->at = 0;
	loop->n = epoll_wait(loop->epoll_fd, loop->batch, LOOP_BATCH, timeout_ms);
	if (loop->n < 0)
		loop->n = 0; /* EINTR; a later wait sees the same sources */
}

void loop_dispatch(struct loop *loop)
{
	while (loop->at < loop->n) {
		struct epoll_event *ev = &loop->batch[loop->at++];
		struct loop_source *s = ev->data.ptr;

		if (s)
			s->fn(s->arg, ev->events);
	}
	loop->n = 0;
}
