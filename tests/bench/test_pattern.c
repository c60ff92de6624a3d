/* SPDX-License-Identifier: MIT */
/*
 * The values that `jackal bench -c` compares with. A check that accepts everything would look like
 * a library without faults, so the combination of all ranks is computed here a second time, by
 * other code, and then spoilt in each way that the check promises to see (D7).
 */
#include "bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 600, FIRST = 1000, MOST_RANKS = 64, ELEMENT = 8 };

static const int group_sizes[] = {1, 2, 3, 5, 8, 64};

/* Real and imaginary part of a float type, or the integer in `bits`. */
struct value {
    double re, im;
    uint64_t bits;
};

static double decode_float16(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static uint16_t encode_float16(double number) {
    static uint16_t table[4097];
    if (table[1] == 0) {
        for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
            double value = decode_float16(bits);
            if (value == floor(value) && value <= 4096) {
                table[(int)value] = bits;
            }
        }
    }
    return (uint16_t)(table[(int)fabs(number)] | (number < 0 ? 0x8000 : 0));
}

static struct value decode(jackal_dtype dtype, const unsigned char *data) {
    struct value value = {0, 0, 0};
    float parts[2];
    uint16_t half;
    uint32_t wide;
    memcpy(&half, data, 2);
    memcpy(parts, data, dtype == JACKAL_COMPLEX64 ? 8 : 4);
    switch (dtype) {
    case JACKAL_FLOAT16:
        value.re = decode_float16(half);
        break;
    case JACKAL_BFLOAT16:
        wide = (uint32_t)half << 16;
        memcpy(parts, &wide, 4);
        value.re = (double)parts[0];
        break;
    case JACKAL_FLOAT32:
        value.re = (double)parts[0];
        break;
    case JACKAL_FLOAT64:
        memcpy(&value.re, data, 8);
        break;
    case JACKAL_COMPLEX64:
        value.re = (double)parts[0];
        value.im = (double)parts[1];
        break;
    default:
        for (uint64_t i = bench_dtype_bytes(dtype); i-- > 0;) {
            value.bits = value.bits << 8 | data[i]; /* all our machines are little-endian */
        }
        break;
    }
    return value;
}

static void encode(jackal_dtype dtype, struct value value, unsigned char *data) {
    float parts[2] = {(float)value.re, (float)value.im};
    uint16_t half = encode_float16(dtype == JACKAL_FLOAT16 ? value.re : 0);
    switch (dtype) {
    case JACKAL_FLOAT16:
        memcpy(data, &half, 2);
        break;
    case JACKAL_BFLOAT16:
        memcpy(data, (unsigned char *)parts + 2, 2);
        break;
    case JACKAL_FLOAT32:
    case JACKAL_COMPLEX64:
        memcpy(data, parts, bench_dtype_bytes(dtype));
        break;
    case JACKAL_FLOAT64:
        memcpy(data, &value.re, 8);
        break;
    default:
        memcpy(data, &value.bits, bench_dtype_bytes(dtype));
        break;
    }
}

static bool is_float(jackal_dtype dtype) {
    return dtype >= JACKAL_FLOAT16;
}

/* Orders values as max and min do. */
static int order(jackal_dtype dtype, struct value a, struct value b) {
    if (is_float(dtype)) {
        return a.re != b.re ? (a.re > b.re) - (a.re < b.re) : (a.im > b.im) - (a.im < b.im);
    }
    if (dtype >= JACKAL_INT8 && dtype <= JACKAL_INT64) {
        uint64_t sign = UINT64_C(1) << (8 * bench_dtype_bytes(dtype) - 1);
        a.bits ^= sign; /* moves the negative numbers below the others */
        b.bits ^= sign;
    }
    return (a.bits > b.bits) - (a.bits < b.bits);
}

static struct value combine(jackal_dtype dtype, jackal_op op, struct value a, struct value b) {
    if (op != JACKAL_SUM) {
        return (order(dtype, a, b) > 0) == (op == JACKAL_MAX) ? a : b;
    }
    a.re += b.re;
    a.im += b.im;
    a.bits = dtype == JACKAL_BOOL ? a.bits | b.bits : a.bits + b.bits;
    return a;
}

static double most_exact(jackal_dtype dtype) {
    return dtype == JACKAL_FLOAT16    ? 2048
           : dtype == JACKAL_BFLOAT16 ? 256
           : dtype == JACKAL_FLOAT64  ? 9007199254740992
                                      : 16777216;
}

static unsigned char contributions[MOST_RANKS][COUNT * ELEMENT];

/* Combines from the last rank to the first; rank `skipped` is left out, `doubled` comes twice. */
static void combine_all(const struct bench_pattern *pattern, int skipped, int doubled,
                        unsigned char *data) {
    uint64_t n_bytes = bench_dtype_bytes(pattern->dtype);
    for (size_t i = 0; i < COUNT; ++i) {
        struct value total = {0, 0, 0};
        bool any = false;
        for (int rank = pattern->size - 1; rank >= 0; --rank) {
            struct value one = decode(pattern->dtype, contributions[rank] + i * n_bytes);
            for (int times = rank == skipped ? 0 : rank == doubled ? 2 : 1; times > 0; --times) {
                total = any ? combine(pattern->dtype, pattern->redop, total, one) : one;
                any = true;
            }
        }
        encode(pattern->dtype, total, data + i * n_bytes);
    }
}

static uint64_t wrong(const struct bench_pattern *pattern, int rank, uint64_t first,
                      const unsigned char *data) {
    uint64_t ignored;
    return bench_pattern_wrong(pattern, rank, first, COUNT, data, &ignored);
}

static void make(struct bench_pattern *pattern, jackal_dtype dtype, jackal_op op, int size) {
    *pattern = (struct bench_pattern){
        .dtype = dtype, .redop = op, .use = BENCH_REDUCED, .size = size, .round = 3};
    for (int rank = 0; rank < size; ++rank) {
        bench_pattern_fill(pattern, rank, FIRST, COUNT, contributions[rank]);
    }
}

#define EACH_CASE(pattern)                                                                         \
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; ++dtype)                              \
        for (jackal_op op = JACKAL_SUM; op <= JACKAL_MIN; ++op)                                    \
            for (size_t n = 0; n < sizeof group_sizes / sizeof group_sizes[0]; ++n)                \
                if (make(&(pattern), dtype, op, group_sizes[n]), true)

static void test_right_is_accepted(void **state) {
    unsigned char data[COUNT * ELEMENT];
    struct bench_pattern pattern;
    (void)state;
    EACH_CASE(pattern) {
        combine_all(&pattern, -1, -1, data);
        assert_int_equal(wrong(&pattern, -1, FIRST, data), 0);
    }
}

/* No order of summation may round: the magnitudes of all ranks together stay exact. */
static void test_sums_are_exact(void **state) {
    struct bench_pattern pattern;
    (void)state;
    EACH_CASE(pattern) {
        for (size_t i = 0; i < COUNT && is_float(dtype) && op == JACKAL_SUM; ++i) {
            double re = 0, im = 0;
            for (int rank = 0; rank < pattern.size; ++rank) {
                struct value one =
                    decode(dtype, contributions[rank] + i * bench_dtype_bytes(dtype));
                assert_true(one.re != 0 && one.re == floor(one.re));
                re += fabs(one.re);
                im += fabs(one.im);
            }
            assert_true(re <= most_exact(dtype) && im <= most_exact(dtype));
        }
    }
}

/* Of many ranks a few are enough. */
static int step(const struct bench_pattern *pattern) {
    return pattern->size > 8 ? 21 : 1;
}

static void test_missing_is_seen(void **state) {
    unsigned char data[COUNT * ELEMENT];
    struct bench_pattern pattern;
    (void)state;
    EACH_CASE(pattern) {
        for (int rank = 0; rank < pattern.size && pattern.size > 1; rank += step(&pattern)) {
            combine_all(&pattern, rank, -1, data);
            uint64_t n_wrong = wrong(&pattern, -1, FIRST, data);
            if (op == JACKAL_SUM && dtype != JACKAL_BOOL) {
                /* an integer may be 0: one in 256 of 8 bits is */
                assert_true(n_wrong >= (is_float(dtype) ? COUNT : COUNT * 97 / 100));
            } else if (pattern.size <= 8) {
                assert_true(n_wrong > COUNT / 40);
            }
        }
    }
}

static void test_doubled_is_seen(void **state) {
    unsigned char data[COUNT * ELEMENT];
    struct bench_pattern pattern;
    (void)state;
    EACH_CASE(pattern) {
        for (int rank = 0; rank < pattern.size && op == JACKAL_SUM && dtype != JACKAL_BOOL;
             rank += step(&pattern)) {
            combine_all(&pattern, -1, rank, data);
            assert_true(wrong(&pattern, -1, FIRST, data) >=
                        (is_float(dtype) ? COUNT : COUNT * 97 / 100));
        }
    }
}

static void test_shifted_and_stale_are_seen(void **state) {
    unsigned char data[COUNT * ELEMENT];
    struct bench_pattern pattern;
    (void)state;
    EACH_CASE(pattern) {
        combine_all(&pattern, -1, -1, data);
        uint64_t least = dtype == JACKAL_BOOL ? 2 : COUNT / 3;
        struct bench_pattern earlier = pattern;
        earlier.round -= 1;
        assert_true(wrong(&pattern, -1, FIRST + 1, data) > least);
        assert_true(wrong(&pattern, -1, FIRST + COUNT, data) > least);
        assert_true(wrong(&earlier, -1, FIRST, data) > least);
    }
}

static void test_copies(void **state) {
    unsigned char data[COUNT * ELEMENT];
    uint64_t first_wrong = 0;
    (void)state;
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; ++dtype) {
        struct bench_pattern pattern = {
            .dtype = dtype, .redop = -1, .use = BENCH_COPIED, .size = 4, .round = 7};
        bench_pattern_fill(&pattern, 2, FIRST, COUNT, data);
        assert_int_equal(wrong(&pattern, 2, FIRST, data), 0);
        assert_true(wrong(&pattern, 1, FIRST, data) > COUNT / 3);
        assert_true(wrong(&pattern, 2, FIRST - 1, data) > COUNT / 3);
        data[500 * bench_dtype_bytes(dtype)] ^= 1;
        assert_int_equal(bench_pattern_wrong(&pattern, 2, FIRST, COUNT, data, &first_wrong), 1);
        assert_int_equal(first_wrong, 500);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_is_accepted),
        cmocka_unit_test(test_sums_are_exact),
        cmocka_unit_test(test_missing_is_seen),
        cmocka_unit_test(test_doubled_is_seen),
        cmocka_unit_test(test_shifted_and_stale_are_seen),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
