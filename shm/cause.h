/* SPDX-License-Identifier: BSD-2-Clause */
/* Words for enum rtab_cause and for access bits. */
#ifndef REGC_SHM_CAUSE_H
#define REGC_SHM_CAUSE_H

#include <stddef.h>
#include <stdint.h>

/* Short name ("munmap"), and a phrase ("voided by munmap"); never NULL. */
const char *rtab_cause_name(uint32_t cause);
const char *rtab_cause_phrase(uint32_t cause);

/* The libc function of a bit of hook_mask; never NULL. */
const char *rtab_hook_name(uint32_t hook);

/* "read", "read,write,remote-read" ...; returns buf. */
char *rtab_access_text(uint32_t access, char *buf, size_t size);

#endif
