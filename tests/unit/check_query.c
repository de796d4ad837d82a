/* SPDX-License-Identifier: BSD-2-Clause */
/* regc-ctl: a question and its answers, against a broker made of a few lines. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/query.h"
#include "libregc/wire.h"
#include "tests/support/suite.h"

#define WAIT_MS 5000

/* ---- the other side ---------------------------------------------------- */

struct server {
	char dir[64], path[96];
	int listener;
	pid_t pid;
};

struct session {
	struct regc_wire wire;
	uint8_t scratch[REGC_WIRE_MAX_BYTES];
	int sock;
};

static struct server server;

static void server_reply(struct session *s, Regc__AdminReply *reply)
{
	Regc__Frame frame = REGC__FRAME__INIT;

	frame.body_case = REGC__FRAME__BODY_ADMIN_REPLY;
	frame.admin_reply = reply;
	if (regc_wire_send(s->sock, &frame, NULL, 0, s->scratch) < 0)
		_exit(1);
}

/* The next question, which must be an Admin. */
static Regc__Admin *server_question(struct session *s)
{
	Regc__Frame *frame;

	if (regc_wire_recv_wait(&s->wire, s->sock, WAIT_MS, &frame) < 0 ||
	    frame->body_case != REGC__FRAME__BODY_ADMIN)
		_exit(1);
	return frame->admin;
}

static void server_start(void (*play)(struct session *))
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct session *s = malloc(sizeof(*s));

	ck_assert_ptr_nonnull(s);
	strcpy(server.dir, "/tmp/regc-check.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(server.dir));
	snprintf(server.path, sizeof(server.path), "%s/sock", server.dir);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", server.path);
	server.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(server.listener, 0);
	ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&addr,
			      sizeof(addr)), 0);
	ck_assert_int_eq(listen(server.listener, 4), 0);
	server.pid = fork();
	ck_assert_int_ge(server.pid, 0);
	if (server.pid == 0) {
		regc_wire_init(&s->wire);
		s->sock = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
		play(s);
		_exit(0);
	}
	free(s);
}

static void server_end(void)
{
	int status;

	ck_assert_int_eq(waitpid(server.pid, &status, 0), server.pid);
	ck_assert_int_eq(status, 0);
	close(server.listener);
	unlink(server.path);
	rmdir(server.dir);
}

/* ---- this side --------------------------------------------------------- */

struct seen {
	unsigned int n_replies, n_enough;
	uint64_t last;
};

static int see(const Regc__AdminReply *reply, void *arg)
{
	struct seen *seen = arg;

	seen->n_replies++;
	seen->last = reply->n_rows ? reply->rows[0]->cells[0]->number : 0;
	return seen->n_replies == seen->n_enough;
}

/* What query_run() says on stderr goes to a file, and to ret. */
static int ask(const char *path, struct seen *seen, char *ret, size_t size)
{
	Regc__Admin admin = REGC__ADMIN__INIT;
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	size_t n;
	int r;

	ck_assert_ptr_nonnull(file);
	admin.kind = REGC__ADMIN_KIND__ADMIN_REGIONS;
	admin.pid = 7;
	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	r = query_run(path, &admin, see, seen);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(file);
	n = fread(ret, 1, size - 1, file);
	ret[n] = '\0';
	fclose(file);
	return r;
}

static void reply_number(struct session *s, uint64_t number, int more,
			 uint64_t cursor)
{
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;
	Regc__Cell cell = REGC__CELL__INIT, *cells[] = { &cell };
	Regc__Row row = REGC__ROW__INIT, *rows[] = { &row };

	cell.number = number;
	row.cells = cells;
	row.n_cells = 1;
	reply.rows = rows;
	reply.n_rows = 1;
	reply.more = more;
	reply.cursor = cursor;
	server_reply(s, &reply);
}

static void play_stream(struct session *s)
{
	server_question(s);
	reply_number(s, 1, 1, 0);
	reply_number(s, 2, 1, 0);
	reply_number(s, 3, 0, 0);
}

START_TEST(replies_are_read_until_the_last)
{
	struct seen seen = { 0 };
	char text[256];

	server_start(play_stream);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), 0);
	ck_assert_uint_eq(seen.n_replies, 3);
	ck_assert_uint_eq(seen.last, 3);
	ck_assert_str_eq(text, "");
	server_end();
}
END_TEST

/* Each further question is the first one with the cursor of the last reply. */
static void play_cursor(struct session *s)
{
	static const uint64_t cursors[] = { 0, 10, 20 };
	Regc__Admin *admin;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		admin = server_question(s);
		if (admin->cursor != cursors[i] || admin->pid != 7)
			_exit(1);
		reply_number(s, i, i < 2, i < 2 ? cursors[i + 1] : 0);
	}
}

START_TEST(a_cursor_is_followed)
{
	struct seen seen = { 0 };
	char text[256];

	server_start(play_cursor);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), 0);
	ck_assert_uint_eq(seen.n_replies, 3);
	server_end();
}
END_TEST

static void play_two(struct session *s)
{
	server_question(s);
	reply_number(s, 1, 1, 0);
	reply_number(s, 2, 1, 0);
}

START_TEST(enough_ends_the_query)
{
	struct seen seen = { .n_enough = 2 };
	char text[256];

	server_start(play_two);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), 1);
	ck_assert_uint_eq(seen.n_replies, 2);
	server_end();
}
END_TEST

static void play_refusal(struct session *s)
{
	Regc__AdminReply reply = REGC__ADMIN_REPLY__INIT;

	server_question(s);
	reply.err = -EPERM;
	reply.text = (char *)"space 7 belongs to another user";
	server_reply(s, &reply);
}

START_TEST(a_refusal_is_told_in_the_brokers_words)
{
	struct seen seen = { 0 };
	char text[256];

	server_start(play_refusal);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), -1);
	ck_assert_uint_eq(seen.n_replies, 0);
	ck_assert_str_eq(text, "regc-ctl: space 7 belongs to another user\n");
	server_end();
}
END_TEST

static void play_cut(struct session *s)
{
	server_question(s);
	reply_number(s, 1, 1, 0);
}

START_TEST(an_answer_cut_short_is_an_error)
{
	struct seen seen = { 0 };
	char text[256];

	server_start(play_cut);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), -1);
	ck_assert_ptr_nonnull(strstr(text, "before its answer was complete"));
	ck_assert_ptr_nonnull(strstr(text, server.path));
	server_end();
}
END_TEST

static void play_nonsense(struct session *s)
{
	Regc__Rescan rescan = REGC__RESCAN__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	server_question(s);
	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	regc_wire_send(s->sock, &frame, NULL, 0, s->scratch);
}

START_TEST(another_protocol_is_an_error)
{
	struct seen seen = { 0 };
	char text[256];

	server_start(play_nonsense);
	ck_assert_int_eq(ask(server.path, &seen, text, sizeof(text)), -1);
	ck_assert_ptr_nonnull(strstr(text, "does not speak the protocol"));
	server_end();
}
END_TEST

START_TEST(no_broker_names_the_socket_and_the_cure)
{
	struct seen seen = { 0 };
	char text[256];

	ck_assert_int_eq(ask("/nonexistent/sock", &seen, text, sizeof(text)),
			 -1);
	ck_assert_ptr_nonnull(strstr(text, "\"/nonexistent/sock\""));
	ck_assert_ptr_nonnull(strstr(text, "start regcached"));
	ck_assert_ptr_null(strchr(strchr(text, '\n') + 1, '\n'));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("query");
	TCase *tc = tcase_create("query");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, replies_are_read_until_the_last);
	tcase_add_test(tc, a_cursor_is_followed);
	tcase_add_test(tc, enough_ends_the_query);
	tcase_add_test(tc, a_refusal_is_told_in_the_brokers_words);
	tcase_add_test(tc, an_answer_cut_short_is_an_error);
	tcase_add_test(tc, another_protocol_is_an_error);
	tcase_add_test(tc, no_broker_names_the_socket_and_the_cure);
	return suite_run(suite);
}
