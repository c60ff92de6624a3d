/* SPDX-License-Identifier: MIT */
/*
 * Set-up that fails on one rank: the others learn it at once, with its text (B9 to B11, C16, C19,
 * E22, T15).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How init ended on each rank; in the memory of the job. */
struct ends {
    jackal_status status[RANKS_MAX];
    double took_s[RANKS_MAX];
    char text[RANKS_MAX][700];
};

static int run(int rank, int size, jackal_config *config, void *argument) {
    struct ends *ends = ranks_memory();
    jackal_group *group = NULL;
    const int *absent = argument;
    (void)size;
    if (absent != NULL && rank == *absent)
        return 0;
    double start_s = ranks_now_s();
    ends->status[rank] = jackal_init(config, &group);
    ends->took_s[rank] = ranks_now_s() - start_s;
    snprintf(ends->text[rank], sizeof ends->text[rank], "%s", jackal_config_error(config));
    jackal_group_free(group);
    return 0;
}

/* `others`: what the ranks but `culprit` get. All name the culprit's trouble. */
static void check_ends(int size, int culprit, jackal_status own, jackal_status others,
                       const char *const *parts) {
    const struct ends *ends = ranks_memory();
    for (int rank = 0; rank < size; rank++) {
        jackal_status expected = rank == culprit ? own : others;
        if (ends->status[rank] != expected)
            fail_msg("rank %d: %s, want %s: %s", rank, jackal_status_name(ends->status[rank]),
                     jackal_status_name(expected), ends->text[rank]);
        for (int i = 0; parts[i] != NULL; i++)
            if (strstr(ends->text[rank], parts[i]) == NULL)
                fail_msg("rank %d: \"%s\" does not contain \"%s\"", rank, ends->text[rank],
                         parts[i]);
        assert_true(ends->took_s[rank] < 3.0 * 2 * RANKS_SLOW);
    }
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- devices ----------------------------------------------------------------------------------
 */

/* The right matrix with one piece of text replaced. */
static char *changed_matrix(int size, int wires, const char *from, const char *to) {
    const char *matrix = ranks_matrix(size, wires);
    const char *place = strstr(matrix, from);
    assert_non_null(place);
    size_t room = strlen(matrix) + strlen(to) + 16;
    char *changed = malloc(room);
    assert_non_null(changed);
    snprintf(changed, room, "devices=%.*s%s%s", (int)(place - matrix), matrix, to,
             place + strlen(from));
    return changed;
}

static const char *host_prefix(int host) {
    static char text[8];
    snprintf(text, sizeof text, "h%d.", host);
    return ranks_are_threads() ? text : "";
}

static void a_missing_device_is_told_to_all(void **state) {
    (void)state;
    char row[128], wrong[128];
    snprintf(row, sizeof row, "[\"%srdma_en3\"],null]]", host_prefix(2));
    snprintf(wrong, sizeof wrong, "[\"rdma_en99\"],null]]");
    char *devices = changed_matrix(3, 1, row, wrong);
    struct ranks_job job = {.size = 3, .run = run, .of_rank = {NULL, NULL, devices}};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(3, 2, JACKAL_ERR_NO_DEVICE, JACKAL_ERR_REMOTE, PARTS("rdma_en99", "rdma_en2"));
    const struct ends *ends = ranks_memory();
    assert_non_null(strstr(ends->text[0], "rank 2"));
    assert_non_null(strstr(ends->text[1], "rank 2"));
    free(devices);
}

static void so_is_a_missing_library(void **state) {
    (void)state;
    struct ranks_job job = {
        .size = 3, .run = run, .of_rank = {NULL, "verbs=/no/such/libibverbs.so.1"}};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(3, 1, JACKAL_ERR_NO_DEVICE, JACKAL_ERR_REMOTE,
               PARTS("RDMA is not available", "/no/such/libibverbs.so.1"));
}

/* A library that is none: a file of another kind, and one without verbs (C19). */
static void a_library_of_another_kind_is_refused(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run, .settings = "verbs=/etc/passwd"};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 1, JACKAL_ERR_NO_DEVICE, JACKAL_ERR_NO_DEVICE, PARTS("RDMA is not available"));
#ifdef __linux__
    job.settings = "verbs=libm.so.6";
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 1, JACKAL_ERR_NO_DEVICE, JACKAL_ERR_NO_DEVICE,
               PARTS("libm.so.6", "ibv_get_device_list"));
#endif
}

/* Nobody hangs, and both ends of a cable that leads elsewhere are named (C16). */
static void check_crossed(int size, const char *ours, const char *theirs) {
    const struct ends *ends = ranks_memory();
    for (int rank = 0; rank < size; rank++) {
        assert_true(ends->status[rank] == JACKAL_ERR_LINK_DOWN ||
                    ends->status[rank] == JACKAL_ERR_REMOTE);
        assert_true(ends->took_s[rank] < 15.0 * RANKS_SLOW);
        if (strstr(ends->text[rank], ours) == NULL || strstr(ends->text[rank], theirs) == NULL)
            fail_msg("rank %d: \"%s\" does not name %s and %s", rank, ends->text[rank], ours,
                     theirs);
    }
}

static void crossed_cables_are_found(void **state) {
    char right[128], wrong[128];
    const char *h = host_prefix(0);
    (void)state;
    /* Rank 0 has the cables to ranks 1 and 2 the wrong way round. */
    snprintf(right, sizeof right, "[\"%srdma_en2\"],[\"%srdma_en3\"]],", h, h);
    snprintf(wrong, sizeof wrong, "[\"%srdma_en3\"],[\"%srdma_en2\"]],", h, h);
    char *devices = changed_matrix(3, 1, right, wrong);
    struct ranks_job job = {.size = 3, .run = run, .devices = devices + strlen("devices=")};
    assert_int_equal(ranks_run(&job), 0);
    check_crossed(3, "rdma_en", "rank");
    free(devices);
    /* Two cables to one rank, listed in another order on one side. */
    snprintf(right, sizeof right, "[\"%srdma_en2\",\"%srdma_en3\"]],", h, h);
    snprintf(wrong, sizeof wrong, "[\"%srdma_en3\",\"%srdma_en2\"]],", h, h);
    devices = changed_matrix(2, 2, right, wrong);
    job = (struct ranks_job){
        .size = 2, .wires = 2, .run = run, .devices = devices + strlen("devices=")};
    assert_int_equal(ranks_run(&job), 0);
    check_crossed(2, "rdma_en2", "rdma_en3");
    free(devices);
}

/* ---- ranks that do not agree ------------------------------------------------------------------
 */

static void settings_must_be_the_same(void **state) {
    static const struct {
        const char *odd, *name, *value;
    } cases[] = {{"slot_frames=8", "slot_frames", "\"8\""},
                 {"checksum=1", "checksum", "\"1\""},
                 {"algorithm=mesh", "algorithm", "\"mesh\""},
                 {"order=fast", "order", "\"fast\""}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ranks_job job = {.size = 3, .run = run, .of_rank = {NULL, NULL, cases[i].odd}};
        assert_int_equal(ranks_run(&job), 0);
        const struct ends *ends = ranks_memory();
        assert_int_equal(ends->status[0], JACKAL_ERR_CONFIG);
        assert_int_equal(ends->status[2], JACKAL_ERR_CONFIG);
        check_ends(3, 1, ends->status[1], JACKAL_ERR_CONFIG,
                   PARTS("rank 2", cases[i].name, cases[i].value));
        assert_true(ends->status[1] == JACKAL_ERR_CONFIG || ends->status[1] == JACKAL_ERR_REMOTE);
    }
}

static void ranks_must_be_distinct(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run, .of_rank = {NULL, NULL, "rank=1"}};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(3, 1, JACKAL_ERR_CONFIG, JACKAL_ERR_CONFIG, PARTS("duplicate rank 1"));
}

static void sizes_must_be_the_same(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run, .of_rank = {NULL, "size=3"}};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 1, JACKAL_ERR_CONFIG, JACKAL_ERR_CONFIG, PARTS("size", "3", "2"));
}

/* All have the same matrix, and it is not for them. */
static void the_matrix_must_fit(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run, .devices = "[[null,\"a\"],[\"b\",null]"};
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 0, JACKAL_ERR_CONFIG, JACKAL_ERR_CONFIG, PARTS("line 1, column"));
    job.devices = "[[null,\"a\",\"b\"],[\"c\",null,\"d\"],[\"e\",\"f\",null]]";
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 0, JACKAL_ERR_CONFIG, JACKAL_ERR_CONFIG, PARTS("3 rows", "2 ranks"));
    job.devices = "[[null,null],[\"a\",null]]";
    assert_int_equal(ranks_run(&job), 0);
    check_ends(2, 0, JACKAL_ERR_CONFIG, JACKAL_ERR_CONFIG, PARTS("[0][1]", "no cable"));
}

/* ---- time -------------------------------------------------------------------------------------
 */

static void a_rank_that_never_comes_is_named(void **state) {
    int absent = 2;
    (void)state;
    struct ranks_job job = {
        .size = 3, .run = run, .argument = &absent, .settings = "init_timeout_ms=1500"};
    assert_int_equal(ranks_run(&job), 0);
    const struct ends *ends = ranks_memory();
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ends->status[rank], JACKAL_ERR_INIT_TIMEOUT);
        assert_true(ends->took_s[rank] > 1.3 && ends->took_s[rank] < 1.5 + 2.0 * RANKS_SLOW);
    }
    assert_non_null(strstr(ends->text[0], "2"));
    absent = 0; /* nobody listens any more */
    assert_int_equal(ranks_run(&job), 0);
    for (int rank = 1; rank < 3; rank++) {
        assert_int_equal(ends->status[rank], JACKAL_ERR_INIT_TIMEOUT);
        assert_true(ends->took_s[rank] < 1.5 + 2.0 * RANKS_SLOW);
    }
}

/* B10: ranks come one after the other, rank 0 last. */
static int run_late(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    int32_t value = 1;
    ranks_nap_ms((unsigned)(size - 1 - rank) * 300);
    jackal_group *group = ranks_init(config);
    RANKS_OK(group, jackal_all_sum(group, &value, &value, 1, JACKAL_INT32));
    RANKS_EQUAL(value, size);
    jackal_group_free(group);
    return 0;
}

static void late_ranks_are_waited_for(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_late};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_device_is_told_to_all),
        cmocka_unit_test(so_is_a_missing_library),
        cmocka_unit_test(a_library_of_another_kind_is_refused),
        cmocka_unit_test(crossed_cables_are_found),
        cmocka_unit_test(settings_must_be_the_same),
        cmocka_unit_test(ranks_must_be_distinct),
        cmocka_unit_test(sizes_must_be_the_same),
        cmocka_unit_test(the_matrix_must_fit),
        cmocka_unit_test(a_rank_that_never_comes_is_named),
        cmocka_unit_test(late_ranks_are_waited_for),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
