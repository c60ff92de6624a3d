/* SPDX-License-Identifier: MIT */
/*
 * What the kernel files share: the shape of their tables and the floating point environment.
 *
 * Results must not depend on what a host program did to its control register: -ffast-math start-up
 * code turns denormals off for the whole thread, numerical code changes the rounding mode, debug
 * builds unmask traps. A kernel that does floating point arithmetic runs between
 * reduce_float_enter() and reduce_float_leave(). Reading the register is cheap and writing it is
 * not, so it is written only when it differs.
 */
#ifndef REDUCE_KERNELS_H
#define REDUCE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "reduce/reduce.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define REDUCE_INLINE static inline __attribute__((always_inline))
#define REDUCE_APART  static __attribute__((noinline))

/* Element [dtype][op]; NULL where the pair is not allowed. */
struct reduce_table {
    reduce_kernel kernels[JACKAL_DTYPE_COUNT][JACKAL_OP_COUNT];
};

extern const struct reduce_table reduce_table_portable;
#if defined(__x86_64__)
extern const struct reduce_table reduce_table_avx2;
extern const struct reduce_table reduce_table_avx512;
#elif defined(__aarch64__)
extern const struct reduce_table reduce_table_neon;
#endif

/* The bits of a positive quiet NaN, of infinity and of everything but the sign. */
#define REDUCE_NAN_F16  0x7e00
#define REDUCE_NAN_BF16 0x7fc0
#define REDUCE_NAN_F32  0x7fc00000
#define REDUCE_NAN_F64  0x7ff8000000000000
#define REDUCE_INF_F16  0x7c00
#define REDUCE_INF_BF16 0x7f80
#define REDUCE_INF_F32  0x7f800000
#define REDUCE_INF_F64  0x7ff0000000000000
#define REDUCE_ABS_16   0x7fff
#define REDUCE_ABS_32   0x7fffffff
#define REDUCE_ABS_64   0x7fffffffffffffff

#if defined(__x86_64__)

/* MXCSR: all traps masked, round to nearest, no flushing; the low six bits are sticky flags. */
#define REDUCE_MXCSR_FLAGS 0x003fU
#define REDUCE_MXCSR_PLAIN 0x1f80U

REDUCE_INLINE uint64_t reduce_float_enter(void) {
    uint32_t saved = _mm_getcsr();
    if ((saved & ~REDUCE_MXCSR_FLAGS) != REDUCE_MXCSR_PLAIN)
        _mm_setcsr(REDUCE_MXCSR_PLAIN | (saved & REDUCE_MXCSR_FLAGS));
    return saved;
}

REDUCE_INLINE void reduce_float_leave(uint64_t saved) {
    uint32_t control = (uint32_t)saved;
    if ((control & ~REDUCE_MXCSR_FLAGS) != REDUCE_MXCSR_PLAIN)
        _mm_setcsr(control);
}

#elif defined(__aarch64__)

/*
 * FPCR: AHP (other half format), DN, FZ, rounding mode, FZ16, trap enables, and NEP, AH, FIZ of
 * newer processors.
 */
#define REDUCE_FPCR_ALTERS 0x07c89f07ULL

REDUCE_INLINE uint64_t reduce_float_enter(void) {
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    if (saved & REDUCE_FPCR_ALTERS)
        __asm__ volatile("msr fpcr, %0" : : "r"(saved & ~REDUCE_FPCR_ALTERS));
    return saved;
}

REDUCE_INLINE void reduce_float_leave(uint64_t saved) {
    if (saved & REDUCE_FPCR_ALTERS)
        __asm__ volatile("msr fpcr, %0" : : "r"(saved));
}

#else
#error "Jackal knows the floating point control register of x86-64 and arm64 only"
#endif

/*
 * Defines the kernel `name` as `name_bare` in the plain environment. `name_bare` must not be
 * inlined: the compiler knows no order between arithmetic and the control register, but it keeps
 * calls that write memory where they are.
 */
#define REDUCE_BARE REDUCE_APART void
#define REDUCE_IN_PLAIN_FLOAT(name)                                                                \
    static void name(void *dst, const void *const *srcs, size_t n_srcs, size_t count) {            \
        uint64_t saved = reduce_float_enter();                                                     \
        name##_bare(dst, srcs, n_srcs, count);                                                     \
        reduce_float_leave(saved);                                                                 \
    }

/*
 * The table of a kernel file: each file defines its kernels under the same (static) names, so the
 * rows are written once. Signed and unsigned integers share sum and product, which wrap alike.
 */
#define REDUCE_TABLE_ROWS                                                                          \
    {                                                                                              \
        {                                                                                          \
            [JACKAL_BOOL] = {or_bool, or_bool, and_bool, and_bool, NULL},                          \
            [JACKAL_INT8] = {sum_u8, max_i8, min_i8, prod_u8, NULL},                               \
            [JACKAL_INT16] = {sum_u16, max_i16, min_i16, prod_u16, NULL},                          \
            [JACKAL_INT32] = {sum_u32, max_i32, min_i32, prod_u32, NULL},                          \
            [JACKAL_INT64] = {sum_u64, max_i64, min_i64, prod_u64, NULL},                          \
            [JACKAL_UINT8] = {sum_u8, max_u8, min_u8, prod_u8, NULL},                              \
            [JACKAL_UINT16] = {sum_u16, max_u16, min_u16, prod_u16, NULL},                         \
            [JACKAL_UINT32] = {sum_u32, max_u32, min_u32, prod_u32, NULL},                         \
            [JACKAL_UINT64] = {sum_u64, max_u64, min_u64, prod_u64, NULL},                         \
            [JACKAL_FLOAT16] = {sum_f16, max_f16, min_f16, prod_f16, mean_f16},                    \
            [JACKAL_BFLOAT16] = {sum_bf16, max_bf16, min_bf16, prod_bf16, mean_bf16},              \
            [JACKAL_FLOAT32] = {sum_f32, max_f32, min_f32, prod_f32, mean_f32},                    \
            [JACKAL_FLOAT64] = {sum_f64, max_f64, min_f64, prod_f64, mean_f64},                    \
            [JACKAL_COMPLEX64] = {sum_c64, max_c64, min_c64, prod_c64, mean_c64},                  \
        },                                                                                         \
    }

_Static_assert(JACKAL_SUM == 0 && JACKAL_MAX == 1 && JACKAL_MIN == 2 && JACKAL_PROD == 3 &&
                   JACKAL_MEAN == 4,
               "the columns of REDUCE_TABLE_ROWS are in the order of the operators");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "kernels take bits apart");

#endif
