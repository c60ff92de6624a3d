/* SPDX-License-Identifier: MIT */
/*
 * The algorithms, one builder each. A builder gets an empty plan and fills in queue, granule,
 * total_bytes and steps; it may rely on the size and operation that its row in choice.c promises.
 */
#ifndef PLAN_ALGORITHMS_H
#define PLAN_ALGORITHMS_H

#include "plan/plan.h"

typedef void (*plan_builder)(struct plan *plan, const struct plan_request *request);

/* direct.c: every rank sends everything to whoever needs it, in one go. Few steps, more bytes. */
void plan_direct_all_reduce(struct plan *plan, const struct plan_request *request);
void plan_direct_all_gather(struct plan *plan, const struct plan_request *request);
void plan_direct_reduce_scatter(struct plan *plan, const struct plan_request *request);
void plan_direct_broadcast(struct plan *plan, const struct plan_request *request);
void plan_direct_barrier(struct plan *plan, const struct plan_request *request);

/*
 * Part of every broadcast: a message without payload from each rank to the root. Nothing else goes
 * there, so without it neither side would see that two ranks named different roots, or that one
 * made another call.
 */
void plan_agree_on_root(struct plan *plan, const struct plan_request *request);

/* mesh.c: the vector is cut in N chunks; two phases over all links at once. */
void plan_mesh_all_reduce(struct plan *plan, const struct plan_request *request);
void plan_mesh_broadcast(struct plan *plan, const struct plan_request *request);

/* point.c: one message to or from one rank. */
void plan_point_send(struct plan *plan, const struct plan_request *request);
void plan_point_recv(struct plan *plan, const struct plan_request *request);

/* Empties a plan; storage stays. */
void plan_reset(struct plan *plan);

#endif
