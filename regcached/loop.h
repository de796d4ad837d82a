/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One epoll and the sources in it.
 *
 * A source is embedded in its owner.  loop_del() also takes it out of the batch
 * being dispatched, so an owner may be freed from inside any handler.  EINTR
 * ends a wait, never the loop.
 */
#ifndef REGCACHED_LOOP_H
#define REGCACHED_LOOP_H

#include <stdint.h>
#include <sys/epoll.h>

#define LOOP_BATCH 64

struct loop_source {
	int fd; /* borrowed */
	uint32_t events;
	void (*fn)(void *arg, uint32_t events);
	void *arg;
	int in; /* private: 1 while added */
};

struct loop {
	int epoll_fd;
	struct epoll_event batch[LOOP_BATCH];
	int n, at;
};

int loop_init(struct loop *loop);
void loop_deinit(struct loop *loop);

/* -errno of epoll_ctl(2); s->fd, fn and arg are set by the caller. */
int loop_add(struct loop *loop, struct loop_source *s, uint32_t events);
/* Changes what is waited for; nothing if that is the same. */
void loop_mod(struct loop *loop, struct loop_source *s, uint32_t events);
void loop_del(struct loop *loop, struct loop_source *s);

/* Waits up to timeout_ms (-1: for ever) and keeps what is ready. */
void loop_wait(struct loop *loop, int timeout_ms);
/* Calls the handlers of what is ready. */
void loop_dispatch(struct loop *loop);

#endif
