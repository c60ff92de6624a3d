/* SPDX-License-Identifier: MIT */
/* RC under the roce personality: what a send carries, when it completes, and how it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct support_end a, b;

static int pair_up(void **state) {
    (void)state;
    roce_pair(&a, &b, ROCE_MESH, IBV_QPT_RC, &roce_patient);
    return 0;
}

static int pair_down(void **state) {
    (void)state;
    roce_unpair(&a, &b);
    return 0;
}

static void expect(struct support_end *end, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = support_wait(end);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
    assert_int_equal(wc.qp_num, end->qp->qp_num);
}

static int64_t now_us(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int send_signalled(uint64_t wr_id, size_t offset, uint32_t length) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, wr_id, offset, length);

    return roce_post(&a, &wr);
}

/* ------------------------------------------------------------------- carrying */

static void masks(void **state) {
    static const int needed[3][8] = {
        {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS},
        {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC,
         IBV_QP_MIN_RNR_TIMER},
        {IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
         IBV_QP_MAX_QP_RD_ATOMIC},
    };
    static const int full[] = {SUPPORT_MASK_INIT, ROCE_MASK_RTR, ROCE_MASK_RTS};
    union ibv_gid gid = support_gid(&b);
    struct ibv_qp_attr steps[3] = {support_attr_init(), support_attr_rtr(b.qp->qp_num, &gid),
                                   support_attr_rts()};
    struct ibv_qp *qp = roce_qp(&a, IBV_QPT_RC, 32);

    (void)state;
    assert_non_null(qp);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; needed[i][j] != 0; j++) {
            assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i] & ~needed[i][j]), EINVAL);
        }
        assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i] | IBV_QP_QKEY), EINVAL);
        assert_int_equal(ibv_modify_qp(qp, &steps[i], full[i]), 0);
    }
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void attributes_are_kept(void **state) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    (void)state;
    assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init), 0);
    assert_int_equal(attr.timeout, roce_patient.timeout);
    assert_int_equal(attr.retry_cnt, 7);
    assert_int_equal(attr.rnr_retry, 7);
    assert_int_equal(attr.min_rnr_timer, 1);
    assert_int_equal(attr.max_rd_atomic, 4);
    assert_int_equal(attr.max_dest_rd_atomic, 4);
    assert_int_equal(attr.cap.max_send_wr, 128);
    assert_int_equal(attr.cap.max_recv_sge, 8);
    assert_int_equal(attr.cap.max_inline_data, 128);
    assert_int_equal(init.qp_type, IBV_QPT_RC);
}

static void immediate_and_solicited(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND_WITH_IMM, 7, 0, 100);
    struct ibv_wc wc;

    (void)state;
    wr.imm_data = 0x01020304;
    support_fill(a.bytes, 1, 0, 100);
    assert_int_equal(support_recv(&b, 5, 4096, 200), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    wc = support_wait(&b);
    assert_int_equal(wc.wr_id, 5);
    assert_int_equal(wc.opcode, IBV_WC_RECV);
    assert_int_equal(wc.byte_len, 100);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 0x01020304);
    assert_true(support_is_filled(b.bytes + 4096, 1, 0, 100));
    expect(&a, 7, IBV_WC_SUCCESS);
}

/* Of ten sends the fourth and the last are signalled; the slots of those before are free then. */
static void unsignalled(void **state) {
    struct ibv_qp *first = a.qp;

    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, i, 0, 64);

        wr.send_flags = i == 3 || i == 9 ? IBV_SEND_SIGNALED : 0;
        assert_int_equal(support_recv(&b, i, 0, 64), 0);
        assert_int_equal(roce_post(&a, &wr), 0);
    }
    for (uint64_t i = 0; i < 10; i++) {
        expect(&b, i, IBV_WC_SUCCESS);
    }
    expect(&a, 3, IBV_WC_SUCCESS);
    expect(&a, 9, IBV_WC_SUCCESS);
    assert_true(support_is_silent(&a, 2));
    assert_ptr_equal(a.qp, first);
}

/* A queue full of unsignalled sends stays full, though they are done. */
static void unsignalled_fill_the_queue(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, 1, 0, 8);

    (void)state;
    wr.send_flags = 0;
    for (uint64_t i = 0; i < 128; i++) {
        assert_int_equal(support_recv(&b, i, 0, 8), 0);
        assert_int_equal(roce_post(&a, &wr), 0);
    }
    for (uint64_t i = 0; i < 128; i++) {
        expect(&b, i, IBV_WC_SUCCESS);
    }
    assert_true(support_is_silent(&a, 2));
    assert_int_equal(roce_post(&a, &wr), ENOMEM);
}

static void gather_and_scatter(void **state) {
    struct ibv_sge out[8], in[3];
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = out, .num_sge = 8, .opcode = IBV_WR_SEND};
    struct ibv_recv_wr rr = {.wr_id = 2, .sg_list = in, .num_sge = 3};
    struct ibv_recv_wr *bad;
    size_t n = 0;

    (void)state;
    support_fill(a.bytes, 1, 3, 1u << 20);
    for (uint32_t i = 0; i < 8; i++) { /* pieces in memory order with holes in between */
        uint32_t length = i == 2 ? 0 : 1000 * i * i + 13;

        out[i] = (struct ibv_sge){(uintptr_t)a.bytes + n, length, a.mr->lkey};
        n += length;
    }
    in[0] = (struct ibv_sge){(uintptr_t)b.bytes + 1, 17, b.mr->lkey};
    in[1] = (struct ibv_sge){(uintptr_t)b.bytes + 100, 70000, b.mr->lkey};
    in[2] = (struct ibv_sge){(uintptr_t)b.bytes + 300000, 200000, b.mr->lkey};
    wr.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(ibv_post_recv(b.qp, &rr, &bad), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    assert_int_equal(support_wait(&b).byte_len, n);
    expect(&a, 1, IBV_WC_SUCCESS);
    assert_memory_equal(b.bytes + 1, a.bytes, 17);
    assert_memory_equal(b.bytes + 100, a.bytes + 17, 70000);
    assert_memory_equal(b.bytes + 300000, a.bytes + 70017, n - 70017);
    assert_int_equal(b.bytes[300000 + n - 70017], 0);
    wr.num_sge = 9;
    assert_int_equal(roce_post(&a, &wr), EINVAL);
}

static void inline_is_free_at_once(void **state) {
    uint8_t text[100], want[100];
    struct ibv_sge sge = {.addr = (uintptr_t)text, .length = sizeof text, .lkey = 0};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};

    (void)state;
    support_fill(text, 4, 4, sizeof text);
    memcpy(want, text, sizeof text);
    assert_int_equal(roce_post(&a, &wr), 0); /* before its receive: it waits */
    memset(text, 0, sizeof text);
    assert_int_equal(support_recv(&b, 2, 0, 100), 0);
    expect(&b, 2, IBV_WC_SUCCESS);
    assert_memory_equal(b.bytes, want, sizeof want);
    expect(&a, 1, IBV_WC_SUCCESS);
    sge.length = 129;
    assert_int_equal(roce_post(&a, &wr), EINVAL);
}

/* ----------------------------------------------------------------- completing */

static void completes_when_taken(void **state) {
    (void)state;
    assert_int_equal(send_signalled(1, 0, 3000), 0);
    assert_true(support_is_silent(&a, 20));
    assert_int_equal(support_recv(&b, 2, 0, 3000), 0);
    expect(&b, 2, IBV_WC_SUCCESS);
    expect(&a, 1, IBV_WC_SUCCESS);
}

/* The receiver has posted and never calls anything again. */
static void acknowledged_without_the_receiver(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(support_recv(&b, i, i * 262144, 262144), 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(send_signalled(i, i * 262144, 262144), 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        expect(&a, i, IBV_WC_SUCCESS);
    }
}

/* A receiver that goes as soon as it has everything leaves no sender without acknowledgement. */
static void receiver_goes_first(void **state) {
    (void)state;
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(send_signalled(2, 0, 64), 0);
    expect(&b, 1, IBV_WC_SUCCESS);
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    expect(&a, 2, IBV_WC_SUCCESS);
}

/* On a switch a port reaches itself: two queue pairs of one device. */
static void loopback(void **state) {
    struct ibv_qp *kept = b.qp, *other = a.qp;
    union ibv_gid gid = support_gid(&a);
    struct ibv_qp *qps[2] = {roce_qp(&a, IBV_QPT_RC, 16), roce_qp(&a, IBV_QPT_RC, 16)};

    (void)state;
    assert_non_null(qps[0]);
    assert_non_null(qps[1]);
    for (int i = 0; i < 2; i++) {
        a.qp = qps[i];
        roce_connect(&a, qps[1 - i]->qp_num, &gid, &roce_patient);
    }
    support_fill(a.bytes, 3, 3, 5000);
    assert_int_equal(support_recv(&a, 1, 65536, 8192), 0);
    a.qp = qps[0];
    assert_int_equal(support_send(&a, 2, 0, 5000), 0);
    a.qp = qps[1];
    expect(&a, 1, IBV_WC_SUCCESS);
    assert_true(support_is_filled(a.bytes + 65536, 3, 3, 5000));
    assert_int_equal(ibv_destroy_qp(qps[0]), 0);
    assert_int_equal(ibv_destroy_qp(qps[1]), 0);
    a.qp = other;
    b.qp = kept;
}

static void held_and_drained(void **state) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};

    (void)state;
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(send_signalled(2, 0, 64), 0);
    assert_true(support_is_silent(&b, 10));
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
    expect(&b, 1, IBV_WC_SUCCESS);
    expect(&a, 2, IBV_WC_SUCCESS);
}

/* -------------------------------------------------------------------- failing */

static void connect_again(const struct roce_patience *patience) {
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    union ibv_gid gid_a = support_gid(&a), gid_b = support_gid(&b);

    assert_int_equal(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
    assert_int_equal(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
    roce_connect(&a, b.qp->qp_num, &gid_b, patience);
    roce_connect(&b, a.qp->qp_num, &gid_a, patience);
}

/* No receive: 5 pauses of 10.24 ms, then the error, and the rest is flushed in its order. */
static void receiver_not_ready(void **state) {
    const struct roce_patience hasty = {
        .timeout = 14, .retry_cnt = 7, .rnr_retry = 5, .min_rnr_timer = 20, .n_reads = 1};
    int64_t start;

    (void)state;
    connect_again(&hasty);
    start = now_us();
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(send_signalled(i, 0, 64), 0);
    }
    expect(&a, 0, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_true(now_us() - start >= 51200);
    expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
    expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(roce_state(&a), IBV_QPS_ERR);
    assert_int_equal(roce_state(&b), IBV_QPS_RTS);
}

/* A receive that comes before the pauses are over is taken. */
static void receiver_ready_late(void **state) {
    const struct roce_patience calm = {
        .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .min_rnr_timer = 0, .n_reads = 1};

    (void)state;
    connect_again(&calm);
    assert_int_equal(send_signalled(1, 0, 64), 0);
    assert_true(support_is_silent(&a, 30));
    assert_int_equal(support_recv(&b, 2, 0, 64), 0);
    expect(&a, 1, IBV_WC_SUCCESS);
}

static void too_long(void **state) {
    (void)state;
    assert_int_equal(support_recv(&b, 1, 0, 99), 0);
    assert_int_equal(support_recv(&b, 2, 0, 99), 0);
    assert_int_equal(send_signalled(3, 0, 100), 0);
    expect(&b, 1, IBV_WC_LOC_LEN_ERR);
    expect(&b, 2, IBV_WC_WR_FLUSH_ERR);
    expect(&a, 3, IBV_WC_REM_INV_REQ_ERR);
    assert_int_equal(roce_state(&a), IBV_QPS_ERR);
    assert_int_equal(roce_state(&b), IBV_QPS_ERR);
}

static void wrong_keys(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, 1, 0, 100);

    (void)state;
    sge.lkey ^= 1u << 20;
    assert_int_equal(support_recv(&b, 9, 0, 100), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    expect(&a, 1, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(roce_state(&a), IBV_QPS_ERR);
    assert_true(support_is_silent(&b, 5));
}

static void receive_with_a_wrong_key(void **state) {
    struct ibv_sge sge = {.addr = (uintptr_t)b.bytes + b.n_bytes - 50, .length = 100};
    struct ibv_recv_wr rr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;

    (void)state;
    sge.lkey = b.mr->lkey;
    assert_int_equal(ibv_post_recv(b.qp, &rr, &bad), 0);
    assert_int_equal(send_signalled(3, 0, 10), 0);
    expect(&b, 4, IBV_WC_LOC_PROT_ERR);
    expect(&a, 3, IBV_WC_REM_OP_ERR);
}

/* timeout 10, 7 tries: 29.4 ms after the peer went, not earlier and not much later. */
static void peer_is_gone(void **state) {
    int64_t start;

    (void)state;
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = NULL;
    start = now_us();
    assert_int_equal(send_signalled(1, 0, 64), 0);
    assert_int_equal(send_signalled(2, 0, 64), 0);
    expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
    assert_true(now_us() - start >= 29000);
    expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(roce_state(&a), IBV_QPS_ERR);
}

static void peer_is_in_error(void **state) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    (void)state;
    assert_int_equal(support_recv(&b, 5, 0, 64), 0);
    assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    expect(&b, 5, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(send_signalled(1, 0, 64), 0);
    expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
}

static void opcodes_and_types(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8);

    (void)state;
    assert_int_equal(roce_post(&a, &wr), EINVAL);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    assert_int_equal(roce_post(&a, &wr), EINVAL);
    assert_true(support_is_silent(&a, 1));
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(masks),
        RULE(attributes_are_kept),
        RULE(immediate_and_solicited),
        RULE(unsignalled),
        RULE(unsignalled_fill_the_queue),
        RULE(gather_and_scatter),
        RULE(inline_is_free_at_once),
        RULE(completes_when_taken),
        RULE(acknowledged_without_the_receiver),
        RULE(receiver_goes_first),
        RULE(loopback),
        RULE(held_and_drained),
        RULE(receiver_not_ready),
        RULE(receiver_ready_late),
        RULE(too_long),
        RULE(wrong_keys),
        RULE(receive_with_a_wrong_key),
        RULE(peer_is_gone),
        RULE(peer_is_in_error),
        RULE(opcodes_and_types),
    };

    return cmocka_run_group_tests_name("fabric reliable", tests, NULL, NULL);
}
