/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker: the thread that calls devices where the guardian must not.
 *
 * A device may free memory when it undoes a registration (ibv_dereg_mr does), and
 * whoever holds malloc's lock may be waiting, in munmap, for an event that only
 * the guardian reads when the broker is stopped or dead.  So the guardian voids,
 * and the worker undoes.
 */
#ifndef REGC_WORKER_H
#define REGC_WORKER_H

#include <stdint.h>

#include "libregc/runtime.h"

/* init lock; 0 also if it runs already, or -errno. */
RT_HIDDEN int worker_start(void);

/* Something is void: undoes it soon.  Takes no lock. */
RT_HIDDEN void worker_wake(void);

/*
 * Guardian: undoes what is void now, then gives back to the broker, as the answer
 * to ticket, what is spare of bytes and regions.
 */
RT_HIDDEN void worker_give_back(uint64_t ticket, uint64_t bytes, uint64_t regions);

#endif
