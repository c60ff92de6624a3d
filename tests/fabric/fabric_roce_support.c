/* SPDX-License-Identifier: MIT */
#include "fabric_roce_support.h"

#include <stdlib.h>
#include <string.h>

const struct roce_patience roce_patient = {
    .timeout = 10, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1, .n_reads = 4};

void roce_open(struct support_end *end, const char *device, size_t n_bytes, int n_cqe,
               bool has_channel) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_comp_channel *channel = NULL;
    struct ibv_device *found;
    void *bytes;

    memset(end, 0, sizeof *end);
    end->list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(end->list != NULL);
    found = support_device(end->list, device);
    SUPPORT_CHECK(found != NULL);
    end->context = ibv_open_device(found);
    SUPPORT_CHECK(end->context != NULL);
    end->pd = ibv_alloc_pd(end->context);
    SUPPORT_CHECK(end->pd != NULL);
    if (has_channel) {
        channel = ibv_create_comp_channel(end->context);
        SUPPORT_CHECK(channel != NULL);
    }
    end->cq = ibv_create_cq(end->context, n_cqe, end, channel, 0);
    SUPPORT_CHECK(end->cq != NULL);
    SUPPORT_CHECK(posix_memalign(&bytes, 65536, n_bytes) == 0);
    memset(bytes, 0, n_bytes);
    end->bytes = bytes;
    end->n_bytes = n_bytes;
    end->mr = ibv_reg_mr(end->pd, bytes, n_bytes, access);
    SUPPORT_CHECK(end->mr != NULL);
}

void roce_close(struct support_end *end) {
    struct ibv_comp_channel *channel = end->cq->channel;

    if (end->qp != NULL) {
        SUPPORT_CHECK(ibv_destroy_qp(end->qp) == 0);
    }
    SUPPORT_CHECK(ibv_dereg_mr(end->mr) == 0);
    SUPPORT_CHECK(ibv_destroy_cq(end->cq) == 0);
    if (channel != NULL) {
        SUPPORT_CHECK(ibv_destroy_comp_channel(channel) == 0);
    }
    SUPPORT_CHECK(ibv_dealloc_pd(end->pd) == 0);
    SUPPORT_CHECK(ibv_close_device(end->context) == 0);
    ibv_free_device_list(end->list);
    free(end->bytes);
}

struct ibv_qp *roce_qp(struct support_end *end, enum ibv_qp_type type, uint32_t depth) {
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = depth,
                .max_recv_wr = depth,
                .max_send_sge = 8,
                .max_recv_sge = 8,
                .max_inline_data = 128},
        .qp_type = type,
    };

    return ibv_create_qp(end->pd, &init);
}

void roce_connect(struct support_end *end, uint32_t peer_qpn, const union ibv_gid *gid,
                  const struct roce_patience *patience) {
    bool is_reliable = end->qp->qp_type == IBV_QPT_RC;
    struct ibv_qp_attr init = support_attr_init();
    struct ibv_qp_attr rtr = support_attr_rtr(peer_qpn, gid);
    struct ibv_qp_attr rts = support_attr_rts();

    rtr.max_dest_rd_atomic = patience->n_reads;
    rtr.min_rnr_timer = patience->min_rnr_timer;
    rts.timeout = patience->timeout;
    rts.retry_cnt = patience->retry_cnt;
    rts.rnr_retry = patience->rnr_retry;
    rts.max_rd_atomic = patience->n_reads;
    SUPPORT_CHECK(ibv_modify_qp(end->qp, &init, SUPPORT_MASK_INIT) == 0);
    SUPPORT_CHECK(ibv_modify_qp(end->qp, &rtr, is_reliable ? ROCE_MASK_RTR : SUPPORT_MASK_RTR) ==
                  0);
    SUPPORT_CHECK(ibv_modify_qp(end->qp, &rts, is_reliable ? ROCE_MASK_RTS : SUPPORT_MASK_RTS) ==
                  0);
}

void roce_pair(struct support_end *a, struct support_end *b, const char *json,
               enum ibv_qp_type type, const struct roce_patience *patience) {
    union ibv_gid gid_a, gid_b;

    support_settings("*", json);
    roce_open(a, "h0.rocep1", 4u << 20, 1024, true);
    roce_open(b, "h1.rocep1", 4u << 20, 1024, true);
    a->qp = roce_qp(a, type, 128);
    b->qp = roce_qp(b, type, 128);
    SUPPORT_CHECK(a->qp != NULL && b->qp != NULL);
    gid_a = support_gid(a);
    gid_b = support_gid(b);
    roce_connect(a, b->qp->qp_num, &gid_b, patience);
    roce_connect(b, a->qp->qp_num, &gid_a, patience);
}

void roce_unpair(struct support_end *a, struct support_end *b) {
    roce_close(a);
    roce_close(b);
}

struct ibv_send_wr roce_wr(struct ibv_sge *sge, struct support_end *end, enum ibv_wr_opcode opcode,
                           uint64_t wr_id, size_t offset, uint32_t length) {
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED};

    *sge = (struct ibv_sge){
        .addr = (uintptr_t)end->bytes + offset, .length = length, .lkey = end->mr->lkey};
    return wr;
}

int roce_post(struct support_end *end, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad = NULL;
    int rc = ibv_post_send(end->qp, wr, &bad);

    SUPPORT_CHECK((rc == 0) == (bad == NULL));
    return rc;
}

int roce_rdma(struct support_end *end, const struct support_end *peer, enum ibv_wr_opcode opcode,
              uint64_t wr_id, size_t offset, uint32_t length, size_t remote_offset) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, end, opcode, wr_id, offset, length);

    wr.imm_data = (uint32_t)wr_id * 3 + 1;
    wr.wr.rdma.remote_addr = (uintptr_t)peer->bytes + remote_offset;
    wr.wr.rdma.rkey = peer->mr->rkey;
    return roce_post(end, &wr);
}

enum ibv_qp_state roce_state(struct support_end *end) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    SUPPORT_CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}
