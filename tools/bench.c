/* SPDX-License-Identifier: MIT */
/* `jackal bench`: the order of rows, checks and reports, and what the ranks agree on. */
#include "bench.h"
#include "option.h"

#include <jackal/collective.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int bench_failed(const struct bench *bench, const char *call, jackal_status status) {
    if (status == JACKAL_OK) {
        return 0;
    }
    fprintf(stderr, "jackal bench: rank %d: %s: %s: %s\n", bench->rank, call,
            jackal_status_name(status), jackal_error_message(bench->group));
    return TOOL_FAILED;
}

/* The worst status of all ranks. */
static int agree(const struct bench *bench, int status) {
    int32_t worst = status;
    if (status != 0 && jackal_group_state(bench->group) != JACKAL_OK) {
        return status; /* the others find the same; a second error line would say nothing new */
    }
    int failed = bench_failed(bench, "all_max of the exit status",
                              jackal_all_max(bench->group, &worst, &worst, 1, JACKAL_INT32));
    return failed ? failed : worst;
}

/* --- rows --- */

static void add_row(struct bench *bench, const struct bench_case *what) {
    bench->rows = tool_resize(bench->rows, bench->n_rows + 1, sizeof *bench->rows);
    bench->rows[bench->n_rows++] = (struct bench_row){.what = *what, .wrong = -1};
}

/* 0 times a factor stays 0, so the size after 0 is the default first one. */
static uint64_t next_size(const struct bench_options *options, uint64_t n_bytes) {
    return n_bytes == 0 ? 8 : n_bytes * (uint64_t)options->factor;
}

static void add_sizes(struct bench *bench, const struct bench_operation *operation,
                      jackal_dtype dtype, jackal_op redop) {
    const struct bench_options *options = bench->options;
    uint64_t n_bytes = options->min_bytes;
    while (n_bytes <= options->max_bytes) {
        struct bench_case what = bench_case_make(operation, dtype, redop, n_bytes, bench->size);
        add_row(bench, &what);
        if (operation->kind == BENCH_BARRIER) {
            return;
        }
        n_bytes = next_size(options, n_bytes);
    }
}

static void add_operation(struct bench *bench, const struct bench_operation *operation) {
    const struct bench_options *options = bench->options;
    int first = options->redop < 0 ? JACKAL_SUM : options->redop;
    int last = options->redop < 0 ? JACKAL_MIN : options->redop;
    if (!operation->takes_redop) {
        first = last = operation->redop;
    }
    for (jackal_dtype dtype = 0; dtype < JACKAL_DTYPE_COUNT; ++dtype) {
        bool wanted = options->dtype < 0 || dtype == options->dtype;
        if (operation->kind == BENCH_BARRIER) {
            wanted = dtype == 0; /* one row, without a type */
        }
        for (jackal_op redop = first; wanted && redop <= last; ++redop) {
            add_sizes(bench, operation, dtype, redop);
        }
    }
}

/* What cannot be known before the group's size is. */
static int plan_rows(struct bench *bench) {
    for (size_t i = 0; i < bench->options->n_operations; ++i) {
        add_operation(bench, bench->options->operations[i]);
    }
    for (size_t i = 0; i < bench->n_rows; ++i) {
        const struct bench_case *what = &bench->rows[i].what;
        enum bench_kind kind = what->operation->kind;
        if (bench->size < 2 && (kind == BENCH_PING || kind == BENCH_CIRCLE)) {
            if (bench->rank == 0) {
                fprintf(stderr,
                        "jackal bench: %s needs two ranks, there is one; start it with "
                        "jackal run -n 2\n",
                        what->operation->name);
            }
            return TOOL_USAGE;
        }
        if (bench->options->check && what->redop == JACKAL_SUM &&
            bench->size > bench_pattern_most_ranks(what->dtype)) {
            if (bench->rank == 0) {
                fprintf(stderr,
                        "jackal bench: -c can check sums of %s for up to %d ranks, there "
                        "are %d: more do not add up exactly; use float32\n",
                        bench_dtype_name(what->dtype), bench_pattern_most_ranks(what->dtype),
                        bench->size);
            }
            return TOOL_USAGE;
        }
    }
    return 0;
}

static int make_buffers(struct bench *bench) {
    uint64_t n_in = 0, n_out = 0;
    for (size_t i = 0; i < bench->n_rows; ++i) {
        const struct bench_case *what = &bench->rows[i].what;
        uint64_t element = bench_dtype_bytes(what->dtype);
        n_in = what->n_in * element > n_in ? what->n_in * element : n_in;
        n_out = what->n_out * element > n_out ? what->n_out * element : n_out;
    }
    if (bench_buffer_make(&bench->in, n_in) && bench_buffer_make(&bench->out, n_out)) {
        return 0;
    }
    fprintf(stderr,
            "jackal bench: rank %d: out of memory for buffers of %llu and %llu bytes; "
            "lower -e\n",
            bench->rank, (unsigned long long)n_in, (unsigned long long)n_out);
    return TOOL_FAILED;
}

static FILE *open_file(const char *name, int *status_p) {
    FILE *file = fopen(name, "w");
    if (!file) {
        fprintf(stderr, "jackal bench: cannot write %s: %s\n", name, strerror(errno));
        *status_p = TOOL_USAGE;
    }
    return file;
}

static int open_files(struct bench *bench) {
    int status = 0;
    if (bench->rank == 0 && bench->options->json) {
        bench->json = open_file(bench->options->json, &status);
    }
    if (bench->rank == 0 && bench->options->csv && status == 0) {
        bench->csv = open_file(bench->options->csv, &status);
    }
    return status;
}

/* --- running --- */

static int check_both(struct bench *bench, struct bench_row *row, int64_t *wrong_p) {
    int failed = 0;
    if (bench->options->check) {
        failed = bench_wires_start(bench);
        failed = failed ? failed : bench_check(bench, &row->what, 0, wrong_p);
        failed = failed ? failed : bench_check(bench, &row->what, 1, wrong_p);
        failed = failed ? failed : bench_wires_stop(bench);
    }
    return failed;
}

static int run_row(struct bench *bench, struct bench_row *row) {
    int64_t wrong = 0;
    int failed = check_both(bench, row, &wrong);
    failed = failed ? failed : bench_time(bench, row);
    failed = failed ? failed : check_both(bench, row, &wrong);
    if (!failed && bench->options->check) {
        failed = bench_failed(bench, "all_sum of the wrong elements",
                              jackal_all_sum(bench->group, &wrong, &wrong, 1, JACKAL_INT64));
        row->wrong = wrong;
    }
    return failed;
}

static int run_rows(struct bench *bench) {
    const struct bench_operation *operation = NULL;
    bool wrong = false;
    if (bench->rank == 0) {
        bench_report_head(bench);
    }
    for (size_t i = 0; i < bench->n_rows; ++i) {
        struct bench_row *row = &bench->rows[i];
        if (bench->rank == 0 && row->what.operation != operation) {
            bench_report_operation(row->what.operation);
        }
        operation = row->what.operation;
        int failed = run_row(bench, row);
        if (failed) {
            return failed;
        }
        wrong = wrong || row->wrong > 0;
        if (bench->rank == 0) {
            bench_report_row(bench, row);
        }
    }
    json_t *ranks = NULL;
    int failed = agree(bench, bench_wires_gather(bench, &ranks));
    if (!failed && bench->rank == 0) {
        failed = bench_report_end(bench, ranks);
    }
    json_decref(ranks);
    failed = agree(bench, failed);
    return failed ? failed : wrong ? TOOL_FAILED : TOOL_GOOD;
}

static int run_group(struct bench *bench) {
    jackal_status status = jackal_init(bench->config, &bench->group);
    if (status != JACKAL_OK) {
        fprintf(stderr, "jackal bench: no group: %s: %s\n", jackal_status_name(status),
                jackal_config_error(bench->config));
        return TOOL_FAILED;
    }
    bench->rank = jackal_rank(bench->group);
    bench->size = jackal_size(bench->group);
    int failed = plan_rows(bench);
    failed = failed ? failed : agree(bench, open_files(bench));
    failed = failed ? failed : agree(bench, make_buffers(bench));
    return failed ? failed : run_rows(bench);
}

static void close_all(struct bench *bench) {
    jackal_group_free(bench->group);
    jackal_config_free(bench->config);
    bench_buffer_free(&bench->in);
    bench_buffer_free(&bench->out);
    bench_wires_free(&bench->wires);
    free(bench->rows);
    if (bench->json) {
        fclose(bench->json);
    }
    if (bench->csv) {
        fclose(bench->csv);
    }
}

int tool_bench(int argc, char **argv) {
    struct bench_options options;
    struct bench bench = {.options = &options, .config = jackal_config_new()};
    if (!bench.config) {
        fprintf(stderr, "jackal bench: out of memory\n");
        return TOOL_FAILED;
    }
    const char *rank = jackal_config_get(bench.config, "rank");
    int found = bench_options_parse(&options, rank && strcmp(rank, "0") != 0, argc, argv);
    int status = found == OPTION_HELP ? TOOL_GOOD : TOOL_USAGE;
    if (found == OPTION_END) {
        status = run_group(&bench);
    }
    close_all(&bench);
    free(options.operations);
    return status;
}
