/* SPDX-License-Identifier: BSD-2-Clause */
/* A client: one connection; see client.h. */
#define HASH_NONFATAL_OOM 1
#include "regcached/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "libregc/regc.h"
#include "regcached/admin.h"
#include "regcached/group.h"
#include "regcached/log.h"
#include "regcached/reclaim.h"
#include "regcached/space.h"
#include "shm/base.h"
#include "shm/segment.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define FRAMES_A_TURN 16
#define OUT_MAX_BYTES (128 * 1024)
#define UNASKED_MAX_FDS 256 /* of a user, that wait for their close */
#define HELD_SLACK 64	   /* sockets of a user, that wait for their close */

struct client_packet {
	struct client_packet *prev, *next;
	uint32_t bytes;
	uint8_t data[];
};

/* ---- output -------------------------------------------------------------- */

void client_update_events(struct client *c)
{
	uint32_t events = EPOLLRDHUP;

	/* A listing under way: the next question waits in the socket. */
	if (!c->job)
		events |= EPOLLIN;
	if (c->out || c->owes_rescan)
		events |= EPOLLOUT;
	loop_mod(&c->broker->loop, &c->source, events);
}

int client_try_send(struct client *c, const Regc__Frame *frame)
{
	int r;

	if (c->dead)
		return -EPIPE;
	if (c->out)
		return -EAGAIN;
	r = regc_wire_send(c->fd, frame, NULL, 0, c->broker->scratch);
	if (r && r != -EAGAIN)
		client_kill(c, "cannot be sent to");
	return r;
}

void client_send(struct client *c, const Regc__Frame *frame)
{
	struct client_packet *packet;
	size_t n;

	if (client_try_send(c, frame) != -EAGAIN)
		return;
	n = regc__frame__get_packed_size(frame);
	if (c->out_bytes + n > OUT_MAX_BYTES) {
		client_drop(c, -ENOBUFS, "does not read what it is sent");
		return;
	}
	packet = malloc(sizeof(*packet) + n);
	if (!packet) {
		client_drop(c, -ENOMEM, "no memory for what it is sent");
		return;
	}
	packet->bytes = (uint32_t)regc__frame__pack(frame, packet->data);
	c->out_bytes += packet->bytes;
	DL_APPEND(c->out, packet);
	client_update_events(c);
}

void client_send_error(struct client *c, int err, const char *text)
{
	Regc__Error error = REGC__ERROR__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	error.err = err;
	error.text = (char *)text;
	frame.body_case = REGC__FRAME__BODY_ERROR;
	frame.error = &error;
	client_send(c, &frame);
}

static void drop_output(struct client *c)
{
	struct client_packet *packet, *tmp;

	DL_FOREACH_SAFE(c->out, packet, tmp) {
		DL_DELETE(c->out, packet);
		free(packet);
	}
	c->out_bytes = 0;
}

/* Sends what was kept, as far as it goes. */
static void flush_output(struct client *c)
{
	struct client_packet *packet;
	ssize_t n;

	while ((packet = c->out)) {
		n = send(c->fd, packet->data, packet->bytes,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n < 0) {
			client_kill(c, "cannot be sent to");
			return;
		}
		DL_DELETE(c->out, packet);
		c->out_bytes -= packet->bytes;
		free(packet);
	}
	if (c->owes_rescan)
		client_tell_rescan(c);
}

void client_tell_rescan(struct client *c)
{
	Regc__Rescan rescan = REGC__RESCAN__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	c->owes_rescan = client_try_send(c, &frame) == -EAGAIN;
	if (!c->owes_rescan)
		c->broker->stats.rescans++;
	client_update_events(c);
}

void client_flush_voided(struct broker *b)
{
	struct voided_batch *batch = &b->voided;
	struct client *c = batch->client;
	Regc__Voided voided = REGC__VOIDED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	batch->client = NULL;
	if (!c || c->dead || c->owes_rescan)
		return;
	voided.n_slots = batch->n;
	voided.slots = batch->slots;
	voided.cause = batch->cause;
	frame.body_case = REGC__FRAME__BODY_VOIDED;
	frame.voided = &voided;
	if (client_try_send(c, &frame) == -EAGAIN) {
		c->owes_rescan = true;
		client_update_events(c);
	}
}

void client_tell_voided(struct client *c, uint32_t slot, uint32_t cause)
{
	struct voided_batch *batch = &c->broker->voided;

	if (batch->client != c || batch->cause != cause ||
	    batch->n == REGC_WIRE_MAX_SLOTS)
		client_flush_voided(c->broker);
	if (!batch->client) {
		batch->client = c;
		batch->cause = cause;
		batch->n = 0;
	}
	batch->slots[batch->n++] = slot;
}

/* ---- the end ------------------------------------------------------------- */

void client_kill(struct client *c, const char *why)
{
	struct broker *b = c->broker;

	if (c->dead)
		return;
	c->dead = true;
	log_debug("connection ends: pid %u: %s", c->pid, why);
	loop_del(&b->loop, &c->source);
	loop_del(&b->loop, &c->pid_source);
	loop_del(&b->loop, &c->bell_source);
	DL_DELETE(b->clients, c);
	DL_APPEND(b->dying, c);
}

void client_drop(struct client *c, int err, const char *why)
{
	Regc__Error error = REGC__ERROR__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	if (c->dead)
		return;
	log_warn("client dropped: pid %u uid %u: %s", c->pid, c->uid, why);
	c->broker->stats.dropped++;
	error.err = err;
	error.text = (char *)why;
	frame.body_case = REGC__FRAME__BODY_ERROR;
	frame.error = &error;
	client_try_send(c, &frame);
	client_kill(c, why);
}

static void user_unref(struct broker *b, struct user *u)
{
	if (!u || --u->n_connections)
		return;
	admin_user_deinit(b, u);
	HASH_DEL(b->users, u);
	free(u);
}

void client_free(struct client *c)
{
	struct broker *b = c->broker;

	if (b->voided.client == c)
		b->voided.client = NULL;
	admin_cancel(c);
	if (c->space) {
		reclaim_forget(&b->reclaim, c->space);
		log_debug("space ends: space %u pid %u", c->space->id, c->pid);
		c->space = space_free(c->space);
	}
	drop_output(c);
	DL_DELETE(b->dying, c);
	user_unref(b, c->user);
	b->n_clients--;
	/* A peer that sent descriptors nobody received: their close may wait. */
	aside_close_socket(b->aside, c->uid, c->fd);
	if (c->pid_fd >= 0)
		close(c->pid_fd);
	if (c->doorbell >= 0)
		close(c->doorbell);
	free(c);
}

/* ---- messages ------------------------------------------------------------ */

static uint32_t choose_mode(uint32_t policy, uint32_t wanted)
{
	if (policy == REGC_MODE_OFF || policy == REGC_MODE_STRICT)
		return policy;
	if (wanted == REGC_MODE_STRICT)
		return REGC_MODE_STRICT;
	if (policy == REGC_MODE_FAST || wanted == REGC_MODE_FAST)
		return REGC_MODE_FAST;
	return REGC_MODE_AUTO;
}

static uint32_t choose_capacity(const struct broker *b, uint32_t had)
{
	uint32_t capacity = (uint32_t)rtab_round_up(
		broker_option(b, OPTION_SPACE_REGIONS), RTAB_READY_STEP);

	return had ? (uint32_t)rtab_min_u64(had, capacity) : capacity;
}

static void send_welcome(struct client *c, uint32_t mode, bool device)
{
	struct broker *b = c->broker;
	struct space *s = c->space;
	Regc__Welcome welcome = REGC__WELCOME__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;
	int fds[4] = { s->writer.fd, b->life.fd, c->doorbell, b->uffd_device };
	int r;

	welcome.version = REGC_WIRE_VERSION;
	welcome.space = s->id;
	welcome.group = s->group->key.name;
	welcome.capacity = s->writer.view.index.capacity;
	welcome.mode = mode;
	welcome.hard_bytes = broker_option(b, OPTION_SPACE_HARD_BYTES);
	welcome.max_region_bytes = broker_option(b, OPTION_REGION_MAX_BYTES);
	welcome.has_uffd_device = device;
	frame.body_case = REGC__FRAME__BODY_WELCOME;
	frame.welcome = &welcome;
	r = regc_wire_send(c->fd, &frame, fds, device ? 4 : 3, b->scratch);
	if (r)
		client_drop(c, r, "cannot be sent its table");
}

static void bell_event(void *arg, uint32_t events)
{
	struct client *c = arg;

	(void)events;
	/*
	 * Edge-triggered, never read: a peer that changed O_NONBLOCK or reads
	 * it itself cannot make this wait.  The ring is looked at anyway.
	 */
	if (c->space && space_drain(c->space) < 0)
		client_drop(c, -EPROTO, "request ring makes no sense");
}

static int make_doorbell(struct client *c)
{
	c->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->doorbell < 0)
		return -errno;
	c->bell_source.fd = c->doorbell;
	c->bell_source.fn = bell_event;
	c->bell_source.arg = c;
	return loop_add(&c->broker->loop, &c->bell_source, EPOLLIN | EPOLLET);
}

static void refuse_hello(struct client *c, int err, const char *text)
{
	c->broker->stats.refused++;
	log_warn("attach refused: pid %u uid %u: %s", c->pid, c->uid, text);
	client_send_error(c, err, text);
}

/* Nobody gets from a broker of root what the system denies him. */
static bool may_have_device(const struct client *c)
{
	const struct broker *b = c->broker;
	uint64_t policy = broker_option(b, OPTION_UFFD_DEVICE);
	struct stat st;

	if (b->uffd_device < 0 || policy == OPTION_DEVICE_NO)
		return false;
	if (policy == OPTION_DEVICE_YES || c->uid == 0 || c->uid == b->uid)
		return true;
	return fstat(b->uffd_device, &st) == 0 &&
	       ((st.st_mode & 06) == 06 ||
		(st.st_uid == c->uid && (st.st_mode & 0600) == 0600));
}

static void on_hello(struct client *c, const Regc__Hello *hello)
{
	struct broker *b = c->broker;
	char text[128];
	bool device;
	int r;

	if (c->space) {
		client_drop(c, -EPROTO, "says hello twice");
		return;
	}
	if (hello->version_min > REGC_WIRE_VERSION ||
	    hello->version_max < REGC_WIRE_VERSION) {
		snprintf(text, sizeof(text),
			 "this broker speaks version %d of the protocol",
			 REGC_WIRE_VERSION);
		refuse_hello(c, -EPROTONOSUPPORT, text);
		return;
	}
	if (hello->capacity % RTAB_READY_STEP ||
	    hello->capacity > RTAB_MAX_CAPACITY) {
		refuse_hello(c, -EINVAL, "the capacity of the area is bad");
		return;
	}
	if (b->n_spaces >= broker_option(b, OPTION_NODE_SPACES)) {
		refuse_hello(c, -EDQUOT,
			     "limit.node.spaces of the broker is reached");
		return;
	}
	r = space_new(b, c, hello->group, hello->program,
		      choose_capacity(b, hello->capacity), &c->space);
	if (!r && c->doorbell < 0)
		r = make_doorbell(c);
	if (r) {
		c->space = space_free(c->space);
		snprintf(text, sizeof(text), "%s",
			 r == -EINVAL ? "the group's name is bad" :
			 r == -EDQUOT ? "limit.group.spaces of the broker is "
					"reached" : strerror(-r));
		refuse_hello(c, r, text);
		return;
	}
	c->space->hello_capacity = hello->capacity;
	device = hello->want_uffd_device && may_have_device(c);
	send_welcome(c, choose_mode((uint32_t)broker_option(b, OPTION_MODE),
				    hello->mode), device);
}

static void on_attach(struct client *c, const Regc__Attach *attach)
{
	static const uint64_t none[LEDGER_N_UNITS];
	struct broker *b = c->broker;
	struct space *s = c->space;
	Regc__Attached attached = REGC__ATTACHED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;
	uint64_t want[LEDGER_N_UNITS], got[LEDGER_N_UNITS];
	struct ledger_full full;
	int fds[2] = { -1, -1 }, r; /* area, userfaultfd */

	if (!s || s->attached) {
		client_drop(c, -EPROTO, "attaches out of turn");
		return;
	}
	fds[0] = regc_wire_take_fd(&b->wire, 0);
	if (attach->has_uffd)
		fds[1] = regc_wire_take_fd(&b->wire, 1);
	r = fds[0] < 0 || (attach->has_uffd && fds[1] < 0) ? -EPROTO : 0;
	if (!r)
		r = space_attach(s, attach->why, fds[0], fds[1]);
	if (r) {
		aside_close(b->aside, c->uid, ASIDE_UNASKED, fds, 2);
		client_drop(c, r, "its area or userfaultfd is not acceptable");
		return;
	}
	log_info("attached: space %u pid %u uid %u group %s program \"%s\"",
		 s->id, s->pid, s->uid, s->group->key.name, s->program);
	/* Needing nothing, this takes a chunk or what there is. */
	space_want(s, want);
	if (ledger_take(&s->ledger, none, want, got, &full))
		memset(got, 0, sizeof(got));
	attached.bytes = got[LEDGER_BYTES];
	attached.regions = got[LEDGER_REGIONS];
	frame.body_case = REGC__FRAME__BODY_ATTACHED;
	frame.attached = &attached;
	client_send(c, &frame);
}

static void on_need(struct client *c, const Regc__Need *need)
{
	uint64_t amount[LEDGER_N_UNITS] = {
		[LEDGER_BYTES] = need->bytes,
		[LEDGER_REGIONS] = need->regions,
	};

	reclaim_need(&c->broker->reclaim, c, need->ticket, amount);
}

static void on_released(struct client *c, const Regc__Released *released)
{
	struct space *s = c->space;
	uint64_t amount[LEDGER_N_UNITS] = {
		[LEDGER_BYTES] = released->bytes,
		[LEDGER_REGIONS] = released->regions,
	};
	bool bad = false, kept = false;
	int unit;

	for (unit = 0; unit < LEDGER_N_UNITS; unit++) {
		bad = bad || amount[unit] > s->ledger.used[unit];
		kept = kept || amount[unit] >
			s->ledger.used[unit] - s->told[unit];
		amount[unit] = rtab_min_u64(amount[unit],
			s->ledger.used[unit] - s->told[unit]);
	}
	ledger_give(&s->ledger, amount);
	if (s->ask.ticket && released->ticket == s->ask.ticket) {
		s->ask.ticket = 0;
		s->ask.dry_ns = amount[0] || amount[1] ? 0 : rtab_now_ns();
	}
	if (bad)
		client_drop(c, -EPROTO, "gives back more than it was given");
	else if (kept)
		log_warn("pid %u gives back what its regions hold", c->pid);
	reclaim_serve(&c->broker->reclaim);
}

static void on_attached_message(struct client *c, const Regc__Frame *frame)
{
	/* Its records came first: what they say counts for the message. */
	if (space_drain(c->space) < 0) {
		client_drop(c, -EPROTO, "request ring makes no sense");
		return;
	}
	c->space->ask.silent = false;
	if (frame->body_case == REGC__FRAME__BODY_NEED)
		on_need(c, frame->need);
	else
		on_released(c, frame->released);
}

static void on_frame(struct client *c, const Regc__Frame *frame)
{
	switch (frame->body_case) {
	case REGC__FRAME__BODY_HELLO:
		on_hello(c, frame->hello);
		break;
	case REGC__FRAME__BODY_ATTACH:
		on_attach(c, frame->attach);
		break;
	case REGC__FRAME__BODY_NEED:
	case REGC__FRAME__BODY_RELEASED:
		if (!c->space || !c->space->attached)
			client_drop(c, -EPROTO, "is not attached");
		else
			on_attached_message(c, frame);
		break;
	case REGC__FRAME__BODY_ADMIN:
		admin_start(c, frame->admin);
		break;
	default:
		client_send_error(c, -EOPNOTSUPP, "unknown request");
		break;
	}
}

/* Whatever nobody took; a close may wait, so not here. */
static void close_unasked(void *arg, const int *fds, int n)
{
	struct client *c = arg;

	aside_close(c->broker->aside, c->uid, ASIDE_UNASKED, fds, n);
}

/* Has its user sent too many descriptors whose close does not end? */
static bool is_clogged(const struct client *c)
{
	return aside_n_fds(c->broker->aside, c->uid, ASIDE_UNASKED) >
	       UNASKED_MAX_FDS;
}

static void client_input(struct client *c)
{
	struct broker *b = c->broker;
	Regc__Frame *frame;
	int n, r;

	b->wire.close_fds = close_unasked;
	b->wire.close_arg = c;
	for (n = 0; n < FRAMES_A_TURN && !c->dead && !c->job; n++) {
		if (is_clogged(c)) {
			client_drop(c, -EDQUOT, "its user's descriptors do not close");
			break;
		}
		r = regc_wire_recv(&b->wire, c->fd, &frame);
		if (r == -EAGAIN)
			break;
		if (r == -EPROTO)
			client_drop(c, r, "sends what is not a frame");
		else if (r)
			client_kill(c, "closed by the peer");
		else
			on_frame(c, frame);
		regc_wire_drop_fds(&b->wire);
	}
	client_flush_voided(b);
}

static void client_event(void *arg, uint32_t events)
{
	struct client *c = arg;

	if (events & EPOLLOUT)
		flush_output(c);
	if (!c->dead && (events & EPOLLIN))
		client_input(c);
	else if (!c->dead && (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
		client_kill(c, "closed by the peer");
	if (!c->dead) {
		admin_resume(c);
		client_update_events(c);
	}
}

static void pid_event(void *arg, uint32_t events)
{
	(void)events;
	client_kill(arg, "its process ended");
}

/* ---- the beginning ------------------------------------------------------- */

/*
 * May uid have one more than n connections?  Sockets of ended ones that are still
 * open count too, but for those that are just being closed.
 */
static int check_user(struct broker *b, uint32_t uid, uint32_t n)
{
	uint64_t max = broker_user_connections(b, uid);
	uint64_t held = aside_n_fds(b->aside, uid, ASIDE_SOCKET);

	if (n >= max || n + held >= max + HELD_SLACK)
		return -EDQUOT;
	if (aside_n_fds(b->aside, uid, ASIDE_UNASKED) > UNASKED_MAX_FDS)
		return -EBUSY;
	return 0;
}

static int user_ref(struct broker *b, uint32_t uid, struct user **ret)
{
	struct user *u;
	int r;

	HASH_FIND(hh, b->users, &uid, sizeof(uid), u);
	r = check_user(b, uid, u ? u->n_connections : 0);
	if (r)
		return r;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		u->uid = uid;
		admin_user_init(u);
		HASH_ADD(hh, b->users, uid, sizeof(u->uid), u);
		if (!u->hh.tbl) {
			free(u);
			return -ENOMEM;
		}
	}
	u->n_connections++;
	*ret = u;
	return 0;
}

/* Why one more was refused. */
static const char *refusal(int err)
{
	switch (err) {
	case -EDQUOT:
		return "limit.user.connections of the broker is reached";
	case -EBUSY:
		return "descriptors that this user sent do not close";
	default:
		return "the broker has no descriptor or memory left";
	}
}

/* A descriptor for the process at the other end, not for one of its number. */
static int peer_pid_fd(int fd, pid_t pid)
{
	socklen_t len = sizeof(int);
	int pid_fd;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pid_fd, &len) == 0)
		return pid_fd; /* close-on-exec by itself */
	if (errno != ENOPROTOOPT || pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int client_watch(struct client *c)
{
	struct broker *b = c->broker;
	int r;

	c->source.fd = c->fd;
	c->source.fn = client_event;
	c->source.arg = c;
	r = loop_add(&b->loop, &c->source, EPOLLIN | EPOLLRDHUP);
	if (r || c->pid_fd < 0)
		return r;
	c->pid_source.fd = c->pid_fd;
	c->pid_source.fn = pid_event;
	c->pid_source.arg = c;
	return loop_add(&b->loop, &c->pid_source, EPOLLIN);
}

int client_new(struct broker *b, int fd)
{
	struct client *c = calloc(1, sizeof(*c));
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int r = -ENOMEM;

	if (!c) {
		aside_close_socket(b->aside, b->uid, fd);
		return r;
	}
	c->broker = b;
	c->fd = fd;
	c->pid_fd = -1;
	c->doorbell = -1;
	b->n_clients++;
	DL_APPEND(b->clients, c);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		client_kill(c, "has no credentials");
		return -EPROTO;
	}
	c->pid = (uint32_t)cred.pid;
	c->uid = cred.uid;
	r = broker_has_fds(b, c->uid) ? user_ref(b, c->uid, &c->user) : -EMFILE;
	if (r) {
		b->stats.refused++;
		log_warn("connection refused: pid %u uid %u: %s", c->pid,
			 c->uid, refusal(r));
		client_send_error(c, r, refusal(r));
		client_kill(c, "over a limit");
		return r;
	}
	c->pid_fd = peer_pid_fd(fd, cred.pid);
	r = client_watch(c);
	if (r)
		client_kill(c, "cannot be watched");
	return r;
}
