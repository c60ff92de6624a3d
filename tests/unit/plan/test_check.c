/* SPDX-License-Identifier: MIT */
/* The checker on plans made by hand, each with one known fault, and the same without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/algorithms.h"
#include "support.h"

#include <string.h>

enum { SIZE = 3, WIRES = 2 };

struct fixture {
    struct plan *plans[SIZE];
    struct plan_check_case given;
    struct base_error error;
};

static int set_up(void **state) {
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    for (int i = 0; i < SIZE; i++)
        fixture.plans[i] = plan_new(SIZE, WIRES);
    fixture.given = (struct plan_check_case){
        .credits = 1,
        .canonical = true,
        .request = {.size = 2,
                    .wires = WIRES,
                    .element_bytes = 1,
                    .count = 4,
                    .limits = {.payload_bytes = {2, 4}, .small_max_bytes = UINT64_MAX}}};
    *state = &fixture;
    return fixture.plans[SIZE - 1] == NULL;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    for (int i = 0; i < SIZE; i++)
        plan_free(fixture->plans[i]);
    return 0;
}

/* Starts the plan of a rank by hand. */
static struct plan *begin(struct fixture *fixture, int rank) {
    struct plan *plan = fixture->plans[rank];
    plan_reset(plan);
    plan->algorithm = "by hand";
    plan->total_bytes = fixture->given.request.count;
    plan_choose_queue(plan, &fixture->given.request, 0);
    return plan;
}

static jackal_status run(struct fixture *fixture) {
    return plan_check(&fixture->given, (const struct plan *const *)fixture->plans, &fixture->error);
}

static void accepts(struct fixture *fixture) {
    jackal_status status = run(fixture);
    if (status != JACKAL_OK)
        fail_msg("rejected: %s", fixture->error.text);
}

static void rejects(struct fixture *fixture, int rank, const char *reason) {
    assert_int_equal(run(fixture), JACKAL_ERR_ARGUMENT);
    assert_int_equal(fixture->error.peer, rank);
    if (strstr(fixture->error.text, reason) == NULL)
        fail_msg("\"%s\" is not the reason in: %s", reason, fixture->error.text);
}

/* ---- values --------------------------------------------------------------------------------- */

/* 0 → 1 → 2, then the sum back from 2 to the others. Rank 1 adds its input `n_times`. */
static void build_chain(struct fixture *fixture, int n_times) {
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_ALL_REDUCE;
    request->size = 3;
    struct plan *plan = begin(fixture, 0);
    plan_step_begin(plan, 4)->combine = true;
    plan_from(plan, PLAN_IN, 0);
    plan_to_lane(plan, 1, 0);
    struct plan_step *sent = &plan->steps[0];
    plan_step_begin(plan, 4);
    plan_from_lane(plan, 2, 0);
    plan_to_out(plan, 0);
    plan_wait_for(plan, sent, 0);

    plan = begin(fixture, 1);
    struct plan_step *pass = plan_step_begin(plan, 4);
    pass->combine = true;
    plan_from_lane(plan, 0, 0);
    for (int i = 0; i < n_times; i++)
        plan_from(plan, PLAN_IN, 0);
    plan_to_lane(plan, 2, 0);
    plan_step_begin(plan, 4);
    plan_from_lane(plan, 2, 0);
    plan_to_out(plan, 0);
    plan_wait_for(plan, pass, 0);

    plan = begin(fixture, 2);
    plan_step_begin(plan, 4)->combine = true;
    plan_from_lane(plan, 1, 0);
    plan_from(plan, PLAN_IN, 0);
    plan_to_out(plan, 0);
    plan_to_lane(plan, 0, 0);
    plan_to_lane(plan, 1, 0);
}

static void test_grouping_must_be_flat_if_canonical(void **state) {
    struct fixture *fixture = *state;
    build_chain(fixture, 1);
    fixture->given.canonical = false;
    accepts(fixture);
    fixture->given.in_place = true;
    accepts(fixture);
    fixture->given.canonical = true;
    rejects(fixture, 0, "element 0 of out is not the combination of all inputs in one");
}

static void test_contribution_twice_or_missing(void **state) {
    struct fixture *fixture = *state;
    fixture->given.canonical = false;
    for (int n_times = 0; n_times <= 2; n_times += 2) {
        build_chain(fixture, n_times);
        rejects(fixture, 0, "element 0 of out is not the combination of all inputs, each once");
    }
}

/* Everybody's input once, but one of them from another place. */
static void test_contribution_of_another_element(void **state) {
    struct fixture *fixture = *state;
    build_chain(fixture, 1);
    fixture->given.canonical = false;
    fixture->given.request.count = 5;
    for (int rank = 0; rank < 3; rank++)
        fixture->plans[rank]->total_bytes = 5;
    fixture->plans[1]->steps[0].sources[1].at = 1;
    rejects(fixture, 0, "element 0 of out is not the combination of all inputs, each once");
}

static void test_ranks_must_group_alike(void **state) {
    struct fixture *fixture = *state;
    fixture->given.request.operation = PLAN_ALL_REDUCE;
    fixture->given.canonical = false;
    for (int rank = 0; rank < 2; rank++) {
        struct plan *plan = begin(fixture, rank);
        struct plan_step *send = plan_step_begin(plan, 4);
        plan_from(plan, PLAN_IN, 0);
        plan_to_lane(plan, 1 - rank, 0);
        plan_step_begin(plan, 4)->combine = true;
        plan_from(plan, PLAN_IN, 0); /* one's own first: another order on each rank */
        plan_from_lane(plan, 1 - rank, 0);
        plan_to_out(plan, 0);
        plan_wait_for(plan, send, 0);
    }
    rejects(fixture, 1, "grouped otherwise than on rank 0");
}

static void build_row(struct fixture *fixture, enum plan_operation operation) {
    const struct plan_row *row = plan_rows;
    while (row->operation != operation)
        row++;
    fixture->given.request.operation = operation;
    assert_int_equal(
        plan_check_build(row, &fixture->given.request, fixture->plans, &fixture->error), JACKAL_OK);
}

static void test_out_is_not_sent_unwritten(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_GATHER);
    accepts(fixture);
    fixture->plans[1]->steps[0].sources[0].place = PLAN_OUT;
    fixture->plans[1]->steps[0].sources[0].at = 4;
    rejects(fixture, 1, "step 0: reads element 4 of out before anything was written there");
}

static void test_nothing_is_done(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_GATHER);
    for (int rank = 0; rank < 2; rank++)
        fixture->plans[rank]->n_steps = 0;
    rejects(fixture, 0, "element 0 of out is not the input that belongs there (nothing");
}

/* ---- messages ------------------------------------------------------------------------------- */

static void test_message_is_not_the_expected_one(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_REDUCE);
    accepts(fixture);
    fixture->plans[0]->steps[0].message_at++;
    rejects(fixture, 1,
            "step 1: expects phase 0, 2 bytes at 0 of 4; step 0 of rank 0 sent phase 0");
}

static void test_message_is_never_taken(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_BROADCAST);
    accepts(fixture);
    fixture->plans[1]->n_steps--;
    rejects(fixture, 0, "is never taken by rank 1 on wire 1");
}

static void test_same_label_twice(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_SEND;
    request->root = 1;
    for (int second_phase = 1; second_phase >= 0; second_phase--) {
        struct plan *plan = begin(fixture, 0);
        for (int part = 0; part < 2; part++) {
            plan_step_begin(plan, 2);
            plan_label(plan, (uint16_t)(part * second_phase), 0);
            plan_from(plan, PLAN_IN, 2 * (uint64_t)part);
            plan_to_lane(plan, 1, 0);
        }
        plan = begin(fixture, 1);
        for (int part = 0; part < 2; part++) {
            plan_step_begin(plan, 2);
            plan_label(plan, (uint16_t)(part * second_phase), 0);
            plan_from_lane(plan, 0, 0);
            plan_to_out(plan, 2 * (uint64_t)part);
        }
        if (second_phase == 1)
            accepts(fixture);
    }
    rejects(fixture, 0, "have the phase and offsets of those of step 0");
}

static void test_queues_differ(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_REDUCE);
    fixture->plans[1]->queue = PLAN_BULK;
    fixture->plans[1]->granule_bytes = 4;
    rejects(fixture, 1, "queue 1 and 4 bytes in all, but rank 0 has 0 and 4");
}

static void test_same_lane_twice_in_a_step(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_BROADCAST);
    /* Step 0 is where the ranks agree on the root. */
    struct plan *root = fixture->plans[0];
    struct plan_step *send = &root->steps[1];
    struct plan_term terms[2] = {send->destinations[0], send->destinations[0]};
    struct plan_term *only = send->destinations;
    send->destinations = terms;
    send->n_destinations = 2;
    rejects(fixture, 0, "step 1: the same lane twice");
    send->destinations = only;
    send->n_destinations = 1;
    struct plan_step *take = &fixture->plans[1]->steps[1];
    terms[0] = terms[1] = take->sources[0];
    take->sources = terms;
    take->n_sources = 2;
    take->combine = true;
    rejects(fixture, 1, "step 1: the same lane twice");
}

/* ---- ending --------------------------------------------------------------------------------- */

static void test_each_waits_for_the_other(void **state) {
    struct fixture *fixture = *state;
    fixture->given.request.operation = PLAN_ALL_GATHER;
    for (int rank = 0; rank < 2; rank++) {
        struct plan *plan = begin(fixture, rank);
        struct plan_step *take = plan_step_begin(plan, 4);
        plan_from_lane(plan, 1 - rank, 0);
        plan_to_out(plan, 4 * (uint64_t)(1 - rank));
        plan_step_begin(plan, 4);
        plan_from(plan, PLAN_IN, 0);
        plan_to_out(plan, 4 * (uint64_t)rank);
        plan_to_lane(plan, 1 - rank, 0);
        plan_wait_for(plan, take, PLAN_UNTIL_DONE);
    }
    rejects(fixture, 0, "step 0: does not end: after 0 of 2 granules it waits for a message from");
    for (int rank = 0; rank < 2; rank++)
        fixture->plans[rank]->steps[1].n_waits = 0;
    accepts(fixture);
}

/* The sender fills wire 0, then wire 1; the receiver empties them the other way round. */
static void test_credits_run_out(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_SEND;
    request->root = 1;
    request->count = 8;
    struct plan *plan = begin(fixture, 0);
    for (int wire = 0; wire < 2; wire++) {
        plan_step_begin(plan, 4);
        plan_label(plan, 0, 4 * (uint64_t)wire);
        plan_from(plan, PLAN_IN, 4 * (uint64_t)wire);
        plan_to_lane(plan, 1, wire);
    }
    plan_wait_for(plan, &plan->steps[0], PLAN_UNTIL_DONE);
    plan = begin(fixture, 1);
    for (int wire = 1; wire >= 0; wire--) {
        plan_step_begin(plan, 4);
        plan_label(plan, 0, 4 * (uint64_t)wire);
        plan_from_lane(plan, 0, wire);
        plan_to_out(plan, 4 * (uint64_t)wire);
    }
    plan_wait_for(plan, &plan->steps[0], PLAN_UNTIL_DONE);
    rejects(fixture, 0, "step 0: does not end: after 1 of 2 granules it waits for a credit from");
    fixture->given.credits = 2;
    accepts(fixture);
}

/* The later step of the list goes first; that is allowed. A circle is not. */
static void test_waits_in_a_circle(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_ALL_GATHER;
    request->size = 1;
    struct plan *plan = begin(fixture, 0);
    struct plan_step *again = plan_step_begin(plan, 4);
    plan_from(plan, PLAN_OUT, 0);
    plan_to_out(plan, 0);
    plan_wait_for(plan, again + 1, 0);
    plan_step_begin(plan, 4);
    plan_from(plan, PLAN_IN, 0);
    plan_to_out(plan, 0);
    accepts(fixture);
    plan_wait_for(plan, again, 0);
    rejects(fixture, 0, "step 0: waits form a circle");
}

/* ---- races ---------------------------------------------------------------------------------- */

static void test_race_only_in_place(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_REDUCE);
    fixture->plans[0]->steps[1].n_waits = 0;
    accepts(fixture);
    fixture->given.in_place = true;
    rejects(fixture, 0, "writes element 0 of out, which step 0 reads, and no wait says which");
}

/* A step holds back what waits for it only if it has a granule that waits itself. */
static void test_order_over_a_third_step(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_ALL_GATHER;
    request->size = 1;
    struct plan *plan = begin(fixture, 0);
    struct plan_step *write = plan_step_begin(plan, 4);
    plan_from(plan, PLAN_IN, 0);
    plan_to_out(plan, 0);
    struct plan_step *between = plan_step_begin(plan, 0);
    between->always = true;
    plan_from(plan, PLAN_IN, 0);
    plan_wait_for(plan, write, PLAN_UNTIL_DONE);
    plan_step_begin(plan, 4);
    plan_from(plan, PLAN_OUT, 0);
    plan_to_out(plan, 0);
    plan_wait_for(plan, between, PLAN_UNTIL_DONE);
    accepts(fixture);
    between->always = false;
    rejects(fixture, 0, "element 0 of out, which step 0 writes, and no wait says which comes");
    between->always = true;
    plan->steps[2].waits[0].ahead = 0; /* 4 bytes ahead of nothing: still until done */
    accepts(fixture);
    between->waits[0].ahead = 2; /* only the first granule */
    rejects(fixture, 0, "no wait says which comes first");
}

/* Progress: byte b needs what lies `ahead` of it, no more and no less. */
static void test_order_by_progress(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_ALL_GATHER;
    request->size = 1;
    request->count = 8;
    struct plan *plan = begin(fixture, 0);
    struct plan_step *write = plan_step_begin(plan, 8);
    plan_from(plan, PLAN_IN, 0);
    plan_to_out(plan, 0);
    plan_step_begin(plan, 4);
    plan_from(plan, PLAN_OUT, 4);
    plan_wait_for(plan, write, 4);
    accepts(fixture);
    plan->steps[1].waits[0].ahead = 3;
    rejects(fixture, 0, "no wait says which comes first");
}

static void test_range_shifted_on_itself(void **state) {
    struct fixture *fixture = *state;
    struct plan_request *request = &fixture->given.request;
    request->operation = PLAN_ALL_GATHER;
    request->size = 1;
    struct plan *plan = begin(fixture, 0);
    struct plan_step *write = plan_step_begin(plan, 4);
    plan_from(plan, PLAN_IN, 0);
    plan_to_out(plan, 0);
    struct plan_step *move = plan_step_begin(plan, 2);
    plan_from(plan, PLAN_OUT, 0);
    plan_to_out(plan, 0);
    plan_wait_for(plan, write, PLAN_UNTIL_DONE);
    accepts(fixture);
    move->destinations[0].at = 1;
    rejects(fixture, 0, "step 1: writes element 1 of out, which step 1 reads");
}

static void test_lane_without_order(void **state) {
    struct fixture *fixture = *state;
    fixture->given.request.size = 3;
    fixture->given.request.count = 6;
    fixture->given.request.operation = PLAN_ALL_REDUCE;
    const struct plan_row *row = &plan_rows[0];
    while (strcmp(row->algorithm, "mesh") != 0)
        row++;
    assert_int_equal(
        plan_check_build(row, &fixture->given.request, fixture->plans, &fixture->error), JACKAL_OK);
    accepts(fixture);
    for (uint32_t i = 0; i < fixture->plans[2]->n_steps; i++)
        if (fixture->plans[2]->steps[i].n_destinations == 2)
            fixture->plans[2]->steps[i].waits[0] = fixture->plans[2]->steps[i].waits[1];
    rejects(fixture, 2, "uses the send lane of wire 0 and rank 0 without a wait for step 0");
}

/* ---- barrier -------------------------------------------------------------------------------- */

static void build_star_barrier(struct fixture *fixture, bool release_waits) {
    fixture->given.request = (struct plan_request){.operation = PLAN_BARRIER,
                                                   .size = 3,
                                                   .wires = 1,
                                                   .element_bytes = 1,
                                                   .limits = fixture->given.request.limits};
    struct plan *plan = begin(fixture, 0);
    struct plan_step *gather = plan_step_begin(plan, 0);
    gather->always = gather->combine = true;
    plan_from_lane(plan, 1, 0);
    plan_from_lane(plan, 2, 0);
    plan_step_begin(plan, 0)->always = true;
    plan_from(plan, PLAN_IN, 0);
    plan_to_lane(plan, 1, 0);
    plan_to_lane(plan, 2, 0);
    plan_wait_for(plan, gather, release_waits ? PLAN_UNTIL_DONE : 0);
    for (int rank = 1; rank < 3; rank++) {
        plan = begin(fixture, rank);
        plan_step_begin(plan, 0)->always = true;
        plan_from(plan, PLAN_IN, 0);
        plan_to_lane(plan, 0, 0);
        plan_step_begin(plan, 0)->always = true;
        plan_from_lane(plan, 0, 0);
    }
}

static void test_barrier_over_one_rank(void **state) {
    struct fixture *fixture = *state;
    build_star_barrier(fixture, true);
    accepts(fixture);
    build_star_barrier(fixture, false);
    rejects(fixture, 1, "can leave the barrier before rank 2 has come");
}

/* ---- arguments ------------------------------------------------------------------------------ */

static void test_no_case(void **state) {
    struct fixture *fixture = *state;
    build_row(fixture, PLAN_ALL_REDUCE);
    fixture->given.credits = 0;
    assert_int_equal(run(fixture), JACKAL_ERR_ARGUMENT);
    fixture->given.credits = 1;
    fixture->given.request.count = UINT64_C(1) << 40;
    assert_int_equal(run(fixture), JACKAL_ERR_LIMIT);
    plan_free(fixture->plans[1]);
    fixture->plans[1] = NULL;
    assert_int_equal(run(fixture), JACKAL_ERR_ARGUMENT);
    assert_int_equal(fixture->error.peer, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(grouping_must_be_flat_if_canonical),
        TEST(contribution_twice_or_missing),
        TEST(contribution_of_another_element),
        TEST(ranks_must_group_alike),
        TEST(out_is_not_sent_unwritten),
        TEST(nothing_is_done),
        TEST(message_is_not_the_expected_one),
        TEST(message_is_never_taken),
        TEST(same_label_twice),
        TEST(queues_differ),
        TEST(same_lane_twice_in_a_step),
        TEST(each_waits_for_the_other),
        TEST(credits_run_out),
        TEST(waits_in_a_circle),
        TEST(race_only_in_place),
        TEST(order_over_a_third_step),
        TEST(order_by_progress),
        TEST(range_shifted_on_itself),
        TEST(lane_without_order),
        TEST(barrier_over_one_rank),
        TEST(no_case),
    };
    return cmocka_run_group_tests_name("plan check", tests, NULL, NULL);
}
