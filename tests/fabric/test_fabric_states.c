/* SPDX-License-Identifier: MIT */
/* States of queue pairs, paths, and what becomes of work when something goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM (2u << 20)

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

static void expect(struct support_end *end, uint64_t wr_id, enum ibv_wc_status status,
                   enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = support_wait(end);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
    assert_int_equal(wc.opcode, opcode);
    assert_int_equal(wc.qp_num, end->qp->qp_num);
}

static void masks(void **state) {
    static const int needed[][8] = {
        {IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS},
        {IBV_QP_STATE, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN},
        {IBV_QP_STATE, IBV_QP_SQ_PSN},
    };
    static const int full[] = {SUPPORT_MASK_INIT, SUPPORT_MASK_RTR, SUPPORT_MASK_RTS};
    union ibv_gid gid = support_gid(&b);
    struct ibv_qp_attr steps[3] = {support_attr_init(), support_attr_rtr(b.qp->qp_num, &gid),
                                   support_attr_rts()};
    struct ibv_qp *qp = support_qp(&a, IBV_QPT_UC, 32);

    (void)state;
    assert_non_null(qp);
    for (int i = 0; i < 3; i++) {
        for (int j = 1; needed[i][j] != 0; j++) {
            assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i] & ~needed[i][j]), EINVAL);
        }
        assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i] | IBV_QP_RETRY_CNT), EINVAL);
        for (int j = i + 1; j < 3; j++) {
            assert_int_equal(ibv_modify_qp(qp, &steps[j], full[j]), EINVAL);
        }
        assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i]), 0);
        assert_int_equal(qp->state, steps[i].qp_state);
    }
    assert_int_equal(ibv_modify_qp(qp, &steps[1], full[1]), EINVAL);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void paths(void **state) {
    union ibv_gid gid = support_gid(&b), other = support_gid(&a);
    struct ibv_qp_attr init = support_attr_init();
    struct ibv_qp_attr rtr;
    struct ibv_qp *qp = support_qp(&a, IBV_QPT_UC, 32);

    (void)state;
    init.port_num = 2;
    assert_int_equal(ibv_modify_qp(qp, &init, SUPPORT_MASK_INIT), EINVAL);
    init.port_num = 1;
    init.pkey_index = 1;
    assert_int_equal(ibv_modify_qp(qp, &init, SUPPORT_MASK_INIT), EINVAL);
    init.pkey_index = 0;
    assert_int_equal(ibv_modify_qp(qp, &init, SUPPORT_MASK_INIT), 0);
    rtr = support_attr_rtr(b.qp->qp_num, &gid);
    rtr.ah_attr.grh.sgid_index = 2;
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), EINVAL);
    rtr.ah_attr.grh.sgid_index = 0; /* link-local to IPv4 */
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), EINVAL);
    rtr.ah_attr.grh.sgid_index = 1;
    rtr.ah_attr.is_global = 0;
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), EINVAL);
    rtr = support_attr_rtr(b.qp->qp_num, &other); /* loopback */
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), ETIMEDOUT);
    other = gid;
    other.raw[14]++; /* another cable */
    rtr = support_attr_rtr(b.qp->qp_num, &other);
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), ETIMEDOUT);
    assert_int_equal(ibv_query_gid(b.context, 1, 0, &gid), 0);
    rtr = support_attr_rtr(b.qp->qp_num, &gid);
    rtr.ah_attr.grh.sgid_index = 0;
    assert_int_equal(ibv_modify_qp(qp, &rtr, SUPPORT_MASK_RTR), 0);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void posting_in_wrong_states(void **state) {
    struct ibv_qp *connected = a.qp;
    struct ibv_qp_attr attr = support_attr_init();
    union ibv_gid gid = support_gid(&b);

    (void)state;
    a.qp = support_qp(&a, IBV_QPT_UC, 32);
    assert_int_equal(support_recv(&a, 1, 0, 4096), EINVAL);
    assert_int_equal(support_send(&a, 1, 0, 4096), EINVAL);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_INIT), 0);
    assert_int_equal(support_recv(&a, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 1, 0, 4096), EINVAL);
    attr = support_attr_rtr(b.qp->qp_num, &gid);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_RTR), 0);
    assert_int_equal(support_recv(&a, 2, 0, 4096), 0);
    assert_int_equal(support_send(&a, 1, 0, 4096), EINVAL);
    attr.qp_state = IBV_QPS_ERR;
    assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    expect(&a, 1, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    expect(&a, 2, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    assert_int_equal(support_send(&a, 3, 0, 4096), 0);
    expect(&a, 3, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = connected;
}

/* Reset and connected anew, both sides: nothing of the old connection shows up. */
static void reset_and_again(void **state) {
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    union ibv_gid gid_a = support_gid(&a), gid_b = support_gid(&b);

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
        assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
        support_fill(a.bytes, 1, i, 4096);
        assert_int_equal(support_send(&a, 3, 0, 4096), 0);
        expect(&b, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
        assert_true(support_is_filled(b.bytes, 1, i, 4096));
        assert_int_equal(support_send(&b, 4, 4096, 8192), 0); /* never received */
        assert_int_equal(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
        assert_int_equal(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
        assert_true(support_is_silent(&a, 1));
        assert_true(support_is_silent(&b, 1));
        support_connect(&a, b.qp->qp_num, &gid_b);
        support_connect(&b, a.qp->qp_num, &gid_a);
    }
}

static void children_keep_parents(void **state) {
    (void)state;
    assert_int_equal(ibv_destroy_cq(a.cq), EBUSY);
    assert_int_equal(ibv_dealloc_pd(a.pd), EBUSY);
    assert_int_equal(ibv_close_device(a.context), EBUSY);
}

static void second_open(void **state) {
    struct ibv_context *again = ibv_open_device(a.context->device);

    (void)state;
    assert_non_null(again);
    assert_ptr_not_equal(again, a.context);
    assert_int_equal(ibv_close_device(again), 0);
}

static void destroy_with_work(void **state) {
    struct ibv_qp_attr attr;

    (void)state;
    assert_int_equal(support_recv(&a, 1, 0, 4096), 0);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(support_send(&a, i, 0, 65536), 0);
    }
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    /* What had not left before is not delivered after. */
    assert_int_equal(support_recv(&b, 1, 0, 65536), 0);
    assert_true(support_is_silent(&b, 30));
    assert_true(support_is_silent(&a, 1));
    attr.qp_state = IBV_QPS_ERR;
    assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    expect(&b, 1, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
}

/* A completed send is delivered even if its queue pair is gone when the receiver looks. */
static void completed_then_destroyed(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        support_fill(a.bytes + i * 65536, 1, i, 65536);
        assert_int_equal(support_recv(&b, i, i * 65536, 65536), 0);
    }
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(support_send(&a, i, i * 65536, 65536), 0);
        expect(&a, i, IBV_WC_SUCCESS, IBV_WC_SEND);
    }
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = support_qp(&a, IBV_QPT_UC, 32); /* takes whatever was freed */
    for (uint32_t i = 0; i < 5; i++) {
        expect(&b, i, IBV_WC_SUCCESS, IBV_WC_RECV);
        assert_true(support_is_filled(b.bytes + i * 65536, 1, i, 65536));
    }
}

/* Of three sends in the ring one had its receive: the others go with their queue pair. */
static void only_completed_ones_outlive(void **state) {
    (void)state;
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(support_send(&a, i, 0, 4096), 0);
    }
    expect(&a, 0, IBV_WC_SUCCESS, IBV_WC_SEND);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = NULL;
    assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
    expect(&b, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_true(support_is_silent(&b, 20));
}

/* A third queue pair that names b's number while b is connected to a: neither gets anything. */
static void not_connected_back(void **state) {
    struct support_end c = a;
    union ibv_gid gid = support_gid(&b);

    (void)state;
    c.cq = ibv_create_cq(a.context, 16, NULL, NULL, 0);
    assert_non_null(c.cq);
    c.qp = support_qp(&c, IBV_QPT_UC, 32);
    assert_non_null(c.qp);
    support_connect(&c, b.qp->qp_num, &gid);
    assert_int_equal(support_recv(&c, 1, 0, 4096), 0);
    assert_int_equal(support_send(&c, 2, 0, 4096), 0);
    assert_int_equal(support_recv(&b, 3, 0, 4096), 0);
    assert_int_equal(support_send(&b, 4, 0, 4096), 0);
    assert_true(support_is_silent(&c, 20));
    assert_true(support_is_silent(&b, 20));
    assert_int_equal(ibv_destroy_qp(c.qp), 0);
    assert_int_equal(ibv_destroy_cq(c.cq), 0);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(masks),
        RULE(paths),
        RULE(posting_in_wrong_states),
        RULE(reset_and_again),
        RULE(children_keep_parents),
        RULE(second_open),
        RULE(destroy_with_work),
        RULE(completed_then_destroyed),
        RULE(only_completed_ones_outlive),
        RULE(not_connected_back),
    };

    return cmocka_run_group_tests_name("fabric states", tests, NULL, NULL);
}
