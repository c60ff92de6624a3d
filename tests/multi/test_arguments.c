/* SPDX-License-Identifier: MIT */
/*
 * Wrong arguments: JACKAL_ERR_ARGUMENT on the calling rank alone, with a text that names argument
 * and value; nothing was sent, so the group works on (D8, D9, D10, D14).
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"
#include "value.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BAD(group, call, ...)                                                                      \
    do {                                                                                           \
        const char *parts[] = {__VA_ARGS__};                                                       \
        RANKS_STATUS(group, call, JACKAL_ERR_ARGUMENT);                                            \
        for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++)                       \
            RANKS_HAS(jackal_error_message(group), parts[part]);                                   \
        RANKS_EQUAL(jackal_group_state(group), JACKAL_OK);                                         \
    } while (0)

static uint8_t bytes[4096];

static void try_types(jackal_group *g) {
    uint8_t *in = bytes, *out = bytes + 2048;
    BAD(g, jackal_all_reduce(g, in, out, 1, -1, JACKAL_SUM), "all_reduce", "dtype", "-1");
    BAD(g, jackal_all_reduce(g, in, out, 1, 14, JACKAL_SUM), "all_reduce", "dtype", "14");
    BAD(g, jackal_all_reduce(g, in, out, 0, 99, JACKAL_SUM), "dtype", "99");
    BAD(g, jackal_all_sum(g, in, out, 1, 1 << 20), "dtype", "1048576");
    BAD(g, jackal_all_max(g, in, out, 1, 14), "dtype", "14");
    BAD(g, jackal_all_min(g, in, out, 1, 14), "dtype", "14");
    BAD(g, jackal_all_gather(g, in, out, 1, 14), "all_gather", "dtype", "14");
    BAD(g, jackal_reduce_scatter(g, in, out, 1, 14, 0), "reduce_scatter", "dtype", "14");
    BAD(g, jackal_sum_scatter(g, in, out, 1, -7), "dtype", "-7");
    BAD(g, jackal_broadcast(g, in, 1, 14, 0), "broadcast", "dtype", "14");
    BAD(g, jackal_all_reduce(g, in, out, 1, JACKAL_INT8, 5), "all_reduce", "op", "5");
    BAD(g, jackal_all_reduce(g, in, out, 1, JACKAL_INT8, -1), "op", "-1");
    BAD(g, jackal_all_reduce(g, NULL, NULL, 0, JACKAL_INT8, 77), "op", "77");
    BAD(g, jackal_reduce_scatter(g, in, out, 1, JACKAL_FLOAT32, 5), "reduce_scatter", "op", "5");
    for (jackal_dtype dtype = JACKAL_BOOL; dtype <= JACKAL_UINT64; dtype++) {
        BAD(g, jackal_all_reduce(g, in, out, 1, dtype, JACKAL_MEAN), "mean",
            value_dtype_name(dtype));
        BAD(g, jackal_reduce_scatter(g, in, out, 1, dtype, JACKAL_MEAN), "mean",
            value_dtype_name(dtype));
    }
}

static void try_counts(jackal_group *g) {
    uint8_t *in = bytes, *out = bytes + 2048;
    uint64_t huge = UINT64_MAX, half = UINT64_MAX / 8 + 1;
    BAD(g, jackal_all_sum(g, in, out, huge, JACKAL_INT8), "count", "18446744073709551615");
    BAD(g, jackal_all_sum(g, in, out, half, JACKAL_FLOAT64), "count", "2305843009213693952");
    BAD(g, jackal_all_sum(g, NULL, NULL, half, JACKAL_FLOAT64), "count");
    BAD(g, jackal_broadcast(g, in, half, JACKAL_INT64, 0), "broadcast", "count");
    /* Too much only for N blocks. */
    BAD(g, jackal_all_gather(g, in, out, UINT64_MAX / 8, JACKAL_INT8), "all_gather", "count");
    BAD(g, jackal_reduce_scatter(g, in, out, UINT64_MAX / 8, JACKAL_INT8, JACKAL_SUM),
        "reduce_scatter", "count");
    BAD(g, jackal_all_sum(g, NULL, out, 1, JACKAL_INT8), "in is NULL", "count is 1");
    BAD(g, jackal_all_sum(g, in, NULL, 3, JACKAL_INT8), "out is NULL", "count is 3");
    BAD(g, jackal_all_gather(g, NULL, out, 2, JACKAL_INT8), "all_gather", "in is NULL");
    BAD(g, jackal_all_gather(g, in, NULL, 2, JACKAL_INT8), "out is NULL");
    BAD(g, jackal_reduce_scatter(g, NULL, out, 2, JACKAL_INT8, 0), "in is NULL");
    BAD(g, jackal_reduce_scatter(g, in, NULL, 2, JACKAL_INT8, 0), "out is NULL");
    BAD(g, jackal_broadcast(g, NULL, 2, JACKAL_INT8, 0), "data is NULL", "count is 2");
}

/* D14: everything but the one natural place. */
static void try_overlaps(jackal_group *g, int rank) {
    uint8_t *b = bytes;
    uint64_t own = (uint64_t)rank * 64;
    BAD(g, jackal_all_sum(g, b, b + 1, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_all_sum(g, b + 63, b, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_all_sum(g, b, b + 63, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_all_gather(g, b + own + 1, b, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_all_gather(g, b + (own == 0 ? 64 : 0), b, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_all_gather(g, b, b + 1, 64, JACKAL_INT8), "overlap");
    BAD(g, jackal_reduce_scatter(g, b, b + own + 1, 64, JACKAL_INT8, 0), "overlap");
    BAD(g, jackal_reduce_scatter(g, b, b + (own == 0 ? 64 : 0), 64, JACKAL_INT8, 0), "overlap");
    BAD(g, jackal_reduce_scatter(g, b + 1, b, 64, JACKAL_INT8, 0), "overlap");
}

static void try_ranks(jackal_group *g, int rank, int size) {
    uint8_t *b = bytes, *c = bytes + 2048;
    int other = (rank + 1) % size;
    char own[16], n[16];
    snprintf(own, sizeof own, "%d", rank);
    snprintf(n, sizeof n, "%d", size);
    BAD(g, jackal_broadcast(g, b, 1, JACKAL_INT8, -1), "root", "-1");
    BAD(g, jackal_broadcast(g, b, 1, JACKAL_INT8, size), "root", n);
    BAD(g, jackal_broadcast(g, NULL, 0, JACKAL_INT8, 1000), "root", "1000");
    BAD(g, jackal_send(g, b, 1, -1), "send", "dst", "-1");
    BAD(g, jackal_send(g, b, 1, size), "dst", n);
    BAD(g, jackal_recv(g, b, 1, size), "recv", "src", n);
    BAD(g, jackal_send(g, b, 1, rank), "dst", own, "itself"); /* D10 */
    BAD(g, jackal_send(g, NULL, 0, rank), "dst", "itself");
    BAD(g, jackal_recv(g, b, 1, rank), "src", own, "itself");
    if (size == 1)
        return; /* there is no other rank */
    BAD(g, jackal_send(g, NULL, 5, other), "NULL", "5");
    BAD(g, jackal_recv(g, NULL, 6, other), "NULL", "6");
    BAD(g, jackal_send(g, b, UINT64_MAX, other), "n_bytes", "18446744073709551615");
    BAD(g, jackal_recv(g, b, UINT64_MAX, other), "n_bytes", "18446744073709551615");
    BAD(g, jackal_sendrecv(g, b, 8, rank, c, 8, other), "sendrecv", "dst", "itself");
    BAD(g, jackal_sendrecv(g, b, 8, other, c, 8, rank), "src", "itself");
    BAD(g, jackal_sendrecv(g, b, 8, size, c, 8, other), "dst", n);
    BAD(g, jackal_sendrecv(g, b, 8, other, c, 8, -2), "src", "-2");
    BAD(g, jackal_sendrecv(g, b, 8, other, b + 7, 8, other), "overlap");
    BAD(g, jackal_sendrecv(g, b, 8, other, b, 8, other), "overlap");
    BAD(g, jackal_sendrecv(g, NULL, 8, other, b, 8, other), "NULL");
}

static void check_works(jackal_group *g, int size) {
    int32_t one = 1, sum = 0;
    RANKS_OK(g, jackal_all_sum(g, &one, &sum, 1, JACKAL_INT32));
    RANKS_EQUAL(sum, size);
}

/* D8: nothing of anything, with no buffers, is an operation like any other. */
static void try_nothing(jackal_group *g, int size) {
    for (int root = 0; root < size; root++)
        RANKS_OK(g, jackal_broadcast(g, NULL, 0, JACKAL_FLOAT64, root));
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++) {
        RANKS_OK(g, jackal_all_reduce(g, NULL, NULL, 0, dtype, JACKAL_MAX));
        RANKS_OK(g, jackal_all_gather(g, NULL, NULL, 0, dtype));
        RANKS_OK(g, jackal_reduce_scatter(g, NULL, NULL, 0, dtype, JACKAL_SUM));
    }
}

static int run(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    /* One rank alone, then all at once: nobody waits for anybody. */
    if (rank == size - 1)
        try_types(group);
    check_works(group, size);
    try_types(group);
    try_counts(group);
    if (!ranks_are_threads() || rank == 0) /* one array */
        try_overlaps(group, rank);
    try_ranks(group, rank, size);
    check_works(group, size);
    try_nothing(group, size);
    check_works(group, size);
    jackal_group_free(group);
    return 0;
}

static void wrong_arguments_change_nothing(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run};
    assert_int_equal(ranks_run(&job), 0);
}

static int run_alone(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    try_types(group);
    try_ranks(group, rank, size);
    check_works(group, 1);
    try_nothing(group, 1);
    jackal_group_free(group);
    return 0;
}

static void a_group_of_one_checks_as_well(void **state) {
    (void)state;
    struct ranks_job job = {.size = 1, .run = run_alone};
    assert_int_equal(ranks_run(&job), 0);
}

/* D14: an input that cannot be written is never written, whatever the algorithm. */
static int run_read_only(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    size_t n_bytes = 1 << 19;
    int32_t *in = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int32_t *out = malloc(n_bytes * (size_t)size);
    RANKS_CHECK(in != MAP_FAILED && out != NULL);
    for (size_t i = 0; i < n_bytes / 4; i++)
        in[i] = rank + (int32_t)i;
    RANKS_EQUAL(mprotect(in, n_bytes, PROT_READ), 0);
    for (uint64_t count = n_bytes / 4; count >= 8; count /= 32) {
        RANKS_OK(group, jackal_all_sum(group, in, out, count, JACKAL_INT32));
        RANKS_EQUAL(out[count - 1], 3 * ((int32_t)count - 1) + 3);
        RANKS_OK(group, jackal_all_gather(group, in, out, count, JACKAL_INT32));
        RANKS_EQUAL(out[2 * count + 5], 2 + 5);
        RANKS_OK(group, jackal_sum_scatter(group, in, out, count / 3, JACKAL_INT32));
        RANKS_EQUAL(out[1], 3 * (rank * (int32_t)(count / 3) + 1) + 3);
        RANKS_OK(group, jackal_sendrecv(group, in, count * 4, (rank + 1) % size, out, count * 4,
                                        (rank + size - 1) % size));
        RANKS_EQUAL(out[3], (rank + size - 1) % size + 3);
        if (rank == 1)
            RANKS_OK(group, jackal_broadcast(group, in, count, JACKAL_INT32, 1));
        else
            RANKS_OK(group, jackal_broadcast(group, out, count, JACKAL_INT32, 1));
        RANKS_EQUAL(rank == 1 ? in[7] : out[7], 8);
    }
    munmap(in, n_bytes);
    free(out);
    jackal_group_free(group);
    return 0;
}

static void inputs_may_be_read_only(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_read_only};
    assert_int_equal(ranks_run(&job), 0);
    job.settings = "algorithm=direct";
    assert_int_equal(ranks_run(&job), 0);
}

/* Getters and ends are kind to NULL; calls say what it is. */
static void nothing_is_done_to_no_group(void **state) {
    (void)state;
    jackal_group_free(NULL);
    jackal_config_free(NULL);
    jackal_free_text(NULL);
    jackal_abort(NULL, "nobody");
    assert_int_equal(jackal_rank(NULL), -1);
    assert_int_equal(jackal_size(NULL), 0);
    assert_string_equal(jackal_error_message(NULL), "");
    assert_int_equal(jackal_error_peer(NULL), -1);
    assert_int_equal(jackal_group_state(NULL), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_barrier(NULL), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_all_sum(NULL, bytes, bytes, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_all_gather(NULL, bytes, bytes, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_sum_scatter(NULL, bytes, bytes, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_broadcast(NULL, bytes, 1, 0, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_send(NULL, bytes, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_recv(NULL, bytes, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_sendrecv(NULL, bytes, 1, 0, bytes + 1, 1, 0), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_init(NULL, NULL), JACKAL_ERR_ARGUMENT);
    assert_int_equal(jackal_group_stats(NULL, NULL), JACKAL_ERR_ARGUMENT);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_change_nothing),
        cmocka_unit_test(a_group_of_one_checks_as_well),
        cmocka_unit_test(inputs_may_be_read_only),
        cmocka_unit_test(nothing_is_done_to_no_group),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
