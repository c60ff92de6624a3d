/* SPDX-License-Identifier: MIT */
/*
 * The timing loop. A call has taken as long as it took on the slowest rank, and a row's time is the
 * median of its calls: a rank that the system scheduled away for some of them does not move it. The
 * ranks meet once before the loop and never inside it, so calls may overlap as they do in a
 * program.
 */
#include "bench.h"

#include <jackal/collective.h>

#include <stdlib.h>
#include <time.h>

enum { PROBES = 2, LEAST_ITERATIONS = 5, MOST_ITERATIONS = 1000 };

static const int64_t row_ns = 200000000;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int calls(struct bench *bench, const struct bench_row *row, int64_t count,
                 int64_t *times_ns) {
    int failed = 0;
    int64_t start = now_ns();
    for (int64_t i = 0; i < count && !failed; ++i) {
        failed = bench_call(bench, &row->what, 0);
        int64_t end = now_ns();
        if (times_ns) {
            times_ns[i] = end - start;
        }
        start = end;
    }
    return failed;
}

static int warm_up(struct bench *bench, struct bench_row *row) {
    int failed = bench_wires_start(bench);
    failed = failed ? failed : calls(bench, row, bench->options->warmup, NULL);
    int64_t start = now_ns();
    failed = failed ? failed : calls(bench, row, PROBES, NULL);
    int64_t count = row_ns * PROBES / (now_ns() - start + 1);
    failed = failed ? failed : bench_wires_stop(bench);
    if (failed) {
        return failed;
    }
    count = count < LEAST_ITERATIONS ? LEAST_ITERATIONS : count;
    count = count > MOST_ITERATIONS ? MOST_ITERATIONS : count;
    count = bench->options->iterations > 0 ? bench->options->iterations : count;
    /* clocks differ: rank 0 decides */
    jackal_status status = jackal_broadcast(bench->group, &count, 1, JACKAL_INT64, 0);
    row->iterations = count;
    return bench_failed(bench, "broadcast of the number of iterations", status);
}

static int compare_times(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void summarise(struct bench_row *row, int64_t *times_ns, int64_t total_ns) {
    size_t n = (size_t)row->iterations;
    /* a ping is there and back */
    double unit = row->what.operation->kind == BENCH_PING ? 2000 : 1000;
    qsort(times_ns, n, sizeof *times_ns, compare_times);
    row->time_us = (double)(times_ns[(n - 1) / 2] + times_ns[n / 2]) / 2 / unit;
    row->mean_us = (double)total_ns / (double)n / unit;
    row->least_us = (double)times_ns[0] / unit;
    row->most_us = (double)times_ns[n - 1] / unit;
}

int bench_time(struct bench *bench, struct bench_row *row) {
    int failed = warm_up(bench, row);
    if (failed) {
        return failed;
    }
    /* one more for the whole loop */
    uint64_t count = (uint64_t)row->iterations + 1;
    int64_t *times_ns = tool_resize(NULL, count, sizeof *times_ns);
    failed = bench_wires_start(bench); /* leaves through a barrier */
    int64_t start = now_ns();
    failed = failed ? failed : calls(bench, row, row->iterations, times_ns);
    times_ns[row->iterations] = now_ns() - start;
    failed = failed ? failed : bench_wires_stop(bench);
    if (!failed) {
        failed =
            bench_failed(bench, "all_max of the times",
                         jackal_all_max(bench->group, times_ns, times_ns, count, JACKAL_INT64));
    }
    if (!failed) {
        summarise(row, times_ns, times_ns[row->iterations]);
    }
    free(times_ns);
    return failed;
}
