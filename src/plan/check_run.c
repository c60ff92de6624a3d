/* SPDX-License-Identifier: MIT */
/*
 * One maximal schedule: over all ranks and steps in turn, every granule that can be handled is,
 * until a turn moves nothing. Then nothing may be left to do, lanes must be empty and `out` must
 * hold what the operation promises.
 */
#include "plan/check_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct message {
    uint32_t step; /* of the sender */
    uint16_t phase;
    uint64_t at, n_bytes, total_bytes;
    uint32_t *values;
    uint64_t *begun;
};

struct lane {
    struct message *ring; /* `credits` of them */
    uint32_t *values;     /* of all messages of the ring */
    uint64_t *begun;
    uint32_t head, n;
};

struct run_step {
    uint64_t n_granules, handled;
    bool done;
    uint64_t *begun;
};

struct run_rank {
    uint32_t *memory; /* a term for each element */
    struct run_step *steps;
    uint32_t *active; /* the steps that are not done, in list order */
    uint32_t n_active;
    uint64_t *begun; /* barrier: ranks that must have begun before this one can end */
};

struct run {
    struct check *check;
    struct run_rank *ranks;
    struct lane *lanes; /* [(from · size + to) · wires + wire] */
    size_t n_lanes;
    uint64_t max_elements; /* of a message */
    size_t begun_words;    /* 0 unless this is a barrier */
    uint32_t *values;      /* what the granule in hand comes to */
    uint32_t *column;      /* the sources of one element */
    uint64_t *begun;       /* ranks that must have begun before the granule in hand */
    uint32_t *seen;        /* how often a leaf occurs in a term; only where grouping is free */
};

static const struct plan *plan_of(const struct run *run, int rank) {
    return run->check->ranks[rank].plan;
}

static struct lane *lane_between(const struct run *run, int from, int to, int wire) {
    const struct check *check = run->check;
    return &run->lanes[(from * check->size + to) * check->given->request.wires + wire];
}

static struct lane *receive_lane(const struct run *run, int rank, const struct plan_term *term) {
    return term->place == PLAN_LANE ? lane_between(run, term->peer, rank, term->wire) : NULL;
}

static struct lane *send_lane(const struct run *run, int rank, const struct plan_term *term) {
    return term->place == PLAN_LANE ? lane_between(run, rank, term->peer, term->wire) : NULL;
}

/* ---- storage -------------------------------------------------------------------------------- */

static bool allocate_rank(struct run *run, int index) {
    const struct check_rank *of = &run->check->ranks[index];
    struct run_rank *rank = &run->ranks[index];
    uint32_t n_steps = of->plan == NULL ? 0 : of->plan->n_steps;
    rank->memory = calloc(of->memory_bytes / run->check->element_bytes + 1, sizeof *rank->memory);
    rank->steps = calloc(n_steps + 1, sizeof *rank->steps);
    rank->active = calloc(n_steps + 1, sizeof *rank->active);
    rank->begun = calloc((n_steps + 1) * run->begun_words + 1, sizeof *rank->begun);
    if (rank->memory == NULL || rank->steps == NULL || rank->active == NULL || rank->begun == NULL)
        return false;
    for (uint32_t i = 0; i < n_steps; i++) {
        const struct plan_step *step = &of->plan->steps[i];
        rank->steps[i].n_granules = plan_granules(of->plan, step);
        rank->steps[i].begun = rank->begun + (i + 1) * run->begun_words;
        rank->active[rank->n_active++] = i;
        uint64_t n_bytes =
            step->n_bytes < of->plan->granule_bytes ? step->n_bytes : of->plan->granule_bytes;
        if (n_bytes / run->check->element_bytes > run->max_elements)
            run->max_elements = n_bytes / run->check->element_bytes;
    }
    return true;
}

static bool allocate(struct run *run) {
    struct check *check = run->check;
    size_t size = (size_t)check->size;
    run->n_lanes = size * size * (size_t)check->given->request.wires;
    run->begun_words =
        check->given->request.operation == PLAN_BARRIER ? ((size_t)check->size + 63) / 64 : 0;
    run->ranks = calloc(size, sizeof *run->ranks);
    run->lanes = calloc(run->n_lanes, sizeof *run->lanes);
    run->begun = calloc(run->begun_words + 1, sizeof *run->begun);
    run->column = calloc(UINT16_MAX, sizeof *run->column);
    if (run->ranks == NULL || run->lanes == NULL || run->begun == NULL || run->column == NULL)
        return false;
    for (int rank = 0; rank < check->size; rank++)
        if (!allocate_rank(run, rank))
            return false;
    run->values = calloc(run->max_elements + 1, sizeof *run->values);
    run->seen = calloc(check->given->canonical ? 1 : check->terms.n_leaves + 1, sizeof *run->seen);
    return run->values != NULL && run->seen != NULL;
}

/* Most wires between most ranks are never used, so a lane gets its memory with its first message.
 */
static bool open_lane(const struct run *run, struct lane *lane) {
    if (lane->ring != NULL)
        return true;
    uint32_t credits = run->check->given->credits;
    lane->ring = calloc(credits, sizeof *lane->ring);
    lane->values = calloc(credits * run->max_elements + 1, sizeof *lane->values);
    lane->begun = calloc(credits * run->begun_words + 1, sizeof *lane->begun);
    if (lane->ring == NULL || lane->values == NULL || lane->begun == NULL)
        return false;
    for (uint32_t i = 0; i < credits; i++) {
        lane->ring[i].values = lane->values + i * run->max_elements;
        lane->ring[i].begun = lane->begun + i * run->begun_words;
    }
    return true;
}

static void close_lane(struct lane *lane) {
    free(lane->ring);
    free(lane->values);
    free(lane->begun);
}

static void free_run(struct run *run) {
    for (size_t i = 0; run->lanes != NULL && i < run->n_lanes; i++)
        close_lane(&run->lanes[i]);
    for (int rank = 0; run->ranks != NULL && rank < run->check->size; rank++) {
        free(run->ranks[rank].memory);
        free(run->ranks[rank].steps);
        free(run->ranks[rank].active);
        free(run->ranks[rank].begun);
    }
    free(run->ranks);
    free(run->lanes);
    free(run->values);
    free(run->column);
    free(run->begun);
    free(run->seen);
}

/* ---- one granule ---------------------------------------------------------------------------- */

/* The granule in hand: bytes [at, at + n_bytes) of step `index` of `rank`. */
struct granule {
    int rank;
    uint32_t index;
    const struct plan_step *step;
    uint64_t at, n_bytes;
};

static struct granule next_granule(const struct run *run, int rank, uint32_t index) {
    const struct plan *plan = plan_of(run, rank);
    const struct plan_step *step = &plan->steps[index];
    uint64_t at = run->ranks[rank].steps[index].handled * plan->granule_bytes;
    uint64_t left = at < step->n_bytes ? step->n_bytes - at : 0;
    return (struct granule){.rank = rank,
                            .index = index,
                            .step = step,
                            .at = at,
                            .n_bytes = left < plan->granule_bytes ? left : plan->granule_bytes};
}

/* An empty step counts when it is done, though a progress of 0 may be all that is asked of it. */
static bool is_waited(const struct run *run, const struct granule *granule,
                      const struct plan_wait *wait) {
    const struct run_step *waited = &run->ranks[granule->rank].steps[wait->step];
    uint64_t progress = waited->handled * plan_of(run, granule->rank)->granule_bytes;
    uint64_t upto = granule->at + granule->n_bytes;
    return waited->done || (wait->ahead <= UINT64_MAX - upto && progress >= upto + wait->ahead &&
                            plan_of(run, granule->rank)->steps[wait->step].n_bytes > 0);
}

/* What holds the granule back: NULL if nothing does, else a text with the number `*what_p`. */
static const char *held_back_by(const struct run *run, const struct granule *granule,
                                uint32_t *what_p) {
    const struct plan_step *step = granule->step;
    for (int i = 0; i < step->n_waits; i++)
        if (!is_waited(run, granule, &step->waits[i])) {
            *what_p = step->waits[i].step;
            return "waits for step";
        }
    if (run->ranks[granule->rank].steps[granule->index].n_granules == 0)
        return NULL;
    for (int i = 0; i < step->n_sources; i++) {
        const struct lane *lane = receive_lane(run, granule->rank, &step->sources[i]);
        *what_p = step->sources[i].peer;
        if (lane != NULL && lane->n == 0)
            return "waits for a message from rank";
    }
    for (int i = 0; i < step->n_destinations; i++) {
        const struct lane *lane = send_lane(run, granule->rank, &step->destinations[i]);
        *what_p = step->destinations[i].peer;
        if (lane != NULL && lane->n == run->check->given->credits)
            return "waits for a credit from rank";
    }
    return NULL;
}

/* Both ends computed a message from their own plans; they must agree on all that a header has. */
static jackal_status check_message(struct run *run, const struct granule *granule,
                                   const struct plan_term *source) {
    const struct lane *lane = receive_lane(run, granule->rank, source);
    const struct message *message = &lane->ring[lane->head];
    uint64_t at = granule->step->message_at + granule->at;
    uint64_t total_bytes = plan_of(run, granule->rank)->total_bytes;
    if (message->phase == granule->step->phase && message->at == at &&
        message->n_bytes == granule->n_bytes && message->total_bytes == total_bytes)
        return JACKAL_OK;
    return check_fail(
        run->check, granule->rank, granule->index,
        "expects phase %d, %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64 "; step %" PRIu32
        " of rank %d sent phase %d, %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64,
        granule->step->phase, granule->n_bytes, at, total_bytes, message->step, source->peer,
        message->phase, message->n_bytes, message->at, message->total_bytes);
}

/* The elements of a source, and for a lane the ranks that its message depends on. */
static const uint32_t *look_at(struct run *run, const struct granule *granule,
                               const struct plan_term *source) {
    const struct lane *lane = receive_lane(run, granule->rank, source);
    if (lane == NULL)
        return run->ranks[granule->rank].memory +
               (check_address(&run->check->ranks[granule->rank], source) + granule->at) /
                   run->check->element_bytes;
    const struct message *message = &lane->ring[lane->head];
    for (size_t i = 0; i < run->begun_words; i++)
        run->begun[i] |= message->begun[i];
    return message->values;
}

/*
 * run->values = op(sources). Source by source would need a table of columns; element by element
 * needs one column, filled anew.
 */
static jackal_status combine(struct run *run, const struct granule *granule) {
    const struct plan_step *step = granule->step;
    uint64_t n_elements = granule->n_bytes / run->check->element_bytes;
    for (int j = 0; j < step->n_sources; j++) {
        if (step->sources[j].place == PLAN_LANE) {
            jackal_status status = check_message(run, granule, &step->sources[j]);
            if (status != JACKAL_OK)
                return status;
        }
        look_at(run, granule, &step->sources[j]);
    }
    for (uint64_t i = 0; i < n_elements; i++) {
        for (int j = 0; j < step->n_sources; j++) {
            run->column[j] = look_at(run, granule, &step->sources[j])[i];
            if (run->column[j] == CHECK_UNWRITTEN)
                return check_fail(
                    run->check, granule->rank, granule->index,
                    "reads element %" PRIu64 " of out before anything was written there",
                    (step->sources[j].at + granule->at) / run->check->element_bytes + i);
        }
        run->values[i] = run->column[0];
        if (step->combine) {
            run->values[i] = check_combine(&run->check->terms, run->column, step->n_sources);
            if (run->values[i] == CHECK_UNWRITTEN)
                return check_no_memory(run->check);
        }
    }
    return JACKAL_OK;
}

static jackal_status push(struct run *run, const struct granule *granule,
                          const struct plan_term *destination) {
    struct lane *lane = send_lane(run, granule->rank, destination);
    size_t n_elements = granule->n_bytes / run->check->element_bytes;
    if (lane == NULL) {
        uint64_t address = check_address(&run->check->ranks[granule->rank], destination);
        memcpy(run->ranks[granule->rank].memory +
                   (address + granule->at) / run->check->element_bytes,
               run->values, n_elements * sizeof *run->values);
        return JACKAL_OK;
    }
    if (!open_lane(run, lane))
        return check_no_memory(run->check);
    struct message *message = &lane->ring[(lane->head + lane->n) % run->check->given->credits];
    message->step = granule->index;
    message->phase = granule->step->phase;
    message->at = granule->step->message_at + granule->at;
    message->n_bytes = granule->n_bytes;
    message->total_bytes = plan_of(run, granule->rank)->total_bytes;
    memcpy(message->values, run->values, n_elements * sizeof *run->values);
    memcpy(message->begun, run->begun, run->begun_words * sizeof *run->begun);
    lane->n++;
    return JACKAL_OK;
}

/* Ranks that have begun when this granule is handled: one's own, and those of what it waited for.
 */
static void gather_begun(struct run *run, const struct granule *granule) {
    if (run->begun_words == 0)
        return;
    const struct run_rank *rank = &run->ranks[granule->rank];
    memset(run->begun, 0, run->begun_words * sizeof *run->begun);
    run->begun[granule->rank / 64] |= UINT64_C(1) << (granule->rank % 64);
    for (int i = 0; i < granule->step->n_waits; i++) {
        const struct plan_wait *wait = &granule->step->waits[i];
        /* Steps of a barrier have 0 bytes: a progress of 0 is there from the start. */
        for (size_t j = 0; j < run->begun_words && wait->ahead > 0; j++)
            run->begun[j] |= rank->steps[wait->step].begun[j];
    }
}

static void keep_begun(struct run *run, const struct granule *granule) {
    struct run_rank *rank = &run->ranks[granule->rank];
    for (size_t i = 0; i < run->begun_words; i++) {
        rank->steps[granule->index].begun[i] |= run->begun[i];
        rank->begun[i] |= run->begun[i];
    }
}

static jackal_status handle(struct run *run, const struct granule *granule) {
    const struct plan_step *step = granule->step;
    gather_begun(run, granule);
    jackal_status status = combine(run, granule);
    for (int i = 0; i < step->n_destinations && status == JACKAL_OK; i++)
        status = push(run, granule, &step->destinations[i]);
    if (status != JACKAL_OK)
        return status;
    for (int i = 0; i < step->n_sources; i++) {
        struct lane *lane = receive_lane(run, granule->rank, &step->sources[i]);
        if (lane == NULL)
            continue;
        lane->head = (lane->head + 1) % run->check->given->credits;
        lane->n--;
    }
    keep_begun(run, granule);
    run->ranks[granule->rank].steps[granule->index].handled++;
    return JACKAL_OK;
}

/* ---- the schedule --------------------------------------------------------------------------- */

static jackal_status advance_step(struct run *run, int rank, uint32_t index, bool *moved_p) {
    struct run_step *step = &run->ranks[rank].steps[index];
    uint32_t what;
    for (;;) {
        struct granule granule = next_granule(run, rank, index);
        if (step->handled == step->n_granules && step->n_granules > 0) {
            step->done = true;
            return JACKAL_OK;
        }
        if (held_back_by(run, &granule, &what) != NULL)
            return JACKAL_OK;
        *moved_p = true;
        if (step->n_granules == 0) {
            step->done = true;
            return JACKAL_OK;
        }
        jackal_status status = handle(run, &granule);
        if (status != JACKAL_OK)
            return status;
    }
}

static jackal_status advance_rank(struct run *run, int index, bool *moved_p) {
    struct run_rank *rank = &run->ranks[index];
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < rank->n_active; i++) {
        jackal_status status = advance_step(run, index, rank->active[i], moved_p);
        if (status != JACKAL_OK)
            return status;
        if (!rank->steps[rank->active[i]].done)
            rank->active[n_left++] = rank->active[i];
    }
    rank->n_active = n_left;
    return JACKAL_OK;
}

static jackal_status advance_all(struct run *run) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < run->check->size; rank++) {
            jackal_status status = advance_rank(run, rank, &moved);
            if (status != JACKAL_OK)
                return status;
        }
    }
    return JACKAL_OK;
}

static jackal_status check_ended(struct run *run) {
    for (int rank = 0; rank < run->check->size; rank++) {
        if (run->ranks[rank].n_active == 0)
            continue;
        uint32_t what = 0;
        struct granule granule = next_granule(run, rank, run->ranks[rank].active[0]);
        const char *why = held_back_by(run, &granule, &what);
        return check_fail(run->check, rank, granule.index,
                          "does not end: after %" PRIu64 " of %" PRIu64 " granules it %s %" PRIu32,
                          run->ranks[rank].steps[granule.index].handled,
                          run->ranks[rank].steps[granule.index].n_granules, why, what);
    }
    for (size_t i = 0; i < run->n_lanes; i++) {
        if (run->lanes[i].n == 0)
            continue;
        size_t wires = (size_t)run->check->given->request.wires, size = (size_t)run->check->size;
        const struct message *message = &run->lanes[i].ring[run->lanes[i].head];
        return check_fail(run->check, (int)(i / wires / size), message->step,
                          "its message of phase %d at %" PRIu64
                          " is never taken by rank %zu on wire %zu",
                          message->phase, message->at, i / wires % size, i % wires);
    }
    return JACKAL_OK;
}

/* ---- what must come out --------------------------------------------------------------------- */

static uint32_t leaf(const struct check *check, int rank, uint64_t element) {
    return 1 + (uint32_t)((uint64_t)rank * check->leaves_per_rank + element);
}

static void fill_inputs(struct run *run) {
    for (int rank = 0; rank < run->check->size; rank++) {
        const struct check_rank *of = &run->check->ranks[rank];
        uint64_t n_elements = of->in_bytes / run->check->element_bytes;
        uint32_t *in = run->ranks[rank].memory + of->in_base / run->check->element_bytes;
        for (uint64_t i = 0; i < n_elements; i++)
            in[i] = leaf(run->check, rank, i);
    }
}

/* A copy of one input element is promised; else it is a combination, and false is returned. */
static bool is_copy(const struct check *check, uint64_t element, uint32_t *leaf_p) {
    const struct plan_request *request = &check->given->request;
    switch (request->operation) {
    case PLAN_ALL_GATHER:
        *leaf_p = leaf(check, (int)(element / request->count), element % request->count);
        return true;
    case PLAN_BROADCAST:
    case PLAN_RECV:
        *leaf_p = leaf(check, request->root, element);
        return true;
    case PLAN_SEND:
        *leaf_p = leaf(check, request->rank, element);
        return true;
    default:
        return false;
    }
}

/* Element `element` of all inputs, each exactly once and nothing else. */
static bool is_each_once(struct run *run, uint32_t term, uint64_t element) {
    const struct check *check = run->check;
    memset(run->seen, 0, check->terms.n_leaves * sizeof *run->seen);
    if (term <= check->terms.n_leaves || !check_count_leaves(&check->terms, term, run->seen))
        return false;
    for (uint32_t i = 0; i < check->terms.n_leaves; i++)
        if (run->seen[i] != (i % check->leaves_per_rank == element ? 1 : 0))
            return false;
    return true;
}

static jackal_status check_element(struct run *run, int rank, uint64_t element, uint32_t term) {
    struct check *check = run->check;
    uint64_t in_element = element;
    uint32_t wanted;
    if (check->given->request.operation == PLAN_REDUCE_SCATTER)
        in_element += (uint64_t)rank * check->given->request.count;
    if (is_copy(check, element, &wanted)) {
        if (term == wanted)
            return JACKAL_OK;
        return check_fail(check, rank, CHECK_NO_STEP,
                          "element %" PRIu64 " of out is not the input that belongs there (%s)",
                          element, term == CHECK_UNWRITTEN ? "nothing was written" : "another");
    }
    for (int i = 0; i < check->size; i++)
        run->column[i] = leaf(check, i, in_element);
    wanted = check_combine(&check->terms, run->column, (uint32_t)check->size);
    if (wanted == CHECK_UNWRITTEN)
        return check_no_memory(check);
    if (term == wanted || (!check->given->canonical && is_each_once(run, term, in_element)))
        return JACKAL_OK;
    return check_fail(check, rank, CHECK_NO_STEP,
                      "element %" PRIu64 " of out is not the combination of all inputs%s", element,
                      check->given->canonical ? " in one, in rank order" : ", each once");
}

static jackal_status check_out(struct run *run, int rank) {
    const struct check_rank *of = &run->check->ranks[rank];
    const uint32_t *out = run->ranks[rank].memory + of->out_base / run->check->element_bytes;
    for (uint64_t i = 0; i < of->out_bytes / run->check->element_bytes; i++) {
        jackal_status status = check_element(run, rank, i, out[i]);
        if (status != JACKAL_OK)
            return status;
        /* Any grouping will do, but all ranks must have the same. */
        uint32_t term = out[i];
        if (run->check->given->request.operation == PLAN_ALL_REDUCE &&
            term !=
                run->ranks[0].memory[run->check->ranks[0].out_base / run->check->element_bytes + i])
            return check_fail(run->check, rank, CHECK_NO_STEP,
                              "element %" PRIu64 " of out is grouped otherwise than on rank 0", i);
    }
    for (int other = 0; run->begun_words > 0 && other < run->check->size; other++)
        if (other != rank && (run->ranks[rank].begun[other / 64] >> (other % 64) & 1) == 0)
            return check_fail(run->check, rank, CHECK_NO_STEP,
                              "can leave the barrier before rank %d has come", other);
    return JACKAL_OK;
}

jackal_status check_run(struct check *check) {
    struct run run = {.check = check};
    jackal_status status = JACKAL_OK;
    if (!allocate(&run))
        status = check_no_memory(check);
    if (status == JACKAL_OK) {
        fill_inputs(&run);
        status = advance_all(&run);
    }
    if (status == JACKAL_OK)
        status = check_ended(&run);
    for (int rank = 0; rank < check->size && status == JACKAL_OK; rank++)
        status = check_out(&run, rank);
    free_run(&run);
    return status;
}
