/* SPDX-License-Identifier: MIT */
#include "api/arguments.h"

#include "reduce/reduce.h"

/* No processor of ours addresses more; larger products would wrap in the plans. */
#define MAX_BYTES (UINT64_C(1) << 48)

jackal_status api_check_buffers(const struct api_buffer *buffers, int n_buffers, uint64_t count,
                                jackal_dtype dtype, struct base_error *error) {
    uint64_t element_bytes = reduce_dtype_bytes(dtype);
    if (element_bytes == 0)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "dtype %d does not exist, want 0 to %d", dtype,
                         JACKAL_DTYPE_COUNT - 1);
    for (int i = 0; i < n_buffers; i++) {
        if (count > MAX_BYTES / element_bytes / buffers[i].blocks)
            return base_fail(error, JACKAL_ERR_ARGUMENT, "count %llu is more than memory can hold",
                             (unsigned long long)count);
        if (count > 0 && buffers[i].bytes == NULL)
            return base_fail(error, JACKAL_ERR_ARGUMENT, "%s is NULL, but count is %llu",
                             buffers[i].name, (unsigned long long)count);
    }
    return JACKAL_OK;
}

jackal_status api_check_op(jackal_dtype dtype, jackal_op op, struct base_error *error) {
    if (reduce_op_name(op) == NULL)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "op %d does not exist, want 0 to %d", op,
                         JACKAL_OP_COUNT - 1);
    if (reduce_find(dtype, op) == NULL)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "op %s is not defined for %s",
                         reduce_op_name(op), reduce_dtype_name(dtype));
    return JACKAL_OK;
}

jackal_status api_check_rank(const jackal_group *group, const char *name, int rank,
                             struct base_error *error) {
    if (rank >= 0 && rank < group->group->size)
        return JACKAL_OK;
    return base_fail(error, JACKAL_ERR_ARGUMENT, "%s is %d, want 0 to %d", name, rank,
                     group->group->size - 1);
}

jackal_status api_check_point(const jackal_group *group, const char *name, int peer,
                              const void *data, uint64_t n_bytes, struct base_error *error) {
    jackal_status status = api_check_rank(group, name, peer, error);
    if (status != JACKAL_OK)
        return status;
    if (peer == group->group->rank)
        return base_fail(error, JACKAL_ERR_ARGUMENT,
                         "%s is %d, the rank itself: copy the bytes instead", name, peer);
    if (data == NULL && n_bytes > 0)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "data is NULL, but n_bytes is %llu",
                         (unsigned long long)n_bytes);
    if (n_bytes > MAX_BYTES)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "n_bytes %llu is more than memory can hold",
                         (unsigned long long)n_bytes);
    return JACKAL_OK;
}

jackal_status api_check_overlap(const void *a, uint64_t n_a, const void *b, uint64_t n_b,
                                uint64_t natural, struct base_error *error) {
    uintptr_t a_at = (uintptr_t)a, b_at = (uintptr_t)b;
    if (n_a == 0 || n_b == 0 || a_at + n_a <= b_at || b_at + n_b <= a_at)
        return JACKAL_OK;
    if (natural != UINT64_MAX && b_at == a_at + natural)
        return JACKAL_OK;
    if (natural == UINT64_MAX)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "the two buffers overlap");
    return base_fail(error, JACKAL_ERR_ARGUMENT,
                     "in and out overlap, and not at the one place where that is allowed (byte "
                     "%llu of the larger one)",
                     (unsigned long long)natural);
}
