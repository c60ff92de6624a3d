/* SPDX-License-Identifier: MIT */
/*
 * Our verbs code over both personalities of the fabric: right results with every contested rule
 * strict, with completions out of order and messages late; and its budget of queue pairs, regions
 * and contexts (C3, C8, C9, C11).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "providers.h"

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the memory of the ranks. */
struct result {
    struct failing_orders orders;
    jackal_status status;
    char text[512];
};

struct work {
    struct failing_orders orders; /* of every rank */
    bool in_front;                /* failing_verbs is the provider */
    bool must_fail;
    int groups; /* alive at the same time */
};

static struct result *result_of(int rank) {
    return (struct result *)ranks_memory() + rank;
}

static void use_all_sizes(jackal_group *group, int rank, int size) {
    static const size_t counts[] = {1, 1000, 10000, 150000};
    for (int round = 0; round < 12; round++)
        RANKS_OK(group, providers_round(group, rank, size,
                                        counts[(size_t)round % (sizeof counts / sizeof counts[0])],
                                        round));
}

static void use_groups(jackal_config *config, const struct work *work, int rank, int size) {
    jackal_group *groups[RANKS_MEETINGS] = {NULL};
    for (int g = 0; g < work->groups; g++) {
        ranks_meeting(config, rank, g);
        groups[g] = ranks_init(config);
        use_all_sizes(groups[g], rank, size);
    }
    for (int g = 0; g < work->groups; g++)
        jackal_group_free(groups[g]);
}

static int rank_of_work(int rank, int size, jackal_config *config, void *argument) {
    const struct work *work = argument;
    struct result *result = result_of(rank);
    if (work->in_front) {
        memcpy(&result->orders, &work->orders, sizeof result->orders);
        providers_order(&result->orders);
    }
    if (!work->must_fail) {
        use_groups(config, work, rank, size);
        return 0;
    }
    jackal_group *group = NULL;
    result->status = jackal_init(config, &group);
    snprintf(result->text, sizeof result->text, "%s", jackal_config_error(config));
    jackal_group_free(group);
    return 0;
}

struct place {
    enum personality personality;
    int size, wires;
    const char *more; /* of the fabric's description */
    const char *devices, *verbs;
};

static void run(struct place place, struct work *work) {
    struct ranks_job job = {.size = place.size,
                            .wires = place.wires,
                            .run = rank_of_work,
                            .argument = work,
                            .limit_ms = 60000,
                            .settings = "init_timeout_ms=8000"};
    work->orders.at = UINT64_MAX;
    job.fabric = providers_fabric(place.personality, place.size, place.wires, place.more);
    job.devices = place.devices != NULL
                      ? place.devices
                      : providers_matrix(place.personality, place.size, place.wires);
    job.verbs = place.verbs != NULL ? place.verbs : work->in_front ? FAILING_VERBS : "fabric";
    assert_int_equal(ranks_run(&job), 0);
}

#define STRICT ",\"strict\":{\"all\":true}"
#define DISTURBED                                                                                  \
    ",\"faults\":{\"seed\":%llu,\"list\":[{\"kind\":\"reorder\",\"probability\":0.3},"             \
    "{\"kind\":\"delay\",\"probability\":0.02,\"time\":\"300us\"}]}"

static void both_personalities(int size, int wires, const char *more) {
    struct work work = {.groups = 1};
    for (int personality = 0; personality < PERSONALITIES; personality++)
        run((struct place){.personality = (enum personality)personality,
                           .size = size,
                           .wires = wires,
                           .more = more},
            &work);
}

static void results_are_right(void **state) {
    (void)state;
    both_personalities(2, 1, "");
    both_personalities(3, 2, "");
}

static void results_are_right_where_all_is_strict(void **state) {
    (void)state;
    both_personalities(2, 2, STRICT);
    both_personalities(4, 1, STRICT);
}

static void completions_out_of_order_and_late_messages(void **state) {
    (void)state;
    char more[256];
    uint64_t seed = ranks_seed();
    snprintf(more, sizeof more, DISTURBED, (unsigned long long)(ranks_random(&seed) >> 32));
    both_personalities(2, 1, more);
    both_personalities(3, 1, more);
}

/* UC everywhere; whole frames where they are counted, elsewhere no more than is used. */
static void what_is_asked_of_a_provider(void **state) {
    (void)state;
    uint64_t n_bytes[PERSONALITIES];
    for (int personality = 0; personality < PERSONALITIES; personality++) {
        struct work work = {.groups = 1, .in_front = true};
        run(
            (struct place){
                .personality = (enum personality)personality, .size = 2, .wires = 1, .more = ""},
            &work);
        const struct failing_orders *seen = &result_of(1)->orders;
        assert_int_equal(atomic_load(&seen->n_not_uc), 0);
        assert_true(atomic_load(&seen->n_calls[FAILING_SEND]) > 50);
        if (personality == THUNDERBOLT)
            assert_int_equal(atomic_load(&seen->n_part_frames), 0);
        else
            assert_true(atomic_load(&seen->n_part_frames) > 0);
        n_bytes[personality] = atomic_load(&seen->n_bytes_sent);
    }
    assert_true(n_bytes[ROCE] < n_bytes[THUNDERBOLT]);
}

/* ---- budgets ----------------------------------------------------------------------------------
 */

static void check_refused(int size, jackal_status status, const char *word) {
    for (int rank = 0; rank < size; rank++) {
        const struct result *result = result_of(rank);
        if (result->status != status || strstr(result->text, word) == NULL)
            fail_msg("rank %d: %s, want %s; \"%s\", want \"%s\" in it", rank,
                     jackal_status_name(result->status), jackal_status_name(status), result->text,
                     word);
    }
}

static void c8_no_queue_pair_left_is_explained_and_not_tried_again(void **state) {
    (void)state;
    struct work work = {
        .must_fail = true, .in_front = true, .orders = {.name = "ibv_create_qp", .code = EBUSY}};
    run((struct place){.size = 2, .wires = 1, .more = ""}, &work);
    check_refused(2, JACKAL_ERR_LIMIT, "no queue pair left");
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(atomic_load(&result_of(rank)->orders.n_after), 0);
}

static void c8_queue_pairs_held_by_others(void **state) {
    (void)state;
    struct work work = {.must_fail = true};
    run((struct place){.size = 2, .wires = 1, .more = ",\"limits\":{\"held\":{\"qp\":10}}"}, &work);
    check_refused(2, JACKAL_ERR_LIMIT, "no queue pair left");
}

/* The slab grows by extents, at most four, and each is one region of a device: no more of them for
 * more messages, a deeper pipeline or another group. */
static void c9_regions_of_the_slab_and_no_others(void **state) {
    (void)state;
    for (int size = 2; size <= 4; size += 2) {
        struct work work = {.groups = 2, .in_front = true};
        run((struct place){.size = size, .wires = 1, .more = ""}, &work);
        for (int rank = 0; rank < size; rank++) {
            int n_regions = atomic_load(&result_of(rank)->orders.n_made[FAILING_MR]);
            assert_true(n_regions >= size - 1 && n_regions <= 4 * (size - 1));
        }
    }
}

static void c11_a_device_is_opened_once(void **state) {
    (void)state;
    for (int personality = 0; personality < PERSONALITIES; personality++) {
        struct work work = {.groups = 2, .in_front = true};
        run((struct place){.personality = (enum personality)personality,
                           .size = 2,
                           .wires = 1,
                           .more = STRICT},
            &work);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(atomic_load(&result_of(rank)->orders.n_made[FAILING_CONTEXT]), 1);
    }
}

static void c3_six_causes_have_six_texts(void **state) {
    (void)state;
    static const char unknown[] = "[[null,[\"rdma_en99\"]],[[\"rdma_en99\"],null]]";
    static const struct cause {
        struct failing_orders orders;
        const char *verbs, *devices;
        jackal_status status;
        const char *word;
    } causes[] = {
        {.verbs = "/nowhere/libverbs.so", .status = JACKAL_ERR_NO_DEVICE, .word = "/nowhere/"},
        {.orders = {.has_no_devices = 1},
         .status = JACKAL_ERR_NO_DEVICE,
         .word = "lists no RDMA devices"},
        {.devices = unknown,
         .status = JACKAL_ERR_NO_DEVICE,
         .word = "there is no RDMA device \"rdma_en99\""},
        {.orders = {.name = "ibv_open_device"},
         .status = JACKAL_ERR_NO_DEVICE,
         .word = "does not open"},
        {.orders = {.has_port_down = 1}, .status = JACKAL_ERR_LINK_DOWN, .word = "is not active"},
        {.orders = {.name = "ibv_alloc_pd"},
         .status = JACKAL_ERR_LIMIT,
         .word = "gives no protection domain"},
    };
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        struct work work = {.must_fail = true, .in_front = true};
        memcpy(&work.orders, &causes[i].orders, sizeof work.orders);
        work.in_front = causes[i].verbs == NULL;
        run((struct place){.size = 2,
                           .wires = 1,
                           .more = "",
                           .devices = causes[i].devices,
                           .verbs = causes[i].verbs},
            &work);
        check_refused(2, causes[i].status, causes[i].word);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], "each rank's provider has orders of its own");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_right),
        cmocka_unit_test(results_are_right_where_all_is_strict),
        cmocka_unit_test(completions_out_of_order_and_late_messages),
        cmocka_unit_test(what_is_asked_of_a_provider),
        cmocka_unit_test(c8_no_queue_pair_left_is_explained_and_not_tried_again),
        cmocka_unit_test(c8_queue_pairs_held_by_others),
        cmocka_unit_test(c9_regions_of_the_slab_and_no_others),
        cmocka_unit_test(c11_a_device_is_opened_once),
        cmocka_unit_test(c3_six_causes_have_six_texts),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
