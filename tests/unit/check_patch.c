/* SPDX-License-Identifier: BSD-2-Clause */
/* Patching of libc's wrappers: what is accepted, what is seen, who survives. */
#include "libregc/patch.h"
#include "libregc/patch_sys.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "tests/support/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Patches are for ever, so each test runs in its own process (CK_FORK). The
 * hooks count per thread: a count says that this very call was seen.
 *
 * REGC_PATCH_ROUNDS: how often threads race an installation; default 25,
 * with sanitizers 5.
 */

#if defined(__SANITIZE_ADDRESS__) || RTAB_TSAN
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define N_THREADS 8
#define N_TURNS 10u	/* of each thread, after the installation */
#define PAGE 4096u
#define BIG (8u << 20)

enum { MUNMAP, MMAP, MREMAP, MADVISE, BRK, SHMDT, SHMAT, N_HOOKS };

static struct patch patches[N_HOOKS];
static __thread unsigned int seen[N_HOOKS];

#define ORIG(n, type) ((type)patches[n].orig)

PATCH_HOOK static int hook_munmap(void *a, size_t n)
{
	seen[MUNMAP]++;
	return ORIG(MUNMAP, int (*)(void *, size_t))(a, n);
}

PATCH_HOOK static void *hook_mmap(void *a, size_t n, int prot, int flags,
				  int fd, off_t o)
{
	seen[MMAP]++;
	return ORIG(MMAP, void *(*)(void *, size_t, int, int, int, off_t))(
		a, n, prot, flags, fd, o);
}

PATCH_HOOK static void *hook_mremap(void *a, size_t n, size_t to, int flags,
				    void *at)
{
	seen[MREMAP]++;
	return ORIG(MREMAP, void *(*)(void *, size_t, size_t, int, void *))(
		a, n, to, flags, at);
}

PATCH_HOOK static int hook_madvise(void *a, size_t n, int advice)
{
	seen[MADVISE]++;
	return ORIG(MADVISE, int (*)(void *, size_t, int))(a, n, advice);
}

PATCH_HOOK static int hook_brk(void *a)
{
	seen[BRK]++;
	return ORIG(BRK, int (*)(void *))(a);
}

PATCH_HOOK static int hook_shmdt(const void *a)
{
	seen[SHMDT]++;
	return ORIG(SHMDT, int (*)(const void *))(a);
}

PATCH_HOOK static void *hook_shmat(int id, const void *a, int flags)
{
	seen[SHMAT]++;
	return ORIG(SHMAT, void *(*)(int, const void *, int))(id, a, flags);
}

static void patches_fill(struct patch *p)
{
	static const struct {
		const char *name;
		void *hook;
	} table[N_HOOKS] = {
		[MUNMAP] = { "munmap", (void *)hook_munmap },
		[MMAP] = { "mmap", (void *)hook_mmap },
		[MREMAP] = { "mremap", (void *)hook_mremap },
		[MADVISE] = { "madvise", (void *)hook_madvise },
		[BRK] = { "brk", (void *)hook_brk },
		[SHMDT] = { "shmdt", (void *)hook_shmdt },
		[SHMAT] = { "shmat", (void *)hook_shmat },
	};

	memset(p, 0, sizeof(*p) * N_HOOKS);
	for (unsigned int i = 0; i < N_HOOKS; i++) {
		p[i].name = table[i].name;
		p[i].hook = table[i].hook;
	}
}

static void prepare_all(void)
{
	int rc;

	patches_fill(patches);
	for (unsigned int i = 0; i < N_HOOKS; i++) {
		rc = patch_prepare(&patches[i]);
		ck_assert_msg(!rc, "%s: %d %s", patches[i].name, rc,
			      patches[i].why);
	}
}

/* A site marked quiet may be refused; everything else must be live. */
static void commit_all(void)
{
	bool quiet = false;
	int rc = patch_commit(patches, N_HOOKS);

	for (unsigned int i = 0; i < N_HOOKS; i++) {
		quiet |= patches[i].site.quiet;
		ck_assert_msg(patches[i].live || patches[i].site.quiet,
			      "%s: %s", patches[i].name, patches[i].why);
	}
	ck_assert_msg(!rc || (quiet && rc == -ENOTSUP), "commit: %d", rc);
}

static void install_all(void)
{
	prepare_all();
	commit_all();
}

static void clear_seen(void)
{
	memset(seen, 0, sizeof(seen));
}

/* Hooks that are not installed see nothing, and that is no failure here. */
#define assert_seen(n, count) \
	ck_assert_msg(!patches[n].live || seen[n] == (count), \
		      "%s seen %u times", patches[n].name, seen[n])
#define assert_some_seen(n) \
	ck_assert_msg(!patches[n].live || seen[n] > 0, "%s not seen", \
		      patches[n].name)

static void *libc_function(const char *name)
{
	void *ret = NULL;

	ck_assert_int_eq(patch_resolve(name, &ret), 0);
	return ret;
}

START_TEST(resolve_finds_functions_of_libc_only)
{
	char why[PATCH_WHY_BYTES] = "";
	void *p = NULL;

	for (unsigned int i = 0; i < N_HOOKS; i++) {
		patches_fill(patches);
		ck_assert_int_eq(patch_resolve(patches[i].name, &p), 0);
		ck_assert_int_eq(patch_check_home(p, why), 0);
	}
	ck_assert_int_eq(patch_resolve("no_such_function", &p), -ENOENT);
}
END_TEST

START_TEST(code_of_others_is_refused)
{
	char why[PATCH_WHY_BYTES] = "";
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_int_eq(patch_check_home(p, why), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(why, "file"));
	ck_assert_int_eq(patch_check_home((void *)16, why), -ENOTSUP);
	ck_assert_int_eq(patch_check_home((void *)hook_brk, why), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(why, "not libc's"));
}
END_TEST

START_TEST(prepare_changes_nothing)
{
	uint8_t before[N_HOOKS][32];
	struct patch *p = patches;

	patches_fill(patches);
	for (unsigned int i = 0; i < N_HOOKS; i++)
		memcpy(before[i], libc_function(p[i].name), 32);
	prepare_all();
	for (unsigned int i = 0; i < N_HOOKS; i++)
		ck_assert_mem_eq(before[i], p[i].target, 32);
	clear_seen();
	ck_assert_int_eq(munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE |
				     MAP_ANONYMOUS, -1, 0), PAGE), 0);
	ck_assert_uint_eq(seen[MUNMAP], 0);
	ck_assert_uint_eq(seen[MMAP], 0);
}
END_TEST

START_TEST(calls_through_symbols_are_seen)
{
	void *p, *brk_now, *s;
	int id;

	install_all();
	clear_seen();
	p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	assert_seen(MMAP, 1);
	memset(p, 7, 2 * PAGE);
	ck_assert_int_eq(madvise(p, PAGE, MADV_DONTNEED), 0);
	assert_seen(MADVISE, 1);
	ck_assert_int_eq(*(char *)p, 0);
	ck_assert_int_eq(((char *)p)[PAGE], 7);
	p = mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	ck_assert_ptr_ne(p, MAP_FAILED);
	assert_seen(MREMAP, 1);
	ck_assert_int_eq(((char *)p)[PAGE], 7);
	ck_assert_int_eq(munmap(p, 64 * PAGE), 0);
	assert_seen(MUNMAP, 1);
	brk_now = sbrk(0);	/* the first call of all asks the kernel */
	clear_seen();
	ck_assert_int_eq(brk(brk_now), 0);
	assert_seen(BRK, 1);
	id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	if (id >= 0) {
		s = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		ck_assert_ptr_ne(s, (void *)-1);
		assert_seen(SHMAT, 1);
		ck_assert_int_eq(shmdt(s), 0);
		assert_seen(SHMDT, 1);
	}
}
END_TEST

START_TEST(mremap_passes_its_fifth_argument)
{
	char *p, *to;

	install_all();
	clear_seen();
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	to = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*p = 5;
	ck_assert_ptr_eq(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				to), to);
	ck_assert_int_eq(*to, 5);
	assert_seen(MREMAP, 1);
}
END_TEST

START_TEST(free_and_realloc_inside_libc_are_seen)
{
	void *(*libc_malloc)(size_t) = (void *(*)(size_t))
		libc_function("malloc");
	void *(*libc_realloc)(void *, size_t) = (void *(*)(void *, size_t))
		libc_function("realloc");
	void (*libc_free)(void *) = (void (*)(void *))libc_function("free");
	void *p;

	install_all();
	clear_seen();
	p = libc_malloc(BIG);
	ck_assert_ptr_nonnull(p);
	assert_seen(MMAP, 1);
	p = libc_realloc(p, 2 * BIG);
	ck_assert_ptr_nonnull(p);
	assert_some_seen(MREMAP);
	libc_free(p);
	assert_some_seen(MUNMAP);
}
END_TEST

START_TEST(malloc_trim_inside_libc_is_seen)
{
	void *(*libc_malloc)(size_t) = (void *(*)(size_t))
		libc_function("malloc");
	void (*libc_free)(void *) = (void (*)(void *))libc_function("free");
	int (*libc_trim)(size_t) = (int (*)(size_t))
		libc_function("malloc_trim");
	void *blocks[200];

	install_all();
	clear_seen();
	for (unsigned int i = 0; i < RTAB_ARRAY_SIZE(blocks); i++) {
		blocks[i] = libc_malloc(60000);
		ck_assert_ptr_nonnull(blocks[i]);
		memset(blocks[i], 1, 60000);
	}
	assert_some_seen(BRK);
	/* The middle goes by madvise, the top by brk. */
	for (unsigned int i = 0; i < RTAB_ARRAY_SIZE(blocks); i++)
		if (i != 100)
			libc_free(blocks[i]);
	clear_seen();
	libc_trim(0);
	assert_some_seen(MADVISE);
	libc_free(blocks[100]);
	libc_trim(0);
	assert_some_seen(BRK);
}
END_TEST

START_TEST(sbrk_inside_libc_is_seen)
{
	char *old;

	install_all();
	clear_seen();
	old = sbrk(16 * PAGE);
	ck_assert_ptr_ne(old, (void *)-1);
	assert_some_seen(BRK);
	memset(old, 1, 16 * PAGE);
	clear_seen();
	ck_assert_ptr_ne(sbrk(-(16 * (intptr_t)PAGE)), (void *)-1);
	assert_some_seen(BRK);
	ck_assert_ptr_eq(sbrk(0), old);
}
END_TEST

START_TEST(errno_is_that_of_the_original)
{
	int (*orig)(void *, size_t);

	install_all();
	orig = ORIG(MUNMAP, int (*)(void *, size_t));
	errno = 0;
	ck_assert_int_eq(orig((void *)1, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	errno = 0;
	ck_assert_int_eq(munmap((void *)1, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	errno = 0;
	ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE |
			      MAP_ANONYMOUS, -1, 1), MAP_FAILED);
	ck_assert_int_eq(errno, EINVAL);
	errno = E2BIG;
	ck_assert_int_eq(munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE |
				     MAP_ANONYMOUS, -1, 0), PAGE), 0);
	ck_assert_int_eq(errno, E2BIG);
	errno = 0;
	ck_assert_ptr_eq(shmat(-1, NULL, 0), (void *)-1);
	ck_assert_int_eq(errno, EINVAL);
	errno = 0;
	ck_assert_int_eq(shmdt((void *)1), -1);
	ck_assert_int_eq(errno, EINVAL);
	errno = 0;
	ck_assert_ptr_eq(mremap((void *)1, 1, 1, 0), MAP_FAILED);
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

START_TEST(install_keeps_errno)
{
	errno = EXDEV;
	install_all();
	ck_assert_int_eq(errno, EXDEV);
}
END_TEST

START_TEST(protection_is_as_before)
{
	struct patch_map m;
	char name[200];

	install_all();
	for (unsigned int i = 0; i < N_HOOKS; i++) {
		ck_assert_int_eq(patch_map_find((uintptr_t)patches[i].target,
						&m, name, sizeof(name)), 0);
		ck_assert_int_eq(m.prot, PROT_READ | PROT_EXEC);
		ck_assert_int_eq(patch_map_find((uintptr_t)patches[i].orig, &m,
						name, sizeof(name)), 0);
		ck_assert_int_eq(m.prot, PROT_READ | PROT_EXEC);
	}
}
END_TEST

START_TEST(second_install_finds_the_first)
{
	struct patch again[N_HOOKS];

	install_all();
	patches_fill(again);
	for (unsigned int i = 0; i < N_HOOKS; i++) {
		if (!patches[i].live)
			continue;
		ck_assert_int_eq(patch_prepare(&again[i]), -EEXIST);
		ck_assert_ptr_nonnull(strstr(again[i].why, "another regc"));
	}
	ck_assert_int_eq(patch_commit(again, 1), -EINVAL);
	ck_assert_int_eq(patch_commit(patches, 1), -EINVAL);
	ck_assert(patches[0].live);
}
END_TEST

START_TEST(loser_of_two_preparations_is_refused)
{
	struct patch other;

	prepare_all();
	other = patches[MUNMAP];
	ck_assert_int_eq(patch_prepare(&other), 0);
	commit_all();
	ck_assert_int_eq(patch_commit(&other, 1), -EEXIST);
	ck_assert(!other.live);
	clear_seen();
	ck_assert_int_eq(munmap((void *)1, 1), -1);
	assert_seen(MUNMAP, 1);
}
END_TEST

START_TEST(install_is_refused_while_another_copy_installs)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int other = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	prepare_all();
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	/* An emulator makes up a new file at each open. */
	if (!flock(other, LOCK_EX | LOCK_NB))
		return;
	close(other);
	ck_assert_int_eq(patch_commit(patches, 1), -EBUSY);
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	ck_assert_int_eq(patch_commit(patches, 1), 0);
	close(fd);
}
END_TEST

START_TEST(forked_child_has_the_patches)
{
	int status;
	pid_t pid;

	install_all();
	pid = fork();
	if (!pid) {
		clear_seen();
		munmap((void *)1, 1);
		_exit(seen[MUNMAP] == 1 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Where the kernel lets nobody make memory executable afterwards. */

static void *wait_for_flag(void *arg)
{
	while (!rtab_load_acquire((unsigned int *)arg))
		sched_yield();
	return NULL;
}

static bool refuse_write_and_execute(void)
{
#ifdef PR_SET_MDWE
	return !prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
#else
	return !prctl(65, 1, 0, 0, 0);
#endif
}

START_TEST(strict_kernel_is_served_with_one_thread)
{
	if (!refuse_write_and_execute())
		return;
	prepare_all();
#if !RTAB_TSAN
	/* The sanitizer has a thread of its own. */
	commit_all();
	clear_seen();
	ck_assert_int_eq(munmap((void *)1, 1), -1);
	assert_seen(MUNMAP, 1);
#endif
}
END_TEST

START_TEST(strict_kernel_is_refused_with_two_threads)
{
	unsigned int stop = 0;
	pthread_t thread;

	if (!refuse_write_and_execute())
		return;
	prepare_all();
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_flag, &stop),
			 0);
	ck_assert_int_eq(patch_commit(patches, N_HOOKS), -EPERM);
	ck_assert(!patches[MUNMAP].live);
	ck_assert_ptr_nonnull(strstr(patches[MUNMAP].why, "threads"));
	rtab_store_release(&stop, 1);
	pthread_join(thread, NULL);
}
END_TEST

/* Threads inside the functions while they are patched. */

static unsigned int n_running, installed;

/* One turn through the functions, with its results checked. */
static bool turn(unsigned int seed)
{
	size_t n = (1 + seed % 4) * PAGE;
	char *p, *q;

	p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (p == MAP_FAILED)
		return false;
	*p = 1;
	if (madvise(p, n, MADV_DONTNEED) || *p)
		return false;
	q = mremap(p, n, n + PAGE, MREMAP_MAYMOVE);
	if (q == MAP_FAILED || munmap(q, n + PAGE))
		return false;
	errno = 0;
	if (munmap((void *)1, 1) != -1 || errno != EINVAL)
		return false;
	if (shmdt((void *)1) != -1 || errno != EINVAL)
		return false;
	if (shmat(-1, NULL, 0) != (void *)-1 || errno != EINVAL)
		return false;
	return sbrk(0) != (void *)-1;
}

static void *race(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg, expected;

	rtab_fetch_add(&n_running, 1);
	while (!rtab_load_acquire(&installed))
		if (!turn(seed++))
			return (void *)1;
	/* From here on every call must be seen. */
	memset(seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < N_TURNS; i++)
		if (!turn(seed++))
			return (void *)2;
	for (unsigned int i = 0; i < N_HOOKS; i++) {
		expected = i == BRK ? 0 : i == MUNMAP ? 2 * N_TURNS : N_TURNS;
		if (patches[i].live && seen[i] != expected)
			return (void *)3;
	}
	return NULL;
}

static int race_round(unsigned int round)
{
	pthread_t threads[N_THREADS];
	void *result;
	int rc = 0;

	patches_fill(patches);
	for (unsigned int i = 0; i < N_HOOKS; i++)
		if (patch_prepare(&patches[i]))
			return 10;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, race,
				   (void *)(round * 31 + i)))
			return 11;
	while (rtab_load_acquire(&n_running) < N_THREADS)
		sched_yield();
	patch_commit(patches, N_HOOKS);
	for (unsigned int i = 0; i < N_HOOKS; i++)
		if (!patches[i].live && !patches[i].site.quiet)
			rc = 12;
	rtab_store_release(&installed, 1);
	for (unsigned int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &result);
		if (result)
			rc = (int)(uintptr_t)result;
	}
	return rc;
}

/* Each round in its own process: it can be patched only once. */
static void run_rounds(int (*round)(unsigned int))
{
	const char *s = getenv("REGC_PATCH_ROUNDS");
	unsigned int rounds = s ? (unsigned int)atoi(s) : SANITIZED ? 5 : 25;
	int status;
	pid_t pid;

	for (unsigned int i = 0; i < rounds; i++) {
		pid = fork();
		if (!pid)
			_exit(round(i));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(!status, "round %u: status %#x", i, status);
	}
}

START_TEST(threads_inside_survive_installation)
{
	run_rounds(race_round);
}
END_TEST

static Suite *patch_suite(void)
{
	Suite *s = suite_create("patch");
	TCase *tc = tcase_create("patch");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, resolve_finds_functions_of_libc_only);
	tcase_add_test(tc, code_of_others_is_refused);
	tcase_add_test(tc, prepare_changes_nothing);
	tcase_add_test(tc, calls_through_symbols_are_seen);
	tcase_add_test(tc, mremap_passes_its_fifth_argument);
	tcase_add_test(tc, free_and_realloc_inside_libc_are_seen);
	tcase_add_test(tc, malloc_trim_inside_libc_is_seen);
	tcase_add_test(tc, sbrk_inside_libc_is_seen);
	tcase_add_test(tc, errno_is_that_of_the_original);
	tcase_add_test(tc, install_keeps_errno);
	tcase_add_test(tc, protection_is_as_before);
	tcase_add_test(tc, second_install_finds_the_first);
	tcase_add_test(tc, loser_of_two_preparations_is_refused);
	tcase_add_test(tc, install_is_refused_while_another_copy_installs);
	tcase_add_test(tc, forked_child_has_the_patches);
	tcase_add_test(tc, strict_kernel_is_served_with_one_thread);
	tcase_add_test(tc, strict_kernel_is_refused_with_two_threads);
	tcase_add_test(tc, threads_inside_survive_installation);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(patch_suite());
}
