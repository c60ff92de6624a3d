/* SPDX-License-Identifier: MIT */
/* The options of `jackal bench`. */
#include "bench.h"
#include "option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPTION_MIN,
    OPTION_MAX,
    OPTION_FACTOR,
    OPTION_ITERATIONS,
    OPTION_WARMUP,
    OPTION_DTYPE,
    OPTION_REDOP,
    OPTION_CHECK,
    OPTION_JSON,
    OPTION_CSV
};

static const uint64_t most_bytes = UINT64_C(1) << 40;

static const struct option bench_table[] = {
    [OPTION_MIN] = {NULL, 'b', OPTION_REQUIRED, "MIN", "smallest size (default 8)"},
    [OPTION_MAX] = {NULL, 'e', OPTION_REQUIRED, "MAX",
                    "largest size (default 16M, or MIN if that is more)"},
    [OPTION_FACTOR] = {NULL, 'f', OPTION_REQUIRED, "FACTOR",
                       "from one size to the next, 2 to 1024 (default 4)"},
    [OPTION_ITERATIONS] = {NULL, 'n', OPTION_REQUIRED, "ITERS",
                           "measured calls of a row (default as many as take\n"
                           "0.2 s, from 5 to 1000)"},
    [OPTION_WARMUP] = {NULL, 'w', OPTION_REQUIRED, "WARMUP",
                       "calls before them that are not measured (default 3)"},
    [OPTION_DTYPE] = {NULL, 'd', OPTION_REQUIRED, "DTYPE",
                      "type of the elements (default float32), or all"},
    [OPTION_REDOP] = {NULL, 'o', OPTION_REQUIRED, "OP",
                      "sum (default), max, min or all: what all_reduce and\n"
                      "reduce_scatter do"},
    [OPTION_CHECK] = {NULL, 'c', OPTION_FLAG, NULL,
                      "check every element of the results before and after\n"
                      "measuring"},
    [OPTION_JSON] = {"json", 0, OPTION_REQUIRED, "F", "also write everything to F as JSON"},
    [OPTION_CSV] = {"csv", 0, OPTION_REQUIRED, "F", "also write the rows to F as CSV"},
};

static const struct option_command bench_command = {
    "jackal bench",
    "[OPTION...] [OPERATION...]",
    "Measures operations of a group, as one program of `jackal run`:\n"
    "    jackal run -n 4 -- jackal bench -c all_sum all_gather\n"
    "Operations: all_sum (default), all_max, all_min, all_reduce, all_gather, reduce_scatter,\n"
    "sum_scatter, broadcast, send_recv, sendrecv, barrier.",
    "Sizes are bytes, with K, M or G for 2^10, 2^20 or 2^30. Types: bool, int8 to int64, uint8 to\n"
    "uint64, float16, bfloat16, float32, float64, complex64.\n"
    "Columns: time is the median over the calls of the slowest rank's time, algbw = size / time,\n"
    "busbw what the links of a rank carried, #wrong the wrong elements on all ranks.\n"
    "\n"
    "Exit status, the same on all ranks: 0 good; 1 an operation failed, or -c found something\n"
    "wrong; 2 wrong usage.",
    bench_table,
    sizeof bench_table / sizeof bench_table[0],
};

static int parse_size(const struct option_scan *scan, int found, uint64_t *n_bytes_p) {
    static const char suffixes[] = "KMG";
    const char *text = scan->value;
    char *end = NULL;
    errno = 0;
    unsigned long long number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    unsigned shift = 0;
    if (end && *end) {
        const char *suffix = strchr(suffixes, *end & ~0x20); /* k is K */
        shift = suffix && *suffix && !end[1] ? 10 * (unsigned)(suffix - suffixes + 1) : 64;
    }
    if (!end || errno || shift > 30 || number > most_bytes >> shift) {
        return option_error(&bench_command,
                            "-%c takes bytes from 0 to 1024G such as 64K or 16M, "
                            "got \"%s\"",
                            bench_table[found].letter, text);
    }
    *n_bytes_p = number << shift;
    return 0;
}

static int parse_dtype(struct bench_options *options, const char *word) {
    static const char *names[JACKAL_DTYPE_COUNT];
    for (int i = 0; i < JACKAL_DTYPE_COUNT; ++i) {
        names[i] = bench_dtype_name(i);
        if (strcmp(word, names[i]) == 0) {
            options->dtype = i;
            return 0;
        }
    }
    options->dtype = -1;
    if (strcmp(word, "all") == 0) {
        return 0;
    }
    const char *nearest = tool_nearest(word, names, JACKAL_DTYPE_COUNT, sizeof names[0]);
    return option_error(&bench_command, "-d: unknown type \"%s\"%s%s%s", word,
                        nearest ? ", did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "");
}

static int parse_redop(struct bench_options *options, const char *word) {
    for (int i = JACKAL_SUM; i <= JACKAL_MIN; ++i) {
        if (strcmp(word, bench_redop_name(i)) == 0) {
            options->redop = i;
            return 0;
        }
    }
    options->redop = -1;
    return strcmp(word, "all") == 0
               ? 0
               : option_error(&bench_command, "-o takes sum, max, min or all, got \"%s\"", word);
}

static int parse_operation(struct bench_options *options, const char *word) {
    for (size_t i = 0; i < bench_n_operations; ++i) {
        if (strcmp(word, bench_operations[i].name) == 0) {
            options->operations[options->n_operations++] = &bench_operations[i];
            return 0;
        }
    }
    const char *nearest = tool_nearest(word, &bench_operations[0].name, bench_n_operations,
                                       sizeof bench_operations[0]);
    return option_error(&bench_command, "unknown operation \"%s\"%s%s%s", word,
                        nearest ? ", did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "");
}

struct given {
    bool min, max, redop;
};

static int parse_one(struct bench_options *options, const struct option_scan *scan, int found,
                     struct given *given) {
    switch (found) {
    case OPTION_MIN:
        given->min = true;
        return parse_size(scan, found, &options->min_bytes);
    case OPTION_MAX:
        given->max = true;
        return parse_size(scan, found, &options->max_bytes);
    case OPTION_FACTOR:
        return option_integer(scan, found, 2, 1024, &options->factor);
    case OPTION_ITERATIONS:
        return option_integer(scan, found, 1, 1000000, &options->iterations);
    case OPTION_WARMUP:
        return option_integer(scan, found, 0, 1000000, &options->warmup);
    case OPTION_DTYPE:
        return parse_dtype(options, scan->value);
    case OPTION_REDOP:
        given->redop = true;
        return parse_redop(options, scan->value);
    case OPTION_CHECK:
        options->check = true;
        return 0;
    case OPTION_JSON:
        options->json = scan->value;
        return 0;
    case OPTION_CSV:
        options->csv = scan->value;
        return 0;
    default: /* an operand */
        return parse_operation(options, scan->value);
    }
}

/* What the options say together. */
static int complete(struct bench_options *options, const struct given *given) {
    bool redop_used = false;
    if (options->n_operations == 0) {
        options->operations[options->n_operations++] = &bench_operations[0];
    }
    for (size_t i = 0; i < options->n_operations; ++i) {
        redop_used = redop_used || options->operations[i]->takes_redop;
    }
    if (given->redop && !redop_used) {
        return option_error(&bench_command,
                            "-o has no effect on %s, only on all_reduce and "
                            "reduce_scatter",
                            options->operations[0]->name);
    }
    if (options->min_bytes > options->max_bytes) {
        if (given->min && given->max) {
            return option_error(&bench_command, "-b is more than -e: %llu and %llu bytes",
                                (unsigned long long)options->min_bytes,
                                (unsigned long long)options->max_bytes);
        }
        *(given->min ? &options->max_bytes : &options->min_bytes) =
            given->min ? options->min_bytes : options->max_bytes;
    }
    return 0;
}

static int parse(struct bench_options *options, int argc, char **argv) {
    struct option_scan scan;
    struct given given = {0};
    int found;
    option_start(&scan, &bench_command, argc, argv);
    while ((found = option_next(&scan)) >= 0 || found == OPTION_OPERAND) {
        int bad = parse_one(options, &scan, found, &given);
        if (bad) {
            return bad;
        }
    }
    for (; found == OPTION_END && scan.index < argc; ++scan.index) {
        int bad = parse_operation(options, argv[scan.index]);
        if (bad) {
            return bad;
        }
    }
    if (found != OPTION_END) {
        return found;
    }
    int bad = complete(options, &given);
    return bad ? bad : OPTION_END;
}

static void redirect(int fd, int target) {
    if (target >= 0) {
        dup2(target, fd);
    }
}

/* Every rank finds the same mistake; one of them tells it. */
static int parse_silently(struct bench_options *options, int argc, char **argv) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int out = dup(STDOUT_FILENO), error = dup(STDERR_FILENO);
    if (null >= 0 && out >= 0 && error >= 0) {
        redirect(STDOUT_FILENO, null);
        redirect(STDERR_FILENO, null);
    }
    int found = parse(options, argc, argv);
    fflush(stdout);
    redirect(STDOUT_FILENO, out);
    redirect(STDERR_FILENO, error);
    const int open_fds[] = {null, out, error};
    for (size_t i = 0; i < 3; ++i) {
        if (open_fds[i] >= 0) {
            close(open_fds[i]);
        }
    }
    return found;
}

int bench_options_parse(struct bench_options *options, bool silent, int argc, char **argv) {
    *options = (struct bench_options){.min_bytes = 8,
                                      .max_bytes = UINT64_C(16) << 20,
                                      .factor = 4,
                                      .warmup = 3,
                                      .dtype = JACKAL_FLOAT32,
                                      .redop = JACKAL_SUM};
    options->operations = tool_resize(NULL, (size_t)argc + 1, sizeof *options->operations);
    return silent ? parse_silently(options, argc, argv) : parse(options, argc, argv);
}
