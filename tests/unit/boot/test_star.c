/* SPDX-License-Identifier: MIT */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { ROUNDS = 3 };

/* ---- all_gather ------------------------------------------------------------------------------ */

/* Lengths that differ by rank and round, among them 0; byte i of rank r in round k is its own. */
static size_t length_of(int rank, int round, size_t longest) {
    if (rank == round)
        return 0;
    return rank == (round + 1) % 3 ? longest : (size_t)(37 * rank + round);
}

static uint8_t byte_of(int rank, int round, size_t i) {
    return (uint8_t)(rank * 31 + round * 7 + (int)(i % 251) + (int)(i >> 12));
}

static size_t longest_blob = 3000;

static void gather_rounds(struct star_rank *rank) {
    int me = rank->options.rank, size = rank->options.size;
    uint8_t *mine = malloc(longest_blob);
    struct boot_blob *blobs = calloc((size_t)size, sizeof *blobs);
    for (int k = 0; k < ROUNDS && rank->status == JACKAL_OK; k++) {
        size_t n = length_of(me, k, longest_blob);
        for (size_t i = 0; i < n; i++)
            mine[i] = byte_of(me, k, i);
        rank->status = boot_all_gather(rank->boot, n > 0 ? mine : NULL, n, blobs,
                                       base_deadline_ns(4000), &rank->error);
        for (int r = 0; r < size && rank->status == JACKAL_OK; r++) {
            bool right = blobs[r].n_bytes == length_of(r, k, longest_blob);
            for (size_t i = 0; i < blobs[r].n_bytes && right; i++)
                right = blobs[r].bytes[i] == byte_of(r, k, i);
            if (!right)
                rank->status = base_fail(&rank->error, JACKAL_ERR_DATA_LOST,
                                         "rank %d, round %d: wrong blob of rank %d", me, k, r);
        }
    }
    free(mine);
    free(blobs);
}

static void all_ok(struct star *star) {
    for (int r = 0; r < star->n; r++)
        if (star->ranks[r].status != JACKAL_OK)
            fail_msg("rank %d: %d %s", r, star->ranks[r].status, star->ranks[r].error.text);
}

static void star_of(int size) {
    struct star star;
    star_prepare(&star, size, 4000);
    star.body = gather_rounds;
    for (int r = 0; r < size; r++)
        star.ranks[r].options.features = r == size - 1 ? 0x0d : 0x0f | (uint64_t)r << 32;
    star_run(&star);
    all_ok(&star);
    assert_true(boot_incarnation(star.ranks[0].boot) != 0);
    for (int r = 0; r < size; r++) {
        assert_true(boot_incarnation(star.ranks[r].boot) == boot_incarnation(star.ranks[0].boot));
        assert_true(star.ranks[r].boot->features == 0x0d);
    }
    star_free(&star);
}

static void ranks_meet_and_gather(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 8, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        star_of(sizes[i]);
}

static void gather_of_a_megabyte_B17(void **state) {
    (void)state;
    longest_blob = 1 << 20;
    star_of(3);
    longest_blob = 3000;
}

static void gather_too_much(struct star_rank *rank) {
    struct boot_blob blobs[2];
    rank->status =
        boot_all_gather(rank->boot, "", (1 << 20) + 1, blobs, base_deadline_ns(1000), &rank->error);
}

static void gather_refuses_more(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 2, 2000);
    star.body = gather_too_much;
    star_run(&star);
    assert_int_equal(star.ranks[0].status, JACKAL_ERR_ARGUMENT);
    assert_int_equal(star.ranks[1].status, JACKAL_ERR_ARGUMENT);
    star_free(&star);
}

static void two_meetings_differ(void **state) {
    (void)state;
    uint64_t incarnations[2];
    for (int i = 0; i < 2; i++) {
        struct star star;
        star_prepare(&star, 2, 2000);
        star_run(&star);
        all_ok(&star);
        incarnations[i] = boot_incarnation(star.ranks[0].boot);
        star_free(&star);
    }
    assert_true(incarnations[0] != incarnations[1]);
}

/* The number of an inherited listener is used up by the first group of a process. */
static void second_group_binds_the_coordinator(void **state) {
    (void)state;
    struct star star;
    star_prepare(&star, 3, 4000);
    star_run(&star);
    all_ok(&star);
    star_free(&star);
    for (int r = 0; r < 3; r++)
        star.ranks[r].options.deadline_ns = base_deadline_ns(4000);
    star_run(&star);
    all_ok(&star);
    star_free(&star);
}

static void listen_address_is_used(void **state) {
    (void)state;
    struct star star;
    char listen[32];
    star_prepare(&star, 2, 4000);
    base_socket_close(star.listener);
    snprintf(listen, sizeof listen, "0.0.0.0:%u", (unsigned)star.port);
    star.ranks[0].options.listen = listen;
    star_run(&star);
    all_ok(&star);
    star_free(&star);
}

/* ---- failure in set-up ----------------------------------------------------------------------- */

static int failing_rank;

static void fail_or_gather(struct star_rank *rank) {
    struct boot_blob blobs[STAR_MAX];
    struct base_error why;
    if (rank->options.rank == failing_rank) {
        base_fail(&why, JACKAL_ERR_NO_DEVICE, "no RDMA device \"rdma_en9\"");
        boot_fail(rank->boot, &why);
        boot_free(rank->boot);
        rank->boot = NULL;
        return;
    }
    rank->status = boot_all_gather(rank->boot, "x", 1, blobs, base_deadline_ns(3000), &rank->error);
    boot_free(rank->boot);
    rank->boot = NULL;
}

/* Who waits for something else sees at rank 0 that a rank gave up, and at the others that rank 0
 * knows. */
static atomic_int n_wrong;

static void fail_or_look(struct star_rank *rank) {
    struct boot_blob blobs[STAR_MAX];
    struct base_error why;
    uint64_t deadline_ns = base_deadline_ns(3000);
    if (rank->options.rank == failing_rank) {
        base_sleep_us(100000);
        base_fail(&why, JACKAL_ERR_NO_DEVICE, "no RDMA device \"rdma_en9\"");
        boot_fail(rank->boot, &why);
    } else {
        atomic_fetch_add(&n_wrong, boot_is_over(rank->boot)); /* too early to be seen */
        while (!boot_is_over(rank->boot) && !base_expired(deadline_ns))
            base_sleep_us(1000);
        atomic_fetch_add(&n_wrong, base_expired(deadline_ns));
        rank->status =
            boot_all_gather(rank->boot, "x", 1, blobs, base_deadline_ns(3000), &rank->error);
    }
    boot_free(rank->boot);
    rank->boot = NULL;
}

static void giving_up_is_seen_by_those_who_look(void **state) {
    (void)state;
    for (failing_rank = 0; failing_rank < 3; failing_rank++) {
        struct star star;
        star_prepare(&star, 3, 5000);
        star.body = fail_or_look;
        star_run(&star);
        assert_int_equal(atomic_load(&n_wrong), 0);
        for (int r = 0; r < 3; r++) {
            if (r == failing_rank)
                continue;
            assert_int_equal(star.ranks[r].status, JACKAL_ERR_REMOTE);
            assert_non_null(strstr(star.ranks[r].error.text, "rdma_en9"));
        }
        star_free(&star);
    }
}

/* B11, case T15 e. */
static void failed_set_up_is_known_to_all_T15e(void **state) {
    (void)state;
    for (failing_rank = 0; failing_rank < 4; failing_rank++) {
        struct star star;
        star_prepare(&star, 4, 4000);
        star.body = fail_or_gather;
        star_run(&star);
        for (int r = 0; r < 4; r++) {
            assert_in_range(star.ranks[r].took_ms, 0, 2500);
            if (r == failing_rank)
                continue;
            assert_int_equal(star.ranks[r].status, JACKAL_ERR_REMOTE);
            assert_int_equal(star.ranks[r].error.peer, failing_rank);
            char text[96];
            snprintf(text, sizeof text, "rank %d failed: no RDMA device \"rdma_en9\"",
                     failing_rank);
            assert_string_equal(star.ranks[r].error.text, text);
        }
        star_free(&star);
    }
}

static void die_or_gather(struct star_rank *rank) {
    struct boot_blob blobs[STAR_MAX];
    if (rank->options.rank != failing_rank)
        rank->status =
            boot_all_gather(rank->boot, "x", 1, blobs, base_deadline_ns(3000), &rank->error);
    boot_free(rank->boot);
    rank->boot = NULL;
}

static void death_in_set_up_is_known_to_all(void **state) {
    (void)state;
    for (failing_rank = 0; failing_rank < 3; failing_rank++) {
        struct star star;
        star_prepare(&star, 3, 4000);
        star.body = die_or_gather;
        star_run(&star);
        for (int r = 0; r < 3; r++) {
            if (r == failing_rank)
                continue;
            assert_int_equal(star.ranks[r].status, JACKAL_ERR_PEER_LOST);
            assert_int_equal(star.ranks[r].error.peer, failing_rank);
            assert_in_range(star.ranks[r].took_ms, 0, 2500);
        }
        star_free(&star);
    }
}

static atomic_int n_returned;

static void stall_or_gather(struct star_rank *rank) {
    struct boot_blob blobs[STAR_MAX];
    uint64_t limit_ns = base_deadline_ns(4000);
    if (rank->options.rank == failing_rank) {
        while (n_returned < rank->options.size - 1 && !base_expired(limit_ns))
            base_sleep_us(10000);
    } else {
        rank->status =
            boot_all_gather(rank->boot, "x", 1, blobs, base_deadline_ns(400), &rank->error);
        n_returned++;
    }
    boot_free(rank->boot);
    rank->boot = NULL;
}

static void stalled_set_up_ends_at_the_deadline(void **state) {
    (void)state;
    static const int who[] = {1, 0};
    for (int i = 0; i < 2; i++) {
        struct star star;
        failing_rank = who[i];
        n_returned = 0;
        star_prepare(&star, 3, 4000);
        star.body = stall_or_gather;
        star_run(&star);
        for (int r = 0; r < 3; r++) {
            if (r == failing_rank)
                continue;
            assert_int_equal(star.ranks[r].status, JACKAL_ERR_INIT_TIMEOUT);
            assert_int_equal(star.ranks[r].error.peer, failing_rank);
            assert_in_range(star.ranks[r].took_ms, 350, 2500);
        }
        star_free(&star);
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

static atomic_int n_alarms; /* handlers run on any thread */

static void on_alarm(int signal_number) {
    (void)signal_number;
    n_alarms++;
}

/* B16: a 1 kHz timer whose handler does not restart calls, during the whole set-up. */
static void signals_disturb_no_meeting_B16(void **state) {
    (void)state;
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, &before);
    struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &storm, NULL);
    struct star star;
    star_prepare(&star, 4, 4000);
    star.body = gather_rounds;
    star.ranks[2].delay_ms = 300;
    longest_blob = 1 << 20;
    star_run(&star);
    longest_blob = 3000;
    setitimer(ITIMER_REAL, &calm, NULL);
    sigaction(SIGALRM, &before, NULL);
    all_ok(&star);
    assert_true(n_alarms > 50);
    star_free(&star);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_gather),
        cmocka_unit_test(gather_of_a_megabyte_B17),
        cmocka_unit_test(gather_refuses_more),
        cmocka_unit_test(two_meetings_differ),
        cmocka_unit_test(second_group_binds_the_coordinator),
        cmocka_unit_test(listen_address_is_used),
        cmocka_unit_test(failed_set_up_is_known_to_all_T15e),
        cmocka_unit_test(giving_up_is_seen_by_those_who_look),
        cmocka_unit_test(death_in_set_up_is_known_to_all),
        cmocka_unit_test(stalled_set_up_ends_at_the_deadline),
        cmocka_unit_test(signals_disturb_no_meeting_B16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
