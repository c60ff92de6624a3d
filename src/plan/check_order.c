/* SPDX-License-Identifier: MIT */
/*
 * Order on one rank, proved from its waits alone: what one step must have done before another may
 * handle its bytes up to b. Waits chain: if B needs C's progress c and C's bytes up to c need A's
 * progress a, B needs a. Rounding of progress to whole granules would only add to that; it is left
 * out.
 */
#include "plan/check_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DONE UINT64_MAX

/* A step's use of bytes [from, to) of memory, or of offsets [from, to) of one phase of a lane. */
struct use {
    uint64_t group; /* uses of different groups have nothing in common */
    uint64_t from, to;
    uint32_t step;
    bool writes;
};

struct order {
    struct check *check;
    int rank;
    const struct plan *plan;
    uint32_t *sorted; /* steps, each behind all that it waits for */
    uint64_t *need;   /* by step: progress that must be there; DONE = all of it */
    int64_t *last;    /* by lane: the step that used it last */
    struct use *uses;
    size_t n_uses;
};

static bool has_granules(const struct plan *plan, uint32_t step) {
    return plan->steps[step].n_bytes > 0 || plan->steps[step].always;
}

static uint64_t add(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The progress to ask for when all granules of a step are meant. */
static uint64_t whole(const struct plan_step *step) {
    return step->n_bytes > 0 ? step->n_bytes : 1;
}

static uint64_t progress_needed(const struct plan_step *waited, uint64_t progress) {
    return progress >= whole(waited) ? DONE : progress;
}

static void need_for(struct order *order, uint32_t step, uint64_t upto) {
    const struct plan_step *waiting = &order->plan->steps[step];
    for (int i = 0; i < waiting->n_waits; i++) {
        const struct plan_wait *wait = &waiting->waits[i];
        uint64_t need = progress_needed(&order->plan->steps[wait->step], add(upto, wait->ahead));
        if (need > order->need[wait->step])
            order->need[wait->step] = need;
    }
}

/* Whether `first` has made `progress` whenever `second` handles its bytes up to `upto`. */
static bool is_ordered(struct order *order, uint32_t first, uint64_t progress, uint32_t second,
                       uint64_t upto) {
    const struct plan *plan = order->plan;
    const struct plan_step *waiting = &plan->steps[second];
    for (int i = 0; i < waiting->n_waits; i++)
        if (waiting->waits[i].step == first && add(upto, waiting->waits[i].ahead) >= progress)
            return true;
    memset(order->need, 0, plan->n_steps * sizeof *order->need);
    need_for(order, second, upto);
    for (uint32_t i = plan->n_steps; i-- > 0;) {
        uint32_t step = order->sorted[i];
        uint64_t need = order->need[step];
        if (need > 0 && step != second && has_granules(plan, step))
            need_for(order, step, need == DONE ? plan->steps[step].n_bytes : need);
    }
    return order->need[first] >= progress;
}

/* Takes in passes every step whose waited-for steps were taken; normally one pass is enough. */
static jackal_status sort_steps(struct order *order) {
    const struct plan *plan = order->plan;
    bool *taken = calloc(plan->n_steps + 1, sizeof *taken);
    if (taken == NULL)
        return check_no_memory(order->check);
    uint32_t n_taken = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < plan->n_steps; i++) {
            bool ready = !taken[i];
            for (int j = 0; j < plan->steps[i].n_waits && ready; j++)
                ready = taken[plan->steps[i].waits[j].step];
            if (ready) {
                taken[i] = moved = true;
                order->sorted[n_taken++] = i;
            }
        }
    }
    uint32_t stuck = 0;
    while (stuck < plan->n_steps && taken[stuck])
        stuck++;
    free(taken);
    if (stuck < plan->n_steps)
        return check_fail(order->check, order->rank, stuck, "waits form a circle");
    return JACKAL_OK;
}

static int compare_uses(const void *a_p, const void *b_p) {
    const struct use *a = a_p, *b = b_p;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

static void sort_uses(struct order *order) {
    qsort(order->uses, order->n_uses, sizeof *order->uses, compare_uses);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static uint64_t lane_of(const struct order *order, const struct plan_term *term) {
    return (uint64_t)term->peer * (uint64_t)order->check->given->request.wires + term->wire;
}

/* The first granule of a step that uses a lane must come after the last one of the step before. */
static jackal_status check_lane_order(struct order *order, bool sending) {
    const struct plan *plan = order->plan;
    size_t n_lanes = (size_t)order->check->size * (size_t)order->check->given->request.wires;
    for (size_t i = 0; i < n_lanes; i++)
        order->last[i] = CHECK_NO_STEP;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        const struct plan_term *terms = sending ? step->destinations : step->sources;
        int n_terms = sending ? step->n_destinations : step->n_sources;
        uint64_t upto = step->n_bytes < plan->granule_bytes ? step->n_bytes : plan->granule_bytes;
        for (int j = 0; j < n_terms && has_granules(plan, i); j++) {
            if (terms[j].place != PLAN_LANE)
                continue;
            int64_t *last = &order->last[lane_of(order, &terms[j])];
            if (*last != CHECK_NO_STEP &&
                !is_ordered(order, (uint32_t)*last, whole(&plan->steps[*last]), i, upto))
                return check_fail(order->check, order->rank, i,
                                  "uses the %s lane of wire %d and rank %d without a wait for step "
                                  "%" PRId64 ", which uses it before",
                                  sending ? "send" : "receive", terms[j].wire, terms[j].peer,
                                  *last);
            *last = i;
        }
    }
    return JACKAL_OK;
}

/* No two messages of a lane have the same phase and offset. */
static jackal_status check_labels(struct order *order) {
    const struct plan *plan = order->plan;
    order->n_uses = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        for (int j = 0; j < step->n_destinations && has_granules(plan, i); j++)
            if (step->destinations[j].place == PLAN_LANE)
                order->uses[order->n_uses++] = (struct use){
                    .group = lane_of(order, &step->destinations[j]) << 16 | step->phase,
                    .from = step->message_at,
                    .to = add(step->message_at, step->n_bytes > 0 ? step->n_bytes : 1),
                    .step = i};
    }
    sort_uses(order);
    for (size_t i = 1; i < order->n_uses; i++) {
        const struct use *a = &order->uses[i - 1], *b = &order->uses[i];
        if (a->group == b->group && b->from < a->to)
            return check_fail(order->check, order->rank, b->step,
                              "its messages have the phase and offsets of those of step %" PRIu32
                              " on the same lane",
                              a->step);
    }
    return JACKAL_OK;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Whether each byte that both touch is touched by `a` first. */
static bool comes_first(struct order *order, const struct use *a, const struct use *b) {
    uint64_t granule = order->plan->granule_bytes, n_bytes = b->to - b->from;
    for (uint64_t at = 0; at < n_bytes; at += granule) {
        uint64_t end = n_bytes - at < granule ? n_bytes : at + granule;
        uint64_t from = b->from + at, to = b->from + end;
        if (to <= a->from || from >= a->to)
            continue;
        uint64_t progress = (to < a->to ? to : a->to) - a->from;
        if (!is_ordered(order, a->step, progress, b->step, end))
            return false;
    }
    return true;
}

static jackal_status check_race(struct order *order, const struct use *a, const struct use *b) {
    if (!a->writes && !b->writes)
        return JACKAL_OK;
    if (a->step != b->step) {
        if (comes_first(order, a, b) || comes_first(order, b, a))
            return JACKAL_OK;
    } else if (a->writes != b->writes && a->from == b->from) {
        return JACKAL_OK; /* reads and writes the same range, granule by granule */
    }
    uint64_t byte = a->from > b->from ? a->from : b->from;
    const struct check_rank *owner = &order->check->ranks[order->rank];
    bool in_out = byte >= owner->out_base && byte - owner->out_base < owner->out_bytes;
    uint64_t base = in_out ? owner->out_base : owner->in_base;
    return check_fail(order->check, order->rank, b->step,
                      "%s element %" PRIu64 " of %s, which step %" PRIu32
                      " %s, and no wait says which comes first",
                      b->writes ? "writes" : "reads", (byte - base) / order->check->element_bytes,
                      in_out ? "out" : "in", a->step, a->writes ? "writes" : "reads");
}

static void add_use(struct order *order, uint32_t step, const struct plan_term *term, bool writes) {
    if (term->place == PLAN_LANE || order->plan->steps[step].n_bytes == 0)
        return;
    uint64_t from = check_address(&order->check->ranks[order->rank], term);
    order->uses[order->n_uses++] = (struct use){.from = from,
                                                .to = from + order->plan->steps[step].n_bytes,
                                                .step = step,
                                                .writes = writes};
}

static jackal_status check_memory(struct order *order) {
    const struct plan *plan = order->plan;
    order->n_uses = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        for (int j = 0; j < plan->steps[i].n_sources; j++)
            add_use(order, i, &plan->steps[i].sources[j], false);
        for (int j = 0; j < plan->steps[i].n_destinations; j++)
            add_use(order, i, &plan->steps[i].destinations[j], true);
    }
    sort_uses(order);
    for (size_t i = 0; i < order->n_uses; i++)
        for (size_t j = i + 1; j < order->n_uses && order->uses[j].from < order->uses[i].to; j++) {
            jackal_status status = check_race(order, &order->uses[i], &order->uses[j]);
            if (status != JACKAL_OK)
                return status;
        }
    return JACKAL_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static jackal_status allocate(struct order *order) {
    const struct plan *plan = order->plan;
    size_t n_lanes = (size_t)order->check->size * (size_t)order->check->given->request.wires;
    size_t n_terms = 1;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        n_terms += (size_t)plan->steps[i].n_sources + plan->steps[i].n_destinations;
    order->sorted = calloc(plan->n_steps + 1, sizeof *order->sorted);
    order->need = calloc(plan->n_steps + 1, sizeof *order->need);
    order->last = calloc(n_lanes, sizeof *order->last);
    order->uses = calloc(n_terms, sizeof *order->uses);
    if (order->sorted == NULL || order->need == NULL || order->last == NULL || order->uses == NULL)
        return check_no_memory(order->check);
    return JACKAL_OK;
}

jackal_status check_order(struct check *check, int rank) {
    struct order order = {.check = check, .rank = rank, .plan = check->ranks[rank].plan};
    jackal_status status = allocate(&order);
    if (status == JACKAL_OK)
        status = sort_steps(&order);
    if (status == JACKAL_OK)
        status = check_lane_order(&order, true);
    if (status == JACKAL_OK)
        status = check_lane_order(&order, false);
    if (status == JACKAL_OK)
        status = check_labels(&order);
    if (status == JACKAL_OK)
        status = check_memory(&order);
    free(order.sorted);
    free(order.need);
    free(order.last);
    free(order.uses);
    return status;
}
