/* SPDX-License-Identifier: MIT */
/*
 * The pace is LogGP's: a message occupies its direction of the cable for its bytes at the cable's
 * rate, or for the gaps of its frames if those are longer, after whatever was sent before it; it
 * arrives one latency later. Several processes and queue pairs share a direction, so the time until
 * which it is taken is one word that all of them move forward. A switch has no queue that could
 * overflow: a message passes the sender's port and then, in its turn, the receiver's.
 */
#include "fabric_cable.h"
#include "fabric_state.h"
#include "fabric_world.h"

static uint32_t cable_get(const _Atomic uint32_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static struct fabric_world_port *cable_port(const struct fabric_device *device) {
    return &fabric_world.ports[device->port];
}

static struct fabric_world_port *cable_peer(const struct fabric_device *device, uint32_t host,
                                            uint32_t index) {
    const struct fabric_topology *topology = device->topology;
    const struct fabric_port *port = fabric_topology_port(topology, host, index);

    return port == NULL ? NULL : &fabric_world.ports[port - topology->ports];
}

bool fabric_cable_is_up(const struct fabric_device *device) {
    return cable_get(&cable_port(device)->is_up) != 0;
}

bool fabric_cable_is_up_to(const struct fabric_device *device, uint32_t peer_host,
                           uint32_t peer_index) {
    const struct fabric_world_port *peer;

    if (device->peer_host != FABRIC_ANY) {
        return fabric_cable_is_up(device); /* a cable is up at both ends or at none */
    }
    peer = cable_peer(device, peer_host, peer_index);
    return fabric_cable_is_up(device) && peer != NULL && cable_get(&peer->is_up) != 0;
}

uint32_t fabric_cable_epoch(const struct fabric_device *device) {
    (void)device; /* one for all: changes are rare */
    return atomic_load_explicit(&fabric_world.header->epoch, memory_order_acquire);
}

static double cable_occupied_ns(const struct fabric_world_port *port, uint32_t n_bytes,
                                uint32_t n_frames) {
    uint32_t parts = cable_get(&port->factor);
    double factor = (double)parts / FABRIC_FACTOR_ONE;
    double rate = port->pace.rate;
    double gaps = (double)port->pace.gap_ns +
                  (n_frames > 1 ? (double)(n_frames - 1) * (double)port->pace.frame_gap_ns : 0);
    double bytes;

    if (rate <= 0 && parts != FABRIC_FACTOR_ONE) {
        rate = FABRIC_UNPACED_RATE;
    }
    bytes = rate > 0 ? (double)n_bytes / rate * 1e9 : 0;
    return (bytes > gaps ? bytes : gaps) / factor;
}

/* Takes a direction for occupied_ns from start_ns on, or from when it is free; returns the end. */
static uint64_t cable_take(_Atomic uint64_t *busy_until_ns, uint64_t start_ns,
                           uint64_t occupied_ns) {
    uint64_t busy = atomic_load_explicit(busy_until_ns, memory_order_relaxed);
    uint64_t end;

    do {
        end = (busy > start_ns ? busy : start_ns) + occupied_ns;
    } while (!atomic_compare_exchange_weak_explicit(busy_until_ns, &busy, end, memory_order_relaxed,
                                                    memory_order_relaxed));
    return end;
}

static uint64_t cable_reserve(struct fabric_world_port *port, struct fabric_world_port *peer,
                              uint32_t n_bytes, uint32_t n_frames) {
    uint64_t out_ns = (uint64_t)cable_occupied_ns(port, n_bytes, n_frames);
    uint64_t in_ns = peer == NULL ? 0 : (uint64_t)cable_occupied_ns(peer, n_bytes, n_frames);
    uint64_t end = cable_take(&port->sent.busy_until_ns, fabric_now_ns(), out_ns);

    if (peer != NULL) {
        /* It streams through: the receiver's port is taken from when the first byte can be there,
         * and not free before the last byte was sent. */
        uint64_t in_end = cable_take(&peer->received.busy_until_ns, end - out_ns, in_ns);

        end = in_end > end ? in_end : end;
    }
    return end + port->pace.latency_ns;
}

uint64_t fabric_cable_reserve(struct fabric_device *device, uint32_t n_bytes, uint32_t n_frames) {
    struct fabric_world_port *port = cable_port(device);

    if (cable_get(&port->is_paced) == 0) {
        return 0;
    }
    return cable_reserve(port, NULL, n_bytes, n_frames);
}

uint64_t fabric_cable_reserve_to(struct fabric_device *device, uint32_t peer_host,
                                 uint32_t peer_index, uint32_t n_bytes, uint32_t n_frames) {
    struct fabric_world_port *port = cable_port(device);
    struct fabric_world_port *peer;

    if (device->peer_host != FABRIC_ANY) {
        return fabric_cable_reserve(device, n_bytes, n_frames);
    }
    peer = cable_peer(device, peer_host, peer_index);
    if (cable_get(&port->is_paced) == 0 && (peer == NULL || cable_get(&peer->is_paced) == 0)) {
        return 0;
    }
    return cable_reserve(port, peer, n_bytes, n_frames);
}

/* As few additions as possible: each is a locked one, and small messages are many. */
static void cable_count(struct fabric_world_flow *flow, uint32_t n_bytes, uint32_t n_frames) {
    atomic_fetch_add_explicit(&flow->n_messages, 1, memory_order_relaxed);
    if (n_bytes > 0) {
        atomic_fetch_add_explicit(&flow->n_bytes, n_bytes, memory_order_relaxed);
    }
    if (n_frames > 1) {
        atomic_fetch_add_explicit(&flow->n_more_frames, n_frames - 1, memory_order_relaxed);
    }
}

void fabric_cable_count_sent(struct fabric_device *device, uint32_t n_bytes, uint32_t n_frames) {
    cable_count(&cable_port(device)->sent, n_bytes, n_frames);
}

void fabric_cable_count_received(struct fabric_device *device, uint32_t n_bytes,
                                 uint32_t n_frames) {
    cable_count(&cable_port(device)->received, n_bytes, n_frames);
}
