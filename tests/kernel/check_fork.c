/* SPDX-License-Identifier: BSD-2-Clause */
/* Fork and exit: what the child finds, and what tells the parent's death. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kernel/kernel.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

START_TEST(page_is_zero_in_the_child_only)
{
	unsigned char *p = kernel_map(1);
	int status;
	pid_t pid;

	if (!kernel_need("wipeonfork", madvise(p, PAGE, MADV_WIPEONFORK) == 0,
			 "MADV_WIPEONFORK is missing"))
		return;
	memset(p, 0x5a, PAGE);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		for (size_t i = 0; i < PAGE; i++)
			if (p[i])
				_exit(1);
		p[0] = 1;
		pid = fork(); /* and again in the grandchild */
		if (!pid)
			_exit(p[0] != 0);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			_exit(2);
		_exit(WEXITSTATUS(status) ? 3 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	ck_assert_uint_eq(p[0], 0x5a);
}
END_TEST

/* The client: leaves the socket to a child that outlives it. */
static _Noreturn void leak_socket(int sock)
{
	pid_t pid = fork();

	if (pid < 0)
		_exit(1);
	if (!pid)
		for (;;)
			pause();
	if (send(sock, &pid, sizeof(pid), 0) != sizeof(pid))
		_exit(1);
	for (;;)
		pause();
}

START_TEST(pidfd_tells_death_while_the_socket_is_still_held)
{
	struct pollfd p[2] = { 0 };
	int pair[2], fd;
	pid_t pid, grandchild;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(pair[0]);
		leak_socket(pair[1]);
	}
	close(pair[1]);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	ck_assert_int_eq(recv(pair[0], &grandchild, sizeof(grandchild), 0),
			 sizeof(grandchild));
	if (kernel_need("pidfd", fd >= 0, "pidfd_open is missing")) {
		p[0] = (struct pollfd){ .fd = fd, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = pair[0], .events = POLLIN };
		ck_assert_int_eq(poll(p, 2, 0), 0);
		kill(pid, SIGKILL);
		ck_assert_int_eq(poll(p, 1, LIMIT_MS), 1);
		ck_assert(p[0].revents & POLLIN);
		ck_assert_int_eq(poll(&p[1], 1, 0), 0); /* not closed */
	}
	kill(grandchild, SIGKILL);
	kill(pid, SIGKILL);
	ck_assert_int_eq(poll(&p[1], 1, LIMIT_MS), 1);
	ck_assert_int_eq(recv(pair[0], &grandchild, sizeof(grandchild), 0), 0);
	waitpid(pid, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: fork");
	TCase *t = tcase_create("fork");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, page_is_zero_in_the_child_only);
	tcase_add_test(t, pidfd_tells_death_while_the_socket_is_still_held);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
