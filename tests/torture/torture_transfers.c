/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random transfers against random accesses: no torn byte, no page that stays
 * closed, no hang.
 *
 *   torture_transfers [seconds [threads [processes]]]
 *   REGC_MODE, and what run.h says.
 *
 * Every process has windows of three kinds (flights.h).  Workers, which end and are
 * replaced after some hundred steps, begin transfers, store, load, read and write
 * files, unmap, discard, move and fork.  Whoever uses a window that can be unmapped
 * holds its lock for reading; whoever changes it, for writing.  Two threads that
 * touch no window move transfers on, in any order; so does the progress callback.
 * One thread stores only, and is cancelled at any instruction.
 *
 * At the end all transfers are completed, and no page may be closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/segment.h"
#include "tests/torture/flights.h"
#include "tests/torture/run.h"

#define OF_EACH_KIND 4
#define N_WINDOWS (OF_EACH_KIND * N_WINDOW_KINDS)
#define N_COMPLETERS 2
#define MAX_WORKERS 8
#define STEPS_OF_WORKER 400
#define HANG_SECONDS 90
#define UFFD_WP_BIT 57 /* of an entry of pagemap */
/* Where the kernel places nothing, as in torture_stale. */
#if RTAB_TSAN
#define LOW ((char *)UINT64_C(0x7e9000000000))
#else
#define LOW ((char *)UINT64_C(0x210000000000))
#endif

struct totals *totals;
struct regc_library *lib;

static struct window windows[N_WINDOWS];
static pthread_rwlock_t locks[N_WINDOWS];
static char *shared; /* of regc_alloc(), all WINDOW_SHARED */
static uint32_t stop, stop_completers;
static int scratch; /* a file to read and write */

/* ---- windows ------------------------------------------------------------- */

static char *map_at(char *at, int flags)
{
	return mmap(at, WINDOW_BYTES, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void make_windows(void)
{
	size_t bytes = OF_EACH_KIND * WINDOW_BYTES;
	void *mem;
	int i;

	if (regc_alloc(lib, bytes, 0, &mem))
		die("regc_alloc");
	shared = mem;
	for (i = 0; i < N_WINDOWS; i++) {
		struct window *w = &windows[i];

		pthread_rwlock_init(&locks[i], NULL);
		w->kind = (enum window_kind)(i % N_WINDOW_KINDS);
		if (w->kind == WINDOW_SHARED) {
			w->mem = shared + (size_t)(i / N_WINDOW_KINDS) * WINDOW_BYTES;
			continue;
		}
		w->mem = LOW + 2 * (size_t)i * WINDOW_BYTES;
		if (map_at(w->mem, MAP_FIXED_NOREPLACE) != w->mem)
			die("mmap");
	}
}

/* Takes a window to use it; NULL: it is being changed. */
static struct window *window_take(uint64_t *x)
{
	size_t i = (next_random(x) >> 20) % N_WINDOWS;

	return pthread_rwlock_tryrdlock(&locks[i]) ? NULL : &windows[i];
}

static void window_give(struct window *w)
{
	pthread_rwlock_unlock(&locks[w - windows]);
}

static size_t random_word(uint64_t *x)
{
	return (next_random(x) >> 20) % (WINDOW_BYTES / 8) * 8;
}

static void store(struct window *w, uint64_t *x)
{
	volatile uint64_t *at = (volatile uint64_t *)(w->mem + random_word(x));

	*at = word_of_cpu(x);
	rtab_fetch_add(&totals->stores, 1);
}

static void load(struct window *w, uint64_t *x)
{
	volatile uint64_t *at = (volatile uint64_t *)(w->mem + random_word(x));
	uint64_t word = *at;

	if (w->kind != WINDOW_SEND)
		check_word(word);
	rtab_fetch_add(&totals->loads, 1);
}

/* New words of a file into the window, by the kernel. */
static void read_into(struct window *w, uint64_t *x)
{
	static _Thread_local uint64_t words[WINDOW_BYTES / 8];
	size_t at = random_word(x), len = 8 + random_word(x), i;

	if (len > WINDOW_BYTES - at)
		len = WINDOW_BYTES - at;
	for (i = 0; i < len / 8; i++)
		words[i] = word_of_cpu(x);
	if (pwrite(scratch, words, len, 0) != (ssize_t)len)
		die("pwrite");
	if (pread(scratch, w->mem + at, len, 0) < 0 && errno != EFAULT)
		die("pread");
	rtab_fetch_add(&totals->calls, 1);
}

/* Out of the window, by the kernel. */
static void write_out(struct window *w, uint64_t *x)
{
	static _Thread_local uint64_t words[WINDOW_BYTES / 8];
	static _Thread_local int pipe_fd[2];
	size_t at = random_word(x), i;
	ssize_t n;

	if (!pipe_fd[1] && pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK) < 0)
		die("pipe");
	n = write(pipe_fd[1], w->mem + at, WINDOW_BYTES - at);
	if (n < 0 && errno != EFAULT)
		die("write");
	if (n > 0 && read(pipe_fd[0], words, (size_t)n) != n)
		die("read");
	for (i = 0; n > 0 && i < (size_t)n / 8 && w->kind != WINDOW_SEND; i++)
		check_word(words[i]);
	rtab_fetch_add(&totals->calls, 1);
	if ((next_random(x) >> 20) % 4)
		return;
	close(pipe_fd[0]);
	close(pipe_fd[1]);
	pipe_fd[1] = 0;
}

/* ---- changes ------------------------------------------------------------- */

static void renew(struct window *w, bool raw)
{
	if (raw ? syscall(SYS_munmap, w->mem, WINDOW_BYTES) :
		  munmap(w->mem, WINDOW_BYTES))
		die("munmap");
	if (map_at(w->mem, MAP_FIXED_NOREPLACE) != w->mem)
		die("mmap");
}

static void discard(struct window *w, size_t at, size_t len, bool raw)
{
	if (raw ? syscall(SYS_madvise, w->mem + at, len, MADV_DONTNEED) :
		  madvise(w->mem + at, len, MADV_DONTNEED))
		die("madvise");
}

/* Away, a store there, and back. */
static void move_away(struct window *w, uint64_t *x)
{
	char *there = w->mem + WINDOW_BYTES;

	rtab_fetch_add(&w->n_moves, 1);
	rtab_fetch_add(&totals->moved, 1);
	if (mremap(w->mem, WINDOW_BYTES, WINDOW_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		   there) != there) {
		/* EFAULT: it was two mappings, and the kernel moves only one. */
		if (errno != EFAULT)
			die("mremap");
		if (map_at(w->mem, MAP_FIXED) != w->mem)
			die("mmap");
		munmap(there, WINDOW_BYTES);
		return;
	}
	*(volatile uint64_t *)(there + random_word(x)) = word_of_cpu(x);
	if (mremap(there, WINDOW_BYTES, WINDOW_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		   w->mem) != w->mem)
		die("mremap");
}

static void change(uint64_t *x)
{
	size_t i = (next_random(x) >> 20) % N_WINDOWS, page, n;
	struct window *w = &windows[i];
	bool raw = next_random(x) >> 24 & 1;
	uint64_t what = (next_random(x) >> 24) % 8;

	if (w->kind == WINDOW_SHARED || pthread_rwlock_trywrlock(&locks[i]))
		return;
	page = (next_random(x) >> 24) % WINDOW_PAGES;
	n = 1 + (next_random(x) >> 24) % (WINDOW_PAGES - page);
	rtab_fetch_add(&w->n_changes, 1);
	if (what < 3)
		renew(w, raw);
	else if (what < 7 || w->kind != WINDOW_SEND)
		discard(w, page * PAGE, n * PAGE, raw);
	else
		move_away(w, x);
	pthread_rwlock_unlock(&locks[i]);
	rtab_fetch_add(&totals->changes, 1);
}

/*
 * A child has no transfer: all its private memory is open.  It is not to be hung
 * by a page that is not; the alarm ends it.
 */
static void one_fork(uint64_t *x)
{
	struct window *w = window_take(x);
	int status;
	pid_t pid;
	size_t i;

	if (!w)
		return;
	if (w->kind == WINDOW_SHARED) {
		window_give(w);
		return;
	}
	pid = fork();
	if (pid == 0) {
		alarm(HANG_SECONDS / 2);
		for (i = 0; i < WINDOW_BYTES; i += PAGE)
			*(volatile char *)(w->mem + i) = 1;
		_exit(0);
	}
	window_give(w);
	if (pid < 0)
		return;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status) {
		fprintf(stderr, "torture_transfers: a child ended with %x\n",
			(unsigned int)status);
		complain("a child of fork", 0);
	}
	rtab_fetch_add(&totals->forks, 1);
}

/* ---- threads ------------------------------------------------------------- */

static void ask(struct window *w, uint64_t *x)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	size_t at = random_word(x);
	int n = regc_in_flight(lib, w->mem + at, WINDOW_BYTES - at, &info, 1);

	if (n < 0)
		complain("in flight", n);
	if (n > 0 && (info.start >= (uintptr_t)w->mem + WINDOW_BYTES ||
		      info.end <= (uintptr_t)w->mem + at))
		complain("in flight elsewhere", 0);
}

static void *work(void *arg)
{
	uint64_t x = (uintptr_t)arg * UINT64_C(0x9e3779b97f4a7c15) | 1;
	struct window *w;
	uint64_t what;
	int i;

	for (i = 0; i < STEPS_OF_WORKER && !rtab_load_relaxed(&stop); i++) {
		what = (next_random(&x) >> 24) % 32;
		if (what == 0) {
			change(&x);
			continue;
		}
		if (what == 1 && i % 16 == 0) {
			one_fork(&x);
			continue;
		}
		w = window_take(&x);
		if (!w)
			continue;
		if (what < 10)
			flights_begin(w, &x);
		else if (what < 18)
			store(w, &x);
		else if (what < 26)
			load(w, &x);
		else if (what < 28)
			read_into(w, &x);
		else if (what < 30)
			write_out(w, &x);
		else
			ask(w, &x);
		window_give(w);
	}
	rtab_fetch_add(&totals->threads, 1);
	return NULL;
}

static void *complete(void *arg)
{
	uint64_t x = (uintptr_t)arg * UINT64_C(0x2545f4914f6cdd1d) | 1;

	while (!rtab_load_acquire(&stop_completers))
		if (!flights_step(&x))
			pause_ms(1);
	return NULL;
}

/* Called by regc while an access waits. */
static int progress(void *arg)
{
	static _Thread_local uint64_t x = 88172645463325252u;

	(void)arg;
	return flights_step(&x);
}

/* Stores to memory that is never unmapped, so it needs no lock. */
static void *be_cancelled(void *arg)
{
	uint64_t x = (uintptr_t)arg | 1;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		*(volatile uint64_t *)(shared + random_word(&x)) = word_of_cpu(&x);
	return NULL;
}

static void *cancel(void *arg)
{
	uint64_t x = (uintptr_t)arg | 1;
	pthread_t t;

	while (!rtab_load_relaxed(&stop)) {
		if (pthread_create(&t, NULL, be_cancelled,
				   (void *)(uintptr_t)next_random(&x)))
			die("pthread_create");
		pause_ms(1 + (int)((next_random(&x) >> 24) % 8));
		pthread_cancel(t);
		pthread_join(t, NULL);
		rtab_fetch_add(&totals->cancelled, 1);
	}
	return NULL;
}

/* ---- the end ------------------------------------------------------------- */

/* Pages of private memory that are still write-protected. */
static void check_open(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), i;
	uint64_t entry[WINDOW_PAGES];
	size_t page;

	for (i = 0; i < N_WINDOWS; i++) {
		struct window *w = &windows[i];

		/* Memory that was moved takes its protection along. */
		if (w->n_moves || pread(fd, entry, sizeof(entry),
					(off_t)((uintptr_t)w->mem / PAGE * 8)) !=
					  (ssize_t)sizeof(entry))
			continue;
		for (page = 0; page < WINDOW_PAGES; page++)
			totals->left_closed += entry[page] >> UFFD_WP_BIT & 1;
	}
	close(fd);
}

/* Every page can be read and written, by threads and by the kernel. */
static void check_access(void)
{
	size_t page;
	int i;

	for (i = 0; i < N_WINDOWS; i++) {
		for (page = 0; page < WINDOW_PAGES; page++)
			*(volatile char *)(windows[i].mem + page * PAGE) += 1;
		if (pwrite(scratch, windows[i].mem, WINDOW_BYTES, 0) !=
			    (ssize_t)WINDOW_BYTES ||
		    pread(scratch, windows[i].mem, WINDOW_BYTES, 0) !=
			    (ssize_t)WINDOW_BYTES)
			complain("a system call after the last transfer", 0);
	}
}

static int run_process(unsigned int seconds, uint32_t n_workers, uint32_t me)
{
	struct regc_status st = { .size = sizeof(st) };
	pthread_t workers[MAX_WORKERS], completers[N_COMPLETERS], canceller;
	uint64_t x = (seed + me) * UINT64_C(0x9e3779b97f4a7c15) | 1, end;
	uint32_t i;

	alarm(seconds + HANG_SECONDS);
	if (!run_open("torture_transfers", &lib, &st))
		return RUN_NOT;
	scratch = memfd_create("scratch", MFD_CLOEXEC);
	if (scratch < 0 || ftruncate(scratch, (off_t)WINDOW_BYTES) < 0)
		die("memfd");
	make_windows();
	flights_open();
	regc_progress(lib, progress, NULL);
	for (i = 0; i < N_COMPLETERS; i++)
		pthread_create(&completers[i], NULL, complete,
			       (void *)(uintptr_t)next_random(&x));
	pthread_create(&canceller, NULL, cancel, (void *)(uintptr_t)next_random(&x));
	for (i = 0; i < n_workers; i++)
		pthread_create(&workers[i], NULL, work,
			       (void *)(uintptr_t)next_random(&x));
	end = rtab_now_ns() + seconds * UINT64_C(1000000000);
	for (i = 0; rtab_now_ns() < end; i = (i + 1) % n_workers) {
		pthread_join(workers[i], NULL);
		pthread_create(&workers[i], NULL, work,
			       (void *)(uintptr_t)next_random(&x));
	}
	rtab_store_release(&stop, 1);
	for (i = 0; i < n_workers; i++)
		pthread_join(workers[i], NULL);
	pthread_join(canceller, NULL);
	while (flights_under_way())
		pause_ms(1);
	rtab_store_release(&stop_completers, 1);
	for (i = 0; i < N_COMPLETERS; i++)
		pthread_join(completers[i], NULL);
	regc_progress(lib, NULL, NULL);
	if (regc_in_flight(lib, (void *)PAGE, SIZE_MAX / 2, NULL, 0))
		complain("a transfer that is left", 0);
	check_open();
	check_access();
	if (!flights_close())
		complain("a domain that does not close", 0);
	if (regc_free(lib, shared, OF_EACH_KIND * WINDOW_BYTES))
		complain("regc_free", 0);
	return regc_close(lib) ? 1 : 0;
}

/* ---- main ---------------------------------------------------------------- */

static int report(void)
{
#define N(field) ((unsigned long long)totals->field)
	printf("torture_transfers: %llu begun (%llu sent, %llu received, %llu "
	       "aborted, %llu refused), %llu completed\n",
	       N(begun), N(sent), N(received), N(aborted), N(refused), N(completed));
	printf("torture_transfers: %llu blocked, %llu copied, %llu damaged and said "
	       "so, %llu detached, %llu weak, %llu open\n",
	       N(blocked), N(copied), N(damaged), N(detached), N(weak), N(open));
	printf("torture_transfers: %llu stores, %llu loads, %llu calls, %llu changes "
	       "(%llu moves), %llu forks, %llu threads, %llu cancelled\n",
	       N(stores), N(loads), N(calls), N(changes), N(moved), N(forks),
	       N(threads), N(cancelled));
	printf("torture_transfers: %llu torn, %llu read early, %llu left closed, "
	       "%llu errors\n",
	       N(torn), N(early), N(left_closed), N(errors));
	return totals->torn || totals->early || totals->left_closed ||
	       totals->errors || totals->begun != totals->completed ||
	       !totals->blocked || !totals->sent || !totals->received;
#undef N
}

int main(int argc, char **argv)
{
	static const struct run run = {
		.name = "torture_transfers", .max_threads = MAX_WORKERS,
		.process = run_process, .report = report,
	};

	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return run_torture(&run, argc, argv);
}
