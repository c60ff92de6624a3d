/* SPDX-License-Identifier: MIT */
#include "decode_any.h"

#include "wire/control.h"
#include "wire/credit.h"
#include "wire/endpoint.h"
#include "wire/hello.h"
#include "wire/point.h"

#include <stdlib.h>

static void require(bool condition) {
    if (!condition)
        abort();
}

static bool header(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_header h;
    if (wire_header_decode(bytes, n, &h, error) != JACKAL_OK)
        return false;
    require(n >= WIRE_HEADER_BYTES && h.payload_bytes <= n - WIRE_HEADER_BYTES);
    if (h.kind == WIRE_COLLECTIVE || h.kind == WIRE_POINT) {
        require(h.offset <= h.total_bytes);
        require(h.payload_bytes <= h.total_bytes - h.offset);
    }
    uint8_t again[WIRE_HEADER_BYTES];
    wire_header_encode(&h, again);
    require(memcmp(bytes, again, sizeof again) == 0);
    return true;
}

static bool credit(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_credit credits[8];
    size_t count;
    uint8_t again[128];
    if (wire_credit_decode(bytes, n, credits, 8, &count, error) != JACKAL_OK)
        return false;
    require(count <= 8 && wire_credit_encode(credits, count, again, sizeof again) == n);
    require(memcmp(bytes, again, n) == 0);
    return true;
}

static bool answer(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_answer a;
    uint8_t again[WIRE_ANSWER_BYTES];
    if (wire_answer_decode(bytes, n, &a, error) != JACKAL_OK)
        return false;
    wire_answer_encode(&a, again);
    require(n == sizeof again && memcmp(bytes, again, n) == 0);
    return true;
}

static bool endpoint(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_endpoint e;
    size_t used;
    if (wire_endpoint_decode(bytes, n, &e, &used, error) != JACKAL_OK)
        return false;
    require(used <= n && memchr(e.device, 0, sizeof e.device) != NULL);
    uint8_t again[WIRE_ENDPOINT_MAX];
    require(wire_endpoint_encode(&e, again, sizeof again) != 0);
    return true;
}

static bool hello(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_hello_head head;
    jackal_status status = wire_hello_head_decode(bytes, n, &head, error);
    if (status == JACKAL_PENDING)
        require(n < WIRE_HELLO_HEAD_BYTES);
    if (status != JACKAL_OK)
        return false;
    require(head.body_bytes <= WIRE_HELLO_BODY_MAX);
    return true;
}

static bool body(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_hello h;
    if (wire_hello_decode(bytes, n, &h, error) != JACKAL_OK)
        return false;
    struct wire_reader settings = h.settings;
    for (size_t i = 0; i < h.n_settings; i++) {
        struct wire_text name, value;
        wire_hello_setting(&settings, &name, &value);
        require((const uint8_t *)name.bytes >= bytes);
        require((const uint8_t *)value.bytes + value.n_bytes <= bytes + n);
    }
    require(!settings.bad);
    return true;
}

static bool control(const uint8_t *bytes, size_t n, struct base_error *error) {
    struct wire_control_head head;
    struct base_error failure;
    if (n < WIRE_CONTROL_HEAD_BYTES || wire_control_decode(bytes, &head, error) != JACKAL_OK)
        return false;
    require(head.payload_bytes <= WIRE_CONTROL_PAYLOAD_MAX);
    if (wire_failure_decode(bytes + WIRE_CONTROL_HEAD_BYTES, n - WIRE_CONTROL_HEAD_BYTES, &failure,
                            error) != JACKAL_OK)
        return false;
    require(failure.status < 0 && failure.peer >= -1 && strchr(failure.text, '\n') == NULL);
    return true;
}

int decode_any(const uint8_t *bytes, size_t n_bytes) {
    static bool (*const decoders[DECODERS])(const uint8_t *, size_t, struct base_error *) = {
        header, credit, answer, endpoint, hello, body, control};
    if (n_bytes == 0)
        return 0;
    uint8_t *copy = malloc(n_bytes);
    require(copy != NULL);
    /* At the end of the block, however small the rest: reading one byte too many is seen. */
    memcpy(copy, bytes, n_bytes);
    struct base_error error;
    base_error_clear(&error);
    bool taken = decoders[bytes[0] % DECODERS](copy + 1, n_bytes - 1, &error);
    free(copy);
    return taken ? 1 : 0;
}
