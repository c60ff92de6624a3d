/* SPDX-License-Identifier: MIT */
/* Terms of the checker, each kept once: two terms are equal if and only if their numbers are. */
#include "plan/check_parts.h"

#include <stdlib.h>
#include <string.h>

void check_terms_free(struct check_terms *terms) {
    free(terms->combinations);
    free(terms->sources);
    free(terms->slots);
}

static uint32_t hash(const uint32_t *sources, uint32_t n_sources) {
    uint64_t h = n_sources;
    for (uint32_t i = 0; i < n_sources; i++) {
        h = (h ^ sources[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 16);
}

/* The slot that holds these sources, or the free one where they belong. */
static uint32_t *find_slot(const struct check_terms *terms, const uint32_t *sources,
                           uint32_t n_sources) {
    for (uint32_t i = hash(sources, n_sources);; i++) {
        uint32_t *slot = &terms->slots[i & (terms->n_slots - 1)];
        if (*slot == 0)
            return slot;
        const struct check_combination *found = &terms->combinations[*slot - 1];
        if (found->n_sources == n_sources &&
            memcmp(terms->sources + found->first, sources, n_sources * sizeof *sources) == 0)
            return slot;
    }
}

/* Room for twice as many combinations; the slots are never more than half full. */
static bool grow_combinations(struct check_terms *terms) {
    uint32_t max = terms->max_combinations == 0 ? 64 : 2 * terms->max_combinations;
    struct check_combination *combinations =
        realloc(terms->combinations, max * sizeof *combinations);
    if (combinations == NULL)
        return false;
    terms->combinations = combinations;
    uint32_t *slots = calloc(2 * (size_t)max, sizeof *slots);
    if (slots == NULL)
        return false;
    free(terms->slots);
    terms->slots = slots;
    terms->n_slots = 2 * max;
    terms->max_combinations = max;
    for (uint32_t i = 0; i < terms->n_combinations; i++)
        *find_slot(terms, terms->sources + combinations[i].first, combinations[i].n_sources) =
            i + 1;
    return true;
}

static bool grow_sources(struct check_terms *terms, uint32_t n_more) {
    if (n_more <= terms->max_sources - terms->n_sources)
        return true;
    uint32_t max = 2 * terms->max_sources + n_more + 256;
    uint32_t *sources = realloc(terms->sources, max * sizeof *sources);
    if (sources == NULL)
        return false;
    terms->sources = sources;
    terms->max_sources = max;
    return true;
}

uint32_t check_combine(struct check_terms *terms, const uint32_t *sources, uint32_t n_sources) {
    if (terms->n_combinations == terms->max_combinations && !grow_combinations(terms))
        return CHECK_UNWRITTEN;
    uint32_t *slot = find_slot(terms, sources, n_sources);
    if (*slot == 0) {
        if (!grow_sources(terms, n_sources))
            return CHECK_UNWRITTEN;
        memcpy(terms->sources + terms->n_sources, sources, n_sources * sizeof *sources);
        terms->combinations[terms->n_combinations++] =
            (struct check_combination){.first = terms->n_sources, .n_sources = n_sources};
        terms->n_sources += n_sources;
        *slot = terms->n_combinations;
    }
    return terms->n_leaves + *slot;
}

/* Sources are older than what they are combined to, so this ends; it is as deep as the grouping. */
bool check_count_leaves(const struct check_terms *terms, uint32_t term, uint32_t *seen) {
    if (term <= terms->n_leaves)
        return term != CHECK_UNWRITTEN && ++seen[term - 1] == 1;
    const struct check_combination *of = &terms->combinations[term - terms->n_leaves - 1];
    for (uint32_t i = 0; i < of->n_sources; i++)
        if (!check_count_leaves(terms, terms->sources[of->first + i], seen))
            return false;
    return true;
}
