/* SPDX-License-Identifier: MIT */
/* The two personalities; where their numbers come from is told in docs/fabric.md. */
#include "fabric_rules.h"
#include "fabric_topology.h"

const struct fabric_rules *fabric_rules_of(const struct fabric_device *device) {
    return device->rules;
}

void fabric_rules_thunderbolt(struct fabric_rules *rules_p) {
    *rules_p = (struct fabric_rules){
        .max_sge = 1,
        .counts_frames = true,
        .signals_always = true,
        .needs_page_alignment = true,
        .max_message = FABRIC_MAX_MESSAGE,
        .least_depth = FABRIC_MIN_DEPTH,
        .max_depth = FABRIC_MAX_DEPTH,
        .no_receive = FABRIC_NO_RECEIVE_WAIT,
        .max_qp_said = FABRIC_REPORTED_QP,
        .max_qp_usable = FABRIC_USABLE_QP,
        .max_mr = FABRIC_MAX_MR,
        .max_pd = FABRIC_MAX_PD,
        .max_cq = FABRIC_MAX_CQ,
        .max_cqe = FABRIC_MAX_CQE,
    };
}

void fabric_rules_roce(struct fabric_rules *rules_p) {
    *rules_p = (struct fabric_rules){
        .has_rc = true,
        .has_rdma = true,
        .has_immediate = true,
        .has_channels = true,
        .max_inline = 256,
        .max_sge = 30,
        .max_message = 1u << 30,
        .least_depth = 1,
        .max_depth = 32768,
        .no_receive = FABRIC_NO_RECEIVE_DROP,
        .drop_grace_ns = 1000000000u,
        .max_qp_said = 4096,
        .max_qp_usable = 4096,
        .max_mr = 4096,
        .max_pd = 1024,
        .max_cq = 4096,
        .max_cqe = 4194303,
        .is_roce = true,
    };
}
