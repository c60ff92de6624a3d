/* SPDX-License-Identifier: MIT */
/*
 * Who holds how many objects. A device's total is shared by all processes of its host and holds
 * the limits; each process keeps its share apart, so that it can be taken off when it died.
 */
#include "fabric_error.h"
#include "fabric_state.h"
#include "fabric_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const object_names[FABRIC_N_OBJECTS][2] = {
    [FABRIC_OBJECT_CONTEXT] = {"context", "contexts"},
    [FABRIC_OBJECT_PD] = {"protection domain", "protection domains"},
    [FABRIC_OBJECT_MR] = {"memory region", "memory regions"},
    [FABRIC_OBJECT_CQ] = {"completion queue", "completion queues"},
    [FABRIC_OBJECT_QP] = {"queue pair", "queue pairs"},
    [FABRIC_OBJECT_SRQ] = {"shared receive queue", "shared receive queues"},
    [FABRIC_OBJECT_CHANNEL] = {"completion channel", "completion channels"},
    [FABRIC_OBJECT_AH] = {"address handle", "address handles"},
};

static uint32_t object_limit(const struct fabric_rules *rules, enum fabric_object object) {
    switch (object) {
    case FABRIC_OBJECT_PD:
        return rules->max_pd;
    case FABRIC_OBJECT_MR:
        return rules->max_mr;
    case FABRIC_OBJECT_CQ:
        return rules->max_cq;
    case FABRIC_OBJECT_QP:
        return rules->max_qp_usable;
    default:
        return UINT32_MAX;
    }
}

/* The share of this process; NULL if it uses more devices than are kept apart. */
static struct fabric_world_claim *object_claim(const struct fabric_device *device) {
    uint32_t n_claims = fabric_world.n_claims;
    struct fabric_world_claim *claims = &fabric_world.claims[fabric_state.segment.slot * n_claims];

    for (uint32_t i = 0; i < n_claims; i++) {
        uint32_t port = atomic_load_explicit(&claims[i].port, memory_order_relaxed);

        if (port == 0) {
            atomic_store_explicit(&claims[i].port, device->port + 1, memory_order_relaxed);
            return &claims[i];
        }
        if (port == device->port + 1) {
            return &claims[i];
        }
    }
    return NULL;
}

static bool object_take(_Atomic uint32_t *total, uint32_t limit) {
    uint32_t n = atomic_load_explicit(total, memory_order_relaxed);

    while (n < limit) {
        if (atomic_compare_exchange_weak_explicit(total, &n, n + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/* What dead processes held comes back when it is missed. */
static void object_reclaim(void) {
    if (fabric_world_hold(&fabric_world) == 0) {
        fabric_world_reclaim(&fabric_world, &fabric_state.segment);
        fabric_world_unlock(&fabric_world);
    }
}

int fabric_object_claim(struct fabric_device *device, enum fabric_object object) {
    _Atomic uint32_t *total = &fabric_world.ports[device->port].n_objects[object];
    uint32_t limit = object_limit(device->rules, object);
    struct fabric_world_claim *claim;

    if (!object_take(total, limit)) {
        object_reclaim();
        if (!object_take(total, limit)) {
            return fabric_fail(object == FABRIC_OBJECT_QP ? EBUSY : ENOMEM,
                               "%s has %u %s already, all that the device gives", device->base.name,
                               limit, object_names[object][1]);
        }
    }
    claim = object_claim(device);
    if (claim != NULL) {
        atomic_fetch_add_explicit(&claim->n_objects[object], 1, memory_order_relaxed);
    }
    device->n_objects[object]++;
    return 0;
}

void fabric_object_release(struct fabric_device *device, enum fabric_object object) {
    struct fabric_world_claim *claim = object_claim(device);

    device->n_objects[object]--;
    if (claim != NULL) {
        atomic_fetch_sub_explicit(&claim->n_objects[object], 1, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&fabric_world.ports[device->port].n_objects[object], 1,
                              memory_order_relaxed);
}

/* --------------------------------------------------------------------- leaks */

static bool leak_line(const struct fabric_topology *topology, const struct fabric_device *device,
                      char *line, size_t n_bytes) {
    int at = snprintf(line, n_bytes, "jackal-fabric: leaked on %s of host %s:", device->base.name,
                      topology->hosts[device->host].name);
    int start = at;

    for (int k = 0; k < FABRIC_N_OBJECTS && at > 0 && (size_t)at < n_bytes; k++) {
        uint32_t n = device->n_objects[k];

        if (n > 0) {
            at += snprintf(line + at, n_bytes - (size_t)at, "%s %u %s", at == start ? "" : ",", n,
                           object_names[k][n != 1]);
        }
    }
    return at > start;
}

/* With the end of the process, or when the library is unloaded: objects that were not destroyed. */
__attribute__((destructor)) static void leak_report(void) {
    const char *where = getenv("JACKAL_FABRIC_LEAKS");
    const struct fabric_topology *topology = fabric_state.topology;
    int fd = STDERR_FILENO;

    if (where == NULL || where[0] == '\0' || topology == NULL) {
        return;
    }
    if (strcmp(where, "stderr") != 0) {
        fd = open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0) {
            return; /* nobody is left to tell */
        }
    }
    for (size_t d = 0; d < topology->n_devices; d++) {
        char line[512];

        if (leak_line(topology, &topology->devices[d], line, sizeof line)) {
            dprintf(fd, "%s\n", line);
        }
    }
    if (fd != STDERR_FILENO) {
        close(fd);
    }
}
