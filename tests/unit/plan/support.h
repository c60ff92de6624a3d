/* SPDX-License-Identifier: MIT */
/* What the tests of this folder share. */
#ifndef TEST_PLAN_SUPPORT_H
#define TEST_PLAN_SUPPORT_H

#include "plan/check.h"

/* A new plan for each rank; ends the test program if there is no memory. */
struct plan **support_plans_new(int size, int wires);
void support_plans_free(struct plan **plans, int size);

/* Payloads of a few elements, so that a handful of elements meets every boundary. */
struct plan_limits support_tiny_limits(uint32_t element_bytes, bool by_elements);

/* JACKAL_TEST_SCALE in percent; 100 unless set. */
unsigned support_scale(void);

/* The same numbers on every machine (splitmix64). */
uint64_t support_random(uint64_t *state);
uint64_t support_below(uint64_t *state, uint64_t bound);

#endif
