/* SPDX-License-Identifier: BSD-2-Clause */
/* A device whose registrations cost nothing; for benchmarks. */
#include "libregc/runtime.h"

static int null_reg(void *ctx, void *addr, size_t len, unsigned int access,
		    struct regc_key *ret_key)
{
	(void)ctx;
	(void)len;
	(void)access;
	ret_key->lkey = (uint32_t)((uintptr_t)addr >> 12);
	return 0;
}

static int null_dereg(void *ctx, const struct regc_key *key)
{
	(void)ctx;
	(void)key;
	return 0;
}

const struct regc_device_ops device_null_ops = {
	.size = sizeof(device_null_ops),
	.name = "null",
	.reg = null_reg,
	.dereg = null_dereg,
};
