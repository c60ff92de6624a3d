/* SPDX-License-Identifier: MIT */
/* Checks of arguments. They look at this rank's call alone and change nothing. */
#ifndef API_ARGUMENTS_H
#define API_ARGUMENTS_H

#include "api/handles.h"

/* A buffer of a call: where, and how many elements for each `count` (1, or the number of ranks). */
struct api_buffer {
    const char *name;
    const void *bytes;
    uint64_t blocks;
};

/* dtype exists, blocks · count elements can be addressed, and no needed pointer is NULL. */
jackal_status api_check_buffers(const struct api_buffer *buffers, int n_buffers, uint64_t count,
                                jackal_dtype dtype, struct base_error *error);

jackal_status api_check_op(jackal_dtype dtype, jackal_op op, struct base_error *error);

jackal_status api_check_rank(const jackal_group *group, const char *name, int rank,
                             struct base_error *error);

/* A send or receive: the peer is another rank of the group, the buffer is there. */
jackal_status api_check_point(const jackal_group *group, const char *name, int peer,
                              const void *data, uint64_t n_bytes, struct base_error *error);

/*
 * Two ranges of bytes either do not overlap, or b is exactly a + natural (the one place where a
 * call may be in place). `natural` = UINT64_MAX: never.
 */
jackal_status api_check_overlap(const void *a, uint64_t n_a, const void *b, uint64_t n_b,
                                uint64_t natural, struct base_error *error);

#endif
