/* SPDX-License-Identifier: BSD-2-Clause */
/* A group; see group.h. */
#define HASH_NONFATAL_OOM 1
#include "regcached/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "regcached/broker.h"

void group_set_limits(struct group *g)
{
	g->ledger.max[LEDGER_BYTES] = broker_option(g->broker, OPTION_GROUP_BYTES);
	g->ledger.max[LEDGER_REGIONS] =
		broker_option(g->broker, OPTION_GROUP_REGIONS);
}

static int group_new(struct broker *b, const struct group_key *key,
		     struct group **ret)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->key = *key;
	g->broker = b;
	ledger_init(&g->ledger, &b->node, option_row(OPTION_GROUP_BYTES)->name,
		    option_row(OPTION_GROUP_REGIONS)->name);
	group_set_limits(g);
	HASH_ADD(hh, b->groups, key, sizeof(g->key), g);
	if (!g->hh.tbl) {
		free(g);
		return -ENOMEM;
	}
	*ret = g;
	return 0;
}

int group_ref(struct broker *b, uint32_t uid, const char *name,
	      struct group **ret)
{
	struct group_key key = { .uid = uid };
	struct group *g;
	size_t i;
	int r;

	if (!*name)
		name = GROUP_DEFAULT_NAME;
	for (i = 0; name[i]; i++) {
		if (i == GROUP_NAME_BYTES - 1 || name[i] <= ' ' || name[i] > '~')
			return -EINVAL;
		key.name[i] = name[i];
	}
	HASH_FIND(hh, b->groups, &key, sizeof(key), g);
	if (!g) {
		r = group_new(b, &key, &g);
		if (r)
			return r;
	} else if (g->n_spaces >= broker_option(b, OPTION_GROUP_SPACES)) {
		return -EDQUOT;
	}
	g->n_spaces++;
	*ret = g;
	return 0;
}

void group_unref(struct group *g)
{
	if (--g->n_spaces)
		return;
	ledger_deinit(&g->ledger);
	HASH_DEL(g->broker->groups, g);
	free(g);
}
