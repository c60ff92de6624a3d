/* SPDX-License-Identifier: MIT */
/*
 * Wires: arrivals are sorted into lanes, credits are counted both ways.
 *
 * Credits: the peer posted `window` slots for each (queue, kind); a message is sent only while
 * sent − peer_consumed < window. What was consumed is told back, as a running count, in a message
 * of its own when half a window is due. Of these at most two per lane can be under way: a third
 * needs more than a whole window of new messages, which the peer can only send after it took in the
 * first. So a fixed number of reserved slots is enough, and no credit message ever needs credit.
 */
#include "engine/internal.h"
#include "wire/credit.h"
#include "wire/point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_BATCH = 16, LANES = (int)LINK_QUEUES * (int)ENGINE_KINDS };

static const uint32_t windows[LINK_QUEUES][ENGINE_KINDS] = {{32, 16}, {8, 4}};

/* On `small`: two credit messages a lane, an answer for each direction, a ping. Pings of `bulk`
 * are over before its window is used. */
enum { RESERVED_SMALL = 2 * LANES + 2 + 1, SMALL_SLOTS_OF_A_STEP = 4 };

#define FRAME_BYTES 4096

void engine_geometry(uint32_t slot_frames, struct link_geometry *geometry_p) {
    geometry_p->slot_bytes[LINK_SMALL] = FRAME_BYTES;
    geometry_p->slot_bytes[LINK_BULK] = FRAME_BYTES * slot_frames;
    geometry_p->slots[LINK_SMALL] =
        windows[LINK_SMALL][ENGINE_COLLECTIVE] + windows[LINK_SMALL][ENGINE_POINT] + RESERVED_SMALL;
    geometry_p->slots[LINK_BULK] =
        windows[LINK_BULK][ENGINE_COLLECTIVE] + windows[LINK_BULK][ENGINE_POINT];
}

void engine_limits(const struct link_geometry *geometry, struct plan_limits *limits_p) {
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        limits_p->payload_bytes[queue] = geometry->slot_bytes[queue] - WIRE_HEADER_BYTES;
    limits_p->small_max_bytes = SMALL_SLOTS_OF_A_STEP * limits_p->payload_bytes[LINK_SMALL];
}

jackal_status engine_wires_open(struct engine *engine, struct base_error *error) {
    engine->n_wires = engine->options.size * engine->options.wires;
    engine->wires = calloc((size_t)engine->n_wires, sizeof *engine->wires);
    if (engine->wires == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for wires");
    for (int i = 0; i < engine->n_wires; i++) {
        struct engine_wire *wire = &engine->wires[i];
        wire->link = engine->options.links[i];
        if (wire->link == NULL)
            continue;
        for (int lane = 0; lane < LANES; lane++) {
            struct engine_lane *it = &wire->lanes[lane / ENGINE_KINDS][lane % ENGINE_KINDS];
            it->window = windows[lane / ENGINE_KINDS][lane % ENGINE_KINDS];
            it->arrivals = calloc(it->window, sizeof *it->arrivals);
            if (it->arrivals == NULL)
                return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for wires");
        }
    }
    return JACKAL_OK;
}

void engine_wires_close(struct engine *engine) {
    for (int i = 0; i < engine->n_wires; i++) {
        if (engine->wires != NULL)
            for (int lane = 0; lane < LANES; lane++)
                free(engine->wires[i].lanes[lane / ENGINE_KINDS][lane % ENGINE_KINDS].arrivals);
        link_close(engine->options.links[i]);
    }
    free(engine->wires);
    free(engine->options.links);
}

bool engine_lane_ready(const struct engine_wire *wire, enum link_queue queue,
                       enum engine_kind kind) {
    const struct engine_lane *lane = &wire->lanes[queue][kind];
    return lane->sent - lane->peer_consumed < lane->window &&
           wire->link->ops->room(wire->link, queue);
}

static jackal_status send_slot(struct engine *engine, struct engine_wire *wire,
                               enum link_queue queue, struct engine_slot *slot, uint32_t n_bytes,
                               struct base_error *error) {
    jackal_status status = wire->link->ops->send(wire->link, queue, &slot->buffer, n_bytes,
                                                 engine_slot_token(engine, queue, slot), error);
    if (status == JACKAL_OK) {
        slot->users++;
        engine->activity++;
    }
    return status;
}

jackal_status engine_lane_send(struct engine *engine, struct engine_wire *wire,
                               enum link_queue queue, enum engine_kind kind,
                               struct engine_slot *slot, uint32_t n_bytes,
                               struct base_error *error) {
    jackal_status status = send_slot(engine, wire, queue, slot, n_bytes, error);
    if (status == JACKAL_OK) {
        wire->lanes[queue][kind].sent++;
        engine_count(&wire->counters.messages_sent, 1);
    }
    return status;
}

jackal_status engine_send_reserved(struct engine *engine, struct engine_wire *wire,
                                   enum link_queue queue, struct engine_slot *slot,
                                   struct wire_header *header, struct base_error *error) {
    uint32_t n_bytes = engine_slot_seal(engine, slot, header);
    return send_slot(engine, wire, queue, slot, n_bytes, error);
}

const struct engine_arrival *engine_lane_head(const struct engine_wire *wire, enum link_queue queue,
                                              enum engine_kind kind) {
    const struct engine_lane *lane = &wire->lanes[queue][kind];
    return lane->head == lane->tail ? NULL : &lane->arrivals[lane->head % lane->window];
}

const uint8_t *engine_arrival_payload(const struct engine_wire *wire, enum link_queue queue,
                                      const struct engine_arrival *arrival) {
    return wire->link->ops->slot(wire->link, queue, arrival->id) + WIRE_HEADER_BYTES;
}

jackal_status engine_lane_consume(struct engine *engine, struct engine_wire *wire,
                                  enum link_queue queue, enum engine_kind kind,
                                  struct base_error *error) {
    struct engine_lane *lane = &wire->lanes[queue][kind];
    uint32_t id = lane->arrivals[lane->head % lane->window].id;
    lane->head++;
    engine->activity++;
    jackal_status status = wire->link->ops->repost(wire->link, queue, id, error);
    if (status != JACKAL_OK)
        return status;
    lane->consumed++;
    if (lane->consumed - lane->told >= lane->window / 2)
        wire->credit_due = true;
    return JACKAL_OK;
}

static jackal_status return_credits(struct engine *engine, struct engine_wire *wire,
                                    struct base_error *error) {
    struct wire_credit credits[LANES];
    size_t n = 0;
    if (!wire->link->ops->room(wire->link, LINK_SMALL))
        return JACKAL_OK;
    struct engine_slot *slot = engine_slot_take(engine, LINK_SMALL);
    if (slot == NULL)
        return JACKAL_OK; /* still due; tried again at the next poll */
    for (int i = 0; i < LANES; i++) {
        int queue = i / ENGINE_KINDS, kind = i % ENGINE_KINDS;
        struct engine_lane *lane = &wire->lanes[queue][kind];
        if (lane->consumed - lane->told < lane->window / 2)
            continue;
        credits[n++] =
            (struct wire_credit){.queue = (uint8_t)queue,
                                 .kind = kind == ENGINE_COLLECTIVE ? WIRE_COLLECTIVE : WIRE_POINT,
                                 .consumed = lane->consumed};
        lane->told = lane->consumed;
    }
    wire->credit_due = false;
    size_t n_bytes = wire_credit_encode(credits, n, slot->buffer.bytes + WIRE_HEADER_BYTES,
                                        slot->n_bytes - WIRE_HEADER_BYTES);
    struct wire_header header = {
        .kind = WIRE_CREDIT, .payload_bytes = (uint32_t)n_bytes, .total_bytes = n_bytes};
    return engine_send_reserved(engine, wire, LINK_SMALL, slot, &header, error);
}

static jackal_status take_credits(struct engine_wire *wire, const uint8_t *payload, size_t n_bytes,
                                  struct base_error *error) {
    struct wire_credit credits[LANES];
    size_t n = 0;
    jackal_status status = wire_credit_decode(payload, n_bytes, credits, LANES, &n, error);
    for (size_t i = 0; i < n && status == JACKAL_OK; i++) {
        const struct wire_credit *credit = &credits[i];
        enum engine_kind kind = credit->kind == WIRE_POINT ? ENGINE_POINT : ENGINE_COLLECTIVE;
        if (credit->queue >= LINK_QUEUES || credit->channel != 0)
            return base_fail(error, JACKAL_ERR_PROTOCOL, "credit for queue %u, channel %u",
                             credit->queue, credit->channel);
        struct engine_lane *lane = &wire->lanes[credit->queue][kind];
        if (credit->consumed - lane->peer_consumed > lane->sent - lane->peer_consumed)
            return base_fail(error, JACKAL_ERR_PROTOCOL,
                             "it returns credit for messages that were not sent");
        lane->peer_consumed = credit->consumed;
    }
    return status;
}

static jackal_status take_ping(struct engine *engine, struct engine_wire *wire,
                               enum link_queue queue, const struct wire_header *header,
                               const uint8_t *payload, struct base_error *error) {
    int source = header->source, expected = wire->link->peer;
    char device[64];
    snprintf(device, sizeof device, "%.*s",
             (int)(header->payload_bytes < 63 ? header->payload_bytes : 63), (const char *)payload);
    if (source != expected || header->offset != (uint64_t)wire->link->wire)
        return base_fail_peer(error, JACKAL_ERR_LINK_DOWN, source,
                              "cables are crossed: %s of rank %d should lead to wire %d of rank %d "
                              "but leads to wire %d of rank %d (%s there)",
                              wire->link->device, engine->options.rank, wire->link->wire, expected,
                              (int)header->offset, source, device);
    wire->pinged[queue] = true;
    return JACKAL_OK;
}

static jackal_status take_answer(struct engine *engine, const struct wire_header *header,
                                 const uint8_t *payload, struct base_error *error) {
    struct wire_answer answer;
    jackal_status status = wire_answer_decode(payload, header->payload_bytes, &answer, error);
    if (status == JACKAL_OK)
        engine->answers[header->source] = (struct engine_answer){
            true, header->operation, (uint32_t)answer.verdict, answer.n_bytes};
    return status;
}

static jackal_status keep_arrival(struct engine_wire *wire, enum link_queue queue, uint32_t id,
                                  const struct wire_header *header, struct base_error *error) {
    enum engine_kind kind = header->kind == WIRE_COLLECTIVE ? ENGINE_COLLECTIVE : ENGINE_POINT;
    struct engine_lane *lane = &wire->lanes[queue][kind];
    if (lane->tail - lane->head == lane->window)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "it sent more than its credit allows");
    lane->arrivals[lane->tail % lane->window] = (struct engine_arrival){id, *header};
    lane->tail++;
    engine_count(&wire->counters.messages_received, 1);
    engine_count(&wire->counters.bytes_received, header->payload_bytes);
    return JACKAL_OK;
}

/* A message that is not kept gives its slot back here, before anything is sent that lets the peer
 * send the next one of its kind. */
static jackal_status take_arrival(struct engine *engine, struct engine_wire *wire,
                                  const struct link_event *event, struct base_error *error) {
    const uint8_t *bytes = wire->link->ops->slot(wire->link, event->queue, event->id);
    struct wire_header header;
    jackal_status status = wire_header_decode(bytes, event->n_bytes, &header, error);
    if (status != JACKAL_OK)
        return status;
    const uint8_t *payload = bytes + WIRE_HEADER_BYTES;
    if (header.incarnation != engine->options.incarnation || header.channel != 0)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "a message of another group came in");
    if (header.kind != WIRE_PING && header.source != wire->link->peer)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "a message of rank %u came in", header.source);
    if (engine->options.checksum && wire_crc32c(0, payload, header.payload_bytes) != header.crc32c)
        return base_fail(error, JACKAL_ERR_DATA_LOST,
                         "the checksum of %s #%llu at byte %llu is wrong: damaged on the way",
                         wire_kind_name(header.kind), (unsigned long long)header.operation,
                         (unsigned long long)header.offset);
    switch (header.kind) {
    case WIRE_COLLECTIVE:
    case WIRE_POINT:
    case WIRE_POINT_ASK:
        return keep_arrival(wire, event->queue, event->id, &header, error);
    case WIRE_CREDIT:
        status = take_credits(wire, payload, header.payload_bytes, error);
        break;
    case WIRE_PING:
        status = take_ping(engine, wire, event->queue, &header, payload, error);
        break;
    default:
        status = take_answer(engine, &header, payload, error);
        break;
    }
    if (status != JACKAL_OK)
        return status;
    return wire->link->ops->repost(wire->link, event->queue, event->id, error);
}

static jackal_status add_context(const struct engine_wire *wire, struct base_error *error) {
    if (error->peer >= 0)
        return error->status;
    return base_fail_peer(error, error->status, wire->link->peer, "wire %d to rank %d (%s): %s",
                          wire->link->wire, wire->link->peer, wire->link->device, error->text);
}

static jackal_status poll_wire(struct engine *engine, struct engine_wire *wire,
                               struct base_error *error) {
    struct link_event events[POLL_BATCH];
    int n = wire->link->ops->poll(wire->link, events, POLL_BATCH, error);
    if (n < 0)
        return error->status;
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < n && status == JACKAL_OK; i++) {
        engine->activity++;
        if (events[i].kind == LINK_SENT)
            engine_slot_release(engine, events[i].queue, events[i].id);
        else
            status = take_arrival(engine, wire, &events[i], error);
    }
    if (status == JACKAL_OK && wire->credit_due)
        status = return_credits(engine, wire, error);
    return status == JACKAL_OK ? status : add_context(wire, error);
}

jackal_status engine_wires_poll(struct engine *engine, struct base_error *error) {
    for (int i = 0; i < engine->n_wires; i++) {
        if (engine->wires[i].link == NULL)
            continue;
        jackal_status status = poll_wire(engine, &engine->wires[i], error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}
