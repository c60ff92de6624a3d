/* SPDX-License-Identifier: MIT */
/*
 * The rules of docs/numerics.md once more, written for the tests in another way than the kernels:
 * values instead of bits, double instead of float, rounding by a quotient instead of a carry.
 */
#ifndef TEST_REDUCE_REFERENCE_H
#define TEST_REDUCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jackal/types.h"

/* Whether docs/numerics.md has a rule for the pair. */
bool reference_allows(jackal_dtype dtype, jackal_op op);

/* One element after the other, as the kernels promise; `dst` overlaps no source. */
void reference_reduce(jackal_dtype dtype, jackal_op op, void *dst, const void *const *srcs,
                      size_t n_srcs, size_t count);

/* What one source alone gives. */
uint16_t reference_canonical_f16(uint16_t bits);
uint16_t reference_canonical_bf16(uint16_t bits);

/* A generator with a state of its own: the same seed gives the same numbers everywhere. */
uint64_t reference_random(uint64_t *state_p);

/*
 * Elements of every sort: any bits, values of similar size (so that a product of many stays
 * finite), zeros, infinities, denormals, NaNs with signs and payloads, extremes.
 */
void reference_fill(jackal_dtype dtype, void *dst, size_t count, uint64_t seed);

/* The values at which rules for `dtype` change; `list_p` stays valid. 0 for integers and bool. */
size_t reference_specials(jackal_dtype dtype, const uint64_t **list_p);

#endif
