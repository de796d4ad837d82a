/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An MPI program that knows nothing of regc: a ping-pong between ranks 0 and 1 and
 * three collectives of all, every byte compared, from buffers that are used again
 * and from memory that is mapped anew at the same address.  Run by tests/vm/programs.
 *
 *     mpi_transfers ROUNDS [DEVICE PORT]
 *
 * With a device and a port each rank is a client of a file system (pfs.h) as well,
 * in the same process: it writes each buffer that MPI has sent or received, and
 * reads it back.  It says what the file system's own counters are.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/vm/pfs.h"

#define N_BUFFERS 4
#define MAX_BYTES ((size_t)PFS_BYTES)

static const size_t sizes[] = { 65536, 262144, 1 << 20, 4 << 20 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static char *buffers[N_BUFFERS];
static uint64_t n_bad, n_remaps, n_transfers;
static int rank, n_ranks;
static bool with_pfs;
static struct pfs_client pfs;

static void map_at(char **buf)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (*buf) {
		munmap(*buf, MAX_BYTES);
		flags |= MAP_FIXED_NOREPLACE;
		n_remaps++;
	}
	*buf = mmap(*buf, MAX_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (*buf == MAP_FAILED) {
		perror("mmap");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void fill(char *buf, size_t len, uint64_t seed)
{
	uint64_t value;
	size_t i;

	for (i = 0; i < len; i += sizeof(value)) {
		value = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
		memcpy(buf + i, &value, sizeof(value));
	}
}

static void compare(const char *buf, size_t len, uint64_t seed, const char *what)
{
	uint64_t value, is;
	size_t i, bad = 0;

	for (i = 0; i < len; i += sizeof(value)) {
		value = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
		memcpy(&is, buf + i, sizeof(is));
		bad += is != value;
	}
	n_transfers++;
	if (bad) {
		fprintf(stderr, "rank %d: %s of %zu bytes: %zu words wrong\n",
			rank, what, len, bad);
		n_bad++;
	}
}

/* The file system sees the same bytes as we do. */
static void write_and_read(char *buf, size_t len, uint64_t seed)
{
	int r;

	if (!with_pfs)
		return;
	r = pfs_write(&pfs, buf, len);
	if (!r) {
		memset(buf, 0x55, len);
		r = pfs_read(&pfs, buf, len);
	}
	if (r) {
		fprintf(stderr, "rank %d: file system: %s\n", rank,
			regc_strerror(r));
		n_bad++;
	}
	compare(buf, len, seed, "file");
}

static void ping_pong(char *buf, size_t len, uint64_t seed)
{
	MPI_Status status;
	int n = (int)len;

	if (rank == 0) {
		fill(buf, len, seed);
		MPI_Send(buf, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
		write_and_read(buf, len, seed);
		memset(buf, 0, len);
		MPI_Recv(buf, n, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &status);
		compare(buf, len, seed + 1, "pong");
	} else if (rank == 1) {
		memset(buf, 0, len);
		MPI_Recv(buf, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
		compare(buf, len, seed, "ping");
		write_and_read(buf, len, seed);
		fill(buf, len, seed + 1);
		MPI_Send(buf, n, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
	}
}

static void all_to_all(const char *from, char *to, size_t len, uint64_t seed)
{
	size_t part = len / (size_t)n_ranks / 8 * 8;
	int i;

	for (i = 0; i < n_ranks; i++)
		fill(buffers[0] + (size_t)i * part, part,
		     seed + (uint64_t)(rank * n_ranks + i));
	MPI_Alltoall(from, (int)part, MPI_BYTE, to, (int)part, MPI_BYTE,
		     MPI_COMM_WORLD);
	for (i = 0; i < n_ranks; i++)
		compare(to + (size_t)i * part, part,
			seed + (uint64_t)(i * n_ranks + rank), "alltoall");
}

static void collectives(size_t len, uint64_t seed)
{
	uint64_t *in = (uint64_t *)buffers[0], *out = (uint64_t *)buffers[1];
	size_t n = len / sizeof(*in), i, bad = 0;

	for (i = 0; i < n; i++)
		in[i] = seed + i + (uint64_t)rank;
	MPI_Allreduce(in, out, (int)n, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < n; i++)
		bad += out[i] != (uint64_t)n_ranks * (seed + i) +
				 (uint64_t)(n_ranks * (n_ranks - 1) / 2);
	n_transfers++;
	if (bad) {
		fprintf(stderr, "rank %d: allreduce: %zu words wrong\n", rank, bad);
		n_bad++;
	}
	if (rank == 0)
		fill(buffers[2], len, seed);
	MPI_Bcast(buffers[2], (int)len, MPI_BYTE, 0, MPI_COMM_WORLD);
	compare(buffers[2], len, seed, "bcast");
	all_to_all(buffers[0], buffers[3], len, seed);
}

static void report(uint64_t rounds)
{
	struct regc_stats s = { .size = sizeof(s) };
	uint64_t all_bad = 0;

	MPI_Allreduce(&n_bad, &all_bad, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	n_bad = all_bad;
	printf("rank %d: %" PRIu64 " rounds, %" PRIu64 " transfers compared, "
	       "%" PRIu64 " remapped buffers, %" PRIu64 " wrong\n", rank, rounds,
	       n_transfers, n_remaps, n_bad);
	if (with_pfs && regc_stats(pfs.lib, &s) == 0)
		printf("rank %d: pfs hits %" PRIu64 " misses %" PRIu64
		       " uncached %" PRIu64 " failed %" PRIu64 "\n", rank, s.hits,
		       s.misses, s.uncached, s.failed);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t rounds, round;
	unsigned int i;
	int r;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 20;
	for (i = 0; i < N_BUFFERS; i++)
		map_at(&buffers[i]);
	if (argc > 3) {
		r = pfs_open(&pfs, argv[2], (uint16_t)atoi(argv[3]));
		if (r) {
			fprintf(stderr, "pfs: %s\n", regc_strerror(r));
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		with_pfs = true;
	}
	for (round = 0; round < rounds; round++) {
		size_t len = sizes[round / N_BUFFERS % N_SIZES];

		ping_pong(buffers[round % N_BUFFERS], len, round * 16);
		if (round % 8 == 7)
			collectives(len, round * 16);
		if (round % 3 == 2)
			map_at(&buffers[round % N_BUFFERS]);
	}
	report(rounds);
	if (with_pfs && pfs_close(&pfs)) {
		fprintf(stderr, "rank %d: pfs does not close\n", rank);
		n_bad++;
	}
	MPI_Finalize();
	return n_bad != 0;
}
