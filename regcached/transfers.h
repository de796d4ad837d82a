/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers of a space, as the broker sees them: it reads who waits from the
 * userfaultfd, decides and notes it in the table (shm/transfer.h), and has the
 * client's guardian do what is to be done.  It never opens a page itself, since it
 * could not say so in a word that a begin of the client looks at.
 */
#ifndef REGCACHED_TRANSFERS_H
#define REGCACHED_TRANSFERS_H

#include <stdbool.h>
#include <stdint.h>

struct space;
struct uffd_msg;

/* A thread waits at a page.  False: nobody could have closed it. */
bool transfers_on_fault(struct space *s, const struct uffd_msg *msg);

/* Is the removal of [start, end) how a receive closes its pages? */
bool transfers_own_removal(const struct space *s, uint64_t start, uint64_t end);

/* [start, end) was unmapped, emptied or moved. */
void transfers_on_change(struct space *s, int uffd, uint64_t start, uint64_t end);

#endif
