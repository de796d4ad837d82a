#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The manual: every page formats without a warning, every public function has
# its page, and the example of each page compiles and runs, with and without a
# broker.

builddir=${REGC_BUILDDIR:?}
srcdir=${REGC_SRCDIR:?}
. "$srcdir/tests/support/broker.sh"

failures=0
fail() {
	echo "FAILED: $*" >&2
	failures=$((failures + 1))
}

# example PAGE: the program in it, as the reader sees it
example() {
	sed -n '/^\.SH EXAMPLES/,/^\.SH SEE/{/^\.EX/,/^\.EE/p;}' "$1" |
		sed -e '/^\.E[XE]/d' -e 's/^\\&//' -e 's/\\-/-/g' \
			-e "s/\\\\(aq/'/g" -e 's/\\(dq/"/g' -e 's/\\e/\\/g'
}

# run PROGRAM: an exit status; what hangs is ended
run() {
	timeout 20 "$1" >"$scratch/out" 2>&1
}

build() {
	example "$1" >"$scratch/$2.c"
	grep -q 'main(void)' "$scratch/$2.c" || return 1
	# shellcheck disable=SC2086
	${CC:-cc} ${CFLAGS-} ${URING_CFLAGS-} -I"$srcdir/libregc" \
		-o "$scratch/$2" "$scratch/$2.c" \
		-L"$builddir/libregc/.libs" \
		-Wl,-rpath,"$builddir/libregc/.libs" \
		-lregc ${URING_LIBS--luring}
}

# Without io_uring the example of regc.7 cannot work, and says so.
tolerable() {
	[ "$1" = regc.7 ] && grep -q -e 'not permitted' -e 'not implemented' \
		"$scratch/out"
}

check_page() {
	page=$1
	file=$srcdir/libregc/$page
	if ! build "$file" "$page"; then
		fail "the example of $page does not compile"
		return
	fi
	run "$scratch/$page"
	status=$?
	[ "$status" -eq 0 ] || tolerable "$page" || {
		cat "$scratch/out" >&2
		fail "the example of $page exits $status ($2)"
	}
}

pages='regc.7 regc_open.3 regc_domain.3 regc_get.3 regc_invalidate.3
	regc_transfer.3 regc_alloc.3'
for page in $pages; do
	check_page "$page" "without a broker"
done
broker_start || exit 1
for page in $pages; do
	check_page "$page" "with a broker"
done
run "$scratch/regc.7"
tolerable regc.7 || grep -q ': 2 hits, 1 registrations' "$scratch/out" || {
	cat "$scratch/out" >&2
	fail "the example of regc.7 does not hit"
}

for name in $(sed -n 's/^.*REGC_API .*[ *]\(regc_[a-z_]*\)(.*$/\1/p' \
	"$srcdir/libregc/regc.h"); do
	page=$srcdir/libregc/$name.3
	[ -f "$page" ] || { fail "$name has no page"; continue; }
	target=$(sed -n 's/^\.so man3\///p' "$page")
	grep -q "^\.BI* .*$name(" "$srcdir/libregc/${target:-$name.3}" ||
		fail "the page of $name does not declare it"
done

if command -v groff >/dev/null; then
	for page in "$srcdir"/libregc/*.[37] "$srcdir"/regcached/*.[58] \
		"$srcdir"/cli/*.1; do
		! grep -q '^\.so' "$page" || continue
		groff -man -ww -Tutf8 "$page" 2>"$scratch/out" >/dev/null
		[ ! -s "$scratch/out" ] || {
			cat "$scratch/out" >&2
			fail "$page has warnings"
		}
	done
fi

[ "$failures" -eq 0 ]
