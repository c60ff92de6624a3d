/* SPDX-License-Identifier: MIT */
#include "wire/control.h"
#include "wire/endpoint.h"
#include "wire/hello.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

/* ---- endpoint -------------------------------------------------------------------------------- */

static const struct wire_endpoint end_sample = {
    .device = "rdma_en2",
    .small = {0x01020304, 7},
    .bulk = {0x05060708, 0x00abcdef},
    .lid = 0x1122,
    .gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
    .mtu_bytes = 4096,
    .frames_counted = true,
    .small_slot_bytes = 4096,
    .bulk_slot_bytes = 65536,
    .small_slots = 32,
    .bulk_slots = 24};

static const uint8_t end_golden[] = {
    64,   0,    8, 'r', 'd',  'm',  'a',  '_', 'e', 'n', '2', /* lengths, device */
    4,    3,    2, 1,   7,    0,    0,    0,                  /* small */
    8,    7,    6, 5,   0xef, 0xcd, 0xab, 0,                  /* bulk */
    0x22, 0x11,                                               /* lid */
    0xfe, 0x80, 0, 0,   0,    0,    0,    0,   1,   2,   3,
    4,    5,    6, 7,   8,    0,    0x10, 0,   0,   1, /* mtu, flags */
    0,    0x10, 0, 0,   0,    0,    1,    0,           /* slot bytes */
    32,   0,    0, 0,   24,   0,    0,    0};          /* slots */

static void endpoint_has_golden_bytes_D20(void **state) {
    (void)state;
    uint8_t out[WIRE_ENDPOINT_MAX];
    assert_int_equal(wire_endpoint_encode(&end_sample, out, sizeof out), sizeof end_golden);
    assert_memory_equal(out, end_golden, sizeof end_golden);
    assert_int_equal(wire_endpoint_encode(&end_sample, out, sizeof end_golden - 1), 0);
    struct wire_endpoint back;
    size_t used;
    assert_int_equal(wire_endpoint_decode(end_golden, sizeof end_golden, &back, &used, NULL),
                     JACKAL_OK);
    assert_int_equal(used, sizeof end_golden);
    assert_string_equal(back.device, "rdma_en2");
    assert_int_equal(back.bulk.psn, 0x00abcdef);
    assert_memory_equal(back.gid, end_sample.gid, sizeof back.gid);
    assert_true(back.frames_counted);
    assert_int_equal(back.bulk_slots, 24);
}

static void endpoint_is_bounded_and_extensible(void **state) {
    (void)state;
    struct wire_endpoint back, longest = end_sample;
    size_t used;
    struct base_error error;
    for (size_t cut = 0; cut < sizeof end_golden; cut++)
        assert_int_equal(wire_endpoint_decode(end_golden, cut, &back, &used, &error),
                         JACKAL_ERR_PROTOCOL);
    memset(longest.device, 'd', 63);
    uint8_t out[WIRE_ENDPOINT_MAX + 8] = {0};
    size_t n = wire_endpoint_encode(&longest, out, WIRE_ENDPOINT_MAX);
    assert_int_equal(n, WIRE_ENDPOINT_MAX);
    /* A later version's fields are stepped over. */
    wire_put_u16(out, (uint16_t)(n - 2 + 8));
    assert_int_equal(wire_endpoint_decode(out, n + 8, &back, &used, NULL), JACKAL_OK);
    assert_int_equal(used, n + 8);
    assert_int_equal(strlen(back.device), 63);
    out[2] = 64; /* one more than fits */
    assert_int_equal(wire_endpoint_decode(out, n + 8, &back, &used, &error), JACKAL_ERR_PROTOCOL);
}

/* ---- hello ----------------------------------------------------------------------------------- */

static const uint8_t hello_golden[] = {
    'J', 'K', 'L', 0xca, 1,   0,   1,   0,    60,  0,   0,   0, 0, 0, 0, 0, /* head */
    5,   0,   'r', 'u',  'n', '-', '7',                                     /* job */
    8,   7,   6,   5,    4,   3,   2,   1,                                  /* incarnation */
    2,   0,   0,   0,    3,   0,   0,   0,                                  /* rank, size */
    5,   0,   0,   0,    0,   0,   0,   0x80,                               /* features */
    5,   0,   '0', '.',  '1', '.', '0',                                     /* library */
    2,   0,                                                                 /* settings */
    4,   0,   'W', 'I',  'R', 'E', 3,   0,    'm', 'l', 'x',                /* one */
    5,   0,   'O', 'R',  'D', 'E', 'R', 0,    0};                           /* two, empty */

static size_t write_hello(uint8_t *bytes, size_t room) {
    struct wire_hello hello = {.job = "run-7",
                               .incarnation = UINT64_C(0x0102030405060708),
                               .rank = 2,
                               .size = 3,
                               .features = UINT64_C(0x8000000000000005),
                               .library = "0.1.0"};
    struct wire_writer writer = {.bytes = bytes, .room = room};
    wire_hello_begin(&writer, &hello);
    wire_hello_add(&writer, "WIRE", "mlx");
    wire_hello_add(&writer, "ORDER", "");
    return wire_hello_end(&writer, 2);
}

static void hello_has_golden_bytes_D20(void **state) {
    (void)state;
    uint8_t bytes[256];
    size_t n = write_hello(bytes, sizeof bytes);
    assert_int_equal(n, sizeof hello_golden);
    assert_memory_equal(bytes, hello_golden, n);
    for (size_t room = 0; room < n; room++)
        assert_int_equal(write_hello(bytes, room), 0);
}

static void hello_is_read_back(void **state) {
    (void)state;
    struct wire_hello_head head;
    for (size_t n = 0; n < WIRE_HELLO_HEAD_BYTES; n++)
        assert_int_equal(wire_hello_head_decode(hello_golden, n, &head, NULL), JACKAL_PENDING);
    assert_int_equal(wire_hello_head_decode(hello_golden, 16, &head, NULL), JACKAL_OK);
    assert_int_equal(head.body_bytes, sizeof hello_golden - 16);
    struct wire_hello hello;
    struct base_error error;
    assert_int_equal(wire_hello_decode(hello_golden + 16, head.body_bytes, &hello, &error),
                     JACKAL_OK);
    assert_string_equal(hello.job, "run-7");
    assert_string_equal(hello.library, "0.1.0");
    assert_int_equal(hello.rank, 2);
    assert_int_equal(hello.size, 3);
    assert_true(hello.features == UINT64_C(0x8000000000000005));
    assert_int_equal(hello.n_settings, 2);
    struct wire_text name, value;
    wire_hello_setting(&hello.settings, &name, &value);
    assert_true(wire_text_is(name, "WIRE") && wire_text_is(value, "mlx"));
    wire_hello_setting(&hello.settings, &name, &value);
    assert_true(wire_text_is(name, "ORDER") && wire_text_is(value, ""));
    assert_false(hello.settings.bad);
    for (size_t cut = 0; cut < head.body_bytes; cut++)
        assert_int_equal(wire_hello_decode(hello_golden + 16, cut, &hello, &error),
                         JACKAL_ERR_PROTOCOL);
}

/* An MLX root reads the first four bytes as a rank, in its own byte order: never a legal one. */
static void magic_is_outside_any_rank(void **state) {
    (void)state;
    int32_t little, big = (int32_t)UINT32_C(0x4a4b4cca);
    uint32_t value = wire_get_u32(hello_golden);
    memcpy(&little, &value, sizeof little);
    assert_true(little < 0);
    assert_true(big > 65535);
    /* And an MLX member, which sends its rank, is known as a stranger by its first byte. */
    const uint8_t rank_1[] = {1, 0, 0, 0};
    struct wire_hello_head head;
    assert_int_equal(wire_hello_head_decode(rank_1, 1, &head, NULL), JACKAL_ERR_PROTOCOL);
}

/* B8, G12: an announced size is judged before anything is allocated for it. */
static void hello_head_is_bounded_G12(void **state) {
    (void)state;
    uint8_t bytes[16];
    struct wire_hello_head head;
    struct base_error error;
    wire_hello_head_encode(&(struct wire_hello_head){1, 1, UINT32_MAX}, bytes);
    assert_int_equal(wire_hello_head_decode(bytes, 16, &head, &error), JACKAL_ERR_PROTOCOL);
    assert_non_null(strstr(error.text, "4294967295"));
    wire_hello_head_encode(&(struct wire_hello_head){1, 1, WIRE_HELLO_BODY_MAX}, bytes);
    assert_int_equal(wire_hello_head_decode(bytes, 16, &head, NULL), JACKAL_OK);
    bytes[15] = 1;
    assert_int_equal(wire_hello_head_decode(bytes, 16, &head, NULL), JACKAL_ERR_PROTOCOL);
}

static void versions_overlap_or_not(void **state) {
    (void)state;
    struct wire_hello_head v1 = {1, 1, 0}, v2_knows_1 = {2, 1, 0}, v2_only = {2, 2, 0};
    assert_true(wire_hello_compatible(&v1, &v2_knows_1));
    assert_true(wire_hello_compatible(&v2_knows_1, &v1));
    assert_false(wire_hello_compatible(&v1, &v2_only));
    assert_false(wire_hello_compatible(&v2_only, &v1));
}

/* ---- control --------------------------------------------------------------------------------- */

static void control_frames_are_bounded(void **state) {
    (void)state;
    uint8_t bytes[8];
    struct wire_control_head head;
    const uint8_t control_golden[] = {4, 0, 0, 0, 8, 0, 0x10, 0};
    wire_control_encode(&(struct wire_control_head){WIRE_CONTROL_GATHER, WIRE_CONTROL_PAYLOAD_MAX},
                        bytes);
    assert_memory_equal(bytes, control_golden, sizeof bytes);
    assert_int_equal(wire_control_decode(bytes, &head, NULL), JACKAL_OK);
    wire_put_u32(bytes + 4, WIRE_CONTROL_PAYLOAD_MAX + 1);
    assert_int_equal(wire_control_decode(bytes, &head, NULL), JACKAL_ERR_PROTOCOL);
    wire_control_encode(&(struct wire_control_head){WIRE_CONTROL_VERDICT, 1025}, bytes);
    assert_int_equal(wire_control_decode(bytes, &head, NULL), JACKAL_ERR_PROTOCOL);
}

static void failure_is_read_back(void **state) {
    (void)state;
    struct base_error why, back, error;
    uint8_t bytes[WIRE_CONTROL_SMALL_MAX];
    base_fail_peer(&why, JACKAL_ERR_NO_DEVICE, -1, "no device \"rdma_en9\"\nline 2");
    size_t n = wire_failure_encode(&why, bytes, sizeof bytes);
    assert_int_equal(n, 10 + strlen(why.text));
    assert_int_equal(wire_failure_decode(bytes, n, &back, &error), JACKAL_OK);
    assert_int_equal(back.status, JACKAL_ERR_NO_DEVICE);
    assert_int_equal(back.peer, -1);
    assert_string_equal(back.text, "no device \"rdma_en9\" line 2");
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(wire_failure_decode(bytes, cut, &back, &error), JACKAL_ERR_PROTOCOL);
    /* The longest text fits into a small frame. */
    memset(why.text, 'x', sizeof why.text - 1);
    why.text[sizeof why.text - 1] = '\0';
    n = wire_failure_encode(&why, bytes, sizeof bytes);
    assert_int_not_equal(n, 0);
    assert_int_equal(wire_failure_decode(bytes, n, &back, &error), JACKAL_OK);
    /* "Success" and unknown codes are no failure that a caller could act on. */
    wire_put_u32(bytes, 0);
    assert_int_equal(wire_failure_decode(bytes, n, &back, &error), JACKAL_OK);
    assert_int_equal(back.status, JACKAL_ERR_REMOTE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoint_has_golden_bytes_D20),
        cmocka_unit_test(endpoint_is_bounded_and_extensible),
        cmocka_unit_test(hello_has_golden_bytes_D20),
        cmocka_unit_test(hello_is_read_back),
        cmocka_unit_test(magic_is_outside_any_rank),
        cmocka_unit_test(hello_head_is_bounded_G12),
        cmocka_unit_test(versions_overlap_or_not),
        cmocka_unit_test(control_frames_are_bounded),
        cmocka_unit_test(failure_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
