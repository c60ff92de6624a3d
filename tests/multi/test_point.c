/* SPDX-License-Identifier: MIT */
/* Sends and receives: order, eager and rendezvous, wrong lengths (D10, D12, A11, A13). */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "ranks.h"

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One bulk slot of the default geometry, less its header: the longest eager message. */
#define EAGER ((uint64_t)16 * 4096 - 64)
#define ROOM  ((uint64_t)4 << 20)

static const uint64_t lengths[] = {
    0,     1,         7,         4031,   4032,     4033,           EAGER - 1,
    EAGER, EAGER + 1, 2 * EAGER, 300007, 1u << 20, (3u << 20) + 5, 3};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

static uint8_t byte_of(unsigned message, int from, uint64_t i) {
    return (uint8_t)ranks_hash(message * 64u + (unsigned)from, i / 8, 1) + (uint8_t)(i * 29);
}

static void fill(uint8_t *bytes, unsigned message, int from, uint64_t n_bytes) {
    for (uint64_t i = 0; i < n_bytes; i++)
        bytes[i] = byte_of(message, from, i);
}

/* The message, and behind it what was there before. */
static void check(const uint8_t *bytes, unsigned message, int from, uint64_t n_bytes) {
    for (uint64_t i = 0; i < n_bytes; i++)
        if (bytes[i] != byte_of(message, from, i))
            ranks_failed(__FILE__, __LINE__, "byte %llu of message %u from rank %d is wrong",
                         (unsigned long long)i, message, from);
    for (uint64_t i = n_bytes; i < n_bytes + 64; i++)
        if (bytes[i] != 0xee)
            ranks_failed(__FILE__, __LINE__, "message %u: written %llu bytes too far", message,
                         (unsigned long long)(i - n_bytes + 1));
}

static uint8_t *take(void) {
    uint8_t *bytes = malloc(ROOM);
    RANKS_CHECK(bytes != NULL);
    memset(bytes, 0xee, ROOM);
    return bytes;
}

static jackal_status receive(jackal_group *group, uint8_t *bytes, uint64_t n_bytes, int src) {
    memset(bytes, 0xee, n_bytes + 64);
    return jackal_recv(group, bytes, n_bytes, src);
}

/* ---- order ------------------------------------------------------------------------------------
 */

/* Messages of all lengths one after the other: small and bulk slots, eager and asked for, mixed. */
static int run_order(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    (void)size;
    jackal_group *group = ranks_init(config);
    uint8_t *bytes = take();
    for (unsigned i = 0; i < 3 * N_LENGTHS; i++) {
        uint64_t n_bytes = lengths[i * 5 % N_LENGTHS];
        ranks_at("message %u of %llu bytes", i, (unsigned long long)n_bytes);
        if (rank == 0) {
            fill(bytes, i, 0, n_bytes);
            RANKS_OK(group, jackal_send(group, bytes, n_bytes, 1));
        } else if (rank == 1) {
            RANKS_OK(group, receive(group, bytes, n_bytes, 0));
            check(bytes, i, 0, n_bytes);
        }
    }
    /* The same order the other way, and a collective after it: nothing was left over. */
    if (rank == 1)
        RANKS_OK(group, jackal_send(group, "ok", 2, 0));
    if (rank == 0) {
        RANKS_OK(group, jackal_recv(group, bytes, 2, 1));
        RANKS_CHECK(memcmp(bytes, "ok", 2) == 0);
    }
    RANKS_OK(group, jackal_barrier(group));
    free(bytes);
    jackal_group_free(group);
    return 0;
}

static void messages_keep_their_order(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_order};
    assert_int_equal(ranks_run(&job), 0);
    job.size = 3;
    job.wires = 2;
    job.settings = "checksum=1";
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- eager ------------------------------------------------------------------------------------
 */

/* Both send first (A11): that ends by itself up to the eager limit, with nobody receiving. */
static int run_eager(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    (void)size;
    jackal_group *group = ranks_init(config);
    uint8_t *bytes = take();
    static const uint64_t eager[] = {1, 0, EAGER, 4033};
    for (unsigned i = 0; i < 4; i++) {
        fill(bytes, i, rank, eager[i]);
        RANKS_OK(group, jackal_send(group, bytes, eager[i], 1 - rank));
        memset(bytes, 0x55, eager[i]); /* the call returned: the buffer is ours */
    }
    ranks_meet(0, 2);
    for (unsigned i = 0; i < 4; i++) {
        RANKS_OK(group, receive(group, bytes, eager[i], 1 - rank));
        check(bytes, i, 1 - rank, eager[i]);
    }
    free(bytes);
    jackal_group_free(group);
    return 0;
}

static void eager_messages_need_no_receiver(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_eager};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- both directions --------------------------------------------------------------------------
 */

static int run_both_ways(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    jackal_group *group = ranks_init(config);
    uint8_t *out = take(), *in = take();
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (unsigned i = 0; i < N_LENGTHS; i++) {
        /* Not of one length in the circle: each edge has its own. */
        uint64_t sent = lengths[(i + (unsigned)rank) % N_LENGTHS];
        uint64_t wanted = lengths[(i + (unsigned)previous) % N_LENGTHS];
        ranks_at("circle %u: %llu to the next, %llu from the previous", i, (unsigned long long)sent,
                 (unsigned long long)wanted);
        fill(out, i, rank, sent);
        memset(in, 0xee, wanted + 64);
        RANKS_OK(group, jackal_sendrecv(group, out, sent, next, in, wanted, previous));
        check(in, i, previous, wanted);
    }
    free(out);
    free(in);
    jackal_group_free(group);
    return 0;
}

static void circles_do_not_block(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_both_ways};
    assert_int_equal(ranks_run(&job), 0);
    job.size = 4;
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- wrong lengths ----------------------------------------------------------------------------
 */

static const struct wrong {
    uint64_t sent, wanted;
    bool asked; /* rendezvous: the sender learns of it */
} wrongs[] = {
    {1, 0, false},
    {0, 1, false},
    {10, 9, false},
    {9, 10, false},
    {4032, 4033, false},
    {20000, 100, false},
    {100, 20000, false},
    /* Several small slots, of which the receiver expected another number. */
    {4033, 1, false},
    {16000, 100, false},
    {100, 16000, false},
    {16128, 16127, false},
    {EAGER, 5, false},
    {5, EAGER + 1, false},
    {5, 1u << 20, false},
    {EAGER + 1, EAGER, true},
    {EAGER + 1, 0, true},
    {1u << 20, 17, true},
    {1u << 20, (1u << 20) + 1, true},
};

static void check_texts(jackal_group *group, const struct wrong *wrong) {
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)wrong->sent);
    RANKS_HAS(jackal_error_message(group), number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)wrong->wanted);
    RANKS_HAS(jackal_error_message(group), number);
    RANKS_EQUAL(jackal_error_peer(group), 1 - jackal_rank(group));
}

static void wrong_and_right(jackal_group *group, unsigned i, uint8_t *bytes) {
    const struct wrong *wrong = &wrongs[i];
    jackal_status expected =
        wrong->sent > wrong->wanted ? JACKAL_ERR_TRUNCATED : JACKAL_ERR_MISMATCH;
    ranks_at("%llu bytes sent, %llu wanted", (unsigned long long)wrong->sent,
             (unsigned long long)wrong->wanted);
    if (jackal_rank(group) == 0) {
        fill(bytes, i, 0, wrong->sent);
        RANKS_STATUS(group, jackal_send(group, bytes, wrong->sent, 1),
                     wrong->asked ? expected : JACKAL_OK);
        if (wrong->asked)
            check_texts(group, wrong);
        fill(bytes, 100 + i, 0, 5000);
        RANKS_OK(group, jackal_send(group, bytes, 5000, 1));
    } else {
        RANKS_STATUS(group, receive(group, bytes, wrong->wanted, 0), expected);
        check_texts(group, wrong);
        for (uint64_t k = wrong->wanted; k < wrong->wanted + 64; k++)
            RANKS_CHECK(bytes[k] == 0xee);
        RANKS_OK(group, receive(group, bytes, 5000, 0)); /* the next message is intact */
        check(bytes, 100 + i, 0, 5000);
    }
    RANKS_EQUAL(jackal_group_state(group), JACKAL_OK);
    RANKS_OK(group, jackal_barrier(group));
}

static int run_wrong(int rank, int size, jackal_config *config, void *argument) {
    (void)rank;
    (void)argument;
    (void)size;
    jackal_group *group = ranks_init(config);
    uint8_t *bytes = take();
    for (unsigned i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++)
        wrong_and_right(group, i, bytes);
    free(bytes);
    jackal_group_free(group);
    return 0;
}

static void wrong_lengths_are_told_and_harm_nothing(void **state) {
    (void)state;
    struct ranks_job job = {.size = 2, .run = run_wrong};
    assert_int_equal(ranks_run(&job), 0);
}

/* ---- beside collectives -----------------------------------------------------------------------
 */

/* A13: a send in front of a collective on one rank, its receive behind it on another. */
static int run_beside(int rank, int size, jackal_config *config, void *argument) {
    (void)argument;
    (void)size;
    jackal_group *group = ranks_init(config);
    uint8_t *bytes = take();
    for (unsigned i = 0; i < 50; i++) {
        int32_t sum = 1 << rank;
        ranks_at("round %u", i);
        if (rank == 0) {
            fill(bytes, i, 0, 1000 + i);
            RANKS_OK(group, jackal_send(group, bytes, 1000 + i, 2));
        }
        RANKS_OK(group, jackal_all_sum(group, &sum, &sum, 1, JACKAL_INT32));
        RANKS_EQUAL(sum, 7);
        if (rank == 2 && i % 4 == 3) /* late, several at once */
            for (unsigned k = i - 3; k <= i; k++) {
                RANKS_OK(group, receive(group, bytes, 1000 + k, 0));
                check(bytes, k, 0, 1000 + k);
            }
    }
    if (rank == 2)
        for (unsigned k = 48; k < 50; k++)
            RANKS_OK(group, receive(group, bytes, 1000 + k, 0));
    RANKS_OK(group, jackal_barrier(group));
    free(bytes);
    jackal_group_free(group);
    return 0;
}

static void messages_do_not_disturb_collectives(void **state) {
    (void)state;
    struct ranks_job job = {.size = 3, .run = run_beside};
    assert_int_equal(ranks_run(&job), 0);
}

int main(int argc, char **argv) {
    (void)argc;
    ranks_begin(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_keep_their_order),
        cmocka_unit_test(eager_messages_need_no_receiver),
        cmocka_unit_test(circles_do_not_block),
        cmocka_unit_test(wrong_lengths_are_told_and_harm_nothing),
        cmocka_unit_test(messages_do_not_disturb_collectives),
    };
    return ranks_end(cmocka_run_group_tests(tests, NULL, NULL));
}
