/* SPDX-License-Identifier: MIT */
/*
 * What the environment says, and what is missing in it: a group has the size that is promised or
 * init fails and says which variable is to blame; never a smaller group (E2, E3, D10, G10, T11 15).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#endif

#define MATRIX "[[null,\"rdma_en2\"],[\"rdma_en2\",null]]"

/* ---- wrong environments ------------------------------------------------------------------------
 */

static const struct wrong {
    const char *environment; /* NAME=VALUE, separated by spaces */
    jackal_status status;
    const char *parts[3]; /* of the text */
} wrongs[] = {
    {"", JACKAL_ERR_CONFIG, {"no launch variable", "JACKAL_SIZE", "JACKAL_STRICT=0"}},
    {"JACKAL_STRICT=1", JACKAL_ERR_CONFIG, {"no launch variable"}},
    {"JACKAL_STRICT=maybe", JACKAL_ERR_CONFIG, {"JACKAL_STRICT", "maybe", "1, true, yes, on"}},
    {"JACKAL_RANK=0", JACKAL_ERR_CONFIG, {"JACKAL_SIZE", "JACKAL_DEVICES"}},
    {"JACKAL_STRICT=0 JACKAL_RANK=0", JACKAL_ERR_CONFIG, {"JACKAL_SIZE", "JACKAL_DEVICES"}},
    {"JACKAL_STRICT=0 JACKAL_COORDINATOR=127.0.0.1:1", JACKAL_ERR_CONFIG, {"JACKAL_SIZE"}},
    {"MLX_RANK=0", JACKAL_ERR_CONFIG, {"JACKAL_SIZE"}},
    {"JACKAL_SIZE=2", JACKAL_ERR_CONFIG, {"JACKAL_RANK is not set", "0 to 1"}},
    {"JACKAL_STRICT=0 JACKAL_SIZE=2", JACKAL_ERR_CONFIG, {"JACKAL_RANK is not set"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=0", JACKAL_ERR_CONFIG, {"JACKAL_DEVICES is not set"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=0 JACKAL_DEVICES=" MATRIX,
     JACKAL_ERR_CONFIG,
     {"JACKAL_COORDINATOR is not set"}},
    {"JACKAL_RANK=1 JACKAL_DEVICES=" MATRIX, JACKAL_ERR_CONFIG, {"JACKAL_COORDINATOR"}},
    {"MLX_RANK=1 MLX_IBV_DEVICES=" MATRIX, JACKAL_ERR_CONFIG, {"JACKAL_COORDINATOR"}},
    {"JACKAL_DEVICES=" MATRIX, JACKAL_ERR_CONFIG, {"JACKAL_RANK is not set"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=2", JACKAL_ERR_CONFIG, {"JACKAL_RANK is 2", "0 to 1"}},
    {"JACKAL_SIZE=1 JACKAL_RANK=1", JACKAL_ERR_CONFIG, {"JACKAL_RANK is 1", "0 to 0"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=abc", JACKAL_ERR_CONFIG, {"JACKAL_RANK", "abc", "whole number"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=-1", JACKAL_ERR_CONFIG, {"JACKAL_RANK", "-1", "from 0"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=0x1", JACKAL_ERR_CONFIG, {"JACKAL_RANK", "0x1"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=99999999999999999999", JACKAL_ERR_CONFIG, {"JACKAL_RANK"}},
    {"JACKAL_SIZE=0 JACKAL_RANK=0", JACKAL_ERR_CONFIG, {"JACKAL_SIZE", "\"0\"", "from 1"}},
    {"JACKAL_SIZE=two", JACKAL_ERR_CONFIG, {"JACKAL_SIZE", "two"}},
    /* The alias that was read is the one that is named, by precedence. */
    {"JACKAL_SIZE=2 MLX_RANK=9", JACKAL_ERR_CONFIG, {"MLX_RANK is 9"}},
    {"JACKAL_SIZE=2 MLX_RANK=0 JACCL_RANK=5", JACKAL_ERR_CONFIG, {"JACCL_RANK is 5"}},
    {"JACKAL_SIZE=2 MLX_RANK=0 JACCL_RANK=1 JACKAL_RANK=7",
     JACKAL_ERR_CONFIG,
     {"JACKAL_RANK is 7"}},
    {"JACKAL_SIZE=2 JACKAL_RANK= MLX_RANK=8", JACKAL_ERR_CONFIG, {"MLX_RANK is 8"}},
    {"JACKAL_SIZE=2 MLX_RANK=zero", JACKAL_ERR_CONFIG, {"MLX_RANK", "zero"}},
    {"JACKAL_RANK=0 JACKAL_DEVICES=[[null,\"a\"],[\"b\"null]]",
     JACKAL_ERR_CONFIG,
     {"device matrix", "line 1, column"}},
    {"JACKAL_RANK=0 JACKAL_DEVICES=[[null,\"a\"],[\"b\"]]", JACKAL_ERR_CONFIG, {"[1]", "2 cells"}},
    {"JACKAL_RANK=0 JACKAL_DEVICES=[[null,7],[\"b\",null]]", JACKAL_ERR_CONFIG, {"[0][1]"}},
    {"JACKAL_RANK=0 JACKAL_DEVICES=/no/such/matrix.json",
     JACKAL_ERR_CONFIG,
     {"/no/such/matrix.json", "No such file"}},
    {"JACKAL_SIZE=9 JACKAL_RANK=0 JACKAL_COORDINATOR=127.0.0.1:1 JACKAL_DEVICES=" MATRIX,
     JACKAL_ERR_LIMIT,
     {"at most 8 ranks", "9"}},
    {"MLX_HOSTFILE=/tmp/hosts.json", JACKAL_ERR_UNSUPPORTED, {"MLX_HOSTFILE"}},
    {"JACKAL_STRICT=0 MLX_HOSTFILE=/tmp/hosts.json", JACKAL_ERR_UNSUPPORTED, {"MLX_HOSTFILE"}},
    {"JACKAL_STRICT=0 JACKAL_CHECKSUM=perhaps", JACKAL_ERR_CONFIG, {"JACKAL_CHECKSUM", "perhaps"}},
    {"JACKAL_STRICT=0 JACKAL_ALGORITHM=magic",
     JACKAL_ERR_CONFIG,
     {"JACKAL_ALGORITHM", "magic", "auto|direct|mesh"}},
    {"JACKAL_STRICT=0 JACKAL_BACKEND=pigeon", JACKAL_ERR_CONFIG, {"JACKAL_BACKEND", "pigeon"}},
    {"JACKAL_STRICT=0 JACKAL_SLOT_FRAMES=3", JACKAL_ERR_CONFIG, {"JACKAL_SLOT_FRAMES", "4 to 128"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=0 JACKAL_COORDINATOR=nowhere JACKAL_DEVICES=" MATRIX,
     JACKAL_ERR_CONFIG,
     {"nowhere"}},
    {"JACKAL_SIZE=2 JACKAL_RANK=1 JACKAL_COORDINATOR=::1:5000 JACKAL_DEVICES=" MATRIX,
     JACKAL_ERR_CONFIG,
     {"::1:5000", "["}},
    {"JACKAL_SIZE=2 JACKAL_RANK=1 JACKAL_COORDINATOR=127.0.0.1:70000 JACKAL_DEVICES=" MATRIX,
     JACKAL_ERR_CONFIG,
     {"70000"}},
};

static void set_environment(const char *list) {
    char *copy = strdup(list), *rest = copy;
    for (char *item = strtok_r(copy, " ", &rest); item != NULL; item = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(item, '=');
        *equals = '\0';
        setenv(item, equals + 1, 1);
    }
    free(copy);
}

static int run_wrong(int rank, int size, jackal_config *config, void *argument) {
    const struct wrong *wrong = argument;
    (void)rank;
    (void)size;
    ranks_at("%s", wrong->environment);
    set_environment(wrong->environment);
    jackal_group *group = (jackal_group *)config;
    double start_s = ranks_now_s();
    jackal_status status = jackal_init(config, &group);
    if (status != wrong->status)
        ranks_failed(__FILE__, __LINE__, "%s, want %s: %s", jackal_status_name(status),
                     jackal_status_name(wrong->status), jackal_config_error(config));
    RANKS_CHECK(group == NULL);
    RANKS_CHECK(ranks_now_s() - start_s < 2.0 * RANKS_SLOW);
    for (int i = 0; i < 3 && wrong->parts[i] != NULL; i++)
        RANKS_HAS(jackal_config_error(config), wrong->parts[i]);
    /* One line, and the same without a config. */
    RANKS_CHECK(strchr(jackal_config_error(config), '\n') == NULL);
    RANKS_EQUAL(jackal_init(NULL, &group), wrong->status);
    RANKS_CHECK(strcmp(jackal_config_error(NULL), jackal_config_error(config)) == 0);
    return 0;
}

static void wrong_environments_are_explained(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct wrong copy = wrongs[i];
        struct ranks_job job = {.size = 1, .run = run_wrong, .argument = &copy, .bare = true};
        if (ranks_run(&job) != 0)
            fail_msg("environment: %s", wrongs[i].environment);
    }
}

/* Each has its own text, so that a reader knows which one it is. */
static int run_texts(int rank, int size, jackal_config *config, void *argument) {
    static const char *const names[] = {"JACKAL_RANK=1", "JACKAL_SIZE=2",
                                        "JACKAL_COORDINATOR=127.0.0.1:1",
                                        ("JACKAL_DEVICES=" MATRIX)};
    char texts[4][700];
    jackal_group *group;
    (void)rank;
    (void)size;
    (void)argument;
    (void)config;
    /* What is missing comes one after the other; a device matrix stands in for the size. */
    for (int i = 0; i < 4; i++) {
        static const int order[] = {2, 1, 0, 3};
        jackal_config *fresh = jackal_config_new();
        RANKS_EQUAL(jackal_init(fresh, &group), JACKAL_ERR_CONFIG);
        snprintf(texts[i], sizeof texts[i], "%s", jackal_config_error(fresh));
        for (int k = 0; k < i; k++)
            RANKS_CHECK(strcmp(texts[i], texts[k]) != 0);
        set_environment(names[order[i]]);
        jackal_config_free(fresh);
    }
    return 0;
}

static void every_missing_variable_has_its_text(void **state) {
    (void)state;
    struct ranks_job job = {.size = 1, .run = run_texts, .bare = true};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- groups of one (D10) ----------------------------------------------------------------------
 */

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

static void use_alone(jackal_group *group) {
    int32_t in[3] = {1, -2, 3}, out[3] = {0, 0, 0};
    uint8_t truth = 7, answer = 0;
    RANKS_EQUAL(jackal_size(group), 1);
    RANKS_EQUAL(jackal_rank(group), 0);
    RANKS_HAS(jackal_backend(group), "one");
    RANKS_OK(group, jackal_all_sum(group, in, out, 3, JACKAL_INT32));
    RANKS_CHECK(memcmp(in, out, sizeof in) == 0);
    RANKS_OK(group, jackal_all_sum(group, &truth, &answer, 1, JACKAL_BOOL));
    RANKS_EQUAL(answer, 1); /* canonical, as among many */
    memset(out, 0, sizeof out);
    RANKS_OK(group, jackal_all_gather(group, in, out, 3, JACKAL_INT32));
    RANKS_CHECK(memcmp(in, out, sizeof in) == 0);
    memset(out, 0, sizeof out);
    RANKS_OK(group, jackal_sum_scatter(group, in, out, 3, JACKAL_INT32));
    RANKS_CHECK(memcmp(in, out, sizeof in) == 0);
    RANKS_OK(group, jackal_all_max(group, in, in, 3, JACKAL_INT32));
    RANKS_OK(group, jackal_all_min(group, in, in, 3, JACKAL_INT32));
    RANKS_CHECK(memcmp(in, out, sizeof in) == 0);
    RANKS_OK(group, jackal_broadcast(group, in, 3, JACKAL_INT32, 0));
    RANKS_OK(group, jackal_barrier(group));
    RANKS_STATUS(group, jackal_send(group, in, 1, 0), JACKAL_ERR_ARGUMENT);
    RANKS_STATUS(group, jackal_recv(group, in, 1, 0), JACKAL_ERR_ARGUMENT);
    RANKS_EQUAL(jackal_group_state(group), JACKAL_OK);
}

static int run_alone(int rank, int size, jackal_config *config, void *argument) {
    (void)rank;
    (void)size;
    set_environment(argument);
    /* A verbs library that is not there does not matter, and no socket is opened. */
    setenv("JACKAL_VERBS", "/no/such/library", 1);
    int n = n_descriptors();
    jackal_group *group = ranks_init(config);
    RANKS_EQUAL(n_descriptors(), n);
    use_alone(group);
    char *text = NULL;
    RANKS_OK(group, jackal_group_stats(group, &text));
    RANKS_HAS(text, "\"size\": 1");
    jackal_free_text(text);
    jackal_group_free(group);
    RANKS_EQUAL(n_descriptors(), n);
    return 0;
}

static void one_rank_needs_nothing(void **state) {
    static const char *const ways[] = {"JACKAL_STRICT=0", "JACKAL_SIZE=1",
                                       "JACKAL_SIZE=1 JACKAL_RANK=0"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char way[64];
        snprintf(way, sizeof way, "%s", ways[i]);
        struct ranks_job job = {.size = 1, .run = run_alone, .argument = way, .bare = true};
        assert_int_equal(ranks_run(&job), 0);
    }
}

/* ---- without a network (G10) ------------------------------------------------------------------
 */

static int run_pair(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    int32_t value = rank + 1;
    jackal_group *group = ranks_init(config);
    RANKS_OK(group, jackal_all_sum(group, &value, &value, 1, JACKAL_INT32));
    RANKS_EQUAL(value, size * (size + 1) / 2);
    jackal_group_free(group);
    return 0;
}

enum { NO_NAMESPACE = 2 };

/* In a process of its own: a network that has `lo` only, and that only if asked for. */
static int be_offline(bool with_lo) {
#ifdef __linux__
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return NO_NAMESPACE;
    struct ifreq request = {.ifr_name = "lo"};
    request.ifr_flags = IFF_UP;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (with_lo && (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0))
        return NO_NAMESPACE;
    if (fd >= 0)
        close(fd);
    return 0;
#else
    (void)with_lo;
    return NO_NAMESPACE;
#endif
}

static int offline_job(bool with_lo) {
    char way[] = "JACKAL_SIZE=1";
    int offline = be_offline(with_lo);
    if (offline != 0)
        return offline;
    if (with_lo) {
        struct ranks_job pair = {.size = 2, .run = run_pair};
        return ranks_run(&pair);
    }
    struct ranks_job alone = {.size = 1, .run = run_alone, .argument = way, .bare = true};
    return ranks_run(&alone);
}

static void check_offline(bool with_lo) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(offline_job(with_lo));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE) {
        printf("skipped: this user may not make a network namespace\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void one_rank_works_without_any_interface(void **state) {
    (void)state;
    check_offline(false);
}

static void ranks_of_one_machine_need_only_lo(void **state) {
    (void)state;
    check_offline(true);
}

/* ---- where settings come from -----------------------------------------------------------------
 */

static int run_explicit(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    char number[16];
    /* The environment is wrong; what was set explicitly beats it, also what does not parse. */
    setenv("JACKAL_RANK", "nonsense", 1);
    setenv("JACKAL_SIZE", "5", 1);
    snprintf(number, sizeof number, "%d", rank);
    RANKS_EQUAL(jackal_config_set(config, "rank", number), JACKAL_OK);
    RANKS_EQUAL(jackal_config_set(config, "size", "2"), JACKAL_OK);
    return run_pair(rank, size, config, NULL);
}

/* Names of MLX, and no size: it follows from the matrix. */
static int run_aliases(int rank, int size, jackal_config *config, void *argument) {
    static const char *const names[][2] = {{"JACKAL_RANK", "MLX_RANK"},
                                           {"JACKAL_DEVICES", "MLX_IBV_DEVICES"},
                                           {"JACKAL_COORDINATOR", "MLX_JACCL_COORDINATOR"}};
    (void)argument;
    for (int i = 0; i < 3; i++) {
        setenv(names[i][1], getenv(names[i][0]), 1);
        unsetenv(names[i][0]);
    }
    unsetenv("JACKAL_SIZE");
    return run_pair(rank, size, config, NULL);
}

/* A snapshot that was taken holds. */
static int run_snapshot(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    RANKS_EQUAL(jackal_config_from_env(config), JACKAL_OK);
    setenv("JACKAL_RANK", "77", 1);
    unsetenv("JACKAL_DEVICES");
    return run_pair(rank, size, config, NULL);
}

static void settings_come_from_where_they_should(void **state) {
    (void)state;
    ranks_function functions[] = {run_explicit, run_aliases, run_snapshot};
    for (int i = 0; i < 3; i++) {
        struct ranks_job job = {.size = 2, .run = functions[i]};
        assert_int_equal(ranks_run(&job), 0);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], "threads of a process share one environment");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_environments_are_explained),
        cmocka_unit_test(every_missing_variable_has_its_text),
        cmocka_unit_test(one_rank_needs_nothing),
        cmocka_unit_test(one_rank_works_without_any_interface),
        cmocka_unit_test(ranks_of_one_machine_need_only_lo),
        cmocka_unit_test(settings_come_from_where_they_should),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
