/* SPDX-License-Identifier: MIT */
/*
 * The kernels in plain C, an element at a time: what a processor without the wider files runs, and
 * the simplest statement of the rules.
 */
#include <string.h>

#include "reduce/kernels.h"

/* `LOAD` makes an accumulator of an element, `STEP` adds one, `STORE` makes the result of it. */
#define KERNEL(head, elem, acc_type, LOAD, STEP, STORE)                                            \
    head(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {                        \
        for (size_t i = 0; i < count; i++) {                                                       \
            elem value;                                                                            \
            memcpy(&value, (const char *)srcs[0] + i * sizeof value, sizeof value);                \
            acc_type acc = LOAD(value);                                                            \
            for (size_t s = 1; s < n_srcs; s++) {                                                  \
                memcpy(&value, (const char *)srcs[s] + i * sizeof value, sizeof value);            \
                acc = STEP(acc, LOAD(value));                                                      \
            }                                                                                      \
            value = STORE(acc, n_srcs);                                                            \
            memcpy((char *)dst + i * sizeof value, &value, sizeof value);                          \
        }                                                                                          \
    }

#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define AS_IS(a)     (a)
#define KEEP(a, n)   (a)

/* --- bool and integers ------------------------------------------------------------------------ */

#define IS_TRUE(a)   ((uint8_t)((a) != 0))
#define OR_OF(a, b)  ((uint8_t)((a) | (b)))
#define AND_OF(a, b) ((uint8_t)((a) & (b)))

KERNEL(static void or_bool, uint8_t, uint8_t, IS_TRUE, OR_OF, KEEP)
KERNEL(static void and_bool, uint8_t, uint8_t, IS_TRUE, AND_OF, KEEP)

/* In 64 bits and unsigned, where neither a promotion to int nor an overflow can be undefined. */
#define SUM_OF(a, b)  ((a) + (b))
#define PROD_OF(a, b) ((a) * (b))
#define WIDE(a)       ((uint64_t)(a))
#define LOW_8(a, n)   ((uint8_t)(a))
#define LOW_16(a, n)  ((uint16_t)(a))
#define LOW_32(a, n)  ((uint32_t)(a))

KERNEL(static void sum_u8, uint8_t, uint64_t, WIDE, SUM_OF, LOW_8)
KERNEL(static void sum_u16, uint16_t, uint64_t, WIDE, SUM_OF, LOW_16)
KERNEL(static void sum_u32, uint32_t, uint64_t, WIDE, SUM_OF, LOW_32)
KERNEL(static void sum_u64, uint64_t, uint64_t, WIDE, SUM_OF, KEEP)
KERNEL(static void prod_u8, uint8_t, uint64_t, WIDE, PROD_OF, LOW_8)
KERNEL(static void prod_u16, uint16_t, uint64_t, WIDE, PROD_OF, LOW_16)
KERNEL(static void prod_u32, uint32_t, uint64_t, WIDE, PROD_OF, LOW_32)
KERNEL(static void prod_u64, uint64_t, uint64_t, WIDE, PROD_OF, KEEP)

#define INTEGER_ORDER(suffix, type)                                                                \
    KERNEL(static void max_##suffix, type, type, AS_IS, MAX_OF, KEEP)                              \
    KERNEL(static void min_##suffix, type, type, AS_IS, MIN_OF, KEEP)

INTEGER_ORDER(i8, int8_t)
INTEGER_ORDER(i16, int16_t)
INTEGER_ORDER(i32, int32_t)
INTEGER_ORDER(i64, int64_t)
INTEGER_ORDER(u8, uint8_t)
INTEGER_ORDER(u16, uint16_t)
INTEGER_ORDER(u32, uint32_t)
INTEGER_ORDER(u64, uint64_t)

/* --- max and min of real floats, on their bits ------------------------------------------------ */

/*
 * As integers of the key, floats are ordered -inf ... -0, +0 ... +inf, so zeros need no rule of
 * their own. A NaN gets the key beyond the end that wins. The map is its own inverse.
 */
#define FLOAT_ORDER(suffix, type, abs_bits, inf_bits, nan_bits)                                    \
    REDUCE_INLINE type key_##suffix(type bits) {                                                   \
        return bits < 0 ? (type)(bits ^ (type)abs_bits) : bits;                                    \
    }                                                                                              \
    REDUCE_INLINE type max_key_##suffix(type bits) {                                               \
        return (bits & (type)abs_bits) > (type)inf_bits ? (type)nan_bits : key_##suffix(bits);     \
    }                                                                                              \
    REDUCE_INLINE type min_key_##suffix(type bits) {                                               \
        return (bits & (type)abs_bits) > (type)inf_bits ? (type) ~(type)nan_bits                   \
                                                        : key_##suffix(bits);                      \
    }                                                                                              \
    REDUCE_INLINE type of_max_##suffix(type key, size_t n_srcs) {                                  \
        (void)n_srcs;                                                                              \
        return key_##suffix(key);                                                                  \
    }                                                                                              \
    REDUCE_INLINE type of_min_##suffix(type key, size_t n_srcs) {                                  \
        (void)n_srcs;                                                                              \
        return key == (type) ~(type)nan_bits ? (type)nan_bits : key_##suffix(key);                 \
    }                                                                                              \
    KERNEL(static void max_##suffix, type, type, max_key_##suffix, MAX_OF, of_max_##suffix)        \
    KERNEL(static void min_##suffix, type, type, min_key_##suffix, MIN_OF, of_min_##suffix)

FLOAT_ORDER(f16, int16_t, REDUCE_ABS_16, REDUCE_INF_F16, REDUCE_NAN_F16)
FLOAT_ORDER(bf16, int16_t, REDUCE_ABS_16, REDUCE_INF_BF16, REDUCE_NAN_BF16)
FLOAT_ORDER(f32, int32_t, REDUCE_ABS_32, REDUCE_INF_F32, REDUCE_NAN_F32)
FLOAT_ORDER(f64, int64_t, REDUCE_ABS_64, REDUCE_INF_F64, REDUCE_NAN_F64)

/* --- sum, prod and mean of real floats -------------------------------------------------------- */

REDUCE_INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

REDUCE_INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

REDUCE_INLINE float from_bf16(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

REDUCE_INLINE uint16_t to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & REDUCE_ABS_32) > REDUCE_INF_F32)
        return REDUCE_NAN_BF16;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

REDUCE_INLINE float from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t magnitude = half & REDUCE_ABS_16;
    if (magnitude >= REDUCE_INF_F16)
        return float_of(sign | REDUCE_INF_F32 | (magnitude - REDUCE_INF_F16) << 13);
    if (magnitude < 0x0400)
        return float_of(sign | bits_of((float)magnitude * 0x1p-24F));
    /* The exponent's bias goes from 15 to 127. */
    return float_of(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

REDUCE_INLINE uint16_t to_f16(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & REDUCE_ABS_32;
    if (magnitude > REDUCE_INF_F32)
        return REDUCE_NAN_F16;
    if (magnitude >= bits_of(65520.0F))
        return (uint16_t)(sign | REDUCE_INF_F16);
    if (magnitude < bits_of(0x1p-14F)) {
        /* One unit of the last place of 0.5 is the smallest denormal: the addition rounds. */
        return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F)));
    }
    magnitude += 0x0fff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - ((127U - 15U) << 23)) >> 13);
}

REDUCE_INLINE float to_f32(float value) {
    return value == value ? value : float_of(REDUCE_NAN_F32);
}

REDUCE_INLINE double to_f64(double value) {
    const uint64_t nan_bits = REDUCE_NAN_F64;
    double nan_value;
    memcpy(&nan_value, &nan_bits, sizeof nan_value);
    return value == value ? value : nan_value;
}

#define FLOAT_ARITHMETIC(suffix, elem, acc_type, FROM, TO)                                         \
    REDUCE_INLINE elem whole_##suffix(acc_type acc, size_t n_srcs) {                               \
        (void)n_srcs;                                                                              \
        return TO(acc);                                                                            \
    }                                                                                              \
    REDUCE_INLINE elem share_##suffix(acc_type acc, size_t n_srcs) {                               \
        return TO(acc / (acc_type)n_srcs);                                                         \
    }                                                                                              \
    KERNEL(REDUCE_BARE sum_##suffix##_bare, elem, acc_type, FROM, SUM_OF, whole_##suffix)          \
    KERNEL(REDUCE_BARE prod_##suffix##_bare, elem, acc_type, FROM, PROD_OF, whole_##suffix)        \
    KERNEL(REDUCE_BARE mean_##suffix##_bare, elem, acc_type, FROM, SUM_OF, share_##suffix)         \
    REDUCE_IN_PLAIN_FLOAT(sum_##suffix)                                                            \
    REDUCE_IN_PLAIN_FLOAT(prod_##suffix)                                                           \
    REDUCE_IN_PLAIN_FLOAT(mean_##suffix)

FLOAT_ARITHMETIC(f16, uint16_t, float, from_f16, to_f16)
FLOAT_ARITHMETIC(bf16, uint16_t, float, from_bf16, to_bf16)
FLOAT_ARITHMETIC(f32, float, float, AS_IS, to_f32)
FLOAT_ARITHMETIC(f64, double, double, AS_IS, to_f64)

/* --- complex ---------------------------------------------------------------------------------- */

/* Sum and mean treat the two parts as two floats. */
static void sum_c64(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {
    sum_f32(dst, srcs, n_srcs, 2 * count);
}

static void mean_c64(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {
    mean_f32(dst, srcs, n_srcs, 2 * count);
}

struct complex_value {
    float re, im;
};

REDUCE_INLINE struct complex_value prod_of_complex(struct complex_value a, struct complex_value b) {
    return (struct complex_value){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

REDUCE_INLINE struct complex_value to_c64(struct complex_value value, size_t n_srcs) {
    (void)n_srcs;
    return (struct complex_value){to_f32(value.re), to_f32(value.im)};
}

KERNEL(REDUCE_BARE prod_c64_bare, struct complex_value, struct complex_value, AS_IS,
       prod_of_complex, to_c64)
REDUCE_IN_PLAIN_FLOAT(prod_c64)

/*
 * Order of complex numbers: the real parts decide, then the imaginary parts, both as numbers (so
 * the zeros are equal); what is left is a difference in the signs of zeros, real part first, with
 * -0 below +0. This is a total order, hence the result does not depend on the order of ranks.
 */
struct complex_bits {
    int32_t re, im;
};

REDUCE_INLINE struct complex_bits complex_nan_pair(struct complex_bits bits) {
    if (max_key_f32(bits.re) == REDUCE_NAN_F32 || max_key_f32(bits.im) == REDUCE_NAN_F32)
        return (struct complex_bits){REDUCE_NAN_F32, REDUCE_NAN_F32};
    return bits;
}

/* The key of a float, with both zeros at 0. */
REDUCE_INLINE int32_t number_key(int32_t bits) {
    return (bits & REDUCE_ABS_32) == 0 ? 0 : key_f32(bits);
}

REDUCE_INLINE int compare_complex(struct complex_bits a, struct complex_bits b) {
    const int32_t keys_a[] = {number_key(a.re), number_key(a.im), key_f32(a.re), key_f32(a.im)};
    const int32_t keys_b[] = {number_key(b.re), number_key(b.im), key_f32(b.re), key_f32(b.im)};
    for (size_t i = 0; i < sizeof keys_a / sizeof keys_a[0]; i++) {
        if (keys_a[i] != keys_b[i])
            return keys_a[i] < keys_b[i] ? -1 : 1;
    }
    return 0;
}

REDUCE_INLINE struct complex_bits max_of_complex(struct complex_bits a, struct complex_bits b) {
    /* A NaN's key is above all others already. */
    return compare_complex(a, b) > 0 ? a : b;
}

REDUCE_INLINE struct complex_bits min_of_complex(struct complex_bits a, struct complex_bits b) {
    if (b.re == REDUCE_NAN_F32)
        return b;
    return a.re == REDUCE_NAN_F32 || compare_complex(a, b) < 0 ? a : b;
}

KERNEL(static void max_c64, struct complex_bits, struct complex_bits, complex_nan_pair,
       max_of_complex, KEEP)
KERNEL(static void min_c64, struct complex_bits, struct complex_bits, complex_nan_pair,
       min_of_complex, KEEP)

const struct reduce_table reduce_table_portable = REDUCE_TABLE_ROWS;
