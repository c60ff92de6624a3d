/* SPDX-License-Identifier: MIT */
/*
 * Posting, moving and completing. A send is copied into the ring as soon as there is room, posted
 * receive or not; it *completes* once the receiver has told a receive for it. A receive is filled
 * from the ring in whichever of post and poll comes later. The completions stay with the requests:
 * polling a completion queue collects them from its queue pairs.
 */
#include "fabric_error.h"
#include "fabric_ring.h"
#include "fabric_state.h"

#include <errno.h>
#include <string.h>

/* Copying in pieces lets the other side copy out meanwhile. */
#define DATA_PIECE (32u * 1024u)

static uint64_t data_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void data_set(_Atomic uint64_t *counter, uint64_t value) {
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static struct fabric_wqe *data_slot(const struct fabric_queue *queue, uint64_t number) {
    return &queue->slots[number % queue->depth];
}

static uint32_t data_frames(uint32_t length) {
    return length == 0 ? 1 : (length - 1) / FABRIC_FRAME + 1;
}

/* ------------------------------------------------------------------ sending */

/* A fresh look at what the peer has taken and posted. */
static void data_look(struct fabric_qp *qp) {
    uint64_t tail, posted;

    if (qp->far == NULL) {
        return;
    }
    tail = atomic_load_explicit(&qp->far->tail, memory_order_acquire);
    posted = atomic_load_explicit(&qp->far->posted, memory_order_acquire);
    if (fabric_connect_is_seen(qp)) {
        data_set(&qp->tail_seen, tail);
        data_set(&qp->posted_seen, posted);
    }
}

static uint64_t data_room(struct fabric_qp *qp, uint64_t wanted) {
    uint64_t room = FABRIC_RING_SIZE - (qp->head - data_get(&qp->tail_seen));

    if (room < wanted) {
        data_look(qp);
        room = FABRIC_RING_SIZE - (qp->head - data_get(&qp->tail_seen));
    }
    return room;
}

/* Puts the header into the ring. False: no room, or the request is wrong. */
static bool data_open(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    struct fabric_message message;
    const struct fabric_fault *fault;

    if (wqe->has_memory && fabric_mr_bytes(qp->device, qp->base.pd, wqe, false) == NULL) {
        qp->is_blocked = true;
        return false;
    }
    if (data_room(qp, FABRIC_UNIT) < FABRIC_UNIT) {
        return false;
    }
    fault = fabric_fault_next(qp->device);
    wqe->turn = qp->turn;
    qp->fault = fault;
    qp->n_copied = 0;
    qp->is_open = true;
    if (fault != NULL && fault->kind == FABRIC_FAULT_DROP) {
        qp->n_copied = wqe->length;
        return true;
    }
    memset(&message, 0, sizeof message);
    message.number = qp->turn++;
    message.length = wqe->length;
    message.status = fault != NULL && fault->kind == FABRIC_FAULT_STATUS ? fault->status : 0;
    fabric_ring_put(qp->ring, qp->head, &message, sizeof message);
    qp->head += FABRIC_UNIT;
    return true;
}

static void data_flip(struct fabric_qp *qp, const struct fabric_wqe *wqe, uint32_t n_bytes) {
    uint64_t bit, byte;

    if (qp->fault == NULL || qp->fault->kind != FABRIC_FAULT_FLIP || wqe->length == 0) {
        return;
    }
    bit = qp->fault->bit % ((uint64_t)wqe->length * 8);
    byte = bit / 8;
    if (byte >= qp->n_copied && byte < qp->n_copied + (uint64_t)n_bytes) {
        uint64_t at = (qp->head + byte - qp->n_copied) % FABRIC_RING_SIZE;

        qp->ring[at] = (uint8_t)(qp->ring[at] ^ (1u << (bit % 8)));
    }
}

/* Copies as much of one send as there is room for. True: all of it is in the ring. */
static bool data_stage(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    const uint8_t *source = (const uint8_t *)(uintptr_t)wqe->address;

    if (!qp->is_open && !data_open(qp, wqe)) {
        return false;
    }
    while (qp->n_copied < wqe->length) {
        uint32_t n_left = wqe->length - qp->n_copied;
        uint32_t n_bytes = n_left < DATA_PIECE ? n_left : DATA_PIECE;
        uint64_t room = data_room(qp, fabric_ring_padded(n_bytes));

        if (room < fabric_ring_padded(n_bytes)) {
            n_bytes = (uint32_t)room; /* whole units, less than what is left */
        }
        if (n_bytes == 0) {
            break;
        }
        fabric_ring_put(qp->ring, qp->head, source + qp->n_copied, n_bytes);
        data_flip(qp, wqe, n_bytes);
        qp->head += fabric_ring_padded(n_bytes);
        qp->n_copied += n_bytes;
        fabric_ring_publish(qp->own, qp->head);
    }
    if (qp->n_copied < wqe->length) {
        return false;
    }
    fabric_ring_publish(qp->own, qp->head);
    qp->is_open = false;
    return true;
}

void fabric_data_complete(struct fabric_qp *qp) {
    struct fabric_queue *sq = &qp->sq;
    uint64_t done = data_get(&sq->done);
    bool is_fresh = false;

    while (done < sq->moved) {
        if (data_slot(sq, done)->turn < data_get(&qp->posted_seen)) {
            done++;
        } else if (!is_fresh) {
            is_fresh = true;
            data_look(qp);
        } else {
            break;
        }
    }
    data_set(&sq->done, done);
}

void fabric_data_send(struct fabric_qp *qp) {
    struct fabric_queue *sq = &qp->sq;
    uint64_t posted = data_get(&sq->posted);

    if (qp->base.state != IBV_QPS_RTS) {
        return;
    }
    while (sq->moved < posted && !qp->is_blocked && data_stage(qp, data_slot(sq, sq->moved))) {
        sq->moved++;
    }
    fabric_data_complete(qp);
    if (qp->is_blocked && data_get(&sq->done) == sq->moved) {
        data_slot(sq, sq->moved)->status = IBV_WC_LOC_PROT_ERR;
        sq->moved++;
        data_set(&sq->done, sq->moved);
        fabric_qp_fail(qp);
    }
}

/* ---------------------------------------------------------------- receiving */

/* Joins the message in front to the oldest receive. Returns the status if they do not fit. */
static enum ibv_wc_status data_match(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    const struct fabric_message *message = &qp->incoming;

    if (data_frames(message->length) != wqe->frames || message->length > wqe->length) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (wqe->has_memory && fabric_mr_bytes(qp->device, qp->base.pd, wqe, true) == NULL) {
        return IBV_WC_LOC_PROT_ERR;
    }
    return IBV_WC_SUCCESS;
}

static void data_finish_receive(struct fabric_qp *qp, enum ibv_wc_status status) {
    struct fabric_wqe *wqe = data_slot(&qp->rq, qp->rq.moved);

    wqe->status = status;
    wqe->byte_len = qp->incoming.length;
    qp->is_receiving = false;
    qp->rq.moved++;
    data_set(&qp->rq.done, qp->rq.moved);
    if (status != IBV_WC_SUCCESS) {
        fabric_qp_fail(qp);
    }
}

/* Takes the next header out of the ring. False: nothing there, nothing posted, or an error. */
static bool data_begin_receive(struct fabric_qp *qp, uint64_t head) {
    uint64_t tail = data_get(&qp->tail);
    enum ibv_wc_status status;

    if (qp->rq.moved == data_get(&qp->rq.posted) || head - tail < FABRIC_UNIT ||
        qp->taken >= atomic_load_explicit(&qp->far->limit, memory_order_relaxed)) {
        return false;
    }
    fabric_ring_get(qp->far_ring, tail, &qp->incoming, sizeof qp->incoming);
    if (qp->incoming.number != qp->taken) {
        return false; /* not the ring that it was: the peer is gone */
    }
    status = data_match(qp, data_slot(&qp->rq, qp->rq.moved));
    if (status != IBV_WC_SUCCESS) {
        data_finish_receive(qp, status);
        return false;
    }
    data_set(&qp->tail, tail + FABRIC_UNIT);
    qp->is_receiving = true;
    qp->n_received = 0;
    return true;
}

/* Copies what has come of the current message. True: it is complete. */
static bool data_take(struct fabric_qp *qp, uint64_t head) {
    uint8_t *target = (uint8_t *)(uintptr_t)data_slot(&qp->rq, qp->rq.moved)->address;
    uint32_t n_left = qp->incoming.length - qp->n_received;

    while (n_left > 0) {
        uint64_t tail = data_get(&qp->tail);
        uint64_t n_there = head - tail;
        uint32_t n_bytes = n_left < DATA_PIECE ? n_left : DATA_PIECE;

        if (n_there < n_bytes) {
            n_bytes = (uint32_t)n_there;
        }
        if (n_bytes == 0) {
            return false;
        }
        fabric_ring_get(qp->far_ring, tail, target + qp->n_received, n_bytes);
        qp->n_received += n_bytes;
        n_left -= n_bytes;
        tail += fabric_ring_padded(n_bytes);
        data_set(&qp->tail, tail);
        if (n_left > 0) {
            atomic_store_explicit(&qp->own->tail, tail, memory_order_release);
        }
    }
    qp->taken++;
    atomic_store_explicit(&qp->own->taken, qp->taken, memory_order_relaxed);
    atomic_store_explicit(&qp->own->tail, data_get(&qp->tail), memory_order_release);
    return true;
}

void fabric_data_receive(struct fabric_qp *qp) {
    uint64_t head;

    if (qp->far_ring == NULL || (qp->base.state != IBV_QPS_RTS && qp->base.state != IBV_QPS_RTR)) {
        return;
    }
    for (;;) {
        /* Acquire pairs with the release of the sender; after it the serial of a reused end shows.
         */
        head = atomic_load_explicit(&qp->far->head, memory_order_acquire);
        if (atomic_load_explicit(&qp->far->serial, memory_order_acquire) != qp->far_serial) {
            return;
        }
        if ((!qp->is_receiving && !data_begin_receive(qp, head)) || !data_take(qp, head)) {
            return;
        }
        data_finish_receive(qp, (enum ibv_wc_status)qp->incoming.status);
        if (qp->base.state == IBV_QPS_ERR) {
            return;
        }
    }
}

/* ------------------------------------------------------------------ posting */

static struct fabric_qp *data_qp(struct ibv_qp *qp) {
    return (struct fabric_qp *)(void *)qp;
}

static void data_attach(struct fabric_qp *qp) {
    fabric_state_lock();
    fabric_connect_attach(qp);
    fabric_state_unlock();
}

/* Appends one request. Returns 0, EINVAL or ENOMEM. */
static int data_append(struct fabric_queue *queue, uint64_t wr_id, const struct ibv_sge *sge,
                       int n_sge) {
    uint64_t number = data_get(&queue->posted);
    struct fabric_wqe *wqe = data_slot(queue, number);
    uint32_t length = n_sge == 1 ? sge->length : 0;
    uint32_t frames = data_frames(length);

    if (n_sge < 0 || n_sge > 1) {
        return fabric_fail(EINVAL, "a request of %d SGEs, at most 1 is possible", n_sge);
    }
    if (length > FABRIC_MAX_MESSAGE || frames > queue->depth) {
        return fabric_fail(EINVAL,
                           "a message of %u bytes (%u frames): at most %u bytes, and the "
                           "queue's depth of %u frames",
                           length, frames, FABRIC_MAX_MESSAGE, queue->depth);
    }
    if (queue->n_frames + frames > queue->depth) {
        return fabric_fail(ENOMEM, "the queue holds %u of %u frames, %u more do not fit",
                           queue->n_frames, queue->depth, frames);
    }
    *wqe = (struct fabric_wqe){.wr_id = wr_id,
                               .address = length > 0 ? sge->addr : 0,
                               .length = length,
                               .lkey = length > 0 ? sge->lkey : 0,
                               .frames = frames,
                               .has_memory = length > 0};
    queue->n_frames += frames;
    data_set(&queue->posted, number + 1);
    return 0;
}

static int data_check_send(const struct fabric_qp *qp, const struct ibv_send_wr *wr) {
    if (qp->base.state != IBV_QPS_RTS && qp->base.state != IBV_QPS_ERR) {
        return fabric_fail(EINVAL, "a send on queue pair %u in state %d, not RTS", qp->base.qp_num,
                           qp->base.state);
    }
    if (wr->opcode != IBV_WR_SEND) {
        return fabric_fail(EINVAL, "opcode %d: only IBV_WR_SEND is possible", (int)wr->opcode);
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        return fabric_fail(EINVAL, "inline data is not possible");
    }
    return 0;
}

int fabric_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) {
    struct fabric_qp *qp = data_qp(base);
    bool is_due, is_left;
    int rc = 0;

    fabric_lock_take(&qp->lock);
    for (; wr != NULL; wr = wr->next) {
        rc = data_check_send(qp, wr);
        if (rc == 0) {
            rc = data_append(&qp->sq, wr->wr_id, wr->sg_list, wr->num_sge);
        }
        if (rc != 0) {
            *bad_wr = wr;
            break;
        }
    }
    if (qp->base.state == IBV_QPS_ERR) {
        fabric_qp_fail(qp);
    }
    fabric_data_send(qp);
    is_due = fabric_connect_is_due(qp);
    /* Left to the NIC thread: what did not fit, and reminding a peer that has not looked yet. */
    is_left = qp->base.state == IBV_QPS_RTS &&
              (qp->sq.moved < data_get(&qp->sq.posted) ||
               (data_get(&qp->posted_seen) == 0 && !fabric_connect_is_seen(qp)));
    fabric_lock_drop(&qp->lock);
    if (is_due) {
        data_attach(qp);
    }
    if (is_left) {
        fabric_nic_kick();
    }
    return rc;
}

static void data_tell_receives(struct fabric_qp *qp) {
    if (qp->far_ring == NULL) {
        return; /* told when attached */
    }
    atomic_store_explicit(&qp->own->posted, data_get(&qp->rq.posted), memory_order_release);
    if (atomic_load_explicit(&qp->far->head, memory_order_relaxed) != data_get(&qp->tail)) {
        fabric_data_receive(qp);
    }
}

int fabric_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr) {
    struct fabric_qp *qp = data_qp(base);
    bool is_due;
    int rc = 0;

    fabric_lock_take(&qp->lock);
    for (; wr != NULL; wr = wr->next) {
        rc = qp->base.state == IBV_QPS_RESET
                 ? fabric_fail(EINVAL, "a receive on queue pair %u in state RESET", qp->base.qp_num)
                 : data_append(&qp->rq, wr->wr_id, wr->sg_list, wr->num_sge);
        if (rc != 0) {
            *bad_wr = wr;
            break;
        }
    }
    if (qp->base.state == IBV_QPS_ERR) {
        fabric_qp_fail(qp);
    } else {
        data_tell_receives(qp);
    }
    is_due = fabric_connect_is_due(qp);
    fabric_lock_drop(&qp->lock);
    if (is_due) {
        data_attach(qp);
    }
    return rc;
}

/* ------------------------------------------------------------------ polling */

static bool data_may_have_received(const struct fabric_qp *qp) {
    uint64_t done = data_get(&qp->rq.done);

    return done != data_get(&qp->rq.polled) ||
           (qp->far_ring != NULL && data_get(&qp->rq.posted) != done &&
            data_get(&qp->far->head) != data_get(&qp->tail));
}

static bool data_may_have_sent(const struct fabric_qp *qp) {
    uint64_t done = data_get(&qp->sq.done);

    return done != data_get(&qp->sq.polled) ||
           (qp->far != NULL && data_get(&qp->sq.posted) != done &&
            (data_get(&qp->far->posted) != data_get(&qp->posted_seen) ||
             data_get(&qp->far->tail) != data_get(&qp->tail_seen)));
}

static int data_collect(struct fabric_qp *qp, struct fabric_queue *queue, enum ibv_wc_opcode opcode,
                        int n_entries, struct ibv_wc *wc) {
    uint64_t polled = data_get(&queue->polled);
    uint64_t done = data_get(&queue->done);
    int n = 0;

    for (; n < n_entries && polled < done; n++, polled++) {
        const struct fabric_wqe *wqe = data_slot(queue, polled);

        memset(&wc[n], 0, sizeof wc[n]);
        wc[n].wr_id = wqe->wr_id;
        wc[n].status = (enum ibv_wc_status)wqe->status;
        wc[n].opcode = opcode;
        wc[n].byte_len = wqe->byte_len;
        wc[n].qp_num = qp->base.qp_num;
        wc[n].src_qp = qp->attr.dest_qp_num;
        queue->n_frames -= wqe->frames;
    }
    data_set(&queue->polled, polled);
    return n;
}

static int data_poll_qp(struct fabric_qp *qp, const struct ibv_cq *cq, int n_entries,
                        struct ibv_wc *wc) {
    int n = 0;

    fabric_lock_take(&qp->lock);
    if (qp->base.recv_cq == cq) {
        fabric_data_receive(qp);
        n += data_collect(qp, &qp->rq, IBV_WC_RECV, n_entries, wc);
    }
    if (qp->base.send_cq == cq) {
        fabric_data_send(qp);
        n += data_collect(qp, &qp->sq, IBV_WC_SEND, n_entries - n, wc + n);
    }
    fabric_lock_drop(&qp->lock);
    return n;
}

static int data_poll(struct fabric_cq *cq, int n_entries, struct ibv_wc *wc, bool *is_due_p) {
    int n = 0;

    fabric_lock_take(&cq->lock);
    for (uint32_t i = 0; i < cq->n_qps && n < n_entries; i++) {
        uint32_t place = cq->first + i;
        struct fabric_qp *qp = cq->qps[place < cq->n_qps ? place : place - cq->n_qps];

        if (fabric_connect_is_due(qp)) {
            *is_due_p = true;
        }
        if ((qp->base.recv_cq == &cq->base && data_may_have_received(qp)) ||
            (qp->base.send_cq == &cq->base && data_may_have_sent(qp))) {
            n += data_poll_qp(qp, &cq->base, n_entries - n, wc + n);
        }
    }
    if (n > 0) {
        cq->first = cq->first + 1 < cq->n_qps ? cq->first + 1 : 0;
    }
    fabric_lock_drop(&cq->lock);
    return n;
}

int fabric_poll_cq(struct ibv_cq *base, int n_entries, struct ibv_wc *wc) {
    struct fabric_cq *cq = (struct fabric_cq *)(void *)base;
    bool is_due = false;
    int n = data_poll(cq, n_entries, wc, &is_due);

    if (is_due) {
        fabric_state_lock();
        for (struct fabric_qp *qp = fabric_state.qps; qp != NULL; qp = qp->next) {
            if (qp->base.send_cq == base || qp->base.recv_cq == base) {
                fabric_connect_attach(qp);
            }
        }
        fabric_state_unlock();
        if (n == 0) {
            n = data_poll(cq, n_entries, wc, &is_due);
        }
    }
    return n;
}
