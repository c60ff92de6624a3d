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
    PASSES_PER_LOOK = 1024  /* the clock is read this often while something moves */
};

/* Giving way is fast to come back from but not free; after this, sleep. */
#define YIELD_NS   UINT64_C(1000000)
#define MAX_NAP_US 1000

/* Of one driver, for all requests together. */
struct idleness {
    uint64_t seen;     /* activity when something last moved */
    uint64_t polls;    /* since then */
    uint64_t since_ns; /* clock when that was first noticed, 0 = not yet */
};

/* ---- requests ---------------------------------------------------------------------------------
 */

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
        if (engine_is_point(other) != engine_is_point(request))
            continue;
        if (!engine_is_point(request) || (other->call.operation == request->call.operation &&
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
    if (engine_is_point(request))
        return engine_point_advance(engine, request, error);
    jackal_status status = JACKAL_OK;
    bool first_time = request->stage == STAGE_POSTED;
    if (first_time)
        status = engine_run_begin(engine, request, error);
    if (status == JACKAL_OK && first_time)
        status = engine_run_compare(engine, request, error);
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

/* A nap is an eighth of the wait so far: it never adds more than that to it. */
static void rest(uint64_t idle_ns) {
    if (idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    uint64_t nap_us = idle_ns / 8000;
    base_sleep_us(nap_us < MAX_NAP_US ? nap_us : MAX_NAP_US);
}

static jackal_status look_at_all(struct engine *engine, uint64_t now_ns, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    for (struct engine_request *request = engine->active; request != NULL && status == JACKAL_OK;
         request = request->next)
        if (has_turn(engine, request))
            status = engine_look(engine, request, now_ns, error);
    return status;
}

/* Nothing moved in the last poll: spin, then give way, then nap; all but spinning reads the clock.
 */
static jackal_status idle(struct engine *engine, struct idleness *idleness,
                          struct base_error *error) {
    uint64_t spin = engine->options.crowded ? CROWDED_SPIN_POLLS : SPIN_POLLS;
    if (++idleness->polls < spin)
        return JACKAL_OK;
    uint64_t now_ns = base_now_ns();
    if (idleness->since_ns == 0)
        idleness->since_ns = now_ns;
    jackal_status status = look_at_all(engine, now_ns, error);
    if (status == JACKAL_OK)
        rest(now_ns - idleness->since_ns);
    return status;
}

static void fail_agreed(struct engine *engine, struct base_error *error) {
    if (engine->options.agree != NULL)
        engine->options.agree(engine->options.context, error);
    engine_fail(engine, error);
}

static jackal_status drive_pass(struct engine *engine, struct idleness *idleness, uint64_t pass,
                                struct base_error *error) {
    jackal_status status = drive_once(engine, error);
    if (status != JACKAL_OK)
        return status;
    if (engine->activity == idleness->seen)
        return idle(engine, idleness, error);
    *idleness = (struct idleness){.seen = engine->activity};
    return pass % PASSES_PER_LOOK == 0 ? look_at_all(engine, base_now_ns(), error) : JACKAL_OK;
}

/* Only the driver finishes requests, so it may look at them without the lock. */
void engine_drive(struct engine *engine, struct engine_request *const *requests, int n_requests) {
    struct base_error error;
    struct idleness idleness = {.seen = engine->activity};
    base_error_clear(&error);
    for (uint64_t pass = 1; !engine_all_finished(requests, n_requests) &&
                            !atomic_load_explicit(&engine->failed, memory_order_acquire);
         pass++)
        if (drive_pass(engine, &idleness, pass, &error) != JACKAL_OK)
            fail_agreed(engine, &error);
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

/* How often the waiting for pings looks at something else. */
enum { PASSES_PER_QUESTION = 256 };

static jackal_status no_ping(const struct engine_wire *missing, struct base_error *error) {
    const struct link *link = missing->link;
    return base_fail_peer(error, JACKAL_ERR_LINK_DOWN, link->peer,
                          "wire %d to rank %d (%s) carried no message: the cable is bad, or one of "
                          "its ends is not where the device matrix says",
                          link->wire, link->peer, link->device);
}

static jackal_status wait_for_pings(struct engine *engine, uint64_t deadline_ns,
                                    bool (*is_over)(void *context), void *context,
                                    struct base_error *error) {
    const struct engine_wire *missing = NULL;
    for (unsigned pass = 1; !ping_is_over(engine, &missing); pass++) {
        jackal_status status = engine_wires_poll(engine, error);
        if (status != JACKAL_OK)
            return status;
        if (pass % PASSES_PER_QUESTION == 0 && is_over(context))
            return JACKAL_PENDING;
        if (base_expired(deadline_ns))
            return no_ping(missing, error);
        sched_yield();
    }
    return JACKAL_OK;
}

jackal_status engine_ping(struct engine *engine, uint64_t deadline_ns,
                          bool (*is_over)(void *context), void *context, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < engine->n_wires && status == JACKAL_OK; i++)
        if (engine->wires[i].link != NULL)
            status = send_pings(engine, &engine->wires[i], error);
    if (status == JACKAL_OK)
        status = wait_for_pings(engine, deadline_ns, is_over, context, error);
    if (status < 0)
        engine_fail(engine, error); /* nothing is posted after an error */
    return status;
}

static bool all_sent(const struct engine *engine) {
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        for (uint32_t i = 0; i < engine->pools[queue].n_slots; i++)
            if (engine->pools[queue].slots[i].users > 0)
                return false;
    return true;
}

/* Takes the token if it is free and no call is under way. */
static bool take_token(struct engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    bool busy = engine->driven;
    for (int i = 0; i < ENGINE_MAX_REQUESTS; i++)
        busy = busy || engine->requests[i].used;
    if (!busy)
        engine->driven = true;
    pthread_mutex_unlock(&engine->mutex);
    return !busy;
}

void engine_drain(struct engine *engine, uint64_t deadline_ns) {
    struct base_error error;
    if (!take_token(engine))
        return;
    while (!atomic_load_explicit(&engine->failed, memory_order_acquire) && !all_sent(engine) &&
           !base_expired(deadline_ns) && engine_wires_poll(engine, &error) == JACKAL_OK)
        sched_yield();
    pthread_mutex_lock(&engine->mutex);
    engine->driven = false;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}
