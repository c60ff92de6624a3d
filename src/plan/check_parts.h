/* SPDX-License-Identifier: MIT */
/* What the parts of the checker share: check.c (entry), check_order.c, check_run.c, check_term.c.
 */
#ifndef PLAN_CHECK_PARTS_H
#define PLAN_CHECK_PARTS_H

#include "plan/check.h"

/*
 * Terms by number: 0 is what nobody wrote; then the leaves, rank by rank; then combinations. Equal
 * terms have equal numbers.
 */
enum { CHECK_UNWRITTEN = 0 };

struct check_terms {
    uint32_t n_leaves;
    uint32_t n_combinations, max_combinations;
    struct check_combination {
        uint32_t first, n_sources; /* in `sources` */
    } * combinations;
    uint32_t n_sources, max_sources;
    uint32_t *sources;
    uint32_t n_slots; /* a power of two */
    uint32_t *slots;  /* index of a combination + 1; 0 = free */
};

void check_terms_free(struct check_terms *terms);

/* The number of a combination; CHECK_UNWRITTEN = out of memory. */
uint32_t check_combine(struct check_terms *terms, const uint32_t *sources, uint32_t n_sources);

/* Adds 1 to seen[leaf − 1] for each leaf of a term; false as soon as one occurs again. */
bool check_count_leaves(const struct check_terms *terms, uint32_t term, uint32_t *seen);

/*
 * One rank. Its `in` and `out` lie in one range of addresses, so that they overlap when the call is
 * in place; 0 bytes of a buffer mean that the operation does not own it on this rank.
 */
struct check_rank {
    const struct plan *plan; /* NULL: takes no part */
    uint64_t in_base, in_bytes;
    uint64_t out_base, out_bytes;
    uint64_t memory_bytes;
};

struct check {
    const struct plan_check_case *given;
    int size;
    uint64_t element_bytes;
    uint64_t leaves_per_rank;
    struct check_rank *ranks;
    struct check_terms terms;
    struct base_error *error;
};

enum { CHECK_NO_STEP = -1 };

/* Says what is wrong with `step` of `rank`; returns JACKAL_ERR_ARGUMENT. */
jackal_status check_fail(struct check *check, int rank, int64_t step, const char *format, ...)
    BASE_PRINTF(4, 5);
jackal_status check_no_memory(struct check *check);

/* Where byte 0 of a term of place IN or OUT lies in the rank's memory. */
uint64_t check_address(const struct check_rank *rank, const struct plan_term *term);

/* check_order.c: waits have no circle and order all that must be ordered on one rank. */
jackal_status check_order(struct check *check, int rank);

/* check_run.c: one maximal schedule, and what it left in memory and lanes. */
jackal_status check_run(struct check *check);

#endif
