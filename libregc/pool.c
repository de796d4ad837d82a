/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for buffers on memfds of regc's own; see regc_alloc().
 *
 * Each piece is a memfd that nobody else has a descriptor of, sealed against
 * shrinking and growing, mapped shared and registered in MINOR and WP mode, with
 * all its pages present.  A piece is found by a search without lock in an array that
 * only grows; a piece that is freed leaves its place.
 */
#include "libregc/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define N_PIECES 4096

struct piece {
	uint64_t start, end; /* start 0: free; end is written first */
	uint64_t page;
	uint64_t attach; /* of the process that made it */
};

static struct piece pieces[N_PIECES];
static uint32_t n_pieces;

bool pool_has(uint64_t start, uint64_t end, uint64_t *ret_page)
{
	uint32_t n = rtab_load_acquire(&n_pieces), i;

	for (i = 0; i < n; i++) {
		uint64_t low = rtab_load_acquire(&pieces[i].start);

		if (!low || start < low ||
		    end > rtab_load_relaxed(&pieces[i].end) ||
		    rtab_load_relaxed(&pieces[i].attach) != rt.attach)
			continue;
		*ret_page = rtab_load_relaxed(&pieces[i].page);
		return true;
	}
	return false;
}

/* Cache lock. */
static struct piece *free_piece(void)
{
	uint32_t i;

	for (i = 0; i < n_pieces; i++)
		if (!pieces[i].start || pieces[i].attach != rt.attach)
			return &pieces[i];
	return i < N_PIECES ? &pieces[i] : NULL;
}

static int put_piece(uint64_t start, uint64_t bytes, uint64_t page)
{
	struct piece *p;

	rt_cache_lock();
	p = free_piece();
	if (p) {
		rtab_store_relaxed(&p->start, 0);
		rtab_fence_release();
		rtab_store_relaxed(&p->end, start + bytes);
		rtab_store_relaxed(&p->page, page);
		rtab_store_relaxed(&p->attach, rt.attach);
		rtab_store_release(&p->start, start);
		if (p == &pieces[n_pieces])
			rtab_store_release(&n_pieces, n_pieces + 1);
	}
	rt_cache_unlock();
	return p ? 0 : -ENOMEM;
}

static int sealed_memfd(uint64_t bytes, bool huge)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING |
			     (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
	int fd = memfd_create("regc-buffer", flags);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

static int map_piece(uint64_t bytes, bool huge, char **ret)
{
	int fd = sealed_memfd(bytes, huge), r = 0;

	if (fd < 0)
		return fd;
	*ret = rtab_raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, fd, 0, &r);
	close(fd);
	if (*ret)
		rtab_raw_madvise(*ret, bytes, MADV_DONTFORK);
	return *ret ? 0 : r;
}

/* Without it a receive there is guarded like private memory. */
static void watch_piece(uint64_t start, uint64_t bytes)
{
	struct uffdio_register reg = {
		.range = { .start = start, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP,
	};

	if (rtab_load_relaxed(&rt.uffd) >= 0 && rt.uffd_minor)
		ioctl(rt.uffd, UFFDIO_REGISTER, &reg);
}

int regc_alloc(struct regc_library *lib, size_t bytes, unsigned int flags, void **ret)
{
	bool huge = flags & REGC_ALLOC_HUGE;
	uint64_t size;
	char *mem = NULL;
	int saved = errno, r = rt_enter();

	(void)lib;
	if (!bytes || bytes > SIZE_MAX / 2 || (flags & ~(unsigned int)REGC_ALLOC_HUGE))
		return -EINVAL;
	if (r)
		return r;
	if (huge) {
		size = rtab_round_up(bytes, HUGE_BYTES);
		huge = map_piece(size, true, &mem) == 0;
	}
	if (!huge) {
		size = rtab_round_up(bytes, RTAB_PAGE);
		r = map_piece(size, false, &mem);
	}
	if (!r)
		r = put_piece((uintptr_t)mem, size, huge ? HUGE_BYTES : RTAB_PAGE);
	if (r && mem)
		rtab_raw_munmap(mem, size);
	if (!r) {
		watch_piece((uintptr_t)mem, size);
		*ret = mem;
	}
	errno = saved;
	return r;
}

int regc_free(struct regc_library *lib, void *mem, size_t bytes)
{
	uint64_t start = (uintptr_t)mem, end = 0;
	uint32_t i;

	(void)lib;
	if (!mem)
		return 0;
	if (rt_enter())
		return 0;
	rt_cache_lock();
	for (i = 0; i < n_pieces && !end; i++)
		if (pieces[i].start == start && pieces[i].attach == rt.attach &&
		    bytes <= pieces[i].end - start &&
		    rtab_round_up(bytes, pieces[i].page) ==
			    pieces[i].end - start) {
			end = pieces[i].end;
			rtab_store_release(&pieces[i].start, 0);
		}
	rt_cache_unlock();
	if (!end)
		return -EINVAL;
	/* munmap(3), so that the hook voids what is registered there. */
	munmap(mem, end - start);
	return 0;
}
