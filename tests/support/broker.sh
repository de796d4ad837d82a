# SPDX-License-Identifier: BSD-2-Clause
# For scripts: a private regcached in a scratch folder, ended with the script.
#
# Sourced with $builddir set.  Sets $scratch (a new folder), REGC_SOCKET (in it,
# exported) and, by broker_start, $broker (its pid).  Whoever adds a process to
# $others has it ended too.

scratch=$(mktemp -d "${TMPDIR:-/tmp}/regc.XXXXXX") || exit 1
REGC_SOCKET=$scratch/sock
export REGC_SOCKET
unset REGC_GROUP REGC_MODE
broker=
others=

# A limit for the conditions below, in steps of 1/50 s.
wait_steps=500

# wait_for COMMAND...: until it succeeds, 10 s at most
wait_for() {
	step=0
	until "$@" >/dev/null 2>&1; do
		step=$((step + 1))
		[ "$step" -lt "$wait_steps" ] || return 1
		sleep 0.02
	done
}

broker_start() {
	: >"$scratch/conf"
	"$builddir/regcached/regcached" --config "$scratch/conf" \
		--socket "$REGC_SOCKET" >"$scratch/broker.log" 2>&1 &
	broker=$!
	if ! wait_for "$builddir/cli/regc-ctl" status; then
		echo "regcached does not answer; it said:" >&2
		cat "$scratch/broker.log" >&2
		return 1
	fi
}

cleanup() {
	status=$?
	trap - EXIT
	for pid in $others $broker; do
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	rm -rf "$scratch"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM
