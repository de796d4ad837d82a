#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The model of transfers: spin searches every run of each scene.  The protocol
# must hold in all; with one rule broken at a time it must not, in the way that
# is said, or the model proves nothing.

srcdir=${REGC_SRCDIR:?}
model=$srcdir/tests/model/transfer.pml
CC=${CC:-gcc}

command -v spin >/dev/null || {
	echo "spin is missing (Debian: spin): the model of transfers is not checked"
	exit 77
}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

n_tests=0
n_failed=0

fail() {
	echo "FAILED: $*"
	tail -n 30 out
	n_failed=$((n_failed + 1))
}

# search [-l] VARIABLE=VALUE...: -l looks for cycles.  Output in out; at most
# 600 MB, and whatever is not searched to its end has failed.
search() {
	cycles=
	[ "$1" = -l ] && { cycles=-l; shift; }
	env n_slots=4 rounds=1 slots_given=1 ids_given=1 "$@" \
		./pan -m20000 -w20 $cycles >out 2>&1
	! grep -qE 'too small|not completed|out of memory|aborted' out
}

# holds NAME [-l] VARIABLE=VALUE...
holds() {
	name=$1
	shift
	n_tests=$((n_tests + 1))
	if search "$@" && grep -q 'errors: 0$' out; then
		echo "holds: $name, $(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' out) states"
	else
		fail "$name"
	fi
}

# breaks NAME RULE WHAT VARIABLE=VALUE...: the rule with this number is needed in
# this scene, where the rest holds; WHAT is part of what spin must say.
breaks() {
	name=$1 rule=$2 what=$3
	shift 3
	n_tests=$((n_tests + 1))
	search "$@" broken="$rule"
	if grep -q 'errors: 1$' out && grep -q "^pan:1: .*$what" out; then
		echo "found: $name"
	else
		fail "not found: $name"
	fi
	grep -qE "^#define NO_[A-Z_]+ $rule([^0-9]|\$)" "$model" || fail "no rule $rule"
}

# NP: a cycle without progress is any cycle, as nothing is marked as progress.
spin -P"$CC -std=gnu99 -E -x c" -a "$model" >out 2>&1 &&
	$CC -O1 -w -DNP -DNOFAIR -DCOLLAPSE -DMEMLIM=600 -o pan pan.c >>out 2>&1 || {
	fail "the model does not compile"
	exit 1
}

# Transfers, by the bits of transfer.pml.
p0=5 p1=10 both=15 # they send a byte of page 0, of page 1, of each
send0=4 receive0=20 receive1=24 receive_both=28 # bytes alone, no pages
receive_p0=21
report_p0=37

early='closed\['	  # ARMED, and a page is open
asleep='event\[0\]==0'
armed='n_armed>=at_least'
clash='says\[1\])&12'
deadlock='n_at_work==0'

# --- pages that are shared ---------------------------------------------------
shared="client_a=$p0 client_b=$both client_c=$p1"
holds "three transfers on two pages" $shared
holds "two, and a writer" client_a=$p0 client_b=$both n_slots=3 n_writers=1
again="client_a=$p0 n_slots=2 slots_given=0 ids_given=0 rounds=2 limits=1
	n_writers=1"
holds "two clients and their slots again and again" \
	client_a=$p0 client_b=$p0 n_slots=3 slots_given=0 ids_given=0 rounds=2
holds "a slot that another transfer gets, time limits" $again
left="client_a=$p0 n_slots=2 closed_at_start=1 n_writers=1"
holds "a page that was left closed" $left
breaks "no fence after ARMING" 1 "$early" $shared
breaks "no fence after CLOSING" 2 "$early" $shared
breaks "no wait for CLOSING" 3 "$early" $shared
breaks "the guardian opens without its slot" 4 "$early" $left
breaks "a page that is open wakes nobody" 11 "$asleep" $left
breaks "timed out: the slot, not the id" 10 "$early" $again

# --- waits have an end --------------------------------------------------------
stay="client_a=$p0 client_b=$p0 n_slots=3 n_writers=1 limits=1
	never_completes=1"
holds "two transfers that may never complete" $stay
holds "one of them reports only" client_a=$p0 client_b=$report_p0 n_slots=3 \
	n_writers=1 limits=1 never_completes=1
breaks "a page left to others wakes nobody" 7 "$asleep" $stay

# --- the broker's end ----------------------------------------------------------
dies="closed_at_start=3 n_slots=1 n_writers=2"
holds "broker stopped, killed; two writers" $dies broker_lives=2
holds "broker stopped, killed; a transfer" client_a=$p0 n_slots=2 n_writers=1 \
	limits=1 never_completes=1 broker_lives=2
holds "no cycle of states, so every wait has an end" -l client_a=$p0 \
	n_slots=2 n_writers=1 \
	limits=1 never_completes=1 broker_lives=1
breaks "no wake-up at the broker's death" 5 "$asleep" $dies broker_lives=1
breaks "none at its death after a stop" 6 "$asleep" $dies broker_lives=2

# --- conflicts -----------------------------------------------------------------
three="client_a=$receive0 client_b=$receive0 client_c=$receive0 ids_given=0
	at_least=1"
holds "two of three that receive yield" $three
holds "a chain of conflicts" client_a=$receive0 client_b=$receive_both \
	client_c=$receive1 ids_given=0 at_least=1
holds "a receive and a send, with their page" client_a=$receive_p0 \
	client_b=$p0 n_slots=3 ids_given=0 at_least=1
holds "two that send do not conflict" client_a=$send0 client_b=$send0 n_slots=3 \
	ids_given=0 at_least=2
breaks "ids ignored: all yield" 8 "$armed" $three
breaks "what is ARMING ignored: none yields" 9 "$clash" $three
holds "two groups, one is begun whole" groups=1 n_slots=5 at_least=2
breaks "ids of a group not in sequence: both yield" 12 "$armed" \
	groups=1 n_slots=5 at_least=2
breaks "ids of a group not in sequence: deadlock" 12 "$deadlock" \
	groups=1 n_slots=5

echo "$n_tests searches, $n_failed failed"
[ "$n_failed" -eq 0 ]
