/* SPDX-License-Identifier: MIT */
/* Completion channels, asynchronous events, completion queues that are too small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_roce_support.h"
#include "jackal_fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct support_end a, b;

static int pair_up(void **state) {
    (void)state;
    roce_pair(&a, &b, ROCE_MESH, IBV_QPT_RC, &roce_patient);
    return 0;
}

static int pair_down(void **state) {
    (void)state;
    roce_unpair(&a, &b);
    return 0;
}

static bool is_readable(int fd, int for_ms) {
    struct pollfd one = {.fd = fd, .events = POLLIN};

    return poll(&one, 1, for_ms) == 1;
}

static void expect_event(struct support_end *end) {
    struct ibv_cq *cq = NULL;
    void *context = NULL;

    assert_true(is_readable(end->cq->channel->fd, SUPPORT_WAIT_MS));
    assert_int_equal(ibv_get_cq_event(end->cq->channel, &cq, &context), 0);
    assert_ptr_equal(cq, end->cq);
    assert_ptr_equal(context, end);
    ibv_ack_cq_events(cq, 1);
}

static void expect_async(struct support_end *end, enum ibv_event_type type, const void *object) {
    struct ibv_async_event event;

    assert_true(is_readable(end->context->async_fd, SUPPORT_WAIT_MS));
    assert_int_equal(ibv_get_async_event(end->context, &event), 0);
    assert_int_equal(event.event_type, type);
    if (object != NULL) {
        assert_ptr_equal(event.element.qp, object);
    }
    ibv_ack_async_event(&event);
}

/* One event for each arming, though nobody polls, and none without. */
static void armed_once(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(support_recv(&b, i, 0, 64), 0);
    }
    assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
    assert_int_equal(support_send(&a, 0, 0, 64), 0);
    expect_event(&b);
    assert_int_equal(support_wait(&b).wr_id, 0);
    assert_int_equal(support_send(&a, 1, 0, 64), 0);
    assert_false(is_readable(b.cq->channel->fd, 20)); /* not armed any more */
    assert_int_equal(support_wait(&b).wr_id, 1);
    assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
    assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0); /* once is enough */
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    assert_int_equal(support_send(&a, 3, 0, 64), 0);
    expect_event(&b);
    assert_false(is_readable(b.cq->channel->fd, 20));
    assert_int_equal(support_wait(&b).wr_id, 2);
    assert_int_equal(support_wait(&b).wr_id, 3);
}

/* None is lost when nobody reads: a socket holds fewer bytes than a channel may have events. */
static void more_than_the_socket_holds(void **state) {
    enum { EVENTS = 600 };
    struct ibv_sge sge;

    (void)state;
    for (uint64_t i = 0; i < EVENTS; i++) {
        struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, i, 0, 64);

        assert_int_equal(support_recv(&b, i, 0, 64), 0);
        assert_int_equal(ibv_req_notify_cq(b.cq, 0), 0);
        assert_int_equal(roce_post(&a, &wr), 0);
        assert_int_equal(support_wait(&b).wr_id, i);
        assert_int_equal(support_wait(&a).wr_id, i);
    }
    for (int i = 0; i < EVENTS; i++) {
        expect_event(&b);
    }
    assert_false(is_readable(b.cq->channel->fd, 20));
}

static void of_a_send(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, 5, 0, 64);

    (void)state;
    assert_int_equal(ibv_req_notify_cq(a.cq, 0), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    assert_false(is_readable(a.cq->channel->fd, 20));
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    expect_event(&a);
    assert_int_equal(support_wait(&a).wr_id, 5);
}

static void solicited_only(void **state) {
    struct ibv_sge sge;
    struct ibv_send_wr wr = roce_wr(&sge, &a, IBV_WR_SEND, 5, 0, 64);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(support_recv(&b, i, 0, 64), 0);
    }
    assert_int_equal(ibv_req_notify_cq(b.cq, 1), 0);
    assert_int_equal(roce_post(&a, &wr), 0);
    assert_false(is_readable(b.cq->channel->fd, 20));
    wr.send_flags |= IBV_SEND_SOLICITED;
    assert_int_equal(roce_post(&a, &wr), 0);
    expect_event(&b);
    assert_int_equal(ibv_req_notify_cq(b.cq, 1), 0);
    assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    expect_event(&b); /* an error is always worth an event */
}

static void non_blocking(void **state) {
    int fd = b.cq->channel->fd;
    struct ibv_cq *cq;
    void *context;

    (void)state;
    assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
    assert_int_equal(ibv_get_cq_event(b.cq->channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

static struct ibv_cq *destroyed;
static _Atomic int is_destroyed;

static void *destroy(void *unused) {
    SUPPORT_CHECK(ibv_destroy_cq(destroyed) == 0);
    atomic_store(&is_destroyed, 1);
    return unused;
}

/* Destroying waits until every event that was got is acknowledged; what was not got goes with it.
 */
static void destroy_waits_for_acks(void **state) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(b.context);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_cq *kept = b.cq, *got;
    struct ibv_qp *qp = b.qp;
    struct ibv_qp_attr init = support_attr_init();
    pthread_t thread;
    void *context;

    (void)state;
    destroyed = ibv_create_cq(b.context, 16, NULL, channel, 0);
    assert_non_null(destroyed);
    assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
    b.cq = destroyed;
    b.qp = roce_qp(&b, IBV_QPT_RC, 16);
    assert_int_equal(ibv_modify_qp(b.qp, &init, SUPPORT_MASK_INIT), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ibv_req_notify_cq(destroyed, 0), 0);
        assert_int_equal(support_recv(&b, 1, 0, 64), 0);
        assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0); /* flushes: an event */
    }
    assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
    assert_int_equal(ibv_get_cq_event(channel, &got, &context), 0);
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    b.qp = qp;
    b.cq = kept;
    atomic_store(&is_destroyed, 0);
    assert_int_equal(pthread_create(&thread, NULL, destroy, NULL), 0);
    support_nap_ms(20);
    assert_int_equal(atomic_load(&is_destroyed), 0);
    ibv_ack_cq_events(got, 1);
    support_nap_ms(20);
    assert_int_equal(atomic_load(&is_destroyed), 0);
    ibv_ack_cq_events(got, 1);
    pthread_join(thread, NULL);
    assert_false(is_readable(channel->fd, 0)); /* the third one */
    assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

/* ---------------------------------------------------------------------- async */

/* Five completions in a queue of four. */
static void overrun(void **state) {
    struct ibv_cq *small = ibv_create_cq(b.context, 4, NULL, NULL, 0), *kept = b.cq;
    struct ibv_qp *qp = b.qp;
    struct ibv_qp_attr attr = support_attr_init();
    struct ibv_wc wc;

    (void)state;
    b.cq = small;
    b.qp = roce_qp(&b, IBV_QPT_RC, 16);
    assert_non_null(b.qp);
    assert_int_equal(ibv_modify_qp(b.qp, &attr, SUPPORT_MASK_INIT), 0);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(support_recv(&b, i, 0, 64), 0);
    }
    attr.qp_state = IBV_QPS_ERR;
    assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
    assert_int_equal(ibv_poll_cq(small, 1, &wc), -1);
    expect_async(&b, IBV_EVENT_CQ_ERR, small);
    assert_int_equal(ibv_destroy_qp(b.qp), 0);
    assert_int_equal(ibv_destroy_cq(small), 0);
    b.qp = qp;
    b.cq = kept;
}

/* Two queue pairs of two completions each in a queue of three; and exactly as many as fit. */
static void overrun_together(void **state) {
    struct ibv_cq *small = ibv_create_cq(b.context, 3, NULL, NULL, 0), *kept = b.cq;
    struct ibv_qp *qp = b.qp, *both[2];
    struct ibv_wc wc[8];

    (void)state;
    b.cq = small;
    for (uint32_t n = 3; n <= 4; n++) {
        for (uint32_t i = 0; i < 2; i++) {
            struct ibv_qp_attr attr = support_attr_init();

            both[i] = b.qp = roce_qp(&b, IBV_QPT_RC, 16);
            assert_int_equal(ibv_modify_qp(b.qp, &attr, SUPPORT_MASK_INIT), 0);
            for (uint32_t j = i; j < n; j += 2) {
                assert_int_equal(support_recv(&b, j, 0, 64), 0);
            }
            attr.qp_state = IBV_QPS_ERR;
            assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
        }
        assert_int_equal(ibv_poll_cq(small, 8, wc), n == 3 ? 3 : -1);
        assert_int_equal(ibv_destroy_qp(both[0]), 0);
        assert_int_equal(ibv_destroy_qp(both[1]), 0);
    }
    expect_async(&b, IBV_EVENT_CQ_ERR, small);
    assert_int_equal(ibv_destroy_cq(small), 0);
    b.qp = qp;
    b.cq = kept;
}

/* Unplugged from the switch: that port says so, the other end's has nothing to say; the reliable
 * connection gives up; plugged again: it says so. */
static void unplugged(void **state) {
    struct ibv_wc wc;

    (void)state;
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.rocep1"), 0);
    expect_async(&a, IBV_EVENT_PORT_ERR, NULL);
    assert_false(is_readable(b.context->async_fd, 150));
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    wc = support_wait(&a);
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(jackal_fabric_control(support_name(), "replug h0.rocep1"), 0);
    expect_async(&a, IBV_EVENT_PORT_ACTIVE, NULL);
    assert_true(support_is_silent(&b, 5));
}

/* Plugged again before the tries are over: nothing was lost. */
static void unplugged_for_a_moment(void **state) {
    const struct roce_patience patient = {
        .timeout = 16, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1, .n_reads = 1};
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    union ibv_gid gid_a = support_gid(&a), gid_b = support_gid(&b);

    (void)state;
    assert_int_equal(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE), 0);
    assert_int_equal(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE), 0);
    roce_connect(&a, b.qp->qp_num, &gid_b, &patient);
    roce_connect(&b, a.qp->qp_num, &gid_a, &patient);
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.rocep1"), 0);
    assert_int_equal(support_recv(&b, 1, 0, 64), 0);
    assert_int_equal(support_send(&a, 2, 0, 64), 0);
    assert_true(support_is_silent(&b, 50));
    assert_int_equal(jackal_fabric_control(support_name(), "replug h0.rocep1"), 0);
    assert_int_equal(support_wait(&b).status, IBV_WC_SUCCESS);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, pair_up, pair_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE(armed_once),   RULE(more_than_the_socket_holds),
        RULE(of_a_send),    RULE(solicited_only),
        RULE(non_blocking), RULE(destroy_waits_for_acks),
        RULE(overrun),      RULE(overrun_together),
        RULE(unplugged),    RULE(unplugged_for_a_moment),
    };

    return cmocka_run_group_tests_name("fabric events", tests, NULL, NULL);
}
