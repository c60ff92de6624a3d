/* SPDX-License-Identifier: MIT */
/*
 * The kernels on vectors: included once by each instruction set's file, which defines before it
 *
 *   REDUCE_WIDTH   bytes of a vector
 *   REDUCE_UNROLL  vectors of a source that are worked on together
 *
 * and, with the types of reduce/vector_types.h, larger_* and smaller_* of each integer type,
 * plain_nan_*, which replaces every NaN by the positive quiet one, expand_f16 and narrow_f16, and
 * load_part and store_part for the first bytes of a vector (at least one, not all).
 *
 * A kernel walks over blocks of a few vectors. For each it holds accumulators in registers and
 * takes the sources in order, so every source is read once and the result written once. The last,
 * shorter vector is padded with zeros and goes through the same instructions: there
 * is no second version of an operator whose bits could differ. A block reads all of its sources
 * before it writes, which is what makes "in place" work.
 */
#include <string.h>

#include "reduce/kernels.h"

/*
 * `LOAD(pointer)` makes an accumulator of a vector of a source, `STEP` adds one, `STORE` makes the
 * result.
 */
#define KERNEL(head, name, elem_bytes, acc_type, LOAD, STEP, STORE)                                \
    REDUCE_INLINE void name##_block(char *dst, const void *const *srcs, size_t n_srcs, size_t at,  \
                                    const size_t n_vectors) {                                      \
        acc_type acc[REDUCE_UNROLL];                                                               \
        for (size_t v = 0; v < n_vectors; v++)                                                     \
            acc[v] = LOAD((const char *)srcs[0] + at + v * REDUCE_WIDTH);                          \
        for (size_t s = 1; s < n_srcs; s++) {                                                      \
            const char *src = (const char *)srcs[s] + at;                                          \
            for (size_t v = 0; v < n_vectors; v++)                                                 \
                acc[v] = STEP(acc[v], LOAD(src + v * REDUCE_WIDTH));                               \
        }                                                                                          \
        for (size_t v = 0; v < n_vectors; v++)                                                     \
            STORE(dst + at + v * REDUCE_WIDTH, acc[v], n_srcs);                                    \
    }                                                                                              \
    REDUCE_INLINE void name##_tail(char *dst, const void *const *srcs, size_t n_srcs, size_t at,   \
                                   size_t n_bytes) {                                               \
        reduce_u8 part = load_part((const char *)srcs[0] + at, n_bytes);                           \
        acc_type acc = LOAD((const char *)&part);                                                  \
        for (size_t s = 1; s < n_srcs; s++) {                                                      \
            part = load_part((const char *)srcs[s] + at, n_bytes);                                 \
            acc = STEP(acc, LOAD((const char *)&part));                                            \
        }                                                                                          \
        STORE((char *)&part, acc, n_srcs);                                                         \
        store_part(dst + at, part, n_bytes);                                                       \
    }                                                                                              \
    head(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {                        \
        const size_t n_bytes = count * (elem_bytes);                                               \
        size_t at = 0;                                                                             \
        for (; n_bytes - at >= REDUCE_UNROLL * REDUCE_WIDTH; at += REDUCE_UNROLL * REDUCE_WIDTH)   \
            name##_block(dst, srcs, n_srcs, at, REDUCE_UNROLL);                                    \
        for (; n_bytes - at >= REDUCE_WIDTH; at += REDUCE_WIDTH)                                   \
            name##_block(dst, srcs, n_srcs, at, 1);                                                \
        if (at < n_bytes)                                                                          \
            name##_tail(dst, srcs, n_srcs, at, n_bytes - at);                                      \
    }

/* A kernel that computes with integers only, and one that needs the plain float environment. */
#define KERNEL_BITS(name, ...) KERNEL(static void name, name, __VA_ARGS__)
#define KERNEL_FLOAT(name, ...)                                                                    \
    KERNEL(REDUCE_BARE name##_bare, name, __VA_ARGS__)                                             \
    REDUCE_IN_PLAIN_FLOAT(name)

#define SUM_OF(a, b)  ((a) + (b))
#define PROD_OF(a, b) ((a) * (b))

/* --- bool and integers ------------------------------------------------------------------------ */

REDUCE_INLINE reduce_u8 load_true(const char *src) {
    return (reduce_u8)(load_u8(src) != 0);
}

REDUCE_INLINE void store_bool(char *dst, reduce_u8 acc, size_t n_srcs) {
    (void)n_srcs;
    store_u8(dst, acc & 1, 1);
}

#define OR_OF(a, b)  ((a) | (b))
#define AND_OF(a, b) ((a) & (b))

KERNEL_BITS(or_bool, 1, reduce_u8, load_true, OR_OF, store_bool)
KERNEL_BITS(and_bool, 1, reduce_u8, load_true, AND_OF, store_bool)

#define INTEGER(bits)                                                                              \
    KERNEL_BITS(sum_u##bits, bits / 8, reduce_u##bits, load_u##bits, SUM_OF, store_u##bits)        \
    KERNEL_BITS(prod_u##bits, bits / 8, reduce_u##bits, load_u##bits, PROD_OF, store_u##bits)      \
    KERNEL_BITS(max_u##bits, bits / 8, reduce_u##bits, load_u##bits, larger_u##bits,               \
                store_u##bits)                                                                     \
    KERNEL_BITS(min_u##bits, bits / 8, reduce_u##bits, load_u##bits, smaller_u##bits,              \
                store_u##bits)                                                                     \
    KERNEL_BITS(max_i##bits, bits / 8, reduce_i##bits, load_i##bits, larger_i##bits,               \
                store_i##bits)                                                                     \
    KERNEL_BITS(min_i##bits, bits / 8, reduce_i##bits, load_i##bits, smaller_i##bits, store_i##bits)

INTEGER(8)
INTEGER(16)
INTEGER(32)
INTEGER(64)

/* --- max and min of real floats, on their bits ------------------------------------------------ */

/*
 * As integers of the key, floats are ordered -inf ... -0, +0 ... +inf, with NaNs beyond either end
 * by their sign. Both the largest and the smallest key are kept: a NaN was among the elements if
 * and only if one of them is beyond infinity. The map from bits to key is its own inverse.
 */
#define FLOAT_ORDER(suffix, bits, inf_bits, nan_bits)                                              \
    struct span_##suffix {                                                                         \
        reduce_i##bits top, bottom;                                                                \
    };                                                                                             \
    REDUCE_INLINE reduce_i##bits key_##suffix(reduce_i##bits value) {                              \
        return value ^ ((value >> (bits - 1)) & REDUCE_ABS_##bits);                                \
    }                                                                                              \
    REDUCE_INLINE struct span_##suffix span_##suffix(const char *src) {                            \
        reduce_i##bits key = key_##suffix(load_i##bits(src));                                      \
        return (struct span_##suffix){key, key};                                                   \
    }                                                                                              \
    REDUCE_INLINE struct span_##suffix join_##suffix(struct span_##suffix a,                       \
                                                     struct span_##suffix b) {                     \
        return (struct span_##suffix){larger_i##bits(a.top, b.top),                                \
                                      smaller_i##bits(a.bottom, b.bottom)};                        \
    }                                                                                              \
    REDUCE_INLINE reduce_i##bits settle_##suffix(struct span_##suffix acc, reduce_i##bits key) {   \
        reduce_i##bits is_nan = (acc.top > inf_bits) | (acc.bottom < ~inf_bits);                   \
        return (key_##suffix(key) & ~is_nan) | (is_nan & nan_bits);                                \
    }                                                                                              \
    REDUCE_INLINE void store_top_##suffix(char *dst, struct span_##suffix acc, size_t n_srcs) {    \
        store_i##bits(dst, settle_##suffix(acc, acc.top), n_srcs);                                 \
    }                                                                                              \
    REDUCE_INLINE void store_bottom_##suffix(char *dst, struct span_##suffix acc, size_t n_srcs) { \
        store_i##bits(dst, settle_##suffix(acc, acc.bottom), n_srcs);                              \
    }                                                                                              \
    KERNEL_BITS(max_##suffix, bits / 8, struct span_##suffix, span_##suffix, join_##suffix,        \
                store_top_##suffix)                                                                \
    KERNEL_BITS(min_##suffix, bits / 8, struct span_##suffix, span_##suffix, join_##suffix,        \
                store_bottom_##suffix)

FLOAT_ORDER(f16, 16, REDUCE_INF_F16, REDUCE_NAN_F16)
FLOAT_ORDER(bf16, 16, REDUCE_INF_BF16, REDUCE_NAN_BF16)
FLOAT_ORDER(f32, 32, REDUCE_INF_F32, REDUCE_NAN_F32)
FLOAT_ORDER(f64, 64, REDUCE_INF_F64, REDUCE_NAN_F64)

/* --- sum, prod and mean of real floats -------------------------------------------------------- */

REDUCE_INLINE void put_f32(char *dst, reduce_f32 value) {
    store_f32(dst, plain_nan_f32(value), 1);
}

REDUCE_INLINE void put_f64(char *dst, reduce_f64 value) {
    store_f64(dst, plain_nan_f64(value), 1);
}

/* A vector of 16-bit floats as two of float32. */
struct reduce_pair {
    reduce_f32 a, b;
};

REDUCE_INLINE struct reduce_pair pair_sum(struct reduce_pair x, struct reduce_pair y) {
    return (struct reduce_pair){x.a + y.a, x.b + y.b};
}

REDUCE_INLINE struct reduce_pair pair_prod(struct reduce_pair x, struct reduce_pair y) {
    return (struct reduce_pair){x.a * y.a, x.b * y.b};
}

/*
 * bfloat16 is the upper half of a float32, so the elements of even number are a shift away and
 * those of odd number a mask: no element changes its lane. The processors' own conversions flush
 * denormals.
 */
REDUCE_INLINE struct reduce_pair load_bf16(const char *src) {
    reduce_u32 bits = load_u32(src);
    return (struct reduce_pair){(reduce_f32)(bits << 16), (reduce_f32)(bits & 0xffff0000)};
}

/*
 * Rounds to nearest even in the upper 16 bits of each lane; the lower ones are left over. The plain
 * NaN has too few bits set for the addition to reach its upper half.
 */
REDUCE_INLINE reduce_u32 round_bf16(reduce_f32 value) {
    reduce_u32 bits = (reduce_u32)plain_nan_f32(value);
    return bits + 0x7fff + ((bits >> 16) & 1);
}

REDUCE_INLINE void put_bf16(char *dst, struct reduce_pair value) {
    store_u32(dst, (round_bf16(value.a) >> 16) | (round_bf16(value.b) & 0xffff0000), 1);
}

REDUCE_INLINE struct reduce_pair load_f16(const char *src) {
    return (struct reduce_pair){expand_f16(src), expand_f16(src + REDUCE_WIDTH / 2)};
}

REDUCE_INLINE void put_f16(char *dst, struct reduce_pair value) {
    narrow_f16(dst, plain_nan_f32(value.a));
    narrow_f16(dst + REDUCE_WIDTH / 2, plain_nan_f32(value.b));
}

#define SHARE_OF(acc, n_srcs) ((acc) / (n_srcs))

REDUCE_INLINE struct reduce_pair pair_share(struct reduce_pair acc, float n_srcs) {
    return (struct reduce_pair){acc.a / n_srcs, acc.b / n_srcs};
}

#define FLOAT_ARITHMETIC(suffix, bytes, acc_type, divisor_type, SUM, PROD, SHARE)                  \
    REDUCE_INLINE void store_whole_##suffix(char *dst, acc_type acc, size_t n_srcs) {              \
        (void)n_srcs;                                                                              \
        put_##suffix(dst, acc);                                                                    \
    }                                                                                              \
    REDUCE_INLINE void store_share_##suffix(char *dst, acc_type acc, size_t n_srcs) {              \
        put_##suffix(dst, SHARE(acc, (divisor_type)n_srcs));                                       \
    }                                                                                              \
    KERNEL_FLOAT(sum_##suffix, bytes, acc_type, load_##suffix, SUM, store_whole_##suffix)          \
    KERNEL_FLOAT(prod_##suffix, bytes, acc_type, load_##suffix, PROD, store_whole_##suffix)        \
    KERNEL_FLOAT(mean_##suffix, bytes, acc_type, load_##suffix, SUM, store_share_##suffix)

FLOAT_ARITHMETIC(f16, 2, struct reduce_pair, float, pair_sum, pair_prod, pair_share)
FLOAT_ARITHMETIC(bf16, 2, struct reduce_pair, float, pair_sum, pair_prod, pair_share)
FLOAT_ARITHMETIC(f32, 4, reduce_f32, float, SUM_OF, PROD_OF, SHARE_OF)
FLOAT_ARITHMETIC(f64, 8, reduce_f64, double, SUM_OF, PROD_OF, SHARE_OF)

/* --- complex: a 64-bit lane with the real part in its lower half ------------------------------ */

/* Sum and mean treat the two parts as two floats. */
static void sum_c64(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {
    sum_f32(dst, srcs, n_srcs, 2 * count);
}

static void mean_c64(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {
    mean_f32(dst, srcs, n_srcs, 2 * count);
}

#define REAL_HALF      0xffffffffULL
#define IMAGINARY_HALF 0xffffffff00000000ULL

/* (ac - bd, ad + bc): the subtraction is the addition of the negated product, to the same bits. */
REDUCE_INLINE reduce_f32 complex_prod(reduce_f32 x, reduce_f32 y) {
    reduce_u64 x_bits = (reduce_u64)x, y_bits = (reduce_u64)y;
    reduce_f32 real_twice = (reduce_f32)((x_bits & REAL_HALF) | (x_bits << 32));
    reduce_f32 imaginary_twice = (reduce_f32)((x_bits & IMAGINARY_HALF) | (x_bits >> 32));
    reduce_f32 swapped = (reduce_f32)((y_bits << 32) | (y_bits >> 32));
    reduce_u64 crossed = (reduce_u64)(imaginary_twice * swapped) ^ 0x80000000ULL;
    return real_twice * y + (reduce_f32)crossed;
}

KERNEL_FLOAT(prod_c64, 8, reduce_f32, load_f32, complex_prod, store_whole_f32)

/*
 * Order of complex numbers: the real parts decide, then the imaginary parts, both as numbers (so
 * the zeros are equal); what is left is a difference in the signs of zeros, real part first, with
 * -0 below +0. `number` and `exact` are the keys of both parts in one integer, without and with
 * the signs of zeros.
 */
struct reduce_complex {
    reduce_i64 number, exact, is_nan;
};

REDUCE_INLINE reduce_i64 complex_key(reduce_i32 keys) {
    /* The real part goes on top; the lower half then has to compare as unsigned. */
    reduce_u64 both = (reduce_u64)keys;
    return (reduce_i64)(((both << 32) | (both >> 32)) ^ 0x80000000ULL);
}

REDUCE_INLINE struct reduce_complex load_complex(const char *src) {
    reduce_i32 bits = load_i32(src);
    reduce_i32 magnitude = bits & REDUCE_ABS_32;
    reduce_i32 keys = key_f32(bits);
    reduce_u64 nan_parts = (reduce_u64)(magnitude > REDUCE_INF_F32);
    return (struct reduce_complex){
        .number = complex_key(keys & (magnitude != 0)),
        .exact = complex_key(keys),
        .is_nan = (reduce_i64)(nan_parts | (nan_parts << 32) | (nan_parts >> 32)),
    };
}

REDUCE_INLINE struct reduce_complex choose_complex(struct reduce_complex a, struct reduce_complex b,
                                                   reduce_i64 take_b) {
    return (struct reduce_complex){
        .number = (a.number & ~take_b) | (b.number & take_b),
        .exact = (a.exact & ~take_b) | (b.exact & take_b),
        .is_nan = a.is_nan | b.is_nan,
    };
}

REDUCE_INLINE struct reduce_complex larger_complex(struct reduce_complex a,
                                                   struct reduce_complex b) {
    reduce_i64 is_tie = a.number == b.number;
    return choose_complex(a, b, (b.number > a.number) | (is_tie & (b.exact > a.exact)));
}

REDUCE_INLINE struct reduce_complex smaller_complex(struct reduce_complex a,
                                                    struct reduce_complex b) {
    reduce_i64 is_tie = a.number == b.number;
    return choose_complex(a, b, (b.number < a.number) | (is_tie & (b.exact < a.exact)));
}

REDUCE_INLINE void store_complex(char *dst, struct reduce_complex acc, size_t n_srcs) {
    reduce_u64 both = (reduce_u64)acc.exact ^ 0x80000000ULL;
    reduce_i32 bits = key_f32((reduce_i32)((both << 32) | (both >> 32)));
    reduce_i32 is_nan = (reduce_i32)acc.is_nan;
    store_i32(dst, (bits & ~is_nan) | (is_nan & REDUCE_NAN_F32), n_srcs);
}

KERNEL_BITS(max_c64, 8, struct reduce_complex, load_complex, larger_complex, store_complex)
KERNEL_BITS(min_c64, 8, struct reduce_complex, load_complex, smaller_complex, store_complex)
