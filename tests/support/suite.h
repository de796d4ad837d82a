/* SPDX-License-Identifier: BSD-2-Clause */
/* How a program of Check ends: its totals, and the status that make check reads. */
#ifndef REGC_TESTS_SUITE_H
#define REGC_TESTS_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Runs suite and frees it; the exit status of main(). */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
