/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hooks in libc's own mapping functions, placed by patch.c, so that calls that
 * libc makes itself (free, malloc_trim, realloc, thread exit) are seen as well,
 * before they take effect.
 *
 * A hook runs in whatever context the caller is in: a signal handler, malloc with
 * its lock held, a thread about to exit.  So it takes no lock, allocates nothing,
 * keeps errno, and calls nothing that is hooked (law L8); what it does is in
 * changes.c.  The window between a hook and its system call is closed there:
 * whoever registers in it watches the range again, and the kernel tells.
 *
 * Once installed they stay until the process ends.  In a child of fork they pass
 * everything on until the child attaches itself.
 */
#include "libregc/patch.h"
#include "libregc/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define RT_MADV_GUARD_INSTALL 102
#define RT_MREMAP_DONTUNMAP 4

static struct patch patches[RTAB_N_HOOKS];
static bool selftesting;
static uint32_t ran; /* bit n: hook n ran during the self-test */

extern void *__curbrk __attribute__((weak));

static inline void mark(uint32_t hook)
{
	if (RTAB_UNLIKELY(rtab_load_relaxed(&selftesting)))
		rtab_fetch_or(&ran, 1u << hook);
}

static uint64_t end_of(const void *addr, size_t len)
{
	uint64_t start = (uintptr_t)addr;

	return len > UINT64_MAX - start ? UINT64_MAX : start + len;
}

/* ---- listeners ---------------------------------------------------------- */

/*
 * Libraries that have a cache of their own and want to hear what the hooks hear
 * (regc_on_change()).  A row is told while its fn is set; arg is stored before it.
 */
static struct {
	regc_change_fn *fn;
	void *arg;
} listeners[RTAB_N_LIBRARIES];
static uint32_t n_listeners;
static __thread bool telling __attribute__((tls_model("initial-exec")));

static void tell(uint64_t start, uint64_t end)
{
	unsigned int i;

	if (telling) /* what a listener changes is its own */
		return;
	telling = true;
	for (i = 0; i < RTAB_N_LIBRARIES; i++) {
		regc_change_fn *fn = rtab_load_acquire(&listeners[i].fn);

		if (fn)
			fn(listeners[i].arg, (void *)(uintptr_t)start,
			   end - start);
	}
	telling = false;
}

/* Everything that a hook knows before a change. */
static inline bool before(uint64_t start, uint64_t end, uint32_t cause,
			  bool unwatch)
{
	if (RTAB_UNLIKELY(rtab_load_relaxed(&n_listeners)) && start < end)
		tell(start, end);
	return changes_before(start, end, cause, unwatch);
}

void monitor_hooks_listen(uint32_t index, regc_change_fn *fn, void *arg)
{
	bool was = rtab_load_relaxed(&listeners[index].fn) != NULL;

	rtab_store_release(&listeners[index].fn, (regc_change_fn *)NULL);
	listeners[index].arg = arg;
	rtab_store_release(&listeners[index].fn, fn);
	if (fn && !was)
		rtab_fetch_add(&n_listeners, 1);
	else if (!fn && was)
		rtab_fetch_sub(&n_listeners, 1);
}

/* ---- the hooks ---------------------------------------------------------- */

static int hook_munmap(void *addr, size_t len)
{
	int (*orig)(void *, size_t) = patches[RTAB_HOOK_MUNMAP].orig;

	mark(RTAB_HOOK_MUNMAP);
	before((uintptr_t)addr, end_of(addr, len), RTAB_CAUSE_HOOK_MUNMAP,
		       true);
	return orig(addr, len);
}

static void *hook_mmap(void *addr, size_t len, int prot, int flags, int fd,
		       off_t offset)
{
	void *(*orig)(void *, size_t, int, int, int, off_t) =
		patches[RTAB_HOOK_MMAP].orig;
	void *mem;

	mark(RTAB_HOOK_MMAP);
	if ((flags & MAP_FIXED) && !(flags & (MAP_FIXED_NOREPLACE & ~MAP_FIXED)))
		before((uintptr_t)addr, end_of(addr, len),
			       RTAB_CAUSE_HOOK_MMAP, true);
	mem = orig(addr, len, prot, flags, fd, offset);
	if (mem != MAP_FAILED)
		changes_after((uintptr_t)mem, end_of(mem, len),
			      RTAB_CAUSE_NEW_MAPPING);
	return mem;
}

static void *hook_mremap(void *addr, size_t old_len, size_t new_len, int flags,
			 void *new_addr)
{
	void *(*orig)(void *, size_t, size_t, int, void *) =
		patches[RTAB_HOOK_MREMAP].orig;
	uint64_t start = (uintptr_t)addr;
	void *mem;

	mark(RTAB_HOOK_MREMAP);
	if (flags & MREMAP_FIXED)
		before((uintptr_t)new_addr, end_of(new_addr, new_len),
			       RTAB_CAUSE_HOOK_MREMAP, true);
	if ((flags & (MREMAP_FIXED | RT_MREMAP_DONTUNMAP)) ||
	    ((flags & MREMAP_MAYMOVE) && new_len > old_len))
		before(start, end_of(addr, old_len),
			       RTAB_CAUSE_HOOK_MREMAP, true);
	else if (new_len < old_len)
		before(end_of(addr, rtab_round_up(new_len, RTAB_PAGE)),
			       end_of(addr, old_len), RTAB_CAUSE_HOOK_MREMAP,
			       true);
	mem = orig(addr, old_len, new_len, flags, new_addr);
	if (flags & RT_MREMAP_DONTUNMAP) /* the mapping stays, empty */
		before(start, end_of(addr, old_len),
			       RTAB_CAUSE_HOOK_MREMAP, false);
	if (mem != MAP_FAILED && mem != addr)
		changes_after((uintptr_t)mem, end_of(mem, new_len),
			      RTAB_CAUSE_NEW_MAPPING);
	return mem;
}

static bool advice_takes_pages(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE ||
	       advice == MADV_REMOVE || advice == MADV_DONTNEED_LOCKED ||
	       advice == RT_MADV_GUARD_INSTALL;
}

static int hook_madvise(void *addr, size_t len, int advice)
{
	int (*orig)(void *, size_t, int) = patches[RTAB_HOOK_MADVISE].orig;
	uint64_t start = (uintptr_t)addr, end = end_of(addr, len);
	uint32_t moment;
	bool tracked;
	int r;

	mark(RTAB_HOOK_MADVISE);
	if (!advice_takes_pages(advice))
		return orig(addr, len, advice);
	if (advice == MADV_REMOVE) /* other mappings of the file lose them too */
		changes_of_files();
	moment = changes_moment();
	tracked = before(start, end, RTAB_CAUSE_HOOK_MADVISE, true);
	r = orig(addr, len, advice);
	/* The mapping stays, so somebody may have registered in between. */
	if (tracked || changes_moment() != moment)
		before(start, end, RTAB_CAUSE_HOOK_MADVISE, false);
	if (advice == MADV_REMOVE)
		changes_of_files();
	return r;
}

static int hook_brk(void *addr)
{
	int (*orig)(void *) = patches[RTAB_HOOK_BRK].orig;
	uint64_t now = &__curbrk ? (uintptr_t)__curbrk : 0;
	uint64_t to = rtab_round_up((uintptr_t)addr, RTAB_PAGE);

	mark(RTAB_HOOK_BRK);
	if (addr && to < now)
		before(to, now, RTAB_CAUSE_HOOK_BRK, true);
	return orig(addr);
}

static uint64_t shm_bytes(int id)
{
	struct shmid_ds ds;
	int saved = errno, r = shmctl(id, IPC_STAT, &ds);

	errno = saved;
	return r == 0 ? ds.shm_segsz : 0;
}

static void *hook_shmat(int id, const void *addr, int flags)
{
	void *(*orig)(int, const void *, int) = patches[RTAB_HOOK_SHMAT].orig;
	uint64_t bytes = shm_bytes(id);
	void *mem;

	mark(RTAB_HOOK_SHMAT);
	if (addr && (flags & SHM_REMAP))
		before((uintptr_t)addr & ~(uintptr_t)(SHMLBA - 1),
			       end_of(addr, bytes), RTAB_CAUSE_HOOK_SHM, true);
	mem = orig(id, addr, flags);
	if (mem != (void *)-1)
		changes_after((uintptr_t)mem, end_of(mem, bytes),
			      RTAB_CAUSE_NEW_MAPPING);
	return mem;
}

/*
 * System V memory cannot be watched, so nothing of it is cached and there is
 * nothing to void.  Listeners may have cached it; how much goes nobody knows here,
 * so they hear of all that may, to the next border of 128 TiB: UCX's table aborts
 * on a range that ends where addresses do.
 */
static int hook_shmdt(const void *addr)
{
	int (*orig)(const void *) = patches[RTAB_HOOK_SHMDT].orig;

	mark(RTAB_HOOK_SHMDT);
	if (rtab_load_relaxed(&n_listeners))
		tell((uintptr_t)addr, (((uintptr_t)addr >> 47) + 1) << 47);
	return orig(addr);
}

/*
 * A file that shrinks or gets a hole.  Voided before and after, since the mapping
 * stays and somebody may register in between.
 */
static int hook_ftruncate(int fd, off_t length)
{
	int (*orig)(int, off_t) = patches[RTAB_HOOK_FTRUNCATE].orig;
	int r;

	mark(RTAB_HOOK_FTRUNCATE);
	changes_of_files();
	r = orig(fd, length);
	changes_of_files();
	return r;
}

static int hook_truncate(const char *path, off_t length)
{
	int (*orig)(const char *, off_t) = patches[RTAB_HOOK_TRUNCATE].orig;
	int r;

	mark(RTAB_HOOK_TRUNCATE);
	changes_of_files();
	r = orig(path, length);
	changes_of_files();
	return r;
}

static int hook_fallocate(int fd, int mode, off_t offset, off_t len)
{
	int (*orig)(int, int, off_t, off_t) = patches[RTAB_HOOK_FALLOCATE].orig;
	int r;

	mark(RTAB_HOOK_FALLOCATE);
	if (!(mode & ~FALLOC_FL_KEEP_SIZE))
		return orig(fd, mode, offset, len);
	changes_of_files();
	r = orig(fd, mode, offset, len);
	changes_of_files();
	return r;
}

static int hook_remap_file_pages(void *addr, size_t len, int prot, size_t pgoff,
				 int flags)
{
	int (*orig)(void *, size_t, int, size_t, int) =
		patches[RTAB_HOOK_REMAP_FILE_PAGES].orig;
	int r;

	mark(RTAB_HOOK_REMAP_FILE_PAGES);
	before((uintptr_t)addr, end_of(addr, len), RTAB_CAUSE_HOOK_MMAP,
		       true);
	r = orig(addr, len, prot, pgoff, flags);
	before((uintptr_t)addr, end_of(addr, len), RTAB_CAUSE_HOOK_MMAP,
		       false);
	return r;
}

/*
 * The pages stay, but a region must not give rights that its mapping has lost
 * (L9).  Allocators call this all the time to make memory usable: that passes.
 */
static int hook_mprotect(void *addr, size_t len, int prot)
{
	int (*orig)(void *, size_t, int) = patches[RTAB_HOOK_MPROTECT].orig;

	mark(RTAB_HOOK_MPROTECT);
	if ((prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE))
		changes_before((uintptr_t)addr, end_of(addr, len),
			       RTAB_CAUSE_HOOK_MPROTECT, false);
	return orig(addr, len, prot);
}

static void *const hooks[RTAB_N_HOOKS] = {
	[RTAB_HOOK_MUNMAP] = (void *)hook_munmap,
	[RTAB_HOOK_MMAP] = (void *)hook_mmap,
	[RTAB_HOOK_MREMAP] = (void *)hook_mremap,
	[RTAB_HOOK_MADVISE] = (void *)hook_madvise,
	[RTAB_HOOK_BRK] = (void *)hook_brk,
	[RTAB_HOOK_SHMAT] = (void *)hook_shmat,
	[RTAB_HOOK_SHMDT] = (void *)hook_shmdt,
	[RTAB_HOOK_FTRUNCATE] = (void *)hook_ftruncate,
	[RTAB_HOOK_TRUNCATE] = (void *)hook_truncate,
	[RTAB_HOOK_FALLOCATE] = (void *)hook_fallocate,
	[RTAB_HOOK_REMAP_FILE_PAGES] = (void *)hook_remap_file_pages,
	[RTAB_HOOK_MPROTECT] = (void *)hook_mprotect,
};

static void *targets[RTAB_N_HOOKS];

/*
 * The loader's lock comes before ours: a constructor that dlopen runs may call
 * regc_open().  Every caller finds the same addresses.
 */
void monitor_hooks_resolve(void)
{
	void *target;
	unsigned int i;

	for (i = 0; i < RTAB_N_HOOKS && !RTAB_TSAN; i++)
		if (!rtab_load_relaxed(&targets[i]) &&
		    patch_resolve(rtab_hook_name(i), &target) == 0)
			rtab_store_relaxed(&targets[i], target);
}

static int install_all(void)
{
	unsigned int i;
	int r;

	for (i = 0; i < RTAB_N_HOOKS; i++) {
		patches[i].name = rtab_hook_name(i);
		patches[i].hook = hooks[i];
		patches[i].target = rtab_load_relaxed(&targets[i]);
		r = patch_prepare(&patches[i]);
		if (r && i < RTAB_N_HOOKS_NEEDED)
			return r; /* before anything of libc was changed */
	}
	for (i = 0; i < RTAB_N_HOOKS; i++) {
		r = patches[i].orig ? patch_commit(&patches[i], 1) : 0;
		if (r && i < RTAB_N_HOOKS_NEEDED)
			return r;
	}
	return 0;
}

/* Hooks that somebody patched over, as bits; why: the first of them. */
static uint32_t lost_hooks(char *why, size_t size)
{
	char text[PATCH_WHY_BYTES];
	uint32_t mask = 0, i;

	for (i = 0; i < RTAB_N_HOOKS; i++) {
		if (patch_holds(&patches[i], text))
			continue;
		if (!mask)
			snprintf(why, size, "%s: %s", patches[i].name, text);
		mask |= 1u << i;
	}
	return mask;
}

/* init lock held; a child of fork inherits the patches. */
int monitor_hooks_install(char *why, size_t size)
{
	static int result = 1;
	unsigned int i;

	/*
	 * libc unmaps the stack of a thread that ThreadSanitizer has forgotten
	 * already, so no hook may be instrumented; but shm/, which hooks call,
	 * is what that sanitizer is here to look at.
	 */
	if (RTAB_TSAN) {
		snprintf(why, size, "built with ThreadSanitizer");
		return -ENOTSUP;
	}
	if (result > 0)
		result = install_all();
	if (!result && lost_hooks(why, size)) {
		rt_note("%s", why);
		return -EEXIST;
	}
	for (i = 0; i < RTAB_N_HOOKS && !patches[i].why[0]; i++)
		;
	if (i < RTAB_N_HOOKS) {
		snprintf(why, size, "%s: %s", patches[i].name, patches[i].why);
		rt_note("%s", why);
	}
	return result;
}

/*
 * A rival that patches the same functions later may call the kernel itself, and
 * then hooks do not run.  Who finds that out makes the process strict: first the
 * probe, which everybody sees who gets from now on, then everything is void, so
 * that nothing is left that only hooks would have voided.
 */
void monitor_hooks_check(void)
{
	char why[64 + PATCH_WHY_BYTES];
	uint32_t lost;

	if (rtab_load_relaxed(&rt.mode) != RTAB_MODE_FAST)
		return;
	lost = lost_hooks(why, sizeof(why));
	if (RTAB_LIKELY(!lost))
		return;
	rt_note("%s", why);
	rt_cache_lock();
	if (rt.mode == RTAB_MODE_FAST) {
		rt_set_mode(RTAB_MODE_STRICT, "hooks lost: %.*s",
			    (int)sizeof(rt.why) - 16, why);
		rt.area.area->hook_mask &= ~lost;
		rtab_store_release(&rt_hot.probe_fd, rt.uffd);
		changes_void_all();
	}
	rt_cache_unlock();
	changes_wake_guardian();
}

/* ---- self-test ---------------------------------------------------------- */

/*
 * Called through pointers that the compiler cannot see through, by the address
 * that patch.c resolved, as libc's own calls are.
 */
static void call_all(void)
{
	int (*volatile call_munmap)(void *, size_t) = patches[RTAB_HOOK_MUNMAP].target;
	void *(*volatile call_mmap)(void *, size_t, int, int, int, off_t) =
		patches[RTAB_HOOK_MMAP].target;
	void *(*volatile call_mremap)(void *, size_t, size_t, int, void *) =
		patches[RTAB_HOOK_MREMAP].target;
	int (*volatile call_madvise)(void *, size_t, int) =
		patches[RTAB_HOOK_MADVISE].target;
	int (*volatile call_brk)(void *) = patches[RTAB_HOOK_BRK].target;
	void *(*volatile call_shmat)(int, const void *, int) =
		patches[RTAB_HOOK_SHMAT].target;
	int (*volatile call_shmdt)(const void *) = patches[RTAB_HOOK_SHMDT].target;
	int (*volatile call_ftruncate)(int, off_t) = patches[RTAB_HOOK_FTRUNCATE].target;
	int (*volatile call_truncate)(const char *, off_t) =
		patches[RTAB_HOOK_TRUNCATE].target;
	int (*volatile call_fallocate)(int, int, off_t, off_t) =
		patches[RTAB_HOOK_FALLOCATE].target;
	int (*volatile call_mprotect)(void *, size_t, int) =
		patches[RTAB_HOOK_MPROTECT].target;
	int (*volatile call_remap)(void *, size_t, int, size_t, int) =
		patches[RTAB_HOOK_REMAP_FILE_PAGES].target;
	char *mem = call_mmap(NULL, 2 * RTAB_PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return;
	call_madvise(mem, RTAB_PAGE, MADV_DONTNEED);
	call_mremap(mem, 2 * RTAB_PAGE, RTAB_PAGE, 0, NULL);
	call_munmap(mem, RTAB_PAGE);
	call_brk((void *)1); /* refused, and harmless */
	if (call_shmat)
		call_shmat(-1, NULL, 0);
	if (call_shmdt)
		call_shmdt(mem);
	if (call_ftruncate)
		call_ftruncate(-1, 0);
	if (call_truncate)
		call_truncate("", 0);
	if (call_fallocate)
		call_fallocate(-1, FALLOC_FL_KEEP_SIZE, 0, 1);
	if (call_remap)
		call_remap(NULL, 0, 0, 0, 0);
	if (call_mprotect)
		call_mprotect(NULL, 0, PROT_NONE);
}

int monitor_hooks_selftest(uint32_t *ret_mask, char *why, size_t size)
{
	int saved = errno;
	unsigned int i;

	ran = 0;
	rtab_store_release(&selftesting, true);
	call_all();
	rtab_store_release(&selftesting, false);
	errno = saved;
	*ret_mask = rtab_load_acquire(&ran);
	rt.file_hooks = *ret_mask == (1u << RTAB_N_HOOKS) - 1;
	for (i = 0; i < RTAB_N_HOOKS_NEEDED; i++)
		if (!(*ret_mask & (1u << i))) {
			snprintf(why, size, "the hook of %s did not run",
				 rtab_hook_name(i));
			return -EIO;
		}
	return 0;
}
