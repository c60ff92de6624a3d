/* SPDX-License-Identifier: MIT */
/*
 * A rank other than 0 at the meeting: connect, say hello, wait to be seated and then welcomed.
 *
 * Until it is seated anything that merely ends the connection is tried again: rank 0 may not be
 * up yet, or had no patience while this process was stopped. Once seated, an end is an end.
 */
#include "boot/boot_internal.h"

#include <jackal/jackal.h>

#include <stdio.h>
#include <stdlib.h>

struct attempt {
    struct boot *boot;
    const struct boot_options *options;
    const char *where; /* the coordinator, as written */
    uint8_t *hello;
    size_t n_hello;
    bool seated;
};

/* The hello of this rank, head and body. */
static jackal_status write_hello(struct attempt *attempt, struct base_error *error) {
    const struct boot_options *options = attempt->options;
    size_t room = WIRE_HELLO_HEAD_BYTES + WIRE_HELLO_BODY_MAX;
    struct wire_hello hello = {.rank = (uint32_t)options->rank,
                               .size = (uint32_t)options->size,
                               .features = options->features};
    snprintf(hello.job, sizeof hello.job, "%s", options->job != NULL ? options->job : "");
    snprintf(hello.library, sizeof hello.library, "%d.%d.%d", JACKAL_VERSION_MAJOR,
             JACKAL_VERSION_MINOR, JACKAL_VERSION_PATCH);
    attempt->hello = malloc(room);
    if (attempt->hello == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "no memory for a hello of %zu bytes", room);
    struct wire_writer writer = {.bytes = attempt->hello, .room = room};
    wire_hello_begin(&writer, &hello);
    for (size_t i = 0; i < options->n_settings; i++)
        wire_hello_add(&writer, options->settings[i].name, options->settings[i].value);
    attempt->n_hello = wire_hello_end(&writer, options->n_settings);
    if (attempt->n_hello == 0)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "%zu settings do not fit into a hello of %zu bytes", options->n_settings,
                         room);
    return JACKAL_OK;
}

/* The answer begins with a head, from which any two versions can tell whether they match. */
static jackal_status read_head(const struct attempt *attempt, int fd, struct base_error *error) {
    uint8_t bytes[WIRE_HELLO_HEAD_BYTES];
    struct wire_hello_head theirs, ours = {WIRE_HELLO_VERSION, WIRE_HELLO_OLDEST, 0};
    jackal_status status = JACKAL_PENDING;
    for (size_t n = 0; status == JACKAL_PENDING; n++) {
        status = base_socket_recv(fd, bytes + n, 1, attempt->options->deadline_ns, error);
        if (status != JACKAL_OK)
            return status;
        status = wire_hello_head_decode(bytes, n + 1, &theirs, error);
    }
    if (status != JACKAL_OK)
        return base_fail(error, JACKAL_ERR_PROTOCOL,
                         "%s answers, but not as rank 0 of a Jackal group: is the address right?",
                         attempt->where);
    if (!wire_hello_compatible(&theirs, &ours))
        return base_fail_peer(
            error, JACKAL_ERR_PROTOCOL, 0,
            "version mismatch: rank 0 at %s speaks hello version %u to %u, rank %d "
            "version %d to %d: install the same Jackal on all",
            attempt->where, (unsigned)theirs.oldest, (unsigned)theirs.version, attempt->boot->rank,
            WIRE_HELLO_OLDEST, WIRE_HELLO_VERSION);
    return JACKAL_OK;
}

static jackal_status read_welcome(struct boot *boot, struct base_error *error) {
    const struct boot_link *link = &boot->links[0];
    struct wire_reader reader = {.bytes = link->payload, .left = link->head.payload_bytes};
    boot->incarnation = wire_read_u64(&reader);
    boot->features = wire_read_u64(&reader);
    if (reader.bad)
        return base_fail_peer(error, JACKAL_ERR_PROTOCOL, 0, "welcome of rank 0 at %s is malformed",
                              link->name);
    return JACKAL_OK;
}

/* Frames until this rank is in or out. JACKAL_ERR_PEER_LOST while not seated = try again. */
static jackal_status read_answer(struct attempt *attempt, struct base_error *error) {
    struct boot_link *link = &attempt->boot->links[0];
    uint64_t deadline_ns = attempt->options->deadline_ns;
    uint64_t grace_ns = (uint64_t)BOOT_GRACE_MS * 1000000u;
    for (;;) {
        bool longer = attempt->seated && deadline_ns != BASE_NEVER;
        jackal_status status =
            boot_link_wait(link, longer ? deadline_ns + grace_ns : deadline_ns, error);
        if (status != JACKAL_OK)
            return status;
        if (link->head.type == WIRE_CONTROL_SEATED)
            attempt->seated = true;
        if (link->head.type == WIRE_CONTROL_WELCOME)
            return read_welcome(attempt->boot, error);
        if (link->head.type == WIRE_CONTROL_REFUSED || link->head.type == WIRE_CONTROL_VERDICT) {
            struct base_error why;
            status = wire_failure_decode(link->payload, link->head.payload_bytes, &why, error);
            if (status != JACKAL_OK)
                return status;
            *error = why;
            return why.status;
        }
    }
}

static jackal_status attempt_once(struct attempt *attempt, const struct base_address *coordinator,
                                  struct base_error *error) {
    uint64_t deadline_ns = attempt->options->deadline_ns;
    struct boot_link *link = &attempt->boot->links[0];
    int fd;
    jackal_status status = base_socket_connect(coordinator, deadline_ns, &fd, error);
    if (status != JACKAL_OK)
        return status;
    boot_link_open(link, fd, attempt->boot->peer_timeout_ms);
    status = base_socket_send(fd, attempt->hello, attempt->n_hello, deadline_ns, error);
    if (status == JACKAL_OK)
        status = read_head(attempt, fd, error);
    if (status == JACKAL_OK)
        status = read_answer(attempt, error);
    if (status != JACKAL_OK)
        boot_link_close(link);
    return status;
}

/* Puts what happened into the words of a meeting. */
static jackal_status explain(const struct attempt *attempt, struct base_error *error) {
    int rank = attempt->boot->rank;
    if (error->status == JACKAL_ERR_TIMEOUT)
        return base_fail_peer(error, JACKAL_ERR_INIT_TIMEOUT, 0,
                              "rank %d: rank 0 at %s took the connection, but the meeting was not "
                              "complete in time",
                              rank, attempt->where);
    if (error->status == JACKAL_ERR_INIT_TIMEOUT && error->peer < 0)
        return base_fail_peer(error, JACKAL_ERR_INIT_TIMEOUT, 0, "rank %d cannot reach rank 0: %s",
                              rank, error->text);
    if (error->status == JACKAL_ERR_PEER_LOST && error->peer < 0)
        return base_fail_peer(
            error, attempt->seated ? JACKAL_ERR_PEER_LOST : JACKAL_ERR_INIT_TIMEOUT, 0,
            "rank %d: rank 0 at %s is gone: %s", rank, attempt->where, error->text);
    return error->status;
}

jackal_status boot_member_meet(struct boot *boot, const struct boot_options *options,
                               const struct base_address *coordinator, struct base_error *error) {
    struct attempt attempt = {.boot = boot, .options = options, .where = options->coordinator};
    uint64_t pause_us = 20000;
    jackal_status status = write_hello(&attempt, error);
    while (status == JACKAL_OK) {
        status = attempt_once(&attempt, coordinator, error);
        if (status == JACKAL_OK || status != JACKAL_ERR_PEER_LOST || error->peer >= 0 ||
            attempt.seated || base_expired(options->deadline_ns))
            break;
        base_log(boot->log, JACKAL_LOG_INFO, "%s ended the connection early; trying again",
                 options->coordinator);
        uint64_t left_us = (uint64_t)base_left_ms(options->deadline_ns) * 1000;
        base_sleep_us(left_us < pause_us ? left_us : pause_us);
        pause_us = pause_us < 500000 ? pause_us * 2 : 1000000;
        status = JACKAL_OK;
    }
    free(attempt.hello);
    return status == JACKAL_OK ? JACKAL_OK : explain(&attempt, error);
}
