/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conflict: two libraries that know nothing of each other use one buffer.
 *
 * "mpi" sends it, to a peer that does not read yet; meanwhile "pfs" reads a file
 * into it: with read(2), with io_uring, and with a fixed buffer of its own.
 * The last of them goes around page tables, so there pfs must say what it does, by
 * a transfer of its own.  Under every policy the conflict is found.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/examples/example.h"

#define BYTES ((size_t)2 << 20)
#define SENT UINT64_C(1) /* seeds: what mpi sends */
#define READ UINT64_C(2) /* what is in the file */
#define LIMIT_NS UINT64_C(10000000000)
#define NO_POLICY 0

enum how { BY_READ, BY_URING, BY_FIXED };

static const char *const hows[] = { "read(2)", "io_uring read",
				    "io_uring, fixed buffer" };

struct scene {
	enum how how;
	uint32_t policy; /* REGC_POLICY_* or NO_POLICY, of mpi */
	uint32_t conflict; /* REGC_CONFLICT_*, of pfs with a fixed buffer */
	const char *name;
};

static const struct scene scenes[] = {
	{ BY_READ, NO_POLICY, 0, "(unprotected)" },
	{ BY_READ, REGC_POLICY_BLOCK, 0, "block" },
	{ BY_READ, REGC_POLICY_COPY, 0, "copy" },
	{ BY_READ, REGC_POLICY_REPORT, 0, "report" },
	{ BY_URING, NO_POLICY, 0, "(unprotected)" },
	{ BY_URING, REGC_POLICY_BLOCK, 0, "block" },
	{ BY_URING, REGC_POLICY_COPY, 0, "copy" },
	{ BY_URING, REGC_POLICY_REPORT, 0, "report" },
	{ BY_FIXED, NO_POLICY, 0, "(unprotected)" },
	{ BY_FIXED, REGC_POLICY_BLOCK, REGC_CONFLICT_REFUSE, "refuse" },
	{ BY_FIXED, REGC_POLICY_BLOCK, REGC_CONFLICT_QUEUE, "queue" },
	{ BY_FIXED, REGC_POLICY_BLOCK, REGC_CONFLICT_ALLOW, "allow" },
};

#define N_SCENES (sizeof(scenes) / sizeof(scenes[0]))

struct party {
	struct regc_library *lib;
	struct regc_domain *dom;
	struct io_uring ring;
};

static struct party mpi, pfs;
static char *buffer;
static int file;

/* What pfs found out; ended and asked are read while its thread runs. */
static struct {
	const struct scene *scene;
	uint32_t asked, ended;
	int refused; /* what its begin said */
	bool told;   /* faults of system calls: the weak form of protection */
	unsigned int known; /* transfers of the buffer, as pfs sees them */
	char whose[32];
	pid_t tid;
} reader;

static void open_party(struct party *p, const char *name)
{
	p->lib = ex_open(name);
	ex_ring(&p->ring, 8);
	ex_must("regc_domain_uring",
		regc_domain_uring(p->lib, p->ring.ring_fd, 0, &p->dom));
}

static void close_party(struct party *p)
{
	ex_must("regc_domain_close", regc_domain_close(p->dom));
	ex_must("regc_close", regc_close(p->lib));
	io_uring_queue_exit(&p->ring);
}

/* ---- pfs ----------------------------------------------------------------- */

static ssize_t read_uring(size_t off, int index)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&pfs.ring);
	struct io_uring_cqe *cqe;
	ssize_t n;

	if (index < 0)
		io_uring_prep_read(sqe, file, buffer + off,
				   (unsigned int)(BYTES - off), off);
	else
		io_uring_prep_read_fixed(sqe, file, buffer + off,
					 (unsigned int)(BYTES - off), off, index);
	ex_must("io_uring_submit", io_uring_submit_and_wait(&pfs.ring, 1));
	while (io_uring_wait_cqe(&pfs.ring, &cqe))
		;
	n = cqe->res;
	io_uring_cqe_seen(&pfs.ring, cqe);
	return n;
}

/* The whole file; index < 0: not a fixed buffer. */
static void read_file(int index)
{
	size_t off = 0;
	ssize_t n;

	while (off < BYTES) {
		if (reader.scene->how == BY_READ) {
			n = pread(file, buffer + off, BYTES - off, (off_t)off);
			n = n < 0 ? -errno : n;
		} else {
			n = read_uring(off, index);
		}
		if (n == -EFAULT) {
			/* No thread of the kernel waits here: regc(7). */
			reader.told = true;
			ex_must("regc_transfer_wait",
				regc_transfer_wait(pfs.lib, buffer, BYTES, -1));
		} else if (n <= 0) {
			ex_die("reading the file", n < 0 ? (int)n : -EIO);
		} else {
			off += (size_t)n;
		}
	}
}

static void read_declared(void)
{
	struct regc_transfer_attr attr = { .size = sizeof(attr),
					   .conflict = reader.scene->conflict };
	struct regc_transfer_info info[2] = { { .size = sizeof(info[0]) },
					      { .size = sizeof(info[1]) } };
	struct regc_lease lease;
	struct regc_transfer t;
	int err = 0;

	ex_must("regc_get", regc_get(pfs.dom, buffer, BYTES,
				     REGC_ACCESS_LOCAL_WRITE, &lease));
	if (reader.scene->policy != NO_POLICY) {
		err = regc_transfer_begin(&lease, buffer, BYTES, REGC_RECEIVE,
					  &attr, &t);
		reader.refused = err;
		reader.known = (unsigned int)ex_must(
			"regc_in_flight",
			regc_in_flight(pfs.lib, buffer, BYTES, info, 2));
		memcpy(reader.whose, info[0].library, sizeof(reader.whose));
		if (err && err != -EBUSY)
			ex_die("regc_transfer_begin", err);
	}
	if (!err)
		read_file((int)lease.lkey);
	if (!err && reader.scene->policy != NO_POLICY)
		ex_must("regc_transfer_complete", regc_transfer_complete(&t, NULL));
	regc_put(&lease);
}

static void *run_pfs(void *arg)
{
	(void)arg;
	reader.tid = (pid_t)syscall(SYS_gettid);
	rtab_store_release(&reader.asked, 1);
	if (reader.scene->how == BY_FIXED)
		read_declared();
	else
		read_file(-1);
	rtab_store_release(&reader.ended, 1);
	return NULL;
}

/* ---- mpi and its peer ----------------------------------------------------- */

struct peer {
	int fd;
	char *got; /* BYTES */
};

static void *run_peer(void *arg)
{
	struct peer *peer = arg;

	if (!ex_read(peer->fd, peer->got, BYTES))
		ex_die("mpi has gone", 0);
	return NULL;
}

static int begin_once(const struct scene *scene, struct ex_send *s,
		      struct regc_transfer *ret)
{
	struct regc_transfer_attr attr = { .size = sizeof(attr),
					   .policy = scene->policy };
	int err;

	ex_must("regc_get", regc_get(mpi.dom, buffer, BYTES,
				     REGC_ACCESS_LOCAL_READ, &s->lease));
	if (scene->policy == NO_POLICY)
		return 0;
	err = regc_transfer_begin(&s->lease, buffer, BYTES, REGC_SEND, &attr, ret);
	if (err)
		regc_put(&s->lease);
	return err;
}

/* -ESTALE: pages were replaced since the get, as the copy policy does. */
static int begin(const struct scene *scene, struct ex_send *s,
		 struct regc_transfer *ret)
{
	uint64_t limit = ex_now_ns() + LIMIT_NS;
	int err;

	s->data = buffer;
	s->len = BYTES;
	do
		err = begin_once(scene, s, ret);
	while (err == -ESTALE && ex_now_ns() < limit);
	return err;
}

/* Until pfs has read all, or is held up, or has had the time for it. */
static bool ended_early(const struct regc_transfer *t)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	uint64_t limit = ex_now_ns() + LIMIT_NS;
	int looks = 0;

	while (!rtab_load_acquire(&reader.ended)) {
		if (ex_now_ns() > limit)
			ex_die("pfs neither reads nor waits", 0);
		if (t && !regc_transfer_state(t, &info) && info.n_blocked)
			return false;
		/* A begin in the queue, or a call that got EFAULT, shows nowhere. */
		if (rtab_load_acquire(&reader.asked) && ++looks > 50 &&
		    (reader.told || reader.scene->conflict == REGC_CONFLICT_QUEUE))
			return false;
		ex_pause();
	}
	return true;
}

/* ---- one scene ----------------------------------------------------------- */

struct outcome {
	bool early; /* pfs had read the file while the send was under way */
	size_t torn;
	bool read_all; /* the buffer is what the file is */
	struct regc_transfer_info info;
};

static int play(const struct scene *scene, struct peer *peer, int fd,
		struct outcome *ret)
{
	struct ex_queue queue = { .ring = &mpi.ring, .fd = fd };
	struct ex_send send = { 0 };
	struct regc_transfer t = { 0 };
	pthread_t thread, peer_thread;
	int err;

	memset(&reader, 0, sizeof(reader));
	reader.scene = scene;
	ret->info = (struct regc_transfer_info){ .size = sizeof(ret->info) };
	ex_fill(buffer, BYTES, SENT);
	err = begin(scene, &send, &t);
	if (err)
		return err;
	ex_queue_add(&queue, &send);
	if (t.id)
		ex_must("regc_transfer_posted", regc_transfer_posted(&t));
	if (pthread_create(&thread, NULL, run_pfs, NULL))
		ex_die("pthread_create", 0);
	ret->early = ended_early(t.id ? &t : NULL);
	if (pthread_create(&peer_thread, NULL, run_peer, peer))
		ex_die("pthread_create", 0);
	while (!send.done)
		ex_queue_reap(&queue, true);
	if (t.id)
		ex_must("regc_transfer_complete",
			regc_transfer_complete(&t, &ret->info));
	regc_put(&send.lease);
	pthread_join(peer_thread, NULL);
	pthread_join(thread, NULL);
	ret->torn = ex_wrong(peer->got, BYTES, SENT);
	ret->read_all = !ex_wrong(buffer, BYTES, READ);
	return 0;
}

static bool in_buffer(uint64_t addr)
{
	return addr - (uintptr_t)buffer < BYTES;
}

/* What regc did, in words; *ret_good: it is what the policy promises. */
static void judge(const struct scene *scene, const struct outcome *o, char *words,
		  size_t size, bool *ret_good)
{
	const struct regc_transfer_info *i = &o->info;

	*ret_good = false;
	if (scene->policy == NO_POLICY) {
		snprintf(words, size, "nothing");
		*ret_good = o->torn > 0;
	} else if (scene->conflict == REGC_CONFLICT_REFUSE) {
		snprintf(words, size, "refused: in flight for \"%s\"", reader.whose);
		*ret_good = reader.refused == -EBUSY && !o->torn &&
			    !strcmp(reader.whose, "mpi");
	} else if (scene->conflict == REGC_CONFLICT_QUEUE) {
		snprintf(words, size, "pfs began when mpi was done");
		*ret_good = !reader.refused && !o->early && !o->torn && o->read_all;
	} else if (scene->conflict == REGC_CONFLICT_ALLOW) {
		snprintf(words, size, "let through, told of %u transfers",
			 reader.known);
		*ret_good = !reader.refused && reader.known == 2;
	} else if (reader.told) {
		snprintf(words, size, "system calls got EFAULT, then waited");
		*ret_good = !o->torn && o->read_all;
	} else if (scene->policy == REGC_POLICY_BLOCK) {
		snprintf(words, size, "pfs waited for %.1f ms",
			 (double)i->blocked_ns / 1e6);
		*ret_good = i->flags & REGC_TRANSFER_BLOCKED && !o->early &&
			    !o->torn && o->read_all;
	} else if (scene->policy == REGC_POLICY_COPY) {
		snprintf(words, size, "pfs got other pages at once");
		*ret_good = i->flags & REGC_TRANSFER_COPIED && o->early &&
			    !o->torn && o->read_all;
	} else {
		snprintf(words, size, "damaged: %s thread at buffer + %#llx",
			 i->tid == (uint32_t)reader.tid ? "pfs's" : "some",
			 (unsigned long long)(i->addr - (uintptr_t)buffer));
		*ret_good = i->flags & REGC_TRANSFER_DAMAGED && i->n_through &&
			    in_buffer(i->addr) && o->early;
	}
}

static bool must_not_tear(const struct scene *scene)
{
	return scene->conflict != REGC_CONFLICT_ALLOW &&
	       (scene->policy == REGC_POLICY_BLOCK ||
		scene->policy == REGC_POLICY_COPY);
}

int main(int argc, char **argv)
{
	struct ex_options options;
	struct outcome outcome;
	struct peer peer;
	char words[96];
	bool good, all = true, torn = false;
	int fd[2], err;

	ex_parse(argc, argv,
		 "\"mpi\" sends a buffer while \"pfs\" reads a file into it.", 1,
		 &options);
	open_party(&mpi, "mpi");
	open_party(&pfs, "pfs");
	buffer = ex_map(BYTES);
	peer.got = ex_map(BYTES);
	file = memfd_create("file", MFD_CLOEXEC);
	ex_fill(peer.got, BYTES, READ);
	if (file < 0 || pwrite(file, peer.got, BYTES, 0) != (ssize_t)BYTES)
		ex_die("making the file", -errno);
	ex_connection(fd);
	peer.fd = fd[1];
	printf("conflict: mpi sends %zu MiB, meanwhile pfs reads a file into them\n\n"
	       "%-24s %-14s %-42s %12s\n", BYTES >> 20, "pfs reads by", "policy",
	       "what regc did", "torn bytes");
	for (size_t i = 0; i < N_SCENES; i++) {
		err = play(&scenes[i], &peer, fd[0], &outcome);
		if (err == -ENOTSUP || err == -ENOTCONN) {
			printf("conflict: no protection on this machine: %s\n",
			       regc_strerror(err));
			return EX_SKIP;
		}
		ex_must("regc_transfer_begin", err);
		judge(&scenes[i], &outcome, words, sizeof(words), &good);
		printf("%-24s %-14s %-42s %12zu%s\n", hows[scenes[i].how],
		       scenes[i].name, words, outcome.torn, good ? "" : "  BAD");
		fflush(stdout);
		all = all && good;
		/* Torn though protected: that is no bad luck. */
		torn = torn || (outcome.torn && must_not_tear(&scenes[i]));
	}
	close_party(&pfs);
	close_party(&mpi);
	return torn ? 1 : all ? 0 : EX_AGAIN;
}
