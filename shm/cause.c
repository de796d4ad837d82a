/* SPDX-License-Identifier: BSD-2-Clause */
/* Words for causes and access bits. */
#include "shm/cause.h"

#include <stdio.h>
#include <string.h>

#include "shm/base.h"
#include "shm/layout.h"

static const struct {
	const char *name;
	const char *phrase;
} causes[RTAB_N_CAUSES] = {
	[RTAB_CAUSE_NONE] = { "none", "for no recorded reason" },
	[RTAB_CAUSE_HOOK_MUNMAP] = { "munmap", "voided by munmap" },
	[RTAB_CAUSE_HOOK_MMAP] = { "mmap", "voided by mmap over it" },
	[RTAB_CAUSE_HOOK_MREMAP] = { "mremap", "voided by mremap" },
	[RTAB_CAUSE_HOOK_MADVISE] = { "madvise", "voided by madvise" },
	[RTAB_CAUSE_HOOK_BRK] = { "brk", "voided by a shrinking heap (brk)" },
	[RTAB_CAUSE_HOOK_SHM] = { "shm", "voided by shmdt or shmat" },
	[RTAB_CAUSE_HOOK_FILE] = { "file", "voided by a change of the file" },
	[RTAB_CAUSE_HOOK_MPROTECT] = { "mprotect", "voided by mprotect" },
	[RTAB_CAUSE_UFFD_UNMAP] = { "uffd-unmap",
				    "voided by an unmap event of userfaultfd" },
	[RTAB_CAUSE_UFFD_REMAP] = { "uffd-remap",
				    "voided by a remap event of userfaultfd" },
	[RTAB_CAUSE_UFFD_REMOVE] = { "uffd-remove",
				     "voided by a remove event of userfaultfd" },
	[RTAB_CAUSE_NEW_MAPPING] = { "new-mapping",
				     "voided because a new mapping took its place" },
	[RTAB_CAUSE_INVALIDATE] = { "invalidate", "voided by regc_invalidate" },
	[RTAB_CAUSE_GROWN] = { "grown", "replaced by a larger region" },
	[RTAB_CAUSE_EVICTED] = { "evicted", "evicted to stay within a limit" },
	[RTAB_CAUSE_FLUSHED] = { "flushed", "flushed by an operator" },
	[RTAB_CAUSE_RACE] = { "race", "changed while it was being registered" },
	[RTAB_CAUSE_ALL_VOID] = { "all-void",
				  "voided with everything else, in doubt" },
	[RTAB_CAUSE_BROKER_LOST] = { "broker-lost",
				     "voided because the broker was lost" },
	[RTAB_CAUSE_DOMAIN_CLOSED] = { "domain-closed",
				       "ended because its domain was closed" },
	[RTAB_CAUSE_UNWATCHABLE] = { "unwatchable",
				     "not cached: the memory cannot be tracked" },
	[RTAB_CAUSE_LIMIT] = { "limit", "not cached: a limit was reached" },
	[RTAB_CAUSE_QUEUE_FULL] = { "queue-full",
				    "not cached: the broker does not keep up" },
	[RTAB_CAUSE_REJECTED] = { "rejected", "refused by the broker" },
	[RTAB_CAUSE_UNWATCHED] = { "unwatched", "taken out of the watch" },
};

const char *rtab_cause_name(uint32_t cause)
{
	return cause < RTAB_N_CAUSES ? causes[cause].name : "unknown";
}

const char *rtab_cause_phrase(uint32_t cause)
{
	return cause < RTAB_N_CAUSES ? causes[cause].phrase :
				       "for an unknown reason";
}

const char *rtab_hook_name(uint32_t hook)
{
	static const char *const names[RTAB_N_HOOKS] = {
		[RTAB_HOOK_MUNMAP] = "munmap",
		[RTAB_HOOK_MMAP] = "mmap",
		[RTAB_HOOK_MREMAP] = "mremap",
		[RTAB_HOOK_MADVISE] = "madvise",
		[RTAB_HOOK_BRK] = "brk",
		[RTAB_HOOK_SHMAT] = "shmat",
		[RTAB_HOOK_SHMDT] = "shmdt",
		[RTAB_HOOK_FTRUNCATE] = "ftruncate",
		[RTAB_HOOK_TRUNCATE] = "truncate",
		[RTAB_HOOK_FALLOCATE] = "fallocate",
		[RTAB_HOOK_REMAP_FILE_PAGES] = "remap_file_pages",
		[RTAB_HOOK_MPROTECT] = "mprotect",
	};

	return hook < RTAB_N_HOOKS ? names[hook] : "unknown";
}

char *rtab_access_text(uint32_t access, char *buf, size_t size)
{
	static const char *const names[] = {
		"write", "remote-read", "remote-write", "remote-atomic",
		"relaxed-ordering",
	};
	size_t used, i;

	used = (size_t)snprintf(buf, size, "read");
	for (i = 0; i < RTAB_ARRAY_SIZE(names) && used < size; i++)
		if (access & (1u << i))
			used += (size_t)snprintf(buf + used, size - used, ",%s",
						 names[i]);
	return buf;
}
