/* SPDX-License-Identifier: MIT */
/*
 * Payload of a WIRE_CREDIT message: u16 n, then n times u8 queue, u8 kind, u16 channel,
 * u32 consumed. The count is cumulative (modulo 2^32), so a repeated message does no harm.
 */
#ifndef WIRE_CREDIT_H
#define WIRE_CREDIT_H

#include "wire/header.h"

enum { WIRE_CREDIT_HEAD_BYTES = 2, WIRE_CREDIT_ENTRY_BYTES = 8 };

struct wire_credit {
    uint8_t queue; /* 0 = small, 1 = bulk */
    uint8_t kind;  /* WIRE_COLLECTIVE or WIRE_POINT */
    uint16_t channel;
    uint32_t consumed; /* slots since the wire began */
};

/* Bytes written, or 0 if they need more than `room`. */
size_t wire_credit_encode(const struct wire_credit *credits, size_t n, uint8_t *bytes, size_t room);

/* Fills at most `room` credits and says how many; more than that is an error. */
jackal_status wire_credit_decode(const uint8_t *bytes, size_t n_bytes, struct wire_credit *credits,
                                 size_t room, size_t *n_p, struct base_error *error);

#endif
