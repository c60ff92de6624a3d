/* SPDX-License-Identifier: MIT */
#include "star.h"

#include <stdio.h>
#include <stdlib.h>

void star_prepare(struct star *star, int size, unsigned timeout_ms) {
    struct base_address address = {.host = "127.0.0.1", .port = 0};
    memset(star, 0, sizeof *star);
    star->n = size;
    if (base_socket_listen(&address, 128, &star->listener, NULL) != JACKAL_OK)
        abort();
    star->port = base_socket_port(star->listener);
    snprintf(star->coordinator, sizeof star->coordinator, "127.0.0.1:%u", (unsigned)star->port);
    snprintf(star->listen, sizeof star->listen, "fd:%d", star->listener);
    for (int r = 0; r < STAR_MAX; r++) {
        star->ranks[r].star = star;
        star->ranks[r].options = (struct boot_options){.rank = r,
                                                       .size = size,
                                                       .coordinator = star->coordinator,
                                                       .listen = star->listen,
                                                       .job = "",
                                                       .features = ~UINT64_C(0),
                                                       .deadline_ns = base_deadline_ns(timeout_ms),
                                                       .log = &star->log};
    }
}

static void *run_rank(void *argument) {
    struct star_rank *rank = argument;
    base_error_clear(&rank->error);
    base_sleep_us(rank->delay_ms * 1000u);
    uint64_t began_ns = base_now_ns();
    rank->status = boot_connect(&rank->options, &rank->boot, &rank->error);
    if (rank->status == JACKAL_OK && rank->star->body != NULL)
        rank->star->body(rank);
    rank->took_ms = (base_now_ns() - began_ns) / 1000000;
    return NULL;
}

void star_start(struct star *star) {
    for (int r = 0; r < star->n; r++)
        if (pthread_create(&star->ranks[r].thread, NULL, run_rank, &star->ranks[r]) != 0)
            abort();
}

void star_wait(struct star *star) {
    for (int r = 0; r < star->n; r++)
        pthread_join(star->ranks[r].thread, NULL);
}

void star_run(struct star *star) {
    star_start(star);
    star_wait(star);
}

void star_free(struct star *star) {
    for (int r = 0; r < star->n; r++) {
        boot_free(star->ranks[r].boot);
        star->ranks[r].boot = NULL;
    }
}

int star_connect(const struct star *star) {
    struct base_address address = {.host = "127.0.0.1", .port = star->port};
    int fd;
    return base_socket_connect(&address, base_deadline_ns(4000), &fd, NULL) == JACKAL_OK ? fd : -1;
}

bool star_say(int fd, const struct wire_hello *hello) {
    uint8_t bytes[1024];
    struct wire_writer writer = {.bytes = bytes, .room = sizeof bytes};
    wire_hello_begin(&writer, hello);
    size_t n = wire_hello_end(&writer, 0);
    return n > 0 && base_socket_send(fd, bytes, n, base_deadline_ns(1000), NULL) == JACKAL_OK;
}

bool star_read_refusal(int fd, struct wire_hello_head *head, struct base_error *failure) {
    uint8_t bytes[WIRE_CONTROL_SMALL_MAX];
    struct wire_control_head frame;
    uint64_t deadline_ns = base_deadline_ns(3000);
    if (base_socket_recv(fd, bytes, WIRE_HELLO_HEAD_BYTES, deadline_ns, NULL) != JACKAL_OK ||
        wire_hello_head_decode(bytes, WIRE_HELLO_HEAD_BYTES, head, NULL) != JACKAL_OK ||
        base_socket_recv(fd, bytes, WIRE_CONTROL_HEAD_BYTES, deadline_ns, NULL) != JACKAL_OK ||
        wire_control_decode(bytes, &frame, NULL) != JACKAL_OK ||
        frame.type != WIRE_CONTROL_REFUSED || frame.payload_bytes > sizeof bytes)
        return false;
    return base_socket_recv(fd, bytes, frame.payload_bytes, deadline_ns, NULL) == JACKAL_OK &&
           wire_failure_decode(bytes, frame.payload_bytes, failure, NULL) == JACKAL_OK;
}

bool star_closed(int fd, unsigned timeout_ms) {
    uint64_t deadline_ns = base_deadline_ns(timeout_ms);
    uint8_t waste[256];
    size_t done;
    for (;;) {
        if (base_socket_recv_some(fd, waste, sizeof waste, &done) != 0)
            return true;
        if (done == 0 && !base_socket_ready(fd, POLLIN, deadline_ns))
            return false;
    }
}

struct boot_event star_event(struct boot *boot, unsigned timeout_ms) {
    uint64_t deadline_ns = base_deadline_ns(timeout_ms);
    struct boot_event event;
    for (;;) {
        int descriptors[STAR_MAX];
        struct pollfd polls[STAR_MAX];
        boot_watch(boot, &event);
        if (event.kind != BOOT_QUIET || base_expired(deadline_ns))
            return event;
        size_t n = boot_descriptors(boot, descriptors);
        for (size_t i = 0; i < n; i++)
            polls[i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
        /* As the progress thread does: a beat is due now and then, input or not. */
        uint64_t soon_ns = base_deadline_ns(100);
        base_socket_poll(polls, n, soon_ns < deadline_ns ? soon_ns : deadline_ns);
    }
}
