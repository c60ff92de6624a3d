/* SPDX-License-Identifier: MIT */
/*
 * The plan of faults. That of the description is the process's own; what is added while the fabric
 * runs lies in the world file and holds for all. A fault with a probability depends on the seed,
 * its place in the plan, the device and the number of the message alone, so a run can be repeated.
 *
 * While there is no plan, each question here is one or two relaxed loads.
 */
#include "fabric_error.h"
#include "fabric_state.h"
#include "fabric_world.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLAN_NAP_NS 100000000u /* a clock that jumps delays an event by no more than this */

struct plan {
    pthread_mutex_t lock;
    uint32_t n_faults;
    uint32_t self;
    uint64_t seed;
    struct fabric_fault faults[FABRIC_MAX_FAULTS];
    uint64_t n_seen[2 * FABRIC_MAX_FAULTS]; /* calls that a fault was asked about */
    _Atomic uint32_t has_calls;             /* a fault of a call or a host is in it */
    _Atomic uint32_t has_reorder;
    _Atomic uint64_t n_hidden;                    /* random numbers drawn */
    _Atomic(struct fabric_world_header *) header; /* while a device is open */
    /* The thread of the timed events. */
    pthread_cond_t wake;
    pthread_t thread;
    bool is_running;
    bool is_stopping;
};

static const _Atomic uint32_t plan_nothing;
struct fabric_fault_gate fabric_fault_gate = {.n_added = &plan_nothing};
static struct plan plan = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static bool plan_is_of_call(enum fabric_fault_kind kind) {
    return kind == FABRIC_FAULT_CALL || kind == FABRIC_FAULT_SLOW || kind == FABRIC_FAULT_PAUSE;
}

static bool plan_is_event(enum fabric_fault_kind kind) {
    return kind == FABRIC_FAULT_UNPLUG || kind == FABRIC_FAULT_REPLUG ||
           kind == FABRIC_FAULT_REMOVE;
}

static bool plan_is_of_message(enum fabric_fault_kind kind) {
    return !plan_is_of_call(kind) && !plan_is_event(kind) && kind != FABRIC_FAULT_REORDER;
}

static uint32_t plan_n_added(void) {
    struct fabric_world_header *header = atomic_load_explicit(&plan.header, memory_order_acquire);
    uint32_t n = header == NULL ? 0 : atomic_load_explicit(&header->n_faults, memory_order_acquire);

    return n < FABRIC_MAX_FAULTS ? n : FABRIC_MAX_FAULTS;
}

/* Fault number i of those added while the fabric runs; NULL if it was taken back. */
static const struct fabric_fault *plan_added(uint32_t i) {
    const struct fabric_world_fault *added = &fabric_world.faults[i];

    return atomic_load_explicit(&added->is_active, memory_order_acquire) != 0 ? &added->fault
                                                                              : NULL;
}

void fabric_plan_use(const struct fabric_topology *topology) {
    bool has_calls = false, has_reorder = false;

    pthread_mutex_lock(&plan.lock);
    plan.n_faults = (uint32_t)topology->n_faults;
    plan.self = topology->self;
    plan.seed = topology->seed;
    memset(plan.n_seen, 0, sizeof plan.n_seen);
    for (uint32_t i = 0; i < plan.n_faults; i++) {
        plan.faults[i] = topology->faults[i];
        has_calls = has_calls || plan_is_of_call(plan.faults[i].kind);
        has_reorder = has_reorder || plan.faults[i].kind == FABRIC_FAULT_REORDER;
    }
    atomic_store_explicit(&plan.has_calls, has_calls, memory_order_release);
    atomic_store_explicit(&plan.has_reorder, has_reorder, memory_order_release);
    atomic_store_explicit(&fabric_fault_gate.has_plan, plan.n_faults > 0, memory_order_release);
    pthread_mutex_unlock(&plan.lock);
}

/* ------------------------------------------------------------------- chance */

static uint64_t plan_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool plan_happens(double probability, uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t x = plan_mix(plan_mix(plan_mix(seed + 0x9e3779b97f4a7c15u) + a) + b);

    return (double)(x >> 11) * 0x1p-53 < probability;
}

/* ----------------------------------------------------------------- messages */

static bool fault_is_here(const struct fabric_fault *fault, uint32_t host, uint32_t device) {
    return (fault->host == FABRIC_ANY || fault->host == host) &&
           (fault->device == FABRIC_ANY || fault->device == device);
}

static void fault_change(const struct fabric_fault *fault, uint32_t port, uint64_t at_ns) {
    enum fabric_change change = fault->kind == FABRIC_FAULT_UNPLUG   ? FABRIC_CHANGE_UNPLUG
                                : fault->kind == FABRIC_FAULT_REPLUG ? FABRIC_CHANGE_REPLUG
                                                                     : FABRIC_CHANGE_REMOVE;

    fabric_world_change(&fabric_world, port, change, at_ns);
}

/* Whether the fault falls on this message; carries it out if it is an event. */
static bool fault_strikes(const struct fabric_fault *fault, uint64_t place, uint64_t seed,
                          const struct fabric_device *device, uint64_t number) {
    if (!fault_is_here(fault, device->host, device->index)) {
        return false;
    }
    if (plan_is_event(fault->kind)) {
        if (fault->by_message && fault->message == number) {
            fault_change(fault, device->port, 0);
        }
        return false;
    }
    if (!plan_is_of_message(fault->kind)) {
        return false;
    }
    return fault->by_message ? fault->message == number
                             : plan_happens(fault->probability, seed + place, device->port, number);
}

const struct fabric_fault *fabric_fault_find(struct fabric_device *device) {
    const struct fabric_topology *topology = device->topology;
    const struct fabric_fault *found = NULL;
    uint32_t n_added = plan_n_added();
    uint64_t number;

    if (topology->n_faults == 0 && n_added == 0) {
        return NULL;
    }
    number = atomic_fetch_add_explicit(&fabric_world.ports[device->port].sent.n_begun, 1,
                                       memory_order_relaxed);
    for (size_t i = 0; i < topology->n_faults; i++) {
        const struct fabric_fault *fault = &topology->faults[i];

        if (fault_strikes(fault, i, topology->seed, device, number) && found == NULL) {
            found = fault;
        }
    }
    for (uint32_t i = 0; i < n_added; i++) {
        const struct fabric_fault *fault = plan_added(i);

        if (fault != NULL &&
            fault_strikes(fault, FABRIC_MAX_FAULTS + i, topology->seed, device, number) &&
            found == NULL) {
            found = fault;
        }
    }
    return found;
}

bool fabric_fault_hides_now(const struct fabric_device *device) {
    uint32_t n_added = plan_n_added();
    double probability = 0;

    if (n_added == 0 && atomic_load_explicit(&plan.has_reorder, memory_order_relaxed) == 0) {
        return false;
    }
    for (size_t i = 0; i < device->topology->n_faults; i++) {
        const struct fabric_fault *fault = &device->topology->faults[i];

        if (fault->kind == FABRIC_FAULT_REORDER &&
            fault_is_here(fault, device->host, device->index)) {
            probability = fault->probability;
        }
    }
    for (uint32_t i = 0; i < n_added; i++) {
        const struct fabric_fault *fault = plan_added(i);

        if (fault != NULL && fault->kind == FABRIC_FAULT_REORDER &&
            fault_is_here(fault, device->host, device->index)) {
            probability = fault->probability;
        }
    }
    return probability > 0 &&
           plan_happens(probability, device->topology->seed, device->port,
                        atomic_fetch_add_explicit(&plan.n_hidden, 1, memory_order_relaxed));
}

/* -------------------------------------------------------------------- calls */

static bool call_is_of_data(const char *name) {
    return strcmp(name, "ibv_poll_cq") == 0 || strcmp(name, "ibv_post_send") == 0 ||
           strcmp(name, "ibv_post_recv") == 0;
}

/* What one fault of the plan does to a call; plan lock held. Adds to *nap_ns_p. */
static int call_ask(const struct fabric_fault *fault, uint64_t *n_seen, const char *name,
                    uint64_t *nap_ns_p) {
    uint64_t age_ns, n;

    if (fault->host != FABRIC_ANY && plan.self != FABRIC_ALL_HOSTS && fault->host != plan.self) {
        return 0;
    }
    switch (fault->kind) {
    case FABRIC_FAULT_CALL:
        if (fault->call[0] != '\0' && strcmp(fault->call, name) != 0) {
            return 0;
        }
        n = (*n_seen)++;
        return n >= fault->message && n - fault->message < fault->times ? fault->code : 0;
    case FABRIC_FAULT_SLOW:
        *nap_ns_p += call_is_of_data(name) ? fault->delay_ns : 0;
        return 0;
    case FABRIC_FAULT_PAUSE:
        age_ns = fabric_world_age_ns();
        if (call_is_of_data(name) && age_ns >= fault->at_ns &&
            age_ns - fault->at_ns < fault->delay_ns) {
            *nap_ns_p += fault->delay_ns - (age_ns - fault->at_ns);
        }
        return 0;
    default:
        return 0;
    }
}

static void call_nap(uint64_t nap_ns) {
    const struct timespec nap = {.tv_sec = (time_t)(nap_ns / 1000000000u),
                                 .tv_nsec = (long)(nap_ns % 1000000000u)};

    if (nap_ns > 0) {
        nanosleep(&nap, NULL);
    }
}

int fabric_fault_ask(const char *call_name) {
    uint32_t n_added = plan_n_added();
    uint64_t nap_ns = 0;
    int code = 0;

    if (n_added == 0 && atomic_load_explicit(&plan.has_calls, memory_order_relaxed) == 0) {
        return 0;
    }
    pthread_mutex_lock(&plan.lock);
    for (uint32_t i = 0; i < plan.n_faults; i++) {
        int rc = call_ask(&plan.faults[i], &plan.n_seen[i], call_name, &nap_ns);

        code = code == 0 ? rc : code;
    }
    for (uint32_t i = 0; i < n_added; i++) {
        const struct fabric_fault *fault = plan_added(i);
        int rc = fault == NULL
                     ? 0
                     : call_ask(fault, &plan.n_seen[FABRIC_MAX_FAULTS + i], call_name, &nap_ns);

        code = code == 0 ? rc : code;
    }
    pthread_mutex_unlock(&plan.lock);
    call_nap(nap_ns);
    return code == 0
               ? 0
               : fabric_fail(code, "%s: fails because a fault of the plan says so", call_name);
}

/* ------------------------------------------------------------- timed events */

/* Carries out what is due; returns when the next event is, UINT64_MAX if none is left. */
static uint64_t plan_run(const struct fabric_topology *topology) {
    uint64_t age_ns = fabric_world_age_ns(), next_ns = UINT64_MAX;

    for (size_t i = 0; i < topology->n_faults; i++) {
        const struct fabric_fault *fault = &topology->faults[i];
        const struct fabric_port *port = fabric_topology_port(topology, fault->host, fault->device);

        if (!plan_is_event(fault->kind) || fault->by_message || port == NULL) {
            continue;
        }
        if (fault->at_ns <= age_ns) {
            /* 0 would mean "now, whatever was": what is planned for the start is planned, too. */
            fault_change(fault, (uint32_t)(port - topology->ports),
                         fault->at_ns > 0 ? fault->at_ns : 1);
        } else if (fault->at_ns < next_ns) {
            next_ns = fault->at_ns;
        }
    }
    return next_ns;
}

static void *plan_thread(void *argument) {
    const struct fabric_topology *topology = argument;

    pthread_mutex_lock(&plan.lock);
    while (!plan.is_stopping) {
        uint64_t next_ns = plan_run(topology), age_ns = fabric_world_age_ns(), nap_ns;
        struct timespec until;

        if (next_ns == UINT64_MAX) {
            pthread_cond_wait(&plan.wake, &plan.lock); /* until it is stopped */
            continue;
        }
        nap_ns = next_ns > age_ns ? next_ns - age_ns : 0;
        nap_ns = nap_ns < PLAN_NAP_NS ? nap_ns : PLAN_NAP_NS;
        clock_gettime(CLOCK_REALTIME, &until);
        nap_ns += (uint64_t)until.tv_nsec;
        until.tv_sec += (time_t)(nap_ns / 1000000000u);
        until.tv_nsec = (long)(nap_ns % 1000000000u);
        pthread_cond_timedwait(&plan.wake, &plan.lock, &until);
    }
    pthread_mutex_unlock(&plan.lock);
    return NULL;
}

static bool plan_has_times(const struct fabric_topology *topology) {
    for (size_t i = 0; i < topology->n_faults; i++) {
        if (plan_is_event(topology->faults[i].kind) && !topology->faults[i].by_message) {
            return true;
        }
    }
    return false;
}

void fabric_plan_start(const struct fabric_topology *topology) {
    sigset_t all, old;

    atomic_store_explicit(&plan.header, fabric_world.header, memory_order_release);
    atomic_store_explicit(&fabric_fault_gate.n_added, &fabric_world.header->n_faults,
                          memory_order_release);
    if (!plan_has_times(topology)) {
        return;
    }
    plan_run(topology); /* what was due before this process came is so from its first call on */
    plan.is_stopping = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    plan.is_running =
        pthread_create(&plan.thread, NULL, plan_thread, (void *)(uintptr_t)topology) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void fabric_plan_stop(void) {
    atomic_store_explicit(&fabric_fault_gate.n_added, &plan_nothing, memory_order_release);
    atomic_store_explicit(&plan.header, NULL, memory_order_release);
    if (!plan.is_running) {
        return;
    }
    pthread_mutex_lock(&plan.lock);
    plan.is_stopping = true;
    pthread_cond_signal(&plan.wake);
    pthread_mutex_unlock(&plan.lock);
    pthread_join(plan.thread, NULL);
    plan.is_running = false;
}
