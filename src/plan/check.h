/* SPDX-License-Identifier: MIT */
/*
 * The plan checker: runs the plans of all ranks of one operation together, on symbols instead of
 * numbers, and says whether they do what the operation promises. It is linked into tests and
 * tools, never into the path of a call, so it may allocate.
 *
 * A good verdict covers every schedule on every machine, not only the one that was run:
 *
 *   values   an element is a term: "element i of rank r's input", or "the combination of these
 *            terms in this order". `out` must end as exactly the term that the operation promises.
 *   ending   a plan is a marked graph, so whether it ends does not depend on the schedule. The one
 *            that is run fires a granule only when all its lanes are ready at once, and with
 *            `credits` messages a lane; an engine that pushes to its lanes one by one or has more
 *            credits can only do more.
 *   races    two steps of a rank that touch the same byte, one of them writing, must be ordered by
 *            waits, directly or over other steps; so must two steps that use the same lane, in list
 *            order. An order that holds only because a message makes a round trip does not count:
 *            it would break when the peer's plan changes.
 *
 * Rules for plans beyond plan.h: a step may wait for a later step of the list, but waits must not
 * form a circle. A step without granules holds nothing back, whatever it waits for. In one step a
 * lane occurs once, and a range that is read and written must be the same range.
 */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H

#include "plan/choice.h"

struct plan_check_case {
    /* `rank` is ignored by collectives. SEND, RECV: the call of one end; `root` is the other. */
    struct plan_request request;
    uint32_t credits; /* messages that a lane holds; 1 is the least */
    bool in_place;    /* `in` lies where the public call allows it in `out`, or the reverse */
    bool canonical; /* a result is one combination of ranks 0 … N−1; else any grouping will do */
};

/*
 * plans[rank] for all ranks of request.size; those that take no part (SEND, RECV) are not looked
 * at. JACKAL_ERR_ARGUMENT: the plans are wrong; `error` names rank, step and reason, and its `peer`
 * is the rank. JACKAL_ERR_MEMORY, JACKAL_ERR_LIMIT: the case is too large to be checked.
 */
jackal_status plan_check(const struct plan_check_case *given, const struct plan *const *plans,
                         struct base_error *error);

/*
 * Builds the plans of all ranks by one row, whatever plan_choose() would take. plans[] comes from
 * plan_new(). SEND and RECV: the other end is built by the row of the same algorithm.
 */
jackal_status plan_check_build(const struct plan_row *row, const struct plan_request *request,
                               struct plan *const *plans, struct base_error *error);

/* Builds and checks a row out of place and in place; `in_place` and `canonical` are not looked at.
 */
jackal_status plan_check_row(const struct plan_row *row, const struct plan_check_case *given,
                             struct plan *const *plans, struct base_error *error);

#endif
