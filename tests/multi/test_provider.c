/* SPDX-License-Identifier: MIT */
/*
 * What Jackal asks of a verbs library, seen by a library in between (C3, C9, C11, C12, C13, C19,
 * C20).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"
#include "watcher.h"

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The one that jackal_init() will load: a library is in a process once. */
static struct watcher *watcher(void) {
    void *library = dlopen(WATCHER, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        ranks_failed(__FILE__, __LINE__, "%s", dlerror());
    struct watcher *state = dlsym(library, WATCHER_SYMBOL);
    RANKS_CHECK(state != NULL);
    return state;
}

/* ---- what is asked for ------------------------------------------------------------------------
 */

/* All kinds of messages, long ones first: what they leave in the slots must not leak (C20). */
static void talk(jackal_group *group, int rank, int size) {
    enum { BYTES = 400000 };
    uint8_t *in = malloc(BYTES), *out = malloc((size_t)BYTES * (size_t)size);
    RANKS_CHECK(in != NULL && out != NULL);
    memset(in, 0xca, BYTES);
    for (uint64_t n = BYTES; n > 0; n = n * 2 / 3) {
        RANKS_OK(group, jackal_all_gather(group, in, out, n, JACKAL_UINT8));
        RANKS_OK(group, jackal_all_max(group, in, out, n, JACKAL_UINT8));
        RANKS_EQUAL(out[n - 1], 0xca);
        RANKS_OK(group, jackal_sendrecv(group, in, n, (rank + 1) % size, out, n,
                                        (rank + size - 1) % size));
        RANKS_OK(group, jackal_broadcast(group, in, n, JACKAL_UINT8, (int)(n % 2)));
        RANKS_OK(group, jackal_barrier(group));
    }
    free(in);
    free(out);
}

static void check_rules(const struct watcher *seen, int n_qps) {
    RANKS_EQUAL(atomic_load(&seen->n_qps), n_qps);
    RANKS_EQUAL(atomic_load(&seen->n_not_uc), 0);
    RANKS_EQUAL(atomic_load(&seen->n_wrong_sge), 0);
    RANKS_EQUAL(atomic_load(&seen->n_inline), 0);
    RANKS_EQUAL(atomic_load(&seen->n_srq), 0);
    RANKS_EQUAL(atomic_load(&seen->n_dirty), 0);
    RANKS_CHECK(atomic_load(&seen->n_sends) > 100);
    RANKS_CHECK(atomic_load(&seen->n_recvs) > atomic_load(&seen->n_sends) / 2);
    RANKS_EQUAL(atomic_load(&seen->n_not_send), 0);
    RANKS_EQUAL(atomic_load(&seen->n_not_signalled), 0);
    RANKS_EQUAL(atomic_load(&seen->n_wrong_length), 0);
    RANKS_CHECK(atomic_load(&seen->n_padded) > 50); /* or the next line proves nothing */
    RANKS_EQUAL(atomic_load(&seen->n_leaks), 0);
    RANKS_EQUAL(atomic_load(&seen->max_open_of_a_device), 1);
    RANKS_CHECK(atomic_load(&seen->max_regions_of_a_device) >= 1);
    RANKS_CHECK(atomic_load(&seen->max_regions_of_a_device) <= 4);
}

static int run_rules(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    struct watcher *seen = watcher();
    jackal_group *group = ranks_init(config);
    talk(group, rank, size);
    ranks_meet(0, size);
    /* Two queue pairs a wire: of this rank, or of all of them in one process. */
    int ranks_here = ranks_are_threads() ? size : 1;
    check_rules(seen, 2 * 2 * (size - 1) * ranks_here);
    ranks_meet(1, size);
    jackal_group_free(group);
    ranks_meet(2, size);
    RANKS_EQUAL(atomic_load(&seen->qps), 0);
    RANKS_EQUAL(atomic_load(&seen->cqs), 0);
    ranks_meet(3, size);
    return 0;
}

static void only_what_every_provider_has_is_asked_for(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .wires = 2, .run = run_rules, .verbs = WATCHER};
    assert_int_equal(ranks_run(&job), 0);
}

/* The regions stay for the next group; it makes no more of them (C9, C10). */
static int run_regions(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    struct watcher *seen = watcher();
    int n_regions = 0;
    for (int i = 0; i < 5; i++) {
        if (i > 0)
            ranks_meeting(config, rank, 0);
        jackal_group *group = ranks_init(config);
        RANKS_OK(group, jackal_barrier(group));
        jackal_group_free(group);
        ranks_meet(2 * i, size);
        if (i == 0)
            n_regions = atomic_load(&seen->mrs);
        RANKS_EQUAL(atomic_load(&seen->mrs), n_regions);
        RANKS_EQUAL(atomic_load(&seen->qps), 0);
        RANKS_EQUAL(atomic_load(&seen->cqs), 0);
        RANKS_EQUAL(atomic_load(&seen->contexts), atomic_load(&seen->pds));
        ranks_meet(2 * i + 1, size);
    }
    return 0;
}

static void regions_are_kept(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_regions, .verbs = WATCHER};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- what is missing --------------------------------------------------------------------------
 */

static int run_lacking(int rank, int size, jackal_config *config, void *argument) {
    jackal_group *group = NULL;
    (void)rank;
    (void)size;
    (void)argument;
    RANKS_EQUAL(jackal_init(config, &group), JACKAL_ERR_NO_DEVICE);
    RANKS_HAS(jackal_config_error(config), "RDMA is not available");
    RANKS_HAS(jackal_config_error(config), "ibv_query_gid");
    RANKS_HAS(jackal_config_error(config), WATCHER_LACKING);
    return 0;
}

static void a_library_without_a_symbol_is_refused(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_lacking, .verbs = WATCHER_LACKING};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- what fails -------------------------------------------------------------------------------
 */

/* In the memory of the job. */
struct outcome {
    jackal_status status[2];
    int has_failed;
    char text[2][700];
};

/* Rank 1's k-th call of its library fails; afterwards a second try works (C3). */
static int run_failing(int rank, int size, jackal_config *config, void *argument) {
    struct outcome *outcome = ranks_memory();
    struct watcher *seen = watcher();
    jackal_group *group = NULL;
    int32_t value = 1;
    if (rank == 1)
        atomic_store(&seen->fail_at, *(int *)argument);
    outcome->status[rank] = jackal_init(config, &group);
    snprintf(outcome->text[rank], sizeof outcome->text[rank], "%s", jackal_config_error(config));
    if (rank == 1)
        outcome->has_failed = atomic_load(&seen->has_failed);
    atomic_store(&seen->fail_at, 0);
    jackal_group_free(group);
    RANKS_EQUAL(atomic_load(&seen->qps), 0);
    RANKS_EQUAL(atomic_load(&seen->cqs), 0);
    RANKS_CHECK(atomic_load(&seen->pds) >= atomic_load(&seen->mrs));
    ranks_meet(0, size);
    ranks_meeting(config, rank, 1);
    group = ranks_init(config);
    RANKS_OK(group, jackal_all_sum(group, &value, &value, 1, JACKAL_INT32));
    RANKS_EQUAL(value, 2);
    jackal_group_free(group);
    return 0;
}

static void every_call_may_fail(void **state) {
    (void)state;
    if (ranks_are_threads()) {
        printf("skipped: the failing library must be rank 1's alone\n");
        skip();
    }
    int k = 1;
    for (; k < 60; k++) {
        int at = k;
        struct ranks_job job = {.size = 2, .run = run_failing, .argument = &at, .verbs = WATCHER};
        if (ranks_run(&job) != 0)
            fail_msg("call %d of the library failed", k);
        const struct outcome *outcome = ranks_memory();
        if (!outcome->has_failed)
            break; /* that was the last one */
        if (outcome->status[1] == JACKAL_OK)
            fail_msg("call %d failed and nobody noticed", k);
        assert_int_equal(outcome->status[0], JACKAL_ERR_REMOTE);
        assert_non_null(strstr(outcome->text[0], outcome->text[1]));
        assert_non_null(strstr(outcome->text[1], "rdma_en2"));
    }
    printf("%d calls failed, one after the other\n", k - 1);
    assert_true(k > 10 && k < 60);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_every_provider_has_is_asked_for),
        cmocka_unit_test(regions_are_kept),
        cmocka_unit_test(a_library_without_a_symbol_is_refused),
        cmocka_unit_test(every_call_may_fail),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
