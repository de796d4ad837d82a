/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rival of regc's hooks: replaces libc's munmap, madvise and brk by jumps to
 * functions that make the bare system call, as other libraries do.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__curbrk;

int rival_install(void);
unsigned long rival_calls(void);

static unsigned long calls;

static int rival_munmap(void *addr, size_t len)
{
	calls++;
	return (int)syscall(SYS_munmap, addr, len);
}

static int rival_madvise(void *addr, size_t len, int advice)
{
	calls++;
	return (int)syscall(SYS_madvise, addr, len, advice);
}

static int rival_brk(void *addr)
{
	void *now = (void *)syscall(SYS_brk, addr);

	calls++;
	__curbrk = now;
	if (now < addr) {
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

static int overwrite(const char *name, void *with)
{
#ifdef __x86_64__
	unsigned char jump[12] = { 0x48, 0xb8 }; /* movabs rax; jmp rax */
	uintptr_t at = (uintptr_t)dlsym(RTLD_DEFAULT, name);
	char *page = (char *)(at & ~(uintptr_t)4095);

	memcpy(jump + 2, &with, sizeof(with));
	jump[10] = 0xff;
	jump[11] = 0xe0;
	if (!at || syscall(SYS_mprotect, page, 8192,
			   PROT_READ | PROT_WRITE | PROT_EXEC))
		return -1;
	memcpy((void *)at, jump, sizeof(jump));
	return (int)syscall(SYS_mprotect, page, 8192, PROT_READ | PROT_EXEC);
#else
	(void)name;
	(void)with;
	return -1;
#endif
}

__attribute__((visibility("default"))) int rival_install(void)
{
	if (overwrite("munmap", (void *)rival_munmap) ||
	    overwrite("madvise", (void *)rival_madvise) ||
	    overwrite("brk", (void *)rival_brk))
		return -1;
	return 0;
}

__attribute__((visibility("default"))) unsigned long rival_calls(void)
{
	return calls;
}
