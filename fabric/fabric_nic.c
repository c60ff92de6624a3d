/* SPDX-License-Identifier: MIT */
/*
 * The NIC thread: it finishes what posts and polls could not. It sleeps on the word of the own
 * doorbell. Peers ring it for what their programs cannot wait for: an armed completion queue here,
 * memory of ours that is written or read. While sends are waiting for room, for a receive, for an
 * acknowledgement or for a time, it naps, and wakes the thread of the peer if that is fast asleep:
 * a receiver that does not poll is made to empty its ring, as hardware would.
 *
 * Where the system has no sleep on a word it always naps.
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

static struct fabric_bell *nic_bell(const struct fabric_header *header) {
    return (struct fabric_bell *)(void *)((uint8_t *)(uintptr_t)header + FABRIC_BELL_AT);
}

void fabric_nic_ring(const struct fabric_peer *peer) {
    struct fabric_bell *bell = nic_bell(peer->header);

    atomic_fetch_add(&bell->word, 1);
    if (atomic_load(&bell->sleep) != FABRIC_AWAKE) {
        nic_wake(&bell->word);
    }
}

/* Not out of a nap: two that wait for each other would keep each other awake. */
static void nic_nudge(const struct fabric_peer *peer) {
    struct fabric_bell *bell = nic_bell(peer->header);

    if (atomic_load(&bell->sleep) == FABRIC_ASLEEP) {
        fabric_nic_ring(peer);
    }
}

void fabric_nic_kick(void) {
    struct fabric_bell *bell = nic_bell(fabric_state.segment.header);

    /* Counting and then reading `sleep` mirrors the thread, which does both the other way round:
     * one of the two sees the other. */
    atomic_fetch_add(&fabric_state.nic.kicks, 1);
    if (atomic_load(&bell->sleep) == FABRIC_ASLEEP) {
        atomic_fetch_add(&bell->word, 1);
        nic_wake(&bell->word);
    }
}

/* Asks to be rung only while a completion queue of this queue pair is armed. */
static void nic_want_rings(struct fabric_qp *qp) {
    const struct fabric_cq *send_cq = (struct fabric_cq *)(void *)qp->base.send_cq;
    const struct fabric_cq *recv_cq = (struct fabric_cq *)(void *)qp->base.recv_cq;

    if (qp->own != NULL && atomic_load(&qp->own->rings_wanted) != 0 &&
        atomic_load(&send_cq->armed) == FABRIC_UNARMED &&
        atomic_load(&recv_cq->armed) == FABRIC_UNARMED) {
        atomic_store(&qp->own->rings_wanted, 0);
    }
}

/* Helps one queue pair. True: something waits that only a later round can finish, at *at_p. */
static bool nic_serve(struct fabric_qp *qp, uint64_t *at_p) {
    const struct fabric_peer *peer = NULL;
    bool is_waiting;

    fabric_connect_attach(qp);
    if (qp->is_rung) {
        fabric_lock_take(&qp->lock); /* who rang expects an answer */
    } else if (!fabric_lock_try(&qp->lock)) {
        return true; /* its owner is at work; look again */
    }
    fabric_data_send(qp);
    fabric_data_receive(qp);
    if (qp->needs_credit) {
        fabric_data_send(qp); /* what waited for an answer */
        fabric_data_watch(qp);
    }
    if (qp->is_rung) {
        nic_want_rings(qp);
    }
    is_waiting = fabric_data_is_waiting(qp, at_p);
    if (is_waiting) {
        peer = qp->peer;
    }
    fabric_lock_drop(&qp->lock);
    if (peer != NULL && peer != &fabric_state.segment.self) {
        nic_nudge(peer);
    }
    return is_waiting;
}

/* *is_watching_p: somebody wants to know of changes of ports, which ring no bell. */
static bool nic_round(uint64_t *at_p, bool *is_watching_p) {
    bool is_waiting = false;

    fabric_state_lock();
    fabric_event_look();
    *is_watching_p =
        fabric_state.contexts != NULL && fabric_rules_of(fabric_state.contexts->device)->is_roce;
    for (struct fabric_qp *qp = fabric_state.qps; qp != NULL; qp = qp->next) {
        if (nic_serve(qp, at_p)) {
            is_waiting = true;
        }
    }
    fabric_state_unlock();
    return is_waiting;
}

/* A sleep that ends when the bell rings, or has rung since `value` was read. */
static void nic_rest(uint32_t value, enum fabric_sleep how, uint64_t nap_ns, uint32_t kicks) {
    struct fabric_nic *nic = &fabric_state.nic;
    struct fabric_bell *bell = nic_bell(fabric_state.segment.header);

    atomic_store(&bell->sleep, how);
    if (atomic_load(&nic->stop) == 0 &&
        (how == FABRIC_NAPPING || atomic_load(&nic->kicks) == kicks)) {
        nic_sleep(&bell->word, value, nap_ns);
    }
    atomic_store(&bell->sleep, FABRIC_AWAKE);
}

/* How long to nap: the usual time, or until something is due. */
static uint64_t nic_nap_ns(uint64_t usual_ns, uint64_t at_ns) {
    uint64_t now = at_ns == UINT64_MAX ? 0 : fabric_now_ns();

    if (at_ns <= now) {
        return 1;
    }
    return at_ns - now < usual_ns ? at_ns - now : usual_ns;
}

static void *nic_main(void *unused) {
    struct fabric_nic *nic = &fabric_state.nic;
    struct fabric_bell *bell = nic_bell(fabric_state.segment.header);
    uint64_t nap_ns = NIC_FIRST_NAP_NS;
    int n_idle = NIC_IDLE_ROUNDS;

    while (atomic_load(&nic->stop) == 0) {
        uint32_t value = atomic_load(&bell->word);
        uint32_t kicks = atomic_load(&nic->kicks);
        uint64_t at_ns = UINT64_MAX;
        bool is_watching = false;

        if (nic_round(&at_ns, &is_watching)) {
            n_idle = 0;
        } else if (n_idle < NIC_IDLE_ROUNDS) {
            n_idle++;
        }
        if (n_idle < NIC_IDLE_ROUNDS) {
            nic_rest(value, FABRIC_NAPPING, nic_nap_ns(nap_ns, at_ns), kicks);
            nap_ns = nap_ns * 2 < NIC_LAST_NAP_NS ? nap_ns * 2 : NIC_LAST_NAP_NS;
            continue;
        }
        nap_ns = NIC_FIRST_NAP_NS;
        nic_rest(value, FABRIC_ASLEEP, is_watching ? FABRIC_LOOK_NS : NIC_FOREVER, kicks);
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
    atomic_store(&nic->kicks, 0);
    /* The host program's signals are not ours to handle. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&nic->thread, NULL, nic_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void fabric_nic_stop(void) {
    atomic_store(&fabric_state.nic.stop, 1);
    fabric_nic_ring(&fabric_state.segment.self);
    pthread_join(fabric_state.nic.thread, NULL);
}

bool fabric_nic_stop_soon(void) {
    struct fabric_nic *nic = &fabric_state.nic;

    atomic_store(&nic->stop, 1);
    fabric_nic_ring(&fabric_state.segment.self);
    for (int ms = 0; ms < 1000; ms++) {
        if (atomic_load(&nic->ended) != 0) {
            pthread_join(nic->thread, NULL);
            return true;
        }
        nic_nap(NIC_LAST_NAP_NS);
    }
    return false;
}
