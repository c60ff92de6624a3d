/* SPDX-License-Identifier: MIT */
/* The checker's entry: who takes part, who owns which memory, and what a single step may look like.
 */
#include "plan/check_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

jackal_status check_fail(struct check *check, int rank, int64_t step, const char *format, ...) {
    char reason[256], where[32] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (step != CHECK_NO_STEP)
        snprintf(where, sizeof where, " step %" PRId64, step);
    const struct plan_request *request = &check->given->request;
    const struct plan *plan = check->ranks[rank].plan;
    return base_fail_peer(check->error, JACKAL_ERR_ARGUMENT, rank,
                          "plan of %s (%s) among %d ranks, %d wires, root %d, count %" PRIu64
                          " of %" PRIu32 " bytes, credits %" PRIu32 ", %s: rank %d%s: %s",
                          plan_operation_name(request->operation),
                          plan != NULL && plan->algorithm != NULL ? plan->algorithm : "no name",
                          request->size, request->wires, request->root, request->count,
                          request->element_bytes, check->given->credits,
                          check->given->in_place ? "in place" : "out of place", rank, where,
                          reason);
}

jackal_status check_no_memory(struct check *check) {
    return base_fail(check->error, JACKAL_ERR_MEMORY, "out of memory while checking a plan");
}

uint64_t check_address(const struct check_rank *rank, const struct plan_term *term) {
    return (term->place == PLAN_IN ? rank->in_base : rank->out_base) + term->at;
}

/* What the operation owns: the shapes of include/jackal/collective.h. */
static void own_buffers(struct check *check, int index) {
    const struct plan_request *request = &check->given->request;
    struct check_rank *rank = &check->ranks[index];
    uint64_t block = request->count * request->element_bytes;
    uint64_t all = block * (uint64_t)request->size, own = block * (uint64_t)index;
    bool sends = (request->operation == PLAN_SEND) == (index == request->rank);
    switch (request->operation) {
    case PLAN_ALL_REDUCE:
        *rank = (struct check_rank){.in_bytes = block, .out_bytes = block};
        break;
    case PLAN_ALL_GATHER:
        *rank = (struct check_rank){.in_bytes = block, .out_bytes = all, .in_base = own};
        break;
    case PLAN_REDUCE_SCATTER:
        *rank = (struct check_rank){.in_bytes = all, .out_bytes = block, .out_base = own};
        break;
    case PLAN_BROADCAST:
        sends = index == request->root;
        /* fall through */
    case PLAN_SEND:
    case PLAN_RECV:
        *rank = (struct check_rank){.in_bytes = sends ? block : 0, .out_bytes = sends ? 0 : block};
        break;
    default:
        *rank = (struct check_rank){.in_bytes = 0};
        break;
    }
    if (!check->given->in_place) {
        rank->in_base = 0;
        rank->out_base = rank->in_bytes;
    }
    uint64_t in_end = rank->in_base + rank->in_bytes, out_end = rank->out_base + rank->out_bytes;
    rank->memory_bytes = in_end > out_end ? in_end : out_end;
}

static bool takes_part(const struct plan_request *request, int rank) {
    if (request->operation != PLAN_SEND && request->operation != PLAN_RECV)
        return true;
    return rank == request->rank || rank == request->root;
}

static bool has_lane(const struct check *check, int rank, const struct plan_term *term) {
    return term->peer < check->size && term->peer != rank &&
           term->wire < check->given->request.wires && check->ranks[term->peer].plan != NULL;
}

static jackal_status check_place(struct check *check, int rank, uint32_t index,
                                 const struct plan_term *term, bool destination) {
    const struct check_rank *owner = &check->ranks[rank];
    uint64_t n_bytes = owner->plan->steps[index].n_bytes;
    if (term->place == PLAN_LANE) {
        if (has_lane(check, rank, term))
            return JACKAL_OK;
        return check_fail(check, rank, index, "there is no wire %d to rank %d", term->wire,
                          term->peer);
    }
    if (term->place != PLAN_OUT && (term->place != PLAN_IN || destination))
        return check_fail(check, rank, index, "place %d as %s", (int)term->place,
                          destination ? "a destination" : "a source");
    uint64_t owned = term->place == PLAN_IN ? owner->in_bytes : owner->out_bytes;
    if (term->at > owned || n_bytes > owned - term->at)
        return check_fail(check, rank, index,
                          "%" PRIu64 " bytes at byte %" PRIu64 " of %s, which has %" PRIu64,
                          n_bytes, term->at, term->place == PLAN_IN ? "in" : "out", owned);
    if (term->at % check->element_bytes != 0)
        return check_fail(check, rank, index, "byte %" PRIu64 " is in the middle of an element",
                          term->at);
    return JACKAL_OK;
}

/* A lane in two terms of the same kind: which of the two messages comes first is not said. */
static bool lane_twice(const struct plan_term *terms, uint16_t n_terms) {
    for (int i = 0; i < n_terms; i++)
        for (int j = 0; j < i; j++)
            if (terms[i].place == PLAN_LANE && terms[j].place == PLAN_LANE &&
                terms[i].peer == terms[j].peer && terms[i].wire == terms[j].wire)
                return true;
    return false;
}

static jackal_status check_step(struct check *check, int rank, uint32_t index) {
    const struct plan *plan = check->ranks[rank].plan;
    const struct plan_step *step = &plan->steps[index];
    if (step->n_bytes % check->element_bytes != 0)
        return check_fail(check, rank, index, "%" PRIu64 " bytes are no whole elements",
                          step->n_bytes);
    if (check->given->request.operation == PLAN_BARRIER && step->n_bytes != 0)
        return check_fail(check, rank, index, "a barrier moves no bytes");
    if (step->n_sources == 0 || (step->n_sources > 1 && !step->combine))
        return check_fail(check, rank, index, "%d sources and no operator", step->n_sources);
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < step->n_sources && status == JACKAL_OK; i++)
        status = check_place(check, rank, index, &step->sources[i], false);
    for (int i = 0; i < step->n_destinations && status == JACKAL_OK; i++)
        status = check_place(check, rank, index, &step->destinations[i], true);
    if (status != JACKAL_OK)
        return status;
    if (lane_twice(step->sources, step->n_sources) ||
        lane_twice(step->destinations, step->n_destinations))
        return check_fail(check, rank, index, "the same lane twice");
    for (int i = 0; i < step->n_waits; i++)
        if (step->waits[i].step >= plan->n_steps)
            return check_fail(check, rank, index, "waits for step %" PRIu32 " of %" PRIu32,
                              step->waits[i].step, plan->n_steps);
    return JACKAL_OK;
}

/* What every rank must have computed alike: `first` is any rank that takes part. */
static jackal_status check_agreement(struct check *check, int first, int rank) {
    const struct plan *plan = check->ranks[rank].plan, *other = check->ranks[first].plan;
    if (plan->overflow)
        return check_fail(check, rank, CHECK_NO_STEP, "the plan did not fit its storage");
    if (plan->queue >= PLAN_QUEUE_COUNT ||
        plan->granule_bytes != check->given->request.limits.payload_bytes[plan->queue] ||
        plan->granule_bytes == 0 || plan->granule_bytes % check->element_bytes != 0)
        return check_fail(check, rank, CHECK_NO_STEP,
                          "granules of %" PRIu64 " bytes on queue %d, which has other slots",
                          plan->granule_bytes, (int)plan->queue);
    if (plan->queue != other->queue || plan->total_bytes != other->total_bytes)
        return check_fail(check, rank, CHECK_NO_STEP,
                          "queue %d and %" PRIu64 " bytes in all, but rank %d has %d and %" PRIu64,
                          (int)plan->queue, plan->total_bytes, first, (int)other->queue,
                          other->total_bytes);
    return JACKAL_OK;
}

static jackal_status check_ranks(struct check *check) {
    int first = -1;
    for (int rank = 0; rank < check->size; rank++) {
        if (check->ranks[rank].plan == NULL)
            continue;
        first = first < 0 ? rank : first;
        jackal_status status = check_agreement(check, first, rank);
        for (uint32_t i = 0; i < check->ranks[rank].plan->n_steps && status == JACKAL_OK; i++)
            status = check_step(check, rank, i);
        if (status == JACKAL_OK)
            status = check_order(check, rank);
        if (status != JACKAL_OK)
            return status;
    }
    return check_run(check);
}

static jackal_status set_up(struct check *check, const struct plan *const *plans) {
    const struct plan_request *request = &check->given->request;
    uint64_t leaves = 0;
    for (int rank = 0; rank < check->size; rank++) {
        if (!takes_part(request, rank))
            continue;
        if (plans[rank] == NULL)
            return base_fail_peer(check->error, JACKAL_ERR_ARGUMENT, rank,
                                  "rank %d has no plan to check", rank);
        own_buffers(check, rank);
        check->ranks[rank].plan = plans[rank];
        if (check->ranks[rank].in_bytes / check->element_bytes > leaves)
            leaves = check->ranks[rank].in_bytes / check->element_bytes;
    }
    if (leaves > UINT32_MAX / 4 / (uint64_t)check->size)
        return base_fail(check->error, JACKAL_ERR_LIMIT,
                         "%" PRIu64 " elements on each of %d ranks are too many to check", leaves,
                         check->size);
    check->leaves_per_rank = leaves;
    check->terms.n_leaves = (uint32_t)(leaves * (uint64_t)check->size);
    return JACKAL_OK;
}

static bool case_is_sound(const struct plan_check_case *given) {
    const struct plan_request *request = &given->request;
    bool rooted = request->operation == PLAN_BROADCAST || request->operation == PLAN_SEND ||
                  request->operation == PLAN_RECV;
    bool point = rooted && request->operation != PLAN_BROADCAST;
    return request->operation < PLAN_OPERATION_COUNT && request->size >= 1 && request->wires >= 1 &&
           request->element_bytes >= 1 && given->credits >= 1 &&
           (!rooted || (request->root >= 0 && request->root < request->size)) &&
           (!point || (request->rank >= 0 && request->rank < request->size &&
                       request->rank != request->root));
}

jackal_status plan_check(const struct plan_check_case *given, const struct plan *const *plans,
                         struct base_error *error) {
    if (!case_is_sound(given))
        return base_fail(error, JACKAL_ERR_ARGUMENT, "this is no case for a plan check");
    struct check check = {.given = given,
                          .size = given->request.size,
                          .element_bytes = given->request.element_bytes,
                          .error = error};
    check.ranks = calloc((size_t)check.size, sizeof *check.ranks);
    if (check.ranks == NULL)
        return check_no_memory(&check);
    jackal_status status = set_up(&check, plans);
    if (status == JACKAL_OK)
        status = check_ranks(&check);
    check_terms_free(&check.terms);
    free(check.ranks);
    return status;
}

/* The row for the other end of a message, which is another operation. */
static const struct plan_row *other_end(const struct plan_row *row) {
    enum plan_operation wanted = row->operation == PLAN_SEND ? PLAN_RECV : PLAN_SEND;
    for (size_t i = 0; i < plan_n_rows; i++)
        if (plan_rows[i].operation == wanted && strcmp(plan_rows[i].algorithm, row->algorithm) == 0)
            return &plan_rows[i];
    return NULL;
}

static jackal_status build(const struct plan_row *row, const struct plan_request *request,
                           struct plan *plan, struct base_error *error) {
    if (row == NULL)
        return base_fail(error, JACKAL_ERR_UNSUPPORTED, "no row for the other end of a message");
    plan_reset(plan);
    plan->algorithm = row->algorithm;
    row->build(plan, request);
    if (plan->overflow)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "the %s plan for %s of rank %d among %d does not fit its storage",
                         row->algorithm, plan_operation_name(row->operation), request->rank,
                         request->size);
    return JACKAL_OK;
}

jackal_status plan_check_build(const struct plan_row *row, const struct plan_request *request,
                               struct plan *const *plans, struct base_error *error) {
    bool point = row->operation == PLAN_SEND || row->operation == PLAN_RECV;
    for (int rank = 0; rank < request->size; rank++) {
        struct plan_request own = *request;
        const struct plan_row *by = row;
        if (point && rank != request->rank && rank != request->root)
            continue;
        if (point && rank == request->root) {
            by = other_end(row);
            own.root = request->rank;
            own.operation = row->operation == PLAN_SEND ? PLAN_RECV : PLAN_SEND;
        }
        own.rank = rank;
        jackal_status status = build(by, &own, plans[rank], error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

jackal_status plan_check_row(const struct plan_row *row, const struct plan_check_case *given,
                             struct plan *const *plans, struct base_error *error) {
    struct plan_check_case reading = *given;
    reading.request.operation = row->operation;
    reading.canonical = row->canonical;
    jackal_status status = plan_check_build(row, &reading.request, plans, error);
    for (int in_place = 0; in_place < 2 && status == JACKAL_OK; in_place++) {
        reading.in_place = in_place == 1;
        status = plan_check(&reading, (const struct plan *const *)plans, error);
    }
    return status;
}
