/* SPDX-License-Identifier: MIT */
/* One-sided operations: what they move, who may, and what happens to who may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGE (1u << 20) /* more than a ring holds */

static struct support_end a, b;

static int pair_up(void **state) {
    (void)state;
    roce_pair(&a, &b, ROCE_MESH, IBV_QPT_RC, &roce_patient);
    return 0;
}

static int uc_up(void **state) {
    (void)state;
    roce_pair(&a, &b, ROCE_MESH, IBV_QPT_UC, &roce_patient);
    return 0;
}

static int pair_down(void **state) {
    (void)state;
    roce_unpair(&a, &b);
    return 0;
}

static void expect(struct support_end *end, uint64_t wr_id, enum ibv_wc_status status,
                   enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = support_wait(end);

    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
    assert_int_equal(wc.opcode, opcode);
}

/* The target's program does nothing at all. */
static void write_and_read_back(void **state) {
    (void)state;
    support_fill(a.bytes, 1, 1, LARGE);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LARGE, 12345), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_true(support_is_filled(b.bytes + 12345, 1, 1, LARGE));
    assert_int_equal(b.bytes[12344], 0);
    assert_int_equal(b.bytes[12345 + LARGE], 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 2, 2 * LARGE, LARGE, 12345), 0);
    expect(&a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    assert_true(support_is_filled(a.bytes + 2 * LARGE, 1, 1, LARGE));
    assert_true(support_is_silent(&b, 2));
}

static void write_with_immediate(void **state) {
    struct ibv_wc wc;

    (void)state;
    support_fill(a.bytes, 1, 2, 5000);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 5000, 64), 0);
    assert_true(support_is_silent(&a, 10)); /* it needs a receive */
    assert_int_equal(support_recv(&b, 8, 0, 0), 0);
    wc = support_wait(&b);
    assert_int_equal(wc.wr_id, 8);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_int_equal(wc.imm_data, 10);
    assert_int_equal(wc.byte_len, 5000);
    assert_true(support_is_filled(b.bytes + 64, 1, 2, 5000));
    expect(&a, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
}

static void nothing_at_all(void **state) {
    (void)state;
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 0, 0), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 2, 0, 0, 0), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect(&a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
}

/* More READs than may be in flight, from both sides at once, each more than a ring. */
static void many_reads(void **state) {
    const uint32_t n_bytes = 200000;

    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        support_fill(a.bytes + i * n_bytes, 1, i, n_bytes);
        support_fill(b.bytes + i * n_bytes, 2, i, n_bytes);
    }
    for (uint32_t i = 0; i < 9; i++) {
        size_t at = 2u << 20;

        assert_int_equal(
            roce_rdma(&a, &b, IBV_WR_RDMA_READ, i, at + i * n_bytes, n_bytes, i * n_bytes), 0);
        assert_int_equal(
            roce_rdma(&b, &a, IBV_WR_RDMA_READ, i, at + i * n_bytes, n_bytes, i * n_bytes), 0);
    }
    for (uint32_t i = 0; i < 9; i++) {
        const size_t at = (2u << 20) + (size_t)i * n_bytes;

        expect(&a, i, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        expect(&b, i, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
        assert_true(support_is_filled(a.bytes + at, 2, i, n_bytes));
        assert_true(support_is_filled(b.bytes + at, 1, i, n_bytes));
    }
}

/* A READ is not held up by a send in front of the answer that has no receive yet. */
static void answers_pass_waiting_sends(void **state) {
    (void)state;
    support_fill(b.bytes, 2, 5, 1000);
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(support_send(&b, i, 4096, 65536), 0);
    }
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 1, 0, 1000, 0), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    assert_true(support_is_filled(a.bytes, 2, 5, 1000));
}

/* The WRITE behind a READ of the same bytes overtakes it unless it is fenced. */
static void fence(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr;

    (void)state;
    support_fill(b.bytes, 2, 6, LARGE);
    support_fill(a.bytes, 1, 6, LARGE);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 1, 2 * LARGE, LARGE, 0), 0);
    wr = roce_wr(&sge, &a, IBV_WR_RDMA_WRITE, 2, 0, LARGE);
    wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
    wr.wr.rdma.rkey = b.mr->rkey;
    wr.send_flags |= IBV_SEND_FENCE;
    assert_int_equal(roce_post(&a, &wr), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    expect(&a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_true(support_is_filled(a.bytes + 2 * LARGE, 2, 6, LARGE));
    assert_true(support_is_filled(b.bytes, 1, 6, LARGE));
}

/* --------------------------------------------------------------------- rights */

static void refused(uint64_t wr_id, enum ibv_wc_opcode opcode, enum ibv_wc_status status) {
    struct ibv_async_event event;

    expect(&a, wr_id, status, opcode);
    assert_int_equal(roce_state(&a), IBV_QPS_ERR);
    assert_int_equal(roce_state(&b), IBV_QPS_ERR);
    assert_int_equal(ibv_get_async_event(b.context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    assert_ptr_equal(event.element.qp, b.qp);
    ibv_ack_async_event(&event);
}

static void wrong_rkey(void **state) {
    (void)state;
    b.mr->rkey += 1u << 20;
    assert_int_equal(support_recv(&b, 4, 0, 64), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0), 0);
    refused(1, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
    expect(&b, 4, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    assert_int_equal(b.bytes[0], 0);
}

static void out_of_bounds(void **state) {
    (void)state;
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, b.n_bytes - 63), 0);
    refused(1, IBV_WC_RDMA_READ, IBV_WC_REM_ACCESS_ERR);
}

static void key_of_another_domain(void **state) {
    struct ibv_pd *pd = ibv_alloc_pd(b.context);
    struct ibv_mr *mr =
        ibv_reg_mr(pd, b.bytes, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    uint32_t kept = b.mr->rkey;

    (void)state;
    assert_non_null(mr);
    b.mr->rkey = mr->rkey;
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0), 0);
    refused(1, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
    b.mr->rkey = kept;
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void region_without_the_right(void **state) {
    struct ibv_mr *mr = ibv_reg_mr(b.pd, b.bytes, 4096, IBV_ACCESS_REMOTE_READ);
    uint32_t kept = b.mr->rkey;

    (void)state;
    assert_non_null(mr);
    b.mr->rkey = mr->rkey;
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, 0), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, 64, 0), 0);
    refused(2, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
    b.mr->rkey = kept;
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void queue_pair_without_the_right(void **state) {
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

    (void)state;
    assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 2, 0, 64, 0), 0);
    refused(2, IBV_WC_RDMA_READ, IBV_WC_REM_ACCESS_ERR);
}

static void deregistered(void **state) {
    struct ibv_mr *mr =
        ibv_reg_mr(b.pd, b.bytes, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    uint32_t kept = b.mr->rkey;

    (void)state;
    b.mr->rkey = mr->rkey;
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, 64, 0), 0);
    refused(2, IBV_WC_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR);
    b.mr->rkey = kept;
}

/* A READ writes into its own memory, which needs the right to be written. */
static void read_into_read_only(void **state) {
    struct ibv_mr *mr = ibv_reg_mr(a.pd, a.bytes, 4096, IBV_ACCESS_REMOTE_READ);
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_RDMA_READ, 1, 0, 64);

    (void)state;
    assert_non_null(mr);
    sge.lkey = mr->lkey;
    wr.wr.rdma.remote_addr = (uintptr_t)b.bytes;
    wr.wr.rdma.rkey = b.mr->rkey;
    assert_int_equal(roce_post(&a, &wr), 0);
    expect(&a, 1, IBV_WC_LOC_PROT_ERR, IBV_WC_RDMA_READ);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ----------------------------------------------------------------- unreliable */

static void uc_write(void **state) {
    struct ibv_wc wc;

    (void)state;
    support_fill(a.bytes, 1, 1, 100000);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 100000, 4), 0);
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_int_equal(support_recv(&b, 8, 0, 0), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 4, 0), 0);
    wc = support_wait(&b);
    assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_int_equal(wc.imm_data, 7);
    assert_memory_equal(b.bytes + 8, a.bytes + 4, 99990);
    expect(&a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_READ, 3, 0, 4, 0), EINVAL);
}

/* Nobody is told, nothing is written, and what follows arrives, with the same receive. */
static void uc_wrong_rkey_vanishes(void **state) {
    uint32_t kept = b.mr->rkey;

    (void)state;
    assert_int_equal(support_recv(&b, 8, 0, 64), 0);
    b.mr->rkey += 1u << 20;
    memset(a.bytes, 0x55, 64);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, 0), 0);
    assert_int_equal(roce_rdma(&a, &b, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 64, 0), 0);
    b.mr->rkey = kept;
    expect(&a, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect(&a, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    assert_true(support_is_silent(&b, 5));
    assert_int_equal(b.bytes[0], 0);
    assert_int_equal(support_send(&a, 3, 0, 64), 0);
    expect(&b, 8, IBV_WC_SUCCESS, IBV_WC_RECV);
    assert_int_equal(b.bytes[0], 0x55);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(write_and_read_back),
        RULE(write_with_immediate),
        RULE(nothing_at_all),
        RULE(many_reads),
        RULE(answers_pass_waiting_sends),
        RULE(fence),
        RULE(wrong_rkey),
        RULE(out_of_bounds),
        RULE(key_of_another_domain),
        RULE(region_without_the_right),
        RULE(queue_pair_without_the_right),
        RULE(deregistered),
        RULE(read_into_read_only),
        cmocka_unit_test_setup_teardown(uc_write, uc_up, pair_down),
        cmocka_unit_test_setup_teardown(uc_wrong_rkey_vanishes, uc_up, pair_down),
    };

    return cmocka_run_group_tests_name("fabric rdma", tests, NULL, NULL);
}
