/* SPDX-License-Identifier: MIT */
/*
 * What a device's personality demands. One struct, filled once per topology from the personality
 * and the "strict" object of the JSON; the code that enforces a rule asks for it by name here and
 * never for the personality itself.
 */
#ifndef FABRIC_RULES_H
#define FABRIC_RULES_H

#include <stdbool.h>
#include <stdint.h>

/* What becomes of a send for which no receive is posted. */
enum fabric_no_receive {
    FABRIC_NO_RECEIVE_WAIT, /* it waits in the controller */
    FABRIC_NO_RECEIVE_DROP, /* after drop_grace_ns it is lost, and the send completes */
    FABRIC_NO_RECEIVE_DEAD  /* the direction carries nothing ever after */
};

enum fabric_second_open {
    FABRIC_SECOND_OPEN_FINE,
    FABRIC_SECOND_OPEN_BUSY,
    FABRIC_SECOND_OPEN_HANG
};

struct fabric_rules {
    /* What is there at all. */
    bool has_rc, has_ud; /* UC always is */
    bool has_rdma;       /* WRITE and READ (READ on RC only), rkeys */
    bool has_immediate;
    bool has_srq;
    bool has_channels;   /* completion channels */
    uint32_t max_inline; /* bytes, 0 = none */
    uint32_t max_sge;

    /* How messages travel. */
    bool counts_frames;        /* depth in frames; a send and its receive span the same number */
    bool signals_always;       /* every send completes, whatever its flags */
    bool needs_page_alignment; /* of memory regions */
    uint32_t max_message;      /* bytes */
    uint32_t least_depth;      /* granted, whatever was asked */
    uint32_t max_depth;        /* of one queue; asking for more is EINVAL */
    enum fabric_no_receive no_receive;
    uint64_t drop_grace_ns;
    uint64_t idle_death_ns; /* 0 = never: a connection that carries nothing for so long is dead */

    /* Limits of a device; those of "held by others" are taken off already. */
    uint32_t max_qp_said, max_qp_usable;
    uint32_t max_mr, max_pd, max_cq, max_cqe;
    uint32_t held_mr, held_pd, held_cq; /* what was taken off */

    /* Hazards that only the strict variants show. */
    enum fabric_second_open second_open;
    bool local_write_alone_fails; /* reg_mr with local-write alone: EINVAL */
    bool recv_before_rts_fails;   /* post_recv before RTS: EINVAL */

    bool is_roce; /* GID tables hold v1 and v2 entries, link layer names, transport strings */
};

struct fabric_device;

/* The rules of a device, valid as long as the device is. */
const struct fabric_rules *fabric_rules_of(const struct fabric_device *device);

/* What a personality demands if nothing else is said. */
void fabric_rules_thunderbolt(struct fabric_rules *rules_p);
void fabric_rules_roce(struct fabric_rules *rules_p);

#endif
