/* SPDX-License-Identifier: MIT */
/*
 * Full mesh: the devices of a host number k * W .. k * W + W - 1 lead to the k-th other host, wire
 * l of one end to wire l of the other. Addresses follow from host and device alone, so every
 * process knows those of all others.
 */
#include "fabric_topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t fabric_topology_devices_per_host(const struct fabric_topology *topology) {
    return (topology->n_hosts - 1) * topology->n_wires;
}

uint32_t fabric_topology_hash(const struct fabric_topology *topology) {
    return topology->n_hosts << 8 | topology->n_wires;
}

static void topology_peer(const struct fabric_topology *topology, uint32_t host, uint32_t index,
                          uint32_t *peer_host_p, uint32_t *peer_index_p) {
    uint32_t place = index / topology->n_wires;
    uint32_t wire = index % topology->n_wires;
    uint32_t other = place < host ? place : place + 1;
    uint32_t place_back = host < other ? host : host - 1;

    *peer_host_p = other;
    *peer_index_p = place_back * topology->n_wires + wire;
}

static uint32_t topology_cable(const struct fabric_topology *topology, uint32_t host,
                               uint32_t other, uint32_t wire) {
    uint32_t low = host < other ? host : other;
    uint32_t high = host < other ? other : host;
    uint32_t pair = low * topology->n_hosts - low * (low + 1) / 2 + (high - low - 1);

    return pair * topology->n_wires + wire;
}

/* Both ends of a cable are in one subnet of 169.254/16: a /24 each where they suffice, else a /30.
 */
static uint32_t topology_ipv4(const struct fabric_topology *topology, uint32_t host,
                              uint32_t index) {
    uint32_t n_cables = topology->n_hosts * (topology->n_hosts - 1) / 2 * topology->n_wires;
    uint32_t other, unused, cable, subnet;

    topology_peer(topology, host, index, &other, &unused);
    cable = topology_cable(topology, host, other, index % topology->n_wires);
    subnet = n_cables <= 254 ? (cable + 1) << 8 : cable << 2;
    return 0xa9fe0000u + subnet + (host < other ? 1u : 2u);
}

void fabric_topology_gid(const struct fabric_topology *topology, uint32_t host, uint32_t index,
                         uint32_t gid_index, union ibv_gid *gid_p) {
    memset(gid_p, 0, sizeof *gid_p);
    if (gid_index == 0) {
        /* Link-local from the locally administered MAC 02:4a:HH:HH:DD:DD (bit 1 flipped). */
        const uint8_t raw[16] = {0xfe,
                                 0x80,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 0x00,
                                 0x4a,
                                 (uint8_t)(host >> 8),
                                 0xff,
                                 0xfe,
                                 (uint8_t)host,
                                 (uint8_t)(index >> 8),
                                 (uint8_t)index};

        memcpy(gid_p->raw, raw, sizeof raw);
    } else if (gid_index == 1) {
        uint32_t address = htonl(topology_ipv4(topology, host, index));

        gid_p->raw[10] = 0xff;
        gid_p->raw[11] = 0xff;
        memcpy(gid_p->raw + 12, &address, sizeof address);
    }
}

static void topology_device(struct fabric_topology *topology, struct fabric_device *device,
                            uint32_t host, uint32_t index) {
    device->topology = topology;
    device->host = host;
    device->index = index;
    topology_peer(topology, host, index, &device->peer_host, &device->peer_index);
    for (uint32_t g = 0; g < FABRIC_N_GIDS; g++) {
        fabric_topology_gid(topology, host, index, g, &device->gids[g]);
    }
    memcpy(&device->guid, device->gids[0].raw + 8, sizeof device->guid);
    device->base.node_type = IBV_NODE_CA;
    device->base.transport_type = IBV_TRANSPORT_IB;
    if (topology->self == FABRIC_ALL_HOSTS) {
        snprintf(device->base.name, sizeof device->base.name, "h%u.rdma_en%u", host, index + 2);
    } else {
        snprintf(device->base.name, sizeof device->base.name, "rdma_en%u", index + 2);
    }
    snprintf(device->base.dev_name, sizeof device->base.dev_name, "fabric%u_%u", host, index);
}

int fabric_topology_build(struct fabric_topology *topology) {
    uint32_t per_host = fabric_topology_devices_per_host(topology);
    uint32_t first = topology->self == FABRIC_ALL_HOSTS ? 0 : topology->self;
    uint32_t n_hosts = topology->self == FABRIC_ALL_HOSTS ? topology->n_hosts : 1;

    topology->devices = calloc((size_t)n_hosts * per_host, sizeof *topology->devices);
    if (topology->devices == NULL) {
        return ENOMEM;
    }
    for (uint32_t h = 0; h < n_hosts; h++) {
        for (uint32_t d = 0; d < per_host; d++) {
            topology_device(topology, &topology->devices[topology->n_devices++], first + h, d);
        }
    }
    return 0;
}

void fabric_topology_free(struct fabric_topology *topology) {
    if (topology != NULL) {
        free(topology->devices);
        free(topology->faults);
        free(topology);
    }
}
