/* SPDX-License-Identifier: MIT */
/*
 * The meeting as rank 0 holds it: guests are connections that have not said a whole hello yet,
 * or were refused and are being seen off; a guest whose hello is right is seated as a link.
 *
 * Anybody can connect to a port. So a guest has 2 s, costs at most its 64 KiB of hello, and does
 * not disturb: silence, garbage, a foreign protocol or a process of an earlier run end only that
 * connection. What is well-formed and contradicts this group ends the meeting for all, since no
 * waiting can make it right.
 */
#ifndef BOOT_MEETING_H
#define BOOT_MEETING_H

#include "boot/boot_internal.h"

enum { BOOT_GUESTS_MAX = 128, BOOT_GUEST_MS = 2000 };

struct boot_guest {
    int fd;
    bool refused;      /* the reason is sent; only its end is awaited */
    uint64_t until_ns; /* its patience ends */
    uint8_t head_bytes[WIRE_HELLO_HEAD_BYTES];
    struct wire_hello_head head; /* valid once `body` is there */
    uint8_t *body;
    size_t n_in; /* bytes of head and body that have come */
    char name[BASE_SOCKET_NAME_BYTES];
};

struct boot_meeting {
    struct boot *boot;
    const struct boot_options *options;
    int listener;
    uint64_t accept_ns; /* not before that; 0 = at once */
    struct boot_guest *guests;
    int n_guests;
    bool *here; /* by rank: seated, or told why not */
    int n_seated;
    struct pollfd *polls;
    bool failed; /* `why` is the end of the meeting */
    struct base_error why;
};

/* Ends the meeting with `why` unless something else did before. */
void boot_meeting_fail(struct boot_meeting *meeting, const struct base_error *why);

/* Takes a connection in; false if there is no room. */
bool boot_guest_arrive(struct boot_meeting *meeting, int fd);

/* Receives what is there and acts on it; the guest may be gone afterwards. */
void boot_guest_serve(struct boot_meeting *meeting, struct boot_guest *guest);

/* Closes it and closes the gap: the last guest takes its place. */
void boot_guest_remove(struct boot_meeting *meeting, struct boot_guest *guest);

/* Turns a connection away without a word. */
void boot_guest_reject(struct boot_meeting *meeting, struct boot_guest *guest, const char *why);

/*
 * Compares a hello with this group. JACKAL_OK: seat it. `fatal_p` tells whether a refusal is one
 * for all (a contradiction) or for this connection (another run).
 */
jackal_status boot_hello_judge(const struct boot_meeting *meeting, const struct wire_hello *hello,
                               const char *from, bool *fatal_p, struct base_error *error);

#endif
