/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A real regcached on a private socket, and a client that speaks the protocol by
 * hand, so that it can also speak it wrong.
 *
 * Everything here ends the test (ck_abort) where it goes wrong.  Nothing sleeps:
 * what another process has to do first is waited for, RAW_LIMIT_MS at most.
 */
#ifndef REGC_TESTS_RAW_H
#define REGC_TESTS_RAW_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "libregc/wire.h"
#include "shm/area.h"
#include "shm/table.h"

#define RAW_LIMIT_MS 10000
#define RAW_MAX_SETS 16

struct raw_broker {
	pid_t pid; /* 0: not running */
	char dir[64];
	char socket[96];
	char config[96];
	char log[96];
};

/* Makes the folder with an empty configuration; sets end with NULL. */
void raw_broker_init(struct raw_broker *b);
/* Starts it and waits until it says READY=1. */
void raw_broker_start(struct raw_broker *b, const char *const *sets);
/* Starts it and waits for its end; returns the exit status. */
int raw_broker_run(struct raw_broker *b, const char *const *sets);
/* Sends sig and waits; returns the wait status. */
int raw_broker_end(struct raw_broker *b, int sig);
/* Ends what still runs and removes the folder. */
void raw_broker_deinit(struct raw_broker *b);
void raw_write_config(struct raw_broker *b, const char *text);
bool raw_log_has(const struct raw_broker *b, const char *text);

struct raw_client {
	int sock;
	struct regc_wire *wire;
	uint8_t *scratch;
	/* from Welcome */
	struct rtab_view table;
	const struct rtab_life *life;
	int doorbell, device;
	uint32_t space, capacity, mode;
	uint64_t hard_bytes;
	/* ours */
	struct rtab_area_view area;
	int area_fd;
	uint64_t bytes, regions; /* budget */
};

void raw_connect(struct raw_client *c, const struct raw_broker *b);
/* Connect, Hello, Welcome. */
void raw_hello(struct raw_client *c, const struct raw_broker *b,
	       const char *group);
/* And an area, Attach (uffd: -1 none), Attached. */
void raw_attach(struct raw_client *c, const struct raw_broker *b,
		const char *group, int uffd);
/* The second half, after raw_hello(); sends Attach and nothing more. */
void raw_send_attach(struct raw_client *c, const int *fds, int n_fds,
		     bool has_uffd);
/* Asks for budget until it has so much in all. */
void raw_have(struct raw_client *c, uint64_t bytes, uint64_t regions);
void raw_close(struct raw_client *c);

void raw_send(struct raw_client *c, const Regc__Frame *frame);
void raw_send_need(struct raw_client *c, uint64_t bytes, uint64_t regions,
		   uint64_t ticket);
void raw_send_released(struct raw_client *c, uint64_t bytes, uint64_t regions,
		       uint64_t ticket);

/* The next frame; it must be of kind.  Valid until the next call. */
Regc__Frame *raw_expect(struct raw_client *c, int kind);
/* The broker closes the connection, maybe after an Error. */
void raw_expect_end(struct raw_client *c);
/* Nothing comes for ms. */
void raw_expect_silence(struct raw_client *c, int ms);

/* Pushes a record and rings. */
void raw_push(struct raw_client *c, const struct rtab_request *req);
void raw_add(struct raw_client *c, uint32_t slot, uint64_t start, uint64_t bytes,
	     uint32_t access);
void raw_del(struct raw_client *c, uint32_t slot);
/* Until the broker has read every record. */
void raw_wait_drained(struct raw_client *c);
/* Is [start, start + bytes) live for all to see? */
bool raw_is_live(struct raw_client *c, uint64_t start, uint64_t bytes,
		 uint32_t access);

/* One Admin question, on a connection of its own if none is given. */
struct raw_rows {
	int err;
	char text[1024];
	unsigned int n_rows, n_columns, n_replies;
	char names[64][32];
	/* malloc'ed, n_rows * n_columns */
	char **texts;
	uint64_t *numbers;
};
void raw_admin_on(struct raw_client *c, const Regc__Admin *question,
		  struct raw_rows *ret);
void raw_admin(const struct raw_broker *b, const Regc__Admin *question,
	       struct raw_rows *ret);
void raw_admin_kind(const struct raw_broker *b, int kind, struct raw_rows *ret);
const char *raw_text(const struct raw_rows *r, unsigned int row, const char *col);
uint64_t raw_number(const struct raw_rows *r, unsigned int row, const char *col);
void raw_rows_free(struct raw_rows *r);
/* One number of the one row of STATS. */
uint64_t raw_stat(const struct raw_broker *b, const char *col);

/* Waits until expr is true; what: for the message. */
#define raw_wait(expr)                                               \
	do {                                                         \
		uint64_t raw_end_ = raw_deadline_ns();               \
		while (!(expr))                                      \
			raw_pause(raw_end_, #expr, __FILE__, __LINE__); \
	} while (0)
uint64_t raw_deadline_ns(void);
void raw_pause(uint64_t end_ns, const char *what, const char *file, int line);

/* A userfaultfd of this process for events, or -1. */
int raw_uffd(void);
/* Watches [start, start + bytes) with it. */
void raw_watch(int uffd, void *start, uint64_t bytes);
/* The same; whether it worked is nobody's concern. */
void raw_try_watch(int uffd, void *start, uint64_t bytes);

#endif
