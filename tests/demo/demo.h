/* SPDX-License-Identifier: BSD-2-Clause */
/* What the processes of the demo report, and the table made of it. */
#ifndef REGC_DEMO_DEMO_H
#define REGC_DEMO_DEMO_H

#include "tests/demo/keys.h"

/* Of one process; goes through a pipe. */
struct result {
	int done;
	int is_receiver;
	struct keys_stats mpi, pfs; /* the receiver has no pfs */
	uint64_t transfers, bytes;  /* checked */
	uint64_t wrong_transfers, wrong_bytes;
	double pins; /* of the first block, in use by both libraries */
	/* of the sender: a block that is still there, and one that is not */
	int pid;
	uint64_t live, live_len, gone, gone_len;
};

/* Of a pair of processes. */
struct outcome {
	struct result sender, receiver;
};

/* outcomes: one for each enum keys_mode. */
void table_print(const struct outcome *outcomes);

/* 0, or -1 and a line on stderr for each thing that is wrong. */
int table_verdict(const struct outcome *outcomes);

#endif
