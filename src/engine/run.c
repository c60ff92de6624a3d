/* SPDX-License-Identifier: MIT */
/* Runs the plan of one request, granule by granule, on real links. */
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One granule of one step: bytes [at, at + n_bytes) of its range. */
struct granule {
    const struct plan_step *step;
    uint32_t index; /* of the step */
    uint64_t at;
    uint64_t n_bytes;
};

static enum engine_kind kind_of(const struct engine_request *request) {
    return engine_is_point(request) ? ENGINE_POINT : ENGINE_COLLECTIVE;
}

static enum link_queue queue_of(const struct engine_request *request) {
    return request->plan->queue == PLAN_BULK ? LINK_BULK : LINK_SMALL;
}

static struct engine_wire *wire_of(const struct engine *engine, const struct plan_term *term) {
    return &engine->wires[term->peer * engine->options.wires + term->wire];
}

static void finish_step(struct engine_request *request, uint32_t index) {
    request->done[index] = true;
    request->n_done++;
    while (request->first_open < request->plan->n_steps && request->done[request->first_open])
        request->first_open++;
    if (request->n_done == request->plan->n_steps)
        request->stage = STAGE_DONE;
}

jackal_status engine_run_begin(struct engine *engine, struct engine_request *request,
                               struct base_error *error) {
    const struct engine_call *call = &request->call;
    struct plan_request wanted = {.operation = call->operation,
                                  .rank = engine->options.rank,
                                  .size = engine->options.size,
                                  .wires = engine->options.wires,
                                  .root = call->root,
                                  .count = call->count,
                                  .element_bytes = request->element_bytes,
                                  .algorithm = engine->options.algorithm,
                                  .limits = engine->limits};
    jackal_status status = plan_cache_get(engine->plans, &wanted, &request->plan, error);
    if (status != JACKAL_OK)
        return status;
    uint32_t n_steps = request->plan->n_steps;
    memset(request->progress, 0, n_steps * sizeof *request->progress);
    memset(request->done, 0, n_steps * sizeof *request->done);
    request->n_done = request->first_open = 0;
    request->stage = STAGE_RUN;
    for (uint32_t i = 0; i < n_steps; i++)
        if (plan_granules(request->plan, &request->plan->steps[i]) == 0)
            finish_step(request, i);
    return JACKAL_OK;
}

static struct granule next_granule(const struct engine_request *request, uint32_t index) {
    const struct plan_step *step = &request->plan->steps[index];
    uint64_t left = step->n_bytes - request->progress[index];
    uint64_t most = request->plan->granule_bytes;
    return (struct granule){step, index, request->progress[index], left < most ? left : most};
}

/* ---- may a granule be handled? ----------------------------------------------------------------
 */

static bool waits_are_over(const struct engine_request *request, const struct granule *granule) {
    for (uint16_t i = 0; i < granule->step->n_waits; i++) {
        const struct plan_wait *wait = &granule->step->waits[i];
        if (request->done[wait->step])
            continue;
        if (wait->ahead == PLAN_UNTIL_DONE ||
            request->progress[wait->step] < granule->at + granule->n_bytes + wait->ahead)
            return false;
    }
    return true;
}

/* The first lane that holds the granule up, or NULL. */
static const struct plan_term *blocked_by(const struct engine *engine,
                                          const struct engine_request *request,
                                          const struct granule *granule) {
    enum link_queue queue = queue_of(request);
    enum engine_kind kind = kind_of(request);
    const struct plan_step *step = granule->step;
    for (uint16_t i = 0; i < step->n_sources; i++)
        if (step->sources[i].place == PLAN_LANE &&
            engine_lane_head(wire_of(engine, &step->sources[i]), queue, kind) == NULL)
            return &step->sources[i];
    for (uint16_t i = 0; i < step->n_destinations; i++)
        if (step->destinations[i].place == PLAN_LANE &&
            !engine_lane_ready(wire_of(engine, &step->destinations[i]), queue, kind))
            return &step->destinations[i];
    return NULL;
}

static bool sends(const struct plan_step *step) {
    return step->n_destinations > 0 &&
           step->destinations[step->n_destinations - 1].place == PLAN_LANE;
}

/* ---- what came in must be what this step expects ----------------------------------------------
 */

static jackal_status call_differs(const struct engine *engine, const struct engine_request *request,
                                  int peer, struct base_error *error) {
    const struct engine_call *call = &request->call;
    const char *dtype = reduce_dtype_name(call->dtype), *op = reduce_op_name(call->op);
    return base_fail_peer(error, JACKAL_ERR_MISMATCH, peer,
                          "collective #%llu: rank %d called %s(count %llu, %s, %s, root %d), rank "
                          "%d called something else",
                          (unsigned long long)request->number, engine->options.rank,
                          plan_operation_name(call->operation), (unsigned long long)call->count,
                          dtype != NULL ? dtype : "bytes", op != NULL ? op : "no op", call->root,
                          peer);
}

/*
 * A finished collective has taken in all that its plan expects. What is still there of one was sent
 * by a rank that made another call, a broadcast from another root for example.
 */
static jackal_status call_left_over(const struct engine *engine, int peer,
                                    const struct wire_header *header, struct base_error *error) {
    return base_fail_peer(error, JACKAL_ERR_MISMATCH, peer,
                          "collective #%llu: rank %d sent %llu bytes that the call of rank %d does "
                          "not take, so the two made different calls",
                          (unsigned long long)header->operation, peer,
                          (unsigned long long)header->total_bytes, engine->options.rank);
}

static jackal_status check_header(const struct engine *engine, const struct engine_request *request,
                                  const struct granule *granule, int peer,
                                  const struct wire_header *header, struct base_error *error) {
    const struct plan_step *step = granule->step;
    uint64_t offset = step->message_at + granule->at;
    if (header->operation == request->number && header->fingerprint == request->fingerprint &&
        header->phase == step->phase && header->offset == offset &&
        header->payload_bytes == granule->n_bytes &&
        header->total_bytes == request->plan->total_bytes)
        return JACKAL_OK;
    if (header->operation == request->number && header->fingerprint != request->fingerprint)
        return call_differs(engine, request, peer, error);
    if (kind_of(request) == ENGINE_COLLECTIVE && header->operation < request->number)
        return call_left_over(engine, peer, header, error);
    return base_fail_peer(error, JACKAL_ERR_DATA_LOST, peer,
                          "%s #%llu: expected phase %u, byte %llu (%llu bytes) from rank %d, but "
                          "#%llu, phase %u, byte %llu (%u bytes) came: a message was lost",
                          plan_operation_name(request->call.operation),
                          (unsigned long long)request->number, step->phase,
                          (unsigned long long)offset, (unsigned long long)granule->n_bytes, peer,
                          (unsigned long long)header->operation, header->phase,
                          (unsigned long long)header->offset, header->payload_bytes);
}

/* ---- handling one granule ---------------------------------------------------------------------
 */

/* Collects where the sources' bytes are, and checks those that came over a lane. */
static jackal_status find_sources(const struct engine *engine, const struct engine_request *request,
                                  const struct granule *granule, const void **sources,
                                  struct base_error *error) {
    const struct plan_step *step = granule->step;
    const uint8_t *in = request->call.in, *out = request->call.out;
    enum link_queue queue = queue_of(request);
    for (uint16_t i = 0; i < step->n_sources; i++) {
        const struct plan_term *term = &step->sources[i];
        if (term->place != PLAN_LANE) {
            const uint8_t *base = term->place == PLAN_IN ? in : out;
            sources[i] = base != NULL ? base + term->at + granule->at : NULL;
            continue;
        }
        const struct engine_wire *wire = wire_of(engine, term);
        const struct engine_arrival *arrival = engine_lane_head(wire, queue, kind_of(request));
        jackal_status status =
            check_header(engine, request, granule, term->peer, &arrival->header, error);
        if (status != JACKAL_OK)
            return status;
        sources[i] = engine_arrival_payload(wire, queue, arrival);
    }
    return JACKAL_OK;
}

static void produce(const struct engine_request *request, const struct granule *granule,
                    const void *const *sources, void *destination) {
    if (granule->n_bytes == 0)
        return;
    if (granule->step->combine)
        request->kernel(destination, sources, granule->step->n_sources,
                        granule->n_bytes / request->element_bytes);
    else if (destination != sources[0])
        memcpy(destination, sources[0], granule->n_bytes);
}

static jackal_status send_granule(struct engine *engine, const struct engine_request *request,
                                  const struct granule *granule, struct engine_slot *slot,
                                  struct base_error *error) {
    const struct plan_step *step = granule->step;
    enum link_queue queue = queue_of(request);
    enum engine_kind kind = kind_of(request);
    struct wire_header header = {.kind = kind == ENGINE_POINT ? WIRE_POINT : WIRE_COLLECTIVE,
                                 .phase = step->phase,
                                 .payload_bytes = (uint32_t)granule->n_bytes,
                                 .operation = request->number,
                                 .fingerprint = request->fingerprint,
                                 .total_bytes = request->plan->total_bytes,
                                 .offset = step->message_at + granule->at};
    uint32_t n_bytes = engine_slot_seal(engine, slot, &header);
    for (uint16_t i = 0; i < step->n_destinations; i++) {
        const struct plan_term *term = &step->destinations[i];
        if (term->place != PLAN_LANE)
            continue;
        struct engine_wire *wire = wire_of(engine, term);
        jackal_status status = engine_lane_send(engine, wire, queue, kind, slot, n_bytes, error);
        if (status != JACKAL_OK)
            return status;
        engine_count(&wire->counters.bytes_sent, granule->n_bytes);
    }
    return JACKAL_OK;
}

static jackal_status consume_sources(struct engine *engine, const struct engine_request *request,
                                     const struct plan_step *step, struct base_error *error) {
    for (uint16_t i = 0; i < step->n_sources; i++) {
        if (step->sources[i].place != PLAN_LANE)
            continue;
        jackal_status status = engine_lane_consume(engine, wire_of(engine, &step->sources[i]),
                                                   queue_of(request), kind_of(request), error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

/*
 * Destinations in `out` come first, and the message is a copy of the first of them: a combination
 * is computed once. A step without such a destination produces straight into the slot.
 */
static jackal_status handle(struct engine *engine, struct engine_request *request,
                            const struct granule *granule, struct engine_slot *slot,
                            struct base_error *error) {
    const void *sources[PLAN_MESH_MAX_SIZE + 1];
    const struct plan_step *step = granule->step;
    jackal_status status = find_sources(engine, request, granule, sources, error);
    if (status != JACKAL_OK)
        return status;
    uint8_t *out = request->call.out;
    uint8_t *payload = slot != NULL ? slot->buffer.bytes + WIRE_HEADER_BYTES : NULL;
    const void *produced = NULL;
    for (uint16_t i = 0; i < step->n_destinations; i++) {
        const struct plan_term *term = &step->destinations[i];
        if (term->place != PLAN_OUT || granule->n_bytes == 0)
            continue;
        uint8_t *destination = out + term->at + granule->at;
        produce(request, granule, sources, destination);
        produced = destination;
    }
    if (payload != NULL && produced != NULL)
        memcpy(payload, produced, granule->n_bytes);
    else if (payload != NULL)
        produce(request, granule, sources, payload);
    if (slot != NULL)
        status = send_granule(engine, request, granule, slot, error);
    if (status == JACKAL_OK)
        status = consume_sources(engine, request, step, error);
    return status;
}

/* One granule of step `index`, if it can be done now; *moved_p says so. */
static jackal_status advance_step(struct engine *engine, struct engine_request *request,
                                  uint32_t index, bool *moved_p, struct base_error *error) {
    const struct plan_step *step = &request->plan->steps[index];
    struct granule granule = next_granule(request, index);
    *moved_p = false;
    if (!waits_are_over(request, &granule) || blocked_by(engine, request, &granule) != NULL)
        return JACKAL_OK;
    struct engine_slot *slot = NULL;
    if (sends(step)) {
        slot = engine_slot_take(engine, queue_of(request));
        if (slot == NULL)
            return JACKAL_OK;
    }
    jackal_status status = handle(engine, request, &granule, slot, error);
    if (status != JACKAL_OK)
        return status;
    request->progress[index] += granule.n_bytes;
    request->moves++;
    engine->activity++;
    if (request->progress[index] == step->n_bytes)
        finish_step(request, index);
    *moved_p = true;
    return JACKAL_OK;
}

/*
 * Goes over the open steps once, a granule each: many steps share the staging slots and the
 * processor's cache, and none may take them all.
 */
jackal_status engine_run_advance(struct engine *engine, struct engine_request *request,
                                 struct base_error *error) {
    for (uint32_t i = request->first_open; i < request->plan->n_steps; i++) {
        bool moved = !request->done[i];
        if (!moved)
            continue;
        jackal_status status = advance_step(engine, request, i, &moved, error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

/* ---- for messages -----------------------------------------------------------------------------
 */

static void describe_step(const struct engine *engine, const struct engine_request *request,
                          uint32_t index, const struct plan_term *lane, struct base_error *error) {
    const struct plan_step *step = &request->plan->steps[index];
    const struct engine_wire *wire = wire_of(engine, lane);
    bool receiving = lane >= step->sources && lane < step->sources + step->n_sources;
    base_fail_peer(error, JACKAL_ERR_TIMEOUT, lane->peer,
                   "%s #%llu: waits for rank %u to %s (wire %d, %s): byte %llu of %llu of step %u, "
                   "%u of %u steps done",
                   plan_operation_name(request->call.operation),
                   (unsigned long long)request->number, lane->peer,
                   receiving ? "send" : "take messages", wire->link->wire, wire->link->device,
                   (unsigned long long)request->progress[index], (unsigned long long)step->n_bytes,
                   index, request->n_done, request->plan->n_steps);
}

void engine_run_describe(const struct engine *engine, const struct engine_request *request,
                         struct base_error *error) {
    for (uint32_t i = 0; request->plan != NULL && i < request->plan->n_steps; i++) {
        struct granule granule = next_granule(request, i);
        if (request->done[i] || !waits_are_over(request, &granule))
            continue;
        const struct plan_term *lane = blocked_by(engine, request, &granule);
        if (lane != NULL) {
            describe_step(engine, request, i, lane, error);
            return;
        }
    }
    base_fail(error, JACKAL_ERR_TIMEOUT, "%s #%llu: waits for the links to send",
              plan_operation_name(request->call.operation), (unsigned long long)request->number);
}

jackal_status engine_run_compare(struct engine *engine, const struct engine_request *request,
                                 struct base_error *error) {
    for (int i = 0; i < engine->n_wires; i++) {
        const struct engine_wire *wire = &engine->wires[i];
        for (int queue = 0; wire->link != NULL && queue < LINK_QUEUES; queue++) {
            const struct engine_arrival *head =
                engine_lane_head(wire, (enum link_queue)queue, ENGINE_COLLECTIVE);
            if (head != NULL && head->header.operation == request->number &&
                head->header.fingerprint != request->fingerprint)
                return call_differs(engine, request, wire->link->peer, error);
            if (head != NULL && head->header.operation < request->number)
                return call_left_over(engine, wire->link->peer, &head->header, error);
        }
    }
    return JACKAL_OK;
}
