/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/cache.h"
#include "support.h"

#include <string.h>

static struct plan_request request_of(uint64_t count) {
    return (struct plan_request){.operation = PLAN_ALL_REDUCE,
                                 .rank = 1,
                                 .size = 4,
                                 .wires = 2,
                                 .count = count,
                                 .element_bytes = 4,
                                 .limits = support_tiny_limits(4, true)};
}

static int set_up(void **state) {
    *state = plan_cache_new(4, 2);
    return *state == NULL;
}

static int tear_down(void **state) {
    plan_cache_free(*state);
    return 0;
}

static const struct plan *get(struct plan_cache *cache, const struct plan_request *request) {
    const struct plan *plan = NULL;
    struct base_error error;
    assert_int_equal(plan_cache_get(cache, request, &plan, &error), JACKAL_OK);
    assert_non_null(plan);
    return plan;
}

static const struct plan *get_count(struct plan_cache *cache, uint64_t count) {
    struct plan_request request = request_of(count);
    return get(cache, &request);
}

/* A plan that is built again would lose the mark. */
static void mark(const struct plan *plan) {
    ((struct plan *)(uintptr_t)plan)->algorithm = "marked";
}

static bool is_marked(const struct plan *plan) {
    return strcmp(plan->algorithm, "marked") == 0;
}

static void test_same_arguments_same_plan(void **state) {
    struct plan_cache *cache = *state;
    const struct plan *plan = get_count(cache, 100);
    mark(plan);
    plan_cache_release(cache, plan);
    const struct plan *again = get_count(cache, 100);
    assert_ptr_equal(again, plan);
    assert_true(is_marked(again));
    plan_cache_release(cache, again);
}

static void test_every_argument_counts(void **state) {
    struct plan_cache *cache = *state;
    struct plan_request requests[5];
    for (int i = 0; i < 5; i++)
        requests[i] = request_of(100);
    requests[1].operation = PLAN_BROADCAST;
    requests[2] = requests[1];
    requests[2].root = 1;
    requests[3].element_bytes = 8;
    requests[4].count = 101;
    const struct plan *plans[5];
    for (int i = 0; i < 5; i++) {
        plans[i] = get(cache, &requests[i]);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(plans[i], plans[j]);
    }
    assert_int_equal(plans[3]->total_bytes, 800);
    for (int i = 0; i < 5; i++)
        plan_cache_release(cache, plans[i]);
}

/* More other plans than there are entries pass by. */
static void test_pinned_is_never_given_up(void **state) {
    struct plan_cache *cache = *state;
    const struct plan *pinned = get_count(cache, 7);
    const struct plan *twice = get_count(cache, 7);
    assert_ptr_equal(twice, pinned);
    plan_cache_release(cache, twice);
    mark(pinned);
    for (uint64_t count = 1000; count < 1100; count++) {
        const struct plan *other = get_count(cache, count);
        assert_ptr_not_equal(other, pinned);
        assert_int_equal(other->total_bytes, 4 * count);
        plan_cache_release(cache, other);
    }
    assert_true(is_marked(pinned));
    assert_int_equal(pinned->total_bytes, 28);
    plan_cache_release(cache, pinned);
}

static void test_oldest_is_given_up_first(void **state) {
    struct plan_cache *cache = *state;
    for (uint64_t count = 0; count < 2 * PLAN_CACHE_PINNED; count++) {
        const struct plan *plan = get_count(cache, count);
        mark(plan);
        plan_cache_release(cache, plan);
    }
    plan_cache_release(cache, get_count(cache, 0));    /* used again: 1 is the oldest */
    plan_cache_release(cache, get_count(cache, 1000)); /* takes its place */
    const struct plan *first = get_count(cache, 0);
    assert_true(is_marked(first));
    plan_cache_release(cache, first);
    const struct plan *second = get_count(cache, 1);
    assert_false(is_marked(second));
    plan_cache_release(cache, second);
}

static void test_one_too_many_is_refused(void **state) {
    struct plan_cache *cache = *state;
    const struct plan *plans[PLAN_CACHE_PINNED], *one_more = NULL;
    plan_cache_release(cache, get_count(cache, 500)); /* filled, not pinned */
    for (uint64_t i = 0; i < PLAN_CACHE_PINNED; i++)
        plans[i] = get_count(cache, i);
    struct base_error error;
    for (uint64_t count = 500; count < 502; count++) {
        struct plan_request request = request_of(count);
        assert_int_equal(plan_cache_get(cache, &request, &one_more, &error), JACKAL_ERR_LIMIT);
        assert_null(one_more);
    }
    const struct plan *again = get_count(cache, 3); /* that is no one_more plan */
    assert_ptr_equal(again, plans[3]);
    plan_cache_release(cache, again);
    plan_cache_release(cache, plans[0]);
    one_more = get_count(cache, 500);
    plan_cache_release(cache, one_more);
    for (int i = 1; i < PLAN_CACHE_PINNED; i++)
        plan_cache_release(cache, plans[i]);
}

/* What cannot be built must not be found as if it had been. */
static void test_failed_build_is_not_kept(void **state) {
    struct plan_cache *cache = *state;
    const struct plan *plan = NULL;
    struct base_error error;
    struct plan_request request = request_of(1);
    request.operation = PLAN_SEND;
    request.size = 1;
    for (int i = 0; i < 2 * PLAN_CACHE_PINNED + 1; i++)
        assert_int_equal(plan_cache_get(cache, &request, &plan, &error), JACKAL_ERR_UNSUPPORTED);
    assert_null(plan);
    plan_cache_release(cache, get_count(cache, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(same_arguments_same_plan), TEST(every_argument_counts),
        TEST(pinned_is_never_given_up), TEST(oldest_is_given_up_first),
        TEST(one_too_many_is_refused),  TEST(failed_build_is_not_kept),
    };
    return cmocka_run_group_tests_name("plan cache", tests, NULL, NULL);
}
