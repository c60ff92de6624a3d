/* SPDX-License-Identifier: MIT */
/*
 * What the settings describe: hosts, their devices, cables or a switch, limits, faults. A topology
 * is read when a device list is asked for and lives while a list or an open device refers to it.
 *
 * A `port` is a device of any host of the fabric, numbered through; a `device` is one that this
 * process sees, with what verbs keep of it.
 */
#ifndef FABRIC_TOPOLOGY_H
#define FABRIC_TOPOLOGY_H

#include "fabric_limits.h"
#include "fabric_rules.h"
#include "fabric_verbs.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fabric_fault_kind {
    /* Of one message that leaves a device. */
    FABRIC_FAULT_FLIP,      /* bit of the payload, modulo its length */
    FABRIC_FAULT_DROP,      /* never arrives; the send completes */
    FABRIC_FAULT_STATUS,    /* the receive completes with status */
    FABRIC_FAULT_DELAY,     /* arrives delay_ns later, and all behind it on its queue pair */
    FABRIC_FAULT_DUPLICATE, /* arrives twice, one after the other */
    /* Of a verbs call, and of a host. */
    FABRIC_FAULT_CALL,    /* fails with code */
    FABRIC_FAULT_REORDER, /* completions hide from a poll with a probability */
    FABRIC_FAULT_SLOW,    /* every data call takes delay_ns longer */
    FABRIC_FAULT_PAUSE,   /* data calls wait until at_ns + delay_ns */
    /* Of a cable or device, at a time or before a message. */
    FABRIC_FAULT_UNPLUG,
    FABRIC_FAULT_REPLUG,
    FABRIC_FAULT_REMOVE
};

#define FABRIC_CALL_NAME_MAX 31
#define FABRIC_ANY           UINT32_MAX

/* Plain values only: the same struct lies in shared memory. */
struct fabric_fault {
    enum fabric_fault_kind kind;
    uint32_t host;   /* with device: the sender's end of a cable; FABRIC_ANY: every one */
    uint32_t device; /* index within the host */
    bool by_message; /* else by probability (of kinds of a message) or by time */
    uint64_t message;
    uint64_t bit;
    uint32_t status;
    uint64_t delay_ns;
    double probability;
    uint64_t times; /* calls: how many in a row fail */
    int code;
    char call[FABRIC_CALL_NAME_MAX + 1]; /* empty: any */
    uint64_t at_ns;                      /* since the fabric was created */
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

enum fabric_object {
    FABRIC_OBJECT_CONTEXT,
    FABRIC_OBJECT_PD,
    FABRIC_OBJECT_MR,
    FABRIC_OBJECT_CQ,
    FABRIC_OBJECT_QP,
    FABRIC_OBJECT_SRQ,
    FABRIC_OBJECT_CHANNEL,
    FABRIC_OBJECT_AH,
    FABRIC_N_OBJECTS
};

struct fabric_device {
    struct ibv_device base;
    struct fabric_topology *topology;
    const struct fabric_rules *rules;
    uint32_t port;
    uint32_t host;
    uint32_t index;
    uint32_t peer_host; /* FABRIC_ANY: on a switch, or no cable is plugged */
    uint32_t peer_index;
    uint64_t guid;
    /* Guarded by the state lock. */
    uint32_t n_objects[FABRIC_N_OBJECTS]; /* of this process */
    uint32_t mr_generation;
    struct fabric_mr_slot *mrs; /* rules->max_mr of them, there once a context was opened */
};

struct fabric_gid_entry {
    uint32_t index;
    uint32_t type; /* FABRIC_GID_… */
    union ibv_gid value;
    uint64_t from_ns, until_ns;     /* since the fabric was created */
    uint32_t from_flap, until_flap; /* replugs of the port so far */
};
#define FABRIC_GID_ROCE_V1 1u
#define FABRIC_GID_ROCE_V2 2u

struct fabric_pace {
    double rate; /* bytes a second, 0 = as fast as it goes */
    uint64_t latency_ns, gap_ns, frame_gap_ns;
};

struct fabric_port {
    char name[FABRIC_LABEL_MAX + 1];
    uint32_t host;
    uint32_t index;
    uint32_t cable; /* FABRIC_ANY: none */
    uint32_t peer;  /* port at its other end, FABRIC_ANY: none */
    bool starts_down;
    bool has_gids; /* else they follow from the addresses of a mesh */
    size_t n_gids;
    struct fabric_gid_entry *gids;
    const struct fabric_rules *rules;
    struct fabric_rules *own_rules;
    struct fabric_pace pace; /* of its cable, or towards the switch */
};

struct fabric_cable {
    uint32_t ends[2];
    bool starts_unplugged;
};

struct fabric_host {
    char name[FABRIC_LABEL_MAX + 1];
    uint32_t first_port;
    uint32_t n_ports;
};

#define FABRIC_ALL_HOSTS UINT32_MAX

struct fabric_topology {
    int refs; /* guarded by the state lock */
    bool is_roce;
    bool is_switched;
    bool is_mesh;
    uint32_t n_hosts;
    uint32_t n_wires; /* of a mesh */
    uint32_t n_ports;
    uint32_t n_cables;
    struct fabric_host *hosts;
    struct fabric_port *ports;
    struct fabric_cable *cables;
    struct fabric_rules rules;
    struct fabric_pace pace; /* of cables and ports that say nothing themselves */
    uint32_t self;           /* host of this process or FABRIC_ALL_HOSTS */
    char name[FABRIC_NAME_MAX + 1];
    size_t n_devices;
    struct fabric_device *devices;
    uint64_t seed;
    size_t n_faults;
    struct fabric_fault *faults;
};

/* Reads the environment. NULL with errno and a text on a wrong value. */
struct fabric_topology *fabric_config_read(void);
/* The same of one description only, given as JSON or path: nothing of the environment but the
 * personality. For checking. */
struct fabric_topology *fabric_config_parse(const char *text);

/* Makes the hosts, ports and cables of a mesh or, if it is switched, of hosts with n_wires devices.
 * Returns 0 or ENOMEM. */
int fabric_topology_mesh(struct fabric_topology *topology);
/* Fills in the devices of a topology whose ports are known. Returns 0 or ENOMEM. */
int fabric_topology_build(struct fabric_topology *topology);
void fabric_topology_free(struct fabric_topology *topology);
/* Two processes understand each other only if this agrees. */
uint32_t fabric_topology_hash(const struct fabric_topology *topology);
/* The port of a device by host and index; NULL if there is none. */
const struct fabric_port *fabric_topology_port(const struct fabric_topology *topology,
                                               uint32_t host, uint32_t index);
/* "A.rdma_en2", or "A.en2" for short, to its port; NULL if there is none. */
const struct fabric_port *fabric_topology_find(const struct fabric_topology *topology,
                                               const char *label);

/* The GID that any device of the fabric has now, also of hosts that this process is not; zeros if
 * there is none. */
void fabric_topology_gid(const struct fabric_topology *topology, uint32_t host, uint32_t index,
                         uint32_t gid_index, union ibv_gid *gid_p);
/* The same with its type, FABRIC_GID_…; false, zeros and type 0 if there is none. */
bool fabric_gid_at(const struct fabric_topology *topology, const struct fabric_port *port,
                   uint32_t gid_index, union ibv_gid *gid_p, uint32_t *type_p);
/* Link-local address of a port's MAC, which is also where its GUID comes from. */
void fabric_gid_link_local(const struct fabric_port *port, union ibv_gid *gid_p);

/*
 * Who is at the other end: the device that owns dgid and that `device` reaches from its GID
 * sgid_index. Returns 0, EINVAL (no such source GID, or of another kind) or ETIMEDOUT (nobody
 * reachable has dgid), with a text. On a cable there is one candidate, on a switch all devices.
 */
int fabric_topology_route(const struct fabric_device *device, uint32_t sgid_index,
                          const union ibv_gid *dgid, uint32_t *peer_host_p, uint32_t *peer_index_p);

/*
 * An object of a device is made or gone; state lock held, the device's context open. A limit of the
 * device, which all processes of its host share, makes the first return EBUSY for a queue pair and
 * ENOMEM for anything else, with a text.
 */
int fabric_object_claim(struct fabric_device *device, enum fabric_object object);
void fabric_object_release(struct fabric_device *device, enum fabric_object object);

/*
 * Whether there is any plan at all: one of this process, or faults that were added to the fabric.
 * What is asked for each message and call is asked here first.
 */
struct fabric_fault_gate {
    _Atomic uint32_t has_plan;
    _Atomic(const _Atomic uint32_t *) n_added; /* never NULL */
};
extern struct fabric_fault_gate fabric_fault_gate;

static inline bool fabric_fault_is_possible(void) {
    const _Atomic uint32_t *n_added =
        atomic_load_explicit(&fabric_fault_gate.n_added, memory_order_acquire);

    return (atomic_load_explicit(&fabric_fault_gate.has_plan, memory_order_relaxed) |
            atomic_load_explicit(n_added, memory_order_relaxed)) != 0;
}

const struct fabric_fault *fabric_fault_find(struct fabric_device *device);
int fabric_fault_ask(const char *call_name);
bool fabric_fault_hides_now(const struct fabric_device *device);

/* What happens to the next message that leaves the device: NULL or the fault. */
static inline const struct fabric_fault *fabric_fault_next(struct fabric_device *device) {
    return fabric_fault_is_possible() ? fabric_fault_find(device) : NULL;
}

/*
 * To be asked at the head of an exported call by its name. 0, or the errno that a fault of the plan
 * makes this call fail with (a text is kept); a slow or paused host sleeps in here.
 */
static inline int fabric_fault_call(const char *call_name) {
    return fabric_fault_is_possible() ? fabric_fault_ask(call_name) : 0;
}

/* Whether this poll must not see the completions of one queue pair of the device yet. */
static inline bool fabric_fault_hides(const struct fabric_device *device) {
    return fabric_fault_is_possible() && fabric_fault_hides_now(device);
}

#endif
