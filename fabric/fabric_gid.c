/* SPDX-License-Identifier: MIT */
/*
 * The addresses of ports: which GIDs a table holds at this moment, and who can be reached by them.
 * A table that the description does not give holds the link-local address of a MAC and an IPv4
 * address; on roce each twice, as RoCE v1 and as RoCE v2, as Linux lists them.
 */
#include "fabric_error.h"
#include "fabric_topology.h"
#include "fabric_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From the locally administered MAC 02:4a:HH:HH:DD:DD (bit 1 flipped). */
void fabric_gid_link_local(const struct fabric_port *port, union ibv_gid *gid_p) {
    memset(gid_p, 0, sizeof *gid_p);
    gid_p->raw[0] = 0xfe;
    gid_p->raw[1] = 0x80;
    gid_p->raw[9] = 0x4a;
    gid_p->raw[10] = (uint8_t)(port->host >> 8);
    gid_p->raw[11] = 0xff;
    gid_p->raw[12] = 0xfe;
    gid_p->raw[13] = (uint8_t)port->host;
    gid_p->raw[14] = (uint8_t)(port->index >> 8);
    gid_p->raw[15] = (uint8_t)port->index;
}

/* Both ends of a cable are in one subnet of 169.254/16: a /24 each where they suffice, else a /30.
 * On a switch: 10.R.H.H+1, with R the number of the device. */
static void gid_ipv4(const struct fabric_topology *topology, const struct fabric_port *port,
                     union ibv_gid *gid_p) {
    uint32_t address;

    memset(gid_p, 0, sizeof *gid_p);
    if (topology->is_switched) {
        address = 0x0a000000u + (port->index << 16) + port->host + 1;
    } else if (port->cable == FABRIC_ANY) {
        return;
    } else {
        uint32_t subnet = topology->n_cables <= 254 ? (port->cable + 1) << 8 : port->cable << 2;
        const struct fabric_port *low = &topology->ports[topology->cables[port->cable].ends[0]];

        address = 0xa9fe0000u + subnet + (port == low ? 1u : 2u);
    }
    address = htonl(address);
    gid_p->raw[10] = 0xff;
    gid_p->raw[11] = 0xff;
    memcpy(gid_p->raw + 12, &address, sizeof address);
}

static bool gid_is_zero(const union ibv_gid *gid) {
    static const union ibv_gid zero;

    return memcmp(gid, &zero, sizeof zero) == 0;
}

static bool gid_by_rule(const struct fabric_topology *topology, const struct fabric_port *port,
                        uint32_t index, union ibv_gid *gid_p, uint32_t *type_p) {
    uint32_t place = topology->is_roce ? index / 2 : index;

    *type_p = topology->is_roce && index % 2 == 0 ? FABRIC_GID_ROCE_V1 : FABRIC_GID_ROCE_V2;
    if (place == 0) {
        fabric_gid_link_local(port, gid_p);
    } else if (place == 1) {
        gid_ipv4(topology, port, gid_p);
    } else {
        memset(gid_p, 0, sizeof *gid_p);
    }
    if (gid_is_zero(gid_p)) {
        *type_p = 0;
        return false;
    }
    return true;
}

bool fabric_gid_at(const struct fabric_topology *topology, const struct fabric_port *port,
                   uint32_t gid_index, union ibv_gid *gid_p, uint32_t *type_p) {
    uint32_t n_flaps;
    uint64_t age_ns;

    if (!port->has_gids) {
        return gid_by_rule(topology, port, gid_index, gid_p, type_p);
    }
    memset(gid_p, 0, sizeof *gid_p);
    *type_p = 0;
    age_ns = fabric_world_age_ns();
    n_flaps = fabric_world_n_flaps((uint32_t)(port - topology->ports));
    for (size_t i = 0; i < port->n_gids; i++) {
        const struct fabric_gid_entry *entry = &port->gids[i];

        if (entry->index == gid_index && entry->from_ns <= age_ns && age_ns < entry->until_ns &&
            entry->from_flap <= n_flaps && n_flaps < entry->until_flap) {
            *gid_p = entry->value;
            *type_p = entry->type;
        }
    }
    return !gid_is_zero(gid_p);
}

void fabric_topology_gid(const struct fabric_topology *topology, uint32_t host, uint32_t index,
                         uint32_t gid_index, union ibv_gid *gid_p) {
    const struct fabric_port *port = fabric_topology_port(topology, host, index);
    uint32_t type;

    memset(gid_p, 0, sizeof *gid_p);
    if (port != NULL) {
        fabric_gid_at(topology, port, gid_index, gid_p, &type);
    }
}

/* ------------------------------------------------------------------ routing */

static bool gid_is_ipv4(const union ibv_gid *gid) {
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return memcmp(gid->raw, prefix, sizeof prefix) == 0;
}

static bool gid_is_link_local(const union ibv_gid *gid) {
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* IPv4: 169.254/16 is one subnet, anything else a /24. IPv6: a /64. */
static bool gid_is_near(const union ibv_gid *one, const union ibv_gid *other) {
    if (gid_is_ipv4(one)) {
        bool is_automatic = one->raw[12] == 169 && one->raw[13] == 254;

        return memcmp(one->raw + 12, other->raw + 12, is_automatic ? 2 : 3) == 0;
    }
    return memcmp(one->raw, other->raw, 8) == 0;
}

static bool gid_is_of(const struct fabric_topology *topology, const struct fabric_port *port,
                      const union ibv_gid *gid) {
    for (uint32_t i = 0; i < FABRIC_GID_TABLE; i++) {
        union ibv_gid own;
        uint32_t type;

        if (fabric_gid_at(topology, port, i, &own, &type) && memcmp(&own, gid, sizeof own) == 0) {
            return true;
        }
    }
    return false;
}

/* The port that has dgid among those that `port` is wired to. */
static const struct fabric_port *gid_owner(const struct fabric_topology *topology,
                                           const struct fabric_port *port,
                                           const union ibv_gid *dgid) {
    if (!topology->is_switched) {
        const struct fabric_port *peer =
            port->peer == FABRIC_ANY ? NULL : &topology->ports[port->peer];

        return peer != NULL && gid_is_of(topology, peer, dgid) ? peer : NULL;
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        if (gid_is_of(topology, &topology->ports[p], dgid)) {
            return &topology->ports[p];
        }
    }
    return NULL;
}

int fabric_topology_route(const struct fabric_device *device, uint32_t sgid_index,
                          const union ibv_gid *dgid, uint32_t *peer_host_p,
                          uint32_t *peer_index_p) {
    const struct fabric_topology *topology = device->topology;
    const struct fabric_port *port = &topology->ports[device->port], *owner;
    const char *name = device->base.name;
    char to[INET6_ADDRSTRLEN];
    union ibv_gid source;
    uint32_t type;

    inet_ntop(AF_INET6, dgid->raw, to, sizeof to);
    if (sgid_index >= FABRIC_GID_TABLE ||
        !fabric_gid_at(topology, port, sgid_index, &source, &type)) {
        return fabric_fail(EINVAL, "%s has no GID at index %u", name, sgid_index);
    }
    if (gid_is_ipv4(&source) != gid_is_ipv4(dgid) ||
        gid_is_link_local(&source) != gid_is_link_local(dgid)) {
        return fabric_fail(EINVAL, "%s: the GID at index %u is of another kind than the peer's, %s",
                           name, sgid_index, to);
    }
    owner = gid_owner(topology, port, dgid);
    if (owner == NULL) {
        return fabric_fail(
            ETIMEDOUT, "%s: nobody %s has the GID %s", name,
            topology->is_switched ? "on the switch" : "at the other end of its cable", to);
    }
    if (!topology->is_switched && !gid_is_near(&source, dgid)) {
        return fabric_fail(ETIMEDOUT, "%s: the peer's GID %s is in another subnet than index %u",
                           name, to, sgid_index);
    }
    *peer_host_p = owner->host;
    *peer_index_p = owner->index;
    return 0;
}
