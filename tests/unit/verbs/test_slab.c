/* SPDX-License-Identifier: MIT */
/*
 * The slab: ranges do not overlap, are clean and aligned, come back, and lie in at most four
 * extents, each of which costs a region on every device (C9).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verbs/verbs.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static uint64_t random_state = 5;

static size_t below(size_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(random_state >> 33) % n;
}

static struct verbs_range take(size_t n_bytes) {
    struct verbs_range range;
    struct base_error error = {.text = ""};
    if (verbs_slab_take(n_bytes, &range, &error) != JACKAL_OK)
        fail_msg("%zu bytes: %s", n_bytes, error.text);
    assert_true(range.n_bytes >= n_bytes);
    assert_int_equal((uintptr_t)range.bytes % (16 * KIB), 0);
    assert_in_range(range.extent, 0, VERBS_MAX_EXTENTS - 1);
    for (size_t i = 0; i < n_bytes; i += i < 64 ? 1 : 997)
        assert_int_equal(range.bytes[i], 0);
    assert_int_equal(range.bytes[n_bytes - 1], 0);
    return range;
}

static bool overlap(const struct verbs_range *a, const struct verbs_range *b) {
    return a->bytes < b->bytes + b->n_bytes && b->bytes < a->bytes + a->n_bytes;
}

/* Ranges of all sizes come and go; each keeps what is written in it. */
static void ranges_are_apart(void **state) {
    enum { RANGES = 40 };
    struct verbs_range ranges[RANGES] = {{NULL, 0, 0}};
    (void)state;
    for (int step = 0; step < 3000; step++) {
        size_t i = below(RANGES);
        if (ranges[i].bytes != NULL) {
            for (size_t k = 0; k < ranges[i].n_bytes; k += 4096)
                assert_int_equal(ranges[i].bytes[k], i + 1);
            verbs_slab_give(&ranges[i]);
            assert_null(ranges[i].bytes);
            continue;
        }
        ranges[i] = take(1 + below(below(4) == 0 ? MIB : 100 * KIB));
        for (size_t k = 0; k < RANGES; k++)
            assert_false(k != i && ranges[k].bytes != NULL && overlap(&ranges[i], &ranges[k]));
        memset(ranges[i].bytes, (int)i + 1, ranges[i].n_bytes);
    }
    for (size_t i = 0; i < RANGES; i++)
        verbs_slab_give(&ranges[i]);
    verbs_slab_give(&ranges[0]); /* nothing twice */
}

static void room_comes_back(void **state) {
    struct verbs_range first = take(3 * MIB);
    uint8_t *bytes = first.bytes;
    (void)state;
    verbs_slab_give(&first);
    for (int i = 0; i < 200; i++) {
        struct verbs_range again = take(3 * MIB);
        assert_ptr_equal(again.bytes, bytes);
        verbs_slab_give(&again);
    }
}

/* A large group takes many ranges that are each as large as a small slab, and says so before. */
static void what_was_reserved_is_there(void **state) {
    enum { RANGES = 30 };
    struct verbs_range ranges[RANGES];
    struct base_error error;
    (void)state;
    assert_int_equal(verbs_slab_reserve(RANGES * (7 * MIB + 1), RANGES, &error), JACKAL_OK);
    for (int i = 0; i < RANGES; i++)
        ranges[i] = take(7 * MIB + 1);
    for (int i = 0; i < RANGES; i++)
        verbs_slab_give(&ranges[i]);
    /* There is room for it now, and nothing more is made. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(verbs_slab_reserve(RANGES * (7 * MIB + 1), RANGES, &error), JACKAL_OK);
    struct verbs_range one = take(7 * MIB * RANGES);
    verbs_slab_give(&one);
}

static void what_does_not_fit_is_refused(void **state) {
    enum { MOST = 4096 };
    static struct verbs_range ranges[MOST];
    struct base_error error = {.text = ""};
    int n = 0;
    jackal_status status = JACKAL_OK;
    (void)state;
    while (n < MOST && status == JACKAL_OK)
        status = verbs_slab_take(4 * KIB, &ranges[n++], &error);
    assert_int_equal(status, JACKAL_ERR_LIMIT);
    assert_non_null(strstr(error.text, "4 extents"));
    while (n > 0)
        verbs_slab_give(&ranges[--n]);
    struct verbs_range again = take(MIB);
    verbs_slab_give(&again);
}

/* ---- registration -----------------------------------------------------------------------------
 */

static struct {
    int n_calls, access;
    void *bytes;
    size_t n_bytes;
    bool refuse;
} registered;

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *bytes, size_t n_bytes, int access) {
    static struct ibv_mr regions[VERBS_MAX_EXTENTS];
    (void)pd;
    if (registered.refuse) {
        errno = ENOMEM;
        return NULL;
    }
    registered.access = access;
    registered.bytes = bytes;
    registered.n_bytes = n_bytes;
    return &regions[registered.n_calls++];
}

static void an_extent_is_registered_once(void **state) {
    static struct verbs_library library;
    struct verbs_device device = {.library = &library, .name = "rdma_en2", .frames_counted = true};
    struct base_error error = {.text = ""};
    struct verbs_range a = take(20 * KIB), b = take(20 * KIB);
    (void)state;
    library.reg_mr = reg_mr;
    assert_int_equal(a.extent, b.extent);
    registered.refuse = true;
    assert_int_equal(verbs_device_register(&device, &a, &error), JACKAL_ERR_LIMIT);
    assert_non_null(strstr(error.text, "rdma_en2"));
    assert_null(device.regions[a.extent]);
    registered.refuse = false;
    assert_int_equal(verbs_device_register(&device, &a, &error), JACKAL_OK);
    assert_int_equal(verbs_device_register(&device, &b, &error), JACKAL_OK);
    assert_int_equal(registered.n_calls, 1);
    assert_true((uint8_t *)registered.bytes <= a.bytes &&
                a.bytes + a.n_bytes <= (uint8_t *)registered.bytes + registered.n_bytes);
    /* Apple's provider takes these three together and nothing less. */
    assert_int_equal(registered.access,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    verbs_slab_give(&a);
    verbs_slab_give(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_extent_is_registered_once),
        cmocka_unit_test(ranges_are_apart),
        cmocka_unit_test(room_comes_back),
        cmocka_unit_test(what_was_reserved_is_there),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
