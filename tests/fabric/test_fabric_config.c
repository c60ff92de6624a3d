/* SPDX-License-Identifier: MIT */
/* Settings and topology: names, cables, addresses, and errors for everything that is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void default_mesh(void **state) {
    struct ibv_device **list;
    int n = 0;

    (void)state;
    support_settings(NULL, NULL);
    list = ibv_get_device_list(&n);
    assert_non_null(list);
    assert_int_equal(n, 7);
    assert_null(list[7]);
    assert_string_equal(ibv_get_device_name(list[0]), "rdma_en2");
    assert_string_equal(ibv_get_device_name(list[6]), "rdma_en8");
    ibv_free_device_list(list);
}

static void all_hosts(void **state) {
    struct ibv_device **list;
    int n = 0;

    (void)state;
    support_settings("*", "{\"mesh\": {\"hosts\": 3, \"wires\": 2}}");
    list = ibv_get_device_list(&n);
    assert_non_null(list);
    assert_int_equal(n, 12);
    assert_string_equal(ibv_get_device_name(list[0]), "h0.rdma_en2");
    assert_string_equal(ibv_get_device_name(list[11]), "h2.rdma_en5");
    ibv_free_device_list(list);
}

/* The k-th device leads to the k-th other host, wire by wire: their addresses are one subnet. */
static void check_cable(const char *a, const char *b, bool is_one) {
    struct support_end ends[2];
    union ibv_gid gids[2];

    support_open(&ends[0], a, 65536);
    support_open(&ends[1], b, 65536);
    gids[0] = support_gid(&ends[0]);
    gids[1] = support_gid(&ends[1]);
    assert_memory_equal(gids[0].raw, "\0\0\0\0\0\0\0\0\0\0\377\377\251\376", 14);
    if (is_one) {
        assert_memory_equal(gids[0].raw, gids[1].raw, 15);
        assert_int_equal(gids[0].raw[15], 1);
        assert_int_equal(gids[1].raw[15], 2);
    } else {
        assert_memory_not_equal(gids[0].raw, gids[1].raw, 15);
    }
    support_close(&ends[0]);
    support_close(&ends[1]);
}

static void cables(void **state) {
    (void)state;
    support_settings("*", "{\"mesh\": {\"hosts\": 4, \"wires\": 2}}");
    check_cable("h0.rdma_en2", "h1.rdma_en2", true);
    check_cable("h0.rdma_en3", "h1.rdma_en3", true);
    check_cable("h0.rdma_en2", "h1.rdma_en3", false);
    check_cable("h1.rdma_en4", "h2.rdma_en4", true);
    check_cable("h2.rdma_en7", "h3.rdma_en7", true);
    check_cable("h0.rdma_en7", "h3.rdma_en3", true);
}

/* Too many cables for a /24 each: still no two devices with one address. */
static void many_hosts(void **state) {
    static const char json[] = "{\"mesh\": {\"hosts\": 64, \"wires\": 4}}";
    struct support_end end;

    (void)state;
    support_settings("*", json);
    support_open(&end, "h63.rdma_en253", 65536);
    assert_memory_equal(support_gid(&end).raw + 10, "\377\377\251\376", 4);
    support_close(&end);
}

static void gid_table(void **state) {
    const union ibv_gid zero = {.raw = {0}};
    struct support_end end;
    union ibv_gid gid;

    (void)state;
    support_settings("0", NULL);
    support_open(&end, "rdma_en2", 65536);
    assert_int_equal(ibv_query_gid(end.context, 1, 0, &gid), 0);
    assert_memory_equal(gid.raw, "\376\200\0\0\0\0\0\0", 8);
    for (int i = 2; i < 16; i++) {
        memset(&gid, 0xaa, sizeof gid);
        assert_int_equal(ibv_query_gid(end.context, 1, i, &gid), 0);
        assert_memory_equal(&gid, &zero, sizeof gid);
    }
    assert_int_not_equal(ibv_query_gid(end.context, 1, 16, &gid), 0);
    assert_int_not_equal(ibv_query_gid(end.context, 2, 0, &gid), 0);
    support_close(&end);
}

static void refused(const char *variable, const char *value, const char *part_of_text) {
    support_settings("0", NULL);
    setenv(variable, value, 1);
    errno = 0;
    if (ibv_get_device_list(NULL) != NULL) {
        print_error("%s=%s was taken\n", variable, value);
        fail();
    }
    assert_int_equal(errno, EINVAL);
    if (strstr(jackal_fabric_error(), part_of_text) == NULL) {
        print_error("%s=%s: '%s' lacks '%s'\n", variable, value, jackal_fabric_error(),
                    part_of_text);
        fail();
    }
}

static void wrong_json(void **state) {
    static const char *const cases[][2] = {
        {"{\"mash\": {}}", "mash"},
        {"{\"mesh\": {\"host\": 3}}", "'host'"},
        {"{\"mesh\": []}", "mesh"},
        {"{\"mesh\": {\"hosts\": 1}}", "2 to 64"},
        {"{\"mesh\": {\"hosts\": 65}}", "2 to 64"},
        {"{\"mesh\": {\"hosts\": \"3\"}}", "hosts"},
        {"{\"mesh\": {\"wires\": 0}}", "1 to 4"},
        {"{\"mesh\": {\"wires\": 5}}", "1 to 4"},
        {"{\"mesh\": {}, \"mesh\": {}}", "duplicate"},
        {"{\"faults\": {}}", "faults"},
        {"{\"faults\": [{}]}", "kind"},
        {"{\"faults\": [{\"kind\": \"melt\"}]}", "melt"},
        {"{\"faults\": [{\"kind\": \"drop\", \"device\": \"h0.rdma_en2\"}]}", "message"},
        {"{\"faults\": [{\"kind\": \"drop\", \"device\": \"rdma_en2\", \"message\": 0}]}", "rdma"},
        {"{\"faults\": [{\"kind\": \"drop\", \"device\": \"h8.rdma_en2\", \"message\": 0}]}", "h8"},
        {"{\"faults\": [{\"kind\": \"drop\", \"device\": \"h0.rdma_en9\", \"message\": 0}]}",
         "en9"},
        {"{\"faults\": [{\"kind\": \"drop\", \"device\": \"h0.rdma_en2\", \"message\": 0, "
         "\"bit\": 1}]}",
         "bit"},
        {"{\"faults\": [{\"kind\": \"flip\", \"device\": \"h0.rdma_en2\", \"message\": -1}]}",
         "message"},
        {"{\"mesh\": ", "line 1"},
        {"/nowhere/fabric.json", "/nowhere/fabric.json"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refused("JACKAL_FABRIC", cases[i][0], cases[i][1]);
    }
}

static void wrong_words(void **state) {
    (void)state;
    refused("JACKAL_FABRIC_HOST", "8", "8");
    refused("JACKAL_FABRIC_HOST", "-1", "-1");
    refused("JACKAL_FABRIC_HOST", "1x", "1x");
    refused("JACKAL_FABRIC_NAME", "a/b", "a/b");
    refused("JACKAL_FABRIC_NAME", "..", "..");
    refused("JACKAL_FABRIC_PERSONALITY", "tcp", "tcp");
}

static void json_from_file(void **state) {
    char path[] = "/tmp/jackal-fabric-XXXXXX";
    static const char text[] = "{\"mesh\": {\"hosts\": 2, \"wires\": 3}}\n";
    struct ibv_device **list;
    int fd = mkstemp(path);
    int n = 0;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    support_settings("1", path);
    list = ibv_get_device_list(&n);
    unlink(path);
    assert_non_null(list);
    assert_int_equal(n, 3);
    ibv_free_device_list(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_mesh), cmocka_unit_test(all_hosts),
        cmocka_unit_test(cables),       cmocka_unit_test(many_hosts),
        cmocka_unit_test(gid_table),    cmocka_unit_test(wrong_json),
        cmocka_unit_test(wrong_words),  cmocka_unit_test(json_from_file),
    };

    return cmocka_run_group_tests_name("fabric config", tests, NULL, NULL);
}
