/* SPDX-License-Identifier: BSD-2-Clause */
/* The decoder and the stubs of patching, on code made up for the purpose. */
#include "libregc/patch.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Each test runs in its own process: code can be patched only once. Rounds of
 * the race: REGC_PATCH_ROUNDS, as in check_patch.c.
 */

#if defined(__SANITIZE_ADDRESS__) || RTAB_TSAN
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define N_THREADS 8

/* The decoder, on made-up code. */

struct sample {
	const char *what;
	uint8_t code[48];
	unsigned int n_code;
	unsigned int skew;	/* of the code's address against 16 */
	int rc;
	unsigned int offset, store, n_undo;
	const char *why;
};

#define CODE(...) { __VA_ARGS__ }, sizeof((uint8_t[]){ __VA_ARGS__ })

#ifdef __x86_64__
#define ENDBR 0xf3, 0x0f, 0x1e, 0xfa
#define SYSCALL_RET 0x0f, 0x05, 0xc3
static const struct sample samples[] = {
	{ "mov nr", CODE(0xb8, 11, 0, 0, 0, SYSCALL_RET), 0, 0, 0, 8, 0, NULL },
	{ "endbr, mov nr", CODE(ENDBR, 0xb8, 11, 0, 0, 0, SYSCALL_RET), 0, 0,
	  4, 16, 0, NULL },
	{ "mmap", CODE(0x41, 0x89, 0xca, 0x41, 0xf7, 0xc1, 0xff, 0x0f, 0, 0,
		       0x75, 0x14), 0, 0, 3, 8, 0, NULL },
	{ "endbr, mmap", CODE(ENDBR, 0x41, 0x89, 0xca, 0x41, 0xf7, 0xc1, 0xff,
			      0x0f, 0, 0, 0x75, 0x14), 0, 0, 7, 16, 0, NULL },
	{ "old mmap", CODE(0x41, 0xf7, 0xc1, 0xff, 0x0f, 0, 0, 0x75, 0x27), 0,
	  0, 0, 8, 0, NULL },
	{ "endbr, frame pointer, mmap",
	  CODE(ENDBR, 0x55, 0x41, 0x89, 0xca, 0x48, 0x89, 0xe5, 0x41, 0xf7,
	       0xc1, 0xff, 0x0f, 0, 0), 0, 0, 11, 8, 1, NULL },
	{ "mremap", CODE(0x48, 0x83, 0xec, 0x58, 0x4c, 0x89, 0x44, 0x24, 0x40,
			 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0), 0, 0,
	  9, 8, 7, NULL },
	{ "old mremap", CODE(0x49, 0x89, 0xca, 0xb8, 25, 0, 0, 0, SYSCALL_RET),
	  0, 0, 3, 8, 0, NULL },
	{ "pushes", CODE(0x41, 0x54, 0x55, 0x48, 0x89, 0xfd, 0x31, 0xc0, 0xb8,
			 1, 0, 0, 0, SYSCALL_RET), 0, 0, 8, 8, 3, NULL },
	{ "%rip-relative", CODE(0x80, 0x3d, 0x21, 0xe8, 0x0d, 0, 0, 0x49, 0x89,
				0xca, 0xc3), 0, 0, 0, 8, 0, NULL },
	{ "nop", CODE(0x0f, 0x1f, 0x44, 0, 0, 0xc3), 0, 0, 0, 8, 0, NULL },
	{ "word's last place", CODE(0xb8, 11, 0, 0, 0, SYSCALL_RET), 3, 0, 0,
	  8, 0, NULL },
	{ "over the word", CODE(0xb8, 11, 0, 0, 0, SYSCALL_RET), 4, 0, 0, 16,
	  0, NULL },
	{ "block's last place", CODE(0xb8, 11, 0, 0, 0, SYSCALL_RET), 11, 0, 0,
	  8, 0, NULL },
	{ "over the block", CODE(0xb8, 11, 0, 0, 0, SYSCALL_RET), 12, -ENOTSUP,
	  0, 0, 0, "system call" },
	{ "jump", CODE(0xe9, 0, 0, 1, 0, 0x0f, 0x05), 0, -EEXIST, 0, 0, 0,
	  "already patched" },
	{ "endbr, jump", CODE(ENDBR, 0xe9, 0, 0, 1, 0, 0x0f, 0x05), 0, -EEXIST,
	  0, 0, 0, "already patched" },
	{ "jump by register", CODE(0x49, 0xbb, 0x88, 0x77, 0x66, 0x55, 0x44, 0,
				   0, 0, 0x41, 0xff, 0xe3), 0, -EEXIST, 0, 0,
	  0, "0x4455667788" },
	{ "jump by memory", CODE(0xff, 0x25, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55,
				 0x44, 0, 0, 0), 0, -EEXIST, 0, 0, 0,
	  "0x4455667788" },
	{ "jump after candidate",
	  CODE(ENDBR, 0xb8, 11, 0, 0, 0, 0xe9, 0, 0, 1, 0), 0, -EEXIST, 0, 0,
	  0, "already patched" },
	{ "jump within", CODE(0xeb, 1, 0x90, 0xb8, 11, 0, 0, 0, SYSCALL_RET), 0,
	  -ENOTSUP, 0, 0, 0, "a jump" },
	{ "breakpoint", CODE(0xcc, 11, 0, 0, 0, SYSCALL_RET), 0, -ENOTSUP, 0, 0,
	  0, "breakpoint" },
	{ "endbr, breakpoint", CODE(ENDBR, 0xcc, 0, 0, 0, 0), 0, -ENOTSUP, 0, 0,
	  0, "breakpoint" },
	{ "call before", CODE(0xe8, 0, 0, 0, 0, 0xb8, 11, 0, 0, 0), 0, -ENOTSUP,
	  0, 0, 0, "call" },
	{ "call later", CODE(0x31, 0xc0, 0xe8, 0, 0, 0, 0, 0xc3), 0, -ENOTSUP,
	  0, 0, 0, "call" },
	{ "condition before", CODE(0x85, 0xff, 0x74, 5, 0xb8, 11, 0, 0, 0), 0,
	  -ENOTSUP, 0, 0, 0, "branch" },
	{ "too short", CODE(0x31, 0xc0, 0x0f, 0x05, 0xc3), 0, -ENOTSUP, 0, 0, 0,
	  "system call" },
	{ "ends early", CODE(0xb8, 11, 0, 0), 0, -ENOTSUP, 0, 0, 0, "unknown" },
	{ "changes an argument", CODE(0x31, 0xff, 0xb8, 11, 0, 0, 0), 0,
	  -ENOTSUP, 0, 0, 0, "undone" },
	{ "changes what was not saved", CODE(0x31, 0xdb, 0xb8, 11, 0, 0, 0), 0,
	  -ENOTSUP, 0, 0, 0, "undone" },
	{ "saves what was changed",
	  CODE(0x53, 0x31, 0xdb, 0x53, 0xb8, 11, 0, 0, 0), 0, -ENOTSUP, 0, 0, 0,
	  "undone" },
	{ "stores through an argument",
	  CODE(0x48, 0x89, 0x07, 0xb8, 11, 0, 0, 0), 0, -ENOTSUP, 0, 0, 0,
	  "undone" },
	{ "stores above its frame",
	  CODE(0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0x44, 0x24, 0x08, 0xb8, 1, 0,
	       0, 0), 9, -ENOTSUP, 0, 0, 0, "undone" },
	{ "stores over a saved register",
	  CODE(0x53, 0x48, 0x89, 0x04, 0x24, 0xb8, 1, 0, 0, 0), 0, -ENOTSUP, 0,
	  0, 0, "undone" },
	{ "moves the stack", CODE(0x48, 0x83, 0xe4, 0xf0, 0xb8, 1, 0, 0, 0), 0,
	  -ENOTSUP, 0, 0, 0, "undone" },
	{ "unknown", CODE(0xc5, 0xf8, 0x77, 0xb8, 11, 0, 0, 0), 0, -ENOTSUP, 0,
	  0, 0, "unknown" },
	{ "loop to the place",
	  CODE(0xb8, 11, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0xf5), 0,
	  -ENOTSUP, 0, 0, 0, "back" },
	{ "loop behind the place",
	  CODE(0xb8, 11, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0xfa), 0, 0, 0,
	  8, 0, NULL },
};
#else
#define WORD(w) (w) & 255, (w) >> 8 & 255, (w) >> 16 & 255, (w) >> 24
#define BTI_C WORD(0xd503245fu)
#define MOV_NR WORD(0xd2801ae8u)
#define SVC WORD(0xd4000001u)
static const struct sample samples[] = {
	{ "mov, svc", CODE(MOV_NR, SVC, WORD(0xd65f03c0u)), 0, 0, 4, 4, 0,
	  NULL },
	{ "bti, mov, svc", CODE(BTI_C, MOV_NR, SVC), 0, 0, 8, 4, 0, NULL },
	{ "nop", CODE(WORD(0xd503201fu), MOV_NR, SVC), 0, 0, 0, 4, 0, NULL },
	{ "bti, nop", CODE(BTI_C, WORD(0xd503201fu), MOV_NR, SVC), 0, 0, 4, 4,
	  0, NULL },
	{ "paciasp, nop", CODE(WORD(0xd503233fu), WORD(0xd503201fu)), 0, 0, 4,
	  4, 4, NULL },
	{ "sxtw, mov, svc", CODE(WORD(0x93407c00u), MOV_NR, SVC), 0, 0, 8, 4, 0,
	  NULL },
	{ "stp", CODE(WORD(0xa9bb7bfdu), MOV_NR, SVC), 0, 0, 0, 4, 0, NULL },
	{ "adrp", CODE(WORD(0xb0000005u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "ldr literal", CODE(WORD(0x58000040u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "cbz", CODE(WORD(0xb4000040u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "tbz", CODE(WORD(0x36000040u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "bl", CODE(WORD(0x94000100u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "ldxr", CODE(WORD(0xc85f7c00u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "no place" },
	{ "b", CODE(WORD(0x14001000u), MOV_NR), 0, -EEXIST, 0, 0, 0,
	  "already patched" },
	{ "bti, b", CODE(BTI_C, WORD(0x14001000u)), 0, -EEXIST, 0, 0, 0,
	  "already patched" },
	{ "mov, b", CODE(MOV_NR, WORD(0x14001000u)), 0, -EEXIST, 0, 0, 0,
	  "already patched" },
	{ "ldr, br", CODE(WORD(0x58000050u), WORD(0xd61f0200u), WORD(0x1234u),
			  WORD(0u)), 0, -EEXIST, 0, 0, 0, "0x1234" },
	{ "mov, movk, br", CODE(WORD(0xd2824691u), WORD(0xf2a00031u),
				WORD(0xd61f0220u)), 0, -EEXIST, 0, 0, 0,
	  "0x11234" },
	{ "brk", CODE(WORD(0xd4200000u), MOV_NR), 0, -ENOTSUP, 0, 0, 0,
	  "breakpoint" },
	{ "loop", CODE(MOV_NR, SVC, WORD(0x54ffffe1u)), 0, -ENOTSUP, 0, 0, 0,
	  "back" },
};
#endif

START_TEST(decoder_accepts_known_forms_only)
{
	const struct sample *s = &samples[_i];
	uint8_t buf[96] __attribute__((aligned(16))) = { 0 };
	char why[PATCH_WHY_BYTES] = "";
	struct patch_site site = { 0 };
	int rc;

	memcpy(buf + s->skew, s->code, s->n_code);
	rc = patch_arch_decode(buf + s->skew, s->n_code, PATCH_ALL_ARGS, &site,
			       why);
	ck_assert_msg(rc == s->rc, "%s: %d %s", s->what, rc, why);
	if (!rc)
		ck_assert_str_eq(why, "");
	if (s->why)
		ck_assert_msg(!!strstr(why, s->why), "%s: %s", s->what, why);
	if (rc)
		return;
	ck_assert_msg(site.offset == s->offset && site.store == s->store &&
		      site.n_undo == s->n_undo, "%s: +%u, %u bytes, undo %u",
		      s->what, site.offset, site.store, site.n_undo);
}
END_TEST

START_TEST(registers_above_the_arguments_are_scratch)
{
#ifdef __x86_64__
	/* xor %esi, %esi; mov $12, %eax */
	static const uint8_t code[16] __attribute__((aligned(16))) = {
		0x31, 0xf6, 0x90, 0xb8, 12, 0, 0, 0, 0x0f, 0x05
	};
#else
	/* mov x1, x0; mov x8, #214; svc #0 */
	static const uint8_t code[12] __attribute__((aligned(16))) = {
		WORD(0xaa0003e1u), MOV_NR, SVC
	};
#endif
	char why[PATCH_WHY_BYTES] = "";
	struct patch_site site = { 0 };

	ck_assert_int_eq(patch_arch_decode(code, sizeof(code), 1, &site, why),
			 0);
	ck_assert(!site.quiet);
	if (!patch_arch_decode(code, sizeof(code), 2, &site, why))
		ck_assert(site.quiet);
}
END_TEST

/* The stubs, on functions made to need all they can do. */
#ifdef __x86_64__
long made_up_frame(long, long, long, long, long, long);
long made_up_landing(long, long, long, long, long, long);
long made_up_relative(long, long, long, long, long, long);
extern long made_up_word;
long made_up_word = 1000;

__asm__(".text\n"
	".balign 16\n"
	"made_up_frame: endbr64; push %rbp; mov %rsp, %rbp; push %rbx\n"
	"	push %r12; sub $0x20, %rsp; mov %r9, -0x28(%rbp)\n"
	"	mov %rdi, %rbx; mov %rsi, %r12; xor %eax, %eax\n"
	"	nop; nop; nop; nop; nop\n"
	"	mov $100, %eax\n"
	"	add %rbx, %rax; add %r12, %rax; add -0x28(%rbp), %rax\n"
	"	add $0x20, %rsp; pop %r12; pop %rbx; pop %rbp; ret\n"
	".size made_up_frame, . - made_up_frame\n"
	".balign 16\n"
	"made_up_landing: endbr64; mov $100, %eax; add %rdi, %rax\n"
	"	add %rsi, %rax; add %r9, %rax; ret\n"
	".balign 16\n"
	"made_up_relative: add made_up_word(%rip), %rdi\n"
	"	lea -900(%rdi, %rsi), %rax; add %r9, %rax; ret\n"
	".balign 16\n");

static struct patch made_up;
static __thread unsigned int n_made_up;

PATCH_HOOK static long made_up_hook(long a, long b, long c, long d, long e,
				    long f)
{
	long (*orig)(long, long, long, long, long, long) =
		(long (*)(long, long, long, long, long, long))made_up.orig;

	n_made_up++;
	if (c != 3 || d != 4 || e != 5)
		return -1;
	return orig(a, b, c, d, e, f) + 1;
}

static const struct {
	long (*function)(long, long, long, long, long, long);
	unsigned int n_code, offset, store;
} table[] = {
	{ made_up_frame, 56, 32, 8 },
	{ made_up_landing, 19, 4, 16 },
	{ made_up_relative, 19, 0, 8 },
};

START_TEST(hook_and_original_see_a_fresh_call)
{
	int rc;

	ck_assert_int_eq(table[_i].function(1, 2, 3, 4, 5, 6), 109);
	made_up.hook = (void *)made_up_hook;
	rc = patch_prepare_at(&made_up, (void *)table[_i].function,
			      table[_i].n_code, 6);
	ck_assert_msg(!rc, "%d %s", rc, made_up.why);
	ck_assert_uint_eq(made_up.site.store, table[_i].store);
	ck_assert_uint_eq(made_up.site.offset, table[_i].offset);
	ck_assert_int_eq(table[_i].function(1, 2, 3, 4, 5, 6), 109);
	ck_assert_uint_eq(n_made_up, 0);
	rc = patch_commit(&made_up, 1);
	ck_assert_msg(!rc, "%d %s", rc, made_up.why);
	for (unsigned int i = 1; i <= 1000; i++) {
		ck_assert_int_eq(table[_i].function(1, 2, 3, 4, 5, 6), 110);
		ck_assert_uint_eq(n_made_up, i);
	}
}
END_TEST

static unsigned int n_running, installed;

/* Each round in its own process: it can be patched only once. */
static void run_rounds(int (*round)(unsigned int))
{
	const char *s = getenv("REGC_PATCH_ROUNDS");
	unsigned int rounds = s ? (unsigned int)atoi(s) : SANITIZED ? 5 : 25;
	int status;
	pid_t pid;

	for (unsigned int i = 0; i < rounds; i++) {
		pid = fork();
		if (!pid)
			_exit(round(i));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(!status, "round %u: status %#x", i, status);
	}
}

/* Nothing but calls: a thread is in the changing bytes nearly always. */
static void *race_made_up(void *arg)
{
	unsigned int which = (unsigned int)(uintptr_t)arg;
	long got;

	rtab_fetch_add(&n_running, 1);
	while (!rtab_load_acquire(&installed)) {
		got = table[which].function(1, 2, 3, 4, 5, 6);
		if (got != 109 && got != 110)
			return (void *)1;
	}
	n_made_up = 0;
	got = table[which].function(1, 2, 3, 4, 5, 6);
	return got == 110 && n_made_up == 1 ? NULL : (void *)2;
}

static int made_up_round(unsigned int round)
{
	unsigned int which = round % RTAB_ARRAY_SIZE(table);
	pthread_t threads[N_THREADS];
	void *result;
	int rc = 0;

	made_up.hook = (void *)made_up_hook;
	if (patch_prepare_at(&made_up, (void *)table[which].function,
			     table[which].n_code, 6))
		return 10;
	for (unsigned int i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, race_made_up,
				   (void *)(uintptr_t)which))
			return 11;
	while (rtab_load_acquire(&n_running) < N_THREADS)
		sched_yield();
	if (patch_commit(&made_up, 1))
		rc = 12;
	rtab_store_release(&installed, 1);
	for (unsigned int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &result);
		if (result)
			rc = (int)(uintptr_t)result;
	}
	return rc;
}

START_TEST(threads_in_the_changing_bytes_survive)
{
	run_rounds(made_up_round);
}
END_TEST
#endif

static Suite *code_suite(void)
{
	Suite *s = suite_create("patch_code");
	TCase *tc = tcase_create("patch_code");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, decoder_accepts_known_forms_only, 0,
			    RTAB_ARRAY_SIZE(samples));
	tcase_add_test(tc, registers_above_the_arguments_are_scratch);
#ifdef __x86_64__
	tcase_add_loop_test(tc, hook_and_original_see_a_fresh_call, 0,
			    RTAB_ARRAY_SIZE(table));
	tcase_add_test(tc, threads_in_the_changing_bytes_survive);
#endif
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return suite_run(code_suite());
}
