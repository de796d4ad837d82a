/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libregc-verbs.so: memory regions of unmodified programs through regc.
 *
 * Loaded before libibverbs (LD_PRELOAD), it takes the calls that make and end
 * memory regions (MRs).  Each ibv_reg_mr() that can be cached becomes a lease,
 * each ibv_dereg_mr() the end of one.  Modules, lower ones know nothing of higher
 *   calls.c   the functions that take libibverbs' place
 *   shared.c  one context and one PD of a device for all libraries
 *   pd.c      protection domains (PDs) and their domains of regc
 *   mr.c      the struct ibv_mr that programs hold
 *   real.c    libibverbs itself
 * What cannot be cached goes to libibverbs as it came, and so do errors: the
 * program sees what libibverbs says.
 *
 * There is one lock, for PDs and shared devices; it is not taken where a PD is
 * known already.  A child of fork starts with neither (pd.c, shared.c): a PD of
 * its parent is of no use to it, and regc says so (law L6).
 */
#ifndef REGC_PRELOAD_H
#define REGC_PRELOAD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "libregc/regc.h"
#include "libregc/verbs_real.h"

#define PRELOAD_HIDDEN __attribute__((visibility("hidden")))
#define PRELOAD_API __attribute__((visibility("default")))

/* ---- real.c ------------------------------------------------------------- */

#define real regc_verbs_real()

/* ---- mr.c --------------------------------------------------------------- */

struct mr {
	struct ibv_mr mr; /* first: what the program holds */
	struct regc_lease lease;
	unsigned int access; /* IBV_ACCESS_*, as asked for */
	uint32_t used;
	uint32_t next; /* free ones: number + 1 of the next, or 0 */
};

/* NULL: there are too many. */
PRELOAD_HIDDEN struct mr *mr_take(void);
PRELOAD_HIDDEN void mr_give_back(struct mr *m);
/* The one that mr is part of; NULL: it is libibverbs' own. */
PRELOAD_HIDDEN struct mr *mr_of(struct ibv_mr *mr);
/* After last (NULL: from the first), one that is in use in pd; NULL: none. */
PRELOAD_HIDDEN struct mr *mr_next(struct mr *last, const struct ibv_pd *pd);

/* ---- pd.c --------------------------------------------------------------- */

/* What the environment says; before the program has threads. */
PRELOAD_HIDDEN void pd_begin(void);
PRELOAD_HIDDEN void preload_lock(void);
PRELOAD_HIDDEN void preload_unlock(void);
/* REGC_VERBS=off: everything goes to libibverbs. */
PRELOAD_HIDDEN bool preload_is_off(void);
/* The domain of a PD, made if need be; NULL: none can be had. */
PRELOAD_HIDDEN struct regc_domain *pd_domain(struct ibv_pd *pd);
/* Before pd ends: 0, or EBUSY: it has MRs. */
PRELOAD_HIDDEN int pd_close(struct ibv_pd *pd);
/* Before a context ends: its PDs, with the MRs that were left in them. */
PRELOAD_HIDDEN void pd_close_all_of(const struct ibv_context *context);
/* The device of a context is gone. */
PRELOAD_HIDDEN void pd_lose_all_of(const struct ibv_context *context);
/* A device is full: undoes what is cached and not in use. */
PRELOAD_HIDDEN void pd_make_room(const struct ibv_pd *pd);

/* ---- shared.c ----------------------------------------------------------- */

PRELOAD_HIDDEN void shared_begin(void); /* after pd_begin() */
/* As libibverbs' functions, for REGC_VERBS_SHARED_PD=1. */
PRELOAD_HIDDEN bool shared_is_on(void);
PRELOAD_HIDDEN struct ibv_context *shared_open(struct ibv_device *device);
PRELOAD_HIDDEN struct ibv_pd *shared_alloc_pd(struct ibv_context *context);
/* True: that was not the last user, and there is nothing more to do. */
PRELOAD_HIDDEN bool shared_keep_pd(const struct ibv_pd *pd);
PRELOAD_HIDDEN bool shared_keep_context(const struct ibv_context *context);
/* libibverbs refused to end pd: it has one user again. */
PRELOAD_HIDDEN void shared_restore_pd(struct ibv_pd *pd);

#endif
