/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that take the lock of a client's address space, aside from the loop.
 *
 * A client can hold that lock as long as it likes.  Two things the broker does
 * take it: the last close of a client's userfaultfd (the kernel then walks the
 * client's mappings) and the removal of write protection after a fault.  And any
 * descriptor that came from a client may be one whose close waits for somebody (a
 * file of a user's own file system, a socket that lingers), as may the socket of
 * a connection with such descriptors unread.  So each of these runs in a thread of
 * its own that ends with it; without such a job there is no thread.  A job that
 * never ends costs a thread of 64 KiB.
 */
#ifndef REGCACHED_ASIDE_H
#define REGCACHED_ASIDE_H

#include <stdint.h>

struct aside;

int aside_new(struct aside **ret);
/* Jobs that run or wait go on; the last one frees it.  NULL is allowed. */
struct aside *aside_free(struct aside *a);

#define ASIDE_MAX_FDS 4

/* Closes n descriptors (taken; negative ones are skipped) of owner's. */
void aside_close(struct aside *a, uint32_t owner, const int *fds, int n);

/*
 * The same for the socket of a connection: what the peer sent is read away first,
 * or the kernel lets the peer forget the last words to it.
 */
void aside_close_socket(struct aside *a, uint32_t owner, int fd);

/*
 * Takes the write protection off the page at addr, through fd (borrowed; a copy
 * is used).  -EBUSY: owner has too many calls under way.  -errno.
 */
int aside_unprotect(struct aside *a, uint32_t owner, int fd, uint64_t addr);

#endif
