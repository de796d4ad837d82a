/* SPDX-License-Identifier: BSD-2-Clause */
/* A piece of work that the loop does in bounded steps, one a turn. */
#ifndef REGCACHED_WORK_H
#define REGCACHED_WORK_H

#include <stdbool.h>

/* fn does one step and returns true while there is more; see broker_add_work. */
struct work {
	bool (*fn)(void *arg);
	void *arg;
	struct work *prev, *next; /* private */
	bool queued;		  /* private */
};

#endif
