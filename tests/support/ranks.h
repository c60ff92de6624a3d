/* SPDX-License-Identifier: MIT */
/*
 * Runs one function on N ranks that find a ready launch environment on an emulated fabric of their
 * own, and says which rank failed, where and why, or which ones did not come back in time.
 *
 * JACKAL_TEST_RANKS=processes  every rank is a process that is forked before any library call
 *                  =threads    all ranks are threads of one process (the default under
 *                              ThreadSanitizer, which sees nothing across processes)
 * JACKAL_TEST_SCALE=percent    how much random work is done
 * JACKAL_TEST_SEED=number      repeats a random run
 * JACKAL_TEST_FILTER=pattern   runs only the tests whose name matches
 *
 * Either way a job runs in children of the test program: its environment is its own, nothing of a
 * job is left in the next, and a job that hangs is ended by killing its processes by number.
 */
#ifndef RANKS_H
#define RANKS_H

#include <jackal/collective.h>
#include <jackal/inspect.h>
#include <jackal/jackal.h>

#include <stdarg.h>
#include <stdbool.h>

enum { RANKS_MAX = 8, RANKS_MEETINGS = 4, RANKS_MEMORY_BYTES = 65536, RANKS_SKIP = 77 };

#if defined(__SANITIZE_THREAD__)
#define RANKS_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define RANKS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RANKS_TSAN 1
#elif __has_feature(address_sanitizer)
#define RANKS_ASAN 1
#endif
#endif

/* Time limits are multiplied by this. */
#if defined(RANKS_TSAN) || defined(RANKS_ASAN)
enum { RANKS_SLOW = 4 };
#else
enum { RANKS_SLOW = 1 };
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RANKS_PRINTF(format_index, first_index)                                                    \
    __attribute__((format(printf, format_index, first_index)))
#else
#define RANKS_PRINTF(format_index, first_index)
#endif

typedef int (*ranks_function)(int rank, int size, jackal_config *config, void *argument);

struct ranks_job {
    int size;             /* 1 to RANKS_MAX */
    int wires;            /* between every two ranks, 0 = 1 */
    ranks_function run;   /* returns 0 if all is well */
    void *argument;       /* a copy of it in each process: answers go through ranks_memory() */
    const char *devices;  /* instead of the right device matrix */
    const char *fabric;   /* instead of the JSON of a mesh */
    const char *verbs;    /* instead of "fabric" */
    const char *settings; /* of all ranks: "name=value;name=value", by jackal_config_set() */
    const char *of_rank[RANKS_MAX]; /* the same for one rank */
    unsigned gone;                  /* bit r: rank r may die, or end with any status */
    bool bare;                      /* nothing is set; the function makes its own environment */
    unsigned limit_ms;              /* 0 = 30 s; before RANKS_SLOW */
};

/* 0 if every rank returned 0 in time and nothing of the fabric is left; else says why on stderr. */
int ranks_run(const struct ranks_job *job);

bool ranks_are_threads(void);

/* ---- for the test program ------------------------------------------------------------------- */

/* First thing in main(): prints the seed and takes the filter. `processes_only` ends the program
 * with RANKS_SKIP where ranks are threads. */
void ranks_begin(const char *program, const char *processes_only);

/* Last thing in main(): the number of failed tests becomes the program's status. */
int ranks_end(int n_failed);

/* `n` units of random work at 100 %; at least 1. */
unsigned ranks_scaled(unsigned n);
unsigned ranks_percent(void);

uint64_t ranks_seed(void);
/* A counter through a mixing function; any state is a good one. */
uint64_t ranks_random(uint64_t *state_p);
/* The same as a pure function. */
uint64_t ranks_hash(uint64_t a, uint64_t b, uint64_t c);

/*
 * A device matrix for jackal/collective.h's mesh on the emulated one. Written to a buffer that the
 * next call reuses.
 */
const char *ranks_matrix(int size, int wires);

/* ---- for the function of a job --------------------------------------------------------------- */

_Noreturn void ranks_failed(const char *file, int line, const char *format, ...) RANKS_PRINTF(3, 4);

#define RANKS_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ranks_failed(__FILE__, __LINE__, "not so: %s", #condition);                            \
    } while (0)

#define RANKS_EQUAL(actual, expected)                                                              \
    do {                                                                                           \
        long long ranks_a = (long long)(actual), ranks_b = (long long)(expected);                  \
        if (ranks_a != ranks_b)                                                                    \
            ranks_failed(__FILE__, __LINE__, "%s is %lld, want %lld", #actual, ranks_a, ranks_b);  \
    } while (0)

/* The call returns this status; if not, the text of the group's error is shown. */
#define RANKS_STATUS(group, call, expected)                                                        \
    do {                                                                                           \
        jackal_status ranks_status = (call);                                                       \
        if (ranks_status != (expected))                                                            \
            ranks_failed(__FILE__, __LINE__, "%s: %s, want %s: %s", #call,                         \
                         jackal_status_name(ranks_status), jackal_status_name(expected),           \
                         jackal_error_message(group));                                             \
    } while (0)
#define RANKS_OK(group, call) RANKS_STATUS(group, call, JACKAL_OK)

/* A text contains another one. */
#define RANKS_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *ranks_text = (text), *ranks_part = (part);                                     \
        if (strstr(ranks_text, ranks_part) == NULL)                                                \
            ranks_failed(__FILE__, __LINE__, "\"%s\" does not contain \"%s\"", ranks_text,         \
                         ranks_part);                                                              \
    } while (0)

/* jackal_init() that must succeed. */
jackal_group *ranks_init(jackal_config *config);

/* Remembers what this rank is doing, for the case that it does not come back. */
void ranks_at(const char *format, ...) RANKS_PRINTF(1, 2);

/* All `n` ranks come here before any goes on; `point` 0 to 63, each used once a job. It does not
 * use the library, and it is bounded by the job's limit. */
void ranks_meet(int point, int n);

/* Zeroed at the start of a job, shared by its ranks, and there for the caller of ranks_run() until
 * the next job. */
void *ranks_memory(void);

/* Gives a config the k-th meeting point of the job; 0 is what it has from the start, and may be
 * given again for a later group. */
void ranks_meeting(jackal_config *config, int rank, int k);

double ranks_now_s(void);
void ranks_nap_ms(unsigned ms);
/* Processor time of this process so far, of all its threads. */
double ranks_cpu_s(void);

#endif
