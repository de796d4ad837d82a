/* SPDX-License-Identifier: BSD-2-Clause */
/* A pair of connected sockets for the tests of libregc/wire.h. */
#ifndef REGC_TESTS_WIRE_FIXTURE_H
#define REGC_TESTS_WIRE_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "libregc/wire.h"

/* The tests send into wire_pair[0] and receive from wire_pair[1]. */
extern int wire_pair[2];
extern struct regc_wire wire_in;
extern uint8_t wire_scratch[REGC_WIRE_MAX_BYTES];

/* A checked fixture. */
void wire_setup(void);
void wire_teardown(void);

/* Open descriptors of this process. */
int wire_count_fds(void);

/* Sends bytes as they are, with n_fds (0 to 64) descriptors. */
void wire_send_raw(const void *bytes, size_t len, const int *fds, int n_fds);

/* Sends the empty message. */
void wire_send_rescan(void);

/* The connection is as good as new, after whatever came before. */
void wire_assert_works(void);

/* regc_wire_send() of a frame of len packed bytes, about REGC_WIRE_MAX_BYTES. */
int wire_send_of_size(size_t len);

#endif
