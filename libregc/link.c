/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The broker, as the client sees it.
 *
 * Joining (init lock): Hello, Welcome, Attach, Attached as in control.proto.  The
 * first time makes the area, the userfaultfd and the slots, which stay for the
 * life of the process; a later broker gets the same ones.  Table and life page
 * are mapped at fixed windows, so that a new broker's replace the old ones at one
 * stroke and no pointer changes.
 *
 * Losing (L4): seen by the life word (the kernel writes it when the broker dies)
 * or by the end of the socket.  First rt_hot.life_word becomes a value that no
 * life word has, so no thread hits any more; then every slot is void.  Before a
 * new broker is believed everything of the old one was voided, and generations
 * of a new table are larger than any old one's.
 *
 * After joining only the guardian receives.  Anybody may send, under send_lock,
 * which is a leaf: nothing is taken while it is held.
 */
#include "libregc/link.h"
#include "libregc/runtime.h"
#include "libregc/transfer.h"
#include "libregc/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WINDOW_BYTES (RTAB_PAGE + rtab_table_bytes(RTAB_MAX_CAPACITY))

/* ---- sending ------------------------------------------------------------ */

int link_send(const Regc__Frame *frame, const int *fds, int n_fds)
{
	int r;

	rt_lock_take(&rt.wipe->send_lock);
	r = rt.sock < 0 ? -ENOTCONN :
			  regc_wire_send(rt.sock, frame, fds, n_fds, rt.scratch);
	rt_lock_drop(&rt.wipe->send_lock);
	return r;
}

bool link_broker_alive(void)
{
	return rtab_load_acquire(&rt.connected) &&
	       rtab_load_acquire(&rt.window->life.word) ==
		       rtab_load_relaxed(&rt.life_word);
}

void link_doorbell(void)
{
	uint64_t one = 1;
	int saved = errno;

	if (!rtab_load_relaxed(&rt.connected))
		return;
	/* B1: pairs with the broker's store of asleep and its look at the ring */
	rtab_fence_full();
	if (rtab_load_relaxed(&rt.window->life.asleep) &&
	    syscall(SYS_write, rtab_load_relaxed(&rt.doorbell), &one,
		    sizeof(one)) < 0) {
		/* EAGAIN: rung often enough already. */
	}
	errno = saved;
}

/*
 * Nobody waits for the broker to hear of a region: an event or an operator's
 * question makes it read the ring first.
 */
void link_doorbell_lazy(void)
{
	if (rtab_load_relaxed(&rt.connected) &&
	    rtab_load_relaxed(&rt.area.area->ring_head) -
			    rtab_load_relaxed(&rt.table.table->ring_tail) >=
		    RT_LAZY_RECORDS)
		link_doorbell();
}

uint32_t link_ring_room(void)
{
	uint64_t used = rtab_load_relaxed(&rt.area.area->ring_head) -
			rtab_load_acquire(&rt.table.table->ring_tail);

	return used < RTAB_N_RING ? (uint32_t)(RTAB_N_RING - used) : 0;
}

bool link_push(const struct rtab_request *request)
{
	if (!rtab_load_relaxed(&rt.connected))
		return true; /* nobody to tell; a new broker starts with none */
	return rtab_ring_push(rt.area.area,
			      rtab_load_acquire(&rt.table.table->ring_tail),
			      request);
}

/* ---- a broker that does not answer --------------------------------------- */

/* Differs whenever the broker did anything for this process; never 0. */
static uint64_t broker_progress(void)
{
	return 1 + rtab_load_acquire(&rt.table.table->ring_tail) +
	       rtab_load_acquire(&rt.table.table->events_read) +
	       rtab_load_acquire(&rt.wipe->budget_turn);
}

void link_set_stalled(void)
{
	rtab_store_relaxed(&rt.stall_mark, broker_progress());
}

bool link_stalled(void)
{
	uint64_t mark = rtab_load_relaxed(&rt.stall_mark);

	if (RTAB_LIKELY(!mark))
		return false;
	if (mark == broker_progress())
		return true;
	rtab_store_relaxed(&rt.stall_mark, 0);
	return false;
}

/* ---- budget ------------------------------------------------------------- */

bool link_need(uint64_t bytes, uint64_t regions)
{
	Regc__Need need = REGC__NEED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;
	uint32_t turn = rtab_load_acquire(&rt.wipe->budget_turn);

	need.bytes = bytes;
	need.regions = regions;
	need.ticket = rtab_fetch_add(&rt.next_ticket, 1) + 1;
	frame.body_case = REGC__FRAME__BODY_NEED;
	frame.need = &need;
	if (link_send(&frame, NULL, 0))
		return false;
	rt_futex_wait(&rt.wipe->budget_turn, turn, RT_WAIT_MS);
	if (rtab_load_acquire(&rt.wipe->budget_turn) != turn)
		return true;
	link_set_stalled();
	return false;
}

static void budget_turn(void)
{
	rtab_fetch_add(&rt.wipe->budget_turn, 1);
	rt_futex_wake(&rt.wipe->budget_turn);
}

static void on_grant(const Regc__Grant *grant)
{
	rt_cache_lock();
	rt.allow_bytes += grant->bytes;
	rt.allow_regions += grant->regions;
	rt.own_limit = false;
	rt_cache_unlock();
	budget_turn();
}

static void on_deny(const Regc__Deny *deny)
{
	rt_cache_lock();
	rt.own_limit = strncmp(deny->limit, "limit.space.", 12) == 0;
	rt_cache_unlock();
	budget_turn();
}

static uint64_t spare(uint64_t allow, uint64_t used, uint64_t want)
{
	return allow > used ? rtab_min_u64(allow - used, want) : 0;
}

void link_give_back(const struct rt_answer *answer)
{
	Regc__Released released = REGC__RELEASED__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	rt_cache_lock();
	released.bytes = spare(rt.allow_bytes, rt.used_bytes, answer->bytes);
	released.regions = spare(rt.allow_regions, rt.used_regions,
				 answer->regions);
	rt.allow_bytes -= released.bytes;
	rt.allow_regions -= released.regions;
	rt_cache_unlock();
	released.ticket = answer->ticket;
	frame.body_case = REGC__FRAME__BODY_RELEASED;
	frame.released = &released;
	link_send(&frame, NULL, 0);
}

static void on_reclaim(const Regc__Reclaim *reclaim)
{
	uint64_t bytes = 0, regions = 0;
	uint32_t cause = reclaim->cause < RTAB_N_CAUSES ? reclaim->cause :
							  RTAB_CAUSE_EVICTED;
	size_t i;

	rt_cache_lock();
	changes_consume();
	for (i = 0; i < reclaim->n_slots; i++) {
		uint32_t slot = reclaim->slots[i];

		if (slot >= rt.n_slots || rt.slots[slot].state != RT_LIVE ||
		    rt.slots[slot].busy ||
		    rtab_area_lease_count(&rt.area, slot, NULL))
			continue;
		bytes += rt.slots[slot].end - rt.slots[slot].start;
		regions++;
		slot_void(slot, cause);
	}
	rt_cache_unlock();
	/* What the victims held and what was asked for besides. */
	worker_give_back(reclaim->ticket, bytes + reclaim->bytes,
			 regions + reclaim->regions);
}

static void on_voided(const Regc__Voided *voided)
{
	size_t i;

	rt_cache_lock();
	for (i = 0; i < voided->n_slots; i++) {
		uint32_t slot = voided->slots[i];

		if (slot < rt.n_slots && rt.slots[slot].state == RT_LIVE &&
		    !rt.slots[slot].busy && !slot_is_live(slot))
			slot_void(slot, voided->cause);
	}
	rt_cache_unlock();
	worker_wake();
}

int link_receive(void)
{
	Regc__Frame *frame;
	int r = regc_wire_recv(rt.wire, rt.sock, &frame);

	if (r)
		return r;
	switch (frame->body_case) {
	case REGC__FRAME__BODY_GRANT:
		on_grant(frame->grant);
		return 0;
	case REGC__FRAME__BODY_DENY:
		on_deny(frame->deny);
		return 0;
	case REGC__FRAME__BODY_RECLAIM:
		on_reclaim(frame->reclaim);
		return 0;
	case REGC__FRAME__BODY_VOIDED:
		on_voided(frame->voided);
		return 0;
	case REGC__FRAME__BODY_FAULT:
		if (frame->fault->missing)
			faults_on_missing(frame->fault->addr);
		else
			faults_on_access(frame->fault->addr, frame->fault->minor,
					 frame->fault->tid, true);
		return 0;
	case REGC__FRAME__BODY_RESCAN:
		rt_cache_lock();
		retire_rescan(RTAB_CAUSE_ALL_VOID, false);
		rt_cache_unlock();
		worker_wake();
		return 0;
	default:
		return 0; /* of a later minor version */
	}
}

/* ---- losing ------------------------------------------------------------- */

void link_lost(bool force)
{
	uint32_t slot;

	rt_cache_lock();
	if (!rt.connected || (!force && link_broker_alive())) {
		rt_cache_unlock();
		return;
	}
	rtab_store_release(&rt_hot.life_word, RT_NO_BROKER);
	rtab_store_release(&rt.connected, false);
	rtab_area_log_change(rt.area.area, 0, UINT64_MAX,
			     RTAB_CAUSE_BROKER_LOST);
	for (slot = 0; slot < rt.n_slots; slot++)
		if (rt.slots[slot].state == RT_LIVE && !rt.slots[slot].busy)
			slot_void(slot, RTAB_CAUSE_BROKER_LOST);
	rtab_store_relaxed(&rt.change_cursor,
			   rtab_load_acquire(&rt.area.area->change_seq));
	rt_set_mode(RTAB_MODE_OFF, "no broker: it was lost");
	faults_broker_lost();
	rt_cache_unlock();
	budget_turn();
}

/* ---- descriptors -------------------------------------------------------- */

static int forget_socket(void)
{
	int sock;

	rt_lock_take(&rt.wipe->send_lock);
	sock = rt.sock;
	rtab_store_release(&rt.sock, -1);
	rt_lock_drop(&rt.wipe->send_lock);
	return sock;
}

/*
 * Threads may be about to ring, so the number of the doorbell is never closed:
 * it would be another file's by then.  A new one takes the old one's number.
 */
static int set_doorbell(int fd)
{
	int r = 0;

	if (fd < 0)
		return -EPROTO;
	if (rt.doorbell < 0) {
		rtab_store_release(&rt.doorbell, fd);
		return 0;
	}
	if (dup3(fd, rt.doorbell, O_CLOEXEC) < 0)
		r = -errno;
	close(fd);
	return r;
}

/*
 * Only the guardian closes a socket that it polls: after a close by another
 * thread the same number might be a file of the application's.  Without the init
 * lock: whoever joins holds it and may wait for an event, in the self-test, that
 * only the guardian is left to read.
 */
void link_close_socket(void)
{
	int sock = forget_socket();

	if (sock >= 0) {
		/* A child of fork may have it open still. */
		shutdown(sock, SHUT_RDWR);
		close(sock);
	}
}

/*
 * The end of a socket with which joining failed.  From go_live() on (given) it is
 * the guardian's, if there is one, which sees its end and closes it.
 */
static void end_socket(int sock, bool given)
{
	if (!given) {
		close(sock);
	} else if (!rt.guardian_runs) {
		link_close_socket();
	} else {
		rt_lock_take(&rt.wipe->send_lock);
		if (rt.sock == sock)
			shutdown(sock, SHUT_RDWR);
		rt_lock_drop(&rt.wipe->send_lock);
	}
}

/* ---- joining ------------------------------------------------------------ */

static int windows_init(void)
{
	int r = 0;

	if (!rt.window)
		rt.window = rtab_raw_mmap(NULL, WINDOW_BYTES, PROT_READ,
					  MAP_PRIVATE | MAP_ANONYMOUS |
						  MAP_NORESERVE,
					  -1, 0, &r);
	if (!rt.window)
		return r;
	rt.wire = rtab_raw_mmap(NULL, sizeof(*rt.wire) + REGC_WIRE_MAX_BYTES,
				PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &r);
	if (!rt.wire)
		return r;
	rt.scratch = (uint8_t *)(rt.wire + 1);
	return 0;
}

static int send_hello(int sock)
{
	Regc__Hello hello = REGC__HELLO__INIT;
	Regc__Frame frame = REGC__FRAME__INIT;

	hello.version_min = REGC_WIRE_VERSION;
	hello.version_max = REGC_WIRE_VERSION;
	hello.group = rt.asked_group;
	hello.program = program_invocation_short_name;
	hello.mode = rt.asked_mode;
	hello.want_uffd_device = rt.uffd < 0;
	hello.capacity = rt.attached ? rt.area.capacity : 0;
	frame.body_case = REGC__FRAME__BODY_HELLO;
	frame.hello = &hello;
	return regc_wire_send(sock, &frame, NULL, 0, rt.scratch);
}

static int recv_kind(int sock, int wait_ms, int kind, Regc__Frame **ret)
{
	int r = regc_wire_recv_wait(rt.wire, sock, wait_ms, ret);

	if (r)
		return r;
	if ((*ret)->body_case == REGC__FRAME__BODY_ERROR) {
		rt_set_mode(RTAB_MODE_OFF, "refused by the broker: %s",
			    (*ret)->error->text);
		return -ECONNREFUSED;
	}
	return (int)(*ret)->body_case == kind ? 0 : -EPROTO;
}

static int map_life(int fd)
{
	struct rtab_life *life;
	int r;

	r = rtab_segment_check(fd, 0, sizeof(*life), NULL);
	if (r)
		return r;
	life = rtab_raw_mmap(&rt.window->life, RTAB_PAGE, PROT_READ,
			     MAP_SHARED | MAP_FIXED, fd, 0, &r);
	if (!life)
		return r;
	rtab_raw_madvise(life, RTAB_PAGE, MADV_DONTFORK);
	if (life->magic != RTAB_LIFE_MAGIC || life->major != RTAB_MAJOR)
		return -EPROTO;
	return 0;
}

/* Everything that outlives brokers; once a process. */
static int area_init(uint32_t capacity, int dev_fd)
{
	char why[sizeof(rt.why)] = "";
	int r;

	r = rtab_area_new(&rt.area, capacity, (uint32_t)getpid(), &rt.area_fd);
	if (r)
		return r;
	rtab_raw_madvise(rt.area.area, rt.area.bytes, MADV_DONTFORK);
	/* A child of fork does not take its parent's transfers for its own. */
	rt.area.area->transfer_ids = rt.attach << 40;
	r = slots_init(capacity);
	if (!r)
		r = rtab_writer_init(&rt.watch, 0, RT_WATCH_CAPACITY);
	if (r) {
		rtab_area_unmap(&rt.area);
		return r;
	}
	rtab_raw_madvise(rt.watch.view.table, rt.watch.view.bytes, MADV_DONTFORK);
	rt.maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	monitor_uffd_open(dev_fd, why, sizeof(why));
	rtab_store_release(&rt.attached, true);
	if (rt.uffd < 0)
		rt_set_mode(RTAB_MODE_OFF, "%s", why);
	return 0;
}

/* Hooks before the broker is told, since Attach says how it came out. */
static void choose_mode(uint32_t wanted)
{
	char why[sizeof(rt.why)] = "";
	uint32_t mask = 0;

	if (rt.uffd < 0)
		return; /* the reason is there already */
	if (rt.fence_err) {
		rt_set_mode(RTAB_MODE_OFF, "membarrier: %s",
			    strerror(-rt.fence_err));
		return;
	}
	if (wanted == REGC_MODE_OFF) {
		rt_set_mode(RTAB_MODE_OFF, "switched off in the broker");
		return;
	}
	if (wanted == REGC_MODE_STRICT) {
		rt_set_mode(RTAB_MODE_STRICT, "asked for");
		return;
	}
	if (monitor_hooks_install(why, sizeof(why)) ||
	    monitor_hooks_selftest(&mask, why, sizeof(why))) {
		rt_set_mode(RTAB_MODE_STRICT, "no hooks: %.*s", (int)sizeof(rt.why) - 16, why);
	} else {
		rt_set_mode(RTAB_MODE_FAST, "hooks and userfaultfd work");
	}
	rt.area.area->hook_mask = mask;
}

static int attach(int sock, int wait_ms)
{
	Regc__Attach msg = REGC__ATTACH__INIT;
	Regc__Frame frame = REGC__FRAME__INIT, *reply;
	int fds[2] = { rt.area_fd, rt.uffd };
	int r;

	msg.mode = rtab_load_relaxed(&rt.mode);
	msg.why = rt.why;
	msg.has_uffd = rt.uffd >= 0;
	frame.body_case = REGC__FRAME__BODY_ATTACH;
	frame.attach = &msg;
	r = regc_wire_send(sock, &frame, fds, rt.uffd >= 0 ? 2 : 1, rt.scratch);
	if (!r)
		r = recv_kind(sock, wait_ms, REGC__FRAME__BODY_ATTACHED, &reply);
	if (r)
		return r;
	rt.allow_bytes = reply->attached->bytes;
	rt.allow_regions = reply->attached->regions;
	rt.own_limit = false;
	return 0;
}

/*
 * A table is where the last one was and nearly always as large: nothing changes.
 * Where it is not, a thread that searches at this moment finds any slot, and
 * believes none of them before it has compared the life word and generations.
 */
static void use_table(const struct rtab_view *now)
{
	struct rtab_view *view = &rt.table;

	if (memcmp(view, now, sizeof(*view)) == 0)
		return;
	rtab_store_relaxed(&view->table, now->table);
	rtab_store_relaxed(&view->gens, now->gens);
	rtab_store_relaxed(&view->records, now->records);
	rtab_store_relaxed(&view->index.seq, now->index.seq);
	rtab_store_relaxed(&view->index.classes, now->index.classes);
	rtab_store_relaxed(&view->index.nodes, now->index.nodes);
	rtab_store_relaxed(&view->index.n_nodes, now->index.n_nodes);
	rtab_store_relaxed(&view->index.capacity, now->index.capacity);
	rtab_store_relaxed(&view->bytes, now->bytes);
}

static int welcome(int sock, int wait_ms, uint32_t *ret_mode)
{
	const Regc__Welcome *msg;
	Regc__Frame *frame;
	struct rtab_view table;
	int r, fd, dev_fd = -1, life_fd = -1;

	r = recv_kind(sock, wait_ms, REGC__FRAME__BODY_WELCOME, &frame);
	if (r)
		return r;
	msg = frame->welcome;
	fd = regc_wire_take_fd(rt.wire, 0);
	life_fd = regc_wire_take_fd(rt.wire, 1);
	r = set_doorbell(regc_wire_take_fd(rt.wire, 2));
	if (msg->has_uffd_device)
		dev_fd = regc_wire_take_fd(rt.wire, 3);
	*ret_mode = msg->mode;
	rt.space = msg->space;
	rt.hard_bytes = msg->hard_bytes;
	rt.max_region_bytes = msg->max_region_bytes;
	snprintf(rt.group, sizeof(rt.group), "%s", msg->group);
	if (!r && (fd < 0 || life_fd < 0))
		r = -EPROTO;
	if (!r)
		r = rtab_view_map(&table, fd, &rt.window->table);
	if (!r) {
		use_table(&table);
		rtab_raw_madvise(table.table, table.bytes, MADV_DONTFORK);
		r = map_life(life_fd);
	}
	if (!r && !rt.attached)
		r = area_init(table.index.capacity, dev_fd);
	if (!r && rt.area.capacity < table.index.capacity)
		r = -EPROTO;
	if (fd >= 0)
		close(fd);
	if (life_fd >= 0)
		close(life_fd);
	if (dev_fd >= 0)
		close(dev_fd);
	return r;
}

/* Now the table may be believed. */
static void go_live(int sock)
{
	rt_cache_lock();
	rtab_store_release(&rt.sock, sock);
	rt.broker_pid = rt.window->life.broker_pid;
	/* Records of the last broker's time are nobody's business. */
	rtab_store_release(&rt.area.area->ring_head,
			   rt.table.table->ring_tail);
	slots_start_over();
	rtab_store_relaxed(&rt.change_cursor,
			   rtab_load_acquire(&rt.area.area->change_seq));
	library_show_all();
	rtab_store_relaxed(&rt.stall_mark, 0);
	rtab_store_release(&rt.connected, true);
	rt_cache_unlock();
}

static int join(int sock, int wait_ms, bool *ret_given)
{
	uint32_t wanted;
	char why[sizeof(rt.why)];
	int r;

	r = send_hello(sock);
	if (!r)
		r = welcome(sock, wait_ms, &wanted);
	if (r)
		return r;
	rt.life_word = rtab_load_acquire(&rt.window->life.word);
	choose_mode(wanted);
	r = attach(sock, wait_ms);
	if (r)
		return r;
	*ret_given = true;
	go_live(sock);
	r = guardian_start();
	if (!r)
		r = worker_start();
	if (!r && rt.mode != RTAB_MODE_OFF &&
	    monitor_uffd_selftest(why, sizeof(why)))
		rt_set_mode(RTAB_MODE_OFF, "userfaultfd: %.*s", (int)sizeof(rt.why) - 16, why);
	if (r)
		return r;
	/* Cache lock: monitor_hooks_check() may be making the mode strict. */
	rt_cache_lock();
	if (rt.mode != RTAB_MODE_OFF) {
		/* Nobody hits yet; whoever does, sees the probe to make. */
		rtab_store_relaxed(&rt_hot.probe_fd,
				   rt.mode == RTAB_MODE_STRICT ? rt.uffd : -1);
		rtab_store_release(&rt_hot.life_word, rt.life_word);
	}
	rt_cache_unlock();
	return 0;
}

int link_join(int wait_ms)
{
	bool given = false;
	int sock, r = 0;

	rt.last_join_ns = rtab_now_ns();
	if (rt.connected) {
		if (link_broker_alive())
			return 0;
		link_lost(false);
	}
	if (rtab_load_relaxed(&rt.sock) >= 0) { /* the guardian has not closed it yet */
		changes_wake_guardian();
		return -EAGAIN;
	}
	if (rt.asked_off) {
		rt_set_mode(RTAB_MODE_OFF, "asked for");
		return 0;
	}
	if (!rt.wire)
		r = windows_init();
	if (r)
		return r;
	r = regc_wire_connect(rt.socket_path[0] ? rt.socket_path : NULL, &sock,
			      NULL, 0);
	if (r) {
		rt_set_mode(RTAB_MODE_OFF, "no broker: %s", strerror(-r));
		return r;
	}
	r = join(sock, wait_ms, &given);
	if (r) {
		if (r != -ECONNREFUSED)
			rt_set_mode(RTAB_MODE_OFF, "joining the broker: %s",
				    strerror(-r));
		link_lost(true);
		end_socket(sock, given);
	}
	return r;
}

static bool too_early(void)
{
	uint64_t ms = rtab_max_u64(rtab_load_relaxed(&rt.rejoin_ms), RT_REJOIN_MS);

	return rtab_now_ns() - rtab_load_relaxed(&rt.last_join_ns) < ms * 1000000;
}

void link_rejoin(void)
{
	uint32_t ms = 0;

	if (too_early())
		return;
	monitor_hooks_resolve();
	/* Another thread is at it: this one goes on without. */
	if (!rt_lock_try(&rt.wipe->init_lock))
		return;
	if (!link_broker_alive() && !too_early()) {
		/* A broker that is stopped costs RT_WAIT_MS, so not too often. */
		if (link_join(RT_WAIT_MS))
			ms = (uint32_t)rtab_min_u64(RT_REJOIN_MAX_MS,
						    2 * rtab_max_u64(rt.rejoin_ms,
								     RT_REJOIN_MS));
		rtab_store_relaxed(&rt.rejoin_ms, ms);
		rtab_store_relaxed(&rt.last_join_ns, rtab_now_ns());
	}
	rt_lock_drop(&rt.wipe->init_lock);
}
