/* SPDX-License-Identifier: MIT */
/* The choice table: which algorithm does which operation. One table; docs and checks read it. */
#ifndef PLAN_CHOICE_H
#define PLAN_CHOICE_H

#include "plan/algorithms.h"

struct plan_row {
    enum plan_operation operation;
    const char *algorithm;
    int min_size;
    uint64_t max_bytes_per_rank; /* of the call's `count`; UINT64_MAX = no limit */
    bool canonical;              /* combines ranks 0 … N−1 in order */
    plan_builder build;
};

extern const struct plan_row plan_rows[];
extern const size_t plan_n_rows;

/* The row that plan_build() takes; NULL if none can do it. */
const struct plan_row *plan_choose(const struct plan_request *request);

#endif
