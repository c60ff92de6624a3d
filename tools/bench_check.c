/* SPDX-License-Identifier: MIT */
/*
 * One checked call. Before it the inputs hold their pattern, the outputs poison, and both buffers
 * end in guards that the call has no business with. After it every element of the result is
 * compared, every input again, and the guards. Expected values are made block by block, so a check
 * needs no memory beyond the two buffers.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Data starts on a page, as large buffers of programs do; a guard lies directly on both sides. */
enum { PAGE = 4096, GUARD = 64, GUARD_BYTE = 0x5a, POISON = 0xa5 };

bool bench_buffer_make(struct bench_buffer *buffer, uint64_t n_bytes) {
    void *storage = NULL;
    if (n_bytes > SIZE_MAX - 2 * PAGE || posix_memalign(&storage, PAGE, n_bytes + 2 * PAGE) != 0) {
        return false;
    }
    /* touched now, so that the first calls do not pay for the pages */
    memset(storage, 0, n_bytes + 2 * PAGE);
    buffer->storage = storage;
    buffer->data = buffer->storage + PAGE;
    return true;
}

void bench_buffer_free(struct bench_buffer *buffer) {
    free(buffer->storage);
    memset(buffer, 0, sizeof *buffer);
}

static void guard_set(const struct bench_buffer *buffer, uint64_t n_bytes) {
    memset(buffer->data - GUARD, GUARD_BYTE, GUARD);
    memset(buffer->data + n_bytes, GUARD_BYTE, GUARD);
}

static int64_t guard_wrong(const struct bench_buffer *buffer, uint64_t n_bytes) {
    int64_t n_wrong = 0;
    for (int i = 0; i < GUARD; ++i) {
        n_wrong += buffer->data[i - GUARD] != GUARD_BYTE;
        n_wrong += buffer->data[n_bytes + (uint64_t)i] != GUARD_BYTE;
    }
    return n_wrong;
}

struct check {
    const struct bench *bench;
    const struct bench_case *what;
    struct bench_pattern pattern;
    int variant;
    int64_t n_wrong;
    bool told; /* one line per call is enough */
};

static const char *form_of(const struct check *check) {
    static const char *const forms[][2] = {
        [BENCH_REDUCE] = {"out of place", "in place"},
        [BENCH_GATHER] = {"out of place", "in place"},
        [BENCH_SCATTER] = {"out of place", "in place"},
        [BENCH_BROADCAST] = {"from rank 0", "from the last rank"},
        [BENCH_PING] = {"even ranks first", "odd ranks first"},
        [BENCH_CIRCLE] = {"to the next rank", "to the previous rank"},
        [BENCH_BARRIER] = {"", ""},
    };
    return forms[check->what->operation->kind][check->variant];
}

static void tell(struct check *check, const char *region, uint64_t n_wrong, uint64_t first) {
    const struct bench_case *what = check->what;
    if (!check->told) {
        fprintf(stderr,
                "jackal bench: rank %d: %s of %" PRIu64 " bytes, %s, %s: %s has %" PRIu64
                " wrong, the first at %" PRIu64 "\n",
                check->bench->rank, what->operation->name, what->n_bytes,
                bench_dtype_name(what->dtype), form_of(check), region, n_wrong, first);
        check->told = true;
    }
}

/* Compares elements from … of a buffer with what `rank` gave from index `first` on. */
static void compare(struct check *check, const struct bench_buffer *buffer, uint64_t from,
                    uint64_t count, int rank, uint64_t first, const char *region) {
    uint64_t first_wrong = 0;
    const unsigned char *data = buffer->data + from * bench_dtype_bytes(check->what->dtype);
    uint64_t n_wrong = bench_pattern_wrong(&check->pattern, rank, first, count, data, &first_wrong);
    if (n_wrong > 0) {
        tell(check, region, n_wrong, from + first_wrong);
        check->n_wrong += (int64_t)n_wrong;
    }
}

static void compare_guards(struct check *check, const struct bench_buffer *buffer, uint64_t count,
                           const char *region) {
    int64_t n_wrong = guard_wrong(buffer, count * bench_dtype_bytes(check->what->dtype));
    if (n_wrong > 0) {
        tell(check, region, (uint64_t)n_wrong, count);
        check->n_wrong += n_wrong;
    }
}

/* Which buffer and from which element on a rank's own contribution is given to the call. */
static const struct bench_buffer *own_input(const struct check *check, uint64_t *from_p) {
    const struct bench *bench = check->bench;
    const struct bench_case *what = check->what;
    *from_p = 0;
    switch (what->operation->kind) {
    case BENCH_REDUCE:
        return check->variant == 0 ? &bench->in : &bench->out;
    case BENCH_GATHER:
        *from_p = check->variant == 0 ? 0 : (uint64_t)bench->rank * what->count;
        return check->variant == 0 ? &bench->in : &bench->out;
    case BENCH_BROADCAST:
        return bench->rank == (check->variant == 0 ? 0 : bench->size - 1) ? &bench->out : NULL;
    default:
        return &bench->in;
    }
}

static void prepare(const struct check *check) {
    const struct bench *bench = check->bench;
    const struct bench_case *what = check->what;
    uint64_t element = bench_dtype_bytes(what->dtype), from;
    memset(bench->in.data, POISON, what->n_in * element);
    memset(bench->out.data, POISON, what->n_out * element);
    guard_set(&bench->in, what->n_in * element);
    guard_set(&bench->out, what->n_out * element);
    const struct bench_buffer *input = own_input(check, &from);
    if (input) {
        bench_pattern_fill(&check->pattern, bench->rank, 0, what->n_in,
                           input->data + from * element);
    }
}

static void compare_gathered(struct check *check) {
    uint64_t count = check->what->count;
    for (int rank = 0; rank < check->bench->size; ++rank) {
        compare(check, &check->bench->out, (uint64_t)rank * count, count, rank, 0, "the result");
    }
}

static void compare_scattered(struct check *check) {
    const struct bench *bench = check->bench;
    uint64_t count = check->what->count, own = (uint64_t)bench->rank * count;
    if (check->variant == 0) {
        compare(check, &bench->out, 0, count, -1, own, "the result");
        compare(check, &bench->in, 0, check->what->n_in, bench->rank, 0, "the input");
        return;
    }
    compare(check, &bench->in, own, count, -1, own, "the result");
    compare(check, &bench->in, 0, own, bench->rank, 0, "the input");
    compare(check, &bench->in, own + count, check->what->n_in - own - count, bench->rank,
            own + count, "the input");
}

static void compare_result(struct check *check) {
    const struct bench *bench = check->bench;
    uint64_t count = check->what->count;
    bool backwards = check->variant == 1;
    int source = -1;
    switch (check->what->operation->kind) {
    case BENCH_REDUCE:
        compare(check, &bench->out, 0, count, -1, 0, "the result");
        break;
    case BENCH_GATHER:
        compare_gathered(check);
        break;
    case BENCH_SCATTER:
        compare_scattered(check);
        return;
    case BENCH_BROADCAST:
        compare(check, &bench->out, 0, count, backwards ? bench->size - 1 : 0, 0, "the result");
        return;
    case BENCH_PING:
        source = bench_partner(bench);
        break;
    default:
        source = (bench->rank + (backwards ? 1 : bench->size - 1)) % bench->size;
        break;
    }
    if (source >= 0) {
        compare(check, &bench->out, 0, count, source, 0, "what arrived");
    }
    uint64_t from;
    if (own_input(check, &from) == &bench->in) {
        compare(check, &bench->in, 0, check->what->n_in, bench->rank, 0, "the input");
    }
}

int bench_check(struct bench *bench, const struct bench_case *what, int variant, int64_t *wrong_p) {
    enum bench_kind kind = what->operation->kind;
    bool reduces = kind == BENCH_REDUCE || kind == BENCH_SCATTER;
    struct check check = {.bench = bench, .what = what, .variant = variant};
    check.pattern = (struct bench_pattern){.dtype = what->dtype,
                                           .redop = what->redop,
                                           .use = reduces ? BENCH_REDUCED : BENCH_COPIED,
                                           .size = bench->size,
                                           .round = bench->round++};
    if (kind == BENCH_BARRIER) {
        return bench_call(bench, what, variant);
    }
    prepare(&check);
    int failed = bench_call(bench, what, variant);
    if (failed) {
        return failed;
    }
    compare_result(&check);
    compare_guards(&check, &bench->in, what->n_in, "the guard of the input");
    compare_guards(&check, &bench->out, what->n_out, "the guard of the output");
    *wrong_p += check.n_wrong;
    return 0;
}
