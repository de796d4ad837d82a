/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control socket: made under a lock file, removed by us alone.
 *
 * The lock file stands beside the socket (PATH.lock) and stays: removing it would
 * let two brokers hold a lock on two files of one name.  Whoever holds its lock
 * owns the path, so a socket found there is stale and is replaced.
 */
#ifndef REGCACHED_LISTENER_H
#define REGCACHED_LISTENER_H

#include <sys/types.h>

#include "regcached/options.h"

struct listener {
	int fd;
	int lock_fd;
	char path[OPTION_PATH_BYTES];
	dev_t dev; /* of our socket file */
	ino_t ino;
};

/*
 * Makes the directory (if only it is missing), takes the lock, binds and
 * listens.  Root's socket may be connected to by all, a user's by that user.
 * -errno with one sentence logged; -EADDRINUSE: another broker is there.
 */
int listener_init(struct listener *l, const char *path);
/* Removes the socket if it is still ours; half-built is allowed. */
void listener_deinit(struct listener *l);

/*
 * The next connection, close-on-exec and non-blocking, the caller's; -EAGAIN:
 * none; -errno.
 */
int listener_accept(struct listener *l);

#endif
