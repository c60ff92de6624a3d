/* SPDX-License-Identifier: MIT */
/* Looking at a fabric and changing it, from a process that is not in it and from one that is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"
#include "jackal_fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[262144];

static const char *status(void) {
    long n = jackal_fabric_status(support_name(), text, sizeof text);

    if (n < 0) {
        print_error("%s\n", jackal_fabric_error());
        fail();
    }
    assert_int_equal(n, strlen(text));
    return text;
}

static void in_list(bool wanted) {
    char line[80];
    long n = jackal_fabric_list(text, sizeof text);

    assert_true(n >= 0);
    snprintf(line, sizeof line, "%s\n", support_name());
    assert_int_equal(strstr(text, line) != NULL, wanted);
}

static void nobody_there(void **state) {
    static const char *const bad[] = {"", "..", "a/b", "no-such-fabric"};

    (void)state;
    support_name();
    in_list(false);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(jackal_fabric_status(bad[i], text, sizeof text), -1);
        assert_int_equal(jackal_fabric_control(bad[i], "unplug h0.en2"), -1);
        assert_true(jackal_fabric_error()[0] != '\0');
    }
    assert_int_equal(jackal_fabric_status(NULL, text, sizeof text), -1);
}

static void job(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    struct ibv_port_attr port;

    support_join(&end, meeting, side, 65536);
    support_meet(meeting, 4);
    for (int64_t limit = support_now_ms() + SUPPORT_WAIT_MS;;) {
        SUPPORT_CHECK(
            ibv_query_port(end.context, 1, (struct _compat_ibv_port_attr *)(void *)&port) == 0);
        if (port.state == IBV_PORT_DOWN) {
            break;
        }
        SUPPORT_CHECK(support_now_ms() < limit);
        support_nap_ms(2);
    }
    support_meet(meeting, 5);
    support_close(&end);
}

/* From outside: two processes, one cable; they see what is done to it. */
static void from_outside(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int first = support_child(job, meeting, 0);
    int second = support_child(job, meeting, 1);
    char pid[32];

    (void)state;
    for (int64_t limit = support_now_ms() + SUPPORT_WAIT_MS; atomic_load(&meeting->n_met[4]) < 2;) {
        assert_true(support_now_ms() < limit);
        support_nap_ms(2);
    }
    in_list(true);
    status();
    assert_non_null(strstr(text, "\"personality\":\"thunderbolt\""));
    snprintf(pid, sizeof pid, "{\"pid\":%d,\"host\":\"h0\"}", first);
    assert_non_null(strstr(text, pid));
    snprintf(pid, sizeof pid, "{\"pid\":%d,\"host\":\"h1\"}", second);
    assert_non_null(strstr(text, pid));
    assert_non_null(strstr(text, "\"queue_pairs\":1"));
    assert_non_null(strstr(text, "\"peer\":\"h1.rdma_en2\""));
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.en2"), 0);
    assert_int_equal(support_reap(first), 0);
    assert_int_equal(support_reap(second), 0);
    in_list(false);
    assert_int_equal(support_n_files(), -1);
    support_meeting_free(meeting);
}

static void from_inside(void **state) {
    struct support_end a, b;
    const char *at;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    in_list(true);
    status();
    assert_non_null(strstr(text, "\"host\":\"*\""));
    assert_non_null(strstr(text, "\"up\":true"));
    assert_null(strstr(text, "\"plugged\":false"));
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h1.rdma_en2"), 0);
    at = strstr(status(), "\"plugged\":false");
    assert_non_null(at);
    assert_non_null(strstr(at + 1, "\"plugged\":false")); /* the other end */
    assert_int_equal(jackal_fabric_control(support_name(), "replug h0.en2"), 0);
    assert_null(strstr(status(), "\"plugged\":false"));
    assert_non_null(strstr(text, "\"flaps\":1"));
    assert_int_equal(jackal_fabric_control(support_name(), "slow h0.en2 0.25"), 0);
    assert_non_null(strstr(status(), "\"factor\":0.25"));
    /* Looking must not have cost this process its place: it still holds its lock. */
    assert_int_equal(support_n_files(), 1);
    support_unpair(&a, &b);
    assert_int_equal(support_n_files(), -1);
}

static void wrong_commands(void **state) {
    static const char *const bad[] = {"",
                                      "explode h0.en2",
                                      "unplug",
                                      "unplug h0",
                                      "unplug h0.en99",
                                      "unplug h99.en2",
                                      "unplug h0.en2 now",
                                      "slow h0.en2",
                                      "slow h0.en2 0",
                                      "slow h0.en2 -1",
                                      "slow h0.en2 fast",
                                      "slow h0.en2 2000",
                                      "faults",
                                      "fault"};
    struct support_end a, b;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (jackal_fabric_control(support_name(), bad[i]) != -1) {
            print_error("'%s' was taken\n", bad[i]);
            fail();
        }
        assert_int_equal(errno, EINVAL);
    }
    assert_null(strstr(status(), "\"plugged\":false"));
    support_unpair(&a, &b);
}

static void short_buffers(void **state) {
    struct support_end a, b;
    char few[8];
    long n;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    n = jackal_fabric_status(support_name(), few, sizeof few);
    assert_true(n > 1000);
    assert_int_equal(strlen(few), sizeof few - 1);
    assert_int_equal(few[0], '{');
    assert_true(jackal_fabric_status(support_name(), NULL, 0) > 1000);
    support_unpair(&a, &b);
}

/* The shared file is the user's alone, and one that is of no use is an error, not a crash. */
static void shared_file(void **state) {
    struct support_end a, b;
    struct stat entry;
    char path[600];
    uint32_t wrong = 99;
    int fd;

    (void)state;
    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    snprintf(path, sizeof path, "%s/world", support_folder());
    assert_int_equal(stat(path, &entry), 0);
    assert_int_equal(entry.st_mode & 0777, 0600);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &wrong, sizeof wrong, 4), sizeof wrong); /* the layout's number */
    assert_int_equal(jackal_fabric_status(support_name(), text, sizeof text), -1);
    assert_non_null(strstr(jackal_fabric_error(), "version"));
    close(fd);
    support_unpair(&a, &b);
    assert_int_equal(stat(path, &entry), -1);
}

static void dies(struct support_meeting *meeting, unsigned side) {
    struct support_end end;

    support_join(&end, meeting, side, 65536);
    support_meet(meeting, 4);
    raise(SIGKILL);
}

/* A fabric whose processes were all killed is there until the next start, which finds nothing of
 * the old states. */
static void leftovers(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int first = support_child(dies, meeting, 0);
    int second = support_child(dies, meeting, 1);
    struct support_end a;

    (void)state;
    assert_true(WIFSIGNALED(support_reap(first)));
    assert_true(WIFSIGNALED(support_reap(second)));
    support_meeting_free(meeting);
    in_list(false);
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.en2"), 0);
    assert_int_equal(jackal_fabric_control(support_name(), "replug h0.en2"), 0);
    assert_int_equal(jackal_fabric_control(support_name(), "unplug h0.en2"), 0);
    assert_int_equal(jackal_fabric_control(support_name(), "fault {\"kind\": \"drop\", "
                                                           "\"probability\": 1}"),
                     0);
    assert_non_null(strstr(status(), "\"processes\":[]"));
    assert_non_null(strstr(text, "\"flaps\":1"));
    assert_non_null(strstr(text, "\"queue_pairs\":1"));
    support_settings("*", NULL);
    support_open(&a, "h0.rdma_en2", 65536);
    assert_null(strstr(status(), "\"plugged\":false"));
    assert_null(strstr(text, "\"flaps\":1"));
    assert_null(strstr(text, "\"queue_pairs\":1"));
    assert_non_null(strstr(text, "\"faults\":0"));
    support_close(&a);
    assert_int_equal(support_n_files(), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_there),  cmocka_unit_test(from_outside),
        cmocka_unit_test(from_inside),   cmocka_unit_test(wrong_commands),
        cmocka_unit_test(short_buffers), cmocka_unit_test(shared_file),
        cmocka_unit_test(leftovers),
    };

    return cmocka_run_group_tests_name("fabric control", tests, NULL, NULL);
}
