/* SPDX-License-Identifier: MIT */
/*
 * One message between two ranks, cut in a share for each wire between them. Whether it may go
 * (eager or after the receiver's answer) is decided before this plan runs, by engine/point.c.
 */
#include "plan/algorithms.h"

static void point_steps(struct plan *plan, const struct plan_request *request, bool sending) {
    plan->total_bytes = request->count * request->element_bytes;
    /* One slot's worth stays whole: a short message must not depend on how many wires there are. */
    int wires = plan->total_bytes <= request->limits.payload_bytes[PLAN_BULK] ? 1 : request->wires;
    plan_choose_queue(plan, request,
                      plan_share(request->count, request->element_bytes, wires, 0).n_bytes);
    for (int wire = 0; wire < wires; wire++) {
        struct plan_part part = plan_share(request->count, request->element_bytes, wires, wire);
        plan_step_begin(plan, part.n_bytes)->always = wire == 0;
        plan_label(plan, 0, part.at);
        if (sending) {
            plan_from(plan, PLAN_IN, part.at);
            plan_to_lane(plan, request->root, wire);
        } else {
            plan_from_lane(plan, request->root, wire);
            plan_to_out(plan, part.at);
        }
    }
}

void plan_point_send(struct plan *plan, const struct plan_request *request) {
    point_steps(plan, request, true);
}

void plan_point_recv(struct plan *plan, const struct plan_request *request) {
    point_steps(plan, request, false);
}
