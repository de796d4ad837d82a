/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only definition of bytes that processes share.
 *
 * Three segments, all memfds, all sealed against shrinking and growing before
 * they are shared:
 *
 *   life    one a broker   written by the kernel and the broker, read by all
 *   table   one a space    written by the broker alone; F_SEAL_FUTURE_WRITE
 *                          makes every later mapping read-only (law L5)
 *   area    one a space    written by the client; the broker reads it and
 *                          treats every byte of it as hostile
 *
 * The brief proposes one table a group.  One a space costs nothing more, frees
 * itself when the process dies, and keeps the addresses of one process out of
 * the sight of the others.
 *
 * Slots.  A space numbers its regions 0 .. capacity-1.  Number s means the same
 * slot everywhere: gens[s] and records[s] in the table, leases[thread][s] and
 * regs[domain][s] in the area.  The client chooses s; the broker prepares slots
 * in order and publishes how many are ready (slots_ready).
 *
 * Validity (laws L1, L2).  A registration of slot s in domain d is live exactly
 * while   regs[d][s].live_gen == gens[s]   and live_gen != 0.
 * The broker voids by gens[s]++, the client by live_gen = 0; each alone, at
 * once, with one store.  gens[s] only grows, starts at gen_base, and gen_base
 * of a later broker is larger than any generation of an earlier one (it is the
 * boot clock in ns, and no slot is voided once a nanosecond), so a generation
 * never comes back.
 *
 * Table (offsets in bytes)
 *   0      identity, constant after creation
 *   64     hot line: what every hit reads
 *   128    what a miss reads
 *   192    changes of the index
 *   256    classes[16]
 *   512    changes[64], the last changes seen by the broker
 *   1536   removes[96], the last of them that take pages but not the mapping
 *   4096   marks[4096]           64 bytes each, untouched pages cost nothing
 *   266240 waiters[128]          32 bytes each
 *   ...    gens[capacity]        8 bytes each
 *   ...    records[capacity]     32 bytes each
 *   ...    nodes[n_nodes]        256 bytes each, the index (shm/index.h)
 * Areas (offsets in bytes)
 *   0      identity, constant
 *   64     hot line: what every hit reads
 *   128    request ring head     192  changes made by the client
 *   512    libraries[32]
 *   2560   domains[16]
 *   4096   ring[256]             64 bytes each
 *   20480  changes[256]          32 bytes each
 *   28672  transfer counters[32] 64 bytes each
 *   30720  waiters[64]           32 bytes each
 *   32768  transfer words[4096]  8 bytes each
 *   65536  transfers[4096]       128 bytes each, untouched pages cost nothing
 *   ...    threads[256]          4096 bytes each
 *   ...    leases[256][capacity] 8 bytes each, untouched pages cost nothing
 *   ...    regs[16][capacity]    64 bytes each, untouched pages cost nothing
 *
 * Version rule: another major is refused; a higher minor only uses bytes that
 * are reserved here.  Reserved bytes are written zero and not read.
 */
#ifndef REGC_SHM_LAYOUT_H
#define REGC_SHM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define RTAB_MAJOR 1
#define RTAB_MINOR 0
#define RTAB_LIFE_MAGIC UINT64_C(0x6566696c63676572)  /* "regclife" */
#define RTAB_TABLE_MAGIC UINT64_C(0x6c62617463676572) /* "regctabl" */
#define RTAB_AREA_MAGIC UINT64_C(0x6165726163676572)  /* "regcarea" */

#define RTAB_PAGE UINT64_C(4096) /* unit of the layout, whatever the CPU's */
#define RTAB_MAX_CAPACITY (UINT32_C(1) << 20)
#define RTAB_N_CLASSES 16
#define RTAB_N_DOMAINS 16
#define RTAB_N_LIBRARIES 32
#define RTAB_N_THREADS 256 /* slot 0 is shared by all threads beyond */
#define RTAB_N_RING 256
#define RTAB_N_TABLE_CHANGES 64
#define RTAB_N_REMOVES 96
#define RTAB_N_AREA_CHANGES 256
#define RTAB_N_TRANSFERS 4096 /* slots 0 and 1 are libregc's own */
#define RTAB_N_TABLE_WAITERS 128
#define RTAB_N_AREA_WAITERS 64
#define RTAB_NAME_BYTES 32
#define RTAB_READY_STEP 1024 /* slots made ready at a time */

/* ---- life: one page ---------------------------------------------------- */

/*
 * word is a robust futex: the broker's thread id while it lives; the kernel
 * itself sets FUTEX_OWNER_DIED (0x40000000) when it dies, by any signal, before
 * it closes a descriptor.
 */
struct rtab_life {
	uint64_t magic;       /* broker, constant */
	uint16_t major;       /* broker, constant */
	uint16_t minor;       /* broker, constant */
	uint32_t broker_pid;  /* broker, constant */
	uint8_t pad0[48];
	uint32_t word;        /* broker, kernel; alone in the line of every hit */
	uint8_t pad1[60];
	uint32_t asleep;      /* broker: 1 = ring the doorbell (label B1) */
	uint8_t pad2[60];
};

/* ---- table ------------------------------------------------------------- */

struct rtab_class {
	uint64_t root;       /* broker: 0 empty, else node + 1 */
	uint32_t access;     /* broker: access of its regions | RTAB_CLASS_USED */
	uint32_t n_regions;  /* broker, for show */
};

#define RTAB_CLASS_USED (UINT32_C(1) << 31) /* set once, never taken back */

struct rtab_change {
	uint64_t start, end; /* half-open */
};

/* Pages that were about to be removed, as the event says before they go. */
struct rtab_remove {
	uint64_t start, end;
	uint64_t time_ns; /* CLOCK_MONOTONIC, when the event was read */
};

struct rtab_record {
	uint64_t gen;   /* live while equal to gens[slot] */
	uint64_t start; /* half-open [start, end) */
	uint64_t end;
	uint32_t cls;
	uint32_t reserved;
};

/*
 * Access bits are those of regc.h.  Most are permissions, and a region with more
 * of them serves a request for less; this one changes what the device does, and
 * must be as asked (REGC_ACCESS_RELAXED_ORDERING).
 */
#define RTAB_ACCESS_EXACT (UINT32_C(1) << 4)

static inline int rtab_access_serves(uint32_t have, uint32_t want)
{
	return ((have ^ want) & (want | RTAB_ACCESS_EXACT)) == 0;
}

#define RTAB_NODE_KEYS 20

/* Immutable once reachable from a root; see shm/index.h. */
struct rtab_node {
	uint16_t n;      /* keys in use */
	uint16_t height; /* 0 = leaf */
	uint32_t pad;
	uint64_t key[RTAB_NODE_KEYS]; /* start addresses, ascending */
	uint32_t val[RTAB_NODE_KEYS]; /* leaf: slot; inner: node */
	uint32_t reserved[2];
};

/* ---- transfers, both sides; protocol in shm/transfer.h ------------------- */

/* A thread that waits for a transfer; tid 0: the entry is free. */
struct rtab_waiter {
	uint64_t id;   /* of the transfer, which may be over by now */
	uint64_t addr; /* that it accessed */
	uint64_t since_ns; /* CLOCK_MONOTONIC */
	uint32_t slot; /* of the transfer */
	uint32_t tid;
};

/* What happened to a transfer, as the one who reads faults and events saw it. */
struct rtab_mark {
	uint64_t id;	/* written last, 0 while the rest changes (label T3) */
	uint32_t flags; /* RTAB_TRANSFER_* */
	uint32_t n_blocked; /* accesses that had to wait */
	uint64_t blocked_ns; /* CLOCK_MONOTONIC of the first, 0: none */
	uint64_t n_through; /* accesses that were let through */
	uint64_t addr;	/* of the last access */
	uint32_t tid;	/* that made it; 0: the kernel does not say */
	uint32_t reserved[5];
};

/* Side states of a transfer; regc.h has the same numbers. */
enum {
	RTAB_TRANSFER_BLOCKED = 1 << 0,	  /* an access had to wait */
	RTAB_TRANSFER_COPIED = 1 << 1,	  /* a writer got a copy of pages */
	RTAB_TRANSFER_DAMAGED = 1 << 2,	  /* an access was let through */
	RTAB_TRANSFER_TIMED_OUT = 1 << 3, /* waits ended by the time limit */
	RTAB_TRANSFER_DETACHED = 1 << 4,  /* memory of it was replaced meanwhile */
	RTAB_TRANSFER_ABORTED = 1 << 5,
	RTAB_TRANSFER_WEAK = 1 << 6,	  /* system calls fail instead of waiting */
	RTAB_TRANSFER_OPEN = 1 << 7,	  /* not protected at all */
	RTAB_TRANSFER_FLAGS = (1 << 8) - 1,
};

enum {
	RTAB_MODE_OFF = 0,    /* tracking does not work: nothing is cached */
	RTAB_MODE_FAST = 1,   /* hooks and userfaultfd */
	RTAB_MODE_STRICT = 2, /* userfaultfd and one probe a hit */
};

struct rtab_table {
	/* 0 */
	uint64_t magic;
	uint16_t major, minor;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint32_t capacity;
	uint32_t n_nodes;
	uint32_t space_id;
	uint32_t reserved0;
	uint64_t gen_base;
	uint8_t pad0[16];
	/* 64: read by every hit, written when something changes */
	uint32_t changing;    /* broker: an event is being read (label C1) */
	uint32_t reserved1;
	uint64_t change_seq;  /* broker: entries of changes[] begun (label H2) */
	uint64_t changes_done; /* broker: entries complete (label H2) */
	uint64_t stamp;       /* broker: the time, when it last did anything */
	uint8_t pad1[32];
	/* 128: read by a miss */
	uint64_t ring_tail;   /* broker: records of the area's ring consumed */
	uint64_t events_read; /* broker: reads of the userfaultfd so far */
	uint32_t slots_ready; /* broker: slots below may be used */
	uint32_t closed;      /* broker: 1 = this space was given up */
	uint8_t pad2[40];
	/* 192 */
	uint64_t index_seq;   /* broker: root swaps so far (label I1) */
	uint8_t pad3[56];
	/* 256 */
	struct rtab_class classes[RTAB_N_CLASSES];
	/* 512 */
	struct rtab_change changes[RTAB_N_TABLE_CHANGES];
	/* 1536 */
	uint64_t remove_seq;   /* broker: entries of removes[] begun (label H3) */
	uint64_t removes_done; /* broker: entries complete (label H3) */
	struct rtab_remove removes[RTAB_N_REMOVES];
	uint8_t pad4[240];
	/* 4096 */
	struct rtab_mark marks[RTAB_N_TRANSFERS]; /* broker */
	/* 266240 */
	struct rtab_waiter waiters[RTAB_N_TABLE_WAITERS]; /* broker */
};

/* ---- area -------------------------------------------------------------- */

/*
 * Lease word of one slot in one thread slot, written by that thread alone:
 *   63              24 23            0
 *   | stamp, 4.096 us | count mod 2^24 |
 * count is gets minus puts made by this thread; a put may come from another
 * thread, so only the sum over all threads, mod 2^24, means anything: 0 is "no
 * lease".  stamp is the time of this get, as far as anybody had reason to look at
 * the clock: the later of the area's (this process's last miss) and the table's
 * (the broker's last turn), so that stamps of different processes compare.
 */
#define RTAB_COUNT_BITS 24
#define RTAB_COUNT_MASK ((UINT64_C(1) << RTAB_COUNT_BITS) - 1)
#define RTAB_STAMP_ONE (UINT64_C(1) << RTAB_COUNT_BITS)
#define RTAB_STAMP_SHIFT_NS 12 /* unit of a stamp: 2^12 ns of CLOCK_MONOTONIC */

struct rtab_reg {
	uint64_t live_gen; /* client: 0 = void, else see Validity */
	uint64_t start;    /* client: half-open [start, end) */
	uint64_t end;
	uint64_t keys;     /* client: rkey << 32 | lkey */
	uint64_t handle;   /* client: the device's own, meaningless elsewhere */
	uint32_t access;   /* client: what the device was asked for */
	uint8_t reserved[20];
};

enum {
	RTAB_OP_NONE = 0,
	RTAB_OP_ADD,    /* a region was registered: slot, start, end, access */
	RTAB_OP_ADD_DOMAIN, /* a region got one more domain */
	RTAB_OP_VOID,   /* the client voided a region: slot, cause */
	RTAB_OP_DEL,    /* the region's last registration is gone: slot */
	RTAB_OP_NOTE,   /* history only: start, end, cause */
};

struct rtab_request {
	uint32_t op;
	uint32_t slot;
	uint64_t start;
	uint64_t end;
	uint32_t access;
	uint32_t cls;
	uint16_t library;
	uint16_t domain;
	uint32_t cause; /* enum rtab_cause */
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint8_t reserved[16];
};

/* Why a region was voided or not cached; texts in shm/cause.c. */
enum rtab_cause {
	RTAB_CAUSE_NONE = 0,
	RTAB_CAUSE_HOOK_MUNMAP,
	RTAB_CAUSE_HOOK_MMAP,
	RTAB_CAUSE_HOOK_MREMAP,
	RTAB_CAUSE_HOOK_MADVISE,
	RTAB_CAUSE_HOOK_BRK,
	RTAB_CAUSE_HOOK_SHM,
	RTAB_CAUSE_HOOK_FILE,
	RTAB_CAUSE_HOOK_MPROTECT,
	RTAB_CAUSE_UFFD_UNMAP,
	RTAB_CAUSE_UFFD_REMAP,
	RTAB_CAUSE_UFFD_REMOVE,
	RTAB_CAUSE_NEW_MAPPING,  /* a mapping was handed out over a live region */
	RTAB_CAUSE_INVALIDATE,   /* regc_invalidate() */
	RTAB_CAUSE_GROWN,        /* replaced by a larger region */
	RTAB_CAUSE_EVICTED,
	RTAB_CAUSE_FLUSHED,      /* regc-ctl flush */
	RTAB_CAUSE_RACE,         /* changed while it was being registered */
	RTAB_CAUSE_ALL_VOID,     /* doubt: everything before is void (L3) */
	RTAB_CAUSE_BROKER_LOST,
	RTAB_CAUSE_DOMAIN_CLOSED,
	RTAB_CAUSE_UNWATCHABLE,  /* the memory cannot be tracked */
	RTAB_CAUSE_LIMIT,        /* no budget left */
	RTAB_CAUSE_QUEUE_FULL,   /* the broker does not keep up */
	RTAB_CAUSE_REJECTED,     /* the broker refused the record */
	RTAB_CAUSE_UNWATCHED,    /* watched range was taken out of the watch */
	RTAB_N_CAUSES
};

/* Bits of rtab_area.hook_mask; names in shm/cause.c. */
enum rtab_hook {
	RTAB_HOOK_MUNMAP,
	RTAB_HOOK_MMAP,
	RTAB_HOOK_MREMAP,
	RTAB_HOOK_MADVISE,
	RTAB_HOOK_BRK,
	RTAB_N_HOOKS_NEEDED, /* without those above there is no fast mode */
	/* without these memory that is shared is not cached */
	RTAB_HOOK_SHMAT = RTAB_N_HOOKS_NEEDED,
	RTAB_HOOK_SHMDT,
	RTAB_HOOK_FTRUNCATE,
	RTAB_HOOK_TRUNCATE,
	RTAB_HOOK_FALLOCATE,
	RTAB_HOOK_REMAP_FILE_PAGES,
	RTAB_HOOK_MPROTECT,
	RTAB_N_HOOKS
};

struct rtab_area_change {
	uint64_t seq;   /* client: entry number + 1, written last (label H1) */
	uint64_t start;
	uint64_t end;
	uint32_t cause;
	uint32_t check; /* client: of seq, start and end */
};

struct rtab_library {
	char name[RTAB_NAME_BYTES]; /* client */
	uint32_t in_use;            /* client */
	uint32_t index;
	uint64_t opened_ns;         /* client: CLOCK_MONOTONIC */
	uint8_t reserved[16];
};

struct rtab_domain {
	char name[RTAB_NAME_BYTES]; /* client: device kind and number */
	uint32_t in_use;
	uint32_t n_regs;            /* client, for show */
	uint64_t bytes;             /* client, for show */
	uint8_t reserved[16];
};

/* Counters of one library in one thread; written by that thread alone. */
struct rtab_counters {
	uint64_t hits;
	uint64_t misses;      /* gets that registered and cached */
	uint64_t uncached;    /* gets that registered without caching */
	uint64_t failed;
	uint64_t puts;
	uint64_t restarts;    /* misses that started over: memory changed */
	uint64_t waits;       /* gets that found a change under way */
	uint64_t reg_ns;      /* time spent in device registration */
};

/* States of a transfer, the low byte of its word; see shm/transfer.h. */
enum rtab_transfer_state {
	RTAB_FREE = 0,
	RTAB_TAKEN,   /* being filled in: nobody else looks */
	RTAB_ARMING,  /* its pages are being closed */
	RTAB_ARMED,
	RTAB_POSTED,  /* in flight: the device has it */
	RTAB_CLOSING, /* its pages are being opened */
	RTAB_COPYING, /* slot 1: pages get new memory under their writer */
};

/* How the pages are closed. */
enum rtab_guard {
	RTAB_GUARD_NONE = 0,
	RTAB_GUARD_WP,	     /* userfaultfd, writes */
	RTAB_GUARD_MINOR,    /* userfaultfd, all accesses to a memfd */
	RTAB_GUARD_MPROTECT, /* PROT_READ or PROT_NONE, and SIGSEGV */
	RTAB_GUARD_PIN,	     /* CLOSING: a device registers; nothing closes there */
};

enum { RTAB_SEND = 1, RTAB_RECEIVE = 2 };
enum { RTAB_BLOCK = 1, RTAB_COPY = 2, RTAB_REPORT = 3 };

struct rtab_transfer {
	/* 0: written by its owner while TAKEN */
	uint64_t start, end; /* the bytes asked for */
	uint64_t low, high;  /* the pages that are closed; equal: none */
	uint64_t begun_ns;   /* CLOCK_MONOTONIC */
	uint8_t direction;   /* RTAB_SEND, RTAB_RECEIVE */
	uint8_t policy;	     /* RTAB_BLOCK, ... */
	uint8_t guard;	     /* enum rtab_guard */
	uint8_t pad0;
	uint16_t library;
	uint16_t domain;
	uint32_t limit_ms; /* of a wait; UINT32_MAX: none */
	uint32_t tid;	   /* that began it */
	uint32_t lease;	   /* slot of its registration, UINT32_MAX: uncached */
	uint32_t pad1;
	/* 64: any thread of the client, atomic */
	uint64_t flags; /* the id << 8 | RTAB_TRANSFER_*: never another's (T4) */
	uint64_t blocked_ns; /* means something once BLOCKED is set */
	uint32_t n_blocked;
	uint32_t last_tid;
	uint64_t n_through;
	uint64_t addr;
	uint64_t pad2[3];
};

/* Of one library, over all its threads; atomic. */
struct rtab_transfer_counters {
	uint64_t begun;
	uint64_t refused;    /* by a conflict */
	uint64_t blocked;    /* accesses that waited */
	uint64_t blocked_ns; /* from the first of a transfer to its end */
	uint64_t copied;     /* transfers of which a writer got a copy */
	uint64_t damaged;    /* transfers */
	uint64_t timed_out;  /* transfers */
	uint64_t detached;   /* transfers */
};

struct rtab_thread {
	uint32_t in_use; /* client: thread id, 0 = free */
	uint8_t pad[60];
	struct rtab_counters counters[RTAB_N_LIBRARIES];
	uint8_t reserved[4096 - 64 - RTAB_N_LIBRARIES * 64];
};

struct rtab_area {
	/* 0 */
	uint64_t magic;
	uint16_t major, minor;
	uint32_t header_bytes;
	uint64_t total_bytes;
	uint32_t capacity;
	uint32_t pid;
	uint64_t runtime; /* client: address of its runtime, for later copies */
	uint64_t transfer_ids; /* client: transfers ever begun */
	uint32_t n_transfers;  /* client: slots of transfers ever used */
	uint8_t pad0[12];
	/* 64: read by every hit */
	uint32_t changing;   /* client: count of changes under way (label C2) */
	uint32_t mode;       /* client: RTAB_MODE_*, for show */
	uint64_t stamp;      /* client: of the last miss, as in a lease word */
	uint8_t pad1[48];
	/* 128 */
	uint64_t ring_head;  /* client: records ever pushed (label R1) */
	uint8_t pad2[56];
	/* 192 */
	uint64_t change_seq; /* client: changes ever logged (label H1) */
	uint32_t hook_mask;  /* client: hooks that passed their self-test */
	uint32_t n_threads;  /* client: thread slots ever used */
	uint64_t deregs;     /* client: device registrations undone */
	uint64_t regs;       /* client: device registrations made */
	uint64_t clones;     /* client: of these, cloned from another domain */
	uint64_t pinned_bytes; /* client: bytes registered now, cached or not */
	uint64_t freed_leased; /* client: regions voided while leased */
	uint64_t all_voids;    /* client: times everything was voided */
	/* 256 */
	char mode_why[128];  /* client: why this mode, for show */
	char monitor_note[128]; /* client: what was found, for show */
	/* 512 */
	struct rtab_library libraries[RTAB_N_LIBRARIES];
	/* 2560 */
	struct rtab_domain domains[RTAB_N_DOMAINS];
	uint8_t pad3[512];
	/* 4096 */
	struct rtab_request ring[RTAB_N_RING];
	/* 20480 */
	struct rtab_area_change changes[RTAB_N_AREA_CHANGES];
	/* 28672 */
	struct rtab_transfer_counters transfer_counters[RTAB_N_LIBRARIES];
	/* 30720 */
	struct rtab_waiter waiters[RTAB_N_AREA_WAITERS];
	/* 32768 */
	uint64_t transfer_words[RTAB_N_TRANSFERS]; /* label T1 */
	/* 65536 */
	struct rtab_transfer transfers[RTAB_N_TRANSFERS];
	/* 589824 */
	struct rtab_thread threads[RTAB_N_THREADS];
};

/* ---- offsets and sizes ------------------------------------------------- */

static inline uint64_t rtab_off_gens(void)
{
	return sizeof(struct rtab_table);
}

static inline uint64_t rtab_off_records(uint32_t capacity)
{
	return rtab_off_gens() + (uint64_t)capacity * 8;
}

static inline uint64_t rtab_off_nodes(uint32_t capacity)
{
	return rtab_off_records(capacity) +
	       (uint64_t)capacity * sizeof(struct rtab_record);
}

/* Nodes are at least a third full, see shm/index.c; the rest is quarantine. */
static inline uint32_t rtab_n_nodes(uint32_t capacity)
{
	return capacity / 4 + 4096;
}

static inline uint64_t rtab_table_bytes(uint32_t capacity)
{
	return rtab_off_nodes(capacity) +
	       (uint64_t)rtab_n_nodes(capacity) * sizeof(struct rtab_node);
}

static inline uint64_t rtab_off_leases(uint32_t capacity, uint32_t thread)
{
	return sizeof(struct rtab_area) + (uint64_t)thread * capacity * 8;
}

static inline uint64_t rtab_off_regs(uint32_t capacity, uint32_t domain)
{
	return rtab_off_leases(capacity, RTAB_N_THREADS) +
	       (uint64_t)domain * capacity * sizeof(struct rtab_reg);
}

static inline uint64_t rtab_area_bytes(uint32_t capacity)
{
	return rtab_off_regs(capacity, RTAB_N_DOMAINS);
}

#ifndef __cplusplus
_Static_assert(sizeof(struct rtab_life) == 192, "life");
_Static_assert(offsetof(struct rtab_life, word) == 64, "life.word");
_Static_assert(sizeof(struct rtab_record) == 32, "record");
_Static_assert(sizeof(struct rtab_node) == 256, "node");
_Static_assert(sizeof(struct rtab_class) == 16, "class");
_Static_assert(offsetof(struct rtab_table, changing) == 64, "table hot line");
_Static_assert(offsetof(struct rtab_table, ring_tail) == 128, "table.ring_tail");
_Static_assert(offsetof(struct rtab_table, index_seq) == 192, "table.index_seq");
_Static_assert(offsetof(struct rtab_table, classes) == 256, "table.classes");
_Static_assert(offsetof(struct rtab_table, changes) == 512, "table.changes");
_Static_assert(offsetof(struct rtab_table, remove_seq) == 1536, "table.removes");
_Static_assert(offsetof(struct rtab_table, marks) == 4096, "table.marks");
_Static_assert(offsetof(struct rtab_table, waiters) == 266240, "table.waiters");
_Static_assert(sizeof(struct rtab_table) == 270336, "table header");
_Static_assert(sizeof(struct rtab_mark) == 64, "mark");
_Static_assert(sizeof(struct rtab_transfer) == 128, "transfer");
_Static_assert(offsetof(struct rtab_transfer, flags) == 64, "transfer.flags");
_Static_assert(sizeof(struct rtab_reg) == 64, "reg");
_Static_assert(sizeof(struct rtab_request) == 64, "request");
_Static_assert(sizeof(struct rtab_library) == 64, "library");
_Static_assert(sizeof(struct rtab_domain) == 64, "domain");
_Static_assert(sizeof(struct rtab_counters) == 64, "counters");
_Static_assert(sizeof(struct rtab_thread) == 4096, "thread");
_Static_assert(offsetof(struct rtab_area, changing) == 64, "area hot line");
_Static_assert(offsetof(struct rtab_area, ring_head) == 128, "area.ring_head");
_Static_assert(offsetof(struct rtab_area, change_seq) == 192, "area.change_seq");
_Static_assert(offsetof(struct rtab_area, libraries) == 512, "area.libraries");
_Static_assert(offsetof(struct rtab_area, domains) == 2560, "area.domains");
_Static_assert(offsetof(struct rtab_area, ring) == 4096, "area.ring");
_Static_assert(offsetof(struct rtab_area, changes) == 20480, "area.changes");
_Static_assert(offsetof(struct rtab_area, waiters) == 30720, "area.waiters");
_Static_assert(offsetof(struct rtab_area, transfer_words) == 32768, "area.words");
_Static_assert(offsetof(struct rtab_area, transfers) == 65536, "area.transfers");
_Static_assert(offsetof(struct rtab_area, threads) == 589824, "area.threads");
#endif

#endif
