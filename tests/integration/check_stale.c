/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Law L1 for every call that changes a mapping, by every road.
 *
 * A row makes a block of three neighbouring regions, changes it by one road, lets
 * new memory appear, and asks.  Each runs in fast and in strict mode.
 *
 * Some changes raise no event of userfaultfd (BLIND below): they are seen by the
 * hooks or not at all, so the raw roads and strict mode do not promise them.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/stale.h"

#define THIRD (4 * PAGE)
#define BLOCK (3 * THIRD)

/* Nothing but a hook can see it. */
#define BLIND(road) (is_strict() || road_is_raw(road))

/*
 * Three regions in a row, cached, filled with 1; the memory around them is free,
 * and stays so: nobody else maps anything near a window.
 */
static char *block(void)
{
	char *mem = raw_mmap_at(window(BLOCK), BLOCK);

	memset(mem, 1, BLOCK);
	cached(mem, THIRD);
	cached(mem + THIRD, THIRD);
	cached(mem + 2 * THIRD, THIRD);
	return mem;
}

/* The whole block and its parts. */
static void ask(const char *mem, enum road road)
{
	not_stale(mem, THIRD, road_names[road]);
	not_stale(mem + THIRD, THIRD, road_names[road]);
	not_stale(mem + 2 * THIRD, THIRD, road_names[road]);
	not_stale(mem + THIRD - PAGE, 2 * PAGE, road_names[road]);
	not_stale(mem, BLOCK, road_names[road]);
}

static void unmap_and_map(size_t from, size_t bytes)
{
	EACH_ROAD(road)
		EACH_ROAD(back) {
			char *mem = block();

			road_unmap(road, mem + from, bytes);
			road_map_at(back, mem + from, bytes, 2);
			ask(mem, road);
			munmap(mem, BLOCK);
		}
}

START_TEST(unmapping_all_of_it_is_seen)
{
	unmap_and_map(0, BLOCK);
}
END_TEST

START_TEST(unmapping_the_middle_is_seen)
{
	unmap_and_map(THIRD + PAGE, 2 * PAGE);
}
END_TEST

START_TEST(unmapping_the_head_is_seen)
{
	unmap_and_map(0, PAGE);
}
END_TEST

START_TEST(unmapping_the_tail_is_seen)
{
	unmap_and_map(BLOCK - PAGE, PAGE);
}
END_TEST

START_TEST(unmapping_across_regions_is_seen)
{
	unmap_and_map(THIRD - PAGE, 2 * PAGE);
}
END_TEST

START_TEST(neighbours_of_what_was_unmapped_stay_cached)
{
	EACH_ROAD(road) {
		char *mem = block();

		road_unmap(road, mem + THIRD, THIRD);
		ck_assert(!is_cached(mem + THIRD, PAGE));
		WAIT_FOR(is_cached(mem, THIRD), 5);
		WAIT_FOR(is_cached(mem + 2 * THIRD, THIRD), 5);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(mapping_over_the_middle_is_seen)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_mmap, mem + THIRD, THIRD,
					   PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
					   -1, 0), (long)(mem + THIRD));
		memset(mem + THIRD + PAGE, 2, PAGE);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

/* ---- mremap ------------------------------------------------------------- */

START_TEST(shrinking_by_mremap_is_seen)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem, BLOCK,
					   THIRD + PAGE, 0, 0, 0), (long)mem);
		road_map_at(road, mem + THIRD + PAGE, BLOCK - THIRD - PAGE, 2);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(moving_by_mremap_is_seen_on_both_sides)
{
	EACH_ROAD(road) {
		char *mem = block(), *to = block();

		memset(to, 3, BLOCK);
		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem, BLOCK, BLOCK,
					   MREMAP_MAYMOVE | MREMAP_FIXED, to, 0),
				 (long)to);
		memset(to, 4, PAGE);
		ask(to, road);
		road_map_at(road, mem, BLOCK, 2);
		ask(mem, road);
		munmap(mem, BLOCK);
		munmap(to, BLOCK);
	}
}
END_TEST

START_TEST(part_of_it_moved_away_is_seen)
{
	EACH_ROAD(road) {
		char *mem = block(), *to = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem + THIRD, THIRD,
					   THIRD, MREMAP_MAYMOVE | MREMAP_FIXED,
					   to + PAGE, 0), (long)(to + PAGE));
		memset(to + PAGE, 5, PAGE);
		ask(to, road);
		road_map_at(road, mem + THIRD, THIRD, 2);
		ask(mem, road);
		munmap(mem, BLOCK);
		munmap(to, BLOCK);
	}
}
END_TEST

START_TEST(pages_moved_away_while_the_mapping_stays_are_seen)
{
	EACH_ROAD(road) {
		char *mem = block();
		long r = ROAD_CALL(road, SYS_mremap, mem, BLOCK, BLOCK,
				   MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0, 0);
		char *to = (char *)r;

		ck_assert_int_ne(r, -1);
		ask(mem, road);
		memset(mem, 2, THIRD + PAGE);
		memset(to, 3, THIRD + PAGE);
		ask(mem, road);
		ask(to, road);
		munmap(mem, BLOCK);
		munmap(to, BLOCK);
	}
}
END_TEST

START_TEST(growing_in_place_serves_the_new_tail_right)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem, BLOCK,
					   BLOCK + THIRD, 0, 0, 0), (long)mem);
		memset(mem + BLOCK, 2, THIRD);
		ck_assert(!is_cached(mem + BLOCK, THIRD));
		not_stale(mem + 2 * THIRD, 2 * THIRD, road_names[road]);
		not_stale(mem + BLOCK, THIRD, road_names[road]);
		ask(mem, road);
		/* The tail is tracked like the rest. */
		cached(mem + BLOCK, THIRD);
		road_unmap(road, mem + BLOCK, THIRD);
		road_map_at(road, mem + BLOCK, THIRD, 3);
		not_stale(mem + BLOCK, THIRD, road_names[road]);
		munmap(mem, BLOCK + THIRD);
	}
}
END_TEST

START_TEST(growing_to_another_place_is_seen)
{
	EACH_ROAD(road) {
		char *mem = block(), *stop, *to;
		long r;

		stop = road_map_at(ROAD_RAW, mem + BLOCK, PAGE, 9);
		r = ROAD_CALL(road, SYS_mremap, mem, BLOCK, BLOCK + THIRD,
			      MREMAP_MAYMOVE, 0, 0);
		to = (char *)r;
		ck_assert_int_ne(r, -1);
		ck_assert_ptr_ne(to, mem);
		road_map_at(road, mem, BLOCK, 2);
		ask(mem, road);
		ask(to, road);
		munmap(stop, PAGE);
		munmap(mem, BLOCK);
		munmap(to, BLOCK + THIRD);
	}
}
END_TEST

/* ---- madvise ------------------------------------------------------------ */

static void advise(enum road road, char *mem, size_t bytes, int advice)
{
	int r = (int)ROAD_CALL(road, SYS_madvise, mem, bytes, advice, 0, 0, 0);

	ck_assert_msg(r == 0, "madvise %d: %s", advice, strerror(errno));
}

static void discard(int advice)
{
	EACH_ROAD(road) {
		char *mem = block();

		advise(road, mem + THIRD + PAGE, PAGE, advice);
		ask(mem, road);
		cached(mem + THIRD, THIRD);
		advise(road, mem + THIRD, THIRD, advice);
		memset(mem + THIRD, 2, PAGE);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}

/* Fault D2, D3 and D19: it must be possible to make this fail, for ever. */
START_TEST(pages_given_back_by_dontneed_are_seen)
{
	discard(MADV_DONTNEED);
}
END_TEST

START_TEST(pages_given_back_by_free_are_not_trusted)
{
	EACH_ROAD(road) {
		char *mem = block();

		/* The pages go when memory is short, which nobody tells. */
		advise(road, mem + THIRD, THIRD, MADV_FREE);
		ck_assert(!is_cached(mem + THIRD, PAGE));
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(locked_pages_given_back_are_seen)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(mlock(mem, BLOCK), 0);
		ask(mem, road);
		advise(road, mem + THIRD, THIRD, MADV_DONTNEED_LOCKED);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(shared_pages_taken_out_by_remove_are_seen)
{
	EACH_ROAD(road) {
		char *mem = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		ck_assert_ptr_ne(mem, MAP_FAILED);
		memset(mem, 1, BLOCK);
		not_stale(mem, BLOCK, "before");
		advise(road, mem + THIRD, THIRD, MADV_REMOVE);
		ask(mem, road);
		memset(mem, 2, THIRD + PAGE);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(guard_pages_put_over_it_are_seen)
{
	EACH_ROAD(road) {
		char *mem = block();

		if (madvise(mem, PAGE, GUARD_INSTALL) < 0)
			SKIP("no guard pages here: %s", strerror(errno));
		madvise(mem, PAGE, GUARD_REMOVE);
		memset(mem, 1, PAGE);
		cached(mem, THIRD);
		advise(road, mem + THIRD, THIRD, GUARD_INSTALL);
		advise(road, mem + THIRD, THIRD, GUARD_REMOVE);
		if (!BLIND(road))
			ask(mem, road);
		memset(mem + THIRD, 2, PAGE);
		if (!BLIND(road))
			ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(pages_that_become_a_huge_page_stay_right)
{
	char *area = test_map(4ul << 20, 1), *mem;

	mem = (char *)(((uintptr_t)area + (2ul << 20) - 1) & ~((2ul << 20) - 1));
	cached(mem + THIRD, THIRD);
	/* Pinned pages cannot be collapsed; either way the answer is right. */
	madvise(mem, 2ul << 20, MADV_COLLAPSE);
	memset(mem, 2, BLOCK);
	not_stale(mem + THIRD, THIRD, "collapse");
	not_stale(mem, BLOCK, "collapse");
}
END_TEST

static void advise_by_ring(char *mem, size_t bytes, int advice)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;

	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	io_uring_prep_madvise(io_uring_get_sqe(&ring), mem, (off_t)bytes, advice);
	ck_assert_int_eq(io_uring_submit_and_wait(&ring, 1), 1);
	ck_assert_int_eq(io_uring_wait_cqe(&ring, &cqe), 0);
	ck_assert_int_eq(cqe->res, 0);
	io_uring_queue_exit(&ring);
}

START_TEST(pages_given_back_through_a_ring_are_seen)
{
	char *mem = block();

	advise_by_ring(mem + THIRD, THIRD, MADV_DONTNEED);
	ask(mem, ROAD_RAW);
	memset(mem + THIRD, 2, PAGE);
	ask(mem, ROAD_RAW);
}
END_TEST

static void advise_by_pid(enum road road, int pidfd, char *mem, size_t bytes,
			  int advice)
{
	struct iovec iov = { .iov_base = mem, .iov_len = bytes };
	long r = ROAD_CALL(road, SYS_process_madvise, pidfd, &iov, 1, advice, 0,
			   0);

	/* The kernel may not allow it: then nothing changed. */
	if (r < 0)
		ck_assert(errno == EINVAL || errno == EPERM);
	else
		ck_assert_int_eq(r, (long)bytes);
}

START_TEST(process_madvise_of_this_process_is_seen)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	EACH_ROAD(road) {
		char *mem = block();

		advise_by_pid(road, pidfd, mem + THIRD, THIRD, MADV_DONTNEED);
		ask(mem, road);
		cached(mem, THIRD);
		advise_by_pid(road, pidfd, mem, THIRD, MADV_FREE);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
	close(pidfd);
}
END_TEST

START_TEST(process_madvise_from_another_process_is_harmless)
{
	static const int advices[] = { MADV_DONTNEED, MADV_FREE, MADV_PAGEOUT,
				       MADV_COLD, MADV_COLLAPSE };
	char *mem = block();
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), status;
	size_t i;

	for (i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		pid_t pid = fork();

		if (pid == 0) {
			advise_by_pid(ROAD_RAW, pidfd, mem, BLOCK, advices[i]);
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		memset(mem, 10 + (int)i, THIRD);
		ask(mem, ROAD_RAW);
	}
	close(pidfd);
}
END_TEST

/* ---- rights, files, System V -------------------------------------------- */

START_TEST(rights_taken_and_given_back_leave_it_right)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_mprotect, mem + THIRD,
					   THIRD, PROT_NONE, 0, 0, 0), 0);
		ck_assert_int_eq(ROAD_CALL(road, SYS_mprotect, mem + THIRD,
					   THIRD, PROT_READ | PROT_WRITE, 0, 0,
					   0), 0);
		memset(mem + THIRD, 2, PAGE);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

START_TEST(file_pages_in_another_order_are_seen)
{
	int fd = memfd_create("order", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(fd, BLOCK), 0);
	EACH_ROAD(road) {
		char *mem = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED,
				 fd, 0);
		size_t i;

		ck_assert_ptr_ne(mem, MAP_FAILED);
		for (i = 0; i < BLOCK; i++)
			mem[i] = (char)(i / PAGE);
		not_stale(mem, THIRD, "before");
		ck_assert_int_eq(ROAD_CALL(road, SYS_remap_file_pages, mem,
					   2 * PAGE, 0, 5, 0, 0), 0);
		ck_assert_int_eq(mem[0], 5);
		if (!BLIND(road))
			ask(mem, road);
		munmap(mem, BLOCK);
	}
	close(fd);
}
END_TEST

static int segment(void)
{
	int id = shmget(IPC_PRIVATE, BLOCK, IPC_CREAT | 0600);

	ck_assert_int_ge(id, 0);
	return id;
}

START_TEST(shared_segment_put_over_it_is_seen)
{
	EACH_ROAD(road) {
		char *mem = block();
		int id = segment();

		ck_assert_int_eq(ROAD_CALL(road, SYS_shmat, id, mem, SHM_REMAP,
					   0, 0, 0), (long)mem);
		memset(mem, 2, BLOCK - PAGE);
		if (!BLIND(road))
			ask(mem, road);
		ck_assert_int_eq(shmdt(mem), 0);
		shmctl(id, IPC_RMID, NULL);
	}
}
END_TEST

START_TEST(another_shared_segment_at_the_same_address_is_seen)
{
	EACH_ROAD(road) {
		int one = segment(), two = segment();
		char *mem = shmat(one, NULL, 0);

		ck_assert_ptr_ne(mem, (char *)-1);
		memset(mem, 1, BLOCK);
		not_stale(mem, BLOCK, "before");
		ck_assert_int_eq(ROAD_CALL(road, SYS_shmdt, mem, 0, 0, 0, 0, 0),
				 0);
		ck_assert_int_eq(ROAD_CALL(road, SYS_shmat, two, mem, 0, 0, 0,
					   0), (long)mem);
		memset(mem, 2, BLOCK);
		ask(mem, road);
		road_call(road, SYS_shmdt, (long)mem, 0, 0, 0, 0, 0);
		road_map_at(road, mem, BLOCK, 3);
		ask(mem, road);
		munmap(mem, BLOCK);
		shmctl(one, IPC_RMID, NULL);
		shmctl(two, IPC_RMID, NULL);
	}
}
END_TEST

/* ---- calls that fail ---------------------------------------------------- */

START_TEST(calls_that_fail_keep_errno_and_leave_it_right)
{
	EACH_ROAD(road) {
		char *mem = block();

		ck_assert_int_eq(ROAD_CALL(road, SYS_munmap, mem + 1, PAGE, 0, 0,
					   0, 0), -1);
		ck_assert_int_eq(errno, EINVAL);
		ck_assert_int_eq(ROAD_CALL(road, SYS_madvise, mem, PAGE, 9999, 0,
					   0, 0), -1);
		ck_assert_int_eq(errno, EINVAL);
		ck_assert_int_eq(ROAD_CALL(road, SYS_mmap, mem, PAGE, PROT_READ,
					   MAP_PRIVATE | MAP_FIXED, -1, 0), -1);
		ck_assert_int_eq(errno, EBADF);
		ck_assert_int_eq(ROAD_CALL(road, SYS_mremap, mem, PAGE, 2 * PAGE,
					   MREMAP_FIXED, mem + 1, 0), -1);
		ck_assert_int_eq(errno, EINVAL);
		memset(mem, 2, BLOCK);
		ask(mem, road);
		/* What such a call took out of the watch is watched again. */
		road_unmap(ROAD_RAW, mem, BLOCK);
		road_map_at(ROAD_RAW, mem, BLOCK, 3);
		ask(mem, road);
		munmap(mem, BLOCK);
	}
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, unmapping_all_of_it_is_seen);
	tcase_add_test(tc, unmapping_the_middle_is_seen);
	tcase_add_test(tc, unmapping_the_head_is_seen);
	tcase_add_test(tc, unmapping_the_tail_is_seen);
	tcase_add_test(tc, unmapping_across_regions_is_seen);
	tcase_add_test(tc, neighbours_of_what_was_unmapped_stay_cached);
	tcase_add_test(tc, mapping_over_the_middle_is_seen);
	tcase_add_test(tc, shrinking_by_mremap_is_seen);
	tcase_add_test(tc, moving_by_mremap_is_seen_on_both_sides);
	tcase_add_test(tc, part_of_it_moved_away_is_seen);
	tcase_add_test(tc, pages_moved_away_while_the_mapping_stays_are_seen);
	tcase_add_test(tc, growing_in_place_serves_the_new_tail_right);
	tcase_add_test(tc, growing_to_another_place_is_seen);
	tcase_add_test(tc, pages_given_back_by_dontneed_are_seen);
	tcase_add_test(tc, pages_given_back_by_free_are_not_trusted);
	tcase_add_test(tc, locked_pages_given_back_are_seen);
	tcase_add_test(tc, shared_pages_taken_out_by_remove_are_seen);
	tcase_add_test(tc, guard_pages_put_over_it_are_seen);
	tcase_add_test(tc, pages_that_become_a_huge_page_stay_right);
	tcase_add_test(tc, pages_given_back_through_a_ring_are_seen);
	tcase_add_test(tc, process_madvise_of_this_process_is_seen);
	tcase_add_test(tc, process_madvise_from_another_process_is_harmless);
	tcase_add_test(tc, rights_taken_and_given_back_leave_it_right);
	tcase_add_test(tc, file_pages_in_another_order_are_seen);
	tcase_add_test(tc, shared_segment_put_over_it_is_seen);
	tcase_add_test(tc, another_shared_segment_at_the_same_address_is_seen);
	tcase_add_test(tc, calls_that_fail_keep_errno_and_leave_it_right);
}

int main(void)
{
	return stale_run(stale_suite("no stale answer", add, 60));
}
