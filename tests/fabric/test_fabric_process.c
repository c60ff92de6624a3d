/* SPDX-License-Identifier: MIT */
/*
 * Two processes, one emulated host each. The test process forks them and never opens a device
 * itself; every wait has a limit, and a child that is late is killed by its number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* ------------------------------------------------------------------- traffic */

#define N_ROUNDS 2000u

static void exchange(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 4 * 65536);
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        uint32_t mine = 1 + i * (side == 0 ? 7919u : 104729u) % 65536u;
        uint32_t theirs = 1 + i * (side == 0 ? 104729u : 7919u) % 65536u;
        size_t slot = i % 2 * 65536u;
        bool has_sent = false, has_received = false;

        support_fill(end.bytes + slot, side, i, mine);
        SUPPORT_CHECK(support_recv(&end, 2 * i, 131072 + slot, (theirs + 4095) / 4096 * 4096) == 0);
        SUPPORT_CHECK(support_send(&end, 2 * i + 1, slot, mine) == 0);
        while (!has_sent || !has_received) {
            struct ibv_wc wc = support_wait(&end);

            SUPPORT_CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id / 2 == i);
            if (wc.opcode == IBV_WC_SEND) {
                has_sent = true;
            } else {
                has_received = true;
                SUPPORT_CHECK(wc.byte_len == theirs);
                SUPPORT_CHECK(support_is_filled(end.bytes + 131072 + slot, 1 - side, i, theirs));
            }
        }
    }
    support_meet(meeting, 1);
    support_close(&end);
}

static void two_processes(void **state) {
    (void)state;
    run_pair(exchange);
}

/* Side 0 posts more than a ring holds and sleeps; side 1 gets all of it. */
static void sleeping_sender(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 3u << 20);
    if (side == 0) {
        for (uint32_t i = 0; i < 6; i++) {
            support_fill(end.bytes + i * 524288, 9, i, 524288);
            SUPPORT_CHECK(support_send(&end, i, i * 524288, 524288) == 0);
        }
    }
    support_meet(meeting, 1);
    if (side == 1) {
        for (uint32_t i = 0; i < 6; i++) {
            SUPPORT_CHECK(support_recv(&end, i, i * 524288, 524288) == 0);
            SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
            SUPPORT_CHECK(support_is_filled(end.bytes + i * 524288, 9, i, 524288));
        }
    }
    support_meet(meeting, 2);
    support_close(&end);
}

static void delivered_while_the_sender_sleeps(void **state) {
    (void)state;
    run_pair(sleeping_sender);
}

/* Side 1 posts and sleeps; side 0's sends complete, then it leaves; side 1 finds everything. */
static void sleeping_receiver(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 3u << 20);
    if (side == 1) {
        for (uint32_t i = 0; i < 3; i++) {
            SUPPORT_CHECK(support_recv(&end, i, i * 524288, 524288) == 0);
        }
    }
    support_meet(meeting, 1);
    if (side == 0) {
        for (uint32_t i = 0; i < 3; i++) {
            support_fill(end.bytes + i * 524288, 5, i, 524288);
            SUPPORT_CHECK(support_send(&end, i, i * 524288, 524288) == 0);
        }
        for (uint32_t i = 0; i < 3; i++) {
            SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
        }
        support_close(&end);
        support_meet(meeting, 2);
        return;
    }
    support_meet(meeting, 2);
    for (uint32_t i = 0; i < 3; i++) {
        SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
        SUPPORT_CHECK(support_is_filled(end.bytes + i * 524288, 5, i, 524288));
    }
    support_close(&end);
}

static void completed_sends_outlive_their_sender(void **state) {
    (void)state;
    run_pair(sleeping_receiver);
}

/* Ends without closing anything: the library cleans up when it is unloaded. */
static void leave_open(struct support_meeting *meeting, unsigned side) {
    static struct support_end end; /* still reachable at exit, so not a leak to report */

    support_join(&end, meeting, side, 65536);
    support_meet(meeting, 1);
}

static void nothing_left_without_closing(void **state) {
    (void)state;
    run_pair(leave_open);
}

/* --------------------------------------------------------------------- death */

static void victim(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 1u << 20);
    for (uint32_t i = 0; i < 4; i++) {
        SUPPORT_CHECK(support_send(&end, i, 0, 65536) == 0);
    }
    support_meet(meeting, 1);
    raise(SIGKILL);
}

static void survivor(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 1u << 20);
    support_meet(meeting, 1);
    support_meet(meeting, 2); /* the victim is dead */
    for (uint32_t i = 0; i < 8; i++) {
        SUPPORT_CHECK(support_recv(&end, 100 + i, 524288, 4096) == 0 || errno == ENOMEM);
        SUPPORT_CHECK(support_send(&end, i, 0, 65536) == 0);
    }
    for (;;) { /* what was in the ring may come, or not; then nothing does */
        struct ibv_wc wc;

        if (ibv_poll_cq(end.cq, 1, &wc) == 0) {
            break;
        }
        SUPPORT_CHECK(wc.opcode == IBV_WC_RECV || wc.status == IBV_WC_WR_FLUSH_ERR);
    }
    SUPPORT_CHECK(support_is_silent(&end, 100));
    SUPPORT_CHECK(support_n_files() == 2);
    support_close(&end);
}

static void killed_peer(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int dead = support_child(victim, meeting, 0);
    int alive = support_child(survivor, meeting, 1);
    int status = support_reap(dead);

    (void)state;
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    support_meet(meeting, 2);
    assert_int_equal(support_reap(alive), 0);
    support_meeting_free(meeting);
    /* The survivor swept up behind the victim when it left. */
    assert_int_equal(support_n_files(), -1);
}

static void open_and_die(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    (void)meeting;
    support_settings(side == 0 ? "0" : "1", NULL);
    support_open(&end, "rdma_en2", 65536);
    raise(SIGKILL);
}

static void open_and_look(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    (void)meeting;
    (void)side;
    support_settings("2", NULL);
    support_open(&end, "rdma_en2", 65536);
    SUPPORT_CHECK(support_n_files() == 1);
    support_close(&end);
}

static void leftovers_are_reclaimed(void **state) {
    struct support_meeting *meeting = support_meeting_new();

    (void)state;
    for (unsigned side = 0; side < 2; side++) {
        assert_true(WIFSIGNALED(support_reap(support_child(open_and_die, meeting, side))));
    }
    assert_int_equal(support_n_files() >= 1, 1);
    assert_int_equal(support_reap(support_child(open_and_look, meeting, 2)), 0);
    assert_int_equal(support_n_files(), -1);
    support_meeting_free(meeting);
}

/* A replacement of a dead peer talks to a new queue pair of the survivor. */
static void keeper(struct support_meeting *meetings, unsigned side) {
    struct support_end end;
    struct ibv_qp *old;

    support_join(&end, &meetings[0], side, 65536);
    support_meet(&meetings[0], 1);
    support_meet(&meetings[0], 2);
    old = end.qp;
    {
        struct support_end again;

        support_join(&again, &meetings[1], side, 65536);
        SUPPORT_CHECK(support_recv(&again, 1, 0, 4096) == 0);
        SUPPORT_CHECK(support_wait(&again).status == IBV_WC_SUCCESS);
        SUPPORT_CHECK(support_is_filled(again.bytes, 77, 1, 4096));
        support_meet(&meetings[1], 1);
        support_close(&again);
    }
    SUPPORT_CHECK(end.qp == old && support_is_silent(&end, 5));
    support_close(&end);
}

static void first_life(struct support_meeting *meetings, unsigned side) {
    struct support_end end;

    support_join(&end, &meetings[0], side, 65536);
    support_meet(&meetings[0], 1);
    raise(SIGKILL);
}

static void second_life(struct support_meeting *meetings, unsigned side) {
    struct support_end end;

    support_join(&end, &meetings[1], side, 65536);
    support_fill(end.bytes, 77, 1, 4096);
    SUPPORT_CHECK(support_send(&end, 1, 0, 4096) == 0);
    SUPPORT_CHECK(support_wait(&end).status == IBV_WC_SUCCESS);
    support_meet(&meetings[1], 1);
    support_close(&end);
}

static void replaced_peer(void **state) {
    struct support_meeting *meetings = support_meeting_new(); /* a page holds both */
    int keeping = support_child(keeper, meetings, 1);
    int dying = support_child(first_life, meetings, 0);
    int replacing;

    (void)state;
    assert_true(WIFSIGNALED(support_reap(dying)));
    support_meet(&meetings[0], 2);
    replacing = support_child(second_life, meetings, 0);
    assert_int_equal(support_reap(replacing), 0);
    assert_int_equal(support_reap(keeping), 0);
    support_meeting_free(meetings);
    assert_int_equal(support_n_files(), -1);
}

/* ------------------------------------------------------------------- folders */

static void open_refused(struct support_meeting *meeting, unsigned side) {
    struct ibv_device **list;

    (void)meeting;
    (void)side;
    support_settings("0", NULL);
    list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(list != NULL);
    SUPPORT_CHECK(ibv_open_device(list[0]) == NULL);
    SUPPORT_CHECK(strstr(jackal_fabric_error(), support_name()) != NULL);
    ibv_free_device_list(list);
}

static void make_parent(char *parent, size_t n_bytes) {
    snprintf(parent, n_bytes, "%s", support_folder());
    *strrchr(parent, '/') = '\0';
    assert_true(mkdir(parent, 0700) == 0 || errno == EEXIST);
}

static void wide_folder_is_refused(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    char parent[512];

    (void)state;
    make_parent(parent, sizeof parent);
    assert_int_equal(mkdir(support_folder(), 0700), 0);
    assert_int_equal(chmod(support_folder(), 0750), 0);
    assert_int_equal(support_reap(support_child(open_refused, meeting, 0)), 0);
    assert_int_equal(support_n_files(), 0);
    assert_int_equal(rmdir(support_folder()), 0);
    rmdir(parent);
    support_meeting_free(meeting);
}

static void link_is_refused(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    char parent[512], target[] = "/tmp/jackal-fabric-XXXXXX";

    (void)state;
    make_parent(parent, sizeof parent);
    assert_non_null(mkdtemp(target));
    assert_int_equal(symlink(target, support_folder()), 0);
    assert_int_equal(support_reap(support_child(open_refused, meeting, 0)), 0);
    assert_int_equal(rmdir(target), 0); /* fails if anything was made in it */
    assert_int_equal(unlink(support_folder()), 0);
    rmdir(parent);
    support_meeting_free(meeting);
}

/* Two processes of one fabric name must describe the same mesh. */
static void other_mesh(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    if (side == 0) {
        support_settings("0", NULL);
        support_open(&end, "rdma_en2", 65536);
        support_meet(meeting, 1);
        support_meet(meeting, 2);
        support_close(&end);
        return;
    }
    support_meet(meeting, 1);
    support_settings("1", "{\"mesh\": {\"hosts\": 3}}");
    end.list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(end.list != NULL);
    SUPPORT_CHECK(ibv_open_device(end.list[0]) == NULL && errno == EINVAL);
    ibv_free_device_list(end.list);
    support_meet(meeting, 2);
}

static void meshes_must_agree(void **state) {
    (void)state;
    run_pair(other_mesh);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes),
        cmocka_unit_test(delivered_while_the_sender_sleeps),
        cmocka_unit_test(completed_sends_outlive_their_sender),
        cmocka_unit_test(nothing_left_without_closing),
        cmocka_unit_test(killed_peer),
        cmocka_unit_test(leftovers_are_reclaimed),
        cmocka_unit_test(replaced_peer),
        cmocka_unit_test(wide_folder_is_refused),
        cmocka_unit_test(link_is_refused),
        cmocka_unit_test(meshes_must_agree),
    };

    return cmocka_run_group_tests_name("fabric processes", tests, NULL, NULL);
}
