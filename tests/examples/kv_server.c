/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The server of kvtable: a thread for each connection and one for completions.
 *
 * A GET takes the value's lock only until its reply is queued, so a PUT of the
 * same key may come while the reply waits for a slow client.  What happens then is
 * the difference between the modes.
 *
 * No deadlock: a PUT that waits for a transfer holds the lock of its value; the
 * thread of completions takes no such lock, so the transfer completes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/examples/example.h"
#include "tests/examples/kvtable.h"

struct value {
	pthread_mutex_t lock;
	uint64_t sum;
	char *data; /* KV_VALUE_BYTES */
};

struct reply {
	struct ex_send send; /* first: the queue gives it back */
	struct kv_head head;
	struct regc_transfer transfer; /* id 0: none */
	char *copy;		       /* KV_VALUE_BYTES to copy to */
	bool used;
};

static struct {
	enum kv_mode mode;
	struct kv_result *result;
	struct value values[KV_KEYS];
	struct regc_library *lib;
	struct regc_domain *dom;
	struct io_uring ring;
	pthread_mutex_t lock; /* of all below; taken inside of a value's lock */
	pthread_cond_t freed;
	struct ex_queue queue;
	struct reply replies[KV_WINDOW];
	uint32_t n_used;
	bool ended;
} server;

/* ---- replies ------------------------------------------------------------- */

static struct reply *reply_new(void)
{
	struct reply *r = server.replies;

	pthread_mutex_lock(&server.lock);
	while (server.n_used == KV_WINDOW)
		pthread_cond_wait(&server.freed, &server.lock);
	while (r->used)
		r++;
	r->used = true;
	r->transfer.id = 0;
	server.n_used++;
	pthread_mutex_unlock(&server.lock);
	return r;
}

static void reply_posted(struct ex_send *s)
{
	struct reply *r = (struct reply *)s;

	if (r->transfer.id)
		ex_must("regc_transfer_posted", regc_transfer_posted(&r->transfer));
}

/* The device reads the value no more. */
static void reply_done(struct ex_send *s)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	struct reply *r = (struct reply *)s;

	if (r->transfer.id) {
		ex_must("regc_transfer_complete",
			regc_transfer_complete(&r->transfer, &info));
		server.result->blocked += !!(info.flags & REGC_TRANSFER_BLOCKED);
		server.result->copied += !!(info.flags & REGC_TRANSFER_COPIED);
		server.result->damaged += !!(info.flags & REGC_TRANSFER_DAMAGED);
		server.result->timed_out +=
			!!(info.flags & REGC_TRANSFER_TIMED_OUT);
	}
	regc_put(&s->lease);
	r->used = false;
	server.n_used--;
	pthread_cond_signal(&server.freed);
}

static void lease(struct reply *r, const char *data)
{
	r->send.data = data;
	ex_must("regc_get", regc_get(server.dom, data, KV_VALUE_BYTES,
				     REGC_ACCESS_LOCAL_READ, &r->send.lease));
}

/*
 * Protects the value until the reply has gone; false: it must be copied.  Where
 * writers get copies the pages may have been replaced since the get: -ESTALE.
 */
static bool protect(struct reply *r)
{
	static const uint32_t policies[KV_N_MODES] = {
		[KV_REGC] = REGC_POLICY_BLOCK,
		[KV_REGC_COPY] = REGC_POLICY_COPY,
	};
	struct regc_transfer_attr attr = { .size = sizeof(attr),
					   .policy = policies[server.mode] };
	int err = regc_transfer_begin(&r->send.lease, r->send.data, KV_VALUE_BYTES,
				      REGC_SEND, &attr, &r->transfer);

	if (!err)
		return true;
	r->transfer.id = 0;
	if (err != -ESTALE)
		ex_die("regc_transfer_begin", err);
	server.result->failed++;
	return false;
}

/* With the lock of the value: the reply is what the value is now. */
static void reply_take(struct reply *r, struct value *v)
{
	bool copy = server.mode == KV_COPYING;

	r->head.sum = v->sum;
	if (!copy)
		lease(r, v->data);
	if (server.mode >= KV_REGC && !protect(r)) {
		regc_put(&r->send.lease);
		copy = true;
	}
	if (copy) {
		memcpy(r->copy, v->data, KV_VALUE_BYTES);
		lease(r, r->copy);
	}
}

static void *serve_gets(void *arg)
{
	int fd = *(int *)arg;
	struct kv_head head;
	struct reply *r;
	struct value *v;

	server.queue.fd = fd;
	while (ex_read(fd, &head, sizeof(head))) {
		v = &server.values[head.key % KV_KEYS];
		r = reply_new();
		r->head = (struct kv_head){ .key = head.key,
					    .len = KV_VALUE_BYTES };
		r->send.head = &r->head;
		r->send.head_len = sizeof(r->head);
		r->send.len = KV_VALUE_BYTES;
		pthread_mutex_lock(&v->lock);
		reply_take(r, v);
		pthread_mutex_unlock(&v->lock);
		pthread_mutex_lock(&server.lock);
		ex_queue_add(&server.queue, &r->send);
		pthread_mutex_unlock(&server.lock);
	}
	pthread_mutex_lock(&server.lock);
	while (server.n_used)
		pthread_cond_wait(&server.freed, &server.lock);
	server.ended = true;
	io_uring_prep_nop(io_uring_get_sqe(&server.ring));
	io_uring_submit(&server.ring);
	pthread_mutex_unlock(&server.lock);
	return NULL;
}

static void *take_completions(void *arg)
{
	struct io_uring_cqe *cqe, copy;
	bool ended = false;
	int r;

	(void)arg;
	while (!ended) {
		r = io_uring_wait_cqe(&server.ring, &cqe);
		if (r == -EINTR)
			continue;
		ex_must("io_uring_wait_cqe", r);
		copy = *cqe;
		io_uring_cqe_seen(&server.ring, cqe);
		pthread_mutex_lock(&server.lock);
		ended = server.ended;
		if (!ended)
			ex_queue_take(&server.queue, &copy);
		pthread_mutex_unlock(&server.lock);
	}
	return NULL;
}

/* ---- puts ---------------------------------------------------------------- */

/* Times that this thread gave up its processor to wait for something. */
static long times_slept(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void store(struct value *v, const char *data, struct kv_puts *puts)
{
	uint64_t start = ex_now_ns(), ns;
	long slept = times_slept();

	memcpy(v->data, data, KV_VALUE_BYTES);
	ns = ex_now_ns() - start;
	puts->n++;
	if (times_slept() == slept)
		return;
	puts->n_waited++;
	puts->wait_ns += ns;
	if (ns > puts->max_ns)
		puts->max_ns = ns;
}

struct put_job {
	int fd;
	enum kv_kind kind;
};

/* A value is replaced by one that arrived whole. */
static void *serve_puts(void *arg)
{
	struct put_job *job = arg;
	char *data = ex_map(KV_VALUE_BYTES);
	struct kv_head head;
	struct value *v;

	while (ex_read(job->fd, &head, sizeof(head)) &&
	       ex_read(job->fd, data, KV_VALUE_BYTES)) {
		v = &server.values[head.key % KV_KEYS];
		pthread_mutex_lock(&v->lock);
		store(v, data, &server.result->puts[job->kind]);
		v->sum = head.sum;
		pthread_mutex_unlock(&v->lock);
		ex_write(job->fd, &head, sizeof(head));
	}
	return NULL;
}

/* ---- the server ---------------------------------------------------------- */

static void make_table(void)
{
	char *mem = ex_map(KV_KEYS * KV_VALUE_BYTES);
	struct regc_lease first;

	for (uint32_t i = 0; i < KV_KEYS; i++) {
		struct value *v = &server.values[i];

		pthread_mutex_init(&v->lock, NULL);
		v->data = mem + i * KV_VALUE_BYTES;
		ex_fill(v->data, KV_VALUE_BYTES, i);
		v->sum = ex_sum(v->data, KV_VALUE_BYTES);
	}
	for (uint32_t i = 0; i < KV_WINDOW; i++)
		server.replies[i].copy = ex_map(KV_VALUE_BYTES);
	/* All of it at once: the gets of the values are hits from the first on. */
	ex_must("regc_get", regc_get(server.dom, mem, KV_KEYS * KV_VALUE_BYTES,
				     REGC_ACCESS_LOCAL_READ, &first));
	regc_put(&first);
}

/* False: this machine cannot protect memory, and result says why. */
static bool can_protect(void)
{
	struct regc_transfer t;
	struct regc_lease l;
	int err;

	ex_must("regc_get", regc_get(server.dom, server.values[0].data,
				     KV_VALUE_BYTES, 0, &l));
	err = regc_transfer_begin(&l, server.values[0].data, KV_VALUE_BYTES,
				  REGC_SEND, NULL, &t);
	if (!err)
		err = regc_transfer_abort(&t, NULL);
	regc_put(&l);
	if (!err)
		return true;
	snprintf(server.result->why, sizeof(server.result->why), "%s",
		 regc_strerror(err));
	server.result->skip = 1;
	return false;
}

static uint64_t cpu_with_broker(void)
{
	struct regc_status status = { .size = sizeof(status) };

	regc_status(server.lib, &status);
	return ex_cpu_ns(getpid()) +
	       (status.broker_pid ? ex_cpu_ns((pid_t)status.broker_pid) : 0);
}

void kv_serve(int listener, enum kv_mode mode, struct kv_result *result)
{
	struct put_job jobs[KV_N_KINDS];
	pthread_t threads[KV_N_KINDS], completer;
	uint64_t cpu;

	server.mode = mode;
	server.result = result;
	server.lib = ex_open("kvtable");
	ex_ring(&server.ring, 4 * KV_WINDOW);
	ex_must("regc_domain_uring", regc_domain_uring(server.lib,
						       server.ring.ring_fd, 0,
						       &server.dom));
	server.queue = (struct ex_queue){ .ring = &server.ring,
					  .posted = reply_posted,
					  .done = reply_done };
	pthread_mutex_init(&server.lock, NULL);
	pthread_cond_init(&server.freed, NULL);
	make_table();
	if (mode >= KV_REGC && !can_protect())
		return;
	for (int i = 0; i < KV_N_KINDS; i++)
		jobs[i] = (struct put_job){ .fd = ex_accept(listener),
					    .kind = (enum kv_kind)i };
	cpu = cpu_with_broker();
	for (int i = 0; i < KV_N_KINDS; i++)
		if (pthread_create(&threads[i], NULL,
				   i == KV_GET ? serve_gets : serve_puts,
				   &jobs[i]))
			ex_die("pthread_create", 0);
	if (pthread_create(&completer, NULL, take_completions, NULL))
		ex_die("pthread_create", 0);
	for (int i = 0; i < KV_N_KINDS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(completer, NULL);
	result->cpu_ns = cpu_with_broker() - cpu;
	ex_must("regc_domain_close", regc_domain_close(server.dom));
	ex_must("regc_close", regc_close(server.lib));
	io_uring_queue_exit(&server.ring);
}
