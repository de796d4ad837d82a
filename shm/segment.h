/* SPDX-License-Identifier: BSD-2-Clause */
/* Memfds that processes share: make, size, seal, check, map. */
#ifndef REGC_SHM_SEGMENT_H
#define REGC_SHM_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Makes a sparse memfd of bytes, close-on-exec, maps it shared and writable, and
 * seals it against shrinking, growing and (after the mapping, if read_only_later)
 * every later writable mapping.  *ret_fd and *ret_mem are the caller's.
 * -errno; -EFBIG also where RLIMIT_FSIZE is too small (never SIGXFSZ).
 */
int rtab_segment_new(const char *name, uint64_t bytes, bool read_only_later,
		     int *ret_fd, void **ret_mem);

/*
 * Checks that fd is a memfd that cannot shrink or grow, of exactly bytes (or, if
 * bytes is 0, of at least min_bytes, size in *ret_bytes).  -EPROTO.
 */
int rtab_segment_check(int fd, uint64_t bytes, uint64_t min_bytes,
		       uint64_t *ret_bytes);

/*
 * Raw system calls, which regc's own hooks do not see (they patch libc's
 * functions), for regc's own memory.  NULL with *ret_err, or 0/-errno.
 */
void *rtab_raw_mmap(void *addr, uint64_t bytes, int prot, int flags, int fd,
		    uint64_t offset, int *ret_err);
int rtab_raw_munmap(void *addr, uint64_t bytes);
int rtab_raw_madvise(void *addr, uint64_t bytes, int advice);

/* membarrier private expedited: registered once, then the heavy fence. */
int rtab_heavy_fence_init(void);
/* False: the kernel did not do it, and nothing may be concluded. */
bool rtab_heavy_fence(void);

/* CLOCK_MONOTONIC and CLOCK_BOOTTIME in ns. */
uint64_t rtab_now_ns(void);
uint64_t rtab_boot_ns(void);

#endif
