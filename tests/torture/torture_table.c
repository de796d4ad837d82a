/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One writer changes a table as fast as it can; readers look things up.
 *
 *   torture_table [seconds [readers]]     REGC_TEST_SECONDS, REGC_TEST_SEED
 *
 * Readers are processes with mappings of their own; built with ThreadSanitizer
 * they are threads on one mapping, which is what it can see.
 *
 * The range of slot s under generation g is a function of both (range_of), so a
 * reader can tell a torn or poisoned answer from a right one.  After a void the
 * writer overwrites the record with poison and only then says so in voided[s];
 * a reader that read voided[s] before its lookup must not get that generation
 * any more.  Some slots are never voided: every lookup of them must hit.
 *
 * Output: lookups, hits, misses, busy, and a histogram of how many generations
 * behind the newest a hit was (only 0 and small numbers are possible).
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/atomic.h"
#include "shm/segment.h"
#include "shm/table.h"

#define SLOTS 2048u
#define WINDOW 16u /* pages of address space a slot; 0, 32, 64 .. are never voided */
#define MAX_READERS 16
#define POISON UINT64_C(0xdead000000000000)

struct shared {
	uint64_t voided[SLOTS]; /* last generation voided, by the writer */
	uint32_t stop;
	uint32_t ready;
	struct {
		uint64_t lookups, hits, misses, busy, wrong, stale, lost;
		uint64_t behind[8];
		uint8_t pad[64];
	} reader[MAX_READERS];
};

static struct shared *shared;
static struct rtab_writer w;
static unsigned int seed;

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	x *= UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ x >> 33;
}

/* Wide regions reach into the window of the next slot. */
static void range_of(uint32_t slot, uint64_t gen, uint64_t *start, uint64_t *end)
{
	uint64_t h = mix((uint64_t)slot << 48 ^ gen);
	uint64_t first = h % 8, pages = 1 + (h >> 8) % 8;

	if (slot % 32 == 0) {
		first = 0;
		pages = WINDOW;
	} else if (gen % 4 == 0 && slot % 32 < 30) {
		pages = WINDOW + 4;
	}
	*start = ((uint64_t)slot * WINDOW + first + 1024) * RTAB_PAGE;
	*end = *start + pages * RTAB_PAGE;
}

/* ---- writer ------------------------------------------------------------- */

static void void_slot(uint32_t slot)
{
	uint64_t gen = w.view.gens[slot];

	if (rtab_writer_void(&w, slot))
		abort();
	rtab_store_relaxed(&w.view.records[slot].start, POISON);
	rtab_store_relaxed(&w.view.records[slot].end, POISON);
	rtab_store_release(&shared->voided[slot], gen);
}

static void add_slot(uint32_t slot)
{
	uint64_t start, end;
	int r;

	range_of(slot, w.view.gens[slot], &start, &end);
	r = rtab_writer_add(&w, slot, start, end, slot % 3);
	if (r == -EEXIST) /* a wide neighbour is in the way */
		void_slot(slot);
	else if (r)
		abort();
}

static uint64_t write_until_stopped(void)
{
	uint64_t x = seed, n;
	uint32_t slot;

	for (n = 0; !rtab_load_relaxed(&shared->stop); n++) {
		x = mix(x + n);
		slot = (uint32_t)(x % SLOTS);
		if (slot % 32 == 0)
			continue;
		if (w.view.records[slot].gen == w.view.gens[slot])
			void_slot(slot);
		else
			add_slot(slot);
	}
	return n;
}

/* ---- readers ------------------------------------------------------------ */

static void look_up(const struct rtab_view *view, uint32_t me, uint64_t x)
{
	uint32_t slot = (uint32_t)(x % SLOTS);
	uint64_t start, end, voided, at, newest, behind;
	struct rtab_hit hit;
	int r;

	at = ((uint64_t)slot * WINDOW + 1024 + (x >> 32) % WINDOW) * RTAB_PAGE;
	voided = rtab_load_acquire(&shared->voided[slot]);
	r = rtab_lookup(view, at, at + 8, slot % 3, &hit);
	shared->reader[me].lookups++;
	if (r == RTAB_BUSY) {
		shared->reader[me].busy++;
		return;
	}
	if (r) {
		shared->reader[me].misses++;
		shared->reader[me].lost += slot % 32 == 0;
		return;
	}
	shared->reader[me].hits++;
	range_of(hit.slot, hit.gen, &start, &end);
	if (hit.start != start || hit.end != end || at < start || at + 8 > end)
		shared->reader[me].wrong++;
	if (hit.slot == slot && hit.gen <= voided)
		shared->reader[me].stale++;
	newest = rtab_load_acquire(&view->gens[hit.slot]);
	behind = newest - hit.gen;
	shared->reader[me].behind[behind < 7 ? behind : 7]++;
}

static void *read_until_stopped(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, i;
	struct rtab_view view = w.view;
	uint64_t x = mix(seed + me + 1);

	if (!RTAB_TSAN && rtab_view_map(&view, w.fd, NULL))
		abort();
	rtab_fetch_add(&shared->ready, 1);
	while (!rtab_load_relaxed(&shared->stop))
		for (i = 0; i < 64; i++)
			look_up(&view, me, x = mix(x + i));
	return NULL;
}

static int start_reader(uint32_t me, pthread_t *thread)
{
	pid_t pid;

	if (RTAB_TSAN)
		return -pthread_create(thread, NULL, read_until_stopped,
				       (void *)(uintptr_t)me);
	pid = fork();
	if (pid == 0) {
		read_until_stopped((void *)(uintptr_t)me);
		_exit(0);
	}
	return pid < 0 ? -errno : 0;
}

static void on_alarm(int sig)
{
	(void)sig;
	rtab_store_relaxed(&shared->stop, 1);
}

static int report(uint32_t readers, uint64_t writes)
{
	uint64_t sum[7] = { 0 }, behind[8] = { 0 };
	uint32_t i, k;

	for (i = 0; i < readers; i++) {
		sum[0] += shared->reader[i].lookups;
		sum[1] += shared->reader[i].hits;
		sum[2] += shared->reader[i].misses;
		sum[3] += shared->reader[i].busy;
		sum[4] += shared->reader[i].wrong;
		sum[5] += shared->reader[i].stale;
		sum[6] += shared->reader[i].lost;
		for (k = 0; k < 8; k++)
			behind[k] += shared->reader[i].behind[k];
	}
	printf("torture_table: seed %u, %u readers, %llu changes, %llu lookups: "
	       "%llu hits, %llu misses, %llu busy\n",
	       seed, readers, (unsigned long long)writes,
	       (unsigned long long)sum[0], (unsigned long long)sum[1],
	       (unsigned long long)sum[2], (unsigned long long)sum[3]);
	printf("torture_table: %llu wrong, %llu stale, %llu lost; "
	       "generations behind:",
	       (unsigned long long)sum[4], (unsigned long long)sum[5],
	       (unsigned long long)sum[6]);
	for (k = 0; k < 8; k++)
		printf(" %llu", (unsigned long long)behind[k]);
	printf("\n");
	return sum[4] || sum[5] || sum[6] || !sum[1] || !sum[2];
}

int main(int argc, char **argv)
{
	const char *env = getenv("REGC_TEST_SECONDS"), *seed_text;
	unsigned int seconds = env ? (unsigned int)atoi(env) : 2;
	uint32_t readers = 2, i;
	pthread_t threads[MAX_READERS];
	uint64_t writes;

	if (argc > 1)
		seconds = (unsigned int)atoi(argv[1]);
	if (argc > 2)
		readers = (uint32_t)atoi(argv[2]);
	if (readers < 1 || readers > MAX_READERS || seconds < 1) {
		fprintf(stderr, "usage: torture_table [seconds [1..16 readers]]\n");
		return 2;
	}
	seed_text = getenv("REGC_TEST_SEED");
	seed = seed_text ? (unsigned int)strtoul(seed_text, NULL, 0) :
			   (unsigned int)rtab_now_ns();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || rtab_writer_init(&w, 1, SLOTS) ||
	    rtab_writer_make_ready(&w, SLOTS - 1)) {
		fprintf(stderr, "torture_table: cannot make the table\n");
		return 1;
	}
	for (i = 0; i < SLOTS; i++)
		add_slot(i);
	signal(SIGALRM, on_alarm);
	for (i = 0; i < readers; i++)
		if (start_reader(i, &threads[i])) {
			fprintf(stderr, "torture_table: cannot start a reader\n");
			return 1;
		}
	while (rtab_load_relaxed(&shared->ready) < readers)
		rtab_cpu_relax();
	alarm(seconds);
	writes = write_until_stopped();
	for (i = 0; i < readers; i++) {
		if (RTAB_TSAN)
			pthread_join(threads[i], NULL);
		else
			wait(NULL);
	}
	return report(readers, writes);
}
