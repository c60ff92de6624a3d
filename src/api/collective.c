/* SPDX-License-Identifier: MIT */
/* The operations: arguments checked, handed to the engine, outcome remembered. */
#include "api/arguments.h"
#include "reduce/reduce.h"

static jackal_status run(jackal_group *group, const struct engine_call *calls, int n_calls) {
    struct base_error error;
    base_error_clear(&error);
    atomic_fetch_add_explicit(&group->n_inside, 1, memory_order_relaxed);
    engine_run(group->group->engine, calls, n_calls, &error);
    jackal_status status = api_done(group, &error);
    /* Nothing of the handle is touched behind this. */
    atomic_fetch_sub_explicit(&group->n_inside, 1, memory_order_release);
    return status;
}

/* Everything that all_reduce, all_gather and reduce_scatter have in common. */
struct reduction {
    const char *name;
    enum plan_operation operation;
    const void *in;
    void *out;
    uint64_t in_blocks, out_blocks; /* of `count` elements */
    uint64_t count;
    jackal_dtype dtype;
    jackal_op op;
};

static jackal_status check_reduction(const jackal_group *group, const struct reduction *call,
                                     struct base_error *error) {
    struct api_buffer buffers[] = {{"in", call->in, call->in_blocks},
                                   {"out", call->out, call->out_blocks}};
    jackal_status status = api_check_buffers(buffers, 2, call->count, call->dtype, error);
    if (status == JACKAL_OK)
        status = api_check_op(call->dtype, call->op, error);
    if (status != JACKAL_OK)
        return status;
    uint64_t block = call->count * reduce_dtype_bytes(call->dtype);
    uint64_t own = (uint64_t)group->group->rank * block;
    if (call->in_blocks > call->out_blocks)
        return api_check_overlap(call->in, block * call->in_blocks, call->out, block, own, error);
    return api_check_overlap(call->out, block * call->out_blocks, call->in, block,
                             call->out_blocks > 1 ? own : 0, error);
}

static jackal_status reduce(jackal_group *group, const struct reduction *call) {
    struct base_error error;
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK)
        return status;
    if (check_reduction(group, call, &error) != JACKAL_OK)
        return api_bad_argument(group, call->name, &error);
    struct engine_call engine_call = {.operation = call->operation,
                                      .dtype = call->dtype,
                                      .op = call->op,
                                      .count = call->count,
                                      .root = -1,
                                      .in = call->in,
                                      .out = call->out};
    return run(group, &engine_call, 1);
}

static uint64_t size_of(const jackal_group *group) {
    return group != NULL ? (uint64_t)group->group->size : 1;
}

/* `name` is that of the public call, for messages. */
static jackal_status all_reduce(const char *name, jackal_group *group, const void *in, void *out,
                                uint64_t count, jackal_dtype dtype, jackal_op op) {
    struct reduction call = {name, PLAN_ALL_REDUCE, in, out, 1, 1, count, dtype, op};
    return reduce(group, &call);
}

jackal_status jackal_all_reduce(jackal_group *group, const void *in, void *out, uint64_t count,
                                jackal_dtype dtype, jackal_op op) {
    return all_reduce("all_reduce", group, in, out, count, dtype, op);
}

jackal_status jackal_all_sum(jackal_group *group, const void *in, void *out, uint64_t count,
                             jackal_dtype dtype) {
    return all_reduce("all_sum", group, in, out, count, dtype, JACKAL_SUM);
}

jackal_status jackal_all_max(jackal_group *group, const void *in, void *out, uint64_t count,
                             jackal_dtype dtype) {
    return all_reduce("all_max", group, in, out, count, dtype, JACKAL_MAX);
}

jackal_status jackal_all_min(jackal_group *group, const void *in, void *out, uint64_t count,
                             jackal_dtype dtype) {
    return all_reduce("all_min", group, in, out, count, dtype, JACKAL_MIN);
}

/* all_gather has no operator; sum keeps its fingerprint the same on all ranks. */
jackal_status jackal_all_gather(jackal_group *group, const void *in, void *out, uint64_t count,
                                jackal_dtype dtype) {
    struct reduction call = {"all_gather",   PLAN_ALL_GATHER, in,    out,       1,
                             size_of(group), count,           dtype, JACKAL_SUM};
    return reduce(group, &call);
}

static jackal_status reduce_scatter(const char *name, jackal_group *group, const void *in,
                                    void *out, uint64_t count, jackal_dtype dtype, jackal_op op) {
    struct reduction call = {name, PLAN_REDUCE_SCATTER, in, out, size_of(group), 1, count, dtype,
                             op};
    return reduce(group, &call);
}

jackal_status jackal_reduce_scatter(jackal_group *group, const void *in, void *out, uint64_t count,
                                    jackal_dtype dtype, jackal_op op) {
    return reduce_scatter("reduce_scatter", group, in, out, count, dtype, op);
}

jackal_status jackal_sum_scatter(jackal_group *group, const void *in, void *out, uint64_t count,
                                 jackal_dtype dtype) {
    return reduce_scatter("sum_scatter", group, in, out, count, dtype, JACKAL_SUM);
}

jackal_status jackal_broadcast(jackal_group *group, void *data, uint64_t count, jackal_dtype dtype,
                               int root) {
    struct base_error error;
    struct api_buffer buffer = {"data", data, 1};
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK)
        return status;
    if (api_check_buffers(&buffer, 1, count, dtype, &error) != JACKAL_OK ||
        api_check_rank(group, "root", root, &error) != JACKAL_OK)
        return api_bad_argument(group, "broadcast", &error);
    struct engine_call call = {.operation = PLAN_BROADCAST,
                               .dtype = dtype,
                               .op = JACKAL_SUM,
                               .count = count,
                               .root = root,
                               .in = data,
                               .out = data};
    return run(group, &call, 1);
}

jackal_status jackal_barrier(jackal_group *group) {
    struct engine_call call = {.operation = PLAN_BARRIER, .dtype = JACKAL_UINT8, .root = -1};
    jackal_status status = api_check_group(group);
    return status != JACKAL_OK ? status : run(group, &call, 1);
}

static struct engine_call send_call(const void *data, uint64_t n_bytes, int dst) {
    return (struct engine_call){.operation = PLAN_SEND, .count = n_bytes, .root = dst, .in = data};
}

static struct engine_call recv_call(void *data, uint64_t n_bytes, int src) {
    return (struct engine_call){.operation = PLAN_RECV, .count = n_bytes, .root = src, .out = data};
}

jackal_status jackal_send(jackal_group *group, const void *data, uint64_t n_bytes, int dst) {
    struct base_error error;
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK)
        return status;
    if (api_check_point(group, "dst", dst, data, n_bytes, &error) != JACKAL_OK)
        return api_bad_argument(group, "send", &error);
    struct engine_call call = send_call(data, n_bytes, dst);
    return run(group, &call, 1);
}

jackal_status jackal_recv(jackal_group *group, void *data, uint64_t n_bytes, int src) {
    struct base_error error;
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK)
        return status;
    if (api_check_point(group, "src", src, data, n_bytes, &error) != JACKAL_OK)
        return api_bad_argument(group, "recv", &error);
    struct engine_call call = recv_call(data, n_bytes, src);
    return run(group, &call, 1);
}

jackal_status jackal_sendrecv(jackal_group *group, const void *send, uint64_t n_send_bytes, int dst,
                              void *recv, uint64_t n_recv_bytes, int src) {
    struct base_error error;
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK)
        return status;
    if (api_check_point(group, "dst", dst, send, n_send_bytes, &error) != JACKAL_OK ||
        api_check_point(group, "src", src, recv, n_recv_bytes, &error) != JACKAL_OK ||
        api_check_overlap(send, n_send_bytes, recv, n_recv_bytes, UINT64_MAX, &error) != JACKAL_OK)
        return api_bad_argument(group, "sendrecv", &error);
    struct engine_call calls[2] = {send_call(send, n_send_bytes, dst),
                                   recv_call(recv, n_recv_bytes, src)};
    return run(group, calls, 2);
}
