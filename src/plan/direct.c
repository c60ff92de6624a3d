/* SPDX-License-Identifier: MIT */
/*
 * Direct exchange: one round, every contribution goes straight to the ranks that need it. Of N
 * ranks each sends (N−1) · bytes, over N−1 links at once: on a full mesh the time of one transfer,
 * the lowest latency there is. Sources are listed in rank order, so the result is canonical.
 */
#include "plan/algorithms.h"

/* What a wire carries of `count` elements; that of wire 0 is the longest. */
static struct plan_part share_of(const struct plan_request *request, int wire) {
    return plan_share(request->count, request->element_bytes, request->wires, wire);
}

/* Adds a source lane for every other rank and `place`/`at` in the position of the own rank. */
static void from_all_ranks(struct plan *plan, const struct plan_request *request, int wire,
                           uint64_t own_at) {
    for (int peer = 0; peer < request->size; peer++) {
        if (peer == request->rank)
            plan_from(plan, PLAN_IN, own_at);
        else
            plan_from_lane(plan, peer, wire);
    }
}

static void to_all_peers(struct plan *plan, const struct plan_request *request, int wire) {
    for (int peer = 0; peer < request->size; peer++)
        if (peer != request->rank)
            plan_to_lane(plan, peer, wire);
}

static void reduce_share(struct plan *plan, const struct plan_request *request, int wire,
                         struct plan_part part, bool always) {
    struct plan_step *send = plan_step_begin(plan, part.n_bytes);
    plan_label(plan, 0, part.at);
    send->always = always;
    plan_from(plan, PLAN_IN, part.at);
    to_all_peers(plan, request, wire);

    struct plan_step *reduce = plan_step_begin(plan, part.n_bytes);
    plan_label(plan, 0, part.at);
    reduce->always = always;
    reduce->combine = true;
    from_all_ranks(plan, request, wire, part.at);
    plan_to_out(plan, part.at);
    plan_wait_for(plan, send, 0); /* `in` may be `out` */
}

void plan_direct_all_reduce(struct plan *plan, const struct plan_request *request) {
    plan->total_bytes = request->count * request->element_bytes;
    plan_choose_queue(plan, request, share_of(request, 0).n_bytes);
    for (int wire = 0; wire < request->wires; wire++)
        reduce_share(plan, request, wire, share_of(request, wire), wire == 0);
}

void plan_direct_barrier(struct plan *plan, const struct plan_request *request) {
    plan->total_bytes = 0;
    plan_choose_queue(plan, request, 0);
    struct plan_step *send = plan_step_begin(plan, 0);
    send->always = true;
    plan_from(plan, PLAN_IN, 0);
    to_all_peers(plan, request, 0);

    for (int peer = 0; peer < request->size; peer++) {
        if (peer == request->rank)
            continue;
        plan_step_begin(plan, 0)->always = true;
        plan_from_lane(plan, peer, 0);
        plan_to_out(plan, 0);
    }
}

void plan_direct_all_gather(struct plan *plan, const struct plan_request *request) {
    uint64_t block = request->count * request->element_bytes;
    plan->total_bytes = block * (uint64_t)request->size;
    plan_choose_queue(plan, request, share_of(request, 0).n_bytes);
    for (int wire = 0; wire < request->wires; wire++) {
        struct plan_part part = share_of(request, wire);
        uint64_t own_at = (uint64_t)request->rank * block + part.at;
        plan_step_begin(plan, part.n_bytes)->always = wire == 0;
        plan_label(plan, 0, own_at);
        plan_from(plan, PLAN_IN, part.at);
        plan_to_out(plan, own_at);
        to_all_peers(plan, request, wire);

        for (int peer = 0; peer < request->size; peer++) {
            if (peer == request->rank)
                continue;
            uint64_t at = (uint64_t)peer * block + part.at;
            plan_step_begin(plan, part.n_bytes)->always = wire == 0;
            plan_label(plan, 0, at);
            plan_from_lane(plan, peer, wire);
            plan_to_out(plan, at);
        }
    }
}

void plan_direct_reduce_scatter(struct plan *plan, const struct plan_request *request) {
    uint64_t block = request->count * request->element_bytes;
    plan->total_bytes = block * (uint64_t)request->size;
    plan_choose_queue(plan, request, share_of(request, 0).n_bytes);
    for (int wire = 0; wire < request->wires; wire++) {
        struct plan_part part = share_of(request, wire);
        for (int peer = 0; peer < request->size; peer++) {
            if (peer == request->rank)
                continue;
            uint64_t at = (uint64_t)peer * block + part.at;
            plan_step_begin(plan, part.n_bytes)->always = wire == 0;
            plan_label(plan, 0, at);
            plan_from(plan, PLAN_IN, at);
            plan_to_lane(plan, peer, wire);
        }
        uint64_t own_at = (uint64_t)request->rank * block + part.at;
        struct plan_step *reduce = plan_step_begin(plan, part.n_bytes);
        plan_label(plan, 0, own_at);
        reduce->always = wire == 0;
        reduce->combine = true;
        from_all_ranks(plan, request, wire, own_at);
        plan_to_out(plan, part.at);
    }
}

void plan_agree_on_root(struct plan *plan, const struct plan_request *request) {
    enum { AGREE = 2 }; /* a phase of its own: mesh.c has 0 and 1 */
    for (int peer = 0; peer < request->size; peer++) {
        bool sending = request->rank != request->root;
        if (peer == request->rank || (sending && peer != request->root))
            continue;
        plan_step_begin(plan, 0)->always = true;
        plan_label(plan, AGREE, 0);
        if (sending) {
            plan_from(plan, PLAN_IN, 0);
            plan_to_lane(plan, peer, 0);
        } else {
            plan_from_lane(plan, peer, 0);
            plan_to_out(plan, 0);
        }
    }
}

void plan_direct_broadcast(struct plan *plan, const struct plan_request *request) {
    plan->total_bytes = request->count * request->element_bytes;
    plan_choose_queue(plan, request, share_of(request, 0).n_bytes);
    plan_agree_on_root(plan, request);
    for (int wire = 0; wire < request->wires; wire++) {
        struct plan_part part = share_of(request, wire);
        plan_step_begin(plan, part.n_bytes)->always = wire == 0;
        plan_label(plan, 0, part.at);
        if (request->rank == request->root) {
            plan_from(plan, PLAN_IN, part.at);
            to_all_peers(plan, request, wire);
        } else {
            plan_from_lane(plan, request->root, wire);
            plan_to_out(plan, part.at);
        }
    }
}
