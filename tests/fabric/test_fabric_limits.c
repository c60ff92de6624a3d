/* SPDX-License-Identifier: MIT */
/* Limits of devices, whoever holds them; the second open; what is left at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"
#include "jackal_fabric.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Queue pairs until there are no more; how many there were, and with which errno it ended. */
static int count_qps(struct support_end *end, int *errno_p) {
    struct ibv_qp *qps[64];
    int n = 0;

    errno = 0;
    while (n < 64 && (qps[n] = support_qp(end, IBV_QPT_UC, 16)) != NULL) {
        n++;
    }
    *errno_p = errno;
    for (int i = 0; i < n; i++) {
        SUPPORT_CHECK(ibv_destroy_qp(qps[i]) == 0);
    }
    return n;
}

static int count_pds(struct support_end *end) {
    struct ibv_pd *pds[300];
    int n = 0;

    while (n < 300 && (pds[n] = ibv_alloc_pd(end->context)) != NULL) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        SUPPORT_CHECK(ibv_dealloc_pd(pds[i]) == 0);
    }
    return n;
}

static int count_mrs(struct support_end *end) {
    struct ibv_mr *mrs[300];
    int n = 0;

    while (n < 300 &&
           (mrs[n] = ibv_reg_mr(end->pd, end->bytes, 4096, IBV_ACCESS_LOCAL_WRITE)) != NULL) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        SUPPORT_CHECK(ibv_dereg_mr(mrs[i]) == 0);
    }
    return n;
}

static int count_cqs(struct support_end *end) {
    struct ibv_cq *cqs[300];
    int n = 0;

    while (n < 300 && (cqs[n] = ibv_create_cq(end->context, 1, NULL, NULL, 0)) != NULL) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        SUPPORT_CHECK(ibv_destroy_cq(cqs[i]) == 0);
    }
    return n;
}

static void described_limits(void **state) {
    struct ibv_device_attr attr;
    struct support_end end;
    int code;

    (void)state;
    support_settings("0", "{\"limits\": {\"max_qp\": 5, \"max_mr\": 7, \"max_pd\": 4, \"max_cq\": "
                          "6, \"max_cqe\": 5000, \"depth\": 64, \"held\": {\"qp\": 2, \"mr\": 3, "
                          "\"pd\": 1, \"cq\": 2}}}");
    support_open(&end, "rdma_en2", 65536);
    assert_int_equal(ibv_query_device(end.context, &attr), 0);
    assert_int_equal(attr.max_qp, 5);
    assert_int_equal(attr.max_mr, 7);
    assert_int_equal(attr.max_pd, 4);
    assert_int_equal(attr.max_cq, 6);
    assert_int_equal(attr.max_cqe, 5000);
    assert_int_equal(attr.max_qp_wr, 64);
    assert_int_equal(count_qps(&end, &code), 3);
    assert_int_equal(code, EBUSY);
    assert_int_equal(count_mrs(&end), 3); /* 7, less 3 of others, less the one of the test */
    assert_int_equal(count_pds(&end), 2);
    assert_int_equal(count_cqs(&end), 3);
    assert_null(support_qp(&end, IBV_QPT_UC, 65));
    assert_null(ibv_create_cq(end.context, 5001, NULL, NULL, 0));
    support_close(&end);
}

static void limits_of_one_device(void **state) {
    struct support_end end, other;
    int code;

    (void)state;
    support_settings("A", "{\"hosts\": [{\"name\": \"A\", \"devices\": [{\"name\": \"rdma_en2\", "
                          "\"limits\": {\"max_qp\": 3}}, {\"name\": \"rdma_en3\"}]}]}");
    support_open(&end, "rdma_en2", 65536);
    support_open(&other, "rdma_en3", 65536);
    assert_int_equal(count_qps(&end, &code), 3);
    assert_int_equal(count_qps(&other, &code), 10);
    support_close(&end);
    support_close(&other);
}

static void all_held(void **state) {
    struct support_end end;
    int code;

    (void)state;
    support_settings("0", "{\"limits\": {\"held\": {\"qp\": 10}}}");
    support_open(&end, "rdma_en2", 65536);
    assert_int_equal(count_qps(&end, &code), 0);
    assert_int_equal(code, EBUSY);
    support_close(&end);
}

/* ------------------------------------------------------------- several processes */

static const char few[] = "{\"limits\": {\"max_qp\": 4}}";

static void holder(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    (void)side;
    support_settings("0", few);
    support_open(&end, "rdma_en2", 65536);
    end.qp = support_qp(&end, IBV_QPT_UC, 16);
    SUPPORT_CHECK(end.qp != NULL);
    support_meet(meeting, 0);
    support_meet(meeting, 1);
    raise(SIGKILL);
}

/* Two processes of a host share its devices; a killed one's share comes back. */
static void shared_by_processes(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int holding = support_child(holder, meeting, 0);
    struct support_end end;
    int code;

    (void)state;
    support_meet(meeting, 0);
    support_settings("0", few);
    support_open(&end, "rdma_en2", 65536);
    assert_int_equal(count_qps(&end, &code), 3);
    assert_int_equal(code, EBUSY);
    support_meet(meeting, 1);
    assert_true(WIFSIGNALED(support_reap(holding)));
    assert_int_equal(count_qps(&end, &code), 4);
    support_close(&end);
    support_meeting_free(meeting);
}

static void other_host(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    int code;

    support_settings(side == 0 ? "0" : "1", few);
    support_open(&end, "rdma_en2", 65536);
    end.qp = support_qp(&end, IBV_QPT_UC, 16);
    SUPPORT_CHECK(end.qp != NULL);
    support_meet(meeting, 0);
    SUPPORT_CHECK(count_qps(&end, &code) == 3);
    support_meet(meeting, 1);
    support_close(&end);
}

static void hosts_do_not_share(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int first = support_child(other_host, meeting, 0);
    int second = support_child(other_host, meeting, 1);

    (void)state;
    assert_int_equal(support_reap(first), 0);
    assert_int_equal(support_reap(second), 0);
    support_meeting_free(meeting);
    assert_int_equal(support_n_files(), -1);
}

static void flat_over_many_lives(void **state) {
    struct support_end end;
    int code;

    (void)state;
    support_settings("0", few);
    for (int i = 0; i < 200; i++) {
        support_open(&end, "rdma_en2", 65536);
        end.qp = support_qp(&end, IBV_QPT_UC, 16);
        assert_non_null(end.qp);
        support_close(&end);
    }
    support_open(&end, "rdma_en2", 65536);
    assert_int_equal(count_qps(&end, &code), 4);
    support_close(&end);
}

/* --------------------------------------------------------------- the second open */

static void second_open(void **state) {
    struct ibv_device **list;
    struct ibv_context *first, *second;

    (void)state;
    support_settings("0", "{\"strict\": {\"second_open\": \"busy\"}}");
    list = ibv_get_device_list(NULL);
    first = ibv_open_device(list[0]);
    assert_non_null(first);
    assert_null(ibv_open_device(list[0]));
    assert_int_equal(errno, EBUSY);
    second = ibv_open_device(list[1]); /* another device is no second open */
    assert_non_null(second);
    assert_int_equal(ibv_close_device(second), 0);
    assert_int_equal(ibv_close_device(first), 0);
    first = ibv_open_device(list[0]);
    assert_non_null(first);
    assert_int_equal(ibv_close_device(first), 0);
    ibv_free_device_list(list);

    support_settings("0", NULL);
    list = ibv_get_device_list(NULL);
    first = ibv_open_device(list[0]);
    second = ibv_open_device(list[0]);
    assert_non_null(second);
    assert_int_equal(ibv_close_device(second), 0);
    assert_int_equal(ibv_close_device(first), 0);
    ibv_free_device_list(list);
}

static void hanging(struct support_meeting *meeting, unsigned side) {
    struct ibv_device **list;

    (void)side;
    support_settings("0", "{\"strict\": {\"second_open\": \"hang\"}}");
    list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(list != NULL && ibv_open_device(list[0]) != NULL);
    support_meet(meeting, 0);
    ibv_open_device(list[0]);
    support_meet(meeting, 1);
}

static void second_open_hangs(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int child = support_child(hanging, meeting, 0);

    (void)state;
    support_meet(meeting, 0);
    support_nap_ms(300);
    assert_int_equal(atomic_load(&meeting->n_met[1]), 0);
    kill(child, SIGKILL);
    assert_true(WIFSIGNALED(support_reap(child)));
    support_meeting_free(meeting);
}

static void strict_all(void **state) {
    struct support_end end;
    struct ibv_qp_attr init = support_attr_init();

    (void)state;
    support_settings("0", "{\"strict\": {\"all\": true}}");
    support_open(&end, "rdma_en2", 65536);
    assert_null(ibv_open_device(end.context->device));
    assert_int_equal(errno, EBUSY);
    assert_null(ibv_reg_mr(end.pd, end.bytes, 4096, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EINVAL);
    end.qp = support_qp(&end, IBV_QPT_UC, 16);
    assert_non_null(end.qp);
    assert_int_equal(ibv_modify_qp(end.qp, &init, SUPPORT_MASK_INIT), 0);
    assert_int_equal(support_recv(&end, 1, 0, 4096), EINVAL);
    support_close(&end);
}

/* -------------------------------------------------------------------------- leaks */

static char leak_path[64];
static struct ibv_pd *volatile leaked; /* still pointed to, so that no leak checker minds */

static void leaking(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    (void)meeting;
    support_settings("1", NULL);
    setenv("JACKAL_FABRIC_LEAKS", leak_path, 1);
    support_open(&end, "rdma_en2", 65536);
    leaked = ibv_alloc_pd(end.context);
    SUPPORT_CHECK(leaked != NULL);
    if (side == 0) {
        exit(0); /* everything is left; exit, so that destructors run */
    }
}

static void clean(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    (void)meeting;
    (void)side;
    support_settings("1", NULL);
    setenv("JACKAL_FABRIC_LEAKS", leak_path, 1);
    support_open(&end, "rdma_en2", 65536);
    support_close(&end);
    exit(0);
}

static size_t read_leaks(char *text, size_t n_bytes) {
    FILE *file = fopen(leak_path, "r");
    size_t n = file == NULL ? 0 : fread(text, 1, n_bytes - 1, file);

    if (file != NULL) {
        fclose(file);
    }
    text[n] = '\0';
    return n;
}

static void leaks_are_told(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    char text[1024];

    (void)state;
    snprintf(leak_path, sizeof leak_path, "/tmp/jackal-leaks-%d", (int)getpid());
    assert_int_equal(support_reap(support_child(clean, meeting, 0)), 0);
    assert_int_equal(read_leaks(text, sizeof text), 0);
    assert_int_equal(support_reap(support_child(leaking, meeting, 0)), 0);
    read_leaks(text, sizeof text);
    unlink(leak_path);
    assert_string_equal(text, "jackal-fabric: leaked on rdma_en2 of host h1: 1 context, 2 "
                              "protection domains, 1 memory region, 1 completion queue\n");
    assert_int_equal(support_n_files(), -1);
    support_meeting_free(meeting);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(described_limits),   cmocka_unit_test(limits_of_one_device),
        cmocka_unit_test(all_held),           cmocka_unit_test(shared_by_processes),
        cmocka_unit_test(hosts_do_not_share), cmocka_unit_test(flat_over_many_lives),
        cmocka_unit_test(second_open),        cmocka_unit_test(second_open_hangs),
        cmocka_unit_test(strict_all),         cmocka_unit_test(leaks_are_told),
    };

    return cmocka_run_group_tests_name("fabric limits", tests, NULL, NULL);
}
