/* SPDX-License-Identifier: MIT */
/* What rank 0 prints and writes: the table, the wires, CSV and JSON. Lines with # are no rows. */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static double algbw(const struct bench_row *row) {
    return row->time_us > 0 ? (double)row->what.n_bytes / row->time_us / 1e3 : 0;
}

static double busbw(const struct bench *bench, const struct bench_row *row) {
    return algbw(row) * bench_bus_factor(&row->what, bench->size);
}

static const char *type_of(const struct bench_row *row) {
    bool moves_nothing = row->what.operation->kind == BENCH_BARRIER;
    return moves_nothing ? "none" : bench_dtype_name(row->what.dtype);
}

static const char *provider(const struct bench *bench) {
    const char *verbs = jackal_config_get(bench->config, "verbs");
    return verbs && verbs[0] ? verbs : "system";
}

void bench_report_head(const struct bench *bench) {
    const struct bench_options *options = bench->options;
    char iterations[48] = "as many as fill 0.2 s (5 to 1000)";
    if (options->iterations > 0) {
        snprintf(iterations, sizeof iterations, "%" PRId64, options->iterations);
    }
    printf("# jackal %s, %d rank%s, backend %s\n", jackal_version(), bench->size,
           bench->size == 1 ? "" : "s", jackal_backend(bench->group));
    printf("# verbs provider %s, dtype %s, warm-up %" PRId64 ", iterations %s, check %s\n",
           provider(bench), options->dtype < 0 ? "all" : bench_dtype_name(options->dtype),
           options->warmup, iterations, options->check ? "on" : "off");
    if (bench->csv) {
        fprintf(bench->csv, "operation,size_bytes,count,type,redop,iterations,time_us,mean_us,"
                            "min_us,max_us,algbw_gb_s,busbw_gb_s,wrong\n");
    }
}

void bench_report_operation(const struct bench_operation *operation) {
    printf("#\n# %s\n", operation->name);
    printf("#%12s %13s %10s %6s %11s %8s %8s %8s\n", "size", "count", "type", "redop", "time",
           "algbw", "busbw", "#wrong");
    printf("#%12s %13s %10s %6s %11s %8s %8s %8s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
           "(GB/s)", "");
    fflush(stdout);
}

void bench_report_row(const struct bench *bench, const struct bench_row *row) {
    const struct bench_case *what = &row->what;
    char wrong[24] = "";
    if (row->wrong >= 0) {
        snprintf(wrong, sizeof wrong, "%" PRId64, row->wrong);
    }
    printf(" %12" PRIu64 " %13" PRIu64 " %10s %6s %11.2f %8.2f %8.2f %8s\n", what->n_bytes,
           what->count, type_of(row), bench_redop_name(what->redop), row->time_us, algbw(row),
           busbw(bench, row), row->wrong < 0 ? "N/A" : wrong);
    fflush(stdout);
    if (bench->csv) {
        fprintf(bench->csv,
                "%s,%" PRIu64 ",%" PRIu64 ",%s,%s,%" PRId64 ",%.3f,%.3f,%.3f,%.3f,%.6f,%.6f,%s\n",
                what->operation->name, what->n_bytes, what->count, type_of(row),
                bench_redop_name(what->redop), row->iterations, row->time_us, row->mean_us,
                row->least_us, row->most_us, algbw(row), busbw(bench, row), wrong);
    }
}

static int64_t number_of(const json_t *object, const char *key) {
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static bool moved_bytes(const struct bench *bench) {
    for (size_t i = 0; i < bench->n_rows; ++i) {
        if (bench->rows[i].what.n_bytes > 0) {
            return true;
        }
    }
    return false;
}

/* A run without bytes (barriers, size 0) is judged by messages. */
static bool is_unused(const json_t *wire, bool bytes_count) {
    if (bytes_count) {
        return number_of(wire, "bytes_sent") == 0 && number_of(wire, "bytes_received") == 0;
    }
    return number_of(wire, "messages") == 0;
}

static void print_wires(const struct bench *bench, json_t *ranks) {
    size_t i, j, n_wires = 0, n_unused = 0;
    json_t *rank, *wire;
    bool bytes_count = moved_bytes(bench);
    printf("#\n# bytes per wire, of the measured and checked calls\n");
    printf("#%5s %5s %5s  %-16s %16s %16s\n", "rank", "peer", "wire", "device", "sent(B)",
           "received(B)");
    json_array_foreach(ranks, i, rank) {
        json_array_foreach(json_object_get(rank, "wires"), j, wire) {
            bool unused = is_unused(wire, bytes_count);
            printf("#%5" PRId64 " %5" PRId64 " %5" PRId64 "  %-16s %16" PRId64 " %16" PRId64 "%s\n",
                   number_of(rank, "rank"), number_of(wire, "peer"), number_of(wire, "wire"),
                   json_string_value(json_object_get(wire, "device")),
                   number_of(wire, "bytes_sent"), number_of(wire, "bytes_received"),
                   unused ? "  UNUSED" : "");
            json_object_set_new(wire, "unused", json_boolean(unused));
            n_unused += unused;
            ++n_wires;
        }
    }
    if (n_wires == 0) {
        printf("# no wires\n");
    } else if (n_unused > 0) {
        printf("# %zu of %zu wire ends carried nothing\n", n_unused, n_wires);
    } else {
        printf("# all %zu wire ends carried something\n", n_wires);
    }
}

static json_t *describe_row(const struct bench *bench, const struct bench_row *row) {
    const struct bench_case *what = &row->what;
    json_t *object = json_pack("{s:s,s:I,s:I,s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "operation",
                               what->operation->name, "size_bytes", (json_int_t)what->n_bytes,
                               "count", (json_int_t)what->count, "type", type_of(row), "redop",
                               bench_redop_name(what->redop), "iterations",
                               (json_int_t)row->iterations, "time_us", row->time_us, "mean_us",
                               row->mean_us, "min_us", row->least_us, "max_us", row->most_us,
                               "algbw_gb_s", algbw(row), "busbw_gb_s", busbw(bench, row));
    json_object_set_new(object, "wrong", row->wrong < 0 ? json_null() : json_integer(row->wrong));
    return object;
}

static void write_json(const struct bench *bench, json_t *ranks) {
    json_t *rows = json_array();
    for (size_t i = 0; i < bench->n_rows; ++i) {
        json_array_append_new(rows, describe_row(bench, &bench->rows[i]));
    }
    json_t *report =
        json_pack("{s:s,s:i,s:s,s:s,s:I,s:b,s:o,s:O}", "version", jackal_version(), "ranks",
                  bench->size, "backend", jackal_backend(bench->group), "provider", provider(bench),
                  "warmup", (json_int_t)bench->options->warmup, "check", (int)bench->options->check,
                  "rows", rows, "wires", ranks);
    if (!report || json_dumpf(report, bench->json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0) {
        /* seen by close_file() with the other write errors */
        fprintf(stderr, "jackal bench: the report does not fit into JSON: a text in it is not "
                        "UTF-8, or memory is out\n");
    }
    fputc('\n', bench->json);
    json_decref(report);
}

static int close_file(FILE **file_p, const char *name) {
    FILE *file = *file_p;
    *file_p = NULL;
    if (!file) {
        return 0;
    }
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        fprintf(stderr, "jackal bench: cannot write %s: %s\n", name, strerror(errno));
        return TOOL_FAILED;
    }
    return 0;
}

int bench_report_end(struct bench *bench, json_t *ranks) {
    int64_t wrong = 0;
    print_wires(bench, ranks);
    for (size_t i = 0; i < bench->n_rows; ++i) {
        wrong += bench->rows[i].wrong;
    }
    if (bench->options->check) {
        printf("# wrong elements in all: %" PRId64 "\n", wrong);
        if (wrong > 0) {
            fprintf(stderr, "jackal bench: %" PRId64 " wrong elements on %d ranks\n", wrong,
                    bench->size);
        }
    }
    fflush(stdout);
    if (bench->json) {
        write_json(bench, ranks);
    }
    int json = close_file(&bench->json, bench->options->json);
    int csv = close_file(&bench->csv, bench->options->csv);
    return json ? json : csv;
}
