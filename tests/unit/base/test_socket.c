/* SPDX-License-Identifier: MIT */
#include "base/socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int listener(const char *text, struct base_address *address) {
    int fd;
    assert_int_equal(base_address_parse(text, true, address, NULL), JACKAL_OK);
    assert_int_equal(base_socket_listen(address, 16, &fd, NULL), JACKAL_OK);
    address->port = base_socket_port(fd);
    assert_int_not_equal(address->port, 0);
    return fd;
}

/*
 * A port at which nobody listens, and which stays ours: bound, so that no other process gets it
 * from the system meanwhile. Returns the descriptor to close.
 */
static int silent_port(struct base_address *address) {
    struct sockaddr_in name;
    memset(&name, 0, sizeof name);
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    *address = (struct base_address){"127.0.0.1", base_socket_port(fd)};
    return fd;
}

static void pair(int ends[2]) {
    struct base_address address;
    int fd = listener("127.0.0.1:0", &address);
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(2000), &ends[0], NULL),
                     JACKAL_OK);
    assert_true(base_socket_ready(fd, POLLIN, base_deadline_ns(2000)));
    ends[1] = base_socket_accept(fd);
    assert_true(ends[1] >= 0);
    base_socket_close(fd);
}

static int n_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void sockets_are_private_and_do_not_block_G4(void **state) {
    (void)state;
    struct base_address address;
    int fds[3];
    fds[2] = listener("127.0.0.1:0", &address);
    pair(fds);
    for (int i = 0; i < 3; i++) {
        assert_true((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
        assert_true((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0);
        base_socket_close(fds[i]);
    }
}

static void second_listener_is_refused_B7(void **state) {
    (void)state;
    struct base_address address;
    struct base_error error;
    int fd = listener("127.0.0.1:0", &address), second;
    assert_int_equal(base_socket_listen(&address, 1, &second, &error), JACKAL_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "EADDRINUSE"));
    base_socket_close(fd);
}

/* B5: where the machine has IPv6 at all. */
static void ipv6_works_B5(void **state) {
    (void)state;
    struct base_address address;
    int fd, other;
    struct base_error error;
    assert_int_equal(base_address_parse("[::1]:0", true, &address, NULL), JACKAL_OK);
    if (base_socket_listen(&address, 1, &fd, &error) != JACKAL_OK) {
        print_message("no IPv6 here: %s\n", error.text);
        skip();
    }
    address.port = base_socket_port(fd);
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(2000), &other, &error),
                     JACKAL_OK);
    char name[BASE_SOCKET_NAME_BYTES];
    assert_non_null(strstr(base_socket_name(other, false, name, sizeof name), "[::1]:"));
    base_socket_close(other);
    base_socket_close(fd);
}

/* B4, B6: a name with addresses of both families reaches a listener of one. */
static void name_is_tried_in_all_families_B6(void **state) {
    (void)state;
    struct base_address address;
    int fd = listener("127.0.0.1:0", &address), other;
    strcpy(address.host, "localhost");
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(2000), &other, NULL),
                     JACKAL_OK);
    base_socket_close(other);
    base_socket_close(fd);
}

static void connect_ends_at_the_deadline(void **state) {
    (void)state;
    struct base_address address;
    struct base_error error;
    int fd = silent_port(&address), other;
    uint64_t began_ns = base_now_ns();
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(300), &other, &error),
                     JACKAL_ERR_INIT_TIMEOUT);
    uint64_t took_ms = (base_now_ns() - began_ns) / 1000000;
    assert_in_range(took_ms, 290, 2000);
    assert_non_null(strstr(error.text, "ECONNREFUSED"));
    assert_non_null(strstr(error.text, "127.0.0.1:"));
    strcpy(address.host, "no-such-host.invalid");
    assert_int_equal(base_socket_connect(&address, base_deadline_ns(1), &other, &error),
                     JACKAL_ERR_INIT_TIMEOUT);
    assert_non_null(strstr(error.text, "cannot resolve no-such-host.invalid:"));
    base_socket_close(fd);
}

static void failed_connects_leak_no_descriptor_B14(void **state) {
    (void)state;
    struct base_address address;
    struct base_error error;
    int fd = silent_port(&address), other;
    int before = n_descriptors();
    for (int i = 0; i < 1000; i++)
        assert_int_equal(base_socket_connect(&address, base_now_ns(), &other, &error),
                         JACKAL_ERR_INIT_TIMEOUT);
    assert_int_equal(n_descriptors(), before);
    base_socket_close(fd);
}

/*
 * A connect to a free port of the ephemeral range may meet itself; it must not count. Linux takes
 * source ports in turn, every second one, so that a second of trying comes by the port itself.
 * Over IPv6, where no listener of another test can be met.
 */
static void socket_does_not_connect_to_itself(void **state) {
    (void)state;
    struct base_address address;
    struct base_error error;
    int other;
    int fd;
    assert_int_equal(base_address_parse("[::1]:0", true, &address, NULL), JACKAL_OK);
    if (base_socket_listen(&address, 1, &fd, &error) != JACKAL_OK)
        skip();
    address.port = base_socket_port(fd);
    base_socket_close(fd);
    uint64_t until_ns = base_deadline_ns(1500);
    for (int i = 0; i < 40000 && !base_expired(until_ns); i++) {
        address.port ^= (uint16_t)(i % 2);
        if (base_socket_connect(&address, base_now_ns(), &other, &error) == JACKAL_OK) {
            char own[BASE_SOCKET_NAME_BYTES], peer[BASE_SOCKET_NAME_BYTES];
            base_socket_name(other, true, own, sizeof own);
            assert_string_not_equal(own, base_socket_name(other, false, peer, sizeof peer));
            base_socket_close(other);
        }
    }
}

static void adopting_checks_the_descriptor(void **state) {
    (void)state;
    struct base_address address;
    struct base_error error;
    char text[32];
    int fd = listener("127.0.0.1:0", &address);
    int blocking = fcntl(fd, F_GETFL) & ~O_NONBLOCK;
    fcntl(fd, F_SETFL, blocking);
    fcntl(fd, F_SETFD, 0);
    snprintf(text, sizeof text, "fd:%d", fd);
    assert_int_equal(base_socket_adopt(text, address.port, 16, &error), fd);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_int_equal(base_socket_adopt(text, 0, 16, &error), fd);
    assert_int_equal(base_socket_adopt(text, address.port == 1 ? 2 : 1, 16, &error), -1);
    base_socket_close(fd);
    assert_int_equal(base_socket_adopt(text, address.port, 16, &error), -1);
    assert_non_null(strstr(error.text, "EBADF"));
    int ends[2];
    pair(ends);
    snprintf(text, sizeof text, "fd:%d", ends[0]);
    assert_int_equal(base_socket_adopt(text, 0, 16, &error), -1);
    static const char *const nonsense[] = {"fd:", "fd:x", "fd:3x", "fd:-1", "3", "fd:99999999999"};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        assert_int_equal(base_socket_adopt(nonsense[i], 0, 16, &error), -1);
    base_socket_close(ends[0]);
    base_socket_close(ends[1]);
}

static void closed_peer_is_an_error_and_no_signal_G3(void **state) {
    (void)state;
    int ends[2];
    char byte = 0;
    struct base_error error;
    signal(SIGPIPE, SIG_DFL);
    pair(ends);
    base_socket_close(ends[1]);
    assert_int_equal(base_socket_recv(ends[0], &byte, 1, base_deadline_ns(2000), &error),
                     JACKAL_ERR_PEER_LOST);
    assert_non_null(strstr(error.text, "closed the connection (0 of 1 bytes received)"));
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < 100 && status == JACKAL_OK; i++) {
        status = base_socket_send(ends[0], &byte, 1, base_deadline_ns(2000), &error);
        base_sleep_us(1000);
    }
    assert_int_equal(status, JACKAL_ERR_PEER_LOST);
    base_socket_close(ends[0]);
}

static void receive_ends_at_the_deadline(void **state) {
    (void)state;
    int ends[2];
    char bytes[4];
    struct base_error error;
    pair(ends);
    assert_int_equal(base_socket_send(ends[1], "ab", 2, base_deadline_ns(1000), &error), JACKAL_OK);
    assert_true(base_socket_ready(ends[0], POLLIN, base_deadline_ns(1000)));
    assert_int_equal(base_socket_recv(ends[0], bytes, 4, base_deadline_ns(100), &error),
                     JACKAL_ERR_TIMEOUT);
    assert_non_null(strstr(error.text, "2 of 4 bytes"));
    base_socket_close(ends[0]);
    base_socket_close(ends[1]);
}

static void peer_timeout_is_taken_by_the_system(void **state) {
    (void)state;
    int ends[2];
    struct base_error error;
    pair(ends);
    assert_int_equal(base_socket_set_peer_timeout(ends[0], 1400, &error), JACKAL_OK);
    assert_int_equal(base_socket_set_peer_timeout(ends[0], 10000, &error), JACKAL_OK);
    base_socket_close(ends[0]);
    base_socket_close(ends[1]);
}

/* ---- B16 ------------------------------------------------------------------------------------- */

static atomic_int n_alarms; /* handlers run on any thread */

static void on_alarm(int signal_number) {
    (void)signal_number;
    n_alarms++;
}

enum { STORM_BYTES = 8 << 20 };

static void *send_slowly(void *argument) {
    int fd = *(int *)argument;
    sigset_t all;
    sigfillset(&all); /* the alarms are for the receiving thread */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    uint8_t *bytes = malloc(STORM_BYTES);
    for (size_t i = 0; i < STORM_BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 16));
    for (size_t done = 0; done < STORM_BYTES; done += STORM_BYTES / 64) {
        if (base_socket_send(fd, bytes + done, STORM_BYTES / 64, base_deadline_ns(4000), NULL) !=
            JACKAL_OK)
            break;
        base_sleep_us(2000);
    }
    free(bytes);
    return NULL;
}

/* B16: a 1 kHz timer whose handler does not restart calls disturbs nothing. */
static void signals_disturb_no_transfer_B16(void **state) {
    (void)state;
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, &before);
    struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &storm, NULL);
    int ends[2];
    pair(ends);
    uint8_t *bytes = malloc(STORM_BYTES);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_slowly, &ends[1]), 0);
    jackal_status status =
        base_socket_recv(ends[0], bytes, STORM_BYTES, base_deadline_ns(4000), NULL);
    pthread_join(thread, NULL);
    setitimer(ITIMER_REAL, &calm, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(status, JACKAL_OK);
    for (size_t i = 0; i < STORM_BYTES; i++)
        if (bytes[i] != (uint8_t)(i * 7 + (i >> 16)))
            fail_msg("byte %zu is wrong", i);
    assert_true(n_alarms > 10);
    free(bytes);
    base_socket_close(ends[0]);
    base_socket_close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_are_private_and_do_not_block_G4),
        cmocka_unit_test(second_listener_is_refused_B7),
        cmocka_unit_test(ipv6_works_B5),
        cmocka_unit_test(name_is_tried_in_all_families_B6),
        cmocka_unit_test(connect_ends_at_the_deadline),
        cmocka_unit_test(failed_connects_leak_no_descriptor_B14),
        cmocka_unit_test(socket_does_not_connect_to_itself),
        cmocka_unit_test(adopting_checks_the_descriptor),
        cmocka_unit_test(closed_peer_is_an_error_and_no_signal_G3),
        cmocka_unit_test(receive_ends_at_the_deadline),
        cmocka_unit_test(peer_timeout_is_taken_by_the_system),
        cmocka_unit_test(signals_disturb_no_transfer_B16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
