/* SPDX-License-Identifier: MIT */
/* The kernels for x86-64 with AVX-512 (F, BW, VL, DQ): 64 bytes a vector, 32 registers. */
#if defined(__x86_64__)

#include <immintrin.h>

#define REDUCE_WIDTH  64
#define REDUCE_UNROLL 4

#include "reduce/vector_types.h"

REDUCE_PICK_INSTRUCTION(i8, _mm512_max_epi8, _mm512_min_epi8, __m512i)
REDUCE_PICK_INSTRUCTION(u8, _mm512_max_epu8, _mm512_min_epu8, __m512i)
REDUCE_PICK_INSTRUCTION(i16, _mm512_max_epi16, _mm512_min_epi16, __m512i)
REDUCE_PICK_INSTRUCTION(u16, _mm512_max_epu16, _mm512_min_epu16, __m512i)
REDUCE_PICK_INSTRUCTION(i32, _mm512_max_epi32, _mm512_min_epi32, __m512i)
REDUCE_PICK_INSTRUCTION(u32, _mm512_max_epu32, _mm512_min_epu32, __m512i)
REDUCE_PICK_INSTRUCTION(i64, _mm512_max_epi64, _mm512_min_epi64, __m512i)
REDUCE_PICK_INSTRUCTION(u64, _mm512_max_epu64, _mm512_min_epu64, __m512i)

/*
 * A "fix-up" takes for each class of number a four-bit word from a table: here 0, the first
 * operand, for the two classes of NaN (in the low byte) and 1, the second operand, for all others.
 */
#define KEEP_ALL_BUT_NAN 0x11111100

REDUCE_INLINE reduce_f32 plain_nan_f32(reduce_f32 value) {
    const __m512 nans = _mm512_castsi512_ps(_mm512_set1_epi32(REDUCE_NAN_F32));
    const __m512i table = _mm512_set1_epi32(KEEP_ALL_BUT_NAN);
    return (reduce_f32)_mm512_fixupimm_ps(nans, (__m512)value, table, 0);
}

REDUCE_INLINE reduce_f64 plain_nan_f64(reduce_f64 value) {
    const __m512d nans = _mm512_castsi512_pd(_mm512_set1_epi64(REDUCE_NAN_F64));
    const __m512i table = _mm512_set1_epi64(KEEP_ALL_BUT_NAN);
    return (reduce_f64)_mm512_fixupimm_pd(nans, (__m512d)value, table, 0);
}

REDUCE_INLINE reduce_f32 expand_f16(const char *src) {
    return (reduce_f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)src));
}

REDUCE_INLINE void narrow_f16(char *dst, reduce_f32 value) {
    _mm256_storeu_si256((__m256i_u *)dst,
                        _mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT));
}

/* Masked-out bytes are neither read nor written, whatever page they are on. */
REDUCE_INLINE reduce_u8 load_part(const char *src, size_t n_bytes) {
    return (reduce_u8)_mm512_maskz_loadu_epi8((1ULL << n_bytes) - 1, src);
}

REDUCE_INLINE void store_part(char *dst, reduce_u8 value, size_t n_bytes) {
    _mm512_mask_storeu_epi8(dst, (1ULL << n_bytes) - 1, (__m512i)value);
}

#include "reduce/vector.h"

const struct reduce_table reduce_table_avx512 = REDUCE_TABLE_ROWS;

#endif
