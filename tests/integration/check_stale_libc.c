/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 for changes that libc and the loader make by themselves: free, trim,
 * realloc, brk, thread stacks, dlclose.
 *
 * Nothing here knows which call libc chooses; the tests only make it likely that
 * the same addresses come again with other pages, and count that they did.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/integration/stale.h"

#define BIG (256ul << 10)
#define BLOCKS 64
#define BLOCK_BYTES (64ul << 10)

static void get_put(const char *mem, size_t len)
{
	struct regc_lease lease;

	ck_assert_int_eq(regc_get(oracle.dom, mem, len, W, &lease), 0);
	regc_put(&lease);
}

/* Is p one of seen[]? */
static int again(void **seen, int n, void *p)
{
	int i, known = 0;

	for (i = 0; i < n; i++)
		known |= seen[i] == p;
	return known;
}

/* ---- malloc ------------------------------------------------------------- */

static void free_and_allocate(void)
{
	void *seen[100];
	int i, known = 0;

	mallopt(M_MMAP_THRESHOLD, BIG / 2);
	for (i = 0; i < 100; i++) {
		char *p = malloc(BIG);

		memset(p, i + 1, BIG);
		known += again(seen, i, p);
		not_stale(p, BIG, "malloc");
		seen[i] = p;
		free(p);
	}
	ck_assert_int_gt(known, 50);
}

START_TEST(big_blocks_freed_and_allocated_again_are_right)
{
	free_and_allocate();
}
END_TEST

static void free_and_trim(void *arg)
{
	static char *blocks[BLOCKS];
	int round, i;

	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	for (round = 1; round <= 8; round++) {
		for (i = 0; i < BLOCKS; i++) {
			blocks[i] = malloc(BLOCK_BYTES);
			memset(blocks[i], round * 16 + i % 16, BLOCK_BYTES);
		}
		for (i = 0; i < BLOCKS; i++)
			not_stale(blocks[i], BLOCK_BYTES, "malloc in an arena");
		for (i = 0; i < BLOCKS; i++)
			free(blocks[i]);
		if (arg)
			malloc_trim(0);
	}
}

static int yes = 1;

START_TEST(heap_trimmed_by_free_is_seen)
{
	mallopt(M_TRIM_THRESHOLD, 4096);
	free_and_trim(NULL);
}
END_TEST

START_TEST(heap_trimmed_by_malloc_trim_is_seen)
{
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	free_and_trim(&yes);
}
END_TEST

START_TEST(arena_of_another_thread_trimmed_is_seen)
{
	in_other_thread(free_and_trim, &yes);
	mallopt(M_TRIM_THRESHOLD, 4096);
	in_other_thread(free_and_trim, NULL);
}
END_TEST

/* Blocks in the middle of the heap: malloc_trim gives pages back there too. */
START_TEST(holes_of_the_heap_given_back_are_seen)
{
	static char *blocks[BLOCKS];
	int round, i;

	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = malloc(BLOCK_BYTES);
	for (round = 1; round <= 8; round++) {
		for (i = 0; i < BLOCKS; i++) {
			memset(blocks[i], round * 16 + i % 16, BLOCK_BYTES);
			not_stale(blocks[i], BLOCK_BYTES, "malloc");
		}
		for (i = 0; i < BLOCKS; i += 2)
			free(blocks[i]);
		malloc_trim(0);
		for (i = 0; i < BLOCKS; i += 2)
			blocks[i] = malloc(BLOCK_BYTES);
	}
}
END_TEST

START_TEST(blocks_moved_by_realloc_are_right)
{
	size_t n;
	int round;

	mallopt(M_MMAP_THRESHOLD, BIG / 2);
	for (round = 1; round <= 16; round++) {
		char *p = malloc(BIG), *stop;

		memset(p, round, BIG);
		not_stale(p, BIG, "malloc");
		stop = malloc(BIG);
		for (n = 2 * BIG; n <= 8 * BIG; n += 2 * BIG) {
			p = realloc(p, n);
			memset(p, round + 16, PAGE);
			not_stale(p, n, "realloc, larger");
		}
		p = realloc(p, BIG);
		not_stale(p, BIG, "realloc, smaller");
		memset(stop, round + 32, BIG);
		not_stale(stop, BIG, "malloc");
		free(p);
		free(stop);
	}
}
END_TEST

/* ---- brk ---------------------------------------------------------------- */

enum by { BY_SBRK, BY_BRK, BY_SYSCALL };

static char *shrink(enum by by, char *to, size_t bytes)
{
	switch (by) {
	case BY_SBRK:
		return (char *)sbrk(-(intptr_t)bytes) - bytes;
	case BY_BRK:
		ck_assert_int_eq(brk(to), 0);
		return to;
	default:
		return (char *)syscall(SYS_brk, to);
	}
}

static void grow(enum by by, char *to, size_t bytes)
{
	switch (by) {
	case BY_SBRK:
		ck_assert_ptr_eq(sbrk((intptr_t)bytes), to);
		break;
	case BY_BRK:
		ck_assert_int_eq(brk(to + bytes), 0);
		break;
	default:
		ck_assert_int_eq(syscall(SYS_brk, to + bytes),
				 (long)(to + bytes));
		break;
	}
}

static void shrink_and_regrow(enum by by)
{
	size_t bytes = 16 * PAGE;
	int round;

	/* Enough for malloc, so that it leaves the end of the heap alone. */
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	free(malloc(16 * BIG));
	sbrk((intptr_t)(-(uintptr_t)sbrk(0) & (PAGE - 1)));
	for (round = 1; round <= 50; round++) {
		char *mem = sbrk((intptr_t)bytes);

		memset(mem, round, bytes);
		not_stale(mem, bytes, "heap");
		ck_assert_ptr_eq(sbrk(0), mem + bytes);
		ck_assert_ptr_eq(shrink(by, mem + 4 * PAGE, bytes - 4 * PAGE),
				 mem + 4 * PAGE);
		grow(by, mem + 4 * PAGE, bytes - 4 * PAGE);
		memset(mem + 4 * PAGE, round + 64, 2 * PAGE);
		not_stale(mem, bytes, "heap");
		sbrk(-(intptr_t)bytes);
	}
}

START_TEST(heap_shrunk_by_sbrk_and_grown_again_is_right)
{
	shrink_and_regrow(BY_SBRK);
}
END_TEST

START_TEST(heap_shrunk_by_brk_and_grown_again_is_right)
{
	shrink_and_regrow(BY_BRK);
}
END_TEST

START_TEST(heap_shrunk_by_raw_brk_and_grown_again_is_right)
{
	shrink_and_regrow(BY_SYSCALL);
}
END_TEST

/* ---- stacks ------------------------------------------------------------- */

static void *use_stack(void *arg)
{
	char mem[16 * PAGE];

	memset(mem, *(int *)arg, sizeof(mem));
	__asm__ volatile("" : : "r"(mem) : "memory");
	not_stale(mem, sizeof(mem), "stack of a thread");
	memset(mem, *(int *)arg + 64, sizeof(mem));
	not_stale(mem, sizeof(mem), "stack of a thread");
	return NULL;
}

static void stacks(size_t bytes)
{
	pthread_attr_t attr;
	pthread_t t;
	int i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, bytes);
	for (i = 1; i <= 40; i++) {
		ck_assert_int_eq(pthread_create(&t, &attr, use_stack, &i), 0);
		pthread_join(t, NULL);
	}
	pthread_attr_destroy(&attr);
}

START_TEST(stack_that_libc_keeps_for_the_next_thread_is_right)
{
	stacks(1 << 20);
}
END_TEST

/* Larger than what libc keeps: unmapped when the thread ends. */
START_TEST(stack_that_went_with_its_thread_is_seen)
{
	stacks(64 << 20);
}
END_TEST

static __attribute__((noinline)) int deep(int n)
{
	char mem[4 * PAGE];

	memset(mem, n, sizeof(mem));
	if (n % 16 == 0)
		not_stale(mem, sizeof(mem), "stack");
	return n ? deep(n - 1) + mem[n] : mem[0];
}

START_TEST(stack_that_grows_under_a_cached_buffer_does_not_hang)
{
	char mem[16 * PAGE];

	memset(mem, 7, sizeof(mem));
	cached(mem, sizeof(mem));
	deep(120);
	deep(240);
	memset(mem, 8, sizeof(mem));
	not_stale(mem, sizeof(mem), "stack");
}
END_TEST

/* ---- loader ------------------------------------------------------------- */

static char *plugin_open(void **ret_handle, size_t *ret_bytes)
{
	const char *build = getenv("REGC_BUILDDIR");
	char *(*buffer)(size_t *);
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/integration/.libs/plugin.so",
		 build ? build : "../..");
	*ret_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!*ret_handle)
		return NULL;
	buffer = (char *(*)(size_t *))dlsym(*ret_handle, "plugin_buffer");
	ck_assert_ptr_nonnull(buffer);
	return buffer(ret_bytes);
}

START_TEST(memory_of_an_unloaded_plugin_is_seen)
{
	void *handle, *seen[40];
	size_t bytes;
	int i, known = 0;

	for (i = 0; i < 40; i++) {
		char *mem = plugin_open(&handle, &bytes);

		if (!mem)
			SKIP("%s", dlerror());
		known += again(seen, i, mem);
		seen[i] = mem;
		memset(mem, i + 1, bytes);
		cached(mem, bytes);
		ck_assert_int_eq(dlclose(handle), 0);
		/* Every other time, other memory comes instead. */
		if (i & 1) {
			ck_assert_ptr_eq(mmap(mem, bytes, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS |
						      MAP_FIXED_NOREPLACE,
					      -1, 0), mem);
			memset(mem, i + 64, bytes);
			not_stale(mem, bytes, "dlclose");
			munmap(mem, bytes);
		}
	}
	ck_assert_int_gt(known, 10);
}
END_TEST

START_TEST(program_opens_itself_with_hooks_on)
{
	void *handle = dlopen(NULL, RTLD_NOW);

	ck_assert_ptr_nonnull(handle);
	ck_assert_ptr_nonnull(dlsym(handle, "munmap"));
	ck_assert_int_eq(dlclose(handle), 0);
	free_and_allocate();
}
END_TEST

/* ---- access ------------------------------------------------------------- */

START_TEST(leased_memory_may_be_freed_and_allocated_again)
{
	int i;

	mallopt(M_MMAP_THRESHOLD, BIG / 2);
	for (i = 1; i <= 50; i++) {
		char *p = malloc(BIG), *q;
		struct regc_lease lease;

		memset(p, i, BIG);
		get_put(p, BIG);
		ck_assert_int_eq(regc_get(oracle.dom, p, BIG, W, &lease), 0);
		free(p);
		ck_assert_int_eq(regc_lease_ok(&lease), 0);
		q = malloc(BIG);
		memset(q, i + 64, BIG);
		not_stale(q, BIG, "freed under lease");
		regc_put(&lease);
		not_stale(q, BIG, "freed under lease");
		free(q);
	}
	WAIT_FOR(stats_now().pinned_bytes == 0, 5);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, big_blocks_freed_and_allocated_again_are_right);
	tcase_add_test(tc, heap_trimmed_by_free_is_seen);
	tcase_add_test(tc, heap_trimmed_by_malloc_trim_is_seen);
	tcase_add_test(tc, arena_of_another_thread_trimmed_is_seen);
	tcase_add_test(tc, holes_of_the_heap_given_back_are_seen);
	tcase_add_test(tc, blocks_moved_by_realloc_are_right);
	tcase_add_test(tc, heap_shrunk_by_sbrk_and_grown_again_is_right);
	tcase_add_test(tc, heap_shrunk_by_brk_and_grown_again_is_right);
	tcase_add_test(tc, heap_shrunk_by_raw_brk_and_grown_again_is_right);
	tcase_add_test(tc, stack_that_libc_keeps_for_the_next_thread_is_right);
	tcase_add_test(tc, stack_that_went_with_its_thread_is_seen);
	tcase_add_test(tc, stack_that_grows_under_a_cached_buffer_does_not_hang);
	tcase_add_test(tc, memory_of_an_unloaded_plugin_is_seen);
	tcase_add_test(tc, program_opens_itself_with_hooks_on);
	tcase_add_test(tc, leased_memory_may_be_freed_and_allocated_again);
}

int main(void)
{
	return stale_run(stale_suite("no stale answer from libc", add, 60));
}
