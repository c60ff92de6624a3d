/* SPDX-License-Identifier: MIT */
/*
 * Combining the contributions of several ranks, element by element.
 *
 * A kernel makes one pass: element i of the result is srcs[0][i] op srcs[1][i] op ..., strictly in
 * the order of `srcs`. Its bits depend on the inputs alone: every instruction set, every count,
 * every alignment and every place in the buffer gives the same ones, and so does every floating
 * point environment of the caller (rounding mode, flushing of denormals, traps), which a kernel
 * sets aside and gives back. docs/numerics.md has the rule for each type and operator.
 */
#ifndef REDUCE_REDUCE_H
#define REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "jackal/types.h"

/**
 * dst[i] = srcs[0][i] op ... op srcs[n_srcs - 1][i] for i < count.
 *
 * `n_srcs` is at least 1; with 1 the element still takes the type's canonical form (NaN, bool), and
 * a mean is divided by `n_srcs`. `dst` may be the very address of one or more of the sources and
 * overlaps them in no other way. No pointer needs an alignment. With `count` 0 nothing is touched.
 */
typedef void (*reduce_kernel)(void *dst, const void *const *srcs, size_t n_srcs, size_t count);

/** Size of one element; 0 for a number that is no type. */
size_t reduce_dtype_bytes(jackal_dtype dtype);

/** The word of the table in jackal/types.h ("bfloat16"); NULL for a number that is no type. */
const char *reduce_dtype_name(jackal_dtype dtype);

/** The word of the table in jackal/types.h ("sum"); NULL for a number that is no operator. */
const char *reduce_op_name(jackal_op op);

/** The fastest kernel for this processor; NULL where the pair is not allowed (mean of integers). */
reduce_kernel reduce_find(jackal_dtype dtype, jackal_op op);

/** reduce_find() and its kernel in one call; JACKAL_ERR_ARGUMENT for a wrong pair or no source. */
jackal_status reduce_apply(jackal_dtype dtype, jackal_op op, void *dst, const void *const *srcs,
                           size_t n_srcs, size_t count);

/*
 * The instruction sets that were built in, for tests, benchmarks and diagnosis. Number 0 is
 * portable C; a higher number is preferred where it is available.
 */

/** How many there are. */
size_t reduce_isa_count(void);

/** "portable", "avx2", ...; NULL for a number out of range. */
const char *reduce_isa_name(size_t isa);

/** Whether this processor and system can run it. */
bool reduce_isa_available(size_t isa);

/** The one that reduce_find() takes from. */
size_t reduce_isa_best(void);

/** As reduce_find(), from one instruction set; NULL also where that one is not available. */
reduce_kernel reduce_find_isa(jackal_dtype dtype, jackal_op op, size_t isa);

#endif
