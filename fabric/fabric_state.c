/* SPDX-License-Identifier: MIT */
#include "fabric_state.h"
#include "fabric_error.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fabric_state fabric_state = {.life = PTHREAD_MUTEX_INITIALIZER,
                                    .lock = PTHREAD_MUTEX_INITIALIZER};

void fabric_lock_wait(struct fabric_lock *lock) {
    const struct timespec nap = {.tv_nsec = 50000};

    for (uint32_t n = 0;; n++) {
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 && fabric_lock_try(lock)) {
            return;
        }
        if (n > 1000) {
            nanosleep(&nap, NULL);
        } else if (n > 50) {
            sched_yield();
        }
    }
}

void fabric_state_lock(void) {
    pthread_mutex_lock(&fabric_state.lock);
}

void fabric_state_unlock(void) {
    pthread_mutex_unlock(&fabric_state.lock);
}

uint64_t fabric_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fabric_topology_drop(struct fabric_topology *topology) {
    if (--topology->refs == 0) {
        if (fabric_state.topology == topology) {
            fabric_state.topology = NULL;
        }
        fabric_topology_free(topology);
    }
}

/* The first device of this process; the life lock is held, nothing of the state is in use. */
static int state_start(const struct fabric_topology *topology) {
    int rc = fabric_segment_open(&fabric_state.segment, topology);

    if (rc != 0) {
        return rc;
    }
    rc = fabric_nic_start();
    if (rc != 0) {
        fabric_segment_close(&fabric_state.segment);
        return fabric_fail(rc, "the thread of the fabric cannot start: %s", strerror(rc));
    }
    return 0;
}

int fabric_state_enter(struct fabric_topology *topology) {
    int rc = 0;

    pthread_mutex_lock(&fabric_state.life);
    if (fabric_state.n_open == 0) {
        rc = state_start(topology);
    } else if (fabric_state.segment.owner != getpid()) {
        rc = fabric_fail(EINVAL, "a device was open when this process was forked; open devices "
                                 "after the fork only");
    }
    if (rc == 0) {
        fabric_state_lock();
        fabric_state.n_open++;
        topology->refs++;
        fabric_state_unlock();
    }
    pthread_mutex_unlock(&fabric_state.life);
    return rc;
}

void fabric_state_leave(struct fabric_topology *topology) {
    bool is_last;

    pthread_mutex_lock(&fabric_state.life);
    fabric_state_lock();
    is_last = --fabric_state.n_open == 0;
    fabric_state_unlock();
    if (is_last && fabric_state.segment.owner == getpid()) {
        fabric_nic_stop();
    }
    fabric_state_lock();
    if (is_last) {
        fabric_connect_reap(true);
        fabric_segment_close(&fabric_state.segment);
    }
    fabric_topology_drop(topology);
    fabric_state_unlock();
    pthread_mutex_unlock(&fabric_state.life);
}

/* A program that ends, or unloads the library, without closing its devices. Nothing is waited for
 * that another thread might hold for ever, and nothing is unmapped: other threads may be in a call
 * until the very end. */
__attribute__((destructor)) static void state_unload(void) {
    if (fabric_state.n_open == 0 || fabric_state.segment.owner != getpid()) {
        return;
    }
    (void)fabric_nic_stop_soon();
    fabric_segment_unlink(&fabric_state.segment);
}
