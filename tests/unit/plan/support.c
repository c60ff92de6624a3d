/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

struct plan **support_plans_new(int size, int wires) {
    struct plan **plans = calloc((size_t)size, sizeof *plans);
    for (int i = 0; plans != NULL && i < size; i++) {
        plans[i] = plan_new(size, wires);
        if (plans[i] == NULL) {
            fprintf(stderr, "no memory for the plans of a test\n");
            exit(EXIT_FAILURE);
        }
    }
    return plans;
}

void support_plans_free(struct plan **plans, int size) {
    for (int i = 0; plans != NULL && i < size; i++)
        plan_free(plans[i]);
    free(plans);
}

struct plan_limits support_tiny_limits(uint32_t element_bytes, bool by_elements) {
    if (by_elements)
        return (struct plan_limits){.payload_bytes = {2 * element_bytes, 3 * element_bytes},
                                    .small_max_bytes = 4 * element_bytes};
    return (struct plan_limits){.payload_bytes = {16, 48}, .small_max_bytes = 32};
}

unsigned support_scale(void) {
    const char *text = getenv("JACKAL_TEST_SCALE");
    unsigned long scale = text == NULL ? 100 : strtoul(text, NULL, 10);
    return scale < 1 ? 1 : scale > 10000 ? 10000 : (unsigned)scale;
}

uint64_t support_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t support_below(uint64_t *state, uint64_t bound) {
    return support_random(state) % bound;
}
