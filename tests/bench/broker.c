/* SPDX-License-Identifier: BSD-2-Clause */
/* A private regcached with limits that let every row fit. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define START_LIMIT_NS 5e9

static bool answers(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	ok = connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0;
	close(fd);
	return ok;
}

static _Noreturn void exec_broker(const struct bench_broker *broker,
				  const char *program)
{
	char config[96];
	int fd;

	snprintf(config, sizeof(config), "%s/conf", broker->dir);
	fd = open(config, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		_exit(127);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execl(program, program, "--config", config, "--socket", broker->socket,
	      "--set", "log.level=warn", "--set", "mode=auto",
	      "--set", "limit.node.bytes=1T", "--set", "limit.group.bytes=1T",
	      "--set", "limit.space.bytes=256G",
	      "--set", "limit.space.hard_bytes=512G",
	      "--set", "limit.space.regions=131072", (char *)NULL);
	fprintf(stderr, "regc-bench: %s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Starts it and waits until it takes connections.  Sets REGC_SOCKET. */
int bench_broker_start(struct bench_broker *broker, const char *program)
{
	const char *tmp = getenv("TMPDIR");
	double limit = bench_now_ns() + START_LIMIT_NS;

	broker->pid = 0;
	snprintf(broker->dir, sizeof(broker->dir), "%s/regc-bench.XXXXXX",
		 tmp && strlen(tmp) < 40 ? tmp : "/tmp");
	if (!mkdtemp(broker->dir))
		return -errno;
	snprintf(broker->socket, sizeof(broker->socket), "%s/sock", broker->dir);
	unsetenv("REGC_GROUP");
	unsetenv("REGC_MODE");
	setenv("REGC_SOCKET", broker->socket, 1);
	fflush(NULL);
	broker->pid = fork();
	if (broker->pid < 0) {
		broker->pid = 0;
		return -EAGAIN;
	}
	if (!broker->pid)
		exec_broker(broker, program);
	while (!answers(broker->socket)) {
		if (waitpid(broker->pid, NULL, WNOHANG) == broker->pid) {
			broker->pid = 0;
			return -ECHILD;
		}
		if (bench_now_ns() > limit)
			return -ETIMEDOUT;
		poll(NULL, 0, 5);
	}
	return 0;
}

/* True if it runs; else it has ended by itself, and *ret_status says how. */
bool bench_broker_alive(struct bench_broker *broker, int *ret_status)
{
	if (!broker->pid || waitpid(broker->pid, ret_status, WNOHANG) == 0)
		return broker->pid != 0;
	broker->pid = 0;
	return false;
}

static void remove_dir(const char *path)
{
	char name[320];
	struct dirent *e;
	DIR *dir = opendir(path);

	while (dir && (e = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (e->d_name[0] != '.')
			unlink(name);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void bench_broker_stop(struct bench_broker *broker)
{
	if (broker->pid) {
		kill(broker->pid, SIGTERM);
		waitpid(broker->pid, NULL, 0);
		broker->pid = 0;
	}
	if (broker->dir[0])
		remove_dir(broker->dir);
}

static int read_rss(int pid, uint64_t *ret_bytes)
{
	unsigned long long kib = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %llu", &kib) == 1)
			break;
	fclose(f);
	*ret_bytes = kib * 1024;
	return kib ? 0 : -ENOENT;
}

int bench_broker_memory(const struct bench_broker *broker, uint64_t *ret_rss,
			uint64_t *ret_table)
{
	char path[64], name[320], link[128];
	struct dirent *e;
	struct stat st;
	ssize_t n;
	DIR *dir;

	*ret_table = 0;
	if (!broker->pid)
		return -ESRCH;
	snprintf(path, sizeof(path), "/proc/%d/fd", broker->pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		n = readlink(name, link, sizeof(link) - 1);
		if (n < 0)
			continue;
		link[n] = '\0';
		if (strstr(link, "memfd:") && strstr(link, "table") &&
		    stat(name, &st) == 0)
			*ret_table += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return read_rss(broker->pid, ret_rss);
}
