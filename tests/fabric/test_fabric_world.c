/* SPDX-License-Identifier: MIT */
/* Descriptions of explicit worlds: what they make, and where they say what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric_support.h"
#include "jackal_fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS                                                                                      \
    "\"hosts\": [{\"name\": \"A\", \"devices\": [{\"name\": \"rdma_en2\"}, {\"name\": "            \
    "\"rdma_en3\"}]}, {\"name\": \"B\", \"devices\": [{\"name\": \"rdma_en2\"}, {\"name\": "       \
    "\"rdma_en3\"}]}]"
#define CABLES "\"cables\": [{\"ends\": [\"A.rdma_en2\", \"B.rdma_en3\"]}]"

/* Each must be refused with EINVAL and a text that holds both parts. */
static const struct wrong {
    const char *json, *path, *part;
} wrongs[] = {
    {"{\"personality\": \"token-ring\"}", "personality", "thunderbolt, roce"},
    {"{\"link\": {\"rate\": 8}}", "link.rate", "8.9GB/s"},
    {"{\"link\": {\"rate\": \"8GB\"}}", "link.rate", "8.9GB/s"},
    {"{\"link\": {\"rate\": \"0GB/s\"}}", "link.rate", "at least"},
    {"{\"link\": {\"latency\": \"5\"}}", "link.latency", "4.15us"},
    {"{\"link\": {\"latency\": \"-5us\"}}", "link.latency", "4.15us"},
    {"{\"link\": {\"speed\": \"5GB/s\"}}", "link", "'speed'"},
    {"{\"hosts\": {}}", "hosts", "array"},
    {"{\"hosts\": []}", "hosts", "1 to 64"},
    {"{\"hosts\": [{}]}", "hosts[0].name", "letters"},
    {"{\"hosts\": [{\"name\": \"a.b\"}]}", "hosts[0].name", "a.b"},
    {"{\"hosts\": [{\"name\": \"1\"}]}", "hosts[0].name", "digit"},
    {"{\"hosts\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}", "hosts[1].name", "already"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\"}, {\"name\": \"x\"}]}]}",
     "hosts[0].devices[1].name", "already"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"state\": \"up\"}]}]}",
     "hosts[0].devices[0].state", "active, down"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"gids\": [\"fe80\"]}]}]}",
     "hosts[0].devices[0].gids[0]", "IPv6"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"gids\": "
     "[{\"value\": \"::1\"}]}]}]}",
     "hosts[0].devices[0].gids[0]", "index"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"gids\": "
     "[{\"index\": 16, \"value\": \"::1\"}]}]}]}",
     "hosts[0].devices[0].gids[0].index", "0 to 15"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"gids\": "
     "[{\"index\": 1, \"value\": \"::1\", \"from\": 3}]}]}]}",
     "hosts[0].devices[0].gids[0].from", "time"},
    {"{\"hosts\": [{\"name\": \"a\", \"devices\": [{\"name\": \"x\", \"limits\": "
     "{\"max_qp\": 0}}]}]}",
     "hosts[0].devices[0].limits.max_qp", "1 to"},
    {"{" CABLES "}", "cables", "'hosts'"},
    {"{\"mesh\": {}, " HOSTS "}", "mesh", "beside"},
    {"{" HOSTS ", \"cables\": [{}]}", "cables[0].ends", "two"},
    {"{" HOSTS ", \"cables\": [{\"ends\": [\"A.rdma_en2\", \"C.rdma_en2\"]}]}", "cables[0].ends[1]",
     "C.rdma_en2"},
    {"{" HOSTS ", \"cables\": [{\"ends\": [\"A.en2\", \"A.rdma_en2\"]}]}", "cables[0].ends[1]",
     "already"},
    {"{" HOSTS ", \"cables\": [{\"ends\": [\"A.en2\", \"B.en2\"]}, {\"ends\": [\"A.en3\", "
     "\"B.en2\"]}]}",
     "cables[1].ends[1]", "cables[0]"},
    {"{" HOSTS ", \"cables\": [{\"ends\": [\"A.en2\", \"B.en2\"], \"rate\": \"fast\"}]}",
     "cables[0].rate", "8.9GB/s"},
    {"{" HOSTS ", \"cables\": [{\"ends\": [\"A.en2\", \"B.en2\"], \"colour\": 1}]}", "cables[0]",
     "'colour'"},
    {"{\"switched\": true}", "switched", "roce"},
    {"{\"limits\": {\"max_qps\": 4}}", "limits", "'max_qps'"},
    {"{\"limits\": {\"held\": {\"qp\": 11}}}", "limits.held.qp", "0 to 10"},
    {"{\"limits\": {\"depth\": 64, \"least_depth\": 128}}", "limits", "least_depth"},
    {"{\"strict\": {\"second_open\": \"crash\"}}", "strict.second_open", "fine, busy, hang"},
    {"{\"strict\": {\"all\": 1}}", "strict.all", "true or false"},
    {"{\"strict\": {\"some\": true}}", "strict", "'some'"},
    {"{\"idle_death\": \"23 min\"}", "idle_death", "time"},
    {"{\"faults\": {\"list\": [{\"kind\": \"drop\", \"message\": 1, \"probability\": 0.5}]}}",
     "faults.list[0]", "message"},
    {"{\"faults\": [{\"kind\": \"drop\", \"probability\": 2}]}", "faults[0].probability", "0 to 1"},
    {"{\"faults\": [{\"kind\": \"delay\", \"message\": 1}]}", "faults[0]", "time"},
    {"{\"faults\": [{\"kind\": \"call\", \"errno\": \"EWHAT\"}]}", "faults[0].errno", "ENOMEM"},
    {"{\"faults\": [{\"kind\": \"call\", \"call\": \"open\"}]}", "faults[0].call", "ibv_reg_mr"},
    {"{\"faults\": [{\"kind\": \"slow\", \"time\": \"1ms\"}]}", "faults[0]", "host"},
    {"{\"faults\": [{\"kind\": \"slow\", \"host\": \"h9\", \"time\": \"1ms\"}]}", "faults[0].host",
     "h9"},
    {"{\"faults\": [{\"kind\": \"unplug\", \"device\": \"h0.en2\"}]}", "faults[0]", "at"},
    {"{\"faults\": [{\"kind\": \"unplug\", \"device\": \"h0.en2\", \"message\": 3, \"for\": "
     "\"1s\"}]}",
     "faults[0]", "for"},
    {"{\"faults\": [{\"kind\": \"reorder\", \"probability\": 1}]}", "faults[0]", "0.99"},
    {"{\n \"mesh\": {\"hosts\": 2,}\n}", "line 2", "column"},
};

static void wrong_worlds(void **state) {
    (void)state;
    support_settings("0", NULL);
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        errno = 0;
        if (jackal_fabric_check(wrongs[i].json) != -1) {
            print_error("%s was taken\n", wrongs[i].json);
            fail();
        }
        assert_int_equal(errno, EINVAL);
        if (strstr(jackal_fabric_error(), wrongs[i].path) == NULL ||
            strstr(jackal_fabric_error(), wrongs[i].part) == NULL) {
            print_error("%s: '%s' lacks '%s' or '%s'\n", wrongs[i].json, jackal_fabric_error(),
                        wrongs[i].path, wrongs[i].part);
            fail();
        }
    }
}

static void right_worlds(void **state) {
    static const char *const rights[] = {
        "{" HOSTS "}",
        "{" HOSTS ", " CABLES "}",
        ("{" HOSTS ", \"cables\": [{\"ends\": [\"A.en2\", \"B.en2\"], \"rate\": \"100Gbit/s\", "
         "\"latency\": \"0.5us\", \"gap\": \"750ns\", \"frame_gap\": \"1us\", \"state\": "
         "\"unplugged\"}]}"),
        "{\"strict\": {\"all\": true, \"no_receive\": \"drop\"}, \"idle_death\": \"23min\"}",
        "{\"limits\": {\"max_qp\": 3, \"depth\": 16, \"held\": {\"qp\": 3}}}",
        "{\"personality\": \"roce\", \"switched\": false}",
        ("{\"faults\": {\"seed\": 5, \"list\": [{\"kind\": \"call\"}, {\"kind\": \"poll\", "
         "\"number\": 7, \"times\": 2}]}}"),
        "{\"$schema\": \"x\", \"comment\": \"y\"}",
    };

    (void)state;
    support_settings("0", NULL);
    for (size_t i = 0; i < sizeof rights / sizeof rights[0]; i++) {
        if (jackal_fabric_check(rights[i]) < 1) {
            print_error("%s: %s\n", rights[i], jackal_fabric_error());
            fail();
        }
    }
}

static void examples(void **state) {
    static const struct {
        const char *name;
        int n_hosts;
    } files[] = {{"two-hosts", 2}, {"ring-of-four", 4}, {"mesh-of-four-thunderbolt5", 4},
                 {"roce-pair", 2}, {"flaky-cable", 2},  {"t05", 4}};

    (void)state;
    support_settings("0", NULL);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        struct ibv_device **list;

        snprintf(path, sizeof path, "%s/%s.json", FABRIC_EXAMPLES, files[i].name);
        if (jackal_fabric_check(path) != files[i].n_hosts) {
            print_error("%s: %s\n", path, jackal_fabric_error());
            fail();
        }
        support_settings("0", path);
        list = ibv_get_device_list(NULL);
        assert_non_null(list);
        assert_non_null(list[0]);
        ibv_free_device_list(list);
        support_settings("0", NULL);
    }
}

/* Examples with bytes that are changed, missing or twice there: an answer, never a crash. */
static void spoilt_examples(void **state) {
    static const char *const names[] = {"flaky-cable", "roce-pair", "t05"};
    static const char bytes[] = "{}[]\",:.0123456789eabGBusmin-\\ \n";
    uint32_t chance = 12345;

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        char path[512], text[4096], spoilt[4096];
        size_t length;
        FILE *file;

        snprintf(path, sizeof path, "%s/%s.json", FABRIC_EXAMPLES, names[k]);
        file = fopen(path, "r");
        assert_non_null(file);
        length = fread(text, 1, sizeof text - 2, file);
        fclose(file);
        for (int i = 0; i < 3000; i++) {
            size_t at, kept;

            chance = chance * 1664525u + 1013904223u;
            at = 1 + (chance >> 8) % (length - 1);
            kept = (chance >> 4) % 3; /* 0: gone, 1: changed, 2: one more */
            memcpy(spoilt, text, at);
            spoilt[at] = bytes[(chance >> 20) % (sizeof bytes - 1)];
            memcpy(spoilt + at + (kept > 0), text + at + (kept < 2), length - at - (kept < 2));
            spoilt[length + kept - 1] = '\0';
            if (jackal_fabric_check(spoilt) == -1) {
                assert_int_equal(errno, EINVAL);
                assert_true(jackal_fabric_error()[0] != '\0');
            }
        }
    }
}

/* ------------------------------------------------------------------- names, hosts */

static void hosts_by_name(void **state) {
    struct ibv_device **list;
    int n = 0;

    (void)state;
    support_settings("B", "{" HOSTS ", " CABLES "}");
    list = ibv_get_device_list(&n);
    assert_non_null(list);
    assert_int_equal(n, 2);
    assert_string_equal(list[1]->name, "rdma_en3");
    ibv_free_device_list(list);
    support_settings("*", "{" HOSTS ", " CABLES "}");
    list = ibv_get_device_list(&n);
    assert_int_equal(n, 4);
    assert_string_equal(list[3]->name, "B.rdma_en3");
    ibv_free_device_list(list);
    support_settings("C", "{" HOSTS "}");
    assert_null(ibv_get_device_list(NULL));
    assert_int_equal(errno, EINVAL);
}

/* A cable joins the devices that it names, and no others. */
static void cable_carries(void **state) {
    struct support_end a, b;

    (void)state;
    support_settings("*", "{" HOSTS ", " CABLES "}");
    support_pair_of(&a, "A.rdma_en2", &b, "B.rdma_en3", 65536);
    support_fill(a.bytes, 1, 2, 5000);
    assert_int_equal(support_recv(&b, 1, 0, 8192), 0);
    assert_int_equal(support_send(&a, 2, 0, 5000), 0);
    assert_int_equal(support_wait(&b).status, IBV_WC_SUCCESS);
    assert_true(support_is_filled(b.bytes, 1, 2, 5000));
    support_unpair(&a, &b);
}

static int rtr(struct support_end *end, const union ibv_gid *dgid, uint8_t index) {
    struct ibv_qp_attr init = support_attr_init(), attr = support_attr_rtr(77, dgid);
    int rc;

    attr.ah_attr.grh.sgid_index = index;
    end->qp = support_qp(end, IBV_QPT_UC, 32);
    assert_non_null(end->qp);
    assert_int_equal(ibv_modify_qp(end->qp, &init, SUPPORT_MASK_INIT), 0);
    rc = ibv_modify_qp(end->qp, &attr, SUPPORT_MASK_RTR);
    assert_int_equal(ibv_destroy_qp(end->qp), 0);
    end->qp = NULL;
    return rc;
}

static int rtr_to(struct support_end *end, const char *dgid, uint8_t index) {
    union ibv_gid gid;

    assert_int_equal(inet_pton(AF_INET6, dgid, gid.raw), 1);
    return rtr(end, &gid, index);
}

static void no_cable_no_way(void **state) {
    struct support_end a, b;
    struct ibv_port_attr port;
    union ibv_gid gid;

    (void)state;
    support_settings("*", "{" HOSTS ", " CABLES "}");
    support_open(&a, "A.rdma_en3", 65536);
    support_open(&b, "B.rdma_en3", 65536);
    assert_int_equal(ibv_query_port(a.context, 1, (struct _compat_ibv_port_attr *)&port), 0);
    assert_int_equal(port.state, IBV_PORT_DOWN);
    assert_int_equal(ibv_query_port(b.context, 1, (struct _compat_ibv_port_attr *)&port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(ibv_query_gid(b.context, 1, 0, &gid), 0);
    assert_int_equal(rtr(&a, &gid, 0), ETIMEDOUT);
    support_close(&a);
    support_close(&b);
}

/* ------------------------------------------------------------------ GID tables */

static void assert_gid(struct support_end *end, int index, const char *text) {
    union ibv_gid wanted, found;

    assert_int_equal(inet_pton(AF_INET6, text, wanted.raw), 1);
    assert_int_equal(ibv_query_gid(end->context, 1, index, &found), 0);
    assert_memory_equal(&wanted, &found, sizeof found);
}

/* T05: sources must be there, destinations in the same subnet; entries come and move. */
static void t05_tables(void **state) {
    struct support_end p0, p1, p2, p3;

    (void)state;
    support_settings("*", FABRIC_EXAMPLES "/t05.json");
    support_open(&p0, "P0.rdma_en2", 65536);
    support_open(&p1, "P1.rdma_en2", 65536);
    support_open(&p2, "P2.rdma_en2", 65536);
    support_open(&p3, "P3.rdma_en2", 65536);
    assert_gid(&p1, 1, "fe80::200:ff:fe00:22");
    assert_gid(&p1, 2, "::ffff:169.254.7.2");
    assert_gid(&p1, 3, "::");
    assert_int_equal(rtr_to(&p1, "::ffff:169.254.7.1", 2), 0);
    assert_int_equal(rtr_to(&p1, "::ffff:169.254.7.1", 1), EINVAL);
    assert_int_equal(rtr_to(&p1, "::ffff:169.254.7.1", 3), EINVAL);
    assert_int_equal(rtr_to(&p1, "::ffff:169.254.9.1", 2), ETIMEDOUT);
    assert_int_equal(rtr_to(&p0, "::ffff:169.254.7.2", 1), 0);
    assert_gid(&p2, 1, "::");
    assert_int_equal(rtr_to(&p2, "::ffff:169.254.9.1", 1), EINVAL);
    assert_int_equal(rtr_to(&p2, "fe80::200:ff:fe00:4", 0), 0);

    assert_int_equal(jackal_fabric_control(support_name(), "unplug P0.en2"), 0);
    assert_gid(&p1, 2, "::ffff:169.254.7.2");
    assert_int_equal(jackal_fabric_control(support_name(), "replug P1.en2"), 0);
    assert_gid(&p1, 1, "::ffff:169.254.7.2");
    assert_gid(&p1, 2, "::");
    assert_int_equal(rtr_to(&p1, "::ffff:169.254.7.1", 1), 0);

    support_nap_ms(3000);
    assert_gid(&p2, 1, "::ffff:169.254.9.2");
    assert_int_equal(rtr_to(&p2, "::ffff:169.254.9.1", 1), 0);
    assert_int_equal(rtr_to(&p2, "::ffff:10.20.0.5", 1), ETIMEDOUT);
    assert_int_equal(rtr_to(&p3, "::ffff:169.254.9.2", 2), 0);
    assert_int_equal(rtr_to(&p3, "::ffff:169.254.9.2", 1), ETIMEDOUT);
    support_close(&p0);
    support_close(&p1);
    support_close(&p2);
    support_close(&p3);
}

/* A source must be of its destination's kind, also where both are global. */
static void kinds_of_addresses(void **state) {
    struct support_end a;

    (void)state;
    support_settings("A",
                     "{\"hosts\": [{\"name\": \"A\", \"devices\": [{\"name\": \"x\", \"gids\": "
                     "[\"2001:db8::1\", \"::ffff:10.1.1.1\"]}]}, {\"name\": \"B\", "
                     "\"devices\": [{\"name\": \"x\", \"gids\": [\"2001:db8::2\", "
                     "\"::ffff:10.1.1.2\", \"2001:db9::2\"]}]}], \"cables\": [{\"ends\": "
                     "[\"A.x\", \"B.x\"]}]}");
    support_open(&a, "x", 65536);
    assert_int_equal(rtr_to(&a, "2001:db8::2", 0), 0);
    assert_int_equal(rtr_to(&a, "::ffff:10.1.1.2", 1), 0);
    assert_int_equal(rtr_to(&a, "::ffff:10.1.1.2", 0), EINVAL);
    assert_int_equal(rtr_to(&a, "2001:db8::2", 1), EINVAL);
    assert_int_equal(rtr_to(&a, "2001:db9::2", 0), ETIMEDOUT);
    support_close(&a);
}

/* ------------------------------------------------------------------------ roce */

static void roce_tables(void **state) {
    struct support_end left;
    struct ibv_gid_entry entry;

    (void)state;
    support_settings("*", FABRIC_EXAMPLES "/roce-pair.json");
    support_open(&left, "left.rocep1", 65536);
    assert_gid(&left, 0, "fe80::1");
    assert_gid(&left, 1, "fe80::1");
    assert_gid(&left, 2, "::ffff:10.1.0.1");
    assert_gid(&left, 3, "::ffff:10.1.0.1");
#ifndef __APPLE__
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ibv_query_gid_ex(left.context, 1, i, &entry, 0), 0);
        assert_int_equal(entry.gid_type, i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2);
    }
    assert_int_equal(ibv_query_gid_ex(left.context, 1, 4, &entry, 0), ENODATA);
#else
    (void)entry;
#endif
    support_close(&left);
}

/* One device reaches all hosts. */
static void roce_switch(void **state) {
    struct support_end ends[3];
    struct ibv_device **list;
    int n = 0;

    (void)state;
    support_settings("*", "{\"personality\": \"roce\", \"mesh\": {\"hosts\": 3}}");
    list = ibv_get_device_list(&n);
    assert_int_equal(n, 3);
    assert_string_equal(list[2]->name, "h2.rocep1");
    ibv_free_device_list(list);
    for (int i = 0; i < 3; i++) {
        char name[32];

        snprintf(name, sizeof name, "h%d.rocep1", i);
        support_open(&ends[i], name, 65536);
    }
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) {
            union ibv_gid gid;

            assert_int_equal(ibv_query_gid(ends[j].context, 1, 3, &gid), 0);
            assert_int_equal(rtr(&ends[i], &gid, 3), 0);
            gid.raw[15] = 99;
            assert_int_equal(rtr(&ends[i], &gid, 3), ETIMEDOUT);
        }
    }
    for (int i = 0; i < 3; i++) {
        support_close(&ends[i]);
    }
}

static void personality_by_variable(void **state) {
    struct ibv_device **list;

    (void)state;
    support_settings("0", NULL);
    setenv("JACKAL_FABRIC_PERSONALITY", "roce", 1);
    list = ibv_get_device_list(NULL);
    assert_non_null(list);
    assert_string_equal(list[0]->name, "rocep1");
    ibv_free_device_list(list);
    setenv("JACKAL_FABRIC", "{\"personality\": \"thunderbolt\"}", 1);
    assert_null(ibv_get_device_list(NULL));
    assert_non_null(strstr(jackal_fabric_error(), "JACKAL_FABRIC_PERSONALITY"));
    support_settings("0", NULL);
}

/* -------------------------------------------------------------------- others */

/* Two processes of one fabric must have the same description. */
static void other_description(struct support_meeting *meeting, unsigned side) {
    struct support_end end;
    struct ibv_device **list;

    if (side == 0) {
        support_settings("0", NULL);
        support_open(&end, "rdma_en2", 65536);
        support_meet(meeting, 0);
        support_meet(meeting, 1);
        SUPPORT_CHECK(support_n_files() == 1);
        support_close(&end);
        return;
    }
    support_meet(meeting, 0);
    support_settings("1", "{\"mesh\": {\"hosts\": 3}}");
    list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(list != NULL);
    SUPPORT_CHECK(ibv_open_device(list[0]) == NULL);
    SUPPORT_CHECK(errno == EINVAL && strstr(jackal_fabric_error(), "description") != NULL);
    ibv_free_device_list(list);
    support_meet(meeting, 1);
}

static void one_description(void **state) {
    struct support_meeting *meeting = support_meeting_new();
    int first = support_child(other_description, meeting, 0);
    int second = support_child(other_description, meeting, 1);

    (void)state;
    assert_int_equal(support_reap(second), 0);
    assert_int_equal(support_reap(first), 0);
    support_meeting_free(meeting);
    assert_int_equal(support_n_files(), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_worlds),       cmocka_unit_test(right_worlds),
        cmocka_unit_test(examples),           cmocka_unit_test(spoilt_examples),
        cmocka_unit_test(hosts_by_name),      cmocka_unit_test(cable_carries),
        cmocka_unit_test(no_cable_no_way),    cmocka_unit_test(t05_tables),
        cmocka_unit_test(kinds_of_addresses), cmocka_unit_test(roce_tables),
        cmocka_unit_test(roce_switch),        cmocka_unit_test(personality_by_variable),
        cmocka_unit_test(one_description),
    };

    return cmocka_run_group_tests_name("fabric world", tests, NULL, NULL);
}
