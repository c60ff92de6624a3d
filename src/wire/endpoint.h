/* SPDX-License-Identifier: MIT */
/*
 * What a rank publishes for one of its wire ends during set-up:
 *
 *   u16 bytes that follow      u8 device length, device      u32 small qpn, u32 small psn
 *   u32 bulk qpn, u32 bulk psn u16 lid                       16 bytes gid
 *   u32 mtu in bytes           u8 flags (1 = the provider counts frames)
 *   u32 small slot bytes, u32 bulk slot bytes                u32 small slots, u32 bulk slots
 *
 * The length in front lets a later version append fields that this one steps over, and several
 * ends stand one behind the other.
 */
#ifndef WIRE_ENDPOINT_H
#define WIRE_ENDPOINT_H

#include "wire/header.h"

enum {
    WIRE_DEVICE_BYTES = 64, /* with the zero at the end */
    WIRE_GID_BYTES = 16,
    WIRE_ENDPOINT_MAX = 2 + 1 + WIRE_DEVICE_BYTES - 1 + 16 + 2 + WIRE_GID_BYTES + 4 + 1 + 16
};

struct wire_queue_end {
    uint32_t qpn;
    uint32_t psn;
};

struct wire_endpoint {
    char device[WIRE_DEVICE_BYTES];
    struct wire_queue_end small;
    struct wire_queue_end bulk; /* zeros if the wire has one queue pair */
    uint16_t lid;
    uint8_t gid[WIRE_GID_BYTES];
    uint32_t mtu_bytes;
    bool frames_counted;
    uint32_t small_slot_bytes;
    uint32_t bulk_slot_bytes;
    uint32_t small_slots;
    uint32_t bulk_slots;
};

/* Bytes written, at most WIRE_ENDPOINT_MAX, or 0 if they need more than `room`. */
size_t wire_endpoint_encode(const struct wire_endpoint *endpoint, uint8_t *bytes, size_t room);

/* Reads one end and says how many bytes it took. */
jackal_status wire_endpoint_decode(const uint8_t *bytes, size_t n_bytes,
                                   struct wire_endpoint *endpoint_p, size_t *used_p,
                                   struct base_error *error);

#endif
