/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The userfaultfd of one space: events become voids.
 *
 * Label C1.  The thread that changes its mappings goes on as soon as the event
 * was *read*, so the broker sets table->changing before it reads and clears it
 * when everything the event says was voided; a hit looks at changing first.  From
 * before the change until the read the kernel itself says that one is under way
 * (the probe of strict mode), or the hook does.
 *
 * Order after a read: the change log (H2), then the request ring, then the told
 * regions.  A registration that is not told yet is either in the ring, and told
 * and voided here, or its maker looks at the log after pushing and finds the
 * change.
 *
 * The descriptor belongs to the client too: it may read events away, or make the
 * descriptor block.  The first hurts itself only; for the second, see uffd_read().
 */
#ifndef REGCACHED_UFFD_H
#define REGCACHED_UFFD_H

#include <stdbool.h>
#include <stdint.h>

struct space;
struct uffd;

/*
 * fd is taken on success.  -EPROTO: not a userfaultfd, or not initialised by
 * UFFDIO_API.  -errno.
 */
int uffd_new(struct space *s, int fd, struct uffd **ret);
/* NULL is allowed. */
struct uffd *uffd_free(struct uffd *u);

/* Everything before now is void (L3): an event was lost. */
void uffd_void_all(struct uffd *u);

#endif
