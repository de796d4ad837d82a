/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kvtable: a distributed table whose GET replies are sent straight from the table.
 *
 * A PUT that comes while a GET reply of the same key still waits in the send queue
 * overwrites what is being sent.  The same program runs unprotected (replies are
 * torn), copying each value first, and with regc, where the writer waits or is
 * given a copy of the page.  Server and client are processes of their own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/examples/example.h"
#include "tests/examples/kvtable.h"

#define WIDTH 15

static const char *const titles[KV_N_MODES] = {
	[KV_UNPROTECTED] = "unprotected",
	[KV_COPYING] = "copying",
	[KV_REGC] = "regc, wait",
	[KV_REGC_COPY] = "regc, copy page",
};

static void run(enum kv_mode mode, double seconds, struct kv_result *result)
{
	uint16_t port;
	int listener = ex_listen(&port), bad;
	pid_t server, client;

	server = ex_fork();
	if (server == 0) {
		kv_serve(listener, mode, result);
		exit(result->skip ? EX_SKIP : 0);
	}
	client = ex_fork();
	if (client == 0) {
		close(listener);
		kv_ask(port, mode, seconds, result);
		exit(0);
	}
	close(listener);
	bad = ex_end(server, client);
	if (bad == EX_SKIP && result->why[0])
		printf("kvtable: no protection on this machine: %s\n",
		       result->why);
	if (bad)
		exit(bad);
}

/* ---- the table ----------------------------------------------------------- */

static double moved(const struct kv_result *r)
{
	return (double)(r->gets + r->puts[KV_PUT_READ_KEYS].n +
			r->puts[KV_PUT_OTHER_KEYS].n) * (double)KV_VALUE_BYTES;
}

static double ms(uint64_t ns, uint64_t n)
{
	return n ? (double)ns / (double)n / 1e6 : 0;
}

#define ROW(label, format, value)                                       \
	do {                                                            \
		printf("%-36s", label);                                 \
		for (int m = 0; m < KV_N_MODES; m++) {                  \
			const struct kv_result *r = &results[m];        \
			const struct kv_puts *p =                       \
				&r->puts[KV_PUT_READ_KEYS];             \
			const struct kv_puts *o =                       \
				&r->puts[KV_PUT_OTHER_KEYS];            \
									\
			(void)p, (void)o;                               \
			printf(" %*" format, WIDTH, value);             \
		}                                                       \
		putchar('\n');                                          \
	} while (0)

static void print(const struct kv_result *results)
{
	printf("kvtable: %d values of %zu KiB, GET replies sent from the table\n\n",
	       KV_KEYS, KV_VALUE_BYTES >> 10);
	printf("%-36s", "");
	for (int m = 0; m < KV_N_MODES; m++)
		printf(" %*s", WIDTH, titles[m]);
	putchar('\n');
	ROW("GET replies", "llu", (unsigned long long)r->gets);
	ROW("  torn", "llu", (unsigned long long)r->torn);
	ROW("GET throughput, MB/s", ".0f",
	    (double)r->gets * (double)KV_VALUE_BYTES / (double)r->ns * 1e3);
	ROW("CPU seconds per GB, server + broker", ".2f",
	    (double)r->cpu_ns / moved(r));
	ROW("PUTs of the keys that are read", "llu", (unsigned long long)p->n);
	ROW("  that waited", "llu", (unsigned long long)p->n_waited);
	ROW("  for so long each, ms", ".2f", ms(p->wait_ns, p->n_waited));
	ROW("  at most, ms", ".2f", ms(p->max_ns, 1));
	ROW("PUTs of other keys", "llu", (unsigned long long)o->n);
	ROW("  that waited", "llu", (unsigned long long)o->n_waited);
	ROW("replies that held up a writer", "llu", (unsigned long long)r->blocked);
	ROW("replies whose page was copied", "llu", (unsigned long long)r->copied);
	ROW("replies copied after all", "llu", (unsigned long long)r->failed);
}

/* What must be; anything else is a defect, or shows nothing: an exit status. */
static int judge(const struct kv_result *results)
{
	bool ok = true, shown = true;

	if (!results[KV_UNPROTECTED].torn) {
		puts("the unprotected run shows no torn reply, this time");
		shown = false;
	}
	for (int m = KV_COPYING; m < KV_N_MODES; m++) {
		const struct kv_result *r = &results[m];

		if (r->torn || r->damaged || r->timed_out) {
			printf("BAD: %s: torn replies or damaged transfers\n",
			       titles[m]);
			ok = false;
		}
		if (r->puts[KV_PUT_OTHER_KEYS].n_waited && m != KV_COPYING) {
			printf("BAD: %s: writers of other keys waited\n",
			       titles[m]);
			ok = false;
		}
	}
	if (!results[KV_REGC].blocked || !results[KV_REGC_COPY].copied) {
		puts("no conflict was found, this time");
		shown = false;
	}
	return !ok ? 1 : shown ? 0 : EX_AGAIN;
}

int main(int argc, char **argv)
{
	struct ex_options options;
	struct kv_result *results = mmap(NULL, sizeof(*results) * KV_N_MODES,
					 PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ex_parse(argc, argv,
		 "A table served over TCP with zero-copy sends: unprotected, "
		 "copying, and with regc.", 2, &options);
	if (results == MAP_FAILED)
		ex_die("mmap", 0);
	for (int m = 0; m < KV_N_MODES; m++)
		run((enum kv_mode)m, options.seconds, &results[m]);
	print(results);
	return judge(results);
}
