/* SPDX-License-Identifier: MIT */
/*
 * Frames on the connections of the meeting point, after the hello: u16 type, u16 flags (zero),
 * u32 payload bytes, payload. A type that is not known is stepped over.
 *
 *   REFUSED, FAIL, REPORT, VERDICT   i32 status, i32 peer, text (what wire_failure holds)
 *   SEATED                           nothing: rank 0 took the hello and waits for the others
 *   WELCOME                          u64 incarnation, u64 features that all ranks have
 *   GATHER                           u32 round, the bytes of a rank
 *   GATHERED                         u32 round, u32 rank, the bytes of that rank
 *   LEAVE                            nothing
 *   LEFT                             u32 rank
 *   BEAT                             u64 incarnation
 */
#ifndef WIRE_CONTROL_H
#define WIRE_CONTROL_H

#include "wire/bytes.h"

#include "base/error.h"

enum wire_control {
    WIRE_CONTROL_SEATED = 1,   /* root to member */
    WIRE_CONTROL_WELCOME = 2,  /* root to member: all are here */
    WIRE_CONTROL_REFUSED = 3,  /* root to member: no place in this meeting */
    WIRE_CONTROL_GATHER = 4,   /* member to root */
    WIRE_CONTROL_GATHERED = 5, /* root to member, once for each rank */
    WIRE_CONTROL_FAIL = 6,     /* member to root: I give up my set-up */
    WIRE_CONTROL_REPORT = 7,   /* member to root: my group failed */
    WIRE_CONTROL_VERDICT = 8,  /* root to member: the group failed, for this reason */
    WIRE_CONTROL_LEAVE = 9,    /* the sender closes in order */
    WIRE_CONTROL_LEFT = 10,    /* root to member: that rank closed in order */
    WIRE_CONTROL_BEAT = 11     /* traffic, so that the kernel notices a host that vanished */
};

enum {
    WIRE_CONTROL_HEAD_BYTES = 8,
    WIRE_CONTROL_BLOB_MAX = 1024 * 1024,                  /* of one rank in a gather */
    WIRE_CONTROL_PAYLOAD_MAX = WIRE_CONTROL_BLOB_MAX + 8, /* with round and rank */
    WIRE_CONTROL_SMALL_MAX = 1024 /* payload of every type but GATHER and GATHERED */
};

struct wire_control_head {
    uint16_t type;
    uint32_t payload_bytes;
};

/* Writes WIRE_CONTROL_HEAD_BYTES. */
void wire_control_encode(const struct wire_control_head *head, uint8_t *bytes);

/* Reads WIRE_CONTROL_HEAD_BYTES; a payload over the limit of its type is JACKAL_ERR_PROTOCOL. */
jackal_status wire_control_decode(const uint8_t *bytes, struct wire_control_head *head_p,
                                  struct base_error *error);

/* Payload of the four types that carry an error; bytes written, 0 = no room. */
size_t wire_failure_encode(const struct base_error *failure, uint8_t *bytes, size_t room);

/* The status of a decoded failure is always an error. */
jackal_status wire_failure_decode(const uint8_t *bytes, size_t n_bytes,
                                  struct base_error *failure_p, struct base_error *error);

#endif
