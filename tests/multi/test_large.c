/* SPDX-License-Identifier: MIT */
/*
 * Messages that no 32-bit count or offset can hold (D1, D2), with JACKAL_SOAK=1 and enough memory;
 * else 40 MiB, which takes the same way.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum { WINDOW = 8192 };

/* Input is zero but for windows of a pattern; untouched pages of the input take no memory. */
static uint8_t pattern(int rank, uint64_t at) {
    return (uint8_t)(ranks_hash((uint64_t)rank, at / 8, 3) | 1);
}

/* Where the windows are: the ends, around every 2^31 and 2^32 of the result, and some more. */
static uint64_t window_at(int index, uint64_t n_bytes, int size) {
    static const uint64_t marks[] = {0, 2 * GIB, 4 * GIB, 3 * GIB, GIB, 5 * GIB};
    uint64_t last = n_bytes - WINDOW;
    if (index >= 6)
        return ranks_hash((uint64_t)index, n_bytes, 0) % last;
    uint64_t at = marks[index] % (n_bytes * (uint64_t)size) % n_bytes;
    at = index == 5 ? last : at < WINDOW / 2 ? 0 : at - WINDOW / 2;
    return at < last ? at : last;
}

enum { WINDOWS = 24 };

static uint8_t *map(uint64_t n_bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void *bytes = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (bytes == MAP_FAILED)
        ranks_failed(__FILE__, __LINE__, "no %llu bytes", (unsigned long long)n_bytes);
    return bytes;
}

static void fill_windows(uint8_t *in, int rank, uint64_t n_bytes, int size) {
    for (int w = 0; w < WINDOWS; w++) {
        uint64_t at = window_at(w, n_bytes, size);
        for (uint64_t i = at; i < at + WINDOW; i++)
            in[i] = pattern(rank, i);
    }
}

/* The windows hold the pattern, everything else is zero. */
static void check_block(uint8_t *block, int source, uint64_t n_bytes, int size) {
    static const uint8_t zero[65536];
    for (int w = 0; w < WINDOWS; w++) {
        uint64_t at = window_at(w, n_bytes, size);
        for (uint64_t i = at; i < at + WINDOW; i++)
            if (block[i] != pattern(source, i))
                ranks_failed(__FILE__, __LINE__, "byte %llu of rank %d is wrong",
                             (unsigned long long)i, source);
    }
    for (int w = 0; w < WINDOWS; w++)
        memset(block + window_at(w, n_bytes, size), 0, WINDOW);
    for (uint64_t at = 0; at < n_bytes; at += sizeof zero) {
        uint64_t n = n_bytes - at < sizeof zero ? n_bytes - at : sizeof zero;
        if (memcmp(block + at, zero, n) != 0)
            ranks_failed(__FILE__, __LINE__, "something strange at byte %llu of rank %d",
                         (unsigned long long)at, source);
    }
}

static int run(int rank, int size, jackal_config *config, void *argument) {
    uint64_t n_bytes = *(uint64_t *)argument;
    jackal_group *group = ranks_init(config);
    uint8_t *in = map(n_bytes), *out = map(n_bytes * (uint64_t)size);
    fill_windows(in, rank, n_bytes, size);
    RANKS_OK(group, jackal_all_gather(group, in, out, n_bytes, JACKAL_UINT8));
    for (int source = 0; source < size; source++)
        check_block(out + (uint64_t)source * n_bytes, source, n_bytes, size);
    jackal_group_free(group);
    munmap(in, n_bytes);
    munmap(out, n_bytes * (uint64_t)size);
    return 0;
}

static uint64_t free_memory(void) {
#ifdef _SC_AVPHYS_PAGES
    return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
#else
    return 0;
#endif
}

static void gather(uint64_t n_bytes, unsigned limit_ms) {
    struct ranks_job job = {.size = 2, .run = run, .argument = &n_bytes, .limit_ms = limit_ms};
    assert_int_equal(ranks_run(&job), 0);
}

static void large_blocks_arrive(void **state) {
    (void)state;
    gather(40 * MIB / RANKS_SLOW + 13, 60000);
}

static void offsets_have_64_bits(void **state) {
    const char *soak = getenv("JACKAL_SOAK");
    (void)state;
    if (soak == NULL || strcmp(soak, "1") != 0) {
        printf("skipped: 3 GiB a rank only with JACKAL_SOAK=1\n");
        skip();
    }
    if (free_memory() < 16 * GIB) {
        printf("skipped: 16 GiB of free memory are needed\n");
        skip();
    }
    gather(3 * GIB + 4097, 600000);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_arrive),
        cmocka_unit_test(offsets_have_64_bits),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
