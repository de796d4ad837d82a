/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kvtable: a table of values, served over TCP with zero-copy sends.
 *
 * Even keys are read and written, odd keys, each beside them in memory, only
 * written.
 */
#ifndef REGC_EXAMPLES_KVTABLE_H
#define REGC_EXAMPLES_KVTABLE_H

#include <stddef.h>
#include <stdint.h>

#define KV_KEYS 16
#define KV_VALUE_BYTES ((size_t)256 << 10)
#define KV_WINDOW 8	   /* GETs of the client under way */
#define KV_GETS_FOR_PUT 4u /* a PUT of each kind for so many GETs */
#define KV_MIN_GETS 64u	   /* of a run, */
#define KV_LIMIT_NS 20e9   /* which ends then at the latest */

enum kv_mode {
	KV_UNPROTECTED, /* sent from the table, whatever happens to it */
	KV_COPYING,	/* copied to a buffer first */
	KV_REGC,	/* sent from the table, writers wait */
	KV_REGC_COPY,	/* sent from the table, writers get a copy of the page */
	KV_N_MODES
};

/* Connections, in the order in which the client makes them. */
enum kv_kind { KV_GET, KV_PUT_READ_KEYS, KV_PUT_OTHER_KEYS, KV_N_KINDS };

/* Before a value, in both directions; a GET is a head with len 0. */
struct kv_head {
	uint32_t key;
	uint32_t len;
	uint64_t sum; /* ex_sum() of the value */
};

struct kv_puts {
	uint64_t n;
	uint64_t n_waited; /* whose thread slept while it stored the value */
	uint64_t wait_ns;  /* all of these together */
	uint64_t max_ns;
};

/* Shared by client and server; each writes its part. */
struct kv_result {
	uint64_t gets, torn, ns;	  /* client */
	uint64_t cpu_ns;		  /* server and broker */
	struct kv_puts puts[KV_N_KINDS];  /* server; [KV_GET] is not used */
	uint64_t blocked, copied;	  /* server: transfers that were */
	uint64_t damaged, timed_out;
	uint64_t failed;		  /* replies that had to be copied */
	uint32_t skip;			  /* server: this machine cannot do it */
	char why[128];
};

/* Each ends when its work is done; the server when the client has gone. */
void kv_serve(int listener, enum kv_mode mode, struct kv_result *result);
void kv_ask(uint16_t port, enum kv_mode mode, double seconds,
	    struct kv_result *result);

#endif
