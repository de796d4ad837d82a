/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs without a device: its functions for memory regions, linked into
 * the test program, where they take the place of the library's.  What libibverbs'
 * header makes of them (macros, functions of two kinds) is the real one.
 */
#ifndef REGC_TESTS_FAKE_VERBS_H
#define REGC_TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct fake_nic {
	struct ibv_context context; /* first, to find the rest */
	struct ibv_device device;
	struct ibv_device_attr attr; /* what ibv_query_device() tells */
	int query_error;	     /* or this errno */
	enum ibv_event_type next_event; /* what ibv_get_async_event() reads */
};

struct fake_pd {
	struct ibv_pd pd; /* first, to find the rest */
	int reg_error;	  /* not 0: ibv_reg_mr() fails with this errno */
	int dereg_error;  /* ibv_dereg_mr() returns this */
	uint32_t regs, deregs, live;
	uint32_t max_live; /* 0: no limit; beyond: ENOMEM */
	unsigned int last_access;
	void (*in_reg)(void *arg); /* while one is registered; may be NULL */
	void *in_reg_arg;
	uint64_t last_iova, last_offset;
	int last_dmabuf;
	const void *last_addr;
	size_t last_len;
};

/* Of fake_libibverbs.c: how many are open. */
extern uint32_t fake_contexts;

void fake_nic_init(struct fake_nic *nic, const char *name);
void fake_pd_init(struct fake_pd *pd, struct fake_nic *nic, uint32_t handle);

#endif
