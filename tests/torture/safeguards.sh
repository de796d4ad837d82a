#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Takes one safeguard away at a time: the torture test must notice each.
#
# A safeguard that is missing shows within a second or two on two processors; each
# gets up to three runs, since a race may not happen.
set -u
bin=./torture_stale_breakable
seconds=2
passed=0 failed=0

notices() { # safeguard mode
	for try in 1 2 3; do
		if ! REGC_BREAK=$1 REGC_MODE=$2 $bin $seconds >/dev/null 2>&1; then
			echo "safeguards: noticed without $1 ($2 mode)"
			passed=$((passed + 1))
			return
		fi
	done
	echo "safeguards: NOT noticed without $1 ($2 mode)"
	failed=$((failed + 1))
}

for mode in fast strict; do
	if REGC_BREAK=none REGC_MODE=$mode $bin $seconds; then
		passed=$((passed + 1))
	else
		echo "safeguards: fails with all safeguards ($mode mode)"
		failed=$((failed + 1))
	fi
done
for safeguard in hook mark generation post lease; do
	notices $safeguard fast
done
for safeguard in probe generation lease; do
	notices $safeguard strict
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
