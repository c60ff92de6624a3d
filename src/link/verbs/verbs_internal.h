/* SPDX-License-Identifier: MIT */
/* What the two files of this folder share. */
#ifndef LINK_VERBS_INTERNAL_H
#define LINK_VERBS_INTERNAL_H

#include "link/verbs/verbs_link.h"

struct verbs_link {
    struct link base;
    struct link_geometry geometry;
    struct verbs_device *device;
    struct ibv_port_attr port;
    struct verbs_gid gid;
    struct ibv_cq *cq;
    struct verbs_queue queues[LINK_QUEUES];
    uint32_t sending[LINK_QUEUES]; /* posted sends that have not completed */
    struct verbs_range receive;    /* the receive slots of both queues */
    size_t receive_at[LINK_QUEUES];
};

extern const struct link_ops verbs_link_ops;

void verbs_link_close(struct link *base);

static inline struct verbs_link *verbs_link_of(struct link *base) {
    return (struct verbs_link *)base;
}

static inline const struct verbs_link *verbs_link_of_const(const struct link *base) {
    return (const struct verbs_link *)base;
}

#endif
