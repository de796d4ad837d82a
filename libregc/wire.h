/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control socket framing, shared by libregc, regcached and regc-ctl.
 *
 * One protobuf Frame a SOCK_SEQPACKET packet.  Packing and unpacking use a
 * caller's buffer and arena, never malloc, so the guardian may use both (L8).
 */
#ifndef REGC_WIRE_H
#define REGC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "libregc/control.pb-c.h"

#define REGC_WIRE_VERSION 1
#define REGC_WIRE_MAX_BYTES 32768
#define REGC_WIRE_MAX_FDS 4
#define REGC_WIRE_MAX_SLOTS 4096 /* in one Voided or Reclaim */
#define REGC_WIRE_ARENA_BYTES (16 * REGC_WIRE_MAX_BYTES)

/* Receive state; embed or place in memory that never faults. */
struct regc_wire {
	uint8_t packet[REGC_WIRE_MAX_BYTES];
	uint8_t arena[REGC_WIRE_ARENA_BYTES];
	size_t arena_used;
	int fds[REGC_WIRE_MAX_FDS]; /* of the last packet, -1 once taken */
	int n_fds;
	/*
	 * Closes the descriptors that nobody took (negative ones are none); NULL:
	 * close(2), which may wait for whoever sent them.
	 */
	void (*close_fds)(void *arg, const int *fds, int n);
	void *close_arg;
};

/*
 * Sends frame with n_fds descriptors (borrowed).  scratch has at least
 * REGC_WIRE_MAX_BYTES.  0, -EAGAIN: socket full (MSG_DONTWAIT), -EMSGSIZE, or
 * -errno of sendmsg(2).  Never raises SIGPIPE.
 */
int regc_wire_send(int sock, const Regc__Frame *frame, const int *fds,
		   int n_fds, uint8_t *scratch);

/*
 * Receives one frame without waiting.  *ret_frame lives in wire->arena until the
 * next call and must not be freed.  Descriptors that arrived are in wire->fds,
 * owned by wire until regc_wire_take_fd(); the next receive closes the rest.
 * 0, -EAGAIN: nothing there, -ECONNRESET: end of stream, -EPROTO: not a frame,
 * too long or too many descriptors, -errno of recvmsg(2).
 */
int regc_wire_recv(struct regc_wire *wire, int sock, Regc__Frame **ret_frame);

/* Waits up to timeout_ms for one frame; -ETIMEDOUT. */
int regc_wire_recv_wait(struct regc_wire *wire, int sock, int timeout_ms,
			Regc__Frame **ret_frame);

/* Descriptor i of the last packet, now the caller's; -1: there is none. */
int regc_wire_take_fd(struct regc_wire *wire, int i);

/* Closes descriptors that nobody took. */
void regc_wire_drop_fds(struct regc_wire *wire);

/* Empties arena accounting and fds, closes by close(2); for a new struct. */
void regc_wire_init(struct regc_wire *wire);

/* Default socket path for uid, "" if none fits; root: /run/regc/regcached.sock */
void regc_wire_default_socket(unsigned int uid, char *ret_path, size_t size);

/*
 * Connects to the broker at path; else at REGC_SOCKET; else (neither is given) at
 * the user's own or the system's, the first that answers.  Refuses a broker that belongs to
 * neither root nor this user (-EPERM).  *ret_sock is close-on-exec and
 * non-blocking, the caller's.
 */
int regc_wire_connect(const char *path, int *ret_sock, char *ret_path,
		      size_t size);

#endif
