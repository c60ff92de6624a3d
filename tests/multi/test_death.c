/* SPDX-License-Identifier: MIT */
/*
 * What the others see when a rank dies, stops, or leaves without a word (A1 to A4, A6, A19 to A21,
 * T09). Limits are three times those promised: the machine is shared.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1 << 18, VICTIM = 2, ROUND = 20 };

/* In the memory of the job. */
struct scene {
    _Atomic double struck_s; /* when the victim was struck */
    atomic_int pid;          /* of the victim */
    char text[RANKS_MAX][700];
};

static float *vector(int rank) {
    float *values = malloc(COUNT * sizeof *values);
    RANKS_CHECK(values != NULL);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(rank + 1);
    return values;
}

/* After the failure: the same status at once, then a quick end (A4, A20). */
static void check_aftermath(jackal_group *group, jackal_status status, int culprit) {
    float one = 1;
    double start_s = ranks_now_s();
    for (int i = 0; i < 10; i++)
        RANKS_STATUS(group, jackal_all_sum(group, &one, &one, 1, JACKAL_FLOAT32), status);
    RANKS_CHECK(ranks_now_s() - start_s < 0.1 * 3 * RANKS_SLOW);
    RANKS_EQUAL(jackal_group_state(group), status);
    RANKS_EQUAL(jackal_error_peer(group), culprit);
    start_s = ranks_now_s();
    jackal_group_free(group);
    RANKS_CHECK(ranks_now_s() - start_s < 1.0 * 3 * RANKS_SLOW);
}

/* Sums until it fails. */
static jackal_status sum_on(jackal_group *group, float *in, float *out, int first) {
    jackal_status status = JACKAL_OK;
    for (int i = first; status == JACKAL_OK; i++) {
        ranks_at("sum %d", i);
        status = jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32);
    }
    return status;
}

/* ---- SIGKILL, exit, return --------------------------------------------------------------------
 */

enum end { KILLED, EXITED, RETURNED };

static void end_without_a_word(enum end how) {
    struct scene *scene = ranks_memory();
    atomic_store(&scene->struck_s, ranks_now_s());
    if (how == KILLED)
        raise(SIGKILL);
    if (how == EXITED)
        _exit(7);
    exit(0); /* as a return from main without jackal_group_free() */
}

static int run_death(int rank, int size, jackal_config *config, void *argument) {
    struct scene *scene = ranks_memory();
    enum end how = *(enum end *)argument;
    jackal_group *group = ranks_init(config);
    float *in = vector(rank), *out = vector(rank);
    for (int i = 0; i < ROUND; i++) {
        RANKS_OK(group, jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32));
        RANKS_CHECK(out[i] == (float)(size * (size + 1) / 2));
    }
    ranks_meet(0, size); /* nobody is still in a sum */
    if (rank == VICTIM)
        end_without_a_word(how);
    RANKS_STATUS(group, sum_on(group, in, out, ROUND), JACKAL_ERR_PEER_LOST);
    double late_s = ranks_now_s() - atomic_load(&scene->struck_s);
    if (late_s > 2.0 * 3 * RANKS_SLOW)
        ranks_failed(__FILE__, __LINE__, "the death was noticed after %.1f s", late_s);
    snprintf(scene->text[rank], sizeof scene->text[rank], "%s", jackal_error_message(group));
    RANKS_HAS(jackal_error_message(group), "rank 2");
    check_aftermath(group, JACKAL_ERR_PEER_LOST, VICTIM);
    free(in);
    free(out);
    return 0; /* A6: the end is ours to choose, and the harness checks it */
}

static void try_death(enum end how) {
    struct ranks_job job = {.size = 4, .run = run_death, .argument = &how, .gone = 1u << VICTIM};
    assert_int_equal(ranks_run(&job), 0);
    const struct scene *scene = ranks_memory();
    assert_string_equal(scene->text[1], scene->text[0]);
    assert_string_equal(scene->text[3], scene->text[0]);
}

static void a_killed_rank_is_lost_to_all(void **state) {
    (void)state;
    try_death(KILLED);
}

static void so_is_one_that_exits(void **state) {
    (void)state;
    try_death(EXITED);
    try_death(RETURNED);
}

static int run_root_death(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    float *in = vector(rank), *out = vector(rank);
    RANKS_OK(group, jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32));
    ranks_meet(0, size);
    if (rank == 0)
        raise(SIGKILL);
    RANKS_STATUS(group, sum_on(group, in, out, 1), JACKAL_ERR_PEER_LOST);
    check_aftermath(group, JACKAL_ERR_PEER_LOST, 0);
    free(in);
    free(out);
    return 0;
}

static void rank_0_is_lost_as_well(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_root_death, .gone = 1};
    assert_int_equal(ranks_run(&job), 0);
}

/* Nobody is in a call when it happens: the next one says so at once. */
static int run_idle_death(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    RANKS_OK(group, jackal_barrier(group));
    ranks_meet(0, size);
    if (rank == 1)
        raise(SIGKILL);
    double start_s = ranks_now_s();
    while (jackal_group_state(group) == JACKAL_OK && ranks_now_s() - start_s < 2.0 * 3 * RANKS_SLOW)
        ranks_nap_ms(5);
    RANKS_EQUAL(jackal_group_state(group), JACKAL_ERR_PEER_LOST);
    check_aftermath(group, JACKAL_ERR_PEER_LOST, 1);
    return 0;
}

static void a_death_is_noticed_between_calls(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_idle_death, .gone = 2};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- SIGSTOP ----------------------------------------------------------------------------------
 */

/* A process of its own that lets the victim go on after a while; 0 = never. */
static void stop_me(unsigned ms) {
    struct scene *scene = ranks_memory();
    pid_t me = getpid();
    atomic_store(&scene->pid, (int)me);
    pid_t helper = ms > 0 ? fork() : -1;
    if (helper == 0) {
        ranks_nap_ms(ms);
        kill(me, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    if (helper > 0)
        waitpid(helper, NULL, 0);
}

static int run_stall(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    float *in = vector(rank), *out = vector(rank);
    RANKS_OK(group, jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32));
    ranks_meet(0, size);
    double cpu_s = ranks_cpu_s(), start_s = ranks_now_s();
    if (rank == 1)
        stop_me(2000);
    RANKS_OK(group, jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32));
    for (int i = 0; i < COUNT; i++)
        RANKS_CHECK(out[i] == (float)(size * (size + 1) / 2));
    cpu_s = ranks_cpu_s() - cpu_s;
    RANKS_CHECK(ranks_now_s() - start_s > 1.5);
    if (rank != 1 && cpu_s > 0.5 * RANKS_SLOW) /* A19 */
        ranks_failed(__FILE__, __LINE__, "waiting for 2 s took %.2f s of the processor", cpu_s);
    jackal_group_free(group);
    free(in);
    free(out);
    return 0;
}

static void a_stall_is_waited_for_asleep(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_stall, .settings = "progress_timeout_ms=10000"};
    assert_int_equal(ranks_run(&job), 0);
}

static int run_stop(int rank, int size, jackal_config *config, void *argument) {
    struct scene *scene = ranks_memory();
    (void)argument;
    jackal_group *group = ranks_init(config);
    float *in = vector(rank), *out = vector(rank);
    RANKS_OK(group, jackal_all_sum(group, in, out, COUNT, JACKAL_FLOAT32));
    ranks_meet(0, size);
    double start_s = ranks_now_s();
    if (rank == 1) {
        stop_me(0);
        return 0; /* let go by rank 0, when all is over */
    }
    RANKS_STATUS(group, sum_on(group, in, out, 1), JACKAL_ERR_TIMEOUT);
    double took_s = ranks_now_s() - start_s;
    RANKS_CHECK(took_s > 1.4 && took_s < 1.5 + 2.0 * RANKS_SLOW);
    RANKS_HAS(jackal_error_message(group), "1500 ms");
    RANKS_HAS(jackal_error_message(group), "rank 1");
    RANKS_HAS(jackal_error_message(group), "all_reduce");
    check_aftermath(group, JACKAL_ERR_TIMEOUT, 1);
    free(in);
    free(out);
    ranks_meet(1, size - 1);
    /* Who leaves last cleans up behind it, so it must be gone by then. */
    while (rank == 0 && kill((pid_t)atomic_load(&scene->pid), SIGKILL) == 0)
        ranks_nap_ms(1);
    return 0;
}

static void a_rank_that_stops_for_ever_is_named(void **state) {
    (void)state;
    struct ranks_job job = {
        .size = 3, .run = run_stop, .settings = "progress_timeout_ms=1500", .gone = 2};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], "a thread cannot be killed or stopped alone");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_lost_to_all),
        cmocka_unit_test(so_is_one_that_exits),
        cmocka_unit_test(rank_0_is_lost_as_well),
        cmocka_unit_test(a_death_is_noticed_between_calls),
        cmocka_unit_test(a_stall_is_waited_for_asleep),
        cmocka_unit_test(a_rank_that_stops_for_ever_is_named),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
