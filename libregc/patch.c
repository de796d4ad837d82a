/* SPDX-License-Identifier: BSD-2-Clause */
/* Patching of libc's own wrapper functions: places, stubs, installation. */
#include "libregc/patch.h"
#include "libregc/patch_sys.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * libc calls its own munmap, madvise and brk without going through symbols,
 * so the functions themselves are changed: one instruction of each becomes a
 * jump to a stub, and the stub leads to the hook. Which instruction, and why
 * one store is safe for threads that are executing the function, is the
 * architecture's part. States of a struct patch:
 *
 *	cleared -> prepared -> live
 *
 * prepare decodes and writes stubs, changes nothing anybody executes, and is
 * where all doubts end in a refusal. commit does the store. live is for ever;
 * the stub page is never unmapped and never changed again.
 *
 * The stub page, one for each function:
 *	0	magic, by which another copy of this code knows a stub
 *	16	undo what came before the replaced instruction; jump to the hook
 *	128	the code up to and with the replaced instruction; jump behind it
 *
 * A page each costs 4 KiB and means that no page is ever writable and
 * executable, or written after it could be executed. Where a process may not
 * turn written anonymous memory into code, the page is mapped from a memfd.
 * It has no unwind tables: a debugger that stops inside a stub's few
 * instructions sees no caller. Inside libc's function and the hook it does.
 *
 * Making the text writable (write_locked()). It must stay executable while
 * other threads are in the page, so it is made writable besides executable
 * for the time of the store. A kernel that refuses (systemd's and SELinux'
 * rules against it) still lets a process write through /proc/self/mem, but
 * that is a copy routine of the kernel: eight bytes may be one store, or the
 * processor's string instruction, whose order and width nobody promises. So
 * that way is only taken while the process has one thread, this one, which
 * cannot be executing the function at the same time. Otherwise -EPERM.
 *
 * Two copies of this code in one process must not do this at the same time:
 * one would take back the other's right to write just before the store, or
 * leave the text writable. They exclude each other with flock() on
 * /proc/self/maps, an inode of this process alone; it holds between threads,
 * a forked child has another inode, and an explicit unlock frees it even if a
 * fork copied the descriptor.
 *
 * Everything here uses system calls made by hand: the functions of libc are
 * what is being patched, and a sanitizer's are not wanted.
 */

#define PATCH_MAGIC "regc patch 1\0\0\0"	/* 16 bytes with the last 0 */
#define PLACE_TRIES 8
#define LOCK_TRIES 1000		/* of 1 ms */
#define LOWEST_PLACE 65536u	/* vm.mmap_min_addr of most systems */
#define HEAP_RESERVE (UINT64_C(64) << 20)

static uint64_t page_bytes(void)
{
	return getauxval(AT_PAGESZ);
}

int patch_refuse(char why[PATCH_WHY_BYTES], int rc, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, PATCH_WHY_BYTES, format, ap);
	va_end(ap);
	return rc;
}

/* Which function is libc's. */

/*
 * In a static program dlopen() would load a second libc, so the addresses are
 * those of the program. The references are weak: what the program does not
 * contain nobody calls.
 */
#pragma weak munmap
#pragma weak mmap
#pragma weak mremap
#pragma weak madvise
#pragma weak mprotect
#pragma weak brk
#pragma weak shmdt
#pragma weak shmat
#pragma weak ftruncate
#pragma weak fallocate
#pragma weak process_madvise
#pragma weak remap_file_pages
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlinfo

static const struct known {
	const char *name;
	unsigned int n_args;
	void *address;
} known[] = {
	{ "munmap", 2, (void *)munmap },
	{ "mmap", 6, (void *)mmap },
	{ "mremap", 5, (void *)mremap },
	{ "madvise", 3, (void *)madvise },
	{ "mprotect", 3, (void *)mprotect },
	{ "brk", 1, (void *)brk },
	{ "shmdt", 1, (void *)shmdt },
	{ "shmat", 3, (void *)shmat },
	{ "ftruncate", 2, (void *)ftruncate },
	{ "fallocate", 4, (void *)fallocate },
	{ "process_madvise", 5, (void *)process_madvise },
	{ "remap_file_pages", 5, (void *)remap_file_pages },
};

static const struct known *known_find(const char *name)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return &known[i];
	return NULL;
}

/* The program comes first; only a static one asks for no loader. */
static int program_is_static(struct dl_phdr_info *info, size_t n, void *ret)
{
	(void)n;
	*(bool *)ret = true;
	for (unsigned int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_INTERP)
			*(bool *)ret = false;
	return 1;
}

static bool is_static(void)
{
	bool ret = false;

	dl_iterate_phdr(program_is_static, &ret);
	return ret;
}

static void *libc_handle(void)
{
	static const char *const names[] = {
		"libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1",
		"ld-musl-x86_64.so.1", "ld-musl-aarch64.so.1",
	};
	void *handle = NULL;

	if (!dlopen || !dlsym || !dlinfo)
		return NULL;
	/* The reference is kept: libc does not go away. */
	for (size_t i = 0; !handle && i < sizeof(names) / sizeof(*names); i++)
		handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
	return handle;
}

int patch_resolve(const char *name, void **ret)
{
	const struct known *k = known_find(name);
	int saved_errno = errno, rc = 0;
	void *handle, *address = NULL;

	if (is_static()) {
		address = k ? k->address : NULL;
	} else {
		handle = libc_handle();
		if (handle)
			address = dlsym(handle, name);
		else
			rc = -ENOSYS;
	}
	if (!rc && !address)
		rc = -ENOENT;
	if (!rc)
		*ret = address;
	errno = saved_errno;
	return rc;
}

/* dlsym() also looks into what libc depends on: compare the objects. */
static bool is_in_libc(const void *target)
{
	struct link_map *map = NULL;
	void *handle;
	Dl_info info;

	if (is_static())
		return true;
	handle = libc_handle();
	return handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map) && map &&
	       dladdr(target, &info) && info.dli_fname &&
	       !strcmp(info.dli_fname, map->l_name);
}

int patch_check_home(const void *target, char why[PATCH_WHY_BYTES])
{
	char name[PATCH_WHY_BYTES / 2];
	int saved_errno = errno, rc;
	struct patch_map map;

	rc = patch_map_find((uintptr_t)target, &map, name, sizeof(name));
	if (rc)
		rc = patch_refuse(why, -ENOTSUP, "%p is not to be found: %s",
				  target, "/proc/self/maps");
	else if (!map.file || map.shared || !(map.prot & PROT_EXEC) ||
		 !(map.prot & PROT_READ))
		rc = patch_refuse(why, -ENOTSUP,
				  "not in a file's private code: %s", name);
	else if (!is_in_libc(target))
		rc = patch_refuse(why, -ENOTSUP, "not libc's but of %s", name);
	errno = saved_errno;
	return rc;
}

/* Bytes of the function that may be read, as far as its symbol says. */
static size_t function_bytes(const void *target)
{
	char name[8];
	size_t n_known = PATCH_MAX_PREFIX_BYTES, n;
	struct patch_map map;
#ifdef __GLIBC__
	const ElfW(Sym) *sym = NULL;
	Dl_info info;

	if (!is_static() &&
	    dladdr1(target, &info, (void **)&sym, RTLD_DL_SYMENT) && sym &&
	    info.dli_saddr == target && sym->st_size)
		n_known = sym->st_size;
#endif
	if (patch_map_find((uintptr_t)target, &map, name, sizeof(name)))
		return 0;
	n = (size_t)(map.end - (uintptr_t)target);
	return n < n_known ? n : n_known;
}

/* Places near the code. */

struct gaps {
	uint64_t target, page;
	uint64_t below, above;	/* best so far, 0 = none */
};

static bool in_reach(uint64_t a, uint64_t b)
{
	return (a > b ? a - b : b - a) < patch_arch_reach;
}

/* A gap [start, end) between mappings low and high (names). */
static void gaps_add(struct gaps *g, uint64_t start, uint64_t end,
		     const char *high, bool low_is_heap)
{
	uint64_t place;

	if (start < LOWEST_PLACE)
		start = LOWEST_PLACE;
	/* Leave the room that stack and heap grow into. */
	if (low_is_heap)
		start += HEAP_RESERVE;
	if (end < start || end - start < g->page || !strncmp(high, "[stack", 6))
		return;
	if (end <= g->target) {
		place = end - g->page;
		if (in_reach(place, g->target))
			g->below = place;
	} else if (start > g->target && !g->above) {
		if (in_reach(start, g->target))
			g->above = start;
	}
}

/*
 * The nearest free page below target, else above: below a static program's
 * code the heap is in nobody's way.
 */
static int gaps_find(struct gaps *g)
{
	uint64_t end = 0;
	bool heap = false;
	struct patch_maps m;
	struct patch_map map;
	int rc = patch_maps_open(&m, "/proc/self/maps");

	if (rc < 0)
		return rc;
	g->below = g->above = 0;
	while (patch_maps_next(&m, &map)) {
		if (map.start > end)
			gaps_add(g, end, map.start, map.name, heap);
		end = map.end;
		heap = !strcmp(map.name, "[heap]");
	}
	patch_raw_close(m.fd);
	return 0;
}

static long stub_map_anonymous(uint64_t place, uint64_t page,
			       const uint8_t *image)
{
	int prot = PROT_READ | PROT_EXEC;
	long got = patch_raw(SYS_mmap, (long)place, (long)page,
			     PROT_READ | PROT_WRITE, MAP_PRIVATE |
			     MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	long rc;

	if (got != (long)place)
		return got;
	memcpy((void *)(uintptr_t)place, image, PATCH_STUB_BYTES);
	rc = patch_raw(SYS_mprotect, got, (long)page, prot, 0, 0, 0);
	if (!rc)
		return got;
	patch_raw(SYS_munmap, got, (long)page, 0, 0, 0, 0);
	return -EACCES;
}

static long stub_map_memfd(uint64_t place, uint64_t page, const uint8_t *image)
{
	long fd = patch_raw(SYS_memfd_create, (long)"regc-stub", MFD_CLOEXEC,
			    0, 0, 0, 0);
	long rc;

	if (fd < 0)
		return -EACCES;
	rc = patch_raw(SYS_ftruncate, fd, (long)page, 0, 0, 0, 0);
	if (!rc)
		rc = patch_raw(SYS_pwrite64, fd, (long)image, PATCH_STUB_BYTES,
			       0, 0, 0);
	if (rc == PATCH_STUB_BYTES)
		rc = patch_raw(SYS_mmap, (long)place, (long)page,
			       PROT_READ | PROT_EXEC,
			       MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);
	patch_raw_close((int)fd);
	return rc == -EPERM ? -EACCES : rc;
}

static int stub_place_at(struct patch *p, uint64_t place, uint64_t page)
{
	uint8_t image[PATCH_STUB_BYTES] = PATCH_MAGIC;
	long got;
	int rc;

	rc = patch_arch_stub(&p->site, p->target, place, p->hook, image);
	if (rc < 0)
		return rc;
	got = stub_map_anonymous(place, page, image);
	if (got == -EACCES)
		got = stub_map_memfd(place, page, image);
	if (got > 0 && (uint64_t)got != place) {
		/* A kernel that takes the address for a hint. */
		patch_raw(SYS_munmap, got, (long)page, 0, 0, 0, 0);
		return -EEXIST;
	}
	if (got < 0)
		return (int)got;
#ifdef PR_SET_VMA_ANON_NAME
	patch_raw(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, got, (long)page,
		  (long)"regc-stub", 0);
#endif
	patch_arch_sync((void *)got, PATCH_STUB_BYTES);
	p->orig = (void *)(got + PATCH_STUB_ORIG);
	return 0;
}

static int stub_place(struct patch *p)
{
	struct gaps g = { .target = (uintptr_t)p->target,
			  .page = page_bytes() };
	uint64_t place;
	int rc = 0;

	for (unsigned int i = 0; i < PLACE_TRIES; i++) {
		rc = gaps_find(&g);
		if (rc < 0)
			break;
		place = g.below ? g.below : g.above;
		if (!place)
			return patch_refuse(p->why, -ENOMEM,
					    "no free page near %p", p->target);
		rc = stub_place_at(p, place, g.page);
		if (rc != -EEXIST)
			break;
	}
	if (!rc)
		return 0;
	if (rc == -EACCES)
		return patch_refuse(p->why, -EPERM,
				    "no executable memory allowed");
	return patch_refuse(p->why, -ENOMEM, "no stub near %p: error %d",
			    p->target, -rc);
}

/* Says who was there before. */
static int tell_rival(char why[PATCH_WHY_BYTES], uint64_t to)
{
	char name[PATCH_WHY_BYTES / 2] = "";
	uint64_t page = to & ~(page_bytes() - 1);
	struct patch_map map;

	if (patch_map_find(to, &map, name, sizeof(name)))
		snprintf(name, sizeof(name), "nowhere");
	else if (to - page == PATCH_STUB_HOOK && (map.prot & PROT_READ) &&
		 !memcmp((void *)(uintptr_t)page, PATCH_MAGIC, 16))
		return patch_refuse(why, -EEXIST,
				    "already patched by another regc, stub %#llx",
				    (unsigned long long)to);
	/* The name alone: who reads it has room for little. */
	return patch_refuse(why, -EEXIST, "already patched, jumps into %s",
			    strrchr(name, '/') ? strrchr(name, '/') + 1 :
			    *name ? name : "anonymous memory");
}

static uint8_t *word_of(const struct patch *p)
{
	uint64_t at = (uintptr_t)p->target + p->site.offset;

	return (uint8_t *)(uintptr_t)(at & ~(uint64_t)(p->site.store - 1));
}

/* The words before and after, in place of the jump and around it. */
static void words_make(struct patch *p)
{
	uint64_t at = (uintptr_t)p->target + p->site.offset;
	uint64_t stub = (uintptr_t)p->orig - PATCH_STUB_ORIG;
	uint8_t *word = word_of(p);

	memcpy(p->before, word, p->site.store);
	memcpy(p->after, p->before, sizeof(p->after));
	patch_arch_jump((uint8_t *)p->after + (at - (uintptr_t)word), at,
			stub + PATCH_STUB_HOOK);
}

/*
 * A rival may have changed the code since it was decoded, and the stub or the
 * word have a copy of that. Rivals only ever come: if the code still decodes
 * to the same place now, it was untouched all the time before. What comes
 * later changes the word, which the store in commit compares.
 */
static int decode_again(struct patch *p, size_t n_code, unsigned int n_args)
{
	struct patch_site site = { 0 };
	int rc = patch_arch_decode(p->target, n_code, n_args, &site, p->why);

	if (!rc && (site.offset != p->site.offset ||
		    site.length != p->site.length))
		rc = -EEXIST;
	return rc;
}

int patch_prepare_at(struct patch *p, void *target, size_t n_code,
		     unsigned int n_args)
{
	int saved_errno = errno, rc;

	p->why[0] = 0;
	p->target = target;
	p->n_code = n_code;
	memset(&p->site, 0, sizeof(p->site));
	rc = patch_arch_decode(target, n_code, n_args, &p->site, p->why);
	if (rc == -EEXIST)
		rc = tell_rival(p->why, p->site.jumps_to);
	if (!rc)
		rc = stub_place(p);
	if (!rc) {
		words_make(p);
		rc = decode_again(p, n_code, n_args);
		p->prepared = !rc;
	}
	errno = saved_errno;
	return rc;
}

int patch_prepare(struct patch *p)
{
	const struct known *k = known_find(p->name);
	void *target = p->target;
	int rc = 0;

	p->why[0] = 0;
	p->prepared = p->live = false;
	if (!target)
		rc = patch_resolve(p->name, &target);
	if (rc)
		return patch_refuse(p->why, rc, rc == -ENOSYS ?
				    "libc was not found, so no %s" :
				    "libc has no %s", p->name);
	rc = patch_check_home(target, p->why);
	if (rc)
		return rc;
	return patch_prepare_at(p, target, function_bytes(target),
				k ? k->n_args : PATCH_ALL_ARGS);
}

/* Installation. */

/* 0 with a locked descriptor in *ret_fd. */
static int install_lock(int *ret_fd)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	int fd = patch_raw_open("/proc/self/maps", O_RDONLY);
	long rc = -EWOULDBLOCK;

	if (fd < 0)
		return fd;
	for (unsigned int i = 0; i < LOCK_TRIES; i++) {
		rc = patch_raw(SYS_flock, fd, LOCK_EX | LOCK_NB, 0, 0, 0, 0);
		if (rc != -EWOULDBLOCK && rc != -EINTR)
			break;
		patch_raw(SYS_nanosleep, (long)&pause, 0, 0, 0, 0, 0);
	}
	if (rc) {
		patch_raw_close(fd);
		return rc == -EWOULDBLOCK || rc == -EINTR ? -EBUSY : (int)rc;
	}
	*ret_fd = fd;
	return 0;
}

static void install_unlock(int fd)
{
	patch_raw(SYS_flock, fd, LOCK_UN, 0, 0, 0, 0);
	patch_raw_close(fd);
}

/* The links of the directory are itself, its entry, and one a thread. */
static bool has_one_thread(void)
{
	struct statx st;
	long rc = patch_raw(SYS_statx, AT_FDCWD, (long)"/proc/self/task", 0,
			    STATX_NLINK, (long)&st, 0);

	return !rc && st.stx_nlink == 3;
}

/*
 * Bits that mprotect() would take away if it were not told to keep them: code
 * with branch protection. They are only shown in smaps.
 */
static int extra_prot(uint64_t a)
{
#if defined(__aarch64__) && defined(PROT_BTI) && defined(HWCAP2_BTI)
	bool inside = false, found = false;
	const char *line;
	struct patch_map map;
	struct patch_maps m;

	if (!(getauxval(AT_HWCAP2) & HWCAP2_BTI) ||
	    patch_maps_open(&m, "/proc/self/smaps") < 0)
		return 0;
	while (!found && (line = patch_maps_line(&m))) {
		if (patch_map_parse(line, &map))
			inside = a >= map.start && a < map.end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, " bt") != NULL;
	}
	patch_raw_close(m.fd);
	return found ? PROT_BTI : 0;
#else
	(void)a;
	return 0;
#endif
}

/* The way through the kernel's copy routine; see the head comment. */
static int write_quietly(struct patch *p)
{
	uint8_t *word = word_of(p);
	long fd, rc;

	if (!has_one_thread())
		return patch_refuse(p->why, -EPERM,
				    "text stays read-only, several threads");
	fd = patch_raw_open("/proc/self/mem", O_RDWR);
	if (fd < 0)
		return patch_refuse(p->why, -EPERM,
				    "text stays read-only, no memory file");
	rc = memcmp(word, p->before, p->site.store) ? -EEXIST :
		patch_raw(SYS_pwrite64, fd, (long)p->after, p->site.store,
			  (long)word, 0, 0);
	patch_raw_close((int)fd);
	if (rc == -EEXIST)
		return patch_refuse(p->why, -EEXIST, "changed since prepared");
	if (memcmp(word, p->after, p->site.store))
		return patch_refuse(p->why, -EPERM, "text stays read-only");
	return 0;
}

/* With the lock held, which makes the protection found the true one. */
static int write_locked(struct patch *p)
{
	uint8_t *word = word_of(p);
	uint64_t page_size = page_bytes();
	uint64_t page = (uintptr_t)word & ~(page_size - 1);
	struct patch_map map;
	char name[8];
	bool done;
	int prot, rc;

	rc = patch_map_find((uintptr_t)word, &map, name, sizeof(name));
	if (rc)
		return patch_refuse(p->why, -EPERM, "no mapping at %p", word);
	prot = map.prot | extra_prot((uintptr_t)word);
	if (patch_raw(SYS_mprotect, (long)page, (long)page_size,
		      prot | PROT_READ | PROT_WRITE, 0, 0, 0))
		return write_quietly(p);
	/* T1: see patch_arch_store(). */
	done = patch_arch_store(word, p->before, p->after, p->site.store);
	patch_arch_sync(word, p->site.store);
	/* Takes rights away only, which no rule about code refuses. */
	if (patch_raw(SYS_mprotect, (long)page, (long)page_size, prot, 0, 0, 0))
		patch_refuse(p->why, 0, "text page %#llx stays writable",
			     (unsigned long long)page);
	if (!done)
		return patch_refuse(p->why, -EEXIST, "changed since prepared");
	return 0;
}

/* Up to the end of the instruction that was replaced. */
static size_t prefix_bytes(const struct patch *p)
{
	size_t n = p->site.offset + p->site.length;

	return n < sizeof(p->code) ? n : sizeof(p->code);
}

bool patch_holds(const struct patch *p, char why[PATCH_WHY_BYTES])
{
	struct patch_site site = { 0 };
	int saved_errno = errno, rc;

	if (!p->live || !memcmp(p->code, p->target, prefix_bytes(p)))
		return true;
	rc = patch_arch_decode(p->target, p->n_code, PATCH_ALL_ARGS, &site, why);
	if (rc == -EEXIST)
		tell_rival(why, site.jumps_to);
	else
		patch_refuse(why, rc, "somebody changed its code");
	errno = saved_errno;
	return false;
}

static int commit_one(struct patch *p)
{
	int rc;

	if (!p->prepared || p->live)
		return patch_refuse(p->why, -EINVAL, "%s", p->live ?
				    "installed before" : "not prepared");
	if (p->site.quiet && !has_one_thread())
		return patch_refuse(p->why, -ENOTSUP,
				    "only safe before there are threads");
	rc = write_locked(p);
	p->live = !rc;
	if (!rc)
		memcpy(p->code, p->target, prefix_bytes(p));
	return rc;
}

/*
 * Makes every running thread serialise, so that none still executes the old
 * instruction from its pipeline. Without it (Linux before 4.16, or a filter)
 * the protection given back in write_locked() has interrupted every processor
 * that runs the process, and the return from an interrupt serialises too;
 * that is how x86 and Arm work, not a promise, so why mentions it.
 */
static bool sync_all_threads(void)
{
	const long enlist = MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;
	const long sync = MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE;

	return !patch_raw(SYS_membarrier, enlist, 0, 0, 0, 0, 0) &&
	       !patch_raw(SYS_membarrier, sync, 0, 0, 0, 0, 0);
}

int patch_commit(struct patch *p, unsigned int n)
{
	int saved_errno = errno, fd = -1, rc, first = 0;
	unsigned int i;

	rc = install_lock(&fd);
	for (i = 0; rc && i < n; i++)
		patch_refuse(p[i].why, rc, "no turn to install: error %d", -rc);
	if (rc)
		return rc;
	for (i = 0; i < n; i++) {
		rc = commit_one(&p[i]);
		if (!first)
			first = rc;
	}
	install_unlock(fd);
	if (!sync_all_threads())
		for (i = 0; i < n; i++)
			if (p[i].live && !p[i].why[0])
				patch_refuse(p[i].why, 0,
					     "no membarrier, took effect late");
	errno = saved_errno;
	return first;
}
