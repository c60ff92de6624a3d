/* SPDX-License-Identifier: MIT */
#include "wire/control.h"

void wire_control_encode(const struct wire_control_head *head, uint8_t *bytes) {
    wire_put_u16(bytes, head->type);
    wire_put_u16(bytes + 2, 0);
    wire_put_u32(bytes + 4, head->payload_bytes);
}

jackal_status wire_control_decode(const uint8_t *bytes, struct wire_control_head *head_p,
                                  struct base_error *error) {
    struct wire_control_head head = {wire_get_u16(bytes), wire_get_u32(bytes + 4)};
    bool large = head.type == WIRE_CONTROL_GATHER || head.type == WIRE_CONTROL_GATHERED;
    uint32_t limit = large ? WIRE_CONTROL_PAYLOAD_MAX : WIRE_CONTROL_SMALL_MAX;
    if (head.payload_bytes > limit)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "control frame of type %u announces %u bytes, the limit is %u",
                         (unsigned)head.type, (unsigned)head.payload_bytes, (unsigned)limit);
    *head_p = head;
    return JACKAL_OK;
}

size_t wire_failure_encode(const struct base_error *failure, uint8_t *bytes, size_t room) {
    struct wire_writer writer = {.bytes = bytes, .room = room};
    wire_write_u32(&writer, (uint32_t)failure->status);
    wire_write_u32(&writer, (uint32_t)failure->peer);
    wire_write_text(&writer, failure->text);
    return writer.bad ? 0 : writer.used;
}

jackal_status wire_failure_decode(const uint8_t *bytes, size_t n_bytes,
                                  struct base_error *failure_p, struct base_error *error) {
    struct wire_reader reader = {.bytes = bytes, .left = n_bytes};
    struct base_error failure;
    failure.status = (jackal_status)wire_read_u32(&reader);
    failure.peer = (int)wire_read_u32(&reader);
    wire_read_string(&reader, failure.text, sizeof failure.text);
    if (reader.bad || failure.peer < -1)
        return base_fail(error, JACKAL_ERR_PROTOCOL, "error report of %zu bytes is malformed",
                         n_bytes);
    /* A later version may have codes that mean nothing here; the text still says it. */
    if (failure.status >= 0 || failure.status < JACKAL_ERR_FORKED)
        failure.status = JACKAL_ERR_REMOTE;
    /* It will be printed: one line, whatever the sender put there. */
    for (char *c = failure.text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    *failure_p = failure;
    return JACKAL_OK;
}
