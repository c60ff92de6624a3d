/* SPDX-License-Identifier: MIT */
/*
 * CRC-32C: polynomial 0x1EDC6F41, reflected, all ones before and after ("123456789" gives
 * 0xE3069283). The instruction of SSE 4.2 or of the ARMv8 CRC extension is chosen at run time,
 * because distributions build for processors without them; tables are the fallback.
 */
#include "wire/header.h"

#include <pthread.h>

#if defined(__x86_64__) || defined(__i386__)
#define WIRE_CRC_X86 1
#include <nmmintrin.h>
#elif defined(__aarch64__)
#define WIRE_CRC_ARM 1
#ifdef __linux__
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif
#endif

typedef uint32_t (*crc_function)(uint32_t crc, const uint8_t *bytes, size_t n_bytes);

enum { SLICES = 8 };

/* Written once under `once`, read-only afterwards. */
static uint32_t slice[SLICES][256];
static crc_function chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* slice[k][b] carries byte b over k further zero bytes, so eight bytes cost eight look-ups. */
static void fill_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0);
        slice[0][b] = crc;
    }
    for (int k = 1; k < SLICES; k++)
        for (int b = 0; b < 256; b++)
            slice[k][b] = (slice[k - 1][b] >> 8) ^ slice[0][slice[k - 1][b] & 0xff];
}

static uint32_t crc_tables(uint32_t crc, const uint8_t *bytes, size_t n_bytes) {
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8) {
        uint64_t word = wire_get_u64(bytes) ^ crc;
        crc = 0;
        for (int k = 0; k < SLICES; k++)
            crc ^= slice[SLICES - 1 - k][(word >> (8 * k)) & 0xff];
    }
    for (; n_bytes > 0; bytes++, n_bytes--)
        crc = (crc >> 8) ^ slice[0][(crc ^ *bytes) & 0xff];
    return crc;
}

#ifdef WIRE_CRC_X86
__attribute__((target("sse4.2"))) static uint32_t crc_x86(uint32_t crc, const uint8_t *bytes,
                                                          size_t n_bytes) {
#ifdef __x86_64__
    uint64_t wide = crc;
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8)
        wide = _mm_crc32_u64(wide, wire_get_u64(bytes));
    crc = (uint32_t)wide;
#endif
    for (; n_bytes >= 4; bytes += 4, n_bytes -= 4)
        crc = _mm_crc32_u32(crc, wire_get_u32(bytes));
    for (; n_bytes > 0; bytes++, n_bytes--)
        crc = _mm_crc32_u8(crc, *bytes);
    return crc;
}
#endif

#ifdef WIRE_CRC_ARM
/* Built-ins, since <arm_acle.h> of clang hides these unless the whole file is built for CRC. */
#ifdef __clang__
#define CRC_OF_8 __builtin_arm_crc32cd
#define CRC_OF_1 __builtin_arm_crc32cb
__attribute__((target("crc")))
#else
#define CRC_OF_8 __builtin_aarch64_crc32cx
#define CRC_OF_1 __builtin_aarch64_crc32cb
__attribute__((target("+crc")))
#endif
static uint32_t
crc_arm(uint32_t crc, const uint8_t *bytes, size_t n_bytes) {
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8)
        crc = CRC_OF_8(crc, wire_get_u64(bytes));
    for (; n_bytes > 0; bytes++, n_bytes--)
        crc = CRC_OF_1(crc, *bytes);
    return crc;
}
#endif

static void choose(void) {
    fill_tables();
    chosen = crc_tables;
#if defined(WIRE_CRC_X86)
    if (__builtin_cpu_supports("sse4.2"))
        chosen = crc_x86;
#elif defined(WIRE_CRC_ARM) && defined(__APPLE__)
    chosen = crc_arm;
#elif defined(WIRE_CRC_ARM) && defined(__linux__)
    if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
        chosen = crc_arm;
#endif
}

uint32_t wire_crc32c(uint32_t crc, const void *bytes, size_t n_bytes) {
    pthread_once(&once, choose);
    return ~chosen(~crc, bytes, n_bytes);
}

uint32_t wire_crc32c_portable(uint32_t crc, const void *bytes, size_t n_bytes) {
    pthread_once(&once, choose);
    return ~crc_tables(~crc, bytes, n_bytes);
}
