/* SPDX-License-Identifier: MIT */
/* Which row plan_choose() takes, and that all ranks take the same one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/check.h"
#include "support.h"

#include <string.h>

enum { SHORT_BYTES = 65536 };

static struct plan_request request_of(enum plan_operation operation, int size, uint64_t count) {
    return (struct plan_request){
        .operation = operation,
        .size = size,
        .wires = 1,
        .count = count,
        .element_bytes = 4,
        .limits = {.payload_bytes = {4032, 65472}, .small_max_bytes = 4032}};
}

static const char *chosen(enum plan_operation operation, int size, uint64_t count,
                          const char *preferred) {
    struct plan_request request = request_of(operation, size, count);
    request.algorithm = preferred;
    const struct plan_row *row = plan_choose(&request);
    return row == NULL ? "none" : row->algorithm;
}

static void test_by_bytes(void **state) {
    (void)state;
    static const enum plan_operation operations[] = {PLAN_ALL_REDUCE, PLAN_BROADCAST};
    for (int i = 0; i < 2; i++) {
        assert_string_equal(chosen(operations[i], 4, 0, NULL), "direct");
        assert_string_equal(chosen(operations[i], 4, SHORT_BYTES / 4, NULL), "direct");
        assert_string_equal(chosen(operations[i], 4, SHORT_BYTES / 4 + 1, NULL), "mesh");
        assert_string_equal(chosen(operations[i], 64, UINT64_C(1) << 40, NULL), "mesh");
    }
    assert_string_equal(chosen(PLAN_ALL_GATHER, 4, SHORT_BYTES, NULL), "direct");
    assert_string_equal(chosen(PLAN_REDUCE_SCATTER, 4, SHORT_BYTES, NULL), "direct");
}

static void test_by_size(void **state) {
    (void)state;
    for (int size = 1; size <= 2; size++) {
        assert_string_equal(chosen(PLAN_ALL_REDUCE, size, SHORT_BYTES, NULL), "direct");
        assert_string_equal(chosen(PLAN_BROADCAST, size, SHORT_BYTES, "mesh"), "direct");
    }
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 3, SHORT_BYTES, NULL), "mesh");
    assert_string_equal(chosen(PLAN_SEND, 1, 1, NULL), "none");
    assert_string_equal(chosen(PLAN_RECV, 2, 1, NULL), "direct");
    assert_string_equal(chosen(PLAN_BARRIER, 1, 0, NULL), "direct");
}

static void test_by_preference(void **state) {
    (void)state;
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 4, 100, "mesh"), "mesh");
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 4, SHORT_BYTES, "direct"), "direct");
    assert_string_equal(chosen(PLAN_BARRIER, 4, 0, "mesh"), "direct");
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 4, 100, "no such algorithm"), "direct");
    /* Fewer elements than chunks: some link would carry no message at all. */
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 4, 4, "mesh"), "mesh");
    assert_string_equal(chosen(PLAN_ALL_REDUCE, 4, 3, "mesh"), "direct");
}

static const struct plan_row *row_named(enum plan_operation operation, const char *algorithm) {
    for (size_t i = 0; i < plan_n_rows; i++)
        if (plan_rows[i].operation == operation && strcmp(plan_rows[i].algorithm, algorithm) == 0)
            return &plan_rows[i];
    return NULL;
}

/* The plans that all ranks choose by themselves, checked together. */
static void check_choice(const struct plan_request *of, const char *expected) {
    struct plan **plans = support_plans_new(of->size, of->wires);
    struct base_error error;
    for (int rank = 0; rank < of->size; rank++) {
        struct plan_request request = *of;
        request.rank = rank;
        assert_int_equal(plan_build(plans[rank], &request, &error), JACKAL_OK);
        assert_string_equal(plans[rank]->algorithm, expected);
    }
    const struct plan_check_case given = {
        .request = *of, .credits = 1, .canonical = row_named(of->operation, expected)->canonical};
    jackal_status status = plan_check(&given, (const struct plan *const *)plans, &error);
    if (status != JACKAL_OK)
        fail_msg("%s", error.text);
    support_plans_free(plans, of->size);
}

static void test_ranks_agree_at_the_boundary(void **state) {
    (void)state;
    static const uint32_t element_sizes[] = {1, 4, 8};
    for (int size = 3; size <= 5; size++)
        for (int e = 0; e < 3; e++) {
            uint64_t most = SHORT_BYTES / element_sizes[e];
            for (uint64_t count = most - 1; count <= most + 1; count++) {
                struct plan_request request = request_of(PLAN_BROADCAST, size, count);
                request.element_bytes = element_sizes[e];
                request.root = size - 1;
                check_choice(&request, count <= most ? "direct" : "mesh");
            }
        }
    struct plan_request request = request_of(PLAN_ALL_REDUCE, 3, SHORT_BYTES / 4 + 1);
    check_choice(&request, "mesh");
}

/* Chunks differ by an element; the longest decides for all, also where some would fit small. */
static void test_ranks_agree_on_the_queue(void **state) {
    (void)state;
    for (uint64_t count = 3 * 1008 - 2; count <= 3 * 1008 + 2; count++) {
        struct plan_request request = request_of(PLAN_ALL_REDUCE, 3, count);
        request.algorithm = "mesh";
        check_choice(&request, "mesh");
        struct plan *plan = plan_new(3, 1);
        struct base_error error;
        request.rank = 2; /* has the shortest chunk */
        assert_int_equal(plan_build(plan, &request, &error), JACKAL_OK);
        assert_int_equal(plan->queue, count <= 3 * 1008 ? PLAN_SMALL : PLAN_BULK);
        plan_free(plan);
    }
}

static void test_nothing_does_it(void **state) {
    (void)state;
    struct plan *plan = plan_new(1, 1);
    struct base_error error;
    struct plan_request request = request_of(PLAN_SEND, 1, 1);
    assert_int_equal(plan_build(plan, &request, &error), JACKAL_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "send among 1 ranks"));
    plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_bytes),
        cmocka_unit_test(test_by_size),
        cmocka_unit_test(test_by_preference),
        cmocka_unit_test(test_ranks_agree_at_the_boundary),
        cmocka_unit_test(test_ranks_agree_on_the_queue),
        cmocka_unit_test(test_nothing_does_it),
    };
    return cmocka_run_group_tests_name("plan choice", tests, NULL, NULL);
}
