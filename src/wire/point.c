/* SPDX-License-Identifier: MIT */
#include "wire/point.h"

void wire_answer_encode(const struct wire_answer *answer, uint8_t *bytes) {
    wire_put_u32(bytes, (uint32_t)answer->verdict);
    wire_put_u64(bytes + 4, answer->n_bytes);
}

jackal_status wire_answer_decode(const uint8_t *bytes, size_t n_bytes, struct wire_answer *answer_p,
                                 struct base_error *error) {
    if (n_bytes != WIRE_ANSWER_BYTES)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "answer to a send has %zu bytes instead of %d",
                         n_bytes, WIRE_ANSWER_BYTES);
    uint32_t verdict = wire_get_u32(bytes);
    if (verdict > WIRE_MISMATCH)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "answer to a send has unknown verdict %u",
                         (unsigned)verdict);
    *answer_p = (struct wire_answer){(enum wire_verdict)verdict, wire_get_u64(bytes + 4)};
    return JACKAL_OK;
}
