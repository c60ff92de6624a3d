/* SPDX-License-Identifier: MIT */
/*
 * How two queue pairs find each other, and how they part.
 *
 * At RTR a queue pair makes its ring, says in its end whom it is connected to, and looks for the
 * other end: the upper bits of a queue pair number name the process, so that is one file. It is
 * attached once the other end is connected back and its ring is mapped here; only then are receives
 * told to the sender. So a completed send is in memory that the receiver has mapped, and arrives
 * even if the sender has gone. Whoever is late attaches in its next poll or post, or its NIC thread
 * does.
 */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_RETRY_NS 1000000u

static struct fabric_cq *connect_cq(struct ibv_cq *cq) {
    return (struct fabric_cq *)(void *)cq;
}

void fabric_connect_lock(struct fabric_qp *qp) {
    struct fabric_cq *low = connect_cq(qp->base.send_cq);
    struct fabric_cq *high = connect_cq(qp->base.recv_cq);

    if ((uintptr_t)low > (uintptr_t)high) {
        struct fabric_cq *other = low;

        low = high;
        high = other;
    }
    fabric_lock_take(&low->lock);
    if (high != low) {
        fabric_lock_take(&high->lock);
    }
    fabric_lock_take(&qp->lock);
}

void fabric_connect_unlock(struct fabric_qp *qp) {
    struct fabric_cq *send_cq = connect_cq(qp->base.send_cq);
    struct fabric_cq *recv_cq = connect_cq(qp->base.recv_cq);

    fabric_lock_drop(&qp->lock);
    fabric_lock_drop(&send_cq->lock);
    if (recv_cq != send_cq) {
        fabric_lock_drop(&recv_cq->lock);
    }
}

static void connect_set(_Atomic uint32_t *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

int fabric_connect_begin(struct fabric_qp *qp) {
    struct fabric_segment *segment = &fabric_state.segment;
    struct fabric_end *own;
    int rc;

    fabric_connect_reap(false);
    rc = fabric_segment_take_end(segment, &own);
    if (rc != 0) {
        return rc;
    }
    connect_set(&own->host, qp->device->host);
    connect_set(&own->device, qp->device->index);
    connect_set(&own->qpn, qp->base.qp_num);
    connect_set(&own->peer_qpn, 0);
    atomic_store_explicit(&own->ring_at, 0, memory_order_relaxed);
    /* attached was cleared when the end was freed; readers check it after these counters. */
    atomic_store_explicit(&own->head, 0, memory_order_release);
    atomic_store_explicit(&own->limit, UINT64_MAX, memory_order_release);
    atomic_store_explicit(&own->noted, 0, memory_order_release);
    atomic_store_explicit(&own->tail, 0, memory_order_release);
    atomic_store_explicit(&own->posted, 0, memory_order_release);
    atomic_store_explicit(&own->taken, 0, memory_order_release);
    atomic_store_explicit(&own->refused, 0, memory_order_release);
    atomic_store_explicit(&own->is_ready, 0, memory_order_relaxed);
    atomic_store_explicit(&own->rings_wanted, 0, memory_order_relaxed);
    fabric_connect_lock(qp);
    qp->own = own;
    fabric_connect_unlock(qp);
    qp->serial = segment->next_serial;
    segment->next_serial += 2; /* odd, so never 0 */
    atomic_store_explicit(&own->serial, qp->serial, memory_order_release);
    return 0;
}

int fabric_connect_to(struct fabric_qp *qp, uint32_t peer_qpn) {
    uint64_t at;
    uint8_t *bytes;
    int rc;

    fabric_connect_reap(false);
    rc = fabric_segment_take_ring(&fabric_state.segment, &at, &bytes);
    if (rc != 0) {
        return rc;
    }
    fabric_connect_lock(qp);
    qp->ring_at = at;
    qp->ring = bytes;
    qp->head = 0;
    qp->turn = 0;
    qp->receive = 0;
    qp->open = NULL;
    qp->is_blocked = false;
    qp->is_dead = false;
    qp->is_deaf = false;
    qp->is_repeating = false;
    qp->fault = NULL;
    qp->lacking_since_ns = 0;
    qp->silent_since_ns = 0;
    qp->lost_since_ns = 0;
    qp->carried_ns = fabric_now_ns();
    qp->read_turn = 0;
    qp->n_reads = 0;
    qp->n_asked = 0;
    qp->n_responded = 0;
    qp->held_ns = 0;
    qp->n_spared = 0;
    atomic_store_explicit(&qp->tail_seen, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->posted_seen, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->taken_seen, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->due_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->tail, 0, memory_order_relaxed);
    qp->taken = 0;
    qp->is_receiving = false;
    atomic_store_explicit(&qp->retry_at_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->is_wanting, true, memory_order_relaxed);
    fabric_connect_unlock(qp);
    connect_set(&qp->own->peer_host, qp->peer_host);
    connect_set(&qp->own->peer_device, qp->peer_device);
    connect_set(&qp->own->peer_qpn, peer_qpn);
    connect_set(&qp->own->is_ready, 1);
    atomic_store_explicit(&qp->own->ring_at, at, memory_order_release);
    return 0;
}

bool fabric_connect_is_due_now(struct fabric_qp *qp) {
    if (qp->far != NULL) {
        return atomic_load_explicit(&qp->far->ring_at, memory_order_relaxed) != 0;
    }
    return fabric_now_ns() >= atomic_load_explicit(&qp->retry_at_ns, memory_order_relaxed);
}

bool fabric_connect_is_seen(const struct fabric_qp *qp) {
    return qp->far != NULL &&
           atomic_load_explicit(&qp->far->attached, memory_order_acquire) == qp->serial;
}

static uint32_t connect_get(const _Atomic uint32_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* The end of the queue pair at the other end of the cable that has the number we were told. */
static struct fabric_end *connect_find(const struct fabric_qp *qp, const struct fabric_peer *peer,
                                       uint64_t *serial_p) {
    uint32_t qpn = qp->attr.dest_qp_num;
    uint32_t n_ends = atomic_load_explicit(&peer->header->n_ends, memory_order_acquire);

    for (uint32_t i = 0; i < n_ends && i < FABRIC_MAX_ENDS; i++) {
        struct fabric_end *end = &peer->ends[i];
        uint64_t serial = atomic_load_explicit(&end->serial, memory_order_acquire);

        if (serial != 0 && connect_get(&end->qpn) == qpn &&
            connect_get(&end->host) == qp->peer_host &&
            connect_get(&end->device) == qp->peer_device) {
            *serial_p = serial;
            return end;
        }
    }
    return NULL;
}

static void connect_forget(struct fabric_qp *qp) {
    struct fabric_peer *peer = qp->peer;

    fabric_connect_lock(qp);
    qp->far = NULL;
    qp->peer = NULL;
    fabric_connect_unlock(qp);
    fabric_peer_drop(&fabric_state.segment, peer);
    atomic_store_explicit(&qp->retry_at_ns, fabric_now_ns() + CONNECT_RETRY_NS,
                          memory_order_relaxed);
}

static void connect_look(struct fabric_qp *qp) {
    struct fabric_peer *peer = fabric_peer_find(&fabric_state.segment, qp->attr.dest_qp_num);
    struct fabric_end *far = NULL;
    uint64_t serial = 0;

    if (peer != NULL) {
        far = connect_find(qp, peer, &serial);
    }
    if (far == NULL) {
        fabric_peer_drop(&fabric_state.segment, peer);
        atomic_store_explicit(&qp->retry_at_ns, fabric_now_ns() + CONNECT_RETRY_NS,
                              memory_order_relaxed);
        return;
    }
    fabric_connect_lock(qp);
    qp->peer = peer;
    qp->far = far;
    qp->far_serial = serial;
    fabric_connect_unlock(qp);
}

/* Whether the other end is still the one we found, and connected to us. */
static bool connect_is_mutual(const struct fabric_qp *qp) {
    const struct fabric_end *far = qp->far;

    return connect_get(&far->peer_qpn) == qp->base.qp_num &&
           connect_get(&far->peer_host) == qp->device->host &&
           connect_get(&far->peer_device) == qp->device->index &&
           atomic_load_explicit(&far->serial, memory_order_acquire) == qp->far_serial;
}

void fabric_connect_attach(struct fabric_qp *qp) {
    const uint8_t *bytes;
    uint64_t at;

    if (!atomic_load_explicit(&qp->is_wanting, memory_order_relaxed)) {
        return;
    }
    if (qp->far == NULL) {
        connect_look(qp);
    }
    if (qp->far == NULL) {
        return;
    }
    at = atomic_load_explicit(&qp->far->ring_at, memory_order_acquire);
    if (at == 0) {
        if (atomic_load_explicit(&qp->far->serial, memory_order_acquire) != qp->far_serial) {
            connect_forget(qp);
        }
        return;
    }
    bytes = connect_is_mutual(qp) ? fabric_ring_map(&fabric_state.segment, qp->peer, at) : NULL;
    if (bytes == NULL) {
        connect_forget(qp);
        return;
    }
    fabric_connect_lock(qp);
    qp->far_ring = bytes;
    qp->far_ring_at = at;
    atomic_store_explicit(&qp->is_wanting, false, memory_order_relaxed);
    atomic_store_explicit(&qp->own->attached, qp->far_serial, memory_order_release);
    atomic_store_explicit(&qp->own->posted, fabric_get(&qp->rq.posted), memory_order_release);
    if (qp->is_rung) {
        fabric_nic_ring(qp->peer); /* its sends may wait for just this */
    }
    fabric_connect_unlock(qp);
}

static void connect_free(struct fabric_end *own, uint64_t ring_at) {
    atomic_store_explicit(&own->attached, 0, memory_order_release);
    atomic_store_explicit(&own->serial, 0, memory_order_release);
    if (ring_at != 0) {
        fabric_segment_punch_ring(&fabric_state.segment, ring_at);
    }
}

/* Whether nobody will take a message out of the ring any more, nor waits for what we have taken out
 * of the other one: on a reliable connection the peer must see that even if it looks late. */
static bool connect_is_drained(const struct fabric_lingering *half) {
    uint64_t taken;

    if (half->far == NULL) {
        return true;
    }
    taken = atomic_load_explicit(&half->far->taken, memory_order_acquire);
    if (taken >= half->limit &&
        atomic_load_explicit(&half->far->noted, memory_order_acquire) >= half->taken) {
        return true;
    }
    return atomic_load_explicit(&half->far->attached, memory_order_acquire) != half->serial ||
           fabric_peer_is_dead(half->peer);
}

void fabric_connect_reap(bool all) {
    struct fabric_lingering **at = &fabric_state.lingering;

    while (*at != NULL) {
        struct fabric_lingering *half = *at;

        if (connect_is_drained(half)) {
            connect_free(half->own, half->ring_at);
        } else if (!all) {
            at = &half->next;
            continue;
        } /* else the file is about to go, and the peer keeps what it has mapped */
        fabric_peer_drop(&fabric_state.segment, half->peer);
        *at = half->next;
        free(half);
    }
}

/* Takes the halves apart under the locks; what is left of the sending one goes to *half_p. */
static void connect_detach(struct fabric_qp *qp, struct fabric_lingering *half_p,
                           const uint8_t **far_ring_p) {
    fabric_connect_lock(qp);
    fabric_data_complete(qp);
    *half_p = (struct fabric_lingering){.own = qp->own,
                                        .serial = qp->serial,
                                        .ring_at = qp->ring_at,
                                        .limit = fabric_data_limit(qp),
                                        .taken = qp->is_reliable ? qp->taken : 0,
                                        .peer = qp->peer,
                                        .far = qp->far};
    *far_ring_p = qp->far_ring;
    atomic_store_explicit(&qp->is_wanting, false, memory_order_relaxed);
    /* No new receiver may find it, and no more than what completed may be taken. */
    connect_set(&qp->own->qpn, 0);
    connect_set(&qp->own->is_ready, 0);
    atomic_store_explicit(&qp->own->limit, half_p->limit, memory_order_seq_cst);
    if (!qp->is_reliable) {
        atomic_store_explicit(&qp->own->attached, 0, memory_order_release);
    }
    qp->own = NULL;
    qp->ring = NULL;
    qp->ring_at = 0;
    qp->far = NULL;
    qp->far_ring = NULL;
    qp->peer = NULL;
    fabric_connect_unlock(qp);
}

void fabric_connect_end(struct fabric_qp *qp) {
    struct fabric_segment *segment = &fabric_state.segment;
    struct fabric_lingering half, *kept = NULL;
    const uint8_t *far_ring;
    uint8_t *ring = qp->ring;

    if (qp->own == NULL) {
        return;
    }
    connect_detach(qp, &half, &far_ring);
    if (far_ring != NULL) {
        fabric_ring_unmap(segment, half.peer, qp->far_ring_at, far_ring);
    }
    if (ring != NULL) {
        fabric_ring_unmap(segment, &segment->self, half.ring_at, ring);
    }
    if (!connect_is_drained(&half)) {
        kept = malloc(sizeof *kept);
    }
    if (kept != NULL) {
        *kept = half;
        kept->next = fabric_state.lingering;
        fabric_state.lingering = kept;
    } else {
        connect_free(half.own, half.ring_at);
        fabric_peer_drop(segment, half.peer);
    }
}
