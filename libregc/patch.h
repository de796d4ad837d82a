/* SPDX-License-Identifier: BSD-2-Clause */
/* Patching of libc's own wrapper functions, one instruction each. */
#ifndef REGC_PATCH_H
#define REGC_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Before the definition of each hook and of what it calls. libc calls its
 * functions on threads that a sanitizer does not know yet or any more (a
 * thread that ends gives its stack back with madvise), so code of hooks must
 * not call into the sanitizer.
 */
#ifdef __clang__
#define PATCH_HOOK __attribute__((disable_sanitizer_instrumentation))
#else
#define PATCH_HOOK __attribute__((no_sanitize_thread, no_sanitize_address, \
				  no_sanitize_undefined))
#endif

#define PATCH_WHY_BYTES 160
#define PATCH_MAX_FIX 8
#define PATCH_MAX_UNDO_BYTES 72
/* The most code that is looked at before the replaced instruction. */
#define PATCH_MAX_PREFIX_BYTES 64
/* Argument registers of a function about which nothing is known. */
#define PATCH_ALL_ARGS 8

/*
 * What the decoder of the architecture found: the instruction that one atomic
 * store replaces, and what a stub needs to stand in for it.
 */
struct patch_site {
	unsigned int offset;	/* of the replaced instruction */
	unsigned int length;	/* of it */
	unsigned int store;	/* bytes of the atomic store: 4, 8, 16 */
	bool quiet;		/* safe only while there is one thread */
	unsigned int n_undo;	/* code that undoes what came before it */
	uint8_t undo[PATCH_MAX_UNDO_BYTES];
	unsigned int n_fix;	/* offsets of 32-bit displacements to adjust */
	uint8_t fix[PATCH_MAX_FIX];
	uint64_t jumps_to;	/* with -EEXIST: where the rival's jump goes */
};

/*
 * One function to be patched. The caller fills in name and hook and clears
 * the rest; it keeps the structure as long as the process lives (name and
 * hook are not read after patch_commit, orig is the caller's to copy).
 */
struct patch {
	const char *name;	/* "munmap" */
	void *hook;		/* same signature; never a variadic function */
	void *orig;		/* out, by prepare: the function unpatched */
	void *target;		/* libc's function; by prepare, if NULL before */
	bool live;		/* out, by commit: calls now go to the hook */
	char why[PATCH_WHY_BYTES]; /* out: why not, or what was not ideal */
	/* private */
	bool prepared;
	struct patch_site site;
	uint64_t before[2], after[2];	/* the word of the store */
	size_t n_code;			/* that may be read */
	uint8_t code[PATCH_MAX_PREFIX_BYTES + 8]; /* as it was installed */
};

/*
 * Address of libc's own function, never an interposer's. 0, -ENOENT (libc has
 * no such function, or a static program does not contain it), -ENOSYS (the
 * libc was not found). May take the loader's lock. Errno is kept by all.
 */
int patch_resolve(const char *name, void **ret);

/*
 * Finds the function, decodes it, writes its stubs and sets target and orig.
 * Nothing of libc changes. On failure why says the reason:
 *	-ENOENT, -ENOSYS	as patch_resolve()
 *	-EEXIST		already patched, by another regc or by a rival
 *	-ENOTSUP	code or place not as expected
 *	-ENOMEM		no memory near enough for the stubs
 *	-EPERM		this process may not make executable memory
 * May take the loader's lock; allocates nothing from the heap. An unused
 * preparation leaves one mapped page behind, which is all it costs.
 */
int patch_prepare(struct patch *p);

/*
 * Installs n prepared patches, each with one atomic store, and returns when
 * every thread of the process executes the new code. Takes each on its own:
 * live says which are installed. 0 if all are, else the first error:
 *	-EINVAL		not prepared, or installed before
 *	-EEXIST		somebody else changed the code since prepare
 *	-EPERM		the text cannot be written (see patch.c)
 *	-EBUSY		another copy of this code is installing and does not end
 *	-ENOTSUP	needs a process with one thread, and there are more
 * Allocates nothing and calls no function of libc that could be patched.
 * There is no way back: a patch stays until the process ends or execs.
 */
int patch_commit(struct patch *p, unsigned int n);

/*
 * Is the patch, and the code before it, as patch_commit() left it?  If not, why
 * says who came later.  Takes no lock and allocates nothing.
 */
bool patch_holds(const struct patch *p, char why[PATCH_WHY_BYTES]);

/* Parts of patch_prepare(), visible for tests. */

/* 0 if target is in a private file mapping of libc (of the program, if that
 * is static), else -ENOTSUP. */
int patch_check_home(const void *target, char why[PATCH_WHY_BYTES]);
/* Prepares p for the function at target, wherever that is; n_code bytes of it
 * may be read, n_args of its argument registers carry arguments. */
int patch_prepare_at(struct patch *p, void *target, size_t n_code,
		     unsigned int n_args);

/* The architecture's part, in patch_<arch>.c. */

#define PATCH_STUB_BYTES 256
#define PATCH_STUB_HOOK 16	/* offset of the way to the hook */
#define PATCH_STUB_ORIG 128	/* offset of the way to the original */

extern const uint64_t patch_arch_reach;	/* of a jump, with some reserve */

/* Decodes; 0, -ENOTSUP or -EEXIST with why. Pure: only reads the code. */
int patch_arch_decode(const uint8_t *code, size_t n_code, unsigned int n_args,
		      struct patch_site *ret, char why[PATCH_WHY_BYTES]);
/* Writes the stub that will run at address at into image (zeroed). */
int patch_arch_stub(const struct patch_site *site, const uint8_t *code,
		    uint64_t at, const void *hook, uint8_t *image);
/* Puts the jump from code address from to address to at p. */
void patch_arch_jump(uint8_t *p, uint64_t from, uint64_t to);
/* One atomic store of site->store bytes if the word still is before. */
bool patch_arch_store(void *word, const uint64_t before[2],
		      const uint64_t after[2], unsigned int n_bytes);
/* Makes n bytes of code at start visible to instruction fetch. */
void patch_arch_sync(void *start, size_t n);

/* Prints into why and returns rc; for the decoders. */
int patch_refuse(char why[PATCH_WHY_BYTES], int rc, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
