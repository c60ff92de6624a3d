/* SPDX-License-Identifier: MIT */
/* Small damage to a plan, of the kinds that a wrong algorithm would have. */
#ifndef TEST_PLAN_MUTATE_H
#define TEST_PLAN_MUTATE_H

#include "plan/plan.h"

/*
 * Changes one thing in a plan. Returns what, in a buffer that lives until the next call, or NULL
 * if the kind of change that was drawn does not apply to the step that was drawn.
 */
const char *mutate(struct plan *plan, const struct plan_request *request, uint64_t *random);

#endif
