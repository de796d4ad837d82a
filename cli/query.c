/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One question to the broker and its answers.
 *
 * A listing that does not fit one packet comes in several.  The broker either
 * sends them one after another (more, no cursor) or keeps no state and wants to
 * be asked again from where it stopped (more and a cursor); both are followed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/query.h"
#include "libregc/wire.h"

struct query {
	struct regc_wire wire;
	uint8_t scratch[REGC_WIRE_MAX_BYTES];
	char path[256]; /* of the socket that answered, or those tried */
	int sock;
};

/* The names regc_wire_connect() goes through, for the message. */
static void sockets_tried(const char *socket, char *ret, size_t size)
{
	char own[128], node[128];
	const char *env = secure_getenv("REGC_SOCKET");

	if (!socket && env && *env)
		socket = env;
	if (socket) {
		snprintf(ret, size, "\"%s\"", socket);
		return;
	}
	regc_wire_default_socket(geteuid(), own, sizeof(own));
	regc_wire_default_socket(0, node, sizeof(node));
	if (!*own || !strcmp(own, node))
		snprintf(ret, size, "\"%s\"", node);
	else
		snprintf(ret, size, "\"%s\" and \"%s\"", own, node);
}

static int query_connect(struct query *q, const char *socket)
{
	char tried[320];
	int r = regc_wire_connect(socket, &q->sock, q->path, sizeof(q->path));

	if (r == 0)
		return 0;
	q->sock = -1;
	sockets_tried(socket, tried, sizeof(tried));
	if (r == -EPERM)
		fprintf(stderr, "regc-ctl: the broker at %s belongs to neither "
			"root nor this user, so it is not trusted\n", tried);
	else
		fprintf(stderr, "regc-ctl: no broker answers at %s (%s): start "
			"regcached, or name its socket with --socket or "
			"REGC_SOCKET\n", tried, strerror(-r));
	return -1;
}

static int complain(const struct query *q, int err)
{
	if (err == -ETIMEDOUT)
		fprintf(stderr, "regc-ctl: the broker at \"%s\" did not answer "
			"within %d s\n", q->path, QUERY_TIMEOUT_MS / 1000);
	else if (err == -ECONNRESET || err == -EPIPE)
		fprintf(stderr, "regc-ctl: the broker at \"%s\" closed the "
			"connection before its answer was complete\n", q->path);
	else if (err == -EPROTO)
		fprintf(stderr, "regc-ctl: what answers at \"%s\" does not "
			"speak the protocol of regc\n", q->path);
	else
		fprintf(stderr, "regc-ctl: the broker at \"%s\": %s\n", q->path,
			strerror(-err));
	return -1;
}

static int query_ask(struct query *q, const Regc__Admin *question,
		     uint64_t cursor)
{
	Regc__Admin admin = *question;
	Regc__Frame frame = REGC__FRAME__INIT;
	int r;

	admin.cursor = cursor;
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = &admin;
	r = regc_wire_send(q->sock, &frame, NULL, 0, q->scratch);
	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* refused: its last words can still be read */
	return r < 0 ? complain(q, r) : 0;
}

/* The broker's own words for what is wrong: a refusal or a bad request. */
static int refused(int err, const char *text)
{
	if (text && *text)
		fprintf(stderr, "regc-ctl: %s\n", text);
	else
		fprintf(stderr, "regc-ctl: the broker refused: %s\n",
			strerror(abs(err)));
	return -1;
}

/* *ret_reply: borrowed until the next packet. */
static int query_next(struct query *q, const Regc__AdminReply **ret_reply)
{
	Regc__Frame *frame;
	int r = regc_wire_recv_wait(&q->wire, q->sock, QUERY_TIMEOUT_MS,
				    &frame);

	if (r < 0)
		return complain(q, r);
	if (frame->body_case == REGC__FRAME__BODY_ERROR)
		return refused(frame->error->err, frame->error->text);
	if (frame->body_case != REGC__FRAME__BODY_ADMIN_REPLY)
		return complain(q, -EPROTO);
	if (frame->admin_reply->err != 0)
		return refused(frame->admin_reply->err,
			       frame->admin_reply->text);
	*ret_reply = frame->admin_reply;
	return 0;
}

static int query_follow(struct query *q, const Regc__Admin *question,
			query_reply_fn fn, void *arg)
{
	const Regc__AdminReply *reply = NULL;
	uint64_t cursor;
	int more;
	int r = query_ask(q, question, question->cursor);

	while (r == 0) {
		r = query_next(q, &reply);
		if (r < 0)
			break;
		more = reply->more;
		cursor = reply->cursor;
		r = fn(reply, arg);
		if (r != 0 || !more)
			break;
		if (cursor != 0)
			r = query_ask(q, question, cursor);
	}
	return r;
}

int query_run(const char *socket, const Regc__Admin *question,
	      query_reply_fn fn, void *arg)
{
	struct query *q = malloc(sizeof(*q));
	int r;

	if (!q) {
		fprintf(stderr, "regc-ctl: out of memory\n");
		return -1;
	}
	regc_wire_init(&q->wire);
	r = query_connect(q, socket);
	if (r == 0) {
		r = query_follow(q, question, fn, arg);
		regc_wire_drop_fds(&q->wire);
		close(q->sock);
	}
	free(q);
	return r;
}
