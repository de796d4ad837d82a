/* SPDX-License-Identifier: BSD-2-Clause */
/* What link.c, guardian.c and worker.c need of each other. */
#ifndef REGC_LINK_H
#define REGC_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "libregc/wire.h"

/* Sends under the send lock; frame as in control.proto.  0 or -errno. */
int link_send(const Regc__Frame *frame, const int *fds, int n_fds);

/*
 * Guardian: handles what has arrived on the socket.  -EAGAIN: nothing more;
 * another -errno: the connection is over.
 */
int link_receive(void);

struct rt_answer;
/* Worker: to the broker what is spare of what it asked back. */
void link_give_back(const struct rt_answer *answer);

#endif
