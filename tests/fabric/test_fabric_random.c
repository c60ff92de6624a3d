/* SPDX-License-Identifier: MIT */
/*
 * 10,000 random operations over both personalities. Two threads of one process are the two ends;
 * everything that arrives is compared byte for byte. Completions are hidden from polls at random
 * by a fault, and each end pauses at random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define N_OPERATIONS 5000u /* of each end */
#define N_SLOTS      8u
#define SLOT         (96u * 1024u)

/* Memory of an end: slots to send from, to receive into, written by the peer, read from the peer,
 * and one that the peer reads from. */
enum region { OUT, IN, WRITTEN, READ, SHOWN };

static size_t at(enum region region, uint32_t number) {
    return ((size_t)region * N_SLOTS + number % N_SLOTS) * SLOT;
}

struct end_run {
    struct support_end *end, *peer;
    uint32_t self, other;
    bool is_reliable, has_rdma;
    uint32_t n_posted, n_done;       /* operations */
    uint32_t n_taking;               /* those of them that take a receive */
    uint32_t n_receives, n_received; /* messages of the peer that take a receive */
    uint32_t next_arrival;           /* the peer's operation that the next receive is of */
    uint32_t random;
};

static uint32_t mix(uint32_t who, uint32_t number) {
    uint32_t x = (number + 1) * 2654435761u ^ who * 0x27d4eb2fu;

    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x = (x ^ (x >> 13)) * 0x297a2d39u;
    return x ^ (x >> 16);
}

static uint32_t size_of(uint32_t who, uint32_t number) {
    uint32_t x = mix(who, number);

    return 1 + (x >> 8) % (x % 16 == 0 ? SLOT : 3000u);
}

/* What operation `number` of an end is; both know. */
static enum ibv_wr_opcode opcode_of(const struct end_run *run, uint32_t who, uint32_t number) {
    uint32_t x = mix(who + 7, number) % 10;

    if (!run->has_rdma || x < 5) {
        return run->has_rdma && x < 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    }
    if (run->is_reliable && x < 7) {
        return IBV_WR_RDMA_READ;
    }
    return IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool takes_receive(enum ibv_wr_opcode opcode) {
    return opcode != IBV_WR_RDMA_READ;
}

static void post_receive(struct end_run *run) {
    uint32_t n = run->n_receives;
    uint32_t arrival = run->next_arrival; /* found by counting on from the last one */
    uint32_t frames;

    while (!takes_receive(opcode_of(run, run->other, arrival))) {
        arrival++;
    }
    frames = (size_of(run->other, arrival) + 4095) / 4096;
    SUPPORT_CHECK(support_recv(run->end, arrival, at(IN, n), frames * 4096) == 0);
    run->next_arrival = arrival + 1;
    run->n_receives++;
}

static void post_operation(struct end_run *run) {
    uint32_t n = run->n_posted++;
    enum ibv_wr_opcode opcode = opcode_of(run, run->self, n);
    uint32_t size = size_of(run->self, n);
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, run->end, opcode, n, at(OUT, n), size);

    if (opcode == IBV_WR_RDMA_READ) {
        sge.addr = (uintptr_t)run->end->bytes + at(READ, n);
        wr.wr.rdma.remote_addr = (uintptr_t)run->peer->bytes + at(SHOWN, 0);
    } else {
        support_fill(run->end->bytes + at(OUT, n), run->self, n, size);
        wr.imm_data = n;
        /* Written again only for a receive that the peer posted after it had compared. */
        wr.wr.rdma.remote_addr = (uintptr_t)run->peer->bytes + at(WRITTEN, run->n_taking++);
    }
    wr.wr.rdma.rkey = run->peer->mr->rkey;
    SUPPORT_CHECK(roce_post(run->end, &wr) == 0);
}

static void take_arrival(struct end_run *run, const struct ibv_wc *wc) {
    uint32_t n = (uint32_t)wc->wr_id;
    enum ibv_wr_opcode opcode = opcode_of(run, run->other, n);
    size_t place = at(opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? WRITTEN : IN, run->n_received);

    SUPPORT_CHECK(wc->byte_len == size_of(run->other, n));
    SUPPORT_CHECK((wc->wc_flags == IBV_WC_WITH_IMM) == (opcode != IBV_WR_SEND));
    SUPPORT_CHECK(opcode == IBV_WR_SEND || wc->imm_data == n);
    SUPPORT_CHECK(support_is_filled(run->end->bytes + place, run->other, n, wc->byte_len));
    run->n_received++;
}

static void take_completion(struct end_run *run, const struct ibv_wc *wc) {
    uint32_t n = run->n_done++;

    SUPPORT_CHECK(wc->wr_id == n);
    if (wc->opcode == IBV_WC_RDMA_READ) {
        SUPPORT_CHECK(wc->byte_len == size_of(run->self, n));
        SUPPORT_CHECK(
            support_is_filled(run->end->bytes + at(READ, n), run->other, 77, wc->byte_len));
    }
}

static uint32_t n_arrivals(const struct end_run *run) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_OPERATIONS; i++) {
        n += takes_receive(opcode_of(run, run->other, i)) ? 1 : 0;
    }
    return n;
}

static void *run_end(void *argument) {
    struct end_run *run = argument;
    uint32_t n_expected = n_arrivals(run);
    struct ibv_wc wc;

    while (run->n_done < N_OPERATIONS || run->n_received < n_expected) {
        while (run->n_receives < n_expected && run->n_receives - run->n_received < N_SLOTS) {
            post_receive(run);
        }
        while (run->n_posted < N_OPERATIONS && run->n_posted - run->n_done < N_SLOTS) {
            post_operation(run);
        }
        wc = support_wait(run->end);
        SUPPORT_CHECK(wc.status == IBV_WC_SUCCESS);
        if ((wc.opcode & IBV_WC_RECV) != 0) {
            take_arrival(run, &wc);
        } else {
            take_completion(run, &wc);
        }
        run->random = run->random * 1664525u + 1013904223u;
        if (run->random >> 27 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void run_pair(struct support_end *a, struct support_end *b, bool is_reliable,
                     bool has_rdma) {
    struct end_run runs[2] = {{.end = a, .peer = b, .self = 1, .other = 2, .random = 5},
                              {.end = b, .peer = a, .self = 2, .other = 1, .random = 6}};
    pthread_t thread;

    for (int i = 0; i < 2; i++) {
        runs[i].is_reliable = is_reliable;
        runs[i].has_rdma = has_rdma;
        support_fill(runs[i].end->bytes + at(SHOWN, 0), runs[i].self, 77, SLOT);
    }
    assert_int_equal(pthread_create(&thread, NULL, run_end, &runs[1]), 0);
    run_end(&runs[0]);
    pthread_join(thread, NULL);
}

#define HIDING "\"faults\": [{\"kind\": \"reorder\", \"probability\": 0.2}]}"

static void reliable(void **state) {
    struct support_end a, b;

    (void)state;
    roce_pair(&a, &b, "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 2}, " HIDING, IBV_QPT_RC,
              &roce_patient);
    run_pair(&a, &b, true, true);
    roce_unpair(&a, &b);
}

static void unreliable(void **state) {
    struct support_end a, b;

    (void)state;
    roce_pair(&a, &b, "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 2}, " HIDING, IBV_QPT_UC,
              &roce_patient);
    run_pair(&a, &b, false, true);
    roce_unpair(&a, &b);
}

static void thunderbolt(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", "{\"mesh\": {\"hosts\": 2}, " HIDING);
    support_pair(&a, &b, 4u << 20);
    run_pair(&a, &b, false, false);
    support_unpair(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reliable),
        cmocka_unit_test(unreliable),
        cmocka_unit_test(thunderbolt),
    };

    return cmocka_run_group_tests_name("fabric random", tests, NULL, NULL);
}
