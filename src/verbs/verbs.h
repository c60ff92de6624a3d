/* SPDX-License-Identifier: MIT */
/*
 * RDMA devices of this process: opened once, shared by every group, together with the one slab of
 * memory that is registered with them.
 *
 * Rules of the hardware that shape this file (Thunderbolt is the strictest): a second open of one
 * device in a process can deadlock, so there is one registry; about a hundred regions a device, so
 * everything is carved out of one slab; regions and protection domains leak until reboot, so they
 * stay for the life of the process where the provider is of that kind.
 *
 * Threads: all functions here are set-up and may be called from any thread; one mutex guards the
 * registry. The data path uses the handles without it.
 */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include "base/error.h"
#include "base/log.h"
#include "verbs/library.h"

#include <stdbool.h>

enum {
    VERBS_FRAME_BYTES = 4096, /* Thunderbolt's unit; queue depth there counts these */
    VERBS_PORT = 1,
    VERBS_MAX_EXTENTS = 4 /* of the slab, so ≤ 4 regions a device */
};

struct verbs_provider;

/* Finds or loads a provider; counted. */
jackal_status verbs_provider_acquire(const char *name, struct verbs_provider **provider_p,
                                     struct base_error *error);
void verbs_provider_release(struct verbs_provider *provider);

/* Names of its devices, separated by ", "; truncated to the buffer. Returns how many there are. */
int verbs_provider_devices(struct verbs_provider *provider, char *names, size_t n_bytes);

struct verbs_device {
    struct verbs_provider *provider;
    const struct verbs_library *library;
    char name[64];
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr attributes;
    /*
     * The provider counts queue depth in frames and wants a send and its receive to span the same
     * number of them: Apple's, whose devices are all called rdma_en<n>.
     */
    bool frames_counted;
    struct ibv_mr *regions[VERBS_MAX_EXTENTS]; /* of slab extent k, NULL = not yet registered */
    uint32_t users;
    struct verbs_device *next;
};

/* Opens a device or joins those who have it open. JACKAL_ERR_NO_DEVICE lists what there is. */
jackal_status verbs_device_acquire(struct verbs_provider *provider, const char *name,
                                   struct verbs_device **device_p, struct base_error *error);
void verbs_device_release(struct verbs_device *device);

/* Rights of memory and queue pairs. Local-write alone would do, but Apple's provider refuses it;
 * the keys that the other two need are told to nobody. */
enum { VERBS_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

/* State and MTU of the port; JACKAL_ERR_LINK_DOWN if it is not active. */
jackal_status verbs_device_port(const struct verbs_device *device, struct ibv_port_attr *port_p,
                                struct base_error *error);

/* ---- slab ----------------------------------------------------------------------------------- */

/* A part of the slab: zeroed, aligned to 16 KiB (the largest page of our platforms). */
struct verbs_range {
    uint8_t *bytes;
    size_t n_bytes;
    int extent;
};

/*
 * Makes room for so many bytes in so many ranges, which are then taken one by one. Without it each
 * take alone would decide how the slab grows, and many of them would use up its extents.
 */
jackal_status verbs_slab_reserve(size_t n_bytes, int n_ranges, struct base_error *error);

jackal_status verbs_slab_take(size_t n_bytes, struct verbs_range *range_p,
                              struct base_error *error);
void verbs_slab_give(struct verbs_range *range);

/* Makes sure that the range's extent is registered with the device; its key is then there. */
jackal_status verbs_device_register(struct verbs_device *device, const struct verbs_range *range,
                                    struct base_error *error);

/* ---- addresses ------------------------------------------------------------------------------ */

struct verbs_gid {
    uint8_t bytes[16];
    int index; /* where in the table it was found: the index that must be sent from */
};

/*
 * Picks the source GID: an IPv4-mapped entry, else a global IPv6 one; waits for one to appear until
 * the deadline. JACKAL_ERR_NO_GID prints the table.
 */
jackal_status verbs_gid_choose(const struct verbs_device *device, uint64_t deadline_ns,
                               struct verbs_gid *gid_p, struct base_error *error);

/* Higher is better, 0 = not usable. For tests. */
int verbs_gid_score(const uint8_t *bytes);

/* ---- queue pairs ---------------------------------------------------------------------------- */

/* What is needed from the other end. */
struct verbs_address {
    uint32_t qpn;
    uint32_t psn;
    uint16_t lid;
    uint8_t gid[16];
    uint32_t mtu; /* enum ibv_mtu of the port */
};

struct verbs_queue {
    struct verbs_device *device;
    struct ibv_qp *qp;
    uint32_t psn;
};

/*
 * A UC queue pair in INIT with room for so many requests of so many frames each way.
 * JACKAL_ERR_LIMIT explains which limit of the device is used up; EBUSY is never tried again.
 */
jackal_status verbs_queue_open(struct verbs_device *device, struct ibv_cq *cq, uint32_t n_requests,
                               uint32_t frames_each, struct verbs_queue *queue,
                               struct base_error *error);

/* To RTR and RTS, sending from the GID that was advertised. */
jackal_status verbs_queue_connect(struct verbs_queue *queue, const struct verbs_gid *own,
                                  const struct ibv_port_attr *port,
                                  const struct verbs_address *peer, struct base_error *error);

/* Destroys the queue pair as it is: never through ERR, which wedges Apple's provider. */
void verbs_queue_close(struct verbs_queue *queue);

#endif
