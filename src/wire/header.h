/* SPDX-License-Identifier: MIT */
/*
 * The header of every message on a wire: 64 bytes, first in the slot, little-endian.
 *
 *   0 u8  version          8 u32 payload_bytes    32 u64 total_bytes
 *   1 u8  kind            12 u32 crc32c           40 u64 offset
 *   2 u16 channel         16 u64 operation        48 u64 incarnation
 *   4 u16 source rank     24 u64 fingerprint      56 u64 reserved, zero
 *   6 u16 phase
 *
 * Nothing in it depends on the receiver, so one staged copy serves all peers.
 */
#ifndef WIRE_HEADER_H
#define WIRE_HEADER_H

#include "base/error.h"
#include "wire/bytes.h"

enum { WIRE_HEADER_BYTES = 64, WIRE_HEADER_VERSION = 1, WIRE_HEADER_CRC_OFFSET = 12 };

enum wire_kind {
    WIRE_COLLECTIVE = 1,
    WIRE_POINT = 2,        /* data of a point-to-point message */
    WIRE_POINT_ASK = 3,    /* sender: "may I send total_bytes?" */
    WIRE_POINT_ANSWER = 4, /* receiver: wire/point.h */
    WIRE_CREDIT = 5,       /* wire/credit.h */
    WIRE_PING = 6
};

struct wire_header {
    uint8_t kind;
    uint16_t channel;
    uint16_t source; /* rank of the sender */
    uint16_t phase;
    uint32_t payload_bytes; /* behind the header, in this slot */
    uint32_t crc32c;        /* of the payload; 0 = checksums are off */
    uint64_t operation;
    uint64_t fingerprint;
    uint64_t total_bytes; /* of the message that this slot is a part of */
    uint64_t offset;      /* of this payload in it */
    uint64_t incarnation;
};

/* Writes WIRE_HEADER_BYTES. */
void wire_header_encode(const struct wire_header *header, uint8_t *bytes);

/*
 * Reads the WIRE_HEADER_BYTES of a slot that has slot_bytes in all. What comes out is safe to
 * use: the payload lies in the slot, and a part of a message lies in its message. Anything else
 * is JACKAL_ERR_PROTOCOL, and *header_p is not to be looked at.
 */
jackal_status wire_header_decode(const uint8_t *bytes, size_t slot_bytes,
                                 struct wire_header *header_p, struct base_error *error);

/* The word for a kind in messages and traces, "collective". */
const char *wire_kind_name(int kind);

/*
 * CRC-32C (Castagnoli) of n bytes behind `crc`, 0 to begin: parts may be fed one by one. Uses the
 * instruction of the processor where there is one. Any thread.
 */
uint32_t wire_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

/* The same from tables, for tests. */
uint32_t wire_crc32c_portable(uint32_t crc, const void *bytes, size_t n_bytes);

/*
 * What a call is, in 64 bits: ranks whose fingerprints of an operation differ made different
 * calls. Two calls that differ only in the count, or only in the other four, never share a
 * fingerprint; two that differ in both do with a chance of 2^−64. `root` is −1 where there is
 * none; operation, dtype and op are −1…254.
 */
uint64_t wire_fingerprint(int operation, int dtype, int op, uint64_t count, int root);

#endif
