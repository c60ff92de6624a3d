/* SPDX-License-Identifier: MIT */
/*
 * Sends and receives. Messages from one rank to another are numbered; up to the eager limit they go
 * at once, above it the sender asks first and the receiver answers when it has posted a buffer of
 * that length. A wrong length fails the two calls it concerns and nothing else.
 */
#include "wire/point.h"
#include "engine/internal.h"

/* At most one question is open per peer and direction, so answers need no credit. */

static uint64_t eager_max(const struct engine *engine) {
    return engine->limits.payload_bytes[PLAN_BULK];
}

static jackal_status ask(struct engine *engine, struct engine_request *request,
                         struct base_error *error) {
    struct engine_wire *wire = engine_wire_to(engine, request->call.root, 0);
    if (!engine_lane_ready(wire, LINK_SMALL, ENGINE_POINT))
        return JACKAL_OK;
    struct engine_slot *slot = engine_slot_take(engine, LINK_SMALL);
    if (slot == NULL)
        return JACKAL_OK;
    engine->answers[request->call.root].valid = false;
    struct wire_header header = {
        .kind = WIRE_POINT_ASK, .operation = request->number, .total_bytes = request->call.count};
    uint32_t n_bytes = engine_slot_seal(engine, slot, &header);
    request->stage = STAGE_ASKED;
    return engine_lane_send(engine, wire, LINK_SMALL, ENGINE_POINT, slot, n_bytes, error);
}

static void fail_length(struct engine_request *request, uint64_t sent, uint64_t wanted,
                        bool sending) {
    base_fail_peer(&request->error, sent > wanted ? JACKAL_ERR_TRUNCATED : JACKAL_ERR_MISMATCH,
                   request->call.root, "%s #%llu: %llu bytes were sent, %llu are expected by %s%d",
                   sending ? "send" : "recv", (unsigned long long)request->number,
                   (unsigned long long)sent, (unsigned long long)wanted,
                   sending ? "rank " : "this rank, from rank ", request->call.root);
    request->stage = STAGE_DONE;
}

static jackal_status take_answer(struct engine *engine, struct engine_request *request,
                                 struct base_error *error) {
    struct engine_answer *answer = &engine->answers[request->call.root];
    if (!answer->valid)
        return JACKAL_OK;
    answer->valid = false;
    if (answer->number != request->number)
        return base_fail_peer(error, JACKAL_ERR_PROTOCOL, request->call.root,
                              "rank %d answers send #%llu while #%llu is asked", request->call.root,
                              (unsigned long long)answer->number,
                              (unsigned long long)request->number);
    if (answer->verdict == WIRE_GO)
        return engine_run_begin(engine, request, error);
    fail_length(request, request->call.count, answer->n_bytes, true);
    return JACKAL_OK;
}

static jackal_status answer(struct engine *engine, const struct engine_request *request,
                            enum wire_verdict verdict, struct base_error *error) {
    struct engine_slot *slot = engine_slot_take(engine, LINK_SMALL);
    struct wire_answer content = {verdict, request->call.count};
    wire_answer_encode(&content, slot->buffer.bytes + WIRE_HEADER_BYTES);
    struct wire_header header = {.kind = WIRE_POINT_ANSWER,
                                 .operation = request->number,
                                 .payload_bytes = WIRE_ANSWER_BYTES,
                                 .total_bytes = WIRE_ANSWER_BYTES};
    return engine_send_reserved(engine, engine_wire_to(engine, request->call.root, 0), LINK_SMALL,
                                slot, &header, error);
}

/* Whether answer() can be called: a staging slot and room on the queue. */
static bool can_answer(struct engine *engine, const struct engine_wire *wire) {
    const struct engine_pool *pool = &engine->pools[LINK_SMALL];
    return pool->first_free < pool->n_slots && wire->link->ops->room(wire->link, LINK_SMALL);
}

static jackal_status take_question(struct engine *engine, struct engine_request *request,
                                   uint64_t sent, struct base_error *error) {
    struct engine_wire *wire = engine_wire_to(engine, request->call.root, 0);
    if (!can_answer(engine, wire))
        return JACKAL_OK;
    jackal_status status = engine_lane_consume(engine, wire, LINK_SMALL, ENGINE_POINT, error);
    if (status != JACKAL_OK)
        return status;
    uint64_t wanted = request->call.count;
    enum wire_verdict verdict = sent == wanted ? WIRE_GO : sent > wanted ? WIRE_CUT : WIRE_MISMATCH;
    status = answer(engine, request, verdict, error);
    if (status != JACKAL_OK)
        return status;
    if (verdict == WIRE_GO)
        return engine_run_begin(engine, request, error);
    fail_length(request, sent, wanted, false);
    return JACKAL_OK;
}

/*
 * Messages come on either queue, by their length, and the receiver may expect another length: the
 * one with the next number is at the head of one of the two, since both are in order.
 */
static const struct engine_arrival *find_message(const struct engine *engine,
                                                 const struct engine_request *request,
                                                 enum link_queue *queue_p) {
    const struct engine_wire *wire = &engine->wires[request->call.root * engine->options.wires];
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        const struct engine_arrival *head =
            engine_lane_head(wire, (enum link_queue)queue, ENGINE_POINT);
        if (head != NULL && head->header.operation <= request->number) {
            *queue_p = (enum link_queue)queue;
            return head;
        }
    }
    return NULL;
}

bool engine_point_overtaken(const struct engine *engine, const struct engine_request *request) {
    const struct engine_wire *wire = &engine->wires[request->call.root * engine->options.wires];
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        const struct engine_arrival *head =
            engine_lane_head(wire, (enum link_queue)queue, ENGINE_POINT);
        if (head != NULL && head->header.operation > request->number)
            return true;
    }
    return false;
}

static jackal_status match(struct engine *engine, struct engine_request *request,
                           struct base_error *error) {
    enum link_queue queue = LINK_SMALL;
    const struct engine_arrival *head = find_message(engine, request, &queue);
    if (head == NULL)
        return JACKAL_OK;
    const struct wire_header *header = &head->header;
    if (header->operation != request->number)
        return base_fail_peer(error, JACKAL_ERR_DATA_LOST, request->call.root,
                              "recv #%llu from rank %d: a part of message #%llu is left over",
                              (unsigned long long)request->number, request->call.root,
                              (unsigned long long)header->operation);
    if (header->kind == WIRE_POINT_ASK)
        return take_question(engine, request, header->total_bytes, error);
    if (header->total_bytes == request->call.count)
        return engine_run_begin(engine, request, error);
    fail_length(request, header->total_bytes, request->call.count, false);
    request->skip_left = header->total_bytes;
    request->skip_queue = queue;
    request->stage = STAGE_SKIP;
    return JACKAL_OK;
}

static jackal_status skip(struct engine *engine, struct engine_request *request,
                          struct base_error *error) {
    struct engine_wire *wire = engine_wire_to(engine, request->call.root, 0);
    const struct engine_arrival *head = engine_lane_head(wire, request->skip_queue, ENGINE_POINT);
    if (head == NULL)
        return JACKAL_OK;
    uint64_t n_bytes = head->header.payload_bytes;
    request->moves++;
    request->skip_left -= n_bytes < request->skip_left ? n_bytes : request->skip_left;
    if (request->skip_left == 0)
        request->stage = STAGE_DONE;
    return engine_lane_consume(engine, wire, request->skip_queue, ENGINE_POINT, error);
}

jackal_status engine_point_advance(struct engine *engine, struct engine_request *request,
                                   struct base_error *error) {
    bool sending = request->call.operation == PLAN_SEND;
    enum engine_stage stage = request->stage;
    jackal_status status = JACKAL_OK;
    if (request->stage == STAGE_POSTED) {
        if (!sending)
            status = match(engine, request, error);
        else if (request->call.count <= eager_max(engine))
            status = engine_run_begin(engine, request, error);
        else
            status = ask(engine, request, error);
    }
    if (status == JACKAL_OK && request->stage == STAGE_ASKED)
        status = take_answer(engine, request, error);
    if (status == JACKAL_OK && request->stage == STAGE_SKIP)
        status = skip(engine, request, error);
    if (request->stage != stage)
        request->moves++;
    if (status == JACKAL_OK && request->stage == STAGE_RUN)
        status = engine_run_advance(engine, request, error);
    return status;
}
