/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client of kvtable: one connection that reads, with KV_WINDOW requests under
 * way, and two that write.  It checks every reply, which makes it slower than
 * the server, so replies queue there.  Writes come in a fixed ratio to the reads.
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/examples/example.h"
#include "tests/examples/kvtable.h"

struct writer {
	int fd;
	uint32_t key; /* first; then every second */
	sem_t todo;
	bool ended; /* written before the last post of todo */
	pthread_t thread;
};

static void *write_values(void *arg)
{
	struct writer *w = arg;
	char *data = ex_map(KV_VALUE_BYTES);
	struct kv_head head = { .key = w->key, .len = KV_VALUE_BYTES };
	uint64_t version = 1;

	for (;; version++) {
		sem_wait(&w->todo);
		if (w->ended)
			return NULL;
		ex_fill(data, KV_VALUE_BYTES, version << 8 | head.key);
		head.sum = ex_sum(data, KV_VALUE_BYTES);
		ex_write(w->fd, &head, sizeof(head));
		ex_write(w->fd, data, KV_VALUE_BYTES);
		if (!ex_read(w->fd, &head, sizeof(head)))
			ex_die("the server has gone", 0);
		head.key = (head.key + 2) % KV_KEYS;
	}
}

static void ask(int fd, uint64_t n)
{
	/* All even keys in turn, in steps that are no order of the table. */
	struct kv_head head = { .key = (uint32_t)(n * 6) % KV_KEYS };

	ex_write(fd, &head, sizeof(head));
}

static void tell(struct writer *w)
{
	int waiting;

	/* Those that do not keep up write less. */
	if (!sem_getvalue(&w->todo, &waiting) && waiting < 2)
		sem_post(&w->todo);
}

/*
 * Has the run shown what it is for?  A machine that is busy with other things needs
 * longer than it was given.
 */
static bool shown(enum kv_mode mode, const struct kv_result *result)
{
	return result->gets >= KV_MIN_GETS &&
	       (mode != KV_UNPROTECTED || result->torn) &&
	       (mode != KV_REGC || rtab_load_relaxed(&result->blocked)) &&
	       (mode != KV_REGC_COPY || rtab_load_relaxed(&result->copied));
}

static bool over(enum kv_mode mode, double ns, double seconds,
		 const struct kv_result *result)
{
	return ns > seconds * 1e9 && (shown(mode, result) || ns > KV_LIMIT_NS);
}

static void read_values(int fd, enum kv_mode mode, double seconds,
			struct writer *writers, struct kv_result *result)
{
	char *data = ex_map(KV_VALUE_BYTES);
	uint64_t start = ex_now_ns(), asked = 0;
	struct kv_head head;

	while (asked < KV_WINDOW)
		ask(fd, asked++);
	for (; result->gets < asked; result->gets++) {
		if (!ex_read(fd, &head, sizeof(head)) ||
		    !ex_read(fd, data, KV_VALUE_BYTES))
			ex_die("the server has gone", 0);
		result->torn += ex_sum(data, KV_VALUE_BYTES) != head.sum;
		if (!over(mode, (double)(ex_now_ns() - start), seconds, result))
			ask(fd, asked++);
		if (result->gets % KV_GETS_FOR_PUT == 0)
			for (int i = KV_PUT_READ_KEYS; i < KV_N_KINDS; i++)
				tell(&writers[i]);
	}
	result->ns = ex_now_ns() - start;
}

void kv_ask(uint16_t port, enum kv_mode mode, double seconds,
	    struct kv_result *result)
{
	static struct writer writers[KV_N_KINDS];
	int fd = ex_connect(port);

	for (int i = KV_PUT_READ_KEYS; i < KV_N_KINDS; i++) {
		struct writer *w = &writers[i];

		w->fd = ex_connect(port);
		w->key = i == KV_PUT_OTHER_KEYS;
		sem_init(&w->todo, 0, 0);
		if (pthread_create(&w->thread, NULL, write_values, w))
			ex_die("pthread_create", 0);
	}
	read_values(fd, mode, seconds, writers, result);
	for (int i = KV_PUT_READ_KEYS; i < KV_N_KINDS; i++) {
		writers[i].ended = true;
		sem_post(&writers[i].todo);
		pthread_join(writers[i].thread, NULL);
		close(writers[i].fd);
	}
	close(fd);
}
