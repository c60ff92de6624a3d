/* SPDX-License-Identifier: MIT */
/*
 * A second opinion on plans that shares nothing with the checker: it moves numbers, not symbols,
 * in real arrays that overlap when the call is in place, in a random order, and compares with the
 * definition of the operation. One run proves little; a plan that is wrong fails one of many.
 */
#ifndef TEST_PLAN_ORACLE_H
#define TEST_PLAN_ORACLE_H

#include "plan/plan.h"

/* One run; NULL = as promised, else what was seen. */
const char *oracle_run(const struct plan_request *request, struct plan *const *plans, bool in_place,
                       uint64_t *random);

#endif
