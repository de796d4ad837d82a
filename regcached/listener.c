/* SPDX-License-Identifier: BSD-2-Clause */
/* The control socket; see listener.h. */
#include "regcached/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "regcached/log.h"

#define BACKLOG 1024

static int fail(const char *what, const char *path, int err)
{
	log_error("%s \"%s\": %s", what, path, strerror(err));
	return -err;
}

static int make_directory(const char *path)
{
	char dir[OPTION_PATH_BYTES];
	mode_t mode = geteuid() == 0 ? 0755 : 0700;
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash || slash == dir)
		return 0;
	*slash = 0;
	if (mkdir(dir, mode) == 0)
		return chmod(dir, mode) < 0 ? /* whatever the umask is */
			       fail("cannot set the mode of", dir, errno) : 0;
	return errno == EEXIST ? 0 : fail("cannot make directory", dir, errno);
}

/*
 * Others may write to a directory like /tmp, and would then own the socket's
 * place: only a directory of root's or of this user's is used.
 */
static int check_directory(const char *path)
{
	char dir[OPTION_PATH_BYTES];
	struct stat st;
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (!slash)
		snprintf(dir, sizeof(dir), ".");
	else
		slash[slash == dir] = 0;
	if (stat(dir, &st) < 0)
		return fail("cannot use directory", dir, errno);
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		log_error("directory \"%s\" belongs to user %u, so the socket "
			  "could not be trusted", dir, (unsigned int)st.st_uid);
		return -EPERM;
	}
	if (st.st_mode & 022 && !(st.st_mode & S_ISVTX)) {
		log_error("directory \"%s\" can be written by others and has no "
			  "sticky bit, so the socket could not be trusted", dir);
		return -EPERM;
	}
	return 0;
}

/*
 * Whoever can open the file can lock it and keep every later broker away, so it
 * is for its owner alone; an older version made it readable to all.
 */
static int open_lock(struct listener *l, const char *path)
{
	struct stat st;

	l->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (l->lock_fd < 0 || fstat(l->lock_fd, &st) < 0)
		return fail("cannot open lock file", path, errno);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1) {
		log_error("lock file \"%s\" belongs to user %u or is not a file "
			  "of its own: remove it", path,
			  (unsigned int)st.st_uid);
		return -EPERM;
	}
	if (st.st_mode & 0177 && fchmod(l->lock_fd, 0600) < 0)
		return fail("cannot set the mode of", path, errno);
	return 0;
}

/* Somebody else has the lock: a broker, if the pid in the file lives. */
static int lock_is_held(const struct listener *l, const char *path)
{
	char text[32];
	ssize_t n = pread(l->lock_fd, text, sizeof(text) - 1, 0);
	int pid;

	text[n > 0 ? n : 0] = 0;
	pid = atoi(text);
	if (pid > 0 && (kill(pid, 0) == 0 || errno == EPERM))
		log_error("another regcached, pid %d, listens on \"%s\"", pid,
			  l->path);
	else
		log_error("lock file \"%s\" is held by another process, which is "
			  "not the regcached that wrote it (pid %d)", path, pid);
	return -EADDRINUSE;
}

static int take_lock(struct listener *l)
{
	char path[OPTION_PATH_BYTES + 8], text[32];
	int r;

	snprintf(path, sizeof(path), "%s.lock", l->path);
	r = open_lock(l, path);
	if (r)
		return r;
	if (flock(l->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? lock_is_held(l, path) :
					      fail("cannot lock", path, errno);
	r = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(l->lock_fd, 0) < 0 ||
	    pwrite(l->lock_fd, text, (size_t)r, 0) != r)
		return fail("cannot write lock file", path, errno);
	return 0;
}

/* We hold the lock: whatever socket stands there is nobody's. */
static int remove_stale(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 :
					 fail("cannot look at", path, errno);
	if (!S_ISSOCK(st.st_mode)) {
		log_error("\"%s\" is there and is not a socket", path);
		return -EEXIST;
	}
	log_info("stale socket replaced at \"%s\"", path);
	return unlink(path) < 0 ? fail("cannot remove", path, errno) : 0;
}

static int bind_socket(struct listener *l)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	mode_t old;
	struct stat st;
	int r;

	memcpy(addr.sun_path, l->path, sizeof(addr.sun_path));
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return fail("cannot make a socket for", l->path, errno);
	old = umask(0177);
	r = bind(l->fd, (struct sockaddr *)&addr, sizeof(addr));
	umask(old);
	if (r < 0)
		return fail("cannot bind", l->path, errno);
	if (lstat(l->path, &st) < 0)
		return fail("cannot look at", l->path, errno);
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	if (listen(l->fd, BACKLOG) < 0)
		return fail("cannot listen on", l->path, errno);
	if (chmod(l->path, geteuid() == 0 ? 0666 : 0600) < 0)
		return fail("cannot set the mode of", l->path, errno);
	return 0;
}

int listener_init(struct listener *l, const char *path)
{
	int r;

	memset(l, 0, sizeof(*l));
	l->fd = -1;
	l->lock_fd = -1;
	if (!*path || strlen(path) >= sizeof(l->path)) {
		log_error("socket path \"%.200s\" is %s", path,
			  *path ? "too long" : "empty");
		return -ENAMETOOLONG;
	}
	snprintf(l->path, sizeof(l->path), "%s", path);
	r = make_directory(path);
	if (!r)
		r = check_directory(path);
	if (!r)
		r = take_lock(l);
	if (!r)
		r = remove_stale(path);
	if (!r)
		r = bind_socket(l);
	if (r)
		listener_deinit(l);
	return r;
}

void listener_deinit(struct listener *l)
{
	struct stat st;

	if (l->fd >= 0) {
		if (l->ino && lstat(l->path, &st) == 0 && st.st_dev == l->dev &&
		    st.st_ino == l->ino)
			unlink(l->path);
		close(l->fd);
	}
	if (l->lock_fd >= 0)
		close(l->lock_fd);
	l->fd = -1;
	l->lock_fd = -1;
}

int listener_accept(struct listener *l)
{
	int fd;

	do
		fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	return fd < 0 ? -errno : fd;
}
