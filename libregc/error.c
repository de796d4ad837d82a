/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts for return values, and the version. */
#include "libregc/regc.h"
#include "shm/base.h"

#include <errno.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

static const struct {
	int err;
	const char *text;
} texts[] = {
	{ 0, "success" },
	{ EINVAL, "bad argument: empty or wrapping range, unknown access bit, "
		  "bad name, or a structure of the wrong size" },
	{ EFAULT, "the range is not mapped, or the mapping does not allow the "
		  "access" },
	{ EDQUOT, "hard limit of pinned bytes of this process reached: put "
		  "leases, or raise limit.space.hard_bytes" },
	{ E2BIG, "larger than the device takes in one registration" },
	{ ENOMEM, "no memory, or the limit of locked memory (ulimit -l) is "
		  "reached" },
	{ ENOSPC, "the device or a table of this process is full" },
	{ EDEADLK, "called from a device callback for the range that this "
		   "thread is registering" },
	{ ENOTUNIQ, "the domain was made before a fork: the child needs its own" },
	{ ESHUTDOWN, "the domain is being closed" },
	{ EBUSY, "still in use" },
	{ EOPNOTSUPP, "the device cannot do that" },
	{ EBADF, "not an open descriptor" },
	{ ECONNREFUSED, "no broker, or it refused" },
	{ EPERM, "not permitted" },
};

const char *regc_strerror(int err)
{
	size_t i;

	if (err < 0)
		err = -err;
	for (i = 0; i < RTAB_ARRAY_SIZE(texts); i++)
		if (texts[i].err == err)
			return texts[i].text;
	return "error of the device or the system, see errno(3)";
}

const char *regc_version(void)
{
	return STRING(REGC_VERSION_MAJOR) "." STRING(REGC_VERSION_MINOR) "."
	       STRING(REGC_VERSION_PATCH);
}
