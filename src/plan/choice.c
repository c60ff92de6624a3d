/* SPDX-License-Identifier: MIT */
/*
 * The first row that fits is taken. The limits of the short rows come from the cost model of a full
 * mesh: one round costs α + S/B, two phases 2α + 2S/(N·B), so one round wins below
 * S* = α·B / (1 − 2/N); for Thunderbolt 5 that is 133 KB at N = 3 and 59 KB at N = 8. One number
 * in between serves all N; the difference near it is small by construction.
 */
#include "plan/choice.h"

#include <string.h>

#define NO_LIMIT            UINT64_MAX
#define ONE_ROUND_MAX_BYTES 65536

const struct plan_row plan_rows[] = {
    {PLAN_ALL_REDUCE, "direct", 1, ONE_ROUND_MAX_BYTES, true, plan_direct_all_reduce},
    {PLAN_ALL_REDUCE, "mesh", 3, NO_LIMIT, true, plan_mesh_all_reduce},
    {PLAN_ALL_REDUCE, "direct", 1, NO_LIMIT, true, plan_direct_all_reduce},
    {PLAN_ALL_GATHER, "direct", 1, NO_LIMIT, true, plan_direct_all_gather},
    {PLAN_REDUCE_SCATTER, "direct", 1, NO_LIMIT, true, plan_direct_reduce_scatter},
    {PLAN_BROADCAST, "direct", 1, ONE_ROUND_MAX_BYTES, true, plan_direct_broadcast},
    {PLAN_BROADCAST, "mesh", 3, NO_LIMIT, true, plan_mesh_broadcast},
    {PLAN_BROADCAST, "direct", 1, NO_LIMIT, true, plan_direct_broadcast},
    {PLAN_BARRIER, "direct", 1, NO_LIMIT, true, plan_direct_barrier},
    {PLAN_SEND, "direct", 2, NO_LIMIT, true, plan_point_send},
    {PLAN_RECV, "direct", 2, NO_LIMIT, true, plan_point_recv},
};
const size_t plan_n_rows = sizeof plan_rows / sizeof plan_rows[0];

/* A chunk of zero elements would send no message at all, and then no mismatch could be seen. */
static bool can(const struct plan_row *row, const struct plan_request *request) {
    bool chunks = strcmp(row->algorithm, "mesh") == 0;
    uint64_t least = chunks ? (uint64_t)request->size * (uint64_t)request->wires : 0;
    return row->operation == request->operation && request->size >= row->min_size &&
           request->count >= least;
}

const struct plan_row *plan_choose(const struct plan_request *request) {
    uint64_t n_bytes = request->count * request->element_bytes;
    const struct plan_row *found = NULL;
    for (size_t i = 0; i < plan_n_rows; i++) {
        const struct plan_row *row = &plan_rows[i];
        if (!can(row, request))
            continue;
        if (request->algorithm != NULL && strcmp(row->algorithm, request->algorithm) == 0)
            return row;
        if (found == NULL && n_bytes <= row->max_bytes_per_rank)
            found = row;
    }
    return found;
}

jackal_status plan_build(struct plan *plan, const struct plan_request *request,
                         struct base_error *error) {
    const struct plan_row *row = plan_choose(request);
    if (row == NULL)
        return base_fail(error, JACKAL_ERR_UNSUPPORTED, "no algorithm does %s among %d ranks",
                         plan_operation_name(request->operation), request->size);
    plan_reset(plan);
    plan->algorithm = row->algorithm;
    row->build(plan, request);
    if (plan->overflow)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "the %s plan for %s among %d ranks does not fit its storage",
                         row->algorithm, plan_operation_name(request->operation), request->size);
    return JACKAL_OK;
}
