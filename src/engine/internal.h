/* SPDX-License-Identifier: MIT */
/* The engine's own structs. Who writes what: everything belongs to the driver, but for the part
 * that says "under mutex". */
#ifndef ENGINE_INTERNAL_H
#define ENGINE_INTERNAL_H

#include "engine/engine.h"
#include "plan/cache.h"
#include "reduce/reduce.h"
#include "wire/header.h"

#include <pthread.h>
#include <stdatomic.h>

/* Kinds that have credits of their own on every queue. */
enum engine_kind { ENGINE_COLLECTIVE, ENGINE_POINT, ENGINE_KINDS };

/*
 * Calls of all threads that may be under way. Of them at most one collective and one send and one
 * receive per peer run, and hold a plan: PLAN_CACHE_PINNED is enough for a mesh of eight.
 */
enum { ENGINE_MAX_REQUESTS = 64 };

/* ---- staging.c: slots that messages are written in before they leave ------------------------- */

struct engine_slot {
    struct link_buffer buffer;
    uint32_t n_bytes;    /* capacity */
    uint32_t dirty_from; /* bytes at and behind it are known to be zero */
    uint32_t users;      /* sends in flight */
    uint32_t next_free;
};

struct engine_pool {
    struct engine_slot *slots;
    uint32_t n_slots;
    uint32_t first_free; /* index, or n_slots = none */
};

/* ---- wires.c: one per link --------------------------------------------------------------------
 */

struct engine_arrival {
    uint32_t id; /* receive slot of the link */
    struct wire_header header;
};

/* One (queue, kind) of a wire: credits one way, arrivals the other. Counters wrap. */
struct engine_lane {
    uint32_t window;
    uint32_t sent;                   /* messages sent */
    uint32_t peer_consumed;          /* of those, as the peer last told */
    uint32_t consumed;               /* messages taken here and reposted */
    uint32_t told;                   /* of those, as the peer was last told */
    uint32_t head, tail;             /* of arrivals; tail − head ≤ window */
    struct engine_arrival *arrivals; /* [window] */
};

struct engine_counters {
    atomic_uint_fast64_t bytes_sent, bytes_received, messages_sent, messages_received;
};

struct engine_wire {
    struct link *link;
    struct engine_lane lanes[LINK_QUEUES][ENGINE_KINDS];
    bool credit_due;
    bool pinged[LINK_QUEUES];
    struct engine_counters counters;
};

/* Written by the driver, read by anybody. */
static inline void engine_count(atomic_uint_fast64_t *counter, uint64_t more) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

enum engine_stage {
    STAGE_POSTED, /* waits for its turn */
    STAGE_ASKED,  /* SEND: asked, waits for the answer */
    STAGE_RUN,    /* its plan runs */
    STAGE_SKIP,   /* RECV: takes in and drops a message of a wrong length */
    STAGE_DONE
};

struct engine_request {
    bool used;     /* under mutex */
    bool finished; /* under mutex */
    struct engine_call call;
    uint64_t number; /* collectives: of the group; point to point: of (peer, direction) */
    uint64_t fingerprint;
    enum engine_stage stage;
    const struct plan *plan;
    reduce_kernel kernel;
    uint32_t element_bytes;
    uint64_t *progress; /* [step] bytes done */
    bool *done;         /* [step] */
    uint32_t n_done;
    uint32_t first_open;
    uint64_t skip_left; /* STAGE_SKIP: bytes of the message still to come */
    enum link_queue skip_queue;
    struct base_error error;     /* what it ends with, where that does not poison the group */
    struct engine_request *next; /* in posted order */

    /* patience.c: kept here, not with the driver, so that it outlives a change of drivers. */
    uint64_t moves;      /* granules, questions and answers so far */
    uint64_t seen_moves; /* of those, at the last look */
    uint64_t since_ns;   /* the look from which on nothing moved, 0 = none yet */
    uint64_t left_ns;    /* the look that first saw that the peer it waits for has left, 0 = none */
    bool compared, warned;
};

struct engine_answer {
    bool valid;
    uint64_t number;
    uint32_t verdict;
    uint64_t n_bytes;
};

struct engine {
    struct engine_options options;
    int n_wires; /* size · wires, own ones unused */
    struct engine_wire *wires;
    struct engine_pool pools[LINK_QUEUES];
    struct plan_cache *plans;
    struct plan_limits limits;
    uint64_t *next_send, *next_recv; /* [peer] numbers of point-to-point messages */
    struct engine_answer *answers;   /* [peer] */
    uint64_t activity;               /* grows with everything that moves */

    /* Under mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* a request ended, the token is free, or everything failed */
    bool driven;            /* somebody has the token */
    uint64_t next_collective;
    uint64_t n_operations;
    struct engine_request requests[ENGINE_MAX_REQUESTS];
    struct engine_request *posted, **posted_end; /* handed over to the driver */
    atomic_bool has_posted;
    struct base_error failure;
    atomic_bool failed;
    atomic_bool *left; /* [peer] it closed its group in order */
    atomic_int n_left;

    /* The driver's list of what is under way, in posted order. */
    struct engine_request *active;
};

static inline bool engine_is_point(const struct engine_request *request) {
    return request->call.operation == PLAN_SEND || request->call.operation == PLAN_RECV;
}

static inline bool engine_all_finished(struct engine_request *const *requests, int n_requests) {
    for (int i = 0; i < n_requests; i++)
        if (!requests[i]->finished)
            return false;
    return true;
}

static inline struct engine_wire *engine_wire_to(struct engine *engine, int peer, int wire) {
    return &engine->wires[peer * engine->options.wires + wire];
}

/* staging.c */
jackal_status engine_pools_open(struct engine *engine, struct base_error *error);
void engine_pools_close(struct engine *engine);
struct engine_slot *engine_slot_take(struct engine *engine, enum link_queue queue);
void engine_slot_release(struct engine *engine, enum link_queue queue, uint32_t token);
/* Writes the header, clears the tail; returns how many bytes travel. */
uint32_t engine_slot_seal(struct engine *engine, struct engine_slot *slot,
                          struct wire_header *header);
uint32_t engine_slot_token(const struct engine *engine, enum link_queue queue,
                           const struct engine_slot *slot);

/* wires.c */
jackal_status engine_wires_open(struct engine *engine, struct base_error *error);
void engine_wires_close(struct engine *engine);
/* Takes in what arrived on every wire and returns credits that are due. */
jackal_status engine_wires_poll(struct engine *engine, struct base_error *error);
bool engine_lane_ready(const struct engine_wire *wire, enum link_queue queue,
                       enum engine_kind kind);
jackal_status engine_lane_send(struct engine *engine, struct engine_wire *wire,
                               enum link_queue queue, enum engine_kind kind,
                               struct engine_slot *slot, uint32_t n_bytes,
                               struct base_error *error);
const struct engine_arrival *engine_lane_head(const struct engine_wire *wire, enum link_queue queue,
                                              enum engine_kind kind);
const uint8_t *engine_arrival_payload(const struct engine_wire *wire, enum link_queue queue,
                                      const struct engine_arrival *arrival);
/* Drops the head of the lane and gives its slot back. */
jackal_status engine_lane_consume(struct engine *engine, struct engine_wire *wire,
                                  enum link_queue queue, enum engine_kind kind,
                                  struct base_error *error);
/* A message of its own on the small queue, outside of credits (answers, pings). */
jackal_status engine_send_reserved(struct engine *engine, struct engine_wire *wire,
                                   enum link_queue queue, struct engine_slot *slot,
                                   struct wire_header *header, struct base_error *error);

/* run.c: takes the plan of a request and advances it as far as one pass goes. */
jackal_status engine_run_begin(struct engine *engine, struct engine_request *request,
                               struct base_error *error);
jackal_status engine_run_advance(struct engine *engine, struct engine_request *request,
                                 struct base_error *error);
/* Who and what a request waits for, for a time-out. */
void engine_run_describe(const struct engine *engine, const struct engine_request *request,
                         struct base_error *error);
/* Has a peer sent a message of another call, this one's number or an earlier one? */
jackal_status engine_run_compare(struct engine *engine, const struct engine_request *request,
                                 struct base_error *error);

/* point.c: the same for sends and receives, with the question and answer before the plan. */
/* A later message of the same sender is there although the one that is waited for is not. */
bool engine_point_overtaken(const struct engine *engine, const struct engine_request *request);
jackal_status engine_point_advance(struct engine *engine, struct engine_request *request,
                                   struct base_error *error);

/* patience.c: looks at one request that has its turn: has it waited too long, for a rank that left,
 * or for one that made another call? */
jackal_status engine_look(struct engine *engine, struct engine_request *request, uint64_t now_ns,
                          struct base_error *error);

/* drive.c: drives the engine until the requests are finished or the engine has failed. The caller
 * has the token. */
void engine_drive(struct engine *engine, struct engine_request *const *requests, int n_requests);

#endif
