/* SPDX-License-Identifier: MIT */
/*
 * The parts of `jackal bench`.
 *
 *   bench.c          the order of things, agreement, exit status
 *   bench_options.c  options
 *   bench_case.c     what an operation does with a size: counts, buffers, the call itself
 *   bench_pattern.c  values that know their rank and index, and what their combination must be
 *   bench_check.c    one checked call: prepare, call, compare
 *   bench_time.c     the timing loop
 *   bench_wires.c    bytes per wire
 *   bench_report.c   table, CSV and JSON
 *
 * Every rank takes every decision from the same numbers: what only one of them knows (a clock, a
 * file that does not open, a wrong element) is agreed on before anybody acts on it. So all ranks
 * make the same calls and end with the same exit status. Functions that can fail return 0, or an
 * exit status after an error line.
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "tool.h"

#include <jackal/jackal.h>

#include <jansson.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_kind {
    BENCH_REDUCE, /* all_reduce and its names with a fixed operator */
    BENCH_GATHER,
    BENCH_SCATTER, /* reduce_scatter */
    BENCH_BROADCAST,
    BENCH_PING,   /* send and recv, there and back between neighbours 2k and 2k + 1 */
    BENCH_CIRCLE, /* sendrecv: to one neighbour, from the other */
    BENCH_BARRIER
};

struct bench_operation {
    const char *name;
    enum bench_kind kind;
    bool takes_redop; /* -o applies */
    jackal_op redop;  /* where it does not */
};

extern const struct bench_operation bench_operations[];
extern const size_t bench_n_operations;

struct bench_options {
    const struct bench_operation **operations;
    size_t n_operations;
    uint64_t min_bytes, max_bytes;
    int64_t factor;
    int64_t iterations; /* 0 = as many as take ROW_MS */
    int64_t warmup;
    int dtype; /* -1 = all */
    int redop; /* -1 = all */
    bool check;
    const char *json, *csv; /* files, or NULL */
};

/* One row: an operation with everything that its calls need. */
struct bench_case {
    const struct bench_operation *operation;
    jackal_dtype dtype;
    jackal_op redop;
    uint64_t count; /* argument of the call */
    uint64_t n_in;  /* elements of the two buffers that the operation may touch */
    uint64_t n_out;
    uint64_t n_bytes; /* the size as the table means it */
};

struct bench_row {
    struct bench_case what;
    int64_t iterations;
    double time_us, mean_us, least_us, most_us;
    int64_t wrong; /* on all ranks; -1 = not checked */
};

/* Data with guards on both sides; see bench_check.c. */
struct bench_buffer {
    unsigned char *storage;
    unsigned char *data;
};

struct bench_wire {
    int peer, index;
    char device[32];
    int64_t sent, received, messages; /* of the measured and checked calls */
};

struct bench_wires {
    struct bench_wire *items;
    size_t count;
};

struct bench {
    const struct bench_options *options;
    jackal_config *config;
    jackal_group *group;
    int rank, size;
    struct bench_buffer in, out;
    uint64_t round; /* number of the checked call, the same on all ranks */
    struct bench_wires wires;
    struct bench_row *rows;
    size_t n_rows;
    FILE *json, *csv; /* rank 0 */
};

/* --- bench.c --- */

/* Prints the error line for a failed call of the library, if it failed. 0 or TOOL_FAILED. */
int bench_failed(const struct bench *bench, const char *call, jackal_status status);

/* --- bench_options.c --- */

/* OPTION_END, OPTION_HELP or OPTION_BAD; frees nothing: `operations` is the caller's. */
int bench_options_parse(struct bench_options *options, bool silent, int argc, char **argv);

/* --- bench_case.c --- */

/* The case whose size is nearest below n_bytes, with one element a rank if n_bytes is not 0. */
struct bench_case bench_case_make(const struct bench_operation *operation, jackal_dtype dtype,
                                  jackal_op redop, uint64_t n_bytes, int size);
/* busbw / algbw; docs/bench.md says where the formulas come from. */
double bench_bus_factor(const struct bench_case *what, int size);
/*
 * One call. Variant 0 is what is timed; variant 1 is in place, or where an operation has no such
 * form has the other root, the other direction or the other side first.
 */
int bench_call(const struct bench *bench, const struct bench_case *what, int variant);
/* The rank that this one pings, -1 for the last of an odd number. */
int bench_partner(const struct bench *bench);

/* --- bench_pattern.c: needs nothing of the library --- */

uint64_t bench_dtype_bytes(jackal_dtype dtype);
const char *bench_dtype_name(jackal_dtype dtype);
const char *bench_redop_name(jackal_op redop);

enum bench_use { BENCH_COPIED, BENCH_REDUCED };

/* How values are made for one checked call. */
struct bench_pattern {
    jackal_dtype dtype;
    jackal_op redop;
    enum bench_use use;
    int size;       /* ranks that contribute */
    uint64_t round; /* no two calls have the same values */
};

/* Most ranks for which sums of this type are exact. */
int bench_pattern_most_ranks(jackal_dtype dtype);
/* Elements first … first + count − 1 of what `rank` contributes. */
void bench_pattern_fill(const struct bench_pattern *pattern, int rank, uint64_t first,
                        uint64_t count, unsigned char *data);
/* Number of elements that differ from that, or for rank −1 from the combination of all ranks. */
uint64_t bench_pattern_wrong(const struct bench_pattern *pattern, int rank, uint64_t first,
                             uint64_t count, const unsigned char *data, uint64_t *first_wrong_p);

/* --- bench_check.c --- */

/* False if memory is out. */
bool bench_buffer_make(struct bench_buffer *buffer, uint64_t n_bytes);
void bench_buffer_free(struct bench_buffer *buffer);
/* Makes one call and adds what is wrong on this rank to *wrong_p. */
int bench_check(struct bench *bench, const struct bench_case *what, int variant, int64_t *wrong_p);

/* --- bench_time.c --- */

int bench_time(struct bench *bench, struct bench_row *row);

/* --- bench_wires.c --- */

/* The calls between the two are counted. Both end with a barrier. */
int bench_wires_start(struct bench *bench);
int bench_wires_stop(struct bench *bench);
/* On rank 0 an array of {rank, wires: [...]}, on others NULL. */
int bench_wires_gather(const struct bench *bench, json_t **ranks_p);
void bench_wires_free(struct bench_wires *wires);

/* --- bench_report.c: rank 0 only --- */

void bench_report_head(const struct bench *bench);
void bench_report_operation(const struct bench_operation *operation);
void bench_report_row(const struct bench *bench, const struct bench_row *row);
/* What follows the rows, and the files. */
int bench_report_end(struct bench *bench, json_t *wires);

#endif
