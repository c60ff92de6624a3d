/* SPDX-License-Identifier: MIT */
/* Slots of a wire: what every rank must compute alike, and what providers allow (C5, C14). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/internal.h"

#include <stdlib.h>

static void slots_fit_what_carries_them(void **state) {
    (void)state;
    for (uint32_t frames = 4; frames <= 128; frames++) {
        struct link_geometry geometry;
        struct plan_limits limits;
        engine_geometry(frames, &geometry);
        engine_limits(&geometry, &limits);
        assert_int_equal(geometry.slot_bytes[LINK_SMALL], 4096);
        assert_int_equal(geometry.slot_bytes[LINK_BULK], 4096 * frames);
        for (int queue = 0; queue < LINK_QUEUES; queue++) {
            /* A granule holds whole elements of every type. */
            assert_int_equal(limits.payload_bytes[queue] % 8, 0);
            assert_int_equal(limits.payload_bytes[queue],
                             geometry.slot_bytes[queue] - WIRE_HEADER_BYTES);
            /* Thunderbolt counts frames: a message has at most 4095, a queue pair 8192. */
            uint32_t n_frames = geometry.slot_bytes[queue] / 4096;
            assert_true(n_frames <= 4095 && n_frames * geometry.slots[queue] <= 8192);
        }
        assert_true(limits.small_max_bytes >= limits.payload_bytes[PLAN_SMALL]);
    }
}

/* All credits of a wire together leave the reserved slots alone. */
static void windows_leave_the_reserve(void **state) {
    struct link_geometry geometry;
    struct base_error error;
    struct link link = {.peer = 1, .wire = 0, .device = "none"};
    struct link *links[2] = {NULL, &link};
    (void)state;
    engine_geometry(16, &geometry);
    struct engine engine = {
        .options = {.size = 2, .wires = 1, .links = links, .geometry = geometry}};
    assert_int_equal(engine_wires_open(&engine, &error), JACKAL_OK);
    uint32_t windows[LINK_QUEUES] = {0, 0};
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        for (int kind = 0; kind < ENGINE_KINDS; kind++) {
            const struct engine_lane *lane = &engine.wires[1].lanes[queue][kind];
            assert_true(lane->window >= 2); /* half of it is returned at a time */
            assert_int_equal(lane->window % 2, 0);
            windows[queue] += lane->window;
            free(lane->arrivals);
        }
    /* Two credit messages for each of the four lanes, two answers, a ping. */
    assert_true(geometry.slots[LINK_SMALL] >= windows[LINK_SMALL] + 2 * 4 + 2 + 1);
    assert_true(geometry.slots[LINK_BULK] >= windows[LINK_BULK]);
    free(engine.wires);
}

static void staging_grows_with_the_wires(void **state) {
    struct link_geometry geometry;
    (void)state;
    engine_geometry(16, &geometry);
    assert_int_equal(engine_staging_bytes(&geometry, 0), 0);
    size_t before = 0;
    for (int n = 1; n <= 28; n++) {
        size_t n_bytes = engine_staging_bytes(&geometry, n);
        assert_true(n_bytes > before);
        /* At least one slot of each queue for every wire, or a step could starve for ever. */
        assert_true(n_bytes >= (size_t)n * (geometry.slot_bytes[0] + geometry.slot_bytes[1]));
        before = n_bytes;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_fit_what_carries_them),
        cmocka_unit_test(windows_leave_the_reserve),
        cmocka_unit_test(staging_grows_with_the_wires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
