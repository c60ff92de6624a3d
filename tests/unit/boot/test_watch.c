/* SPDX-License-Identifier: MIT */
/*
 * After set-up: reports, verdicts, leaving and death, as each rank's watch sees them.
 */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

enum { SIZE = 4, SOON_MS = 3000, QUIET_MS = 60 };

static void meet(struct star *star) {
    star_prepare(star, SIZE, 4000);
    star_run(star);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(star->ranks[r].status, JACKAL_OK);
}

static void drop(struct star *star, int rank) {
    boot_free(star->ranks[rank].boot);
    star->ranks[rank].boot = NULL;
}

static struct boot *boot_of(struct star *star, int rank) {
    return star->ranks[rank].boot;
}

/* Rank 0 first: it is the one that decides. */
static void all_get_verdict(struct star *star, jackal_status status, int peer, const char *word) {
    char first[BASE_ERROR_TEXT_BYTES] = "";
    for (int r = 0; r < SIZE; r++) {
        if (boot_of(star, r) == NULL)
            continue;
        struct boot_event event = star_event(boot_of(star, r), SOON_MS);
        assert_int_equal(event.kind, BOOT_FAILED);
        assert_int_equal(event.error.status, status);
        assert_int_equal(event.error.peer, peer);
        assert_non_null(strstr(event.error.text, word));
        if (first[0] == '\0')
            snprintf(first, sizeof first, "%s", event.error.text);
        assert_string_equal(event.error.text, first);
    }
}

static void all_are_quiet(struct star *star) {
    for (int r = 0; r < SIZE; r++)
        if (boot_of(star, r) != NULL)
            assert_int_equal(star_event(boot_of(star, r), QUIET_MS).kind, BOOT_QUIET);
}

static void quiet_and_descriptors(void **state) {
    (void)state;
    struct star star;
    int descriptors[SIZE];
    meet(&star);
    all_are_quiet(&star);
    assert_int_equal(boot_descriptors(boot_of(&star, 0), descriptors), SIZE - 1);
    assert_int_equal(boot_descriptors(boot_of(&star, 3), descriptors), 1);
    star_free(&star);
}

static void death_of_a_member_reaches_all_A1(void **state) {
    (void)state;
    struct star star;
    int descriptors[SIZE];
    meet(&star);
    drop(&star, 2);
    uint64_t began_ns = base_now_ns();
    all_get_verdict(&star, JACKAL_ERR_PEER_LOST, 2, "is gone: connection closed");
    assert_in_range((base_now_ns() - began_ns) / 1000000, 0, 2000);
    all_are_quiet(&star);
    assert_int_equal(boot_descriptors(boot_of(&star, 0), descriptors), SIZE - 2);
    /* Those that give up now are not blamed. */
    drop(&star, 1);
    drop(&star, 3);
    all_are_quiet(&star);
    assert_int_equal(boot_descriptors(boot_of(&star, 0), descriptors), 0);
    star_free(&star);
}

static void death_of_rank_0_reaches_all_A1(void **state) {
    (void)state;
    struct star star;
    int descriptors[SIZE];
    meet(&star);
    drop(&star, 0);
    for (int r = 1; r < SIZE; r++) {
        struct boot_event event = star_event(boot_of(&star, r), SOON_MS);
        assert_int_equal(event.kind, BOOT_FAILED);
        assert_int_equal(event.error.status, JACKAL_ERR_PEER_LOST);
        assert_int_equal(event.error.peer, 0);
        assert_int_equal(boot_descriptors(boot_of(&star, r), descriptors), 0);
    }
    all_are_quiet(&star);
    star_free(&star);
}

static void first_report_is_the_verdict(void **state) {
    (void)state;
    struct star star;
    struct base_error why;
    meet(&star);
    base_fail_peer(&why, JACKAL_ERR_COMPLETION, 1, "all_reduce #17: completion error on wire 3-1");
    boot_report(boot_of(&star, 3), &why);
    all_get_verdict(&star, JACKAL_ERR_COMPLETION, 1,
                    "all_reduce #17: completion error on wire 3-1");
    base_fail_peer(&why, JACKAL_ERR_TIMEOUT, 3, "all_reduce #17: nothing came from rank 3");
    boot_report(boot_of(&star, 2), &why);
    boot_report(boot_of(&star, 0), &why);
    drop(&star, 3);
    all_are_quiet(&star);
    star_free(&star);
}

static void rank_0_reports_too(void **state) {
    (void)state;
    struct star star;
    struct base_error why;
    meet(&star);
    base_fail_peer(&why, JACKAL_ERR_ABORTED, -1, "rank 0 called jackal_abort()");
    boot_report(boot_of(&star, 0), &why);
    struct base_error later;
    base_fail_peer(&later, JACKAL_ERR_TIMEOUT, 1, "a later one");
    boot_report(boot_of(&star, 0), &later);
    all_get_verdict(&star, JACKAL_ERR_ABORTED, -1, "rank 0 called jackal_abort()");
    star_free(&star);
}

static void all_see_leave(struct star *star, int rank) {
    for (int r = 0; r < SIZE; r++) {
        if (boot_of(star, r) == NULL || r == rank)
            continue;
        struct boot_event event = star_event(boot_of(star, r), SOON_MS);
        assert_int_equal(event.kind, BOOT_LEFT);
        assert_int_equal(event.error.peer, rank);
    }
}

static void leaving_is_no_death(void **state) {
    (void)state;
    struct star star;
    int descriptors[SIZE];
    meet(&star);
    boot_leave(boot_of(&star, 1));
    drop(&star, 1);
    all_see_leave(&star, 1);
    all_are_quiet(&star);
    assert_int_equal(boot_descriptors(boot_of(&star, 0), descriptors), SIZE - 2);
    drop(&star, 2);
    all_get_verdict(&star, JACKAL_ERR_PEER_LOST, 2, "rank 2 (127.0.0.1:");
    star_free(&star);
}

static void rank_0_leaves_in_order(void **state) {
    (void)state;
    struct star star;
    int descriptors[SIZE];
    meet(&star);
    boot_leave(boot_of(&star, 0));
    drop(&star, 0);
    all_see_leave(&star, 0);
    all_are_quiet(&star);
    assert_int_equal(boot_descriptors(boot_of(&star, 1), descriptors), 0);
    star_free(&star);
}

static void all_leave_at_once(void **state) {
    (void)state;
    struct star star;
    meet(&star);
    for (int r = 0; r < SIZE; r++)
        boot_leave(boot_of(&star, r));
    drop(&star, 2);
    for (int r = 0; r < SIZE; r++) {
        if (boot_of(&star, r) == NULL)
            continue;
        struct boot_event event;
        while ((event = star_event(boot_of(&star, r), QUIET_MS)).kind != BOOT_QUIET)
            assert_int_equal(event.kind, BOOT_LEFT);
    }
    star_free(&star);
}

/* ---- raw members ----------------------------------------------------------------------------- */

/* Rank 0 and one connection that only pretends to be rank 1; returns that, welcomed. */
static int meet_raw(struct star *star) {
    star_prepare(star, 2, 4000);
    star->n = 1;
    star_start(star);
    int fd = star_connect(star);
    assert_true(star_say(fd, &(struct wire_hello){.rank = 1, .size = 2}));
    star_wait(star);
    assert_int_equal(star->ranks[0].status, JACKAL_OK);
    return fd;
}

static void frames_may_come_in_pieces(void **state) {
    (void)state;
    struct star star;
    struct boot_event event;
    int fd = meet_raw(&star);
    uint8_t bytes[256];
    struct base_error why;
    base_fail_peer(&why, JACKAL_ERR_LINK_DOWN, 1, "wire 1-0 is down");
    size_t n = wire_failure_encode(&why, bytes + 8, sizeof bytes - 8);
    wire_control_encode(&(struct wire_control_head){WIRE_CONTROL_REPORT, (uint32_t)n}, bytes);
    /* A type of a later version before it is stepped over. */
    const uint8_t unknown[] = {0xff, 0x7f, 0, 0, 3, 0, 0, 0, 'x', 'y', 'z'};
    base_socket_send(fd, unknown, sizeof unknown, base_deadline_ns(1000), NULL);
    for (size_t i = 0; i < n + 8; i++) {
        boot_watch(boot_of(&star, 0), &event);
        assert_int_equal(event.kind, BOOT_QUIET);
        base_socket_send(fd, bytes + i, 1, base_deadline_ns(1000), NULL);
    }
    event = star_event(boot_of(&star, 0), SOON_MS);
    assert_int_equal(event.kind, BOOT_FAILED);
    assert_string_equal(event.error.text, "wire 1-0 is down");
    base_socket_close(fd);
    star_free(&star);
}

static void nonsense_is_a_verdict_G12(void **state) {
    (void)state;
    struct star star;
    int descriptors[2];
    int fd = meet_raw(&star);
    memset(descriptors, 0, sizeof descriptors);
    base_socket_send(fd, "GET / HTTP/1.0\r\n\r\n", 18, base_deadline_ns(1000), NULL);
    struct boot_event event = star_event(boot_of(&star, 0), SOON_MS);
    assert_int_equal(event.kind, BOOT_FAILED);
    assert_int_equal(event.error.status, JACKAL_ERR_PROTOCOL);
    assert_int_equal(event.error.peer, 1);
    assert_int_equal(boot_descriptors(boot_of(&star, 0), descriptors), 0);
    base_socket_close(fd);
    star_free(&star);
}

static void connections_beat(void **state) {
    (void)state;
    struct star star;
    int fd = meet_raw(&star);
    uint8_t bytes[4096];
    size_t done, n = 0;
    assert_int_equal(star_event(boot_of(&star, 0), 1200).kind, BOOT_QUIET);
    assert_int_equal(base_socket_recv_some(fd, bytes, sizeof bytes, &done), 0);
    const uint8_t beat[] = {WIRE_CONTROL_BEAT, 0, 0, 0, 8, 0, 0, 0};
    for (size_t i = 0; i + 16 <= done; i++)
        if (memcmp(bytes + i, beat, sizeof beat) == 0 &&
            wire_get_u64(bytes + i + 8) == boot_incarnation(boot_of(&star, 0)))
            n++;
    assert_in_range(n, 1, 3);
    base_socket_close(fd);
    star_free(&star);
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct boot_event seen[SIZE];

static void report_and_watch(struct star_rank *rank) {
    struct base_error why;
    int me = rank->options.rank;
    base_fail_peer(&why, JACKAL_ERR_TIMEOUT, (me + 1) % SIZE, "rank %d waits for rank %d", me,
                   (me + 1) % SIZE);
    boot_report(rank->boot, &why);
    seen[me] = star_event(rank->boot, SOON_MS);
}

static void *report_from_outside(void *argument) {
    struct star *star = argument;
    for (int r = 0; r < SIZE; r++) {
        struct base_error why;
        base_fail_peer(&why, JACKAL_ERR_TIMEOUT, -1, "reported by another thread");
        boot_report(star->ranks[r].boot, &why);
        boot_leave(star->ranks[r].boot);
    }
    return NULL;
}

static void watch_only(struct star_rank *rank) {
    seen[rank->options.rank] = star_event(rank->boot, SOON_MS);
}

static void all_saw_the_same(void) {
    for (int r = 0; r < SIZE; r++) {
        assert_int_equal(seen[r].kind, BOOT_FAILED);
        assert_string_equal(seen[r].error.text, seen[0].error.text);
        assert_int_equal(seen[r].error.peer, seen[0].error.peer);
    }
}

/* All report at once: one verdict. */
static void reports_of_all_give_one_verdict(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct star star;
        star_prepare(&star, SIZE, 4000);
        star.body = report_and_watch;
        star_run(&star);
        all_saw_the_same();
        star_free(&star);
    }
}

static void *watch_thread(void *argument) {
    watch_only(argument);
    return NULL;
}

/* Reports and leaves of one thread while others watch. */
static void any_thread_may_report_G8(void **state) {
    (void)state;
    struct star star;
    pthread_t threads[SIZE], reporter;
    meet(&star);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, watch_thread, &star.ranks[r]), 0);
    assert_int_equal(pthread_create(&reporter, NULL, report_from_outside, &star), 0);
    for (int r = 0; r < SIZE; r++)
        pthread_join(threads[r], NULL);
    pthread_join(reporter, NULL);
    /* Rank 0 reported first and left after that. */
    all_saw_the_same();
    star_free(&star);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_and_descriptors),
        cmocka_unit_test(death_of_a_member_reaches_all_A1),
        cmocka_unit_test(death_of_rank_0_reaches_all_A1),
        cmocka_unit_test(first_report_is_the_verdict),
        cmocka_unit_test(rank_0_reports_too),
        cmocka_unit_test(leaving_is_no_death),
        cmocka_unit_test(rank_0_leaves_in_order),
        cmocka_unit_test(all_leave_at_once),
        cmocka_unit_test(frames_may_come_in_pieces),
        cmocka_unit_test(nonsense_is_a_verdict_G12),
        cmocka_unit_test(connections_beat),
        cmocka_unit_test(reports_of_all_give_one_verdict),
        cmocka_unit_test(any_thread_may_report_G8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
