/* SPDX-License-Identifier: MIT */
/* Queue pairs: making them, their states, what may change when. */
#include "fabric_cable.h"
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fabric_qp *qp_of(struct ibv_qp *qp) {
    return (struct fabric_qp *)(void *)qp;
}

/* --------------------------------------------------------- making, destroying */

static int qp_check_type(const struct ibv_pd *pd, const struct ibv_qp_init_attr *init) {
    /* RC exists everywhere; where it does not work it fails on the way to RTR. */
    if (init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_RC) {
        return fabric_fail(EOPNOTSUPP, "queue pair type %d is not possible", (int)init->qp_type);
    }
    if (init->srq != NULL) {
        return fabric_fail(EOPNOTSUPP, "shared receive queues are not possible");
    }
    if (init->send_cq == NULL || init->recv_cq == NULL ||
        init->send_cq->context->device != pd->context->device ||
        init->recv_cq->context->device != pd->context->device) {
        return fabric_fail(EINVAL, "a queue pair needs two completion queues of its device");
    }
    return 0;
}

static int qp_check_cap(const struct fabric_rules *rules, const struct ibv_qp_cap *cap) {
    if (cap->max_send_wr > rules->max_depth || cap->max_recv_wr > rules->max_depth ||
        cap->max_send_sge > rules->max_sge || cap->max_recv_sge > rules->max_sge ||
        cap->max_inline_data > rules->max_inline) {
        return fabric_fail(EINVAL,
                           "queues of %u and %u %s, %u and %u SGEs, %u bytes inline: at "
                           "most %u, %u SGEs, %u bytes",
                           cap->max_send_wr, cap->max_recv_wr,
                           rules->counts_frames ? "frames" : "requests", cap->max_send_sge,
                           cap->max_recv_sge, cap->max_inline_data, rules->max_depth,
                           rules->max_sge, rules->max_inline);
    }
    return 0;
}

static uint32_t qp_granted(uint32_t asked, uint32_t least) {
    return asked < least ? least : asked;
}

static void qp_free_queue(struct fabric_queue *queue) {
    free(queue->slots);
    free(queue->sges);
    free(queue->inlined);
}

static void qp_free(struct fabric_qp *qp) {
    if (qp != NULL) {
        qp_free_queue(&qp->sq);
        qp_free_queue(&qp->rq);
        free(qp);
    }
}

static int qp_new_queue(struct fabric_queue *queue, uint32_t depth, uint32_t max_sge,
                        uint32_t max_inline) {
    size_t n_slots = 1;

    while (n_slots < depth) {
        n_slots *= 2;
    }
    queue->depth = depth;
    queue->mask = n_slots - 1;
    queue->max_sge = max_sge;
    queue->max_inline = max_inline;
    queue->slots = calloc(n_slots, sizeof *queue->slots);
    queue->sges = max_sge > 1 ? calloc(n_slots * max_sge, sizeof *queue->sges) : NULL;
    queue->inlined = max_inline > 0 ? calloc(n_slots, max_inline) : NULL;
    return queue->slots == NULL || (max_sge > 1 && queue->sges == NULL) ||
                   (max_inline > 0 && queue->inlined == NULL)
               ? ENOMEM
               : 0;
}

/* What the queues get: at least what was asked for. */
static void qp_grant(struct fabric_qp *qp) {
    struct ibv_qp_cap *cap = &qp->init.cap;

    cap->max_send_wr = qp_granted(cap->max_send_wr, qp->rules->least_depth);
    cap->max_recv_wr = qp_granted(cap->max_recv_wr, qp->rules->least_depth);
    cap->max_send_sge = qp_granted(cap->max_send_sge, 1);
    cap->max_recv_sge = qp_granted(cap->max_recv_sge, 1);
}

static struct fabric_qp *qp_new(struct ibv_pd *pd, const struct ibv_qp_init_attr *init) {
    struct fabric_qp *qp = calloc(1, sizeof *qp);
    const struct ibv_qp_cap *cap;

    if (qp == NULL) {
        return NULL;
    }
    qp->device = fabric_device_of(pd->context);
    qp->rules = fabric_rules_of(qp->device);
    qp->init = *init;
    qp_grant(qp);
    cap = &qp->init.cap;
    qp->is_reliable = init->qp_type == IBV_QPT_RC;
    qp->is_rung = qp->rules->has_channels || qp->rules->has_rdma;
    qp->needs_credit = qp->is_reliable || qp->rules->no_receive != FABRIC_NO_RECEIVE_WAIT;
    if (qp_new_queue(&qp->sq, cap->max_send_wr, cap->max_send_sge, cap->max_inline_data) != 0 ||
        qp_new_queue(&qp->rq, cap->max_recv_wr, cap->max_recv_sge, 0) != 0) {
        qp_free(qp);
        return NULL;
    }
    qp->base.context = pd->context;
    qp->base.qp_context = init->qp_context;
    qp->base.pd = pd;
    qp->base.send_cq = init->send_cq;
    qp->base.recv_cq = init->recv_cq;
    qp->base.state = IBV_QPS_RESET;
    qp->base.qp_type = init->qp_type;
    return qp;
}

static int qp_enlist(struct fabric_qp *qp, struct ibv_cq *base) {
    struct fabric_cq *cq = (struct fabric_cq *)(void *)base;
    int rc = 0;

    fabric_lock_take(&cq->lock);
    if (cq->n_qps == cq->room) {
        uint32_t room = cq->room == 0 ? 8 : cq->room * 2;
        struct fabric_qp **grown = realloc(cq->qps, room * sizeof(struct fabric_qp *));

        if (grown == NULL) {
            rc = ENOMEM;
        } else {
            cq->qps = grown;
            cq->room = room;
        }
    }
    if (rc == 0) {
        cq->qps[cq->n_qps++] = qp;
    }
    fabric_lock_drop(&cq->lock);
    return rc;
}

static void qp_delist(struct fabric_qp *qp, struct ibv_cq *base) {
    struct fabric_cq *cq = (struct fabric_cq *)(void *)base;

    fabric_lock_take(&cq->lock);
    for (uint32_t i = 0; i < cq->n_qps; i++) {
        if (cq->qps[i] == qp) {
            cq->qps[i] = cq->qps[--cq->n_qps];
            break;
        }
    }
    if (cq->first >= cq->n_qps) {
        cq->first = 0;
    }
    fabric_lock_drop(&cq->lock);
}

static int qp_enlist_both(struct fabric_qp *qp) {
    int rc = qp_enlist(qp, qp->base.send_cq);

    if (rc == 0 && qp->base.recv_cq != qp->base.send_cq) {
        rc = qp_enlist(qp, qp->base.recv_cq);
        if (rc != 0) {
            qp_delist(qp, qp->base.send_cq);
        }
    }
    return rc == 0 ? 0 : fabric_fail(rc, "no memory for a queue pair");
}

/* Puts a new queue pair into the world; state lock held. */
static int qp_enter(struct fabric_qp *qp) {
    struct fabric_device *device = qp->device;
    int rc = fabric_object_claim(device, FABRIC_OBJECT_QP);

    if (rc != 0) {
        return rc;
    }
    qp->base.qp_num = fabric_segment_number(&fabric_state.segment);
    rc = fabric_connect_begin(qp);
    if (rc == 0) {
        rc = qp_enlist_both(qp);
        if (rc != 0) {
            fabric_connect_end(qp);
        }
    }
    if (rc != 0) {
        fabric_object_release(device, FABRIC_OBJECT_QP);
        return rc;
    }
    qp->next = fabric_state.qps;
    fabric_state.qps = qp;
    ((struct fabric_pd *)(void *)qp->base.pd)->n_children++;
    return 0;
}

FABRIC_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    struct fabric_qp *qp;
    int rc;

    rc = fabric_fault_call("ibv_create_qp");
    if (rc != 0 || qp_check_type(pd, init) != 0 ||
        qp_check_cap(fabric_rules_of(fabric_device_of(pd->context)), &init->cap) != 0) {
        errno = rc != 0 ? rc : errno;
        return NULL;
    }
    qp = qp_new(pd, init);
    if (qp == NULL) {
        fabric_fail(ENOMEM, "no memory for a queue pair");
        return NULL;
    }
    fabric_state_lock();
    rc = qp_enter(qp);
    fabric_state_unlock();
    if (rc != 0) {
        qp_free(qp);
        errno = rc;
        return NULL;
    }
    pthread_mutex_init(&qp->base.mutex, NULL);
    pthread_cond_init(&qp->base.cond, NULL);
    init->cap = qp->init.cap;
    return &qp->base;
}

FABRIC_EXPORT int ibv_destroy_qp(struct ibv_qp *base) {
    struct fabric_qp *qp = qp_of(base);
    struct fabric_qp **at = &fabric_state.qps;
    int rc = fabric_fault_call("ibv_destroy_qp");

    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    while (*at != qp) {
        at = &(*at)->next;
    }
    *at = qp->next;
    fabric_connect_end(qp);
    qp_delist(qp, base->send_cq);
    if (base->recv_cq != base->send_cq) {
        qp_delist(qp, base->recv_cq);
    }
    fabric_object_release(qp->device, FABRIC_OBJECT_QP);
    ((struct fabric_pd *)(void *)base->pd)->n_children--;
    fabric_state_unlock();
    fabric_event_forget_qp(qp);
    pthread_cond_destroy(&base->cond);
    pthread_mutex_destroy(&base->mutex);
    qp_free(qp);
    return 0;
}

/* ------------------------------------------------------------------- states */

/* The mask of one transition: what must be given and what may; `reliable` is added for RC. */
struct qp_transition {
    enum ibv_qp_state from, to;
    unsigned needed, allowed;
    unsigned reliable_needed, reliable_allowed;
};

#define QP_RIGHTS (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS)

static const struct qp_transition qp_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, QP_RIGHTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, QP_RIGHTS, 0, IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, QP_RIGHTS, 0, IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, QP_RIGHTS, 0, 0},
};

static const struct qp_transition *qp_transition(enum ibv_qp_state from, enum ibv_qp_state to) {
    size_t n = sizeof qp_transitions / sizeof qp_transitions[0];

    for (size_t i = 0; i < n; i++) {
        if (qp_transitions[i].from == from && qp_transitions[i].to == to) {
            return &qp_transitions[i];
        }
    }
    return NULL;
}

static int qp_check_transition(const struct fabric_qp *qp, enum ibv_qp_state to, unsigned mask) {
    enum ibv_qp_state from = qp->base.state;
    const struct qp_transition *step = qp_transition(from, to);
    unsigned needed, allowed, missing, excess;

    mask &= ~(unsigned)IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return mask == 0 ? 0 : fabric_fail(EINVAL, "mask 0x%x on the way to RESET or ERR", mask);
    }
    if (step == NULL) {
        return fabric_fail(EINVAL, "no way from state %d to state %d", (int)from, (int)to);
    }
    if (to == IBV_QPS_RTR && qp->is_reliable && !qp->rules->has_rc) {
        return fabric_fail(FABRIC_ERRNO_TRANSPORT, "%s connects queue pairs of type UC only",
                           qp->device->base.name);
    }
    needed = step->needed | (qp->is_reliable ? step->reliable_needed : 0);
    allowed = step->allowed | (qp->is_reliable ? step->reliable_allowed : 0);
    missing = needed & ~mask;
    excess = mask & ~(needed | allowed);
    return missing == 0 && excess == 0
               ? 0
               : fabric_fail(EINVAL,
                             "state %d to %d: mask bits 0x%x are missing, 0x%x are "
                             "too many",
                             (int)from, (int)to, missing, excess);
}

static int qp_check_values(const struct fabric_qp *qp, const struct ibv_qp_attr *attr,
                           unsigned mask) {
    if ((mask & IBV_QP_PORT) != 0 && attr->port_num != 1) {
        return fabric_fail(EINVAL, "port %u, only port 1 is there", attr->port_num);
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0) {
        return fabric_fail(EINVAL, "P_Key index %u, only 0 is there", attr->pkey_index);
    }
    if ((mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != qp->base.state) {
        return fabric_fail(EINVAL, "the state is %d, not %d", (int)qp->base.state,
                           (int)attr->cur_qp_state);
    }
    if (((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attr->max_dest_rd_atomic > FABRIC_MAX_READS) ||
        ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attr->max_rd_atomic > FABRIC_MAX_READS)) {
        return fabric_fail(EINVAL, "more than %u READs at a time", FABRIC_MAX_READS);
    }
    if (((mask & IBV_QP_TIMEOUT) != 0 && attr->timeout > 31) ||
        ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr->min_rnr_timer > 31) ||
        ((mask & IBV_QP_RETRY_CNT) != 0 && attr->retry_cnt > 7) ||
        ((mask & IBV_QP_RNR_RETRY) != 0 && attr->rnr_retry > 7)) {
        return fabric_fail(EINVAL, "timers are at most 31, numbers of retries at most 7");
    }
    return 0;
}

/* The address: from a GID that is ours, to one that can be reached from there. */
static int qp_check_path(struct fabric_qp *qp, const struct ibv_qp_attr *attr) {
    const struct ibv_ah_attr *path = &attr->ah_attr;

    if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 || path->port_num != 1 ||
        attr->dest_qp_num > 0xffffff) {
        return fabric_fail(EINVAL, "path MTU %d, port %u, peer's queue pair %u", attr->path_mtu,
                           path->port_num, attr->dest_qp_num);
    }
    if (path->is_global == 0) {
        return fabric_fail(EINVAL, "%s needs a global address (is_global)", qp->device->base.name);
    }
    return fabric_topology_route(qp->device, path->grh.sgid_index, &path->grh.dgid, &qp->peer_host,
                                 &qp->peer_device);
}

/* Everything of a queue that is not done is flushed, in its order. */
static void qp_flush(struct fabric_qp *qp, struct fabric_queue *queue) {
    uint64_t last = fabric_get(&queue->posted);
    uint64_t n = fabric_get(&queue->done);

    if (n == last) {
        return;
    }
    for (; n < last; n++) {
        fabric_queue_at(queue, n)->status = IBV_WC_WR_FLUSH_ERR;
    }
    queue->moved = last;
    fabric_data_show(qp, queue, last);
}

/* The sending half stops: what completed still arrives. */
static void qp_stop_sending(struct fabric_qp *qp) {
    fabric_data_complete(qp);
    fabric_set(&qp->own->limit, fabric_data_limit(qp));
    qp->open = NULL;
    qp->is_blocked = false;
    qp->is_repeating = false;
    qp->n_responded = qp->n_asked;
}

void fabric_qp_fail(struct fabric_qp *qp) {
    enum ibv_qp_state before = qp->base.state;

    qp->base.state = IBV_QPS_ERR; /* first: completing must not fail it again */
    if (before == IBV_QPS_RTS || before == IBV_QPS_SQD) {
        qp_stop_sending(qp);
    }
    if (qp->own != NULL) {
        atomic_store_explicit(&qp->own->is_ready, 0, memory_order_release);
    }
    atomic_store_explicit(&qp->is_wanting, false, memory_order_relaxed);
    qp_flush(qp, &qp->sq);
    qp_flush(qp, &qp->rq);
}

void fabric_qp_fail_sends(struct fabric_qp *qp) {
    if (qp->is_reliable || qp->rules->counts_frames) {
        fabric_qp_fail(qp);
        return;
    }
    qp->base.state = IBV_QPS_SQE;
    qp->open = NULL;
    qp->is_blocked = false;
    qp_flush(qp, &qp->sq);
}

static void qp_empty(struct fabric_queue *queue) {
    queue->n_frames = 0;
    queue->moved = 0;
    atomic_store_explicit(&queue->posted, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->done, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->shown, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->polled, 0, memory_order_relaxed);
}

/* Forgets everything; a new half of a connection, so that nothing old can reach it. */
static int qp_reset(struct fabric_qp *qp) {
    int rc;

    fabric_connect_end(qp);
    fabric_connect_lock(qp);
    qp->base.state = IBV_QPS_RESET;
    qp_empty(&qp->sq);
    qp_empty(&qp->rq);
    fabric_connect_unlock(qp);
    memset(&qp->attr, 0, sizeof qp->attr);
    rc = fabric_connect_begin(qp);
    return rc;
}

/* How long a sender without a receive pauses, by the code of the receiver, in units of 10 us. */
static uint64_t qp_rnr_ns(uint8_t code) {
    static const uint32_t times[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                       16,    24,   32,   48,    64,    96,    128,   192,
                                       256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

    return (uint64_t)times[code & 31] * 10000;
}

static void qp_keep_reliable(struct fabric_qp *qp, const struct ibv_qp_attr *attr, unsigned mask) {
    struct ibv_qp_attr *kept = &qp->attr;

    if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
        kept->max_dest_rd_atomic = attr->max_dest_rd_atomic;
    }
    if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
        kept->max_rd_atomic = attr->max_rd_atomic;
    }
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) {
        kept->min_rnr_timer = attr->min_rnr_timer;
        fabric_set(&qp->own->rnr_ns, qp_rnr_ns(attr->min_rnr_timer));
    }
    if ((mask & IBV_QP_TIMEOUT) != 0) {
        kept->timeout = attr->timeout;
    }
    if ((mask & IBV_QP_RETRY_CNT) != 0) {
        kept->retry_cnt = attr->retry_cnt;
    }
    if ((mask & IBV_QP_RNR_RETRY) != 0) {
        kept->rnr_retry = attr->rnr_retry;
    }
}

static void qp_keep(struct fabric_qp *qp, const struct ibv_qp_attr *attr, unsigned mask) {
    struct ibv_qp_attr *kept = &qp->attr;

    if ((mask & IBV_QP_PORT) != 0) {
        kept->port_num = attr->port_num;
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0) {
        kept->pkey_index = attr->pkey_index;
    }
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        kept->qp_access_flags = attr->qp_access_flags;
    }
    if ((mask & IBV_QP_AV) != 0) {
        kept->ah_attr = attr->ah_attr;
    }
    if ((mask & IBV_QP_PATH_MTU) != 0) {
        kept->path_mtu = attr->path_mtu;
    }
    if ((mask & IBV_QP_DEST_QPN) != 0) {
        kept->dest_qp_num = attr->dest_qp_num;
    }
    if ((mask & IBV_QP_RQ_PSN) != 0) {
        kept->rq_psn = attr->rq_psn;
    }
    if ((mask & IBV_QP_SQ_PSN) != 0) {
        kept->sq_psn = attr->sq_psn;
    }
    qp_keep_reliable(qp, attr, mask);
}

/* Carries out a transition that was found right; state lock held. */
static int qp_move(struct fabric_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state to,
                   unsigned mask) {
    enum ibv_qp_state from = qp->base.state;
    int rc = 0;

    if (to == IBV_QPS_RESET) {
        return qp_reset(qp);
    }
    fabric_connect_lock(qp);
    if (to == IBV_QPS_ERR) {
        fabric_qp_fail(qp);
    } else {
        qp_keep(qp, attr, mask);
    }
    fabric_connect_unlock(qp);
    if (to == IBV_QPS_RTR) {
        rc = fabric_connect_to(qp, attr->dest_qp_num);
    }
    if (rc == 0 && to != from) {
        fabric_connect_lock(qp);
        qp->base.state = to;
        fabric_data_send(qp); /* what was posted while the queue was held */
        fabric_connect_unlock(qp);
    }
    if (rc == 0 && to == IBV_QPS_RTR) {
        fabric_connect_attach(qp);
        if (qp->peer != NULL) {
            fabric_nic_ring(qp->peer); /* it may have looked for our ring before it was there */
        }
    }
    return rc;
}

FABRIC_EXPORT int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int given) {
    struct fabric_qp *qp = qp_of(base);
    unsigned mask = (unsigned)given;
    enum ibv_qp_state to;
    int rc;

    rc = fabric_fault_call("ibv_modify_qp");
    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : base->state;
    rc = qp_check_transition(qp, to, mask);
    if (rc == 0 && qp->own == NULL && to != IBV_QPS_RESET) {
        rc = fabric_fail(ENOMEM, "queue pair %u found no place at its last reset; reset it again",
                         base->qp_num);
    }
    if (rc == 0) {
        rc = qp_check_values(qp, attr, mask);
    }
    if (rc == 0 && to == IBV_QPS_RTR) {
        rc = qp_check_path(qp, attr);
    }
    if (rc == 0) {
        rc = qp_move(qp, attr, to, mask);
    }
    fabric_state_unlock();
    return rc;
}

FABRIC_EXPORT int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
                               struct ibv_qp_init_attr *init) {
    struct fabric_qp *qp = qp_of(base);

    (void)mask; /* all of it costs no more than some */
    fabric_lock_take(&qp->lock);
    *attr = qp->attr;
    attr->qp_state = base->state;
    attr->cur_qp_state = base->state;
    attr->cap = qp->init.cap;
    *init = qp->init;
    fabric_lock_drop(&qp->lock);
    return 0;
}
