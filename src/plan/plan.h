/* SPDX-License-Identifier: MIT */
/*
 * A plan: what one rank does in one operation, as data.
 *
 * An algorithm is a pure function from a plan_request to a plan; it does no I/O and knows no links.
 * A plan is a list of steps. A step is one primitive, dst[] = op(src[]), over `n_bytes` bytes:
 *
 *   source       a range of `in`, a range of `out`, or the head of a receive lane
 *   destination  a range of `out`, or the tail of a send lane; any number of each
 *
 * A lane is what one wire carries in one direction: a FIFO of messages. Sources are combined in the
 * listed order in one pass. A step works in granules (one slot's payload) and may handle a granule
 * once each source has it; how many bytes it has done is its progress, and that is the only thing
 * another step may wait for. No step waits for "any of". Such a plan is a marked graph: if one
 * maximal schedule ends, every schedule ends, with the same values. plan_check() runs that one
 * schedule; the engine runs another one on real links.
 *
 * Messages on one lane are in the order of the steps that use it: the builder adds those waits. A
 * message's header tells (phase, offset); both ends compute them from their own plans.
 *
 * Plans are the same whether a call is in place or not: where `in` may be a part of `out`, a step
 * that writes waits for the steps that read.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/error.h"

#include <stdbool.h>

enum plan_operation {
    PLAN_ALL_REDUCE,
    PLAN_ALL_GATHER,
    PLAN_REDUCE_SCATTER,
    PLAN_BROADCAST,
    PLAN_BARRIER,
    PLAN_SEND,
    PLAN_RECV,
    PLAN_OPERATION_COUNT
};

/* "all_reduce" and so on. */
const char *plan_operation_name(enum plan_operation operation);

/* Which queue pair of a wire; it decides the slot size. */
enum plan_queue { PLAN_SMALL, PLAN_BULK, PLAN_QUEUE_COUNT };

/* What a group agreed on at init; the same on all ranks. */
struct plan_limits {
    uint64_t payload_bytes[PLAN_QUEUE_COUNT]; /* of one slot; multiples of every element size */
    uint64_t small_max_bytes; /* longer steps use the bulk queue; UINT64_MAX = there is none */
};

/* The arguments of an algorithm. */
struct plan_request {
    enum plan_operation operation;
    int rank;
    int size;
    int wires;      /* between every two ranks */
    int root;       /* BROADCAST: root; SEND, RECV: the peer */
    uint64_t count; /* elements, as the public call counts them */
    uint32_t element_bytes;
    const char *algorithm; /* preferred wherever it applies; NULL = the fastest */
    struct plan_limits limits;
};

enum plan_place { PLAN_IN, PLAN_OUT, PLAN_LANE };

struct plan_term {
    enum plan_place place;
    uint16_t peer; /* LANE: the other rank */
    uint16_t wire; /* LANE: which wire to it */
    uint64_t at;   /* IN, OUT: where byte 0 of the step lies */
};

/* Progress that a step needs before it may handle its bytes up to b. */
struct plan_wait {
    uint32_t step;
    uint64_t ahead; /* that step's progress must be ≥ b + ahead, or it must be done */
};

#define PLAN_UNTIL_DONE UINT64_MAX

struct plan_step {
    uint64_t n_bytes;
    uint64_t message_at; /* LANE: offset in the header of the message with byte 0 */
    uint16_t phase;      /* LANE: tells apart two messages of one lane with the same offset */
    bool always;         /* n_bytes == 0 still sends or takes one message */
    bool combine;        /* apply the operator; else there is one source, copied */
    uint16_t n_sources, n_destinations, n_waits;
    struct plan_term *sources;
    struct plan_term *destinations;
    struct plan_wait *waits;
};

enum { PLAN_NO_STEP = -1 };

/* A mesh has a link between every two ranks; more than this is not offered. */
enum { PLAN_MESH_MAX_SIZE = 64 };

struct plan {
    const char *algorithm;
    enum plan_queue queue;
    uint64_t granule_bytes;
    uint64_t total_bytes; /* for the header: what the whole operation moves */
    uint32_t n_steps;
    struct plan_step *steps;

    /* Storage, allocated once by plan_new(); a plan is rebuilt in place. */
    uint32_t max_steps, max_terms, max_waits;
    uint32_t n_terms, n_waits;
    struct plan_term *terms;
    struct plan_wait *waits;
    int size, wires;
    int32_t *last_push; /* [peer · wires + wire]: the step that used this send lane last */
    int32_t *last_pull; /* the same for receive lanes */
    bool overflow;
};

/* Storage that is enough for any row of the choice table at this size; NULL = out of memory. */
struct plan *plan_new(int size, int wires);
void plan_free(struct plan *plan);

/* Chooses a row and builds the plan of one rank. Allocates nothing. */
jackal_status plan_build(struct plan *plan, const struct plan_request *request,
                         struct base_error *error);

/* How many granules a step has: at least 1 where it sends or takes a message in any case. */
uint64_t plan_granules(const struct plan *plan, const struct plan_step *step);

/* ---- for algorithms --------------------------------------------------------------------------
 * Begin a step, then add its terms and waits. Too much for the storage sets `overflow`, which
 * plan_build() turns into an error; so builders need no checks of their own.
 */
struct plan_step *plan_step_begin(struct plan *plan, uint64_t n_bytes);
void plan_from(struct plan *plan, enum plan_place place, uint64_t at);
void plan_from_lane(struct plan *plan, int peer, int wire);
void plan_to_out(struct plan *plan, uint64_t at);
void plan_to_lane(struct plan *plan, int peer, int wire);
void plan_wait_for(struct plan *plan, const struct plan_step *step, uint64_t ahead);

/* Names the messages of the step begun last: its phase, and the offset of its first byte. */
void plan_label(struct plan *plan, uint16_t phase, uint64_t message_at);

/*
 * Takes small or bulk slots by the longest step that any rank has, which every rank must compute
 * alike: a rank that chose by its own steps could disagree with its peer at a boundary.
 */
void plan_choose_queue(struct plan *plan, const struct plan_request *request,
                       uint64_t longest_bytes);

/* A part [at, at + n_bytes) of something that is divided in elements. */
struct plan_part {
    uint64_t at;
    uint64_t n_bytes;
};

/*
 * The index-th of `parts` contiguous parts of `count` elements; lengths differ by at most one
 * element, longer ones first.
 */
struct plan_part plan_share(uint64_t count, uint32_t element_bytes, int parts, int index);

#endif
