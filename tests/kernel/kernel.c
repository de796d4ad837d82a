/* SPDX-License-Identifier: BSD-2-Clause */
/* What the checks of kernel facts share. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/kernel/kernel.h"

/* Counts tests that ran; shared with the forked tests. */
static uint32_t *n_ran;

static bool required(const char *facility)
{
	const char *list = getenv("REGC_TEST_REQUIRE");
	size_t len = strlen(facility);

	while (list && *list) {
		size_t n = strcspn(list, ", ");

		if (n == len && !strncmp(list, facility, len))
			return true;
		list += n + (list[n] != '\0');
	}
	return false;
}

bool kernel_need(const char *facility, bool have, const char *why)
{
	if (have) {
		rtab_fetch_add(n_ran, 1);
		return true;
	}
	if (required(facility))
		ck_abort_msg("%s is required: %s", facility, why);
	fprintf(stderr, "skip: %s: %s\n", facility, why);
	return false;
}

int kernel_main(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	n_ran = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n_ran == MAP_FAILED)
		return 1;
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : *n_ran ? 0 : 77;
}

unsigned char *kernel_map(size_t pages)
{
	void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_msg(p != MAP_FAILED, "mmap: %s", strerror(errno));
	return p;
}

double kernel_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void *thread_main(void *arg)
{
	struct kernel_thread *t = arg;

	rtab_store_release(&t->tid, (pid_t)syscall(SYS_gettid));
	while (!rtab_load_acquire(&t->go))
		sched_yield();
	t->fn(t->arg);
	rtab_store_release(&t->done, 1);
	return NULL;
}

/* Returns once the thread runs, so that it allocates nothing later. */
void kernel_thread_start(struct kernel_thread *t, void (*fn)(void *arg), void *arg)
{
	memset(t, 0, sizeof(*t));
	t->fn = fn;
	t->arg = arg;
	ck_assert_int_eq(pthread_create(&t->id, NULL, thread_main, t), 0);
	while (!rtab_load_acquire(&t->tid))
		sched_yield();
}

void kernel_thread_go(struct kernel_thread *t)
{
	rtab_store_release(&t->go, 1);
}

static char thread_state(pid_t tid)
{
	char path[64], buf[256], *p;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(buf, 1, sizeof(buf) - 1, f);
	fclose(f);
	buf[n] = '\0';
	p = strrchr(buf, ')');
	return p && p[1] ? p[2] : 0;
}

bool kernel_thread_done(struct kernel_thread *t)
{
	return rtab_load_acquire(&t->done);
}

/* Several looks in a row, because a thread may also wait for a lock for a bit. */
bool kernel_thread_sleeps(struct kernel_thread *t)
{
	double limit = kernel_now_ms() + LIMIT_MS;
	int seen = 0;

	while (kernel_now_ms() < limit && seen < 20) {
		char state = thread_state(t->tid);

		if (kernel_thread_done(t))
			return false;
		seen = state == 'S' || state == 'D' ? seen + 1 : 0;
		poll(NULL, 0, 1);
	}
	return seen >= 20;
}

void kernel_thread_join(struct kernel_thread *t)
{
	double limit = kernel_now_ms() + LIMIT_MS;

	while (!kernel_thread_done(t)) {
		if (kernel_now_ms() > limit)
			ck_abort_msg("the thread did not go on");
		sched_yield();
	}
	pthread_join(t->id, NULL);
}
