#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What make check runs in the guest: few rounds on one kernel.  make check-vm is all
# of it.  A machine on which no guest can be had skips it.
here=$(dirname "$0")
REGC_TEST_ROUNDS=100
VM_KERNELS=6.12
# Two minutes where nothing else runs.
REGC_VM_TIMEOUT=${REGC_VM_TIMEOUT-1200}
export REGC_TEST_ROUNDS VM_KERNELS REGC_VM_TIMEOUT
exec sh "$here/check" tests/vm/verbs_stale tests/integration/check_preload \
	programs:pingpong programs:ib_write_bw
