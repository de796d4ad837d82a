/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worker processes: one side of one row each, told what to do over a socket.
 *
 * Protocol: the worker sends a struct reply after its setup and after each run;
 * the parent sends one byte for each run.  A worker ends when the socket does,
 * and it is killed by the kernel if the parent dies.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "tests/bench/bench.h"

#define SETUP_LIMIT_MS 120000
#define RUN_LIMIT_MS 60000

struct reply {
	int err;
	double ns;
	char why[BENCH_WHY_BYTES];
};

void bench_why(struct bench_worker *w, int err, const char *what)
{
	if (err)
		snprintf(w->why, sizeof(w->why), "%s: %s", what, strerror(-err));
	else
		snprintf(w->why, sizeof(w->why), "%s", what);
}

static void reply(struct bench_worker *w, int fd, int err, double ns)
{
	struct reply msg = { .err = err, .ns = ns };

	if (err && !w->why[0])
		bench_why(w, err, w->side->name);
	memcpy(msg.why, w->why, sizeof(msg.why));
	w->why[0] = '\0';
	if (send(fd, &msg, sizeof(msg), MSG_NOSIGNAL) != (ssize_t)sizeof(msg))
		_exit(1);
}

static _Noreturn void serve(struct bench_worker *w, int fd)
{
	char go;
	double ns;
	int err;

	bench_pin(w->process + (w->row->processes == 1));
	err = w->side->setup(w);
	reply(w, fd, err, 0);
	while (!err && recv(fd, &go, 1, 0) == 1) {
		ns = 0;
		err = w->side->run(w, &ns);
		reply(w, fd, err, ns);
	}
	_exit(0);
}

static int start_one(struct bench_team *team, const struct bench_row *row,
		     const struct bench_side *side, double run_ms, uint32_t number)
{
	struct bench_worker w = { .row = row, .side = side, .run_ms = run_ms,
				  .process = number, .gate = team->gate };
	pid_t parent = getpid();
	int pair[2], pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		close(pair[0]);
		close(pair[1]);
		return -EAGAIN;
	}
	if (pid == 0) {
		close(pair[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		serve(&w, pair[1]);
	}
	close(pair[1]);
	team->workers[number].pid = pid;
	team->workers[number].fd = pair[0];
	team->n = number + 1;
	return 0;
}

static int await(struct bench_team *team, uint32_t number, int limit_ms,
		 double *ret_ns)
{
	struct pollfd p = { .fd = team->workers[number].fd, .events = POLLIN };
	struct reply msg;

	if (poll(&p, 1, limit_ms) != 1) {
		snprintf(team->why, sizeof(team->why), "no answer within %d s",
			 limit_ms / 1000);
		return -ETIMEDOUT;
	}
	if (recv(p.fd, &msg, sizeof(msg), 0) != (ssize_t)sizeof(msg)) {
		snprintf(team->why, sizeof(team->why), "worker died");
		return -ECONNRESET;
	}
	if (msg.err) {
		memcpy(team->why, msg.why, sizeof(team->why));
		return msg.err;
	}
	*ret_ns = msg.ns;
	return 0;
}

/* Starts the workers one after the other.  On failure team->why is set. */
int bench_team_start(struct bench_team *team, const struct bench_row *row,
		     const struct bench_side *side, double run_ms)
{
	double ns;
	int err;

	memset(team, 0, sizeof(*team));
	team->gate = mmap(NULL, sizeof(*team->gate), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (team->gate == MAP_FAILED) {
		team->gate = NULL;
		snprintf(team->why, sizeof(team->why), "no memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < row->processes; i++) {
		err = start_one(team, row, side, run_ms, i);
		if (!err)
			err = await(team, i, SETUP_LIMIT_MS, &ns);
		if (err) {
			if (!team->why[0])
				snprintf(team->why, sizeof(team->why), "%s",
					 strerror(-err));
			return err;
		}
	}
	return 0;
}

/* One run of all workers at the same time; its figure is their mean. */
int bench_team_run(struct bench_team *team)
{
	double ns, sum = 0;
	int err = 0, e;

	if (team->why[0] || team->n_runs == BENCH_MAX_RUNS)
		return -EINVAL;
	rtab_store_release(&team->gate->arrived, 0);
	for (uint32_t i = 0; i < team->n; i++)
		if (send(team->workers[i].fd, "r", 1, MSG_NOSIGNAL) != 1)
			err = -ECONNRESET;
	for (uint32_t i = 0; i < team->n; i++) {
		ns = 0;
		e = await(team, i, RUN_LIMIT_MS, &ns);
		if (e)
			err = e;
		sum += ns;
	}
	if (!err)
		team->ns[team->n_runs++] = sum / team->n;
	return err;
}

void bench_team_stop(struct bench_team *team)
{
	for (uint32_t i = 0; i < team->n; i++) {
		close(team->workers[i].fd);
		kill(team->workers[i].pid, SIGKILL);
		waitpid(team->workers[i].pid, NULL, 0);
	}
	team->n = 0;
	if (team->gate)
		munmap(team->gate, sizeof(*team->gate));
	team->gate = NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *ns, uint32_t n)
{
	qsort(ns, n, sizeof(ns[0]), compare);
	return n % 2 ? ns[n / 2] : (ns[n / 2 - 1] + ns[n / 2]) / 2;
}

/* -1 if there was no run. */
double bench_team_median(struct bench_team *team)
{
	return team->n_runs && !team->why[0] ? median(team->ns, team->n_runs) :
					       -1;
}

void bench_slice_add(struct bench_slices *slices, double ns)
{
	if (slices->n < BENCH_MAX_SLICES)
		slices->ns[slices->n++] = ns;
}

double bench_slice_median(struct bench_slices *slices)
{
	return slices->n ? median(slices->ns, slices->n) : 0;
}
