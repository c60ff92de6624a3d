/* SPDX-License-Identifier: MIT */
#include "base/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

static const struct {
    const char *text;
    const char *host;
    uint16_t port;
} good[] = {
    {"127.0.0.1:5000", "127.0.0.1", 5000},
    {"localhost:1", "localhost", 1},
    {"node-3.rack_2.example.org:65535", "node-3.rack_2.example.org", 65535},
    {"[::1]:5000", "::1", 5000},
    {"[::]:5000", "::", 5000},
    {"[fe80::1%en2]:5001", "fe80::1%en2", 5001},
    {"[fe80::1%lo]:5001", "fe80::1%lo", 5001},
    {"[::ffff:10.0.0.1]:9", "::ffff:10.0.0.1", 9},
};

/* B5, and rows 1 to 5 of the host-file table. */
static void good_addresses_B5(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct base_address address;
        char text[BASE_ADDRESS_BYTES];
        assert_int_equal(base_address_parse(good[i].text, false, &address, NULL), JACKAL_OK);
        assert_string_equal(address.host, good[i].host);
        assert_int_equal(address.port, good[i].port);
        assert_string_equal(base_address_format(&address, text), good[i].text);
    }
}

static const struct {
    const char *text;
    const char *why;
} bad[] = {
    {"", "a port must follow"},
    {"host", "a port must follow"},
    {"host:", "1 to 65535"},
    {":5000", "host is missing"},
    {"::1:5000", "bracket the IPv6 address"},
    {"fe80::1%en2:5000", "bracket the IPv6 address"},
    {"a:5000:6000", "bracket the IPv6 address"},
    {"[::1]", "a port must follow"},
    {"[::1]5000", "a port must follow"},
    {"[::1:5000", "not closed"},
    {"[]:5000", "no IPv6 address between"},
    {"[127.0.0.1]:5000", "no IPv6 address between"},
    {"127.0.0.1:70000", "1 to 65535"},
    {"127.0.0.1:65536", "1 to 65535"},
    {"127.0.0.1:0", "1 to 65535"},
    {"127.0.0.1:-1", "1 to 65535"},
    {"127.0.0.1:+80", "1 to 65535"},
    {"127.0.0.1: 80", "1 to 65535"},
    {"127.0.0.1:80x", "1 to 65535"},
    {"127.0.0.1:0x50", "1 to 65535"},
    {"127.0.0.1:4294967376", "1 to 65535"},
    {"my host:80", "a blank"},
    {"http//host:80", "slash"},
};

static void bad_addresses_say_why(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct base_address address;
        struct base_error error;
        assert_int_equal(base_address_parse(bad[i].text, false, &address, &error),
                         JACKAL_ERR_CONFIG);
        char quoted[64] = "\"";
        strcat(strcat(quoted, bad[i].text), "\"");
        assert_non_null(strstr(error.text, quoted));
        assert_non_null(strstr(error.text, bad[i].why));
        assert_null(strchr(error.text, '\n'));
    }
}

static void port_0_only_where_allowed(void **state) {
    (void)state;
    struct base_address address;
    assert_int_equal(base_address_parse("127.0.0.1:0", true, &address, NULL), JACKAL_OK);
    assert_int_equal(address.port, 0);
}

static void host_length_is_bounded(void **state) {
    (void)state;
    char text[400];
    struct base_address address;
    struct base_error error;
    memset(text, 'h', sizeof text);
    strcpy(text + 255, ":80");
    assert_int_equal(base_address_parse(text, false, &address, NULL), JACKAL_OK);
    memset(text, 'h', sizeof text);
    strcpy(text + 256, ":80");
    assert_int_equal(base_address_parse(text, false, &address, &error), JACKAL_ERR_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses_B5),
        cmocka_unit_test(bad_addresses_say_why),
        cmocka_unit_test(port_0_only_where_allowed),
        cmocka_unit_test(host_length_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
