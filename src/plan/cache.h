/* SPDX-License-Identifier: MIT */
/*
 * Plans by their arguments. A training loop calls the same few operations again and again; the
 * cache gives it back the plan it had. All memory is taken by plan_cache_new().
 */
#ifndef PLAN_CACHE_H
#define PLAN_CACHE_H

#include "plan/plan.h"

struct plan_cache;

struct plan_cache *plan_cache_new(int size, int wires);
void plan_cache_free(struct plan_cache *cache);

/*
 * The plan for a request, built if it is not there. It is pinned: plan_cache_release() must follow
 * when it is no longer run. At most PLAN_CACHE_PINNED plans may be pinned at once.
 */
jackal_status plan_cache_get(struct plan_cache *cache, const struct plan_request *request,
                             const struct plan **plan_p, struct base_error *error);
void plan_cache_release(struct plan_cache *cache, const struct plan *plan);

enum { PLAN_CACHE_PINNED = 16 };

#endif
