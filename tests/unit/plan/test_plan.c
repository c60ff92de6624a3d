/* SPDX-License-Identifier: MIT */
/* Storage, shares, granules: what all builders rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/check.h"
#include "support.h"

#include <string.h>

static void check_shares(uint64_t count, uint32_t element_bytes, int parts) {
    uint64_t end = 0, longest = plan_share(count, element_bytes, parts, 0).n_bytes;
    uint64_t before = longest;
    for (int i = 0; i < parts; i++) {
        struct plan_part part = plan_share(count, element_bytes, parts, i);
        assert_int_equal(part.at, end);
        assert_int_equal(part.n_bytes % element_bytes, 0);
        assert_true(part.n_bytes <= before);
        assert_true(longest - part.n_bytes <= element_bytes);
        before = part.n_bytes;
        end += part.n_bytes;
    }
    assert_int_equal(end, count * element_bytes);
}

static void test_shares_tile_the_whole(void **state) {
    (void)state;
    for (uint64_t count = 0; count < 70; count++)
        for (int parts = 1; parts <= 64; parts++)
            check_shares(count, 1 + (uint32_t)(count % 8), parts);
    uint64_t random = 4711;
    for (int i = 0; i < 1000; i++)
        check_shares(support_random(&random) >> 4, 8, 1 + (int)support_below(&random, 256));
}

static void test_granules(void **state) {
    (void)state;
    struct plan plan = {.granule_bytes = 16};
    struct plan_step step = {.n_bytes = 0};
    assert_int_equal(plan_granules(&plan, &step), 0);
    step.always = true;
    assert_int_equal(plan_granules(&plan, &step), 1);
    static const uint64_t cases[][2] = {{1, 1}, {15, 1}, {16, 1}, {17, 2}, {32, 2}, {33, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        step.n_bytes = cases[i][0];
        assert_int_equal(plan_granules(&plan, &step), cases[i][1]);
    }
    step.n_bytes = UINT64_MAX;
    assert_int_equal(plan_granules(&plan, &step), UINT64_C(1) << 60);
}

static struct plan_request request_of(const struct plan_row *row, int size, int wires) {
    return (struct plan_request){
        .operation = row->operation,
        .size = size,
        .wires = wires,
        .root = size > 1 ? 1 : 0,
        .element_bytes = 4,
        .limits = {.payload_bytes = {4032, 65472}, .small_max_bytes = 4032}};
}

/* Every row, rank and number of wires; in plans made for exactly that, used one after another. */
static void test_storage_is_enough(void **state) {
    (void)state;
    struct base_error error;
    for (int size = 1; size <= PLAN_MESH_MAX_SIZE; size++)
        for (int wires = 1; wires <= 4; wires++) {
            struct plan **plans = support_plans_new(size, wires);
            for (size_t i = 0; i < plan_n_rows; i++) {
                struct plan_request request = request_of(&plan_rows[i], size, wires);
                request.count = (uint64_t)(size * wires * 3);
                if (size >= plan_rows[i].min_size)
                    assert_int_equal(plan_check_build(&plan_rows[i], &request, plans, &error),
                                     JACKAL_OK);
            }
            support_plans_free(plans, size);
        }
}

/* Large groups, where the checker is slow and so looks at one count only. */
static void test_large_groups(void **state) {
    (void)state;
    for (size_t i = 0; i < plan_n_rows; i++) {
        const int size = support_scale() < 100 ? 11 : 20;
        struct plan_check_case given = {.request = request_of(&plan_rows[i], size, 2),
                                        .credits = 1};
        given.request.limits = support_tiny_limits(4, true);
        given.request.count = 2 * (uint64_t)size + 1;
        struct plan **plans = support_plans_new(size, 2);
        struct base_error error;
        if (plan_check_row(&plan_rows[i], &given, plans, &error) != JACKAL_OK)
            fail_msg("%s", error.text);
        support_plans_free(plans, size);
    }
}

static void test_overflow_is_an_error(void **state) {
    (void)state;
    struct plan *plan = plan_new(4, 1);
    struct base_error error;
    struct plan_request request = request_of(&plan_rows[0], 4, 1);
    request.count = 100;
    plan->max_terms = 5;
    assert_int_equal(plan_build(plan, &request, &error), JACKAL_ERR_LIMIT);
    plan->max_terms = 32;
    plan->max_waits = 0;
    assert_int_equal(plan_build(plan, &request, &error), JACKAL_ERR_LIMIT);
    plan->max_waits = 64;
    plan->max_steps = 1;
    assert_int_equal(plan_build(plan, &request, &error), JACKAL_ERR_LIMIT);
    plan->max_steps = 10;
    assert_int_equal(plan_build(plan, &request, &error), JACKAL_OK);
    plan_free(plan);
}

/* A plan is as long for a terabyte as for a few elements. */
static void test_length_does_not_depend_on_count(void **state) {
    (void)state;
    struct base_error error;
    struct plan *plan = plan_new(5, 3);
    for (size_t i = 0; i < plan_n_rows; i++) {
        uint32_t n_steps = 0;
        for (uint64_t count = UINT64_C(1) << 20; count <= UINT64_C(1) << 40; count <<= 4) {
            struct plan_request request = request_of(&plan_rows[i], 5, 3);
            request.algorithm = plan_rows[i].algorithm;
            request.count = count;
            assert_int_equal(plan_build(plan, &request, &error), JACKAL_OK);
            assert_string_equal(plan->algorithm, plan_rows[i].algorithm);
            n_steps = n_steps == 0 ? plan->n_steps : n_steps;
            assert_int_equal(plan->n_steps, n_steps);
            uint64_t bytes = request.operation == PLAN_BARRIER ? 0 : 4 * count;
            if (request.operation == PLAN_ALL_GATHER || request.operation == PLAN_REDUCE_SCATTER)
                bytes *= 5;
            assert_int_equal(plan->total_bytes, bytes);
        }
    }
    plan_free(plan);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(plan_operation_name(PLAN_ALL_REDUCE), "all_reduce");
    assert_string_equal(plan_operation_name(PLAN_RECV), "recv");
    assert_string_equal(plan_operation_name(PLAN_OPERATION_COUNT), "unknown operation");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_tile_the_whole),
        cmocka_unit_test(test_granules),
        cmocka_unit_test(test_storage_is_enough),
        cmocka_unit_test(test_large_groups),
        cmocka_unit_test(test_overflow_is_an_error),
        cmocka_unit_test(test_length_does_not_depend_on_count),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
