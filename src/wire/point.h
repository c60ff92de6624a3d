/* SPDX-License-Identifier: MIT */
/*
 * Payload of a WIRE_POINT_ANSWER: u32 verdict, u64 length that the receiver posted. It answers
 * the WIRE_POINT_ASK of the same operation number.
 */
#ifndef WIRE_POINT_H
#define WIRE_POINT_H

#include "wire/header.h"

enum { WIRE_ANSWER_BYTES = 12 };

enum wire_verdict {
    WIRE_GO = 0,       /* the lengths agree: send */
    WIRE_CUT = 1,      /* the receiver's buffer is smaller: JACKAL_ERR_TRUNCATED on both ends */
    WIRE_MISMATCH = 2, /* it expects more: JACKAL_ERR_MISMATCH on both ends */
};

struct wire_answer {
    enum wire_verdict verdict;
    uint64_t n_bytes;
};

/* Writes WIRE_ANSWER_BYTES. */
void wire_answer_encode(const struct wire_answer *answer, uint8_t *bytes);

jackal_status wire_answer_decode(const uint8_t *bytes, size_t n_bytes, struct wire_answer *answer_p,
                                 struct base_error *error);

#endif
