/* SPDX-License-Identifier: MIT */
/*
 * Case T15: ranks that come late, twice or with a wrong number, size, setting or version (B9, B10,
 * B11, E22, E23). Times are a tenth or less of the case's. Part f, the rank that never comes, is in
 * test_missing.c, part e in test_star.c.
 */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* All of them failed with `status`, quickly, and with a text that holds `word`. */
static void all_failed(const struct star *star, jackal_status status, const char *word) {
    for (int r = 0; r < star->n; r++) {
        const struct star_rank *rank = &star->ranks[r];
        if (rank->status != status || strstr(rank->error.text, word) == NULL)
            fail_msg("thread %d: status %d, \"%s\"", r, rank->status, rank->error.text);
        assert_null(rank->boot);
        assert_in_range(rank->took_ms, 0, 3000);
    }
}

static void late_ranks_are_waited_for_T15a(void **state) {
    (void)state;
    static const unsigned delays[6][3] = {{0, 300, 600}, {0, 600, 300}, {300, 0, 600},
                                          {300, 600, 0}, {600, 0, 300}, {600, 300, 0}};
    static struct star stars[6];
    for (int i = 0; i < 6; i++) {
        star_prepare(&stars[i], 3, 4000);
        for (int r = 0; r < 3; r++)
            stars[i].ranks[r].delay_ms = delays[i][r];
        star_start(&stars[i]);
    }
    for (int i = 0; i < 6; i++) {
        star_wait(&stars[i]);
        for (int r = 0; r < 3; r++)
            assert_int_equal(stars[i].ranks[r].status, JACKAL_OK);
        star_free(&stars[i]);
    }
}

/* The same without an inherited listener: rank 0 binds the port only when it comes. */
static void rank_0_may_be_last_to_come(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 4000);
    base_socket_close(star.listener);
    star.ranks[0].delay_ms = 500;
    star.ranks[0].options.listen = NULL;
    star_run(&star);
    for (int r = 0; r < 3; r++)
        assert_int_equal(star.ranks[r].status, JACKAL_OK);
    star_free(&star);
}

/* Ranks 0, 1 and 1 again: without rank 2 the meeting cannot be over before both have claimed. */
static void duplicate_rank_T15b(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 10000);
    star.ranks[2].options.rank = 1;
    star_run(&star);
    all_failed(&star, JACKAL_ERR_CONFIG, "duplicate rank 1");
    for (int r = 0; r < 3; r++)
        assert_int_equal(star.ranks[r].error.peer, 1);
    assert_string_equal(star.ranks[1].error.text, star.ranks[2].error.text);
}

/* Who comes within a second of the failure is told too. On a busy machine it may come too late. */
static void late_rank_learns_why(void **state) {
    (void)state;
    bool told = false;
    for (int i = 0; i < 5 && !told; i++) {
        struct star star;
        star_prepare(&star, 3, 4000);
        struct star late = star;
        late.n = 1;
        late.ranks[0] = star.ranks[2];
        star.ranks[2].options.rank = 1;
        late.ranks[0].delay_ms = 200;
        star_start(&star);
        star_run(&late);
        star_wait(&star);
        told = late.ranks[0].status == JACKAL_ERR_CONFIG &&
               strstr(late.ranks[0].error.text, "duplicate rank 1") != NULL;
        star_free(&star);
        star_free(&late);
    }
    assert_true(told);
}

static void second_rank_0_is_a_duplicate(void **state) {
    (void)state;
    struct star star;
    struct wire_hello_head head;
    struct base_error why;
    star_prepare(&star, 2, 10000);
    star.n = 1;
    star_start(&star);
    int fd = star_connect(&star);
    assert_true(star_say(fd, &(struct wire_hello){.rank = 0, .size = 2}));
    assert_true(star_read_refusal(fd, &head, &why));
    base_socket_close(fd);
    star_wait(&star);
    all_failed(&star, JACKAL_ERR_CONFIG, "duplicate rank 0");
}

static void rank_out_of_range_T15c(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 10000);
    star.ranks[2].options.rank = 7;
    star.ranks[2].delay_ms = 100;
    star_run(&star);
    all_failed(&star, JACKAL_ERR_CONFIG, "rank 7 of 3");
    /* Also where there is nobody to tell. */
    struct star alone;
    star_prepare(&alone, 3, 10000);
    base_socket_close(alone.listener);
    alone.n = 1;
    alone.ranks[0].options.rank = 7;
    star_run(&alone);
    all_failed(&alone, JACKAL_ERR_CONFIG, "rank 7 of 3");
    alone.ranks[0].options.rank = -1;
    star_run(&alone);
    all_failed(&alone, JACKAL_ERR_CONFIG, "rank -1 of 3");
}

static void size_mismatch_T15d(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 10000);
    star.ranks[2].options.size = 4;
    star.ranks[2].delay_ms = 100;
    star_run(&star);
    all_failed(&star, JACKAL_ERR_CONFIG, "size mismatch");
    for (int r = 0; r < 3; r++) {
        assert_non_null(strstr(star.ranks[r].error.text, "with size 4"));
        assert_non_null(strstr(star.ranks[r].error.text, "with size 3"));
        assert_int_equal(star.ranks[r].error.peer, 2);
    }
}

/* ---- T15 g ----------------------------------------------------------------------------------- */

static void differing_setting_T15g(void **state) {
    (void)state;
    static const struct boot_setting ours[] = {{"ORDER", "auto"}, {"FRAME_CLASSES", "8"}};
    static const struct boot_setting other[] = {{"ORDER", "auto"}, {"FRAME_CLASSES", "4"}};
    static const struct boot_setting more[] = {
        {"ORDER", "auto"}, {"FRAME_CLASSES", "8"}, {"NOVEL", "1"}};
    static const struct {
        const struct boot_setting *settings;
        size_t n;
        const char *text;
    } cases[] = {
        {ours, 2, NULL},
        {other, 2, "setting mismatch: FRAME_CLASSES is \"4\" on rank 1 at "},
        {ours, 1, "setting mismatch: FRAME_CLASSES is unknown on rank 1 at "},
        {more, 3, "setting mismatch: NOVEL is \"1\" on rank 1 at "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct star star;
        star_prepare(&star, 3, 10000);
        for (int r = 0; r < 3; r++) {
            star.ranks[r].options.settings = r == 1 ? cases[i].settings : ours;
            star.ranks[r].options.n_settings = r == 1 ? cases[i].n : 2;
        }
        star_run(&star);
        if (cases[i].text != NULL)
            all_failed(&star, JACKAL_ERR_CONFIG, cases[i].text);
        for (int r = 0; r < 3; r++)
            assert_int_equal(star.ranks[r].status == JACKAL_OK, cases[i].text == NULL);
        star_free(&star);
    }
}

/* ---- T15 h ----------------------------------------------------------------------------------- */

static void newer_member_T15h(void **state) {
    (void)state;
    struct star star;
    struct wire_hello_head head;
    struct base_error why;
    uint8_t bytes[WIRE_HELLO_HEAD_BYTES];
    star_prepare(&star, 3, 10000);
    star.ranks[1].options.rank = 2;
    star.n = 2;
    star_start(&star);
    int fd = star_connect(&star);
    wire_hello_head_encode(
        &(struct wire_hello_head){WIRE_HELLO_VERSION + 1, WIRE_HELLO_VERSION + 1, 0}, bytes);
    assert_int_equal(base_socket_send(fd, bytes, sizeof bytes, base_deadline_ns(1000), NULL),
                     JACKAL_OK);
    assert_true(star_read_refusal(fd, &head, &why));
    assert_int_equal(head.version, WIRE_HELLO_VERSION);
    assert_int_equal(why.status, JACKAL_ERR_PROTOCOL);
    assert_non_null(strstr(why.text, "version mismatch"));
    base_socket_close(fd);
    star_wait(&star);
    all_failed(&star, JACKAL_ERR_PROTOCOL, "version mismatch");
}

struct false_root {
    int listener;
    const void *answer;
    size_t n_answer;
};

static void *be_false_root(void *argument) {
    struct false_root *root = argument;
    int fd = -1;
    if (base_socket_ready(root->listener, POLLIN, base_deadline_ns(3000)))
        fd = base_socket_accept(root->listener);
    if (fd >= 0) {
        base_socket_send(fd, root->answer, root->n_answer, base_deadline_ns(1000), NULL);
        star_closed(fd, 3000);
    }
    base_socket_close(fd);
    return NULL;
}

static void meet_false_root(const void *answer, size_t n_answer, const char *word) {
    struct star star;
    pthread_t thread;
    star_prepare(&star, 2, 4000);
    struct false_root root = {star.listener, answer, n_answer};
    assert_int_equal(pthread_create(&thread, NULL, be_false_root, &root), 0);
    star.n = 1;
    star.ranks[0].options.rank = 1;
    star_run(&star);
    pthread_join(thread, NULL);
    base_socket_close(star.listener);
    all_failed(&star, JACKAL_ERR_PROTOCOL, word);
}

static void newer_or_foreign_root_T15h(void **state) {
    (void)state;
    uint8_t newer[WIRE_HELLO_HEAD_BYTES];
    wire_hello_head_encode(&(struct wire_hello_head){9, 8, 0}, newer);
    meet_false_root(newer, sizeof newer, "version mismatch");
    static const char http[] = "HTTP/1.0 400 Bad Request\r\n\r\n";
    meet_false_root(http, sizeof http - 1, "not as rank 0 of a Jackal group");
}

/* ---- other ----------------------------------------------------------------------------------- */

static void stale_process_is_told_B12(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 2, 6000);
    star.ranks[0].options.job = "tuesday";
    struct star stale = star, rest = star;
    rest.n = stale.n = 1;
    star_start(&rest);
    stale.ranks[0] = star.ranks[1];
    stale.ranks[0].options.job = "monday";
    star_run(&stale);
    all_failed(&stale, JACKAL_ERR_CONFIG, "stale run");
    /* The group goes on: a member without a job id fits any. */
    struct star late = star;
    late.n = 1;
    late.ranks[0] = star.ranks[1];
    star_run(&late);
    star_wait(&rest);
    assert_int_equal(late.ranks[0].status, JACKAL_OK);
    assert_int_equal(rest.ranks[0].status, JACKAL_OK);
    star_free(&late);
    star_free(&rest);
}

/* A rank that died while others were missing may be started again. */
static void restarted_rank_is_no_duplicate(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 6000);
    struct star rest = star;
    rest.n = 1;
    star_start(&rest);
    int fd = star_connect(&star);
    assert_true(star_say(fd, &(struct wire_hello){.rank = 1, .size = 3}));
    base_sleep_us(100000);
    base_socket_close(fd);
    struct star late = star;
    late.n = 2;
    late.ranks[0] = star.ranks[1];
    late.ranks[1] = star.ranks[2];
    star_run(&late);
    star_wait(&rest);
    assert_int_equal(late.ranks[0].status, JACKAL_OK);
    assert_int_equal(late.ranks[1].status, JACKAL_OK);
    assert_int_equal(rest.ranks[0].status, JACKAL_OK);
    star_free(&late);
    star_free(&rest);
}

static void wrong_options_are_named(void **state) {
    (void)state;
    struct boot *boot;
    struct base_error error;
    struct boot_options options = {.rank = 0, .size = 1, .coordinator = "127.0.0.1:1"};
    assert_int_equal(boot_connect(&options, &boot, &error), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, "size 1"));
    options.size = 2;
    options.coordinator = "::1:5000";
    assert_int_equal(boot_connect(&options, &boot, &error), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, "bracket the IPv6 address"));
    options.coordinator = NULL;
    assert_int_equal(boot_connect(&options, &boot, &error), JACKAL_ERR_CONFIG);
    assert_non_null(strstr(error.text, "JACKAL_COORDINATOR"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_ranks_are_waited_for_T15a),
        cmocka_unit_test(rank_0_may_be_last_to_come),
        cmocka_unit_test(duplicate_rank_T15b),
        cmocka_unit_test(late_rank_learns_why),
        cmocka_unit_test(second_rank_0_is_a_duplicate),
        cmocka_unit_test(rank_out_of_range_T15c),
        cmocka_unit_test(size_mismatch_T15d),
        cmocka_unit_test(differing_setting_T15g),
        cmocka_unit_test(newer_member_T15h),
        cmocka_unit_test(newer_or_foreign_root_T15h),
        cmocka_unit_test(stale_process_is_told_B12),
        cmocka_unit_test(restarted_rank_is_no_duplicate),
        cmocka_unit_test(wrong_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
