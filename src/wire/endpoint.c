/* SPDX-License-Identifier: MIT */
#include "wire/endpoint.h"

enum { FRAMES_COUNTED = 1 };

size_t wire_endpoint_encode(const struct wire_endpoint *endpoint, uint8_t *bytes, size_t room) {
    const struct wire_endpoint *e = endpoint;
    size_t n_name = strnlen(e->device, sizeof e->device - 1);
    struct wire_writer writer = {.bytes = bytes, .room = room};
    wire_write_u16(&writer, (uint16_t)(WIRE_ENDPOINT_MAX - 2 - (WIRE_DEVICE_BYTES - 1) + n_name));
    wire_write_u8(&writer, (uint8_t)n_name);
    wire_write(&writer, e->device, n_name);
    wire_write_u32(&writer, e->small.qpn);
    wire_write_u32(&writer, e->small.psn);
    wire_write_u32(&writer, e->bulk.qpn);
    wire_write_u32(&writer, e->bulk.psn);
    wire_write_u16(&writer, e->lid);
    wire_write(&writer, e->gid, sizeof e->gid);
    wire_write_u32(&writer, e->mtu_bytes);
    wire_write_u8(&writer, e->frames_counted ? FRAMES_COUNTED : 0);
    wire_write_u32(&writer, e->small_slot_bytes);
    wire_write_u32(&writer, e->bulk_slot_bytes);
    wire_write_u32(&writer, e->small_slots);
    wire_write_u32(&writer, e->bulk_slots);
    return writer.bad ? 0 : writer.used;
}

static void read_fields(struct wire_reader *reader, struct wire_endpoint *e) {
    size_t n_name = wire_read_u8(reader);
    const uint8_t *name = wire_read(reader, n_name);
    if (name == NULL || n_name >= sizeof e->device || memchr(name, 0, n_name) != NULL)
        reader->bad = true;
    else
        memcpy(e->device, name, n_name);
    e->small.qpn = wire_read_u32(reader);
    e->small.psn = wire_read_u32(reader);
    e->bulk.qpn = wire_read_u32(reader);
    e->bulk.psn = wire_read_u32(reader);
    e->lid = wire_read_u16(reader);
    const uint8_t *gid = wire_read(reader, sizeof e->gid);
    if (gid != NULL)
        memcpy(e->gid, gid, sizeof e->gid);
    e->mtu_bytes = wire_read_u32(reader);
    e->frames_counted = (wire_read_u8(reader) & FRAMES_COUNTED) != 0;
    e->small_slot_bytes = wire_read_u32(reader);
    e->bulk_slot_bytes = wire_read_u32(reader);
    e->small_slots = wire_read_u32(reader);
    e->bulk_slots = wire_read_u32(reader);
}

jackal_status wire_endpoint_decode(const uint8_t *bytes, size_t n_bytes,
                                   struct wire_endpoint *endpoint_p, size_t *used_p,
                                   struct base_error *error) {
    struct wire_reader outer = {.bytes = bytes, .left = n_bytes};
    size_t n_fields = wire_read_u16(&outer);
    const uint8_t *fields = wire_read(&outer, n_fields);
    if (fields == NULL)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "description of a wire end is cut: %zu bytes of %zu", n_bytes,
                         n_fields + 2);
    struct wire_reader reader = {.bytes = fields, .left = n_fields};
    struct wire_endpoint endpoint = {.device = ""};
    read_fields(&reader, &endpoint);
    if (reader.bad)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "description of a wire end of %zu bytes is malformed", n_fields);
    *endpoint_p = endpoint;
    *used_p = n_fields + 2;
    return JACKAL_OK;
}
