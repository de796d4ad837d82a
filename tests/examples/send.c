/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Zero-copy sends from fixed buffers, one after the other on each connection.
 *
 * io_uring does not order two sends on one stream: while the first waits for room
 * the second may take it.  So a message is given to the ring when the socket has
 * taken all of the one before.
 *
 * A send has two completions: the first says that the socket has taken the data,
 * the second (the notification, IORING_CQE_F_NOTIF) that nobody reads them any
 * more, which for TCP is when the peer has acknowledged them.
 */
#include <errno.h>
#include <sys/socket.h>

#include "tests/examples/example.h"

enum { PART_HEAD = 1, PART_DATA = 2, PART_MASK = 3 };

static struct io_uring_sqe *next_sqe(struct ex_queue *q)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(q->ring);

	if (!sqe)
		ex_die("the submission queue is full", 0);
	return sqe;
}

static void post(struct ex_queue *q, struct ex_send *s)
{
	struct io_uring_sqe *sqe;

	if (s->head) {
		sqe = next_sqe(q);
		io_uring_prep_send(sqe, q->fd, s->head, s->head_len,
				   MSG_WAITALL | MSG_NOSIGNAL | MSG_MORE);
		io_uring_sqe_set_data64(sqe, (uintptr_t)s | PART_HEAD);
		sqe->flags |= IOSQE_IO_LINK;
		q->n_cqes++;
	}
	sqe = next_sqe(q);
	io_uring_prep_send_zc_fixed(sqe, q->fd, s->data, s->len,
				    MSG_WAITALL | MSG_NOSIGNAL, 0,
				    s->lease.lkey);
	io_uring_sqe_set_data64(sqe, (uintptr_t)s | PART_DATA);
	q->n_cqes++;
	ex_must("io_uring_submit", io_uring_submit(q->ring));
	if (q->posted)
		q->posted(s);
}

void ex_queue_add(struct ex_queue *q, struct ex_send *s)
{
	s->next = NULL;
	s->sent = s->done = false;
	if (q->first)
		q->last->next = s;
	else
		q->first = s;
	q->last = s;
	if (q->first == s)
		post(q, s);
}

static void is_done(struct ex_queue *q, struct ex_send *s)
{
	s->done = true;
	if (q->done)
		q->done(s);
}

void ex_queue_take(struct ex_queue *q, const struct io_uring_cqe *cqe)
{
	uint64_t data = io_uring_cqe_get_data64(cqe);
	struct ex_send *s = (struct ex_send *)(uintptr_t)(data & ~(uint64_t)PART_MASK);
	size_t want = (data & PART_MASK) == PART_HEAD ? s->head_len : s->len;

	q->n_cqes--;
	if (cqe->flags & IORING_CQE_F_NOTIF) {
		is_done(q, s);
		return;
	}
	if (cqe->res < 0 || (size_t)cqe->res != want)
		ex_die("a send ended early", cqe->res < 0 ? cqe->res : -EIO);
	if ((data & PART_MASK) == PART_HEAD)
		return;
	if (cqe->flags & IORING_CQE_F_MORE)
		q->n_cqes++;
	s->sent = true;
	q->first = s->next;
	if (q->first)
		post(q, q->first);
	if (!(cqe->flags & IORING_CQE_F_MORE))
		is_done(q, s);
}

unsigned int ex_queue_reap(struct ex_queue *q, bool wait)
{
	struct io_uring_cqe *cqe, copy;
	unsigned int n = 0;
	int r;

	for (;;) {
		r = wait && !n ? io_uring_wait_cqe(q->ring, &cqe) :
				 io_uring_peek_cqe(q->ring, &cqe);
		if (r == -EAGAIN)
			return n;
		if (r == -EINTR)
			continue;
		ex_must("io_uring_wait_cqe", r);
		copy = *cqe;
		io_uring_cqe_seen(q->ring, cqe);
		ex_queue_take(q, &copy);
		n++;
	}
}
