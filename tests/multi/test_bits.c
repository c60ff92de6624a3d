/* SPDX-License-Identifier: MIT */
/*
 * The bits of a sum depend on the inputs alone (D5, D6, D7, T13): not on the count, the algorithm,
 * the wires, the checksum, the place in the message, or in place or not; and all ranks have the
 * same.
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

/* ---- the table of T13 -------------------------------------------------------------------------
 */

static const struct row {
    jackal_dtype dtype;
    int n;
    float parts[4];
    float right; /* with float32 accumulation and one rounding; the same for every order of ranks */
} rows[] = {
    {JACKAL_BFLOAT16, 3, {256, 1, 1}, 258},
    {JACKAL_BFLOAT16, 4, {256, 1, 1, 1}, 260},
    {JACKAL_FLOAT16, 3, {2048, 1, 1}, 2050},
    {JACKAL_FLOAT16, 3, {60000, 60000, -60000}, 60000},
};

static const uint64_t counts[] = {1, 5, 16383, 16384, 16385, 40003};

/* The index-th permutation of 0 … n − 1. */
static void permute(int n, int index, int *order) {
    int left[4] = {0, 1, 2, 3};
    for (int i = 0; i < n; i++) {
        int at = index % (n - i);
        index /= n - i;
        order[i] = left[at];
        memmove(&left[at], &left[at + 1], (size_t)(3 - at) * sizeof left[0]);
    }
}

static void check_row(jackal_group *group, const struct row *row, int permutation, uint64_t count,
                      uint16_t *vector) {
    int order[4];
    permute(row->n, permutation, order);
    ranks_at("%s, permutation %d, count %llu", value_dtype_name(row->dtype), permutation,
             (unsigned long long)count);
    uint16_t mine = value_to_half(row->dtype, row->parts[order[jackal_rank(group)]]);
    for (uint64_t i = 0; i < count; i++)
        vector[i] = mine;
    RANKS_OK(group, jackal_all_sum(group, vector, vector, count, row->dtype));
    for (uint64_t i = 0; i < count; i++)
        if (value_from_half(row->dtype, vector[i]) != row->right)
            ranks_failed(__FILE__, __LINE__, "element %llu is %g, want %g", (unsigned long long)i,
                         (double)value_from_half(row->dtype, vector[i]), (double)row->right);
}

static int run_rows(int rank, int size, jackal_config *config, void *argument) {
    (void)rank;
    (void)argument;
    jackal_group *group = ranks_init(config);
    uint16_t *vector = malloc(40003 * sizeof *vector);
    RANKS_CHECK(vector != NULL);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int permutation = 0; permutation < (size == 3 ? 6 : 24); permutation++)
            for (size_t c = 0; c < sizeof counts / sizeof counts[0] && rows[r].n == size; c++)
                check_row(group, &rows[r], permutation, counts[c], vector);
    free(vector);
    jackal_group_free(group);
    return 0;
}

static void run_table(const char *settings, int wires) {
    for (int size = 3; size <= 4; size++) {
        struct ranks_job job = {
            .size = size, .wires = wires, .run = run_rows, .settings = settings};
        assert_int_equal(ranks_run(&job), 0);
    }
}

static void sums_of_halves_are_rounded_once(void **state) {
    (void)state;
    run_table("algorithm=auto", 1);
    run_table("algorithm=direct", 2);
    run_table("algorithm=mesh", 1);
}

/* ---- the same elements in many ways -----------------------------------------------------------
 */

enum { ELEMENTS = 50021, N_DTYPES = 5 };
static const jackal_dtype order_matters[N_DTYPES] = {
    JACKAL_FLOAT16, JACKAL_BFLOAT16, JACKAL_FLOAT32, JACKAL_FLOAT64, JACKAL_COMPLEX64};
static const jackal_op order_ops[] = {JACKAL_SUM, JACKAL_PROD, JACKAL_MEAN};

/* What every rank of every job found: a hash for each type and operator. */
struct found {
    uint64_t hashes[RANKS_MAX][N_DTYPES][3];
};

static uint64_t hash_bytes(const uint8_t *bytes, size_t n_bytes) {
    uint64_t hash = n_bytes;
    for (size_t i = 0; i < n_bytes; i++)
        hash = hash * 0x100000001b3u ^ bytes[i];
    return hash;
}

/* The vector in calls of `part` elements each: the result may not depend on it. */
static void sum_in_parts(jackal_group *group, uint8_t *vector, uint64_t part, jackal_dtype dtype,
                         jackal_op op) {
    for (uint64_t at = 0; at < ELEMENTS; at += part) {
        uint64_t count = ELEMENTS - at < part ? ELEMENTS - at : part;
        uint8_t *place = vector + at * value_bytes(dtype);
        RANKS_OK(group, jackal_all_reduce(group, place, place, count, dtype, op));
    }
}

static int run_ways(int rank, int size, jackal_config *config, void *argument) {
    (void)size;
    struct found *found = ranks_memory();
    const uint64_t *part = argument;
    jackal_group *group = ranks_init(config);
    uint8_t *vector = malloc(ELEMENTS * 8);
    RANKS_CHECK(vector != NULL);
    for (int d = 0; d < N_DTYPES; d++) {
        for (int o = 0; o < 3; o++) {
            jackal_dtype dtype = order_matters[d];
            for (uint64_t i = 0; i < ELEMENTS; i++)
                value_store(vector, dtype, i, value_of(dtype, 77, rank, i));
            sum_in_parts(group, vector, *part, dtype, order_ops[o]);
            found->hashes[rank][d][o] = hash_bytes(vector, ELEMENTS * value_bytes(dtype));
        }
    }
    free(vector);
    jackal_group_free(group);
    return 0;
}

static void bits_do_not_depend_on_the_way(void **state) {
    static const struct {
        const char *settings;
        int wires;
        uint64_t part;
    } ways[] = {
        {"algorithm=direct", 1, ELEMENTS},
        {"algorithm=mesh", 1, ELEMENTS},
        {"algorithm=auto;checksum=1", 2, 7919},
        {"algorithm=mesh;slot_frames=4", 3, 40009},
    };
    static struct found first;
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        uint64_t part = ways[w].part;
        struct ranks_job job = {.size = 3,
                                .wires = ways[w].wires,
                                .run = run_ways,
                                .argument = &part,
                                .settings = ways[w].settings};
        assert_int_equal(ranks_run(&job), 0);
        struct found *found = ranks_memory();
        for (int rank = 1; rank < 3; rank++)
            assert_memory_equal(found->hashes[rank], found->hashes[0], sizeof found->hashes[0]);
        if (w == 0)
            first = *found;
        assert_memory_equal(found->hashes[0], first.hashes[0], sizeof found->hashes[0]);
    }
}

/* The data must be such that another order would show. */
static void the_order_would_show(void **state) {
    unsigned n_other = 0;
    (void)state;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        uint64_t parts[3], turned[3];
        for (int rank = 0; rank < 3; rank++)
            parts[rank] = turned[2 - rank] = value_of(JACKAL_FLOAT32, 77, rank, i);
        n_other += value_combine(JACKAL_FLOAT32, JACKAL_SUM, parts, 3) !=
                   value_combine(JACKAL_FLOAT32, JACKAL_SUM, turned, 3);
    }
    assert_true(n_other > ELEMENTS / 20);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_halves_are_rounded_once),
        cmocka_unit_test(bits_do_not_depend_on_the_way),
        cmocka_unit_test(the_order_would_show),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
