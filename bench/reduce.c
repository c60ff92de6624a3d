/* SPDX-License-Identifier: MIT */
/*
 * How fast the reduction kernels are, beside memcpy.
 *
 *   bench-reduce [ELEMENTS_IN_KIB [OP]]
 *
 * For each type and number of sources: bytes read and written per second by the best kernel, and by
 * a memcpy that moves as many bytes (its reads and writes counted alike). Rounds of the two take
 * turns and the fastest of each counts, so that a busy machine slows both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reduce/reduce.h"

#define MAX_SRCS 8
#define ROUNDS   15

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A round lasts long enough for the clock: some 32 MiB of traffic. */
static size_t repeats(size_t n_bytes) {
    const size_t round_bytes = (size_t)32 << 20;
    return n_bytes < round_bytes ? round_bytes / n_bytes : 1;
}

static double time_kernel(reduce_kernel kernel, char *dst, const void *const *srcs, size_t n_srcs,
                          size_t n_bytes, size_t count) {
    const size_t n = repeats(n_bytes * (n_srcs + 1));
    const double start = seconds();
    for (size_t i = 0; i < n; i++)
        kernel(dst, srcs, n_srcs, count);
    return (seconds() - start) / (double)n;
}

/* The same traffic in copies: each moves n_bytes there and n_bytes back. */
static double time_memcpy(char *dst, const void *const *srcs, size_t n_srcs, size_t n_bytes) {
    const size_t n = repeats(n_bytes * 2);
    const double start = seconds();
    for (size_t i = 0; i < n; i++) {
        memcpy(dst, srcs[i % n_srcs], n_bytes);
        __asm__ volatile("" : : "r"(dst) : "memory");
    }
    return (seconds() - start) / (double)n * (double)(n_srcs + 1) / 2.0;
}

static void measure(jackal_dtype dtype, jackal_op op, char *dst, const void *const *srcs,
                    size_t n_srcs, size_t n_bytes, size_t isa) {
    const reduce_kernel kernel = reduce_find_isa(dtype, op, isa);
    const size_t count = n_bytes / reduce_dtype_bytes(dtype);
    double kernel_time = 1e9, memcpy_time = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double k = time_kernel(kernel, dst, srcs, n_srcs, n_bytes, count);
        const double m = time_memcpy(dst, srcs, n_srcs, n_bytes);
        kernel_time = k < kernel_time ? k : kernel_time;
        memcpy_time = m < memcpy_time ? m : memcpy_time;
    }
    const double gigabytes = 1e-9 * (double)(n_bytes * (n_srcs + 1));
    printf("%-10s %-9s %6zu %10.1f %10.1f %6.2f\n", reduce_dtype_name(dtype), reduce_isa_name(isa),
           n_srcs, gigabytes / kernel_time, gigabytes / memcpy_time, memcpy_time / kernel_time);
}

static jackal_op op_of(const char *word) {
    jackal_op op = 0;
    while (op < JACKAL_OP_COUNT && strcmp(word, reduce_op_name(op)) != 0)
        op++;
    return op;
}

int main(int argc, char **argv) {
    static const size_t n_srcs_list[] = {2, 3, 4, 8};
    const size_t n_bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 4096) << 10;
    const jackal_op op = argc > 2 ? op_of(argv[2]) : JACKAL_SUM;
    if (n_bytes == 0 || n_bytes > (size_t)1 << 30 || op == JACKAL_OP_COUNT) {
        fprintf(stderr,
                "usage: bench-reduce [KIB per source, up to 1048576 [sum|max|min|prod|mean]]\n");
        return 2;
    }
    char *dst = malloc(n_bytes);
    void *data[MAX_SRCS];
    const void *srcs[MAX_SRCS];
    for (size_t s = 0; s < MAX_SRCS; s++) {
        data[s] = malloc(n_bytes);
        if (!data[s] || !dst) {
            fprintf(stderr, "bench-reduce: no memory for %d buffers of %zu bytes\n", MAX_SRCS + 1,
                    n_bytes);
            return 1;
        }
        /* An ordinary number in every float type. */
        memset(data[s], 0x3c, n_bytes);
        srcs[s] = data[s];
    }
    memset(dst, 0, n_bytes);
    printf("%s, %zu KiB per source, GB/s read and written\n", reduce_op_name(op), n_bytes >> 10);
    printf("%-10s %-9s %6s %10s %10s %6s\n", "type", "isa", "srcs", "kernel", "memcpy", "ratio");
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++) {
        for (size_t n = 0; n < sizeof n_srcs_list / sizeof n_srcs_list[0]; n++) {
            if (reduce_find(dtype, op))
                measure(dtype, op, dst, srcs, n_srcs_list[n], n_bytes, reduce_isa_best());
        }
    }
    for (size_t s = 0; s < MAX_SRCS; s++)
        free(data[s]);
    free(dst);
    return 0;
}
