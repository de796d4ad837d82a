/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client: one connection, of a process that attaches or of regc-ctl.
 *
 *   NEW --Hello--> WELCOMED --Attach--> ATTACHED
 *    \________________\__________________\--> dead, freed at the end of the turn
 *
 * Admin is allowed in every state.  A connection ends when the peer closes it,
 * when its process ends (pidfd: children of fork may keep the socket open), or
 * when it breaks the protocol; client_kill() may be called from anywhere.
 *
 * Output: a message that the socket does not take is kept, up to a bound; beyond
 * it the peer does not read and is dropped.  Voided needs no memory: what cannot
 * be sent becomes one Rescan (owes_rescan), sent when there is room.
 */
#ifndef REGCACHED_CLIENT_H
#define REGCACHED_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "libregc/wire.h"
#include "regcached/broker.h"
#include "regcached/loop.h"

struct admin_job;
struct client_packet;

struct client {
	struct broker *broker;
	int fd;
	int pid_fd;   /* -1: not to be had */
	int doorbell; /* eventfd, -1 before Hello */
	uint32_t pid, uid;
	struct user *user;
	struct space *space; /* from Hello on */
	struct loop_source source, pid_source, bell_source;
	struct client_packet *out; /* utlist */
	uint32_t out_bytes;
	uint32_t n_needs; /* reclaim.c */
	bool owes_rescan;
	bool dead;
	struct admin_job *job; /* admin.c */
	struct client *prev, *next; /* of broker->clients or ->dying */
};

/* fd is taken, also on failure.  -EDQUOT: a limit, told to the peer; -errno. */
int client_new(struct broker *b, int fd);

/* Ends the connection at the end of this turn; why is logged at debug. */
void client_kill(struct client *c, const char *why);
/* The same for a peer that broke the protocol: counted, logged, told. */
void client_drop(struct client *c, int err, const char *why);
/* For broker.c: frees one that is dying. */
void client_free(struct client *c);

/* Sends or keeps; a peer over its bound is dropped. */
void client_send(struct client *c, const Regc__Frame *frame);
/* Sends now or -EAGAIN. */
int client_try_send(struct client *c, const Regc__Frame *frame);
void client_send_error(struct client *c, int err, const char *text);

/* Adds slot to what is told in one message; flush ends the message. */
void client_tell_voided(struct client *c, uint32_t slot, uint32_t cause);
void client_flush_voided(struct broker *b);
void client_tell_rescan(struct client *c);

/* What the socket is to be watched for has changed. */
void client_update_events(struct client *c);

#endif
