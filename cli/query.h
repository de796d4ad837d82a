/* SPDX-License-Identifier: BSD-2-Clause */
/* One question to the broker and its answers. */
#ifndef REGC_CLI_QUERY_H
#define REGC_CLI_QUERY_H

#include "libregc/control.pb-c.h"

/* A broker that is alive answers at once; one that is stopped, never. */
#define QUERY_TIMEOUT_MS 5000

/*
 * Gets each reply in turn, borrowed until it returns.  0: go on; 1: enough, which
 * ends the query.
 */
typedef int (*query_reply_fn)(const Regc__AdminReply *reply, void *arg);

/*
 * Asks the broker at socket (NULL: REGC_SOCKET, the user's, the system's) and
 * hands every reply to fn, until the broker has said all.  What went wrong with
 * the broker is printed on stderr, in one line.
 * 0: all said; 1: fn had enough; -1: failed, and printed.
 */
int query_run(const char *socket, const Regc__Admin *question,
	      query_reply_fn fn, void *arg);

#endif
