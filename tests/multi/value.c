/* SPDX-License-Identifier: MIT */
#include "value.h"

#include "ranks.h"

#include <math.h>
#include <string.h>

static const struct {
    unsigned bytes;
    const char *name;
} dtypes[] = {
#define ROW(name, number, bytes, word) {bytes, word},
    JACKAL_DTYPE_TABLE(ROW)
#undef ROW
};

static const char *const ops[] = {
#define ROW(name, number, word) word,
    JACKAL_OP_TABLE(ROW)
#undef ROW
};

unsigned value_bytes(jackal_dtype dtype) {
    return dtypes[dtype].bytes;
}

const char *value_dtype_name(jackal_dtype dtype) {
    return dtypes[dtype].name;
}

const char *value_op_name(jackal_op op) {
    return ops[op];
}

bool value_is_float(jackal_dtype dtype) {
    return dtype >= JACKAL_FLOAT16;
}

bool value_allows(jackal_dtype dtype, jackal_op op) {
    return op != JACKAL_MEAN || value_is_float(dtype);
}

uint64_t value_load(const void *bytes, jackal_dtype dtype, uint64_t index) {
    uint8_t part[8] = {0};
    uint64_t bits = 0;
    unsigned n = value_bytes(dtype);
    memcpy(part, (const uint8_t *)bytes + index * n, n);
    for (unsigned i = 0; i < n; i++)
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        bits = bits << 8 | part[i];
#else
        bits |= (uint64_t)part[i] << 8 * i;
#endif
    return bits;
}

void value_store(void *bytes, jackal_dtype dtype, uint64_t index, uint64_t bits) {
    uint8_t part[8];
    unsigned n = value_bytes(dtype);
    for (unsigned i = 0; i < n; i++)
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        part[n - 1 - i] = (uint8_t)(bits >> 8 * i);
#else
        part[i] = (uint8_t)(bits >> 8 * i);
#endif
    memcpy((uint8_t *)bytes + index * n, part, n);
}

/* ---- floats as numbers ------------------------------------------------------------------------
 */

static float float_of(uint64_t bits) {
    uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof value);
    return value;
}

static uint64_t bits_of_float(float value) {
    uint32_t bits;
    if (isnan(value))
        return 0x7fc00000;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value) {
    uint64_t bits;
    if (isnan(value))
        return 0x7ff8000000000000u;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float value_from_half(jackal_dtype dtype, uint16_t bits) {
    if (dtype == JACKAL_BFLOAT16)
        return float_of((uint64_t)bits << 16);
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(fraction + 1024), exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/* Rounds to the nearest multiple of the format's unit at this size, ties to even. */
static uint16_t round_half(float value, int fraction_bits, int min_exponent, int max_exponent) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int bias = max_exponent;
    uint16_t infinity = (uint16_t)((2 * bias + 1) << fraction_bits);
    if (isinf(value))
        return sign | infinity;
    if (value == 0.0f)
        return sign;
    int exponent = ilogbf(value);
    exponent = exponent < min_exponent ? min_exponent : exponent;
    double units = nearbyint(ldexp(fabs((double)value), fraction_bits - exponent));
    /* A unit too many carries into the exponent by itself. */
    uint32_t bits = (uint32_t)units + ((uint32_t)(exponent - min_exponent) << fraction_bits);
    return sign | (bits > infinity ? infinity : (uint16_t)bits);
}

uint16_t value_to_half(jackal_dtype dtype, float value) {
    if (isnan(value))
        return dtype == JACKAL_FLOAT16 ? 0x7e00 : 0x7fc0;
    return dtype == JACKAL_FLOAT16 ? round_half(value, 10, -14, 15)
                                   : round_half(value, 7, -126, 127);
}

/* ---- combining --------------------------------------------------------------------------------
 */

static int64_t as_signed(jackal_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case JACKAL_INT8:
        return (int8_t)bits;
    case JACKAL_INT16:
        return (int16_t)bits;
    case JACKAL_INT32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

static bool is_less(jackal_dtype dtype, uint64_t a, uint64_t b) {
    bool is_signed = dtype >= JACKAL_INT8 && dtype <= JACKAL_INT64;
    return is_signed ? as_signed(dtype, a) < as_signed(dtype, b) : a < b;
}

static uint64_t combine_integers(jackal_dtype dtype, jackal_op op, const uint64_t *bits, int n) {
    uint64_t result = bits[0];
    for (int i = 1; i < n; i++) {
        if (op == JACKAL_SUM)
            result += bits[i];
        else if (op == JACKAL_PROD)
            result *= bits[i];
        else if (op == JACKAL_MAX)
            result = is_less(dtype, result, bits[i]) ? bits[i] : result;
        else
            result = is_less(dtype, bits[i], result) ? bits[i] : result;
        if (value_bytes(dtype) < 8)
            result &= (UINT64_C(1) << 8 * value_bytes(dtype)) - 1;
    }
    return result;
}

static uint64_t combine_bools(jackal_op op, const uint64_t *bits, int n) {
    int n_true = 0;
    for (int i = 0; i < n; i++)
        n_true += bits[i] != 0;
    return op == JACKAL_SUM || op == JACKAL_MAX ? n_true > 0 : n_true == n;
}

static bool is_below(double a, double b) {
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double extreme(jackal_op op, double a, double b) {
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (op == JACKAL_MAX)
        return is_below(a, b) ? b : a;
    return is_below(b, a) ? b : a;
}

static double combine_doubles(jackal_op op, const double *values, int n) {
    double result = values[0];
    for (int i = 1; i < n; i++) {
        if (op == JACKAL_MAX || op == JACKAL_MIN)
            result = extreme(op, result, values[i]);
        else if (op == JACKAL_PROD)
            result *= values[i];
        else
            result += values[i];
    }
    return op == JACKAL_MEAN ? result / n : result;
}

static float combine_floats(jackal_op op, const float *values, int n) {
    float result = values[0];
    for (int i = 1; i < n; i++) {
        if (op == JACKAL_MAX || op == JACKAL_MIN)
            result = (float)extreme(op, (double)result, (double)values[i]);
        else if (op == JACKAL_PROD)
            result *= values[i];
        else
            result += values[i];
    }
    return op == JACKAL_MEAN ? result / (float)n : result;
}

struct complex_value {
    float re, im;
};

static bool complex_below(struct complex_value a, struct complex_value b) {
    if (a.re != b.re)
        return a.re < b.re;
    if (a.im != b.im)
        return a.im < b.im;
    if (!signbit(a.re) != !signbit(b.re))
        return signbit(a.re);
    return signbit(a.im) && !signbit(b.im);
}

static struct complex_value times(struct complex_value a, struct complex_value b) {
    /* Statements of their own, so that nothing is contracted. */
    volatile float ac = a.re * b.re, bd = a.im * b.im, ad = a.re * b.im, bc = a.im * b.re;
    return (struct complex_value){ac - bd, ad + bc};
}

static uint64_t combine_complex(jackal_op op, const uint64_t *bits, int n) {
    struct complex_value result = {float_of(bits[0]), float_of(bits[0] >> 32)};
    bool is_extreme = op == JACKAL_MAX || op == JACKAL_MIN;
    bool has_nan = isnan(result.re) || isnan(result.im);
    for (int i = 1; i < n; i++) {
        struct complex_value next = {float_of(bits[i]), float_of(bits[i] >> 32)};
        has_nan = has_nan || isnan(next.re) || isnan(next.im);
        if (op == JACKAL_PROD)
            result = times(result, next);
        else if (op == JACKAL_MAX)
            result = complex_below(result, next) ? next : result;
        else if (op == JACKAL_MIN)
            result = complex_below(next, result) ? next : result;
        else
            result = (struct complex_value){result.re + next.re, result.im + next.im};
    }
    if (op == JACKAL_MEAN)
        result = (struct complex_value){result.re / (float)n, result.im / (float)n};
    if (is_extreme && has_nan)
        result = (struct complex_value){NAN, NAN};
    return bits_of_float(result.re) | bits_of_float(result.im) << 32;
}

uint64_t value_combine(jackal_dtype dtype, jackal_op op, const uint64_t *bits, int n) {
    if (dtype == JACKAL_BOOL)
        return combine_bools(op, bits, n);
    if (dtype == JACKAL_COMPLEX64)
        return combine_complex(op, bits, n);
    if (dtype == JACKAL_FLOAT64) {
        double values[RANKS_MAX] = {0};
        for (int i = 0; i < n; i++)
            values[i] = double_of(bits[i]);
        return bits_of_double(combine_doubles(op, values, n));
    }
    if (!value_is_float(dtype))
        return combine_integers(dtype, op, bits, n);
    float values[RANKS_MAX] = {0};
    bool is_half = dtype != JACKAL_FLOAT32;
    for (int i = 0; i < n; i++)
        values[i] = is_half ? value_from_half(dtype, (uint16_t)bits[i]) : float_of(bits[i]);
    float result = combine_floats(op, values, n);
    return is_half ? value_to_half(dtype, result) : bits_of_float(result);
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* One in 64: zero, infinity, smallest denormal, or any bits at all, of either sign. */
static uint64_t special(uint64_t random, unsigned n_bits, uint64_t infinity) {
    uint64_t sign = (random >> 8 & 1) << (n_bits - 1);
    switch (random >> 6 & 3) {
    case 0:
        return sign;
    case 1:
        return sign | infinity;
    case 2:
        return sign | 1;
    default:
        return n_bits == 64 ? random : random >> (64 - n_bits);
    }
}

/* Between 1/4 and 8, with all bits of the fraction in use. */
static uint64_t plain(uint64_t random, unsigned n_bits, unsigned n_fraction, uint64_t bias) {
    uint64_t sign = random >> 63 << (n_bits - 1);
    uint64_t exponent = bias - 2 + (random >> 58 & 31) % 5;
    return sign | exponent << n_fraction | (random & ((UINT64_C(1) << n_fraction) - 1));
}

static uint64_t some_float(jackal_dtype dtype, uint64_t random) {
    bool is_special = (random & 63) == 1;
    switch (dtype) {
    case JACKAL_FLOAT16:
        return is_special ? special(random, 16, 0x7c00) : plain(random, 16, 10, 15);
    case JACKAL_BFLOAT16:
        return is_special ? special(random, 16, 0x7f80) : plain(random, 16, 7, 127);
    case JACKAL_FLOAT64:
        return is_special ? special(random, 64, 0x7ff0000000000000u) : plain(random, 64, 52, 1023);
    default:
        return is_special ? special(random, 32, 0x7f800000) : plain(random, 32, 23, 127);
    }
}

uint64_t value_of(jackal_dtype dtype, uint64_t call, int rank, uint64_t index) {
    uint64_t random = ranks_hash(call, (uint64_t)rank, index);
    if (dtype == JACKAL_COMPLEX64)
        return some_float(dtype, random) | some_float(dtype, ranks_hash(random, 1, 2)) << 32;
    if (value_is_float(dtype))
        return some_float(dtype, random);
    if (dtype == JACKAL_BOOL) /* any byte but zero is true */
        return (random >> 8 & 1) != 0 ? 0 : random & 255;
    unsigned n_bits = 8 * value_bytes(dtype);
    return n_bits == 64 ? random : random & ((UINT64_C(1) << n_bits) - 1);
}
