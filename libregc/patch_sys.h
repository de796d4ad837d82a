/* SPDX-License-Identifier: BSD-2-Clause */
/* What patching needs of the system without calling libc or allocating. */
#ifndef REGC_PATCH_SYS_H
#define REGC_PATCH_SYS_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

/* A system call by hand: negative errno in the result, errno untouched. */
#ifdef __x86_64__
static inline long patch_raw(long nr, long a, long b, long c, long d, long e,
			     long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return rc;
}
#elif defined(__aarch64__)
static inline long patch_raw(long nr, long a, long b, long c, long d, long e,
			     long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "no system calls for this machine"
#endif

static inline int patch_raw_open(const char *path, int flags)
{
	return (int)patch_raw(SYS_openat, AT_FDCWD, (long)path,
			      flags | O_CLOEXEC, 0, 0, 0);
}

static inline void patch_raw_close(int fd)
{
	patch_raw(SYS_close, fd, 0, 0, 0, 0, 0);
}

/* One line of /proc/self/maps. */
struct patch_map {
	uint64_t start, end;
	int prot;
	bool shared, file;
	const char *name;
};

/* A file being read; every byte of its memory is here. */
struct patch_maps {
	int fd;
	size_t n, at;
	char buf[PATH_MAX + 1024];
};

/* For /proc/self/maps and smaps. The caller closes fd. 0 or -errno. */
int patch_maps_open(struct patch_maps *m, const char *path);
/* The next line, its end replaced by 0; NULL at the end of the file. */
char *patch_maps_line(struct patch_maps *m);
/* False for lines that describe no mapping. name points into s. */
bool patch_map_parse(const char *s, struct patch_map *ret);
/* The next mapping; its name lives until the next call. */
bool patch_maps_next(struct patch_maps *m, struct patch_map *ret);
/* The mapping that holds address a; its name, cut to n_name, goes to name. */
int patch_map_find(uint64_t a, struct patch_map *ret, char *name,
		   size_t n_name);

#endif
