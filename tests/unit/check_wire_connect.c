/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of libregc/wire.h: which broker is found, and which is refused. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/suite.h"
#include "tests/unit/wire_fixture.h"

START_TEST(default_socket_is_the_users)
{
	unsigned int me = geteuid();
	char path[PATH_MAX], want[64], deep[PATH_MAX];

	regc_wire_default_socket(0, path, sizeof(path));
	ck_assert_str_eq(path, "/run/regc/regcached.sock");

	/* The variable is for this process's own user only. */
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	snprintf(want, sizeof(want), "/tmp/regc-%u/regcached.sock", me + 1);
	regc_wire_default_socket(me + 1, path, sizeof(path));
	ck_assert_str_eq(path, want);
	if (me != 0) {
		regc_wire_default_socket(me, path, sizeof(path));
		ck_assert_str_eq(path, "/run/user/7/regc/regcached.sock");
		memset(deep, 'd', sizeof(deep));
		deep[0] = '/';
		deep[120] = '\0';
		setenv("XDG_RUNTIME_DIR", deep, 1);
		regc_wire_default_socket(me, path, sizeof(path));
		ck_assert_str_eq(path, "");
		unsetenv("XDG_RUNTIME_DIR");
	}

	ck_assert_uint_gt(strlen(want), 8);
	regc_wire_default_socket(me + 1, path, 8);
	ck_assert_str_eq(path, "");
	regc_wire_default_socket(me + 1, path, strlen(want));
	ck_assert_str_eq(path, "");
	regc_wire_default_socket(me + 1, path, strlen(want) + 1);
	ck_assert_str_eq(path, want);
}
END_TEST

static int listen_at(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	ck_assert_int_eq(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(sock, 4), 0);
	return sock;
}

START_TEST(connect_takes_the_path_then_the_variable)
{
	char dir[] = "/tmp/check_wire.XXXXXX";
	char a[64], b[64], got[64] = "";
	int sock_a, sock_b, sock = -1;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(a, sizeof(a), "%s/a", dir);
	snprintf(b, sizeof(b), "%s/b", dir);
	sock_a = listen_at(a);
	sock_b = listen_at(b);
	setenv("REGC_SOCKET", b, 1);

	ck_assert_int_eq(regc_wire_connect(a, &sock, got, sizeof(got)), 0);
	ck_assert_str_eq(got, a);
	ck_assert_int_eq(fcntl(sock, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(fcntl(sock, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	close(sock);
	ck_assert_int_eq(regc_wire_connect(NULL, &sock, got, sizeof(got)), 0);
	ck_assert_str_eq(got, b);
	close(sock);
	ck_assert_int_eq(regc_wire_connect(NULL, &sock, NULL, 0), 0);
	close(sock);

	/* A path that was named and is dead is not exchanged for another. */
	close(sock_b);
	sock = -1;
	ck_assert_int_eq(regc_wire_connect(NULL, &sock, got, sizeof(got)),
			 -ECONNREFUSED);
	unlink(b);
	ck_assert_int_eq(regc_wire_connect(NULL, &sock, got, sizeof(got)), -ENOENT);
	ck_assert_int_eq(sock, -1);
	close(sock_a);
	unlink(a);
	rmdir(dir);
}
END_TEST

START_TEST(connect_refuses_a_path_that_does_not_fit)
{
	char path[200];
	int before = wire_count_fds(), sock = -1;

	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[108] = '\0';
	ck_assert_int_eq(regc_wire_connect(path, &sock, NULL, 0), -ENAMETOOLONG);
	path[107] = '\0';
	ck_assert_int_eq(regc_wire_connect(path, &sock, NULL, 0), -ENOENT);
	ck_assert_int_eq(sock, -1);
	ck_assert_int_eq(wire_count_fds(), before);
}
END_TEST

/* Needs root: listens as another user, then connects as root does. */
START_TEST(connect_refuses_a_broker_of_another_user)
{
	char dir[] = "/tmp/check_wire.XXXXXX";
	char path[64];
	int before, listener, sock = -1;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0777), 0);
	snprintf(path, sizeof(path), "%s/s", dir);
	ck_assert_int_eq(seteuid(65533), 0);
	listener = listen_at(path);
	ck_assert_int_eq(seteuid(0), 0);
	before = wire_count_fds();
	ck_assert_int_eq(regc_wire_connect(path, &sock, NULL, 0), -EPERM);
	ck_assert_int_eq(sock, -1);
	ck_assert_int_eq(wire_count_fds(), before);

	/* The user itself takes it. */
	ck_assert_int_eq(seteuid(65533), 0);
	ck_assert_int_eq(regc_wire_connect(path, &sock, NULL, 0), 0);
	close(sock);
	ck_assert_int_eq(seteuid(0), 0);
	close(listener);
	unlink(path);
	rmdir(dir);
}
END_TEST

static Suite *wire_connect_suite(void)
{
	Suite *s = suite_create("wire connect");
	TCase *t = tcase_create("connect");

	tcase_add_test(t, default_socket_is_the_users);
	tcase_add_test(t, connect_takes_the_path_then_the_variable);
	tcase_add_test(t, connect_refuses_a_path_that_does_not_fit);
	if (geteuid() == 0)
		tcase_add_test(t, connect_refuses_a_broker_of_another_user);
	else
		printf("connect_refuses_a_broker_of_another_user: needs root\n");
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(wire_connect_suite());
}
