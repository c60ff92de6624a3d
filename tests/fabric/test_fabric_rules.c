/* SPDX-License-Identifier: MIT */
/* The rules of the thunderbolt personality, each broken once. One process sees both ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_limits.h"
#include "fabric_support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOM (5u << 20)

static struct support_end a, b;

static int pair_up(void **state) {
    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, ROOM);
    return 0;
}

static int pair_down(void **state) {
    (void)state;
    support_unpair(&a, &b);
    return 0;
}

static enum ibv_qp_state state_of(struct support_end *end) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    assert_int_equal(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

static void expect(struct support_end *end, uint64_t wr_id, enum ibv_wc_status status,
                   enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = support_wait(end);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.qp_num, end->qp->qp_num);
}

static void device_attributes(void **state) {
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    uint16_t pkey = 0;

    (void)state;
    assert_int_equal(ibv_query_device(a.context, &attr), 0);
    assert_int_equal(attr.max_qp, 11);
    assert_int_equal(attr.max_mr, 100);
    assert_int_equal(attr.max_sge, 1);
    assert_int_equal(attr.phys_port_cnt, 1);
    assert_int_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
    memset(&port, 0xaa, sizeof port);
    assert_int_equal(ibv_query_port(a.context, 1, (struct _compat_ibv_port_attr *)(void *)&port),
                     0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(port.lid, 0);
    assert_int_equal(port.max_msg_sz, 16773120);
    /* What came after the first version of the structure is the caller's. */
    assert_int_equal(port.port_cap_flags2, 0xaaaa);
    assert_int_equal(ibv_query_port(a.context, 2, (struct _compat_ibv_port_attr *)(void *)&port),
                     EINVAL);
    assert_int_equal(ibv_query_pkey(a.context, 1, 0, &pkey), 0);
    assert_int_equal(pkey, 0xffff);
    assert_int_not_equal(ibv_query_pkey(a.context, 1, 1, &pkey), 0);
}

static void eleventh_queue_pair(void **state) {
    struct ibv_qp *more[FABRIC_USABLE_QP];

    (void)state;
    for (int i = 1; i < FABRIC_USABLE_QP; i++) {
        more[i] = support_qp(&a, IBV_QPT_UC, 32);
        assert_non_null(more[i]);
    }
    errno = 0;
    assert_null(support_qp(&a, IBV_QPT_UC, 32));
    assert_int_equal(errno, EBUSY);
    assert_int_equal(ibv_destroy_qp(more[1]), 0);
    more[1] = support_qp(&a, IBV_QPT_UC, 32);
    assert_non_null(more[1]);
    for (int i = 1; i < FABRIC_USABLE_QP; i++) {
        assert_int_equal(ibv_destroy_qp(more[i]), 0);
    }
}

static void other_transports(void **state) {
    struct ibv_qp *uc = a.qp;
    struct ibv_qp_attr attr = support_attr_init();
    union ibv_gid gid = support_gid(&b);

    (void)state;
    assert_null(support_qp(&a, IBV_QPT_UD, 32));
    assert_int_equal(errno, EOPNOTSUPP);
    a.qp = support_qp(&a, IBV_QPT_RC, 32);
    assert_non_null(a.qp);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_INIT), 0);
    attr = support_attr_rtr(b.qp->qp_num, &gid);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_RTR), 102);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = uc;
}

static void memory_regions(void **state) {
    struct ibv_mr *more[FABRIC_MAX_MR];

    (void)state;
    assert_int_equal(a.mr->rkey, 0);
    assert_null(ibv_reg_mr(a.pd, a.bytes + 64, 4096, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_reg_mr(a.pd, a.bytes, 0, IBV_ACCESS_LOCAL_WRITE));
    assert_null(ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_REMOTE_WRITE));
    for (int i = 1; i < FABRIC_MAX_MR; i++) {
        more[i] = ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(more[i]);
    }
    assert_null(ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, ENOMEM);
    for (int i = 1; i < FABRIC_MAX_MR; i++) {
        assert_int_equal(ibv_dereg_mr(more[i]), 0);
    }
}

static void queue_pair_limits(void **state) {
    const struct ibv_qp_cap caps[] = {
        {.max_send_wr = FABRIC_MAX_DEPTH + 1, .max_send_sge = 1, .max_recv_sge = 1},
        {.max_send_sge = 2, .max_recv_sge = 1},
        {.max_send_sge = 1, .max_recv_sge = 2},
        {.max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = a.cq, .recv_cq = a.cq, .cap = caps[i], .qp_type = IBV_QPT_UC};

        assert_null(ibv_create_qp(a.pd, &init));
        assert_int_equal(errno, EINVAL);
    }
}

static void granted_depth(void **state) {
    struct ibv_qp_init_attr init = {.send_cq = a.cq,
                                    .recv_cq = a.cq,
                                    .cap = {.max_send_wr = 32, .max_recv_wr = 2000},
                                    .qp_type = IBV_QPT_UC};
    struct ibv_qp_init_attr read;
    struct ibv_qp_attr attr;
    struct ibv_qp *qp = ibv_create_qp(a.pd, &init);

    (void)state;
    assert_non_null(qp);
    assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &read), 0);
    assert_int_equal(attr.cap.max_send_wr, 1023);
    assert_int_equal(attr.cap.max_recv_wr, 2000);
    assert_int_equal(read.cap.max_send_wr, 1023);
    assert_int_equal(init.cap.max_recv_wr, 2000);
    assert_int_equal(attr.qp_state, IBV_QPS_RESET);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* Depth counts frames: 63 receives of 16 frames and 15 of one frame are 1023. */
static void over_posting(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 63; i++) {
        assert_int_equal(support_recv(&b, i, 0, 65536), 0);
    }
    assert_int_equal(support_recv(&b, 63, 0, 65536), ENOMEM);
    for (uint64_t i = 0; i < 15; i++) {
        assert_int_equal(support_recv(&b, 63 + i, 0, 4096), 0);
    }
    assert_int_equal(support_recv(&b, 99, 0, 1), ENOMEM);
    assert_int_equal(support_send(&a, 1, 0, 65536), 0);
    expect(&b, 0, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_int_equal(support_recv(&b, 64, 0, 65536), 0);
    assert_int_equal(support_recv(&b, 99, 0, 1), ENOMEM);
}

static void over_posting_sends(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 1023; i++) {
        assert_int_equal(support_send(&a, i, 0, 1), 0);
    }
    assert_int_equal(support_send(&a, 1023, 0, 1), ENOMEM);
    assert_int_equal(support_recv(&b, 7, 0, 1), 0);
    expect(&a, 0, IBV_WC_SUCCESS, IBV_WC_SEND);
    assert_int_equal(support_send(&a, 1023, 0, 1), 0);
}

static void list_stops_at_the_bad_one(void **state) {
    struct ibv_sge sge = {.addr = (uintptr_t)a.bytes, .length = 4, .lkey = a.mr->lkey};
    struct ibv_send_wr third = {.wr_id = 3, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr second = {
        .wr_id = 2, .next = &third, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr first = {
        .wr_id = 1, .next = &second, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad = NULL;

    (void)state;
    assert_int_equal(support_recv(&b, 9, 0, 4096), 0);
    assert_int_equal(support_recv(&b, 10, 0, 4096), 0);
    assert_int_equal(ibv_post_send(a.qp, &first, &bad), EINVAL);
    assert_ptr_equal(bad, &second);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
    assert_true(support_is_silent(&a, 20));
}

static void largest_messages(void **state) {
    (void)state;
    assert_int_equal(support_send(&a, 1, 0, 1023 * 4096 + 1), EINVAL);
    assert_int_equal(support_recv(&b, 1, 0, 1023 * 4096 + 1), EINVAL);
    support_fill(a.bytes, 1, 1, 1023 * 4096);
    assert_int_equal(support_send(&a, 1, 0, 1023 * 4096), 0);
    assert_int_equal(support_recv(&b, 2, 0, 1023 * 4096), 0);
    expect(&b, 2, IBV_WC_SUCCESS, IBV_WC_RECV);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
    assert_true(support_is_filled(b.bytes, 1, 1, 1023 * 4096));
}

static void longest_of_all(void **state) {
    struct ibv_qp *shallow = a.qp;

    (void)state;
    a.qp = support_qp(&a, IBV_QPT_UC, FABRIC_MAX_DEPTH);
    assert_non_null(a.qp);
    {
        struct ibv_qp_attr attr = support_attr_init();

        assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_INIT), 0);
    }
    assert_int_equal(support_recv(&a, 1, 0, 16773121), EINVAL);
    assert_int_equal(support_recv(&a, 1, 0, 16773120), 0);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = shallow;
}

static void short_last_frame(void **state) {
    struct ibv_wc wc;

    (void)state;
    support_fill(a.bytes, 1, 2, 5000);
    memset(b.bytes, 0x55, 8192);
    assert_int_equal(support_recv(&b, 1, 0, 8192), 0);
    assert_int_equal(support_send(&a, 2, 0, 5000), 0);
    wc = support_wait(&b);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 5000);
    assert_int_equal(wc.src_qp, a.qp->qp_num);
    assert_true(support_is_filled(b.bytes, 1, 2, 5000));
    assert_int_equal(b.bytes[5000], 0x55);
}

/* Sizes that must not be taken for each other: the receiver fails, the sender never knows. */
static void mismatch(uint32_t sent, uint32_t expected) {
    assert_int_equal(support_recv(&b, 1, 0, expected), 0);
    assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
    assert_int_equal(support_send(&a, 3, 0, sent), 0);
    expect(&b, 1, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV);
    expect(&b, 2, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    assert_int_equal(state_of(&b), IBV_QPS_ERR);
    expect(&a, 3, IBV_WC_SUCCESS, IBV_WC_SEND);
    assert_int_equal(state_of(&a), IBV_QPS_RTS);
}

static void fewer_frames_than_expected(void **state) {
    (void)state;
    mismatch(4096, 8192);
}

static void more_frames_than_expected(void **state) {
    (void)state;
    mismatch(4097, 4096);
}

static void same_frames_but_shorter(void **state) {
    (void)state;
    mismatch(100, 99);
}

static void empty_message(void **state) {
    struct ibv_send_wr wr = {.wr_id = 5, .num_sge = 0, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    struct ibv_wc wc;

    (void)state;
    assert_int_equal(support_recv(&b, 4, 0, 4096), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    wc = support_wait(&b);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 0);
    expect(&a, 5, IBV_WC_SUCCESS, IBV_WC_SEND);
}

static void sends_that_are_refused(void **state) {
    struct ibv_sge sges[2] = {{.addr = (uintptr_t)a.bytes, .length = 4, .lkey = a.mr->lkey},
                              {.addr = (uintptr_t)a.bytes, .length = 4, .lkey = a.mr->lkey}};
    struct ibv_send_wr wr = {.sg_list = sges, .num_sge = 2, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;

    (void)state;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    wr.send_flags = 0;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), EINVAL);
    assert_true(support_is_silent(&a, 5));
}

/* The flag for a completion is ignored: support_send never sets it. */
static void unsignalled_sends_complete(void **state) {
    (void)state;
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 6, 0, 4096), 0);
    expect(&a, 6, IBV_WC_SUCCESS, IBV_WC_SEND);
}

static void send_with(uint32_t lkey, uint64_t address, uint32_t length) {
    struct ibv_sge sge = {.addr = address, .length = length, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;

    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
}

static void protection(uint32_t lkey, uint64_t address, uint32_t length) {
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 7, 0, 4096), 0);
    send_with(lkey, address, length);
    expect(&a, 7, IBV_WC_SUCCESS, IBV_WC_SEND);
    expect(&a, 8, IBV_WC_LOC_PROT_ERR, IBV_WC_SEND);
    assert_int_equal(state_of(&a), IBV_QPS_ERR);
}

static void unknown_key(void **state) {
    (void)state;
    protection(a.mr->lkey + 1, (uintptr_t)a.bytes, 4);
}

static void key_of_another_device(void **state) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);

    (void)state;
    assert_non_null(mr);
    protection(mr->lkey, (uintptr_t)b.bytes, 4);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void key_of_another_domain(void **state) {
    struct ibv_pd *pd = ibv_alloc_pd(a.context);
    struct ibv_mr *mr = ibv_reg_mr(pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);

    (void)state;
    assert_non_null(mr);
    protection(mr->lkey, (uintptr_t)a.bytes, 4);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void behind_the_end(void **state) {
    (void)state;
    protection(a.mr->lkey, (uintptr_t)a.bytes + ROOM - 4, 5);
}

static void before_the_start(void **state) {
    (void)state;
    protection(a.mr->lkey, (uintptr_t)a.bytes - 1, 4);
}

static void deregistered(void **state) {
    struct ibv_mr *mr = ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
    uint32_t lkey;

    (void)state;
    assert_non_null(mr);
    lkey = mr->lkey;
    assert_int_equal(ibv_dereg_mr(mr), 0);
    mr = ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(mr);
    protection(lkey, (uintptr_t)a.bytes, 4);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void receive_without_the_right_to_write(void **state) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.bytes, 4096, 0);
    struct ibv_sge sge = {.addr = (uintptr_t)b.bytes, .length = 4096, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    (void)state;
    assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
    assert_int_equal(support_send(&a, 1, 0, 4096), 0);
    expect(&b, 3, IBV_WC_LOC_PROT_ERR, IBV_WC_RECV);
    assert_int_equal(state_of(&b), IBV_QPS_ERR);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void send_waits_for_receive(void **state) {
    (void)state;
    support_fill(a.bytes, 1, 3, 4096);
    assert_int_equal(support_send(&a, 1, 0, 4096), 0);
    assert_true(support_is_silent(&a, 30));
    assert_true(support_is_silent(&b, 30));
    assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
    expect(&b, 2, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_true(support_is_filled(b.bytes, 1, 3, 4096));
}

static void no_channels(void **state) {
    (void)state;
    assert_null(ibv_create_comp_channel(a.context));
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(ibv_req_notify_cq(a.cq, 0), EINVAL);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(device_attributes),
        RULE(eleventh_queue_pair),
        RULE(other_transports),
        RULE(memory_regions),
        RULE(queue_pair_limits),
        RULE(granted_depth),
        RULE(over_posting),
        RULE(over_posting_sends),
        RULE(list_stops_at_the_bad_one),
        RULE(largest_messages),
        RULE(longest_of_all),
        RULE(short_last_frame),
        RULE(fewer_frames_than_expected),
        RULE(more_frames_than_expected),
        RULE(same_frames_but_shorter),
        RULE(empty_message),
        RULE(sends_that_are_refused),
        RULE(unsignalled_sends_complete),
        RULE(unknown_key),
        RULE(key_of_another_device),
        RULE(key_of_another_domain),
        RULE(behind_the_end),
        RULE(before_the_start),
        RULE(deregistered),
        RULE(receive_without_the_right_to_write),
        RULE(send_waits_for_receive),
        RULE(no_channels),
    };

    return cmocka_run_group_tests_name("fabric rules", tests, NULL, NULL);
}
