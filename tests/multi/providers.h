/* SPDX-License-Identifier: MIT */
/* What the tests of our verbs code share: both personalities, a round of calls whose result is
 * known from rank and index, and a rank's orders for failing_verbs. */
#ifndef PROVIDERS_H
#define PROVIDERS_H

#include "failing_verbs.h"
#include "ranks.h"

enum personality { THUNDERBOLT, ROCE, PERSONALITIES };
extern const char *const personality_names[PERSONALITIES];

/* The description of a fabric; `more` is what follows in the object, with a comma in front, or "".
 * In a static buffer, as the next. */
const char *providers_fabric(enum personality personality, int size, int wires, const char *more);
const char *providers_matrix(enum personality personality, int size, int wires);

/* Sum, gather and neighbours' exchange of `count` floats, and a barrier; the first error, or
 * JACKAL_OK with every element compared. `round` makes the values of two calls differ. */
jackal_status providers_round(jackal_group *group, int rank, int size, size_t count, int round);

/* Loads the provider FAILING_VERBS into this process and gives it its orders. */
void providers_order(struct failing_orders *orders);

#endif
