/* SPDX-License-Identifier: MIT */
/*
 * Bytes in and out of a ring. Positions count all bytes ever written; `head` is written by the
 * sending process alone and `tail` by the receiving one alone, so there is no lock between them.
 */
#ifndef FABRIC_RING_H
#define FABRIC_RING_H

#include "fabric_shared.h"

#include <stddef.h>
#include <string.h>

/* The plain bytes written before must be visible to whoever sees the new head: hence release. The
 * spoilt variant exists so that a test can prove that the ThreadSanitizer runs would notice. */
#ifdef FABRIC_PLANT_MISSING_RELEASE
#define FABRIC_HEAD_ORDER      memory_order_relaxed
#define FABRIC_HEAD_ORDER_RUNG memory_order_relaxed
#else
#define FABRIC_HEAD_ORDER      memory_order_release
#define FABRIC_HEAD_ORDER_RUNG memory_order_seq_cst /* and then a look at who wants to be rung */
#endif

static inline void fabric_ring_publish(struct fabric_end *own, uint64_t head) {
    atomic_store_explicit(&own->head, head, FABRIC_HEAD_ORDER);
}

static inline void fabric_ring_put(uint8_t *ring, uint64_t at, const void *source, size_t n_bytes) {
    size_t offset = at % FABRIC_RING_SIZE;
    size_t n_first = FABRIC_RING_SIZE - offset < n_bytes ? FABRIC_RING_SIZE - offset : n_bytes;

    memcpy(ring + offset, source, n_first);
    if (n_first < n_bytes) {
        memcpy(ring, (const uint8_t *)source + n_first, n_bytes - n_first);
    }
}

static inline void fabric_ring_get(const uint8_t *ring, uint64_t at, void *target, size_t n_bytes) {
    size_t offset = at % FABRIC_RING_SIZE;
    size_t n_first = FABRIC_RING_SIZE - offset < n_bytes ? FABRIC_RING_SIZE - offset : n_bytes;

    memcpy(target, ring + offset, n_first);
    if (n_first < n_bytes) {
        memcpy((uint8_t *)target + n_first, ring, n_bytes - n_first);
    }
}

/* Reads before it are not moved behind it. ThreadSanitizer knows no fences; what it could miss for
 * it here is the bytes of a ring that is given back, which it does not follow anyway. */
static inline void fabric_ring_fence(void) {
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_acquire);
#endif
}

/* Messages start on whole units; what fills up behind a payload is never read. */
static inline uint64_t fabric_ring_padded(uint64_t n_bytes) {
    return (n_bytes + FABRIC_UNIT - 1) & ~(uint64_t)(FABRIC_UNIT - 1);
}

#endif
