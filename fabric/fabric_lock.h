/* SPDX-License-Identifier: MIT */
/*
 * The lock of a completion queue and of a queue pair: one exchange when nobody else is there, which
 * is what an empty poll costs. Holders copy as long as the other side keeps up, a large message for
 * example; waiters give the processor away soon, since the holder may share it.
 */
#ifndef FABRIC_LOCK_H
#define FABRIC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_lock {
    _Atomic uint32_t word;
};

void fabric_lock_wait(struct fabric_lock *lock);

static inline bool fabric_lock_try(struct fabric_lock *lock) {
    return atomic_exchange_explicit(&lock->word, 1, memory_order_acquire) == 0;
}

static inline void fabric_lock_take(struct fabric_lock *lock) {
    if (!fabric_lock_try(lock)) {
        fabric_lock_wait(lock);
    }
}

static inline void fabric_lock_drop(struct fabric_lock *lock) {
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

#endif
