/* SPDX-License-Identifier: MIT */
/*
 * What all processes of a fabric share: one file "world" in its folder, mapped writable by all.
 * States, paces, counters, who holds how many objects, and the faults that were added while the
 * fabric runs. Nothing in it is a pointer or an index into anybody's memory that is not checked, so
 * a process that spoils it spoils numbers and states, never memory.
 *
 * The first process of a fabric makes it, the last one removes it; who enters or leaves holds the
 * lock of the file meanwhile, so there is never more than one. A file that nobody alive uses is
 * removed by the next start.
 */
#ifndef FABRIC_WORLD_H
#define FABRIC_WORLD_H

#include "fabric_segment.h"
#include "fabric_topology.h"

#define FABRIC_WORLD_FILE   "world"
#define FABRIC_WORLD_MAGIC  0x4a4b5744u
#define FABRIC_WORLD_LAYOUT 1u
#define FABRIC_WORLD_CLAIMS 128u /* devices of one process whose objects are kept apart */

struct fabric_world_header {
    _Atomic uint32_t magic; /* stored last */
    uint32_t layout;
    uint32_t topology_hash;
    uint32_t is_roce;
    uint32_t is_switched;
    uint32_t n_hosts, n_ports, n_claims;
    uint64_t size;
    uint64_t hosts_at, ports_at, faults_at, slots_at, claims_at;
    uint64_t created_ns; /* CLOCK_MONOTONIC, the same for all processes of a machine */
    _Alignas(FABRIC_LINE) _Atomic uint32_t epoch; /* of all states */
    _Atomic uint32_t n_faults;
    _Atomic uint64_t fault_seed;
};

struct fabric_world_host {
    char name[FABRIC_LABEL_MAX + 1];
    uint8_t spare[FABRIC_LINE - FABRIC_LABEL_MAX - 1];
};

#define FABRIC_FACTOR_ONE   1000000u
#define FABRIC_UNPACED_RATE 8.9e9 /* what a factor multiplies on a cable without a rate */

struct fabric_world_flow {
    _Alignas(FABRIC_LINE) _Atomic uint64_t n_bytes;
    _Atomic uint64_t n_messages;
    _Atomic uint64_t n_more_frames; /* beyond the first one of each message */
    _Atomic uint64_t busy_until_ns; /* of this direction */
    _Atomic uint64_t n_begun; /* numbers messages for faults; counted only while there are any */
};

struct fabric_world_port {
    char name[FABRIC_LABEL_MAX + 1];
    uint32_t host;
    uint32_t peer; /* FABRIC_ANY: none */
    struct fabric_pace pace;
    /* States. is_up follows from the others of this port and its peer. */
    _Alignas(FABRIC_LINE) _Atomic uint32_t is_up;
    _Atomic uint32_t is_paced;
    _Atomic uint32_t factor; /* of its rate, FABRIC_FACTOR_ONE = as described */
    _Atomic uint32_t is_down;
    _Atomic uint32_t is_unplugged;
    _Atomic uint32_t is_removed;
    _Atomic uint32_t n_flaps;
    _Atomic uint32_t n_objects[FABRIC_N_OBJECTS];
    _Atomic uint64_t changed_at_ns; /* the latest planned event that was carried out */
    struct fabric_world_flow sent;
    struct fabric_world_flow received;
};

struct fabric_world_fault {
    _Atomic uint32_t is_active;
    uint32_t spare;
    struct fabric_fault fault;
};

/* One live process, by the number of its own file. */
struct fabric_world_slot {
    _Atomic uint32_t pid; /* 0: nobody */
    _Atomic uint32_t host;
};

/* Objects of one process on one device; written by that process. */
struct fabric_world_claim {
    _Atomic uint32_t port; /* number + 1; 0: unused */
    _Atomic uint16_t n_objects[FABRIC_N_OBJECTS];
};

struct fabric_world {
    int fd; /* -1: not in a fabric */
    uint8_t *mapping;
    size_t size;
    uint32_t n_hosts, n_ports, n_claims; /* once found right, never read from the file again */
    bool is_switched;
    struct fabric_world_header *header;
    struct fabric_world_host *hosts;
    struct fabric_world_port *ports;
    struct fabric_world_fault *faults;
    struct fabric_world_slot *slots;
    struct fabric_world_claim *claims;
};

/* That of this process: valid while a device is open. */
extern struct fabric_world fabric_world;

/* Opens and locks the file in the folder of the segment. 0, ENOENT (the folder went), or an errno
 * with a text. */
int fabric_world_lock(struct fabric_world *world, int folder_fd, const char *place);
/* The lock of a world that is open already. 0 or an errno. */
int fabric_world_hold(struct fabric_world *world);
void fabric_world_unlock(struct fabric_world *world);
/* With the lock held: makes it anew if nobody else is alive, else joins. */
int fabric_world_join(struct fabric_world *world, struct fabric_segment *segment,
                      const struct fabric_topology *topology, bool is_first);
/* With the lock held: the objects of processes that are gone are nobody's. */
void fabric_world_reclaim(struct fabric_world *world, const struct fabric_segment *segment);
void fabric_world_forget_slot(struct fabric_world *world, uint32_t slot);
void fabric_world_close(struct fabric_world *world);
/* For a look from outside, without a lock. 0 or an errno with a text. */
int fabric_world_look(struct fabric_world *world, int folder_fd, const char *place);

/* Time since the fabric was created; 0 while no device is open. */
uint64_t fabric_world_age_ns(void);
uint32_t fabric_world_n_flaps(uint32_t port);
bool fabric_world_is_removed(uint32_t port);

enum fabric_change {
    FABRIC_CHANGE_UNPLUG,
    FABRIC_CHANGE_REPLUG,
    FABRIC_CHANGE_DOWN,
    FABRIC_CHANGE_UP,
    FABRIC_CHANGE_REMOVE
};
/* Changes the state of a port, and that of its peer where the cable is meant. at_ns is the planned
 * time since creation, and a change that is older than the last one is not carried out; 0: now. */
void fabric_world_change(struct fabric_world *world, uint32_t port, enum fabric_change change,
                         uint64_t at_ns);
/* Multiplies the rate of a cable (both directions) or of a port of the switch. */
void fabric_world_slow(struct fabric_world *world, uint32_t port, double factor);

/* fabric_fault.c: the events of the plan that have a time. Life lock held. */
void fabric_plan_start(const struct fabric_topology *topology);
void fabric_plan_stop(void);
/* The faults of a topology become those of this process. State lock held. */
void fabric_plan_use(const struct fabric_topology *topology);

#endif
