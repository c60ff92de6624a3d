/* SPDX-License-Identifier: MIT */
/* The kernels for arm64, where NEON is always there: 16 bytes a vector, 32 registers. */
#if defined(__aarch64__)

#include <arm_neon.h>

#define REDUCE_WIDTH  16
#define REDUCE_UNROLL 8

#include "reduce/vector_types.h"

REDUCE_PICK_INSTRUCTION(i8, vmaxq_s8, vminq_s8, int8x16_t)
REDUCE_PICK_INSTRUCTION(u8, vmaxq_u8, vminq_u8, uint8x16_t)
REDUCE_PICK_INSTRUCTION(i16, vmaxq_s16, vminq_s16, int16x8_t)
REDUCE_PICK_INSTRUCTION(u16, vmaxq_u16, vminq_u16, uint16x8_t)
REDUCE_PICK_INSTRUCTION(i32, vmaxq_s32, vminq_s32, int32x4_t)
REDUCE_PICK_INSTRUCTION(u32, vmaxq_u32, vminq_u32, uint32x4_t)
REDUCE_PICK_COMPARE(i64)
REDUCE_PICK_COMPARE(u64)

REDUCE_PLAIN_NAN_COMPARE(f32, 32, REDUCE_NAN_F32)
REDUCE_PLAIN_NAN_COMPARE(f64, 64, REDUCE_NAN_F64)

REDUCE_INLINE reduce_f32 expand_f16(const char *src) {
    float16x4_t half;
    memcpy(&half, src, sizeof half);
    return (reduce_f32)vcvt_f32_f16(half);
}

REDUCE_INLINE void narrow_f16(char *dst, reduce_f32 value) {
    float16x4_t half = vcvt_f16_f32((float32x4_t)value);
    memcpy(dst, &half, sizeof half);
}

/* Apart: one copy serves all kernels. */
REDUCE_APART reduce_u8 load_part(const char *src, size_t n_bytes) {
    return (reduce_u8)(reduce_u64){load_word(src, 0, n_bytes), load_word(src, 1, n_bytes)};
}

REDUCE_APART void store_part(char *dst, reduce_u8 value, size_t n_bytes) {
    const reduce_u64 words = (reduce_u64)value;
    store_word(dst, words[0], 0, n_bytes);
    store_word(dst, words[1], 1, n_bytes);
}

#include "reduce/vector.h"

const struct reduce_table reduce_table_neon = REDUCE_TABLE_ROWS;

#endif
