/* SPDX-License-Identifier: MIT */
#include "boot/boot_meeting.h"

#include <jackal/jackal.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

enum { REPORT_MS = 5000, ACCEPT_PAUSE_MS = 50 };

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns) {
    return a_ns < b_ns ? a_ns : b_ns;
}

void boot_meeting_fail(struct boot_meeting *meeting, const struct base_error *why) {
    if (meeting->failed)
        return;
    struct boot *boot = meeting->boot;
    meeting->failed = true;
    meeting->why = *why;
    for (int r = 1; r < boot->size; r++)
        boot_link_post_failure(&boot->links[r], WIRE_CONTROL_REFUSED, &meeting->why, base_now_ns());
}

/* ---- listening ------------------------------------------------------------------------------- */

static jackal_status open_listener(struct boot_meeting *meeting,
                                   const struct base_address *coordinator,
                                   struct base_error *error) {
    const char *listen = meeting->options->listen;
    struct base_address address = *coordinator;
    int backlog = 2 * meeting->boot->size;
    if (backlog < BOOT_GUESTS_MAX)
        backlog = BOOT_GUESTS_MAX;
    if (listen != NULL && strncmp(listen, "fd:", 3) == 0) {
        /* A second group of the process finds the number used up, or used for something else. */
        meeting->listener = base_socket_adopt(listen, coordinator->port, backlog, error);
        if (meeting->listener >= 0)
            return JACKAL_OK;
        base_log(meeting->boot->log, JACKAL_LOG_INFO, "%s; listening on %s instead", error->text,
                 meeting->options->coordinator);
    } else if (listen != NULL) {
        jackal_status status = base_address_parse(listen, false, &address, error);
        if (status != JACKAL_OK)
            return status;
    }
    return base_socket_listen(&address, backlog, &meeting->listener, error);
}

/* Room in the table, and no recent failure to accept. */
static bool may_accept(const struct boot_meeting *meeting) {
    return meeting->n_guests < BOOT_GUESTS_MAX && base_now_ns() >= meeting->accept_ns;
}

static void accept_guests(struct boot_meeting *meeting) {
    while (meeting->n_guests < BOOT_GUESTS_MAX) {
        int fd = base_socket_accept(meeting->listener);
        if (fd >= 0) {
            boot_guest_arrive(meeting, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        /* Out of descriptors, say: the connection stays in the queue and poll() would spin. */
        char unknown[32];
        base_log(meeting->boot->log, JACKAL_LOG_WARNING, "cannot accept a connection: %s",
                 base_errno_name(errno, unknown, sizeof unknown));
        meeting->accept_ns = base_deadline_ns(ACCEPT_PAUSE_MS);
        return;
    }
}

/* ---- one turn -------------------------------------------------------------------------------- */

/* A seated member says nothing yet; its end frees the place for a restarted one. */
static void watch_seated(struct boot_meeting *meeting, int rank) {
    struct boot *boot = meeting->boot;
    struct boot_link *link = &boot->links[rank];
    if (boot_link_discard(link))
        return;
    if (!meeting->failed)
        base_log(boot->log, JACKAL_LOG_WARNING, "rank %d at %s went away; waiting for it again",
                 rank, link->name);
    boot_link_close(link);
    meeting->n_seated--;
    if (!meeting->failed)
        meeting->here[rank] = false;
}

static size_t fill_polls(struct boot_meeting *meeting, uint64_t *until_ns) {
    struct pollfd *polls = meeting->polls;
    size_t n = 0;
    bool accepting = may_accept(meeting);
    if (!accepting && meeting->n_guests < BOOT_GUESTS_MAX)
        *until_ns = earlier(*until_ns, meeting->accept_ns);
    polls[n++] = (struct pollfd){.fd = accepting ? meeting->listener : -1, .events = POLLIN};
    for (int g = 0; g < meeting->n_guests; g++) {
        polls[n++] = (struct pollfd){.fd = meeting->guests[g].fd, .events = POLLIN};
        *until_ns = earlier(*until_ns, meeting->guests[g].until_ns);
    }
    for (int r = 1; r < meeting->boot->size; r++)
        polls[n++] = (struct pollfd){.fd = meeting->boot->links[r].fd, .events = POLLIN};
    return n;
}

static void turn(struct boot_meeting *meeting, uint64_t until_ns) {
    int n_guests = meeting->n_guests;
    size_t n = fill_polls(meeting, &until_ns);
    int ready = base_socket_poll(meeting->polls, n, until_ns);
    if (ready < 0) {
        struct base_error why;
        base_fail_errno(&why, JACKAL_ERR_SYSTEM, errno, "cannot poll %zu connections", n);
        boot_meeting_fail(meeting, &why);
        return;
    }
    const struct pollfd *links = meeting->polls + 1 + n_guests;
    for (int r = 1; r < meeting->boot->size && ready > 0; r++)
        if (links[r - 1].revents != 0 && meeting->boot->links[r].fd >= 0)
            watch_seated(meeting, r);
    /* From the last to the first: a removed guest is replaced by one that was served already. */
    for (int g = n_guests - 1; g >= 0; g--) {
        struct boot_guest *guest = &meeting->guests[g];
        if (ready > 0 && meeting->polls[1 + g].revents != 0)
            boot_guest_serve(meeting, guest);
        /* Data or not: one that drips a byte a second must not live for ever. */
        if (g >= meeting->n_guests || !base_expired(guest->until_ns))
            continue;
        if (guest->refused)
            boot_guest_remove(meeting, guest);
        else
            boot_guest_reject(meeting, guest, "it did not say hello in time");
    }
    if (ready > 0 && meeting->polls[0].revents != 0)
        accept_guests(meeting);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void time_out(struct boot_meeting *meeting, uint64_t began_ns) {
    struct base_error why;
    char ranks[160];
    int first = boot_missing(meeting->here, meeting->boot->size, ranks, sizeof ranks);
    base_fail_peer(&why, JACKAL_ERR_INIT_TIMEOUT, first,
                   "%d of %d ranks met within %.1f s; missing: %s: are they running, and can they "
                   "reach %s?",
                   meeting->n_seated + 1, meeting->boot->size,
                   (double)(base_now_ns() - began_ns) / 1e9, ranks, meeting->options->coordinator);
    boot_meeting_fail(meeting, &why);
}

static void gather_all(struct boot_meeting *meeting) {
    uint64_t began_ns = base_now_ns(), report_ns = base_deadline_ns(REPORT_MS);
    uint64_t deadline_ns = meeting->options->deadline_ns;
    while (meeting->n_seated < meeting->boot->size - 1 && !meeting->failed) {
        turn(meeting, earlier(deadline_ns, report_ns));
        if (base_expired(report_ns)) {
            char ranks[160];
            boot_missing(meeting->here, meeting->boot->size, ranks, sizeof ranks);
            base_log(meeting->boot->log, JACKAL_LOG_WARNING,
                     "%.0f s at the meeting point %s; missing: %s",
                     (double)(base_now_ns() - began_ns) / 1e9, meeting->options->coordinator,
                     ranks);
            report_ns = base_deadline_ns(REPORT_MS);
        }
        if (base_expired(deadline_ns) && meeting->n_seated < meeting->boot->size - 1)
            time_out(meeting, began_ns);
    }
}

static bool all_told(const struct boot_meeting *meeting) {
    for (int r = 1; r < meeting->boot->size; r++)
        if (!meeting->here[r])
            return false;
    return meeting->n_guests == 0 && meeting->n_seated == 0;
}

/*
 * After a failure: who is here closes when it has read why, and who comes only now is told too,
 * instead of knocking at a closed port until its own deadline. After a time-out nobody is expected.
 */
static void see_off(struct boot_meeting *meeting) {
    bool late = meeting->why.status == JACKAL_ERR_INIT_TIMEOUT;
    uint64_t until_ns = base_deadline_ns(late ? BOOT_FAREWELL_MS / 3 : BOOT_FAREWELL_MS);
    while (!all_told(meeting) && !(late && meeting->n_seated == 0 && meeting->n_guests == 0) &&
           !base_expired(until_ns))
        turn(meeting, until_ns);
}

static void welcome(struct boot *boot) {
    uint8_t payload[16];
    wire_put_u64(payload, boot->incarnation);
    wire_put_u64(payload + 8, boot->features);
    /* A rank that is gone by now is found by the first gather. */
    for (int r = 1; r < boot->size; r++)
        boot_link_post(&boot->links[r], WIRE_CONTROL_WELCOME, payload, sizeof payload,
                       base_now_ns());
}

static jackal_status hold(struct boot_meeting *meeting, struct base_error *error) {
    struct boot *boot = meeting->boot;
    gather_all(meeting);
    if (!meeting->failed && getentropy(&boot->incarnation, sizeof boot->incarnation) != 0) {
        struct base_error why;
        base_fail_errno(&why, JACKAL_ERR_SYSTEM, errno, "no random number for the incarnation");
        boot_meeting_fail(meeting, &why);
    }
    boot->incarnation |= 1; /* 0 stands for "not known yet" */
    if (meeting->failed) {
        see_off(meeting);
        *error = meeting->why;
        return error->status;
    }
    welcome(boot);
    for (int g = meeting->n_guests - 1; g >= 0; g--)
        if (!meeting->guests[g].refused)
            boot_guest_reject(meeting, &meeting->guests[g], "the meeting is over");
    if (boot->n_rejected > 0)
        base_log(boot->log, JACKAL_LOG_INFO, "%llu strangers were turned away at %s",
                 (unsigned long long)boot->n_rejected, meeting->options->coordinator);
    return JACKAL_OK;
}

jackal_status boot_root_meet(struct boot *boot, const struct boot_options *options,
                             const struct base_address *coordinator, struct base_error *error) {
    struct boot_meeting meeting = {.boot = boot, .options = options, .listener = -1};
    size_t size = (size_t)boot->size;
    meeting.guests = calloc(BOOT_GUESTS_MAX, sizeof *meeting.guests);
    meeting.here = calloc(size, sizeof *meeting.here);
    meeting.polls = calloc(1 + BOOT_GUESTS_MAX + size, sizeof *meeting.polls);
    boot->features = options->features;
    jackal_status status;
    if (meeting.guests == NULL || meeting.here == NULL || meeting.polls == NULL) {
        status = base_fail(error, JACKAL_ERR_MEMORY, "no memory for a meeting of %zu ranks", size);
    } else {
        meeting.here[0] = true;
        status = open_listener(&meeting, coordinator, error);
        if (status == JACKAL_OK)
            status = hold(&meeting, error);
    }
    base_socket_close(meeting.listener);
    while (meeting.n_guests > 0)
        boot_guest_remove(&meeting, &meeting.guests[0]);
    free(meeting.guests);
    free(meeting.here);
    free(meeting.polls);
    return status;
}
