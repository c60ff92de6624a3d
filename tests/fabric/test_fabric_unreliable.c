/* SPDX-License-Identifier: MIT */
/* What may get lost: UC under both personalities, missing receives, cables with a pace, faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"
#include "jackal_fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct support_end a, b;

static void roce_up(const char *json) {
    roce_pair(&a, &b, json, IBV_QPT_UC, &roce_patient);
}

static void thunderbolt_up(const char *json) {
    support_settings("*", json);
    support_pair(&a, &b, 1u << 20);
}

static void expect(struct support_end *end, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = support_wait(end);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
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

/* ----------------------------------------------------------- missing receives */

/* A second after it should have left the send is lost, and completes; what follows arrives. */
static void dropped_after_the_grace(void **state) {
    int64_t start;

    (void)state;
    roce_up(ROCE_MESH);
    start = now_us();
    support_fill(a.bytes, 1, 2, 64);
    assert_int_equal(send_signalled(1, 4096, 64), 0);
    expect(&a, 1, IBV_WC_SUCCESS);
    assert_true(now_us() - start >= 1000000);
    assert_int_equal(support_recv(&b, 5, 0, 64), 0);
    assert_true(support_is_silent(&b, 5));
    assert_int_equal(send_signalled(2, 0, 64), 0);
    expect(&b, 5, IBV_WC_SUCCESS);
    assert_true(support_is_filled(b.bytes, 1, 2, 64));
    roce_unpair(&a, &b);
}

static void received_within_the_grace(void **state) {
    (void)state;
    roce_up(ROCE_MESH);
    assert_int_equal(send_signalled(1, 0, 64), 0);
    assert_true(support_is_silent(&a, 50));
    assert_int_equal(support_recv(&b, 5, 0, 64), 0);
    expect(&b, 5, IBV_WC_SUCCESS);
    expect(&a, 1, IBV_WC_SUCCESS);
    roce_unpair(&a, &b);
}

/* The same where it is lost at once. Both ends have met before: the receives are known. */
static void strict_drop(void **state) {
    (void)state;
    thunderbolt_up("{\"strict\": {\"no_receive\": \"drop\"}}");
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 1, 0, 64), 0);
    expect(&b, 1, IBV_WC_SUCCESS);
    expect(&a, 1, IBV_WC_SUCCESS);
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    expect(&a, 2, IBV_WC_SUCCESS);
    assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
    assert_true(support_is_silent(&b, 20));
    assert_int_equal(support_send(&a, 3, 0, 64), 0);
    expect(&b, 2, IBV_WC_SUCCESS);
    expect(&a, 3, IBV_WC_SUCCESS);
    support_unpair(&a, &b);
}

/* The direction is dead for ever, the other one is not. */
static void strict_dead(void **state) {
    (void)state;
    thunderbolt_up("{\"strict\": {\"no_receive\": \"dead\"}}");
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 1, 0, 64), 0);
    expect(&b, 1, IBV_WC_SUCCESS);
    expect(&a, 1, IBV_WC_SUCCESS);
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    assert_int_equal(support_recv(&b, 2, 0, 4096), 0);
    assert_int_equal(support_send(&a, 3, 0, 64), 0);
    assert_true(support_is_silent(&b, 20));
    assert_true(support_is_silent(&a, 5));
    assert_int_equal(support_recv(&a, 4, 0, 4096), 0);
    assert_int_equal(support_send(&b, 5, 0, 64), 0);
    expect(&b, 5, IBV_WC_SUCCESS);
    expect(&a, 4, IBV_WC_SUCCESS);
    support_unpair(&a, &b);
}

static void strict_receive_before_rts(void **state) {
    struct ibv_qp_attr attr = support_attr_init();
    struct ibv_qp *kept;

    (void)state;
    thunderbolt_up("{\"strict\": {\"recv_before_rts\": true, \"local_write_alone\": true}}");
    kept = a.qp;
    a.qp = support_qp(&a, IBV_QPT_UC, 32);
    assert_int_equal(ibv_modify_qp(a.qp, &attr, SUPPORT_MASK_INIT), 0);
    assert_int_equal(support_recv(&a, 1, 0, 4096), EINVAL);
    assert_int_equal(ibv_destroy_qp(a.qp), 0);
    a.qp = kept;
    assert_int_equal(support_recv(&a, 1, 0, 4096), 0);
    assert_null(ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EINVAL);
    support_unpair(&a, &b);
}

/* --------------------------------------------------------------------- errors */

/* A wrong send stops the sending half; receiving goes on, and it can be started again. */
static void send_queue_error(void **state) {
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
    struct ibv_sge sge;
    struct ibv_send_wr wr;

    (void)state;
    roce_up(ROCE_MESH);
    wr = roce_wr(&sge, &a, IBV_WR_SEND, 1, 0, 64);
    sge.lkey ^= 1u << 20;
    assert_int_equal(support_recv(&a, 9, 0, 64), 0);
    assert_int_equal(support_recv(&b, 8, 0, 64), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    expect(&a, 1, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(roce_state(&a), IBV_QPS_SQE);
    assert_int_equal(send_signalled(2, 0, 64), 0);
    expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(support_send(&b, 3, 0, 64), 0);
    expect(&a, 9, IBV_WC_SUCCESS);
    assert_int_equal(ibv_modify_qp(a.qp, &rts, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    assert_int_equal(send_signalled(4, 0, 64), 0);
    expect(&b, 8, IBV_WC_SUCCESS);
    expect(&a, 4, IBV_WC_SUCCESS);
    roce_unpair(&a, &b);
}

/* Too long for its receive: it vanishes, and the receive is there for the next one. */
static void too_long_vanishes(void **state) {
    (void)state;
    roce_up(ROCE_MESH);
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(send_signalled(2, 0, 65), 0);
    assert_int_equal(send_signalled(3, 0, 64), 0);
    expect(&a, 2, IBV_WC_SUCCESS);
    expect(&b, 1, IBV_WC_SUCCESS);
    expect(&a, 3, IBV_WC_SUCCESS);
    assert_int_equal(roce_state(&b), IBV_QPS_RTS);
    roce_unpair(&a, &b);
}

/* --------------------------------------------------------------- pace, cables */

/* 30 ms of latency: neither end completes before; ten messages at 1 MB/s take their time. */
static void pace(void **state) {
    int64_t start;

    (void)state;
    thunderbolt_up("{\"mesh\": {\"hosts\": 2}, \"link\": {\"rate\": \"1MB/s\", "
                   "\"latency\": \"30ms\"}}");
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(support_recv(&b, i, i * 4096, 4096), 0);
        support_fill(a.bytes + i * 4096, 1, i, 4096);
    }
    start = now_us();
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(support_send(&a, i, i * 4096, 4096), 0);
    }
    expect(&b, 0, IBV_WC_SUCCESS);
    assert_true(now_us() - start >= 34000);
    expect(&a, 0, IBV_WC_SUCCESS);
    for (uint32_t i = 1; i < 10; i++) {
        expect(&b, i, IBV_WC_SUCCESS);
        assert_true(support_is_filled(b.bytes + i * 4096, 1, i, 4096));
    }
    assert_true(now_us() - start >= 70000);
    support_unpair(&a, &b);
}

/* The sender alone, with a receiver that does nothing: its frames have left, and it completes. */
static void paced_send(void **state) {
    int64_t start;

    (void)state;
    thunderbolt_up("{\"mesh\": {\"hosts\": 2}, \"link\": {\"rate\": \"1GB/s\", "
                   "\"latency\": \"30ms\"}}");
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    start = now_us();
    assert_int_equal(support_send(&a, 2, 0, 4096), 0);
    expect(&a, 2, IBV_WC_SUCCESS);
    assert_true(now_us() - start >= 30000);
    support_unpair(&a, &b);
}

/* A message on its way has an event when it arrives, not before. */
static void paced_event(void **state) {
    struct ibv_cq *cq;
    void *context;
    int64_t start;

    (void)state;
    roce_up("{\"personality\": \"roce\", \"mesh\": {\"hosts\": 2}, \"link\": {\"rate\": "
            "\"1GB/s\", \"latency\": \"40ms\"}}");
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
    start = now_us();
    assert_int_equal(support_send(&a, 1, 0, 64), 0);
    assert_int_equal(ibv_get_cq_event(b.cq->channel, &cq, &context), 0);
    assert_true(now_us() - start >= 40000);
    ibv_ack_cq_events(cq, 1);
    expect(&b, 1, IBV_WC_SUCCESS);
    roce_unpair(&a, &b);
}

/* Where a pulled cable is silent: no completion, no event; plugged again it goes on. */
static void silent_cable(void **state) {
    (void)state;
    thunderbolt_up("{\"mesh\": {\"hosts\": 2}}");
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.rdma_en2"), 0);
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    assert_true(support_is_silent(&a, 50));
    assert_true(support_is_silent(&b, 5));
    assert_int_equal(jackal_fabric_control(support_name(), "replug h0.rdma_en2"), 0);
    expect(&b, 1, IBV_WC_SUCCESS);
    expect(&a, 2, IBV_WC_SUCCESS);
    support_unpair(&a, &b);
}

/* 200 ms of idleness kill; traffic in either direction keeps both alive. */
static void idle_death(void **state) {
    (void)state;
    thunderbolt_up("{\"mesh\": {\"hosts\": 2}, \"idle_death\": \"200ms\"}");
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(support_recv(&b, i, 0, 4096), 0);
        assert_int_equal(support_send(&a, i, 0, 64), 0);
        expect(&b, i, IBV_WC_SUCCESS);
        expect(&a, i, IBV_WC_SUCCESS);
        support_nap_ms(70);
    }
    assert_int_equal(support_recv(&a, 9, 0, 4096), 0);
    assert_int_equal(support_send(&b, 9, 0, 64), 0); /* b has only received so far */
    expect(&a, 9, IBV_WC_SUCCESS);
    expect(&b, 9, IBV_WC_SUCCESS);
    support_nap_ms(250);
    assert_int_equal(support_recv(&b, 5, 0, 4096), 0);
    assert_int_equal(support_send(&a, 5, 0, 64), 0);
    assert_true(support_is_silent(&b, 20));
    assert_true(support_is_silent(&a, 5));
    support_unpair(&a, &b);
}

/* --------------------------------------------------------------------- faults */

static void twice_and_late(void **state) {
    int64_t start;

    (void)state;
    thunderbolt_up("{\"mesh\": {\"hosts\": 2}, \"faults\": ["
                   "{\"kind\": \"duplicate\", \"device\": \"h0.rdma_en2\", \"message\": 1},"
                   "{\"kind\": \"delay\", \"device\": \"h0.rdma_en2\", \"message\": 2, "
                   "\"time\": \"60ms\"}]}");
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(support_recv(&b, i, i * 4096, 4096), 0);
        support_fill(a.bytes + i * 4096, 1, i, 4096);
    }
    start = now_us();
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(support_send(&a, i, i * 4096, 4096), 0);
    }
    for (uint32_t i = 0; i < 5; i++) { /* 0, 1, 1 and then, late, 2 and 3 */
        expect(&b, i, IBV_WC_SUCCESS);
        assert_true(support_is_filled(b.bytes + i * 4096, 1, i < 2 ? i : i - 1, 4096));
        if (i == 3) {
            assert_true(now_us() - start >= 60000);
        }
    }
    for (uint32_t i = 0; i < 4; i++) {
        expect(&a, i, IBV_WC_SUCCESS);
    }
    support_unpair(&a, &b);
}

/* A reliable connection repeats what was lost, and ignores what comes twice. */
static void reliable_mends(void **state) {
    int64_t start;

    (void)state;
    roce_pair(&a, &b,
              "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 2}, \"faults\": ["
              "{\"kind\": \"duplicate\", \"device\": \"h0.rocep1\", \"message\": 0},"
              "{\"kind\": \"drop\", \"device\": \"h0.rocep1\", \"message\": 1}]}",
              IBV_QPT_RC, &roce_patient);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(support_recv(&b, i, i * 64, 64), 0);
        support_fill(a.bytes + i * 64, 1, i, 64);
    }
    start = now_us();
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(send_signalled(i, i * 64, 64), 0);
        expect(&b, i, IBV_WC_SUCCESS);
        assert_true(support_is_filled(b.bytes + i * 64, 1, i, 64));
        expect(&a, i, IBV_WC_SUCCESS);
    }
    assert_true(now_us() - start >= 4190); /* timeout 10 */
    assert_true(support_is_silent(&b, 5));
    roce_unpair(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_after_the_grace),
        cmocka_unit_test(received_within_the_grace),
        cmocka_unit_test(strict_drop),
        cmocka_unit_test(strict_dead),
        cmocka_unit_test(strict_receive_before_rts),
        cmocka_unit_test(send_queue_error),
        cmocka_unit_test(too_long_vanishes),
        cmocka_unit_test(pace),
        cmocka_unit_test(paced_send),
        cmocka_unit_test(paced_event),
        cmocka_unit_test(silent_cable),
        cmocka_unit_test(idle_death),
        cmocka_unit_test(twice_and_late),
        cmocka_unit_test(reliable_mends),
    };

    return cmocka_run_group_tests_name("fabric unreliable", tests, NULL, NULL);
}
