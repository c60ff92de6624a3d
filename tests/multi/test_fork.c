/* SPDX-License-Identifier: MIT */
/*
 * A rank that forks (G4): the child is told that the group is not its own, sends nothing on it, and
 * does not hide its parent's death by holding the connections open.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_sum(jackal_group *group, int32_t own, int32_t right) {
    int32_t sum = 0;
    RANKS_OK(group, jackal_all_sum(group, &own, &sum, 1, JACKAL_INT32));
    RANKS_EQUAL(sum, right);
}

/* What the child of a fork does; its exit status is 0 if every call was refused. */
static int child(jackal_group *group) {
    int32_t one = 1000, sum = 0;
    char *json = NULL;
    jackal_group *second = NULL;
    int wrong = jackal_all_sum(group, &one, &sum, 1, JACKAL_INT32) != JACKAL_ERR_FORKED;
    wrong += strstr(jackal_error_message(group), "parent") == NULL;
    wrong += jackal_barrier(group) != JACKAL_ERR_FORKED;
    wrong += jackal_send(group, &one, sizeof one, 0) != JACKAL_ERR_FORKED;
    wrong += jackal_group_stats(group, &json) != JACKAL_ERR_FORKED;
    wrong += jackal_init(NULL, &second) != JACKAL_ERR_FORKED || second != NULL;
    jackal_abort(group, "not mine to abort");
    jackal_group_free(group);
    return wrong;
}

static int run_fork(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    check_sum(group, 1, size);
    if (rank == 1) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(group));
        int status = -1;
        RANKS_CHECK(waitpid(pid, &status, 0) == pid);
        RANKS_CHECK(WIFEXITED(status));
        RANKS_EQUAL(WEXITSTATUS(status), 0);
    }
    for (int i = 0; i < 20; i++)
        check_sum(group, rank + i, size * (size - 1) / 2 + size * i);
    jackal_group_free(group);
    return 0;
}

static void a_child_is_refused_and_disturbs_nobody(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_fork};
    assert_int_equal(ranks_run(&job), 0);
}

static int run_orphan(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    check_sum(group, 1, size);
    ranks_meet(0, size);
    if (rank == 1) {
        if (fork() == 0) {
            sleep(4); /* outlives its parent; nobody waits for it */
            _exit(0);
        }
        raise(SIGKILL);
    }
    double start_s = ranks_now_s();
    RANKS_STATUS(group, jackal_barrier(group), JACKAL_ERR_PEER_LOST);
    RANKS_CHECK(ranks_now_s() - start_s < 3.0 * RANKS_SLOW);
    RANKS_EQUAL(jackal_error_peer(group), 1);
    jackal_group_free(group);
    return 0;
}

static void a_living_child_does_not_hide_a_death(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_orphan, .gone = 1u << 1};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], "a thread that forks is another story");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_and_disturbs_nobody),
        cmocka_unit_test(a_living_child_does_not_hide_a_death),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
