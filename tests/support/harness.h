/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What integration tests need: a private broker, a fake device, the oracle.
 *
 * The oracle of law L1: a fixed write of io_uring sends the pages that were
 * registered; comparing what arrives with what the CPU sees at the address shows
 * whether the registration is of the pages that are mapped now.
 */
#ifndef REGC_TESTS_HARNESS_H
#define REGC_TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libregc/regc.h"

struct broker {
	pid_t pid;
	char dir[64];
	char socket[96];
};

/*
 * Starts regcached on a private socket and waits until it answers; settings is
 * "option=value" ..., NULL at the end, or NULL.  Sets REGC_SOCKET.  Fails the
 * test if it does not come up.
 */
void broker_start(struct broker *b, const char *const *settings);
/* The same on the socket of an earlier one. */
void broker_restart(struct broker *b, const char *const *settings);
void broker_stop(struct broker *b);
void broker_kill(struct broker *b);

/* Waits until cond() is true; fails the test after seconds. */
#define WAIT_FOR(cond, seconds)                                             \
	do {                                                                \
		uint64_t limit_ = test_now_ns() +                           \
				  (uint64_t)(seconds) * 1000000000u;        \
		while (!(cond)) {                                           \
			if (test_now_ns() > limit_)                         \
				ck_abort_msg("timed out: %s", #cond);       \
			test_pause();                                       \
		}                                                           \
	} while (0)
uint64_t test_now_ns(void);
/* Lets others run for a moment, between two looks at a condition. */
void test_pause(void);

/* Seed from REGC_TEST_SEED or the clock; printed with the name. */
unsigned int test_seed(const char *name);
/* REGC_TEST_SECONDS, or 2. */
unsigned int test_seconds(void);

/* A page-aligned private mapping of bytes, filled with value. */
char *test_map(size_t bytes, int value);
void *raw_mmap_at(void *addr, size_t bytes);
void raw_munmap(void *addr, size_t bytes);

/* ---- fake device -------------------------------------------------------- */

struct fake {
	uint32_t regs, deregs;	/* calls that succeeded */
	uint32_t live;
	uint64_t live_bytes;
	uint32_t max_live;	/* 0: no limit; beyond: -ENOSPC */
	uint64_t max_bytes;	/* 0: no limit */
	int fail_next;		/* the next reg returns this */
	bool refuse_overlap;	/* -EEXIST where a live range overlaps */
	uint32_t last_access;
	uint64_t last_start, last_len;
	void (*in_reg)(void *arg, void *addr, size_t len);
	void *in_reg_arg;
	struct {
		uint64_t start, len;
		uint32_t access;
		bool live;
	} entry[4096];
	uint32_t n_entries;
	uint32_t lock;
};

/* ctx is a struct fake. */
extern const struct regc_device_ops fake_ops;

/* ---- oracle ------------------------------------------------------------- */

struct oracle {
	struct regc_domain *dom; /* of a ring of regc's */
	int fd;			 /* a memfd that receives */
};

void oracle_open(struct oracle *o, struct regc_library *lib, unsigned int n);
void oracle_close(struct oracle *o);
/* Moves len bytes at addr through lease; true: the device sent what we see. */
bool oracle_agrees(struct oracle *o, const struct regc_lease *lease,
		   const void *addr, size_t len);
/* get, oracle_agrees, put. */
bool oracle_check(struct oracle *o, const void *addr, size_t len);

/* ---- huge pages --------------------------------------------------------- */

/*
 * Fixtures that make sure of 8 huge pages where that is allowed; unchecked, so that
 * a test that fails does not skip the return.
 */
void huge_pages_reserve(void);
void huge_pages_return(void);
bool have_huge_pages(void);

#endif
