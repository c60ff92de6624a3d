/* SPDX-License-Identifier: MIT */
#include "mutate.h"

#include "support.h"

#include <stdio.h>
#include <string.h>

/* What is changed; `random` is drawn from for every choice. */
struct change {
    struct plan *plan;
    const struct plan_request *request;
    struct plan_step *step;
    uint64_t *random;
};

static uint64_t below(struct change *change, size_t bound) {
    return support_below(change->random, bound);
}

/* A term of the step, source or destination; NULL if it has none. */
static struct plan_term *any_term(struct change *change) {
    struct plan_step *step = change->step;
    uint64_t n = (uint64_t)step->n_sources + step->n_destinations;
    if (n == 0)
        return NULL;
    uint64_t i = below(change, n);
    return i < step->n_sources ? &step->sources[i] : &step->destinations[i - step->n_sources];
}

/* A distance that is not 0, mostly an element or a granule, to either side. */
static uint64_t any_shift(struct change *change) {
    uint64_t shifts[] = {change->request->element_bytes, change->plan->granule_bytes, 1,
                         2 * (uint64_t)change->request->element_bytes};
    uint64_t shift = shifts[below(change, 4)];
    return below(change, 2) == 0 ? shift : 0 - shift;
}

static bool drop_step(struct change *change) {
    struct plan *plan = change->plan;
    uint32_t gone = (uint32_t)(change->step - plan->steps);
    memmove(change->step, change->step + 1, (plan->n_steps - gone - 1) * sizeof *plan->steps);
    plan->n_steps--;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        uint16_t n = 0;
        for (int j = 0; j < step->n_waits; j++) {
            struct plan_wait wait = step->waits[j];
            if (wait.step == gone)
                continue;
            wait.step -= wait.step > gone;
            step->waits[n++] = wait;
        }
        step->n_waits = n;
    }
    return true;
}

/* Half of the time waits go with their steps, else they stay with the place in the list. */
static bool swap_steps(struct change *change) {
    struct plan *plan = change->plan;
    uint32_t a = (uint32_t)(change->step - plan->steps);
    uint32_t b = (uint32_t)below(change, plan->n_steps);
    if (a == b)
        return false;
    struct plan_step swap = plan->steps[a];
    plan->steps[a] = plan->steps[b];
    plan->steps[b] = swap;
    if (below(change, 2) == 0)
        return true;
    for (uint32_t i = 0; i < plan->n_waits; i++)
        if (plan->waits[i].step == a || plan->waits[i].step == b)
            plan->waits[i].step = plan->waits[i].step == a ? b : a;
    return true;
}

static bool shift_term(struct change *change) {
    struct plan_term *term = any_term(change);
    if (term == NULL || term->place == PLAN_LANE)
        return false;
    term->at += any_shift(change);
    return true;
}

static bool shift_label(struct change *change) {
    if (below(change, 2) == 0)
        change->step->message_at += any_shift(change);
    else
        change->step->phase ^= 1;
    return true;
}

static bool change_lane(struct change *change) {
    struct plan_term *term = any_term(change);
    if (term == NULL || term->place != PLAN_LANE)
        return false;
    uint16_t peer = term->peer, wire = term->wire;
    if (below(change, 2) == 0)
        term->peer = (uint16_t)below(change, (size_t)change->request->size);
    else
        term->wire = (uint16_t)below(change, (size_t)change->request->wires + 1);
    return term->peer != peer || term->wire != wire;
}

static bool change_place(struct change *change) {
    struct plan_term *term = any_term(change);
    if (term == NULL || term->place == PLAN_LANE)
        return false;
    term->place = term->place == PLAN_IN ? PLAN_OUT : PLAN_IN;
    return true;
}

static bool drop_wait(struct change *change) {
    struct plan_step *step = change->step;
    if (step->n_waits == 0)
        return false;
    step->waits[below(change, step->n_waits)] = step->waits[step->n_waits - 1];
    step->n_waits--;
    return true;
}

static bool change_wait(struct change *change) {
    struct plan_step *step = change->step;
    if (step->n_waits == 0)
        return false;
    struct plan_wait *wait = &step->waits[below(change, step->n_waits)], old = *wait;
    if (below(change, 2) == 0)
        wait->ahead = wait->ahead == PLAN_UNTIL_DONE ? 0 : PLAN_UNTIL_DONE;
    else
        wait->step = (uint32_t)below(change, change->plan->n_steps);
    return wait->step != old.step || wait->ahead != old.ahead;
}

static bool shorten(struct change *change) {
    if (change->step->n_bytes == 0)
        return false;
    uint64_t by[] = {change->request->element_bytes, 1, change->step->n_bytes};
    uint64_t less = by[below(change, 3)];
    change->step->n_bytes -= less < change->step->n_bytes ? less : change->step->n_bytes;
    return true;
}

static bool lengthen(struct change *change) {
    change->step->n_bytes += change->request->element_bytes;
    return true;
}

static bool permute_sources(struct change *change) {
    struct plan_step *step = change->step;
    if (step->n_sources < 2)
        return false;
    struct plan_term *a = &step->sources[below(change, step->n_sources)];
    struct plan_term *b = &step->sources[below(change, step->n_sources)];
    struct plan_term swap = *a;
    *a = *b;
    *b = swap;
    return a != b;
}

static bool flip_combine(struct change *change) {
    change->step->combine = !change->step->combine;
    return true;
}

static bool flip_always(struct change *change) {
    change->step->always = !change->step->always;
    return true;
}

static bool drop_source(struct change *change) {
    struct plan_step *step = change->step;
    if (step->n_sources == 0)
        return false;
    step->sources[below(change, step->n_sources)] = step->sources[step->n_sources - 1];
    step->n_sources--;
    return true;
}

static bool drop_destination(struct change *change) {
    struct plan_step *step = change->step;
    if (step->n_destinations == 0)
        return false;
    step->destinations[below(change, step->n_destinations)] =
        step->destinations[step->n_destinations - 1];
    step->n_destinations--;
    return true;
}

static bool repeat_step(struct change *change) {
    if (change->plan->n_steps == change->plan->max_steps)
        return false;
    change->plan->steps[change->plan->n_steps++] = *change->step;
    return true;
}

static bool change_plan(struct change *change) {
    struct plan *plan = change->plan;
    if (below(change, 2) == 0) {
        plan->total_bytes += change->request->element_bytes;
        return true;
    }
    plan->queue = plan->queue == PLAN_SMALL ? PLAN_BULK : PLAN_SMALL;
    plan->granule_bytes = change->request->limits.payload_bytes[plan->queue];
    return true;
}

static const struct {
    const char *name;
    bool (*change)(struct change *change);
} kinds[] = {
    {"step dropped", drop_step},
    {"two steps swapped", swap_steps},
    {"term shifted", shift_term},
    {"label shifted", shift_label},
    {"peer or wire changed", change_lane},
    {"place changed", change_place},
    {"wait dropped", drop_wait},
    {"wait changed", change_wait},
    {"n_bytes shortened", shorten},
    {"n_bytes lengthened", lengthen},
    {"sources permuted", permute_sources},
    {"combine flipped", flip_combine},
    {"always flipped", flip_always},
    {"source dropped", drop_source},
    {"destination dropped", drop_destination},
    {"step repeated", repeat_step},
    {"queue or total changed", change_plan},
};

const char *mutate(struct plan *plan, const struct plan_request *request, uint64_t *random) {
    static char text[128];
    if (plan->n_steps == 0)
        return NULL;
    struct change change = {.plan = plan, .request = request, .random = random};
    uint32_t index = (uint32_t)support_below(random, plan->n_steps);
    size_t kind = support_below(random, sizeof kinds / sizeof kinds[0]);
    change.step = &plan->steps[index];
    snprintf(text, sizeof text, "%s at step %u", kinds[kind].name, (unsigned)index);
    return kinds[kind].change(&change) ? text : NULL;
}
