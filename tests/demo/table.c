/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of the demo, and whether all is well. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/demo/demo.h"

#define WIDTH 15

/* regc counts some things for the whole process, private caches do not. */
static uint64_t registrations(const struct outcome *o, int is_regc)
{
	return o->sender.mpi.registrations + o->receiver.mpi.registrations +
	       (is_regc ? 0 : o->sender.pfs.registrations);
}

static uint64_t sum(uint64_t mpi, uint64_t pfs, uint64_t receiver)
{
	return mpi + pfs + receiver;
}

#define SUM(o, field) \
	sum((o)->sender.mpi.field, (o)->sender.pfs.field, \
	    (o)->receiver.mpi.field)

static void cell(const char *text)
{
	printf("%*s", WIDTH, text);
}

static void cell_number(uint64_t n)
{
	printf("%*" PRIu64, WIDTH, n);
}

static void cell_ms(double ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%.1f ms", ns / 1e6);
	cell(text);
}

static void cell_mib(uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%.1f MiB",
		 (double)bytes / (1024 * 1024));
	cell(text);
}

static void cell_ratio(uint64_t part, uint64_t whole)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 " (%.1f %%)", part,
		 whole ? 100 * (double)part / (double)whole : 0);
	cell(text);
}

enum row {
	ROW_GETS,
	ROW_HITS,
	ROW_REGISTRATIONS,
	ROW_CLONES,
	ROW_REG_TIME,
	ROW_TIME,
	ROW_SAVED,
	ROW_PINS,
	ROW_STALE,
	ROW_WRONG_BYTES,
	N_ROWS,
};

static const char *const labels[N_ROWS] = {
	[ROW_GETS] = "gets",
	[ROW_HITS] = "  of these hits",
	[ROW_REGISTRATIONS] = "device registrations",
	[ROW_CLONES] = "  of these shared pages (clones)",
	[ROW_REG_TIME] = "time in device registration",
	[ROW_TIME] = "time in get and put, all in all",
	[ROW_SAVED] = "  saved against no cache",
	[ROW_PINS] = "pins of a buffer two libraries use",
	[ROW_STALE] = "stale answers (wrong transfers)",
	[ROW_WRONG_BYTES] = "wrong data",
};

static void print_cell(enum row row, const struct outcome *outcomes,
		       enum keys_mode mode)
{
	const struct outcome *o = &outcomes[mode];
	const struct outcome *none = &outcomes[KEYS_NONE];
	char text[32];

	switch (row) {
	case ROW_GETS:
		cell_number(SUM(o, gets));
		break;
	case ROW_HITS:
		cell_ratio(SUM(o, hits), SUM(o, gets));
		break;
	case ROW_REGISTRATIONS:
		cell_number(registrations(o, mode == KEYS_REGC));
		break;
	case ROW_CLONES:
		cell_number(o->sender.mpi.clones + o->receiver.mpi.clones);
		break;
	case ROW_REG_TIME:
		cell_ms((double)SUM(o, reg_ns));
		break;
	case ROW_TIME:
		cell_ms((double)SUM(o, total_ns));
		break;
	case ROW_SAVED:
		if (mode == KEYS_NONE)
			cell("-");
		else
			cell_ms((double)SUM(none, total_ns) -
				(double)SUM(o, total_ns));
		break;
	case ROW_PINS:
		snprintf(text, sizeof(text), "%.0f", o->sender.pins);
		cell(mode == KEYS_NONE ? "-" : text);
		break;
	case ROW_STALE:
		cell_number(o->sender.wrong_transfers +
			    o->receiver.wrong_transfers);
		break;
	default:
		cell_mib(o->sender.wrong_bytes + o->receiver.wrong_bytes);
		break;
	}
}

static const char *mode_name(uint32_t mode)
{
	return mode == REGC_MODE_FAST ? "fast" :
	       mode == REGC_MODE_STRICT ? "strict" : "off";
}

void table_print(const struct outcome *outcomes)
{
	const struct outcome *o = &outcomes[KEYS_REGC];
	unsigned int row;

	printf("\nTwo processes, two libraries (mpi, pfs) in one of them; "
	       "%" PRIu64 " transfers,\n%.0f MiB, every byte checked; memory "
	       "is unmapped, dropped and freed in between.\n\n",
	       o->sender.transfers + o->receiver.transfers,
	       (double)(o->sender.bytes + o->receiver.bytes) / (1024 * 1024));
	printf("%-35s", "");
	cell("with regc");
	cell("private caches");
	cell("no cache");
	printf("\n");
	for (row = 0; row < N_ROWS; row++) {
		printf("%-35s", labels[row]);
		print_cell(row, outcomes, KEYS_REGC);
		print_cell(row, outcomes, KEYS_PRIVATE);
		print_cell(row, outcomes, KEYS_NONE);
		printf("\n");
	}
	printf("\nregc was in %s mode: %s\n", mode_name(o->sender.mpi.mode),
	       o->sender.mpi.why);
}

static int expect(int good, const char *text)
{
	if (!good)
		fprintf(stderr, "demo: WRONG: %s\n", text);
	return good ? 0 : -1;
}

static uint64_t wrong(const struct outcome *o)
{
	return o->sender.wrong_transfers + o->receiver.wrong_transfers;
}

int table_verdict(const struct outcome *outcomes)
{
	const struct outcome *o = &outcomes[KEYS_REGC];
	int r = 0;

	r |= expect(wrong(o) == 0, "regc gave a stale answer");
	r |= expect(wrong(&outcomes[KEYS_NONE]) == 0,
		    "data is wrong even without a cache");
	r |= expect(wrong(&outcomes[KEYS_PRIVATE]) > 0,
		    "the control shows no corruption, so the check proves "
		    "nothing");
	r |= expect(o->sender.mpi.connected && o->receiver.mpi.connected,
		    "regc was not connected to the broker");
	r |= expect(o->sender.mpi.mode != REGC_MODE_OFF, "regc was off");
	r |= expect(SUM(o, hits) > SUM(o, gets) / 2,
		    "regc did not answer from its cache");
	return r;
}
