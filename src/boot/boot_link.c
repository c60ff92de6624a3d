/* SPDX-License-Identifier: MIT */
#include "boot/boot_internal.h"

#include <stdlib.h>
#include <sys/socket.h>

void boot_link_open(struct boot_link *link, int fd, uint32_t peer_timeout_ms) {
    link->fd = fd;
    link->left = false;
    link->n_in = 0;
    link->n_out = 0;
    base_socket_name(fd, false, link->name, sizeof link->name);
    /* Without it a vanished host is noticed later: no reason to give up the meeting. */
    (void)base_socket_set_peer_timeout(fd, peer_timeout_ms, NULL);
}

void boot_link_close(struct boot_link *link) {
    base_socket_close(link->fd);
    link->fd = -1;
    free(link->payload);
    link->payload = NULL;
    link->room = 0;
    link->n_in = 0;
    link->n_out = 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static enum boot_read end(struct boot_link *link, int result, struct base_error *error) {
    if (result == BASE_SOCKET_CLOSED)
        base_fail(error, JACKAL_ERR_PEER_LOST, "%s", "connection closed");
    else
        base_fail_errno(error, JACKAL_ERR_PEER_LOST, result, "connection broke");
    link->n_in = 0;
    return BOOT_READ_END;
}

/* The size is bounded by wire_control_decode() before anything is allocated for it. */
static enum boot_read make_room(struct boot_link *link, struct base_error *error) {
    if (wire_control_decode(link->head_bytes, &link->head, error) != JACKAL_OK)
        return BOOT_READ_END;
    size_t n_bytes = link->head.payload_bytes;
    if (link->room >= n_bytes && link->payload != NULL)
        return BOOT_READ_FRAME;
    free(link->payload);
    link->room = n_bytes > WIRE_CONTROL_SMALL_MAX ? n_bytes : WIRE_CONTROL_SMALL_MAX;
    link->payload = malloc(link->room);
    if (link->payload != NULL)
        return BOOT_READ_FRAME;
    link->room = 0;
    base_fail(error, JACKAL_ERR_MEMORY, "no memory for a frame of %zu bytes", n_bytes);
    return BOOT_READ_END;
}

enum boot_read boot_link_read(struct boot_link *link, struct base_error *error) {
    if (boot_link_has_frame(link))
        link->n_in = 0;
    for (;;) {
        bool in_head = link->n_in < WIRE_CONTROL_HEAD_BYTES;
        size_t goal =
            in_head ? WIRE_CONTROL_HEAD_BYTES : WIRE_CONTROL_HEAD_BYTES + link->head.payload_bytes;
        uint8_t *to = in_head ? link->head_bytes + link->n_in
                              : link->payload + (link->n_in - WIRE_CONTROL_HEAD_BYTES);
        size_t done;
        int result = base_socket_recv_some(link->fd, to, goal - link->n_in, &done);
        if (result != 0)
            return end(link, result, error);
        link->n_in += done;
        if (link->n_in < goal) {
            if (done == 0)
                return BOOT_READ_MORE;
        } else if (!in_head) {
            return BOOT_READ_FRAME;
        } else {
            if (make_room(link, error) == BOOT_READ_END)
                return BOOT_READ_END;
            if (link->head.payload_bytes == 0)
                return BOOT_READ_FRAME;
        }
    }
}

jackal_status boot_link_wait(struct boot_link *link, uint64_t deadline_ns,
                             struct base_error *error) {
    for (;;) {
        switch (boot_link_read(link, error)) {
        case BOOT_READ_FRAME:
            return JACKAL_OK;
        case BOOT_READ_END:
            return error->status;
        case BOOT_READ_MORE:
            break;
        }
        if (!base_socket_ready(link->fd, POLLIN, deadline_ns))
            return base_fail(error, JACKAL_ERR_TIMEOUT, "%s did not answer in time", link->name);
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

jackal_status boot_link_send(struct boot_link *link, uint16_t type, const void *first,
                             size_t n_first, const void *second, size_t n_second,
                             uint64_t deadline_ns, struct base_error *error) {
    uint8_t start[WIRE_CONTROL_HEAD_BYTES + 16];
    struct wire_control_head head = {type, (uint32_t)(n_first + n_second)};
    struct wire_writer writer = {.bytes = start, .room = sizeof start};
    wire_control_encode(&head, start);
    writer.used = WIRE_CONTROL_HEAD_BYTES;
    wire_write(&writer, first, n_first);
    jackal_status status = base_socket_send(link->fd, start, writer.used, deadline_ns, error);
    if (status == JACKAL_OK && n_second > 0)
        status = base_socket_send(link->fd, second, n_second, deadline_ns, error);
    return status;
}

bool boot_link_flush(struct boot_link *link, uint64_t deadline_ns) {
    while (link->n_out > 0) {
        size_t done;
        if (base_socket_send_some(link->fd, link->out, link->n_out, &done) != 0)
            return false;
        link->n_out -= done;
        memmove(link->out, link->out + done, link->n_out);
        if (done == 0 && !base_socket_ready(link->fd, POLLOUT, deadline_ns))
            return false;
    }
    return true;
}

bool boot_link_post(struct boot_link *link, uint16_t type, const void *payload, size_t n_payload,
                    uint64_t deadline_ns) {
    if (link->fd < 0 || n_payload > WIRE_CONTROL_SMALL_MAX || !boot_link_flush(link, deadline_ns))
        return false;
    struct wire_control_head head = {type, (uint32_t)n_payload};
    wire_control_encode(&head, link->out);
    if (n_payload > 0)
        memcpy(link->out + WIRE_CONTROL_HEAD_BYTES, payload, n_payload);
    size_t whole = WIRE_CONTROL_HEAD_BYTES + n_payload;
    link->n_out = whole;
    bool sent = boot_link_flush(link, deadline_ns);
    if (!sent && link->n_out == whole)
        link->n_out = 0;
    return sent;
}

bool boot_link_post_failure(struct boot_link *link, uint16_t type, const struct base_error *why,
                            uint64_t deadline_ns) {
    uint8_t payload[WIRE_CONTROL_SMALL_MAX];
    size_t n_bytes = wire_failure_encode(why, payload, sizeof payload);
    return n_bytes > 0 && boot_link_post(link, type, payload, n_bytes, deadline_ns);
}

/* ---- the end --------------------------------------------------------------------------------- */

bool boot_link_discard(struct boot_link *link) {
    uint8_t waste[4096];
    /* Bounded, since a peer that never stops sending must not hold the caller. */
    for (int i = 0; i < 512; i++) {
        size_t done;
        if (base_socket_recv_some(link->fd, waste, sizeof waste, &done) != 0)
            return false;
        if (done == 0)
            break;
    }
    return true;
}

void boot_links_farewell(struct boot_link *links, int n_links, uint64_t deadline_ns) {
    for (int i = 0; i < n_links; i++)
        if (links[i].fd >= 0)
            shutdown(links[i].fd, SHUT_WR);
    struct pollfd *polls = calloc((size_t)n_links, sizeof *polls);
    while (polls != NULL) {
        size_t n_open = 0;
        for (int i = 0; i < n_links; i++) {
            if (links[i].fd >= 0 && !boot_link_discard(&links[i]))
                boot_link_close(&links[i]);
            if (links[i].fd >= 0)
                polls[n_open++] = (struct pollfd){.fd = links[i].fd, .events = POLLIN};
        }
        if (n_open == 0 || base_socket_poll(polls, n_open, deadline_ns) <= 0)
            break;
    }
    free(polls);
    for (int i = 0; i < n_links; i++)
        boot_link_close(&links[i]);
}
