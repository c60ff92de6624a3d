/* SPDX-License-Identifier: MIT */
/*
 * What the files of this folder share: a boot, its links, and how frames go over them.
 */
#ifndef BOOT_INTERNAL_H
#define BOOT_INTERNAL_H

#include "base/address.h"
#include "base/socket.h"
#include "boot/boot.h"
#include "wire/control.h"
#include "wire/hello.h"

#include <pthread.h>

enum {
    BOOT_BEAT_MS = 500,           /* traffic on an idle connection */
    BOOT_PEER_TIMEOUT_MS = 10000, /* a host that acknowledges nothing for so long is gone */
    BOOT_POST_MS = 100,           /* a report, a verdict or a leave waits no longer for room */
    BOOT_GRACE_MS = 500,     /* a member waits so much longer, since rank 0 knows who is missing */
    BOOT_HOPELESS_MS = 2000, /* a rank out of range tells rank 0 within that, or not */
    BOOT_FAREWELL_MS = 1000, /* for the others to take the reason of a failed set-up */
    BOOT_OUT_BYTES = WIRE_CONTROL_HEAD_BYTES + WIRE_CONTROL_SMALL_MAX
};

/* One connection of the star, and the frame that is coming in on it. */
struct boot_link {
    int fd;    /* −1 = closed, or never there */
    bool left; /* it said LEAVE: the end of the connection is in order */
    char name[BASE_SOCKET_NAME_BYTES];
    uint8_t head_bytes[WIRE_CONTROL_HEAD_BYTES];
    struct wire_control_head head; /* valid once n_in ≥ the head's size */
    uint8_t *payload;              /* room bytes; the caller may take it away */
    size_t room;
    size_t n_in; /* bytes of head and payload that have come */
    uint8_t out[BOOT_OUT_BYTES];
    size_t n_out; /* rest of a frame that did not fit into the socket */
};

struct boot {
    int rank;
    int size;
    uint32_t peer_timeout_ms;
    const struct base_log *log;
    uint64_t incarnation;
    uint64_t features;       /* that all ranks have */
    uint64_t n_rejected;     /* strangers and stale processes that rank 0 turned away */
    struct boot_link *links; /* by rank: rank 0 has all but its own, a member has [0] only */
    uint8_t **blobs;         /* of the last gather, by rank */
    uint32_t round;          /* of gathers */

    /*
     * After set-up. `lock` guards what more than one thread may touch: sending on a link, closing
     * it, and the fields below. Only the watching thread receives and closes.
     */
    pthread_mutex_t lock;
    bool failed; /* there is a verdict; during set-up: it was told to all */
    bool told;   /* boot_watch() returned it */
    bool leaving;
    struct base_error verdict;
    uint64_t beat_ns; /* when the next beat is due */
    int next;         /* link that the next boot_watch() begins with */
};

/* ---- links (boot_link.c) --------------------------------------------------------------------- */

/* A whole frame has come in and was not yet followed by another byte. */
static inline bool boot_link_has_frame(const struct boot_link *link) {
    return link->n_in >= WIRE_CONTROL_HEAD_BYTES &&
           link->n_in == WIRE_CONTROL_HEAD_BYTES + link->head.payload_bytes;
}

void boot_link_open(struct boot_link *link, int fd, uint32_t peer_timeout_ms);
void boot_link_close(struct boot_link *link);

enum boot_read { BOOT_READ_MORE, BOOT_READ_FRAME, BOOT_READ_END };

/*
 * Goes on receiving, never blocks. FRAME: `head` and `payload` hold a frame until the next call.
 * END: the connection closed, broke or sent nonsense; `error` says which, without naming a rank.
 */
enum boot_read boot_link_read(struct boot_link *link, struct base_error *error);

/* The same, blocking: JACKAL_OK = a frame, JACKAL_ERR_TIMEOUT, or what ended the connection. */
jackal_status boot_link_wait(struct boot_link *link, uint64_t deadline_ns,
                             struct base_error *error);

/* Sends a frame whose payload comes in two parts; blocks until the deadline. For set-up. */
jackal_status boot_link_send(struct boot_link *link, uint16_t type, const void *first,
                             size_t n_first, const void *second, size_t n_second,
                             uint64_t deadline_ns, struct base_error *error);

/*
 * Sends a small frame whole or not at all; waits until the deadline for room. What had begun and
 * found none is kept and goes first next time. Call with the lock held once set-up is over.
 */
bool boot_link_post(struct boot_link *link, uint16_t type, const void *payload, size_t n_payload,
                    uint64_t deadline_ns);
bool boot_link_post_failure(struct boot_link *link, uint16_t type, const struct base_error *why,
                            uint64_t deadline_ns);

/* Sends the rest of a begun frame; true if nothing is left. */
bool boot_link_flush(struct boot_link *link, uint64_t deadline_ns);

/* Throws away what has come; false once the other end has closed too. Never blocks. */
bool boot_link_discard(struct boot_link *link);

/*
 * Closes the sending sides and waits until the others have taken what was sent and closed. A
 * plain close() with unread input would reset the connection, and the last words with it.
 */
void boot_links_farewell(struct boot_link *links, int n_links, uint64_t deadline_ns);

/* ---- set-up ---------------------------------------------------------------------------------- */

jackal_status boot_root_meet(struct boot *boot, const struct boot_options *options,
                             const struct base_address *coordinator, struct base_error *error);
jackal_status boot_member_meet(struct boot *boot, const struct boot_options *options,
                               const struct base_address *coordinator, struct base_error *error);

/* Rank 0, during set-up: makes *why the end of it for all and sees it delivered. */
void boot_fail_all(struct boot *boot, const struct base_error *why);

/* "1, 2 and 5": the ranks for which `here` is false, cut off after some. Returns the first, −1
 * none. */
int boot_missing(const bool *here, int size, char *text, size_t n_bytes);

#endif
