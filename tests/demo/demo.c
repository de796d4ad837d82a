/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The demo: two libraries and two processes move data and share registrations.
 *
 *   sender                                   receiver
 *   libmpi_demo --- fixed writes, socket --> libmpi_demo, fixed reads
 *   libpfs_demo --- fixed writes --> file
 *
 * Each round the sender fills every block with a new pattern, sends it and
 * writes it to the file; some blocks are unmapped, dropped or freed and made
 * again in between, on both sides.  Receiver and sender check every byte of what
 * arrived and of what the file holds.  All of it is done three times, each with
 * new processes: registering for every transfer, with a private cache in each
 * library, and with regc.  Only the private caches may be wrong, and must be:
 * else the check would prove nothing.
 *
 * demo FOLDER: keeps its file and a note there.  When the table is printed,
 * FOLDER/note names addresses to look at, and the last sender lives on until
 * standard input ends.  Exit status 0, 1: something is wrong, 77: no io_uring.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/demo/block.h"
#include "tests/demo/demo.h"
#include "tests/demo/mpi_demo.h"
#include "tests/demo/pfs_demo.h"

#define N_ROUNDS 100 /* of large blocks; more of small ones, the same bytes */
#define N_CHANGES 3 /* of a block that changes */
#define N_BLOCKS 8
/*
 * Bytes of the smallest blocks; there are such of 2, 4 and 8 times that.  An
 * ordinary user may pin 8 MiB by default, and three libraries pin all blocks.
 */
#define SMALL (64 << 10)
#define SMALL_IF_FREE (256 << 10) /* where the kernel lets us pin ENOUGH */
#define ENOUGH (48 << 20)
#define LIMIT_S 60 /* for one process, then something hangs */

/* What a pair of processes shares; descriptors are both sides' business. */
struct pair {
	enum keys_mode mode;
	const char *folder;
	size_t smallest; /* bytes */
	unsigned int n_rounds;
	int socks[2];    /* sender, receiver */
	int results[2];  /* pipe: struct result */
	int stay[2];     /* pipe: its end ends the sender */
};

static int fail(const char *what, int r)
{
	fprintf(stderr, "demo: %s: %s\n", what, strerror(-r));
	return -1;
}

static uint64_t seed_of(unsigned int round, unsigned int block)
{
	return (uint64_t)round * N_BLOCKS + block + 1;
}

static int blocks_init(struct block *blocks, size_t smallest)
{
	unsigned int i;
	int r;

	for (i = 0; i < N_BLOCKS; i++) {
		/* each size comes with two kinds, each kind with two sizes */
		r = block_init(&blocks[i],
			       (i + i / BLOCK_N_KINDS) % BLOCK_N_KINDS,
			       smallest << i % 4);
		if (r < 0)
			return fail("memory for a block", r);
	}
	return 0;
}

static int block_next(const struct pair *pair, struct block *block,
		      unsigned int round, unsigned int phase)
{
	int r;

	if (round == 0 || (round + phase) % (pair->n_rounds / N_CHANGES))
		return 0;
	r = block_change(block);
	return r < 0 ? fail("changing a block", r) : 0;
}

static void check(struct result *result, const void *addr, size_t len,
		  uint64_t seed)
{
	uint64_t wrong = pattern_wrong_bytes(addr, len, seed);

	result->transfers++;
	result->bytes += len;
	result->wrong_transfers += wrong != 0;
	result->wrong_bytes += wrong;
}

/* What the kernel counts as pinned by this process. */
static uint64_t pinned_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	uint64_t kib = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "VmPin: %" SCNu64, &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib << 10;
}

static int result_send(const struct pair *pair, struct result *result,
		       const char *who)
{
	result->done = 1;
	if (write(pair->results[1], result, sizeof(*result)) !=
	    (ssize_t)sizeof(*result))
		return fail(who, -errno);
	return 0;
}

/* ---- receiver ---------------------------------------------------------- */

static int receiver_rounds(const struct pair *pair, struct mpi *mpi,
			   struct block *blocks, struct result *result)
{
	unsigned int round, i;
	int r;

	for (round = 0; round < pair->n_rounds; round++) {
		for (i = 0; i < N_BLOCKS; i++) {
			if (block_next(pair, &blocks[i], round, i + 3) < 0)
				return -1;
			r = mpi_recv(mpi, blocks[i].addr, blocks[i].len);
			if (r < 0)
				return fail("receiving", r);
			check(result, blocks[i].addr, blocks[i].len,
			      seed_of(round, i));
		}
	}
	return 0;
}

static int receiver(const struct pair *pair)
{
	struct result result = { .is_receiver = 1 };
	struct block blocks[N_BLOCKS];
	struct mpi *mpi;
	int r = mpi_open(&mpi, pair->socks[1], pair->mode);

	if (r < 0)
		return fail("opening mpi in the receiver", r);
	if (blocks_init(blocks, pair->smallest) < 0 ||
	    receiver_rounds(pair, mpi, blocks, &result) < 0)
		return -1;
	r = mpi_stats(mpi, &result.mpi);
	if (r < 0)
		return fail("statistics of the receiver", r);
	if (result_send(pair, &result, "result of the receiver") < 0)
		return -1;
	r = mpi_close(mpi);
	return r < 0 ? fail("closing mpi in the receiver", r) : 0;
}

/* ---- sender ------------------------------------------------------------ */

struct sender {
	const struct pair *pair;
	struct mpi *mpi;
	struct pfs *pfs;
	int file;
	struct block blocks[N_BLOCKS];
	size_t largest; /* bytes of a block */
	void *read_back;
	struct result result;
};

static int sender_block(struct sender *s, unsigned int round, unsigned int i)
{
	struct block *block = &s->blocks[i];
	uint64_t offset = (uint64_t)i * s->largest;
	ssize_t n;
	int r;

	if (block_next(s->pair, block, round, i) < 0)
		return -1;
	pattern_fill(block->addr, block->len, seed_of(round, i));
	r = mpi_send(s->mpi, block->addr, block->len);
	if (r < 0)
		return fail("sending", r);
	r = pfs_write(s->pfs, block->addr, block->len, offset);
	if (r < 0)
		return fail("writing to the file", r);
	n = pread(s->file, s->read_back, block->len, (off_t)offset);
	if (n != (ssize_t)block->len)
		return fail("reading the file back", n < 0 ? -errno : -EIO);
	check(&s->result, s->read_back, block->len, seed_of(round, i));
	return 0;
}

static int sender_rounds(struct sender *s)
{
	uint64_t before = pinned_bytes();
	unsigned int round, i;

	for (round = 0; round < s->pair->n_rounds; round++) {
		for (i = 0; i < N_BLOCKS; i++) {
			if (sender_block(s, round, i) < 0)
				return -1;
			/* nothing but this block is registered yet */
			if (round == 0 && i == 0)
				s->result.pins = (double)(pinned_bytes() -
							  before) /
						 (double)s->blocks[0].len;
		}
	}
	return 0;
}

static int sender_open(struct sender *s, const struct pair *pair)
{
	char path[512];
	int r;

	snprintf(path, sizeof(path), "%s/file", pair->folder);
	s->file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (s->file < 0)
		return fail(path, -errno);
	s->largest = pair->smallest << 3;
	s->read_back = malloc(s->largest);
	if (!s->read_back)
		return fail("memory", -ENOMEM);
	r = mpi_open(&s->mpi, pair->socks[0], pair->mode);
	if (r < 0)
		return fail("opening mpi", r);
	r = pfs_open(&s->pfs, s->file, pair->mode);
	return r < 0 ? fail("opening pfs", r) : blocks_init(s->blocks, pair->smallest);
}

/* One block goes away for good, so that there is a miss to explain. */
static void sender_leave(struct sender *s)
{
	struct block *live = &s->blocks[0], *gone = &s->blocks[1];

	s->result.pid = (int)getpid();
	s->result.live = (uintptr_t)live->addr;
	s->result.live_len = live->len;
	s->result.gone = (uintptr_t)gone->addr;
	s->result.gone_len = gone->len;
	block_deinit(gone);
}

static void sender_stay(const struct pair *pair)
{
	char c;

	alarm(0);
	while (read(pair->stay[0], &c, 1) < 0 && errno == EINTR)
		;
}

static int sender(const struct pair *pair)
{
	struct sender s = { .pair = pair, .file = -1 };
	int r;

	if (sender_open(&s, pair) < 0 || sender_rounds(&s) < 0)
		return -1;
	r = mpi_stats(s.mpi, &s.result.mpi);
	if (r == 0)
		r = pfs_stats(s.pfs, &s.result.pfs);
	if (r < 0)
		return fail("statistics of the sender", r);
	sender_leave(&s);
	if (result_send(pair, &s.result, "result of the sender") < 0)
		return -1;
	if (pair->mode == KEYS_REGC)
		sender_stay(pair);
	r = pfs_close(s.pfs);
	if (r == 0)
		r = mpi_close(s.mpi);
	return r < 0 ? fail("closing in the sender", r) : 0;
}

/* ---- both -------------------------------------------------------------- */

static pid_t start(const struct pair *pair, int (*side)(const struct pair *),
		   int other_sock)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	alarm(LIMIT_S);
	close(pair->socks[other_sock]);
	close(pair->results[0]);
	close(pair->stay[1]);
	_exit(side(pair) < 0 ? 1 : 0);
}

static int pair_init(struct pair *pair, enum keys_mode mode)
{
	pair->mode = mode;
	pair->n_rounds = N_ROUNDS * (unsigned int)(SMALL_IF_FREE /
						    pair->smallest);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair->socks) < 0 ||
	    pipe2(pair->results, O_CLOEXEC) < 0 ||
	    pipe2(pair->stay, O_CLOEXEC) < 0)
		return fail("sockets and pipes", -errno);
	return 0;
}

static int reap(pid_t pid, const char *who)
{
	int status;

	if (pid < 0)
		return fail(who, -EAGAIN);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		fprintf(stderr, "demo: the %s hung for %d s\n", who, LIMIT_S);
	else if (WIFSIGNALED(status))
		fprintf(stderr, "demo: the %s was ended by signal %d\n", who,
			WTERMSIG(status));
	return -1;
}

static void results_read(const struct pair *pair, struct outcome *outcome)
{
	struct result result;

	while (read(pair->results[0], &result, sizeof(result)) ==
	       (ssize_t)sizeof(result)) {
		if (result.is_receiver)
			outcome->receiver = result;
		else
			outcome->sender = result;
		if (outcome->receiver.done && outcome->sender.done)
			break;
	}
}

/* Addresses for the script to look at; there once the table is printed. */
static int note_write(const char *folder, const struct result *result)
{
	char path[512], tmp[520];
	FILE *f;

	snprintf(path, sizeof(path), "%s/note", folder);
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	f = fopen(tmp, "we");
	if (!f)
		return fail(tmp, -errno);
	fprintf(f, "pid=%d\nlive=0x%" PRIx64 "\nlive_len=%" PRIu64
		"\ngone=0x%" PRIx64 "\ngone_len=%" PRIu64 "\n", result->pid,
		result->live, result->live_len, result->gone, result->gone_len);
	if (fclose(f) != 0 || rename(tmp, path) < 0)
		return fail(path, -errno);
	return 0;
}

static void show_and_wait(const struct outcome *outcomes, const char *folder)
{
	char c;

	table_print(outcomes);
	fflush(stdout);
	if (note_write(folder, &outcomes[KEYS_REGC].sender) < 0)
		return;
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
}

/* The last pair waits, so that somebody can look at what it holds. */
static int pair_run(enum keys_mode mode, const char *folder, size_t smallest,
		    struct outcome *outcomes)
{
	struct pair pair = { .folder = folder, .smallest = smallest };
	pid_t pids[2];
	int r;

	if (pair_init(&pair, mode) < 0)
		return -1;
	pids[0] = start(&pair, sender, 1);
	pids[1] = start(&pair, receiver, 0);
	close(pair.socks[0]);
	close(pair.socks[1]);
	close(pair.results[1]);
	close(pair.stay[0]);
	results_read(&pair, &outcomes[mode]);
	if (mode == KEYS_REGC && outcomes[mode].sender.done &&
	    outcomes[mode].receiver.done)
		show_and_wait(outcomes, folder);
	close(pair.stay[1]);
	close(pair.results[0]);
	r = reap(pids[0], "sender");
	r |= reap(pids[1], "receiver");
	return r;
}

/* May this user pin a lot?  Only the kernel knows. */
static int may_pin(struct io_uring *ring, size_t len)
{
	struct iovec iov = { .iov_len = len };
	__u64 tag = 0;
	int r;

	iov.iov_base = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (iov.iov_base == MAP_FAILED)
		return 0;
	r = io_uring_register_buffers_update_tag(ring, 0, &iov, &tag, 1);
	munmap(iov.iov_base, len);
	return r == 1;
}

/* Bytes of the smallest block, or 0: no io_uring. */
static size_t probe(void)
{
	struct io_uring ring;
	size_t smallest;
	int r = io_uring_queue_init(8, &ring, 0);

	if (r == 0)
		r = io_uring_register_buffers_sparse(&ring, 1);
	if (r < 0) {
		printf("The demo needs fixed buffers of io_uring, which this "
		       "system does not give: %s\n", strerror(-r));
		return 0;
	}
	smallest = may_pin(&ring, ENOUGH) ? SMALL_IF_FREE : SMALL;
	io_uring_queue_exit(&ring);
	return smallest;
}

int main(int argc, char **argv)
{
	struct outcome outcomes[KEYS_N_MODES];
	size_t smallest;
	int mode;

	if (argc != 2) {
		fprintf(stderr, "usage: demo FOLDER\n");
		return 2;
	}
	memset(outcomes, 0, sizeof(outcomes));
	signal(SIGPIPE, SIG_IGN);
	smallest = probe();
	if (smallest == 0)
		return 77;
	for (mode = 0; mode < KEYS_N_MODES; mode++) {
		if (pair_run(mode, argv[1], smallest, outcomes) < 0)
			return 1;
	}
	return table_verdict(outcomes) < 0 ? 1 : 0;
}
