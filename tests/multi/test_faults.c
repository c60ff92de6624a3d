/* SPDX-License-Identifier: MIT */
/*
 * A cable that loses, damages or refuses one message (C4, C7): an error on every rank in bounded
 * time, and up to it only right results.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 30000, ROUNDS = 40 };

/* In the memory of the job. */
struct outcome {
    jackal_status status[RANKS_MAX];
    int round[RANKS_MAX];
    char text[RANKS_MAX][700];
};

static int run(int rank, int size, jackal_config *config, void *argument) {
    struct outcome *outcome = ranks_memory();
    (void)argument;
    jackal_group *group = ranks_init(config);
    int32_t *values = malloc(COUNT * sizeof *values);
    RANKS_CHECK(values != NULL);
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < ROUNDS && status == JACKAL_OK; i++) {
        uint64_t count = i % 2 == 0 ? COUNT : (uint64_t)i * 40;
        for (uint64_t k = 0; k < count; k++)
            values[k] = (int32_t)k + rank * i;
        ranks_at("sum %d", i);
        outcome->round[rank] = i;
        status = jackal_all_sum(group, values, values, count, JACKAL_INT32);
        for (uint64_t k = 0; k < count && status == JACKAL_OK; k++)
            if (values[k] != (int32_t)k * size + i * size * (size - 1) / 2)
                ranks_failed(__FILE__, __LINE__, "sum %d: element %llu is wrong", i,
                             (unsigned long long)k);
    }
    /* The last sum may have ended well here and not there. */
    for (int i = 0; i < 200 && status == JACKAL_OK; i++)
        status = jackal_barrier(group);
    outcome->status[rank] = status;
    snprintf(outcome->text[rank], sizeof outcome->text[rank], "%s", jackal_error_message(group));
    free(values);
    jackal_group_free(group);
    return 0;
}

/* `may_be`: the statuses that tell the truth about this fault, ended by JACKAL_OK. */
static void try_fault(const char *fault, const char *settings, const jackal_status *may_be) {
    char fabric[256], all[128];
    snprintf(fabric, sizeof fabric, "{\"mesh\":{\"hosts\":3},\"faults\":[{%s}]}", fault);
    snprintf(all, sizeof all, "progress_timeout_ms=%d;%s", 500 * RANKS_SLOW, settings);
    struct ranks_job job = {.size = 3, .run = run, .fabric = fabric, .settings = all};
    if (ranks_run(&job) != 0)
        fail_msg("%s", fault);
    const struct outcome *outcome = ranks_memory();
    for (int rank = 0; rank < 3; rank++) {
        bool is_right = false;
        for (int i = 0; may_be[i] != JACKAL_OK; i++)
            is_right = is_right || outcome->status[rank] == may_be[i];
        if (!is_right)
            fail_msg("%s: rank %d ended with %s in sum %d: %s", fault, rank,
                     jackal_status_name(outcome->status[rank]), outcome->round[rank],
                     outcome->text[rank]);
        assert_string_equal(outcome->text[rank], outcome->text[0]);
    }
}

/* The first messages of a cable are two pings; about ten more belong to each sum. */
static const int messages[] = {2, 3, 11, 12, 40, 61};
enum { N_MESSAGES = sizeof messages / sizeof messages[0] };

static void a_lost_message_is_never_a_wrong_sum(void **state) {
    static const jackal_status may_be[] = {JACKAL_ERR_DATA_LOST, JACKAL_ERR_TIMEOUT, JACKAL_OK};
    (void)state;
    for (int i = 0; i < N_MESSAGES; i++) {
        char fault[128];
        snprintf(fault, sizeof fault, "\"kind\":\"drop\",\"device\":\"h0.rdma_en2\",\"message\":%d",
                 messages[i]);
        try_fault(fault, i % 2 == 0 ? "" : "algorithm=mesh", may_be);
    }
}

static void a_checksum_finds_a_flipped_bit(void **state) {
    static const jackal_status may_be[] = {JACKAL_ERR_DATA_LOST, JACKAL_ERR_PROTOCOL, JACKAL_OK};
    (void)state;
    for (int i = 0; i < N_MESSAGES; i++) {
        char fault[128];
        /* In the first bytes of the payload; even a credit has those. */
        snprintf(fault, sizeof fault,
                 "\"kind\":\"flip\",\"device\":\"h1.rdma_en3\",\"message\":%d,\"bit\":%d",
                 messages[i], 64 * 8 + 7 * i);
        try_fault(fault, "checksum=1", may_be);
    }
}

/* The checksum is of the payload; every field of the header that matters is compared. */
static void a_damaged_header_is_never_a_wrong_sum(void **state) {
    uint64_t random = ranks_seed();
    unsigned n = ranks_scaled(24), n_errors = 0;
    (void)state;
    for (unsigned i = 0; i < n; i++) {
        char fabric[256];
        snprintf(fabric, sizeof fabric,
                 "{\"mesh\":{\"hosts\":3},\"faults\":[{\"kind\":\"flip\",\"device\":"
                 "\"h1.rdma_en2\",\"message\":%d,\"bit\":%d}]}",
                 2 + (int)(ranks_random(&random) % 60), (int)(ranks_random(&random) % 512));
        struct ranks_job job = {
            .size = 3, .run = run, .fabric = fabric, .settings = "progress_timeout_ms=1000"};
        if (ranks_run(&job) != 0)
            fail_msg("%s", fabric);
        const struct outcome *outcome = ranks_memory();
        for (int rank = 0; rank < 3; rank++)
            if ((outcome->status[rank] == JACKAL_OK) != (outcome->status[0] == JACKAL_OK))
                fail_msg("%s: rank 0 ended with %s, rank %d with %s: %s", fabric,
                         jackal_status_name(outcome->status[0]), rank,
                         jackal_status_name(outcome->status[rank]), outcome->text[rank]);
        n_errors += outcome->status[0] != JACKAL_OK;
    }
    assert_true(n < 10 || n_errors > n / 2);
}

static void a_failed_transfer_is_told(void **state) {
    static const jackal_status may_be[] = {JACKAL_ERR_COMPLETION, JACKAL_OK};
    (void)state;
    for (int i = 0; i < N_MESSAGES; i++) {
        char fault[128];
        snprintf(fault, sizeof fault,
                 "\"kind\":\"status\",\"device\":\"h2.rdma_en2\",\"message\":%d,\"status\":%d",
                 messages[i], 5 + i);
        try_fault(fault, "", may_be);
    }
}

/* ---- a message that nobody waits for with others ----------------------------------------------
 */

/* The first of three short messages is lost: its receive ends soon, and not at the limit. */
static int run_overtaken(int rank, int size, jackal_config *config, void *argument) {
    int32_t value = 100 + rank;
    (void)argument;
    jackal_group *group = ranks_init(config);
    for (int i = 0; i < 3 && rank == 1; i++)
        RANKS_OK(group, jackal_send(group, &value, sizeof value, 0));
    if (rank == 0) {
        double start_s = ranks_now_s();
        RANKS_STATUS(group, jackal_recv(group, &value, sizeof value, 1), JACKAL_ERR_DATA_LOST);
        RANKS_CHECK(ranks_now_s() - start_s < 5.0 * RANKS_SLOW);
        RANKS_EQUAL(jackal_error_peer(group), 1);
        RANKS_EQUAL(value, 100);
    }
    ranks_meet(0, size);
    jackal_group_free(group);
    return 0;
}

static void a_lost_send_is_known_by_the_next(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2,
                            .run = run_overtaken,
                            .settings = "progress_timeout_ms=60000",
                            .fabric = "{\"mesh\":{\"hosts\":2},\"faults\":[{\"kind\":\"drop\","
                                      "\"device\":\"h1.rdma_en2\",\"message\":2}]}",
                            .limit_ms = 30000};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_message_is_never_a_wrong_sum),
        cmocka_unit_test(a_checksum_finds_a_flipped_bit),
        cmocka_unit_test(a_damaged_header_is_never_a_wrong_sum),
        cmocka_unit_test(a_failed_transfer_is_told),
        cmocka_unit_test(a_lost_send_is_known_by_the_next),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
