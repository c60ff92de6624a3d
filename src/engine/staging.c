/* SPDX-License-Identifier: MIT */
/*
 * Staging slots. A message is written once and may leave on several links; it is free again when
 * the last of them has sent it. Nothing but what the caller sent may leave, so the rest of a slot
 * is zero: `dirty_from` remembers how far it was written, and only that much is cleared.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Enough for every wire to have a few messages under way. Fewer would only be slower: a slot comes
 * back as soon as its sends are gone, which needs nothing from this rank.
 */
static const uint32_t slots_per_wire[LINK_QUEUES] = {16, 4};
static const uint32_t slots_more[LINK_QUEUES] = {16, 4};

static uint32_t pool_slots(int queue, int n_wires) {
    return n_wires == 0 ? 0 : slots_per_wire[queue] * (uint32_t)n_wires + slots_more[queue];
}

size_t engine_staging_bytes(const struct link_geometry *geometry, int n_wires) {
    size_t n_bytes = 0;
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        n_bytes += (size_t)pool_slots(queue, n_wires) * geometry->slot_bytes[queue];
    return n_bytes;
}

jackal_status engine_pools_open(struct engine *engine, struct base_error *error) {
    struct link_buffer next = engine->options.staging;
    int n_wires = (engine->options.size - 1) * engine->options.wires;
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        struct engine_pool *pool = &engine->pools[queue];
        pool->n_slots = pool_slots(queue, n_wires);
        if (pool->n_slots == 0)
            continue;
        pool->slots = calloc(pool->n_slots, sizeof *pool->slots);
        if (pool->slots == NULL)
            return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for staging slots");
        for (uint32_t i = 0; i < pool->n_slots; i++) {
            pool->slots[i].buffer = next;
            pool->slots[i].n_bytes = engine->options.geometry.slot_bytes[queue];
            pool->slots[i].next_free = i + 1;
            next.bytes += pool->slots[i].n_bytes;
        }
    }
    return JACKAL_OK;
}

void engine_pools_close(struct engine *engine) {
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        free(engine->pools[queue].slots);
}

struct engine_slot *engine_slot_take(struct engine *engine, enum link_queue queue) {
    struct engine_pool *pool = &engine->pools[queue];
    if (pool->first_free == pool->n_slots)
        return NULL;
    struct engine_slot *slot = &pool->slots[pool->first_free];
    pool->first_free = slot->next_free;
    slot->users = 0;
    return slot;
}

uint32_t engine_slot_token(const struct engine *engine, enum link_queue queue,
                           const struct engine_slot *slot) {
    return (uint32_t)(slot - engine->pools[queue].slots);
}

void engine_slot_release(struct engine *engine, enum link_queue queue, uint32_t token) {
    struct engine_pool *pool = &engine->pools[queue];
    struct engine_slot *slot = &pool->slots[token];
    if (--slot->users > 0)
        return;
    slot->next_free = pool->first_free;
    pool->first_free = token;
}

uint32_t engine_slot_seal(struct engine *engine, struct engine_slot *slot,
                          struct wire_header *header) {
    uint8_t *bytes = slot->buffer.bytes;
    header->source = (uint16_t)engine->options.rank;
    header->incarnation = engine->options.incarnation;
    uint32_t used = WIRE_HEADER_BYTES + header->payload_bytes;
    if (engine->options.checksum)
        header->crc32c = wire_crc32c(0, bytes + WIRE_HEADER_BYTES, header->payload_bytes);
    wire_header_encode(header, bytes);
    if (!engine->options.whole_slots) {
        slot->dirty_from = slot->n_bytes;
        return used;
    }
    if (used < slot->dirty_from)
        memset(bytes + used, 0, slot->dirty_from - used);
    slot->dirty_from = used;
    return slot->n_bytes;
}
