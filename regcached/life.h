/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The page by which clients see whether the broker lives (shm/layout.h).
 *
 * life->word is a robust futex held by the main thread: it holds the thread's
 * id, and at the thread's death, by whatever signal, the kernel itself puts
 * FUTEX_OWNER_DIED there before it closes any descriptor of the process.
 */
#ifndef REGCACHED_LIFE_H
#define REGCACHED_LIFE_H

#include <linux/futex.h>

#include "shm/layout.h"

struct life {
	struct rtab_life *page;
	int fd; /* sealed memfd of page, owned */
	/* private: what set_robust_list(2) points at; must not move */
	struct robust_list_head head;
	struct robust_list entry;
};

/*
 * By the thread whose death ends the broker, once a process (the kernel keeps
 * one list a thread, and this one takes the place of libc's: the broker uses no
 * robust mutex).  -errno.
 */
int life_init(struct life *life);

/* Marks the broker dead by itself, for a clean end. */
void life_deinit(struct life *life);

/*
 * Label B1: tells clients that a pushed record needs the doorbell.  The caller
 * looks at every ring once more after sleep returns and before it waits.
 */
void life_sleep(struct life *life);
void life_wake(struct life *life);

#endif
