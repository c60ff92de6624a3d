/* SPDX-License-Identifier: MIT */
#include "boot/boot_meeting.h"

#include <jackal/jackal.h>

#include <stdlib.h>
#include <sys/socket.h>

bool boot_guest_arrive(struct boot_meeting *meeting, int fd) {
    if (meeting->n_guests == BOOT_GUESTS_MAX)
        return false;
    struct boot_guest *guest = &meeting->guests[meeting->n_guests++];
    *guest = (struct boot_guest){.fd = fd, .until_ns = base_deadline_ns(BOOT_GUEST_MS)};
    base_socket_name(fd, false, guest->name, sizeof guest->name);
    return true;
}

void boot_guest_remove(struct boot_meeting *meeting, struct boot_guest *guest) {
    base_socket_close(guest->fd);
    free(guest->body);
    *guest = meeting->guests[--meeting->n_guests];
}

void boot_guest_reject(struct boot_meeting *meeting, struct boot_guest *guest, const char *why) {
    meeting->boot->n_rejected++;
    base_log(meeting->boot->log, JACKAL_LOG_DEBUG, "turned away %s: %s", guest->name, why);
    boot_guest_remove(meeting, guest);
}

/* A head of our own and one frame; a fresh connection has room for both, so nothing waits. */
static void answer(int fd, uint16_t type, const struct base_error *why) {
    uint8_t bytes[WIRE_HELLO_HEAD_BYTES + WIRE_CONTROL_HEAD_BYTES + WIRE_CONTROL_SMALL_MAX];
    uint8_t *frame = bytes + WIRE_HELLO_HEAD_BYTES;
    wire_hello_head_encode(&(struct wire_hello_head){WIRE_HELLO_VERSION, WIRE_HELLO_OLDEST, 0},
                           bytes);
    size_t n_payload = 0, done;
    if (why != NULL)
        n_payload =
            wire_failure_encode(why, frame + WIRE_CONTROL_HEAD_BYTES, WIRE_CONTROL_SMALL_MAX);
    wire_control_encode(&(struct wire_control_head){type, (uint32_t)n_payload}, frame);
    /* A peer that is gone by now is found by its end of the connection. */
    (void)base_socket_send_some(fd, bytes,
                                WIRE_HELLO_HEAD_BYTES + WIRE_CONTROL_HEAD_BYTES + n_payload, &done);
}

/* Tells the reason and waits for the guest to take it: a close now might reset the connection. */
static void refuse(struct boot_guest *guest, const struct base_error *why) {
    answer(guest->fd, WIRE_CONTROL_REFUSED, why);
    shutdown(guest->fd, SHUT_WR);
    guest->refused = true;
    guest->until_ns = base_deadline_ns(BOOT_FAREWELL_MS);
}

/* The connection of the guest becomes the link of its rank. */
static void seat(struct boot_meeting *meeting, struct boot_guest *guest,
                 const struct wire_hello *hello) {
    struct boot *boot = meeting->boot;
    answer(guest->fd, WIRE_CONTROL_SEATED, NULL);
    boot_link_open(&boot->links[hello->rank], guest->fd, boot->peer_timeout_ms);
    boot->features &= hello->features;
    meeting->here[hello->rank] = true;
    meeting->n_seated++;
    base_log(boot->log, JACKAL_LOG_INFO, "rank %u joined from %s (%d of %d)", (unsigned)hello->rank,
             guest->name, meeting->n_seated + 1, boot->size);
    guest->fd = -1;
    boot_guest_remove(meeting, guest);
}

/* An earlier claimant that died meanwhile left its place free. */
static void free_place_of_dead(struct boot_meeting *meeting, uint32_t rank) {
    if (rank >= (uint32_t)meeting->boot->size)
        return;
    struct boot_link *link = &meeting->boot->links[rank];
    if (link->fd >= 0 && !boot_link_discard(link)) {
        boot_link_close(link);
        meeting->here[rank] = false;
        meeting->n_seated--;
    }
}

static void hear(struct boot_meeting *meeting, struct boot_guest *guest) {
    struct wire_hello hello;
    struct base_error why;
    if (wire_hello_decode(guest->body, guest->head.body_bytes, &hello, &why) != JACKAL_OK) {
        boot_guest_reject(meeting, guest, why.text);
        return;
    }
    free_place_of_dead(meeting, hello.rank);
    bool fatal;
    if (boot_hello_judge(meeting, &hello, guest->name, &fatal, &why) == JACKAL_OK &&
        !meeting->failed) {
        seat(meeting, guest, &hello);
        return;
    }
    if (fatal && !meeting->failed)
        boot_meeting_fail(meeting, &why);
    if (fatal) {
        why = meeting->why;
        if (hello.rank < (uint32_t)meeting->boot->size)
            meeting->here[hello.rank] = true;
    } else {
        meeting->boot->n_rejected++;
        base_log(meeting->boot->log, JACKAL_LOG_WARNING, "%s", why.text);
    }
    refuse(guest, &why);
}

static void refuse_version(struct boot_meeting *meeting, struct boot_guest *guest) {
    struct base_error why;
    base_fail(
        &why, JACKAL_ERR_PROTOCOL,
        "version mismatch: the process at %s speaks hello version %u to %u, rank 0 version %d "
        "to %d: install the same Jackal on all",
        guest->name, (unsigned)guest->head.oldest, (unsigned)guest->head.version, WIRE_HELLO_OLDEST,
        WIRE_HELLO_VERSION);
    boot_meeting_fail(meeting, &why);
    refuse(guest, &meeting->why);
}

/* The head is complete: make room for a body of the size that it bounds. */
static bool head_done(struct boot_meeting *meeting, struct boot_guest *guest) {
    const struct wire_hello_head ours = {WIRE_HELLO_VERSION, WIRE_HELLO_OLDEST, 0};
    if (!wire_hello_compatible(&guest->head, &ours)) {
        refuse_version(meeting, guest);
        return false;
    }
    guest->body = malloc(guest->head.body_bytes + 1);
    if (guest->body != NULL)
        return true;
    boot_guest_reject(meeting, guest, "no memory for its hello");
    return false;
}

/* What a refused guest still sends is of no interest; its end is. */
static void serve_refused(struct boot_meeting *meeting, struct boot_guest *guest) {
    uint8_t waste[512];
    size_t done;
    if (base_socket_recv_some(guest->fd, waste, sizeof waste, &done) != 0)
        boot_guest_remove(meeting, guest);
}

/* Some bytes of the head have come: is it one? False if the guest is refused or gone. */
static bool serve_head(struct boot_meeting *meeting, struct boot_guest *guest) {
    struct base_error why;
    jackal_status status =
        wire_hello_head_decode(guest->head_bytes, guest->n_in, &guest->head, &why);
    if (status == JACKAL_OK)
        return head_done(meeting, guest);
    if (status < 0)
        boot_guest_reject(meeting, guest, why.text);
    return status == JACKAL_PENDING;
}

void boot_guest_serve(struct boot_meeting *meeting, struct boot_guest *guest) {
    if (guest->refused) {
        serve_refused(meeting, guest);
        return;
    }
    for (;;) {
        bool in_head = guest->body == NULL;
        size_t goal = WIRE_HELLO_HEAD_BYTES + (in_head ? 0 : guest->head.body_bytes);
        if (guest->n_in == goal) {
            hear(meeting, guest);
            return;
        }
        uint8_t *to = in_head ? guest->head_bytes + guest->n_in
                              : guest->body + (guest->n_in - WIRE_HELLO_HEAD_BYTES);
        size_t done;
        if (base_socket_recv_some(guest->fd, to, goal - guest->n_in, &done) != 0) {
            boot_guest_reject(meeting, guest, "it closed before it said hello");
            return;
        }
        guest->n_in += done;
        if (done == 0 || (in_head && !serve_head(meeting, guest)))
            return;
    }
}
