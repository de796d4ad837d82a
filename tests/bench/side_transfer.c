/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers, the side of regc. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "libregc/regc.h"
#include "tests/bench/side_regc.h"
#include "tests/bench/transfer.h"

#define LIMIT_NS 5e9
#define OVERLAP_BYTES ((size_t)256 << 10)

static struct regc_domain *dom;
static struct regc_lease lease; /* of the whole pool */
static struct bench_pool pool;

static int open_pool(struct bench_worker *w)
{
	int err = bench_regc_open(w, &dom);

	if (!err)
		err = bench_pool_new(w, &pool);
	if (!err)
		err = regc_get(dom, pool.mem, pool.bytes, 0, &lease);
	return err;
}

static int begin(struct bench_worker *w, void *addr, size_t len, uint32_t policy,
		 struct regc_transfer *ret)
{
	struct regc_transfer_attr attr = { .size = sizeof(attr), .policy = policy };
	int err = regc_transfer_begin(&lease, addr, len, REGC_SEND, &attr, ret);

	if (err)
		bench_why(w, err, "regc_transfer_begin");
	return err;
}

/* The transfer is over, and did what the row measures. */
static int end(struct bench_worker *w, const struct regc_transfer *t,
	       uint32_t want_flags)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	int err = regc_transfer_complete(t, &info);

	if (!err && (info.flags & want_flags) != want_flags) {
		snprintf(w->why, sizeof(w->why), "flags %#x instead of %#x",
			 info.flags, want_flags);
		err = -EIO;
	}
	return err;
}

/* ---- arm and disarm ------------------------------------------------------- */

static int arm(struct bench_worker *w)
{
	struct regc_transfer t;
	int err = begin(w, bench_pool_next(&pool), pool.each, 0, &t);

	return err ? err : regc_transfer_complete(&t, NULL);
}

/* Something is protected at all. */
static int arm_setup(struct bench_worker *w)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	struct regc_transfer t;
	int err = open_pool(w);

	if (!err)
		err = begin(w, pool.mem, pool.each, 0, &t);
	if (!err)
		err = regc_transfer_complete(&t, &info);
	if (!err && info.flags & (REGC_TRANSFER_OPEN | REGC_TRANSFER_WEAK)) {
		bench_why(w, 0, "not protected by userfaultfd");
		err = -EIO;
	}
	return err;
}

static int arm_run(struct bench_worker *w, double *ret_ns)
{
	return bench_op_run(w, arm, ret_ns);
}

const struct bench_side bench_regc_arm = {
	.name = "regc", .setup = arm_setup, .run = arm_run,
};

/* ---- an access that conflicts --------------------------------------------- */

/* What a copy did is noted after the writer goes on. */
static void await_flags(const struct regc_transfer *t, uint32_t want)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	double limit = bench_now_ns() + LIMIT_NS;

	while (!regc_transfer_state(t, &info) && (info.flags & want) != want &&
	       bench_now_ns() < limit)
		sched_yield();
}

/* The time of a store that the broker decides on. */
static int timed_store(struct bench_worker *w, uint32_t policy, uint32_t want,
		       double *ret_ns)
{
	struct regc_transfer t;
	double start;
	int err = begin(w, pool.mem, pool.each, policy, &t);

	if (err)
		return err;
	start = bench_now_ns();
	*(volatile unsigned char *)pool.mem += 1;
	*ret_ns = bench_now_ns() - start;
	await_flags(&t, want);
	return end(w, &t, want);
}

static int report_one(struct bench_worker *w, double *ret_ns)
{
	return timed_store(w, REGC_POLICY_REPORT, REGC_TRANSFER_DAMAGED, ret_ns);
}

static int report_run(struct bench_worker *w, double *ret_ns)
{
	return bench_timed_run(w, report_one, ret_ns);
}

/*
 * A copy voids the registration.  The next is not cached at once, since pages of it
 * were removed, and where a lease is uncached nothing is copied.
 */
static int lease_anew(void)
{
	double limit = bench_now_ns() + LIMIT_NS;
	struct regc_transfer t;
	int err;

	do {
		regc_put(&lease);
		err = regc_get(dom, pool.mem, pool.bytes, 0, &lease);
		if (err)
			return err;
		if (!(lease.flags & REGC_LEASE_UNCACHED) &&
		    !regc_transfer_begin(&lease, pool.mem, pool.each, REGC_SEND, NULL,
					 &t))
			return regc_transfer_abort(&t, NULL);
		sched_yield();
	} while (bench_now_ns() < limit);
	return -ETIMEDOUT;
}

static int copy_one(struct bench_worker *w, double *ret_ns)
{
	int err = timed_store(w, REGC_POLICY_COPY, REGC_TRANSFER_COPIED, ret_ns);

	return err ? err : lease_anew();
}

static int copy_run(struct bench_worker *w, double *ret_ns)
{
	return bench_timed_run(w, copy_one, ret_ns);
}

static struct bench_writer writer;

static int wake_setup(struct bench_worker *w)
{
	int err = arm_setup(w);

	return err ? err : bench_writer_start(&writer, pool.mem);
}

/* From the completion until the thread that waited goes on. */
static int wake_one(struct bench_worker *w, double *ret_ns)
{
	struct regc_transfer_info info = { .size = sizeof(info) };
	double limit = bench_now_ns() + LIMIT_NS, start;
	struct regc_transfer t;
	int err = begin(w, pool.mem, pool.each, REGC_POLICY_BLOCK, &t);

	if (err)
		return err;
	bench_writer_tell(&writer);
	do {
		err = regc_transfer_state(&t, &info);
		if (!err && bench_now_ns() > limit)
			err = -ETIMEDOUT;
		sched_yield();
	} while (!err && !info.n_blocked);
	start = bench_now_ns();
	if (!err)
		err = end(w, &t, REGC_TRANSFER_BLOCKED);
	if (!err)
		err = bench_writer_wait(&writer);
	*ret_ns = writer.done_ns - start;
	return err;
}

static int wake_run(struct bench_worker *w, double *ret_ns)
{
	return bench_timed_run(w, wake_one, ret_ns);
}

const struct bench_side bench_regc_report = {
	.name = "regc", .setup = arm_setup, .run = report_run,
};
const struct bench_side bench_regc_copy = {
	.name = "regc", .setup = arm_setup, .run = copy_run,
};
const struct bench_side bench_regc_wake = {
	.name = "regc", .setup = wake_setup, .run = wake_run,
};

/* ---- overlap -------------------------------------------------------------- */

/*
 * Both sides compute a buffer and send it, step after step.  regc has two buffers in
 * turn, and its program waits for nothing: the store to a buffer that is still in
 * flight does.  The blocking send has one buffer and waits for it.
 */
static struct bench_work work;
static struct bench_wire wire;
static struct regc_transfer in_flight[2];
static int overlap_err;

static void sent(void *arg, uint32_t number)
{
	int err = regc_transfer_complete(&in_flight[number % 2], NULL);

	(void)arg;
	if (err)
		overlap_err = err;
}

static void sent_nothing(void *arg, uint32_t number)
{
	(void)arg, (void)number;
}

static int overlap_setup(struct bench_worker *w)
{
	int err = arm_setup(w);

	if (err)
		return err;
	bench_work_calibrate(&work, pool.mem, OVERLAP_BYTES, BENCH_WIRE_NS);
	return bench_wire_start(&wire, sent, NULL);
}

static int overlap_steps(struct bench_worker *w)
{
	struct regc_transfer t;
	unsigned char *mem;
	uint32_t number = 0;
	int err;

	for (int i = 0; i < BENCH_STEPS; i++) {
		number = wire.posted;
		mem = pool.mem + (number % 2 ? OVERLAP_BYTES : 0);
		bench_work_do(&work, mem, OVERLAP_BYTES);
		err = begin(w, mem, OVERLAP_BYTES, REGC_POLICY_BLOCK, &t);
		if (err)
			return err;
		in_flight[number % 2] = t;
		regc_transfer_posted(&t);
		bench_wire_post(&wire);
	}
	bench_wire_wait(&wire, number);
	return overlap_err;
}

static int overlap_run(struct bench_worker *w, double *ret_ns)
{
	int err = bench_op_run(w, overlap_steps, ret_ns);

	*ret_ns /= BENCH_STEPS;
	return err;
}

static int blocking_setup(struct bench_worker *w)
{
	int err = bench_pool_new(w, &pool);

	if (err)
		return err;
	bench_work_calibrate(&work, pool.mem, OVERLAP_BYTES, BENCH_WIRE_NS);
	return bench_wire_start(&wire, sent_nothing, NULL);
}

static int blocking_steps(struct bench_worker *w)
{
	(void)w;
	for (int i = 0; i < BENCH_STEPS; i++) {
		bench_work_do(&work, pool.mem, OVERLAP_BYTES);
		bench_wire_wait(&wire, bench_wire_post(&wire));
	}
	return 0;
}

static int blocking_run(struct bench_worker *w, double *ret_ns)
{
	int err = bench_op_run(w, blocking_steps, ret_ns);

	*ret_ns /= BENCH_STEPS;
	return err;
}

const struct bench_side bench_regc_overlap = {
	.name = "regc", .setup = overlap_setup, .run = overlap_run,
};
const struct bench_side bench_blocking_send = {
	.name = "blocking send", .setup = blocking_setup, .run = blocking_run,
};
