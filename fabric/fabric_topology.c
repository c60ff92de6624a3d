/* SPDX-License-Identifier: MIT */
/*
 * Hosts, ports and cables of the mesh, and the devices that this process sees of any topology. In
 * the mesh the devices of a host number k * W .. k * W + W - 1 lead to the k-th other host, wire l
 * of one end to wire l of the other. Everything follows from the description alone, so every
 * process knows the devices of all others.
 */
#include "fabric_topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct fabric_port *fabric_topology_port(const struct fabric_topology *topology,
                                               uint32_t host, uint32_t index) {
    if (host >= topology->n_hosts || index >= topology->hosts[host].n_ports) {
        return NULL;
    }
    return &topology->ports[topology->hosts[host].first_port + index];
}

const struct fabric_port *fabric_topology_find(const struct fabric_topology *topology,
                                               const char *label) {
    const char *dot = strchr(label, '.');

    for (uint32_t p = 0; dot != NULL && p < topology->n_ports; p++) {
        const struct fabric_port *port = &topology->ports[p];
        const char *host = topology->hosts[port->host].name;
        const char *name = port->name;

        if (strlen(host) != (size_t)(dot - label) || strncmp(host, label, strlen(host)) != 0) {
            continue;
        }
        if (strcmp(name, dot + 1) == 0 ||
            (strncmp(name, "rdma_", 5) == 0 && strcmp(name + 5, dot + 1) == 0)) {
            return port;
        }
    }
    return NULL;
}

/* ----------------------------------------------------------------- the mesh */

static uint32_t mesh_cable(const struct fabric_topology *topology, uint32_t host, uint32_t other,
                           uint32_t wire) {
    uint32_t low = host < other ? host : other;
    uint32_t high = host < other ? other : host;
    uint32_t pair = low * topology->n_hosts - low * (low + 1) / 2 + (high - low - 1);

    return pair * topology->n_wires + wire;
}

static void mesh_wire_up(struct fabric_topology *topology, struct fabric_port *port) {
    uint32_t place = port->index / topology->n_wires;
    uint32_t wire = port->index % topology->n_wires;
    uint32_t other = place < port->host ? place : place + 1;
    uint32_t place_back = port->host < other ? port->host : port->host - 1;

    port->peer = topology->hosts[other].first_port + place_back * topology->n_wires + wire;
    port->cable = mesh_cable(topology, port->host, other, wire);
    topology->cables[port->cable].ends[port->host < other ? 0 : 1] =
        topology->hosts[port->host].first_port + port->index;
}

static void mesh_port(struct fabric_topology *topology, struct fabric_port *port, uint32_t host,
                      uint32_t index) {
    port->host = host;
    port->index = index;
    port->cable = FABRIC_ANY;
    port->peer = FABRIC_ANY;
    port->rules = &topology->rules;
    port->pace = topology->pace;
    if (topology->is_switched) {
        snprintf(port->name, sizeof port->name, "rocep%u", index + 1);
    } else if (topology->is_roce) {
        snprintf(port->name, sizeof port->name, "rocep%u", index + 1);
        mesh_wire_up(topology, port);
    } else {
        snprintf(port->name, sizeof port->name, "rdma_en%u", index + 2);
        mesh_wire_up(topology, port);
    }
}

int fabric_topology_mesh(struct fabric_topology *topology) {
    uint32_t n = topology->n_hosts;
    uint32_t per_host = (topology->is_switched ? 1 : n - 1) * topology->n_wires;

    topology->is_mesh = true;
    topology->n_ports = n * per_host;
    topology->n_cables = topology->is_switched ? 0 : topology->n_ports / 2;
    topology->hosts = calloc(n, sizeof *topology->hosts);
    topology->ports = calloc(topology->n_ports, sizeof *topology->ports);
    topology->cables = calloc((size_t)topology->n_cables + 1, sizeof *topology->cables);
    if (topology->hosts == NULL || topology->ports == NULL || topology->cables == NULL) {
        return ENOMEM;
    }
    for (uint32_t h = 0; h < n; h++) {
        snprintf(topology->hosts[h].name, sizeof topology->hosts[h].name, "h%u", h);
        topology->hosts[h].first_port = h * per_host;
        topology->hosts[h].n_ports = per_host;
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        mesh_port(topology, &topology->ports[p], p / per_host, p % per_host);
    }
    return 0;
}

/* ------------------------------------------------------------------ devices */

static void topology_device(struct fabric_topology *topology, struct fabric_device *device,
                            uint32_t port_number) {
    const struct fabric_port *port = &topology->ports[port_number];
    union ibv_gid address;

    device->topology = topology;
    device->rules = port->rules;
    device->port = port_number;
    device->host = port->host;
    device->index = port->index;
    device->peer_host = FABRIC_ANY;
    device->peer_index = FABRIC_ANY;
    if (port->peer != FABRIC_ANY) {
        device->peer_host = topology->ports[port->peer].host;
        device->peer_index = topology->ports[port->peer].index;
    }
    fabric_gid_link_local(port, &address);
    memcpy(&device->guid, address.raw + 8, sizeof device->guid);
    device->base.node_type = IBV_NODE_CA;
    device->base.transport_type = IBV_TRANSPORT_IB;
    if (topology->self == FABRIC_ALL_HOSTS) {
        snprintf(device->base.name, sizeof device->base.name, "%s.%s",
                 topology->hosts[port->host].name, port->name);
    } else {
        snprintf(device->base.name, sizeof device->base.name, "%s", port->name);
    }
    snprintf(device->base.dev_name, sizeof device->base.dev_name, "fabric%u_%u", port->host,
             port->index);
}

int fabric_topology_build(struct fabric_topology *topology) {
    bool is_all = topology->self == FABRIC_ALL_HOSTS;
    uint32_t first = is_all ? 0 : topology->hosts[topology->self].first_port;
    uint32_t n = is_all ? topology->n_ports : topology->hosts[topology->self].n_ports;

    topology->devices = calloc((size_t)n + 1, sizeof *topology->devices);
    if (topology->devices == NULL) {
        return ENOMEM;
    }
    for (uint32_t p = 0; p < n; p++) {
        topology_device(topology, &topology->devices[topology->n_devices++], first + p);
    }
    return 0;
}

void fabric_topology_free(struct fabric_topology *topology) {
    if (topology == NULL) {
        return;
    }
    for (size_t d = 0; d < topology->n_devices; d++) {
        free(topology->devices[d].mrs);
    }
    for (uint32_t p = 0; topology->ports != NULL && p < topology->n_ports; p++) {
        free(topology->ports[p].gids);
        free(topology->ports[p].own_rules);
    }
    free(topology->devices);
    free(topology->hosts);
    free(topology->ports);
    free(topology->cables);
    free(topology->faults);
    free(topology);
}

/* --------------------------------------------------------------------- hash */

static uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t n_bytes) {
    const uint8_t *at = bytes;

    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ at[i]) * 16777619u; /* FNV-1a */
    }
    return hash;
}

uint32_t fabric_topology_hash(const struct fabric_topology *topology) {
    uint32_t hash = 2166136261u;
    const uint32_t whole[4] = {topology->is_roce, topology->is_switched, topology->n_hosts,
                               topology->n_ports};

    hash = hash_bytes(hash, whole, sizeof whole);
    for (uint32_t h = 0; h < topology->n_hosts; h++) {
        hash = hash_bytes(hash, topology->hosts[h].name, strlen(topology->hosts[h].name) + 1);
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        const struct fabric_port *port = &topology->ports[p];
        const uint64_t pace[4] = {(uint64_t)port->pace.rate, port->pace.latency_ns,
                                  port->pace.gap_ns, port->pace.frame_gap_ns};

        hash = hash_bytes(hash, port->name, strlen(port->name) + 1);
        hash = hash_bytes(hash, &port->host, sizeof port->host);
        hash = hash_bytes(hash, &port->peer, sizeof port->peer);
        hash = hash_bytes(hash, pace, sizeof pace);
    }
    return hash == 0 ? 1 : hash; /* 0 means "not looked at" */
}
