/* SPDX-License-Identifier: MIT */
/* Opening and connecting; the data path is in verbs_link.c. */
#include "link/verbs/verbs_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t frames(uint32_t n_bytes) {
    return (n_bytes + VERBS_FRAME_BYTES - 1) / VERBS_FRAME_BYTES;
}

/*
 * One completion queue for both directions of both queue pairs. Four times what can be outstanding:
 * a provider may count its own way, and an overflow is fatal and silent.
 */
static jackal_status open_cq(struct verbs_link *link, struct base_error *error) {
    uint32_t outstanding = 0;
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        outstanding += 2 * link->geometry.slots[queue];
    int n_entries = (int)(4 * outstanding);
    if (n_entries > link->device->attributes.max_cqe)
        n_entries = link->device->attributes.max_cqe;
    if (n_entries < (int)outstanding)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "RDMA device %s allows completion queues of %d entries, %u are needed",
                         link->device->name, n_entries, outstanding);
    errno = 0;
    link->cq = link->device->library->create_cq(link->device->context, n_entries, NULL, NULL, 0);
    if (link->cq == NULL)
        return base_fail_errno(error, JACKAL_ERR_LIMIT, errno,
                               "RDMA device %s gives no completion queue of %d entries",
                               link->device->name, n_entries);
    return JACKAL_OK;
}

static jackal_status open_receive_slots(struct verbs_link *link, struct base_error *error) {
    size_t n_bytes = 0;
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        link->receive_at[queue] = n_bytes;
        n_bytes += (size_t)link->geometry.slots[queue] * link->geometry.slot_bytes[queue];
    }
    jackal_status status = verbs_slab_take(n_bytes, &link->receive, error);
    if (status != JACKAL_OK)
        return status;
    return verbs_device_register(link->device, &link->receive, error);
}

static jackal_status open_all(struct verbs_link *link, uint64_t deadline_ns,
                              struct base_error *error) {
    jackal_status status = verbs_device_port(link->device, &link->port, error);
    if (status == JACKAL_OK)
        status = verbs_gid_choose(link->device, deadline_ns, &link->gid, error);
    if (status == JACKAL_OK)
        status = open_cq(link, error);
    if (status == JACKAL_OK)
        status = open_receive_slots(link, error);
    for (int queue = 0; queue < LINK_QUEUES && status == JACKAL_OK; queue++)
        status =
            verbs_queue_open(link->device, link->cq, link->geometry.slots[queue],
                             frames(link->geometry.slot_bytes[queue]), &link->queues[queue], error);
    return status;
}

static uint32_t mtu_bytes(enum ibv_mtu mtu) {
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 1024;
}

static enum ibv_mtu mtu_code(uint32_t n_bytes) {
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && mtu_bytes((enum ibv_mtu)(mtu + 1)) <= n_bytes)
        mtu = (enum ibv_mtu)(mtu + 1);
    return mtu;
}

static void describe(const struct verbs_link *link, struct wire_endpoint *own) {
    memset(own, 0, sizeof *own);
    snprintf(own->device, sizeof own->device, "%s", link->device->name);
    own->small.qpn = link->queues[LINK_SMALL].qp->qp_num;
    own->small.psn = link->queues[LINK_SMALL].psn;
    own->bulk.qpn = link->queues[LINK_BULK].qp->qp_num;
    own->bulk.psn = link->queues[LINK_BULK].psn;
    own->lid = link->port.lid;
    memcpy(own->gid, link->gid.bytes, sizeof own->gid);
    own->mtu_bytes = mtu_bytes(link->port.active_mtu);
    own->frames_counted = link->device->frames_counted;
    own->small_slot_bytes = link->geometry.slot_bytes[LINK_SMALL];
    own->bulk_slot_bytes = link->geometry.slot_bytes[LINK_BULK];
    own->small_slots = link->geometry.slots[LINK_SMALL];
    own->bulk_slots = link->geometry.slots[LINK_BULK];
}

jackal_status verbs_link_open(struct verbs_provider *provider, const char *device, int peer,
                              int wire, const struct link_geometry *geometry, uint64_t deadline_ns,
                              struct link **link_p, struct wire_endpoint *own_p,
                              struct base_error *error) {
    struct verbs_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for a link");
    link->base.ops = &verbs_link_ops;
    link->base.peer = peer;
    link->base.wire = wire;
    link->geometry = *geometry;
    snprintf(link->base.device, sizeof link->base.device, "%s", device);
    jackal_status status = verbs_device_acquire(provider, device, &link->device, error);
    if (status == JACKAL_OK)
        status = open_all(link, deadline_ns, error);
    if (status != JACKAL_OK) {
        link_close(&link->base);
        return status;
    }
    describe(link, own_p);
    *link_p = &link->base;
    return JACKAL_OK;
}

/* Both ends must post the same slots: a receive of other frames would fail much later. */
static jackal_status compare(const struct verbs_link *link, const struct wire_endpoint *peer,
                             struct base_error *error) {
    const struct link_geometry *own = &link->geometry;
    if (peer->small_slot_bytes == own->slot_bytes[LINK_SMALL] &&
        peer->bulk_slot_bytes == own->slot_bytes[LINK_BULK] &&
        peer->small_slots == own->slots[LINK_SMALL] && peer->bulk_slots == own->slots[LINK_BULK])
        return JACKAL_OK;
    return base_fail_peer(error, JACKAL_ERR_PROTOCOL, link->base.peer,
                          "rank %d posts %u and %u slots of %u and %u bytes, this rank %u and %u "
                          "of %u and %u: run the same version on both",
                          link->base.peer, peer->small_slots, peer->bulk_slots,
                          peer->small_slot_bytes, peer->bulk_slot_bytes, own->slots[LINK_SMALL],
                          own->slots[LINK_BULK], own->slot_bytes[LINK_SMALL],
                          own->slot_bytes[LINK_BULK]);
}

static void add_context(const struct link *link, const struct wire_endpoint *peer,
                        struct base_error *error) {
    base_fail_peer(error, error->status, link->peer, "wire %d to rank %d (%s there): %s",
                   link->wire, link->peer, peer->device, error->text);
}

jackal_status verbs_link_connect(struct link *base, const struct wire_endpoint *peer,
                                 struct base_error *error) {
    struct verbs_link *link = verbs_link_of(base);
    jackal_status status = compare(link, peer, error);
    if (status != JACKAL_OK)
        return status;
    for (int queue = 0; queue < LINK_QUEUES && status == JACKAL_OK; queue++) {
        const struct wire_queue_end *end = queue == LINK_SMALL ? &peer->small : &peer->bulk;
        struct verbs_address address = {.qpn = end->qpn, .psn = end->psn, .lid = peer->lid};
        address.mtu = mtu_code(peer->mtu_bytes);
        memcpy(address.gid, peer->gid, sizeof address.gid);
        status =
            verbs_queue_connect(&link->queues[queue], &link->gid, &link->port, &address, error);
    }
    for (int queue = 0; queue < LINK_QUEUES && status == JACKAL_OK; queue++)
        for (uint32_t id = 0; id < link->geometry.slots[queue] && status == JACKAL_OK; id++)
            status = base->ops->repost(base, (enum link_queue)queue, id, error);
    if (status != JACKAL_OK)
        add_context(base, peer, error);
    return status;
}

jackal_status verbs_link_register(struct link *link, const struct verbs_range *range,
                                  struct base_error *error) {
    return verbs_device_register(verbs_link_of(link)->device, range, error);
}

void verbs_link_close(struct link *base) {
    struct verbs_link *link = verbs_link_of(base);
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        verbs_queue_close(&link->queues[queue]);
    if (link->cq != NULL)
        link->device->library->destroy_cq(link->cq);
    verbs_slab_give(&link->receive);
    verbs_device_release(link->device);
    free(link);
}
