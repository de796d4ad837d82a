/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A torture test of several processes beside a broker: words, seed, broker, end.
 *
 *   NAME [seconds [threads [processes]]]
 *   REGC_TEST_SECONDS, REGC_TEST_SEED; a broker is at REGC_SOCKET, or one is started.
 *   That one is killed and started again some times a second with REGC_TEST_KILL=1,
 *   and is late with everything, so that windows are wide, with REGC_TEST_LATE=1
 *   (best with all on one processor).
 */
#ifndef REGC_TORTURE_RUN_H
#define REGC_TORTURE_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct regc_library;
struct regc_status;

#define RUN_NOT 3 /* exit status: there is no broker to run with, or no tracking */

struct run {
	const char *name;
	uint32_t max_threads;
	/* In a process of its own, number me: an exit status. */
	int (*process)(unsigned int seconds, uint32_t threads, uint32_t me);
	int (*report)(void); /* prints; not 0: bad */
};

extern unsigned int seed; /* printed at the beginning */

/* All of it; the exit status of main(). */
int run_torture(const struct run *run, int argc, char **argv);

/*
 * Opens *ret and waits, a busy machine's time, until it caches.  False: it does not,
 * which was said; ret_status is filled.
 */
bool run_open(const char *name, struct regc_library **ret,
	      struct regc_status *ret_status);

/* Between two looks at a condition. */
void pause_ms(int ms);
uint64_t next_random(uint64_t *x); /* xorshift; *x is not 0 */

#endif
