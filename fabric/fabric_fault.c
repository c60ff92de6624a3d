/* SPDX-License-Identifier: MIT */
#include "fabric_topology.h"

const struct fabric_fault *fabric_fault_next(struct fabric_device *device) {
    const struct fabric_topology *topology = device->topology;
    uint64_t number;

    if (topology->n_faults == 0) {
        return NULL;
    }
    number = atomic_fetch_add_explicit(&device->n_left, 1, memory_order_relaxed);
    for (size_t i = 0; i < topology->n_faults; i++) {
        const struct fabric_fault *fault = &topology->faults[i];

        if (fault->host == device->host && fault->device == device->index &&
            fault->message == number) {
            return fault;
        }
    }
    return NULL;
}
