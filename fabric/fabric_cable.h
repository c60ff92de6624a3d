/* SPDX-License-Identifier: MIT */
/*
 * The physical side of a device: its cable's state, pace and counters. They live in one file of the
 * fabric's folder that all processes map (fabric_world.h), so `jackal fabric` can look at them and
 * change states while a job runs. All calls want the device to be open.
 */
#ifndef FABRIC_CABLE_H
#define FABRIC_CABLE_H

#include "fabric_topology.h"

/* Whether the cable of this device is plugged and both ports are up. Cheap: one relaxed load. */
bool fabric_cable_is_up(const struct fabric_device *device);

/* Grows whenever the state of any cable or port changes; a poll that saw no change is done. */
uint32_t fabric_cable_epoch(const struct fabric_device *device);

/*
 * Reserves the cable for one message of n_bytes in n_frames and returns when it has arrived at the
 * other end (fabric_now_ns() of any process of the machine); 0 = no pacing on this cable. Called by
 * the sender in the order in which messages leave.
 */
uint64_t fabric_cable_reserve(struct fabric_device *device, uint32_t n_bytes, uint32_t n_frames);

/*
 * The same where one device reaches several others (a switch): towards the device peer_index of
 * host peer_host. The two above are these, towards the other end of the cable.
 */
bool fabric_cable_is_up_to(const struct fabric_device *device, uint32_t peer_host,
                           uint32_t peer_index);
uint64_t fabric_cable_reserve_to(struct fabric_device *device, uint32_t peer_host,
                                 uint32_t peer_index, uint32_t n_bytes, uint32_t n_frames);

/* Counts what left and what arrived on this end. */
void fabric_cable_count_sent(struct fabric_device *device, uint32_t n_bytes, uint32_t n_frames);
void fabric_cable_count_received(struct fabric_device *device, uint32_t n_bytes, uint32_t n_frames);

#endif
