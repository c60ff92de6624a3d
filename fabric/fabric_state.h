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

/* Something that a program can wait for: a token in the socket for each entry of the list. Guarded
 * by the lock of fabric_event.c. */
struct fabric_news;
struct fabric_news_list {
    struct fabric_news *first, *last;
    int write_fd;
    int read_fd;
    uint32_t n_owed; /* entries without a byte in the socket, which was full */
};

struct fabric_context {
    struct ibv_context base;
    struct fabric_device *device;
    int n_children;
    struct fabric_context *next; /* all of the process; state lock */
    struct fabric_news_list events;
    /* What its program was told of the port last; state lock. */
    uint32_t epoch;
    uint64_t looked_ns; /* addresses also change by themselves */
    bool is_up;
    bool is_removed;
    uint64_t gids;
};

struct fabric_channel {
    struct ibv_comp_channel base; /* refcnt: completion queues; state lock */
    struct fabric_news_list news;
};

struct fabric_pd {
    struct ibv_pd base;
    int n_children;
};

struct fabric_mr {
    struct ibv_mr base;
    struct fabric_mr_slot *slot;
};

enum fabric_armed { FABRIC_UNARMED, FABRIC_ARMED, FABRIC_ARMED_SOLICITED };

struct fabric_cq {
    struct ibv_cq base;
    struct fabric_lock lock;
    struct fabric_qp **qps; /* guarded by lock */
    uint32_t n_qps;
    uint32_t room;
    uint32_t first; /* where the next poll begins, for fairness */
    _Atomic uint32_t armed;
    _Atomic uint32_t is_dead; /* more completions than it has room for */
    uint32_t n_told;          /* events that a program was given; lock of fabric_event.c */
    uint32_t n_told_async;
};

/* A request: one that was posted, or the answer to a READ. */
struct fabric_wqe {
    uint64_t wr_id;
    uint64_t turn;    /* of a send: its number in the ring */
    uint64_t receive; /* of a send: the number of the receive that lets it leave */
    uint64_t leaves_ns;
    const struct ibv_sge *sges; /* &first, or a row of the queue's */
    struct ibv_sge first;
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t n_sge;
    uint32_t length;
    uint32_t frames;
    uint32_t status;
    uint32_t byte_len;
    uint32_t immediate;
    uint8_t kind;      /* enum fabric_kind */
    uint8_t flags;     /* FABRIC_FLAG_... */
    uint8_t wc_opcode; /* enum ibv_wc_opcode */
    bool is_checked;   /* its memory needs no look: inline, or empty, or seen before */
    bool is_silent;    /* no completion if it succeeds */
    bool is_fenced;
    bool is_lost;     /* dropped, for want of a receive or by a fault */
    bool is_answered; /* of a READ */
};

/* Counters of requests since the start: polled <= shown <= done <= moved <= posted. shown is behind
 * the last one that has a completion. The atomics are written under the queue pair's lock and read
 * without it by an empty poll. */
struct fabric_queue {
    struct fabric_wqe *slots;
    struct ibv_sge *sges;
    uint8_t *inlined;
    uint32_t max_sge;
    uint32_t max_inline;
    uint32_t depth; /* frames or requests */
    uint64_t mask;  /* of the slots: a power of two of them, for a request has at least one frame */
    uint32_t n_frames;
    uint64_t moved;
    _Atomic uint64_t posted;
    _Atomic uint64_t done;
    _Atomic uint64_t shown;
    _Atomic uint64_t polled;
};

#define FABRIC_MAX_READS 16u

struct fabric_qp {
    struct ibv_qp base;
    struct fabric_lock lock;
    struct fabric_device *device;
    const struct fabric_rules *rules;
    struct fabric_qp *next; /* all of the process; state lock */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct fabric_queue sq;
    struct fabric_queue rq;
    uint32_t peer_host;
    uint32_t peer_device;
    bool is_reliable;
    bool is_rung;      /* somebody may sleep until something happens here */
    bool needs_credit; /* no send leaves before a receive for it is known */
    uint32_t n_told;   /* events that a program was given; lock of fabric_event.c */

    /* The own half of the connection. */
    struct fabric_end *own;
    uint64_t serial;
    uint64_t ring_at;
    uint8_t *ring;
    uint64_t head;
    uint64_t turn;           /* messages begun in the ring */
    uint64_t receive;        /* those of them that take a receive */
    uint32_t n_copied;       /* payload bytes of the message that is moving */
    struct fabric_wqe *open; /* its header is in the ring */
    bool is_blocked;         /* the next send is wrong and fails once it is the oldest */
    bool is_dead;            /* sends nothing any more, without a word */
    bool is_deaf;            /* and takes nothing */
    bool is_repeating;       /* the second time of a message that arrives twice */
    const struct fabric_fault *fault;
    uint64_t lacking_since_ns; /* the oldest send has no receive; 0 = it has */
    uint64_t silent_since_ns;  /* since when the oldest send waits for the peer; 0 = none does */
    uint64_t watched;          /* which one that was */
    uint64_t lost_since_ns;    /* since when the peer is out of reach; 0 = it is not */
    uint64_t carried_ns;       /* when something last moved, where idleness kills */
    uint64_t read_turn;        /* number in sq of the oldest READ that may be unanswered */
    uint32_t n_reads;          /* READs in flight */
    _Atomic uint64_t tail_seen;
    _Atomic uint64_t posted_seen;
    _Atomic uint64_t taken_seen;
    _Atomic uint64_t
        due_ns; /* when the oldest send in the ring has left, where cables have a pace */

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
    uint64_t held_ns;  /* when the message in front has arrived; 0 = none is on its way */
    uint64_t n_spared; /* receives the sender counts as used, though its message was refused */
    bool is_receiving;
    struct fabric_message incoming;
    struct fabric_wqe *target; /* of incoming; NULL: its bytes go nowhere */
    struct fabric_wqe written; /* the target of a WRITE */
    uint32_t n_received;

    /* Answers to the peer's READs, oldest at n_responded % FABRIC_MAX_READS. */
    struct fabric_wqe responses[FABRIC_MAX_READS];
    uint64_t n_asked;
    uint64_t n_responded;
};

/* A half that was let go of while completed messages wait in its ring for the peer to take them. */
struct fabric_lingering {
    struct fabric_lingering *next;
    struct fabric_end *own;
    uint64_t serial;
    uint64_t ring_at;
    uint64_t limit;
    uint64_t taken; /* of the peer's messages, for it to see; 0 where nobody looks */
    struct fabric_peer *peer;
    const struct fabric_end *far;
};

struct fabric_nic {
    pthread_t thread;
    _Atomic uint32_t kicks;
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
    struct fabric_context *contexts;
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

/* fabric_qp.c: to the error state, or for a failed send of a type that goes on receiving to SQE;
 * whatever is outstanding is flushed. Queue pair's lock held. */
void fabric_qp_fail(struct fabric_qp *qp);
void fabric_qp_fail_sends(struct fabric_qp *qp);
static inline bool fabric_qp_is_sending(const struct fabric_qp *qp) {
    return qp->base.state == IBV_QPS_RTS || qp->base.state == IBV_QPS_SQD;
}
static inline bool fabric_qp_is_receiving(const struct fabric_qp *qp) {
    return qp->base.state == IBV_QPS_RTR || qp->base.state == IBV_QPS_RTS ||
           qp->base.state == IBV_QPS_SQD || qp->base.state == IBV_QPS_SQE;
}

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
int fabric_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* All that follow: with the queue pair's lock held. The requests up to done are completed: tells
 * who waits for it. */
void fabric_data_show(struct fabric_qp *qp, struct fabric_queue *queue, uint64_t done);
/* Rings the peer if it sleeps and wants to be told. */
void fabric_data_ring(const struct fabric_qp *qp);

/* fabric_send.c */
void fabric_data_send(struct fabric_qp *qp);
/* Marks what left, and on a reliable connection was taken, as completed; with a fresh look at the
 * peer if needed. */
void fabric_data_complete(struct fabric_qp *qp);
/* The number of messages in the ring that are to arrive whatever becomes of the sender. */
uint64_t fabric_data_limit(struct fabric_qp *qp);
/* Whether something waits that only a later look can finish; *at_p is lowered to when. */
bool fabric_data_is_waiting(const struct fabric_qp *qp, uint64_t *at_p);
/* Ends what waits for a peer that cannot be reached any more; state lock held too. */
void fabric_data_watch(struct fabric_qp *qp);

/* fabric_receive.c */
void fabric_data_receive(struct fabric_qp *qp);

/* fabric_event.c */
int fabric_news_open(struct fabric_news_list *list);
void fabric_news_close(struct fabric_news_list *list);
void fabric_event_completion(struct fabric_cq *cq);
void fabric_event_qp(struct fabric_qp *qp, enum ibv_event_type type);
void fabric_event_cq(struct fabric_cq *cq);
/* A context's descriptor of asynchronous events, and its place among all. Without locks. */
int fabric_event_open(struct fabric_context *context);
void fabric_event_close(struct fabric_context *context);
/* Tells what changed at the ports; state lock held. To be called every FABRIC_LOOK_NS while there
 * is a context that wants to know. */
#define FABRIC_LOOK_NS 100000000u
void fabric_event_look(void);
/* Takes back what was not read yet, and waits until what was read is acknowledged. Without locks;
 * the object is out of reach for new events. */
void fabric_event_forget_cq(struct fabric_cq *cq);
void fabric_event_forget_qp(struct fabric_qp *qp);

/* fabric_nic.c */
int fabric_nic_start(void);
/* Without the state lock, which the thread takes. */
void fabric_nic_stop(void);
/* For the end of the process: gives up after a second; true if the thread has ended. */
bool fabric_nic_stop_soon(void);
/* This process's own thread has something to do, now or after its nap. */
void fabric_nic_kick(void);
/* Another's, at once: also out of a nap. */
void fabric_nic_ring(const struct fabric_peer *peer);

/* fabric_objects.c: whether all of a memory region's rules let a request in: key, protection
 * domain, bounds, and `access` (of enum ibv_access_flags, 0 = reading by the owner). */
bool fabric_mr_allows(struct fabric_device *device, const struct ibv_pd *pd, uint32_t key,
                      uint64_t address, uint64_t length, unsigned access);

/* The bytes of a request from offset on: a pointer, and in *n_bytes_p, lowered, how many follow. */
static inline uint8_t *fabric_wqe_at(const struct fabric_wqe *wqe, uint32_t offset,
                                     uint32_t *n_bytes_p) {
    const struct ibv_sge *sge = wqe->sges;

    while (offset >= sge->length) {
        offset -= sge->length;
        sge++;
    }
    if (sge->length - offset < *n_bytes_p) {
        *n_bytes_p = sge->length - offset;
    }
    return (uint8_t *)(uintptr_t)sge->addr + offset;
}

static inline struct fabric_wqe *fabric_queue_at(const struct fabric_queue *queue,
                                                 uint64_t number) {
    return &queue->slots[number & queue->mask];
}

static inline uint64_t fabric_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void fabric_set(_Atomic uint64_t *counter, uint64_t value) {
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

#define FABRIC_PIECE (32u * 1024u) /* copying in pieces lets the other side copy out meanwhile */

#endif
