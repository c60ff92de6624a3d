/* SPDX-License-Identifier: MIT */
/*
 * The receiving half: takes messages out of the peer's ring, in whichever of post, poll and the
 * NIC's round comes first. A SEND goes to the oldest receive, a WRITE to where its key allows it, a
 * READ becomes an answer that the sending half carries out, a RESPONSE goes to the oldest READ.
 *
 * What does not fit: on a reliable connection the sender is told and both queue pairs fail; on an
 * unreliable one that counts frames the receive fails; on another the message vanishes, and the
 * receive that the sender counts as used is told to it again.
 */
#include "fabric_cable.h"
#include "fabric_ring.h"
#include "fabric_state.h"

/* No event goes with it: the receive's completion tells. */
#define RECEIVE_NO_EVENT IBV_EVENT_CQ_ERR

static uint32_t receive_frames(uint32_t length) {
    return length == 0 ? 1 : (length - 1) / FABRIC_FRAME + 1;
}

static bool receive_takes_one(const struct fabric_message *message) {
    return message->kind == FABRIC_KIND_SEND ||
           (message->kind == FABRIC_KIND_WRITE && (message->flags & FABRIC_FLAG_IMMEDIATE) != 0);
}

/* ----------------------------------------------------------------- refusing */

/* Ends the oldest receive. */
static void receive_complete(struct fabric_qp *qp, enum ibv_wc_status status) {
    const struct fabric_message *message = &qp->incoming;
    struct fabric_wqe *wqe = fabric_queue_at(&qp->rq, qp->rq.moved);

    wqe->status = status;
    wqe->byte_len = message->length;
    wqe->immediate = message->immediate;
    wqe->flags = message->flags;
    wqe->wc_opcode = message->kind == FABRIC_KIND_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    qp->rq.moved++;
    fabric_data_show(qp, &qp->rq, qp->rq.moved);
}

/* Tells the sender of a reliable connection, and fails. */
static void receive_refuse(struct fabric_qp *qp, enum ibv_wc_status theirs,
                           enum ibv_event_type event) {
    if (qp->is_reliable) {
        atomic_store_explicit(&qp->own->refused, (qp->incoming.number + 1) << 8 | (unsigned)theirs,
                              memory_order_release);
        if (event != RECEIVE_NO_EVENT) {
            fabric_event_qp(qp, event);
        }
    }
    fabric_qp_fail(qp);
    fabric_data_ring(qp);
}

/* The message vanishes. */
static bool receive_drop(struct fabric_qp *qp) {
    qp->target = NULL;
    if (receive_takes_one(&qp->incoming)) {
        qp->n_spared++;
        atomic_store_explicit(&qp->own->posted, fabric_get(&qp->rq.posted) + qp->n_spared,
                              memory_order_release);
        qp->incoming.flags &= (uint8_t)~FABRIC_FLAG_IMMEDIATE;
    }
    return true;
}

/* ----------------------------------------------------------------- matching */

static bool receive_match_send(struct fabric_qp *qp) {
    const struct fabric_message *message = &qp->incoming;
    struct fabric_wqe *wqe = fabric_queue_at(&qp->rq, qp->rq.moved);

    if (message->length > wqe->length ||
        (qp->rules->counts_frames && receive_frames(message->length) != wqe->frames)) {
        if (!qp->is_reliable && !qp->rules->counts_frames) {
            return receive_drop(qp);
        }
        receive_complete(qp, IBV_WC_LOC_LEN_ERR);
        receive_refuse(qp, IBV_WC_REM_INV_REQ_ERR, RECEIVE_NO_EVENT);
        return false;
    }
    for (uint32_t i = 0; i < wqe->n_sge; i++) {
        const struct ibv_sge *sge = &wqe->sges[i];

        if (sge->length > 0 && !fabric_mr_allows(qp->device, qp->base.pd, sge->lkey, sge->addr,
                                                 sge->length, IBV_ACCESS_LOCAL_WRITE)) {
            receive_complete(qp, IBV_WC_LOC_PROT_ERR);
            receive_refuse(qp, IBV_WC_REM_OP_ERR, RECEIVE_NO_EVENT);
            return false;
        }
    }
    qp->target = wqe;
    return true;
}

/* Whether the sender has the right to touch the memory that it names. */
static bool receive_may(struct fabric_qp *qp, unsigned access) {
    const struct fabric_message *message = &qp->incoming;

    return (qp->attr.qp_access_flags & access) != 0 &&
           (message->length == 0 ||
            fabric_mr_allows(qp->device, qp->base.pd, message->rkey, message->remote_address,
                             message->length, access));
}

static bool receive_match_write(struct fabric_qp *qp) {
    const struct fabric_message *message = &qp->incoming;
    struct fabric_wqe *target = &qp->written;

    if (!receive_may(qp, IBV_ACCESS_REMOTE_WRITE)) {
        if (!qp->is_reliable) {
            return receive_drop(qp);
        }
        receive_refuse(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        return false;
    }
    target->first = (struct ibv_sge){.addr = message->remote_address, .length = message->length};
    target->sges = &target->first;
    qp->target = target;
    return true;
}

static bool receive_match_read(struct fabric_qp *qp) {
    const struct fabric_message *message = &qp->incoming;
    struct fabric_wqe *response = &qp->responses[qp->n_asked % FABRIC_MAX_READS];

    if (!receive_may(qp, IBV_ACCESS_REMOTE_READ)) {
        receive_refuse(qp, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
        return false;
    }
    if (qp->n_asked - qp->n_responded >= qp->attr.max_dest_rd_atomic) {
        receive_refuse(qp, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
        return false;
    }
    *response = (struct fabric_wqe){
        .kind = FABRIC_KIND_RESPONSE,
        .first = {.addr = message->remote_address, .length = message->length},
        .length = message->length,
        .is_checked = true,
    };
    response->sges = &response->first;
    response->n_sge = 1;
    qp->n_asked++;
    qp->target = NULL;
    qp->incoming.length = 0; /* nothing of it follows in the ring */
    return true;
}

static bool receive_match_response(struct fabric_qp *qp) {
    uint64_t done = fabric_get(&qp->sq.done);

    qp->target = NULL;
    qp->read_turn = qp->read_turn > done ? qp->read_turn : done;
    for (; qp->read_turn < qp->sq.moved; qp->read_turn++) {
        struct fabric_wqe *wqe = fabric_queue_at(&qp->sq, qp->read_turn);

        if (wqe->kind == FABRIC_KIND_READ && !wqe->is_answered) {
            qp->target = wqe->length == qp->incoming.length ? wqe : NULL;
            return true;
        }
    }
    return true;
}

/* Finds out where the message in front goes. False: nowhere, and the queue pair has failed. */
static bool receive_match(struct fabric_qp *qp) {
    switch (qp->incoming.kind) {
    case FABRIC_KIND_SEND:
        return receive_match_send(qp);
    case FABRIC_KIND_WRITE:
        return receive_match_write(qp);
    case FABRIC_KIND_READ:
        return receive_match_read(qp);
    default:
        return receive_match_response(qp);
    }
}

/* ------------------------------------------------------------------- taking */

/* Whether the message in front has arrived. */
static bool receive_is_here(struct fabric_qp *qp) {
    uint64_t now;

    qp->held_ns = 0;
    if (qp->incoming.arrives_ns == 0 && qp->rules->idle_death_ns == 0) {
        return true;
    }
    now = fabric_now_ns();
    if (now < qp->incoming.arrives_ns) {
        qp->held_ns = qp->incoming.arrives_ns;
        return false;
    }
    qp->carried_ns = now;
    return true;
}

/*
 * Whether what was just read out of the ring was still there: a sender that lets go lowers its
 * limit before it gives the memory back, so who reads the limit behind the bytes sees it.
 */
static bool receive_was_valid(const struct fabric_qp *qp) {
    fabric_ring_fence();
    return qp->taken < fabric_get(&qp->far->limit) &&
           fabric_get(&qp->far->serial) == qp->far_serial;
}

/* Takes the next header out of the ring. False: nothing there, nothing posted, or an error. */
static bool receive_begin(struct fabric_qp *qp, uint64_t head) {
    uint64_t tail = fabric_get(&qp->tail);
    bool is_empty = qp->rq.moved == fabric_get(&qp->rq.posted);

    if ((is_empty && !qp->needs_credit) || head - tail < FABRIC_UNIT ||
        qp->taken >= fabric_get(&qp->far->limit)) {
        return false;
    }
    fabric_ring_get(qp->far_ring, tail, &qp->incoming, sizeof qp->incoming);
    if (qp->incoming.number != qp->taken || !receive_was_valid(qp)) {
        return false; /* not the ring that it was: the peer is gone */
    }
    if ((is_empty && receive_takes_one(&qp->incoming)) || !receive_is_here(qp) ||
        !receive_match(qp)) {
        return false;
    }
    fabric_set(&qp->tail, tail + FABRIC_UNIT);
    qp->is_receiving = true;
    qp->n_received = 0;
    return true;
}

static void receive_scatter(struct fabric_qp *qp, uint64_t tail, uint32_t n_bytes) {
    uint32_t done = 0;

    while (qp->target != NULL && done < n_bytes) {
        uint32_t n = n_bytes - done;
        uint8_t *target = fabric_wqe_at(qp->target, qp->n_received + done, &n);

        fabric_ring_get(qp->far_ring, tail + done, target, n);
        done += n;
    }
}

/* Tells the sender that the message is taken: what it was to do is done. */
static void receive_acknowledge(struct fabric_qp *qp) {
    struct fabric_end *own = qp->own;

    qp->taken++;
    atomic_store_explicit(&own->taken, qp->taken, memory_order_release);
    if (qp->is_rung) {
        atomic_store(&own->tail, fabric_get(&qp->tail));
        fabric_data_ring(qp);
    } else {
        atomic_store_explicit(&own->tail, fabric_get(&qp->tail), memory_order_release);
    }
}

/* There is room for more of a large message: an answer's sender is a thread that may nap. */
static void receive_wake_early(const struct fabric_qp *qp) {
    if (qp->incoming.kind == FABRIC_KIND_RESPONSE) {
        fabric_nic_ring(qp->peer);
    } else {
        fabric_data_ring(qp);
    }
}

/* Copies what has come of the current message. True: it is complete. */
static bool receive_take(struct fabric_qp *qp, uint64_t head) {
    uint32_t n_left = qp->incoming.length - qp->n_received;

    while (n_left > 0) {
        uint64_t tail = fabric_get(&qp->tail);
        uint64_t n_there = head - tail;
        uint32_t n_bytes = n_left < FABRIC_PIECE ? n_left : FABRIC_PIECE;

        if (n_there < n_bytes) {
            n_bytes = (uint32_t)n_there;
        }
        if (n_bytes == 0) {
            return false;
        }
        receive_scatter(qp, tail, n_bytes);
        qp->n_received += n_bytes;
        n_left -= n_bytes;
        tail += fabric_ring_padded(n_bytes);
        fabric_set(&qp->tail, tail);
        if (n_left > 0) {
            atomic_store_explicit(&qp->own->tail, tail, memory_order_release);
            receive_wake_early(qp);
        }
    }
    return true;
}

/* The message is all there: completes what it completes. */
static void receive_finish(struct fabric_qp *qp) {
    const struct fabric_message *message = &qp->incoming;
    enum ibv_wc_status status = (enum ibv_wc_status)message->status;
    bool takes_one = receive_takes_one(message) && qp->target != NULL;

    qp->is_receiving = false;
    fabric_cable_count_received(qp->device, message->length, receive_frames(message->length));
    if (message->kind == FABRIC_KIND_RESPONSE && qp->target != NULL) {
        qp->target->is_answered = true;
        qp->target->byte_len = message->length;
        qp->n_reads--;
    }
    if (takes_one) {
        receive_complete(qp, status);
    }
    if (status == IBV_WC_SUCCESS || !qp->is_reliable) {
        receive_acknowledge(qp);
    }
    if (status != IBV_WC_SUCCESS) {
        receive_refuse(qp, IBV_WC_REM_OP_ERR, RECEIVE_NO_EVENT);
    }
}

void fabric_data_receive(struct fabric_qp *qp) {
    uint64_t head;

    if (qp->far_ring == NULL || !fabric_qp_is_receiving(qp) || qp->is_deaf) {
        return;
    }
    for (;;) {
        /* Acquire pairs with the release of the sender; after it the serial of a reused end shows.
         */
        head = atomic_load_explicit(&qp->far->head, memory_order_acquire);
        if (atomic_load_explicit(&qp->far->serial, memory_order_acquire) != qp->far_serial ||
            (!qp->is_receiving && !receive_begin(qp, head)) || !receive_take(qp, head)) {
            break;
        }
        if (!receive_was_valid(qp)) {
            qp->is_receiving = false; /* never sent after all: its receive waits for another */
            break;
        }
        receive_finish(qp);
        if (qp->base.state == IBV_QPS_ERR) {
            break;
        }
    }
    if (qp->n_responded < qp->n_asked) {
        fabric_data_send(qp);
    }
}
