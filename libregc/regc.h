/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * regc.h - registration cache shared by all libraries of a process.
 *
 * A library opens a handle under its name, makes a domain (where keys are
 * valid: one io_uring instance, one protection domain of a NIC), and asks
 * regc_get() "which key covers this buffer?" before each transfer.  The answer
 * is a lease: the registration stays until regc_put().  regc(7) explains the
 * words, the laws and the modes.
 *
 * Return values: 0 or a negative errno, each listed with its function.
 * errno is never set, nothing is printed, the process is never ended.
 *
 * Thread safety: every function may be called from any thread at any time,
 * except that a handle must not be used while or after it is closed.
 * Fork safety: a child of fork(2) starts with no registration.  Library handles
 * work in the child and attach by themselves; a domain made before the fork
 * belongs to the parent, and the child gets -ENOTUNIQ until it makes its own.
 * Signal safety: none may be called from a signal handler, except
 * regc_version() and regc_strerror().
 * Blocking: regc_get() of a cached buffer makes no system call in fast mode and
 * one in strict mode.  Everything else may call the kernel.  Nothing waits for
 * the broker longer than the time given with its function.
 */
#ifndef REGC_H
#define REGC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REGC_VERSION_MAJOR 0
#define REGC_VERSION_MINOR 1
#define REGC_VERSION_PATCH 0

#if defined(__GNUC__)
#define REGC_API __attribute__((visibility("default")))
#else
#define REGC_API
#endif

struct regc_library; /* one user of regc inside a process */
struct regc_domain;  /* where a key is valid, as one library sees it */
struct io_uring;     /* of liburing */
struct ibv_pd;       /* of libibverbs */

/* Access: what the device may do with the memory.  Reading is always allowed. */
enum {
	REGC_ACCESS_LOCAL_READ = 0,
	REGC_ACCESS_LOCAL_WRITE = 1 << 0,
	REGC_ACCESS_REMOTE_READ = 1 << 1,
	REGC_ACCESS_REMOTE_WRITE = 1 << 2,
	REGC_ACCESS_REMOTE_ATOMIC = 1 << 3,
	REGC_ACCESS_RELAXED_ORDERING = 1 << 4,
	REGC_ACCESS_ALL = (1 << 5) - 1
};

/* regc_lease.flags */
enum {
	/* Not in the cache: made for this lease, undone by its put. */
	REGC_LEASE_UNCACHED = 1 << 0
};

/*
 * A permission to use a registration, from regc_get() to regc_put().  Owned by
 * the caller, who may copy it but must put it exactly once.
 */
struct regc_lease {
	uint32_t lkey;   /* verbs: local key; io_uring: fixed-buffer index */
	uint32_t rkey;   /* verbs: remote key; else 0 */
	uint64_t handle; /* verbs: struct ibv_mr *; else 0 */
	uint32_t flags;  /* REGC_LEASE_* */
	uint32_t slot;   /* private from here on */
	uint64_t gen;
	void *priv[2];
	uint64_t reserved[2];
};

enum {
	REGC_MODE_OFF = 0,    /* nothing is cached; regc_status.why says why */
	REGC_MODE_FAST = 1,   /* hooks and userfaultfd; no system call on a hit */
	REGC_MODE_STRICT = 2, /* userfaultfd and one probe on each hit */
	REGC_MODE_AUTO = 3    /* fast where the self-test passes, else strict */
};

/* Optional arguments of regc_open(); zero-initialise, then set size. */
struct regc_open_attr {
	size_t size;        /* sizeof(struct regc_open_attr) */
	const char *socket; /* broker's socket; NULL: REGC_SOCKET, defaults */
	const char *group;  /* NULL: REGC_GROUP, the launcher's job, the user */
	uint32_t mode;      /* REGC_MODE_*; 0: REGC_MODE, then the broker's.
	                       The first library decides for the process; a
	                       later one that asks for REGC_MODE_STRICT has
	                       its own hits probed all the same. */
	uint32_t reserved;
};

struct regc_stats {
	size_t size;        /* set by the caller */
	uint64_t hits;      /* gets answered from the cache */
	uint64_t misses;    /* gets that registered and cached */
	uint64_t uncached;  /* gets that registered without caching */
	uint64_t failed;    /* gets that returned an error */
	uint64_t puts;
	uint64_t restarts;  /* misses that started over: memory changed meanwhile */
	uint64_t waits;     /* gets that found a change of memory under way */
	uint64_t reg_ns;    /* time spent in device registration */
	/* of the whole process: */
	uint64_t registrations; /* device registrations made */
	uint64_t clones;        /* of these, cloned from another domain */
	uint64_t deregistrations;
	uint64_t regions;       /* live now */
	uint64_t pinned_bytes;  /* registered now, cached or not */
	uint64_t freed_leased;  /* regions whose memory went away under lease */
	uint64_t all_voids;     /* times everything was voided in doubt */
};

struct regc_status {
	size_t size;         /* set by the caller */
	uint32_t connected;  /* 1: attached to a living broker */
	uint32_t mode;       /* REGC_MODE_OFF, _FAST or _STRICT, as in force */
	uint32_t broker_pid; /* 0 if none */
	uint32_t space;      /* number of this process at the broker */
	char group[64];
	char why[128];       /* why this mode, or why not connected */
};

/* What a device can do; 0 means no limit known. */
struct regc_device_limits {
	uint64_t max_registrations;
	uint64_t max_bytes; /* of one registration */
	uint32_t access;    /* REGC_ACCESS_* bits that it knows */
	uint32_t reserved;
};

struct regc_key {
	uint32_t lkey;
	uint32_t rkey;
	uint64_t handle;
};

/*
 * A device of the caller's own.  Callbacks run on the thread that calls regc or
 * on regc's worker thread, never under a lock of regc and never inside a
 * memory hook; they may allocate, map and unmap memory, but dereg must not
 * write to memory that regc protects.  A callback that calls regc_get() for a
 * range that is being registered by the same thread gets -EDEADLK.
 */
struct regc_device_ops {
	size_t size;      /* sizeof(struct regc_device_ops) */
	const char *name; /* copied */
	/* 0 or -errno; -ENOSPC and -ENOMEM make regc evict and try again. */
	int (*reg)(void *ctx, void *addr, size_t len, unsigned int access,
		   struct regc_key *ret_key);
	/* 0 or -errno; -EBUSY or -EEXIST: not from this thread, try again later */
	int (*dereg)(void *ctx, const struct regc_key *key);
	/* May be NULL. */
	void (*limits)(void *ctx, struct regc_device_limits *ret);
	/*
	 * May be NULL.  Makes key valid in ctx from a registration of the same
	 * memory in from_ctx, a domain with the same ops; -EOPNOTSUPP: cannot.
	 */
	int (*clone)(void *ctx, void *from_ctx, const struct regc_key *from_key,
		     void *addr, size_t len, unsigned int access,
		     struct regc_key *ret_key);
	/* May be NULL.  Called when the last handle of the domain is closed. */
	void (*release)(void *ctx);
};

/* "0.1.0"; static. */
REGC_API const char *regc_version(void);

/* Text for a return value of this library, static, never NULL. */
REGC_API const char *regc_strerror(int err);

/*
 * Opens a handle for the library called name (1 to 31 characters, copied).
 * Succeeds without a broker too: then gets are uncached, and regc_status()
 * tells.  Waits for a broker at most 2 s.
 * attr may be NULL.  The handle is the caller's until regc_close().
 * -EINVAL: name, attr or REGC_MODE bad.  -ENOMEM.  -ENOSPC: more than 31
 * libraries.
 */
REGC_API int regc_open(const char *name, const struct regc_open_attr *attr,
		       struct regc_library **ret_lib);

/*
 * Closes a handle; NULL is allowed.  -EBUSY: a domain of it is still open;
 * nothing was done.
 */
REGC_API int regc_close(struct regc_library *lib);

/*
 * A domain for an io_uring of the caller's.  n_buffers fixed-buffer slots (1 to
 * 16384) are registered as a sparse table and belong to regc; 0 takes 4096.
 * Two libraries that give the same ring get the same domain.  The ring must
 * outlive the domain.  A ring with IORING_SETUP_SINGLE_ISSUER can be
 * deregistered only by its own thread: regc does so in that thread's next get or
 * put.
 * -EBUSY: the ring already has a buffer table.  -EBADF.  -EINVAL: not a ring.
 * -ENOMEM.  -ENOSPC: more than 16 domains in this process.
 */
REGC_API int regc_domain_uring(struct regc_library *lib, int ring_fd,
			       unsigned int n_buffers,
			       struct regc_domain **ret_dom);

/*
 * The same with a ring that regc makes (entries submission slots) and ends with
 * the domain; regc_domain_ring() gives it for submitting.
 */
REGC_API int regc_domain_uring_new(struct regc_library *lib, unsigned int entries,
				   unsigned int n_buffers,
				   struct regc_domain **ret_dom);

/* The ring of regc_domain_uring_new(), borrowed; NULL for any other domain. */
REGC_API struct io_uring *regc_domain_ring(struct regc_domain *dom);

/*
 * A domain for a protection domain (PD) of an RDMA NIC of the caller's; lkey and
 * rkey of a lease are its memory region's, handle is the struct ibv_mr *, which
 * stays regc's.  Two libraries that give the same PD get the same domain.
 * Borrowed: the PD and its device must outlive the domain.  ibv_dereg_mr() may be
 * called on any thread that calls regc and on regc's worker thread.
 * Remote write and remote atomic include local write, as libibverbs demands.
 * -EINVAL: pd NULL.  -ENOMEM.  -ENOSPC: more than 16 domains in this process.
 * -ENOTSUP: regc was built without libibverbs.
 */
REGC_API int regc_domain_verbs(struct regc_library *lib, struct ibv_pd *pd,
			       struct regc_domain **ret_dom);

/*
 * The same with a PD that regc makes: one for each device, shared by every
 * library of the process that asks for the device.  device is its name ("mlx5_0")
 * or its node GUID ("0002:c903:0012:3456"); NULL takes the first.  The PD and its
 * context end with the last domain that was made so.
 * -ENODEV: no such device, or it is gone.  -ENOMEM, -ENOSPC, -ENOTSUP: as above.
 * Any other: from libibverbs.
 */
REGC_API int regc_domain_verbs_open(struct regc_library *lib, const char *device,
				    struct regc_domain **ret_dom);

/*
 * The PD of a domain, for making queue pairs in; its context is pd->context.
 * Borrowed until the domain is closed; NULL for a domain of another kind.
 */
REGC_API struct ibv_pd *regc_domain_pd(struct regc_domain *dom);

/*
 * Says that the device of a domain is gone (IBV_EVENT_DEVICE_FATAL): voids the
 * registrations in it, for all libraries; gets in it fail with -ENODEV from then
 * on.  Leases may be put, and the domain is to be closed, as ever.
 * -ENOTUNIQ: dom was made before a fork.
 */
REGC_API int regc_domain_lost(struct regc_domain *dom);

/* A domain whose registrations cost nothing and mean nothing; for benchmarks. */
REGC_API int regc_domain_null(struct regc_library *lib,
			      struct regc_domain **ret_dom);

/*
 * A domain of the caller's own device.  ops is copied; ctx is passed to every
 * callback and names the domain: the same ops->reg and ctx again give the same
 * domain.
 */
REGC_API int regc_domain_custom(struct regc_library *lib,
				const struct regc_device_ops *ops, void *ctx,
				struct regc_domain **ret_dom);

/*
 * Closes a domain; NULL is allowed.  The last handle of a domain voids and
 * undoes its registrations.  -EBUSY: a lease of it is still out, or (seen only
 * if this library has leases in other domains) may be; the domain stays open, new
 * gets in it are refused with -ESHUTDOWN if this is its last handle, and closing
 * it again after the last put succeeds.
 */
REGC_API int regc_domain_close(struct regc_domain *dom);

/*
 * Leases a registration that covers [addr, addr + len) with at least access.
 * addr need not be aligned; len is 1 or more bytes.  Served from a larger live
 * region where there is one; else the pages of the range are registered, joined
 * with the regions of the same access that they overlap.  Never asks the device
 * for more access than some caller asked for the same pages.
 * If the memory cannot be tracked, a limit is reached or the broker does not
 * answer within 200 ms, the lease is uncached (flag REGC_LEASE_UNCACHED).
 * *ret_lease is written only on success.
 * -EINVAL: len 0, wrap-around, unknown access bit.  -EFAULT: not mapped, or
 * access beyond the mapping's.  -EDQUOT: hard limit of the space reached.
 * -E2BIG: more than the device takes in one registration.  -ENOMEM, -ENOSPC:
 * from the device, after eviction did not help.  -EDEADLK: called from a device
 * callback of the same range.  -ENOTUNIQ: dom was made before a fork.
 * -ESHUTDOWN: dom is being closed.  -ENODEV: see regc_domain_lost().  Any other:
 * from the device.
 */
REGC_API int regc_get(struct regc_domain *dom, const void *addr, size_t len,
		      unsigned int access, struct regc_lease *ret_lease);

/* regc_region_attr.flags */
enum {
	REGC_REGION_ON_DEMAND = 1 << 0,	 /* not pinned; where the device can */
	REGC_REGION_ZERO_BASED = 1 << 1, /* work requests count from 0 */
	REGC_REGION_IOVA = 1 << 2	 /* work requests count from iova */
};

/* What a cached registration cannot be; zero-initialise, then set size. */
struct regc_region_attr {
	size_t size;	 /* sizeof(struct regc_region_attr) */
	void *addr;	 /* NULL for a dmabuf */
	size_t len;	 /* bytes */
	uint64_t iova;	 /* with REGC_REGION_IOVA */
	uint64_t offset; /* in the dmabuf */
	uint32_t access; /* REGC_ACCESS_* */
	uint32_t flags;	 /* REGC_REGION_* */
	int32_t dmabuf;	 /* descriptor of a dmabuf if addr is NULL; borrowed */
	uint32_t reserved;
};

/*
 * Registers exactly one range in a verbs domain, for this lease alone: with
 * addresses of its own, on demand, or of a dmabuf.  The lease is uncached, and
 * charged to the hard limit.
 * -EOPNOTSUPP: not a verbs domain, or the device cannot.  -EINVAL: attr bad.  Any
 * other as regc_get().
 */
REGC_API int regc_get_region(struct regc_domain *dom,
			     const struct regc_region_attr *attr,
			     struct regc_lease *ret_lease);

/*
 * regc_get() in n domains (1 to 16) at once, all or nothing; ret_leases has n
 * elements.
 */
REGC_API int regc_get_many(struct regc_domain *const *doms, unsigned int n,
			   const void *addr, size_t len, unsigned int access,
			   struct regc_lease *ret_leases);

/* Ends a lease.  In a child of fork, a lease of the parent is ignored. */
REGC_API void regc_put(struct regc_lease *lease);

/*
 * 1: the registration is still valid for new leases; 0: its memory changed or it
 * was evicted, and it goes away with the last put.  Always 1 if uncached.
 */
REGC_API int regc_lease_ok(const struct regc_lease *lease);

/*
 * The range that the registration of a lease covers, page aligned.  -ENOTUNIQ: a
 * lease of the parent's, in a child of fork.
 */
REGC_API int regc_lease_range(const struct regc_lease *lease, uint64_t *ret_start,
			      uint64_t *ret_len);

/*
 * 1 if a get would be a hit now, 0 if not, or -errno as regc_get().  Takes no
 * lease and registers nothing.
 */
REGC_API int regc_query(struct regc_domain *dom, const void *addr, size_t len,
			unsigned int access);

/*
 * Voids every registration of the process that overlaps [addr, addr + len), in
 * all domains and for all libraries; for memory that changes in a way no monitor
 * sees.  Registrations under lease go with their last put.  -EINVAL: wrap-around.
 */
REGC_API int regc_invalidate(struct regc_library *lib, const void *addr,
			     size_t len);

/*
 * Tells a library that has a cache of its own what regc's hooks see: fn is called
 * before a range of the address space goes away or loses its pages, in the thread
 * that does it, inside libc's function.  One fn a library; NULL ends it, though a
 * call in another thread may be under way still.  fn must not allocate or free
 * memory by libc, change mappings by libc, wait for anything that another thread
 * may hold while it does so, or call regc; it stays in a child of fork.  Raw system
 * calls are not told.  regc_close() ends it as well.
 * -ENOTSUP: there are no hooks, since the process is not in fast mode.
 */
typedef void regc_change_fn(void *arg, void *addr, size_t len);
REGC_API int regc_on_change(struct regc_library *lib, regc_change_fn *fn,
			    void *arg);

/* ---- transfers: protect until complete; regc_transfer(3) ---------------- */

/*
 * From regc_transfer_begin() to regc_transfer_complete() the pages of a buffer
 * are closed to the program by the hardware's own page protection: to writers
 * while it is sent, to everybody while it is received.  The program keeps
 * running; an access that conflicts waits, or is given a copy, or is reported.
 * Order: regc_get(), regc_transfer_begin(), post to the device,
 * regc_transfer_posted(); when the device is done regc_transfer_complete(), then
 * regc_put().
 */
enum {
	REGC_SEND = 1,	 /* the device reads: writes conflict */
	REGC_RECEIVE = 2 /* the device writes: reads and writes conflict */
};

/* What happens to an access that conflicts. */
enum {
	REGC_POLICY_BLOCK = 1, /* it waits until the transfer is complete */
	REGC_POLICY_COPY = 2,  /* send, private memory: the writer gets a copy of
	                          the page at once, the device keeps the old one;
	                          where that cannot be it waits */
	REGC_POLICY_REPORT = 3 /* it goes on, the transfer is marked damaged */
};

/* Which pages of a buffer that does not fill its first and last page. */
enum {
	REGC_EDGES_INNER = 1, /* the pages that are all of the buffer; of a send
	                         the other bytes are kept and compared at
	                         completion (damaged, if they changed) */
	REGC_EDGES_WHOLE = 2  /* every page that has a byte of it: what else is
	                         there waits as well */
};

/* What happens to a begin that conflicts with a transfer under way. */
enum {
	REGC_CONFLICT_REFUSE = 1, /* -EBUSY */
	REGC_CONFLICT_QUEUE = 2,  /* waits for it, at most limit_ms: -ETIMEDOUT */
	REGC_CONFLICT_ALLOW = 3	  /* goes on: the two know of each other */
};

#define REGC_NO_LIMIT UINT32_MAX

/*
 * How to protect; zero-initialise, then set size.  0 in a field means the
 * library's default (regc_transfer_defaults()), which is block, inner, refuse and
 * 30,000 ms.
 */
struct regc_transfer_attr {
	size_t size;
	uint32_t policy;   /* REGC_POLICY_* */
	uint32_t edges;    /* REGC_EDGES_* */
	uint32_t conflict; /* REGC_CONFLICT_* */
	uint32_t limit_ms; /* longest wait of one access, 1 to 2^31, or
	                      REGC_NO_LIMIT; then what waits goes on, and the
	                      transfer is marked timed out */
};

/*
 * A transfer that was begun.  Owned by the caller, who may copy it; completed or
 * aborted once, by any thread.  A child of fork has none: -ESTALE.
 */
struct regc_transfer {
	uint64_t id; /* never 0, never the same again in this process */
	uint32_t slot;
	uint32_t reserved;
};

/* regc_transfer_info.state */
enum {
	REGC_TRANSFER_COMPLETE = 0, /* or aborted: it is over */
	REGC_TRANSFER_ARMED = 1,
	REGC_TRANSFER_IN_FLIGHT = 2
};

/* regc_transfer_info.flags: what happened to it so far */
enum {
	REGC_TRANSFER_BLOCKED = 1 << 0,	  /* an access had to wait */
	REGC_TRANSFER_COPIED = 1 << 1,	  /* a writer got a copy of a page */
	REGC_TRANSFER_DAMAGED = 1 << 2,	  /* an access went through: the data may
	                                     be torn */
	REGC_TRANSFER_TIMED_OUT = 1 << 3, /* a wait reached limit_ms */
	REGC_TRANSFER_DETACHED = 1 << 4,  /* memory of it was unmapped, discarded or
	                                     moved: the device has the old pages */
	REGC_TRANSFER_ABORTED = 1 << 5,
	REGC_TRANSFER_WEAK = 1 << 6,	  /* protected by mprotect(2): threads wait,
	                                     system calls get EFAULT */
	REGC_TRANSFER_OPEN = 1 << 7	  /* no page could be or had to be closed */
};

struct regc_transfer_info {
	size_t size;	     /* set by the caller */
	uint64_t start, end; /* the bytes, half-open */
	uint32_t direction;  /* REGC_SEND, REGC_RECEIVE */
	uint32_t state;
	uint32_t flags;
	uint32_t n_blocked;  /* accesses that had to wait */
	uint64_t begun_ns;   /* CLOCK_MONOTONIC */
	uint64_t blocked_ns; /* from the first that waited until now or the end */
	uint64_t n_through;  /* accesses that went through */
	uint64_t addr;	     /* of the last that conflicted, 0: none */
	uint32_t tid;	     /* of its thread, 0: unknown */
	uint32_t reserved;
	char library[32];    /* that began it */
};

/*
 * Begins a transfer of [addr, addr + len) and closes its pages.  lease covers the
 * range, is kept until after completion, and serves no other transfer meanwhile.
 * attr may be NULL.
 * Costs one system call per call; no round trip to the broker.
 * Any error: nothing is protected, do not post (or copy the data first).
 * -EINVAL: len 0, wrap-around, direction, attr, or outside of lease.  -EBUSY: it
 * conflicts with a transfer under way (regc_in_flight() tells whose), or
 * its edge lies on a page that a receive keeps closed.
 * -ETIMEDOUT: it did so for limit_ms.  -ESTALE: the memory changed since the
 * lease was taken: put it and get again.  -ENOSPC: 4094 transfers are under way.
 * -ENOTCONN: no broker was ever there.  -ENOTSUP: the memory can be protected in
 * no way, and the policy is not to report.  -ENOTUNIQ: lease of a fork's parent.
 */
REGC_API int regc_transfer_begin(const struct regc_lease *lease, const void *addr,
				 size_t len, unsigned int direction,
				 const struct regc_transfer_attr *attr,
				 struct regc_transfer *ret);

/* The device has it: armed becomes in flight.  -ESTALE: it is over. */
REGC_API int regc_transfer_posted(const struct regc_transfer *t);

/*
 * The device is done: opens the pages that no other transfer covers, and wakes who
 * waits.  ret (or NULL) says what happened; ret->size is set by the caller.
 * regc_transfer_abort() is the same for one that the device never had or dropped.
 * -ESTALE: it is over already.  -EINVAL: ret->size.
 */
REGC_API int regc_transfer_complete(const struct regc_transfer *t,
				    struct regc_transfer_info *ret);
REGC_API int regc_transfer_abort(const struct regc_transfer *t,
				 struct regc_transfer_info *ret);

/* A state right now, of any transfer of this process; a lock-free read. */
REGC_API int regc_transfer_state(const struct regc_transfer *t,
				 struct regc_transfer_info *ret);

/* One of a group. */
struct regc_transfer_part {
	const struct regc_lease *lease;
	const void *addr;
	size_t len;
};

/*
 * n buffers at once, all or none; ret has n elements.  Errors as
 * regc_transfer_begin(); while it waits in a queue none of them is begun.
 */
REGC_API int regc_transfer_begin_many(const struct regc_transfer_part *parts,
				      unsigned int n, unsigned int direction,
				      const struct regc_transfer_attr *attr,
				      struct regc_transfer *ret);
/* The first error, after all n were tried; ret is NULL or n elements. */
REGC_API int regc_transfer_posted_many(const struct regc_transfer *t,
				       unsigned int n);
REGC_API int regc_transfer_complete_many(const struct regc_transfer *t,
					 unsigned int n,
					 struct regc_transfer_info *ret);

/*
 * Transfers of any library under way in [addr, addr + len): their number, of which
 * the first max are in ret (each with its size set by the caller); max may be 0.
 * Lock-free, no system call.  -EINVAL.
 */
REGC_API int regc_in_flight(struct regc_library *lib, const void *addr, size_t len,
			    struct regc_transfer_info *ret, unsigned int max);

/*
 * Waits until none is, at most timeout_ms (negative: without limit): 0, or
 * -ETIMEDOUT.
 */
REGC_API int regc_transfer_wait(struct regc_library *lib, const void *addr,
				size_t len, int timeout_ms);

/* What 0 in an attr means for lib from now on; 0 in attr: as it is.  -EINVAL. */
REGC_API int regc_transfer_defaults(struct regc_library *lib,
				    const struct regc_transfer_attr *attr);

/*
 * While an access waits for a transfer of lib, a thread of regc calls progress
 * again and again: it should poll lib's completion queue and complete what is
 * done.  Returns: >0 something was done, 0 nothing.  It may block, but then the
 * wait ends by limit_ms only.  NULL takes it away, and returns when no call is
 * under way (-EDEADLK: from inside of one, which is then the last).
 */
REGC_API int regc_progress(struct regc_library *lib, int (*progress)(void *arg),
			   void *arg);

/* regc_alloc() flags */
enum {
	REGC_ALLOC_HUGE = 1 << 0 /* of 2 MiB pages, where the system has them free,
	                            else ordinary ones */
};

/*
 * Memory for buffers: zeroed, page aligned, on a sealed memfd of its own, where a
 * receive makes readers and writers wait, system calls too.  bytes is rounded up
 * to pages.  Freed by regc_free() with the same bytes; not shared with a child of
 * fork, who must not use it.  -EINVAL: bytes 0, flags.  -ENOMEM, -EMFILE.
 */
REGC_API int regc_alloc(struct regc_library *lib, size_t bytes, unsigned int flags,
			void **ret);
REGC_API int regc_free(struct regc_library *lib, void *mem, size_t bytes);

/*
 * 1: sending len bytes by copying them into a registered buffer costs less than
 * arming and disarming, on this machine; 0: it costs more.  Measured by the first
 * call, for some milliseconds.  huge: on huge pages.
 */
REGC_API int regc_copy_is_cheaper(struct regc_library *lib, size_t len, int huge);

/* Fills *ret up to ret->size, which the caller set.  -EINVAL: size too small. */
REGC_API int regc_stats(struct regc_library *lib, struct regc_stats *ret);
REGC_API int regc_status(struct regc_library *lib, struct regc_status *ret);

#ifdef __cplusplus
}
#endif

#endif
