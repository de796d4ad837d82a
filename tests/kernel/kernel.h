/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the checks of kernel facts share.
 *
 * A check that lacks a facility says so and passes as skipped; REGC_TEST_REQUIRE
 * (for instance "uffd,uring") turns a skip for a named facility into a failure.
 * A program in which nothing ran exits with 77.
 */
#ifndef REGC_TESTS_KERNEL_H
#define REGC_TESTS_KERNEL_H

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE ((size_t)4096)
#define LIMIT_MS 10000 /* for conditions that must come true */

/*
 * False: skip the test.  why says what is missing.  A facility that is there
 * counts the test as run.
 */
bool kernel_need(const char *facility, bool have, const char *why);

/* Runs the suite; the exit status of main(). */
int kernel_main(Suite *suite);

/* Private anonymous pages, not touched. */
unsigned char *kernel_map(size_t pages);

double kernel_now_ms(void);

/* A thread that starts parked, does fn(arg) once told to, then ends. */
struct kernel_thread {
	pthread_t id;
	pid_t tid;
	void (*fn)(void *arg);
	void *arg;
	uint32_t go;
	uint32_t done;
};

void kernel_thread_start(struct kernel_thread *t, void (*fn)(void *arg), void *arg);
void kernel_thread_go(struct kernel_thread *t);
/* True once the thread sleeps in the kernel (after go), false if it ended. */
bool kernel_thread_sleeps(struct kernel_thread *t);
bool kernel_thread_done(struct kernel_thread *t);
/* Fails the test if the thread does not end in time. */
void kernel_thread_join(struct kernel_thread *t);

#endif
