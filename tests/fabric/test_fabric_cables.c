/* SPDX-License-Identifier: MIT */
/* Pace, states and counters of cables. What is timed is how long things take at least, or which of
 * two takes longer by far. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"
#include "jackal_fabric.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO_HOSTS                                                                                  \
    "\"hosts\": [{\"name\": \"A\", \"devices\": [{\"name\": \"rdma_en2\"}, {\"name\": "            \
    "\"rdma_en3\"}]}, {\"name\": \"B\", \"devices\": [{\"name\": \"rdma_en2\"}, {\"name\": "       \
    "\"rdma_en3\"}]}], \"cables\": [{\"ends\": [\"A.en2\", \"B.en2\"]}, {\"ends\": [\"A.en3\", "   \
    "\"B.en3\"]}]"

#define MIB (1024u * 1024u)

/* Sends n messages from one end to the other; both kinds of completions are collected. */
static void carry(struct support_end *from, struct support_end *to, int n, uint32_t length) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(support_recv(to, (uint64_t)i, 0, length), 0);
        assert_int_equal(support_send(from, (uint64_t)i, 0, length), 0);
        assert_int_equal(support_wait(to).status, IBV_WC_SUCCESS);
        assert_int_equal(support_wait(from).status, IBV_WC_SUCCESS);
    }
}

static void rate_is_kept(void **state) {
    struct support_end a, b;
    int64_t start;

    (void)state;
    support_settings("*", "{" TWO_HOSTS ", \"link\": {\"rate\": \"20MB/s\"}}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", MIB);
    support_fill(a.bytes, 1, 1, MIB);
    start = support_now_ms();
    carry(&a, &b, 2, MIB);
    assert_true(support_now_ms() - start >= 104); /* 2 MiB at 20 MB/s */
    assert_true(support_is_filled(b.bytes, 1, 1, MIB));
    support_unpair(&a, &b);
}

static void latency_is_kept(void **state) {
    struct support_end a, b;
    int64_t start;

    (void)state;
    support_settings("*", "{" TWO_HOSTS ", \"link\": {\"latency\": \"20ms\"}}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", 65536);
    start = support_now_ms();
    carry(&a, &b, 3, 4096);
    assert_true(support_now_ms() - start >= 59);
    support_unpair(&a, &b);
}

static void gaps_are_kept(void **state) {
    struct support_end a, b;
    int64_t start;

    (void)state;
    support_settings("*", "{" TWO_HOSTS ", \"link\": {\"gap\": \"10ms\", \"frame_gap\": \"5ms\"}}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", 65536);
    start = support_now_ms();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(support_recv(&b, 1, 0, 12288), 0);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(support_send(&a, 1, 0, 12288), 0); /* 3 frames: 20 ms each */
    }
    for (int i = 0; i < 5; i++) {
        support_wait(&b);
    }
    assert_true(support_now_ms() - start >= 99);
    support_unpair(&a, &b);
}

/* 2 MiB over one cable, or over two at the same time. */
static int64_t time_of(struct support_end *a, struct support_end *b, int n_pairs) {
    int64_t start = support_now_ms();

    for (int k = 0; k < 2; k++) {
        assert_int_equal(support_recv(&b[k % n_pairs], 1, 0, MIB), 0);
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(support_send(&a[k % n_pairs], 1, 0, MIB), 0);
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(support_wait(&b[k % n_pairs]).status, IBV_WC_SUCCESS);
        assert_int_equal(support_wait(&a[k % n_pairs]).status, IBV_WC_SUCCESS);
    }
    return support_now_ms() - start;
}

static void two_cables_are_twice_one(void **state) {
    struct support_end a[2], b[2];
    int64_t one, two;

    (void)state;
    support_settings("*", "{" TWO_HOSTS ", \"link\": {\"rate\": \"8MB/s\"}}");
    support_pair_of(&a[0], "A.rdma_en2", &b[0], "B.rdma_en2", MIB);
    support_pair_of(&a[1], "A.rdma_en3", &b[1], "B.rdma_en3", MIB);
    one = time_of(a, b, 1); /* 262 ms */
    two = time_of(a, b, 2); /* 131 ms */
    assert_true(one >= 262);
    assert_true(two >= 131);
    assert_true(two < one - 40);
    support_unpair(&a[0], &b[0]);
    support_unpair(&a[1], &b[1]);
}

/* Two queue pairs of one cable share it. */
static void queue_pairs_share_a_cable(void **state) {
    struct support_end a[2], b[2];

    (void)state;
    support_settings("*", "{" TWO_HOSTS ", \"link\": {\"rate\": \"20MB/s\"}}");
    support_pair_of(&a[0], "A.rdma_en2", &b[0], "B.rdma_en2", MIB);
    support_pair_of(&a[1], "A.rdma_en2", &b[1], "B.rdma_en2", MIB);
    assert_true(time_of(a, b, 2) >= 104);
    support_unpair(&a[0], &b[0]);
    support_unpair(&a[1], &b[1]);
}

/* A switch's port is as fast as it is, however many send to it. */
static void switch_port_is_shared(void **state) {
    struct support_end ends[2], to[2];
    int64_t start;

    (void)state;
    support_settings("*", "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 3}, \"link\": "
                          "{\"rate\": \"20MB/s\"}}");
    for (int k = 0; k < 2; k++) {
        support_pair_of(&ends[k], k == 0 ? "h0.rocep1" : "h1.rocep1", &to[k], "h2.rocep1", MIB);
    }
    start = support_now_ms();
    for (int k = 0; k < 2; k++) {
        assert_int_equal(support_recv(&to[k], 1, 0, MIB), 0);
        assert_int_equal(support_send(&ends[k], 1, 0, MIB), 0); /* unsignalled: no completion */
    }
    for (int k = 0; k < 2; k++) {
        assert_int_equal(support_wait(&to[k]).status, IBV_WC_SUCCESS);
    }
    assert_true(support_now_ms() - start >= 104);
    support_unpair(&ends[0], &to[0]);
    support_unpair(&ends[1], &to[1]);
}

static void slow_and_back(void **state) {
    struct support_end a, b;
    int64_t start;

    (void)state;
    support_settings("*", "{" TWO_HOSTS "}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", MIB);
    assert_int_equal(jackal_fabric_control(support_name(), "slow B.en2 0.001"), 0);
    start = support_now_ms();
    carry(&a, &b, 1, MIB); /* 8.9 MB/s, since a cable without a pace counts as Thunderbolt 5 */
    assert_true(support_now_ms() - start >= 117);
    assert_int_equal(jackal_fabric_control(support_name(), "slow A.rdma_en2 1"), 0);
    start = support_now_ms();
    carry(&a, &b, 1, MIB);
    assert_true(support_now_ms() - start < 117);
    support_unpair(&a, &b);
}

/* ------------------------------------------------------------------------ states */

static enum ibv_port_state port_state(struct support_end *end) {
    struct ibv_port_attr port;

    assert_int_equal(ibv_query_port(end->context, 1, (struct _compat_ibv_port_attr *)&port), 0);
    return port.state;
}

static void control(const char *command) {
    if (jackal_fabric_control(support_name(), command) != 0) {
        print_error("%s: %s\n", command, jackal_fabric_error());
        fail();
    }
}

static void states_show(void **state) {
    struct support_end a, b, other;
    struct ibv_port_attr port;

    (void)state;
    support_settings("*", "{" TWO_HOSTS "}");
    support_open(&a, "A.rdma_en2", 65536);
    support_open(&b, "B.rdma_en2", 65536);
    support_open(&other, "A.rdma_en3", 65536);
    control("unplug A.en2");
    assert_int_equal(port_state(&a), IBV_PORT_DOWN);
    assert_int_equal(port_state(&b), IBV_PORT_DOWN);
    assert_int_equal(port_state(&other), IBV_PORT_ACTIVE);
    control("replug B.rdma_en2");
    assert_int_equal(port_state(&a), IBV_PORT_ACTIVE);
    assert_int_equal(port_state(&b), IBV_PORT_ACTIVE);
    control("down B.en2"); /* a port is active only when its peer is */
    assert_int_equal(port_state(&a), IBV_PORT_DOWN);
    control("up B.en2");
    assert_int_equal(port_state(&a), IBV_PORT_ACTIVE);
    control("remove B.en2");
    assert_int_equal(port_state(&a), IBV_PORT_DOWN);
    assert_int_equal(ibv_query_port(b.context, 1, (struct _compat_ibv_port_attr *)&port), ENODEV);
    support_close(&a);
    support_close(&b);
    support_close(&other);
}

static void starts_down(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", "{\"hosts\": [{\"name\": \"A\", \"devices\": [{\"name\": \"x\", "
                          "\"state\": \"down\"}, {\"name\": \"y\"}]}, {\"name\": \"B\", "
                          "\"devices\": [{\"name\": \"x\"}, {\"name\": \"y\"}]}], \"cables\": "
                          "[{\"ends\": [\"A.x\", \"B.x\"]}, {\"ends\": [\"A.y\", \"B.y\"], "
                          "\"state\": \"unplugged\"}]}");
    support_open(&a, "B.x", 65536);
    support_open(&b, "A.y", 65536);
    assert_int_equal(port_state(&a), IBV_PORT_DOWN);
    assert_int_equal(port_state(&b), IBV_PORT_DOWN);
    control("up A.x");
    control("replug B.y");
    assert_int_equal(port_state(&a), IBV_PORT_ACTIVE);
    assert_int_equal(port_state(&b), IBV_PORT_ACTIVE);
    support_close(&a);
    support_close(&b);
}

/* No completion and no arrival while the cable is out. */
static void unplugged_is_silent(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", "{" TWO_HOSTS "}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", 65536);
    carry(&a, &b, 1, 4096);
    control("unplug A.en2");
    assert_int_equal(support_recv(&b, 1, 0, 4096), 0);
    assert_int_equal(support_send(&a, 1, 0, 4096), 0);
    assert_true(support_is_silent(&b, 30));
    support_unpair(&a, &b);
}

/* ---------------------------------------------------------------------- counters */

/* The number behind `key` after `from` in a JSON text. */
static long long number_after(const char *text, const char *from, const char *key) {
    const char *at = strstr(text, from);
    char quoted[32];

    assert_non_null(at);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    at = strstr(at, quoted);
    assert_non_null(at);
    return strtoll(at + strlen(quoted), NULL, 10);
}

static void counters(void **state) {
    static char text[65536];
    struct support_end a, b;
    const char *sent;

    (void)state;
    support_settings("*", "{" TWO_HOSTS "}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en2", 65536);
    carry(&a, &b, 7, 5000);
    carry(&b, &a, 1, 1);
    assert_true(jackal_fabric_status(support_name(), text, sizeof text) > 0);
    sent = strstr(text, "\"sent\":"); /* of A.rdma_en2, the first */
    assert_non_null(sent);
    assert_int_equal(number_after(sent, "\"sent\"", "bytes"), 35000);
    assert_int_equal(number_after(sent, "\"sent\"", "messages"), 7);
    assert_int_equal(number_after(sent, "\"sent\"", "frames"), 14);
    assert_int_equal(number_after(sent, "\"received\"", "bytes"), 1);
    assert_int_equal(number_after(sent, "\"received\"", "messages"), 1);
    assert_int_equal(number_after(sent, "\"received\"", "frames"), 1);
    sent = strstr(text, "\"name\":\"B\"");
    assert_non_null(sent);
    assert_int_equal(number_after(sent, "\"received\"", "bytes"), 35000);
    assert_int_equal(number_after(sent, "\"received\"", "frames"), 14);
    support_unpair(&a, &b);
}

/* ------------------------------------------------------- several ranks on a host */

static uint32_t pair; /* of the two, in each child */

static void exchange(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 65536);
    for (uint32_t i = 0; i < 50; i++) {
        support_fill(end.bytes, 10 * pair + side, i, 3000);
        SUPPORT_CHECK(support_recv(&end, 1, 8192, 3000) == 0);
        SUPPORT_CHECK(support_send(&end, 2, 0, 3000) == 0);
        support_wait(&end);
        support_wait(&end);
        SUPPORT_CHECK(support_is_filled(end.bytes + 8192, 10 * pair + 1 - side, i, 3000));
    }
    support_meet(meeting, 8);
    support_close(&end);
}

/* Two processes on each of two hosts, all over the one cable between these. */
static void several_processes_of_a_host(void **state) {
    struct support_meeting *meetings[2];
    int children[4];

    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        meetings[k] = support_meeting_new();
    }
    for (unsigned i = 0; i < 4; i++) {
        pair = i / 2;
        children[i] = support_child(exchange, meetings[i / 2], i % 2);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(support_reap(children[i]), 0);
    }
    support_meeting_free(meetings[0]);
    support_meeting_free(meetings[1]);
    assert_int_equal(support_n_files(), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_is_kept),
        cmocka_unit_test(latency_is_kept),
        cmocka_unit_test(gaps_are_kept),
        cmocka_unit_test(two_cables_are_twice_one),
        cmocka_unit_test(queue_pairs_share_a_cable),
        cmocka_unit_test(switch_port_is_shared),
        cmocka_unit_test(slow_and_back),
        cmocka_unit_test(states_show),
        cmocka_unit_test(starts_down),
        cmocka_unit_test(unplugged_is_silent),
        cmocka_unit_test(counters),
        cmocka_unit_test(several_processes_of_a_host),
    };

    return cmocka_run_group_tests_name("fabric cables", tests, NULL, NULL);
}
