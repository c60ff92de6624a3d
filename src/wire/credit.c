/* SPDX-License-Identifier: MIT */
#include "wire/credit.h"

size_t wire_credit_encode(const struct wire_credit *credits, size_t n, uint8_t *bytes,
                          size_t room) {
    if (n > UINT16_MAX || room < WIRE_CREDIT_HEAD_BYTES ||
        n > (room - WIRE_CREDIT_HEAD_BYTES) / WIRE_CREDIT_ENTRY_BYTES)
        return 0;
    wire_put_u16(bytes, (uint16_t)n);
    uint8_t *entry = bytes + WIRE_CREDIT_HEAD_BYTES;
    for (size_t i = 0; i < n; i++, entry += WIRE_CREDIT_ENTRY_BYTES) {
        entry[0] = credits[i].queue;
        entry[1] = credits[i].kind;
        wire_put_u16(entry + 2, credits[i].channel);
        wire_put_u32(entry + 4, credits[i].consumed);
    }
    return WIRE_CREDIT_HEAD_BYTES + n * WIRE_CREDIT_ENTRY_BYTES;
}

jackal_status wire_credit_decode(const uint8_t *bytes, size_t n_bytes, struct wire_credit *credits,
                                 size_t room, size_t *n_p, struct base_error *error) {
    *n_p = 0;
    size_t n = n_bytes >= WIRE_CREDIT_HEAD_BYTES ? wire_get_u16(bytes) : 0;
    if (n_bytes != WIRE_CREDIT_HEAD_BYTES + n * WIRE_CREDIT_ENTRY_BYTES)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "credit message of %zu bytes claims %zu entries of %d", n_bytes, n,
                         WIRE_CREDIT_ENTRY_BYTES);
    if (n > room)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "credit message has %zu entries, this wire has %zu counters", n, room);
    const uint8_t *entry = bytes + WIRE_CREDIT_HEAD_BYTES;
    for (size_t i = 0; i < n; i++, entry += WIRE_CREDIT_ENTRY_BYTES) {
        credits[i] = (struct wire_credit){entry[0], entry[1], wire_get_u16(entry + 2),
                                          wire_get_u32(entry + 4)};
        if (credits[i].queue > 1 ||
            (credits[i].kind != WIRE_COLLECTIVE && credits[i].kind != WIRE_POINT))
            return base_fail(error, JACKAL_ERR_PROTOCOL,
                             "credit message returns slots of queue %u, kind %u: no such counter",
                             (unsigned)credits[i].queue, (unsigned)credits[i].kind);
    }
    *n_p = n;
    return JACKAL_OK;
}
