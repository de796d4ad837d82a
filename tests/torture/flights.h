/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers under way in torture_transfers, and the oracle that finds torn ones.
 *
 * Device is io_uring: a fixed write or read moves the pinned pages, whatever the
 * page tables say.  Each transfer is moved in steps, so that there is time in
 * between for an access that should not be:
 *
 *   send      all of it at once, and again in two halves: the passes must be equal,
 *             and to what the CPU saw after the begin if nobody gets copies
 *   receive   in two halves, each word with the number of the transfer; then what
 *             is in the pinned pages is read back: nobody has written to them
 *
 * Whoever reads a word of a number that is not done yet has read too early.
 */
#ifndef REGC_TORTURE_FLIGHTS_H
#define REGC_TORTURE_FLIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libregc/regc.h"
#include "tests/torture/run.h"

#define PAGE ((size_t)4096)
#define WINDOW_PAGES 8
#define WINDOW_BYTES (WINDOW_PAGES * PAGE)

enum window_kind {
	WINDOW_SEND,	/* private: sent, written, unmapped, moved */
	WINDOW_PRIVATE, /* private: received and sent, unmapped */
	WINDOW_SHARED,	/* of regc_alloc(): received and sent */
	N_WINDOW_KINDS
};

struct window {
	enum window_kind kind;
	char *mem; /* WINDOW_BYTES */
	uint32_t n_moves;   /* mremap(2) of a part: the pages may be written there */
	uint32_t n_changes; /* other changes that took pages away */
};

struct totals {
	uint64_t begun, completed, refused, sent, received, aborted;
	uint64_t blocked, copied, damaged, detached, weak, open, moved;
	uint64_t stores, loads, calls, changes, forks, cancelled, threads;
	uint64_t torn, early, left_closed, errors;
};

extern struct totals *totals; /* shared by the processes */
extern struct regc_library *lib;

/* Counts an error and says what it is. */
void complain(const char *what, int err);
/* The same, and the end. */
_Noreturn void die(const char *what);

void flights_open(void);
/* False: a domain does not close. */
bool flights_close(void);

/*
 * Begins one or two transfers of parts of w, at random.  The caller keeps w mapped
 * meanwhile.
 */
void flights_begin(struct window *w, uint64_t *x);
/* Takes the next step of one transfer; touches no window.  False: there is none. */
bool flights_step(uint64_t *x);
uint32_t flights_under_way(void);

/* ---- words ---------------------------------------------------------------- */

/* What the CPU writes is of nobody. */
uint64_t word_of_cpu(uint64_t *x);
/* A word that was read from a window: had it arrived? */
void check_word(uint64_t word);

#endif
