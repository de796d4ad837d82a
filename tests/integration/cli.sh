#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# regc-ctl against a real broker and a real client: every command answers in
# every format, JSON is JSON, errors go to stderr with the right exit status.

builddir=${REGC_BUILDDIR:?}
srcdir=${REGC_SRCDIR:?}
ctl=$builddir/cli/regc-ctl
. "$srcdir/tests/support/broker.sh"

if command -v jq >/dev/null; then
	is_json_array() { jq -e 'type == "array"' >/dev/null; }
elif command -v python3 >/dev/null; then
	is_json_array() {
		python3 -c 'import json, sys
sys.exit(not isinstance(json.load(sys.stdin), list))'
	}
else
	echo "no JSON parser: neither jq nor python3" >&2
	exit 77
fi

failures=0
fail() {
	echo "FAILED: $*" >&2
	failures=$((failures + 1))
}

# expect STATUS ARGUMENT...: exit status, and which stream has words
expect() {
	want=$1
	shift
	"$ctl" "$@" >"$scratch/out" 2>"$scratch/err"
	got=$?
	[ "$got" -eq "$want" ] || fail "$* exits $got, not $want"
	if [ "$want" -eq 0 ]; then
		[ ! -s "$scratch/err" ] || fail "$* writes to stderr"
	else
		[ ! -s "$scratch/out" ] || fail "$* writes to stdout"
		[ "$(wc -l <"$scratch/err")" -eq 1 ] ||
			fail "$* does not say in one line what is wrong"
	fi
}

# ---- without a broker

expect 1 status
grep -q "$REGC_SOCKET" "$scratch/err" || fail "the socket tried is not named"
expect 1 status --socket "$scratch/other"
grep -q "$scratch/other" "$scratch/err" || fail "--socket is not named"

expect 0 --version
expect 0 --help
for c in status groups spaces libraries regions explain stats monitors flush \
	config; do
	grep -q "^  $c" "$scratch/out" || fail "help does not name $c"
	"$ctl" help "$c" | grep -q -e --json || fail "help $c"
done

expect 2
expect 2 nonsense
expect 2 help nonsense
expect 2 --nonsense status
expect 2 -x status
expect 2 status extra
expect 2 status --pid 1
expect 2 status --json --tab
expect 2 status --json=yes
expect 2 status --socket
expect 2 status --socket ''
expect 2 regions --pid 0
expect 2 regions --pid -1
expect 2 regions --pid 12x
expect 2 regions --pid 4294967297
expect 2 regions --len 4K
expect 2 regions --addr 0x1000 --len 0
expect 2 regions --addr 0x1000 --len 4Q
expect 2 regions --addr 0x1000 --len 99999999999999999999
expect 2 regions --addr 0xffffffffffffffff --len 2
expect 2 regions --addr 0x10000000000000000
expect 2 regions --state dead
expect 2 explain
expect 2 explain 1
expect 2 explain 1 zero
expect 2 explain 1 0x1000 4K 5
expect 2 explain 1 0x1000 --access fly
expect 2 flush
expect 2 flush --all --pid 1
expect 2 a b c d e f g h i

# ---- with a broker and a client whose name needs escapes

broker_start || exit 1
name=$(printf 'l"\\\001\377')
mkfifo "$scratch/hold"
"$builddir/tests/integration/hold" "$name" <"$scratch/hold" \
	>"$scratch/held" 2>"$scratch/hold.err" &
hold=$!
others=$hold
exec 9>"$scratch/hold"
held_or_dead() {
	[ -s "$scratch/held" ] || ! kill -0 "$hold"
}
wait_for held_or_dead || fail "the client does not get its registration"
if [ ! -s "$scratch/held" ]; then
	cat "$scratch/hold.err" >&2
	exec 9>&-
	wait "$hold"
	status=$?
	others=
	exit "$status"
fi
read -r pid addr free len <"$scratch/held"

# row_with PATTERN ARGUMENT...: a listing has such a row, once it is told
row_with() {
	pattern=$1
	shift
	"$ctl" "$@" --tab | sed 1d | grep -q -e "$pattern"
}
tab=$(printf '\t')
wait_for row_with "$addr" regions --pid "$pid" ||
	fail "regions does not list the client's region"
for filter in "--state live" "--addr $addr --len $len" "--pid $pid"; do
	# shellcheck disable=SC2086
	row_with "$addr" regions $filter || fail "regions $filter"
done
for filter in "--state void" "--addr 0x1000" "--library nobody" \
	"--group nobody"; do
	# shellcheck disable=SC2086
	! row_with "$addr" regions $filter || fail "regions $filter"
done
row_with 'l".*x5c.*x01.*xff' libraries --library 'l"\x5c\x01\xff' ||
	fail "a library is not found by the name that is shown"

check_formats() {
	expect 0 "$@"
	[ -s "$scratch/out" ] || fail "$* says nothing"
	if LC_ALL=C grep -q "$(printf '[\001\377]')" "$scratch/out"; then
		fail "$* lets control characters through"
	fi
	expect 0 "$@" --tab
	[ "$(awk -F "$tab" '{ print NF }' "$scratch/out" | sort -u |
		wc -l)" -eq 1 ] || fail "$* --tab has ragged rows"
	expect 0 --json "$@"
	is_json_array <"$scratch/out" || fail "$* --json is not a JSON array"
}

check_formats status
check_formats groups
check_formats spaces
check_formats spaces --pid "$pid"
check_formats libraries
check_formats libraries --pid "$pid"
check_formats regions
check_formats regions --pid "$pid" --state void
check_formats explain "$pid" "$addr"
check_formats explain "$pid" "$addr" "$len" --access write
check_formats explain "$pid" "$addr" 64K --access remote-write
check_formats explain "$pid" 0x1000
check_formats stats
check_formats monitors
check_formats config

expect 0 explain "$pid" "$addr" "$len" --access write
grep -q -i hit "$scratch/out" || fail "explain does not see a hit"
expect 0 explain "$pid" 0x1000
grep -q -i miss "$scratch/out" || fail "explain does not see a miss"
expect 1 explain 1 0x1000 # not a client

# no standard output at all is an error too, and nothing goes to the broker
"$ctl" status >&- 2>"$scratch/err" && fail "a closed output is no error"
[ -s "$scratch/err" ] || fail "a closed output is not reported"

# what is wrong with an argument of the broker is named
usage() {
	want=$1
	shift
	"$builddir/regcached/regcached" "$@" >"$scratch/out" 2>"$scratch/err"
	[ $? -eq 2 ] || fail "regcached $* is no usage error"
	grep -q -e "$want" "$scratch/err" || fail "regcached $*: no \"$want\""
}
usage 'unknown option -x;' -xy
usage 'no value is taken by --help=1;' --help=1
usage 'ambiguous option --s;' --s x
usage 'unknown or ambiguous option --nonsense;' --nonsense
usage 'a value is missing after --set;' --set
usage '--config wants a file;' --config ''
usage '--socket wants a path;' --socket ''

# a full disk is an error, a reader who has enough is none
"$ctl" status >/dev/full 2>"$scratch/err" && fail "a full disk is no error"
[ -s "$scratch/err" ] || fail "a full disk is not reported"
("$ctl" regions 2>"$scratch/err"; echo $? >"$scratch/rc") | :
[ "$(cat "$scratch/rc")" -eq 0 ] && [ ! -s "$scratch/err" ] ||
	fail "a closed pipe is not quiet"

check_formats flush --pid "$pid"
not_live() {
	! row_with "$free" regions --state live
}
wait_for not_live || fail "flush leaves a region without lease"
row_with "$addr" regions --state live || fail "flush drops a leased region"
expect 1 flush --group nobody
check_formats flush --all

exec 9>&-
wait "$hold" || fail "the client exits $?"
others=
no_spaces() {
	! row_with . spaces
}
wait_for no_spaces || fail "a client that ended is still listed"

[ "$failures" -eq 0 ]
