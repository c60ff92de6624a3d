/* SPDX-License-Identifier: MIT */
/*
 * Engines on links that do everything late and nothing twice (C7, C21): no message is sent without
 * a receive slot for it, no buffer is written before its send is over, none is read after it was
 * given back, and all of them come home.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/internal.h"
#include "fake_link.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, WIRES = 2, ROUNDS = 60, MAX_COUNT = 60000 };

/* One engine, its thread, and what went wrong there. */
struct rank {
    int rank;
    struct engine *engine;
    uint8_t *staging;
    struct link *links[RANKS * WIRES]; /* as the engine got them */
    char failure[800];
};

static void note(struct rank *rank, const char *what, const char *text) {
    if (rank->failure[0] == '\0')
        snprintf(rank->failure, sizeof rank->failure, "rank %d: %s: %.600s", rank->rank, what,
                 text);
}

static jackal_status run(struct rank *rank, const struct engine_call *calls, int n_calls) {
    struct base_error error = {.text = ""};
    jackal_status status = engine_run(rank->engine, calls, n_calls, &error);
    if (status != JACKAL_OK)
        note(rank, plan_operation_name(calls[0].operation), error.text);
    return status;
}

/* ---- a mesh of engines ------------------------------------------------------------------------
 */

static void open_mesh(struct rank *ranks, const struct link_geometry *geometry, bool whole_slots,
                      uint64_t limit_ms) {
    struct link **links[RANKS];
    for (int r = 0; r < RANKS; r++) {
        links[r] = calloc(RANKS * WIRES, sizeof *links[r]);
        assert_non_null(links[r]);
    }
    for (int a = 0; a < RANKS; a++)
        for (int b = a + 1; b < RANKS; b++)
            for (int wire = 0; wire < WIRES; wire++)
                assert_int_equal(fake_link_pair(geometry, a, b, wire,
                                                (uint64_t)(a * 100 + b * 10 + wire + whole_slots),
                                                &links[a][b * WIRES + wire],
                                                &links[b][a * WIRES + wire]),
                                 JACKAL_OK);
    for (int r = 0; r < RANKS; r++) {
        struct base_error error = {.text = ""};
        memset(&ranks[r], 0, sizeof ranks[r]);
        ranks[r].rank = r;
        ranks[r].staging = calloc(1, engine_staging_bytes(geometry, (RANKS - 1) * WIRES));
        memcpy(ranks[r].links, links[r], sizeof ranks[r].links);
        struct engine_options options = {.rank = r,
                                         .size = RANKS,
                                         .wires = WIRES,
                                         .links = links[r],
                                         .geometry = *geometry,
                                         .staging = {ranks[r].staging, 0},
                                         .whole_slots = whole_slots,
                                         .checksum = true,
                                         .incarnation = 77,
                                         .progress_timeout_ms = limit_ms,
                                         .crowded = true};
        assert_int_equal(engine_new(&options, &ranks[r].engine, &error), JACKAL_OK);
    }
}

static void close_mesh(struct rank *ranks) {
    for (int r = 0; r < RANKS; r++) {
        engine_free(ranks[r].engine);
        free(ranks[r].staging);
    }
    assert_int_equal(fake_link_open_ends(), 0);
}

static void in_threads(struct rank *ranks, void *(*function)(void *)) {
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, function, &ranks[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

/* ---- traffic ----------------------------------------------------------------------------------
 */

static uint64_t count_of(int round) {
    static const uint64_t counts[] = {1, 0, 1008, 1009, 5, 4096, 33000, 16, MAX_COUNT, 250};
    return counts[round % 10];
}

static int32_t value(int rank, int round, uint64_t i) {
    return (int32_t)(uint32_t)((i * 7919u + (unsigned)round * 104729u) * (unsigned)(rank + 3));
}

static void sum(struct rank *rank, int round, int32_t *in, int32_t *out) {
    uint64_t count = count_of(round);
    for (uint64_t i = 0; i < count; i++)
        in[i] = value(rank->rank, round, i);
    struct engine_call call = {.operation = PLAN_ALL_REDUCE,
                               .dtype = JACKAL_INT32,
                               .op = JACKAL_SUM,
                               .count = count,
                               .root = -1,
                               .in = in,
                               .out = out};
    if (run(rank, &call, 1) != JACKAL_OK)
        return;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t right = 0;
        for (int r = 0; r < RANKS; r++)
            right += (uint32_t)value(r, round, i);
        if ((uint32_t)out[i] != right)
            note(rank, "all_reduce", "a wrong sum");
    }
}

/* To the next rank and from the previous one, together; above the eager limit it is asked first. */
static void circle(struct rank *rank, int round, int32_t *in, int32_t *out) {
    uint64_t count = count_of(round + 3);
    int from = (rank->rank + RANKS - 1) % RANKS;
    for (uint64_t i = 0; i < count; i++)
        in[i] = value(rank->rank, round + 1000, i);
    struct engine_call calls[2] = {
        {.operation = PLAN_SEND, .count = count * 4, .root = (rank->rank + 1) % RANKS, .in = in},
        {.operation = PLAN_RECV, .count = count * 4, .root = from, .out = out}};
    if (run(rank, calls, 2) != JACKAL_OK)
        return;
    for (uint64_t i = 0; i < count; i++)
        if (out[i] != value(from, round + 1000, i))
            note(rank, "sendrecv", "a wrong byte");
}

/* As many as are sure to go out with nobody taking them: a window less what may still be owed. */
static void flood(struct rank *rank, int round) {
    enum { SMALL = 16 - 16 / 2 + 1 };
    for (int i = 0; i < SMALL; i++) {
        uint32_t word = (uint32_t)(round * 100 + i);
        struct engine_call call = {
            .operation = PLAN_SEND, .count = 4, .root = (rank->rank + 1) % RANKS, .in = &word};
        run(rank, &call, 1);
    }
    for (int i = 0; i < SMALL; i++) {
        uint32_t word = 0;
        struct engine_call call = {.operation = PLAN_RECV,
                                   .count = 4,
                                   .root = (rank->rank + RANKS - 1) % RANKS,
                                   .out = &word};
        if (run(rank, &call, 1) == JACKAL_OK && word != (uint32_t)(round * 100 + i))
            note(rank, "recv", "messages are out of order");
    }
}

static void check_credits(struct rank *rank) {
    for (int i = 0; i < rank->engine->n_wires; i++) {
        const struct engine_wire *wire = &rank->engine->wires[i];
        for (int queue = 0; wire->link != NULL && queue < LINK_QUEUES; queue++) {
            for (int kind = 0; kind < ENGINE_KINDS; kind++) {
                const struct engine_lane *lane = &wire->lanes[queue][kind];
                if (lane->sent - lane->peer_consumed > lane->window ||
                    lane->tail - lane->head > lane->window ||
                    lane->consumed - lane->told > lane->window)
                    note(rank, "credits", "a window is exceeded");
            }
        }
    }
}

static bool never(void *context) {
    (void)context;
    return false;
}

static void *work(void *argument) {
    struct rank *rank = argument;
    struct base_error error = {.text = ""};
    int32_t *in = calloc(MAX_COUNT, 4), *out = calloc(MAX_COUNT, 4);
    if (engine_ping(rank->engine, base_deadline_ns(20000), never, NULL, &error) != JACKAL_OK)
        note(rank, "ping", error.text);
    for (int round = 0; round < ROUNDS && rank->failure[0] == '\0'; round++) {
        sum(rank, round, in, out);
        circle(rank, round, in, out);
        if (round % 5 == 0)
            flood(rank, round);
        struct engine_call barrier = {.operation = PLAN_BARRIER, .dtype = JACKAL_UINT8, .root = -1};
        run(rank, &barrier, 1);
        check_credits(rank);
    }
    engine_drain(rank->engine, base_deadline_ns(5000));
    free(in);
    free(out);
    return NULL;
}

static void check_home(const struct rank *rank) {
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        const struct engine_pool *pool = &rank->engine->pools[queue];
        uint32_t n_free = 0;
        for (uint32_t at = pool->first_free; at < pool->n_slots; at = pool->slots[at].next_free)
            n_free++;
        assert_int_equal(n_free, pool->n_slots);
    }
}

static void try_traffic(uint32_t slot_frames, bool whole_slots) {
    struct rank ranks[RANKS];
    struct link_geometry geometry;
    engine_geometry(slot_frames, &geometry);
    open_mesh(ranks, &geometry, whole_slots, 20000);
    in_threads(ranks, work);
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].failure[0] != '\0')
            fail_msg("%s", ranks[r].failure);
        check_home(&ranks[r]);
    }
    close_mesh(ranks);
    assert_int_equal(fake_link_faults(), 0);
}

static void slots_are_there_for_every_message(void **state) {
    (void)state;
    try_traffic(4, true);
    try_traffic(16, true);
    try_traffic(4, false); /* only the used bytes travel */
}

/* ---- losses -----------------------------------------------------------------------------------
 */

static void *work_and_fail(void *argument) {
    struct rank *rank = argument;
    struct base_error error;
    int32_t *in = calloc(MAX_COUNT, 4), *out = calloc(MAX_COUNT, 4);
    engine_ping(rank->engine, base_deadline_ns(20000), never, NULL, &error);
    for (int round = 0; round < ROUNDS && rank->failure[0] == '\0'; round++)
        sum(rank, round, in, out);
    free(in);
    free(out);
    return NULL;
}

/* Rank 0 loses its n-th message to rank 1. Returns whether rank 1 missed it. */
static bool try_loss(enum link_queue queue, uint32_t n) {
    struct rank ranks[RANKS];
    struct link_geometry geometry;
    struct base_error error;
    engine_geometry(4, &geometry);
    open_mesh(ranks, &geometry, true, 300);
    fake_link_lose(ranks[0].links[1 * WIRES], queue, n);
    in_threads(ranks, work_and_fail);
    for (int r = 0; r < RANKS; r++)
        if (strstr(ranks[r].failure, "a wrong sum") != NULL)
            fail_msg("message %u: %s", n, ranks[r].failure);
    jackal_status status = engine_state(ranks[1].engine, &error);
    if (status != JACKAL_OK) {
        assert_true(status == JACKAL_ERR_DATA_LOST || status == JACKAL_ERR_TIMEOUT);
        assert_int_equal(error.peer, 0);
    }
    close_mesh(ranks);
    return status != JACKAL_OK;
}

/*
 * A lost message is an error on the rank that misses it, never a wrong sum (C7). Only a credit is
 * not missed, since the next one says as much.
 */
static void a_lost_message_is_noticed(void **state) {
    int n_tries = 0, n_noticed = 0;
    (void)state;
    /* Messages 1 are pings. */
    for (uint32_t n = 2; n < 30; n += 7, n_tries++)
        n_noticed += try_loss(LINK_SMALL, n);
    for (uint32_t n = 2; n < 30; n += 7) /* no credits here */
        assert_true(try_loss(LINK_BULK, n));
    assert_true(n_noticed >= n_tries / 2);
}

/* ---- calls that pass each other ---------------------------------------------------------------
 */

static void *ping(void *argument) {
    struct rank *rank = argument;
    struct base_error error = {.text = ""};
    if (engine_ping(rank->engine, base_deadline_ns(20000), never, NULL, &error) != JACKAL_OK)
        note(rank, "ping", error.text);
    engine_drain(rank->engine, base_deadline_ns(5000));
    return NULL;
}

static void *broadcast_own(void *argument) {
    struct rank *rank = argument;
    static const int32_t data[40000];
    struct engine_call call = {.operation = PLAN_BROADCAST,
                               .dtype = JACKAL_INT32,
                               .count = 40000,
                               .root = rank->rank,
                               .in = data,
                               .out = (void *)(uintptr_t)data};
    run(rank, &call, 1);
    return NULL;
}

/*
 * Each rank broadcasts as the root (D11): it is found in this very call. Who finds it stops
 * sending, and without a group nobody tells the others, so some may only starve; none is told that
 * all is well.
 */
static void different_roots_are_a_mismatch(void **state) {
    struct rank ranks[RANKS];
    struct link_geometry geometry;
    (void)state;
    engine_geometry(4, &geometry);
    open_mesh(ranks, &geometry, true, 1000);
    in_threads(ranks, ping);
    in_threads(ranks, broadcast_own);
    int n_found = 0;
    for (int r = 0; r < RANKS; r++) {
        struct base_error error;
        jackal_status status = engine_state(ranks[r].engine, &error);
        assert_true(status == JACKAL_ERR_MISMATCH || status == JACKAL_ERR_TIMEOUT);
        n_found += status == JACKAL_ERR_MISMATCH && strstr(error.text, "collective #0") != NULL;
    }
    assert_true(n_found > 0);
    close_mesh(ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_are_there_for_every_message),
        cmocka_unit_test(a_lost_message_is_noticed),
        cmocka_unit_test(different_roots_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
