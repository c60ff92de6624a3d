/* SPDX-License-Identifier: MIT */
/*
 * Posting and polling. The completions stay with the requests: polling a completion queue collects
 * them from its queue pairs, after each of these has moved what can be moved. What a request does
 * when it moves is in fabric_send.c and fabric_receive.c.
 */
#include "fabric_cable.h"
#include "fabric_error.h"
#include "fabric_ring.h"
#include "fabric_state.h"

#include <errno.h>
#include <string.h>

static struct fabric_qp *data_qp(struct ibv_qp *qp) {
    return (struct fabric_qp *)(void *)qp;
}

static struct fabric_cq *data_cq(struct ibv_cq *cq) {
    return (struct fabric_cq *)(void *)cq;
}

static uint32_t data_frames(uint64_t length) {
    return length == 0 ? 1 : (uint32_t)((length - 1) / FABRIC_FRAME + 1);
}

static void data_attach(struct fabric_qp *qp) {
    fabric_state_lock();
    fabric_connect_attach(qp);
    fabric_state_unlock();
}

/* --------------------------------------------------------------- completions */

static bool data_is_silent(const struct fabric_wqe *wqe) {
    return wqe->is_silent && wqe->status == IBV_WC_SUCCESS;
}

/* How many completions wait to be polled; exact only where it may matter, above `limit`. */
static uint64_t data_n_there(const struct fabric_queue *queue, uint64_t limit) {
    uint64_t polled = fabric_get(&queue->polled);
    uint64_t shown = fabric_get(&queue->shown);
    uint64_t n = shown - polled;

    if (n > limit) {
        for (n = 0; polled < shown; polled++) {
            n += data_is_silent(fabric_queue_at(queue, polled)) ? 0 : 1;
        }
    }
    return n;
}

static void data_overrun(struct fabric_cq *cq) {
    if (atomic_exchange(&cq->is_dead, 1) == 0) {
        fabric_event_cq(cq);
    }
}

/* Whether one of the new completions is what an armed queue waits for. */
static bool data_is_solicited(const struct fabric_queue *queue, uint64_t from, uint64_t to) {
    for (; from < to; from++) {
        const struct fabric_wqe *wqe = fabric_queue_at(queue, from);

        if (wqe->status != IBV_WC_SUCCESS || (wqe->flags & FABRIC_FLAG_SOLICITED) != 0) {
            return true;
        }
    }
    return false;
}

void fabric_data_show(struct fabric_qp *qp, struct fabric_queue *queue, uint64_t done) {
    bool is_receiving = queue == &qp->rq;
    struct fabric_cq *cq = data_cq(is_receiving ? qp->base.recv_cq : qp->base.send_cq);
    uint64_t from = fabric_get(&queue->done);
    uint64_t shown = done;
    uint32_t armed;

    fabric_set(&queue->done, done);
    while (shown > from && data_is_silent(fabric_queue_at(queue, shown - 1))) {
        shown--;
    }
    if (shown == from) {
        return;
    }
    fabric_set(&queue->shown, shown);
    if (data_n_there(queue, (uint64_t)cq->base.cqe) > (uint64_t)cq->base.cqe) {
        data_overrun(cq);
    }
    if (cq->base.channel == NULL) {
        return;
    }
    armed = atomic_load(&cq->armed);
    if (armed == FABRIC_ARMED || (armed == FABRIC_ARMED_SOLICITED && is_receiving &&
                                  data_is_solicited(queue, from, shown))) {
        fabric_event_completion(cq);
    }
}

void fabric_data_ring(const struct fabric_qp *qp) {
    if (qp->is_rung && qp->far != NULL && atomic_load(&qp->far->rings_wanted) != 0) {
        fabric_nic_ring(qp->peer);
    }
}

/* ------------------------------------------------------------------ posting */

static int data_check_size(const struct fabric_qp *qp, const struct fabric_queue *queue,
                           uint64_t length, uint32_t frames) {
    if (length > qp->rules->max_message || frames > queue->depth) {
        return fabric_fail(EINVAL,
                           "a message of %llu bytes (%u frames): at most %u bytes, and the "
                           "queue's depth of %u frames",
                           (unsigned long long)length, data_frames(length), qp->rules->max_message,
                           queue->depth);
    }
    if (queue->n_frames + frames > queue->depth) {
        return fabric_fail(ENOMEM, "the queue holds %u of %u frames, %u more do not fit",
                           queue->n_frames, queue->depth, frames);
    }
    return 0;
}

/* Appends one request, not visible yet. Returns 0, EINVAL or ENOMEM. */
static int data_append(const struct fabric_qp *qp, struct fabric_queue *queue, uint64_t wr_id,
                       const struct ibv_sge *sges, int n_sge) {
    uint64_t number = fabric_get(&queue->posted) & queue->mask;
    struct fabric_wqe *wqe = &queue->slots[number];
    uint64_t length = 0;
    uint32_t frames;
    int rc;

    if (n_sge < 0 || (uint32_t)n_sge > queue->max_sge) {
        return fabric_fail(EINVAL, "a request of %d SGEs, at most %u are possible", n_sge,
                           queue->max_sge);
    }
    for (int i = 0; i < n_sge; i++) {
        length += sges[i].length;
    }
    frames = qp->rules->counts_frames ? data_frames(length) : 1;
    rc = data_check_size(qp, queue, length, frames);
    if (rc != 0) {
        return rc;
    }
    *wqe = (struct fabric_wqe){.wr_id = wr_id,
                               .length = (uint32_t)length,
                               .n_sge = (uint32_t)n_sge,
                               .frames = frames,
                               .is_checked = length == 0};
    if (n_sge <= 1) {
        wqe->first = n_sge == 1 ? *sges : wqe->first;
        wqe->sges = &wqe->first;
    } else {
        struct ibv_sge *row = queue->sges + number * queue->max_sge;

        memcpy(row, sges, (size_t)n_sge * sizeof *row);
        wqe->sges = row;
    }
    return 0;
}

static void data_commit(struct fabric_queue *queue) {
    uint64_t number = fabric_get(&queue->posted);

    queue->n_frames += fabric_queue_at(queue, number)->frames;
    fabric_set(&queue->posted, number + 1);
}

/* Inline data is the caller's again when the call returns. */
static int data_inline(struct fabric_queue *queue, struct fabric_wqe *wqe) {
    uint8_t *room = queue->inlined + (size_t)(wqe - queue->slots) * queue->max_inline;
    uint32_t done = 0;

    if (wqe->length > queue->max_inline) {
        return fabric_fail(EINVAL, "%u bytes inline, at most %u are possible", wqe->length,
                           queue->max_inline);
    }
    while (done < wqe->length) {
        uint32_t n = wqe->length - done;
        const uint8_t *source = fabric_wqe_at(wqe, done, &n);

        memcpy(room + done, source, n);
        done += n;
    }
    wqe->first = (struct ibv_sge){.addr = (uintptr_t)room, .length = wqe->length};
    wqe->sges = &wqe->first;
    wqe->n_sge = 1;
    wqe->is_checked = true;
    return 0;
}

/* The opcodes by what they are; false: not possible here. */
static bool data_opcode(const struct fabric_qp *qp, enum ibv_wr_opcode opcode,
                        struct fabric_wqe *wqe) {
    const struct fabric_rules *rules = qp->rules;

    switch (opcode) {
    case IBV_WR_SEND:
        wqe->wc_opcode = IBV_WC_SEND;
        wqe->kind = FABRIC_KIND_SEND;
        return true;
    case IBV_WR_SEND_WITH_IMM:
        wqe->wc_opcode = IBV_WC_SEND;
        wqe->kind = FABRIC_KIND_SEND;
        wqe->flags = FABRIC_FLAG_IMMEDIATE;
        return rules->has_immediate;
    case IBV_WR_RDMA_WRITE:
        wqe->wc_opcode = IBV_WC_RDMA_WRITE;
        wqe->kind = FABRIC_KIND_WRITE;
        return rules->has_rdma;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        wqe->wc_opcode = IBV_WC_RDMA_WRITE;
        wqe->kind = FABRIC_KIND_WRITE;
        wqe->flags = FABRIC_FLAG_IMMEDIATE;
        return rules->has_rdma && rules->has_immediate;
    case IBV_WR_RDMA_READ:
        wqe->wc_opcode = IBV_WC_RDMA_READ;
        wqe->kind = FABRIC_KIND_READ;
        return rules->has_rdma && qp->is_reliable;
    default:
        return false;
    }
}

static int data_check_send(const struct fabric_qp *qp, const struct ibv_send_wr *wr) {
    if (!fabric_qp_is_sending(qp) && qp->base.state != IBV_QPS_ERR &&
        qp->base.state != IBV_QPS_SQE) {
        return fabric_fail(EINVAL, "a send on queue pair %u in state %d, not RTS", qp->base.qp_num,
                           qp->base.state);
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0 && qp->rules->max_inline == 0) {
        return fabric_fail(EINVAL, "inline data is not possible");
    }
    return 0;
}

static int data_append_send(struct fabric_qp *qp, const struct ibv_send_wr *wr) {
    struct fabric_queue *sq = &qp->sq;
    struct fabric_wqe *wqe = fabric_queue_at(sq, fabric_get(&sq->posted));
    int rc = data_check_send(qp, wr);

    if (rc == 0) {
        rc = data_append(qp, sq, wr->wr_id, wr->sg_list, wr->num_sge);
    }
    if (rc != 0) {
        return rc;
    }
    if (!data_opcode(qp, wr->opcode, wqe)) {
        return fabric_fail(EINVAL, "opcode %d is not possible on queue pair %u of %s",
                           (int)wr->opcode, qp->base.qp_num, qp->device->base.name);
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        if (wqe->kind == FABRIC_KIND_READ) {
            return fabric_fail(EINVAL, "a READ cannot be inline");
        }
        rc = data_inline(sq, wqe);
    }
    if (qp->rules->has_immediate) {
        wqe->immediate = (wqe->flags & FABRIC_FLAG_IMMEDIATE) != 0 ? wr->imm_data : 0;
        wqe->flags |= (wr->send_flags & IBV_SEND_SOLICITED) != 0 ? FABRIC_FLAG_SOLICITED : 0;
        wqe->is_silent = !qp->rules->signals_always && qp->init.sq_sig_all == 0 &&
                         (wr->send_flags & IBV_SEND_SIGNALED) == 0;
        wqe->is_fenced = qp->is_reliable && (wr->send_flags & IBV_SEND_FENCE) != 0;
    }
    if (wqe->kind != FABRIC_KIND_SEND) {
        wqe->remote_address = wr->wr.rdma.remote_addr;
        wqe->rkey = wr->wr.rdma.rkey;
    }
    if (rc == 0) {
        data_commit(sq);
    }
    return rc;
}

/* Whether the NIC's thread has to go on: for what did not fit, for a peer that has not looked yet,
 * and for what has a time. */
static bool data_is_left(const struct fabric_qp *qp) {
    uint64_t at_ns = UINT64_MAX;

    if (qp->is_rung) {
        return fabric_data_is_waiting(qp, &at_ns);
    }
    return qp->base.state == IBV_QPS_RTS &&
           (qp->sq.moved < fabric_get(&qp->sq.posted) ||
            (fabric_get(&qp->posted_seen) == 0 && !fabric_connect_is_seen(qp)));
}

/* A request in a state that does nothing: it is flushed. */
static void data_flush(struct fabric_qp *qp) {
    if (qp->base.state == IBV_QPS_ERR) {
        fabric_qp_fail(qp);
    } else if (qp->base.state == IBV_QPS_SQE) {
        fabric_qp_fail_sends(qp);
    }
}

int fabric_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr) {
    struct fabric_qp *qp = data_qp(base);
    bool is_due, is_left;
    int rc = fabric_fault_call("ibv_post_send");

    if (rc != 0) {
        *bad_wr = wr;
        return rc;
    }
    fabric_lock_take(&qp->lock);
    for (; wr != NULL; wr = wr->next) {
        rc = data_append_send(qp, wr);
        if (rc != 0) {
            *bad_wr = wr;
            break;
        }
    }
    data_flush(qp);
    fabric_data_send(qp);
    is_due = fabric_connect_is_due(qp);
    is_left = data_is_left(qp);
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
    uint64_t posted = fabric_get(&qp->rq.posted) + qp->n_spared;

    if (qp->far_ring == NULL) {
        return; /* told when attached */
    }
    if (qp->is_rung) {
        atomic_store(&qp->own->posted, posted);
        fabric_data_ring(qp);
    } else {
        atomic_store_explicit(&qp->own->posted, posted, memory_order_release);
    }
    if (fabric_get(&qp->far->head) != fabric_get(&qp->tail)) {
        fabric_data_receive(qp);
    }
}

static int data_append_recv(struct fabric_qp *qp, const struct ibv_recv_wr *wr) {
    enum ibv_qp_state state = qp->base.state;
    int rc;

    if (state == IBV_QPS_RESET || (qp->rules->recv_before_rts_fails && state != IBV_QPS_RTS &&
                                   state != IBV_QPS_ERR && state != IBV_QPS_SQE)) {
        return fabric_fail(EINVAL, "a receive on queue pair %u in state %s", qp->base.qp_num,
                           state == IBV_QPS_RESET ? "RESET" : "before RTS");
    }
    if (qp->base.srq != NULL) {
        return fabric_fail(EINVAL, "queue pair %u takes its receives from a shared queue",
                           qp->base.qp_num);
    }
    rc = data_append(qp, &qp->rq, wr->wr_id, wr->sg_list, wr->num_sge);
    if (rc == 0) {
        fabric_queue_at(&qp->rq, fabric_get(&qp->rq.posted))->wc_opcode = IBV_WC_RECV;
        data_commit(&qp->rq);
    }
    return rc;
}

int fabric_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr) {
    struct fabric_qp *qp = data_qp(base);
    bool is_due;
    int rc = fabric_fault_call("ibv_post_recv");

    if (rc != 0) {
        *bad_wr = wr;
        return rc;
    }
    fabric_lock_take(&qp->lock);
    for (; wr != NULL; wr = wr->next) {
        rc = data_append_recv(qp, wr);
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

static bool data_has_arrivals(const struct fabric_qp *qp) {
    return qp->far_ring != NULL && fabric_get(&qp->far->head) != fabric_get(&qp->tail);
}

static bool data_may_have_received(const struct fabric_qp *qp) {
    uint64_t shown = fabric_get(&qp->rq.shown);

    return shown != fabric_get(&qp->rq.polled) ||
           ((qp->needs_credit || fabric_get(&qp->rq.posted) != shown) && data_has_arrivals(qp));
}

static bool data_may_have_sent(const struct fabric_qp *qp) {
    if (fabric_get(&qp->sq.shown) != fabric_get(&qp->sq.polled)) {
        return true;
    }
    if (qp->far == NULL || fabric_get(&qp->sq.posted) == fabric_get(&qp->sq.done)) {
        return false;
    }
    if (fabric_get(&qp->far->posted) != fabric_get(&qp->posted_seen) ||
        fabric_get(&qp->far->tail) != fabric_get(&qp->tail_seen) ||
        (fabric_get(&qp->due_ns) != 0 && fabric_now_ns() >= fabric_get(&qp->due_ns))) {
        return true;
    }
    return qp->needs_credit && (fabric_get(&qp->far->taken) != fabric_get(&qp->taken_seen) ||
                                fabric_get(&qp->far->refused) != 0 || data_has_arrivals(qp));
}

static void data_fill(const struct fabric_qp *qp, const struct fabric_wqe *wqe, struct ibv_wc *wc) {
    memset(wc, 0, sizeof *wc);
    wc->wr_id = wqe->wr_id;
    wc->status = (enum ibv_wc_status)wqe->status;
    wc->opcode = (enum ibv_wc_opcode)wqe->wc_opcode;
    wc->byte_len = wqe->byte_len;
    wc->qp_num = qp->base.qp_num;
    wc->src_qp = qp->attr.dest_qp_num;
    if ((wqe->wc_opcode & IBV_WC_RECV) != 0 && (wqe->flags & FABRIC_FLAG_IMMEDIATE) != 0) {
        wc->wc_flags = IBV_WC_WITH_IMM;
        wc->imm_data = wqe->immediate;
    }
}

static int data_collect(struct fabric_qp *qp, struct fabric_queue *queue, int n_entries,
                        struct ibv_wc *wc) {
    uint64_t polled = fabric_get(&queue->polled);
    uint64_t shown = fabric_get(&queue->shown);
    int n = 0;

    for (; n < n_entries && polled < shown; polled++) {
        const struct fabric_wqe *wqe = fabric_queue_at(queue, polled);

        if (!data_is_silent(wqe)) {
            data_fill(qp, wqe, &wc[n]);
            n++;
        }
        queue->n_frames -= wqe->frames;
    }
    fabric_set(&queue->polled, polled);
    return n;
}

static int data_poll_qp(struct fabric_qp *qp, const struct ibv_cq *cq, int n_entries,
                        struct ibv_wc *wc, uint64_t *n_there_p) {
    int n = 0;

    fabric_lock_take(&qp->lock);
    if (qp->base.recv_cq == cq || qp->needs_credit) {
        fabric_data_receive(qp);
    }
    if (qp->base.recv_cq == cq) {
        *n_there_p += data_n_there(&qp->rq, 0);
        n += data_collect(qp, &qp->rq, n_entries, wc);
    }
    if (qp->base.send_cq == cq) {
        fabric_data_send(qp);
        *n_there_p += data_n_there(&qp->sq, 0);
        n += data_collect(qp, &qp->sq, n_entries - n, wc + n);
    }
    fabric_lock_drop(&qp->lock);
    return n;
}

static int data_poll(struct fabric_cq *cq, int n_entries, struct ibv_wc *wc, bool *is_due_p) {
    uint64_t n_there = 0;
    int n = 0;

    fabric_lock_take(&cq->lock);
    for (uint32_t i = 0; i < cq->n_qps && n < n_entries; i++) {
        uint32_t place = cq->first + i;
        struct fabric_qp *qp = cq->qps[place < cq->n_qps ? place : place - cq->n_qps];

        if (fabric_connect_is_due(qp)) {
            *is_due_p = true;
        }
        if (((qp->base.recv_cq == &cq->base && data_may_have_received(qp)) ||
             (qp->base.send_cq == &cq->base && data_may_have_sent(qp))) &&
            !fabric_fault_hides(qp->device)) {
            n += data_poll_qp(qp, &cq->base, n_entries - n, wc + n, &n_there);
        }
    }
    if (n > 0) {
        cq->first = cq->first + 1 < cq->n_qps ? cq->first + 1 : 0;
    }
    fabric_lock_drop(&cq->lock);
    if (n_there > (uint64_t)cq->base.cqe) {
        data_overrun(cq);
    }
    return n;
}

/* Queue pairs of this completion queue whose peer may be there by now. */
static void data_attach_all(const struct ibv_cq *cq) {
    fabric_state_lock();
    for (struct fabric_qp *qp = fabric_state.qps; qp != NULL; qp = qp->next) {
        if (qp->base.send_cq == cq || qp->base.recv_cq == cq) {
            fabric_connect_attach(qp);
        }
    }
    fabric_state_unlock();
}

int fabric_poll_cq(struct ibv_cq *base, int n_entries, struct ibv_wc *wc) {
    struct fabric_cq *cq = data_cq(base);
    bool is_due = false;
    int n;

    if (fabric_fault_call("ibv_poll_cq") != 0) {
        return -1;
    }
    n = data_poll(cq, n_entries, wc, &is_due);
    if (is_due) {
        data_attach_all(base);
        if (n == 0) {
            n = data_poll(cq, n_entries, wc, &is_due);
        }
    }
    if (atomic_load_explicit(&cq->is_dead, memory_order_relaxed) != 0) {
        fabric_fail(EIO, "the completion queue has had more than its %d completions at once",
                    base->cqe);
        return -1;
    }
    return n;
}

/* From here on the peer has to ring for this queue pair. What it did before is looked at now. */
static bool data_arm_qp(struct fabric_qp *qp) {
    uint64_t at_ns = UINT64_MAX;
    bool is_left;

    fabric_lock_take(&qp->lock);
    if (qp->own != NULL) {
        atomic_store(&qp->own->rings_wanted, 1);
    }
    if (qp->far != NULL) {
        (void)atomic_load(&qp->far->head); /* as new as the flag is: the loads below are weaker */
    }
    fabric_data_receive(qp);
    fabric_data_send(qp);
    is_left = fabric_data_is_waiting(qp, &at_ns) || fabric_connect_is_due(qp);
    fabric_lock_drop(&qp->lock);
    return is_left;
}

int fabric_req_notify_cq(struct ibv_cq *base, int solicited_only) {
    struct fabric_cq *cq = data_cq(base);
    bool is_left = false;

    if (base->channel == NULL) {
        return fabric_fail(EINVAL, "a completion queue without a channel cannot notify");
    }
    fabric_lock_take(&cq->lock);
    if (solicited_only == 0 || atomic_load(&cq->armed) == FABRIC_UNARMED) {
        atomic_store(&cq->armed, solicited_only == 0 ? FABRIC_ARMED : FABRIC_ARMED_SOLICITED);
    }
    for (uint32_t i = 0; i < cq->n_qps; i++) {
        is_left = data_arm_qp(cq->qps[i]) || is_left;
    }
    fabric_lock_drop(&cq->lock);
    if (is_left) {
        fabric_nic_kick();
    }
    return 0;
}
