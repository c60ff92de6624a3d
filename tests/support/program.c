/* SPDX-License-Identifier: MIT */
/* What a test program is told by its environment. */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a sanitizer leaves of the speed, roughly. */
#if defined(RANKS_TSAN)
enum { USUAL_PERCENT = 15 };
#elif defined(RANKS_ASAN)
enum { USUAL_PERCENT = 40 };
#else
enum { USUAL_PERCENT = 100 };
#endif

static const char *program_name = "";
static uint64_t seed;

bool ranks_are_threads(void) {
    const char *mode = getenv("JACKAL_TEST_RANKS");
#ifdef RANKS_TSAN
    return mode == NULL || strcmp(mode, "processes") != 0;
#else
    return mode != NULL && strcmp(mode, "threads") == 0;
#endif
}

unsigned ranks_percent(void) {
    const char *text = getenv("JACKAL_TEST_SCALE");
    long percent = text != NULL ? strtol(text, NULL, 10) : USUAL_PERCENT;
    return percent > 0 && percent <= 100000 ? (unsigned)percent : 100;
}

unsigned ranks_scaled(unsigned n) {
    uint64_t scaled = (uint64_t)n * ranks_percent() / 100;
    return scaled > 0 ? (unsigned)scaled : 1;
}

uint64_t ranks_seed(void) {
    return seed;
}

/* At exit of the program itself: its children have other numbers. */
static pid_t owner;
static bool all_good;

static void say_how_to_repeat(void) {
    if (getpid() == owner && !all_good)
        fprintf(stderr, "repeat with: JACKAL_TEST_SEED=%llu JACKAL_TEST_RANKS=%s %s\n",
                (unsigned long long)seed, ranks_are_threads() ? "threads" : "processes",
                program_name);
}

int ranks_end(int n_failed) {
    all_good = n_failed == 0;
    return n_failed == 0 ? 0 : 1;
}

void ranks_begin(const char *program, const char *processes_only) {
    const char *text = getenv("JACKAL_TEST_SEED");
    const char *filter = getenv("JACKAL_TEST_FILTER");
    if (processes_only != NULL && ranks_are_threads()) {
        printf("skipped, ranks are threads here: %s\n", processes_only);
        exit(RANKS_SKIP);
    }
    seed = text != NULL ? strtoull(text, NULL, 10)
                        : ranks_hash((uint64_t)time(NULL), (uint64_t)getpid(), 0) % 1000000;
    if (filter != NULL)
        cmocka_set_test_filter(filter);
    program_name = program;
    owner = getpid();
    printf("seed %llu, %u %% of the random work, ranks are %s\n", (unsigned long long)seed,
           ranks_percent(), ranks_are_threads() ? "threads" : "processes");
    fflush(stdout);
    atexit(say_how_to_repeat);
}
