/* SPDX-License-Identifier: MIT */
/*
 * Two phases over a full mesh, all links busy in both: the vector is cut in N chunks, chunk p is
 * the business of rank p. An all_reduce moves 2(N−1)/N · bytes per rank instead of (N−1) · bytes,
 * and reduces 1/N of the vector on each rank; sources are in rank order, so it is canonical.
 *
 * Between the phases only the own sends of the first drain, since they share the lanes: behind them
 * a rank forwards granule g of its chunk as soon as it has it, while later ones are still on their
 * way.
 */
#include "plan/algorithms.h"

enum { SCATTER = 0, GATHER = 1 };

/* Part `chunk` of N of part `wire` of the vector. */
static struct plan_part chunk_part(const struct plan_request *request, int wire, int chunk) {
    struct plan_part share =
        plan_share(request->count, request->element_bytes, request->wires, wire);
    struct plan_part part = plan_share(share.n_bytes / request->element_bytes,
                                       request->element_bytes, request->size, chunk);
    part.at += share.at;
    return part;
}

static void send_own_chunks(struct plan *plan, const struct plan_request *request, int wire,
                            struct plan_step **sent) {
    for (int peer = 0; peer < request->size; peer++) {
        if (peer == request->rank)
            continue;
        struct plan_part part = chunk_part(request, wire, peer);
        sent[peer] = plan_step_begin(plan, part.n_bytes);
        plan_label(plan, SCATTER, part.at);
        plan_from(plan, PLAN_IN, part.at);
        plan_to_lane(plan, peer, wire);
    }
}

static struct plan_step *reduce_own_chunk(struct plan *plan, const struct plan_request *request,
                                          int wire) {
    struct plan_part own = chunk_part(request, wire, request->rank);
    struct plan_step *reduce = plan_step_begin(plan, own.n_bytes);
    plan_label(plan, SCATTER, own.at);
    reduce->combine = true;
    for (int peer = 0; peer < request->size; peer++) {
        if (peer == request->rank)
            plan_from(plan, PLAN_IN, own.at);
        else
            plan_from_lane(plan, peer, wire);
    }
    plan_to_out(plan, own.at);
    return reduce;
}

/* Adds one step that sends chunk `rank` to everybody but `skip`, reading it from `place`. */
static void spread_chunk(struct plan *plan, const struct plan_request *request, int wire,
                         enum plan_place place, const struct plan_step *after) {
    struct plan_part own = chunk_part(request, wire, request->rank);
    plan_step_begin(plan, own.n_bytes);
    plan_label(plan, GATHER, own.at);
    plan_from(plan, place, own.at);
    for (int peer = 0; peer < request->size; peer++)
        if (peer != request->rank)
            plan_to_lane(plan, peer, wire);
    if (after != NULL)
        plan_wait_for(plan, after, 0);
}

static void take_chunk(struct plan *plan, const struct plan_request *request, int wire, int peer,
                       const struct plan_step *after) {
    struct plan_part part = chunk_part(request, wire, peer);
    plan_step_begin(plan, part.n_bytes);
    plan_label(plan, GATHER, part.at);
    plan_from_lane(plan, peer, wire);
    plan_to_out(plan, part.at);
    if (after != NULL)
        plan_wait_for(plan, after, 0); /* `in` may be `out`: not before it was sent */
}

void plan_mesh_all_reduce(struct plan *plan, const struct plan_request *request) {
    plan->total_bytes = request->count * request->element_bytes;
    plan_choose_queue(plan, request, chunk_part(request, 0, 0).n_bytes);
    struct plan_step *sent[PLAN_MESH_MAX_SIZE] = {NULL};
    for (int wire = 0; wire < request->wires; wire++) {
        send_own_chunks(plan, request, wire, sent);
        struct plan_step *reduce = reduce_own_chunk(plan, request, wire);
        spread_chunk(plan, request, wire, PLAN_OUT, reduce);
        for (int peer = 0; peer < request->size; peer++)
            if (peer != request->rank)
                take_chunk(plan, request, wire, peer, sent[peer]);
    }
}

/* The root hands chunk p to rank p, which passes it on to all others while it still comes in. */
static void broadcast_from_root(struct plan *plan, const struct plan_request *request, int wire) {
    for (int peer = 0; peer < request->size; peer++) {
        if (peer == request->rank)
            continue;
        struct plan_part part = chunk_part(request, wire, peer);
        plan_step_begin(plan, part.n_bytes);
        plan_label(plan, SCATTER, part.at);
        plan_from(plan, PLAN_IN, part.at);
        plan_to_lane(plan, peer, wire);
    }
    spread_chunk(plan, request, wire, PLAN_IN, NULL);
}

static void pass_on_own_chunk(struct plan *plan, const struct plan_request *request, int wire) {
    struct plan_part own = chunk_part(request, wire, request->rank);
    struct plan_step *take = plan_step_begin(plan, own.n_bytes);
    plan_label(plan, SCATTER, own.at);
    plan_from_lane(plan, request->root, wire);
    plan_to_out(plan, own.at);

    plan_step_begin(plan, own.n_bytes);
    plan_label(plan, GATHER, own.at);
    plan_from(plan, PLAN_OUT, own.at);
    for (int peer = 0; peer < request->size; peer++)
        if (peer != request->rank && peer != request->root)
            plan_to_lane(plan, peer, wire);
    plan_wait_for(plan, take, 0);
}

void plan_mesh_broadcast(struct plan *plan, const struct plan_request *request) {
    plan->total_bytes = request->count * request->element_bytes;
    plan_choose_queue(plan, request, chunk_part(request, 0, 0).n_bytes);
    plan_agree_on_root(plan, request);
    for (int wire = 0; wire < request->wires; wire++) {
        if (request->rank == request->root) {
            broadcast_from_root(plan, request, wire);
            continue;
        }
        pass_on_own_chunk(plan, request, wire);
        for (int peer = 0; peer < request->size; peer++)
            if (peer != request->rank)
                take_chunk(plan, request, wire, peer, NULL);
    }
}
