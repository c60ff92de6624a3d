/* SPDX-License-Identifier: MIT */
/*
 * Every decoder against noise and against damaged copies of right messages (G12). What is wrong
 * is found by decode_any() itself, or by a sanitizer; here it is counted that the damaged copies
 * get past the first checks at all, since noise alone would not.
 */
#include "decode_any.h"
#include "wire/control.h"
#include "wire/credit.h"
#include "wire/endpoint.h"
#include "wire/hello.h"
#include "wire/point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { ROUNDS = 60000, LONGEST = 200 };

static uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

static uint32_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static void noise(void **state) {
    (void)state;
    uint8_t bytes[LONGEST];
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = next() % LONGEST;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)next();
        decode_any(bytes, n);
    }
}

/* A right message for each decoder; returns its length. */
static size_t right_message(uint8_t which, uint8_t *bytes) {
    struct wire_header header = {.kind = WIRE_COLLECTIVE, .payload_bytes = 8, .total_bytes = 64};
    struct wire_credit credits[2] = {{0, WIRE_COLLECTIVE, 1, 2}, {1, WIRE_POINT, 3, 4}};
    struct wire_endpoint end = {.device = "rdma_en2", .mtu_bytes = 4096};
    struct wire_hello hello = {.job = "run", .library = "0.1.0", .rank = 1, .size = 2};
    struct wire_writer writer = {.bytes = bytes, .room = LONGEST};
    struct base_error why;
    switch (which) {
    case 0:
        wire_header_encode(&header, bytes);
        memset(bytes + WIRE_HEADER_BYTES, 7, 8);
        return WIRE_HEADER_BYTES + 8;
    case 1:
        return wire_credit_encode(credits, 2, bytes, LONGEST);
    case 2:
        wire_answer_encode(&(struct wire_answer){WIRE_GO, 5}, bytes);
        return WIRE_ANSWER_BYTES;
    case 3:
        return wire_endpoint_encode(&end, bytes, LONGEST);
    case 4:
    case 5:
        wire_hello_begin(&writer, &hello);
        wire_hello_add(&writer, "ORDER", "auto");
        size_t n = wire_hello_end(&writer, 1);
        if (which == 4)
            return n;
        memmove(bytes, bytes + WIRE_HELLO_HEAD_BYTES, n - WIRE_HELLO_HEAD_BYTES);
        return n - WIRE_HELLO_HEAD_BYTES;
    default:
        base_fail(&why, JACKAL_ERR_PEER_LOST, "rank 3 is gone");
        wire_control_encode(&(struct wire_control_head){WIRE_CONTROL_FAIL, 24}, bytes);
        return WIRE_CONTROL_HEAD_BYTES +
               wire_failure_encode(&why, bytes + WIRE_CONTROL_HEAD_BYTES, 100);
    }
}

static void damaged_messages(void **state) {
    (void)state;
    uint8_t bytes[1 + LONGEST];
    int taken[DECODERS] = {0}, refused[DECODERS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t which = (uint8_t)(round % DECODERS);
        bytes[0] = which;
        size_t n = 1 + right_message(which, bytes + 1);
        if (round < DECODERS) {
            assert_int_equal(decode_any(bytes, n), 1);
            continue;
        }
        for (uint32_t flips = 1 + next() % 3; flips > 0; flips--)
            bytes[1 + next() % (n - 1)] ^= (uint8_t)(1u << (next() % 8));
        if (next() % 4 == 0)
            n = 1 + next() % n;
        if (decode_any(bytes, n) != 0)
            taken[which]++;
        else
            refused[which]++;
    }
    for (int which = 0; which < DECODERS; which++) {
        assert_true(taken[which] > 0);
        assert_true(refused[which] > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise),
        cmocka_unit_test(damaged_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
