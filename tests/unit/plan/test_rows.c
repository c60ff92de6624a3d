/* SPDX-License-Identifier: MIT */
/*
 * Every row of the choice table against the checker, over a grid of sizes, wires, counts, element
 * sizes, roots and credits. A row stands in the table because this test passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZE = 8,
    MAX_WIRES = 4,
    MAX_COUNTS = 96,
    FULL_SIZE = 4,
    PART_PERCENT = 15,
    POINT_PERCENT = 5
};

struct grid {
    const struct plan_row *row;
    struct plan **plans;
    uint64_t n_checked, n_skipped;
    uint64_t random;
};

struct counts {
    uint64_t values[MAX_COUNTS];
    size_t n;
};

static void add_count(struct counts *counts, uint64_t value) {
    for (size_t i = 0; i < counts->n; i++)
        if (counts->values[i] == value)
            return;
    assert_true(counts->n < MAX_COUNTS);
    counts->values[counts->n++] = value;
}

static void add_around(struct counts *counts, uint64_t value) {
    add_count(counts, value - 1);
    add_count(counts, value);
    add_count(counts, value + 1);
}

/* Around granules, chunks, wires, and where the longest chunk changes from small to bulk slots. */
static struct counts interesting_counts(const struct plan_request *request) {
    uint64_t n = (uint64_t)request->size, lanes = n * (uint64_t)request->wires;
    struct counts counts = {.values = {0, 2, 3, 13, 61}, .n = 5};
    for (int queue = 0; queue < PLAN_QUEUE_COUNT; queue++) {
        uint64_t granule = request->limits.payload_bytes[queue] / request->element_bytes;
        add_around(&counts, granule);
        add_count(&counts, 2 * granule);
        add_count(&counts, 2 * granule + 1);
    }
    uint64_t small = request->limits.small_max_bytes / request->element_bytes;
    add_around(&counts, n);
    add_count(&counts, 3 * n + 2);
    add_around(&counts, lanes);
    add_around(&counts, small * (uint64_t)request->wires);
    if (small * lanes <= 256)
        add_around(&counts, small * lanes);
    return counts;
}

static bool is_point(const struct plan_row *row) {
    return row->operation == PLAN_SEND || row->operation == PLAN_RECV;
}

/*
 * All of the grid up to FULL_SIZE ranks; above it most cases are alike, and a random part of them
 * (the same on every machine) is enough. So it is for messages between two ranks, which know
 * nothing of the others. JACKAL_TEST_SCALE thins the grid or fills it in.
 */
static bool is_left_out(struct grid *grid, const struct plan_check_case *given) {
    uint64_t percent = given->request.size > (is_point(grid->row) ? 2 : FULL_SIZE)
                           ? is_point(grid->row) ? POINT_PERCENT : PART_PERCENT
                           : 100;
    return support_below(&grid->random, 100 * 100) >= percent * support_scale();
}

static void check_one(struct grid *grid, const struct plan_check_case *given) {
    if (is_left_out(grid, given)) {
        grid->n_skipped++;
        return;
    }
    struct base_error error;
    jackal_status status = plan_check_row(grid->row, given, grid->plans, &error);
    if (status != JACKAL_OK)
        fail_msg("%s", error.text);
    grid->n_checked++;
}

/* Broadcast: every root. Send and receive: every pair. Else one. */
static void check_roots(struct grid *grid, struct plan_check_case *given) {
    int size = given->request.size;
    bool point = is_point(grid->row);
    int n_roots = point || grid->row->operation == PLAN_BROADCAST ? size : 1;
    for (int root = 0; root < n_roots; root++) {
        given->request.root = root;
        given->request.rank = 0;
        for (int rank = 0; rank < (point ? size : 1); rank++) {
            given->request.rank = rank;
            if (!point || rank != root)
                check_one(grid, given);
        }
    }
}

static void check_counts(struct grid *grid, struct plan_check_case *given) {
    static const uint32_t element_sizes[] = {1, 4, 8};
    for (size_t e = 0; e < 3; e++)
        for (int by_elements = 0; by_elements < 2; by_elements++) {
            given->request.element_bytes = element_sizes[e];
            given->request.limits = support_tiny_limits(element_sizes[e], by_elements == 1);
            struct counts counts = interesting_counts(&given->request);
            for (size_t i = 0; i < counts.n; i++) {
                given->request.count = counts.values[i];
                for (given->credits = 1; given->credits <= 2; given->credits++)
                    check_roots(grid, given);
            }
        }
}

/* A row that stands twice, with another limit of bytes, is the same to the checker. */
static bool stands_above(const struct plan_row *row) {
    for (const struct plan_row *above = plan_rows; above < row; above++)
        if (above->operation == row->operation && above->build == row->build &&
            above->min_size <= row->min_size && above->canonical == row->canonical)
            return true;
    return false;
}

static void test_row(void **state) {
    if (stands_above(*state))
        skip();
    struct grid grid = {.row = *state, .random = (uint64_t)((struct plan_row *)*state - plan_rows)};
    for (int size = grid.row->min_size; size <= MAX_SIZE; size++)
        for (int wires = 1; wires <= MAX_WIRES; wires++) {
            struct plan_check_case given = {.request = {.size = size, .wires = wires}};
            grid.plans = support_plans_new(size, wires);
            check_counts(&grid, &given);
            support_plans_free(grid.plans, size);
        }
    printf("%s %s: %llu cases, %llu left out\n", plan_operation_name(grid.row->operation),
           grid.row->algorithm, (unsigned long long)grid.n_checked,
           (unsigned long long)grid.n_skipped);
    assert_true(grid.n_checked > 0);
}

int main(void) {
    struct CMUnitTest *tests = calloc(plan_n_rows, sizeof *tests);
    char(*names)[64] = calloc(plan_n_rows, sizeof *names);
    if (tests == NULL || names == NULL)
        return EXIT_FAILURE;
    for (size_t i = 0; i < plan_n_rows; i++) {
        snprintf(names[i], sizeof names[i], "row %zu: %s %s", i,
                 plan_operation_name(plan_rows[i].operation), plan_rows[i].algorithm);
        tests[i] = (struct CMUnitTest){.name = names[i],
                                       .test_func = test_row,
                                       .initial_state = (void *)(uintptr_t)&plan_rows[i]};
    }
    int n_failed = _cmocka_run_group_tests("plan rows", tests, plan_n_rows, NULL, NULL);
    free(tests);
    free(names);
    return n_failed;
}
