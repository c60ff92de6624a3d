/* SPDX-License-Identifier: MIT */
/* Two processes under the roce personality: sleeping for events, memory of others, death. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_pair(void (*body)(struct support_meeting *, unsigned)) {
    struct support_meeting *meeting = support_meeting_new();
    int children[2];

    for (unsigned side = 0; side < 2; side++) {
        children[side] = support_child(body, meeting, side);
    }
    for (unsigned side = 0; side < 2; side++) {
        assert_int_equal(support_reap(children[side]), 0);
    }
    support_meeting_free(meeting);
    assert_int_equal(support_n_files(), -1);
}

/* The peer's GID: that of index 1, which is told by way of the queue pair numbers' meeting. */
static void join(struct support_end *end, struct support_meeting *meeting, unsigned side,
                 enum ibv_qp_type type) {
    union ibv_gid *gids = (union ibv_gid *)(void *)((char *)meeting + 2048); /* of one page */

    support_settings(side == 0 ? "0" : "1", ROCE_MESH);
    roce_open(end, "rocep1", 2u << 20, 512, true);
    end->qp = roce_qp(end, type, 64);
    SUPPORT_CHECK(end->qp != NULL);
    gids[side] = support_gid(end);
    atomic_store(&meeting->qpn[side], end->qp->qp_num);
    support_meet(meeting, 0);
    roce_connect(end, atomic_load(&meeting->qpn[1 - side]), &gids[1 - side], &roce_patient);
}

/* Sleeps in ibv_get_cq_event until n completions came; both orders of arming and looking. */
static void sleep_for(struct support_end *end, int n) {
    struct ibv_wc wc[4];

    while (n > 0) {
        struct ibv_cq *cq;
        void *context;
        int got;

        SUPPORT_CHECK(ibv_get_cq_event(end->cq->channel, &cq, &context) == 0);
        ibv_ack_cq_events(cq, 1);
        SUPPORT_CHECK(ibv_req_notify_cq(cq, 0) == 0);
        while ((got = ibv_poll_cq(cq, 4, wc)) > 0) {
            for (int i = 0; i < got; i++) {
                SUPPORT_CHECK(wc[i].status == IBV_WC_SUCCESS);
            }
            n -= got;
        }
        SUPPORT_CHECK(got == 0);
    }
}

#define N_ROUNDS 1000u

static void ping_pong(struct support_meeting *meeting, unsigned side, enum ibv_qp_type type) {
    struct support_end end;

    alarm(60); /* a lost event would be a sleep without end */
    join(&end, meeting, side, type);
    SUPPORT_CHECK(ibv_req_notify_cq(end.cq, 0) == 0);
    SUPPORT_CHECK(support_recv(&end, 0, 65536, 4096) == 0);
    support_meet(meeting, 1);
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        struct ibv_sge sge;
        struct ibv_send_wr wr = roce_wr(&sge, &end, IBV_WR_SEND, i, 0, 1 + i % 4096);

        support_fill(end.bytes, side, i, 4096);
        if (side == 0) {
            SUPPORT_CHECK(roce_post(&end, &wr) == 0);
            sleep_for(&end, 2); /* the send and the answer */
        } else {
            sleep_for(&end, i == 0 ? 1 : 2); /* the question, and the send of the round before */
        }
        SUPPORT_CHECK(support_is_filled(end.bytes + 65536, 1 - side, i, 1 + i % 4096));
        memset(end.bytes + 65536, 0, 4096);
        SUPPORT_CHECK(support_recv(&end, i, 65536, 4096) == 0);
        if (side == 1) {
            SUPPORT_CHECK(roce_post(&end, &wr) == 0);
        }
    }
    support_meet(meeting, 2);
    roce_close(&end);
}

static void rc_body(struct support_meeting *meeting, unsigned side) {
    ping_pong(meeting, side, IBV_QPT_RC);
}

static void uc_body(struct support_meeting *meeting, unsigned side) {
    ping_pong(meeting, side, IBV_QPT_UC);
}

static void reliable_with_events(void **state) {
    (void)state;
    run_pair(rc_body);
}

static void unreliable_with_events(void **state) {
    (void)state;
    run_pair(uc_body);
}

/* ------------------------------------------------------------ memory of others */

struct window {
    uint64_t address;
    uint32_t rkey;
};

/* Side 1 shows its memory and sleeps; side 0 writes and reads. */
static void passive_body(struct support_meeting *meeting, unsigned side) {
    struct window *window = (struct window *)(void *)((char *)meeting + 3072);
    struct support_end end;

    join(&end, meeting, side, IBV_QPT_RC);
    if (side == 1) {
        *window = (struct window){.address = (uintptr_t)end.bytes, .rkey = end.mr->rkey};
    }
    support_meet(meeting, 1);
    for (uint32_t i = 0; side == 0 && i < 200; i++) {
        uint32_t n_bytes = 1 + i * 4999;
        struct ibv_sge sge[2];
        struct ibv_send_wr write = roce_wr(&sge[0], &end, IBV_WR_RDMA_WRITE, i, 0, n_bytes);
        struct ibv_send_wr read = roce_wr(&sge[1], &end, IBV_WR_RDMA_READ, i, 1u << 20, n_bytes);

        support_fill(end.bytes, 5, i, n_bytes);
        write.send_flags = 0;
        write.next = &read;
        write.wr.rdma.remote_addr = read.wr.rdma.remote_addr = window->address + i;
        write.wr.rdma.rkey = read.wr.rdma.rkey = window->rkey;
        SUPPORT_CHECK(roce_post(&end, &write) == 0);
        SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
        SUPPORT_CHECK(support_is_filled(end.bytes + (1u << 20), 5, i, n_bytes));
    }
    support_meet(meeting, 2);
    /* Any call that takes the queue pair's lock: sanitizers see no other process, so not why the
     * bytes that the thread of this one wrote are there. */
    SUPPORT_CHECK(roce_state(&end) == IBV_QPS_RTS);
    SUPPORT_CHECK(side == 0 || support_is_filled(end.bytes + 199, 5, 199, 1 + 199 * 4999));
    roce_close(&end);
}

static void passive_target(void **state) {
    (void)state;
    run_pair(passive_body);
}

/* --------------------------------------------------------------------- death */

static void victim(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    join(&end, meeting, side, IBV_QPT_RC);
    SUPPORT_CHECK(support_recv(&end, 1, 0, 4096) == 0);
    support_meet(meeting, 1);
    SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
    support_meet(meeting, 3);
    raise(SIGKILL);
}

/* What was acknowledged succeeds, the rest fails with the right status, in its order. */
static void survivor(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    struct ibv_sge sge;
    struct ibv_wc wc;

    join(&end, meeting, side, IBV_QPT_RC);
    support_meet(meeting, 1);
    for (uint64_t i = 0; i < 3; i++) {
        struct ibv_send_wr wr = roce_wr(&sge, &end, IBV_WR_SEND, i, 0, 1000);

        SUPPORT_CHECK(roce_post(&end, &wr) == 0);
    }
    wc = support_wait(&end);
    SUPPORT_CHECK(wc.wr_id == 0 && wc.status == IBV_WC_SUCCESS);
    SUPPORT_CHECK(support_is_silent(&end, 60)); /* alive: it waits for a receive for ever */
    support_meet(meeting, 3);
    wc = support_wait(&end);
    SUPPORT_CHECK(wc.wr_id == 1 && wc.status == IBV_WC_RETRY_EXC_ERR);
    wc = support_wait(&end);
    SUPPORT_CHECK(wc.wr_id == 2 && wc.status == IBV_WC_WR_FLUSH_ERR);
    SUPPORT_CHECK(roce_state(&end) == IBV_QPS_ERR);
    roce_close(&end);
}

static void killed_peer(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int dead = support_child(victim, meeting, 0);
    int alive = support_child(survivor, meeting, 1);
    int status = support_reap(dead);

    (void)state;
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(support_reap(alive), 0);
    support_meeting_free(meeting);
    assert_int_equal(support_n_files(), -1);
}

/* A stopped process is slow, not dead. */
static void stopped_body(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    struct ibv_sge sge;

    join(&end, meeting, side, IBV_QPT_RC);
    if (side == 0) {
        SUPPORT_CHECK(support_recv(&end, 1, 0, 4096) == 0);
        support_meet(meeting, 1);
        support_meet(meeting, 2);
        SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
    } else {
        struct ibv_send_wr wr = roce_wr(&sge, &end, IBV_WR_SEND, 9, 0, 1000);
        pid_t other = (pid_t)atomic_load(&meeting->pid[0]);

        support_meet(meeting, 1);
        SUPPORT_CHECK(kill(other, SIGSTOP) == 0);
        support_nap_ms(5);
        SUPPORT_CHECK(roce_post(&end, &wr) == 0);
        SUPPORT_CHECK(support_is_silent(&end, 150)); /* five times its patience */
        SUPPORT_CHECK(kill(other, SIGCONT) == 0);
        SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
        support_meet(meeting, 2);
    }
    support_meet(meeting, 3);
    roce_close(&end);
}

static void stopped_peer(void **state) {
    (void)state;
    run_pair(stopped_body);
}

/* ---------------------------------------------------------------- one device */

/* Two processes of one host share the ten queue pairs of its device. */
static void sharing_body(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    struct ibv_qp *qps[6];

    support_settings("0", NULL);
    support_open(&end, "rdma_en2", 65536);
    for (int i = 0; i < 5; i++) {
        qps[i] = support_qp(&end, IBV_QPT_UC, 32);
        SUPPORT_CHECK(qps[i] != NULL);
    }
    support_meet(meeting, 1);
    errno = 0;
    SUPPORT_CHECK(support_qp(&end, IBV_QPT_UC, 32) == NULL && errno == EBUSY);
    support_meet(meeting, 2);
    if (side == 0) {
        SUPPORT_CHECK(ibv_destroy_qp(qps[0]) == 0);
    }
    support_meet(meeting, 3);
    if (side == 1) {
        qps[5] = support_qp(&end, IBV_QPT_UC, 32);
        SUPPORT_CHECK(qps[5] != NULL);
    }
    support_meet(meeting, 4);
    for (int i = side == 0 ? 1 : 0; i < (side == 0 ? 5 : 6); i++) {
        SUPPORT_CHECK(ibv_destroy_qp(qps[i]) == 0);
    }
    support_close(&end);
}

static void shared_device(void **state) {
    (void)state;
    run_pair(sharing_body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reliable_with_events), cmocka_unit_test(unreliable_with_events),
        cmocka_unit_test(passive_target),       cmocka_unit_test(killed_peer),
        cmocka_unit_test(stopped_peer),         cmocka_unit_test(shared_device),
    };

    return cmocka_run_group_tests_name("fabric roce processes", tests, NULL, NULL);
}
