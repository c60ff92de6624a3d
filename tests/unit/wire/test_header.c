/* SPDX-License-Identifier: MIT */
#include "wire/credit.h"
#include "wire/header.h"
#include "wire/point.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>

static const struct wire_header sample = {.kind = WIRE_POINT,
                                          .channel = 0x0102,
                                          .source = 0x0304,
                                          .phase = 0x0506,
                                          .payload_bytes = 0x00000908,
                                          .crc32c = 0x0c0d0e0f,
                                          .operation = UINT64_C(0x1011121314151617),
                                          .fingerprint = UINT64_C(0x18191a1b1c1d1e1f),
                                          .total_bytes = UINT64_C(0x2021222324252627),
                                          .offset = UINT64_C(0x20212223242512ff),
                                          .incarnation = UINT64_C(0x30313233343536ff)};

static const uint8_t golden[WIRE_HEADER_BYTES] = {
    0x01, 0x02, 0x02, 0x01, 0x04, 0x03, 0x06, 0x05, 0x08, 0x09, 0x00, 0x00, 0x0f, 0x0e, 0x0d, 0x0c,
    0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x10, 0x1f, 0x1e, 0x1d, 0x1c, 0x1b, 0x1a, 0x19, 0x18,
    0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x20, 0xff, 0x12, 0x25, 0x24, 0x23, 0x22, 0x21, 0x20,
    0xff, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

/* D20: the bytes are the same on every machine, at any alignment. */
static void header_has_golden_bytes_D20(void **state) {
    (void)state;
    uint8_t bytes[WIRE_HEADER_BYTES + 1];
    for (int shift = 0; shift < 2; shift++) {
        memset(bytes, 0xaa, sizeof bytes);
        wire_header_encode(&sample, bytes + shift);
        assert_memory_equal(bytes + shift, golden, sizeof golden);
        struct wire_header back;
        memset(&back, 0x55, sizeof back);
        assert_int_equal(wire_header_decode(bytes + shift, 4096, &back, NULL), JACKAL_OK);
        assert_int_equal(back.kind, sample.kind);
        assert_int_equal(back.channel, sample.channel);
        assert_int_equal(back.source, sample.source);
        assert_int_equal(back.phase, sample.phase);
        assert_int_equal(back.payload_bytes, sample.payload_bytes);
        assert_int_equal(back.crc32c, sample.crc32c);
        assert_true(back.operation == sample.operation && back.offset == sample.offset);
        assert_true(back.fingerprint == sample.fingerprint);
        assert_true(back.total_bytes == sample.total_bytes);
        assert_true(back.incarnation == sample.incarnation);
    }
}

static void refused(const uint8_t *bytes, size_t slot_bytes, const char *word) {
    struct wire_header header;
    struct base_error error;
    assert_int_equal(wire_header_decode(bytes, slot_bytes, &header, &error), JACKAL_ERR_PROTOCOL);
    assert_int_equal(error.status, JACKAL_ERR_PROTOCOL);
    assert_non_null(strstr(error.text, word));
}

static void header_refuses_what_does_not_fit(void **state) {
    (void)state;
    uint8_t bytes[WIRE_HEADER_BYTES];
    memcpy(bytes, golden, sizeof bytes);
    refused(bytes, 63, "shorter than its header");
    refused(bytes, WIRE_HEADER_BYTES + 0x907, "claims 2312 payload bytes");
    bytes[0] = 2;
    refused(bytes, 4096, "version 2");
    bytes[0] = 1, bytes[1] = 0;
    refused(bytes, 4096, "unknown kind 0");
    bytes[1] = 7;
    refused(bytes, 4096, "unknown kind 7");
    bytes[1] = WIRE_POINT, bytes[63] = 1;
    refused(bytes, 4096, "reserved");
    bytes[63] = 0;
    wire_put_u64(bytes + 40, UINT64_MAX - 1);
    refused(bytes, 4096, "do not lie in");
    wire_put_u64(bytes + 40, sample.total_bytes - 0x907);
    refused(bytes, 4096, "do not lie in");
    wire_put_u64(bytes + 32, UINT64_MAX);
    wire_put_u64(bytes + 40, UINT64_MAX - 1); /* inside, but offset + payload wraps */
    refused(bytes, 4096, "do not lie in");
    struct wire_header header;
    wire_put_u64(bytes + 32, sample.total_bytes);
    wire_put_u64(bytes + 40, sample.total_bytes - 0x908);
    assert_int_equal(wire_header_decode(bytes, 4096, &header, NULL), JACKAL_OK);
    /* Other kinds say nothing about a place in a message. */
    bytes[1] = WIRE_POINT_ASK;
    wire_put_u64(bytes + 40, UINT64_MAX);
    assert_int_equal(wire_header_decode(bytes, 4096, &header, NULL), JACKAL_OK);
}

static void crc32c_has_check_value(void **state) {
    (void)state;
    assert_int_equal(wire_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(wire_crc32c_portable(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(wire_crc32c(0, "", 0), 0);
    uint8_t zeros[32] = {0};
    assert_int_equal(wire_crc32c(0, zeros, sizeof zeros), 0x8a9136aau);
}

static void crc32c_of_parts_and_of_tables_agree(void **state) {
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + (i >> 3));
    for (size_t start = 0; start < 9; start++) {
        for (size_t n = 0; n + start <= sizeof bytes; n += 1 + n / 16) {
            uint32_t whole = wire_crc32c(0, bytes + start, n);
            assert_int_equal(whole, wire_crc32c_portable(0, bytes + start, n));
            size_t cut = n / 3;
            uint32_t part = wire_crc32c(0, bytes + start, cut);
            assert_int_equal(whole, wire_crc32c(part, bytes + start + cut, n - cut));
        }
    }
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Neighbouring calls: every operation, type, operator, root and a spread of counts. */
static void fingerprints_differ(void **state) {
    (void)state;
    static const uint64_t counts[] = {0,   1,    2,     3,           255,       256,
                                      257, 4096, 65536, 1ull << 32u, UINT64_MAX};
    enum { MOST = 16 * 14 * 5 * 11 * 4 };
    uint64_t *all = malloc(MOST * sizeof *all);
    assert_non_null(all);
    size_t n = 0;
    for (int operation = 0; operation < 16; operation++)
        for (int dtype = 0; dtype < 14; dtype++)
            for (int op = 0; op < 5; op++)
                for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                    for (int root = -1; root < 3; root++)
                        all[n++] = wire_fingerprint(operation, dtype, op, counts[c], root);
    assert_int_equal(n, MOST);
    qsort(all, n, sizeof *all, compare_u64);
    for (size_t i = 1; i < n; i++)
        assert_true(all[i] != all[i - 1]);
    free(all);
    /* It travels between versions: a change is a change of the protocol (D20). */
    assert_true(wire_fingerprint(1, 11, 0, 1024, -1) == UINT64_C(0xc983718dec8906e2));
}

static void credits_have_golden_bytes_D20(void **state) {
    (void)state;
    const struct wire_credit credits[] = {{1, WIRE_COLLECTIVE, 0x0203, 0x04050607},
                                          {0, WIRE_POINT, 0xfffe, UINT32_MAX}};
    const uint8_t bytes[] = {2, 0, 1, 1, 3, 2, 7, 6, 5, 4, 0, 2, 0xfe, 0xff, 255, 255, 255, 255};
    uint8_t out[32];
    assert_int_equal(wire_credit_encode(credits, 2, out, sizeof out), sizeof bytes);
    assert_memory_equal(out, bytes, sizeof bytes);
    assert_int_equal(wire_credit_encode(credits, 2, out, sizeof bytes - 1), 0);
    struct wire_credit back[2];
    size_t n;
    assert_int_equal(wire_credit_decode(bytes, sizeof bytes, back, 2, &n, NULL), JACKAL_OK);
    assert_int_equal(n, 2);
    assert_int_equal(back[0].channel, 0x0203);
    assert_int_equal(back[1].consumed, UINT32_MAX);
    struct base_error error;
    assert_int_equal(wire_credit_decode(bytes, sizeof bytes, back, 1, &n, &error),
                     JACKAL_ERR_PROTOCOL);
    assert_int_equal(n, 0);
    for (size_t cut = 0; cut < sizeof bytes; cut++)
        assert_int_equal(wire_credit_decode(bytes, cut, back, 2, &n, &error), JACKAL_ERR_PROTOCOL);
    memcpy(out, bytes, sizeof bytes);
    out[2] = 2; /* there is no third queue */
    assert_int_equal(wire_credit_decode(out, sizeof bytes, back, 2, &n, &error),
                     JACKAL_ERR_PROTOCOL);
}

static void answers_have_golden_bytes_D20(void **state) {
    (void)state;
    const uint8_t bytes[] = {2, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
    uint8_t out[WIRE_ANSWER_BYTES];
    wire_answer_encode(&(struct wire_answer){WIRE_MISMATCH, UINT64_C(0x0102030405060708)}, out);
    assert_memory_equal(out, bytes, sizeof bytes);
    struct wire_answer back;
    assert_int_equal(wire_answer_decode(bytes, sizeof bytes, &back, NULL), JACKAL_OK);
    assert_int_equal(back.verdict, WIRE_MISMATCH);
    assert_true(back.n_bytes == UINT64_C(0x0102030405060708));
    assert_int_equal(wire_answer_decode(bytes, 11, &back, NULL), JACKAL_ERR_PROTOCOL);
    out[0] = 3;
    assert_int_equal(wire_answer_decode(out, sizeof out, &back, NULL), JACKAL_ERR_PROTOCOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_has_golden_bytes_D20),
        cmocka_unit_test(header_refuses_what_does_not_fit),
        cmocka_unit_test(crc32c_has_check_value),
        cmocka_unit_test(crc32c_of_parts_and_of_tables_agree),
        cmocka_unit_test(fingerprints_differ),
        cmocka_unit_test(credits_have_golden_bytes_D20),
        cmocka_unit_test(answers_have_golden_bytes_D20),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
