/* SPDX-License-Identifier: BSD-2-Clause */
/* The broker: owns the objects and wires them together; see broker.h. */
#include "regcached/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#include "regcached/admin.h"
#include "regcached/client.h"
#include "regcached/group.h"
#include "regcached/log.h"
#include "regcached/space.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/segment.h"

#define ACCEPTS_A_TURN 16
#define STAMP_EVERY_NS UINT64_C(1000000)
#define SLICE_NS 1000000
#define FDS_OF_OURS 512 /* and of packets that bring more than they may */
#define FDS_A_CLIENT 6	/* socket, pidfd, doorbell, table, area, userfaultfd */
#define OPERATOR_CLIENTS 8 /* beyond, so that regc-ctl can be asked why */
#define ACCEPT_RETRY_MS 100

/* ---- work ---------------------------------------------------------------- */

void broker_add_work(struct broker *b, struct work *w)
{
	if (w->queued)
		return;
	w->queued = true;
	DL_APPEND(b->work, w);
}

void broker_del_work(struct broker *b, struct work *w)
{
	if (!w->queued)
		return;
	w->queued = false;
	DL_DELETE(b->work, w);
}

bool broker_slice_is_over(const struct broker *b)
{
	return rtab_now_ns() >= b->slice_end_ns;
}

/*
 * One step of each that is there now, as far as the slice goes, but of one at
 * least; a step may add and delete others.
 */
static void do_work(struct broker *b)
{
	struct work *w;
	int n;

	b->slice_end_ns = rtab_now_ns() + SLICE_NS;
	DL_COUNT(b->work, w, n);
	for (; n > 0 && b->work; n--) {
		w = b->work;
		broker_del_work(b, w);
		if (w->fn(w->arg))
			broker_add_work(b, w);
		if (broker_slice_is_over(b))
			break;
	}
}

/* ---- spaces -------------------------------------------------------------- */

struct space *broker_find_space(struct broker *b, uint32_t id)
{
	struct space *s;

	HASH_FIND(hh, b->spaces, &id, sizeof(id), s);
	return s;
}

/*
 * Spaces are in the order in which they came, and so, but once in 2^32 attaches,
 * in order of id; what goes wrong then is a listing.
 */
struct space *broker_space_from(struct broker *b, uint32_t id)
{
	struct space *s = broker_find_space(b, id);

	if (s)
		return s;
	for (s = b->spaces; s && s->id < id; s = s->hh.next)
		;
	return s;
}

/* ---- turns --------------------------------------------------------------- */

static void reap(struct broker *b)
{
	bool any = false;

	while (b->dying) {
		client_free(b->dying);
		any = true;
	}
	if (!any)
		return;
	/* There may be a descriptor, or budget, for others now. */
	loop_mod(&b->loop, &b->listen_source, EPOLLIN);
	reclaim_serve(&b->reclaim);
}

/*
 * Records that came without a doorbell, or between one and the other.  False: no
 * ring has any.
 */
static bool drain_rings(struct broker *b)
{
	struct space *s = broker_space_from(b, b->drain_from);
	bool any = false;
	uint32_t n;

	b->slice_end_ns = rtab_now_ns() + SLICE_NS;
	for (n = b->n_spaces; n > 0; n--, s = s->hh.next) {
		if (!s)
			s = b->spaces;
		if (s->client->dead || !space_ring_pending(s))
			continue;
		if (any && broker_slice_is_over(b)) {
			b->drain_from = s->id;
			break;
		}
		any = true;
		if (space_drain(s) < 0)
			client_drop(s->client, -EPROTO,
				    "request ring makes no sense");
	}
	client_flush_voided(b);
	return any;
}

static int timeout_ms(struct broker *b)
{
	int ms = reclaim_timeout_ms(&b->reclaim);

	if (b->work || b->dying)
		return 0;
	if (!b->listen_source.events && (ms < 0 || ms > ACCEPT_RETRY_MS))
		ms = ACCEPT_RETRY_MS;
	return ms;
}

/*
 * Gets take their stamp from here (shm/layout.h): a process that only hits does
 * not look old beside one that misses.
 */
static void set_stamps(struct broker *b)
{
	uint64_t now = rtab_now_ns();
	struct space *s, *next;

	if (now - b->stamped_ns < STAMP_EVERY_NS)
		return;
	b->stamped_ns = now;
	now = (now >> RTAB_STAMP_SHIFT_NS) * RTAB_STAMP_ONE;
	HASH_ITER(hh, b->spaces, s, next)
		rtab_store_relaxed(&s->writer.view.table->stamp, now);
}

void broker_turn(struct broker *b)
{
	bool paused;
	int ms;

	b->stats.turns++;
	do_work(b);
	client_flush_voided(b);
	reap(b);
	reclaim_run(&b->reclaim);
	life_sleep(&b->life); /* B1 */
	if (drain_rings(b))
		ms = 0; /* and look again, with the doorbell on */
	else
		ms = timeout_ms(b);
	paused = !b->listen_source.events;
	loop_wait(&b->loop, ms);
	life_wake(&b->life);
	set_stamps(b);
	loop_dispatch(&b->loop);
	client_flush_voided(b);
	reclaim_run(&b->reclaim);
	if (paused)
		loop_mod(&b->loop, &b->listen_source, EPOLLIN);
	reap(b);
}

static void listen_event(void *arg, uint32_t events)
{
	struct broker *b = arg;
	int i, fd;

	(void)events;
	for (i = 0; i < ACCEPTS_A_TURN; i++) {
		fd = listener_accept(&b->listener);
		if (fd == -EAGAIN)
			return;
		if (fd < 0) {
			/* No descriptor: not asked again at once, or we spin. */
			log_warn("cannot accept: %s", strerror(-fd));
			loop_mod(&b->loop, &b->listen_source, 0);
			return;
		}
		b->stats.connections++;
		client_new(b, fd);
	}
}

/* ---- options ------------------------------------------------------------- */

void broker_apply_options(struct broker *b, const struct options *options)
{
	struct group *g;
	struct space *s;

	if (&b->options != options)
		b->options = *options;
	log_set_level((enum log_level)broker_option(b, OPTION_LOG_LEVEL));
	b->node.max[LEDGER_BYTES] = broker_option(b, OPTION_NODE_BYTES);
	b->node.max[LEDGER_REGIONS] = broker_option(b, OPTION_NODE_REGIONS);
	for (g = b->groups; g; g = g->hh.next)
		group_set_limits(g);
	for (s = b->spaces; s; s = s->hh.next)
		space_set_limits(s);
	reclaim_serve(&b->reclaim);
}

/* ---- making and freeing -------------------------------------------------- */

/* As many connections as there are descriptors for. */
static uint32_t max_clients(void)
{
	struct rlimit limit;
	uint64_t n;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 64;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			getrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur < 2 * FDS_OF_OURS)
		log_warn("only %llu descriptors (RLIMIT_NOFILE): a client that "
			 "sends many could stall the broker",
			 (unsigned long long)limit.rlim_cur);
	n = limit.rlim_cur -
	    rtab_min_u64(FDS_OF_OURS, limit.rlim_cur / 2);
	return (uint32_t)rtab_min_u64(n / FDS_A_CLIENT, UINT32_MAX);
}

static bool is_operator(const struct broker *b, uint32_t uid)
{
	return uid == 0 || uid == b->uid;
}

bool broker_has_fds(const struct broker *b, uint32_t uid)
{
	uint64_t held = aside_n_fds_all(b->aside);
	uint64_t max = b->max_clients;

	if (is_operator(b, uid))
		max += OPERATOR_CLIENTS;
	return b->n_clients + held / FDS_A_CLIENT <= max;
}

uint64_t broker_user_connections(const struct broker *b, uint32_t uid)
{
	uint64_t max = broker_option(b, OPTION_USER_CONNECTIONS);

	return is_operator(b, uid) ? max :
				     rtab_min_u64(max, b->max_clients / 4 + 1);
}

static int broker_listen(struct broker *b, const char *path)
{
	int r = listener_init(&b->listener, path);

	if (r)
		return r;
	b->listen_source.fd = b->listener.fd;
	b->listen_source.fn = listen_event;
	b->listen_source.arg = b;
	r = loop_add(&b->loop, &b->listen_source, EPOLLIN);
	if (r)
		log_error("cannot watch the socket: %s", strerror(-r));
	return r;
}

int broker_new(const struct options *options, const char *path,
	       struct broker **ret)
{
	struct broker *b = calloc(1, sizeof(*b));
	int r = -ENOMEM;

	if (!b) {
		log_error("no memory");
		return r;
	}
	b->life.fd = -1;
	b->listener.fd = -1;
	b->listener.lock_fd = -1;
	b->loop.epoll_fd = -1;
	b->uid = geteuid();
	b->started_ns = rtab_now_ns();
	b->max_clients = max_clients();
	regc_wire_init(&b->wire);
	ledger_init(&b->node, NULL, option_row(OPTION_NODE_BYTES)->name,
		    option_row(OPTION_NODE_REGIONS)->name);
	reclaim_init(&b->reclaim, b);
	b->uffd_device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (b->uffd_device < 0)
		log_info("no /dev/userfaultfd to pass on: %s", strerror(errno));
	broker_apply_options(b, options);
	b->page = admin_page_new();
	r = b->page ? loop_init(&b->loop) : -ENOMEM;
	if (!r)
		r = aside_new(&b->aside);
	if (!r)
		r = life_init(&b->life);
	if (r)
		log_error("cannot start: %s", strerror(-r));
	else
		r = broker_listen(b, path);
	if (r) {
		broker_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

struct broker *broker_free(struct broker *b)
{
	if (!b)
		return NULL;
	/* Nobody finds us any more, then everybody is told. */
	if (b->loop.epoll_fd >= 0)
		loop_del(&b->loop, &b->listen_source);
	listener_deinit(&b->listener);
	life_deinit(&b->life);
	while (b->clients)
		client_kill(b->clients, "the broker ends");
	while (b->dying)
		client_free(b->dying);
	reclaim_deinit(&b->reclaim);
	ledger_deinit(&b->node);
	admin_page_free(b->page);
	if (b->uffd_device >= 0)
		close(b->uffd_device);
	b->aside = aside_free(b->aside);
	loop_deinit(&b->loop);
	free(b);
	return NULL;
}
