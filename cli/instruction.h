/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in the program a thread waits: asked here, of /proc, not by the broker. */
#ifndef REGC_CLI_INSTRUCTION_H
#define REGC_CLI_INSTRUCTION_H

#include "libregc/control.pb-c.h"

/*
 * Fills in the cells "instruction" of rows with "pid" and "thread"; what cannot be
 * known (another user's process, another pid namespace, not waiting any more)
 * stays 0.  The reply is a query_run() callback's own.
 */
void instruction_fill(const Regc__AdminReply *reply);

#endif
