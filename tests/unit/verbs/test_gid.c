/* SPDX-License-Identifier: MIT */
/*
 * Which entry of a GID table is taken (C1, T05), from a device whose table the test writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* ---- scores -----------------------------------------------------------------------------------
 */

static int score(const char *address) {
    uint8_t bytes[16];
    assert_int_equal(inet_pton(AF_INET6, address, bytes), 1);
    return verbs_gid_score(bytes);
}

static void kinds_of_addresses_have_an_order(void **state) {
    (void)state;
    int mapped = score("::ffff:10.1.2.3"), global = score("2001:db8::1");
    int local = score("fe80::200:ff:fe00:1");
    assert_true(mapped > global && global > local && local > 0);
    assert_int_equal(score("::ffff:169.254.7.1"), mapped);
    assert_int_equal(score("::ffff:192.168.0.1"), mapped);
    assert_int_equal(score("fd00::5"), global);
    assert_int_equal(score("fec0::5"), global); /* fe80::/10 ends at febf */
    assert_int_equal(score("febf::1"), local);
    assert_int_equal(score("::"), 0);
    assert_int_equal(score("fe80::"), 0); /* no interface part: not set yet */
    assert_int_equal(score("2001:db8::"), 0);
    assert_int_equal(score("::fffe:a01:203"), global); /* nearly mapped */
}

/* ---- a device with a table --------------------------------------------------------------------
 */

enum { ENTRIES = 8 };

static struct {
    const char *entries[ENTRIES]; /* NULL = the query fails */
    const char *late;             /* appears at index 1 after some scans */
    int n_scans;
    enum ibv_port_state port_state;
} table;

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
    (void)context;
    assert_int_equal(port, 1);
    attr->state = table.port_state;
    attr->gid_tbl_len = ENTRIES;
    return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    (void)context;
    assert_int_equal(port, 1);
    assert_in_range(index, 0, ENTRIES - 1);
    table.n_scans += index == 0;
    const char *entry = table.entries[index];
    if (index == 1 && table.late != NULL && table.n_scans > 3)
        entry = table.late;
    if (entry == NULL) {
        errno = EINVAL;
        return -1;
    }
    assert_int_equal(inet_pton(AF_INET6, entry, gid->raw), 1);
    return 0;
}

static jackal_status choose(const char *const *entries, uint64_t limit_ms, struct verbs_gid *gid,
                            struct base_error *error) {
    static struct verbs_library library;
    library.query_port = query_port;
    library.query_gid = query_gid;
    struct verbs_device device = {.library = &library, .name = "rdma_en2"};
    memcpy(table.entries, entries, sizeof table.entries);
    table.n_scans = 0;
    return verbs_gid_choose(&device, base_deadline_ns(limit_ms), gid, error);
}

static void the_best_entry_is_taken_with_its_index(void **state) {
    static const struct {
        const char *entries[ENTRIES];
        int index;
    } cases[] = {
        {{"fe80::200:ff:fe00:1", "::ffff:169.254.7.1", "::", "::", "::", "::", "::", "::"}, 1},
        {{"fe80::200:ff:fe00:2", "fe80::200:ff:fe00:22", "::ffff:169.254.7.2",
          "::", "::", "::", "::", "::"},
         2},
        {{"::", "::", "::", "::", "::", "::", "::", "::ffff:10.0.0.1"}, 7},
        {{"2001:db8::7", "fe80::1", "::", "::", "::", "::", "::", "::"}, 0},
        {{"2001:db8::7", "::ffff:10.0.0.1", "::ffff:10.0.0.2", "::", "::", "::", "::", "::"}, 1},
        {{NULL, NULL, "::ffff:10.0.0.1", NULL, "::", "::", "::", "::"}, 2},
    };
    (void)state;
    table.port_state = IBV_PORT_ACTIVE;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct verbs_gid gid;
        struct base_error error;
        uint8_t right[16];
        assert_int_equal(choose(cases[i].entries, 1000, &gid, &error), JACKAL_OK);
        assert_int_equal(gid.index, cases[i].index);
        assert_int_equal(inet_pton(AF_INET6, cases[i].entries[gid.index], right), 1);
        assert_memory_equal(gid.bytes, right, 16);
        assert_int_equal(table.n_scans, 1); /* no waiting where there is one */
    }
}

static void a_late_entry_is_waited_for(void **state) {
    static const char *const entries[ENTRIES] = {
        "fe80::200:ff:fe00:3", "::", "::", "::", "::", "::", "::", "::"};
    struct verbs_gid gid;
    struct base_error error;
    (void)state;
    table.late = "::ffff:169.254.9.2";
    assert_int_equal(choose(entries, 10000, &gid, &error), JACKAL_OK);
    assert_int_equal(gid.index, 1);
    table.late = NULL;
}

static void without_one_the_table_is_shown(void **state) {
    static const char *const entries[ENTRIES] = {
        "fe80::200:ff:fe00:3", "::", NULL, "::", "::", "fe80::9", "::", "::"};
    struct verbs_gid gid;
    struct base_error error;
    (void)state;
    assert_int_equal(choose(entries, 150, &gid, &error), JACKAL_ERR_NO_GID);
    assert_non_null(strstr(error.text, "rdma_en2"));
    assert_non_null(strstr(error.text, "[0] fe80::200:ff:fe00:3"));
    assert_non_null(strstr(error.text, "[5] fe80::9"));
    assert_true(table.n_scans >= 2);
}

static void a_port_that_is_down_is_not_asked(void **state) {
    static const char *const entries[ENTRIES] = {
        "::ffff:10.0.0.1", "::", "::", "::", "::", "::", "::", "::"};
    struct verbs_gid gid;
    struct base_error error;
    (void)state;
    table.port_state = IBV_PORT_DOWN;
    assert_int_equal(choose(entries, 1000, &gid, &error), JACKAL_ERR_LINK_DOWN);
    assert_non_null(strstr(error.text, "rdma_en2"));
    assert_int_equal(table.n_scans, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_addresses_have_an_order),
        cmocka_unit_test(the_best_entry_is_taken_with_its_index),
        cmocka_unit_test(a_late_entry_is_waited_for),
        cmocka_unit_test(without_one_the_table_is_shown),
        cmocka_unit_test(a_port_that_is_down_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
