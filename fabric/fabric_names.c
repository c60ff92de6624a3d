/* SPDX-License-Identifier: MIT */
/*
 * The calls that ask nothing of a fabric: names of numbers, rates, forks, and variants of other
 * calls. They are here so that a program which needs them for a line of its output starts at all.
 */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Declared by headers that programs do not see, or only by newer ones. */
FABRIC_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                     unsigned int *type_p);
FABRIC_EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *text,
                                      size_t n_bytes);
FABRIC_EXPORT const char *ibv_get_sysfs_path(void);
FABRIC_EXPORT int ibv_dontfork_range(void *base, size_t n_bytes);
FABRIC_EXPORT int ibv_dofork_range(void *base, size_t n_bytes);

/* ------------------------------------------------------------------- texts */

FABRIC_EXPORT const char *ibv_node_type_str(enum ibv_node_type type) {
    switch (type) {
    case IBV_NODE_CA:
        return "channel adapter";
    case IBV_NODE_SWITCH:
        return "switch";
    case IBV_NODE_ROUTER:
        return "router";
    case IBV_NODE_RNIC:
        return "iWARP adapter";
    default:
        return "unknown node type";
    }
}

FABRIC_EXPORT const char *ibv_port_state_str(enum ibv_port_state state) {
    static const char *const names[] = {
        [IBV_PORT_NOP] = "no change",     [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "initialising", [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active",     [IBV_PORT_ACTIVE_DEFER] = "active, deferred",
    };

    return (size_t)state < sizeof names / sizeof names[0] ? names[state] : "unknown port state";
}

FABRIC_EXPORT const char *ibv_event_type_str(enum ibv_event_type event) {
    static const char *const names[] = {
        [IBV_EVENT_CQ_ERR] = "completion queue overrun",
        [IBV_EVENT_QP_FATAL] = "fatal error of a queue pair",
        [IBV_EVENT_QP_REQ_ERR] = "invalid request on a queue pair",
        [IBV_EVENT_QP_ACCESS_ERR] = "access error on a queue pair",
        [IBV_EVENT_COMM_EST] = "communication established",
        [IBV_EVENT_SQ_DRAINED] = "send queue drained",
        [IBV_EVENT_PATH_MIG] = "path migrated",
        [IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
        [IBV_EVENT_DEVICE_FATAL] = "fatal error of the device",
        [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",
        [IBV_EVENT_LID_CHANGE] = "LID changed",
        [IBV_EVENT_PKEY_CHANGE] = "P_Key table changed",
        [IBV_EVENT_SM_CHANGE] = "subnet manager changed",
        [IBV_EVENT_SRQ_ERR] = "error of a shared receive queue",
        [IBV_EVENT_SRQ_LIMIT_REACHED] = "limit of a shared receive queue reached",
        [IBV_EVENT_QP_LAST_WQE_REACHED] = "last request of a queue pair reached",
        [IBV_EVENT_CLIENT_REREGISTER] = "clients must register again",
        [IBV_EVENT_GID_CHANGE] = "GID table changed",
    };
    size_t n = sizeof names / sizeof names[0];

    return (size_t)event < n && names[event] != NULL ? names[event] : "unknown event";
}

/* ------------------------------------------------------------------- rates */

/* Rates as multiples of 2.5 Gb/s and in Mb/s; a rate between two multiples has none. */
static const struct {
    enum ibv_rate rate;
    int multiple;
    int mbps;
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},     {IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},     {IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},    {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},    {IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},  {IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 50000},    {IBV_RATE_400_GBPS, 160, 400000},
    {IBV_RATE_600_GBPS, 240, 600000}, {IBV_RATE_800_GBPS, 320, 800000},
    {IBV_RATE_14_GBPS, -1, 14062},    {IBV_RATE_56_GBPS, -1, 56250},
    {IBV_RATE_112_GBPS, -1, 112500},  {IBV_RATE_168_GBPS, -1, 168750},
    {IBV_RATE_25_GBPS, -1, 25781},    {IBV_RATE_100_GBPS, -1, 103125},
    {IBV_RATE_200_GBPS, -1, 206250},  {IBV_RATE_300_GBPS, -1, 309375},
};

enum { N_RATES = sizeof rates / sizeof rates[0] };

FABRIC_EXPORT int ibv_rate_to_mult(enum ibv_rate rate) {
    for (size_t i = 0; i < N_RATES; i++) {
        if (rates[i].rate == rate) {
            return rates[i].multiple;
        }
    }
    return -1;
}

FABRIC_EXPORT enum ibv_rate mult_to_ibv_rate(int multiple) {
    for (size_t i = 0; i < N_RATES; i++) {
        if (rates[i].multiple == multiple && multiple > 0) {
            return rates[i].rate;
        }
    }
    return IBV_RATE_MAX;
}

FABRIC_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate) {
    for (size_t i = 0; i < N_RATES; i++) {
        if (rates[i].rate == rate) {
            return rates[i].mbps;
        }
    }
    return -1;
}

FABRIC_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps) {
    for (size_t i = 0; i < N_RATES; i++) {
        if (rates[i].mbps == mbps) {
            return rates[i].rate;
        }
    }
    return IBV_RATE_MAX;
}

/* ------------------------------------------------------------------- tables of a port */

/* The entry at an index and its type, FABRIC_GID_…; 0, ENODATA if nothing is there, or what was
 * wrong with the question. Types have the numbers of enum ibv_gid_type. */
static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index,
                     union ibv_gid *gid_p, uint32_t *type_p) {
    const struct fabric_device *device = fabric_device_of(context);
    const struct fabric_topology *topology = device->topology;

    if (port != 1 || index >= FABRIC_GID_TABLE) {
        return fabric_fail(EINVAL, "%s: no GID %u of port %u; one port, %d GIDs",
                           context->device->name, index, port, FABRIC_GID_TABLE);
    }
    if (!fabric_gid_at(topology, &topology->ports[device->port], index, gid_p, type_p)) {
        return fabric_fail(ENODATA, "%s has no GID at index %u", context->device->name, index);
    }
    return 0;
}

/* The private call of Debian's programs has the numbers of sysfs: 0 is RoCE v1, 1 is v2. */
FABRIC_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                                     unsigned int *type_p) {
    union ibv_gid gid;
    uint32_t type;

    if (gid_entry(context, port, index, &gid, &type) != 0) {
        return -1;
    }
    *type_p = type == FABRIC_GID_ROCE_V2 ? 1 : 0;
    return 0;
}

#ifndef __APPLE__
static void gid_fill(uint32_t index, const union ibv_gid *gid, uint32_t type, void *entry_p) {
    struct ibv_gid_entry entry = {.gid = *gid, .gid_index = index, .port_num = 1, .gid_type = type};

    memcpy(entry_p, &entry, sizeof entry);
}

FABRIC_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                    struct ibv_gid_entry *entry_p, uint32_t flags,
                                    size_t entry_size) {
    union ibv_gid gid;
    uint32_t type;
    int rc;

    if (flags != 0 || entry_size < sizeof *entry_p) {
        return fabric_fail(EOPNOTSUPP, "flags 0x%x, an entry of %zu bytes", flags, entry_size);
    }
    rc = gid_entry(context, port, index, &gid, &type);
    if (rc == 0) {
        gid_fill(index, &gid, type, entry_p);
    }
    return rc;
}

FABRIC_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                           struct ibv_gid_entry *entries, size_t n_entries,
                                           uint32_t flags, size_t entry_size) {
    size_t n = 0;

    if (flags != 0 || entry_size < sizeof *entries) {
        return -fabric_fail(EOPNOTSUPP, "flags 0x%x, entries of %zu bytes", flags, entry_size);
    }
    for (uint32_t i = 0; i < FABRIC_GID_TABLE; i++) {
        union ibv_gid gid;
        uint32_t type;

        if (gid_entry(context, 1, i, &gid, &type) != 0) {
            continue;
        }
        if (n == n_entries) {
            return -fabric_fail(EINVAL, "room for %zu GIDs is not enough", n_entries);
        }
        gid_fill(i, &gid, type, (char *)entries + n * entry_size);
        n++;
    }
    return (ssize_t)n;
}
#endif

FABRIC_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
    __be16 only;

    if (ibv_query_pkey(context, port, 0, &only) != 0) {
        return -1;
    }
    if (only != pkey) {
        fabric_fail(ENOENT, "%s has no P_Key 0x%04x", context->device->name, pkey);
        return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------- memory, forks, places */

FABRIC_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
                                              uint64_t iova, unsigned int access) {
    if (iova != (uintptr_t)address) {
        fabric_fail(EOPNOTSUPP, "memory regions have the addresses of the process");
        return NULL;
    }
    /* These are wishes that a provider may leave unheard, such as relaxed ordering. */
    access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
    return ibv_reg_mr(pd, address, length, (int)access);
}

FABRIC_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
                                             uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned)access);
}

/* Nothing is pinned here, so a fork needs no care. */
FABRIC_EXPORT int ibv_dontfork_range(void *base, size_t n_bytes) {
    (void)base;
    (void)n_bytes;
    return 0;
}

FABRIC_EXPORT int ibv_dofork_range(void *base, size_t n_bytes) {
    (void)base;
    (void)n_bytes;
    return 0;
}

FABRIC_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}

/* Emulated devices have no folder there, and a provider that looked for one would find those of a
 * real device of the same name. */
FABRIC_EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *text,
                                      size_t n_bytes) {
    (void)text;
    (void)n_bytes;
    fabric_fail(ENOENT, "%s/%s: an emulated device has no files", folder, file);
    return -1;
}

FABRIC_EXPORT const char *ibv_get_sysfs_path(void) {
    return "/sys";
}

FABRIC_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device) {
    return ((const struct fabric_device *)(const void *)device)->guid;
}

FABRIC_EXPORT int ibv_get_device_index(struct ibv_device *device) {
    fabric_fail(EOPNOTSUPP, "%s: the kernel does not know it", device->name);
    return -1;
}
