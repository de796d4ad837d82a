/* SPDX-License-Identifier: BSD-2-Clause */
/* The AArch64 part of patching: which instruction, which stub, which store. */
#include "libregc/patch.h"

#ifdef __aarch64__

#include <errno.h>
#include <string.h>

/*
 * The replacement is `b`, four aligned bytes. The architecture lets one
 * thread change an instruction that another executes only where both the old
 * and the new one are of a short list: B, BL, BRK, HVC, ISB, NOP, SMC, SVC.
 * So the walk looks for such an instruction (label T1):
 *	- a nop at the entry, which a libc built for branch protection has
 *	  where a landing pad could be, or
 *	- the svc itself, where only instructions come before it that leave the
 *	  state of a fresh call: landing pads, mov to x8 (the call's number),
 *	  compares, the sign extension of an int argument in place, moves into
 *	  registers that are neither arguments nor preserved.
 * Failing both, the first instruction behind the landing pads is taken if it
 * does not depend on its address, but that is only promised to be safe while
 * nobody else can execute it: the site is marked quiet and patch_commit()
 * refuses it in a process with several threads.
 *
 * paciasp is a landing pad and signs the return address; the undo is autiasp.
 * Landing pads are never replaced, or indirect calls would trap.
 */

const uint64_t patch_arch_reach = (128 << 20) - (1 << 20);

#define NOP 0xd503201fu
#define PACIASP 0xd503233fu
#define AUTIASP 0xd50323bfu
#define SVC_0 0xd4000001u
#define LDR_X16_8 0x58000050u	/* ldr x16, . + 8 */
#define BR_X16 0xd61f0200u

static int64_t sign_extend(uint32_t v, unsigned int n_bits)
{
	uint64_t x = (uint64_t)v << (64 - n_bits);

	return (int64_t)x >> (64 - n_bits);
}

static bool is_bti(uint32_t w)
{
	return (w & ~0xc0u) == 0xd503241fu;	/* bti, bti c, j, jc */
}

/* Where a direct branch at p goes; 0 if it is none. */
static uint64_t branch_target(const uint8_t *p, uint32_t w)
{
	int64_t words;

	if ((w & 0x7c000000) == 0x14000000)		/* b, bl */
		words = sign_extend(w & 0x3ffffff, 26);
	else if ((w & 0xff000010) == 0x54000000 ||	/* b.cond */
		 (w & 0x7e000000) == 0x34000000)	/* cbz, cbnz */
		words = sign_extend(w >> 5 & 0x7ffff, 19);
	else if ((w & 0x7e000000) == 0x36000000)	/* tbz, tbnz */
		words = sign_extend(w >> 5 & 0x3fff, 14);
	else
		return 0;
	return (uint64_t)(uintptr_t)p + (uint64_t)(words * 4);
}

/* Leaves the state of a fresh call, for a function of n_args arguments. */
static bool is_harmless(uint32_t w, unsigned int n_args)
{
	unsigned int to = w & 31, from = w >> 16 & 31;

	if ((w & 0x7f80001f) == 0x52800008)	/* mov x8 or w8, #number */
		return true;
	if ((w & 0x7f80001f) == 0x7200001f ||	/* tst #imm */
	    (w & 0x7f80001f) == 0x7100001f)	/* cmp #imm */
		return true;
	if ((w & 0xfffffc00) == 0x93407c00)	/* sxtw xN, wN */
		return to == (w >> 5 & 31);
	if ((w & 0x7fe0ffe0) == 0x2a0003e0)	/* mov to, from */
		return from != 31 && to >= n_args && to < 18;
	return false;
}

/* Does the same at any address, and cannot be part of a longer protocol. */
static bool is_movable(uint32_t w)
{
	unsigned int class = w >> 25 & 15;

	if (class == 8 || class == 9)		/* immediate; not adr, adrp */
		return (w & 0x1f000000) != 0x10000000;
	if ((class & 5) == 4)			/* not literals, exclusives */
		return (w & 0x3b000000) != 0x18000000 &&
		       (w & 0x3f000000) != 0x08000000;
	return (class & 7) == 5 || (class & 7) == 7; /* registers, vectors */
}

static bool is_branched_to(const uint8_t *code, size_t n_code,
			   unsigned int last)
{
	uint64_t to, start = (uintptr_t)code;
	uint32_t w;

	for (size_t k = 0; k + 4 <= n_code; k += 4) {
		memcpy(&w, code + k, 4);
		to = branch_target(code + k, w);
		/* A call of itself is a call like any other. */
		if (to == start && w >> 26 == 0x25)
			continue;
		if (to && to >= start && to <= start + last)
			return true;
	}
	return false;
}

/* A rival's way out: b, or an address made in a register and br. */
static bool is_rival(const uint8_t *code, size_t n_code, uint64_t *ret_to)
{
	uint64_t to = 0, part;
	unsigned int shift;
	uint32_t w;

	for (size_t k = 0; k + 4 <= n_code && k < 24; k += 4) {
		memcpy(&w, code + k, 4);
		if ((w & 0xfc000000) == 0x14000000 && k == 0) {
			to = branch_target(code, w);
			if (to - (uintptr_t)code < n_code)
				return false;
			*ret_to = to;
			return true;
		}
		if ((w & 0xfffffc1f) == 0xd61f0000) {		/* br */
			*ret_to = to;
			return true;
		}
		if ((w & 0xff000000) == 0x58000000 &&		/* ldr x, . */
		    k + 4 * (w >> 5 & 0x7ffff) + 8 <= n_code) {
			memcpy(&to, code + k + 4 * (w >> 5 & 0x7ffff), 8);
			continue;
		}
		if ((w & 0xff800000) != 0xd2800000 &&
		    (w & 0xff800000) != 0xf2800000)		/* mov, movk */
			return false;
		if ((w & 0xff800000) == 0xd2800000)
			to = 0;
		shift = 16 * (w >> 21 & 3);
		part = (uint64_t)(w >> 5 & 0xffff) << shift;
		to = (to & ~(UINT64_C(0xffff) << shift)) | part;
	}
	return false;
}

/* Steps over landing pads; a nop is taken as the place, not stepped over. */
static unsigned int skip_pads(const uint8_t *code, size_t n_code,
			      struct patch_site *site)
{
	const uint32_t autiasp = AUTIASP;
	unsigned int at = 0;
	uint32_t w;

	for (; at + 4 <= n_code && at < 16; at += 4) {
		memcpy(&w, code + at, 4);
		if (w == PACIASP && !site->n_undo) {
			memcpy(site->undo, &autiasp, 4);
			site->n_undo = 4;
		} else if (!is_bti(w)) {
			break;
		}
	}
	return at;
}

int patch_arch_decode(const uint8_t *code, size_t n_code, unsigned int n_args,
		      struct patch_site *ret, char why[PATCH_WHY_BYTES])
{
	struct patch_site site = { .length = 4, .store = 4 };
	unsigned int first = skip_pads(code, n_code, &site), at = first;
	uint32_t w = 0, w_first = 0;

	if (is_rival(code + first, n_code - first, &ret->jumps_to))
		return patch_refuse(why, -EEXIST,
				    "already patched, jumps to 0x%llx",
				    (unsigned long long)ret->jumps_to);
	if (first + 4 <= n_code)
		memcpy(&w_first, code + first, 4);
	for (; at + 4 <= n_code && at <= PATCH_MAX_PREFIX_BYTES; at += 4) {
		memcpy(&w, code + at, 4);
		if (w == NOP || w == SVC_0 || !is_harmless(w, n_args))
			break;
	}
	/* Patched at its svc before, by a regc. */
	if ((w & 0xfc000000) == 0x14000000 &&
	    branch_target(code + at, w) - (uintptr_t)code >= n_code) {
		ret->jumps_to = branch_target(code + at, w);
		return patch_refuse(why, -EEXIST,
				    "already patched, jumps to 0x%llx",
				    (unsigned long long)ret->jumps_to);
	}
	if ((w & 0xffe0001f) == 0xd4200000)
		return patch_refuse(why, -ENOTSUP, "no place: a breakpoint");
	site.offset = at;
	if (w != NOP && w != SVC_0) {
		if (first + 4 > n_code || !is_movable(w_first))
			return patch_refuse(why, -ENOTSUP,
					    "no place: %08x at +%u",
					    w_first, first);
		site.offset = first;
		site.quiet = true;
	}
	if (is_branched_to(code, n_code, site.offset))
		return patch_refuse(why, -ENOTSUP,
				    "a branch goes back to +0..+%u",
				    site.offset);
	*ret = site;
	return 0;
}

void patch_arch_jump(uint8_t *p, uint64_t from, uint64_t to)
{
	uint32_t w = 0x14000000 | ((to - from) >> 2 & 0x3ffffff);

	memcpy(p, &w, 4);
}

int patch_arch_stub(const struct patch_site *site, const uint8_t *code,
		    uint64_t at, const void *hook, uint8_t *image)
{
	const uint32_t jump[] = { LDR_X16_8, BR_X16 };
	uint64_t target = (uintptr_t)hook, from = (uintptr_t)code;
	unsigned int n_copied = site->offset + site->length;
	uint8_t *p = image + PATCH_STUB_HOOK;

	memcpy(p, site->undo, site->n_undo);
	p += site->n_undo;
	memcpy(p, jump, sizeof(jump));
	memcpy(p + sizeof(jump), &target, 8);
	memcpy(image + PATCH_STUB_ORIG, code, n_copied);
	patch_arch_jump(image + PATCH_STUB_ORIG + n_copied,
			at + PATCH_STUB_ORIG + n_copied, from + n_copied);
	return 0;
}

/* T1: the one store; pairs with the fetch of every other processor. */
bool patch_arch_store(void *word, const uint64_t before[2],
		      const uint64_t after[2], unsigned int n_bytes)
{
	uint32_t old, new;

	(void)n_bytes;
	memcpy(&old, before, 4);
	memcpy(&new, after, 4);
	return __sync_bool_compare_and_swap((uint32_t *)word, old, new);
}

void patch_arch_sync(void *start, size_t n)
{
	__builtin___clear_cache((char *)start, (char *)start + n);
}

#else
typedef int patch_aarch64_is_empty;
#endif
