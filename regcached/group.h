/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A group: the spaces of one user under one name, which share limits.
 *
 * Made with its first space and freed with its last.
 */
#ifndef REGCACHED_GROUP_H
#define REGCACHED_GROUP_H

#include <stdint.h>
#include <uthash.h>

#include "regcached/limits.h"

#define GROUP_NAME_BYTES 64
#define GROUP_DEFAULT_NAME "user"

struct broker;

struct group_key {
	uint32_t uid;
	char name[GROUP_NAME_BYTES]; /* zero to the end */
};

struct group {
	struct group_key key;
	struct broker *broker;
	struct ledger ledger;
	uint32_t n_spaces;
	uint32_t n_ready; /* slots of its spaces that count, see space.c */
	UT_hash_handle hh;
};

/*
 * The group, with one more space in it.  name: 1 to 63 printable characters
 * without blanks, or "" for the default.  -EINVAL, -EDQUOT (the group has as
 * many spaces as it may), -ENOMEM.
 */
int group_ref(struct broker *b, uint32_t uid, const char *name,
	      struct group **ret);
/* One space less; its ledger must be empty. */
void group_unref(struct group *g);

/* Limits from the options. */
void group_set_limits(struct group *g);

#endif
