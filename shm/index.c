/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Path-copying B+tree with quarantine; the promises are in index.h.
 *
 * Key i of an inner node is the smallest start below child i, exactly: every
 * change copies the whole path, so it costs nothing to keep exact.  Unused keys
 * are ~0, so that a search compares a fixed number of keys without branches.
 *
 * A free node is linked through pad and carries the swap after which it was
 * freed in reserved[]; readers never look at either field.
 *
 * Label I1.  Reader: s1 = seq; root; nodes; fence; s2 = seq.  Writer: new nodes;
 * root (release); seq (release); fence; only then may a node freed by swap f be
 * written again, and only when seq >= f + RTAB_QUARANTINE.  A reader that began
 * at s1 uses a root of swap >= s1, whose nodes are freed later than s1.  If it
 * saw a byte of a reused node, the writer's fence and its own order s2 after a
 * seq >= s1 + RTAB_QUARANTINE, and it tries again.
 *
 * Fill: two neighbours that together hold RTAB_MERGE_KEYS or fewer are joined
 * when one of them loses a key, so on average a node is at least a third full.
 */
#include "shm/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shm/atomic.h"
#include "shm/base.h"

#define RTAB_MERGE_KEYS 14
#define RTAB_NIL UINT32_MAX
#define RTAB_FULL 2 /* a walk found more than it may store */
#define RTAB_POPULATE_NODES 64 /* four pages at a time */

struct rtab_index_writer {
	struct rtab_table *table;
	struct rtab_node *nodes;
	uint32_t n_nodes;
	uint32_t n_fresh;     /* nodes below were used once */
	uint32_t n_populated; /* nodes below have memory */
	uint32_t free_head;   /* oldest of the quarantine */
	uint32_t free_tail;
	uint32_t n_free;
	uint64_t seq;
	/* nodes of the operation under way */
	uint32_t made[4 * RTAB_MAX_HEIGHT];
	uint32_t n_made;
	uint32_t dropped[4 * RTAB_MAX_HEIGHT];
	uint32_t n_dropped;
};

/* Keys and values of one node being built, with room for a split or a join. */
struct build {
	uint32_t n;
	uint64_t key[2 * RTAB_NODE_KEYS + 2];
	uint32_t val[2 * RTAB_NODE_KEYS + 2];
};

/* What a level hands to the one above. */
struct outcome {
	uint32_t n; /* 0: the node is empty now; 2: it was split */
	uint32_t node[2];
	uint64_t key[2];
};

/* ---- readers ------------------------------------------------------------ */

/* Greatest i with key[i] <= addr, given key[0] <= addr. */
static inline uint32_t node_floor(const struct rtab_node *node, uint64_t addr)
{
	const uint64_t *k = node->key;
	uint32_t i;

	i = 5 * ((rtab_load_relaxed(&k[5]) <= addr) +
		 (rtab_load_relaxed(&k[10]) <= addr) +
		 (rtab_load_relaxed(&k[15]) <= addr));
	return i + (rtab_load_relaxed(&k[i + 1]) <= addr) +
	       (rtab_load_relaxed(&k[i + 2]) <= addr) +
	       (rtab_load_relaxed(&k[i + 3]) <= addr) +
	       (rtab_load_relaxed(&k[i + 4]) <= addr);
}

/* One try; RTAB_BUSY also where what it reads makes no sense. */
static int floor_once(const struct rtab_index *index, uint64_t root, uint64_t addr,
		      uint32_t *ret_slot, uint64_t *ret_start)
{
	uint64_t at = root - 1;
	uint32_t depth, i;

	for (depth = 0; depth < RTAB_MAX_HEIGHT; depth++) {
		const struct rtab_node *node;

		if (RTAB_UNLIKELY(at >= index->n_nodes))
			return RTAB_BUSY;
		node = &index->nodes[at];
		if (rtab_load_relaxed(&node->key[0]) > addr)
			return depth == 0 ? -ENOENT : RTAB_BUSY;
		i = node_floor(node, addr);
		at = rtab_load_relaxed(&node->val[i]);
		if (rtab_load_relaxed(&node->height) == 0) {
			*ret_slot = (uint32_t)at;
			*ret_start = rtab_load_relaxed(&node->key[i]);
			return at < index->capacity ? 0 : RTAB_BUSY;
		}
	}
	return RTAB_BUSY;
}

int rtab_index_floor(const struct rtab_index *index, uint32_t cls, uint64_t addr,
		     uint32_t *ret_slot, uint64_t *ret_start)
{
	uint64_t before, root;
	int tries, r;

	for (tries = 0; tries < RTAB_SEARCH_TRIES; tries++) {
		before = rtab_load_acquire(index->seq); /* I1 */
		root = rtab_load_acquire(&index->classes[cls].root);
		if (!root)
			return -ENOENT;
		r = floor_once(index, root, addr, ret_slot, ret_start);
		rtab_fence_acquire(); /* I1 */
		if (r != RTAB_BUSY &&
		    rtab_load_relaxed(index->seq) - before < RTAB_QUARANTINE)
			return r;
	}
	return RTAB_BUSY;
}

struct range_walk {
	const struct rtab_index *index;
	uint64_t from, to;
	uint32_t *slots;
	uint32_t max;
	uint64_t last; /* start of the last slot stored */
	int64_t n;
};

static int range_node(struct range_walk *walk, uint64_t at, uint32_t depth)
{
	const struct rtab_node *node;
	uint32_t i, n, val;
	int r;

	if (depth >= RTAB_MAX_HEIGHT || at >= walk->index->n_nodes)
		return RTAB_BUSY;
	node = &walk->index->nodes[at];
	n = rtab_load_relaxed(&node->n);
	if (n > RTAB_NODE_KEYS)
		return RTAB_BUSY;
	i = rtab_load_relaxed(&node->key[0]) <= walk->from ?
		    node_floor(node, walk->from) : 0;
	for (; i < n && rtab_load_relaxed(&node->key[i]) < walk->to; i++) {
		val = rtab_load_relaxed(&node->val[i]);
		if (rtab_load_relaxed(&node->height) > 0) {
			r = range_node(walk, val, depth + 1);
			if (r)
				return r;
			continue;
		}
		if (val >= walk->index->capacity)
			return RTAB_BUSY;
		if (walk->n++ >= (int64_t)walk->max)
			return RTAB_FULL;
		walk->slots[walk->n - 1] = val;
		walk->last = rtab_load_relaxed(&node->key[i]);
	}
	return 0;
}

int64_t rtab_index_range(const struct rtab_index *index, uint32_t cls,
			 uint64_t from, uint64_t to, uint32_t *ret_slots,
			 uint32_t max, uint64_t *ret_last)
{
	struct range_walk walk = {
		.index = index, .from = from, .to = to,
		.slots = ret_slots, .max = max,
	};
	uint64_t before, root;
	int tries, r;

	for (tries = 0; tries < RTAB_SEARCH_TRIES; tries++) {
		before = rtab_load_acquire(index->seq); /* I1 */
		root = rtab_load_acquire(&index->classes[cls].root);
		if (!root)
			return 0;
		walk.n = 0;
		r = range_node(&walk, root - 1, 0);
		rtab_fence_acquire(); /* I1 */
		if (r == RTAB_BUSY ||
		    rtab_load_relaxed(index->seq) - before >= RTAB_QUARANTINE)
			continue;
		if (ret_last)
			*ret_last = walk.last;
		return walk.n;
	}
	return -EBUSY;
}

/* ---- writer: nodes ------------------------------------------------------ */

int rtab_index_writer_new(struct rtab_table *table, struct rtab_index_writer **ret)
{
	struct rtab_index_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->table = table;
	w->nodes = (struct rtab_node *)((char *)table +
					rtab_off_nodes(table->capacity));
	w->n_nodes = table->n_nodes;
	w->free_head = RTAB_NIL;
	w->free_tail = RTAB_NIL;
	*ret = w;
	return 0;
}

struct rtab_index_writer *rtab_index_writer_free(struct rtab_index_writer *w)
{
	free(w);
	return NULL;
}

uint32_t rtab_index_nodes_used(const struct rtab_index_writer *w)
{
	return w->n_fresh - w->n_free;
}

static uint64_t node_freed_at(const struct rtab_node *node)
{
	return node->reserved[0] | (uint64_t)node->reserved[1] << 32;
}

static bool node_take_free(struct rtab_index_writer *w, uint32_t *ret)
{
	struct rtab_node *node;

	if (w->free_head == RTAB_NIL)
		return false;
	node = &w->nodes[w->free_head];
	if (w->seq < node_freed_at(node) + RTAB_QUARANTINE)
		return false;
	*ret = w->free_head;
	w->free_head = node->pad;
	if (w->free_head == RTAB_NIL)
		w->free_tail = RTAB_NIL;
	w->n_free--;
	return true;
}

/* Memory is asked for here, so that its lack is an error and not a SIGBUS. */
static bool node_take_fresh(struct rtab_index_writer *w, uint32_t *ret)
{
	if (w->n_fresh >= w->n_nodes)
		return false;
	if (w->n_fresh >= w->n_populated) {
		uint32_t n = RTAB_POPULATE_NODES;
		char *from = (char *)&w->nodes[w->n_populated];

		if (n > w->n_nodes - w->n_populated)
			n = w->n_nodes - w->n_populated;
		if (madvise((void *)rtab_round_down((uintptr_t)from, RTAB_PAGE),
			    (uint64_t)n * sizeof(struct rtab_node),
			    MADV_POPULATE_WRITE) < 0 &&
		    errno != EINVAL)
			return false;
		w->n_populated += n;
	}
	*ret = w->n_fresh++;
	return true;
}

static void node_put_free(struct rtab_index_writer *w, uint32_t at, uint64_t seq)
{
	struct rtab_node *node = &w->nodes[at];

	node->pad = RTAB_NIL;
	node->reserved[0] = (uint32_t)seq;
	node->reserved[1] = (uint32_t)(seq >> 32);
	if (w->free_tail == RTAB_NIL)
		w->free_head = at;
	else
		w->nodes[w->free_tail].pad = at;
	w->free_tail = at;
	w->n_free++;
}

static int node_make(struct rtab_index_writer *w, const struct build *b,
		     uint32_t from, uint32_t n, uint32_t height, uint32_t *ret)
{
	struct rtab_node *node;
	uint32_t at, i;

	if (!node_take_free(w, &at) && !node_take_fresh(w, &at))
		return -ENOSPC;
	node = &w->nodes[at];
	rtab_store_relaxed(&node->n, (uint16_t)n);
	rtab_store_relaxed(&node->height, (uint16_t)height);
	for (i = 0; i < RTAB_NODE_KEYS; i++) {
		uint64_t key = i < n ? b->key[from + i] : UINT64_MAX;
		uint32_t val = i < n ? b->val[from + i] : 0;

		rtab_store_relaxed(&node->key[i], key);
		rtab_store_relaxed(&node->val[i], val);
	}
	w->made[w->n_made++] = at;
	*ret = at;
	return 0;
}

/* One node of all of b, or two halves; at_end: ascending keys fill nodes. */
static int nodes_make(struct rtab_index_writer *w, const struct build *b,
		      uint32_t height, bool at_end, struct outcome *out)
{
	uint32_t left = b->n;
	int r;

	out->n = b->n > 0;
	if (b->n == 0)
		return 0;
	if (b->n > RTAB_NODE_KEYS) {
		left = at_end ? RTAB_NODE_KEYS : b->n / 2;
		out->n = 2;
		out->key[1] = b->key[left];
		r = node_make(w, b, left, b->n - left, height, &out->node[1]);
		if (r)
			return r;
	}
	out->key[0] = b->key[0];
	return node_make(w, b, 0, left, height, &out->node[0]);
}

static void build_load(struct build *b, const struct rtab_node *node)
{
	b->n = node->n;
	memcpy(b->key, node->key, node->n * sizeof(b->key[0]));
	memcpy(b->val, node->val, node->n * sizeof(b->val[0]));
}

/* Replaces entries [i, i + n_old) by the n_new given ones. */
static void build_replace(struct build *b, uint32_t i, uint32_t n_old,
			  const uint64_t *keys, const uint32_t *vals, uint32_t n_new)
{
	uint32_t tail = b->n - i - n_old;

	memmove(&b->key[i + n_new], &b->key[i + n_old], tail * sizeof(b->key[0]));
	memmove(&b->val[i + n_new], &b->val[i + n_old], tail * sizeof(b->val[0]));
	if (n_new) {
		memcpy(&b->key[i], keys, n_new * sizeof(b->key[0]));
		memcpy(&b->val[i], vals, n_new * sizeof(b->val[0]));
	}
	b->n += n_new - n_old;
}

static void node_drop(struct rtab_index_writer *w, uint32_t at)
{
	w->dropped[w->n_dropped++] = at;
}

/* ---- writer: operations ------------------------------------------------- */

static int insert_below(struct rtab_index_writer *w, uint32_t at, uint64_t start,
			uint32_t slot, bool rightmost, struct outcome *out)
{
	const struct rtab_node *node = &w->nodes[at];
	struct build b;
	struct outcome child;
	uint32_t i = 0;
	int r;

	build_load(&b, node);
	if (node->key[0] <= start)
		i = node_floor(node, start);
	if (node->height == 0) {
		if (b.key[i] == start)
			return -EEXIST;
		i += b.key[i] < start;
		build_replace(&b, i, 0, &start, &slot, 1);
		rightmost = rightmost && i == b.n - 1;
	} else {
		rightmost = rightmost && i == b.n - 1;
		r = insert_below(w, b.val[i], start, slot, rightmost, &child);
		if (r)
			return r;
		build_replace(&b, i, 1, child.key, child.node, child.n);
	}
	node_drop(w, at);
	return nodes_make(w, &b, node->height, rightmost, out);
}

/* Joins child i of b with a neighbour where both are small. */
static int join_children(struct rtab_index_writer *w, struct build *b, uint32_t i)
{
	const struct rtab_node *left, *right;
	struct build joined, more;
	struct outcome out;
	uint32_t first, k;
	int r;

	for (k = 0; k < 2; k++) {
		if (k == 0 ? i + 1 >= b->n : i == 0)
			continue;
		first = k == 0 ? i : i - 1;
		left = &w->nodes[b->val[first]];
		right = &w->nodes[b->val[first + 1]];
		if (left->n + right->n > RTAB_MERGE_KEYS)
			continue;
		build_load(&joined, left);
		build_load(&more, right);
		build_replace(&joined, joined.n, 0, more.key, more.val, more.n);
		r = nodes_make(w, &joined, left->height, false, &out);
		if (r)
			return r;
		node_drop(w, b->val[first]);
		node_drop(w, b->val[first + 1]);
		build_replace(b, first, 2, out.key, out.node, 1);
		return 0;
	}
	return 0;
}

static int remove_below(struct rtab_index_writer *w, uint32_t at, uint64_t start,
			struct outcome *out)
{
	const struct rtab_node *node = &w->nodes[at];
	struct build b;
	struct outcome child;
	uint32_t i;
	int r;

	if (node->key[0] > start)
		return -ENOENT;
	build_load(&b, node);
	i = node_floor(node, start);
	if (node->height == 0) {
		if (b.key[i] != start)
			return -ENOENT;
		build_replace(&b, i, 1, NULL, NULL, 0);
	} else {
		r = remove_below(w, b.val[i], start, &child);
		if (r)
			return r;
		build_replace(&b, i, 1, child.key, child.node, child.n);
		if (child.n == 1) {
			r = join_children(w, &b, i);
			if (r)
				return r;
		}
	}
	node_drop(w, at);
	return nodes_make(w, &b, node->height, false, out);
}

static void op_begin(struct rtab_index_writer *w)
{
	w->n_made = 0;
	w->n_dropped = 0;
}

/* Nodes made by a failed operation were never reachable: free at once. */
static void op_abort(struct rtab_index_writer *w)
{
	uint32_t i;

	for (i = 0; i < w->n_made; i++)
		node_put_free(w, w->made[i], w->seq);
}

static void op_commit(struct rtab_index_writer *w, uint32_t cls, uint64_t root)
{
	uint32_t i;

	rtab_store_release(&w->table->classes[cls].root, root);
	w->seq++;
	rtab_store_release(&w->table->index_seq, w->seq); /* I1 */
	rtab_fence_release();				   /* I1 */
	for (i = 0; i < w->n_dropped; i++)
		node_put_free(w, w->dropped[i], w->seq);
}

/* The root of what an operation left: none, one node, or a new one above two. */
static int op_root(struct rtab_index_writer *w, struct outcome *out, uint64_t *ret)
{
	struct build b = { .n = 2 };
	const struct rtab_node *node;
	uint32_t at;
	int r;

	*ret = 0;
	if (out->n == 0)
		return 0;
	at = out->node[0];
	if (out->n == 2) {
		memcpy(b.key, out->key, sizeof(out->key));
		memcpy(b.val, out->node, sizeof(out->node));
		r = node_make(w, &b, 0, 2, w->nodes[at].height + 1u, &at);
		if (r)
			return r;
	}
	for (node = &w->nodes[at]; node->height > 0 && node->n == 1;
	     node = &w->nodes[at]) {
		node_drop(w, at);
		at = node->val[0];
	}
	*ret = (uint64_t)at + 1;
	return 0;
}

int rtab_index_insert(struct rtab_index_writer *w, uint32_t cls, uint64_t start,
		      uint32_t slot)
{
	uint64_t root = w->table->classes[cls].root;
	struct outcome out;
	struct build b;
	int r;

	op_begin(w);
	if (root) {
		r = insert_below(w, (uint32_t)(root - 1), start, slot, true, &out);
	} else {
		b.n = 1;
		b.key[0] = start;
		b.val[0] = slot;
		r = nodes_make(w, &b, 0, false, &out);
	}
	if (!r)
		r = op_root(w, &out, &root);
	if (r) {
		op_abort(w);
		return r;
	}
	op_commit(w, cls, root);
	return 0;
}

int rtab_index_remove(struct rtab_index_writer *w, uint32_t cls, uint64_t start)
{
	uint64_t root = w->table->classes[cls].root;
	struct outcome out;
	int r;

	if (!root)
		return -ENOENT;
	op_begin(w);
	r = remove_below(w, (uint32_t)(root - 1), start, &out);
	if (!r)
		r = op_root(w, &out, &root);
	if (r) {
		op_abort(w);
		return r;
	}
	op_commit(w, cls, root);
	return 0;
}
