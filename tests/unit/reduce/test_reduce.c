/* SPDX-License-Identifier: MIT */
/* Names, sizes and the choice of a kernel. */
#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "reference.h"

static void names_and_sizes_are_those_of_the_tables(void **state) {
    (void)state;
    assert_int_equal(reduce_dtype_bytes(JACKAL_BOOL), 1);
    assert_int_equal(reduce_dtype_bytes(JACKAL_BFLOAT16), 2);
    assert_int_equal(reduce_dtype_bytes(JACKAL_UINT32), 4);
    assert_int_equal(reduce_dtype_bytes(JACKAL_COMPLEX64), 8);
    assert_string_equal(reduce_dtype_name(JACKAL_FLOAT16), "float16");
    assert_string_equal(reduce_dtype_name(JACKAL_INT64), "int64");
    assert_string_equal(reduce_op_name(JACKAL_MEAN), "mean");
    assert_string_equal(reduce_op_name(JACKAL_SUM), "sum");
}

static void unknown_numbers_have_no_name_no_size_and_no_kernel(void **state) {
    (void)state;
    static const int32_t unknown[] = {-1, 14, 15, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        assert_int_equal(reduce_dtype_bytes(unknown[i]), 0);
        assert_null(reduce_dtype_name(unknown[i]));
        assert_null(reduce_op_name(unknown[i]));
        assert_null(reduce_find(unknown[i], JACKAL_SUM));
        assert_null(reduce_find(JACKAL_INT8, unknown[i]));
        assert_null(reduce_find_isa(unknown[i], JACKAL_SUM, 0));
        assert_null(reduce_find_isa(JACKAL_INT8, unknown[i], 0));
    }
    assert_null(reduce_op_name(JACKAL_OP_COUNT));
}

static void every_allowed_pair_has_a_kernel_and_no_other(void **state) {
    (void)state;
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++) {
        for (jackal_op op = 0; op < JACKAL_OP_COUNT; op++) {
            const bool allowed = op != JACKAL_MEAN || dtype >= JACKAL_FLOAT16;
            assert_int_equal(reference_allows(dtype, op), allowed);
            assert_int_equal(reduce_find(dtype, op) != NULL, allowed);
            for (size_t isa = 0; isa < reduce_isa_count(); isa++)
                assert_int_equal(reduce_find_isa(dtype, op, isa) != NULL,
                                 allowed && reduce_isa_available(isa));
        }
    }
}

static void instruction_sets_are_named_and_the_last_available_is_best(void **state) {
    (void)state;
    assert_string_equal(reduce_isa_name(0), "portable");
    assert_true(reduce_isa_available(0));
    assert_null(reduce_isa_name(reduce_isa_count()));
    assert_false(reduce_isa_available(reduce_isa_count()));
    assert_null(reduce_find_isa(JACKAL_INT8, JACKAL_SUM, reduce_isa_count()));
    const size_t best = reduce_isa_best();
    assert_true(reduce_isa_available(best));
    for (size_t isa = best + 1; isa < reduce_isa_count(); isa++)
        assert_false(reduce_isa_available(isa));
    assert_ptr_equal(reduce_find(JACKAL_FLOAT32, JACKAL_SUM),
                     reduce_find_isa(JACKAL_FLOAT32, JACKAL_SUM, best));
    for (size_t isa = 0; isa < reduce_isa_count(); isa++)
        print_message("%s: %s\n", reduce_isa_name(isa),
                      reduce_isa_available(isa) ? "tested" : "not on this processor");
}

static void apply_runs_the_kernel_or_says_why_not(void **state) {
    (void)state;
    const int32_t a[] = {1, 2, 3}, b[] = {10, 20, INT32_MAX}, right[] = {11, 22, INT32_MIN + 2};
    const void *srcs[] = {a, b};
    int32_t out[3] = {0};
    assert_int_equal(reduce_apply(JACKAL_INT32, JACKAL_SUM, out, srcs, 2, 3), JACKAL_OK);
    assert_memory_equal(out, right, sizeof right);
    memset(out, 0x5a, sizeof out);
    const int32_t untouched = out[0];
    assert_int_equal(reduce_apply(JACKAL_INT32, JACKAL_MEAN, out, srcs, 2, 3), JACKAL_ERR_ARGUMENT);
    assert_int_equal(reduce_apply(JACKAL_INT32, JACKAL_SUM, out, srcs, 0, 3), JACKAL_ERR_ARGUMENT);
    assert_int_equal(reduce_apply(99, JACKAL_SUM, out, srcs, 2, 3), JACKAL_ERR_ARGUMENT);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(out[i], untouched);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_are_those_of_the_tables),
        cmocka_unit_test(unknown_numbers_have_no_name_no_size_and_no_kernel),
        cmocka_unit_test(every_allowed_pair_has_a_kernel_and_no_other),
        cmocka_unit_test(instruction_sets_are_named_and_the_last_available_is_best),
        cmocka_unit_test(apply_runs_the_kernel_or_says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
