/* SPDX-License-Identifier: MIT */
/*
 * Vectors of REDUCE_WIDTH bytes, by the vector extension that gcc and clang share: operators work
 * lane by lane, a comparison gives all ones or zero, a cast keeps the bits. Loads and stores take
 * any alignment.
 */
#include <string.h>

#include "reduce/kernels.h"

#define REDUCE_VECTOR(name, elem)                                                                  \
    typedef elem reduce_##name __attribute__((vector_size(REDUCE_WIDTH)));                         \
    REDUCE_INLINE reduce_##name load_##name(const char *src) {                                     \
        reduce_##name value;                                                                       \
        memcpy(&value, src, sizeof value);                                                         \
        return value;                                                                              \
    }                                                                                              \
    /* The kernels' way to end; only a mean has a use for the number of sources. */                \
    __attribute__((unused))                                                                        \
    REDUCE_INLINE void store_##name(char *dst, reduce_##name value, size_t n_srcs) {               \
        (void)n_srcs;                                                                              \
        memcpy(dst, &value, sizeof value);                                                         \
    }

REDUCE_VECTOR(u8, uint8_t)
REDUCE_VECTOR(u16, uint16_t)
REDUCE_VECTOR(u32, uint32_t)
REDUCE_VECTOR(u64, uint64_t)
REDUCE_VECTOR(i8, int8_t)
REDUCE_VECTOR(i16, int16_t)
REDUCE_VECTOR(i32, int32_t)
REDUCE_VECTOR(i64, int64_t)
REDUCE_VECTOR(f32, float)
REDUCE_VECTOR(f64, double)

/* larger_* and smaller_* where the instruction set has them as one instruction ... */
#define REDUCE_PICK_INSTRUCTION(name, MAX, MIN, cast)                                              \
    REDUCE_INLINE reduce_##name larger_##name(reduce_##name a, reduce_##name b) {                  \
        return (reduce_##name)MAX((cast)a, (cast)b);                                               \
    }                                                                                              \
    REDUCE_INLINE reduce_##name smaller_##name(reduce_##name a, reduce_##name b) {                 \
        return (reduce_##name)MIN((cast)a, (cast)b);                                               \
    }

/* ... and where it has not. */
#define REDUCE_PICK_COMPARE(name)                                                                  \
    REDUCE_INLINE reduce_##name larger_##name(reduce_##name a, reduce_##name b) {                  \
        reduce_##name take_a = (reduce_##name)(a > b);                                             \
        return (a & take_a) | (b & ~take_a);                                                       \
    }                                                                                              \
    REDUCE_INLINE reduce_##name smaller_##name(reduce_##name a, reduce_##name b) {                 \
        reduce_##name take_a = (reduce_##name)(a < b);                                             \
        return (a & take_a) | (b & ~take_a);                                                       \
    }

/* plain_nan_* where the instruction set has nothing better. */
#define REDUCE_PLAIN_NAN_COMPARE(name, bits, nan_bits)                                             \
    REDUCE_INLINE reduce_##name plain_nan_##name(reduce_##name value) {                            \
        reduce_u##bits is_nan = (reduce_u##bits)(value != value);                                  \
        return (reduce_##name)(((reduce_u##bits)value & ~is_nan) | (is_nan & nan_bits));           \
    }

/*
 * The k-th eight bytes of a vector of which only n_bytes are in memory. The halves of a shorter
 * piece overlap, with the same bytes in both. Going through registers is what makes it fast: a
 * vector loaded from bytes just written waits for all of them to reach the cache.
 */
__attribute__((unused)) REDUCE_INLINE uint64_t load_word(const char *src, size_t k,
                                                         size_t n_bytes) {
    if (n_bytes <= 8 * k)
        return 0;
    const size_t n = n_bytes - 8 * k;
    src += 8 * k;
    if (n >= 8) {
        uint64_t word;
        memcpy(&word, src, sizeof word);
        return word;
    }
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, src, sizeof low);
        memcpy(&high, src + n - sizeof high, sizeof high);
        return low | (uint64_t)high << 8 * (n - sizeof high);
    }
    if (n >= 2) {
        uint16_t low, high;
        memcpy(&low, src, sizeof low);
        memcpy(&high, src + n - sizeof high, sizeof high);
        return low | (uint64_t)high << 8 * (n - sizeof high);
    }
    return (uint8_t)*src;
}

__attribute__((unused)) REDUCE_INLINE void store_word(char *dst, uint64_t word, size_t k,
                                                      size_t n_bytes) {
    if (n_bytes <= 8 * k)
        return;
    const size_t n = n_bytes - 8 * k;
    dst += 8 * k;
    if (n >= 8) {
        memcpy(dst, &word, sizeof word);
    } else if (n >= 4) {
        const uint32_t low = (uint32_t)word, high = (uint32_t)(word >> 8 * (n - sizeof high));
        memcpy(dst, &low, sizeof low);
        memcpy(dst + n - sizeof high, &high, sizeof high);
    } else if (n >= 2) {
        const uint16_t low = (uint16_t)word, high = (uint16_t)(word >> 8 * (n - sizeof high));
        memcpy(dst, &low, sizeof low);
        memcpy(dst + n - sizeof high, &high, sizeof high);
    } else {
        *dst = (char)word;
    }
}
