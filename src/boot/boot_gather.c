/* SPDX-License-Identifier: MIT */
/*
 * The all_gather of set-up. Every blob carries its length and the number of the round, so ranks
 * that disagree about where they are find out instead of taking each other's bytes (B17).
 *
 * When it fails at rank 0, rank 0 tells all before it returns, so every rank gets the same text.
 */
#include "boot/boot_internal.h"

#include <stdlib.h>
#include <sys/socket.h>

/* Takes the payload behind `skip` bytes of a frame as the blob of `rank`. */
static jackal_status keep_blob(struct boot *boot, struct boot_link *link, size_t skip, int rank,
                               struct boot_blob *blobs, struct base_error *error) {
    size_t n_bytes = link->head.payload_bytes - skip;
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "no memory for the %zu bytes of rank %d",
                         n_bytes, rank);
    if (n_bytes > 0)
        memcpy(copy, link->payload + skip, n_bytes);
    free(boot->blobs[rank]);
    boot->blobs[rank] = copy;
    blobs[rank] = (struct boot_blob){copy, n_bytes};
    return JACKAL_OK;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static jackal_status lost(const struct boot *boot, int rank, struct base_error *error) {
    return base_fail_peer(error, error->status, rank, "rank %d (%s) is gone during set-up: %s",
                          rank, boot->links[rank].name, error->text);
}

/* One frame of a member: its blob, the reason why it gives up, or something to step over. */
static jackal_status take_frame(struct boot *boot, int rank, bool *here, struct boot_blob *blobs,
                                struct base_error *error) {
    struct boot_link *link = &boot->links[rank];
    struct base_error why;
    switch (link->head.type) {
    case WIRE_CONTROL_FAIL:
        if (wire_failure_decode(link->payload, link->head.payload_bytes, &why, error) != JACKAL_OK)
            return lost(boot, rank, error);
        return base_fail_peer(error, JACKAL_ERR_REMOTE, rank, "rank %d failed: %s", rank, why.text);
    case WIRE_CONTROL_LEAVE:
        return base_fail_peer(error, JACKAL_ERR_PEER_LOST, rank, "rank %d (%s) left during set-up",
                              rank, link->name);
    case WIRE_CONTROL_GATHER:
        if (link->head.payload_bytes < 4 || wire_get_u32(link->payload) != boot->round)
            return base_fail_peer(error, JACKAL_ERR_PROTOCOL, rank,
                                  "rank %d (%s) is not in round %u of the set-up, as rank 0 is",
                                  rank, link->name, (unsigned)boot->round);
        here[rank] = true;
        return keep_blob(boot, link, 4, rank, blobs, error);
    default:
        return JACKAL_OK;
    }
}

static jackal_status read_member(struct boot *boot, int rank, bool *here, struct boot_blob *blobs,
                                 struct base_error *error) {
    while (!here[rank]) {
        enum boot_read result = boot_link_read(&boot->links[rank], error);
        if (result == BOOT_READ_MORE)
            return JACKAL_OK;
        if (result == BOOT_READ_END)
            return lost(boot, rank, error);
        jackal_status status = take_frame(boot, rank, here, blobs, error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

static jackal_status too_late(const struct boot *boot, const bool *here, struct base_error *error) {
    char ranks[160];
    int first = boot_missing(here, boot->size, ranks, sizeof ranks);
    return base_fail_peer(error, JACKAL_ERR_INIT_TIMEOUT, first,
                          "round %u of the set-up is not complete in time; missing: %s",
                          (unsigned)boot->round, ranks);
}

/* Reads from all members at once, in whatever order they come. */
static jackal_status collect(struct boot *boot, bool *here, struct pollfd *polls,
                             struct boot_blob *blobs, uint64_t deadline_ns,
                             struct base_error *error) {
    for (;;) {
        size_t n = 0;
        for (int r = 1; r < boot->size; r++) {
            jackal_status status = read_member(boot, r, here, blobs, error);
            if (status != JACKAL_OK)
                return status;
            if (!here[r])
                polls[n++] = (struct pollfd){.fd = boot->links[r].fd, .events = POLLIN};
        }
        if (n == 0)
            return JACKAL_OK;
        if (base_socket_poll(polls, n, deadline_ns) <= 0)
            return too_late(boot, here, error);
    }
}

/* A member that does not take its blobs may have said why before it stopped. */
static jackal_status not_taken(struct boot *boot, int rank, struct base_error *error) {
    struct boot_link *link = &boot->links[rank];
    struct base_error other, why;
    if (error->status == JACKAL_ERR_TIMEOUT)
        return base_fail_peer(error, JACKAL_ERR_INIT_TIMEOUT, rank,
                              "rank %d (%s) did not take round %u of the set-up in time", rank,
                              link->name, (unsigned)boot->round);
    if (boot_link_read(link, &other) == BOOT_READ_FRAME && link->head.type == WIRE_CONTROL_FAIL &&
        wire_failure_decode(link->payload, link->head.payload_bytes, &why, &other) == JACKAL_OK)
        return base_fail_peer(error, JACKAL_ERR_REMOTE, rank, "rank %d failed: %s", rank, why.text);
    return lost(boot, rank, error);
}

static jackal_status spread(struct boot *boot, const struct boot_blob *blobs, uint64_t deadline_ns,
                            struct base_error *error) {
    for (int r = 1; r < boot->size; r++) {
        for (int from = 0; from < boot->size; from++) {
            uint8_t place[8];
            wire_put_u32(place, boot->round);
            wire_put_u32(place + 4, (uint32_t)from);
            if (boot_link_send(&boot->links[r], WIRE_CONTROL_GATHERED, place, sizeof place,
                               blobs[from].bytes, blobs[from].n_bytes, deadline_ns,
                               error) != JACKAL_OK)
                return not_taken(boot, r, error);
        }
    }
    return JACKAL_OK;
}

static jackal_status gather_at_root(struct boot *boot, struct boot_blob *blobs,
                                    uint64_t deadline_ns, struct base_error *error) {
    bool *here = calloc((size_t)boot->size, sizeof *here);
    struct pollfd *polls = calloc((size_t)boot->size, sizeof *polls);
    jackal_status status;
    if (here == NULL || polls == NULL) {
        status =
            base_fail(error, JACKAL_ERR_MEMORY, "no memory to gather from %d ranks", boot->size);
    } else {
        here[0] = true;
        status = collect(boot, here, polls, blobs, deadline_ns, error);
    }
    free(here);
    free(polls);
    if (status == JACKAL_OK)
        status = spread(boot, blobs, deadline_ns, error);
    if (status != JACKAL_OK)
        boot_fail_all(boot, error);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

static jackal_status take_blob(struct boot *boot, int *n_here, struct boot_blob *blobs,
                               struct base_error *error) {
    struct boot_link *link = &boot->links[0];
    /* Rank 0 sends them in rank order. */
    if (link->head.payload_bytes < 8 || wire_get_u32(link->payload) != boot->round ||
        wire_get_u32(link->payload + 4) != (uint32_t)*n_here)
        return base_fail_peer(error, JACKAL_ERR_PROTOCOL, 0,
                              "rank 0 (%s) is not in round %u of the set-up, as rank %d is",
                              link->name, (unsigned)boot->round, boot->rank);
    return keep_blob(boot, link, 8, (*n_here)++, blobs, error);
}

/* Until all blobs or the verdict are there. */
static jackal_status receive(struct boot *boot, struct boot_blob *blobs, uint64_t deadline_ns,
                             struct base_error *error) {
    struct boot_link *link = &boot->links[0];
    struct base_error why;
    for (int n_here = 0; n_here < boot->size;) {
        jackal_status status = boot_link_wait(link, deadline_ns, error);
        if (status == JACKAL_OK && link->head.type == WIRE_CONTROL_GATHERED)
            status = take_blob(boot, &n_here, blobs, error);
        if (status == JACKAL_OK &&
            (link->head.type == WIRE_CONTROL_VERDICT || link->head.type == WIRE_CONTROL_REFUSED)) {
            status = wire_failure_decode(link->payload, link->head.payload_bytes, &why, error);
            if (status == JACKAL_OK) {
                boot->failed = true;
                *error = why;
                return error->status;
            }
        }
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

static jackal_status gather_at_member(struct boot *boot, const void *bytes, size_t n_bytes,
                                      struct boot_blob *blobs, uint64_t deadline_ns,
                                      struct base_error *error) {
    uint64_t grace_ns = (uint64_t)BOOT_GRACE_MS * 1000000u;
    uint64_t longer_ns = deadline_ns < BASE_NEVER - grace_ns ? deadline_ns + grace_ns : BASE_NEVER;
    uint8_t round[4];
    wire_put_u32(round, boot->round);
    struct base_error first;
    jackal_status sent = boot_link_send(&boot->links[0], WIRE_CONTROL_GATHER, round, sizeof round,
                                        bytes, n_bytes, deadline_ns, &first);
    /* Not sent: rank 0 is gone or stuck, but its reason may lie in the queue. */
    jackal_status status =
        receive(boot, blobs, sent == JACKAL_OK ? longer_ns : base_deadline_ns(10), error);
    if (status == JACKAL_OK || boot->failed || error->peer >= 0)
        return status;
    if (sent != JACKAL_OK)
        *error = first;
    bool late = error->status == JACKAL_ERR_TIMEOUT;
    return base_fail_peer(error, late ? JACKAL_ERR_INIT_TIMEOUT : error->status, 0,
                          "rank %d in round %u of the set-up: rank 0 (%s) %s: %s", boot->rank,
                          (unsigned)boot->round, boot->links[0].name, late ? "is late" : "is gone",
                          error->text);
}

jackal_status boot_all_gather(struct boot *boot, const void *bytes, size_t n_bytes,
                              struct boot_blob *blobs, uint64_t deadline_ns,
                              struct base_error *error) {
    struct base_error unused;
    if (error == NULL)
        error = &unused;
    if (boot->verdict.status != JACKAL_OK) {
        *error = boot->verdict;
        return error->status;
    }
    if (n_bytes > WIRE_CONTROL_BLOB_MAX)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "a gather of %zu bytes: at most %d", n_bytes,
                         WIRE_CONTROL_BLOB_MAX);
    boot->round++;
    jackal_status status;
    if (boot->rank != 0) {
        status = gather_at_member(boot, bytes, n_bytes, blobs, deadline_ns, error);
    } else {
        free(boot->blobs[0]);
        boot->blobs[0] = malloc(n_bytes > 0 ? n_bytes : 1);
        if (boot->blobs[0] == NULL) {
            status = base_fail(error, JACKAL_ERR_MEMORY, "no memory for %zu bytes", n_bytes);
            boot_fail_all(boot, error);
            return status;
        }
        if (n_bytes > 0)
            memcpy(boot->blobs[0], bytes, n_bytes);
        blobs[0] = (struct boot_blob){boot->blobs[0], n_bytes};
        status = gather_at_root(boot, blobs, deadline_ns, error);
    }
    if (status != JACKAL_OK)
        boot->verdict = *error;
    return status;
}

/* A connection that ended, or a frame in front that gives up. */
static bool link_is_over(const struct boot_link *link) {
    uint8_t head_bytes[WIRE_CONTROL_HEAD_BYTES];
    struct wire_control_head head;
    struct base_error ignored;
    bool in_frame = link->n_in > 0 && !boot_link_has_frame(link);
    if (link->fd < 0 || in_frame)
        return false;
    ssize_t n = recv(link->fd, head_bytes, sizeof head_bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0)
        return true;
    if (n < (ssize_t)sizeof head_bytes ||
        wire_control_decode(head_bytes, &head, &ignored) != JACKAL_OK)
        return false;
    return head.type == WIRE_CONTROL_FAIL || head.type == WIRE_CONTROL_VERDICT;
}

bool boot_is_over(const struct boot *boot) {
    for (int r = 0; r < boot->size; r++)
        if (link_is_over(&boot->links[r]))
            return true;
    return false;
}
