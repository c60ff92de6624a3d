/* SPDX-License-Identifier: MIT */
/*
 * One rank makes another call than the rest (D11): every rank gets an error in bounded time, and
 * the group gives that error ever after (A4).
 *
 * A rank whose own part was done may have returned well (the root of a broadcast needs nobody), so
 * the ranks go on with barriers until they are told.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, BARRIER };

struct call {
    enum kind kind;
    uint64_t count;
    jackal_dtype dtype;
    int32_t more; /* operator or root */
};

static const struct pair {
    const char *what;
    struct call most, odd;
} pairs[] = {
    {"operation", {ALL_REDUCE, 16, JACKAL_INT32, 0}, {ALL_GATHER, 16, JACKAL_INT32, 0}},
    {"operation, small and bulk slots",
     {ALL_REDUCE, 100, JACKAL_INT8, 0},
     {ALL_GATHER, 300000, JACKAL_INT8, 0}},
    {"all_reduce and barrier", {ALL_REDUCE, 4, JACKAL_INT32, 0}, {BARRIER, 0, 0, 0}},
    {"large all_reduce and barrier", {ALL_REDUCE, 200000, JACKAL_INT32, 0}, {BARRIER, 0, 0, 0}},
    {"barrier and reduce_scatter", {BARRIER, 0, 0, 0}, {REDUCE_SCATTER, 3, JACKAL_INT8, 0}},
    {"barrier and an empty all_reduce", {BARRIER, 0, 0, 0}, {ALL_REDUCE, 0, JACKAL_UINT8, 0}},
    {"count", {ALL_REDUCE, 1000, JACKAL_INT32, 0}, {ALL_REDUCE, 1001, JACKAL_INT32, 0}},
    {"count 0 and 1", {ALL_REDUCE, 0, JACKAL_INT32, 0}, {ALL_REDUCE, 1, JACKAL_INT32, 0}},
    {"count of a gather, 1 and 0",
     {ALL_GATHER, 1, JACKAL_INT32, 0},
     {ALL_GATHER, 0, JACKAL_INT32, 0}},
    {"count, small and bulk slots",
     {ALL_REDUCE, 100, JACKAL_INT32, 0},
     {ALL_REDUCE, 100000, JACKAL_INT32, 0}},
    {"count of a scatter",
     {REDUCE_SCATTER, 40000, JACKAL_INT8, 0},
     {REDUCE_SCATTER, 39999, JACKAL_INT8, 0}},
    {"dtype of one size", {ALL_REDUCE, 50, JACKAL_INT32, 0}, {ALL_REDUCE, 50, JACKAL_FLOAT32, 0}},
    {"dtype of another size", {ALL_GATHER, 64, JACKAL_INT8, 0}, {ALL_GATHER, 64, JACKAL_INT64, 0}},
    {"operator",
     {ALL_REDUCE, 7, JACKAL_INT32, JACKAL_SUM},
     {ALL_REDUCE, 7, JACKAL_INT32, JACKAL_MAX}},
    {"operator of a large sum",
     {ALL_REDUCE, 90000, JACKAL_FLOAT32, JACKAL_SUM},
     {ALL_REDUCE, 90000, JACKAL_FLOAT32, JACKAL_MEAN}},
    {"root", {BROADCAST, 10, JACKAL_INT32, 0}, {BROADCAST, 10, JACKAL_INT32, 1}},
    {"root of a large broadcast",
     {BROADCAST, 100000, JACKAL_INT32, 0},
     {BROADCAST, 100000, JACKAL_INT32, 1}},
    {"count of a broadcast", {BROADCAST, 10, JACKAL_INT32, 0}, {BROADCAST, 20000, JACKAL_INT32, 0}},
    {"broadcast and all_reduce",
     {BROADCAST, 50000, JACKAL_INT32, 0},
     {ALL_REDUCE, 50000, JACKAL_INT32, 0}},
};

enum { BYTES = 2 << 20, ODD_RANK = 1 };

static jackal_status make_call(jackal_group *group, const struct call *call, uint8_t *bytes) {
    uint8_t *out = bytes + BYTES / 2;
    switch (call->kind) {
    case ALL_REDUCE:
        return jackal_all_reduce(group, bytes, out, call->count, call->dtype, call->more);
    case ALL_GATHER:
        return jackal_all_gather(group, bytes, out, call->count, call->dtype);
    case REDUCE_SCATTER:
        return jackal_reduce_scatter(group, bytes, out, call->count, call->dtype, call->more);
    case BROADCAST:
        return jackal_broadcast(group, bytes, call->count, call->dtype, call->more);
    default:
        return jackal_barrier(group);
    }
}

static void check_poisoned(jackal_group *group, uint8_t *bytes) {
    char text[1024];
    snprintf(text, sizeof text, "%s", jackal_error_message(group));
    double start_s = ranks_now_s();
    for (int i = 0; i < 10; i++) {
        RANKS_STATUS(group, jackal_all_sum(group, bytes, bytes, 1, JACKAL_INT8),
                     JACKAL_ERR_MISMATCH);
        RANKS_STATUS(group, jackal_barrier(group), JACKAL_ERR_MISMATCH);
        RANKS_STATUS(group, jackal_send(group, bytes, 1, (jackal_rank(group) + 1) % 2),
                     JACKAL_ERR_MISMATCH);
    }
    /* 10 ms a call; thirty of them leave room for a busy machine. */
    RANKS_CHECK(ranks_now_s() - start_s < 0.3 * RANKS_SLOW);
    RANKS_CHECK(strcmp(text, jackal_error_message(group)) == 0);
    RANKS_EQUAL(jackal_group_state(group), JACKAL_ERR_MISMATCH);
}

/* The first words of the verdict, to compare. */
struct verdicts {
    int32_t peer[RANKS_MAX];
    char text[RANKS_MAX][700];
};

static int run(int rank, int size, jackal_config *config, void *argument) {
    const struct pair *pair = argument;
    struct verdicts *verdicts = ranks_memory();
    ranks_at("%s", pair->what);
    jackal_group *group = ranks_init(config);
    uint8_t *bytes = calloc(1, BYTES);
    RANKS_CHECK(bytes != NULL);
    RANKS_OK(group, jackal_barrier(group));
    ranks_meet(0, size); /* nobody is still in the barrier when the group fails */
    double start_s = ranks_now_s();
    jackal_status status = make_call(group, rank == ODD_RANK ? &pair->odd : &pair->most, bytes);
    while (status == JACKAL_OK && ranks_now_s() - start_s < 6.0 * RANKS_SLOW)
        status = jackal_barrier(group);
    RANKS_STATUS(group, status, JACKAL_ERR_MISMATCH);
    RANKS_CHECK(ranks_now_s() - start_s < 5.0 * RANKS_SLOW);
    verdicts->peer[rank] = jackal_error_peer(group);
    snprintf(verdicts->text[rank], sizeof verdicts->text[rank], "%s", jackal_error_message(group));
    RANKS_HAS(jackal_error_message(group), "#1"); /* number of the operation */
    check_poisoned(group, bytes);
    start_s = ranks_now_s();
    jackal_group_free(group);
    RANKS_CHECK(ranks_now_s() - start_s < 1.0 * RANKS_SLOW);
    free(bytes);
    return 0;
}

static void try_pair(const struct pair *pair, int size, int wires) {
    struct pair copy = *pair;
    struct ranks_job job = {.size = size, .wires = wires, .run = run, .argument = &copy};
    if (ranks_run(&job) != 0)
        fail_msg("%s, %d ranks, %d wires", pair->what, size, wires);
    /* All ranks have one story. */
    const struct verdicts *verdicts = ranks_memory();
    for (int rank = 1; rank < size; rank++) {
        assert_string_equal(verdicts->text[rank], verdicts->text[0]);
        assert_int_equal(verdicts->peer[rank], verdicts->peer[0]);
    }
}

static void two_ranks_that_disagree(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        try_pair(&pairs[i], 2, 1);
}

static void one_odd_rank_of_three(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i += 1 + (i % 2))
        try_pair(&pairs[i], 3, 1);
}

static void over_two_wires(void **state) {
    (void)state;
    for (size_t i = 1; i < sizeof pairs / sizeof pairs[0]; i += 4)
        try_pair(&pairs[i], 3, 2);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_that_disagree),
        cmocka_unit_test(one_odd_rank_of_three),
        cmocka_unit_test(over_two_wires),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
