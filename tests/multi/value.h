/* SPDX-License-Identifier: MIT */
/*
 * Elements that tell where they came from, and what combining them must give: the rules of
 * docs/numerics.md once more, element by element, with no eye on speed and none on the kernels.
 */
#ifndef VALUE_H
#define VALUE_H

#include <jackal/types.h>

#include <stdbool.h>

/* Bytes of an element. */
unsigned value_bytes(jackal_dtype dtype);
const char *value_dtype_name(jackal_dtype dtype);
const char *value_op_name(jackal_op op);

bool value_is_float(jackal_dtype dtype);
bool value_allows(jackal_dtype dtype, jackal_op op);

/* Bits of element `index` of rank `rank` in call `call`. Floats: mostly plain numbers, some zeros
 * of both signs, infinities, denormals and NaNs with payloads. */
uint64_t value_of(jackal_dtype dtype, uint64_t call, int rank, uint64_t index);

/* The contributions of ranks 0 … n − 1, combined in that order. */
uint64_t value_combine(jackal_dtype dtype, jackal_op op, const uint64_t *bits, int n);

/* Element `index` of an unaligned vector. */
uint64_t value_load(const void *bytes, jackal_dtype dtype, uint64_t index);
void value_store(void *bytes, jackal_dtype dtype, uint64_t index, uint64_t bits);

float value_from_half(jackal_dtype dtype, uint16_t bits);
uint16_t value_to_half(jackal_dtype dtype, float value);

#endif
