/* SPDX-License-Identifier: MIT */
/*
 * Case T15 f: a rank that never comes (B10). Longer than one progress line takes, 5 s.
 */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <jackal/jackal.h>

static int n_progress_lines;

static void take_line(void *context, int level, const char *line) {
    (void)context;
    if (level == JACKAL_LOG_WARNING && strstr(line, "missing: 2") != NULL)
        n_progress_lines++;
}

/* Drips a byte of a right hello now and then; returns after how many ms it was turned away. */
static uint64_t drip(const struct star *star) {
    uint8_t bytes[16 + 64] = {0};
    uint64_t began_ns = base_now_ns();
    wire_hello_head_encode(&(struct wire_hello_head){1, 1, 64}, bytes);
    int fd = star_connect(star);
    for (size_t i = 0; i < sizeof bytes && !star_closed(fd, 100); i++)
        (void)base_socket_send(fd, bytes + i, 1, base_deadline_ns(100), NULL);
    base_socket_close(fd);
    return (base_now_ns() - began_ns) / 1000000;
}

static void missing_rank_is_named_T15f(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 4, 5300);
    struct star here = star;
    here.n = 3;
    here.ranks[2] = star.ranks[3];
    here.ranks[0].options.log = &here.log;
    here.log = (struct base_log){JACKAL_LOG_WARNING, 0, take_line, NULL};
    n_progress_lines = 0;
    star_start(&here);
    uint64_t dripped_ms = drip(&star);
    star_wait(&here);
    assert_true(base_expired(star.ranks[0].options.deadline_ns));
    assert_in_range(dripped_ms, 1500, 4000);
    assert_int_equal(n_progress_lines, 1);
    for (int r = 0; r < here.n; r++) {
        assert_int_equal(here.ranks[r].status, JACKAL_ERR_INIT_TIMEOUT);
        assert_int_equal(here.ranks[r].error.peer, 2);
        assert_non_null(strstr(here.ranks[r].error.text, "missing: 2:"));
        assert_in_range(here.ranks[r].took_ms, 4000, 6800);
    }
}

static void no_rank_0_names_the_address(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 2, 400);
    base_socket_close(star.listener);
    star.n = 1;
    star.ranks[0].options.rank = 1;
    star_run(&star);
    assert_int_equal(star.ranks[0].status, JACKAL_ERR_INIT_TIMEOUT);
    assert_true(base_expired(star.ranks[0].options.deadline_ns));
    assert_in_range(star.ranks[0].took_ms, 0, 2500);
    assert_non_null(strstr(star.ranks[0].error.text, star.coordinator));
    assert_non_null(strstr(star.ranks[0].error.text, "ECONNREFUSED"));
    assert_int_equal(star.ranks[0].error.peer, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_rank_is_named_T15f),
        cmocka_unit_test(no_rank_0_names_the_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
