/* SPDX-License-Identifier: MIT */
#include "wire/hello.h"

void wire_hello_head_encode(const struct wire_hello_head *head, uint8_t *bytes) {
    wire_put_u32(bytes, WIRE_HELLO_MAGIC);
    wire_put_u16(bytes + 4, head->version);
    wire_put_u16(bytes + 6, head->oldest);
    wire_put_u32(bytes + 8, head->body_bytes);
    wire_put_u32(bytes + 12, 0);
}

jackal_status wire_hello_head_decode(const uint8_t *bytes, size_t n_bytes,
                                     struct wire_hello_head *head_p, struct base_error *error) {
    uint8_t magic[4];
    wire_put_u32(magic, WIRE_HELLO_MAGIC);
    if (memcmp(bytes, magic, n_bytes < sizeof magic ? n_bytes : sizeof magic) != 0)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "the first bytes are not those of a hello");
    if (n_bytes < WIRE_HELLO_HEAD_BYTES)
        return JACKAL_PENDING;
    struct wire_hello_head head = {wire_get_u16(bytes + 4), wire_get_u16(bytes + 6),
                                   wire_get_u32(bytes + 8)};
    if (head.body_bytes > WIRE_HELLO_BODY_MAX)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "hello announces a body of %u bytes, the limit is %d",
                         (unsigned)head.body_bytes, WIRE_HELLO_BODY_MAX);
    if (head.version == 0 || head.oldest > head.version || wire_get_u32(bytes + 12) != 0)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "the head of the hello is malformed");
    *head_p = head;
    return JACKAL_OK;
}

bool wire_hello_compatible(const struct wire_hello_head *a, const struct wire_hello_head *b) {
    return a->version >= b->oldest && b->version >= a->oldest;
}

/* The number of settings is written last, at a place that the fixed fields determine. */
static size_t settings_place(const struct wire_writer *writer) {
    struct wire_reader reader = {.bytes = writer->bytes + WIRE_HELLO_HEAD_BYTES,
                                 .left = writer->used - WIRE_HELLO_HEAD_BYTES};
    size_t n_bytes;
    wire_read_text(&reader, &n_bytes);
    wire_read(&reader, 8 + 4 + 4 + 8);
    wire_read_text(&reader, &n_bytes);
    return (size_t)(reader.bytes - writer->bytes);
}

void wire_hello_begin(struct wire_writer *writer, const struct wire_hello *hello) {
    uint8_t head[WIRE_HELLO_HEAD_BYTES];
    wire_hello_head_encode(&(struct wire_hello_head){WIRE_HELLO_VERSION, WIRE_HELLO_OLDEST, 0},
                           head);
    wire_write(writer, head, sizeof head);
    wire_write_text(writer, hello->job);
    wire_write_u64(writer, hello->incarnation);
    wire_write_u32(writer, hello->rank);
    wire_write_u32(writer, hello->size);
    wire_write_u64(writer, hello->features);
    wire_write_text(writer, hello->library);
    wire_write_u16(writer, 0);
}

void wire_hello_add(struct wire_writer *writer, const char *name, const char *value) {
    wire_write_text(writer, name);
    wire_write_text(writer, value);
}

size_t wire_hello_end(struct wire_writer *writer, size_t n_settings) {
    if (writer->bad || n_settings > UINT16_MAX ||
        writer->used > WIRE_HELLO_HEAD_BYTES + WIRE_HELLO_BODY_MAX)
        return 0;
    wire_put_u32(writer->bytes + 8, (uint32_t)(writer->used - WIRE_HELLO_HEAD_BYTES));
    wire_put_u16(writer->bytes + settings_place(writer), (uint16_t)n_settings);
    return writer->used;
}

jackal_status wire_hello_decode(const uint8_t *body, size_t n_bytes, struct wire_hello *hello_p,
                                struct base_error *error) {
    struct wire_reader reader = {.bytes = body, .left = n_bytes};
    wire_read_string(&reader, hello_p->job, sizeof hello_p->job);
    hello_p->incarnation = wire_read_u64(&reader);
    hello_p->rank = wire_read_u32(&reader);
    hello_p->size = wire_read_u32(&reader);
    hello_p->features = wire_read_u64(&reader);
    wire_read_string(&reader, hello_p->library, sizeof hello_p->library);
    hello_p->n_settings = wire_read_u16(&reader);
    hello_p->settings = reader;
    for (size_t i = 0; i < hello_p->n_settings && !reader.bad; i++) {
        struct wire_text name, value;
        wire_hello_setting(&reader, &name, &value);
    }
    if (reader.bad)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "body of the hello (%zu bytes) is malformed",
                         n_bytes);
    return JACKAL_OK;
}

void wire_hello_setting(struct wire_reader *settings, struct wire_text *name_p,
                        struct wire_text *value_p) {
    name_p->bytes = wire_read_text(settings, &name_p->n_bytes);
    value_p->bytes = wire_read_text(settings, &value_p->n_bytes);
}

bool wire_text_is(struct wire_text text, const char *string) {
    return strlen(string) == text.n_bytes && memcmp(string, text.bytes, text.n_bytes) == 0;
}
