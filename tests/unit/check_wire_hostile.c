/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of libregc/wire.h: whatever a hostile peer sends ends in a frame or an
 * error, with no descriptor left behind and the connection still good.
 *
 * REGC_TEST_SEED repeats a run of the random tests; each prints its seed.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "shm/base.h"
#include "shm/segment.h"
#include "tests/support/suite.h"
#include "tests/unit/wire_fixture.h"

#define FUZZ_PACKETS 20000

START_TEST(most_descriptors_pass_and_one_more_closes_all)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Rescan rescan = REGC__RESCAN__INIT;
	int before = wire_count_fds(), fds[64];
	uint8_t bytes[16];
	size_t len;

	for (int i = 0; i < 64; i++)
		fds[i] = wire_pair[0];
	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	ck_assert_int_eq(regc_wire_send(wire_pair[0], &frame, fds, REGC_WIRE_MAX_FDS,
					wire_scratch), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(wire_in.n_fds, REGC_WIRE_MAX_FDS);
	ck_assert_int_eq(wire_count_fds(), before + REGC_WIRE_MAX_FDS);

	ck_assert_int_eq(regc_wire_send(wire_pair[0], &frame, fds,
					REGC_WIRE_MAX_FDS + 1, wire_scratch), -EINVAL);
	len = regc__frame__pack(&frame, bytes);
	for (int n = REGC_WIRE_MAX_FDS + 1; n <= 64; n++) {
		wire_send_raw(bytes, len, fds, n);
		ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
		ck_assert_int_eq(wire_in.n_fds, 0);
		ck_assert_int_eq(wire_count_fds(), before);
	}
	wire_assert_works();
}
END_TEST

START_TEST(descriptors_of_a_bad_frame_are_closed)
{
	int before = wire_count_fds();
	Regc__Frame *got;

	wire_send_raw("\x0a\x7f", 2, wire_pair, 2);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
	ck_assert_int_eq(wire_count_fds(), before);
	wire_assert_works();
}
END_TEST

/* No descriptor free: the kernel drops what came, and we must not go on. */
START_TEST(descriptors_lost_at_the_limit_refuse_the_packet)
{
	struct rlimit limit, low;
	Regc__Frame *got;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 0;
	wire_send_raw("\x5a\x00", 2, wire_pair, 2);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(wire_in.n_fds, 0);
	wire_assert_works();
}
END_TEST

START_TEST(longest_frame_passes_and_one_byte_more_does_not)
{
	static uint8_t bytes[REGC_WIRE_MAX_BYTES + 1];
	int before = wire_count_fds();
	Regc__Frame *got;

	ck_assert_int_eq(wire_send_of_size(REGC_WIRE_MAX_BYTES - 1), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(wire_send_of_size(REGC_WIRE_MAX_BYTES), 0);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(got->body_case, REGC__FRAME__BODY_ERROR);
	ck_assert_int_eq(wire_send_of_size(REGC_WIRE_MAX_BYTES + 1), -EMSGSIZE);

	wire_send_raw(bytes, sizeof(bytes), wire_pair, 2);
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
	ck_assert_int_eq(wire_count_fds(), before);
	wire_assert_works();
}
END_TEST

/* Each proper prefix of a frame is refused, whatever it looks like. */
START_TEST(every_truncation_is_refused)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;
	Regc__Deny deny = REGC__DENY__INIT;
	uint8_t bytes[64];
	size_t len;

	deny.ticket = UINT64_MAX;
	deny.limit = (char *)"space-regions";
	frame.body_case = REGC__FRAME__BODY_DENY;
	frame.deny = &deny;
	len = regc__frame__pack(&frame, bytes);
	for (size_t n = 1; n < len; n++) {
		wire_send_raw(bytes, n, NULL, 0);
		ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
	}
	wire_assert_works();
}
END_TEST

START_TEST(unknown_kind_is_a_frame_without_body)
{
	Regc__Frame frame = REGC__FRAME__INIT, *got;

	wire_send_raw("\xfa\x06\x00", 3, NULL, 0); /* field 111, length 0 */
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(got->body_case, REGC__FRAME__BODY__NOT_SET);
	ck_assert_int_eq(regc_wire_send(wire_pair[0], &frame, NULL, 0, wire_scratch),
			 -EINVAL);
}
END_TEST

/* The last of several bodies counts, and the others cost only arena. */
START_TEST(second_body_replaces_the_first)
{
	Regc__Frame *got;

	wire_send_raw("\x2a\x02\x08\x01\x5a\x00", 6, NULL, 0); /* Need, Rescan */
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(got->body_case, REGC__FRAME__BODY_RESCAN);
}
END_TEST

/* 16,000 rows of two bytes want more than the arena has. */
START_TEST(exhausted_arena_refuses_the_packet)
{
	static uint8_t bytes[REGC_WIRE_MAX_BYTES];
	size_t len = 4;
	int before = wire_count_fds();
	Regc__Frame *got;

	while (len + 2 <= sizeof(bytes)) {
		bytes[len++] = 0x22; /* AdminReply.rows, empty */
		bytes[len++] = 0x00;
	}
	bytes[0] = 0x72; /* Frame.admin_reply */
	bytes[1] = (uint8_t)(0x80 | ((len - 4) & 0x7f));
	bytes[2] = (uint8_t)(0x80 | (((len - 4) >> 7) & 0x7f));
	bytes[3] = (uint8_t)((len - 4) >> 14);
	for (int i = 0; i < 3; i++) {
		wire_send_raw(bytes, len, wire_pair, 1);
		ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), -EPROTO);
		ck_assert_uint_le(wire_in.arena_used, REGC_WIRE_ARENA_BYTES);
		ck_assert_int_eq(wire_count_fds(), before);
	}
	wire_assert_works();
}
END_TEST

static uint64_t fuzz_state;

/* xorshift64*: the same everywhere, so that a seed repeats a run. */
static uint32_t fuzz_next(void)
{
	fuzz_state ^= fuzz_state >> 12;
	fuzz_state ^= fuzz_state << 25;
	fuzz_state ^= fuzz_state >> 27;
	return (uint32_t)((fuzz_state * 2685821657736338717ULL) >> 32);
}

static void fuzz_seed(const char *test)
{
	const char *text = getenv("REGC_TEST_SEED");

	fuzz_state = text ? strtoull(text, NULL, 0) : rtab_now_ns();
	fuzz_state |= 1;
	printf("%s: REGC_TEST_SEED=%llu\n", test, (unsigned long long)fuzz_state);
	fflush(stdout);
}

/* A frame, its packet again through the packer: nothing is out of bounds. */
static void assert_frame_or_refused(int before)
{
	Regc__Frame *got = NULL;
	int r = regc_wire_recv(&wire_in, wire_pair[1], &got);

	ck_assert_msg(r == 0 || r == -EPROTO, "r %d", r);
	ck_assert_uint_le(wire_in.arena_used, REGC_WIRE_ARENA_BYTES);
	if (r == 0)
		ck_assert_uint_gt(regc__frame__get_packed_size(got), 0);
	else
		ck_assert_int_eq(wire_count_fds(), before);
	regc_wire_drop_fds(&wire_in);
	ck_assert_int_eq(wire_count_fds(), before);
}

START_TEST(garbage_is_a_frame_or_refused)
{
	static uint8_t bytes[REGC_WIRE_MAX_BYTES + 8];
	int before = wire_count_fds(), fds[7];

	for (size_t i = 0; i < RTAB_ARRAY_SIZE(fds); i++)
		fds[i] = wire_pair[0];
	fuzz_seed("garbage");
	for (int i = 0; i < FUZZ_PACKETS; i++) {
		size_t max = i % 64 ? 96 : sizeof(bytes);
		size_t len = 1 + fuzz_next() % max;

		for (size_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)fuzz_next();
		/* Mostly begin as a frame, or all is refused at once. */
		if (i % 4)
			bytes[0] = (uint8_t)((1 + fuzz_next() % 14) << 3 | 2);
		if (i % 8 && len > 2)
			bytes[1] = (uint8_t)rtab_min_u64(len - 2, 127);
		wire_send_raw(bytes, len, fds, (int)(fuzz_next() % 8));
		assert_frame_or_refused(before);
	}
	wire_assert_works();
}
END_TEST

START_TEST(damaged_frames_are_frames_or_refused)
{
	uint32_t slots[20] = { 1, 200, 70000, UINT32_MAX };
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Reclaim reclaim = REGC__RECLAIM__INIT;
	Regc__Hello hello = REGC__HELLO__INIT;
	uint8_t good[2][256], bytes[256];
	size_t len[2];
	int before = wire_count_fds();

	reclaim.n_slots = RTAB_ARRAY_SIZE(slots);
	reclaim.slots = slots;
	reclaim.ticket = 77;
	frame.body_case = REGC__FRAME__BODY_RECLAIM;
	frame.reclaim = &reclaim;
	len[0] = regc__frame__pack(&frame, good[0]);
	hello.group = (char *)"some group";
	hello.program = (char *)"some program";
	hello.capacity = 1 << 20;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	len[1] = regc__frame__pack(&frame, good[1]);

	fuzz_seed("damaged");
	for (int i = 0; i < FUZZ_PACKETS; i++) {
		size_t n = len[i % 2];

		memcpy(bytes, good[i % 2], n);
		for (uint32_t k = fuzz_next() % 4; k < 4; k++)
			bytes[fuzz_next() % n] ^= (uint8_t)(1 << fuzz_next() % 8);
		wire_send_raw(bytes, n, wire_pair, i % 3);
		assert_frame_or_refused(before);
	}
	wire_assert_works();
}
END_TEST

static Suite *wire_hostile_suite(void)
{
	Suite *s = suite_create("wire hostile");
	TCase *t = tcase_create("hostile");

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, wire_setup, wire_teardown);
	tcase_add_test(t, most_descriptors_pass_and_one_more_closes_all);
	tcase_add_test(t, descriptors_of_a_bad_frame_are_closed);
	tcase_add_test(t, descriptors_lost_at_the_limit_refuse_the_packet);
	tcase_add_test(t, longest_frame_passes_and_one_byte_more_does_not);
	tcase_add_test(t, every_truncation_is_refused);
	tcase_add_test(t, unknown_kind_is_a_frame_without_body);
	tcase_add_test(t, second_body_replaces_the_first);
	tcase_add_test(t, exhausted_arena_refuses_the_packet);
	tcase_add_test(t, garbage_is_a_frame_or_refused);
	tcase_add_test(t, damaged_frames_are_frames_or_refused);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(wire_hostile_suite());
}
