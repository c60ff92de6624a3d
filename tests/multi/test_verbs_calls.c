/* SPDX-License-Identifier: MIT */
/*
 * C3: every verbs call of ours may fail, at any time. Two ranks make a group, use it, free it; call
 * number k of one of them fails, for every k until there is no such call. No crash, an error with a
 * text on that rank, an error on the other, nothing left, and afterwards a good group in the same
 * processes. Prints over how many calls that ran.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "providers.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 2, COUNT = 20000 };
enum phase { BEFORE, INIT, USE, LAST, FREE, AFTER };

/* In the memory of the ranks. */
struct outcome {
    struct failing_orders orders;
    _Atomic int phase;   /* where the rank is */
    int phase_of_strike; /* where it was when the call failed */
    jackal_status init, use;
    char text[512];
    int n_left[FAILING_OBJECTS]; /* after the group was freed */
};

struct trial {
    enum personality personality;
    int victim;
    enum failing_family family;
    uint64_t at;
};

static struct outcome *outcome_of(int rank) {
    return (struct outcome *)ranks_memory() + rank;
}

static void enter(struct outcome *outcome, enum phase phase) {
    if (atomic_load(&outcome->orders.has_struck) && outcome->phase_of_strike == BEFORE)
        outcome->phase_of_strike = atomic_load(&outcome->phase);
    atomic_store(&outcome->phase, phase);
}

/* A receive that is given back after the last message may fail when the other has all it wants:
 * that one learns of it from its next call. */
static void use_group(jackal_group *group, struct outcome *outcome, int rank) {
    enter(outcome, USE);
    for (int round = 0; round < 3 && outcome->use == JACKAL_OK; round++)
        outcome->use = providers_round(group, rank, SIZE, COUNT, round);
    ranks_meet(1, SIZE);
    enter(outcome, LAST);
    if (outcome->use == JACKAL_OK)
        outcome->use = jackal_barrier(group);
    if (outcome->use != JACKAL_OK)
        snprintf(outcome->text, sizeof outcome->text, "%s", jackal_error_message(group));
}

static int rank_of_trial(int rank, int size, jackal_config *config, void *argument) {
    const struct trial *trial = argument;
    struct outcome *outcome = outcome_of(rank);
    jackal_group *group = NULL;
    outcome->orders.family = (int)trial->family;
    outcome->orders.at = trial->victim == rank ? trial->at : UINT64_MAX;
    providers_order(&outcome->orders);
    ranks_at("%s: call %llu of family %d on rank %d", personality_names[trial->personality],
             (unsigned long long)trial->at, (int)trial->family, trial->victim);
    enter(outcome, INIT);
    outcome->init = jackal_init(config, &group);
    if (outcome->init == JACKAL_OK) {
        use_group(group, outcome, rank);
    } else {
        snprintf(outcome->text, sizeof outcome->text, "%s", jackal_config_error(config));
        ranks_meet(1, SIZE);
    }
    enter(outcome, FREE);
    jackal_group_free(group);
    enter(outcome, AFTER);
    for (int i = 0; i < FAILING_OBJECTS; i++)
        outcome->n_left[i] = atomic_load(&outcome->orders.n_live[i]);
    outcome->orders.at = UINT64_MAX; /* from here on all goes well */
    ranks_meet(0, size);
    ranks_meeting(config, rank, 1);
    RANKS_EQUAL(jackal_init(config, &group), JACKAL_OK);
    RANKS_OK(group, providers_round(group, rank, size, 1000, 9));
    jackal_group_free(group);
    return 0;
}

/* A provider that leaks per boot keeps a device's context, domain and region for the process. */
static void check_left(const struct trial *trial, const struct outcome *outcome) {
    int kept = trial->personality == THUNDERBOLT ? 1 : 0;
    assert_true(outcome->n_left[FAILING_CONTEXT] <= kept);
    assert_true(outcome->n_left[FAILING_PD] <= kept);
    assert_true(outcome->n_left[FAILING_MR] <= kept);
    assert_int_equal(outcome->n_left[FAILING_CQ], 0);
    assert_int_equal(outcome->n_left[FAILING_QP], 0);
}

static bool is_good(const struct outcome *outcome) {
    return outcome->init == JACKAL_OK && outcome->use == JACKAL_OK;
}

/* What may go wrong without harm: an unused entry of a table, and anything after the last use. */
static bool may_be_overlooked(const struct outcome *victim) {
    return victim->phase_of_strike >= FREE || strcmp(victim->orders.struck, "ibv_query_gid") == 0;
}

/* The text says which device it was and what of it failed. */
static bool names_what_failed(const struct outcome *victim) {
    static const struct {
        const char *call, *word;
    } words[] = {
        {"ibv_get_device_list", "lists no RDMA devices"},
        {"ibv_open_device", "does not open"},
        {"ibv_query_device", "attributes"},
        {"ibv_alloc_pd", "protection domain"},
        {"ibv_query_port", "port 1"},
        {"ibv_query_gid", "GID"},
        {"ibv_create_cq", "completion queue"},
        {"ibv_reg_mr", "register"},
        {"ibv_create_qp", "queue pair"},
        {"ibv_query_qp", "depth"},
        {"ibv_modify_qp", "does not go to"},
        {"ibv_post_send", "refused a send"},
        {"ibv_post_recv", "refused a receive"},
        {"ibv_poll_cq", "completion queue"},
    };
    if (strstr(victim->text, "rdma_en2") == NULL && strstr(victim->text, "rocep1") == NULL)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].call, victim->orders.struck) == 0)
            return strstr(victim->text, words[i].word) != NULL;
    return false;
}

static void check_outcome(const struct trial *trial) {
    const struct outcome *victim = outcome_of(trial->victim);
    const struct outcome *other = outcome_of(1 - trial->victim);
    check_left(trial, victim);
    check_left(trial, other);
    if (may_be_overlooked(victim) && is_good(victim) && is_good(other))
        return;
    /* The other may have had all it wanted of the last call. */
    bool other_is_told =
        is_good(other) ? victim->phase_of_strike == LAST : strlen(other->text) > 20;
    if (is_good(victim) || !names_what_failed(victim) || !other_is_told)
        fail_msg("%s, call %llu of family %d, %s on rank %d in phase %d:\nit: %d/%d \"%s\"\n"
                 "the other: %d/%d \"%s\"",
                 personality_names[trial->personality], (unsigned long long)trial->at,
                 (int)trial->family, victim->orders.struck, trial->victim, victim->phase_of_strike,
                 (int)victim->init, (int)victim->use, victim->text, (int)other->init,
                 (int)other->use, other->text);
}

/* Whether the call was there to fail. */
static bool try_one(struct trial *trial) {
    char settings[80];
    struct ranks_job job = {.size = SIZE,
                            .run = rank_of_trial,
                            .argument = trial,
                            .verbs = FAILING_VERBS,
                            .settings = settings};
    snprintf(settings, sizeof settings, "init_timeout_ms=%d;progress_timeout_ms=4000",
             2000 * RANKS_SLOW);
    job.fabric = providers_fabric(trial->personality, SIZE, 1, "");
    job.devices = providers_matrix(trial->personality, SIZE, 1);
    assert_int_equal(ranks_run(&job), 0);
    if (!atomic_load(&outcome_of(trial->victim)->orders.has_struck))
        return false;
    check_outcome(trial);
    return true;
}

/* All of them with JACKAL_SOAK; else some of those that are alike: posts, polls, and looks into a
 * GID table. */
static uint64_t next_at(enum failing_family family, uint64_t at, const char *struck) {
    if (getenv("JACKAL_SOAK") != NULL)
        return at + 1;
    if (family == FAILING_SETUP)
        return strcmp(struck, "ibv_query_gid") == 0 ? at + 3 : at + 1;
    return 3 * at + 2;
}

static void fail_each(enum failing_family family, uint64_t limit) {
    unsigned n_tried = 0;
    for (int personality = 0; personality < PERSONALITIES; personality++) {
        for (int victim = 0; victim < SIZE; victim++) {
            struct trial trial = {(enum personality)personality, victim, family, 0};
            while (trial.at < limit && try_one(&trial)) {
                n_tried++;
                trial.at = next_at(family, trial.at, outcome_of(victim)->orders.struck);
            }
        }
    }
    print_message("%u calls failed one at a time\n", n_tried);
    assert_true(n_tried >= 8);
}

static void c3_each_setup_call_fails(void **state) {
    (void)state;
    fail_each(FAILING_SETUP, UINT64_MAX);
}

static void c3_posting_a_send_fails(void **state) {
    (void)state;
    fail_each(FAILING_SEND, UINT64_MAX);
}

static void c3_posting_a_receive_fails(void **state) {
    (void)state;
    fail_each(FAILING_RECV, UINT64_MAX);
}

/* How many polls there are depends on time; the last ones are not there in every run. */
static void c3_polling_fails(void **state) {
    (void)state;
    fail_each(FAILING_POLL, 100);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], "each rank's provider has orders of its own");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c3_each_setup_call_fails),
        cmocka_unit_test(c3_posting_a_send_fails),
        cmocka_unit_test(c3_posting_a_receive_fails),
        cmocka_unit_test(c3_polling_fails),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
