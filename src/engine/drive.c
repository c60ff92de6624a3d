/* SPDX-License-Identifier: MIT */
/*
 * The driver's loop: poll, advance, and wait well. Waiting spins for some polls (a message is often
 * only microseconds away), then gives way to others, then naps; it reads no clock while it spins.
 */
#include "base/clock.h"
#include "engine/internal.h"

#include <sched.h>
#include <string.h>

enum {
    SPIN_POLLS = 512, /* some 20 µs; giving way costs under 1 µs where nobody else wants it */
    CROWDED_SPIN_POLLS = 8, /* spinning would take time from the very rank that is waited for */
    POLLS_PER_CLOCK = 1024
};

/* Giving way is fast to come back from but not free; after this, sleep. */
#define YIELD_NS UINT64_C(1000000)
/* How long the last messages of a rank that left in order may take. */
#define LEFT_NS    UINT64_C(500000000)
#define MAX_NAP_US 1000

struct patience {
    uint64_t seen;     /* activity when something last moved */
    uint64_t polls;    /* since then */
    uint64_t since_ns; /* clock when idling was first noticed, 0 = not yet */
    bool warned;
};

/* ---- requests ---------------------------------------------------------------------------------
 */

static bool is_point(const struct engine_request *request) {
    return request->call.operation == PLAN_SEND || request->call.operation == PLAN_RECV;
}

static void number_point(struct engine *engine, struct engine_request *request) {
    int peer = request->call.root;
    if (request->call.operation == PLAN_SEND)
        request->number = engine->next_send[peer]++;
    else if (request->call.operation == PLAN_RECV)
        request->number = engine->next_recv[peer]++;
}

static void take_posted(struct engine *engine) {
    if (!atomic_load_explicit(&engine->has_posted, memory_order_acquire))
        return;
    pthread_mutex_lock(&engine->mutex);
    struct engine_request **end = &engine->active;
    while (*end != NULL)
        end = &(*end)->next;
    *end = engine->posted;
    engine->posted = NULL;
    engine->posted_end = &engine->posted;
    atomic_store_explicit(&engine->has_posted, false, memory_order_relaxed);
    pthread_mutex_unlock(&engine->mutex);
    for (struct engine_request *request = *end; request != NULL; request = request->next)
        number_point(engine, request);
}

/*
 * Collectives run one after the other; of the sends to a peer, and of the receives from it, the
 * oldest runs. Everything else waits for its turn.
 */
static bool has_turn(const struct engine *engine, const struct engine_request *request) {
    for (const struct engine_request *other = engine->active; other != request;
         other = other->next) {
        if (is_point(other) != is_point(request))
            continue;
        if (!is_point(request) || (other->call.operation == request->call.operation &&
                                   other->call.root == request->call.root))
            return false;
    }
    return true;
}

static void finish(struct engine *engine, struct engine_request **place) {
    struct engine_request *request = *place;
    *place = request->next;
    if (request->plan != NULL)
        plan_cache_release(engine->plans, request->plan);
    request->plan = NULL;
    pthread_mutex_lock(&engine->mutex);
    request->finished = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}

static jackal_status advance(struct engine *engine, struct engine_request *request,
                             struct base_error *error) {
    if (is_point(request))
        return engine_point_advance(engine, request, error);
    jackal_status status = JACKAL_OK;
    if (request->stage == STAGE_POSTED)
        status = engine_run_begin(engine, request, error);
    if (status == JACKAL_OK && request->stage == STAGE_RUN)
        status = engine_run_advance(engine, request, error);
    return status;
}

static jackal_status drive_once(struct engine *engine, struct base_error *error) {
    take_posted(engine);
    jackal_status status = engine_wires_poll(engine, error);
    struct engine_request **place = &engine->active;
    while (*place != NULL && status == JACKAL_OK) {
        struct engine_request *request = *place;
        if (has_turn(engine, request))
            status = advance(engine, request, error);
        if (status == JACKAL_OK && request->stage == STAGE_DONE)
            finish(engine, place);
        else
            place = &request->next;
    }
    return status;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static void describe_wait(const struct engine *engine, struct base_error *error) {
    const struct engine_request *request = engine->active;
    if (request == NULL)
        base_fail(error, JACKAL_ERR_TIMEOUT, "nothing to wait for");
    else if (request->stage == STAGE_RUN)
        engine_run_describe(engine, request, error);
    else
        base_fail_peer(
            error, JACKAL_ERR_TIMEOUT, request->call.root,
            "%s #%llu (%llu bytes): rank %d has not %s",
            plan_operation_name(request->call.operation), (unsigned long long)request->number,
            (unsigned long long)request->call.count, request->call.root,
            request->call.operation == PLAN_SEND ? "posted a receive for it" : "sent it");
}

static jackal_status check_left(const struct engine *engine, uint64_t idle_ns,
                                struct base_error *error) {
    struct base_error wait;
    if (idle_ns < LEFT_NS)
        return JACKAL_OK;
    describe_wait(engine, &wait);
    if (wait.peer < 0 || !atomic_load_explicit(&engine->left[wait.peer], memory_order_acquire))
        return JACKAL_OK;
    return base_fail_peer(error, JACKAL_ERR_PEER_LOST, wait.peer,
                          "rank %d closed its group while it is waited for: %s", wait.peer,
                          wait.text);
}

static jackal_status check_limit(const struct engine *engine, struct patience *patience,
                                 uint64_t idle_ns, struct base_error *error) {
    uint64_t limit_ns = engine->options.progress_timeout_ms * 1000000u;
    if (limit_ns == 0 || idle_ns < limit_ns / 2)
        return JACKAL_OK;
    if (idle_ns >= limit_ns) {
        describe_wait(engine, error);
        return base_fail_peer(error, JACKAL_ERR_TIMEOUT, error->peer,
                              "nothing moved for %llu ms: %s",
                              (unsigned long long)engine->options.progress_timeout_ms, error->text);
    }
    if (!patience->warned) {
        struct base_error wait;
        describe_wait(engine, &wait);
        base_log(engine->options.log, JACKAL_LOG_WARNING, "nothing moved for %llu ms: %s",
                 (unsigned long long)(idle_ns / 1000000u), wait.text);
        patience->warned = true;
    }
    return JACKAL_OK;
}

/* A nap is an eighth of the wait so far: it never adds more than that to it. */
static void rest(uint64_t idle_ns) {
    if (idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    uint64_t nap_us = idle_ns / 8000;
    base_sleep_us(nap_us < MAX_NAP_US ? nap_us : MAX_NAP_US);
}

/* Nothing moved in the last poll. */
static jackal_status idle(struct engine *engine, struct patience *patience,
                          struct base_error *error) {
    uint64_t spin = engine->options.crowded ? CROWDED_SPIN_POLLS : SPIN_POLLS;
    patience->polls++;
    if (patience->polls < spin && patience->polls % POLLS_PER_CLOCK != 0)
        return JACKAL_OK;
    uint64_t now_ns = base_now_ns();
    if (patience->since_ns == 0)
        patience->since_ns = now_ns;
    if (patience->polls == spin && engine->active != NULL && !is_point(engine->active)) {
        jackal_status status = engine_run_compare(engine, engine->active, error);
        if (status != JACKAL_OK)
            return status;
    }
    uint64_t idle_ns = now_ns - patience->since_ns;
    if (patience->polls >= spin)
        rest(idle_ns);
    jackal_status status = check_left(engine, idle_ns, error);
    return status != JACKAL_OK ? status : check_limit(engine, patience, idle_ns, error);
}

static void be_patient_again(struct patience *patience, uint64_t activity) {
    *patience = (struct patience){.seen = activity};
}

/* Only the driver finishes requests, so it may look without the lock. */
static bool all_finished(struct engine_request *const *requests, int n_requests) {
    for (int i = 0; i < n_requests; i++)
        if (!requests[i]->finished)
            return false;
    return true;
}

static void fail_agreed(struct engine *engine, struct base_error *error) {
    if (engine->options.agree != NULL)
        engine->options.agree(engine->options.context, error);
    engine_fail(engine, error);
}

void engine_drive(struct engine *engine, struct engine_request *const *requests, int n_requests) {
    struct base_error error;
    struct patience patience;
    base_error_clear(&error);
    be_patient_again(&patience, engine->activity);
    while (!all_finished(requests, n_requests) &&
           !atomic_load_explicit(&engine->failed, memory_order_acquire)) {
        jackal_status status = drive_once(engine, &error);
        if (status == JACKAL_OK && engine->activity != patience.seen)
            be_patient_again(&patience, engine->activity);
        else if (status == JACKAL_OK)
            status = idle(engine, &patience, &error);
        if (status != JACKAL_OK)
            fail_agreed(engine, &error);
    }
}

static bool ping_is_over(const struct engine *engine, const struct engine_wire **missing_p) {
    for (int i = 0; i < engine->n_wires; i++) {
        const struct engine_wire *wire = &engine->wires[i];
        if (wire->link == NULL || (wire->pinged[LINK_SMALL] && wire->pinged[LINK_BULK]))
            continue;
        *missing_p = wire;
        return false;
    }
    return true;
}

static jackal_status send_pings(struct engine *engine, struct engine_wire *wire,
                                struct base_error *error) {
    jackal_status status = JACKAL_OK;
    for (int queue = 0; queue < LINK_QUEUES && status == JACKAL_OK; queue++) {
        struct engine_slot *slot = engine_slot_take(engine, (enum link_queue)queue);
        if (slot == NULL)
            return base_fail(error, JACKAL_ERR_LIMIT, "no staging slot for a ping");
        size_t n_bytes = strlen(wire->link->device);
        memcpy(slot->buffer.bytes + WIRE_HEADER_BYTES, wire->link->device, n_bytes);
        struct wire_header header = {.kind = WIRE_PING,
                                     .payload_bytes = (uint32_t)n_bytes,
                                     .offset = (uint64_t)wire->link->wire};
        status = engine_send_reserved(engine, wire, (enum link_queue)queue, slot, &header, error);
    }
    return status;
}

jackal_status engine_ping(struct engine *engine, uint64_t deadline_ns, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    const struct engine_wire *missing = NULL;
    for (int i = 0; i < engine->n_wires && status == JACKAL_OK; i++)
        if (engine->wires[i].link != NULL)
            status = send_pings(engine, &engine->wires[i], error);
    while (status == JACKAL_OK && !ping_is_over(engine, &missing)) {
        status = engine_wires_poll(engine, error);
        if (atomic_load_explicit(&engine->failed, memory_order_acquire))
            return engine_state(engine, error);
        if (status == JACKAL_OK && base_expired(deadline_ns))
            return base_fail_peer(error, JACKAL_ERR_LINK_DOWN, missing->link->peer,
                                  "wire %d to rank %d (%s) carried no message: check the cable and "
                                  "that both of its ends stand in the device matrix",
                                  missing->link->wire, missing->link->peer, missing->link->device);
        sched_yield();
    }
    return status;
}

void engine_drain(struct engine *engine, uint64_t deadline_ns) {
    struct base_error error;
    while (!atomic_load_explicit(&engine->failed, memory_order_acquire) &&
           !base_expired(deadline_ns)) {
        bool idle_slots = true;
        for (int queue = 0; queue < LINK_QUEUES; queue++)
            for (uint32_t i = 0; i < engine->pools[queue].n_slots; i++)
                idle_slots = idle_slots && engine->pools[queue].slots[i].users == 0;
        if (idle_slots || engine_wires_poll(engine, &error) != JACKAL_OK)
            return;
        sched_yield();
    }
}
