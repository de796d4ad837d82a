/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 for every kind of memory: what can be tracked is cached and never stale,
 * what cannot be tracked is served uncached and right.
 *
 * A ring pins for writing and takes no memory of disk files, so for memory that
 * it refuses the fake device shows whether the lease was cached.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/integration/stale.h"

#define BYTES (12 * PAGE)
#define HUGE (2ul << 20)

enum expect {
	CACHED,
	UNCACHED,
	SHARED /* fast mode: cached; strict mode may decline */
};

struct kind {
	/* At an address or anywhere (NULL); its second mapping is new memory. */
	char *(*map)(char *at, size_t bytes);
	size_t bytes;
	enum expect expect;
};

static char *map_file(int fd, int flags, char *at, size_t bytes)
{
	char *mem;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	mem = mmap(at, bytes, PROT_READ | PROT_WRITE,
		   flags | (at ? MAP_FIXED_NOREPLACE : 0), fd, 0);
	close(fd);
	return mem;
}

static char *map_anonymous(int flags, char *at, size_t bytes)
{
	return mmap(at, bytes, PROT_READ | PROT_WRITE,
		    MAP_ANONYMOUS | flags | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
}

static bool lease_is_cached(struct regc_domain *dom, char *mem, size_t len,
			    unsigned int access)
{
	struct regc_lease lease;
	int r = regc_get(dom, mem, len, access, &lease);
	bool is;

	ck_assert_msg(r == 0, "get: %s", strerror(-r));
	is = !(lease.flags & REGC_LEASE_UNCACHED);
	regc_put(&lease);
	return is;
}

/* Can a ring register it? */
static bool ring_takes(char *mem, size_t len)
{
	struct regc_lease lease;
	int r = regc_get(oracle.dom, mem, len, W, &lease);

	if (r == 0)
		regc_put(&lease);
	else
		ck_assert_msg(r == -EFAULT || r == -EOPNOTSUPP, "get: %s",
			      strerror(-r));
	return r == 0;
}

static void one_kind(const struct kind *kind, enum road road)
{
	char *mem = kind->map(NULL, kind->bytes);
	bool ring, is;

	ck_assert_msg(mem != MAP_FAILED, "map: %s", strerror(errno));
	memset(mem, 1, kind->bytes);
	ring = ring_takes(mem, kind->bytes);
	is = lease_is_cached(fake_dom, mem, kind->bytes, W);
	ck_assert(is == (kind->expect != UNCACHED) ||
		  (kind->expect == SHARED && is_strict()));
	if (ring)
		not_stale(mem, kind->bytes, "first");
	road_unmap(road, mem, kind->bytes);
	ck_assert_int_eq(regc_query(fake_dom, mem, PAGE, W), 0);
	ck_assert_ptr_eq(kind->map(mem, kind->bytes), mem);
	memset(mem, 2, kind->bytes);
	if (ring) {
		not_stale(mem, kind->bytes, road_names[road]);
		not_stale(mem + kind->bytes / 2, PAGE, road_names[road]);
	}
	road_unmap(road, mem, kind->bytes);
	map_anonymous(MAP_PRIVATE, mem, BYTES);
	memset(mem, 3, BYTES);
	not_stale(mem, BYTES, road_names[road]);
	munmap(mem, kind->bytes);
}

static void each_road(const struct kind *kind)
{
	EACH_ROAD(road)
		one_kind(kind, road);
}

static char *map_private(char *at, size_t bytes)
{
	return map_anonymous(MAP_PRIVATE, at, bytes);
}

START_TEST(private_anonymous_memory_is_tracked)
{
	each_road(&(struct kind){ map_private, BYTES, CACHED });
}
END_TEST

static char *map_shared(char *at, size_t bytes)
{
	return map_anonymous(MAP_SHARED, at, bytes);
}

START_TEST(shared_anonymous_memory_is_tracked)
{
	each_road(&(struct kind){ map_shared, BYTES, SHARED });
}
END_TEST

static char *map_memfd(char *at, size_t bytes)
{
	return map_file(memfd_create("kind", MFD_CLOEXEC), MAP_SHARED, at, bytes);
}

START_TEST(memfd_is_tracked)
{
	each_road(&(struct kind){ map_memfd, BYTES, SHARED });
}
END_TEST

static char *map_memfd_private(char *at, size_t bytes)
{
	return map_file(memfd_create("kind", MFD_CLOEXEC), MAP_PRIVATE, at,
			bytes);
}

START_TEST(private_mapping_of_a_memfd_is_tracked)
{
	each_road(&(struct kind){ map_memfd_private, BYTES, SHARED });
}
END_TEST

static char *map_tmpfs(char *at, size_t bytes)
{
	char path[] = "/dev/shm/regc-kind-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	unlink(path);
	return map_file(fd, MAP_SHARED, at, bytes);
}

START_TEST(file_in_memory_is_tracked)
{
	if (access("/dev/shm", W_OK) < 0)
		SKIP("no /dev/shm");
	each_road(&(struct kind){ map_tmpfs, BYTES, SHARED });
}
END_TEST

/* A file of the build folder: a disk, unless somebody builds in memory. */
static int disk_file(void)
{
	char path[] = "regc-kind-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	unlink(path);
	return fd;
}

static char *map_disk_shared(char *at, size_t bytes)
{
	return map_file(disk_file(), MAP_SHARED, at, bytes);
}

static char *map_disk_private(char *at, size_t bytes)
{
	return map_file(disk_file(), MAP_PRIVATE, at, bytes);
}

static bool disk_is_memory(void)
{
	int fd = disk_file();
	char *mem = map_file(fd, MAP_SHARED, NULL, PAGE);
	bool is = ring_takes(mem, PAGE);

	munmap(mem, PAGE);
	return is;
}

START_TEST(shared_disk_file_is_served_uncached)
{
	if (disk_is_memory())
		SKIP("the build folder is in memory");
	each_road(&(struct kind){ map_disk_shared, BYTES, UNCACHED });
}
END_TEST

START_TEST(private_disk_file_is_served_uncached)
{
	if (disk_is_memory())
		SKIP("the build folder is in memory");
	each_road(&(struct kind){ map_disk_private, BYTES, UNCACHED });
}
END_TEST

/* ---- huge pages --------------------------------------------------------- */

static char *map_huge(char *at, size_t bytes)
{
	return map_anonymous(MAP_PRIVATE | MAP_HUGETLB, at, bytes);
}

static char *map_huge_shared(char *at, size_t bytes)
{
	return map_file(memfd_create("kind", MFD_CLOEXEC | MFD_HUGETLB),
			MAP_SHARED, at, bytes);
}

START_TEST(huge_pages_are_tracked)
{
	if (!have_huge_pages())
		SKIP("no huge pages");
	each_road(&(struct kind){ map_huge, 2 * HUGE, CACHED });
	each_road(&(struct kind){ map_huge_shared, 2 * HUGE, SHARED });
}
END_TEST

/* Fault G1 and G4. */
START_TEST(slice_of_huge_pages_is_registered_and_right)
{
	char *mem, *around;

	if (!have_huge_pages())
		SKIP("no huge pages");
	mem = map_huge(NULL, 2 * HUGE);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem, 1, 2 * HUGE);
	cached(mem + HUGE - PAGE, 2 * PAGE);
	ck_assert(!is_cached(mem, PAGE));
	ck_assert_int_eq(madvise(mem + HUGE, HUGE, MADV_DONTNEED), 0);
	mem[HUGE] = 2;
	not_stale(mem + HUGE - PAGE, 2 * PAGE, "half of the slice discarded");
	/* Small pages, huge ones and large folios, side by side. */
	around = mem + 2 * HUGE;
	if (map_private(around, HUGE) == around) {
		memset(around, 3, HUGE);
		not_stale(mem + 2 * HUGE - PAGE, 2 * PAGE, "two page sizes");
		munmap(around, HUGE);
		map_private(around, HUGE);
		memset(around, 4, HUGE);
		not_stale(mem + 2 * HUGE - PAGE, 2 * PAGE, "two page sizes");
	}
}
END_TEST

static char *aligned(size_t bytes)
{
	uintptr_t p = (uintptr_t)map_private(NULL, bytes + HUGE);

	return (char *)((p + HUGE - 1) & ~(HUGE - 1));
}

START_TEST(pages_of_a_transparent_huge_page_given_back_are_seen)
{
	EACH_ROAD(road) {
		char *mem = aligned(2 * HUGE);

		madvise(mem, 2 * HUGE, MADV_HUGEPAGE);
		memset(mem, 1, 2 * HUGE);
		cached(mem + 10 * PAGE, 20 * PAGE);
		cached(mem + HUGE - PAGE, HUGE);
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, mem + 12 * PAGE,
					   PAGE, MADV_DONTNEED, 0, 0, 0), 0);
		not_stale(mem + 10 * PAGE, 20 * PAGE, road_names[road]);
		road_unmap(road, mem + HUGE, 8 * PAGE);
		road_map_at(road, mem + HUGE, 8 * PAGE, 2);
		not_stale(mem + HUGE - PAGE, HUGE, road_names[road]);
		munmap(mem, 2 * HUGE);
	}
}
END_TEST

/* ---- System V, rights, sections ----------------------------------------- */

START_TEST(system_v_memory_is_right_and_never_cached_in_strict_mode)
{
	int id = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
	char *mem = shmat(id, NULL, 0);
	bool is;

	ck_assert_ptr_ne(mem, (char *)-1);
	memset(mem, 1, BYTES);
	is = lease_is_cached(oracle.dom, mem, BYTES, W);
	ck_assert(!is || !is_strict());
	not_stale(mem, BYTES, "shmat");
	memset(mem, 2, BYTES);
	not_stale(mem, BYTES, "shmat");
	ck_assert_int_eq(shmdt(mem), 0);
	ck_assert_int_eq(regc_query(oracle.dom, mem, BYTES, W), 0);
	shmctl(id, IPC_RMID, NULL);
}
END_TEST

START_TEST(read_only_memory_is_tracked)
{
	EACH_ROAD(road) {
		char *mem = mmap(NULL, BYTES, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		/* Law L9: for reading; a ring wants more, and says so. */
		ck_assert(!ring_takes(mem, BYTES));
		ck_assert(lease_is_cached(fake_dom, mem, BYTES, 0));
		ck_assert_uint_eq(fake.last_access, 0);
		ck_assert_int_eq(regc_query(fake_dom, mem, BYTES, 0), 1);
		road_unmap(road, mem, PAGE);
		ck_assert_int_eq(regc_query(fake_dom, mem, BYTES, 0), 0);
		ck_assert_int_eq(regc_query(fake_dom, mem + PAGE, PAGE, 0), 0);
		munmap(mem, BYTES);
	}
}
END_TEST

/* Fault I9. */
START_TEST(memory_without_rights_is_refused_and_not_remembered)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease lease;

	ck_assert_int_eq(mprotect(mem, BYTES, PROT_NONE), 0);
	ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, W, &lease), -EFAULT);
	ck_assert_int_eq(mprotect(mem, BYTES, PROT_READ | PROT_WRITE), 0);
	cached(mem, BYTES);
	munmap(mem, BYTES);
	ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, W, &lease), -EFAULT);
	mem = road_map_at(ROAD_LIBC, mem, BYTES, 2);
	cached(mem, BYTES);
}
END_TEST

START_TEST(range_with_a_hole_is_refused_and_right_once_filled)
{
	char *mem = test_map(BYTES, 1);
	struct regc_lease lease;

	cached(mem, BYTES);
	munmap(mem + 4 * PAGE, PAGE);
	ck_assert_int_eq(regc_get(oracle.dom, mem, BYTES, W, &lease), -EFAULT);
	not_stale(mem, 4 * PAGE, "before the hole");
	not_stale(mem + 5 * PAGE, 4 * PAGE, "after the hole");
	road_map_at(ROAD_RAW, mem + 4 * PAGE, PAGE, 2);
	not_stale(mem, BYTES, "filled");
}
END_TEST

/* One part can be watched, the other cannot. */
START_TEST(range_that_is_tracked_in_part_is_right)
{
	char *mem = test_map(BYTES, 1);

	munmap(mem + 4 * PAGE, 4 * PAGE);
	map_disk_private(mem + 4 * PAGE, 4 * PAGE);
	memset(mem, 2, BYTES);
	not_stale(mem, BYTES, "mixed");
	munmap(mem + 4 * PAGE, 4 * PAGE);
	map_disk_private(mem + 4 * PAGE, 4 * PAGE);
	memset(mem, 3, BYTES);
	not_stale(mem, BYTES, "mixed");
	road_unmap(ROAD_RAW, mem, PAGE);
	road_map_at(ROAD_RAW, mem, PAGE, 4);
	not_stale(mem, BYTES, "mixed");
	not_stale(mem, 4 * PAGE, "mixed");
}
END_TEST

static char in_bss[16 * PAGE] __attribute__((aligned(4096)));
static char in_data[16 * PAGE] __attribute__((aligned(4096))) = { 1 };

START_TEST(memory_of_the_program_itself_is_right)
{
	char stack[16 * PAGE];

	EACH_ROAD(road) {
		memset(in_bss, 1, sizeof(in_bss));
		memset(in_data, 2, sizeof(in_data));
		memset(stack, 3, sizeof(stack));
		not_stale(in_bss, sizeof(in_bss), "bss");
		not_stale(in_data, sizeof(in_data), "data");
		not_stale(stack, sizeof(stack), "stack");
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, in_bss + PAGE, PAGE,
					   MADV_DONTNEED, 0, 0, 0), 0);
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, in_data + PAGE,
					   PAGE, MADV_DONTNEED, 0, 0, 0), 0);
		not_stale(in_bss, sizeof(in_bss), road_names[road]);
		not_stale(in_data, sizeof(in_data), road_names[road]);
	}
	cached(in_bss + 4 * PAGE, PAGE);
	cached(stack + PAGE, PAGE);
}
END_TEST

/* Fault E4: nothing is protected, so nobody waits for anybody. */
START_TEST(page_that_was_never_touched_is_read_without_a_hang)
{
	char *mem = map_private(NULL, 2 * BYTES);

	ck_assert(lease_is_cached(fake_dom, mem, BYTES, W));
	ck_assert_int_eq(mem[0] | mem[BYTES - 1] | mem[2 * BYTES - 1], 0);
	mem[PAGE] = 1;
	not_stale(mem, 2 * BYTES, "never touched");
}
END_TEST

/* Fault F3: the parent's pages stay the device's pages. */
START_TEST(memory_written_after_a_fork_is_right)
{
	char *mem = test_map(BYTES, 1);
	pid_t pid;

	cached(mem, BYTES);
	pid = fork();
	if (pid == 0) {
		memset(mem, 3, BYTES);
		pause();
	}
	memset(mem, 2, BYTES);
	not_stale(mem, BYTES, "after fork");
	kill(pid, SIGKILL);
	memset(mem, 4, BYTES);
	not_stale(mem, BYTES, "after the child's death");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_unchecked_fixture(tc, huge_pages_reserve,
				    huge_pages_return);
	tcase_add_test(tc, private_anonymous_memory_is_tracked);
	tcase_add_test(tc, shared_anonymous_memory_is_tracked);
	tcase_add_test(tc, memfd_is_tracked);
	tcase_add_test(tc, private_mapping_of_a_memfd_is_tracked);
	tcase_add_test(tc, file_in_memory_is_tracked);
	tcase_add_test(tc, shared_disk_file_is_served_uncached);
	tcase_add_test(tc, private_disk_file_is_served_uncached);
	tcase_add_test(tc, huge_pages_are_tracked);
	tcase_add_test(tc, slice_of_huge_pages_is_registered_and_right);
	tcase_add_test(tc, pages_of_a_transparent_huge_page_given_back_are_seen);
	tcase_add_test(tc, system_v_memory_is_right_and_never_cached_in_strict_mode);
	tcase_add_test(tc, read_only_memory_is_tracked);
	tcase_add_test(tc, memory_without_rights_is_refused_and_not_remembered);
	tcase_add_test(tc, range_with_a_hole_is_refused_and_right_once_filled);
	tcase_add_test(tc, range_that_is_tracked_in_part_is_right);
	tcase_add_test(tc, memory_of_the_program_itself_is_right);
	tcase_add_test(tc, page_that_was_never_touched_is_read_without_a_hang);
	tcase_add_test(tc, memory_written_after_a_fork_is_right);
}

int main(void)
{
	return stale_run(stale_suite("no stale answer, any memory", add, 60));
}
