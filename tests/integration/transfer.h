/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tests of transfers share: a buffer in flight, and threads that get in its
 * way.
 *
 * A "device" is a fixed write of io_uring (the oracle), which sends the pages that
 * were registered; most tests need none, and look at what waits.
 */
#ifndef REGC_TESTS_TRANSFER_H
#define REGC_TESTS_TRANSFER_H

#include <pthread.h>

#include "shm/atomic.h"
#include "tests/support/harness.h"

#define PAGE ((size_t)4096)
#define BYTES (16 * PAGE)
#define W REGC_ACCESS_LOCAL_WRITE

extern struct broker broker;
extern struct regc_library *lib; /* "sender" */
extern struct oracle oracle;

/* Fixture: broker, library and a ring. */
void setup(void);
void teardown(void);

struct buffer {
	char *mem;
	size_t bytes;
	struct regc_lease lease;
	struct regc_transfer t;
};

void lease(struct buffer *b, char *mem, size_t bytes);
int try_begin(struct buffer *b, unsigned int direction, uint32_t policy,
	      uint32_t conflict, uint32_t limit_ms);
/* Begun and posted. */
void begin(struct buffer *b, unsigned int direction, uint32_t policy);
struct regc_transfer_info info_of(const struct buffer *b);
struct regc_transfer_info complete(struct buffer *b);
void end(struct buffer *b);

enum what { STORE, LOAD, READ };

/* A thread that makes one access. */
struct access {
	pthread_t thread;
	enum what what;
	char *at;
	char value;
	int pipe; /* READ: read(2) from it */
	uint32_t tid;
	uint32_t done;
};

void access_start(struct access *a, enum what what, char *at, char value);
void access_end(struct access *a);
void wait_until_blocked(const struct buffer *b, uint32_t n);

#endif
