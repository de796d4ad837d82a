/* SPDX-License-Identifier: BSD-2-Clause */
/* A pair of sockets, what goes in at one end as it is, and what must hold. */
#include <check.h>
#include <dirent.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/wire_fixture.h"

struct regc_wire wire_in;
uint8_t wire_scratch[REGC_WIRE_MAX_BYTES];
int wire_pair[2];

void wire_setup(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wire_pair),
			 0);
	regc_wire_init(&wire_in);
}

void wire_teardown(void)
{
	regc_wire_drop_fds(&wire_in);
	close(wire_pair[0]);
	close(wire_pair[1]);
}

int wire_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Sends bytes as they are, with fds. */
void wire_send_raw(const void *bytes, size_t len, const int *fds, int n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 64)];
	} control = { .bytes = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds > 0) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
		memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * (size_t)n_fds);
	}
	ck_assert_int_eq(sendmsg(wire_pair[0], &msg, MSG_NOSIGNAL), (ssize_t)len);
}

void wire_send_rescan(void)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Rescan rescan = REGC__RESCAN__INIT;

	frame.body_case = REGC__FRAME__BODY_RESCAN;
	frame.rescan = &rescan;
	ck_assert_int_eq(regc_wire_send(wire_pair[0], &frame, NULL, 0, wire_scratch), 0);
}

/* The connection is as good as new after whatever came before. */
void wire_assert_works(void)
{
	Regc__Frame *got;

	wire_send_rescan();
	ck_assert_int_eq(regc_wire_recv(&wire_in, wire_pair[1], &got), 0);
	ck_assert_int_eq(got->body_case, REGC__FRAME__BODY_RESCAN);
}

/* A frame whose packed size is len, in an Error's text. */
int wire_send_of_size(size_t len)
{
	static char text[REGC_WIRE_MAX_BYTES + 2];
	Regc__Frame frame = REGC__FRAME__INIT;
	Regc__Error error = REGC__ERROR__INIT;
	size_t over;

	memset(text, 'x', sizeof(text) - 1);
	frame.body_case = REGC__FRAME__BODY_ERROR;
	frame.error = &error;
	error.text = text + 1;
	over = regc__frame__get_packed_size(&frame) - (sizeof(text) - 2);
	error.text = text + (sizeof(text) - 1 - (len - over));
	ck_assert_uint_eq(regc__frame__get_packed_size(&frame), len);
	return regc_wire_send(wire_pair[0], &frame, NULL, 0, wire_scratch);
}
