/* SPDX-License-Identifier: MIT */
/*
 * Random calls against a plain reference (D5 to D9, D14, D15, A13, A14, C22, C23).
 *
 * A group makes many calls; all ranks draw the same ones from one seed. Each draw has an operation,
 * a type, an operator, a count (0, 1, …, not divisible, around the edges of slots), odd addresses,
 * in place or not. Values tell rank and index, guard bytes lie around every output, inputs must
 * stay as they were. What was drawn is counted over all jobs, and too few of anything is a failure.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"
#include "value.h"

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    BROADCAST,
    BARRIER,
    SEND_RECV,
    SENDRECV,
    OPERATIONS
};

static const char *const operation_names[] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier", "send/recv", "sendrecv"};

/* At 100 %: draws of each (operation, type), and of each operator in each reduction. */
enum { DRAWS = 3000, MIN_DRAWS = 8, MIN_OPS = 15 };
#define MAX_BYTES ((uint64_t)2 << 20)
#define LARGE     ((uint64_t)1 << 20)
#define GUARD     64
#define ROOM      (MAX_BYTES + 2 * GUARD + 16)

/* Lies in the memory that ranks share. Only rank 0 counts. */
struct tally {
    atomic_uint draws[OPERATIONS][JACKAL_DTYPE_COUNT];
    atomic_uint ops[2][JACKAL_OP_COUNT];
    atomic_uint roots[RANKS_MAX];
    atomic_uint in_place, empty, large;
};

struct tallies {
    unsigned draws[OPERATIONS][JACKAL_DTYPE_COUNT];
    unsigned ops[2][JACKAL_OP_COUNT];
    unsigned in_place, empty, large, total;
};
static struct tallies tallies;

struct plan {
    uint64_t seed;
    unsigned n_draws;
    unsigned slot_frames;
    int wires;
};

struct draw {
    uint64_t call; /* seeds the values */
    enum operation operation;
    jackal_dtype dtype;
    jackal_op op;
    uint64_t count;
    int root;
    bool in_place;
    unsigned in_odd, out_odd; /* bytes off alignment */
};

struct dice {
    uint64_t state;
    int next_root; /* in turn, so that every rank gets its share of the few draws of a large group
                    */
};

/* One rank's place to work in. */
struct bench {
    int rank, size;
    jackal_group *group;
    uint8_t *in, *out, *copy;
};

/* ---- drawing ----------------------------------------------------------------------------------
 */

static uint64_t below(uint64_t *state, uint64_t n) {
    return ranks_random(state) % n;
}

/* Elements near k whole slots, and near N · wires times as many. */
static uint64_t near_slots(const struct plan *plan, int size, unsigned bytes, uint64_t *state) {
    uint64_t payload = below(state, 3) != 0 ? 4032 : plan->slot_frames * 4096u - 64;
    uint64_t times[] = {1, (uint64_t)plan->wires, (uint64_t)(size * plan->wires), (uint64_t)size};
    uint64_t slots = (1 + below(state, 4)) * times[below(state, 4)];
    if (payload * slots > LARGE / 4)
        slots = 1;
    return payload * slots / bytes + below(state, 3) - 1;
}

/* `blocks`: how many times as many elements the larger of the buffers has. */
static uint64_t draw_count(const struct plan *plan, int size, uint64_t blocks, unsigned bytes,
                           uint64_t *state) {
    static const uint64_t primes[] = {2,   3,    5,    7,    13,   31,    61,    127,  251,
                                      509, 1021, 2039, 4093, 8191, 16381, 32749, 65521};
    uint64_t choice = below(state, 100);
    if (choice < 30)
        return below(state, (uint64_t)(3 * size + 3));
    if (choice < 55)
        return near_slots(plan, size, bytes, state);
    if (choice < 75)
        return primes[below(state, sizeof primes / sizeof primes[0])];
    if (choice < 97)
        return below(state, (UINT64_C(64) << below(state, 11)) / bytes + 1);
    uint64_t large = choice < 99 ? LARGE : MAX_BYTES;
    return (large / 2 + below(state, large / 2)) / bytes / blocks;
}

static struct draw make_draw(const struct plan *plan, int size, uint64_t number,
                             struct dice *dice) {
    uint64_t *state = &dice->state;
    struct draw draw = {.call = ranks_hash(plan->seed, number, 0)};
    draw.operation = (enum operation)below(state, OPERATIONS);
    if (number < (uint64_t)size) /* every root at least once */
        draw.operation = BROADCAST;
    draw.dtype = (jackal_dtype)below(state, JACKAL_DTYPE_COUNT);
    do
        draw.op = (jackal_op)below(state, JACKAL_OP_COUNT);
    while (!value_allows(draw.dtype, draw.op));
    bool many = draw.operation == ALL_GATHER || draw.operation == REDUCE_SCATTER;
    draw.count = draw_count(plan, size, many ? (uint64_t)size : 1, value_bytes(draw.dtype), state);
    uint64_t most = MAX_BYTES / value_bytes(draw.dtype) / (many ? (uint64_t)size : 1);
    draw.count = draw.count < most ? draw.count : most;
    draw.root =
        draw.operation == BROADCAST ? dice->next_root++ % size : (int)below(state, (uint64_t)size);
    draw.in_place = below(state, 3) == 0;
    draw.in_odd = (unsigned)below(state, 9);
    draw.out_odd = (unsigned)below(state, 9);
    return draw;
}

static void count_draw(const struct draw *draw, int size) {
    struct tally *tally = ranks_memory();
    bool many = draw->operation == ALL_GATHER || draw->operation == REDUCE_SCATTER;
    atomic_fetch_add(&tally->draws[draw->operation][draw->dtype], 1);
    if (draw->operation == ALL_REDUCE || draw->operation == REDUCE_SCATTER)
        atomic_fetch_add(&tally->ops[draw->operation == REDUCE_SCATTER][draw->op], 1);
    if (draw->operation == BROADCAST)
        atomic_fetch_add(&tally->roots[draw->root], 1);
    atomic_fetch_add(&tally->in_place, draw->in_place);
    atomic_fetch_add(&tally->empty, draw->count == 0);
    uint64_t n_bytes = draw->count * value_bytes(draw->dtype) * (many ? (uint64_t)size : 1);
    atomic_fetch_add(&tally->large, n_bytes > LARGE);
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

static uint8_t guard_byte(const struct draw *draw, uint64_t i) {
    return (uint8_t)(ranks_hash(draw->call, 0x6a6a, i) | 1);
}

static void set_guards(const struct draw *draw, uint8_t *bytes, uint64_t n_bytes) {
    for (uint64_t i = 0; i < GUARD; i++) {
        bytes[i - GUARD] = guard_byte(draw, i);
        bytes[n_bytes + i] = guard_byte(draw, i + GUARD);
    }
}

static void check_guards(const struct draw *draw, const uint8_t *bytes, uint64_t n_bytes) {
    for (uint64_t i = 0; i < GUARD; i++) {
        if (bytes[i - GUARD] != guard_byte(draw, i))
            ranks_failed(__FILE__, __LINE__, "written %d bytes in front of the output",
                         (int)(GUARD - i));
        if (bytes[n_bytes + i] != guard_byte(draw, i + GUARD))
            ranks_failed(__FILE__, __LINE__, "written %d bytes behind the output", (int)i + 1);
    }
}

static void fill(const struct draw *draw, uint8_t *bytes, int rank, uint64_t first,
                 uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        value_store(bytes, draw->dtype, i, value_of(draw->dtype, draw->call, rank, first + i));
}

/* Elements [first, first + count) of rank `source` as it gave them. */
static void check_copy(const struct draw *draw, const uint8_t *bytes, int source, uint64_t first,
                       uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t want = value_of(draw->dtype, draw->call, source, first + i);
        uint64_t have = value_load(bytes, draw->dtype, i);
        if (have != want)
            ranks_failed(__FILE__, __LINE__, "element %llu of rank %d is %#llx, want %#llx",
                         (unsigned long long)(first + i), source, (unsigned long long)have,
                         (unsigned long long)want);
    }
}

/* The combination of elements [first, first + count) of all ranks. */
static void check_combination(const struct draw *draw, const struct bench *bench,
                              const uint8_t *bytes, uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t parts[RANKS_MAX];
        for (int rank = 0; rank < bench->size; rank++)
            parts[rank] = value_of(draw->dtype, draw->call, rank, first + i);
        uint64_t want = value_combine(draw->dtype, draw->op, parts, bench->size);
        uint64_t have = value_load(bytes, draw->dtype, i);
        if (have != want)
            ranks_failed(__FILE__, __LINE__, "element %llu is %#llx, want %#llx (of %#llx, %#llx)",
                         (unsigned long long)(first + i), (unsigned long long)have,
                         (unsigned long long)want, (unsigned long long)parts[0],
                         (unsigned long long)parts[bench->size > 1]);
    }
}

/* ---- operations -------------------------------------------------------------------------------
 */

struct places {
    uint8_t *in, *out;
    uint64_t in_bytes, out_bytes;
};

/* Where in and out lie; in place at the one natural position. */
static struct places lay_out(const struct draw *draw, const struct bench *bench) {
    uint64_t block = draw->count * value_bytes(draw->dtype);
    uint64_t own = (uint64_t)bench->rank * block;
    struct places places = {.in_bytes = block, .out_bytes = block};
    places.in = bench->in + GUARD + draw->in_odd;
    places.out = bench->out + GUARD + draw->out_odd;
    if (draw->operation == REDUCE_SCATTER) {
        places.in_bytes = block * (uint64_t)bench->size;
        if (draw->in_place)
            places.out = places.in + own;
    } else if (draw->operation == ALL_GATHER) {
        places.out_bytes = block * (uint64_t)bench->size;
        if (draw->in_place)
            places.in = places.out + own;
    } else if (draw->in_place) {
        places.out = places.in;
    }
    return places;
}

static jackal_status call_reduction(const struct draw *draw, const struct bench *bench,
                                    const struct places *places) {
    /* D8: without elements the pointers do not matter. */
    bool none = draw->count == 0 && draw->in_odd % 2 == 0;
    const void *in = none ? NULL : places->in;
    void *out = none ? NULL : places->out;
    jackal_group *group = bench->group;
    if (draw->operation == ALL_GATHER)
        return jackal_all_gather(group, in, out, draw->count, draw->dtype);
    if (draw->operation == REDUCE_SCATTER)
        return jackal_reduce_scatter(group, in, out, draw->count, draw->dtype, draw->op);
    return jackal_all_reduce(group, in, out, draw->count, draw->dtype, draw->op);
}

static void do_reduction(const struct draw *draw, const struct bench *bench) {
    struct places places = lay_out(draw, bench);
    uint64_t n_in = places.in_bytes / value_bytes(draw->dtype);
    set_guards(draw, places.out, places.out_bytes);
    fill(draw, places.in, bench->rank, 0, n_in);
    memcpy(bench->copy, places.in, places.in_bytes);
    RANKS_OK(bench->group, call_reduction(draw, bench, &places));
    uint64_t first = draw->operation == REDUCE_SCATTER ? (uint64_t)bench->rank * draw->count : 0;
    if (draw->operation == ALL_GATHER)
        for (int rank = 0; rank < bench->size; rank++)
            check_copy(draw, places.out + (uint64_t)rank * draw->count * value_bytes(draw->dtype),
                       rank, 0, draw->count);
    else
        check_combination(draw, bench, places.out, first, draw->count);
    if (draw->operation != REDUCE_SCATTER || !draw->in_place)
        check_guards(draw, places.out, places.out_bytes);
    if (!draw->in_place) {
        RANKS_CHECK(memcmp(bench->copy, places.in, places.in_bytes) == 0);
    } else if (draw->operation == REDUCE_SCATTER) { /* only its own part is written */
        uint64_t own = (uint64_t)bench->rank * places.out_bytes, behind = own + places.out_bytes;
        RANKS_CHECK(memcmp(bench->copy, places.in, own) == 0);
        RANKS_CHECK(memcmp(bench->copy + behind, places.in + behind, places.in_bytes - behind) ==
                    0);
    }
}

static void do_broadcast(const struct draw *draw, const struct bench *bench) {
    uint8_t *data = bench->out + GUARD + draw->out_odd;
    uint64_t n_bytes = draw->count * value_bytes(draw->dtype);
    fill(draw, data, bench->rank, 0, draw->count);
    set_guards(draw, data, n_bytes);
    RANKS_OK(bench->group,
             jackal_broadcast(bench->group, data, draw->count, draw->dtype, draw->root));
    check_copy(draw, data, draw->root, 0, draw->count);
    check_guards(draw, data, n_bytes);
}

/* From root to the rank behind it; the others do nothing, and that must not matter (A13). */
static void do_send_recv(const struct draw *draw, const struct bench *bench) {
    uint64_t n_bytes = draw->count * value_bytes(draw->dtype);
    int to = (draw->root + 1) % bench->size;
    uint8_t *in = bench->in + GUARD + draw->in_odd, *out = bench->out + GUARD + draw->out_odd;
    if (bench->size == 1)
        return;
    if (bench->rank == draw->root) {
        fill(draw, in, bench->rank, 0, draw->count);
        RANKS_OK(bench->group, jackal_send(bench->group, in, n_bytes, to));
        check_copy(draw, in, bench->rank, 0, draw->count);
    } else if (bench->rank == to) {
        set_guards(draw, out, n_bytes);
        RANKS_OK(bench->group, jackal_recv(bench->group, out, n_bytes, draw->root));
        check_copy(draw, out, draw->root, 0, draw->count);
        check_guards(draw, out, n_bytes);
    }
}

static void do_sendrecv(const struct draw *draw, const struct bench *bench) {
    uint64_t n_bytes = draw->count * value_bytes(draw->dtype);
    int step = bench->size > 1 ? 1 + draw->root % (bench->size - 1) : 0;
    int to = (bench->rank + step) % bench->size;
    int from = (bench->rank + bench->size - step) % bench->size;
    uint8_t *in = bench->in + GUARD + draw->in_odd, *out = bench->out + GUARD + draw->out_odd;
    if (bench->size == 1)
        return;
    fill(draw, in, bench->rank, 0, draw->count);
    set_guards(draw, out, n_bytes);
    RANKS_OK(bench->group, jackal_sendrecv(bench->group, in, n_bytes, to, out, n_bytes, from));
    check_copy(draw, out, from, 0, draw->count);
    check_copy(draw, in, bench->rank, 0, draw->count);
    check_guards(draw, out, n_bytes);
}

static void do_draw(const struct draw *draw, const struct bench *bench) {
    switch (draw->operation) {
    case BROADCAST:
        do_broadcast(draw, bench);
        break;
    case BARRIER:
        RANKS_OK(bench->group, jackal_barrier(bench->group));
        break;
    case SEND_RECV:
        do_send_recv(draw, bench);
        break;
    case SENDRECV:
        do_sendrecv(draw, bench);
        break;
    default:
        do_reduction(draw, bench);
        break;
    }
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

static int run(int rank, int size, jackal_config *config, void *argument) {
    const struct plan *plan = argument;
    struct bench bench = {rank, size, ranks_init(config), malloc(ROOM), malloc(ROOM), malloc(ROOM)};
    RANKS_CHECK(bench.in != NULL && bench.out != NULL && bench.copy != NULL);
    struct dice dice = {plan->seed, 0};
    for (unsigned i = 0; i < plan->n_draws; i++) {
        struct draw draw = make_draw(plan, size, i, &dice);
        ranks_at("draw %u: %s %s %s count %llu root %d %s odd %u %u", i,
                 operation_names[draw.operation], value_dtype_name(draw.dtype),
                 value_op_name(draw.op), (unsigned long long)draw.count, draw.root,
                 draw.in_place ? "in place" : "apart", draw.in_odd, draw.out_odd);
        if (rank == 0)
            count_draw(&draw, size);
        do_draw(&draw, &bench);
    }
    RANKS_OK(bench.group, jackal_barrier(bench.group));
    jackal_group_free(bench.group);
    free(bench.in);
    free(bench.out);
    free(bench.copy);
    return 0;
}

static void add_tally(void) {
    struct tally *tally = ranks_memory();
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++) {
            unsigned n = atomic_load(&tally->draws[operation][dtype]);
            tallies.draws[operation][dtype] += n;
            tallies.total += n;
        }
    for (int which = 0; which < 2; which++)
        for (int op = 0; op < JACKAL_OP_COUNT; op++)
            tallies.ops[which][op] += atomic_load(&tally->ops[which][op]);
    tallies.in_place += atomic_load(&tally->in_place);
    tallies.empty += atomic_load(&tally->empty);
    tallies.large += atomic_load(&tally->large);
}

/* `share` is of all draws, in percent. */
static void run_group(int size, int wires, unsigned share, const char *settings,
                      unsigned slot_frames) {
    struct plan plan = {.seed = ranks_hash(ranks_seed(), (uint64_t)(size * 8 + wires), slot_frames),
                        .n_draws = ranks_scaled(DRAWS * share / 100),
                        .slot_frames = slot_frames,
                        .wires = wires};
    char all[256];
    snprintf(all, sizeof all, "slot_frames=%u;%s", slot_frames, settings);
    struct ranks_job job = {.size = size,
                            .wires = wires,
                            .run = run,
                            .argument = &plan,
                            .settings = all,
                            .limit_ms = 120000};
    assert_int_equal(ranks_run(&job), 0);
    for (int rank = 0; rank < size && plan.n_draws >= (unsigned)size; rank++)
        assert_true(atomic_load(&((struct tally *)ranks_memory())->roots[rank]) > 0);
    add_tally();
}

static void one_rank(void **state) {
    (void)state;
    run_group(1, 1, 4, "", 16);
}

static void two_ranks(void **state) {
    (void)state;
    run_group(2, 1, 11, "", 16);
    run_group(2, 2, 11, "checksum=1", 4);
    run_group(2, 3, 9, "algorithm=direct", 5);
    run_group(2, 1, 9, "algorithm=mesh;checksum=1", 32);
}

static void three_ranks(void **state) {
    (void)state;
    run_group(3, 1, 10, "algorithm=mesh", 16);
    run_group(3, 2, 8, "", 4);
    run_group(3, 3, 6, "checksum=1;algorithm=direct", 7);
}

static void four_ranks(void **state) {
    (void)state;
    run_group(4, 1, 9, "checksum=1", 16);
    run_group(4, 2, 8, "algorithm=mesh", 4);
    run_group(4, 3, 4, "", 16);
}

static void five_to_eight_ranks(void **state) {
    (void)state;
    run_group(5, 1, 5, "", 16);
    run_group(6, 2, 3, "algorithm=mesh;checksum=1", 4);
    run_group(7, 1, 2, "algorithm=direct", 4);
    run_group(8, 1, 4, "", 4);
}

static void print_table(void) {
    printf("%-16s", "draws");
    for (int dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++)
        printf(" %9s", value_dtype_name(dtype));
    for (int operation = 0; operation < OPERATIONS; operation++) {
        printf("\n%-16s", operation_names[operation]);
        for (int dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++)
            printf(" %9u", tallies.draws[operation][dtype]);
    }
    for (int which = 0; which < 2; which++) {
        printf("\n%-16s", operation_names[which == 0 ? ALL_REDUCE : REDUCE_SCATTER]);
        for (int op = 0; op < JACKAL_OP_COUNT; op++)
            printf(" %s %u", value_op_name(op), tallies.ops[which][op]);
    }
    printf("\n%u draws: %u in place, %u empty, %u above 1 MiB\n", tallies.total, tallies.in_place,
           tallies.empty, tallies.large);
}

static void enough_was_drawn(void **state) {
    (void)state;
    print_table();
    assert_true(tallies.large <= tallies.total / 50 + 20);
    if (ranks_percent() < 100)
        return;
    for (int operation = 0; operation < OPERATIONS; operation++)
        for (int dtype = 0; dtype < JACKAL_DTYPE_COUNT; dtype++)
            assert_true(tallies.draws[operation][dtype] >= MIN_DRAWS);
    for (int which = 0; which < 2; which++)
        for (int op = 0; op < JACKAL_OP_COUNT; op++)
            assert_true(tallies.ops[which][op] >= MIN_OPS);
    assert_true(tallies.in_place > 0 && tallies.empty > 0 && tallies.large > 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(three_ranks),
        cmocka_unit_test(four_ranks),
        cmocka_unit_test(five_to_eight_ranks),
        cmocka_unit_test(enough_was_drawn),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
