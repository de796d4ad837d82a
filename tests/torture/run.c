/* SPDX-License-Identifier: BSD-2-Clause */
/* A torture test of several processes beside a broker; see run.h. */
#include "tests/torture/run.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libregc/regc.h"
#include "shm/segment.h"

#define START_NS UINT64_C(30000000000) /* of a broker, on a busy machine */
#define KILL_NS UINT64_C(250000000)

unsigned int seed;
static pid_t broker_pid;
static char broker_socket[64];

void pause_ms(int ms)
{
	poll(NULL, 0, ms);
}

uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* ---- the broker --------------------------------------------------------- */

static bool broker_answers(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool answers;

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", broker_socket);
	answers = connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0;
	close(fd);
	return answers;
}

static void start_broker(void)
{
	const char *build = getenv("REGC_BUILDDIR");
	uint64_t limit = rtab_now_ns() + START_NS;
	struct sched_param idle = { 0 };
	char path[4096];

	snprintf(path, sizeof(path), "%s/regcached/regcached",
		 build ? build : "../..");
	broker_pid = fork();
	if (broker_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getenv("REGC_TEST_LATE") &&
		    sched_setscheduler(0, SCHED_IDLE, &idle))
			_exit(126);
		execl(path, path, "--socket", broker_socket, "--log-level", "error",
		      (char *)NULL);
		_exit(127);
	}
	while (!broker_answers() && rtab_now_ns() < limit)
		pause_ms(1);
}

static void end_broker(int sig)
{
	char lock[sizeof(broker_socket) + 8];

	kill(broker_pid, sig);
	waitpid(broker_pid, NULL, 0);
	snprintf(lock, sizeof(lock), "%s.lock", broker_socket);
	unlink(broker_socket);
	unlink(lock);
}

/* A broker that is late with everything, or was killed just now, is waited for. */
bool run_open(const char *name, struct regc_library **ret,
	      struct regc_status *ret_status)
{
	uint64_t limit = rtab_now_ns() + START_NS;

	for (;;) {
		if (regc_open("torture", NULL, ret))
			return false;
		regc_status(*ret, ret_status);
		if (ret_status->connected && ret_status->mode != REGC_MODE_OFF)
			return true;
		if (rtab_now_ns() > limit || regc_close(*ret))
			break;
	}
	fprintf(stderr, "%s: not caching: %s\n", name, ret_status->why);
	return false;
}

/* ---- the processes ------------------------------------------------------ */

/* 0, 1: one ended badly, RUN_NOT: one could not begin. */
static int wait_for_all(const struct run *run, uint32_t n, bool kill_broker)
{
	uint64_t next_kill = rtab_now_ns() + KILL_NS;
	int status, result = 0;

	while (n) {
		pid_t pid = waitpid(-1, &status, kill_broker ? WNOHANG : 0);

		if (pid < 0)
			return 1;
		if (pid == 0) {
			pause_ms(5);
			if (rtab_now_ns() > next_kill) {
				end_broker(SIGKILL);
				start_broker();
				next_kill = rtab_now_ns() + KILL_NS;
			}
			continue;
		}
		if (pid != broker_pid)
			n--;
		if (!status && pid != broker_pid)
			continue;
		fprintf(stderr, "%s: %s ended with %x\n", run->name,
			pid == broker_pid ? "the broker" : "a process",
			(unsigned int)status);
		if (WIFEXITED(status) && WEXITSTATUS(status) == RUN_NOT)
			result = RUN_NOT;
		else if (!result)
			result = 1;
	}
	return result;
}

static bool is_set(const char *name)
{
	const char *text = getenv(name);

	return text && strcmp(text, "0") != 0;
}

int run_torture(const struct run *run, int argc, char **argv)
{
	const char *text = getenv("REGC_TEST_SECONDS");
	unsigned int seconds = text ? (unsigned int)atoi(text) : 2;
	uint32_t threads = 3, processes = 2, i;
	bool own_broker = !getenv("REGC_SOCKET");
	int result;

	if (argc > 1)
		seconds = (unsigned int)atoi(argv[1]);
	if (argc > 2)
		threads = (uint32_t)atoi(argv[2]);
	if (argc > 3)
		processes = (uint32_t)atoi(argv[3]);
	if (seconds < 1 || threads < 1 || threads > run->max_threads ||
	    processes < 1) {
		fprintf(stderr, "usage: %s [seconds [1..%u threads [processes]]]\n",
			run->name, run->max_threads);
		return 2;
	}
	text = getenv("REGC_TEST_SEED");
	seed = text ? (unsigned int)strtoul(text, NULL, 0) :
		      (unsigned int)(rtab_now_ns() / 1000);
	printf("%s: seed %u, %u threads, %u processes, %u s\n", run->name, seed,
	       threads, processes, seconds);
	fflush(stdout);
	if (own_broker) {
		snprintf(broker_socket, sizeof(broker_socket),
			 "/tmp/regc-torture-%d.sock", (int)getpid());
		setenv("REGC_SOCKET", broker_socket, 1);
		start_broker();
	}
	for (i = 0; i < processes; i++)
		if (fork() == 0)
			exit(run->process(seconds, threads, i));
	result = wait_for_all(run, processes, own_broker && is_set("REGC_TEST_KILL"));
	if (own_broker)
		end_broker(SIGTERM);
	if (result == RUN_NOT)
		return RUN_NOT;
	return run->report() || result;
}
