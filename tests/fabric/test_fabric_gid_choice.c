/* SPDX-License-Identifier: MIT */
/* T05: the library's own choice of a GID, on tables whose right entry is not at index 1, comes late
 * and moves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct verbs_provider *provider;
static char fabric_name[32];

static struct verbs_device *device(const char *name) {
    struct verbs_device *found = NULL;
    struct base_error error;

    if (verbs_device_acquire(provider, name, &found, &error) != JACKAL_OK) {
        print_error("%s: %s\n", name, error.text);
        fail();
    }
    return found;
}

static void assert_choice(const struct verbs_device *from, int index, const char *address) {
    struct verbs_gid gid;
    struct base_error error;
    uint8_t wanted[16];

    if (verbs_gid_choose(from, base_deadline_ns(10000), &gid, &error) != JACKAL_OK) {
        print_error("%s: %s\n", from->name, error.text);
        fail();
    }
    assert_int_equal(inet_pton(AF_INET6, address, wanted), 1);
    assert_int_equal(gid.index, index);
    assert_memory_equal(gid.bytes, wanted, sizeof wanted);
}

static void control(const char *command) {
    int (*change)(const char *, const char *);
    void *handle = dlopen(FABRIC_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = handle == NULL ? NULL : dlsym(handle, "jackal_fabric_control");

    assert_non_null(symbol);
    memcpy(&change, &symbol, sizeof change);
    assert_int_equal(change(fabric_name, command), 0);
    dlclose(handle);
}

static void t05_choices(void **state) {
    struct verbs_device *p0, *p1, *p2;
    uint64_t start;

    (void)state;
    p0 = device("P0.rdma_en2");
    start = base_now_ns();
    p1 = device("P1.rdma_en2");
    p2 = device("P2.rdma_en2");
    assert_choice(p0, 1, "::ffff:169.254.7.1");
    assert_choice(p1, 2, "::ffff:169.254.7.2");
    assert_choice(p2, 1, "::ffff:169.254.9.2"); /* waits until it is there */
    assert_true(base_now_ns() - start >= UINT64_C(2900000000));
    control("unplug P1.en2");
    control("replug P1.en2");
    assert_choice(p1, 1, "::ffff:169.254.7.2");
    verbs_device_release(p0);
    verbs_device_release(p1);
    verbs_device_release(p2);
}

static int start(void **state) {
    struct base_error error;

    (void)state;
    snprintf(fabric_name, sizeof fabric_name, "gids-%d", (int)getpid());
    setenv("JACKAL_FABRIC", FABRIC_EXAMPLES "/t05.json", 1);
    setenv("JACKAL_FABRIC_HOST", "*", 1);
    setenv("JACKAL_FABRIC_NAME", fabric_name, 1);
    return verbs_provider_acquire(FABRIC_LIBRARY, &provider, &error) == JACKAL_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    verbs_provider_release(provider);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(t05_choices)};

    return cmocka_run_group_tests_name("fabric GID choice", tests, start, end);
}
