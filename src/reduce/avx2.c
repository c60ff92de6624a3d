/* SPDX-License-Identifier: MIT */
/* The kernels for x86-64 with AVX2 and F16C: 32 bytes a vector, 16 registers. */
#if defined(__x86_64__)

#include <immintrin.h>

#define REDUCE_WIDTH  32
#define REDUCE_UNROLL 4

#include "reduce/vector_types.h"

REDUCE_PICK_INSTRUCTION(i8, _mm256_max_epi8, _mm256_min_epi8, __m256i)
REDUCE_PICK_INSTRUCTION(u8, _mm256_max_epu8, _mm256_min_epu8, __m256i)
REDUCE_PICK_INSTRUCTION(i16, _mm256_max_epi16, _mm256_min_epi16, __m256i)
REDUCE_PICK_INSTRUCTION(u16, _mm256_max_epu16, _mm256_min_epu16, __m256i)
REDUCE_PICK_INSTRUCTION(i32, _mm256_max_epi32, _mm256_min_epi32, __m256i)
REDUCE_PICK_INSTRUCTION(u32, _mm256_max_epu32, _mm256_min_epu32, __m256i)
REDUCE_PICK_COMPARE(i64)
REDUCE_PICK_COMPARE(u64)

REDUCE_PLAIN_NAN_COMPARE(f32, 32, REDUCE_NAN_F32)
REDUCE_PLAIN_NAN_COMPARE(f64, 64, REDUCE_NAN_F64)

REDUCE_INLINE reduce_f32 expand_f16(const char *src) {
    return (reduce_f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)src));
}

REDUCE_INLINE void narrow_f16(char *dst, reduce_f32 value) {
    _mm_storeu_si128((__m128i_u *)dst, _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT));
}

/* Apart: one copy serves all kernels, and gcc 12 fails on some of those that it is inlined in. */
REDUCE_APART reduce_u8 load_part(const char *src, size_t n_bytes) {
    return (reduce_u8)(reduce_u64){load_word(src, 0, n_bytes), load_word(src, 1, n_bytes),
                                   load_word(src, 2, n_bytes), load_word(src, 3, n_bytes)};
}

REDUCE_APART void store_part(char *dst, reduce_u8 value, size_t n_bytes) {
    const reduce_u64 words = (reduce_u64)value;
    store_word(dst, words[0], 0, n_bytes);
    store_word(dst, words[1], 1, n_bytes);
    store_word(dst, words[2], 2, n_bytes);
    store_word(dst, words[3], 3, n_bytes);
}

#include "reduce/vector.h"

const struct reduce_table reduce_table_avx2 = REDUCE_TABLE_ROWS;

#endif
