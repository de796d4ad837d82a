/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 where the pages of a file go while its mapping stays: truncation and holes.
 *
 * The kernel raises no event for these.  What libc is asked to do in this process
 * must be seen in fast mode; strict mode must not cache what it cannot see.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/stale.h"

#define BYTES (12 * PAGE)
#define HUGE (2ul << 20)

/* Nothing but a hook can see it, and fast mode has nothing else. */
static bool seen_by_nobody(enum road road)
{
	return !is_strict() && road_is_raw(road);
}

static char *map_and_cache(int fd, size_t bytes)
{
	char *mem;

	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(mem, MAP_FAILED);
	memset(mem, 1, bytes);
	not_stale(mem, bytes, "first");
	return mem;
}

static void ask(const char *mem, size_t bytes, enum road road)
{
	if (seen_by_nobody(road))
		return;
	not_stale(mem, bytes, road_names[road]);
	not_stale(mem + bytes / 2, PAGE, road_names[road]);
}

static int memfd(void)
{
	int fd = memfd_create("stale", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void punch(enum road road, int fd, size_t from, size_t bytes)
{
	int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

	ck_assert_int_eq(ROAD_CALL(road, SYS_fallocate, fd, mode, from, bytes, 0,
				   0), 0);
}

/* Fault D16. */
START_TEST(hole_punched_into_a_memfd_is_seen)
{
	EACH_ROAD(road) {
		int fd = memfd();
		char *mem = map_and_cache(fd, BYTES);

		punch(road, fd, 0, BYTES);
		ask(mem, BYTES, road);
		memset(mem, 2, BYTES);
		ask(mem, BYTES, road);
		punch(road, fd, BYTES / 2, PAGE);
		mem[BYTES / 2] = 3;
		ask(mem, BYTES, road);
		close(fd);
		munmap(mem, BYTES);
	}
}
END_TEST

START_TEST(memfd_truncated_and_grown_again_is_seen)
{
	EACH_ROAD(road) {
		int fd = memfd();
		char *mem = map_and_cache(fd, BYTES);

		ck_assert_int_eq(ROAD_CALL(road, SYS_ftruncate, fd, PAGE, 0, 0, 0,
					   0), 0);
		ck_assert_int_eq(ROAD_CALL(road, SYS_ftruncate, fd, BYTES, 0, 0,
					   0, 0), 0);
		ask(mem, BYTES, road);
		memset(mem, 2, BYTES);
		ask(mem, BYTES, road);
		close(fd);
		munmap(mem, BYTES);
	}
}
END_TEST

START_TEST(hole_in_huge_pages_is_seen)
{
	EACH_ROAD(road) {
		int fd = memfd_create("stale", MFD_CLOEXEC | MFD_HUGETLB);
		char *mem;

		if (!have_huge_pages())
			SKIP("no huge pages");
		ck_assert_int_eq(ftruncate(fd, HUGE), 0);
		mem = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		ck_assert_ptr_ne(mem, MAP_FAILED);
		memset(mem, 1, HUGE);
		not_stale(mem, HUGE, "first");
		punch(road, fd, 0, HUGE);
		mem[0] = 2;
		ask(mem, HUGE, road);
		close(fd);
		munmap(mem, HUGE);
	}
}
END_TEST

/* The mapping that is cached is not the one that is told to give pages back. */
START_TEST(pages_removed_through_another_mapping_are_seen)
{
	EACH_ROAD(road) {
		int fd = memfd();
		char *mem = map_and_cache(fd, BYTES), *other;

		other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			     0);
		ck_assert_ptr_ne(other, MAP_FAILED);
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, other, BYTES,
					   MADV_REMOVE, 0, 0, 0), 0);
		ask(mem, BYTES, road);
		memset(mem, 2, BYTES);
		ask(mem, BYTES, road);
		close(fd);
		munmap(mem, BYTES);
		munmap(other, BYTES);
	}
}
END_TEST

static int named_file(char *path)
{
	int fd = mkostemp(path, O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(file_truncated_by_its_name_is_seen)
{
	char path[] = "/dev/shm/regc-stale-XXXXXX";
	int fd;
	char *mem;

	if (access("/dev/shm", W_OK) < 0)
		SKIP("no /dev/shm");
	fd = named_file(path);
	mem = map_and_cache(fd, BYTES);
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(truncate(path, BYTES), 0);
	ask(mem, BYTES, ROAD_LIBC);
	memset(mem, 2, BYTES);
	ask(mem, BYTES, ROAD_LIBC);
	close(fd);
	unlink(path);
}
END_TEST

START_TEST(file_emptied_by_open_is_seen)
{
	char path[] = "/dev/shm/regc-stale-XXXXXX";
	int fd, again;
	char *mem;

	if (access("/dev/shm", W_OK) < 0)
		SKIP("no /dev/shm");
	fd = named_file(path);
	mem = map_and_cache(fd, BYTES);
	again = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
	unlink(path);
	ck_assert_int_ge(again, 0);
	ck_assert_int_eq(ftruncate(again, BYTES), 0);
	ask(mem, BYTES, ROAD_LIBC);
	memset(mem, 2, BYTES);
	ask(mem, BYTES, ROAD_LIBC);
	close(fd);
	close(again);
}
END_TEST

/*
 * Another process is out of the contract in fast mode; strict mode has no
 * exception.
 */
START_TEST(hole_punched_by_another_process_is_not_served_stale_in_strict_mode)
{
	int fd = memfd(), status;
	char *mem = map_and_cache(fd, BYTES);
	pid_t pid = fork();

	if (pid == 0) {
		punch(ROAD_RAW, fd, 0, BYTES);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	memset(mem, 2, BYTES);
	ask(mem, BYTES, ROAD_RAW);
	close(fd);
	munmap(mem, BYTES);
}
END_TEST

/* The same pages, so nothing is void. */
START_TEST(writes_through_another_mapping_stay_right)
{
	int fd = memfd();
	char *mem = map_and_cache(fd, BYTES), *other;

	other = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(other, MAP_FAILED);
	memset(other, 2, BYTES);
	not_stale(mem, BYTES, "written through another mapping");
	ck_assert_int_eq(pwrite(fd, "x", 1, (off_t)PAGE), 1);
	not_stale(mem, BYTES, "written by pwrite");
	ck_assert_int_eq(munmap(other, BYTES), 0);
	not_stale(mem, BYTES, "the other mapping went");
	close(fd);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_unchecked_fixture(tc, huge_pages_reserve, huge_pages_return);
	tcase_add_test(tc, hole_punched_into_a_memfd_is_seen);
	tcase_add_test(tc, memfd_truncated_and_grown_again_is_seen);
	tcase_add_test(tc, hole_in_huge_pages_is_seen);
	tcase_add_test(tc, pages_removed_through_another_mapping_are_seen);
	tcase_add_test(tc, file_truncated_by_its_name_is_seen);
	tcase_add_test(tc, file_emptied_by_open_is_seen);
	tcase_add_test(tc,
		hole_punched_by_another_process_is_not_served_stale_in_strict_mode);
	tcase_add_test(tc, writes_through_another_mapping_stay_right);
}

int main(void)
{
	return stale_run(stale_suite("no stale answer, files", add, 60));
}
