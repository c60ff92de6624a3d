/* SPDX-License-Identifier: MIT */
#include "wire/bytes.h"

const uint8_t *wire_read(struct wire_reader *reader, size_t n_bytes) {
    if (reader->bad || n_bytes > reader->left) {
        reader->bad = true;
        return NULL;
    }
    const uint8_t *bytes = reader->bytes;
    reader->bytes += n_bytes;
    reader->left -= n_bytes;
    return bytes;
}

uint8_t wire_read_u8(struct wire_reader *reader) {
    const uint8_t *bytes = wire_read(reader, 1);
    return bytes != NULL ? bytes[0] : 0;
}

uint16_t wire_read_u16(struct wire_reader *reader) {
    const uint8_t *bytes = wire_read(reader, 2);
    return bytes != NULL ? wire_get_u16(bytes) : 0;
}

uint32_t wire_read_u32(struct wire_reader *reader) {
    const uint8_t *bytes = wire_read(reader, 4);
    return bytes != NULL ? wire_get_u32(bytes) : 0;
}

uint64_t wire_read_u64(struct wire_reader *reader) {
    const uint8_t *bytes = wire_read(reader, 8);
    return bytes != NULL ? wire_get_u64(bytes) : 0;
}

const char *wire_read_text(struct wire_reader *reader, size_t *n_bytes_p) {
    size_t n_bytes = wire_read_u16(reader);
    const uint8_t *bytes = wire_read(reader, n_bytes);
    /* A zero inside would make two different texts look the same once printed. */
    if (bytes == NULL || memchr(bytes, 0, n_bytes) != NULL) {
        reader->bad = true;
        *n_bytes_p = 0;
        return "";
    }
    *n_bytes_p = n_bytes;
    return (const char *)bytes;
}

void wire_read_string(struct wire_reader *reader, char *text, size_t room) {
    size_t n_bytes;
    const char *bytes = wire_read_text(reader, &n_bytes);
    if (n_bytes >= room) {
        reader->bad = true;
        n_bytes = 0;
    }
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
}

void wire_write(struct wire_writer *writer, const void *bytes, size_t n_bytes) {
    if (writer->bad || n_bytes > writer->room - writer->used) {
        writer->bad = true;
        return;
    }
    if (n_bytes > 0)
        memcpy(writer->bytes + writer->used, bytes, n_bytes);
    writer->used += n_bytes;
}

void wire_write_u8(struct wire_writer *writer, uint8_t value) {
    wire_write(writer, &value, 1);
}

void wire_write_u16(struct wire_writer *writer, uint16_t value) {
    uint8_t bytes[2];
    wire_put_u16(bytes, value);
    wire_write(writer, bytes, sizeof bytes);
}

void wire_write_u32(struct wire_writer *writer, uint32_t value) {
    uint8_t bytes[4];
    wire_put_u32(bytes, value);
    wire_write(writer, bytes, sizeof bytes);
}

void wire_write_u64(struct wire_writer *writer, uint64_t value) {
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    wire_write(writer, bytes, sizeof bytes);
}

void wire_write_text(struct wire_writer *writer, const char *text) {
    size_t n_bytes = strlen(text);
    if (n_bytes > UINT16_MAX) {
        writer->bad = true;
        return;
    }
    wire_write_u16(writer, (uint16_t)n_bytes);
    wire_write(writer, text, n_bytes);
}
