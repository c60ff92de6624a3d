/* SPDX-License-Identifier: MIT */
/*
 * The objects of this process.
 *
 * Locks, in the order in which they may be nested:
 *   fabric_state.life   opening and closing devices
 *   fabric_state.lock   making, joining and destroying objects; the segment; the NIC's rounds
 *   fabric_cq.lock      the list of queue pairs of a completion queue; polling
 *   fabric_qp.lock      everything of one queue pair that moves
 * The data path takes the last two, each held by one process only. Where a queue pair has two
 * completion queues, theirs are taken in the order of their addresses.
 */
#ifndef FABRIC_STATE_H
#define FABRIC_STATE_H

#include "fabric_lock.h"
#include "fabric_segment.h"
#include "fabric_topology.h"
#include "fabric_verbs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fabric_context {
    struct ibv_context base;
    struct fabric_device *device;
    int n_children;
};

struct fabric_pd {
    struct ibv_pd base;
    int n_children;
};

struct fabric_mr {
    struct ibv_mr base;
    struct fabric_mr_slot *slot;
};

struct fabric_cq {
    struct ibv_cq base;
    struct fabric_lock lock;
    struct fabric_qp **qps; /* guarded by lock */
    uint32_t n_qps;
    uint32_t room;
    uint32_t first; /* where the next poll begins, for fairness */
};

struct fabric_wqe {
    uint64_t wr_id;
    uint64_t address;
    uint64_t turn; /* of a send: the ring's message number whose receive lets it leave */
    uint32_t length;
    uint32_t lkey;
    uint32_t frames;
    uint32_t status;
    uint32_t byte_len;
    bool has_memory; /* false: no SGE */
};

/* Counters of requests since the start: polled <= done <= moved <= posted. The atomics are written
 * under the queue pair's lock and read without it by an empty poll. */
struct fabric_queue {
    struct fabric_wqe *slots;
    uint32_t depth; /* frames, and slots: a request has at least one frame */
    uint32_t n_frames;
    uint64_t moved;
    _Atomic uint64_t posted;
    _Atomic uint64_t done;
    _Atomic uint64_t polled;
};

struct fabric_qp {
    struct ibv_qp base;
    struct fabric_lock lock;
    struct fabric_device *device;
    struct fabric_qp *next; /* all of the process; state lock */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct fabric_queue sq;
    struct fabric_queue rq;

    /* The own half of the connection. */
    struct fabric_end *own;
    uint64_t serial;
    uint64_t ring_at;
    uint8_t *ring;
    uint64_t head;
    uint64_t turn;     /* messages begun in the ring */
    uint32_t n_copied; /* payload bytes of the message that is moving */
    bool is_open;      /* its header is in the ring */
    bool is_blocked;   /* the next send is wrong and fails once it is the oldest */
    const struct fabric_fault *fault;
    _Atomic uint64_t tail_seen;
    _Atomic uint64_t posted_seen;

    /* The other half. Written with every lock held, so either lock is enough to read. */
    struct fabric_peer *peer;
    const struct fabric_end *far;
    uint64_t far_serial;
    uint64_t far_ring_at;
    const uint8_t *far_ring;
    _Atomic bool is_wanting;      /* connected, but the peer's ring is not mapped yet */
    _Atomic uint64_t retry_at_ns; /* when to look for a missing peer again */
    _Atomic uint64_t tail;
    uint64_t taken;
    bool is_receiving;
    struct fabric_message incoming;
    uint32_t n_received;
};

/* A half that was let go of while completed messages wait in its ring for the peer to take them. */
struct fabric_lingering {
    struct fabric_lingering *next;
    struct fabric_end *own;
    uint64_t serial;
    uint64_t ring_at;
    uint64_t limit;
    struct fabric_peer *peer;
    const struct fabric_end *far;
};

struct fabric_nic {
    pthread_t thread;
    _Atomic uint32_t asleep;
    _Atomic uint32_t stop;
    _Atomic uint32_t ended;
};

struct fabric_state {
    pthread_mutex_t life;
    pthread_mutex_t lock;
    struct fabric_topology *topology; /* current one, while anything refers to it */
    int n_open;                       /* contexts; the segment and the NIC exist while > 0 */
    struct fabric_segment segment;
    struct fabric_nic nic;
    struct fabric_qp *qps;
    struct fabric_lingering *lingering;
};

extern struct fabric_state fabric_state;

static inline struct fabric_context *fabric_context_of(struct ibv_context *context) {
    return (struct fabric_context *)(void *)context;
}

static inline struct fabric_device *fabric_device_of(struct ibv_context *context) {
    return fabric_context_of(context)->device;
}

void fabric_state_lock(void);
void fabric_state_unlock(void);
void fabric_topology_drop(struct fabric_topology *topology);
uint64_t fabric_now_ns(void);

/* fabric_state.c: a device is opened and closed; the first and the last enter and leave the fabric.
 * Without the state lock. Both keep a reference of the topology. */
int fabric_state_enter(struct fabric_topology *topology);
void fabric_state_leave(struct fabric_topology *topology);

/* fabric_qp.c: to the error state; whatever is outstanding is flushed. Queue pair's lock held. */
void fabric_qp_fail(struct fabric_qp *qp);

/* fabric_connect.c: all with the state lock held, none with others. */
int fabric_connect_begin(struct fabric_qp *qp);
int fabric_connect_to(struct fabric_qp *qp, uint32_t peer_qpn);
void fabric_connect_attach(struct fabric_qp *qp);
void fabric_connect_end(struct fabric_qp *qp);
void fabric_connect_reap(bool all);
void fabric_connect_lock(struct fabric_qp *qp);
void fabric_connect_unlock(struct fabric_qp *qp);
/* Whether attaching is worth a try; with the queue pair's lock or one of its CQs' held. */
bool fabric_connect_is_due_now(struct fabric_qp *qp);
static inline bool fabric_connect_is_due(struct fabric_qp *qp) {
    return atomic_load_explicit(&qp->is_wanting, memory_order_relaxed) &&
           fabric_connect_is_due_now(qp);
}
/* Whether the peer has mapped this queue pair's ring; with the queue pair's lock held. */
bool fabric_connect_is_seen(const struct fabric_qp *qp);

/* fabric_data.c */
int fabric_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int fabric_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int fabric_poll_cq(struct ibv_cq *cq, int n_entries, struct ibv_wc *wc);
void fabric_data_send(struct fabric_qp *qp);
void fabric_data_receive(struct fabric_qp *qp);
/* Marks the sends whose receive is posted as completed, with a fresh look at the peer if needed. */
void fabric_data_complete(struct fabric_qp *qp);

/* fabric_nic.c */
int fabric_nic_start(void);
/* Without the state lock, which the thread takes. */
void fabric_nic_stop(void);
/* For the end of the process: gives up after a second; true if the thread has ended. */
bool fabric_nic_stop_soon(void);
void fabric_nic_kick(void);
void fabric_nic_ring(const struct fabric_peer *peer);

/* fabric_objects.c: the bytes of a request, or NULL if key, bounds or rights are wrong. */
uint8_t *fabric_mr_bytes(struct fabric_device *device, const struct ibv_pd *pd,
                         const struct fabric_wqe *wqe, bool is_written);

#endif
