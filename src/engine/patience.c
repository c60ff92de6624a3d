/* SPDX-License-Identifier: MIT */
/*
 * How long a call may wait. Each request that has its turn is looked at by itself: one that nobody
 * serves must not be kept alive by another that moves.
 */
#include "engine/internal.h"

/* How long the last messages of a rank that left in order may take after that was seen, and how
 * long a message that another one has overtaken on the other queue. */
#define LEFT_NS UINT64_C(500000000)

static void describe_point(const struct engine_request *request, struct base_error *error) {
    base_fail_peer(
        error, JACKAL_ERR_TIMEOUT, request->call.root, "%s #%llu (%llu bytes): rank %d has not %s",
        plan_operation_name(request->call.operation), (unsigned long long)request->number,
        (unsigned long long)request->call.count, request->call.root,
        request->call.operation == PLAN_SEND ? "posted a receive for it" : "sent it");
}

static void describe_wait(const struct engine *engine, const struct engine_request *request,
                          struct base_error *error) {
    if (request->stage == STAGE_RUN)
        engine_run_describe(engine, request, error);
    else
        describe_point(request, error);
}

/*
 * The clock starts when the leaving is first seen here, not when the waiting began: both may have
 * come while this rank slept, together with the very message that it waits for.
 */
static jackal_status look_left(const struct engine *engine, struct engine_request *request,
                               uint64_t now_ns, struct base_error *error) {
    struct base_error wait;
    if (atomic_load_explicit(&engine->n_left, memory_order_acquire) == 0)
        return JACKAL_OK;
    describe_wait(engine, request, &wait);
    if (wait.peer < 0 || !atomic_load_explicit(&engine->left[wait.peer], memory_order_acquire))
        return JACKAL_OK;
    if (request->left_ns == 0)
        request->left_ns = now_ns;
    if (now_ns - request->left_ns < LEFT_NS)
        return JACKAL_OK;
    return base_fail_peer(error, JACKAL_ERR_PEER_LOST, wait.peer,
                          "rank %d closed its group while it is waited for: %s", wait.peer,
                          wait.text);
}

/* A sender's messages leave in order, so one that stays away when later ones are here is lost. */
static jackal_status look_lost(const struct engine *engine, const struct engine_request *request,
                               uint64_t idle_ns, struct base_error *error) {
    if (request->call.operation != PLAN_RECV || request->stage != STAGE_POSTED ||
        idle_ns < LEFT_NS || !engine_point_overtaken(engine, request))
        return JACKAL_OK;
    return base_fail_peer(error, JACKAL_ERR_DATA_LOST, request->call.root,
                          "recv #%llu from rank %d: later messages came, but not this one: it was "
                          "lost",
                          (unsigned long long)request->number, request->call.root);
}

static jackal_status look_limit(const struct engine *engine, struct engine_request *request,
                                uint64_t idle_ns, struct base_error *error) {
    struct base_error wait;
    uint64_t limit_ns = engine->options.progress_timeout_ms * 1000000u;
    if (limit_ns == 0 || idle_ns < limit_ns / 2)
        return JACKAL_OK;
    if (idle_ns >= limit_ns) {
        describe_wait(engine, request, &wait);
        return base_fail_peer(error, JACKAL_ERR_TIMEOUT, wait.peer, "nothing moved for %llu ms: %s",
                              (unsigned long long)engine->options.progress_timeout_ms, wait.text);
    }
    if (!request->warned) {
        describe_wait(engine, request, &wait);
        base_log(engine->options.log, JACKAL_LOG_WARNING, "nothing moved for %llu ms: %s",
                 (unsigned long long)(idle_ns / 1000000u), wait.text);
        request->warned = true;
    }
    return JACKAL_OK;
}

jackal_status engine_look(struct engine *engine, struct engine_request *request, uint64_t now_ns,
                          struct base_error *error) {
    if (request->since_ns == 0 || request->moves != request->seen_moves) {
        request->seen_moves = request->moves;
        request->since_ns = now_ns;
        request->left_ns = 0;
        request->compared = request->warned = false;
        return JACKAL_OK;
    }
    jackal_status status = JACKAL_OK;
    if (!request->compared && !engine_is_point(request) && request->stage == STAGE_RUN)
        status = engine_run_compare(engine, request, error);
    request->compared = true;
    if (status == JACKAL_OK)
        status = look_left(engine, request, now_ns, error);
    if (status == JACKAL_OK)
        status = look_lost(engine, request, now_ns - request->since_ns, error);
    if (status == JACKAL_OK)
        status = look_limit(engine, request, now_ns - request->since_ns, error);
    return status;
}
