/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 in programs of every make: shared, static, a plug-in loaded later, other
 * allocators, and with the means of regc refused by the system.
 *
 * Each is a child that allocates, sends, frees and compares (churn.c).  It must be
 * right whatever mode it found; which mode that is, and why, is checked too.
 */
#include <check.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"

extern char **environ;

static struct broker broker;

struct outcome {
	int status;
	unsigned int mode;
	unsigned long long cached;
	char why[256];
};

static void setup(void)
{
	broker_start(&broker, NULL);
}

static void teardown(void)
{
	broker_stop(&broker);
}

static const char *built(const char *name, char *path, size_t size)
{
	const char *build = getenv("REGC_BUILDDIR");

	snprintf(path, size, "%s/tests/integration/%s", build ? build : "../..",
		 name);
	return path;
}

static void parse(FILE *f, struct outcome *ret)
{
	char line[512];

	while (fgets(line, sizeof(line), f)) {
		char *why = strstr(line, ": ");

		if (!why || sscanf(line, "mode %u cached %llu", &ret->mode,
				   &ret->cached) != 2)
			continue;
		snprintf(ret->why, sizeof(ret->why), "%.*s",
			 (int)strcspn(why + 2, "\n"), why + 2);
	}
}

/* Runs a program of the build folder; false: it cannot run here. */
static bool run(const char *name, const char *arg, struct outcome *ret)
{
	char path[4096];
	char *argv[] = { path, (char *)arg, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2], r;
	pid_t pid;
	FILE *f;

	memset(ret, 0, sizeof(*ret));
	built(name, path, sizeof(path));
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	r = posix_spawn(&pid, path, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	f = fdopen(fds[0], "re");
	if (r == 0) {
		parse(f, ret);
		waitpid(pid, &ret->status, 0);
	}
	fclose(f);
	if (r || (WIFEXITED(ret->status) && WEXITSTATUS(ret->status) == 77)) {
		printf("skipped: %s %s cannot run here\n", name, arg ? arg : "");
		return false;
	}
	ck_assert_msg(ret->status == 0, "%s %s: wait status 0x%x", name,
		      arg ? arg : "", (unsigned int)ret->status);
	return true;
}

static void right_in_mode(const char *name, const char *arg, const char *mode)
{
	struct outcome out;

	if (mode)
		setenv("REGC_MODE", mode, 1);
	else
		unsetenv("REGC_MODE");
	if (!run(name, arg, &out))
		return;
	ck_assert_msg(out.mode != REGC_MODE_OFF && out.cached > 100,
		      "not cached: %s", out.why);
	if (mode && strcmp(mode, "strict") == 0)
		ck_assert_uint_eq(out.mode, REGC_MODE_STRICT);
}

static void right(const char *name, const char *arg)
{
	right_in_mode(name, arg, NULL);
	right_in_mode(name, arg, "strict");
}

START_TEST(shared_program_is_right)
{
	right("churn", NULL);
}
END_TEST

/* Fault B8. */
START_TEST(static_program_is_right)
{
	right("churn-static", NULL);
}
END_TEST

/* Faults B6 and B9. */
START_TEST(plugin_loaded_later_is_right_and_may_be_unloaded)
{
	char path[4096];

	right("load", built(".libs/churn_plugin.so", path, sizeof(path)));
}
END_TEST

/* ---- allocators --------------------------------------------------------- */

static void under(const char *library)
{
	static const char *const folders[] = {
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/usr/lib64", "/usr/lib",
	};
	char path[256];
	size_t i;

	for (i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", folders[i], library);
		if (access(path, R_OK))
			continue;
		setenv("LD_PRELOAD", path, 1);
		right("churn", NULL);
		unsetenv("LD_PRELOAD");
		return;
	}
	printf("skipped: no %s\n", library);
}

/* Fault A1 among others. */
START_TEST(program_with_jemalloc_is_right)
{
	/* Gives pages back at once, from within malloc and free. */
	setenv("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0", 1);
	under("libjemalloc.so.2");
	setenv("MALLOC_CONF", "background_thread:true,dirty_decay_ms:1", 1);
	under("libjemalloc.so.2");
}
END_TEST

START_TEST(program_with_tcmalloc_is_right)
{
	setenv("TCMALLOC_RELEASE_RATE", "10", 1);
	under("libtcmalloc_minimal.so.4");
}
END_TEST

START_TEST(program_with_mimalloc_is_right)
{
	setenv("MIMALLOC_PAGE_RESET", "1", 1);
	setenv("MIMALLOC_RESET_DELAY", "0", 1);
	under("libmimalloc.so.2");
}
END_TEST

/* ---- refusals ----------------------------------------------------------- */

/* Faults E2 and E6. */
START_TEST(without_userfaultfd_nothing_is_cached_and_the_reason_shows)
{
	struct outcome out;

	if (!run("churn", "uffd", &out))
		return;
	ck_assert_uint_eq(out.mode, REGC_MODE_OFF);
	ck_assert_uint_eq(out.cached, 0);
	ck_assert_ptr_nonnull(strstr(out.why, "userfaultfd"));
}
END_TEST

START_TEST(where_code_cannot_be_patched_strict_mode_is_taken)
{
	struct outcome out;

	if (!run("churn", "patch", &out))
		return;
	ck_assert_uint_eq(out.mode, REGC_MODE_STRICT);
	ck_assert_uint_gt(out.cached, 100);
	ck_assert_msg(strstr(out.why, "hooks"), "%s", out.why);
}
END_TEST

/* Hooks may still be possible there, since no page is ever both. */
START_TEST(where_memory_never_becomes_executable_answers_are_right)
{
	struct outcome out;

	if (!run("churn", "mdwe", &out))
		return;
	ck_assert_uint_ne(out.mode, REGC_MODE_OFF);
	ck_assert_uint_gt(out.cached, 100);
	ck_assert_str_ne(out.why, "");
}
END_TEST

/* Fault E3: what is asked for is what is in force, or the reason is told. */
START_TEST(mode_in_force_is_the_one_asked_for)
{
	struct outcome out;

	setenv("REGC_MODE", "off", 1);
	ck_assert(run("churn", NULL, &out));
	ck_assert_uint_eq(out.mode, REGC_MODE_OFF);
	ck_assert_uint_eq(out.cached, 0);
	ck_assert_str_eq(out.why, "asked for");
	setenv("REGC_MODE", "strict", 1);
	ck_assert(run("churn", NULL, &out));
	ck_assert_uint_eq(out.mode, REGC_MODE_STRICT);
	setenv("REGC_MODE", "fast", 1);
	ck_assert(run("churn", NULL, &out));
	ck_assert_msg(out.mode == REGC_MODE_FAST || out.why[0], "no reason");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("programs");
	TCase *tc = tcase_create("programs");

	setvbuf(stdout, NULL, _IOLBF, 0);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, shared_program_is_right);
	tcase_add_test(tc, static_program_is_right);
	tcase_add_test(tc, plugin_loaded_later_is_right_and_may_be_unloaded);
	if (!RTAB_TSAN) { /* which brings a malloc of its own */
		tcase_add_test(tc, program_with_jemalloc_is_right);
		tcase_add_test(tc, program_with_tcmalloc_is_right);
		tcase_add_test(tc, program_with_mimalloc_is_right);
	}
	tcase_add_test(tc, without_userfaultfd_nothing_is_cached_and_the_reason_shows);
	tcase_add_test(tc, where_code_cannot_be_patched_strict_mode_is_taken);
	tcase_add_test(tc, where_memory_never_becomes_executable_answers_are_right);
	tcase_add_test(tc, mode_in_force_is_the_one_asked_for);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
