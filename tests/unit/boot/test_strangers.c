/* SPDX-License-Identifier: MIT */
/*
 * Case T07: connections that nobody invited (B8, B12, G12).
 */
#include "star.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { OF_EACH = 50, KINDS = 6 };

enum kind { SILENT, HTTP, NOISE, CLOSING, STALE, HUGE_BODY };

static int stranger(const struct star *star, enum kind kind, unsigned number) {
    int fd = star_connect(star);
    uint8_t bytes[64];
    uint64_t soon_ns = base_deadline_ns(1000);
    assert_true(fd >= 0);
    switch (kind) {
    case SILENT:
        break;
    case HTTP:
        base_socket_send(fd, "GET / HTTP/1.0\r\n\r\n", 18, soon_ns, NULL);
        break;
    case NOISE:
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((number * 2654435761u + i * 40503u) >> 3);
        base_socket_send(fd, bytes, sizeof bytes, soon_ns, NULL);
        break;
    case CLOSING:
        base_socket_close(fd);
        return -1;
    case STALE:
        assert_true(
            star_say(fd, &(struct wire_hello){.job = "monday", .rank = 1 + number % 2, .size = 3}));
        break;
    case HUGE_BODY:
        wire_hello_head_encode(&(struct wire_hello_head){1, 1, UINT32_MAX}, bytes);
        base_socket_send(fd, bytes, WIRE_HELLO_HEAD_BYTES, soon_ns, NULL);
        break;
    }
    return fd;
}

/* Where it is known to be turned away already, it waits for that, so that all are counted. */
static void judge(int fd, enum kind kind) {
    struct wire_hello_head head;
    struct base_error why;
    if (kind == STALE) {
        assert_true(star_read_refusal(fd, &head, &why));
        assert_int_equal(why.status, JACKAL_ERR_CONFIG);
        assert_non_null(strstr(why.text, "stale run"));
        assert_non_null(strstr(why.text, "\"monday\""));
        assert_non_null(strstr(why.text, "\"tuesday\""));
    }
    if (kind != SILENT && kind != CLOSING)
        assert_true(star_closed(fd, 3000));
}

static long peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    return usage.ru_maxrss / 1024;
#else
    return usage.ru_maxrss;
#endif
}

static void strangers_disturb_nobody_T07(void **state) {
    (void)state;
    struct star star;
    int fds[OF_EACH][KINDS];
    star_prepare(&star, 3, 8000);
    for (int r = 0; r < 3; r++)
        star.ranks[r].options.job = "tuesday";
    /* Rank 0 is there first; the others come when all strangers were. */
    struct star alone = star;
    alone.n = 1;
    star_start(&alone);
    long before_kib = peak_kib();
    for (unsigned i = 0; i < OF_EACH; i++)
        for (int kind = 0; kind < KINDS; kind++)
            fds[i][kind] = stranger(&star, (enum kind)kind, i);
    for (unsigned i = 0; i < OF_EACH; i++)
        for (int kind = 0; kind < KINDS; kind++)
            judge(fds[i][kind], (enum kind)kind);
    long grown_kib = peak_kib() - before_kib;
    struct star_rank *others = star.ranks;
    struct star late = star;
    late.n = 2;
    late.ranks[0] = others[1];
    late.ranks[1] = others[2];
    uint64_t began_ns = base_now_ns();
    star_run(&late);
    star_wait(&alone);
    assert_int_equal(alone.ranks[0].status, JACKAL_OK);
    assert_int_equal(late.ranks[0].status, JACKAL_OK);
    assert_int_equal(late.ranks[1].status, JACKAL_OK);
    assert_in_range((base_now_ns() - began_ns) / 1000000, 0, 5000);
    assert_int_equal(alone.ranks[0].boot->n_rejected, OF_EACH * KINDS);
#ifndef SANITIZED
    assert_in_range(grown_kib, 0, 1024);
#else
    (void)grown_kib;
#endif
    for (unsigned i = 0; i < OF_EACH; i++)
        for (int kind = 0; kind < KINDS; kind++)
            base_socket_close(fds[i][kind]);
    star_free(&alone);
    star_free(&late);
}

/* More silent connections than places: they lose them after 2 s, and the ranks get in. */
static void a_full_table_empties(void **state) {
    (void)state;
    enum { SILENT_ONES = 140 };
    struct star star;
    int fds[SILENT_ONES];
    star_prepare(&star, 2, 8000);
    struct star alone = star;
    alone.n = 1;
    star_start(&alone);
    for (int i = 0; i < SILENT_ONES; i++)
        fds[i] = star_connect(&star);
    struct star late = star;
    late.n = 1;
    late.ranks[0] = star.ranks[1];
    star_run(&late);
    star_wait(&alone);
    assert_int_equal(alone.ranks[0].status, JACKAL_OK);
    assert_int_equal(late.ranks[0].status, JACKAL_OK);
    for (int i = 0; i < SILENT_ONES; i++)
        base_socket_close(fds[i]);
    star_free(&alone);
    star_free(&late);
}

/* A right hello in small pieces is a right hello. */
static void hello_may_come_in_pieces(void **state) {
    (void)state;
    struct star star;
    uint8_t bytes[256];
    struct wire_writer writer = {.bytes = bytes, .room = sizeof bytes};
    star_prepare(&star, 2, 4000);
    star.n = 1;
    star_start(&star);
    wire_hello_begin(&writer, &(struct wire_hello){.rank = 1, .size = 2});
    size_t n = wire_hello_end(&writer, 0);
    int fd = star_connect(&star);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(base_socket_send(fd, bytes + i, 1, base_deadline_ns(1000), NULL),
                         JACKAL_OK);
        base_sleep_us(1000);
    }
    star_wait(&star);
    assert_int_equal(star.ranks[0].status, JACKAL_OK);
    base_socket_close(fd);
    star_free(&star);
}

/* Malformed body, and a hello that carries the number of an earlier meeting. */
static void wrong_hellos_end_only_themselves_B12(void **state) {
    (void)state;
    struct star star;
    struct wire_hello_head head;
    struct base_error why;
    star_prepare(&star, 2, 6000);
    struct star alone = star;
    alone.n = 1;
    star_start(&alone);
    int fd = star_connect(&star);
    assert_true(star_say(fd, &(struct wire_hello){.incarnation = 77, .rank = 1, .size = 2}));
    assert_true(star_read_refusal(fd, &head, &why));
    assert_non_null(strstr(why.text, "stale run"));
    base_socket_close(fd);
    fd = star_connect(&star);
    uint8_t bytes[32] = {0};
    wire_hello_head_encode(&(struct wire_hello_head){1, 1, 16}, bytes);
    memset(bytes + 16, 0xff, 16);
    base_socket_send(fd, bytes, sizeof bytes, base_deadline_ns(1000), NULL);
    assert_true(star_closed(fd, 3000));
    base_socket_close(fd);
    struct star late = star;
    late.n = 1;
    late.ranks[0] = star.ranks[1];
    star_run(&late);
    star_wait(&alone);
    assert_int_equal(alone.ranks[0].status, JACKAL_OK);
    assert_int_equal(late.ranks[0].status, JACKAL_OK);
    assert_int_equal(alone.ranks[0].boot->n_rejected, 2);
    star_free(&alone);
    star_free(&late);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_disturb_nobody_T07),
        cmocka_unit_test(a_full_table_empties),
        cmocka_unit_test(hello_may_come_in_pieces),
        cmocka_unit_test(wrong_hellos_end_only_themselves_B12),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
