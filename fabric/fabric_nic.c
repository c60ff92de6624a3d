/* SPDX-License-Identifier: MIT */
/*
 * The NIC thread: it finishes what posts and polls could not. It sleeps on the doorbell in the own
 * file, a word that others wake without writing it. While sends are waiting for room or for a peer
 * that has not looked yet, it naps instead, and wakes that peer's thread: a receiver that does not
 * poll is made to empty its ring, as hardware would.
 *
 * A wake-up that comes while the sleeper is not asleep is lost; whoever still waits wakes again at
 * the end of its next nap.
 */
#include "fabric_state.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__) && defined(__has_include)
#if __has_include(<os/os_sync_wait_on_address.h>)
#include <os/clock.h>
#include <os/os_sync_wait_on_address.h>
#define NIC_OS_SYNC 1
#endif
#endif

#define NIC_FIRST_NAP_NS 50000u
#define NIC_LAST_NAP_NS  1000000u
#define NIC_IDLE_ROUNDS                                                                            \
    4 /* naps after the last waiting send, so that a busy program wakes rarely */
#define NIC_FOREVER 0u

static void nic_nap(uint64_t nap_ns) {
    struct timespec nap = {.tv_sec = 0, .tv_nsec = (long)nap_ns};

    nanosleep(&nap, NULL);
}

/* Sleeps while *word is value, at most nap_ns; NIC_FOREVER for no limit. */
static void nic_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t nap_ns) {
#if defined(__linux__)
    struct timespec limit = {.tv_sec = 0, .tv_nsec = (long)nap_ns};

    syscall(SYS_futex, word, FUTEX_WAIT, value, nap_ns == NIC_FOREVER ? NULL : &limit, NULL, 0);
#elif defined(NIC_OS_SYNC)
    if (nap_ns == NIC_FOREVER) {
        os_sync_wait_on_address((void *)word, value, 4, OS_SYNC_WAIT_ON_ADDRESS_SHARED);
    } else {
        os_sync_wait_on_address_with_timeout((void *)word, value, 4, OS_SYNC_WAIT_ON_ADDRESS_SHARED,
                                             OS_CLOCK_MACH_ABSOLUTE_TIME, nap_ns);
    }
#else
    (void)word;
    (void)value;
    nic_nap(nap_ns == NIC_FOREVER ? NIC_LAST_NAP_NS : nap_ns);
#endif
}

static void nic_wake(_Atomic uint32_t *word) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#elif defined(NIC_OS_SYNC)
    os_sync_wake_by_address_all((void *)word, 4, OS_SYNC_WAKE_BY_ADDRESS_SHARED);
#else
    (void)word;
#endif
}

void fabric_nic_ring(const struct fabric_peer *peer) {
    if (peer == &fabric_state.segment.self) {
        fabric_nic_kick();
    } else {
        nic_wake(&peer->header->doorbell);
    }
}

void fabric_nic_kick(void) {
    struct fabric_nic *nic = &fabric_state.nic;
    _Atomic uint32_t *doorbell = &fabric_state.segment.header->doorbell;

    /* Changing the word and then reading `asleep` mirrors the thread, which does both the other way
     * round: one of the two sees the other. */
    atomic_fetch_add(doorbell, 1);
    if (atomic_load(&nic->asleep) != 0) {
        nic_wake(doorbell);
    }
}

static bool nic_is_waiting(const struct fabric_qp *qp) {
    uint64_t posted = atomic_load_explicit(&qp->sq.posted, memory_order_relaxed);

    return qp->base.state == IBV_QPS_RTS &&
           (qp->sq.moved < posted ||
            (atomic_load_explicit(&qp->sq.done, memory_order_relaxed) < posted &&
             !fabric_connect_is_seen(qp)));
}

/* Helps one queue pair. True: it has sends that wait for something only a later round can do. */
static bool nic_serve(struct fabric_qp *qp) {
    const struct fabric_peer *peer = NULL;
    bool is_waiting;

    fabric_connect_attach(qp);
    if (!fabric_lock_try(&qp->lock)) {
        return true; /* its owner is at work; look again */
    }
    fabric_data_send(qp);
    fabric_data_receive(qp);
    is_waiting = nic_is_waiting(qp);
    if (is_waiting) {
        peer = qp->peer;
    }
    fabric_lock_drop(&qp->lock);
    if (peer != NULL && peer != &fabric_state.segment.self) {
        nic_wake(&peer->header->doorbell);
    }
    return is_waiting;
}

static bool nic_round(void) {
    bool is_waiting = false;

    fabric_state_lock();
    for (struct fabric_qp *qp = fabric_state.qps; qp != NULL; qp = qp->next) {
        if (nic_serve(qp)) {
            is_waiting = true;
        }
    }
    fabric_state_unlock();
    return is_waiting;
}

static void *nic_main(void *unused) {
    struct fabric_nic *nic = &fabric_state.nic;
    _Atomic uint32_t *doorbell = &fabric_state.segment.header->doorbell;
    uint64_t nap_ns = NIC_FIRST_NAP_NS;
    int n_idle = NIC_IDLE_ROUNDS;

    while (atomic_load(&nic->stop) == 0) {
        uint32_t value = atomic_load(doorbell);

        if (nic_round()) {
            n_idle = 0;
        } else if (n_idle < NIC_IDLE_ROUNDS) {
            n_idle++;
        }
        if (n_idle < NIC_IDLE_ROUNDS) {
            /* Not on the doorbell: kicks during a nap must cost their sender nothing. */
            nic_nap(nap_ns);
            nap_ns = nap_ns * 2 < NIC_LAST_NAP_NS ? nap_ns * 2 : NIC_LAST_NAP_NS;
            continue;
        }
        nap_ns = NIC_FIRST_NAP_NS;
        atomic_store(&nic->asleep, 1);
        if (atomic_load(&nic->stop) == 0) {
            nic_sleep(doorbell, value, NIC_FOREVER);
        }
        atomic_store(&nic->asleep, 0);
    }
    atomic_store(&nic->ended, 1);
    return unused;
}

int fabric_nic_start(void) {
    struct fabric_nic *nic = &fabric_state.nic;
    sigset_t all, before;
    int rc;

    atomic_store(&nic->stop, 0);
    atomic_store(&nic->ended, 0);
    atomic_store(&nic->asleep, 0);
    /* The host program's signals are not ours to handle. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&nic->thread, NULL, nic_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void fabric_nic_stop(void) {
    atomic_store(&fabric_state.nic.stop, 1);
    fabric_nic_kick();
    pthread_join(fabric_state.nic.thread, NULL);
}

bool fabric_nic_stop_soon(void) {
    struct fabric_nic *nic = &fabric_state.nic;

    atomic_store(&nic->stop, 1);
    fabric_nic_kick();
    for (int ms = 0; ms < 1000; ms++) {
        if (atomic_load(&nic->ended) != 0) {
            pthread_join(nic->thread, NULL);
            return true;
        }
        nic_nap(NIC_LAST_NAP_NS);
    }
    return false;
}
