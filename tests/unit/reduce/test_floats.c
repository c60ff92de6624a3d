/* SPDX-License-Identifier: MIT */
/*
 * Floating point: known answers, every 16-bit value, all pairs of special values, half precision
 * (T13, D5), NaN and zeros (D3, D4), and the float environment of the caller.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "reduce/reduce.h"
#include "reference.h"

#define LENGTH(list) (sizeof(list) / sizeof(list)[0])

static void expect_bits(jackal_dtype dtype, jackal_op op, size_t isa, size_t i, uint64_t got,
                        uint64_t right) {
    if (got != right)
        fail_msg("%s %s %s: element %zu is %#llx, right is %#llx", reduce_isa_name(isa),
                 reduce_dtype_name(dtype), reduce_op_name(op), i, (unsigned long long)got,
                 (unsigned long long)right);
}

static uint64_t element(const void *data, size_t i, size_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + i * bytes, bytes);
    return bits;
}

/* --- known answers, without the reference ----------------------------------------------------- */

struct answer {
    jackal_dtype dtype;
    jackal_op op;
    size_t n_srcs;
    uint64_t srcs[4], right;
};

#define C64(re, im) ((uint64_t)(im) << 32 | (re))
#define ONE         0x3f800000U
#define TWO         0x40000000U
#define THREE       0x40400000U
#define NEGATIVE    0x80000000U
#define INF         0x7f800000U
#define QNAN        0x7fc00000U

static const struct answer answers[] = {
    /* NaN: whatever sign and payload, from one source or many, first or last. */
    {JACKAL_FLOAT32, JACKAL_SUM, 1, {0xffc12345}, QNAN},
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {0xff800001, INF}, QNAN},
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {ONE, 0xffffffff}, QNAN},
    {JACKAL_FLOAT32, JACKAL_MIN, 2, {0x7f812345, INF | NEGATIVE}, QNAN},
    {JACKAL_FLOAT32, JACKAL_MIN, 3, {ONE, 0x7fffffff, ONE}, QNAN},
    {JACKAL_FLOAT32, JACKAL_SUM, 2, {INF, INF | NEGATIVE}, QNAN},
    {JACKAL_FLOAT32, JACKAL_PROD, 2, {INF, NEGATIVE}, QNAN},
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x7c00, 0xfc00}, 0x7e00},
    {JACKAL_FLOAT16, JACKAL_MAX, 2, {0xfc01, 0x3c00}, 0x7e00},
    {JACKAL_BFLOAT16, JACKAL_SUM, 2, {0xff81, 0x3f80}, 0x7fc0},
    {JACKAL_BFLOAT16, JACKAL_MIN, 2, {0x3f80, 0xffff}, 0x7fc0},
    {JACKAL_FLOAT64, JACKAL_PROD, 2, {0x7ff0000000000000, 0}, 0x7ff8000000000000},
    {JACKAL_FLOAT64, JACKAL_MAX, 2, {0xfff0000000000001, 0}, 0x7ff8000000000000},
    /* Zeros. */
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {NEGATIVE, 0}, 0},
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {0, NEGATIVE}, 0},
    {JACKAL_FLOAT32, JACKAL_MIN, 2, {NEGATIVE, 0}, NEGATIVE},
    {JACKAL_FLOAT32, JACKAL_MIN, 2, {0, NEGATIVE}, NEGATIVE},
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {NEGATIVE, NEGATIVE}, NEGATIVE},
    {JACKAL_FLOAT32, JACKAL_SUM, 1, {NEGATIVE}, NEGATIVE},
    {JACKAL_FLOAT32, JACKAL_SUM, 2, {NEGATIVE, 0}, 0},
    {JACKAL_FLOAT64, JACKAL_MIN, 2, {0, 0x8000000000000000}, 0x8000000000000000},
    {JACKAL_FLOAT16, JACKAL_MAX, 2, {0x8000, 0}, 0},
    {JACKAL_BFLOAT16, JACKAL_MIN, 2, {0, 0x8000}, 0x8000},
    /* Denormals are neither flushed on the way in nor on the way out. */
    {JACKAL_FLOAT32, JACKAL_SUM, 2, {1, 2}, 3},
    {JACKAL_FLOAT32, JACKAL_MAX, 2, {1, 0}, 1},
    {JACKAL_FLOAT32, JACKAL_PROD, 2, {0x00800000, 0x3f000000}, 0x00400000},
    {JACKAL_BFLOAT16, JACKAL_SUM, 2, {0x0001, 0x0002}, 0x0003},
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x0001, 0x0002}, 0x0003},
    {JACKAL_FLOAT16, JACKAL_PROD, 2, {0x0400, 0x3800}, 0x0200},
    /* Ties to even, and the edge of infinity. */
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x6800, 0x3c00}, 0x6800},
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x6801, 0x3c00}, 0x6802},
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x7bff, 0x4b80}, 0x7bff},
    {JACKAL_FLOAT16, JACKAL_SUM, 2, {0x7bff, 0x4c00}, 0x7c00},
    {JACKAL_BFLOAT16, JACKAL_SUM, 2, {0x4380, 0x3f80}, 0x4380},
    {JACKAL_BFLOAT16, JACKAL_SUM, 2, {0x4381, 0x3f80}, 0x4382},
    {JACKAL_BFLOAT16, JACKAL_SUM, 2, {0x7f7f, 0x7b00}, 0x7f80},
    /* The mean divides once. */
    {JACKAL_FLOAT32, JACKAL_MEAN, 3, {ONE, ONE, 0}, 0x3f2aaaab},
    {JACKAL_FLOAT16, JACKAL_MEAN, 2, {0x7bff, 0x7bff}, 0x7bff},
    {JACKAL_BFLOAT16, JACKAL_MEAN, 3, {ONE >> 16, ONE >> 16, 0}, 0x3f2b},
    {JACKAL_FLOAT64, JACKAL_MEAN, 2, {0x3ff0000000000000, 0x4000000000000000}, 0x3ff8000000000000},
    /* Complex: (1+2i)(3+1i) = 1+7i, -i of a product's zero, no fused operation, parts apart. */
    {JACKAL_COMPLEX64, JACKAL_PROD, 2, {C64(ONE, TWO), C64(THREE, ONE)}, C64(ONE, 0x40e00000)},
    {JACKAL_COMPLEX64,
     JACKAL_PROD,
     2,
     {C64(0x3f800001, 0x3f800001), C64(0x3f800001, 0x3f800001)},
     C64(0, 0x40000002)},
    {JACKAL_COMPLEX64, JACKAL_SUM, 2, {C64(ONE, 0xffc00001), C64(ONE, ONE)}, C64(TWO, QNAN)},
    {JACKAL_COMPLEX64, JACKAL_MEAN, 2, {C64(ONE, TWO), C64(THREE, TWO)}, C64(TWO, TWO)},
    {JACKAL_COMPLEX64, JACKAL_MAX, 2, {C64(ONE, TWO), C64(ONE, THREE)}, C64(ONE, THREE)},
    {JACKAL_COMPLEX64, JACKAL_MAX, 2, {C64(TWO, 0), C64(ONE, THREE)}, C64(TWO, 0)},
    {JACKAL_COMPLEX64,
     JACKAL_MIN,
     2,
     {C64(ONE, TWO), C64(ONE, TWO | NEGATIVE)},
     C64(ONE, TWO | NEGATIVE)},
    /* Zeros are equal as numbers; only between equal numbers do their signs count. */
    {JACKAL_COMPLEX64, JACKAL_MAX, 2, {C64(NEGATIVE, TWO), C64(0, ONE)}, C64(NEGATIVE, TWO)},
    {JACKAL_COMPLEX64, JACKAL_MIN, 2, {C64(NEGATIVE, TWO), C64(0, ONE)}, C64(0, ONE)},
    {JACKAL_COMPLEX64, JACKAL_MAX, 2, {C64(NEGATIVE, 0), C64(0, NEGATIVE)}, C64(0, NEGATIVE)},
    {JACKAL_COMPLEX64, JACKAL_MIN, 2, {C64(ONE, 0), C64(ONE, NEGATIVE)}, C64(ONE, NEGATIVE)},
    {JACKAL_COMPLEX64, JACKAL_MAX, 2, {C64(ONE, 0xff800001), C64(TWO, ONE)}, C64(QNAN, QNAN)},
    {JACKAL_COMPLEX64, JACKAL_MIN, 2, {C64(ONE, ONE), C64(0x7f800001, 0)}, C64(QNAN, QNAN)},
    {JACKAL_COMPLEX64, JACKAL_MAX, 1, {C64(0xff800001, ONE)}, C64(QNAN, QNAN)},
};

/* Long enough for the widest block, a vector and a tail of every kernel. */
#define ANSWER_COUNT 413

static void known_answers(void **state) {
    (void)state;
    static char srcs_data[4][ANSWER_COUNT * 8], out[ANSWER_COUNT * 8];
    const void *srcs[] = {srcs_data[0], srcs_data[1], srcs_data[2], srcs_data[3]};
    for (size_t a = 0; a < LENGTH(answers); a++) {
        const struct answer *answer = &answers[a];
        const size_t bytes = reduce_dtype_bytes(answer->dtype);
        for (size_t s = 0; s < answer->n_srcs; s++) {
            for (size_t i = 0; i < ANSWER_COUNT; i++)
                memcpy(srcs_data[s] + i * bytes, &answer->srcs[s], bytes);
        }
        for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
            if (!reduce_isa_available(isa))
                continue;
            reduce_find_isa(answer->dtype, answer->op, isa)(out, srcs, answer->n_srcs,
                                                            ANSWER_COUNT);
            for (size_t i = 0; i < ANSWER_COUNT; i++)
                expect_bits(answer->dtype, answer->op, isa, a, element(out, i, bytes),
                            answer->right);
        }
    }
}

/* --- all values, all pairs -------------------------------------------------------------------- */

static void every_16_bit_value_alone(void **state) {
    (void)state;
    static uint16_t all[65536], out[65536];
    for (size_t i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    const void *srcs[] = {all};
    for (jackal_op op = 0; op < JACKAL_OP_COUNT; op++) {
        for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
            if (!reduce_isa_available(isa))
                continue;
            reduce_find_isa(JACKAL_FLOAT16, op, isa)(out, srcs, 1, 65536);
            for (size_t i = 0; i < 65536; i++)
                expect_bits(JACKAL_FLOAT16, op, isa, i, out[i],
                            reference_canonical_f16((uint16_t)i));
            reduce_find_isa(JACKAL_BFLOAT16, op, isa)(out, srcs, 1, 65536);
            for (size_t i = 0; i < 65536; i++)
                expect_bits(JACKAL_BFLOAT16, op, isa, i, out[i],
                            reference_canonical_bf16((uint16_t)i));
        }
    }
}

static void compare_with_reference(jackal_dtype dtype, const void *const *srcs, size_t n_srcs,
                                   size_t count) {
    const size_t bytes = reduce_dtype_bytes(dtype);
    char *right = malloc(count * bytes), *out = malloc(count * bytes);
    assert_non_null(right);
    assert_non_null(out);
    for (jackal_op op = 0; op < JACKAL_OP_COUNT; op++) {
        reference_reduce(dtype, op, right, srcs, n_srcs, count);
        for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
            if (!reduce_isa_available(isa))
                continue;
            reduce_find_isa(dtype, op, isa)(out, srcs, n_srcs, count);
            for (size_t i = 0; i < count; i++)
                expect_bits(dtype, op, isa, i, element(out, i, bytes), element(right, i, bytes));
        }
    }
    free(right);
    free(out);
}

/* Element i of `a` and `b` together run through all pairs. */
static void all_pairs(jackal_dtype dtype, const uint64_t *list, size_t n_list) {
    const size_t bytes = reduce_dtype_bytes(dtype), count = n_list * n_list;
    char *a = malloc(count * bytes), *b = malloc(count * bytes);
    assert_non_null(a);
    assert_non_null(b);
    for (size_t i = 0; i < count; i++) {
        memcpy(a + i * bytes, &list[i / n_list], bytes);
        memcpy(b + i * bytes, &list[i % n_list], bytes);
    }
    const void *srcs[] = {a, b, a};
    compare_with_reference(dtype, srcs, 2, count);
    compare_with_reference(dtype, srcs, 3, count);
    free(a);
    free(b);
}

static void all_pairs_of_special_values(void **state) {
    (void)state;
    static const jackal_dtype dtypes[] = {JACKAL_FLOAT16, JACKAL_BFLOAT16, JACKAL_FLOAT32,
                                          JACKAL_FLOAT64};
    for (size_t d = 0; d < LENGTH(dtypes); d++) {
        const uint64_t *list;
        const size_t n_list = reference_specials(dtypes[d], &list);
        assert_true(n_list > 30);
        all_pairs(dtypes[d], list, n_list);
    }
}

/* Real and imaginary parts from the list: every third one, as pairs are their fourth power. */
static void all_pairs_of_special_complex_values(void **state) {
    (void)state;
    const uint64_t *parts;
    const size_t n_parts = reference_specials(JACKAL_COMPLEX64, &parts);
    uint64_t list[256];
    size_t n_list = 0;
    for (size_t re = 0; re < n_parts; re += re < 2 ? 1 : 3) {
        for (size_t im = 0; im < n_parts; im += im < 2 ? 1 : 3) {
            assert_true(n_list < LENGTH(list));
            list[n_list++] = parts[re] | parts[im] << 32;
        }
    }
    all_pairs(JACKAL_COMPLEX64, list, n_list);
}

/* --- T13: half precision ---------------------------------------------------------------------- */

struct half_case {
    jackal_dtype dtype;
    size_t n_srcs;
    uint16_t srcs[4], right;
};

static const struct half_case half_cases[] = {
    {JACKAL_BFLOAT16, 3, {0x4380, 0x3f80, 0x3f80}, 0x4381},         /* 256 + 1 + 1 = 258 */
    {JACKAL_BFLOAT16, 4, {0x4380, 0x3f80, 0x3f80, 0x3f80}, 0x4382}, /* 259 goes to 260 */
    {JACKAL_FLOAT16, 3, {0x6800, 0x3c00, 0x3c00}, 0x6801},          /* 2048 + 1 + 1 = 2050 */
    {JACKAL_FLOAT16, 3, {0x7b53, 0x7b53, 0xfb53}, 0x7b53},          /* 60000 + 60000 - 60000 */
};

#define HALF_MOST 40003

static void check_half(const struct half_case *half, const void *const *srcs, uint16_t *out) {
    static const size_t counts[] = {1, 5, 16383, 16384, 16385, HALF_MOST};
    for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
        if (!reduce_isa_available(isa))
            continue;
        for (size_t c = 0; c < LENGTH(counts); c++) {
            memset(out, 0, counts[c] * sizeof *out);
            reduce_find_isa(half->dtype, JACKAL_SUM, isa)(out, srcs, half->n_srcs, counts[c]);
            for (size_t i = 0; i < counts[c]; i++)
                expect_bits(half->dtype, JACKAL_SUM, isa, i, out[i], half->right);
        }
    }
}

static void T13_half_precision_sums_in_every_order(void **state) {
    (void)state;
    static uint16_t data[4][HALF_MOST], out[HALF_MOST];
    for (size_t h = 0; h < LENGTH(half_cases); h++) {
        const struct half_case *half = &half_cases[h];
        size_t n_orders = 0;
        for (size_t s = 0; s < half->n_srcs; s++) {
            for (size_t i = 0; i < HALF_MOST; i++)
                data[s][i] = half->srcs[s];
        }
        /* Every number of n digits in base n whose digits differ is a permutation. */
        for (size_t code = 0; code < 256; code++) {
            const void *srcs[4];
            size_t rest = code, used = 0;
            for (size_t s = 0; s < half->n_srcs; s++, rest /= half->n_srcs) {
                srcs[s] = data[rest % half->n_srcs];
                used |= (size_t)1 << rest % half->n_srcs;
            }
            if (rest != 0 || used != ((size_t)1 << half->n_srcs) - 1)
                continue;
            n_orders++;
            check_half(half, srcs, out);
        }
        assert_int_equal(n_orders, half->n_srcs == 3 ? 6 : 24);
    }
}

/* --- the caller's float environment ----------------------------------------------------------- */

/*
 * Round up, flush denormals both ways, and every trap unmasked where the processor has traps: what
 * a host program may have set for its own arithmetic.
 */
#if defined(__x86_64__)

#define STICKY_FLAGS 0x3fULL

static uint64_t get_control(void) {
    return _mm_getcsr();
}

static void set_control(uint64_t control) {
    _mm_setcsr((uint32_t)control);
}

static const uint64_t hostile_controls[] = {0x1f80 | 0x4000, 0x1f80 | 0x8040, 0x1f80 | 0xe040,
                                            0xc040};

#else

#define STICKY_FLAGS 0ULL

static uint64_t get_control(void) {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static void set_control(uint64_t control) {
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
}

/* Rounding up, flushing, default NaN with the alternative half format. */
static const uint64_t hostile_controls[] = {1U << 22, 1U << 24, 1U << 24 | 1U << 23 | 1U << 19,
                                            1U << 26 | 1U << 25};

#endif

#define ENVIRONMENT_COUNT 1003

static void the_float_environment_changes_nothing_and_comes_back(void **state) {
    (void)state;
    static char data[3][ENVIRONMENT_COUNT * 8], right[ENVIRONMENT_COUNT * 8],
        out[ENVIRONMENT_COUNT * 8];
    const void *srcs[] = {data[0], data[1], data[2]};
    const uint64_t plain = get_control();
    for (jackal_dtype dtype = JACKAL_FLOAT16; dtype < JACKAL_DTYPE_COUNT; dtype++) {
        const size_t bytes = reduce_dtype_bytes(dtype);
        const uint64_t *list;
        const size_t n_list = reference_specials(dtype, &list);
        for (size_t s = 0; s < 3; s++) {
            reference_fill(dtype, data[s], ENVIRONMENT_COUNT, 77 + s);
            /* The denormals and neighbours of the list, in other company in each source. */
            for (size_t i = 0; i < ENVIRONMENT_COUNT / 2; i++)
                memcpy(data[s] + i * bytes, &list[i * (s + 1) % n_list], bytes);
        }
        for (jackal_op op = 0; op < JACKAL_OP_COUNT; op++) {
            reference_reduce(dtype, op, right, srcs, 3, ENVIRONMENT_COUNT);
            for (size_t h = 0; h < LENGTH(hostile_controls) * reduce_isa_count(); h++) {
                const size_t isa = h % reduce_isa_count();
                const reduce_kernel kernel = reduce_find_isa(dtype, op, isa);
                if (!kernel)
                    continue;
                memset(out, 0, sizeof out);
                set_control(hostile_controls[h / reduce_isa_count()]);
                const uint64_t before = get_control();
                kernel(out, srcs, 3, ENVIRONMENT_COUNT);
                const uint64_t after = get_control();
                set_control(plain);
                assert_int_equal(after & ~STICKY_FLAGS, before & ~STICKY_FLAGS);
                for (size_t i = 0; i < ENVIRONMENT_COUNT; i++)
                    expect_bits(dtype, op, isa, i, element(out, i, bytes),
                                element(right, i, bytes));
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(every_16_bit_value_alone),
        cmocka_unit_test(all_pairs_of_special_values),
        cmocka_unit_test(all_pairs_of_special_complex_values),
        cmocka_unit_test(T13_half_precision_sums_in_every_order),
        cmocka_unit_test(the_float_environment_changes_nothing_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
