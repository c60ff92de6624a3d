/* SPDX-License-Identifier: MIT */
/*
 * What the settings describe: hosts, devices, cables, faults. A topology is read when a device list
 * is asked for and lives while a list or an open device refers to it.
 */
#ifndef FABRIC_TOPOLOGY_H
#define FABRIC_TOPOLOGY_H

#include "fabric_limits.h"
#include "fabric_verbs.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum fabric_fault_kind { FABRIC_FAULT_FLIP, FABRIC_FAULT_DROP, FABRIC_FAULT_STATUS };

struct fabric_fault {
    enum fabric_fault_kind kind;
    uint32_t host;   /* with device: the sender's end of a cable */
    uint32_t device; /* index within the host */
    uint64_t message;
    uint64_t bit;
    uint32_t status;
};

/* One registration. lkey is 0 while unused; the other fields are valid while it is not. Read
 * without a lock by the data path, hence atomics; a program that deregisters memory in use gets
 * what it asked for. */
struct fabric_mr_slot {
    _Atomic uint32_t lkey;
    _Atomic uint32_t access;
    _Atomic uintptr_t address;
    _Atomic size_t length;
    _Atomic uintptr_t pd;
};

struct fabric_device {
    struct ibv_device base;
    struct fabric_topology *topology;
    uint32_t host;
    uint32_t index;
    uint32_t peer_host;
    uint32_t peer_index;
    union ibv_gid gids[FABRIC_N_GIDS];
    uint64_t guid;
    _Atomic uint64_t n_left; /* messages that left here, for the faults */
    /* Guarded by the state lock. */
    int n_qp;
    int n_mr;
    int n_pd;
    int n_cq;
    uint32_t mr_generation;
    struct fabric_mr_slot mrs[FABRIC_MAX_MR];
};

#define FABRIC_ALL_HOSTS UINT32_MAX

struct fabric_topology {
    int refs; /* guarded by the state lock */
    uint32_t n_hosts;
    uint32_t n_wires;
    uint32_t self; /* host of this process or FABRIC_ALL_HOSTS */
    char name[FABRIC_NAME_MAX + 1];
    size_t n_devices;
    struct fabric_device *devices;
    size_t n_faults;
    struct fabric_fault *faults;
};

/* Reads the environment. NULL with errno and a text on a wrong value. */
struct fabric_topology *fabric_config_read(void);

/* Fills in the devices of a topology whose numbers are known. Returns 0 or ENOMEM. */
int fabric_topology_build(struct fabric_topology *topology);
void fabric_topology_free(struct fabric_topology *topology);
/* Two processes understand each other only if this agrees. */
uint32_t fabric_topology_hash(const struct fabric_topology *topology);
uint32_t fabric_topology_devices_per_host(const struct fabric_topology *topology);
/* The GID of any device of the fabric, also of hosts that this process is not. */
void fabric_topology_gid(const struct fabric_topology *topology, uint32_t host, uint32_t index,
                         uint32_t gid_index, union ibv_gid *gid_p);

/* What happens to the next message that leaves the device: NULL or the fault. */
const struct fabric_fault *fabric_fault_next(struct fabric_device *device);

#endif
