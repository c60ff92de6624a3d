/* SPDX-License-Identifier: MIT */
#include "reference.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "reduce/reduce.h"

/* --- formats: what a float type looks like ---------------------------------------------------- */

struct float_format {
    int fraction_bits, min_exponent, max_exponent;
    uint64_t nan_bits;
};

static const struct float_format format_f16 = {10, -14, 15, 0x7e00};
static const struct float_format format_bf16 = {7, -126, 127, 0x7fc0};
static const struct float_format format_f32 = {23, -126, 127, 0x7fc00000};
static const struct float_format format_f64 = {52, -1022, 1023, 0x7ff8000000000000};

static int format_bits(const struct float_format *format) {
    return 1 + format->fraction_bits +
           (format == &format_f16 ? 5 : (format == &format_f64 ? 11 : 8));
}

static double decode(const struct float_format *format, uint64_t bits) {
    const uint64_t sign = bits >> (format_bits(format) - 1);
    const uint64_t hidden = 1ULL << format->fraction_bits;
    const uint64_t fraction = bits & (hidden - 1);
    const int biased = (int)((bits & ((1ULL << (format_bits(format) - 1)) - 1)) / hidden);
    double value;
    if (biased == format->max_exponent - format->min_exponent + 2)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (biased == 0)
        value = ldexp((double)fraction, format->min_exponent - format->fraction_bits);
    else
        value = ldexp((double)(fraction + hidden),
                      biased - 1 + format->min_exponent - format->fraction_bits);
    return sign ? -value : value;
}

/* To nearest, ties to even: the quotient by the format's unit at that size, rounded. */
static uint64_t encode(const struct float_format *format, double value) {
    if (isnan(value))
        return format->nan_bits;
    const uint64_t sign = signbit(value) ? 1ULL << (format_bits(format) - 1) : 0;
    const uint64_t infinity = (uint64_t)(format->max_exponent - format->min_exponent + 2)
                              << format->fraction_bits;
    if (isinf(value))
        return sign | infinity;
    if (value == 0.0)
        return sign;
    int exponent = ilogb(value);
    if (exponent < format->min_exponent)
        exponent = format->min_exponent;
    /* In two steps: the unit of the smallest doubles has no reciprocal. */
    const double steps = nearbyint(ldexp(ldexp(fabs(value), -exponent), format->fraction_bits));
    const uint64_t magnitude =
        (uint64_t)steps + ((uint64_t)(exponent - format->min_exponent) << format->fraction_bits);
    return sign | (magnitude > infinity ? infinity : magnitude);
}

static const struct float_format *format_of(jackal_dtype dtype) {
    switch (dtype) {
    case JACKAL_FLOAT16:
        return &format_f16;
    case JACKAL_BFLOAT16:
        return &format_bf16;
    case JACKAL_FLOAT32:
    case JACKAL_COMPLEX64:
        return &format_f32;
    case JACKAL_FLOAT64:
        return &format_f64;
    default:
        return NULL;
    }
}

static uint64_t load(const void *src, size_t i, size_t bytes) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)src + i * bytes, bytes);
    return bits;
}

static void store(void *dst, size_t i, size_t bytes, uint64_t bits) {
    memcpy((char *)dst + i * bytes, &bits, bytes);
}

/* --- bool and integers ------------------------------------------------------------------------ */

static bool is_signed(jackal_dtype dtype) {
    return dtype >= JACKAL_INT8 && dtype <= JACKAL_INT64;
}

/* Moves the signed range onto the unsigned one. */
static uint64_t rank_of(jackal_dtype dtype, uint64_t bits) {
    return is_signed(dtype) ? bits ^ (1ULL << (8 * reduce_dtype_bytes(dtype) - 1)) : bits;
}

static uint64_t step_integer(jackal_dtype dtype, jackal_op op, uint64_t a, uint64_t b) {
    switch (op) {
    case JACKAL_SUM:
        return a + b;
    case JACKAL_PROD:
        return a * b;
    case JACKAL_MAX:
        return rank_of(dtype, a) >= rank_of(dtype, b) ? a : b;
    default:
        return rank_of(dtype, a) <= rank_of(dtype, b) ? a : b;
    }
}

static uint64_t reduce_integer(jackal_dtype dtype, jackal_op op, const void *const *srcs,
                               size_t n_srcs, size_t i) {
    const size_t bytes = reduce_dtype_bytes(dtype);
    uint64_t acc = load(srcs[0], i, bytes);
    for (size_t s = 1; s < n_srcs; s++) {
        acc = step_integer(dtype, op, acc, load(srcs[s], i, bytes));
        if (bytes < sizeof acc)
            acc %= 1ULL << (8 * bytes);
    }
    return acc;
}

static uint64_t reduce_bool(jackal_op op, const void *const *srcs, size_t n_srcs, size_t i) {
    size_t n_true = 0;
    for (size_t s = 0; s < n_srcs; s++)
        n_true += load(srcs[s], i, 1) != 0;
    return op == JACKAL_SUM || op == JACKAL_MAX ? n_true > 0 : n_true == n_srcs;
}

/* --- floats ----------------------------------------------------------------------------------- */

/*
 * The exact result of one operation on two floats has at most 48 significant bits or lies so far
 * apart that rounding it to double first does no harm; double is its own precision.
 */
static double round_to(bool is_double, double value) {
    const volatile float narrow = (float)value;
    return is_double ? value : (double)narrow;
}

static bool is_below(double a, double b) {
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double step_float(bool is_double, jackal_op op, double a, double b) {
    volatile double result;
    switch (op) {
    case JACKAL_PROD:
        result = a * b;
        return round_to(is_double, result);
    case JACKAL_MAX:
        return isnan(a) || isnan(b) ? (double)NAN : (is_below(a, b) ? b : a);
    case JACKAL_MIN:
        return isnan(a) || isnan(b) ? (double)NAN : (is_below(b, a) ? b : a);
    default:
        result = a + b;
        return round_to(is_double, result);
    }
}

static uint64_t reduce_float(jackal_dtype dtype, jackal_op op, const void *const *srcs,
                             size_t n_srcs, size_t i) {
    const struct float_format *format = format_of(dtype);
    const size_t bytes = dtype == JACKAL_COMPLEX64 ? 4 : reduce_dtype_bytes(dtype);
    const bool is_double = dtype == JACKAL_FLOAT64;
    double acc = decode(format, load(srcs[0], i, bytes));
    for (size_t s = 1; s < n_srcs; s++)
        acc = step_float(is_double, op, acc, decode(format, load(srcs[s], i, bytes)));
    if (op == JACKAL_MEAN)
        acc = round_to(is_double, acc / (double)n_srcs);
    return encode(format, acc);
}

struct complex_pair {
    double re, im;
};

static bool complex_below(struct complex_pair a, struct complex_pair b) {
    if (a.re != b.re)
        return a.re < b.re;
    if (a.im != b.im)
        return a.im < b.im;
    if (!signbit(a.re) != !signbit(b.re))
        return signbit(a.re);
    return signbit(a.im) && !signbit(b.im);
}

static struct complex_pair step_complex(jackal_op op, struct complex_pair a,
                                        struct complex_pair b) {
    if (op == JACKAL_PROD) {
        const double ac = round_to(false, a.re * b.re), bd = round_to(false, a.im * b.im);
        const double ad = round_to(false, a.re * b.im), bc = round_to(false, a.im * b.re);
        return (struct complex_pair){round_to(false, ac - bd), round_to(false, ad + bc)};
    }
    if (isnan(a.re) || isnan(a.im) || isnan(b.re) || isnan(b.im))
        return (struct complex_pair){(double)NAN, (double)NAN};
    if (op == JACKAL_MAX)
        return complex_below(a, b) ? b : a;
    return complex_below(b, a) ? b : a;
}

static struct complex_pair decode_complex(const void *src, size_t i) {
    return (struct complex_pair){decode(&format_f32, load(src, 2 * i, 4)),
                                 decode(&format_f32, load(src, 2 * i + 1, 4))};
}

static uint64_t reduce_complex(jackal_op op, const void *const *srcs, size_t n_srcs, size_t i) {
    if (op == JACKAL_SUM || op == JACKAL_MEAN)
        return reduce_float(JACKAL_COMPLEX64, op, srcs, n_srcs, 2 * i) |
               reduce_float(JACKAL_COMPLEX64, op, srcs, n_srcs, 2 * i + 1) << 32;
    struct complex_pair acc = decode_complex(srcs[0], i);
    for (size_t s = 1; s < n_srcs; s++)
        acc = step_complex(op, acc, decode_complex(srcs[s], i));
    if (op != JACKAL_PROD && (isnan(acc.re) || isnan(acc.im)))
        acc.re = acc.im = (double)NAN;
    return encode(&format_f32, acc.re) | encode(&format_f32, acc.im) << 32;
}

bool reference_allows(jackal_dtype dtype, jackal_op op) {
    return op != JACKAL_MEAN || format_of(dtype) != NULL;
}

void reference_reduce(jackal_dtype dtype, jackal_op op, void *dst, const void *const *srcs,
                      size_t n_srcs, size_t count) {
    assert(reference_allows(dtype, op));
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        if (dtype == JACKAL_BOOL)
            bits = reduce_bool(op, srcs, n_srcs, i);
        else if (dtype == JACKAL_COMPLEX64)
            bits = reduce_complex(op, srcs, n_srcs, i);
        else if (format_of(dtype))
            bits = reduce_float(dtype, op, srcs, n_srcs, i);
        else
            bits = reduce_integer(dtype, op, srcs, n_srcs, i);
        store(dst, i, reduce_dtype_bytes(dtype), bits);
    }
}

uint16_t reference_canonical_f16(uint16_t bits) {
    return isnan(decode(&format_f16, bits)) ? 0x7e00 : bits;
}

uint16_t reference_canonical_bf16(uint16_t bits) {
    return isnan(decode(&format_bf16, bits)) ? 0x7fc0 : bits;
}

/* --- data ------------------------------------------------------------------------------------- */

uint64_t reference_random(uint64_t *state_p) {
    /* A counter through a mixing function (splitmix64). */
    uint64_t mixed = *state_p += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

/*
 * Per format: zeros, the smallest denormal and its double, the largest denormal, the smallest
 * normal, 1 and its neighbours, 1.5, half a unit above 1 (in float16: 2048 and 1 and 3, which tie),
 * the largest, infinities, quiet and signalling NaNs with payloads, each with both signs.
 */
static const uint64_t specials_f16[] = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x8003, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x3bff, 0x3c00,
    0xbc00, 0x3c01, 0x3e00, 0x4200, 0x1000, 0x1400, 0x9000, 0x6800, 0x6801, 0xe800, 0x7bff, 0xfbff,
    0x4c00, 0x5000, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 0xfc01, 0x7dff, 0x7fff, 0xffff, 0x7e5a};
static const uint64_t specials_bf16[] = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x8003, 0x007f, 0x807f, 0x0080, 0x8080, 0x3f7f, 0x3f80,
    0xbf80, 0x3f81, 0x3fc0, 0x4040, 0x3b80, 0x3c00, 0xbb80, 0x4380, 0x4381, 0xc380, 0x7f7f, 0xff7f,
    0x7b00, 0x7b80, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fbf, 0x7fff, 0xffff, 0x7fda};
static const uint64_t specials_f32[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x80000003, 0x007fffff, 0x807fffff,
    0x00800000, 0x80800000, 0x3f7fffff, 0x3f800000, 0xbf800000, 0x3f800001, 0x3fc00000, 0x40400000,
    0x33800000, 0x34000000, 0xb3800000, 0x4b800000, 0x4b800001, 0xcb800000, 0x7f7fffff, 0xff7fffff,
    0x73000000, 0x1a000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001,
    0x7fbfffff, 0x7fffffff, 0xffffffff, 0x7fdabcde};
static const uint64_t specials_f64[] = {
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
    0x0000000000000002, 0x8000000000000003, 0x000fffffffffffff, 0x800fffffffffffff,
    0x0010000000000000, 0x8010000000000000, 0x3fefffffffffffff, 0x3ff0000000000000,
    0xbff0000000000000, 0x3ff0000000000001, 0x3ff8000000000000, 0x4008000000000000,
    0x3ca0000000000000, 0x3cb0000000000000, 0xbca0000000000000, 0x4340000000000000,
    0x4340000000000001, 0xc340000000000000, 0x7fefffffffffffff, 0xffefffffffffffff,
    0x7fd0000000000000, 0x1e00000000000000, 0x7ff0000000000000, 0xfff0000000000000,
    0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0xfff0000000000001,
    0x7ff7ffffffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0x7ffabcdef0123456};

#define LIST(list) (*list_p = (list), sizeof(list) / sizeof(list)[0])

size_t reference_specials(jackal_dtype dtype, const uint64_t **list_p) {
    switch (dtype) {
    case JACKAL_FLOAT16:
        return LIST(specials_f16);
    case JACKAL_BFLOAT16:
        return LIST(specials_bf16);
    case JACKAL_FLOAT32:
    case JACKAL_COMPLEX64:
        return LIST(specials_f32);
    case JACKAL_FLOAT64:
        return LIST(specials_f64);
    default:
        *list_p = NULL;
        return 0;
    }
}

static uint64_t some_float(jackal_dtype dtype, uint64_t *state_p) {
    const struct float_format *format = format_of(dtype);
    const uint64_t *list;
    const size_t n_list = reference_specials(dtype, &list);
    const uint64_t choice = reference_random(state_p) % 32;
    const uint64_t random = reference_random(state_p);
    if (choice == 0)
        return list[random % n_list];
    if (choice == 1)
        return random >> (64 - format_bits(format));
    const double fraction = (double)(random >> 12) * 0x1p-52;
    const double value = ldexp(1.0 + fraction, (int)(random % 5) - 2);
    return encode(format, random & 0x400 ? -value : value);
}

static uint64_t some_element(jackal_dtype dtype, uint64_t *state_p) {
    if (dtype == JACKAL_COMPLEX64) {
        const uint64_t re = some_float(dtype, state_p);
        return re | some_float(dtype, state_p) << 32;
    }
    if (format_of(dtype))
        return some_float(dtype, state_p);
    const uint64_t random = reference_random(state_p);
    if (dtype == JACKAL_BOOL)
        return random & 0x100 ? 0 : random & (random >> 16);
    /* A third of the integers is small, zero and minus one included. */
    return random % 3 ? random : (random >> 32) % 8 - 2;
}

void reference_fill(jackal_dtype dtype, void *dst, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++)
        store(dst, i, reduce_dtype_bytes(dtype), some_element(dtype, &seed));
}
