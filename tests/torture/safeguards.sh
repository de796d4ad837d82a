#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Takes one safeguard away at a time: the torture tests must notice each.
#
# A safeguard that is missing shows within a second or two on two processors; each
# gets up to ten runs, since a race may not happen.  Without the changing mark it
# is the broker that must be overtaken, so it gets the time that nobody else wants,
# on the one processor of all.
set -u
bin=./torture_stale_breakable
seconds=2
passed=0 failed=0

torture() { # safeguard mode
	REGC_BREAK=$1 REGC_MODE=$2 $bin $seconds
}

late() { # safeguard mode
	cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
	REGC_BREAK=$1 REGC_MODE=$2 REGC_TEST_LATE=1 \
		taskset -c "$cpu" $bin $seconds 1 1
}

killed() { # safeguard mode
	REGC_BREAK=$1 REGC_MODE=$2 REGC_TEST_KILL=1 $bin $seconds
}

transfers() { # safeguard mode
	REGC_BREAK=$1 REGC_MODE=$2 ./torture_transfers_breakable $seconds
}

holds() { # how mode
	if "$1" none "$2"; then
		passed=$((passed + 1))
	else
		echo "safeguards: fails with all safeguards ($2 mode, $1)"
		failed=$((failed + 1))
	fi
}

# Not to have begun (3) is not to have noticed.
notices() { # how safeguard mode
	for try in 1 2 3 4 5 6 7 8 9 10; do
		"$1" "$2" "$3" >/dev/null 2>&1
		status=$?
		if [ $status -ne 0 ] && [ $status -ne 3 ]; then
			echo "safeguards: noticed without $2 ($3 mode)"
			passed=$((passed + 1))
			return
		fi
	done
	echo "safeguards: NOT noticed without $2 ($3 mode)"
	failed=$((failed + 1))
}

holds torture fast
holds torture strict
holds late fast
holds killed fast
holds killed strict
holds transfers fast
case ${REGC_SANITIZER-none} in
*thread*) fast="generation lease" ;; # there are no hooks under it
*) fast="hook generation post lease" ;;
esac
for safeguard in $fast; do
	notices torture $safeguard fast
done
notices late mark fast
notices transfers guard fast
for safeguard in probe generation lease; do
	notices torture $safeguard strict
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
