/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one runtime of libregc in a process: what its modules share.
 *
 * Modules, lower ones know nothing of higher ones
 *   library.c domain.c     public handles
 *   cache.c                the hit path: get and put of a cached buffer
 *   miss.c                 everything else a get may need
 *   guardian.c             the thread that hears the broker and the kernel
 *   worker.c               the thread that calls devices in its place
 *   transfer.[ch] and what is listed there   protect until complete
 *   retire.c               undoing registrations after their last lease
 *   link.c                 the broker: join, leave, budget, messages
 *   changes.c              voiding on behalf of hooks; the watched ranges
 *   monitor_*.c patch*.c   sources of changes
 *   device_*.c verbs_nic.c io_uring, libibverbs, null
 *   slots.c runtime.c      slots and their order; lock, threads, fork
 *
 * Locks, in this order
 *   nic lock    devices that regc opens itself; calls libibverbs, and by it perhaps
 *               libregc-verbs.so, whose own lock comes next
 *   init lock   joining, opening and closing; may wait for the broker, and for
 *               an event that the guardian reads: so the guardian never takes it
 *   cache lock  slots, budget, request ring, watched ranges
 *   send lock   the control socket for sending
 *   helper lock, mprotect lock   leaves, nothing is taken under them
 * The cache lock is never held over a device call, a wait, or anything that
 * allocates or unmaps memory (L8); hooks and the hit path take no lock at all.
 * All live in the wipe page: a child of fork finds them free.
 *
 * Fork (L6).  The wipe page and the thread states are MADV_WIPEONFORK: a child
 * reads zero where the parent reads its attach number, so the first comparison of
 * get, put and every hook fails there and leads to runtime_enter(), which starts
 * over.  Table, area, watch set and memos are MADV_DONTFORK.
 *
 * States of a slot, moved under the cache lock, except LIVE -> void by a hook or
 * the broker, which is a store to live_gen or gens[] and is noticed later:
 *
 *   FREE -> MAKING -> LIVE -> VOID -> RETIRING -> LIMBO -> FREE
 *              |                ^         |
 *              +-- failed ------|-> FREE  +-> VOID (a device said "later")
 *              +-- changed -----+
 *
 * MAKING    its maker calls the device without the lock; others wait for it
 * VOID      no new lease; on the void list, or parked until its last put
 * RETIRING  one thread undoes the registrations
 * LIMBO     until the broker has read the DEL record, so that it cannot take an
 *           old record for a new region
 */
#ifndef REGC_RUNTIME_H
#define REGC_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libregc/regc.h"
#include "shm/area.h"
#include "shm/atomic.h"
#include "shm/base.h"
#include "shm/cause.h"
#include "shm/layout.h"
#include "shm/segment.h"
#include "shm/table.h"

#define RT_HIDDEN __attribute__((visibility("hidden")))
#define RT_NO_SLOT UINT32_MAX
#define RT_NO_BROKER UINT32_MAX /* never what a life word reads */
#define RT_UNBOUND UINT64_MAX /* equals no attach number, and not 0 either */
#define RT_WAIT_MS 200	      /* longest wait for the broker in a get */
#define RT_OPEN_WAIT_MS 2000  /* the same in regc_open() */
#define RT_REMOVE_MS 100      /* see removal_under_way() in miss.c */
#define RT_MAKE_WAIT_MS 2000  /* for another thread that registers the range */
#define RT_CLOSE_MS 1000      /* for other threads, in regc_domain_close() */
#define RT_REJOIN_MS 100      /* between two attempts to find a broker; doubles */
#define RT_REJOIN_MAX_MS 5000 /* up to this */
#define RT_MISS_TRIES 8	      /* restarts before a get goes uncached */
#define RT_N_ANSWERS 16	      /* more than a broker asks for at once */
#define RT_WATCH_CAPACITY 65536
#define RT_LAZY_RECORDS (RTAB_N_RING / 4)
#define RT_MEMO_MIN_BITS 10
#define RT_MEMO_MAX_BITS 18

/* ---- safeguards that a test may take away -------------------------------- */

/*
 * Built with REGC_BREAKABLE (only for tests/torture), the environment variable
 * REGC_BREAK names one safeguard that is left out, so that the torture test can
 * show that it would notice.  In every other build this is constant.
 */
enum rt_safeguard {
	RT_SAFE_HOOK = 1,   /* hooks void before the call */
	RT_SAFE_MARK,	    /* a hit looks at the changing marks */
	RT_SAFE_GENERATION, /* a hit compares generations */
	RT_SAFE_POST,	    /* a mapping handed out is checked */
	RT_SAFE_PROBE,	    /* strict mode probes */
	RT_SAFE_LEASE,	    /* no registration is undone under lease */
	RT_SAFE_GUARD,	    /* pages of a transfer are closed */
};
#ifdef REGC_BREAKABLE
extern RT_HIDDEN uint32_t rt_broken;
#define RT_BROKEN(safeguard) (rt_broken == (safeguard))
#else
#define RT_BROKEN(safeguard) false
#endif

/* ---- what the hit path reads -------------------------------------------- */

/*
 * The broker's life page and the table, at addresses that never change: a new
 * broker's are mapped over the old ones.
 */
struct rt_window {
	union {
		struct rtab_life life;
		uint8_t page[RTAB_PAGE];
	};
	struct rtab_table table;
	uint64_t gens[]; /* rtab_off_gens() */
};

/* Written at attach, detach and a change of mode; its own cache line. */
struct rt_hot {
	uint32_t life_word; /* what life.word is while tracking works, or ~0 */
	int probe_fd;	    /* strict mode: the userfaultfd to probe; else -1 */
} __attribute__((aligned(RTAB_CACHE_LINE)));

_Static_assert(offsetof(struct rt_window, gens) ==
		       RTAB_PAGE + sizeof(struct rtab_table),
	       "the window is the life page and then the table");

extern RT_HIDDEN struct rt_hot rt_hot;

/* State of one thread slot; in wiped memory, written by its thread alone. */
struct rt_thread {
	uint64_t attach; /* 0: not attached, or a child of fork */
	uint64_t *leases;
	struct rtab_counters *counters;
	uint32_t *memo; /* slot + 1 by rt_memo_hash(), 0: empty */
	const struct rt_window *window;
	const struct rtab_area *area;
	uint32_t memo_mask;
	uint8_t memo_bits;
	uint8_t memo_shift;
	uint16_t index; /* of the thread slot */
} __attribute__((aligned(RTAB_CACHE_LINE)));

extern RT_HIDDEN __thread struct rt_thread *rt_thread
	__attribute__((tls_model("initial-exec")));

/*
 * Which entry of the memo an address belongs to.  Buffers lie at equal strides
 * more often than at random; in units of about the size of a region
 * (rt_memo_fit()) neighbours get neighbouring entries, where a multiplication
 * would throw some of them together.
 */
static inline uint32_t rt_memo_hash(const struct rt_thread *ts, uint64_t addr)
{
	uint64_t unit = addr >> ts->memo_shift;

	unit ^= unit >> ts->memo_bits;
	return (uint32_t)unit & ts->memo_mask;
}

/* A domain as one library sees it; the fields are what a hit reads. */
struct regc_domain {
	uint64_t attach; /* RT_UNBOUND until there is an area: domain_bind() */
	struct rtab_reg *regs;
	uint32_t library; /* index */
	uint32_t strict;  /* its library asked for the probe by itself */
	struct rt_domain *shared;
	struct regc_library *owner;
	uint64_t made_in; /* rt.attach then; another one: a fork came between */
	struct verbs_nic *nic; /* regc_domain_verbs_open(): to be dropped */
};

struct regc_library {
	char name[RTAB_NAME_BYTES];
	uint32_t index;
	uint32_t n_domains;
	bool strict; /* asked for it, whatever the mode of the process */
	/* what 0 in an attr of a transfer means; 0 here: the defaults of regc */
	uint32_t policy, edges, conflict, limit_ms;
	int (*progress)(void *arg); /* helper.c */
	void *progress_arg;
	struct rtab_counters slow; /* of gets outside any thread slot; atomic */
};

/* ---- slots -------------------------------------------------------------- */

enum rt_slot_state {
	RT_FREE = 0,
	RT_MAKING,
	RT_LIVE,
	RT_VOID,
	RT_RETIRING,
	RT_LIMBO,
};

struct rt_slot {
	uint64_t start, end; /* half-open */
	uint8_t cls;	   /* its access is rt.class_access[cls] */
	uint8_t state;
	uint8_t parked;	   /* VOID, off the list, its last put retires it */
	uint8_t busy;	   /* LIVE, and maker adds a domain */
	uint8_t waited;	   /* somebody waits for turn */
	uint8_t shared;	   /* memory of a file: changes_of_files() voids it */
	uint16_t domains;  /* bit d: regs[d][slot] holds a registration */
	uint32_t next;	   /* free, void or limbo list */
	uint32_t maker;	   /* thread that registers: first, or one more domain */
	uint32_t turn;	   /* futex: changes when the maker is done */
	uint32_t cause;
	uint32_t left, right; /* order, see slots.c */
	uint64_t limbo_tail;  /* LIMBO: free once ring_tail is past this */
};

/* ---- the runtime -------------------------------------------------------- */

struct rt_lock {
	uint32_t word; /* 0 free, 1 held, 2 held and waited for */
};

/* All zero in a child of fork. */
struct rt_wipe {
	uint64_t attach; /* as rt.attach, or 0 */
	struct rt_lock init_lock;
	struct rt_lock cache_lock;
	struct rt_lock send_lock;
	struct rt_lock nic_lock;
	uint32_t budget_turn; /* futex: changes when budget came or was denied */
	uint32_t woken;	      /* 1: the guardian was woken and has not looked */
	uint32_t transfer_turn;	   /* futex: changes when a transfer ends */
	uint32_t transfer_waiters; /* on it; nobody wakes at 0 */
	uint32_t transfers_begun;  /* 1: there may be some */
	struct rt_lock helper_lock; /* leaf: helper.c */
	struct rt_lock mprotect_lock; /* leaf: guard_mprotect.c */
	uint32_t helper_turn;	    /* futex: changes when the helper is to look */
};

struct rt_domain {
	bool in_use;
	bool closing;
	bool lost; /* its device is gone */
	uint32_t index;
	uint32_t n_handles;
	uint32_t n_regs; /* registrations now, cached or not */
	struct regc_device_ops ops;
	void *ctx;
	struct regc_device_limits limits;
	char name[RTAB_NAME_BYTES];
};

struct rt_list {
	uint32_t head, tail;
	uint32_t n;
};

struct uncached; /* uncached.c */

/* What the broker asked back, and waits to hear of; see worker.h. */
struct rt_answer {
	uint64_t ticket, bytes, regions;
};

struct runtime {
	/* what a child of fork keeps, see start_over_in_child() */
	struct rt_wipe *wipe; /* NULL until the first open */
	struct rt_thread *threads; /* RTAB_N_THREADS, wiped */
	uint64_t attach;      /* number of the area in use; grows at fork */
	char socket_path[128], asked_group[64];
	uint32_t asked_mode; /* REGC_MODE_*, 0: the broker's */
	bool asked_off;
	struct regc_library *libraries[RTAB_N_LIBRARIES];
	int fence_err; /* of membarrier; then nothing is cached */
	char kept_end; /* and from here on nothing */

	/* link.c; init lock */
	bool attached;	 /* an area and, at some time, a broker */
	bool connected;	 /* to a broker that lives, as far as known */
	int sock, doorbell, area_fd;
	struct rt_window *window; /* NULL before the first broker */
	uint32_t life_word; /* of the broker joined last */
	uint64_t last_join_ns;
	uint32_t rejoin_ms; /* 0: RT_REJOIN_MS */
	uint64_t stall_mark; /* link_stalled(); 0: the broker answers */
	uint32_t broker_pid, space;
	char group[64];
	uint64_t hard_bytes, max_region_bytes;

	struct rtab_view table;
	struct rtab_area_view area;

	/* monitors */
	int uffd, maps_fd;
	bool uffd_user_only; /* system calls do not wait at closed pages */
	bool uffd_minor;     /* and receives can close pages of shared memory */
	uint32_t mode;
	bool file_hooks; /* changes of files are seen as well */
	char why[128];
	struct rtab_writer watch; /* watched ranges; cache lock to write */
	uint64_t watch_low, watch_high; /* bounds of all of them */
	uint32_t watch_seq; /* odd while it changes, see changes.c */
	uint32_t watch_next_slot; /* lowest that may be free */
	bool watch_all; /* it overflowed: everything counts as watched */

	/* cache lock */
	struct rt_slot *slots;
	uint32_t n_classes; /* as table->classes, but known here first */
	uint32_t class_access[RTAB_N_CLASSES];
	uint32_t roots[RTAB_N_CLASSES]; /* order of MAKING and LIVE slots */
	uint32_t n_slots;   /* slots ever used */
	uint32_t n_live;
	uint32_t n_shared;  /* regions ever made of shared memory */
	uint32_t n_retiring; /* slots that a thread is retiring now */
	struct rt_list free_list, void_list, limbo_list;
	uint64_t change_cursor; /* of area->changes */
	uint64_t drained_ns;	/* the guardian read an event, see miss.c */
	uint64_t allow_bytes, allow_regions; /* budget from the broker */
	uint64_t used_bytes, used_regions;   /* charged to it */
	uint64_t uncached_bytes;
	uint64_t next_ticket;
	bool own_limit; /* the space's own limit binds: evict here, do not ask */
	struct rt_domain domains[RTAB_N_DOMAINS];
	struct uncached *refused; /* put, but the device said "not now" */
	uint64_t deregs, regs, clones, freed_leased, all_voids;
	struct rt_answer answers[RT_N_ANSWERS]; /* worker.c */
	uint32_t n_answers;

	/* worker, guardian */
	uint32_t worker_turn; /* futex: changes when there is something to do */
	bool worker_runs;
	int wake_fd;
	bool guardian_runs;
	bool helper_runs; /* helper.c; helper lock */
	struct regc_wire *wire;
	uint8_t *scratch;
};

extern RT_HIDDEN struct runtime rt;

/* ---- runtime.c ---------------------------------------------------------- */

void rt_lock_take(struct rt_lock *lock);
bool rt_lock_try(struct rt_lock *lock);
void rt_lock_drop(struct rt_lock *lock);
static inline void rt_cache_lock(void)
{
	rt_lock_take(&rt.wipe->cache_lock);
}
static inline void rt_cache_unlock(void)
{
	rt_lock_drop(&rt.wipe->cache_lock);
}

/* Waits until *word != value or timeout_ms (negative: no limit) is over. */
void rt_futex_wait(uint32_t *word, uint32_t value, int timeout_ms);
void rt_futex_wake(uint32_t *word);
uint32_t rt_tid(void);

/* A thread of regc's own, with every signal blocked.  0 or -errno. */
int rt_start_thread(void *(*fn)(void *arg));

/* First use in the process, and first use after fork.  0 or -errno. */
int rt_enter(void);

/* True if this process is a child of the one that rt describes. */
static inline bool rt_forked(void)
{
	return rt.attach && rt.wipe->attach != rt.attach;
}

/* Counters of a library for a thread without a slot; written with atomics. */
struct rtab_counters *rt_shared_counters(const struct regc_library *lib);

/* Gives the calling thread a thread slot and rt_thread; false: none is free. */
bool rt_thread_attach(void);

/* Makes the memo of the calling thread fit the number of regions. */
void rt_memo_fit(struct rt_thread *ts);

/* Cache lock: charges (or, negative, uncharges) the budget. */
static inline void rt_charge(int64_t bytes, int64_t regions)
{
	rtab_store_relaxed(&rt.used_bytes, rt.used_bytes + (uint64_t)bytes);
	rtab_store_relaxed(&rt.used_regions, rt.used_regions + (uint64_t)regions);
}

/* Cache lock: the area's copy of how much is registered. */
static inline void rt_show_pinned(void)
{
	rtab_store_relaxed(&rt.area.area->pinned_bytes,
			   rt.used_bytes + rt.uncached_bytes);
}

/* Text in rt.why and the area's copy. */
void rt_set_mode(uint32_t mode, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* What a monitor found, for regc-ctl monitors.  No lock. */
void rt_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- slots.c; cache lock ------------------------------------------------ */

int slots_init(uint32_t capacity);
/* A FREE slot that the broker has made ready, or RT_NO_SLOT. */
uint32_t slots_take(void);
void slots_give_back(uint32_t slot);
/* Into and out of the order; the range and access are set. */
void slots_link(uint32_t slot);
void slots_unlink(uint32_t slot);
/* The class of an access, made if need be; -ENOSPC: there are 16 already. */
int slots_class(uint32_t access);
/* Linked slot of cls with the greatest start <= addr, or RT_NO_SLOT. */
uint32_t slots_floor(uint32_t cls, uint64_t addr);
/*
 * Linked slots of cls that overlap [start, end), ascending: the first (last =
 * RT_NO_SLOT), or the one after last; RT_NO_SLOT at the end.
 */
uint32_t slots_next_overlap(uint32_t cls, uint64_t start, uint64_t end,
			    uint32_t last);
void list_push(struct rt_list *list, uint32_t slot);
uint32_t list_pop(struct rt_list *list);
/* LIMBO slots that the broker has let go of become FREE. */
void slots_end_limbo(void);
/* A new broker: all of them, in order, since it readies the lowest first. */
void slots_start_over(void);
/* Is the first registration found of slot still valid on both sides? */
bool slot_is_live(uint32_t slot);

/* ---- changes.c ---------------------------------------------------------- */

/*
 * Called by a hook before a change; async-signal-safe, lock-free (L8).  False: the
 * range is not watched, and while changes_moment() stays the same no region can
 * have come to be there.
 */
uint32_t changes_moment(void);
bool changes_before(uint64_t start, uint64_t end, uint32_t cause, bool unwatch);
/* Called by a hook after a mapping was handed out. */
void changes_after(uint64_t start, uint64_t end, uint32_t cause);
/* Called by a hook before pages of any file go away. */
void changes_of_files(void);
/* Voids every live registration that overlaps; lock-free.  Number voided. */
uint32_t changes_void_range(uint64_t start, uint64_t end);
/* Everything is void (L3). */
void changes_void_all(void);
/* Wakes the guardian if anything waits for it; async-signal-safe. */
void changes_wake_guardian(void);
/* Cache lock: what hooks voided is put on the void list, ranges leave the watch. */
void changes_consume(void);
struct rt_mapping {
	uint64_t start, end;
	int prot;    /* PROT_* */
	bool shared; /* or of a file */
};

/* The mapping that has addr: one system call, two for huge pages. */
int changes_mapping(uint64_t addr, struct rt_mapping *ret);
/* Is all of [start, end) mapped, private and of no file? */
bool changes_is_anonymous(uint64_t start, uint64_t end);
/*
 * After the device registered: is every page of [start, end) mapped and watched?  A
 * hole that was filled after watch_range() is not.  No lock held.
 */
bool watch_is_whole(uint64_t start, uint64_t end);
/*
 * Puts [start, end) under watch; *ret_cause says why not.  *ret_shared: part of it
 * is shared memory.  No lock held.
 */
int watch_range(uint64_t start, uint64_t end, bool *ret_shared,
		uint32_t *ret_cause);

/* ---- retire.c ----------------------------------------------------------- */

/* Cache lock: LIVE -> VOID, out of the order, VOID record to the broker. */
void slot_void(uint32_t slot, uint32_t cause);
/* No lock: undoes what is on the void list and has no lease. */
void retire_pending(void);
/* The same, and waits for what other threads are undoing. */
void retire_settle(void);
/* No lock: after a put of a void slot. */
void retire_slot(uint32_t slot);
/*
 * No lock: evicts up to n least recently used regions without leases (of domain
 * d, or RT_NO_SLOT: any).  Number evicted.
 */
uint32_t evict_own(uint32_t n, uint32_t domain, uint32_t cause);
/* Cache lock; every slot (or every one that is not live) goes VOID. */
void retire_rescan(uint32_t cause, bool all);

/* ---- link.c ------------------------------------------------------------- */

/* init lock held: finds a broker and attaches or rejoins; 0 or -errno. */
int link_join(int wait_ms);
/*
 * The broker let a wait of RT_WAIT_MS pass (link_set_stalled()), and has done
 * nothing since: gets do not wait for it again.
 */
bool link_stalled(void);
void link_set_stalled(void);
/* No lock: rejoin if there is no broker and the last attempt is long enough ago. */
void link_rejoin(void);
/*
 * No lock: the broker is gone.  Voids everything; idempotent.  Without force only
 * if the broker of this moment is dead: the caller may have looked at another.
 */
void link_lost(bool force);
/* Cache lock: pushes a record; false: the ring is full. */
bool link_push(const struct rtab_request *request);
uint32_t link_ring_room(void);
/* No lock: wakes the broker if it sleeps (label B1). */
void link_doorbell(void);
/* The same, but only if many records wait: they are not urgent. */
void link_doorbell_lazy(void);
/* No lock: asks for budget and waits; true: ask the cache lock's fields again. */
bool link_need(uint64_t bytes, uint64_t regions);
/* True while the broker's life word says that it lives. */
bool link_broker_alive(void);
/* Guardian: closes the socket of a broker that was lost. */
void link_close_socket(void);

/* ---- guardian.c --------------------------------------------------------- */

int guardian_start(void);

/* ---- monitors ----------------------------------------------------------- */

/* Makes rt.uffd (dev_fd: /dev/userfaultfd or -1); 0 or -errno with why. */
int monitor_uffd_open(int dev_fd, char *why, size_t size);
/* True while a change of the address space is under way that nobody read. */
static inline bool monitor_uffd_busy(int fd);
/* Reads and applies events in the broker's place. */
void monitor_uffd_drain(void);
/* Calls what should raise events and looks whether the broker saw them. */
int monitor_uffd_selftest(char *why, size_t size);
int monitor_uffd_watch(uint64_t start, uint64_t end);
int monitor_uffd_unwatch(uint64_t start, uint64_t end);
/* -ENOENT: part is a mapping that is not watched; -EAGAIN: an event is unread. */
int monitor_uffd_watches(uint64_t start, uint64_t end);

/* Looks up libc's functions; may take the loader's lock, so: no lock held. */
void monitor_hooks_resolve(void);
/* Patches libc once a process; 0 or -errno with why. */
int monitor_hooks_install(char *why, size_t size);
/* No lock: strict from here on if somebody patched over a hook. */
void monitor_hooks_check(void);
/* From now on fn (NULL: nobody) hears of changes for the library of this index. */
void monitor_hooks_listen(uint32_t index, regc_change_fn *fn, void *arg);
/* Calls every hooked function and looks whether its hook ran. */
int monitor_hooks_selftest(uint32_t *ret_mask, char *why, size_t size);

/* ---- library.c ---------------------------------------------------------- */

/* Cache lock: writes all libraries and domains into a new area. */
void library_show_all(void);

/* ---- miss.c, uncached.c ------------------------------------------------------------- */

int miss_get(struct regc_domain *dom, uint64_t start, uint64_t len,
	     uint32_t access, struct regc_lease *lease);
void miss_put(struct regc_lease *lease);
/* Undoes uncached registrations that their device refused to undo before. */
void miss_retry_refused(void);
int miss_uncached_range(const struct regc_lease *lease, uint64_t *ret_start,
			uint64_t *ret_len);

/* ---- domain.c ----------------------------------------------------------- */

/* No lock; count, limits, timing and errors of a device call in one place. */
int domain_reg(struct rt_domain *d, uint64_t start, uint64_t end, uint32_t access,
	       struct rt_domain *from, const struct regc_key *from_key,
	       struct regc_key *ret_key);
/* The same for what only a verbs domain can register. */
int domain_reg_region(struct rt_domain *d, const struct regc_region_attr *attr,
		      struct regc_key *ret_key);
int domain_dereg(struct rt_domain *d, const struct regc_key *key);
/* Makes what a hit reads, once there is an area. */
void domain_bind(struct regc_domain *dom);
void domain_show(const struct rt_domain *d);
/* *ret_new (or NULL): nobody had a domain of ctx; -EBUSY: it is being closed. */
int domain_open(struct regc_library *lib, const struct regc_device_ops *ops,
		void *ctx, const char *name, struct regc_domain **ret_dom,
		bool *ret_new);

/* ---- device_verbs.c, verbs_nic.c ---------------------------------------- */

bool device_is_verbs(const struct regc_device_ops *ops);
int device_verbs_region(void *pd, const struct regc_region_attr *attr,
			struct regc_key *ret_key);
/* One handle less of a NIC that regc opened; its last one closes it. */
void verbs_nic_drop(struct verbs_nic *nic);

/* ---- device_uring.c ----------------------------------------------------- */

extern RT_HIDDEN const struct regc_device_ops device_uring_ops;
extern RT_HIDDEN const struct regc_device_ops device_null_ops;
/* A child of fork has no rings of regc's. */
void device_uring_forget(void);

/* ---- the probe (strict mode) -------------------------------------------- */

#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

/*
 * An ioctl with a mode that does not exist: the kernel answers EAGAIN from before
 * a mapping changes until the event was read, and EINVAL otherwise, before it
 * looks at anything else.  It takes no lock.  tests/kernel/check_uffd.c holds
 * the kernel to it.  errno is kept.
 */
static inline bool monitor_uffd_busy(int fd)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = 0, .len = 4096 },
		.mode = ~UINT64_C(0),
	};
	int saved = errno, r;
	bool busy;

	r = ioctl(fd, UFFDIO_WRITEPROTECT, &wp);
	busy = r == 0 || errno != EINVAL;
	errno = saved;
	return busy;
}

#endif
