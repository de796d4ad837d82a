/* SPDX-License-Identifier: BSD-2-Clause */
/* What the examples share: options, loopback connections, checksums, sends. */
#ifndef REGC_EXAMPLES_EXAMPLE_H
#define REGC_EXAMPLES_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <liburing.h>

#include "libregc/regc.h"

#define EX_AGAIN 3 /* exit status where a race that was to be shown did not happen */
#define EX_SKIP 77 /* exit status where the machine cannot do it */

struct ex_options {
	double seconds; /* of one run */
};

/* --help, --quick, --seconds N; ends the program on anything else. */
void ex_parse(int argc, char **argv, const char *about, double seconds,
	      struct ex_options *ret);

uint64_t ex_now_ns(void);
/* CPU time of a process so far; 0: unknown. */
uint64_t ex_cpu_ns(pid_t pid);
/* Until another thread or process has done something. */
void ex_pause(void);

pid_t ex_fork(void);
/*
 * Waits for two processes; if one fails the other is ended.  The exit status of the
 * first that failed, EX_SKIP before others.
 */
int ex_end(pid_t a, pid_t b);

/* Ends the program with a message; err is a negative errno or 0. */
_Noreturn void ex_die(const char *what, int err);
/* ex_die() if err is negative; returns err. */
int ex_must(const char *what, int err);

/* Opens a library; skips the program where regc cannot track memory. */
struct regc_library *ex_open(const char *name);

/* A ring; skips the program where the kernel has no zero-copy send. */
void ex_ring(struct io_uring *ring, unsigned int entries);

/* Page-aligned private memory. */
void *ex_map(size_t bytes);

/* A connection over TCP on loopback: ret[0] sends, ret[1] receives. */
void ex_connection(int ret[2]);
int ex_listen(uint16_t *ret_port);
int ex_connect(uint16_t port);
int ex_accept(int listener);
/* All of len bytes; false: the peer has ended. */
bool ex_read(int fd, void *buf, size_t len);
void ex_write(int fd, const void *buf, size_t len);

/* Different bytes for each seed, and their checksum. */
void ex_fill(void *buf, size_t len, uint64_t seed);
uint64_t ex_sum(const void *buf, size_t len);
/* Bytes that differ from ex_fill() of seed. */
size_t ex_wrong(const void *buf, size_t len, uint64_t seed);

/* ---- zero-copy sends, send.c --------------------------------------------- */

/* One message: a header that the kernel copies, and data that it does not. */
struct ex_send {
	const void *head; /* stays until sent; may be NULL */
	size_t head_len;
	const void *data;
	size_t len;
	struct regc_lease lease; /* of data */
	bool sent;               /* the socket took all of it */
	bool done;               /* nobody reads data any more */
	struct ex_send *next;    /* private */
};

/* The messages of one connection, in order. */
struct ex_queue {
	struct io_uring *ring;
	int fd;
	struct ex_send *first, *last;
	void (*posted)(struct ex_send *s); /* may be NULL: the ring has it */
	void (*done)(struct ex_send *s);   /* may be NULL */
	unsigned int n_cqes;               /* that are still to come */
};

/* Sends s after what is queued already. */
void ex_queue_add(struct ex_queue *q, struct ex_send *s);
/* Takes one completion of the queue's ring. */
void ex_queue_take(struct ex_queue *q, const struct io_uring_cqe *cqe);
/* Takes what is there; waits for one first if asked to.  Returns how many. */
unsigned int ex_queue_reap(struct ex_queue *q, bool wait);

#endif
