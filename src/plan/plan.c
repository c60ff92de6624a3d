/* SPDX-License-Identifier: MIT */
/* Storage and builder of plans. What the fields mean stands in plan.h. */
#include "plan/algorithms.h"

#include <stdlib.h>
#include <string.h>

const char *plan_operation_name(enum plan_operation operation) {
    static const char *const names[PLAN_OPERATION_COUNT] = {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier", "send", "recv"};
    return operation < PLAN_OPERATION_COUNT ? names[operation] : "unknown operation";
}

/*
 * Bounds over all rows, per wire: a mesh all_reduce has (N−1) scatter, 1 reduce, 1 send and (N−1)
 * gather steps; its reduce has N sources and its send N−1 destinations, and no step has more than
 * N + 1 terms. Waits: one per lane use and one per hazard, at most two a term.
 */
static void set_bounds(struct plan *plan, int size, int wires) {
    uint32_t n = (uint32_t)size, w = (uint32_t)wires;
    plan->max_steps = w * (2 * n + 2);
    plan->max_terms = w * (6 * n + 8);
    plan->max_waits = 2 * plan->max_terms;
}

struct plan *plan_new(int size, int wires) {
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return NULL;
    set_bounds(plan, size, wires);
    size_t n_lanes = (size_t)size * (size_t)wires;
    plan->size = size;
    plan->wires = wires;
    plan->steps = calloc(plan->max_steps, sizeof *plan->steps);
    plan->terms = calloc(plan->max_terms, sizeof *plan->terms);
    plan->waits = calloc(plan->max_waits, sizeof *plan->waits);
    plan->last_push = calloc(n_lanes, sizeof *plan->last_push);
    plan->last_pull = calloc(n_lanes, sizeof *plan->last_pull);
    if (plan->steps == NULL || plan->terms == NULL || plan->waits == NULL ||
        plan->last_push == NULL || plan->last_pull == NULL) {
        plan_free(plan);
        return NULL;
    }
    return plan;
}

void plan_free(struct plan *plan) {
    if (plan == NULL)
        return;
    free(plan->steps);
    free(plan->terms);
    free(plan->waits);
    free(plan->last_push);
    free(plan->last_pull);
    free(plan);
}

void plan_reset(struct plan *plan) {
    plan->algorithm = NULL;
    plan->queue = PLAN_SMALL;
    plan->granule_bytes = 0;
    plan->total_bytes = 0;
    plan->n_steps = plan->n_terms = plan->n_waits = 0;
    plan->overflow = false;
    for (int lane = 0; lane < plan->size * plan->wires; lane++)
        plan->last_push[lane] = plan->last_pull[lane] = PLAN_NO_STEP;
}

uint64_t plan_granules(const struct plan *plan, const struct plan_step *step) {
    if (step->n_bytes == 0)
        return step->always ? 1 : 0;
    return (step->n_bytes - 1) / plan->granule_bytes + 1;
}

void plan_choose_queue(struct plan *plan, const struct plan_request *request,
                       uint64_t longest_bytes) {
    plan->queue = longest_bytes <= request->limits.small_max_bytes ? PLAN_SMALL : PLAN_BULK;
    plan->granule_bytes = request->limits.payload_bytes[plan->queue];
}

struct plan_step *plan_step_begin(struct plan *plan, uint64_t n_bytes) {
    if (plan->n_steps == plan->max_steps) {
        plan->overflow = true;
        return &plan->steps[plan->n_steps - 1];
    }
    struct plan_step *step = &plan->steps[plan->n_steps++];
    memset(step, 0, sizeof *step);
    step->n_bytes = n_bytes;
    step->sources = step->destinations = plan->terms + plan->n_terms;
    step->waits = plan->waits + plan->n_waits;
    return step;
}

static struct plan_step *last_step(struct plan *plan) {
    return &plan->steps[plan->n_steps - 1];
}

static struct plan_term *add_term(struct plan *plan, enum plan_place place) {
    if (plan->n_terms == plan->max_terms) {
        plan->overflow = true;
        return &plan->terms[plan->n_terms - 1];
    }
    struct plan_term *term = &plan->terms[plan->n_terms++];
    memset(term, 0, sizeof *term);
    term->place = place;
    return term;
}

/* Sources come before destinations, so that each is one contiguous run of terms. */
static struct plan_term *add_source(struct plan *plan, enum plan_place place) {
    struct plan_step *step = last_step(plan);
    struct plan_term *term = add_term(plan, place);
    step->n_sources++;
    step->destinations = plan->terms + plan->n_terms;
    return term;
}

static struct plan_term *add_destination(struct plan *plan, enum plan_place place) {
    last_step(plan)->n_destinations++;
    return add_term(plan, place);
}

/* The step begun last uses a lane: after the step that used it before. */
static void use_lane(struct plan *plan, struct plan_term *term, int32_t *last, int peer, int wire) {
    term->peer = (uint16_t)peer;
    term->wire = (uint16_t)wire;
    int32_t *lane = &last[peer * plan->wires + wire];
    if (*lane != PLAN_NO_STEP)
        plan_wait_for(plan, &plan->steps[*lane], PLAN_UNTIL_DONE);
    *lane = (int32_t)(plan->n_steps - 1);
}

void plan_from(struct plan *plan, enum plan_place place, uint64_t at) {
    add_source(plan, place)->at = at;
}

void plan_from_lane(struct plan *plan, int peer, int wire) {
    use_lane(plan, add_source(plan, PLAN_LANE), plan->last_pull, peer, wire);
}

void plan_to_out(struct plan *plan, uint64_t at) {
    add_destination(plan, PLAN_OUT)->at = at;
}

void plan_to_lane(struct plan *plan, int peer, int wire) {
    use_lane(plan, add_destination(plan, PLAN_LANE), plan->last_push, peer, wire);
}

void plan_wait_for(struct plan *plan, const struct plan_step *step, uint64_t ahead) {
    if (plan->n_waits == plan->max_waits) {
        plan->overflow = true;
        return;
    }
    struct plan_step *waiting = last_step(plan);
    plan->waits[plan->n_waits++] =
        (struct plan_wait){.step = (uint32_t)(step - plan->steps), .ahead = ahead};
    waiting->n_waits++;
}

void plan_label(struct plan *plan, uint16_t phase, uint64_t message_at) {
    last_step(plan)->phase = phase;
    last_step(plan)->message_at = message_at;
}

struct plan_part plan_share(uint64_t count, uint32_t element_bytes, int parts, int index) {
    uint64_t n = (uint64_t)parts, i = (uint64_t)index;
    uint64_t each = count / n, longer = count % n;
    uint64_t first = i * each + (i < longer ? i : longer);
    uint64_t length = each + (i < longer ? 1 : 0);
    return (struct plan_part){first * element_bytes, length * element_bytes};
}
