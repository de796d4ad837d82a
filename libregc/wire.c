/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control socket framing, and how the two sides find each other.
 *
 * One packet is one frame, so there is no state between two calls but the
 * descriptors that nobody took yet.  Law L8: nothing here allocates.  A frame is
 * packed into the caller's scratch and unpacked into the arena of struct
 * regc_wire, a stack of bytes that starts empty with every packet; when it is
 * used up the allocator says NULL, protobuf-c gives up, and the packet is
 * refused like any other that is not a frame.
 *
 * Law L5: whatever the peer sends ends in a frame, -EPROTO or -ECONNRESET, and
 * no descriptor of a refused packet stays open.  The close of a descriptor may
 * wait for the peer (a socket that lingers), so whoever must not wait sets
 * wire->close_fds, and every descriptor goes there: the control buffer holds as
 * many as a packet can have, because those that do not fit are closed by the
 * kernel, in recvmsg(2) itself.  The schema has no recursive message, so the
 * depth of unpacking is bounded by it.
 */
#include <errno.h>
#include <poll.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "libregc/wire.h"
#include "shm/base.h"
#include "shm/segment.h"

#define SYSTEM_SOCKET "/run/regc/regcached.sock"

#define SCM_MAX_FDS 253 /* the kernel's bound for one packet */

/* Room for the descriptors of one packet, aligned as cmsg(3) asks. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * SCM_MAX_FDS)];
};

static void *arena_alloc(void *arg, size_t size)
{
	struct regc_wire *wire = arg;
	uintptr_t base = (uintptr_t)wire->arena;
	size_t from;

	from = rtab_round_up(base + wire->arena_used, alignof(max_align_t)) - base;
	if (from > sizeof(wire->arena) || size > sizeof(wire->arena) - from)
		return NULL;
	wire->arena_used = from + size;
	return wire->arena + from;
}

/* Everything goes at once, with the next packet. */
static void arena_free(void *arg, void *mem)
{
	(void)arg;
	(void)mem;
}

void regc_wire_init(struct regc_wire *wire)
{
	wire->arena_used = 0;
	wire->n_fds = 0;
	for (int i = 0; i < REGC_WIRE_MAX_FDS; i++)
		wire->fds[i] = -1;
	wire->close_fds = NULL;
	wire->close_arg = NULL;
}

static void close_fds(struct regc_wire *wire, const int *fds, int n)
{
	if (wire->close_fds) {
		wire->close_fds(wire->close_arg, fds, n);
		return;
	}
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void regc_wire_drop_fds(struct regc_wire *wire)
{
	int n = wire->n_fds;

	if (n == 0)
		return;
	wire->n_fds = 0;
	close_fds(wire, wire->fds, n);
	for (int i = 0; i < n; i++)
		wire->fds[i] = -1;
}

int regc_wire_take_fd(struct regc_wire *wire, int i)
{
	int fd;

	if (i < 0 || i >= wire->n_fds)
		return -1;
	fd = wire->fds[i];
	wire->fds[i] = -1;
	return fd;
}

static void put_fds(struct msghdr *msg, union control *control, const int *fds,
		    int n_fds)
{
	struct cmsghdr *cmsg;

	msg->msg_control = control->bytes;
	msg->msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n_fds);
	memset(control->bytes, 0, msg->msg_controllen);
	cmsg = CMSG_FIRSTHDR(msg);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n_fds);
	memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * (size_t)n_fds);
}

int regc_wire_send(int sock, const Regc__Frame *frame, const int *fds,
		   int n_fds, uint8_t *scratch)
{
	struct msghdr msg = { 0 };
	union control control;
	struct iovec iov;
	ssize_t n;

	/* An empty frame would be a packet of 0 bytes: the end, to the peer. */
	if (frame->body_case == REGC__FRAME__BODY__NOT_SET)
		return -EINVAL;
	if (n_fds < 0 || n_fds > REGC_WIRE_MAX_FDS)
		return -EINVAL;
	if (regc__frame__get_packed_size(frame) > REGC_WIRE_MAX_BYTES)
		return -EMSGSIZE;

	iov.iov_base = scratch;
	iov.iov_len = regc__frame__pack(frame, scratch);
	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	if (n_fds > 0)
		put_fds(&msg, &control, fds, n_fds);
	do
		n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Takes every descriptor of msg into wire; -EPROTO: more than there is room. */
static int collect_fds(struct regc_wire *wire, struct msghdr *msg)
{
	struct cmsghdr *cmsg;
	int more[SCM_MAX_FDS];
	int n_more = 0;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t n;

		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (wire->n_fds < REGC_WIRE_MAX_FDS)
				wire->fds[wire->n_fds++] = fd;
			else
				more[n_more++] = fd;
		}
	}
	if (n_more == 0)
		return 0;
	close_fds(wire, more, n_more);
	return -EPROTO;
}

/* One packet into wire->packet and wire->fds; its length or -errno. */
static ssize_t recv_packet(struct regc_wire *wire, int sock)
{
	struct iovec iov = { wire->packet, sizeof(wire->packet) };
	struct msghdr msg = { 0 };
	union control control;
	ssize_t n;
	int r;

	msg.msg_iov = &iov;
	msg.msg_iovlen = 1;
	msg.msg_control = control.bytes;
	msg.msg_controllen = sizeof(control.bytes);
	do
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;

	r = collect_fds(wire, &msg);
	if (r < 0 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return -EPROTO;
	return n > 0 ? n : -ECONNRESET;
}

int regc_wire_recv(struct regc_wire *wire, int sock, Regc__Frame **ret_frame)
{
	ProtobufCAllocator arena = { arena_alloc, arena_free, wire };
	Regc__Frame *frame;
	ssize_t n;

	regc_wire_drop_fds(wire);
	wire->arena_used = 0;
	n = recv_packet(wire, sock);
	if (n < 0) {
		regc_wire_drop_fds(wire);
		return (int)n;
	}
	frame = regc__frame__unpack(&arena, (size_t)n, wire->packet);
	if (!frame) {
		regc_wire_drop_fds(wire);
		return -EPROTO;
	}
	*ret_frame = frame;
	return 0;
}

int regc_wire_recv_wait(struct regc_wire *wire, int sock, int timeout_ms,
			Regc__Frame **ret_frame)
{
	uint64_t wait_ns = (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
	uint64_t end_ns = rtab_now_ns() + wait_ns;

	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		struct timespec left;
		uint64_t now_ns;
		int r;

		r = regc_wire_recv(wire, sock, ret_frame);
		if (r != -EAGAIN)
			return r;
		now_ns = rtab_now_ns();
		if (now_ns >= end_ns)
			return -ETIMEDOUT;
		left.tv_sec = (time_t)((end_ns - now_ns) / 1000000000);
		left.tv_nsec = (long)((end_ns - now_ns) % 1000000000);
		if (ppoll(&p, 1, &left, NULL) < 0 && errno != EINTR)
			return -errno;
	}
}

void regc_wire_default_socket(unsigned int uid, char *ret_path, size_t size)
{
	/* The variable speaks of this process's user and of nobody else. */
	const char *run = uid == geteuid() ? secure_getenv("XDG_RUNTIME_DIR") : NULL;
	size_t max = rtab_min_u64(size, sizeof(((struct sockaddr_un *)0)->sun_path));
	int n;

	if (size == 0)
		return;
	if (uid == 0)
		n = snprintf(ret_path, size, "%s", SYSTEM_SOCKET);
	else if (run && run[0] == '/')
		n = snprintf(ret_path, size, "%s/regc/regcached.sock", run);
	else
		n = snprintf(ret_path, size, "/tmp/regc-%u/regcached.sock", uid);
	if (n < 0 || (size_t)n >= max)
		ret_path[0] = '\0';
}

/*
 * The broker at path, if it belongs to root or to this user: anybody may have
 * made a socket at a path in /tmp first.
 */
static int connect_path(const char *path, int *ret_sock)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int sock, r;

	if (path[0] == '\0')
		return -ENOENT;
	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, strlen(path) + 1);

	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	do
		r = connect(sock, (struct sockaddr *)&addr, sizeof(addr));
	while (r < 0 && errno == EINTR);
	if (r == 0)
		r = getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	r = r < 0 ? -errno : 0;
	if (r == 0 && peer.uid != 0 && peer.uid != geteuid())
		r = -EPERM;
	if (r < 0) {
		close(sock);
		return r;
	}
	*ret_sock = sock;
	return 0;
}

static int connect_report(const char *path, int *ret_sock, char *ret_path,
			  size_t size)
{
	int r = connect_path(path, ret_sock);

	if (r == 0 && size > 0)
		snprintf(ret_path, size, "%s", path);
	return r;
}

int regc_wire_connect(const char *path, int *ret_sock, char *ret_path,
		      size_t size)
{
	char own[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int r, r_system;

	/* A path that somebody named is the only one tried. */
	if (!path)
		path = secure_getenv("REGC_SOCKET");
	if (path && path[0] != '\0')
		return connect_report(path, ret_sock, ret_path, size);

	regc_wire_default_socket(geteuid(), own, sizeof(own));
	r = connect_report(own, ret_sock, ret_path, size);
	if (r == 0 || strcmp(own, SYSTEM_SOCKET) == 0)
		return r;
	r_system = connect_report(SYSTEM_SOCKET, ret_sock, ret_path, size);
	/* "Not there" says less than whatever the other one said. */
	if (r_system == 0 || r == -ENOENT)
		return r_system;
	return r;
}
