/* SPDX-License-Identifier: MIT */
/*
 * Beginning and end of groups: aborts, ranks that leave, many groups one after the other and at the
 * same time, several threads on one (A3, A20, C10, G8, H6).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"
#include "value.h"

#include <cmocka.h>
#include <jansson.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_sum(jackal_group *group, int32_t own, int32_t right) {
    int32_t sum = 0;
    RANKS_OK(group, jackal_all_sum(group, &own, &sum, 1, JACKAL_INT32));
    RANKS_EQUAL(sum, right);
}

/* ---- abort ------------------------------------------------------------------------------------
 */

static int run_abort(int rank, int size, jackal_config *config, void *argument) {
    int aborter = *(int *)argument;
    jackal_group *group = ranks_init(config);
    check_sum(group, 1, size);
    ranks_meet(0, size);
    double start_s = ranks_now_s();
    if (rank == aborter) {
        jackal_abort(group, "enough is enough");
        jackal_abort(group, "only the first one counts");
    }
    /* The others wait for the one that will not come. */
    RANKS_STATUS(group, jackal_barrier(group), JACKAL_ERR_ABORTED);
    RANKS_CHECK(ranks_now_s() - start_s < 2.0 * RANKS_SLOW);
    RANKS_HAS(jackal_error_message(group), "enough is enough");
    RANKS_EQUAL(jackal_error_peer(group), aborter);
    RANKS_STATUS(group, jackal_barrier(group), JACKAL_ERR_ABORTED);
    jackal_group_free(group);
    return 0;
}

static void an_abort_reaches_everybody(void **state) {
    (void)state;
    for (int aborter = 0; aborter < 3; aborter += 2) {
        struct ranks_job job = {.size = 3, .run = run_abort, .argument = &aborter};
        assert_int_equal(ranks_run(&job), 0);
    }
}

/* ---- leaving ----------------------------------------------------------------------------------
 */

static int run_leave(int rank, int size, jackal_config *config, void *argument) {
    int leaver = *(int *)argument;
    jackal_group *group = ranks_init(config);
    check_sum(group, 1, size);
    if (rank == leaver) {
        jackal_group_free(group);
        ranks_meet(0, size);
        return 0;
    }
    double start_s = ranks_now_s();
    RANKS_STATUS(group, jackal_barrier(group), JACKAL_ERR_PEER_LOST);
    RANKS_CHECK(ranks_now_s() - start_s < 3.0 * RANKS_SLOW);
    RANKS_EQUAL(jackal_error_peer(group), leaver);
    jackal_group_free(group);
    ranks_meet(0, size);
    return 0;
}

static void who_leaves_is_not_waited_for(void **state) {
    (void)state;
    for (int leaver = 0; leaver < 3; leaver++) {
        struct ranks_job job = {.size = 3, .run = run_leave, .argument = &leaver};
        assert_int_equal(ranks_run(&job), 0);
    }
}

/* What a rank sent before it left arrives, though it is long gone. */
static int run_last_words(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    char words[2000] = "";
    jackal_group *group = ranks_init(config);
    if (rank == 1) {
        memset(words, 'w', sizeof words);
        RANKS_OK(group, jackal_send(group, words, sizeof words, 0));
        RANKS_OK(group, jackal_send(group, words, 3, 0));
        jackal_group_free(group);
        ranks_meet(0, size);
        return 0;
    }
    ranks_meet(0, size);
    RANKS_OK(group, jackal_recv(group, words, sizeof words, 1));
    RANKS_EQUAL(words[1999], 'w');
    RANKS_OK(group, jackal_recv(group, words, 3, 1));
    RANKS_STATUS(group, jackal_recv(group, words, 1, 1), JACKAL_ERR_PEER_LOST);
    jackal_group_free(group);
    return 0;
}

static void last_words_are_heard(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_last_words};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- many groups ------------------------------------------------------------------------------
 */

/* Open descriptors of this process; −1 where the system does not tell. */
static int n_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    if (folder == NULL)
        return -1;
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

enum { CYCLES = 30 };

static int run_cycles(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    int n_before = -1, n_least = -1;
    for (int i = 0; i < CYCLES; i++) {
        ranks_at("group %d", i);
        if (i > 0)
            ranks_meeting(config, rank, 0);
        jackal_group *group = ranks_init(config);
        check_sum(group, rank + i, size * (size - 1) / 2 + size * i);
        jackal_group_free(group);
        ranks_meet(i, size); /* all groups are gone, and one rank alone looks */
        int n_now = rank == 0 ? n_descriptors() : 0;
        if (i == 2)
            n_before = n_now;
        n_least = i > CYCLES / 2 && (n_least < 0 || n_now < n_least) ? n_now : n_least;
        ranks_meet(31 + i, size);
    }
    /* The fabric may keep a peer's file until its next connection, so single groups differ by that;
     * what grows does not come back to where it was. */
    RANKS_CHECK(n_least <= n_before);
    return 0;
}

static void groups_come_and_go(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_cycles, .limit_ms = 60000};
    assert_int_equal(ranks_run(&job), 0);
}

/* A group that failed can be closed, and a new one works in the same processes. */
static int run_again(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    int32_t value = 0;
    jackal_status status =
        jackal_all_sum(group, &value, &value, 1, rank == 0 ? JACKAL_INT32 : JACKAL_UINT32);
    RANKS_STATUS(group, status, JACKAL_ERR_MISMATCH);
    jackal_group_free(group);
    ranks_meeting(config, rank, 1);
    group = ranks_init(config);
    check_sum(group, rank + 1, size * (size + 1) / 2);
    jackal_group_free(group);
    return 0;
}

static void a_new_group_follows_a_failed_one(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_again};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- at the same time (G8) --------------------------------------------------------------------
 */

struct twin {
    jackal_group *group;
    int rank, size, number;
    char failure[256];
};

/* No RANKS_CHECK here: this thread is not the rank's. */
static void *work_on_twin(void *argument) {
    struct twin *twin = argument;
    enum { COUNT = 5000 };
    int32_t *values = calloc(COUNT, sizeof *values);
    for (int i = 0; i < 60 && values != NULL && twin->failure[0] == '\0'; i++) {
        for (int k = 0; k < COUNT; k++)
            values[k] = twin->rank + k + 1000 * twin->number + i;
        uint64_t count = (uint64_t)(i % 3 == 0 ? COUNT : i + 1);
        jackal_status status = jackal_all_sum(twin->group, values, values, count, JACKAL_INT32);
        int32_t k = (int32_t)count - 1;
        int32_t right =
            twin->size * (k + 1000 * twin->number + i) + twin->size * (twin->size - 1) / 2;
        if (status != JACKAL_OK)
            snprintf(twin->failure, sizeof twin->failure, "group %d: %.200s", twin->number,
                     jackal_error_message(twin->group));
        else if (values[k] != right)
            snprintf(twin->failure, sizeof twin->failure, "group %d: %d instead of %d",
                     twin->number, values[k], right);
    }
    free(values);
    return NULL;
}

static int run_twins(int rank, int size, jackal_config *config, void *argument) {
    struct twin twins[2];
    pthread_t threads[2];
    (void)argument;
    for (int k = 0; k < 2; k++) {
        if (k > 0)
            ranks_meeting(config, rank, k);
        twins[k] = (struct twin){ranks_init(config), rank, size, k, ""};
    }
    for (int k = 0; k < 2; k++)
        RANKS_EQUAL(pthread_create(&threads[k], NULL, work_on_twin, &twins[k]), 0);
    for (int k = 0; k < 2; k++)
        pthread_join(threads[k], NULL);
    for (int k = 0; k < 2; k++) {
        if (twins[k].failure[0] != '\0')
            ranks_failed(__FILE__, __LINE__, "%s", twins[k].failure);
        jackal_group_free(twins[k].group);
    }
    return 0;
}

static void two_groups_work_at_once(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_twins};
    assert_int_equal(ranks_run(&job), 0);
}

/*
 * Several threads of a rank on one group. Collectives must be posted in one order on all ranks, so
 * only one thread makes them; each of the others talks to another rank.
 */
struct talker {
    jackal_group *group;
    int peer;
    jackal_status status;
    int n_wrong;
};

static void *talk(void *argument) {
    struct talker *talker = argument;
    enum { BYTES = 100000 };
    int own = jackal_rank(talker->group);
    uint8_t *out = malloc(BYTES), *in = malloc(BYTES);
    for (int i = 0; i < 40 && talker->status == JACKAL_OK; i++) {
        uint64_t n_bytes = i % 4 == 0 ? BYTES : (uint64_t)(i * 97);
        memset(out, own * 16 + i, n_bytes);
        memset(in, 0xff, n_bytes);
        talker->status =
            jackal_sendrecv(talker->group, out, n_bytes, talker->peer, in, n_bytes, talker->peer);
        for (uint64_t k = 0; k < n_bytes; k++)
            talker->n_wrong += in[k] != (uint8_t)(talker->peer * 16 + i);
    }
    free(out);
    free(in);
    return NULL;
}

static int run_threads(int rank, int size, jackal_config *config, void *argument) {
    struct talker talkers[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    (void)argument;
    jackal_group *group = ranks_init(config);
    for (int peer = 0; peer < size; peer++) {
        talkers[peer] = (struct talker){group, peer, JACKAL_OK, 0};
        if (peer != rank)
            RANKS_EQUAL(pthread_create(&threads[peer], NULL, talk, &talkers[peer]), 0);
    }
    for (int i = 0; i < 100; i++) {
        check_sum(group, i + rank, i * size + size * (size - 1) / 2);
        if (i % 10 == 0)
            RANKS_OK(group, jackal_barrier(group));
    }
    for (int peer = 0; peer < size; peer++) {
        if (peer == rank)
            continue;
        pthread_join(threads[peer], NULL);
        RANKS_EQUAL(talkers[peer].status, JACKAL_OK);
        RANKS_EQUAL(talkers[peer].n_wrong, 0);
    }
    jackal_group_free(group);
    return 0;
}

static void threads_share_a_group(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_threads, .wires = 2};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- statistics (H6) --------------------------------------------------------------------------
 */

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    RANKS_CHECK(json_is_integer(value));
    return json_integer_value(value);
}

static void check_wires(jackal_group *group, uint64_t block, int wires) {
    int size = jackal_size(group);
    char *text = NULL;
    RANKS_OK(group, jackal_group_stats(group, &text));
    json_t *stats = json_loads(text, 0, NULL);
    jackal_free_text(text);
    RANKS_CHECK(stats != NULL);
    RANKS_EQUAL(number(stats, "rank"), jackal_rank(group));
    RANKS_EQUAL(number(stats, "size"), size);
    RANKS_EQUAL(number(stats, "operations"), 1);
    const json_t *list = json_object_get(stats, "wires");
    RANKS_EQUAL(json_array_size(list), (size - 1) * wires);
    json_int_t sent[RANKS_MAX] = {0}, received[RANKS_MAX] = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *wire = json_array_get(list, i);
        /* Both cables are used, about equally. */
        RANKS_CHECK(number(wire, "bytes_sent") > (json_int_t)block / wires - 64);
        RANKS_CHECK(number(wire, "bytes_received") > (json_int_t)block / wires - 64);
        RANKS_CHECK(number(wire, "messages_sent") > 0 && number(wire, "messages_received") > 0);
        RANKS_CHECK(strstr(json_string_value(json_object_get(wire, "device")), "rdma_en") != NULL);
        sent[number(wire, "peer")] += number(wire, "bytes_sent");
        received[number(wire, "peer")] += number(wire, "bytes_received");
    }
    for (int peer = 0; peer < size; peer++) {
        RANKS_EQUAL(sent[peer], peer == jackal_rank(group) ? 0 : block);
        RANKS_EQUAL(received[peer], peer == jackal_rank(group) ? 0 : block);
    }
    json_decref(stats);
}

static int run_stats(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    enum { BLOCK = 150001 };
    uint8_t *out = malloc((size_t)BLOCK * (size_t)size);
    RANKS_CHECK(out != NULL);
    memset(out, rank, (size_t)BLOCK * (size_t)size);
    RANKS_OK(group, jackal_all_gather(group, out + rank * BLOCK, out, BLOCK, JACKAL_UINT8));
    check_wires(group, BLOCK, 2);
    free(out);
    jackal_group_free(group);
    return 0;
}

static void every_wire_counts_its_bytes(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .wires = 2, .run = run_stats};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- the last call ----------------------------------------------------------------------------
 */

enum { LATE_ROUNDS = RANKS_MEETINGS, LATE_MS = 700 };

/* The last rank comes late, finishes and leaves at once: nobody may take that for a loss. */
static int run_late(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    for (int round = 0; round < LATE_ROUNDS; round++) {
        ranks_meeting(config, rank, round);
        jackal_group *group = ranks_init(config);
        check_sum(group, 1, size);
        if (rank == size - 1)
            usleep(LATE_MS * 1000);
        RANKS_OK(group, jackal_barrier(group));
        jackal_group_free(group);
    }
    return 0;
}

static void a_late_rank_may_leave_at_once(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_late};
    assert_int_equal(ranks_run(&job), 0);
}

struct blocked {
    jackal_group *group;
    jackal_status status;
    atomic_bool begun;
};

static void *receive_for_ever(void *argument) {
    struct blocked *blocked = argument;
    char byte;
    atomic_store(&blocked->begun, true);
    blocked->status = jackal_recv(blocked->group, &byte, 1, 1);
    return NULL;
}

/* Rank 0 closes while another of its threads waits: the call ends, then the group. */
static int run_close_during_call(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    check_sum(group, 1, size);
    if (rank == 0) {
        struct blocked blocked = {.group = group};
        pthread_t thread;
        RANKS_EQUAL(pthread_create(&thread, NULL, receive_for_ever, &blocked), 0);
        while (!atomic_load(&blocked.begun))
            usleep(1 * 1000);
        usleep(50 * 1000);
        double start_s = ranks_now_s();
        jackal_group_free(group);
        RANKS_CHECK(ranks_now_s() - start_s < 1.0 * RANKS_SLOW);
        RANKS_EQUAL(pthread_join(thread, NULL), 0);
        RANKS_EQUAL(blocked.status, JACKAL_ERR_ABORTED);
        ranks_meet(0, size);
        return 0;
    }
    ranks_meet(0, size);
    jackal_group_free(group);
    return 0;
}

static void closing_ends_a_call_that_waits(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_close_during_call};
    assert_int_equal(ranks_run(&job), 0);
}

/* A receive that nobody serves ends at its limit although another thread's calls keep moving. */
static int run_starving(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    struct blocked blocked = {.group = group};
    pthread_t thread;
    if (rank == 0)
        RANKS_EQUAL(pthread_create(&thread, NULL, receive_for_ever, &blocked), 0);
    double start_s = ranks_now_s();
    jackal_status status = JACKAL_OK;
    while (status == JACKAL_OK && ranks_now_s() - start_s < 10.0 * RANKS_SLOW)
        status = jackal_barrier(group);
    RANKS_EQUAL(status, JACKAL_ERR_TIMEOUT);
    RANKS_HAS(jackal_error_message(group), "recv #0");
    if (rank == 0) {
        RANKS_EQUAL(pthread_join(thread, NULL), 0);
        RANKS_EQUAL(blocked.status, JACKAL_ERR_TIMEOUT);
    }
    ranks_meet(0, size);
    jackal_group_free(group);
    return 0;
}

static void every_call_has_its_own_limit(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_starving, .settings = "progress_timeout_ms=800"};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_reaches_everybody),
        cmocka_unit_test(who_leaves_is_not_waited_for),
        cmocka_unit_test(last_words_are_heard),
        cmocka_unit_test(groups_come_and_go),
        cmocka_unit_test(a_new_group_follows_a_failed_one),
        cmocka_unit_test(two_groups_work_at_once),
        cmocka_unit_test(threads_share_a_group),
        cmocka_unit_test(every_wire_counts_its_bytes),
        cmocka_unit_test(a_late_rank_may_leave_at_once),
        cmocka_unit_test(closing_ends_a_call_that_waits),
        cmocka_unit_test(every_call_has_its_own_limit),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
