/* SPDX-License-Identifier: MIT */
#include "providers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const personality_names[PERSONALITIES] = {"thunderbolt", "roce"};

const char *providers_fabric(enum personality personality, int size, int wires, const char *more) {
    static char text[1024];
    snprintf(text, sizeof text, "{\"personality\":\"%s\",\"mesh\":{\"hosts\":%d,\"wires\":%d}%s}",
             personality_names[personality], size < 2 ? 2 : size, wires, more);
    return text;
}

/* On roce a host has as many devices as there are wires, each on a switch to all others. */
const char *providers_matrix(enum personality personality, int size, int wires) {
    static char text[8192];
    size_t used = 0;
    if (personality == THUNDERBOLT)
        return ranks_matrix(size, wires);
#define ADD(...) used += (size_t)snprintf(text + used, sizeof text - used, __VA_ARGS__)
    for (int i = 0; i < size; i++) {
        ADD("%s", i == 0 ? "[[" : "],[");
        for (int j = 0; j < size; j++) {
            ADD("%s%s", j > 0 ? "," : "", i == j ? "null" : "[");
            for (int wire = 0; wire < wires && i != j; wire++) {
                ADD("%s\"", wire > 0 ? "," : "");
                if (ranks_are_threads())
                    ADD("h%d.", i);
                ADD("rocep%d\"", 1 + wire);
            }
            ADD("%s", i == j ? "" : "]");
        }
    }
    ADD("]]");
#undef ADD
    return text;
}

/* Whole numbers below 2^24, so a sum of floats is exact in any order. */
static float element(int rank, size_t i, int round) {
    return (float)((int)((i * 7 + (size_t)rank * 131 + (size_t)round * 17) % 4001) - 2000);
}

struct buffers {
    float *in, *out;
};

static void check(const float *values, size_t count, int from, int round, size_t first) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != element(from, i, round))
            ranks_failed(__FILE__, __LINE__, "element %zu is %g, want %g of rank %d", first + i,
                         (double)values[i], (double)element(from, i, round), from);
}

static void check_sum(const float *out, size_t count, int size, int round) {
    for (size_t i = 0; i < count; i++) {
        float want = 0;
        for (int r = 0; r < size; r++)
            want += element(r, i, round);
        if (out[i] != want)
            ranks_failed(__FILE__, __LINE__, "element %zu of the sum is %g, want %g", i,
                         (double)out[i], (double)want);
    }
}

static jackal_status calls(jackal_group *group, struct buffers b, int rank, int size, size_t count,
                           int round) {
    size_t n_bytes = count * sizeof(float);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    jackal_status status = jackal_all_sum(group, b.in, b.out, count, JACKAL_FLOAT32);
    if (status == JACKAL_OK) {
        check_sum(b.out, count, size, round);
        status = jackal_all_gather(group, b.in, b.out, count, JACKAL_FLOAT32);
    }
    for (int r = 0; r < size && status == JACKAL_OK; r++)
        check(b.out + (size_t)r * count, count, r, round, (size_t)r * count);
    if (status == JACKAL_OK && size > 1)
        status = jackal_sendrecv(group, b.in, n_bytes, next, b.out, n_bytes, previous);
    if (status == JACKAL_OK && size > 1)
        check(b.out, count, previous, round, 0);
    return status == JACKAL_OK ? jackal_barrier(group) : status;
}

jackal_status providers_round(jackal_group *group, int rank, int size, size_t count, int round) {
    struct buffers b = {calloc(count + 1, sizeof(float)),
                        calloc(count * (size_t)size + 1, sizeof(float))};
    RANKS_CHECK(b.in != NULL && b.out != NULL);
    for (size_t i = 0; i < count; i++)
        b.in[i] = element(rank, i, round);
    jackal_status status = calls(group, b, rank, size, count, round);
    free(b.in);
    free(b.out);
    return status;
}

void providers_order(struct failing_orders *orders) {
    void *library = dlopen(FAILING_VERBS, RTLD_NOW | RTLD_LOCAL);
    RANKS_CHECK(library != NULL);
    void *found = dlsym(library, "failing_verbs_use");
    RANKS_CHECK(found != NULL);
    failing_verbs_use_function use;
    memcpy(&use, &found, sizeof use);
    use(orders); /* It stays loaded, and the library under test gets the same one. */
}
