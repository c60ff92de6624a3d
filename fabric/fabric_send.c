/* SPDX-License-Identifier: MIT */
/*
 * The sending half. A request is opened (its memory, its receive and the cable are looked at, and
 * its header goes into the ring), then its bytes are copied as there is room. When it completes is
 * a matter of the connection:
 *
 * - unreliable, `no_receive` = wait: it is copied whether a receive is posted or not, and completes
 *   when the receiver has told one for it;
 * - unreliable otherwise: it leaves when a receive for it is known, or is dropped after a while;
 * - reliable: it leaves when a receive for it is known, and completes when the peer has taken it.
 *
 * So where receives may be missing a message never stands in the way of those behind it, and the
 * ring carries the answers to READs too.
 */
#include "fabric_cable.h"
#include "fabric_ring.h"
#include "fabric_state.h"

#include <string.h>

#define SEND_ENDLESS_RETRY 7u /* as a number of retries: for ever */
#define SEND_UNSEEN_NS     1000000000u

static uint32_t send_frames(uint32_t length) {
    return length == 0 ? 1 : (length - 1) / FABRIC_FRAME + 1;
}

/* A fresh look at what the peer has taken and posted. */
static void send_look(struct fabric_qp *qp) {
    uint64_t tail, posted, taken;

    if (qp->far == NULL) {
        return;
    }
    tail = atomic_load_explicit(&qp->far->tail, memory_order_acquire);
    posted = atomic_load_explicit(&qp->far->posted, memory_order_acquire);
    taken = atomic_load_explicit(&qp->far->taken, memory_order_acquire);
    if (fabric_connect_is_seen(qp)) {
        fabric_set(&qp->tail_seen, tail);
        fabric_set(&qp->posted_seen, posted);
        fabric_set(&qp->taken_seen, taken);
    }
}

static uint64_t send_room(struct fabric_qp *qp, uint64_t wanted) {
    uint64_t room = FABRIC_RING_SIZE - (qp->head - fabric_get(&qp->tail_seen));

    if (room < wanted) {
        send_look(qp);
        room = FABRIC_RING_SIZE - (qp->head - fabric_get(&qp->tail_seen));
    }
    return room;
}

/* ------------------------------------------------------------------ opening */

/* The request fails with status once everything before it is done. */
static bool send_block(struct fabric_qp *qp, struct fabric_wqe *wqe, enum ibv_wc_status status) {
    wqe->status = status;
    qp->is_blocked = true;
    return false;
}

static bool send_check_memory(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    unsigned access = wqe->kind == FABRIC_KIND_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

    if (wqe->is_checked) {
        return true;
    }
    for (uint32_t i = 0; i < wqe->n_sge; i++) {
        const struct ibv_sge *sge = &wqe->sges[i];

        if (sge->length > 0 &&
            !fabric_mr_allows(qp->device, qp->base.pd, sge->lkey, sge->addr, sge->length, access)) {
            return send_block(qp, wqe, IBV_WC_LOC_PROT_ERR);
        }
    }
    wqe->is_checked = true;
    return true;
}

static bool send_takes_receive(const struct fabric_wqe *wqe) {
    return wqe->kind == FABRIC_KIND_SEND ||
           (wqe->kind == FABRIC_KIND_WRITE && (wqe->flags & FABRIC_FLAG_IMMEDIATE) != 0);
}

/* The oldest send has no receive: waits, and in the end gives up. False: not to be opened yet. */
static bool send_without_receive(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    uint64_t now = fabric_now_ns();
    uint64_t waited, grace_ns;

    if (qp->lacking_since_ns == 0) {
        if (qp->is_reliable && !fabric_connect_is_seen(qp)) {
            return false; /* it has not told its receives yet */
        }
        qp->lacking_since_ns = now;
    }
    waited = now - qp->lacking_since_ns;
    if (qp->is_reliable) {
        if (qp->attr.rnr_retry < SEND_ENDLESS_RETRY && qp->far != NULL &&
            waited >= fabric_get(&qp->far->rnr_ns) * qp->attr.rnr_retry) {
            return send_block(qp, wqe, IBV_WC_RNR_RETRY_EXC_ERR);
        }
        return false;
    }
    /* A peer that is not there yet cannot have told its receives. */
    grace_ns = fabric_connect_is_seen(qp) ? qp->rules->drop_grace_ns : SEND_UNSEEN_NS;
    if (waited < grace_ns) {
        return false;
    }
    if (qp->rules->no_receive == FABRIC_NO_RECEIVE_DEAD) {
        qp->is_dead = true;
        return false;
    }
    wqe->is_lost = true;
    return true;
}

static bool send_check_receive(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    if (!qp->needs_credit || !send_takes_receive(wqe)) {
        return true;
    }
    if (qp->receive >= fabric_get(&qp->posted_seen)) {
        send_look(qp);
        if (qp->receive >= fabric_get(&qp->posted_seen) && !send_without_receive(qp, wqe)) {
            return false;
        }
    }
    qp->lacking_since_ns = 0;
    return true;
}

/* READs have a limit, and what is fenced waits for them. */
static bool send_check_reads(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    if (wqe->is_fenced && qp->n_reads > 0) {
        return false;
    }
    if (wqe->kind != FABRIC_KIND_READ) {
        return true;
    }
    if (qp->attr.max_rd_atomic == 0) {
        return send_block(qp, wqe, IBV_WC_LOC_QP_OP_ERR);
    }
    return qp->n_reads < qp->attr.max_rd_atomic;
}

static bool send_is_alone(const struct fabric_qp *qp) {
    return qp->peer_host == qp->device->host && qp->peer_device == qp->device->index;
}

/* Takes the cable for one message. False: it is down. */
static bool send_take_cable(struct fabric_qp *qp, struct fabric_wqe *wqe, uint32_t n_bytes) {
    struct fabric_device *device = qp->device;

    wqe->leaves_ns = 0;
    if (send_is_alone(qp)) {
        return true;
    }
    if (!fabric_cable_is_up_to(device, qp->peer_host, qp->peer_device)) {
        return false;
    }
    if (qp->rules->idle_death_ns != 0) {
        uint64_t now = fabric_now_ns();

        if (now - qp->carried_ns > qp->rules->idle_death_ns) {
            qp->is_dead = true;
            qp->is_deaf = true;
            return false;
        }
        qp->carried_ns = now;
    }
    wqe->leaves_ns = fabric_cable_reserve_to(device, qp->peer_host, qp->peer_device, n_bytes,
                                             send_frames(n_bytes));
    return true;
}

static void send_put_header(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    const struct fabric_fault *fault = qp->fault;
    struct fabric_message message;

    memset(&message, 0, sizeof message);
    message.number = qp->turn++;
    message.length = wqe->length;
    message.arrives_ns = wqe->leaves_ns;
    message.remote_address = wqe->remote_address;
    message.rkey = wqe->rkey;
    message.immediate = wqe->immediate;
    message.kind = wqe->kind;
    message.flags = wqe->flags;
    if (fault != NULL && fault->kind == FABRIC_FAULT_STATUS) {
        message.status = fault->status;
    } else if (fault != NULL && fault->kind == FABRIC_FAULT_DELAY) {
        message.arrives_ns += (message.arrives_ns == 0 ? fabric_now_ns() : 0) + fault->delay_ns;
    } else if (fault != NULL && fault->kind == FABRIC_FAULT_DROP) {
        /* Sent a second time when the time for an acknowledgement has passed. */
        message.arrives_ns += (message.arrives_ns == 0 ? fabric_now_ns() : 0) +
                              (UINT64_C(4096) << (qp->attr.timeout & 31));
    }
    fabric_ring_put(qp->ring, qp->head, &message, sizeof message);
    qp->head += FABRIC_UNIT;
    qp->receive += send_takes_receive(wqe) ? 1 : 0;
}

/* Begins a message. False: not yet, or the request is wrong. */
static bool send_open(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    uint32_t n_bytes = wqe->kind == FABRIC_KIND_READ ? 0 : wqe->length;

    if (!send_check_memory(qp, wqe) || !send_check_reads(qp, wqe) || !send_check_receive(qp, wqe) ||
        send_room(qp, FABRIC_UNIT) < FABRIC_UNIT || !send_take_cable(qp, wqe, n_bytes)) {
        return false;
    }
    qp->fault = qp->is_repeating ? NULL : fabric_fault_next(qp->device);
    qp->open = wqe;
    qp->n_copied = 0;
    if (!qp->is_repeating) {
        wqe->turn = qp->turn;
        wqe->receive = qp->receive;
    }
    if (qp->fault != NULL && qp->fault->kind == FABRIC_FAULT_DROP && !qp->is_reliable) {
        wqe->is_lost = true;
    }
    if (!wqe->is_lost) {
        send_put_header(qp, wqe);
    }
    if (wqe->is_lost || wqe->kind == FABRIC_KIND_READ) {
        qp->n_copied = wqe->length;
    }
    qp->n_reads += wqe->kind == FABRIC_KIND_READ ? 1 : 0;
    return true;
}

/* ------------------------------------------------------------------ copying */

static void send_flip(struct fabric_qp *qp, const struct fabric_wqe *wqe, uint32_t n_bytes) {
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

static void send_gather(struct fabric_qp *qp, const struct fabric_wqe *wqe, uint32_t n_bytes) {
    uint32_t done = 0;

    while (done < n_bytes) {
        uint32_t n = n_bytes - done;
        const uint8_t *source = fabric_wqe_at(wqe, qp->n_copied + done, &n);

        fabric_ring_put(qp->ring, qp->head + done, source, n);
        done += n;
    }
}

/* The end of a message: it is shown to the peer, which may have to be woken. */
static void send_publish(struct fabric_qp *qp, const struct fabric_wqe *wqe) {
    if (!qp->is_rung) {
        fabric_ring_publish(qp->own, qp->head);
        return;
    }
    atomic_store_explicit(&qp->own->head, qp->head, FABRIC_HEAD_ORDER_RUNG);
    if ((wqe->kind == FABRIC_KIND_WRITE || wqe->kind == FABRIC_KIND_READ) && qp->peer != NULL) {
        fabric_nic_ring(qp->peer); /* nobody over there needs to look for it */
    } else {
        fabric_data_ring(qp);
    }
}

static void send_close(struct fabric_qp *qp, const struct fabric_wqe *wqe) {
    uint32_t n_bytes = wqe->kind == FABRIC_KIND_READ ? 0 : wqe->length;

    qp->open = NULL;
    if (!send_is_alone(qp)) {
        fabric_cable_count_sent(qp->device, n_bytes, send_frames(n_bytes));
    }
    send_publish(qp, wqe);
}

/* A part of a large message is there: who has to be woken for the end copies meanwhile. */
static void send_wake_early(const struct fabric_qp *qp, const struct fabric_wqe *wqe) {
    if (wqe->kind == FABRIC_KIND_WRITE && qp->is_rung && qp->peer != NULL) {
        fabric_nic_ring(qp->peer);
    } else {
        fabric_data_ring(qp);
    }
}

/* Copies as much of one send as there is room for. True: all of it is in the ring. */
static bool send_stage(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    if (qp->open == NULL && !send_open(qp, wqe)) {
        return false;
    }
    while (qp->n_copied < wqe->length) {
        uint32_t n_left = wqe->length - qp->n_copied;
        uint32_t n_bytes = n_left < FABRIC_PIECE ? n_left : FABRIC_PIECE;
        uint64_t room = send_room(qp, fabric_ring_padded(n_bytes));

        if (room < fabric_ring_padded(n_bytes)) {
            n_bytes = (uint32_t)room; /* whole units, less than what is left */
        }
        if (n_bytes == 0) {
            return false;
        }
        send_gather(qp, wqe, n_bytes);
        send_flip(qp, wqe, n_bytes);
        qp->head += fabric_ring_padded(n_bytes);
        qp->n_copied += n_bytes;
        if (qp->n_copied < wqe->length) {
            fabric_ring_publish(qp->own, qp->head);
            send_wake_early(qp, wqe);
        }
    }
    send_close(qp, wqe);
    return true;
}

/* A message that arrives twice is sent twice, if there is a receive for the second one. */
static void send_repeat(struct fabric_qp *qp, struct fabric_wqe *wqe) {
    if (qp->fault == NULL || qp->fault->kind != FABRIC_FAULT_DUPLICATE || qp->is_reliable ||
        (qp->needs_credit && send_takes_receive(wqe) &&
         qp->receive >= fabric_get(&qp->posted_seen))) {
        qp->is_repeating = false;
        return;
    }
    qp->is_repeating = true;
}

/* ---------------------------------------------------------------- completing */

static bool send_is_finished(const struct fabric_qp *qp, const struct fabric_wqe *wqe) {
    if (qp->is_reliable) {
        return wqe->kind == FABRIC_KIND_READ ? wqe->is_answered
                                             : wqe->turn < fabric_get(&qp->taken_seen);
    }
    if (wqe->leaves_ns != 0 && fabric_now_ns() < wqe->leaves_ns) {
        return false;
    }
    return qp->needs_credit || wqe->receive < fabric_get(&qp->posted_seen);
}

/* What the peer has refused fails with what it said. */
static void send_take_refusal(struct fabric_qp *qp) {
    uint64_t refused;

    if (qp->far == NULL || fabric_get(&qp->sq.done) == qp->sq.moved) {
        return;
    }
    refused = atomic_load_explicit(&qp->far->refused, memory_order_acquire);
    if (refused != 0 && fabric_connect_is_seen(qp)) {
        fabric_queue_at(&qp->sq, fabric_get(&qp->sq.done))->status = (uint32_t)(refused & 0xff);
        fabric_data_show(qp, &qp->sq, fabric_get(&qp->sq.done) + 1);
        fabric_qp_fail(qp);
    }
}

void fabric_data_complete(struct fabric_qp *qp) {
    struct fabric_queue *sq = &qp->sq;
    uint64_t before = fabric_get(&sq->done);
    uint64_t done = before;
    bool is_fresh = false;

    while (done < sq->moved) {
        if (send_is_finished(qp, fabric_queue_at(sq, done))) {
            done++;
        } else if (!is_fresh) {
            is_fresh = true;
            send_look(qp);
        } else {
            break;
        }
    }
    if (done != before) {
        fabric_data_show(qp, sq, done);
    }
    fabric_set(&qp->due_ns, done < sq->moved ? fabric_queue_at(sq, done)->leaves_ns : 0);
    if (qp->is_reliable && qp->own != NULL) {
        fabric_set(&qp->own->noted, done == sq->moved ? qp->turn : fabric_queue_at(sq, done)->turn);
    }
}

/* What is next for the ring: answers first, then requests in their order. */
static struct fabric_wqe *send_next(struct fabric_qp *qp) {
    if (qp->open != NULL) {
        return qp->open;
    }
    if (qp->n_responded < qp->n_asked && !qp->is_repeating) {
        return &qp->responses[qp->n_responded % FABRIC_MAX_READS];
    }
    if (qp->base.state == IBV_QPS_RTS && qp->sq.moved < fabric_get(&qp->sq.posted) &&
        !qp->is_blocked) {
        return fabric_queue_at(&qp->sq, qp->sq.moved);
    }
    return NULL;
}

void fabric_data_send(struct fabric_qp *qp) {
    struct fabric_queue *sq = &qp->sq;
    struct fabric_wqe *wqe;

    if (!fabric_qp_is_receiving(qp) || qp->is_dead || qp->ring == NULL) {
        return;
    }
    while ((wqe = send_next(qp)) != NULL && send_stage(qp, wqe)) {
        if (wqe->kind == FABRIC_KIND_RESPONSE) {
            qp->n_responded++;
            continue;
        }
        send_repeat(qp, wqe);
        sq->moved += qp->is_repeating ? 0 : 1;
    }
    if (!fabric_qp_is_sending(qp)) {
        return;
    }
    fabric_data_complete(qp);
    if (qp->is_reliable) {
        send_take_refusal(qp);
    }
    if (qp->is_blocked && fabric_qp_is_sending(qp) && fabric_get(&sq->done) == sq->moved) {
        sq->moved++;
        fabric_data_show(qp, sq, sq->moved);
        fabric_qp_fail_sends(qp);
    }
}

uint64_t fabric_data_limit(struct fabric_qp *qp) {
    uint64_t posted = fabric_get(&qp->posted_seen);

    if (qp->needs_credit) {
        return qp->turn - (qp->open != NULL && !qp->open->is_lost ? 1 : 0);
    }
    return qp->turn < posted ? qp->turn : posted;
}

/* ------------------------------------------------------------------ waiting */

bool fabric_data_is_waiting(const struct fabric_qp *qp, uint64_t *at_p) {
    uint64_t posted = fabric_get(&qp->sq.posted);
    uint64_t done = fabric_get(&qp->sq.done);
    bool is_held = qp->held_ns != 0 && fabric_qp_is_receiving(qp);

    if (is_held && qp->held_ns < *at_p) {
        *at_p = qp->held_ns;
    }
    if (qp->is_dead) {
        return false;
    }
    if (fabric_qp_is_receiving(qp) && qp->n_responded < qp->n_asked) {
        return true;
    }
    if (!fabric_qp_is_sending(qp) || done == posted) {
        return is_held;
    }
    if (qp->is_rung && !qp->is_reliable && done < qp->sq.moved) {
        uint64_t leaves_ns = fabric_queue_at(&qp->sq, done)->leaves_ns;

        *at_p = leaves_ns != 0 && leaves_ns < *at_p ? leaves_ns : *at_p;
        return true;
    }
    return is_held || qp->is_reliable || qp->sq.moved < posted || !fabric_connect_is_seen(qp);
}

/* Whether an acknowledgement could come at all. */
static bool send_is_in_reach(const struct fabric_qp *qp) {
    const struct fabric_end *far = qp->far;

    if (far == NULL ||
        (!send_is_alone(qp) &&
         !fabric_cable_is_up_to(qp->device, qp->peer_host, qp->peer_device)) ||
        atomic_load_explicit(&far->is_ready, memory_order_acquire) == 0 ||
        atomic_load_explicit(&far->peer_qpn, memory_order_relaxed) != qp->base.qp_num ||
        atomic_load_explicit(&far->serial, memory_order_acquire) != qp->far_serial) {
        return false;
    }
    return !fabric_peer_is_dead(qp->peer);
}

void fabric_data_watch(struct fabric_qp *qp) {
    uint64_t done = fabric_get(&qp->sq.done);
    uint64_t now, since, limit_ns;
    unsigned n_tries = qp->attr.retry_cnt > 0 ? qp->attr.retry_cnt : 1;

    if (!qp->is_reliable || qp->base.state != IBV_QPS_RTS || done == fabric_get(&qp->sq.posted)) {
        qp->silent_since_ns = 0;
        return;
    }
    now = fabric_now_ns();
    if (qp->silent_since_ns == 0 || qp->watched != done) {
        qp->silent_since_ns = now;
        qp->watched = done;
    }
    if (send_is_in_reach(qp)) {
        qp->lost_since_ns = 0;
        return;
    }
    if (qp->lost_since_ns == 0) {
        qp->lost_since_ns = now;
    }
    since = qp->lost_since_ns > qp->silent_since_ns ? qp->lost_since_ns : qp->silent_since_ns;
    limit_ns = (UINT64_C(4096) << (qp->attr.timeout & 31)) * n_tries;
    if (qp->attr.timeout == 0 || now - since < limit_ns) {
        return; /* 0 is for ever */
    }
    fabric_queue_at(&qp->sq, done)->status = IBV_WC_RETRY_EXC_ERR;
    qp->sq.moved = qp->sq.moved > done ? qp->sq.moved : done + 1;
    fabric_data_show(qp, &qp->sq, done + 1);
    fabric_qp_fail(qp);
}
