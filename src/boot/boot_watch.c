/* SPDX-License-Identifier: MIT */
/*
 * After set-up: the star carries the news of reports, verdicts, leaving and death.
 *
 * Rank 0 decides: the first report or death that it sees is the verdict, goes to all and is never
 * replaced, so that all ranks blame the same one. Deaths that follow are the others giving up.
 */
#include "boot/boot_internal.h"

#include <stdio.h>

/* One call must not be held by a peer that never stops talking. */
enum { FRAMES_AT_ONCE = 64 };

/* Rank 0, lock held. The caller's own watch returns it too. */
static void decide(struct boot *boot, const struct base_error *why, uint64_t deadline_ns) {
    if (boot->failed)
        return;
    boot->failed = true;
    boot->verdict = *why;
    for (int r = 1; r < boot->size; r++)
        boot_link_post_failure(&boot->links[r], WIRE_CONTROL_VERDICT, why, deadline_ns);
}

/* A member takes the verdict of rank 0, or the end of rank 0 for one. Lock held. */
static void accept_verdict(struct boot *boot, const struct base_error *why) {
    if (boot->failed)
        return;
    boot->failed = true;
    boot->verdict = *why;
}

static void fail(struct boot *boot, const struct base_error *why) {
    if (boot->rank == 0)
        decide(boot, why, base_now_ns());
    else
        accept_verdict(boot, why);
}

static int rank_of(const struct boot *boot, const struct boot_link *link) {
    return (int)(link - boot->links);
}

/* The connection ended, in order or not. */
static void close_link(struct boot *boot, struct boot_link *link, const struct base_error *cause) {
    int rank = rank_of(boot, link);
    struct base_error why;
    if (cause->status == JACKAL_ERR_PEER_LOST)
        base_fail_peer(&why, JACKAL_ERR_PEER_LOST, rank, "rank %d (%s) is gone: %s", rank,
                       link->name, cause->text);
    else
        base_fail_peer(&why, cause->status, rank, "rank %d (%s): %s", rank, link->name,
                       cause->text);
    bool in_order = link->left || boot->leaving;
    boot_link_close(link);
    if (!in_order)
        fail(boot, &why);
}

static void left(struct boot_event *event, int rank) {
    event->kind = BOOT_LEFT;
    base_error_clear(&event->error);
    event->error.peer = rank;
    snprintf(event->error.text, sizeof event->error.text, "rank %d left the group", rank);
}

static void take_failure(struct boot *boot, struct boot_link *link) {
    struct base_error why, cause;
    if (wire_failure_decode(link->payload, link->head.payload_bytes, &why, &cause) != JACKAL_OK)
        close_link(boot, link, &cause);
    else
        fail(boot, &why);
}

/* The one that leaves is gone from the star; the others learn it from rank 0. */
static void take_leave(struct boot *boot, struct boot_link *link, struct boot_event *event) {
    int rank = rank_of(boot, link);
    uint8_t payload[4];
    wire_put_u32(payload, (uint32_t)rank);
    link->left = true;
    for (int r = 1; r < boot->size && boot->rank == 0; r++)
        if (r != rank)
            boot_link_post(&boot->links[r], WIRE_CONTROL_LEFT, payload, sizeof payload,
                           base_now_ns());
    left(event, rank);
}

/* Only what the sender's role allows; all else is stepped over, as is a beat. */
static void take_frame(struct boot *boot, struct boot_link *link, struct boot_event *event) {
    bool root = boot->rank == 0;
    uint16_t type = link->head.type;
    if (type == WIRE_CONTROL_LEAVE) {
        take_leave(boot, link, event);
    } else if (root ? type == WIRE_CONTROL_REPORT || type == WIRE_CONTROL_FAIL
                    : type == WIRE_CONTROL_VERDICT) {
        take_failure(boot, link);
    } else if (!root && type == WIRE_CONTROL_LEFT && link->head.payload_bytes >= 4) {
        uint32_t rank = wire_get_u32(link->payload);
        if (rank < (uint32_t)boot->size)
            left(event, (int)rank);
    }
}

static void read_link(struct boot *boot, struct boot_link *link, struct boot_event *event) {
    struct base_error cause;
    for (int i = 0; i < FRAMES_AT_ONCE && link->fd >= 0; i++) {
        enum boot_read result = boot_link_read(link, &cause);
        if (result == BOOT_READ_MORE)
            return;
        if (result == BOOT_READ_END)
            close_link(boot, link, &cause);
        else
            take_frame(boot, link, event);
        if (event->kind != BOOT_QUIET || (boot->failed && !boot->told))
            return;
    }
}

/* Traffic on idle connections, without which a vanished host is not noticed. */
static void beat(struct boot *boot) {
    uint64_t now_ns = base_now_ns();
    bool due = now_ns >= boot->beat_ns;
    uint8_t payload[8];
    wire_put_u64(payload, boot->incarnation);
    for (int r = 0; r < boot->size; r++) {
        struct boot_link *link = &boot->links[r];
        if (link->fd >= 0 && due && !link->left)
            boot_link_post(link, WIRE_CONTROL_BEAT, payload, sizeof payload, now_ns);
        else if (link->fd >= 0)
            boot_link_flush(link, now_ns);
    }
    if (due)
        boot->beat_ns = base_deadline_ns(BOOT_BEAT_MS);
}

size_t boot_descriptors(const struct boot *boot, int *descriptors) {
    size_t n = 0;
    for (int r = 0; r < boot->size; r++)
        if (boot->links[r].fd >= 0)
            descriptors[n++] = boot->links[r].fd;
    return n;
}

void boot_watch(struct boot *boot, struct boot_event *event_p) {
    event_p->kind = BOOT_QUIET;
    base_error_clear(&event_p->error);
    pthread_mutex_lock(&boot->lock);
    beat(boot);
    /* Goes on behind the link that spoke last, so that none is starved. */
    for (int i = 0; i < boot->size && event_p->kind == BOOT_QUIET; i++) {
        if (boot->failed && !boot->told)
            break;
        int rank = (boot->next + i) % boot->size;
        if (boot->links[rank].fd >= 0)
            read_link(boot, &boot->links[rank], event_p);
        if (event_p->kind != BOOT_QUIET)
            boot->next = (rank + 1) % boot->size;
    }
    if (event_p->kind == BOOT_QUIET && boot->failed && !boot->told) {
        boot->told = true;
        event_p->kind = BOOT_FAILED;
        event_p->error = boot->verdict;
    }
    pthread_mutex_unlock(&boot->lock);
}

void boot_report(struct boot *boot, const struct base_error *why) {
    uint64_t deadline_ns = base_deadline_ns(BOOT_POST_MS);
    pthread_mutex_lock(&boot->lock);
    if (boot->rank == 0)
        decide(boot, why, deadline_ns);
    else if (!boot->failed)
        boot_link_post_failure(&boot->links[0], WIRE_CONTROL_REPORT, why, deadline_ns);
    pthread_mutex_unlock(&boot->lock);
}

void boot_leave(struct boot *boot) {
    uint64_t deadline_ns = base_deadline_ns(BOOT_POST_MS);
    pthread_mutex_lock(&boot->lock);
    boot->leaving = true;
    for (int r = 0; r < boot->size; r++)
        boot_link_post(&boot->links[r], WIRE_CONTROL_LEAVE, NULL, 0, deadline_ns);
    pthread_mutex_unlock(&boot->lock);
}
