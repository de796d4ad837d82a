/* SPDX-License-Identifier: BSD-2-Clause */
/* A plug-in with memory of its own, to be loaded and unloaded. */
#include <stddef.h>

#define BYTES (32 * 4096)

char *plugin_buffer(size_t *ret_bytes);

static char buffer[BYTES] __attribute__((aligned(4096)));

__attribute__((visibility("default"))) char *plugin_buffer(size_t *ret_bytes)
{
	*ret_bytes = sizeof(buffer);
	return buffer;
}
