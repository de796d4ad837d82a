/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that may wait for a client, aside from the loop.
 *
 * A client can hold the lock of its address space as long as it likes.  One thing
 * the broker does takes it: the last close of a client's userfaultfd (the kernel
 * then walks the client's mappings).  And any descriptor that came from a client may be one whose
 * close waits for somebody (a file of a user's own file system, a socket that
 * lingers), as may the socket of a connection with such descriptors unread; and
 * that of an area gives back all its memory.  So the loop closes nothing that
 * came from a client: each of these runs in a thread that ends with its work;
 * without work there is no thread.
 *
 * A job that never ends costs a thread of 64 KiB, so each user has lanes of a few
 * threads each (L5), by what is closed (enum aside_lane).  Whoever blocks a lane
 * waits there alone, and what waits counts against him: aside_n_fds() says how
 * many descriptors it is.
 */
#ifndef REGCACHED_ASIDE_H
#define REGCACHED_ASIDE_H

#include <stdint.h>

struct aside;

enum aside_lane {
	ASIDE_OURS,    /* userfaultfds and areas: threads may wait for these */
	ASIDE_SOCKET,  /* connections that ended */
	ASIDE_UNASKED, /* what a client sent and nobody took */
	ASIDE_N_LANES,
};

int aside_new(struct aside **ret);
/* Jobs that run or wait go on; the last one frees it.  NULL is allowed. */
struct aside *aside_free(struct aside *a);

/* Closes n descriptors (taken; negative ones are skipped) of user uid. */
void aside_close(struct aside *a, uint32_t uid, enum aside_lane lane,
		 const int *fds, int n);

/*
 * The same for the socket of a connection: what the peer sent is read away first,
 * or the kernel lets the peer forget the last words to it.
 */
void aside_close_socket(struct aside *a, uint32_t uid, int fd);

/* Descriptors of uid that are still to be closed in lane; in all, of all users. */
uint32_t aside_n_fds(struct aside *a, uint32_t uid, enum aside_lane lane);
uint32_t aside_n_fds_all(struct aside *a);

#endif
