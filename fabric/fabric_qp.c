/* SPDX-License-Identifier: MIT */
/* Queue pairs: making them, their states, what may change when. */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fabric_qp *qp_of(struct ibv_qp *qp) {
    return (struct fabric_qp *)(void *)qp;
}

/* --------------------------------------------------------- making, destroying */

static int qp_check(const struct ibv_pd *pd, const struct ibv_qp_init_attr *init) {
    const struct ibv_qp_cap *cap = &init->cap;

    if (init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_RC) {
        return fabric_fail(EOPNOTSUPP, "queue pair type %d: only UC works here",
                           (int)init->qp_type);
    }
    if (init->srq != NULL) {
        return fabric_fail(EOPNOTSUPP, "shared receive queues are not possible");
    }
    if (init->send_cq == NULL || init->recv_cq == NULL ||
        init->send_cq->context->device != pd->context->device ||
        init->recv_cq->context->device != pd->context->device) {
        return fabric_fail(EINVAL, "a queue pair needs two completion queues of its device");
    }
    if (cap->max_send_wr > FABRIC_MAX_DEPTH || cap->max_recv_wr > FABRIC_MAX_DEPTH ||
        cap->max_send_sge > 1 || cap->max_recv_sge > 1 || cap->max_inline_data > 0) {
        return fabric_fail(EINVAL,
                           "queues of %u and %u frames, %u and %u SGEs, %u bytes inline: at "
                           "most %u frames, 1 SGE, nothing inline",
                           cap->max_send_wr, cap->max_recv_wr, cap->max_send_sge, cap->max_recv_sge,
                           cap->max_inline_data, FABRIC_MAX_DEPTH);
    }
    return 0;
}

static uint32_t qp_granted(uint32_t asked) {
    return asked < FABRIC_MIN_DEPTH ? FABRIC_MIN_DEPTH : asked;
}

static void qp_free(struct fabric_qp *qp) {
    if (qp != NULL) {
        free(qp->sq.slots);
        free(qp->rq.slots);
        free(qp);
    }
}

static struct fabric_qp *qp_new(struct ibv_pd *pd, const struct ibv_qp_init_attr *init) {
    struct fabric_qp *qp = calloc(1, sizeof *qp);

    if (qp == NULL) {
        return NULL;
    }
    qp->device = fabric_device_of(pd->context);
    qp->init = *init;
    qp->init.cap.max_send_wr = qp_granted(init->cap.max_send_wr);
    qp->init.cap.max_recv_wr = qp_granted(init->cap.max_recv_wr);
    qp->init.cap.max_send_sge = 1;
    qp->init.cap.max_recv_sge = 1;
    qp->sq.depth = qp->init.cap.max_send_wr;
    qp->rq.depth = qp->init.cap.max_recv_wr;
    qp->sq.slots = calloc(qp->sq.depth, sizeof *qp->sq.slots);
    qp->rq.slots = calloc(qp->rq.depth, sizeof *qp->rq.slots);
    if (qp->sq.slots == NULL || qp->rq.slots == NULL) {
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

/* Puts a new queue pair into the world; state lock held. */
static int qp_enter(struct fabric_qp *qp) {
    struct fabric_device *device = qp->device;
    int rc;

    if (device->n_qp == FABRIC_USABLE_QP) {
        return fabric_fail(EBUSY, "%s has %d queue pairs already", device->base.name,
                           FABRIC_USABLE_QP);
    }
    qp->base.qp_num = fabric_segment_number(&fabric_state.segment);
    rc = fabric_connect_begin(qp);
    if (rc != 0) {
        return rc;
    }
    rc = qp_enlist(qp, qp->base.send_cq);
    if (rc == 0 && qp->base.recv_cq != qp->base.send_cq) {
        rc = qp_enlist(qp, qp->base.recv_cq);
        if (rc != 0) {
            qp_delist(qp, qp->base.send_cq);
        }
    }
    if (rc != 0) {
        fabric_connect_end(qp);
        return fabric_fail(rc, "no memory for a queue pair");
    }
    qp->next = fabric_state.qps;
    fabric_state.qps = qp;
    device->n_qp++;
    ((struct fabric_pd *)(void *)qp->base.pd)->n_children++;
    return 0;
}

FABRIC_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    struct fabric_qp *qp;
    int rc;

    if (qp_check(pd, init) != 0) {
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
    qp->device->n_qp--;
    ((struct fabric_pd *)(void *)base->pd)->n_children--;
    fabric_state_unlock();
    pthread_cond_destroy(&base->cond);
    pthread_mutex_destroy(&base->mutex);
    qp_free(qp);
    return 0;
}

/* ------------------------------------------------------------------- states */

/* The mask of one transition: what must be given and what may. */
struct qp_transition {
    enum ibv_qp_state from, to;
    unsigned needed, allowed;
};

static const struct qp_transition qp_transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
};

static int qp_check_transition(const struct fabric_qp *qp, enum ibv_qp_state to, unsigned mask) {
    enum ibv_qp_state from = qp->base.state;
    size_t n = sizeof qp_transitions / sizeof qp_transitions[0];

    mask &= ~(unsigned)IBV_QP_STATE;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return mask == 0 ? 0 : fabric_fail(EINVAL, "mask 0x%x on the way to RESET or ERR", mask);
    }
    for (size_t i = 0; i < n; i++) {
        const struct qp_transition *step = &qp_transitions[i];

        if (step->from == from && step->to == to) {
            unsigned missing = step->needed & ~mask;
            unsigned excess = mask & ~(step->needed | step->allowed);

            return missing == 0 && excess == 0
                       ? 0
                       : fabric_fail(EINVAL,
                                     "state %d to %d: mask bits 0x%x are missing, 0x%x are "
                                     "too many",
                                     (int)from, (int)to, missing, excess);
        }
    }
    return fabric_fail(EINVAL, "no way from state %d to state %d", (int)from, (int)to);
}

static int qp_check_init(const struct ibv_qp_attr *attr, unsigned mask) {
    if ((mask & IBV_QP_PORT) != 0 && attr->port_num != 1) {
        return fabric_fail(EINVAL, "port %u, only port 1 is there", attr->port_num);
    }
    if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0) {
        return fabric_fail(EINVAL, "P_Key index %u, only 0 is there", attr->pkey_index);
    }
    return 0;
}

/* The address: from a GID that is ours, to the one at the other end of our cable. */
static int qp_check_path(const struct fabric_qp *qp, const struct ibv_qp_attr *attr) {
    const struct fabric_device *device = qp->device;
    const struct ibv_ah_attr *path = &attr->ah_attr;
    union ibv_gid peer;

    if (qp->base.qp_type != IBV_QPT_UC) {
        return fabric_fail(FABRIC_ERRNO_TRANSPORT, "%s connects queue pairs of type UC only",
                           device->base.name);
    }
    if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 || path->port_num != 1 ||
        attr->dest_qp_num > 0xffffff) {
        return fabric_fail(EINVAL, "path MTU %d, port %u, peer's queue pair %u", attr->path_mtu,
                           path->port_num, attr->dest_qp_num);
    }
    if (path->is_global == 0) {
        return fabric_fail(EINVAL, "%s needs a global address (is_global)", device->base.name);
    }
    if (path->grh.sgid_index >= FABRIC_N_GIDS) {
        return fabric_fail(EINVAL, "%s has no GID at index %u", device->base.name,
                           path->grh.sgid_index);
    }
    fabric_topology_gid(device->topology, device->peer_host, device->peer_index,
                        path->grh.sgid_index, &peer);
    if (memcmp(&peer, &path->grh.dgid, sizeof peer) != 0) {
        return fabric_fail(ETIMEDOUT,
                           "the peer's GID is not at the other end of the cable of %s "
                           "(device %u of host %u), or of another kind than the source's",
                           device->base.name, device->peer_index, device->peer_host);
    }
    return 0;
}

void fabric_qp_fail(struct fabric_qp *qp) {
    struct fabric_queue *queues[2] = {&qp->sq, &qp->rq};
    uint64_t posted;

    if (qp->base.state == IBV_QPS_RTS) {
        fabric_data_complete(qp);
        posted = atomic_load_explicit(&qp->posted_seen, memory_order_relaxed);
        atomic_store_explicit(&qp->own->limit, qp->turn < posted ? qp->turn : posted,
                              memory_order_relaxed);
    }
    qp->base.state = IBV_QPS_ERR;
    atomic_store_explicit(&qp->is_wanting, false, memory_order_relaxed);
    for (int i = 0; i < 2; i++) {
        struct fabric_queue *queue = queues[i];
        uint64_t last = atomic_load_explicit(&queue->posted, memory_order_relaxed);

        for (uint64_t n = atomic_load_explicit(&queue->done, memory_order_relaxed); n < last; n++) {
            queue->slots[n % queue->depth].status = IBV_WC_WR_FLUSH_ERR;
        }
        queue->moved = last;
        atomic_store_explicit(&queue->done, last, memory_order_relaxed);
    }
}

static void qp_empty(struct fabric_queue *queue) {
    queue->n_frames = 0;
    queue->moved = 0;
    atomic_store_explicit(&queue->posted, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->done, 0, memory_order_relaxed);
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

    fabric_state_lock();
    to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : base->state;
    rc = qp_check_transition(qp, to, mask);
    if (rc == 0) {
        rc = qp_check_init(attr, mask);
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
