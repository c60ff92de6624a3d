/* SPDX-License-Identifier: MIT */
/*
 * The engine runs plans over links.
 *
 * Callers post requests and wait for them. Whoever waits and finds nobody driving becomes the
 * driver: it polls all wires and completes anybody's work, until its own request is done; then the
 * token goes to another waiter. All state below the token has one writer at a time.
 *
 * Lock order: engine.mutex is the only lock here and is never held while links are driven.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/log.h"
#include "link/link.h"
#include "plan/plan.h"

struct engine;

/*
 * Message slots per wire and who may use them; the same on every rank. The windows are the credits
 * of each kind on each queue; the rest is reserved for messages that must never wait for credit:
 * two credit updates per (queue, kind), an answer in each direction, a ping.
 */
void engine_geometry(uint32_t slot_frames, struct link_geometry *geometry_p);

/* What plans may use of such slots. */
void engine_limits(const struct link_geometry *geometry, struct plan_limits *limits_p);

/* How many bytes of staging memory an engine needs for so many wires in all. */
size_t engine_staging_bytes(const struct link_geometry *geometry, int n_wires);

struct engine_options {
    int rank, size;
    int wires;           /* to every other rank */
    struct link **links; /* [peer · wires + wire], NULL for the own rank; the engine's from
                            engine_new() on, also when it fails */
    struct link_geometry geometry;
    struct link_buffer staging; /* engine_staging_bytes(), zeroed, registered with all links */
    bool whole_slots;           /* some provider counts frames: every message spans its slot */
    bool checksum;
    const char *algorithm; /* NULL = the fastest */
    uint64_t incarnation;
    uint64_t progress_timeout_ms; /* 0 = none */
    bool crowded;                 /* more ranks than processors here: waits give way at once */
    const struct base_log *log;
    /* Called once, by the thread that found the failure: tells the other ranks and may replace the
     * error by what all agreed on. */
    void (*agree)(void *context, struct base_error *error);
    void *context;
};

jackal_status engine_new(const struct engine_options *options, struct engine **engine_p,
                         struct base_error *error);
void engine_free(struct engine *engine);

/*
 * Sends one message over every queue of every wire and waits for the peer's: it finds wires that
 * carry nothing and cables that lead to another rank than the matrix says. Asks `is_over` now and
 * then whether a rank has given up meanwhile; if so, it returns JACKAL_PENDING at once.
 */
jackal_status engine_ping(struct engine *engine, uint64_t deadline_ns,
                          bool (*is_over)(void *context), void *context, struct base_error *error);

/* One call, as the public interface names it. */
struct engine_call {
    enum plan_operation operation;
    jackal_dtype dtype;
    jackal_op op;
    uint64_t count;
    int root; /* BROADCAST: root; SEND, RECV: the peer */
    const void *in;
    void *out;
};

/*
 * Runs one or two calls to their end (two: a send and a receive that progress together). Blocks.
 * The status is the first failure; `error` says more.
 */
jackal_status engine_run(struct engine *engine, const struct engine_call *calls, int n_calls,
                         struct base_error *error);

/* Fails everything in flight and to come with this error; the first one stays. Any thread. */
void engine_fail(struct engine *engine, const struct base_error *error);

/*
 * A rank closed its group in order. What it sent may still be on its way, so only a call that goes
 * on waiting for it fails. Any thread.
 */
void engine_peer_left(struct engine *engine, int peer);

/* Fails what is in flight and waits until no caller is inside any more; then it may be freed. */
void engine_stop(struct engine *engine);

/* JACKAL_OK, or the error that poisoned the engine. Any thread. */
jackal_status engine_state(struct engine *engine, struct base_error *error);

/* Lets sends that were handed to the links leave, up to a limit; does nothing while calls run. */
void engine_drain(struct engine *engine, uint64_t deadline_ns);

struct engine_wire_stats {
    int peer, wire;
    char device[64];
    uint64_t bytes_sent, bytes_received;       /* payload */
    uint64_t messages_sent, messages_received; /* with payload or not, credits excluded */
};

uint64_t engine_operations(struct engine *engine);
bool engine_wire_stats(struct engine *engine, int peer, int wire,
                       struct engine_wire_stats *stats_p);

#endif
