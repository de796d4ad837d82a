/* SPDX-License-Identifier: BSD-2-Clause */
/* What a library that listens (regc_on_change()) hears of, and when. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/support/harness.h"
#include "tests/support/suite.h"

#define PAGE 4096ul

static struct broker broker;
static struct regc_library *lib, *other;

/* What a listener was told last; counts everything that touches [low, high). */
struct heard {
	char *low, *high;
	unsigned int n;
	bool was_mapped;
};

static void listen_to(void *arg, void *addr, size_t len)
{
	struct heard *h = arg;
	char *start = addr;
	unsigned char vec;

	if (start >= h->high || start + len <= h->low)
		return;
	h->n++;
	h->was_mapped = mincore(h->low, PAGE, &vec) == 0;
}

static void setup(void)
{
	broker_start(&broker, NULL);
	ck_assert_int_eq(regc_open("cache", NULL, &lib), 0);
	ck_assert_int_eq(regc_open("other", NULL, &other), 0);
}

static void teardown(void)
{
	broker_stop(&broker);
}

static struct heard of(char *mem, size_t len)
{
	return (struct heard){ .low = mem, .high = mem + len };
}

START_TEST(change_is_told_before_it_happens)
{
	char *mem = test_map(4 * PAGE, 1), *moved;
	struct heard h = of(mem, 4 * PAGE);

	ck_assert_int_eq(regc_on_change(lib, listen_to, &h), 0);
	ck_assert_int_eq(madvise(mem, PAGE, MADV_DONTNEED), 0);
	ck_assert_uint_ge(h.n, 1);
	ck_assert(h.was_mapped);
	h.n = 0;
	ck_assert_ptr_eq(mmap(mem, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 mem);
	ck_assert_uint_eq(h.n, 1);
	ck_assert(h.was_mapped);
	moved = mremap(mem, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	ck_assert_ptr_ne(moved, MAP_FAILED);
	ck_assert_uint_ge(h.n, 2);
	h = of(moved, 8 * PAGE);
	ck_assert_int_eq(munmap(moved, 8 * PAGE), 0);
	ck_assert_uint_eq(h.n, 1);
	ck_assert(h.was_mapped);
	ck_assert_int_eq(regc_on_change(lib, NULL, NULL), 0);
}
END_TEST

START_TEST(memory_that_free_gives_back_is_told)
{
	size_t bytes = 64 << 20;
	char *mem = malloc(bytes);
	struct heard h = of(mem, bytes);

	ck_assert_ptr_nonnull(mem);
	ck_assert_int_eq(regc_on_change(lib, listen_to, &h), 0);
	free(mem);
	ck_assert_uint_ge(h.n, 1);
	ck_assert_int_eq(regc_on_change(lib, NULL, NULL), 0);
}
END_TEST

START_TEST(each_library_listens_for_itself)
{
	char *mem = test_map(2 * PAGE, 1);
	struct heard a = of(mem, 2 * PAGE), b = a;

	ck_assert_int_eq(regc_on_change(lib, listen_to, &a), 0);
	ck_assert_int_eq(regc_on_change(other, listen_to, &b), 0);
	munmap(mem, PAGE);
	ck_assert_uint_eq(a.n, 1);
	ck_assert_uint_eq(b.n, 1);
	ck_assert_int_eq(regc_on_change(lib, NULL, NULL), 0);
	munmap(mem + PAGE, PAGE);
	ck_assert_uint_eq(a.n, 1);
	ck_assert_uint_eq(b.n, 2);
	ck_assert_int_eq(regc_close(other), 0);
	ck_assert_ptr_nonnull(test_map(PAGE, 1));
	raw_mmap_at(mem, PAGE);
	munmap(mem, PAGE);
	ck_assert_uint_eq(b.n, 2);
}
END_TEST

/* A listener that maps and unmaps is not asked about that. */
static unsigned int depth, deepest;

static void listen_and_change(void *arg, void *addr, size_t len)
{
	char *mem;

	(void)arg, (void)addr, (void)len;
	if (++depth > deepest)
		deepest = depth;
	mem = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(mem, PAGE);
	depth--;
}

START_TEST(listener_does_not_hear_itself)
{
	char *mem = test_map(PAGE, 1);

	ck_assert_int_eq(regc_on_change(lib, listen_and_change, NULL), 0);
	munmap(mem, PAGE);
	ck_assert_int_eq(regc_on_change(lib, NULL, NULL), 0);
	ck_assert_uint_eq(deepest, 1);
}
END_TEST

START_TEST(without_hooks_nobody_listens)
{
	static const char *const modes[] = { "strict", "off" };

	setenv("REGC_MODE", modes[_i], 1);
	setup();
	ck_assert_int_eq(regc_on_change(lib, listen_to, NULL), -ENOTSUP);
	ck_assert_int_eq(regc_on_change(lib, NULL, NULL), 0);
	teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("change");
	TCase *fast = tcase_create("fast"), *without = tcase_create("without");

	tcase_set_timeout(fast, 60);
	tcase_set_timeout(without, 60);
	tcase_add_checked_fixture(fast, setup, teardown);
	tcase_add_test(fast, change_is_told_before_it_happens);
	tcase_add_test(fast, memory_that_free_gives_back_is_told);
	tcase_add_test(fast, each_library_listens_for_itself);
	tcase_add_test(fast, listener_does_not_hear_itself);
	tcase_add_loop_test(without, without_hooks_nobody_listens, 0, 2);
	if (!RTAB_TSAN) /* under it there are no hooks */
		suite_add_tcase(s, fast);
	suite_add_tcase(s, without);
	return suite_run(s);
}
