/* SPDX-License-Identifier: MIT */
/* Life of an engine, and the callers' side of its requests. */
#include "engine/engine.h"

#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jackal_status open_requests(struct engine *engine, struct base_error *error) {
    /* A step or two per peer and wire and phase: the bound that plan_new() takes. */
    struct plan *bound = plan_new(engine->options.size, engine->options.wires);
    size_t n_steps = bound != NULL ? bound->max_steps : 0;
    plan_free(bound);
    for (int i = 0; i < ENGINE_MAX_REQUESTS; i++) {
        struct engine_request *request = &engine->requests[i];
        request->progress = calloc(n_steps, sizeof *request->progress);
        request->done = calloc(n_steps, sizeof *request->done);
        if (n_steps == 0 || request->progress == NULL || request->done == NULL)
            return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for requests");
    }
    return JACKAL_OK;
}

static jackal_status open_peers(struct engine *engine, struct base_error *error) {
    size_t size = (size_t)engine->options.size;
    engine->next_send = calloc(size, sizeof *engine->next_send);
    engine->next_recv = calloc(size, sizeof *engine->next_recv);
    engine->answers = calloc(size, sizeof *engine->answers);
    engine->left = calloc(size, sizeof *engine->left);
    engine->plans = plan_cache_new(engine->options.size, engine->options.wires);
    if (engine->next_send == NULL || engine->next_recv == NULL || engine->answers == NULL ||
        engine->left == NULL || engine->plans == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for %d ranks",
                         engine->options.size);
    return JACKAL_OK;
}

jackal_status engine_new(const struct engine_options *options, struct engine **engine_p,
                         struct base_error *error) {
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        for (int i = 0; i < options->size * options->wires; i++)
            link_close(options->links[i]);
        free(options->links);
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for an engine");
    }
    engine->options = *options;
    engine->posted_end = &engine->posted;
    engine_limits(&options->geometry, &engine->limits);
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_cond_init(&engine->changed, NULL);
    jackal_status status = engine_wires_open(engine, error);
    if (status == JACKAL_OK)
        status = engine_pools_open(engine, error);
    if (status == JACKAL_OK)
        status = open_peers(engine, error);
    if (status == JACKAL_OK)
        status = open_requests(engine, error);
    if (status != JACKAL_OK) {
        engine_free(engine);
        return status;
    }
    *engine_p = engine;
    return JACKAL_OK;
}

void engine_free(struct engine *engine) {
    if (engine == NULL)
        return;
    engine_wires_close(engine);
    engine_pools_close(engine);
    plan_cache_free(engine->plans);
    for (int i = 0; i < ENGINE_MAX_REQUESTS; i++) {
        free(engine->requests[i].progress);
        free(engine->requests[i].done);
    }
    free(engine->next_send);
    free(engine->next_recv);
    free(engine->answers);
    free(engine->left);
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->mutex);
    free(engine);
}

static int count_free(const struct engine *engine) {
    int n_free = 0;
    for (int i = 0; i < ENGINE_MAX_REQUESTS; i++)
        n_free += !engine->requests[i].used;
    return n_free;
}

/* ---- failure ----------------------------------------------------------------------------------
 */

void engine_fail(struct engine *engine, const struct base_error *error) {
    pthread_mutex_lock(&engine->mutex);
    if (!atomic_load_explicit(&engine->failed, memory_order_relaxed)) {
        engine->failure = *error;
        atomic_store_explicit(&engine->failed, true, memory_order_release);
    }
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}

void engine_stop(struct engine *engine) {
    struct base_error error;
    base_fail(&error, JACKAL_ERR_ABORTED, "the group was closed while a call was under way");
    engine_fail(engine, &error);
    pthread_mutex_lock(&engine->mutex);
    while (engine->driven || count_free(engine) < ENGINE_MAX_REQUESTS)
        pthread_cond_wait(&engine->changed, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
}

jackal_status engine_state(struct engine *engine, struct base_error *error) {
    if (!atomic_load_explicit(&engine->failed, memory_order_acquire))
        return JACKAL_OK;
    if (error != NULL)
        *error = engine->failure; /* never written again */
    return engine->failure.status;
}

void engine_peer_left(struct engine *engine, int peer) {
    if (!atomic_exchange_explicit(&engine->left[peer], true, memory_order_acq_rel))
        atomic_fetch_add_explicit(&engine->n_left, 1, memory_order_release);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static struct engine_request *find_free(struct engine *engine) {
    int i = 0;
    while (engine->requests[i].used)
        i++;
    return &engine->requests[i];
}

/* Point-to-point numbers are given by the driver, which alone knows the peers' counters. */
static void fill(struct engine *engine, struct engine_request *request,
                 const struct engine_call *call) {
    request->used = true;
    request->finished = false;
    request->call = *call;
    bool point = engine_is_point(request);
    request->moves = request->since_ns = 0;
    request->stage = STAGE_POSTED;
    request->plan = NULL;
    request->next = NULL;
    request->number = point ? 0 : engine->next_collective++;
    request->fingerprint = point ? 0
                                 : wire_fingerprint((int)call->operation, call->dtype, call->op,
                                                    call->count, call->root);
    request->kernel = reduce_find(call->dtype, call->op);
    request->element_bytes = point ? 1 : (uint32_t)reduce_dtype_bytes(call->dtype);
    base_error_clear(&request->error);
}

/* Under mutex: posts all calls together, or none. */
static jackal_status post(struct engine *engine, const struct engine_call *calls, int n_calls,
                          struct engine_request **requests, struct base_error *error) {
    if (count_free(engine) < n_calls)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "%d calls of other threads are under way in this group, and there can be "
                         "no more at once",
                         ENGINE_MAX_REQUESTS);
    for (int i = 0; i < n_calls; i++) {
        requests[i] = find_free(engine);
        fill(engine, requests[i], &calls[i]);
        *engine->posted_end = requests[i];
        engine->posted_end = &requests[i]->next;
    }
    engine->n_operations += (uint64_t)n_calls;
    atomic_store_explicit(&engine->has_posted, true, memory_order_release);
    return JACKAL_OK;
}

/*
 * Under mutex. After a failure a caller may leave only when nobody drives: until then its buffers
 * may still be in use.
 */
static void wait(struct engine *engine, struct engine_request *const *requests, int n_requests) {
    while (!engine_all_finished(requests, n_requests)) {
        bool failed = atomic_load_explicit(&engine->failed, memory_order_relaxed);
        if (engine->driven) {
            pthread_cond_wait(&engine->changed, &engine->mutex);
            continue;
        }
        if (failed)
            return;
        engine->driven = true;
        pthread_mutex_unlock(&engine->mutex);
        engine_drive(engine, requests, n_requests);
        pthread_mutex_lock(&engine->mutex);
        engine->driven = false;
        pthread_cond_broadcast(&engine->changed);
    }
}

jackal_status engine_run(struct engine *engine, const struct engine_call *calls, int n_calls,
                         struct base_error *error) {
    struct engine_request *requests[2];
    jackal_status status = engine_state(engine, error);
    if (status != JACKAL_OK)
        return status;
    pthread_mutex_lock(&engine->mutex);
    status = post(engine, calls, n_calls, requests, error);
    if (status != JACKAL_OK) {
        pthread_mutex_unlock(&engine->mutex);
        return status;
    }
    wait(engine, requests, n_calls);
    bool finished = engine_all_finished(requests, n_calls);
    for (int i = 0; i < n_calls; i++) {
        if (status == JACKAL_OK && requests[i]->error.status != JACKAL_OK) {
            *error = requests[i]->error;
            status = error->status;
        }
        requests[i]->used = false;
    }
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
    return finished ? status : engine_state(engine, error);
}

/* ---- statistics -------------------------------------------------------------------------------
 */

uint64_t engine_operations(struct engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    uint64_t n = engine->n_operations;
    pthread_mutex_unlock(&engine->mutex);
    return n;
}

bool engine_wire_stats(struct engine *engine, int peer, int wire,
                       struct engine_wire_stats *stats_p) {
    const struct engine_wire *it = engine_wire_to(engine, peer, wire);
    if (it->link == NULL)
        return false;
    stats_p->peer = peer;
    stats_p->wire = wire;
    snprintf(stats_p->device, sizeof stats_p->device, "%s", it->link->device);
    stats_p->bytes_sent = atomic_load(&it->counters.bytes_sent);
    stats_p->bytes_received = atomic_load(&it->counters.bytes_received);
    stats_p->messages_sent = atomic_load(&it->counters.messages_sent);
    stats_p->messages_received = atomic_load(&it->counters.messages_received);
    return true;
}
