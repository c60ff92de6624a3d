/* SPDX-License-Identifier: MIT */
/* What each operation makes of a size, and how it is called. */
#include "bench.h"

#include <jackal/collective.h>

const struct bench_operation bench_operations[] = {
    {"all_sum", BENCH_REDUCE, false, JACKAL_SUM},
    {"all_max", BENCH_REDUCE, false, JACKAL_MAX},
    {"all_min", BENCH_REDUCE, false, JACKAL_MIN},
    {"all_reduce", BENCH_REDUCE, true, JACKAL_SUM},
    {"all_gather", BENCH_GATHER, false, -1},
    {"reduce_scatter", BENCH_SCATTER, true, JACKAL_SUM},
    {"sum_scatter", BENCH_SCATTER, false, JACKAL_SUM},
    {"broadcast", BENCH_BROADCAST, false, -1},
    {"send_recv", BENCH_PING, false, -1},
    {"sendrecv", BENCH_CIRCLE, false, -1},
    {"barrier", BENCH_BARRIER, false, -1},
};

const size_t bench_n_operations = sizeof bench_operations / sizeof bench_operations[0];

struct bench_case bench_case_make(const struct bench_operation *operation, jackal_dtype dtype,
                                  jackal_op redop, uint64_t n_bytes, int size) {
    struct bench_case what = {.operation = operation, .dtype = dtype, .redop = redop};
    uint64_t n_blocks = 1, element = bench_dtype_bytes(dtype);
    if (operation->kind == BENCH_BARRIER) {
        return what;
    }
    if (operation->kind == BENCH_GATHER || operation->kind == BENCH_SCATTER) {
        n_blocks = (uint64_t)size;
    }
    what.count = n_bytes / (element * n_blocks);
    if (what.count == 0 && n_bytes > 0) {
        what.count = 1;
    }
    what.n_in = operation->kind == BENCH_SCATTER ? what.count * n_blocks : what.count;
    what.n_out = operation->kind == BENCH_GATHER ? what.count * n_blocks : what.count;
    what.n_bytes = what.count * n_blocks * element;
    return what;
}

double bench_bus_factor(const struct bench_case *what, int size) {
    double n = size;
    switch (what->operation->kind) {
    case BENCH_REDUCE:
        return 2 * (n - 1) / n;
    case BENCH_GATHER:
    case BENCH_SCATTER:
        return (n - 1) / n;
    default:
        return 1;
    }
}

int bench_partner(const struct bench *bench) {
    int partner = bench->rank ^ 1;
    return partner < bench->size ? partner : -1;
}

static int call_reduce(const struct bench *bench, const struct bench_case *what, int variant) {
    const void *in = variant == 0 ? bench->in.data : bench->out.data;
    void *out = bench->out.data;
    jackal_status status;
    if (what->operation->takes_redop) {
        status = jackal_all_reduce(bench->group, in, out, what->count, what->dtype, what->redop);
    } else if (what->redop == JACKAL_SUM) {
        status = jackal_all_sum(bench->group, in, out, what->count, what->dtype);
    } else if (what->redop == JACKAL_MAX) {
        status = jackal_all_max(bench->group, in, out, what->count, what->dtype);
    } else {
        status = jackal_all_min(bench->group, in, out, what->count, what->dtype);
    }
    return bench_failed(bench, what->operation->name, status);
}

/* Bytes from the start of a buffer to this rank's block of it. */
static uint64_t own_block(const struct bench *bench, const struct bench_case *what) {
    return (uint64_t)bench->rank * what->count * bench_dtype_bytes(what->dtype);
}

static int call_gather(const struct bench *bench, const struct bench_case *what, int variant) {
    const void *in = variant == 0 ? bench->in.data : bench->out.data + own_block(bench, what);
    jackal_status status =
        jackal_all_gather(bench->group, in, bench->out.data, what->count, what->dtype);
    return bench_failed(bench, what->operation->name, status);
}

static int call_scatter(const struct bench *bench, const struct bench_case *what, int variant) {
    void *out = variant == 0 ? bench->out.data : bench->in.data + own_block(bench, what);
    jackal_status status;
    if (what->operation->takes_redop) {
        status = jackal_reduce_scatter(bench->group, bench->in.data, out, what->count, what->dtype,
                                       what->redop);
    } else {
        status = jackal_sum_scatter(bench->group, bench->in.data, out, what->count, what->dtype);
    }
    return bench_failed(bench, what->operation->name, status);
}

static int call_ping(const struct bench *bench, const struct bench_case *what, int variant) {
    int partner = bench_partner(bench);
    uint64_t n_bytes = what->count * bench_dtype_bytes(what->dtype);
    bool first = (bench->rank & 1) == variant;
    if (partner < 0) {
        return 0;
    }
    for (int half = 0; half < 2; ++half) {
        bool sends = (half == 0) == first;
        jackal_status status = sends ? jackal_send(bench->group, bench->in.data, n_bytes, partner)
                                     : jackal_recv(bench->group, bench->out.data, n_bytes, partner);
        if (status != JACKAL_OK) {
            return bench_failed(bench, sends ? "send" : "recv", status);
        }
    }
    return 0;
}

static int call_circle(const struct bench *bench, const struct bench_case *what, int variant) {
    int next = (bench->rank + 1) % bench->size;
    int previous = (bench->rank + bench->size - 1) % bench->size;
    uint64_t n_bytes = what->count * bench_dtype_bytes(what->dtype);
    jackal_status status =
        jackal_sendrecv(bench->group, bench->in.data, n_bytes, variant == 0 ? next : previous,
                        bench->out.data, n_bytes, variant == 0 ? previous : next);
    return bench_failed(bench, what->operation->name, status);
}

int bench_call(const struct bench *bench, const struct bench_case *what, int variant) {
    switch (what->operation->kind) {
    case BENCH_REDUCE:
        return call_reduce(bench, what, variant);
    case BENCH_GATHER:
        return call_gather(bench, what, variant);
    case BENCH_SCATTER:
        return call_scatter(bench, what, variant);
    case BENCH_BROADCAST:
        return bench_failed(bench, "broadcast",
                            jackal_broadcast(bench->group, bench->out.data, what->count,
                                             what->dtype, variant == 0 ? 0 : bench->size - 1));
    case BENCH_PING:
        return call_ping(bench, what, variant);
    case BENCH_CIRCLE:
        return call_circle(bench, what, variant);
    default:
        return bench_failed(bench, "barrier", jackal_barrier(bench->group));
    }
}
