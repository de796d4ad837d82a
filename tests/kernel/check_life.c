/* SPDX-License-Identifier: BSD-2-Clause */
/* A robust futex in shared memory tells the death of its holder. */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/layout.h"
#include "tests/kernel/kernel.h"

#define OWNER_DIED UINT32_C(0x40000000)

/*
 * The list and its entry are in private memory of the holder; only the word is
 * shared.  The kernel adds futex_offset to the entry's address to find it.
 */
struct holder {
	struct robust_list_head head;
	struct robust_list entry;
};

static struct holder holder;

static int hold(struct rtab_life *life)
{
	holder.entry.next = &holder.head.list;
	holder.head.list.next = &holder.entry;
	holder.head.list_op_pending = NULL;
	holder.head.futex_offset = (long)((uintptr_t)&life->word -
					  (uintptr_t)&holder.entry);
	if (syscall(SYS_set_robust_list, &holder.head, sizeof(holder.head)) < 0)
		return -errno;
	rtab_store_release(&life->word, (uint32_t)syscall(SYS_gettid));
	return 0;
}

static struct rtab_life *life_new(void)
{
	int fd = memfd_create("check", MFD_CLOEXEC);
	void *p;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)PAGE), 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(p != MAP_FAILED);
	close(fd);
	return p;
}

static pid_t start_holder(struct rtab_life *life, int *ret_socket)
{
	int pair[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    pair), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		close(pair[0]);
		signal(SIGTERM, SIG_DFL); /* the test runner has a handler */
		if (hold(life) || send(pair[1], "r", 1, 0) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pair[1]);
	ck_assert_int_eq(recv(pair[0], &byte, 1, 0), 1);
	*ret_socket = pair[0];
	return pid;
}

static const int signals[] = { SIGKILL, SIGTERM, SIGSEGV };

/* By any signal, and before the holder's socket is seen closed. */
START_TEST(death_is_in_the_word_before_the_socket_closes)
{
	struct rtab_life *life = life_new();
	int sock, status;
	uint32_t word;
	char byte;
	pid_t pid;

	kernel_need("futex", true, "");
	for (int round = 0; round < 30; round++) {
		pid = start_holder(life, &sock);
		ck_assert_uint_eq(life->word, (uint32_t)pid);
		kill(pid, signals[_i]);
		ck_assert_int_eq(recv(sock, &byte, 1, 0), 0);
		word = rtab_load_acquire(&life->word);
		ck_assert_msg(word & OWNER_DIED, "word %#x", word);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		close(sock);
	}
}
END_TEST

START_TEST(plain_exit_is_death_too)
{
	struct rtab_life *life = life_new();
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(hold(life) != 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(life->word & OWNER_DIED);
}
END_TEST

START_TEST(stopped_is_not_dead)
{
	struct rtab_life *life = life_new();
	int sock, status;
	pid_t pid = start_holder(life, &sock);

	kill(pid, SIGSTOP);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert(!(life->word & OWNER_DIED));
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(life->word & OWNER_DIED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel: life word");
	TCase *t = tcase_create("life");

	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, death_is_in_the_word_before_the_socket_closes, 0,
			    (int)(sizeof(signals) / sizeof(signals[0])));
	tcase_add_test(t, plain_exit_is_death_too);
	tcase_add_test(t, stopped_is_not_dead);
	suite_add_tcase(s, t);
	return kernel_main(s);
}
