/* SPDX-License-Identifier: MIT */
/*
 * Traffic within one process: threads at both ends of a cable, so that ThreadSanitizer sees both
 * sides of each ring. And faults, which the sender's end carries out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_MESSAGES 10000u
#define N_SLOTS    8u
#define SLOT       (48u * 1024u)

struct traffic {
    struct support_end *end;
    uint32_t self, peer;
    uint32_t n_sent, n_received;
    uint32_t n_send_posted, n_recv_posted;
};

/* The size of message `number` of a side, known to both: mostly small, some of a dozen frames. */
static uint32_t traffic_size(uint32_t who, uint32_t number) {
    uint32_t x = (number + 1) * 2654435761u ^ who * 0x27d4eb2fu;

    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x ^= x >> 13;
    return 1 + (x >> 8) % (x % 16 == 0 ? SLOT : 6000u);
}

static void traffic_receive(struct traffic *t) {
    uint32_t n = t->n_recv_posted++;
    uint32_t frames = (traffic_size(t->peer, n) + 4095) / 4096;

    SUPPORT_CHECK(support_recv(t->end, n, (N_SLOTS + n % N_SLOTS) * SLOT, frames * 4096) == 0);
}

static void traffic_send(struct traffic *t) {
    uint32_t n = t->n_send_posted++;
    uint32_t size = traffic_size(t->self, n);
    size_t offset = n % N_SLOTS * SLOT;

    support_fill(t->end->bytes + offset, t->self, n, size);
    SUPPORT_CHECK(support_send(t->end, n, offset, size) == 0);
}

static void traffic_complete(struct traffic *t, const struct ibv_wc *wc) {
    SUPPORT_CHECK(wc->status == IBV_WC_SUCCESS);
    if (wc->opcode == IBV_WC_SEND) {
        SUPPORT_CHECK(wc->wr_id == t->n_sent);
        /* From here on the memory is the program's again. */
        memset(t->end->bytes + t->n_sent % N_SLOTS * SLOT, 0xee, 64);
        t->n_sent++;
        return;
    }
    SUPPORT_CHECK(wc->wr_id == t->n_received);
    SUPPORT_CHECK(wc->byte_len == traffic_size(t->peer, t->n_received));
    SUPPORT_CHECK(support_is_filled(t->end->bytes + (N_SLOTS + t->n_received % N_SLOTS) * SLOT,
                                    t->peer, t->n_received, wc->byte_len));
    t->n_received++;
}

static void *traffic_run(void *argument) {
    struct traffic *t = argument;

    while (t->n_sent < N_MESSAGES || t->n_received < N_MESSAGES) {
        while (t->n_recv_posted < N_MESSAGES && t->n_recv_posted - t->n_received < N_SLOTS) {
            traffic_receive(t);
        }
        while (t->n_send_posted < N_MESSAGES && t->n_send_posted - t->n_sent < N_SLOTS) {
            traffic_send(t);
        }
        {
            struct ibv_wc wc = support_wait(t->end);

            traffic_complete(t, &wc);
        }
    }
    return NULL;
}

/* Random sizes in both directions, compared byte for byte; more in flight than the ring holds. */
static void random_sizes(void **state) {
    struct support_end a, b;
    struct traffic ta = {.end = &a, .self = 1, .peer = 2}, tb = {.end = &b, .self = 2, .peer = 1};
    pthread_t thread;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 2 * N_SLOTS * SLOT);
    assert_int_equal(pthread_create(&thread, NULL, traffic_run, &tb), 0);
    traffic_run(&ta);
    pthread_join(thread, NULL);
    support_unpair(&a, &b);
}

/* Several threads, each with a queue pair pair of its own on its own cable. */
static void *own_cable(void *argument) {
    const char *const *names = argument;
    struct support_end a, b;
    union ibv_gid gid_a, gid_b;

    support_open(&a, names[0], 65536);
    support_open(&b, names[1], 65536);
    a.qp = support_qp(&a, IBV_QPT_UC, 32);
    b.qp = support_qp(&b, IBV_QPT_UC, 32);
    SUPPORT_CHECK(a.qp != NULL && b.qp != NULL);
    gid_a = support_gid(&a);
    gid_b = support_gid(&b);
    support_connect(&a, b.qp->qp_num, &gid_b);
    support_connect(&b, a.qp->qp_num, &gid_a);
    for (uint32_t i = 0; i < 500; i++) {
        support_fill(a.bytes, 1, i, 8192);
        SUPPORT_CHECK(support_recv(&b, i, 0, 8192) == 0);
        SUPPORT_CHECK(support_send(&a, i, 0, 8192) == 0);
        SUPPORT_CHECK(support_wait(&b).status == IBV_WC_SUCCESS);
        SUPPORT_CHECK(support_is_filled(b.bytes, 1, i, 8192));
        SUPPORT_CHECK(support_wait(&a).status == IBV_WC_SUCCESS);
    }
    support_close(&a);
    support_close(&b);
    return NULL;
}

static void many_threads(void **state) {
    static const char *const names[3][2] = {{"h0.rdma_en2", "h1.rdma_en2"},
                                            {"h0.rdma_en3", "h2.rdma_en2"},
                                            {"h1.rdma_en3", "h2.rdma_en3"}};
    pthread_t threads[3];

    (void)state;
    support_settings("*", NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, own_cable, (void *)(uintptr_t)names[i]),
                         0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* One thread posts to a queue pair, another polls its completion queue. */
static void *poll_all(void *argument) {
    struct support_end *end = argument;

    for (uint32_t i = 0; i < 300; i++) {
        struct ibv_wc wc = support_wait(end);

        SUPPORT_CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
    }
    return NULL;
}

static void post_and_poll_apart(void **state) {
    struct support_end a, b;
    pthread_t threads[2];

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    assert_int_equal(pthread_create(&threads[0], NULL, poll_all, &a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, poll_all, &b), 0);
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(support_recv(&b, i, 0, 4096), 0);
        assert_int_equal(support_send(&a, i, 0, 4096), 0);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    support_unpair(&a, &b);
}

/* The sender posts far more than the ring holds and then does nothing at all. */
static void delivered_without_the_sender(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 3u << 20);
    for (uint32_t i = 0; i < 12; i++) {
        support_fill(a.bytes + i * 262144, 1, i, 262144);
        assert_int_equal(support_send(&a, i, i * 262144, 262144), 0);
    }
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(support_recv(&b, i, i * 262144, 262144), 0);
        assert_int_equal(support_wait(&b).status, IBV_WC_SUCCESS);
        assert_true(support_is_filled(b.bytes + i * 262144, 1, i, 262144));
    }
    support_unpair(&a, &b);
}

/* The receiver has posted and then does nothing: the sends complete all the same. */
static void completed_without_the_receiver(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 3u << 20);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(support_recv(&b, i, i * 262144, 262144), 0);
    }
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(support_send(&a, i, i * 262144, 262144), 0);
    }
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(support_wait(&a).wr_id, i);
    }
    support_unpair(&a, &b);
}

static const char faults[] =
    "{\"faults\": ["
    "{\"kind\": \"flip\", \"device\": \"h0.rdma_en2\", \"message\": 1, \"bit\": 40003},"
    "{\"kind\": \"drop\", \"device\": \"h0.rdma_en2\", \"message\": 3},"
    "{\"kind\": \"flip\", \"device\": \"h0.rdma_en2\", \"message\": 4, \"bit\": 80001},"
    "{\"kind\": \"drop\", \"device\": \"h1.rdma_en3\", \"message\": 0},"
    "{\"kind\": \"status\", \"device\": \"h0.rdma_en2\", \"message\": 5, \"status\": 4}]}";

static void check_flipped(const uint8_t *bytes, uint32_t number, size_t bit, uint8_t *scratch) {
    support_fill(scratch, 1, number, 10000);
    assert_memory_not_equal(bytes, scratch, 10000);
    scratch[bit / 8] = (uint8_t)(scratch[bit / 8] ^ (1u << bit % 8));
    assert_memory_equal(bytes, scratch, 10000);
}

static void faults_on_a_cable(void **state) {
    /* Messages in the order of their receives: 3 is lost, 4 takes its place. */
    static const uint32_t arrives[] = {0, 1, 2, 4};
    struct support_end a, b;
    uint8_t scratch[10000];

    (void)state;
    support_settings("*", faults);
    support_pair(&a, &b, 8 * 16384);
    for (uint32_t i = 0; i < 6; i++) {
        support_fill(a.bytes + i * 16384, 1, i, 10000);
        assert_int_equal(support_recv(&b, i, i * 16384, 12288), 0);
        assert_int_equal(support_send(&a, i, i * 16384, 10000), 0);
    }
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(support_wait(&a).status, IBV_WC_SUCCESS);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *bytes = b.bytes + i * 16384;
        struct ibv_wc wc = support_wait(&b);

        assert_int_equal(wc.wr_id, i);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        if (arrives[i] == 1) {
            check_flipped(bytes, 1, 40003, scratch);
        } else if (arrives[i] == 4) {
            check_flipped(bytes, 4, 1, scratch); /* wraps at 80000 bits */
        } else {
            assert_true(support_is_filled(bytes, 1, arrives[i], 10000));
        }
    }
    assert_int_equal(support_wait(&b).status, 4);
    assert_int_equal(support_wait(&b).status, IBV_WC_WR_FLUSH_ERR);
    support_unpair(&a, &b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sizes),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(post_and_poll_apart),
        cmocka_unit_test(delivered_without_the_sender),
        cmocka_unit_test(completed_without_the_receiver),
        cmocka_unit_test(faults_on_a_cable),
    };

    return cmocka_run_group_tests_name("fabric data", tests, NULL, NULL);
}
