/* SPDX-License-Identifier: MIT */
/*
 * Little-endian numbers in byte strings (D20), and two cursors for the messages of set-up.
 *
 * Nothing of ours goes out as a struct: padding and byte order of the compiler stay at home. A
 * get or put is one plain load or store on a little-endian machine, at any alignment.
 *
 * A cursor goes bad at the first thing that does not fit and stays bad: a decoder reads
 * everything it expects and asks once at the end. A bad reader gives zeros.
 */
#ifndef WIRE_BYTES_H
#define WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define WIRE_SWAP_16(value) __builtin_bswap16(value)
#define WIRE_SWAP_32(value) __builtin_bswap32(value)
#define WIRE_SWAP_64(value) __builtin_bswap64(value)
#else
#define WIRE_SWAP_16(value) (value)
#define WIRE_SWAP_32(value) (value)
#define WIRE_SWAP_64(value) (value)
#endif

static inline uint16_t wire_get_u16(const uint8_t *bytes) {
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return WIRE_SWAP_16(value);
}

static inline uint32_t wire_get_u32(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return WIRE_SWAP_32(value);
}

static inline uint64_t wire_get_u64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return WIRE_SWAP_64(value);
}

static inline void wire_put_u16(uint8_t *bytes, uint16_t value) {
    value = WIRE_SWAP_16(value);
    memcpy(bytes, &value, sizeof value);
}

static inline void wire_put_u32(uint8_t *bytes, uint32_t value) {
    value = WIRE_SWAP_32(value);
    memcpy(bytes, &value, sizeof value);
}

static inline void wire_put_u64(uint8_t *bytes, uint64_t value) {
    value = WIRE_SWAP_64(value);
    memcpy(bytes, &value, sizeof value);
}

struct wire_reader {
    const uint8_t *bytes;
    size_t left;
    bool bad;
};

struct wire_writer {
    uint8_t *bytes;
    size_t room;
    size_t used;
    bool bad;
};

/* The next n_bytes, or NULL and bad if there are fewer. */
const uint8_t *wire_read(struct wire_reader *reader, size_t n_bytes);

uint8_t wire_read_u8(struct wire_reader *reader);
uint16_t wire_read_u16(struct wire_reader *reader);
uint32_t wire_read_u32(struct wire_reader *reader);
uint64_t wire_read_u64(struct wire_reader *reader);

/* A string with a 16-bit length before it, not ended by a zero; bad if it holds one. */
const char *wire_read_text(struct wire_reader *reader, size_t *n_bytes_p);

/* The same, copied to `text` with a zero behind it; bad if it needs more than `room` bytes. */
void wire_read_string(struct wire_reader *reader, char *text, size_t room);

void wire_write(struct wire_writer *writer, const void *bytes, size_t n_bytes);
void wire_write_u8(struct wire_writer *writer, uint8_t value);
void wire_write_u16(struct wire_writer *writer, uint16_t value);
void wire_write_u32(struct wire_writer *writer, uint32_t value);
void wire_write_u64(struct wire_writer *writer, uint64_t value);
void wire_write_text(struct wire_writer *writer, const char *text);

#endif
