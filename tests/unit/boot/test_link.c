/* SPDX-License-Identifier: MIT */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void open_pair(struct boot_link links[2]) {
    struct base_address address = {.host = "127.0.0.1"};
    int listener, fd;
    memset(links, 0, 2 * sizeof *links);
    assert_int_equal(base_socket_listen(&address, 4, &listener, NULL), JACKAL_OK);
    address.port = base_socket_port(listener);
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(1000), &fd, NULL), JACKAL_OK);
    boot_link_open(&links[0], fd, 10000);
    assert_true(base_socket_ready(listener, POLLIN, base_deadline_ns(1000)));
    boot_link_open(&links[1], base_socket_accept(listener), 10000);
    base_socket_close(listener);
}

static void fill(uint8_t *payload, size_t n, unsigned number) {
    for (size_t i = 0; i < n; i++)
        payload[i] = (uint8_t)(number * 13 + i);
}

/* A peer that does not read: posts fail without waiting, and no frame is ever cut. */
static void posts_are_whole_or_not_at_all(void **state) {
    (void)state;
    struct boot_link links[2];
    struct base_error error;
    uint8_t payload[1000], want[1000];
    unsigned number = 0, taken = 0, n_failed = 0;
    open_pair(links);
    while (n_failed < 3 && number < 200000) {
        fill(payload, sizeof payload, number);
        uint64_t began_ns = base_now_ns();
        bool begun = links[0].n_out > 0;
        if (boot_link_post(&links[0], WIRE_CONTROL_REPORT, payload, sizeof payload, began_ns))
            number++;
        else if (!begun && links[0].n_out > 0)
            number++, n_failed++; /* begun: the rest goes first next time */
        else
            n_failed++;
    }
    assert_int_equal(n_failed, 3);
    for (int patience = 0; taken < number && patience < 3000; patience++) {
        enum boot_read result;
        while ((result = boot_link_read(&links[1], &error)) == BOOT_READ_FRAME) {
            fill(want, sizeof want, taken++);
            assert_int_equal(links[1].head.payload_bytes, sizeof want);
            assert_memory_equal(links[1].payload, want, sizeof want);
        }
        assert_int_equal(result, BOOT_READ_MORE);
        boot_link_flush(&links[0], base_now_ns());
        base_sleep_us(500);
    }
    assert_int_equal(taken, number);
    assert_true(boot_link_post(&links[0], WIRE_CONTROL_LEAVE, NULL, 0, base_now_ns()));
    assert_int_equal(boot_link_wait(&links[1], base_deadline_ns(1000), &error), JACKAL_OK);
    assert_int_equal(links[1].head.type, WIRE_CONTROL_LEAVE);
    boot_link_close(&links[0]);
    assert_int_equal(boot_link_wait(&links[1], base_deadline_ns(1000), &error),
                     JACKAL_ERR_PEER_LOST);
    boot_link_close(&links[1]);
    assert_false(boot_link_post(&links[1], WIRE_CONTROL_LEAVE, NULL, 0, base_now_ns()));
}

/* Last words arrive although the other end had sent what nobody read. */
static void farewell_delivers(void **state) {
    (void)state;
    struct boot_link links[2];
    struct base_error error, why;
    static uint8_t unread[100000];
    open_pair(links);
    assert_int_equal(
        base_socket_send(links[1].fd, unread, sizeof unread, base_deadline_ns(1000), NULL),
        JACKAL_OK);
    base_fail(&why, JACKAL_ERR_NO_GID, "last words");
    assert_true(boot_link_post_failure(&links[0], WIRE_CONTROL_FAIL, &why, base_now_ns()));
    uint64_t began_ns = base_now_ns();
    boot_links_farewell(links, 1, base_deadline_ns(200));
    assert_in_range((base_now_ns() - began_ns) / 1000000, 150, 1500);
    assert_int_equal(links[0].fd, -1);
    assert_int_equal(boot_link_wait(&links[1], base_deadline_ns(1000), &error), JACKAL_OK);
    assert_int_equal(links[1].head.type, WIRE_CONTROL_FAIL);
    boot_link_close(&links[1]);
}

static void missing_ranks_are_listed(void **state) {
    (void)state;
    bool here[40] = {true, false, true, false};
    char text[160];
    assert_int_equal(boot_missing(here, 4, text, sizeof text), 1);
    assert_string_equal(text, "1, 3");
    assert_int_equal(boot_missing(here, 1, text, sizeof text), -1);
    assert_string_equal(text, "");
    assert_int_equal(boot_missing(here, 40, text, sizeof text), 1);
    assert_non_null(strstr(text, "17 and 22 more"));
    assert_int_equal(boot_missing(here, 40, text, 4), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posts_are_whole_or_not_at_all),
        cmocka_unit_test(farewell_delivers),
        cmocka_unit_test(missing_ranks_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
