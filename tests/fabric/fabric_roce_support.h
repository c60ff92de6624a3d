/* SPDX-License-Identifier: MIT */
/* What the tests of the roce personality share: pairs of either type, and requests of every kind.
 */
#ifndef FABRIC_ROCE_SUPPORT_H
#define FABRIC_ROCE_SUPPORT_H

#include "fabric_support.h"

#define ROCE_MESH "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 2}}"

#define ROCE_MASK_RTR (SUPPORT_MASK_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define ROCE_MASK_RTS                                                                              \
    (SUPPORT_MASK_RTS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                     \
     IBV_QP_MAX_QP_RD_ATOMIC)

/* What a reliable connection does when its peer does not answer. */
struct roce_patience {
    uint8_t timeout;
    uint8_t retry_cnt;
    uint8_t rnr_retry;
    uint8_t min_rnr_timer;
    uint8_t n_reads;
};
extern const struct roce_patience
    roce_patient; /* some 30 ms for the dead, for ever for a receive */

/* Opens a device with a completion queue of n_cqe, and a channel if asked for. */
void roce_open(struct support_end *end, const char *device, size_t n_bytes, int n_cqe,
               bool has_channel);
void roce_close(struct support_end *end);
/* 8 SGEs, 128 bytes inline; only what asks for it is signalled. */
struct ibv_qp *roce_qp(struct support_end *end, enum ibv_qp_type type, uint32_t depth);
void roce_connect(struct support_end *end, uint32_t peer_qpn, const union ibv_gid *gid,
                  const struct roce_patience *patience);
/* Both ends of the cable between hosts 0 and 1 in this process. */
void roce_pair(struct support_end *a, struct support_end *b, const char *json,
               enum ibv_qp_type type, const struct roce_patience *patience);
void roce_unpair(struct support_end *a, struct support_end *b);

/* One request of one SGE, signalled. remote_offset counts in the peer's memory. */
struct ibv_send_wr roce_wr(struct ibv_sge *sge, struct support_end *end, enum ibv_wr_opcode opcode,
                           uint64_t wr_id, size_t offset, uint32_t length);
int roce_post(struct support_end *end, struct ibv_send_wr *wr);
int roce_rdma(struct support_end *end, const struct support_end *peer, enum ibv_wr_opcode opcode,
              uint64_t wr_id, size_t offset, uint32_t length, size_t remote_offset);
enum ibv_qp_state roce_state(struct support_end *end);

#endif
