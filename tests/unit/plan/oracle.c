/* SPDX-License-Identifier: MIT */
#include "oracle.h"

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZE = 8,
    MAX_WIRES = 4,
    MAX_ELEMENTS = 768, /* of one rank's memory */
    MAX_STEPS = 128,
    MAX_MESSAGE = 64, /* elements */
    MAX_CREDITS = 3,
    GUARD = 16 /* elements before, between and behind the buffers that must not change */
};

struct message {
    uint64_t phase, at, n_bytes, total_bytes;
    uint64_t values[MAX_MESSAGE];
};

struct lane {
    struct message messages[MAX_CREDITS];
    unsigned n;
};

struct host {
    const struct plan *plan;
    uint64_t memory[MAX_ELEMENTS], before[MAX_ELEMENTS];
    uint64_t in, out; /* where they begin in memory */
    uint64_t in_count, out_count;
    uint64_t handled[MAX_STEPS];
    bool begun, ended_early;
};

/* Too large for a stack, and one at a time is enough. */
static struct {
    const struct plan_request *request;
    uint64_t *random;
    struct host hosts[MAX_SIZE];
    struct lane lanes[MAX_SIZE][MAX_SIZE][MAX_WIRES];
    unsigned credits;
    int late; /* BARRIER: begins when nobody else can do anything any more; else −1 */
    const char *fault;
} world;

/* Neither commutative nor associative, and one number alone does not come out as itself. */
static uint64_t fold(const uint64_t *values, int n) {
    uint64_t sum = UINT64_C(0x243f6a8885a308d3);
    for (int i = 0; i < n; i++) {
        sum = (sum ^ values[i]) * UINT64_C(0x2545f4914f6cdd1d);
        sum ^= sum >> 31;
    }
    return sum;
}

static bool fault(const char *text) {
    if (world.fault == NULL)
        world.fault = text;
    return false;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void place_buffers(struct host *host, int rank, bool in_place) {
    const struct plan_request *request = world.request;
    uint64_t count = request->count, all = count * (uint64_t)request->size;
    uint64_t own = count * (uint64_t)rank;
    enum plan_operation operation = request->operation;
    host->in_count = operation == PLAN_REDUCE_SCATTER ? all : count;
    host->out_count = operation == PLAN_ALL_GATHER ? all : count;
    if (operation == PLAN_BARRIER)
        host->in_count = host->out_count = 0;
    if (operation == PLAN_SEND)
        *(rank == request->rank ? &host->out_count : &host->in_count) = 0;
    host->in = host->out = GUARD;
    if (!in_place)
        host->out += host->in_count + GUARD;
    else if (operation == PLAN_ALL_GATHER)
        host->in += own;
    else if (operation == PLAN_REDUCE_SCATTER)
        host->out += own;
}

static uint64_t *element(struct host *host, const struct plan_term *term, uint64_t byte) {
    uint64_t at = term->at + byte, size = world.request->element_bytes;
    uint64_t index = (term->place == PLAN_IN ? host->in : host->out) + at / size;
    if (at % size != 0 || index >= MAX_ELEMENTS) {
        fault("an address outside of all buffers");
        return NULL;
    }
    return &host->memory[index];
}

/* What an element of `out` must be; false where the operation promises nothing. */
static bool promised(int rank, uint64_t index, uint64_t *value_p) {
    const struct plan_request *request = world.request;
    const struct host *hosts = world.hosts;
    uint64_t values[MAX_SIZE], at = index;
    int from = request->operation == PLAN_SEND ? request->rank : request->root;
    switch (request->operation) {
    case PLAN_REDUCE_SCATTER:
        at += (uint64_t)rank * request->count;
        /* fall through */
    case PLAN_ALL_REDUCE:
        for (int i = 0; i < request->size; i++)
            values[i] = hosts[i].before[hosts[i].in + at];
        *value_p = fold(values, request->size);
        return true;
    case PLAN_ALL_GATHER:
        from = (int)(index / request->count);
        *value_p = hosts[from].before[hosts[from].in + index % request->count];
        return true;
    case PLAN_BROADCAST:
    case PLAN_SEND:
        *value_p = hosts[from].before[hosts[from].in + index];
        return rank != from;
    default:
        return false;
    }
}

static bool check_memory(int rank) {
    struct host *host = &world.hosts[rank];
    for (uint64_t i = 0; i < host->out_count; i++) {
        uint64_t value;
        uint64_t *slot = &host->memory[host->out + i];
        if (!promised(rank, i, &value))
            continue;
        if (*slot != value)
            return fault("a wrong result");
        *slot = host->before[host->out + i]; /* from here on nothing may differ */
    }
    if (memcmp(host->memory, host->before, sizeof host->memory) != 0)
        return fault("a byte changed that belongs to somebody else");
    return true;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static uint64_t granules(const struct host *host, const struct plan_step *step) {
    uint64_t each = host->plan->granule_bytes;
    return step->n_bytes > 0 ? (step->n_bytes + each - 1) / each : step->always ? 1 : 0;
}

static bool waits_are_met(const struct host *host, const struct plan_step *step, uint64_t upto) {
    for (int i = 0; i < step->n_waits; i++) {
        const struct plan_wait *wait = &step->waits[i];
        const struct plan_step *other = &host->plan->steps[wait->step];
        uint64_t handled = host->handled[wait->step];
        uint64_t progress = handled * host->plan->granule_bytes;
        if (handled < granules(host, other) &&
            (wait->ahead > UINT64_MAX - upto || progress < upto + wait->ahead))
            return false;
    }
    return true;
}

static struct lane *lane_of(int rank, const struct plan_term *term, bool sending) {
    if (term->peer >= world.request->size || term->wire >= world.request->wires ||
        world.hosts[term->peer].plan == NULL) {
        fault("a lane that is not there");
        return &world.lanes[0][0][0];
    }
    return sending ? &world.lanes[rank][term->peer][term->wire]
                   : &world.lanes[term->peer][rank][term->wire];
}

static bool lanes_are_ready(int rank, const struct plan_step *step) {
    for (int i = 0; i < step->n_sources; i++)
        if (step->sources[i].place == PLAN_LANE && lane_of(rank, &step->sources[i], false)->n == 0)
            return false;
    for (int i = 0; i < step->n_destinations; i++)
        if (step->destinations[i].place == PLAN_LANE &&
            lane_of(rank, &step->destinations[i], true)->n >= world.credits)
            return false;
    return world.fault == NULL;
}

/* Bytes [at, at + n_bytes) of a step on `rank`. */
struct part {
    int rank;
    const struct plan_step *step;
    uint64_t at, n_bytes;
};

static bool take_messages(const struct part *part, struct message *taken) {
    const struct plan *plan = world.hosts[part->rank].plan;
    for (int i = 0; i < part->step->n_sources; i++) {
        if (part->step->sources[i].place != PLAN_LANE)
            continue;
        struct lane *lane = lane_of(part->rank, &part->step->sources[i], false);
        if (lane->n == 0)
            return fault("the same lane twice");
        taken[i] = lane->messages[0];
        memmove(lane->messages, lane->messages + 1, --lane->n * sizeof *lane->messages);
        if (taken[i].phase != part->step->phase ||
            taken[i].at != part->step->message_at + part->at || taken[i].n_bytes != part->n_bytes ||
            taken[i].total_bytes != plan->total_bytes)
            return fault("a message that is not the expected one");
    }
    return true;
}

static uint64_t value_at(const struct part *part, const struct message *taken, uint64_t index) {
    struct host *host = &world.hosts[part->rank];
    uint64_t values[MAX_SIZE + 2], size = world.request->element_bytes;
    for (int i = 0; i < part->step->n_sources; i++) {
        const struct plan_term *source = &part->step->sources[i];
        const uint64_t *from = source->place == PLAN_LANE
                                   ? &taken[i].values[index]
                                   : element(host, source, part->at + index * size);
        values[i] = from == NULL ? 0 : *from;
    }
    return part->step->combine ? fold(values, part->step->n_sources) : values[0];
}

/* A kernel may go up, go down, or read the whole granule before it writes. */
static void compute(const struct part *part, const struct message *taken, uint64_t *values) {
    struct host *host = &world.hosts[part->rank];
    uint64_t size = world.request->element_bytes, n = part->n_bytes / size;
    uint64_t manner = support_below(world.random, 3);
    for (uint64_t pass = 0; pass < (manner == 2 ? 2 : 1); pass++)
        for (uint64_t i = 0; i < n; i++) {
            uint64_t index = manner == 1 ? n - 1 - i : i;
            if (pass == 0)
                values[index] = value_at(part, taken, index);
            for (int j = 0; j < part->step->n_destinations && (manner != 2 || pass == 1); j++) {
                const struct plan_term *to = &part->step->destinations[j];
                uint64_t *slot =
                    to->place == PLAN_LANE ? NULL : element(host, to, part->at + index * size);
                if (slot != NULL)
                    *slot = values[index];
            }
        }
}

static bool do_part(const struct part *part) {
    struct message taken[MAX_SIZE + 2], made = {.phase = part->step->phase,
                                                .at = part->step->message_at + part->at,
                                                .n_bytes = part->n_bytes};
    made.total_bytes = world.hosts[part->rank].plan->total_bytes;
    if (part->step->n_sources == 0 || part->step->n_sources > MAX_SIZE + 2 ||
        (part->step->n_sources > 1 && !part->step->combine) ||
        part->n_bytes % world.request->element_bytes != 0)
        return fault("a step that means nothing");
    if (!take_messages(part, taken))
        return false;
    compute(part, taken, made.values);
    for (int i = 0; i < part->step->n_destinations; i++) {
        if (part->step->destinations[i].place != PLAN_LANE)
            continue;
        struct lane *lane = lane_of(part->rank, &part->step->destinations[i], true);
        if (lane->n == world.credits)
            return fault("the same lane twice");
        lane->messages[lane->n++] = made;
    }
    return world.fault == NULL;
}

static bool try_step(int rank, uint32_t index) {
    struct host *host = &world.hosts[rank];
    const struct plan_step *step = &host->plan->steps[index];
    struct part part = {.rank = rank, .step = step};
    if (!host->begun || host->handled[index] == granules(host, step))
        return false;
    part.at = host->handled[index] * host->plan->granule_bytes;
    part.n_bytes = step->n_bytes - part.at;
    if (part.n_bytes > host->plan->granule_bytes)
        part.n_bytes = host->plan->granule_bytes;
    if (!waits_are_met(host, step, part.at + part.n_bytes) || !lanes_are_ready(rank, step))
        return false;
    if (do_part(&part))
        host->handled[index]++;
    return true;
}

/* ---- a run ---------------------------------------------------------------------------------- */

struct item {
    int rank;
    uint32_t step;
};

static size_t list_steps(struct item *items) {
    size_t n = 0;
    for (int rank = 0; rank < world.request->size; rank++)
        for (uint32_t i = 0; world.hosts[rank].plan != NULL && i < world.hosts[rank].plan->n_steps;
             i++)
            items[n++] = (struct item){rank, i};
    for (size_t i = n; i > 1; i--) {
        size_t other = support_below(world.random, i);
        struct item swap = items[i - 1];
        items[i - 1] = items[other];
        items[other] = swap;
    }
    return n;
}

/*
 * In every other run the shuffled list is a fixed order of precedence, which delays some steps as
 * long as it can; in the others each move starts at a random place of it.
 */
static void move_until_stuck(const struct item *items, size_t n, bool fixed) {
    for (bool moved = true; moved && world.fault == NULL;) {
        size_t start = fixed ? 0 : support_below(world.random, n + 1);
        moved = false;
        for (size_t i = 0; i < n && !moved && world.fault == NULL; i++) {
            const struct item *item = &items[(start + i) % n];
            moved = try_step(item->rank, item->step);
        }
    }
}

static bool has_ended(int rank) {
    const struct host *host = &world.hosts[rank];
    for (uint32_t i = 0; host->plan != NULL && i < host->plan->n_steps; i++)
        if (host->handled[i] < granules(host, &host->plan->steps[i]))
            return false;
    return true;
}

static void begin(const struct plan_request *request, struct plan *const *plans, bool in_place) {
    for (int from = 0; from < MAX_SIZE; from++)
        for (int to = 0; to < MAX_SIZE; to++)
            for (int wire = 0; wire < MAX_WIRES; wire++)
                world.lanes[from][to][wire].n = 0; /* old messages are large and do no harm */
    memset(&world.hosts, 0, sizeof world.hosts);
    world.credits = 1 + (unsigned)support_below(world.random, MAX_CREDITS);
    world.late = -1;
    if (request->operation == PLAN_BARRIER)
        world.late = (int)support_below(world.random, (uint64_t)request->size);
    for (int rank = 0; rank < request->size; rank++) {
        struct host *host = &world.hosts[rank];
        if (request->operation != PLAN_SEND || rank == request->rank || rank == request->root)
            host->plan = plans[rank];
        host->begun = rank != world.late;
        place_buffers(host, rank, in_place);
        for (int i = 0; i < MAX_ELEMENTS; i++)
            host->memory[i] = support_random(world.random);
        memcpy(host->before, host->memory, sizeof host->memory);
    }
}

static void end(void) {
    for (int rank = 0; rank < world.request->size && world.fault == NULL; rank++) {
        if (!has_ended(rank))
            fault("it does not end");
        else if (world.hosts[rank].ended_early)
            fault("a rank left the barrier before another came");
        else if (world.hosts[rank].plan != NULL)
            check_memory(rank);
        for (int peer = 0; peer < world.request->size; peer++)
            for (int wire = 0; wire < world.request->wires; wire++)
                if (world.lanes[rank][peer][wire].n > 0)
                    fault("a message is left in a lane");
    }
}

const char *oracle_run(const struct plan_request *request, struct plan *const *plans, bool in_place,
                       uint64_t *random) {
    static struct item items[MAX_SIZE * MAX_STEPS];
    world.request = request;
    world.random = random;
    world.fault = NULL;
    begin(request, plans, in_place);
    size_t n = list_steps(items);
    bool fixed = (support_random(random) & 1) != 0;
    move_until_stuck(items, n, fixed);
    if (world.late >= 0) {
        for (int rank = 0; rank < request->size; rank++)
            world.hosts[rank].ended_early = rank != world.late && has_ended(rank);
        world.hosts[world.late].begun = true;
        move_until_stuck(items, n, fixed);
    }
    end();
    return world.fault;
}
