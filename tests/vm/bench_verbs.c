/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a registration cache is worth on verbs: the cost of a registration and of a
 * hit, and a ping-pong whose buffers are used again in 0 to 100 % of the rounds.
 *
 *     bench_verbs [FILE.svg]
 *
 * A round writes a buffer to the peer and lets the peer write to another; then the
 * buffers are kept, or unmapped and others mapped.  Ways to have them registered:
 *   none    ibv_reg_mr() and ibv_dereg_mr() in each round
 *   bounce  a copy through memory that is registered for ever
 *   regc    regc_get() and regc_put()
 *   ucx     the cache of UCX (ucs_rcache), where it is installed
 * Each size and way runs in a process of its own.  Times are those of the guest,
 * which is emulated: only their ratios mean something.  Its NIC copies by the CPU,
 * far slower than any real one, so the plot is of what is not the NIC's: time a
 * round beside the two transfers.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/harness.h"
#include "tests/vm/rdma.h"

#ifdef HAVE_UCX
#include <dlfcn.h>
#include <limits.h>
#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>
#endif

#define MAX_BYTES ((size_t)4 << 20)
#define N_ROUNDS 10
#define HIT_ROUNDS 2000
#define FROM 0
#define TO_ACCESS (REGC_ACCESS_LOCAL_WRITE | REGC_ACCESS_REMOTE_WRITE)
#define V_TO_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static const size_t sizes[] = { 64 << 10, 256 << 10, 1 << 20, 4 << 20 };
#define N_SIZES 4
static const unsigned int reuse[] = { 0, 20, 40, 60, 80, 100 };
#define N_REUSE 6

enum { WAY_NONE, WAY_BOUNCE, WAY_REGC, WAY_UCX, N_WAYS };
static const char *const way_names[] = { "none", "bounce", "regc", "ucx" };
static const char *const colours[] = { "#c02020", "#808080", "#1060c0", "#20a040" };

/* Shared with the processes that measure; us, 0: not measured. */
static struct results {
	double round[N_WAYS][N_SIZES][N_REUSE];
	double beside[N_WAYS][N_SIZES][N_REUSE]; /* of it, not the transfers */
	double reg[N_SIZES], hit[N_SIZES]; /* one buffer */
} *results;

static struct rdma rdma;
static struct broker broker;
static struct regc_library *lib;
static struct regc_domain *dom;
static char *bounce;
static struct ibv_mr *bounce_mr;

static char *map_buffer(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	memset(p, 1, len);
	return p;
}

/* ---- the ways ----------------------------------------------------------- */

static uint64_t moved_ns;

static void move(char *from, uint32_t lkey, char *to, uint32_t rkey, size_t len)
{
	uint64_t t0 = test_now_ns();

	ck_assert_int_eq(rdma_put(&rdma, from, len, lkey), IBV_WC_SUCCESS);
	ck_assert_int_eq(rdma_peer_writes(&rdma, to, len, rkey), IBV_WC_SUCCESS);
	moved_ns += test_now_ns() - t0;
}

static void round_none(char *from, char *to, size_t len)
{
	struct ibv_mr *a = ibv_reg_mr(rdma.ours.pd, from, len, FROM);
	struct ibv_mr *b = ibv_reg_mr(rdma.ours.pd, to, len, V_TO_ACCESS);

	ck_assert(a && b);
	move(from, a->lkey, to, b->rkey, len);
	ck_assert_int_eq(ibv_dereg_mr(a), 0);
	ck_assert_int_eq(ibv_dereg_mr(b), 0);
}

static void round_bounce(char *from, char *to, size_t len)
{
	memcpy(bounce, from, len);
	move(bounce, bounce_mr->lkey, bounce, bounce_mr->rkey, len);
	memcpy(to, bounce, len);
}

static void round_regc(char *from, char *to, size_t len)
{
	struct regc_lease a, b;

	ck_assert_int_eq(regc_get(dom, from, len, FROM, &a), 0);
	ck_assert_int_eq(regc_get(dom, to, len, TO_ACCESS, &b), 0);
	move(from, a.lkey, to, b.rkey, len);
	regc_put(&a);
	regc_put(&b);
}

#ifdef HAVE_UCX
struct ucx_region {
	ucs_rcache_region_t super;
	struct ibv_mr *mr;
};

static ucs_rcache_t *ucx_cache;
static __typeof__(&ucs_rcache_create) ucx_create;
static __typeof__(&ucs_rcache_get) ucx_get;
static __typeof__(&ucs_rcache_region_put) ucx_put;

static ucs_status_t ucx_reg(void *context, ucs_rcache_t *cache, void *arg,
			    ucs_rcache_region_t *region, uint16_t flags)
{
	struct ucx_region *r = (struct ucx_region *)region;

	(void)context, (void)cache, (void)arg, (void)flags;
	r->mr = ibv_reg_mr(rdma.ours.pd, (void *)region->super.start,
			   region->super.end - region->super.start, V_TO_ACCESS);
	return r->mr ? UCS_OK : UCS_ERR_IO_ERROR;
}

static void ucx_dereg(void *context, ucs_rcache_t *cache,
		      ucs_rcache_region_t *region)
{
	(void)context, (void)cache;
	ibv_dereg_mr(((struct ucx_region *)region)->mr);
}

static void ucx_dump(void *context, ucs_rcache_t *cache,
		     ucs_rcache_region_t *region, char *buf, size_t max)
{
	(void)context, (void)cache, (void)region;
	if (max)
		buf[0] = '\0';
}

static bool ucx_open(void)
{
	static const ucs_rcache_ops_t ops = {
		.mem_reg = ucx_reg, .mem_dereg = ucx_dereg,
		.dump_region = ucx_dump,
	};
	ucs_rcache_params_t params = {
		.region_struct_size = sizeof(struct ucx_region),
		.alignment = UCS_RCACHE_MIN_ALIGNMENT,
		.max_alignment = 4096,
		.ucm_events = UCM_EVENT_VM_UNMAPPED,
		.ucm_event_priority = 1000,
		.ops = &ops,
		.flags = UCS_RCACHE_FLAG_NO_PFN_CHECK,
		.max_regions = ULONG_MAX,
		.max_size = SIZE_MAX,
		.max_unreleased = SIZE_MAX,
	};
	void *ucs = dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);

	if (!ucs)
		return false;
	ucx_create = (__typeof__(ucx_create))dlsym(ucs, "ucs_rcache_create");
	ucx_get = (__typeof__(ucx_get))dlsym(ucs, "ucs_rcache_get");
	ucx_put = (__typeof__(ucx_put))dlsym(ucs, "ucs_rcache_region_put");
	return ucx_create && ucx_get && ucx_put &&
	       ucx_create(&params, "bench", NULL, &ucx_cache) == UCS_OK;
}

static void round_ucx(char *from, char *to, size_t len)
{
	ucs_rcache_region_t *a, *b;

	ck_assert_int_eq(ucx_get(ucx_cache, from, len, PROT_READ | PROT_WRITE,
				 NULL, &a), UCS_OK);
	ck_assert_int_eq(ucx_get(ucx_cache, to, len, PROT_READ | PROT_WRITE, NULL,
				 &b), UCS_OK);
	move(from, ((struct ucx_region *)a)->mr->lkey, to,
	     ((struct ucx_region *)b)->mr->rkey, len);
	ucx_put(ucx_cache, a);
	ucx_put(ucx_cache, b);
}
#else
static bool ucx_open(void)
{
	return false;
}

static void round_ucx(char *from, char *to, size_t len)
{
	round_none(from, to, len);
}
#endif

static void (*const ways[])(char *from, char *to, size_t len) = {
	round_none, round_bounce, round_regc, round_ucx,
};

/* ---- measuring ---------------------------------------------------------- */

/* A row of results, with the unmapping of buffers that are not kept. */
static void measure(unsigned int way, unsigned int s, unsigned int p)
{
	size_t len = sizes[s];
	unsigned int percent = reuse[p];
	char *from = map_buffer(len), *to = map_buffer(len);
	uint64_t ns = 0, t0;
	unsigned int i;

	ways[way](from, to, len); /* everything was used once */
	moved_ns = 0;
	for (i = 0; i < N_ROUNDS; i++) {
		bool keep = (i + 1) * percent / 100 > i * percent / 100;

		t0 = test_now_ns();
		if (!keep) {
			munmap(from, len);
			munmap(to, len);
		}
		ns += test_now_ns() - t0;
		if (!keep) {
			from = map_buffer(len);
			to = map_buffer(len);
		}
		t0 = test_now_ns();
		ways[way](from, to, len);
		ns += test_now_ns() - t0;
	}
	munmap(from, len);
	munmap(to, len);
	results->round[way][s][p] = (double)ns / N_ROUNDS / 1000;
	results->beside[way][s][p] = (double)(ns - moved_ns) / N_ROUNDS / 1000;
}

static void measure_hit(unsigned int s)
{
	char *mem = map_buffer(sizes[s]);
	struct regc_lease lease;
	struct ibv_mr *mr;
	uint64_t t0;
	int i;

	t0 = test_now_ns();
	for (i = 0; i < N_ROUNDS; i++) {
		mr = ibv_reg_mr(rdma.ours.pd, mem, sizes[s], V_TO_ACCESS);
		ck_assert_ptr_nonnull(mr);
		ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	}
	results->reg[s] = (double)(test_now_ns() - t0) / N_ROUNDS / 1000;
	for (i = -100; i < HIT_ROUNDS; i++) {
		if (i == 0)
			t0 = test_now_ns();
		ck_assert_int_eq(regc_get(dom, mem, sizes[s], TO_ACCESS, &lease),
				 0);
		regc_put(&lease);
	}
	results->hit[s] = (double)(test_now_ns() - t0) / HIT_ROUNDS / 1000;
	ck_assert_int_eq(lease.flags, 0);
	munmap(mem, sizes[s]);
}

static bool stays_cached(char *mem)
{
	struct regc_lease a;

	ck_assert_int_eq(regc_get(dom, mem, 4096, TO_ACCESS, &a), 0);
	regc_put(&a);
	return regc_query(dom, mem, 4096, TO_ACCESS) == 1;
}

static void open_regc(void)
{
	char *mem = test_map(4096, 1);

	broker_start(&broker, NULL);
	ck_assert_int_eq(regc_open("bench", NULL, &lib), 0);
	ck_assert_int_eq(regc_domain_verbs(lib, rdma.ours.pd, &dom), 0);
	WAIT_FOR(stays_cached(mem), 30);
}

START_TEST(one_way)
{
	unsigned int way = (unsigned int)_i % N_WAYS, s = (unsigned int)_i / N_WAYS;
	unsigned int p;

	rdma_open(&rdma, MAX_BYTES);
	bounce = map_buffer(MAX_BYTES);
	bounce_mr = ibv_reg_mr(rdma.ours.pd, bounce, MAX_BYTES, V_TO_ACCESS);
	ck_assert_ptr_nonnull(bounce_mr);
	if (way == WAY_REGC)
		open_regc();
	if (way == WAY_UCX && !ucx_open())
		return;
	if (way == WAY_REGC)
		measure_hit(s);
	for (p = 0; p < N_REUSE; p++)
		measure(way, s, p);
	if (way == WAY_REGC)
		broker_stop(&broker);
}
END_TEST

/* ---- showing ------------------------------------------------------------ */

static void show_table(const char *what, double (*table)[N_SIZES][N_REUSE])
{
	unsigned int way, s, p;

	printf("%s; buffers used again:\n%-16s", what, "");
	for (p = 0; p < N_REUSE; p++)
		printf(" %7u %%", reuse[p]);
	printf("\n");
	for (s = 0; s < N_SIZES; s++)
		for (way = 0; way < N_WAYS; way++) {
			if (table[way][s][0] == 0)
				continue;
			printf("  %5zu KiB %-6s", sizes[s] >> 10, way_names[way]);
			for (p = 0; p < N_REUSE; p++)
				printf(" %9.0f", table[way][s][p]);
			printf("\n");
		}
}

static void show_text(void)
{
	unsigned int s;

	printf("one buffer, us       registration      hit    ratio\n");
	for (s = 0; s < N_SIZES; s++)
		printf("  %5zu KiB           %10.1f %10.3f %8.0f\n",
		       sizes[s] >> 10, results->reg[s], results->hit[s],
		       results->reg[s] / results->hit[s]);
	show_table("ping-pong, us a round", results->round);
	show_table("of it beside the transfers", results->beside);
}

static double highest(unsigned int s)
{
	double max = 0;
	unsigned int way, p;

	for (way = 0; way < N_WAYS; way++)
		for (p = 0; p < N_REUSE; p++)
			if (results->beside[way][s][p] > max)
				max = results->beside[way][s][p];
	return max;
}

/* One picture for a size, its corner at (x, y), 300 by 200. */
static void plot(FILE *f, unsigned int s, unsigned int x, unsigned int y)
{
	double max = highest(s);
	unsigned int way, p;

	fprintf(f, "<g transform=\"translate(%u,%u)\">\n"
		"<path d=\"M0 0V200H300\" fill=\"none\" stroke=\"black\"/>\n"
		"<text x=\"150\" y=\"-8\">%zu KiB</text>\n"
		"<text x=\"-6\" y=\"6\" text-anchor=\"end\">%.0f us</text>\n"
		"<text x=\"-6\" y=\"203\" text-anchor=\"end\">0</text>\n"
		"<text x=\"150\" y=\"232\">buffers used again, %%</text>\n",
		x, y, sizes[s] >> 10, max);
	for (p = 0; p < N_REUSE; p++)
		fprintf(f, "<text x=\"%u\" y=\"216\">%u</text>\n", 3 * reuse[p],
			reuse[p]);
	for (way = 0; way < N_WAYS; way++) {
		if (results->beside[way][s][0] == 0)
			continue;
		fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" points=\"",
			colours[way]);
		for (p = 0; p < N_REUSE; p++)
			fprintf(f, "%u,%.1f ", 3 * reuse[p],
				200 - 200 * results->beside[way][s][p] / max);
		fprintf(f, "\"/>\n");
	}
	fprintf(f, "</g>\n");
}

static int write_svg(const char *path)
{
	FILE *f = fopen(path, "w");
	unsigned int s, way;

	if (!f) {
		perror(path);
		return EXIT_FAILURE;
	}
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" "
		"height=\"660\" font-family=\"sans-serif\" font-size=\"12\" "
		"text-anchor=\"middle\">\n"
		"<rect width=\"860\" height=\"660\" fill=\"white\"/>\n"
		"<text x=\"430\" y=\"24\" font-size=\"15\">Time of a ping-pong "
		"round beside its transfers, by how buffers are registered</text>\n");
	for (way = 0; way < N_WAYS; way++)
		fprintf(f, "<text x=\"%u\" y=\"46\" fill=\"%s\">%s</text>\n",
			250 + 120 * way, colours[way], way_names[way]);
	for (s = 0; s < N_SIZES; s++)
		plot(f, s, 90 + 420 * (s % 2), 90 + 290 * (s / 2));
	fprintf(f, "</svg>\n");
	return fclose(f) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	Suite *suite = suite_create("bench_verbs");
	TCase *tc = tcase_create("ways");
	SRunner *sr;
	int failed;

	results = mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED)
		return EXIT_FAILURE;
	tcase_set_timeout(tc, 3600);
	tcase_add_loop_test(tc, one_way, 0, N_SIZES * N_WAYS);
	suite_add_tcase(suite, tc);
	sr = srunner_create(suite);
	srunner_run_all(sr, CK_MINIMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	if (failed)
		return EXIT_FAILURE;
	show_text();
	return argc > 1 ? write_svg(argv[1]) : EXIT_SUCCESS;
}
