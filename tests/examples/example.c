/* SPDX-License-Identifier: BSD-2-Clause */
/* What the examples share; nothing here is about regc but ex_open(). */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/examples/example.h"

/* Small, so that what is sent waits with the sender. */
#define SEND_BYTES (128 << 10)

static void usage(FILE *out, const char *about, double seconds)
{
	fprintf(out,
		"usage: %s [--seconds N] [--quick]\n\n%s\n\n"
		"  --seconds N  about so long for each run (%g)\n"
		"  --quick      a quarter of a second for each run\n"
		"  --help       this text\n\n"
		"Needs a regcached, see regcached(8).  Exit status: 0 regc kept "
		"every byte whole\nand the unprotected run did not, 1 otherwise, "
		"77 if this machine cannot do it.\n",
		program_invocation_short_name, about, seconds);
}

void ex_parse(int argc, char **argv, const char *about, double seconds,
	      struct ex_options *ret)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "quick", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char *end = NULL;
	int c;

	ret->seconds = seconds;
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's') {
			ret->seconds = strtod(optarg, &end);
		} else if (c == 'q') {
			ret->seconds = 0.25;
		} else if (c == 'h') {
			usage(stdout, about, seconds);
			exit(0);
		} else {
			exit(2);
		}
	}
	if (optind == argc && (!end || !*end) && ret->seconds > 0 &&
	    ret->seconds < 3600)
		return;
	fprintf(stderr, "%s: see --help\n", program_invocation_short_name);
	exit(2);
}

uint64_t ex_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ex_cpu_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ex_pause(void)
{
	poll(NULL, 0, 1);
}

void ex_die(const char *what, int err)
{
	fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what,
		err ? ": " : "", err ? regc_strerror(err) : "");
	exit(1);
}

int ex_must(const char *what, int err)
{
	if (err < 0)
		ex_die(what, err);
	return err;
}

pid_t ex_fork(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		ex_die("fork", -errno);
	return pid;
}

int ex_end(pid_t a, pid_t b)
{
	int status, code, bad = 0;
	pid_t pid;

	for (int i = 0; i < 2; i++) {
		pid = wait(&status);
		if (!status)
			continue;
		code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (!bad)
			kill(pid == a ? b : a, SIGTERM);
		if (!bad || code == EX_SKIP)
			bad = code;
	}
	return bad;
}

struct regc_library *ex_open(const char *name)
{
	struct regc_status status = { .size = sizeof(status) };
	struct regc_library *lib;

	ex_must("regc_open", regc_open(name, NULL, &lib));
	ex_must("regc_status", regc_status(lib, &status));
	if (status.connected && status.mode != REGC_MODE_OFF)
		return lib;
	fprintf(stderr, "%s: regc does not track memory here: %s\n",
		program_invocation_short_name, status.why);
	exit(EX_SKIP);
}

void ex_ring(struct io_uring *ring, unsigned int entries)
{
	struct io_uring_probe *probe;
	int known;

	ex_must("io_uring_queue_init", io_uring_queue_init(entries, ring, 0));
	probe = io_uring_get_probe_ring(ring);
	known = probe && io_uring_opcode_supported(probe, IORING_OP_SEND_ZC);
	io_uring_free_probe(probe);
	if (known)
		return;
	fprintf(stderr, "%s: needs IORING_OP_SEND_ZC (Linux 6.0)\n",
		program_invocation_short_name);
	exit(EX_SKIP);
}

/*
 * No huge pages: of a zero-copy send from one, io_uring charges the socket with
 * all that lies before the data in the huge page, and small socket buffers starve.
 */
void *ex_map(size_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		ex_die("mmap", -errno);
	madvise(mem, bytes, MADV_NOHUGEPAGE);
	memset(mem, 0, bytes);
	return mem;
}

/* ---- connections --------------------------------------------------------- */

static void set_option(int fd, int level, int option, int value)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)) < 0)
		ex_die("setsockopt", -errno);
}

static int new_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		ex_die("socket", -errno);
	set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BYTES);
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return fd;
}

int ex_listen(uint16_t *ret_port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(sin);
	int fd = new_socket();

	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 ||
	    listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
		ex_die("listen", -errno);
	*ret_port = ntohs(sin.sin_port);
	return fd;
}

int ex_connect(uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = new_socket();

	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
		ex_die("connect", -errno);
	return fd;
}

int ex_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		ex_die("accept", -errno);
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	return fd;
}

void ex_connection(int ret[2])
{
	uint16_t port;
	int listener = ex_listen(&port);

	ret[1] = ex_connect(port);
	ret[0] = ex_accept(listener);
	close(listener);
}

bool ex_read(int fd, void *buf, size_t len)
{
	char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = recv(fd, at, len, MSG_WAITALL);
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return false;
		if (n < 0 && errno != EINTR)
			ex_die("recv", -errno);
		if (n < 0)
			n = 0;
	}
	return true;
}

void ex_write(int fd, const void *buf, size_t len)
{
	const char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = send(fd, at, len, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			ex_die("send", -errno);
		if (n < 0)
			n = 0;
	}
}

/* ---- data ---------------------------------------------------------------- */

static uint64_t word_of(uint64_t seed, uint64_t i)
{
	return (seed * UINT64_C(0x9e3779b97f4a7c15) ^ i) *
	       UINT64_C(0xd6e8feb86659fd93);
}

void ex_fill(void *buf, size_t len, uint64_t seed)
{
	uint64_t *words = buf;

	for (size_t i = 0; i < len / 8; i++)
		words[i] = word_of(seed, i);
}

/* Four sums side by side; each word counts by its place. */
uint64_t ex_sum(const void *buf, size_t len)
{
	const uint64_t *words = buf;
	uint64_t sum[4] = { 1, 2, 3, 4 };

	for (size_t i = 0; i + 4 <= len / 8; i += 4)
		for (int k = 0; k < 4; k++)
			sum[k] = (sum[k] ^ words[i + (size_t)k]) *
				 UINT64_C(0x9e3779b97f4a7c15);
	return sum[0] ^ sum[1] >> 7 ^ sum[2] << 9 ^ sum[3] >> 21;
}

size_t ex_wrong(const void *buf, size_t len, uint64_t seed)
{
	const uint64_t *words = buf;
	size_t wrong = 0;

	for (size_t i = 0; i < len / 8; i++)
		for (uint64_t d = words[i] ^ word_of(seed, i); d; d >>= 8)
			wrong += (d & 0xff) != 0;
	return wrong;
}
