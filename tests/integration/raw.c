/* SPDX-License-Identifier: BSD-2-Clause */
/* A real regcached, and a client that speaks by hand; see raw.h. */
#include "tests/integration/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/base.h"
#include "shm/segment.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

#define MAX_ARGS (2 * RAW_MAX_SETS + 8)

/* ---- waiting ------------------------------------------------------------- */

uint64_t raw_deadline_ns(void)
{
	return rtab_now_ns() + (uint64_t)RAW_LIMIT_MS * 1000000;
}

void raw_pause(uint64_t end_ns, const char *what, const char *file, int line)
{
	if (rtab_now_ns() > end_ns)
		ck_abort_msg("%s:%d: still not: %s", file, line, what);
	poll(NULL, 0, 1);
}

/* ---- broker -------------------------------------------------------------- */

void raw_broker_init(struct raw_broker *b)
{
	const char *tmp = getenv("TMPDIR");

	memset(b, 0, sizeof(*b));
	snprintf(b->dir, sizeof(b->dir), "%s/regc-raw.XXXXXX",
		 tmp && strlen(tmp) < 40 ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(b->dir));
	ck_assert_int_eq(chmod(b->dir, 0755), 0);
	snprintf(b->socket, sizeof(b->socket), "%s/sock", b->dir);
	snprintf(b->config, sizeof(b->config), "%s/conf", b->dir);
	snprintf(b->log, sizeof(b->log), "%s/log", b->dir);
	raw_write_config(b, "");
}

void raw_write_config(struct raw_broker *b, const char *text)
{
	FILE *f = fopen(b->config, "we");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

bool raw_log_has(const struct raw_broker *b, const char *text)
{
	static char all[1 << 20];
	FILE *f = fopen(b->log, "re");
	size_t n;

	if (!f)
		return false;
	n = fread(all, 1, sizeof(all) - 1, f);
	fclose(f);
	all[n] = 0;
	return strstr(all, text) != NULL;
}

static _Noreturn void exec_broker(const struct raw_broker *b,
				  const char *const *sets)
{
	const char *build = getenv("REGC_BUILDDIR");
	char program[512];
	const char *args[MAX_ARGS];
	int n = 0, log_fd;

	snprintf(program, sizeof(program), "%s/regcached/regcached",
		 build ? build : ".");
	args[n++] = program;
	args[n++] = "--config";
	args[n++] = b->config;
	args[n++] = "--socket";
	args[n++] = b->socket;
	for (; sets && *sets && n < MAX_ARGS - 3; sets++) {
		args[n++] = "--set";
		args[n++] = *sets;
	}
	args[n] = NULL;
	log_fd = open(b->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log_fd >= 0)
		dup2(log_fd, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(program, (char **)args);
	dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

static int notify_socket(struct raw_broker *b, char *path, size_t size)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(path, size, "%.64s/notify", b->dir);
	unlink(path);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

void raw_broker_start(struct raw_broker *b, const char *const *sets)
{
	struct pollfd pfd;
	char path[96], text[64];
	ssize_t n;

	pfd.fd = notify_socket(b, path, sizeof(path));
	pfd.events = POLLIN;
	fflush(NULL);
	b->pid = fork();
	ck_assert_int_ge(b->pid, 0);
	if (b->pid == 0) {
		setenv("NOTIFY_SOCKET", path, 1);
		exec_broker(b, sets);
	}
	if (poll(&pfd, 1, RAW_LIMIT_MS) != 1)
		ck_abort_msg("regcached does not become ready, see %s", b->log);
	n = read(pfd.fd, text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = 0;
	ck_assert_str_eq(text, "READY=1");
	close(pfd.fd);
	unlink(path);
}

int raw_broker_run(struct raw_broker *b, const char *const *sets)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		exec_broker(b, sets);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int raw_broker_end(struct raw_broker *b, int sig)
{
	int status;

	ck_assert_int_eq(kill(b->pid, sig), 0);
	ck_assert_int_eq(waitpid(b->pid, &status, 0), b->pid);
	b->pid = 0;
	return status;
}

void raw_broker_deinit(struct raw_broker *b)
{
	static const char *const names[] = { "sock", "sock.lock", "conf", "log",
					     "notify" };
	char path[128];
	size_t i;

	if (b->pid > 0) {
		kill(b->pid, SIGKILL);
		waitpid(b->pid, NULL, 0);
	}
	for (i = 0; i < RTAB_ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", b->dir, names[i]);
		unlink(path);
	}
	rmdir(b->dir);
}

/* ---- messages ------------------------------------------------------------ */

void raw_send(struct raw_client *c, const Regc__Frame *frame)
{
	ck_assert_int_eq(regc_wire_send(c->sock, frame, NULL, 0, c->scratch), 0);
}

void raw_send_need(struct raw_client *c, uint64_t bytes, uint64_t regions,
		   uint64_t ticket)
{
	Regc__Need need = REGC__NEED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	need.bytes = bytes;
	need.regions = regions;
	need.ticket = ticket;
	frame.body_case = REGC__FRAME__BODY_NEED;
	frame.need = &need;
	raw_send(c, &frame);
}

void raw_send_released(struct raw_client *c, uint64_t bytes, uint64_t regions,
		       uint64_t ticket)
{
	Regc__Released released = REGC__RELEASED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	released.bytes = bytes;
	released.regions = regions;
	released.ticket = ticket;
	frame.body_case = REGC__FRAME__BODY_RELEASED;
	frame.released = &released;
	raw_send(c, &frame);
}

Regc__Frame *raw_expect(struct raw_client *c, int kind)
{
	Regc__Frame *frame = NULL;
	int r = regc_wire_recv_wait(c->wire, c->sock, RAW_LIMIT_MS, &frame);

	ck_assert_msg(r == 0, "no frame: %s", strerror(-r));
	ck_assert_msg((int)frame->body_case == kind, "frame %d, not %d: %s",
		      (int)frame->body_case, kind,
		      frame->body_case == REGC__FRAME__BODY_ERROR ?
			      frame->error->text : "");
	return frame;
}

void raw_expect_end(struct raw_client *c)
{
	Regc__Frame *frame;
	int r;

	do
		r = regc_wire_recv_wait(c->wire, c->sock, RAW_LIMIT_MS, &frame);
	while (r == 0);
	ck_assert_msg(r == -ECONNRESET, "not closed: %s", strerror(-r));
}

void raw_expect_silence(struct raw_client *c, int ms)
{
	struct pollfd pfd = { .fd = c->sock, .events = POLLIN };

	ck_assert_int_eq(poll(&pfd, 1, ms), 0);
}

/* ---- client -------------------------------------------------------------- */

void raw_connect(struct raw_client *c, const struct raw_broker *b)
{
	memset(c, 0, sizeof(*c));
	c->doorbell = -1;
	c->device = -1;
	c->area_fd = -1;
	c->wire = malloc(sizeof(*c->wire));
	c->scratch = malloc(REGC_WIRE_MAX_BYTES);
	ck_assert(c->wire && c->scratch);
	regc_wire_init(c->wire);
	ck_assert_int_eq(regc_wire_connect(b->socket, &c->sock, NULL, 0), 0);
}

void raw_hello(struct raw_client *c, const struct raw_broker *b,
	       const char *group)
{
	Regc__Hello hello = REGC__HELLO__INIT;
	Regc__Frame frame = REGC__FRAME__INIT, *reply;
	int fd, r;

	raw_connect(c, b);
	hello.version_min = REGC_WIRE_VERSION;
	hello.version_max = REGC_WIRE_VERSION;
	hello.group = (char *)group;
	hello.program = (char *)"raw";
	hello.want_uffd_device = true;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	raw_send(c, &frame);
	reply = raw_expect(c, REGC__FRAME__BODY_WELCOME);
	c->space = reply->welcome->space;
	c->capacity = reply->welcome->capacity;
	c->mode = reply->welcome->mode;
	c->hard_bytes = reply->welcome->hard_bytes;
	fd = regc_wire_take_fd(c->wire, 0);
	ck_assert_int_eq(rtab_view_map(&c->table, fd, NULL), 0);
	close(fd);
	fd = regc_wire_take_fd(c->wire, 1);
	c->life = rtab_raw_mmap(NULL, RTAB_PAGE, PROT_READ, MAP_SHARED, fd, 0, &r);
	ck_assert_ptr_nonnull(c->life);
	close(fd);
	c->doorbell = regc_wire_take_fd(c->wire, 2);
	ck_assert_int_ge(c->doorbell, 0);
	if (reply->welcome->has_uffd_device)
		c->device = regc_wire_take_fd(c->wire, 3);
}

void raw_send_attach(struct raw_client *c, const int *fds, int n_fds,
		     bool has_uffd)
{
	Regc__Attach attach = REGC__ATTACH__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	attach.mode = RTAB_MODE_FAST;
	attach.why = (char *)"raw";
	attach.has_uffd = has_uffd;
	frame.body_case = REGC__FRAME__BODY_ATTACH;
	frame.attach = &attach;
	ck_assert_int_eq(regc_wire_send(c->sock, &frame, fds, n_fds, c->scratch),
			 0);
}

void raw_attach(struct raw_client *c, const struct raw_broker *b,
		const char *group, int uffd)
{
	Regc__Frame *reply;
	int fds[2];

	raw_hello(c, b, group);
	ck_assert_int_eq(rtab_area_new(&c->area, c->capacity, (uint32_t)getpid(),
				       &c->area_fd), 0);
	c->area.area->mode = RTAB_MODE_FAST;
	fds[0] = c->area_fd;
	fds[1] = uffd;
	raw_send_attach(c, fds, uffd >= 0 ? 2 : 1, uffd >= 0);
	reply = raw_expect(c, REGC__FRAME__BODY_ATTACHED);
	c->bytes = reply->attached->bytes;
	c->regions = reply->attached->regions;
}

void raw_have(struct raw_client *c, uint64_t bytes, uint64_t regions)
{
	const Regc__Grant *grant;

	if (bytes <= c->bytes && regions <= c->regions)
		return;
	raw_send_need(c, bytes > c->bytes ? bytes - c->bytes : 0,
		      regions > c->regions ? regions - c->regions : 0, 1);
	grant = raw_expect(c, REGC__FRAME__BODY_GRANT)->grant;
	c->bytes += grant->bytes;
	c->regions += grant->regions;
}

void raw_close(struct raw_client *c)
{
	if (c->sock >= 0)
		close(c->sock);
	if (c->doorbell >= 0)
		close(c->doorbell);
	if (c->device >= 0)
		close(c->device);
	if (c->area_fd >= 0)
		close(c->area_fd);
	rtab_view_unmap(&c->table);
	if (c->area.area)
		rtab_area_unmap(&c->area);
	if (c->life)
		rtab_raw_munmap((void *)c->life, RTAB_PAGE);
	regc_wire_drop_fds(c->wire);
	free(c->wire);
	free(c->scratch);
	memset(c, 0, sizeof(*c));
	c->sock = -1;
}

/* ---- records ------------------------------------------------------------- */

static void ring_bell(struct raw_client *c)
{
	uint64_t one = 1;

	rtab_fence_full(); /* B1 */
	if (rtab_load_relaxed(&c->life->asleep))
		ck_assert_int_eq(write(c->doorbell, &one, sizeof(one)),
				 (ssize_t)sizeof(one));
}

void raw_push(struct raw_client *c, const struct rtab_request *req)
{
	raw_wait(rtab_ring_push(c->area.area,
			rtab_load_acquire(&c->table.table->ring_tail), req));
	ring_bell(c);
}

void raw_add(struct raw_client *c, uint32_t slot, uint64_t start, uint64_t bytes,
	     uint32_t access)
{
	struct rtab_request req = {
		.op = RTAB_OP_ADD,
		.slot = slot,
		.start = start,
		.end = start + bytes,
		.access = access,
		.time_ns = rtab_now_ns(),
	};
	struct rtab_reg *reg;

	if (slot < c->capacity) {
		reg = &rtab_area_regs(&c->area, 0)[slot];
		reg->start = req.start;
		reg->end = req.end;
		reg->access = access;
		reg->live_gen = rtab_load_acquire(&c->table.gens[slot]);
	}
	raw_push(c, &req);
}

void raw_del(struct raw_client *c, uint32_t slot)
{
	struct rtab_request req = { .op = RTAB_OP_DEL, .slot = slot };

	raw_push(c, &req);
}

void raw_wait_drained(struct raw_client *c)
{
	raw_wait(rtab_load_acquire(&c->table.table->ring_tail) ==
		 rtab_load_relaxed(&c->area.area->ring_head));
}

bool raw_is_live(struct raw_client *c, uint64_t start, uint64_t bytes,
		 uint32_t access)
{
	struct rtab_hit hit;

	return rtab_lookup(&c->table, start, start + bytes, access, &hit) == 0;
}

/* ---- admin --------------------------------------------------------------- */

static void rows_add(struct raw_rows *r, const Regc__AdminReply *reply)
{
	size_t i, j, at = (size_t)r->n_rows * r->n_columns;
	size_t all;

	if (!r->n_columns) {
		r->n_columns = (unsigned int)reply->n_columns;
		for (i = 0; i < reply->n_columns && i < 64; i++)
			snprintf(r->names[i], sizeof(r->names[i]), "%s",
				 reply->columns[i]->name);
	}
	r->n_rows += (unsigned int)reply->n_rows;
	all = (size_t)r->n_rows * r->n_columns;
	if (!all)
		return;
	r->texts = realloc(r->texts, all * sizeof(*r->texts));
	r->numbers = realloc(r->numbers, all * sizeof(*r->numbers));
	ck_assert(r->texts && r->numbers);
	for (i = 0; i < reply->n_rows; i++) {
		ck_assert_uint_eq(reply->rows[i]->n_cells, r->n_columns);
		for (j = 0; j < r->n_columns; j++, at++) {
			r->texts[at] = strdup(reply->rows[i]->cells[j]->text);
			r->numbers[at] = reply->rows[i]->cells[j]->number;
		}
	}
}

void raw_admin_on(struct raw_client *c, const Regc__Admin *question,
		  struct raw_rows *ret)
{
	Regc__Frame frame = REGC__FRAME__INIT;
	const Regc__AdminReply *reply;
	bool more;

	memset(ret, 0, sizeof(*ret));
	frame.body_case = REGC__FRAME__BODY_ADMIN;
	frame.admin = (Regc__Admin *)question;
	raw_send(c, &frame);
	do {
		reply = raw_expect(c, REGC__FRAME__BODY_ADMIN_REPLY)->admin_reply;
		ret->n_replies++;
		ret->err = reply->err;
		if (reply->text[0])
			snprintf(ret->text, sizeof(ret->text), "%s", reply->text);
		rows_add(ret, reply);
		more = reply->more;
	} while (more);
}

void raw_admin(const struct raw_broker *b, const Regc__Admin *question,
	       struct raw_rows *ret)
{
	struct raw_client c;

	raw_connect(&c, b);
	raw_admin_on(&c, question, ret);
	raw_close(&c);
}

void raw_admin_kind(const struct raw_broker *b, int kind, struct raw_rows *ret)
{
	Regc__Admin question = REGC__ADMIN__INIT;

	question.kind = (Regc__AdminKind)kind;
	raw_admin(b, &question, ret);
	ck_assert_int_eq(ret->err, 0);
}

static size_t cell(const struct raw_rows *r, unsigned int row, const char *col)
{
	unsigned int i;

	ck_assert_uint_lt(row, r->n_rows);
	for (i = 0; i < r->n_columns; i++)
		if (!strcmp(r->names[i], col))
			return (size_t)row * r->n_columns + i;
	ck_abort_msg("no column %s", col);
	return 0;
}

const char *raw_text(const struct raw_rows *r, unsigned int row, const char *col)
{
	return r->texts[cell(r, row, col)];
}

uint64_t raw_number(const struct raw_rows *r, unsigned int row, const char *col)
{
	return r->numbers[cell(r, row, col)];
}

void raw_rows_free(struct raw_rows *r)
{
	size_t i;

	for (i = 0; i < (size_t)r->n_rows * r->n_columns; i++)
		free(r->texts[i]);
	free(r->texts);
	free(r->numbers);
	memset(r, 0, sizeof(*r));
}

uint64_t raw_stat(const struct raw_broker *b, const char *col)
{
	struct raw_rows rows;
	uint64_t v;

	raw_admin_kind(b, REGC__ADMIN_KIND__ADMIN_STATS, &rows);
	v = raw_number(&rows, 0, col);
	raw_rows_free(&rows);
	return v;
}

/* ---- userfaultfd --------------------------------------------------------- */

int raw_uffd(void)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
			    UFFD_FEATURE_EVENT_REMAP |
			    UFFD_FEATURE_PAGEFAULT_FLAG_WP |
			    UFFD_FEATURE_WP_UNPOPULATED,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int watch(int uffd, void *start, uint64_t bytes)
{
	struct uffdio_register reg = {
		.range = { (uintptr_t)start, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(uffd, UFFDIO_REGISTER, &reg);
}

void raw_watch(int uffd, void *start, uint64_t bytes)
{
	ck_assert_int_eq(watch(uffd, start, bytes), 0);
}

void raw_try_watch(int uffd, void *start, uint64_t bytes)
{
	(void)watch(uffd, start, bytes);
}
