/* SPDX-License-Identifier: MIT */
#include "wire/header.h"

#include <inttypes.h>

void wire_header_encode(const struct wire_header *header, uint8_t *bytes) {
    bytes[0] = WIRE_HEADER_VERSION;
    bytes[1] = header->kind;
    wire_put_u16(bytes + 2, header->channel);
    wire_put_u16(bytes + 4, header->source);
    wire_put_u16(bytes + 6, header->phase);
    wire_put_u32(bytes + 8, header->payload_bytes);
    wire_put_u32(bytes + WIRE_HEADER_CRC_OFFSET, header->crc32c);
    wire_put_u64(bytes + 16, header->operation);
    wire_put_u64(bytes + 24, header->fingerprint);
    wire_put_u64(bytes + 32, header->total_bytes);
    wire_put_u64(bytes + 40, header->offset);
    wire_put_u64(bytes + 48, header->incarnation);
    wire_put_u64(bytes + 56, 0);
}

/* Out of the way of the hot path: which of the rules does not hold? The source in such a header is
 * not to be trusted, so nobody is blamed; the caller knows the wire. */
static jackal_status refuse(const uint8_t *bytes, size_t slot_bytes, const struct wire_header *h,
                            struct base_error *error) {
    if (slot_bytes < WIRE_HEADER_BYTES)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "message of %zu bytes is shorter than its header of %d", slot_bytes,
                         WIRE_HEADER_BYTES);
    if (bytes[0] != WIRE_HEADER_VERSION)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "message header has version %u, this library speaks %d",
                         (unsigned)bytes[0], WIRE_HEADER_VERSION);
    if (h->kind < WIRE_COLLECTIVE || h->kind > WIRE_PING)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "message from rank %u has unknown kind %u",
                         (unsigned)h->source, (unsigned)h->kind);
    if (h->payload_bytes > slot_bytes - WIRE_HEADER_BYTES)
        return base_fail(
            error, JACKAL_ERR_PROTOCOL,
            "%s message from rank %u claims %" PRIu32 " payload bytes in a slot of %zu",
            wire_kind_name(h->kind), (unsigned)h->source, h->payload_bytes, slot_bytes);
    if (wire_get_u64(bytes + 56) != 0)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "%s message from rank %u has reserved header bytes that are not zero",
                         wire_kind_name(h->kind), (unsigned)h->source);
    return base_fail(error, JACKAL_ERR_PROTOCOL,
                     "%s message from rank %u: %" PRIu32 " bytes at offset %" PRIu64
                     " do not lie in a total of %" PRIu64,
                     wire_kind_name(h->kind), (unsigned)h->source, h->payload_bytes, h->offset,
                     h->total_bytes);
}

jackal_status wire_header_decode(const uint8_t *bytes, size_t slot_bytes,
                                 struct wire_header *header_p, struct base_error *error) {
    struct wire_header *h = header_p;
    if (slot_bytes < WIRE_HEADER_BYTES)
        return refuse(bytes, slot_bytes, h, error);
    h->kind = bytes[1];
    h->channel = wire_get_u16(bytes + 2);
    h->source = wire_get_u16(bytes + 4);
    h->phase = wire_get_u16(bytes + 6);
    h->payload_bytes = wire_get_u32(bytes + 8);
    h->crc32c = wire_get_u32(bytes + WIRE_HEADER_CRC_OFFSET);
    h->operation = wire_get_u64(bytes + 16);
    h->fingerprint = wire_get_u64(bytes + 24);
    h->total_bytes = wire_get_u64(bytes + 32);
    h->offset = wire_get_u64(bytes + 40);
    h->incarnation = wire_get_u64(bytes + 48);
    if (bytes[0] != WIRE_HEADER_VERSION || h->kind < WIRE_COLLECTIVE || h->kind > WIRE_PING ||
        h->payload_bytes > slot_bytes - WIRE_HEADER_BYTES || wire_get_u64(bytes + 56) != 0)
        return refuse(bytes, slot_bytes, h, error);
    /* Subtracted, not added: offset + payload may wrap. */
    if (h->kind <= WIRE_POINT &&
        (h->offset > h->total_bytes || h->payload_bytes > h->total_bytes - h->offset))
        return refuse(bytes, slot_bytes, h, error);
    return JACKAL_OK;
}

const char *wire_kind_name(int kind) {
    static const char *const names[] = {"",       "collective", "point", "ask",
                                        "answer", "credit",     "ping"};
    return kind >= WIRE_COLLECTIVE && kind <= WIRE_PING ? names[kind] : "unknown";
}

/* A bijection that spreads every bit over the word (two rounds of xor-shift and multiply). */
static uint64_t mix(uint64_t value) {
    value ^= value >> 30;
    value *= UINT64_C(0xbf58476d1ce4e5b9);
    value ^= value >> 27;
    value *= UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t wire_fingerprint(int operation, int dtype, int op, uint64_t count, int root) {
    uint64_t call = (uint64_t)(uint8_t)operation << 48 | (uint64_t)(uint8_t)dtype << 40 |
                    (uint64_t)(uint8_t)op << 32 | (uint32_t)root;
    /* With one of the two terms fixed this is a bijection of the other. */
    return mix(mix(call ^ UINT64_C(0x4a61636b616c0001)) + count);
}
