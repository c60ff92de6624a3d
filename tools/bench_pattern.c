/* SPDX-License-Identifier: MIT */
/*
 * Values for checked calls, and what must come out of them.
 *
 * An element is a hash of (checked call, rank, index), cut down to what the type can combine
 * without rounding, so that results are compared bit for bit and in any order of summation:
 *
 *   copied     all bits of the element are hash (bool: one), also patterns that are NaN
 *   integers   all bits are hash; sums are taken modulo 2^bits, as the library promises
 *   floats     whole numbers ±1 … ±L without 0. For sums L is the largest power of two with
 *              ranks · L within the integers that the type holds exactly; for max and min all of
 *              those. Because no value is 0, a missing or doubled contribution changes every
 *              element of a sum.
 *   complex    both parts like floats; for max and min the real parts are ±1 … ±4, so that many
 *              are equal and the imaginary parts decide
 *   bool       sum and max are or: at each index at most one rank is true; min is and: at most one
 *              rank is false. So each contribution decides some elements alone.
 *
 * Since the hash depends on all three numbers, swapped blocks, shifted offsets and leftovers of an
 * earlier call differ in nearly all elements, in a float type with few values in most.
 */
#include "bench.h"

#include <string.h>

enum { BLOCK = 256, MOST_ELEMENT = 8 };

#define DTYPE_BYTES(name, number, bytes, word) [JACKAL_##name] = (bytes),
#define DTYPE_WORD(name, number, bytes, word)  [JACKAL_##name] = (word),
#define OP_WORD(name, number, word)            [JACKAL_##name] = (word),

uint64_t bench_dtype_bytes(jackal_dtype dtype) {
    static const unsigned char bytes[] = {JACKAL_DTYPE_TABLE(DTYPE_BYTES)};
    return bytes[dtype];
}

const char *bench_dtype_name(jackal_dtype dtype) {
    static const char *const words[] = {JACKAL_DTYPE_TABLE(DTYPE_WORD)};
    return words[dtype];
}

const char *bench_redop_name(jackal_op redop) {
    static const char *const words[] = {JACKAL_OP_TABLE(OP_WORD)};
    return redop < 0 ? "none" : words[redop];
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t key_of(const struct bench_pattern *pattern, int rank) {
    return mix(mix(pattern->round + 1) + (uint64_t)(rank + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

static uint64_t hash(uint64_t key, uint64_t index) {
    return mix(key + index * UINT64_C(0xd1342543de82ef95));
}

static bool is_float(jackal_dtype dtype) {
    return dtype >= JACKAL_FLOAT16;
}

static bool is_signed(jackal_dtype dtype) {
    return dtype >= JACKAL_INT8 && dtype <= JACKAL_INT64;
}

/* All whole numbers up to this one are exact in a float type. */
static int64_t most_exact(jackal_dtype dtype) {
    switch (dtype) {
    case JACKAL_FLOAT16:
        return 1 << 11;
    case JACKAL_BFLOAT16:
        return 1 << 8;
    case JACKAL_FLOAT64:
        return INT64_C(1) << 53;
    default:
        return 1 << 24;
    }
}

int bench_pattern_most_ranks(jackal_dtype dtype) {
    int64_t most = is_float(dtype) ? most_exact(dtype) : INT32_MAX;
    return most < INT32_MAX ? (int)most : INT32_MAX;
}

/* L of the note above: a power of two. */
static uint64_t float_limit(const struct bench_pattern *pattern) {
    uint64_t limit = (uint64_t)most_exact(pattern->dtype);
    while (pattern->redop == JACKAL_SUM && limit > 1 &&
           limit * (uint64_t)pattern->size > (uint64_t)most_exact(pattern->dtype)) {
        limit /= 2;
    }
    return limit;
}

static int64_t whole_number(uint64_t bits, uint64_t limit) {
    int64_t number = (int64_t)(bits & (2 * limit - 1)) - (int64_t)limit;
    return number < 0 ? number : number + 1;
}

/* Cuts an integer to the width of its type, as a number again. */
static uint64_t to_width(jackal_dtype dtype, uint64_t bits) {
    unsigned shift = 64 - 8 * (unsigned)bench_dtype_bytes(dtype);
    bits <<= shift;
    return is_signed(dtype) ? (uint64_t)((int64_t)bits >> shift) : bits >> shift;
}

/*
 * What rank contributes at index, as a number; `part` is 1 for an imaginary part. Signed types are
 * carried in the same 64 bits, so that sums wrap without undefined behaviour.
 */
static uint64_t contribution(const struct bench_pattern *pattern, uint64_t key, int rank,
                             uint64_t index, int part, uint64_t limit) {
    if (pattern->dtype == JACKAL_BOOL) {
        uint64_t alone = hash(key_of(pattern, -1), index) % ((uint64_t)pattern->size + 1);
        bool chosen = alone == (uint64_t)rank;
        return pattern->redop == JACKAL_MIN ? !chosen : chosen;
    }
    uint64_t bits = hash(key, 2 * index + (uint64_t)part);
    if (!is_float(pattern->dtype)) {
        return to_width(pattern->dtype, bits);
    }
    bool few = pattern->dtype == JACKAL_COMPLEX64 && part == 0 && pattern->redop != JACKAL_SUM;
    return (uint64_t)whole_number(bits, few ? 4 : limit);
}

static void put_float32(unsigned char *data, int64_t number) {
    float value = (float)number;
    memcpy(data, &value, sizeof value);
}

static void put_float16(unsigned char *data, int64_t number) {
    uint64_t magnitude = (uint64_t)(number < 0 ? -number : number);
    uint64_t bits = number < 0 ? 0x8000 : 0;
    if (magnitude != 0) {
        unsigned exponent = 0;
        while (magnitude >> (exponent + 1)) {
            ++exponent;
        }
        /* 10 bits of fraction, the first bit of the number is not stored */
        uint64_t fraction =
            exponent <= 10 ? magnitude << (10 - exponent) : magnitude >> (exponent - 10);
        bits |= (uint64_t)(exponent + 15) << 10 | (fraction & 0x3ff);
    }
    uint16_t stored = (uint16_t)bits;
    memcpy(data, &stored, sizeof stored);
}

static void put_bfloat16(unsigned char *data, int64_t number) {
    float value = (float)number;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t stored = (uint16_t)(bits >> 16);
    memcpy(data, &stored, sizeof stored);
}

static void put_integer(jackal_dtype dtype, unsigned char *data, uint64_t bits) {
    uint8_t bits8 = (uint8_t)bits;
    uint16_t bits16 = (uint16_t)bits;
    uint32_t bits32 = (uint32_t)bits;
    switch (bench_dtype_bytes(dtype)) {
    case 1:
        memcpy(data, &bits8, sizeof bits8);
        break;
    case 2:
        memcpy(data, &bits16, sizeof bits16);
        break;
    case 4:
        memcpy(data, &bits32, sizeof bits32);
        break;
    default:
        memcpy(data, &bits, sizeof bits);
        break;
    }
}

static void put(jackal_dtype dtype, unsigned char *data, uint64_t number, uint64_t imaginary) {
    double wide = (double)(int64_t)number;
    switch (dtype) {
    case JACKAL_FLOAT16:
        put_float16(data, (int64_t)number);
        break;
    case JACKAL_BFLOAT16:
        put_bfloat16(data, (int64_t)number);
        break;
    case JACKAL_FLOAT32:
        put_float32(data, (int64_t)number);
        break;
    case JACKAL_FLOAT64:
        memcpy(data, &wide, sizeof wide);
        break;
    case JACKAL_COMPLEX64:
        put_float32(data, (int64_t)number);
        put_float32(data + 4, (int64_t)imaginary);
        break;
    default:
        put_integer(dtype, data, number);
        break;
    }
}

/* All bits of the element, whatever they mean as a number. */
static void put_copied(const struct bench_pattern *pattern, uint64_t key, uint64_t index,
                       unsigned char *data) {
    uint64_t bits = hash(key, index);
    put_integer(pattern->dtype, data, pattern->dtype == JACKAL_BOOL ? bits & 1 : bits);
}

static bool is_less(jackal_dtype dtype, uint64_t a, uint64_t b) {
    bool as_signed = is_signed(dtype) || is_float(dtype);
    return as_signed ? (int64_t)a < (int64_t)b : a < b;
}

/* Combines the contributions of all ranks to elements first … first + count − 1 ≤ BLOCK. */
static void combine(const struct bench_pattern *pattern, uint64_t first, uint64_t count,
                    unsigned char *data) {
    uint64_t numbers[BLOCK] = {0}, imaginary[BLOCK] = {0};
    uint64_t limit = is_float(pattern->dtype) ? float_limit(pattern) : 0;
    bool is_complex = pattern->dtype == JACKAL_COMPLEX64;
    for (int rank = 0; rank < pattern->size; ++rank) {
        uint64_t key = key_of(pattern, rank);
        for (uint64_t i = 0; i < count; ++i) {
            uint64_t number = contribution(pattern, key, rank, first + i, 0, limit);
            uint64_t other = is_complex ? contribution(pattern, key, rank, first + i, 1, limit) : 0;
            if (pattern->redop == JACKAL_SUM) {
                numbers[i] += number;
                imaginary[i] += other;
                continue;
            }
            bool less = is_less(pattern->dtype, number, numbers[i]) ||
                        (number == numbers[i] && (int64_t)other < (int64_t)imaginary[i]);
            if (rank == 0 || less == (pattern->redop == JACKAL_MIN)) {
                numbers[i] = number;
                imaginary[i] = other;
            }
        }
    }
    uint64_t n_bytes = bench_dtype_bytes(pattern->dtype);
    for (uint64_t i = 0; i < count; ++i) {
        put(pattern->dtype, data + i * n_bytes, numbers[i], imaginary[i]);
    }
}

void bench_pattern_fill(const struct bench_pattern *pattern, int rank, uint64_t first,
                        uint64_t count, unsigned char *data) {
    uint64_t key = key_of(pattern, rank), n_bytes = bench_dtype_bytes(pattern->dtype);
    uint64_t limit = is_float(pattern->dtype) ? float_limit(pattern) : 0;
    for (uint64_t i = 0; i < count; ++i) {
        unsigned char *element = data + i * n_bytes;
        if (pattern->use == BENCH_COPIED) {
            put_copied(pattern, key, first + i, element);
            continue;
        }
        put(pattern->dtype, element, contribution(pattern, key, rank, first + i, 0, limit),
            pattern->dtype == JACKAL_COMPLEX64
                ? contribution(pattern, key, rank, first + i, 1, limit)
                : 0);
    }
}

uint64_t bench_pattern_wrong(const struct bench_pattern *pattern, int rank, uint64_t first,
                             uint64_t count, const unsigned char *data, uint64_t *first_wrong_p) {
    unsigned char expected[BLOCK * MOST_ELEMENT];
    uint64_t n_bytes = bench_dtype_bytes(pattern->dtype), n_wrong = 0;
    for (uint64_t done = 0; done < count;) {
        uint64_t n = count - done < BLOCK ? count - done : BLOCK;
        const unsigned char *block = data + done * n_bytes;
        if (rank < 0) {
            combine(pattern, first + done, n, expected);
        } else {
            bench_pattern_fill(pattern, rank, first + done, n, expected);
        }
        bool equal = memcmp(expected, block, n * n_bytes) == 0;
        for (uint64_t i = 0; i < n && !equal; ++i) {
            if (memcmp(expected + i * n_bytes, block + i * n_bytes, n_bytes) != 0) {
                *first_wrong_p = n_wrong == 0 ? done + i : *first_wrong_p;
                ++n_wrong;
            }
        }
        done += n;
    }
    return n_wrong;
}
