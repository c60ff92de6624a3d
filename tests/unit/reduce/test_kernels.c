/* SPDX-License-Identifier: MIT */
/*
 * Every type, operator and instruction set against the reference: numbers of sources, counts around
 * each vector width, alignments, in place, and what lies before and behind the buffers (D4, D15).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "reduce/reduce.h"
#include "reference.h"

#define MAX_SRCS  17
#define MAX_COUNT 4099
#define MAX_BYTES (MAX_COUNT * 8)
#define GUARD     64
/* A source may begin up to a vector later than its buffer. */
#define ROOM   (MAX_BYTES + 2 * GUARD)
#define FILLER 0xa5

static const size_t n_srcs_list[] = {1, 2, 3, 4, 5, 8, 9, MAX_SRCS};
static const size_t counts[] = {0,  1,  2,  3,  5,  7,  8,    15,       16,
                                17, 31, 33, 63, 64, 65, 1000, MAX_COUNT};

#define LENGTH(list) (sizeof(list) / sizeof(list)[0])

struct sweep {
    jackal_dtype dtype;
    jackal_op op;
    size_t bytes;
    char data[MAX_SRCS][MAX_BYTES]; /* aligned, never written by a kernel */
    char right[MAX_BYTES];
    char room[MAX_SRCS][ROOM];
    char out[ROOM];
};

static struct sweep sweep;

static void fail_at(size_t isa, size_t n_srcs, size_t count, size_t pattern, size_t i) {
    fail_msg("%s %s %s: %zu sources, count %zu, pattern %zu, element %zu differs",
             reduce_isa_name(isa), reduce_dtype_name(sweep.dtype), reduce_op_name(sweep.op), n_srcs,
             count, pattern, i);
}

static void check(const char *out, size_t isa, size_t n_srcs, size_t count, size_t pattern) {
    if (memcmp(out, sweep.right, count * sweep.bytes) == 0)
        return;
    size_t i = 0;
    while (memcmp(out + i * sweep.bytes, sweep.right + i * sweep.bytes, sweep.bytes) == 0)
        i++;
    fail_at(isa, n_srcs, count, pattern, i);
}

/* Pattern 0 is aligned; in the others every pointer has an offset of its own, often an odd one. */
static size_t src_offset(size_t pattern, size_t s) {
    return pattern * (2 * s + 1) * 3 % GUARD;
}

static void run_out_of_place(size_t isa, size_t n_srcs, size_t pattern) {
    static const size_t dst_offsets[] = {0, 1, 7, 32};
    const reduce_kernel kernel = reduce_find_isa(sweep.dtype, sweep.op, isa);
    const void *srcs[MAX_SRCS];
    for (size_t s = 0; s < n_srcs; s++) {
        char *place = sweep.room[s] + src_offset(pattern, s);
        memcpy(place, sweep.data[s], MAX_COUNT * sweep.bytes);
        srcs[s] = place;
    }
    for (size_t c = 0; c < LENGTH(counts); c++) {
        char *out = sweep.out + GUARD + dst_offsets[pattern];
        const size_t n_bytes = counts[c] * sweep.bytes;
        memset(out - GUARD, FILLER, n_bytes + GUARD + GUARD / 2);
        kernel(out, srcs, n_srcs, counts[c]);
        check(out, isa, n_srcs, counts[c], pattern);
        for (size_t g = 1; g <= GUARD / 2; g++) {
            if ((uint8_t)out[n_bytes + g - 1] != FILLER || (uint8_t)out[-(ptrdiff_t)g] != FILLER)
                fail_at(isa, n_srcs, counts[c], pattern, counts[c]);
        }
    }
    for (size_t s = 0; s < n_srcs; s++)
        assert_memory_equal(srcs[s], sweep.data[s], MAX_COUNT * sweep.bytes);
}

static void run_in_place(size_t isa, size_t n_srcs, size_t count) {
    const reduce_kernel kernel = reduce_find_isa(sweep.dtype, sweep.op, isa);
    const void *srcs[MAX_SRCS];
    for (size_t s = 0; s < n_srcs; s++) {
        memcpy(sweep.room[s] + s, sweep.data[s], count * sweep.bytes);
        srcs[s] = sweep.room[s] + s;
    }
    for (size_t s = 0; s < n_srcs; s++) {
        kernel(sweep.room[s] + s, srcs, n_srcs, count);
        check(sweep.room[s] + s, isa, n_srcs, count, s);
        memcpy(sweep.room[s] + s, sweep.data[s], count * sweep.bytes);
    }
}

static void for_each_isa(size_t n_srcs) {
    static const size_t in_place_counts[] = {1, 33, 1000};
    for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
        if (!reduce_isa_available(isa))
            continue;
        for (size_t pattern = 0; pattern < 4; pattern++)
            run_out_of_place(isa, n_srcs, pattern);
        for (size_t c = 0; c < LENGTH(in_place_counts); c++)
            run_in_place(isa, n_srcs, in_place_counts[c]);
    }
}

static void sweep_dtype(void **state) {
    sweep.dtype = *(const jackal_dtype *)*state;
    sweep.bytes = reduce_dtype_bytes(sweep.dtype);
    const void *srcs[MAX_SRCS];
    for (size_t s = 0; s < MAX_SRCS; s++) {
        reference_fill(sweep.dtype, sweep.data[s], MAX_COUNT, 1000 * (uint64_t)sweep.dtype + s);
        srcs[s] = sweep.data[s];
    }
    for (sweep.op = 0; sweep.op < JACKAL_OP_COUNT; sweep.op++) {
        if (!reference_allows(sweep.dtype, sweep.op))
            continue;
        for (size_t n = 0; n < LENGTH(n_srcs_list); n++) {
            reference_reduce(sweep.dtype, sweep.op, sweep.right, srcs, n_srcs_list[n], MAX_COUNT);
            for_each_isa(n_srcs_list[n]);
        }
    }
}

/* The same buffer may be several sources and the destination. */
static void one_buffer_as_every_source(void **state) {
    (void)state;
    for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
        if (!reduce_isa_available(isa))
            continue;
        uint32_t data[300];
        for (uint32_t i = 0; i < 300; i++)
            data[i] = i + 0x40000000;
        const void *srcs[] = {data, data, data, data, data};
        reduce_find_isa(JACKAL_UINT32, JACKAL_SUM, isa)(data, srcs, 5, 300);
        for (uint32_t i = 0; i < 300; i++)
            assert_int_equal(data[i], 5 * i + 0x40000000);
    }
}

static void more_sources_than_any_mesh_has(void **state) {
    (void)state;
    /* 256 + 99 = 355 in float32; bfloat16 counts in twos there, and 356 is the even one. */
    uint16_t ones[70], many[70], out[70];
    const void *srcs[100];
    for (size_t i = 0; i < 70; i++) {
        ones[i] = 0x3f80;
        many[i] = 0x4380;
    }
    for (size_t s = 0; s < 100; s++)
        srcs[s] = s == 41 ? many : ones;
    for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
        if (!reduce_isa_available(isa))
            continue;
        reduce_find_isa(JACKAL_BFLOAT16, JACKAL_SUM, isa)(out, srcs, 100, 70);
        for (size_t i = 0; i < 70; i++)
            assert_int_equal(out[i], 0x43b2);
    }
}

/* Three buffers, each with a page before and behind it that may not be touched. */
struct fenced {
    char *pages;
    size_t page;
};

static struct fenced fenced_new(void) {
    struct fenced fenced = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    fenced.pages =
        mmap(NULL, 3 * fenced.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    assert_true(fenced.pages != MAP_FAILED);
    assert_int_equal(mprotect(fenced.pages, fenced.page, PROT_NONE), 0);
    assert_int_equal(mprotect(fenced.pages + 2 * fenced.page, fenced.page, PROT_NONE), 0);
    return fenced;
}

static void run_fenced(const struct fenced *buffers, reduce_kernel kernel, size_t bytes,
                       size_t count) {
    for (int at_end = 0; at_end < 2; at_end++) {
        char *places[3];
        for (size_t b = 0; b < 3; b++)
            places[b] =
                buffers[b].pages + buffers[b].page + (at_end ? buffers[b].page - count * bytes : 0);
        const void *srcs[] = {places[0], places[1]};
        kernel(places[2], srcs, 2, count);
    }
}

/* A read or write outside of the buffers ends this program. */
static void nothing_outside_the_buffers_is_touched(void **state) {
    (void)state;
    struct fenced buffers[3];
    for (size_t b = 0; b < 3; b++)
        buffers[b] = fenced_new();
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++) {
        for (jackal_op op = 0; op < JACKAL_OP_COUNT; op++) {
            for (size_t isa = 0; isa < reduce_isa_count(); isa++) {
                const reduce_kernel kernel = reduce_find_isa(dtype, op, isa);
                for (size_t count = 0; kernel && count < 150; count++)
                    run_fenced(buffers, kernel, reduce_dtype_bytes(dtype), count);
            }
        }
    }
    for (size_t b = 0; b < 3; b++)
        assert_int_equal(munmap(buffers[b].pages, 3 * buffers[b].page), 0);
}

int main(void) {
#define SWEEP(name, number, bytes, word)                                                           \
    {"every kernel of " word, sweep_dtype, NULL, NULL, &dtypes[number]},
    static jackal_dtype dtypes[JACKAL_DTYPE_COUNT];
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++)
        dtypes[dtype] = dtype;
    const struct CMUnitTest tests[] = {
        JACKAL_DTYPE_TABLE(SWEEP) cmocka_unit_test(one_buffer_as_every_source),
        cmocka_unit_test(more_sources_than_any_mesh_has),
        cmocka_unit_test(nothing_outside_the_buffers_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
