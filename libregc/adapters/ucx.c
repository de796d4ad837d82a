/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libregc-ucx.so: UCX hears of memory that goes away from regc, so that one set of
 * hooks serves the process.
 *
 * Loaded (LD_PRELOAD or dlopen) before UCX makes its first cache, it tells UCX that
 * somebody else reports unmapped memory, and reports what regc's hooks see.  UCX
 * then patches nothing.  Without regc's hooks (no broker, strict mode) it does
 * nothing, and UCX's own are as they were (law L3).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucm/api/ucm.h>

#include "libregc/regc.h"
#include "shm/atomic.h"

static uint64_t n_reported;

/* In the thread that unmaps; UCX's side is made for that. */
static void on_change(void *arg, void *addr, size_t len)
{
	(void)arg;
	rtab_fetch_add(&n_reported, 1);
	ucm_vm_munmap(addr, len);
}

static void __attribute__((constructor)) begin(void)
{
	const char *value = secure_getenv("REGC_UCX");
	struct regc_library *lib;
	int r;

	if (value && strcmp(value, "off") == 0)
		return;
	r = regc_open("ucx", NULL, &lib);
	if (r)
		return;
	/* Reported first, declared second: no change is in neither's hands. */
	r = regc_on_change(lib, on_change, NULL);
	if (r)
		regc_close(lib);
	else
		ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
}

static void __attribute__((destructor)) end(void)
{
	const char *value = secure_getenv("REGC_UCX_STATS");

	if (value && value[0] && strcmp(value, "0") != 0)
		fprintf(stderr, "regc: process %d ucx reported %" PRIu64 "\n",
			(int)getpid(), rtab_load_relaxed(&n_reported));
}
