/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of regc's side share. */
#ifndef REGC_BENCH_SIDE_REGC_H
#define REGC_BENCH_SIDE_REGC_H

#include "libregc/regc.h"
#include "tests/bench/bench.h"

/* Opens the library in the mode of the row, and a null domain. */
int bench_regc_open(struct bench_worker *w, struct regc_domain **ret_dom);

#endif
