/* SPDX-License-Identifier: MIT */
#include "boot/boot.h"

#include "boot/boot_internal.h"

#include <stdio.h>
#include <stdlib.h>

static jackal_status check(const struct boot_options *options, struct base_address *coordinator,
                           struct base_error *error) {
    if (options->size < 2 || options->size > UINT16_MAX)
        return base_fail(error, JACKAL_ERR_CONFIG, "size %d: a meeting has 2 to 65535 ranks",
                         options->size);
    if (options->rank < 0)
        return base_fail(error, JACKAL_ERR_CONFIG, "rank %d of %d: ranks are 0 to %d",
                         options->rank, options->size, options->size - 1);
    if (options->coordinator == NULL)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "no meeting point: JACKAL_COORDINATOR must hold \"host:port\" of rank 0");
    if (options->job != NULL && strlen(options->job) >= WIRE_HELLO_TEXT_BYTES)
        return base_fail(error, JACKAL_ERR_CONFIG, "job id of %zu characters: at most %d",
                         strlen(options->job), WIRE_HELLO_TEXT_BYTES - 1);
    return base_address_parse(options->coordinator, false, coordinator, error);
}

static struct boot *new_boot(const struct boot_options *options) {
    struct boot *boot = calloc(1, sizeof *boot);
    if (boot == NULL)
        return NULL;
    boot->rank = options->rank;
    boot->size = options->size;
    boot->log = options->log;
    boot->peer_timeout_ms =
        options->peer_timeout_ms != 0 ? options->peer_timeout_ms : BOOT_PEER_TIMEOUT_MS;
    boot->links = calloc((size_t)options->size, sizeof *boot->links);
    boot->blobs = calloc((size_t)options->size, sizeof *boot->blobs);
    if (boot->links == NULL || boot->blobs == NULL || pthread_mutex_init(&boot->lock, NULL) != 0) {
        free(boot->links);
        free(boot->blobs);
        free(boot);
        return NULL;
    }
    for (int r = 0; r < options->size; r++)
        boot->links[r].fd = -1;
    return boot;
}

/*
 * A rank out of range is wrong whatever rank 0 says. But rank 0 waits for the rank that this
 * process should have, so it gets a chance to hear of it and to fail at once.
 */
static jackal_status meet_out_of_range(struct boot *boot, const struct boot_options *options,
                                       const struct base_address *coordinator,
                                       struct base_error *error) {
    struct boot_options brief = *options;
    uint64_t limit_ns = base_deadline_ns(BOOT_HOPELESS_MS);
    if (limit_ns < brief.deadline_ns)
        brief.deadline_ns = limit_ns;
    jackal_status status = boot_member_meet(boot, &brief, coordinator, error);
    if (status == JACKAL_ERR_CONFIG)
        return status;
    return base_fail(error, JACKAL_ERR_CONFIG, "rank %d of %d: ranks are 0 to %d", options->rank,
                     options->size, options->size - 1);
}

static jackal_status meet(struct boot *boot, const struct boot_options *options,
                          const struct base_address *coordinator, struct base_error *error) {
    if (options->rank >= options->size)
        return meet_out_of_range(boot, options, coordinator, error);
    if (options->rank == 0)
        return boot_root_meet(boot, options, coordinator, error);
    return boot_member_meet(boot, options, coordinator, error);
}

jackal_status boot_connect(const struct boot_options *options, struct boot **boot_p,
                           struct base_error *error) {
    struct base_address coordinator;
    struct base_error unused;
    if (error == NULL)
        error = &unused;
    jackal_status status = check(options, &coordinator, error);
    if (status != JACKAL_OK)
        return status;
    struct boot *boot = new_boot(options);
    if (boot == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "no memory for a meeting of %d ranks",
                         options->size);
    status = meet(boot, options, &coordinator, error);
    if (status != JACKAL_OK) {
        boot_free(boot);
        return status;
    }
    boot->beat_ns = base_deadline_ns(BOOT_BEAT_MS);
    *boot_p = boot;
    return JACKAL_OK;
}

uint64_t boot_incarnation(const struct boot *boot) {
    return boot->incarnation;
}

void boot_fail(struct boot *boot, const struct base_error *why) {
    /* The others know already: the failure came from one of them. */
    if (boot->failed)
        return;
    if (boot->rank == 0) {
        struct base_error verdict;
        base_fail_peer(&verdict, JACKAL_ERR_REMOTE, 0, "rank 0 failed: %s", why->text);
        boot_fail_all(boot, &verdict);
        return;
    }
    boot->failed = true;
    boot->verdict = *why;
    uint64_t deadline_ns = base_deadline_ns(BOOT_FAREWELL_MS);
    boot_link_post_failure(&boot->links[0], WIRE_CONTROL_FAIL, why, deadline_ns);
    boot_links_farewell(boot->links, 1, deadline_ns);
}

void boot_fail_all(struct boot *boot, const struct base_error *why) {
    uint64_t deadline_ns = base_deadline_ns(BOOT_FAREWELL_MS);
    boot->failed = true;
    boot->verdict = *why;
    for (int r = 1; r < boot->size; r++)
        boot_link_post_failure(&boot->links[r], WIRE_CONTROL_VERDICT, why, base_now_ns());
    boot_links_farewell(boot->links, boot->size, deadline_ns);
}

int boot_missing(const bool *here, int size, char *text, size_t n_bytes) {
    enum { NAMED_AT_MOST = 16 };
    int first = -1, n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < size; r++) {
        if (here[r])
            continue;
        if (first < 0)
            first = r;
        if (++n <= NAMED_AT_MOST && used < n_bytes)
            used += (size_t)snprintf(text + used, n_bytes - used, n == 1 ? "%d" : ", %d", r);
    }
    if (n > NAMED_AT_MOST && used < n_bytes)
        snprintf(text + used, n_bytes - used, " and %d more", n - NAMED_AT_MOST);
    return first;
}

void boot_abandon(struct boot *boot) {
    for (int r = 0; r < boot->size; r++) {
        base_socket_close(boot->links[r].fd);
        boot->links[r].fd = -1;
    }
}

void boot_free(struct boot *boot) {
    if (boot == NULL)
        return;
    for (int r = 0; r < boot->size; r++) {
        struct boot_link *link = &boot->links[r];
        if (link->fd >= 0) {
            boot_link_flush(link, base_now_ns());
            /* Unread input would turn the close into a reset, which may overtake a LEAVE. */
            boot_link_discard(link);
        }
        boot_link_close(link);
        free(boot->blobs[r]);
    }
    pthread_mutex_destroy(&boot->lock);
    free(boot->links);
    free(boot->blobs);
    free(boot);
}
