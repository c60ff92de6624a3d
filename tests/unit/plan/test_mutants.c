/* SPDX-License-Identifier: MIT */
/*
 * Damaged plans of every row. The checker must reject a mutant unless it is as good as the plan it
 * was made from; whether it is, the oracle says. The converse is only counted: the checker asks
 * for waits also where a message's round trip would do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mutate.h"
#include "oracle.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20250117, MUTANTS = 600, RUNS_IF_ACCEPTED = 40, RUNS_IF_REJECTED = 6, MAX_SIZE = 6 };

struct tally {
    unsigned n_rejected, n_equivalent, n_unexplained;
};

/* A random case of a row that plan_check() accepts. */
static struct plan_check_case any_case(const struct plan_row *row, uint64_t *random) {
    static const uint32_t element_sizes[] = {1, 4, 8};
    struct plan_check_case given = {.credits = 1, .canonical = row->canonical};
    struct plan_request *request = &given.request;
    request->operation = row->operation;
    request->size =
        row->min_size + (int)support_below(random, (uint64_t)(MAX_SIZE - row->min_size + 1));
    request->wires = 1 + (int)support_below(random, 3);
    request->element_bytes = element_sizes[support_below(random, 3)];
    request->limits = support_tiny_limits(request->element_bytes, true);
    request->rank = (int)support_below(random, (uint64_t)request->size);
    request->root = (int)support_below(random, (uint64_t)request->size);
    if (request->root == request->rank)
        request->root = (request->rank + 1) % request->size;
    uint64_t lanes = (uint64_t)(request->size * request->wires);
    request->count = support_below(random, 8) == 0 ? 0 : 1 + support_below(random, 5 * lanes);
    return given;
}

static bool is_accepted(struct plan_check_case given, struct plan *const *plans,
                        struct base_error *error) {
    for (int in_place = 0; in_place < 2; in_place++) {
        given.in_place = in_place == 1;
        if (plan_check(&given, (const struct plan *const *)plans, error) != JACKAL_OK)
            return false;
    }
    return true;
}

static const char *first_fault(struct plan_request request, struct plan *const *plans, int n_runs,
                               uint64_t *random) {
    if (request.operation == PLAN_RECV) { /* the oracle takes the view of the sender */
        int rank = request.rank;
        request.operation = PLAN_SEND;
        request.rank = request.root;
        request.root = rank;
    }
    for (int i = 0; i < n_runs; i++) {
        const char *fault = oracle_run(&request, plans, i % 2 == 0, random);
        if (fault != NULL)
            return fault;
    }
    return NULL;
}

static int any_rank(const struct plan_request *request, uint64_t *random) {
    if (request->operation == PLAN_SEND || request->operation == PLAN_RECV)
        return (support_random(random) & 1) != 0 ? request->rank : request->root;
    return (int)support_below(random, (uint64_t)request->size);
}

/* Makes one mutant and judges it; false if none came of it. */
static bool try_mutant(const struct plan_row *row, uint64_t *random, struct tally *tally) {
    struct plan_check_case given = any_case(row, random);
    const struct plan_request *request = &given.request;
    struct plan **plans = support_plans_new(request->size, request->wires);
    struct base_error error;
    assert_int_equal(plan_check_build(row, request, plans, &error), JACKAL_OK);
    int rank = any_rank(request, random);
    const char *what = mutate(plans[rank], request, random);
    if (what != NULL && is_accepted(given, plans, &error)) {
        const char *fault = first_fault(*request, plans, RUNS_IF_ACCEPTED, random);
        if (fault != NULL)
            fail_msg("accepted, but wrong (%s), seed %d: %s %s, %d ranks, %d wires, root %d, count "
                     "%llu of %u bytes, rank %d: %s",
                     fault, SEED, plan_operation_name(row->operation), row->algorithm,
                     request->size, request->wires, request->root,
                     (unsigned long long)request->count, request->element_bytes, rank, what);
        tally->n_equivalent++;
    } else if (what != NULL) {
        assert_int_equal(error.status, JACKAL_ERR_ARGUMENT);
        tally->n_rejected++;
        if (first_fault(*request, plans, RUNS_IF_REJECTED, random) == NULL)
            tally->n_unexplained++;
        if (getenv("JACKAL_TEST_VERBOSE") != NULL)
            printf("%s: %s\n", what, error.text);
    }
    support_plans_free(plans, request->size);
    return what != NULL;
}

static void test_mutants_of_row(void **state) {
    const struct plan_row *row = *state;
    uint64_t random = SEED + (uint64_t)(row - plan_rows);
    unsigned n_wanted = (MUTANTS * support_scale() + 99) / 100;
    struct tally tally = {0, 0, 0};
    for (unsigned n = 0; n < n_wanted;)
        n += try_mutant(row, &random, &tally);
    printf("%s %s, seed %d: %u mutants, %u rejected (%u of them without a bad run of %d), "
           "%u accepted and equivalent\n",
           plan_operation_name(row->operation), row->algorithm, SEED, n_wanted, tally.n_rejected,
           tally.n_unexplained, RUNS_IF_REJECTED, tally.n_equivalent);
    assert_true(tally.n_rejected > n_wanted / 2);
    assert_true(tally.n_rejected - tally.n_unexplained > n_wanted / 2);
}

/* The oracle itself must be content with what the rows build. */
static void test_oracle_accepts_rows(void **state) {
    (void)state;
    uint64_t random = SEED;
    for (size_t i = 0; i < plan_n_rows; i++)
        for (unsigned n = 0; n < (100 * support_scale() + 99) / 100; n++) {
            struct plan_check_case given = any_case(&plan_rows[i], &random);
            struct plan **plans = support_plans_new(given.request.size, given.request.wires);
            struct base_error error;
            assert_int_equal(plan_check_build(&plan_rows[i], &given.request, plans, &error),
                             JACKAL_OK);
            const char *fault = first_fault(given.request, plans, 10, &random);
            if (fault != NULL)
                fail_msg("row %zu: %s", i, fault);
            support_plans_free(plans, given.request.size);
        }
}

int main(void) {
    struct CMUnitTest *tests = calloc(plan_n_rows + 1, sizeof *tests);
    char(*names)[64] = calloc(plan_n_rows, sizeof *names);
    if (tests == NULL || names == NULL)
        return EXIT_FAILURE;
    tests[0] = (struct CMUnitTest)cmocka_unit_test(test_oracle_accepts_rows);
    for (size_t i = 0; i < plan_n_rows; i++) {
        snprintf(names[i], sizeof names[i], "mutants of row %zu: %s %s", i,
                 plan_operation_name(plan_rows[i].operation), plan_rows[i].algorithm);
        tests[i + 1] = (struct CMUnitTest){.name = names[i],
                                           .test_func = test_mutants_of_row,
                                           .initial_state = (void *)(uintptr_t)&plan_rows[i]};
    }
    int n_failed = _cmocka_run_group_tests("plan mutants", tests, plan_n_rows + 1, NULL, NULL);
    free(tests);
    free(names);
    return n_failed;
}
