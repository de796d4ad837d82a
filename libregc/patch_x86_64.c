/* SPDX-License-Identifier: BSD-2-Clause */
/* The x86-64 part of patching: which instruction, which stub, which store. */
#include "libregc/patch.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <errno.h>
#include <string.h>

/*
 * The replacement is `jmp rel32`, five bytes. The walk goes from the entry,
 * instruction by instruction, and takes the first one that
 *	- has at least five bytes (what is left of it is never executed again),
 *	- can be executed elsewhere (a %rip-relative operand is adjusted),
 *	- has its first five bytes in one aligned 8-byte word, or failing that
 *	  in one aligned 16-byte block, and
 *	- has only instructions before it whose effect can be undone.
 *
 * Why one store is enough (label T1, the store in patch_arch_store()): an
 * aligned 8-byte store to code is seen by the fetch of every other processor
 * as a whole; AMD promises that in its manual (cross-modifying code), Intel
 * processors have always done so and the runtimes that patch calls live
 * depend on it. A 16-byte store is lock cmpxchg16b, which owns the cache line
 * from the read to the write: the line changes once. Fetch takes code out of
 * the line in aligned blocks of 16 bytes or more, so no block is seen half
 * changed. No manual states that last step, which is why 16 bytes are only
 * used where 8 are not enough: functions that begin with endbr64 and have no
 * other candidate.
 *
 * A thread before the instruction executes the jump, with the effects that
 * the stub undoes. A thread behind it sees nothing. No thread is inside an
 * instruction. Branches to the replaced instruction or to what comes before
 * it would reach the stub with other effects, so the whole function is
 * searched for them; the search takes every byte for a possible branch and so
 * may refuse too much, never too little (indirect jumps do not go backwards
 * in functions of this kind).
 *
 * What may come before, and why it can be undone so that the hook sees the
 * state of a fresh call: flags and %rax, %r10, %r11 belong to the callee;
 * %al counts vector arguments of a variadic call, and a hook that is not
 * variadic does not look; the registers above the n_args-th argument are
 * scratch as well. A preserved register may be changed once it was pushed,
 * for the undo pops it. Stores go below every pushed register, into the
 * function's own frame or its red zone.
 */

const uint64_t patch_arch_reach = (UINT64_C(1) << 31) - (64 << 20);

enum {
	RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI,
	NO_REG = 0x40, RIP = 0x41,
};

enum kind {
	K_UNKNOWN,
	K_PLAIN,	/* writes at most dst or memory */
	K_PUSH,		/* of reg */
	K_SUB_RSP,	/* imm */
	K_JUMP,		/* to jumps_to, 0 = unknown */
	K_TRAP,
	K_SYSCALL,
	K_BRANCH,	/* conditional, call, return */
};

struct insn {
	enum kind kind;
	unsigned int len;
	unsigned int reg, rm, base;	/* NO_REG if there is none */
	bool indexed;
	int64_t imm;
	int32_t disp;
	unsigned int disp_at;
	unsigned int dst;		/* register written */
	unsigned int n_stored;		/* bytes written to memory */
	bool frame_pointer;		/* mov %rsp, %rbp */
	uint64_t jumps_to;
};

/* Forms of one opcode. */
enum {
	F_MODRM = 1,
	F_IMM8 = 2,
	F_IMMZ = 4,	/* 32 bits, 16 with the operand prefix */
	F_TO_REG = 8,
	F_TO_RM = 16,
	F_BYTE = 32,
	F_TO_RAX = 64,
	F_EXT = 128,	/* modrm.reg selects; see insn_ext() */
};

static const uint8_t forms[256] = {
	[0x01] = F_MODRM | F_TO_RM, [0x03] = F_MODRM | F_TO_REG,
	[0x05] = F_IMMZ | F_TO_RAX,
	[0x09] = F_MODRM | F_TO_RM, [0x0b] = F_MODRM | F_TO_REG,
	[0x0d] = F_IMMZ | F_TO_RAX,
	[0x21] = F_MODRM | F_TO_RM, [0x23] = F_MODRM | F_TO_REG,
	[0x25] = F_IMMZ | F_TO_RAX,
	[0x29] = F_MODRM | F_TO_RM, [0x2b] = F_MODRM | F_TO_REG,
	[0x2d] = F_IMMZ | F_TO_RAX,
	[0x31] = F_MODRM | F_TO_RM, [0x33] = F_MODRM | F_TO_REG,
	[0x35] = F_IMMZ | F_TO_RAX,
	[0x38] = F_MODRM | F_BYTE, [0x39] = F_MODRM,
	[0x3a] = F_MODRM | F_BYTE, [0x3b] = F_MODRM,
	[0x3c] = F_IMM8, [0x3d] = F_IMMZ,
	[0x63] = F_MODRM | F_TO_REG,
	[0x80] = F_MODRM | F_IMM8 | F_BYTE | F_EXT,
	[0x81] = F_MODRM | F_IMMZ | F_EXT,
	[0x83] = F_MODRM | F_IMM8 | F_EXT,
	[0x84] = F_MODRM | F_BYTE, [0x85] = F_MODRM,
	[0x88] = F_MODRM | F_BYTE | F_TO_RM, [0x89] = F_MODRM | F_TO_RM,
	[0x8b] = F_MODRM | F_TO_REG, [0x8d] = F_MODRM | F_TO_REG,
	[0xa8] = F_IMM8, [0xa9] = F_IMMZ,
	[0xc6] = F_MODRM | F_IMM8 | F_BYTE | F_EXT,
	[0xc7] = F_MODRM | F_IMMZ | F_EXT,
	[0xf6] = F_MODRM | F_IMM8 | F_BYTE | F_EXT,
	[0xf7] = F_MODRM | F_IMMZ | F_EXT,
};

struct reader {
	const uint8_t *p;
	size_t n, at;
	bool short_of;	/* ran out of bytes */
	unsigned int rex;
	bool narrow;	/* operand prefix 0x66 */
};

static uint8_t next_byte(struct reader *r)
{
	if (r->at >= r->n) {
		r->short_of = true;
		return 0;
	}
	return r->p[r->at++];
}

/* A little-endian number of n bytes, its sign extended. */
static int64_t next_number(struct reader *r, unsigned int n)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < n; i++)
		v |= (uint64_t)next_byte(r) << (8 * i);
	if (n && n < 8 && v >> (8 * n - 1))
		v |= ~UINT64_C(0) << (8 * n);
	return (int64_t)v;
}

static void read_modrm(struct reader *r, struct insn *in)
{
	uint8_t m = next_byte(r), sib;
	unsigned int mod = m >> 6, low = m & 7, n_disp = 0;

	in->reg = ((m >> 3) & 7) | (r->rex & 4) << 1;
	if (mod == 3) {
		in->rm = low | (r->rex & 1) << 3;
		return;
	}
	in->base = low | (r->rex & 1) << 3;
	if (low == 4) {
		sib = next_byte(r);
		in->base = (sib & 7) | (r->rex & 1) << 3;
		in->indexed = ((sib >> 3) & 7) != 4 || (r->rex & 2);
		if (mod == 0 && (sib & 7) == 5) {
			in->base = NO_REG;
			n_disp = 4;
		}
	} else if (mod == 0 && low == 5) {
		in->base = RIP;
		n_disp = 4;
	}
	if (mod)
		n_disp = mod == 1 ? 1 : 4;
	in->disp_at = r->at;
	in->disp = (int32_t)next_number(r, n_disp);
}

/* True if the instruction, group opcode op, is one of the known forms. */
static bool insn_ext(struct insn *in, uint8_t op, unsigned int *flags)
{
	unsigned int ext = in->reg & 7;

	in->reg = NO_REG;
	if (op == 0xf6 || op == 0xf7)
		return ext == 0;		/* test */
	if (op == 0xc6 || op == 0xc7) {
		*flags |= F_TO_RM;
		return ext == 0;		/* mov */
	}
	if (ext == 7)
		return true;			/* cmp */
	*flags |= F_TO_RM;
	if (ext == 5 && in->rm == RSP)
		in->kind = K_SUB_RSP;
	return true;
}

static void insn_operands(struct reader *r, struct insn *in, uint8_t op,
			  unsigned int flags)
{
	in->kind = K_PLAIN;
	if (flags & F_MODRM)
		read_modrm(r, in);
	if ((flags & F_EXT) && !insn_ext(in, op, &flags)) {
		in->kind = K_UNKNOWN;
		return;
	}
	if (flags & F_IMM8)
		in->imm = next_number(r, 1);
	if (flags & F_IMMZ)
		in->imm = next_number(r, r->narrow ? 2 : 4);
	if (flags & F_TO_RAX)
		in->dst = RAX;
	if (flags & F_TO_REG)
		in->dst = in->reg;
	if ((flags & F_TO_RM) && in->rm != NO_REG)
		in->dst = in->rm;
	if ((flags & F_TO_RM) && in->rm == NO_REG)
		in->n_stored = flags & F_BYTE ? 1 : r->rex & 8 ? 8 : 4;
	/* A byte register may be %ah to %bh: not worth telling apart. */
	if ((flags & F_BYTE) && in->dst != NO_REG)
		in->kind = K_UNKNOWN;
	if (in->kind == K_SUB_RSP &&
	    (!(r->rex & 8) || in->imm <= 0 || in->imm > 4096))
		in->kind = K_UNKNOWN;
	in->frame_pointer = (r->rex & 8) &&
		((op == 0x89 && in->reg == RSP && in->rm == RBP) ||
		 (op == 0x8b && in->reg == RBP && in->rm == RSP));
}

static void decode_two_byte(struct reader *r, struct insn *in)
{
	uint8_t op = next_byte(r);

	if (op == 0x05 || op == 0x34) {
		in->kind = K_SYSCALL;
	} else if ((op & 0xf0) == 0x80) {
		in->kind = K_BRANCH;
	} else if (op == 0x1f) {		/* nop */
		insn_operands(r, in, op, F_MODRM);
	} else if (op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf ||
		   (op & 0xf0) == 0x40) {	/* movzx, movsx, cmov */
		insn_operands(r, in, op, F_MODRM | F_TO_REG);
	}
}

/* movabs $x, %reg; jmp *%reg: how other patchers jump. */
static void decode_movabs(struct reader *r, struct insn *in, unsigned int reg)
{
	struct reader ahead;
	uint8_t b;

	in->imm = next_number(r, 8);
	in->dst = reg;
	in->kind = K_PLAIN;
	ahead = *r;
	b = next_byte(&ahead);
	if ((b == 0x41) == (reg >= 8)) {
		if (b == 0x41)
			b = next_byte(&ahead);
		if (b == 0xff && next_byte(&ahead) == (0xe0 | (reg & 7))) {
			in->kind = K_JUMP;
			in->jumps_to = (uint64_t)in->imm;
		}
	}
}

static void decode_jump(struct reader *r, struct insn *in, uint8_t op)
{
	int64_t rel = next_number(r, op == 0xeb ? 1 : 4);

	in->kind = K_JUMP;
	in->jumps_to = (uint64_t)(uintptr_t)(r->p + r->at) + (uint64_t)rel;
}

/* ff: only the two jumps are of interest. */
static void decode_indirect(struct reader *r, struct insn *in)
{
	uint64_t slot;

	read_modrm(r, in);
	if ((in->reg & 7) != 4)
		return;
	in->kind = K_JUMP;
	slot = (uint64_t)(uintptr_t)(r->p + r->at) + (uint64_t)in->disp;
	/* Only followed where the pointer lies right behind the jump. */
	if (in->base == RIP && in->disp == 0 && r->at + 8 <= r->n)
		memcpy(&in->jumps_to, (const void *)(uintptr_t)slot, 8);
}

static void decode_one_byte(struct reader *r, struct insn *in, uint8_t op)
{
	unsigned int reg = (op & 7) | (r->rex & 1) << 3;

	if (op == 0x0f) {
		decode_two_byte(r, in);
	} else if (op >= 0x50 && op <= 0x57) {
		in->kind = r->narrow ? K_UNKNOWN : K_PUSH;
		in->reg = reg;
	} else if (op >= 0xb8 && op <= 0xbf && (r->rex & 8)) {
		decode_movabs(r, in, reg);
	} else if (op >= 0xb8 && op <= 0xbf) {
		in->imm = next_number(r, r->narrow ? 2 : 4);
		in->dst = reg;
		in->kind = K_PLAIN;
	} else if (op == 0x90) {
		in->kind = K_PLAIN;
	} else if (op == 0xe9 || op == 0xeb) {
		decode_jump(r, in, op);
	} else if (op == 0xff) {
		decode_indirect(r, in);
	} else if (op == 0xcc) {
		in->kind = K_TRAP;
	} else if ((op & 0xf0) == 0x70 || op == 0xe8 || op == 0xc3) {
		in->kind = K_BRANCH;
	} else if (forms[op]) {
		insn_operands(r, in, op, forms[op]);
	}
}

static void decode_insn(const uint8_t *code, size_t n, struct insn *ret)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	struct reader r = { .p = code, .n = n };
	struct insn in = { .reg = NO_REG, .rm = NO_REG, .base = NO_REG,
			   .dst = NO_REG };
	bool segment = false;
	uint8_t op;

	if (n >= sizeof(endbr64) && !memcmp(code, endbr64, sizeof(endbr64))) {
		in.kind = K_PLAIN;
		in.len = sizeof(endbr64);
		*ret = in;
		return;
	}
	op = next_byte(&r);
	while (op == 0x66 || op == 0x64 || op == 0x2e) {
		r.narrow |= op == 0x66;
		segment |= op == 0x64;
		op = next_byte(&r);
	}
	if ((op & 0xf0) == 0x40) {
		r.rex = op & 15;
		op = next_byte(&r);
	}
	decode_one_byte(&r, &in, op);
	in.len = r.at;
	/* Of the thread's block only fixed addresses, as the canary's. */
	if (r.short_of || in.len > 15 || (segment && in.base != NO_REG))
		in.kind = K_UNKNOWN;
	*ret = in;
}

/* What the code before the candidate has done so far. */
struct effects {
	unsigned int depth;		/* %rsp below its value at entry */
	unsigned int deepest_push;	/* of the saved registers */
	unsigned int frame_depth;	/* of %rbp, 0 = not a frame pointer */
	unsigned int saved, changed;	/* bit sets of registers */
	unsigned int n_fix;
	uint8_t fix[PATCH_MAX_FIX];
	unsigned int n_op;
	struct {
		bool push;
		unsigned int value;	/* register or bytes */
	} op[8];
};

static unsigned int scratch_registers(unsigned int n_args)
{
	static const unsigned int args[] = { RDI, RSI, RDX, RCX, 8, 9 };
	unsigned int set = 1u << RAX | 1u << 10 | 1u << 11;

	for (unsigned int i = n_args; i < 6; i++)
		set |= 1u << args[i];
	return set;
}

/* The stored bytes must lie below every saved register, not out of reach. */
static bool store_is_own(const struct effects *e, const struct insn *in)
{
	int64_t down;	/* from the stack pointer at entry to the first byte */

	if (in->indexed)
		return false;
	if (in->base == RSP)
		down = (int64_t)e->depth - in->disp;
	else if (in->base == RBP && e->frame_depth)
		down = (int64_t)e->frame_depth - in->disp;
	else
		return false;
	return down - (int64_t)in->n_stored >= (int64_t)e->deepest_push &&
	       down <= (int64_t)e->depth + 128;
}

static bool effects_op(struct effects *e, bool push, unsigned int value)
{
	if (e->n_op == sizeof(e->op) / sizeof(e->op[0]))
		return false;
	e->op[e->n_op].push = push;
	e->op[e->n_op++].value = value;
	e->depth += push ? 8 : value;
	if (push)
		e->deepest_push = e->depth;
	return true;
}

/* True if the instruction may come before the patch; remembers its effect. */
static bool effects_add(struct effects *e, const struct insn *in,
			unsigned int scratch)
{
	if (in->kind == K_PUSH) {
		if (in->reg == RSP || (e->changed >> in->reg & 1))
			return false;
		e->saved |= 1u << in->reg;
		return effects_op(e, true, in->reg);
	}
	if (in->kind == K_SUB_RSP)
		return effects_op(e, false, (unsigned int)in->imm);
	if (in->kind != K_PLAIN)
		return false;
	if (in->n_stored && !store_is_own(e, in))
		return false;
	if (in->dst == NO_REG)
		return true;
	if (in->dst == RSP || !((scratch | e->saved) >> in->dst & 1))
		return false;
	e->changed |= 1u << in->dst;
	if (in->dst == RBP)
		e->frame_depth = in->frame_pointer ? e->depth : 0;
	return true;
}

static bool effects_fix(struct effects *e, const struct insn *in,
			unsigned int offset)
{
	if (in->base != RIP)
		return true;
	if (e->n_fix == PATCH_MAX_FIX)
		return false;
	e->fix[e->n_fix++] = (uint8_t)(offset + in->disp_at);
	return true;
}

static void site_set(struct patch_site *site, const struct effects *e,
		     unsigned int offset, unsigned int length,
		     unsigned int store)
{
	uint8_t *p = site->undo;
	uint32_t bytes;

	site->offset = offset;
	site->length = length;
	site->store = store;
	site->n_fix = e->n_fix;
	memcpy(site->fix, e->fix, sizeof(site->fix));
	for (unsigned int i = e->n_op; i-- > 0;) {
		if (e->op[i].push) {		/* pop %reg */
			if (e->op[i].value >= 8)
				*p++ = 0x41;
			*p++ = (uint8_t)(0x58 | (e->op[i].value & 7));
		} else {			/* add $bytes, %rsp */
			bytes = e->op[i].value;
			*p++ = 0x48;
			*p++ = 0x81;
			*p++ = 0xc4;
			memcpy(p, &bytes, 4);
			p += 4;
		}
	}
	site->n_undo = (unsigned int)(p - site->undo);
}

static bool has_cmpxchg16b(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_CMPXCHG16B);
}

/* The size of the store that can replace the five bytes at p; 0 if none. */
static unsigned int store_for(const uint8_t *p)
{
	uintptr_t a = (uintptr_t)p;

	if (a % 8 <= 3)
		return 8;
	return a % 16 <= 11 && has_cmpxchg16b() ? 16 : 0;
}

static const char *kind_text(enum kind kind)
{
	switch (kind) {
	case K_TRAP: return "a breakpoint";
	case K_SYSCALL: return "the system call";
	case K_BRANCH: return "a branch, call or return";
	case K_JUMP: return "a jump";
	case K_UNKNOWN: return "an unknown form";
	default: return "an effect that cannot be undone";
	}
}

static int stopped_at(const uint8_t *code, size_t n_code, unsigned int offset,
		      const struct insn *in, struct patch_site *site, char *why)
{
	uint8_t b[4] = { 0 };
	size_t left = n_code > offset ? n_code - offset : 0;

	memcpy(b, code + offset, left < 4 ? left : 4);
	if (in->kind == K_JUMP &&
	    in->jumps_to - (uintptr_t)code >= (uint64_t)n_code) {
		site->jumps_to = in->jumps_to;
		return patch_refuse(why, -EEXIST,
				    "already patched, jumps to 0x%llx",
				    (unsigned long long)in->jumps_to);
	}
	return patch_refuse(why, -ENOTSUP, "no place: %s at +%u (%02x %02x %02x %02x)",
			    kind_text(in->kind), offset, b[0], b[1], b[2],
			    b[3]);
}

/* True if something in the function may branch to [code, code + last]. */
static bool is_branch_target(const uint8_t *code, size_t n_code,
			     unsigned int last)
{
	int32_t rel;
	int64_t to;

	for (size_t k = last; k + 2 <= n_code; k++) {
		if ((code[k] & 0xf0) == 0x70 || code[k] == 0xeb ||
		    (code[k] & 0xfc) == 0xe0) {
			to = (int64_t)k + 2 + (int8_t)code[k + 1];
			if (to >= 0 && to <= (int64_t)last)
				return true;
		}
		if (k + 6 > n_code)
			continue;
		memcpy(&rel, code + k + 1, 4);
		to = (int64_t)k + 5 + rel;
		if (code[k] == 0xe9 && to >= 0 && to <= (int64_t)last)
			return true;
		memcpy(&rel, code + k + 2, 4);
		to = (int64_t)k + 6 + rel;
		if (code[k] == 0x0f && (code[k + 1] & 0xf0) == 0x80 &&
		    to >= 0 && to <= (int64_t)last)
			return true;
	}
	return false;
}

/* A breakpoint or a rival's jump further on ends in a refusal as well. */
int patch_arch_decode(const uint8_t *code, size_t n_code, unsigned int n_args,
		      struct patch_site *ret, char why[PATCH_WHY_BYTES])
{
	unsigned int scratch = scratch_registers(n_args), at = 0, store;
	struct patch_site site = { 0 };
	struct effects e = { 0 };
	struct insn in;
	bool found = false;
	int rc;

	for (;;) {
		decode_insn(code + at, n_code - at, &in);
		if ((in.kind == K_PLAIN || in.kind == K_SUB_RSP) &&
		    !effects_fix(&e, &in, at))
			in.kind = K_UNKNOWN;
		if ((in.kind == K_PLAIN || in.kind == K_SUB_RSP) &&
		    in.len >= 5) {
			store = store_for(code + at);
			if (store == 8 || (store == 16 && !found)) {
				site_set(&site, &e, at, in.len, store);
				found = true;
			}
			if (store == 8)
				break;
		}
		if (at + in.len > PATCH_MAX_PREFIX_BYTES ||
		    !effects_add(&e, &in, scratch)) {
			rc = stopped_at(code, n_code, at, &in, ret, why);
			if (!found || rc == -EEXIST || in.kind == K_TRAP)
				return rc;
			break;
		}
		at += in.len;
	}
	if (is_branch_target(code, n_code, site.offset))
		return patch_refuse(why, -ENOTSUP,
				    "a branch seems to go back to +0..+%u",
				    site.offset);
	why[0] = 0;	/* of a place that would have been better */
	*ret = site;
	return 0;
}

void patch_arch_jump(uint8_t *p, uint64_t from, uint64_t to)
{
	int32_t rel = (int32_t)(to - (from + 5));

	p[0] = 0xe9;
	memcpy(p + 1, &rel, 4);
}

int patch_arch_stub(const struct patch_site *site, const uint8_t *code,
		    uint64_t at, const void *hook, uint8_t *image)
{
	static const uint8_t jump_via_next[] = { 0xff, 0x25, 0, 0, 0, 0 };
	uint64_t target = (uintptr_t)hook, from = (uintptr_t)code;
	unsigned int n_copied = site->offset + site->length;
	uint8_t *p = image + PATCH_STUB_HOOK;
	int64_t disp;
	int32_t disp32;

	memcpy(p, site->undo, site->n_undo);
	p += site->n_undo;
	memcpy(p, jump_via_next, sizeof(jump_via_next));
	memcpy(p + sizeof(jump_via_next), &target, 8);

	p = image + PATCH_STUB_ORIG;
	at += PATCH_STUB_ORIG;
	memcpy(p, code, n_copied);
	for (unsigned int i = 0; i < site->n_fix; i++) {
		if (site->fix[i] >= n_copied)
			continue;
		memcpy(&disp32, p + site->fix[i], 4);
		disp = disp32 + (int64_t)(from - at);
		disp32 = (int32_t)disp;
		if (disp32 != disp)
			return -ERANGE;
		memcpy(p + site->fix[i], &disp32, 4);
	}
	patch_arch_jump(p + n_copied, at + n_copied, from + n_copied);
	return 0;
}

/* T1: the one store; pairs with the fetch of every other processor. */
bool patch_arch_store(void *word, const uint64_t before[2],
		      const uint64_t after[2], unsigned int n_bytes)
{
	uint64_t low = before[0], high = before[1];
	bool done;

	if (n_bytes == 8)
		__asm__ volatile("lock cmpxchgq %3, %1; sete %b0"
				 : "=q"(done), "+m"(*(uint64_t *)word),
				   "+a"(low)
				 : "r"(after[0])
				 : "memory", "cc");
	else
		__asm__ volatile("lock cmpxchg16b (%3); sete %b0"
				 : "=q"(done), "+a"(low), "+d"(high)
				 : "r"(word), "b"(after[0]), "c"(after[1])
				 : "memory", "cc");
	return done;
}

/* Instruction fetch snoops stores here; nothing to do. */
void patch_arch_sync(void *start, size_t n)
{
	(void)start;
	(void)n;
}

#else
typedef int patch_x86_64_is_empty;
#endif
