/* SPDX-License-Identifier: MIT */
/*
 * A link is one wire between this rank and one other: a FIFO of messages each way, on two queues.
 * What a kind of link must provide is the table below; the engine knows nothing else of it.
 *
 * Contract of every kind
 *  - Messages of one queue arrive complete and in order, or an error is reported; what was lost
 *    without a trace shows in the headers (the engine checks them).
 *  - A send is given to a receive slot that the other end has posted; the engine counts credits, so
 *    a link may rely on it and is never asked to buffer.
 *  - No function blocks. All are called by the one thread that drives the engine; nothing else
 *    touches the link. After the first error only close() is called.
 */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include "base/error.h"

#include <stdbool.h>

/* Small slots hold one frame; bulk slots several. */
enum link_queue { LINK_SMALL, LINK_BULK, LINK_QUEUES };

/* Agreed in the group: how large the slots are and how many each end has posted. */
struct link_geometry {
    uint32_t slot_bytes[LINK_QUEUES];
    uint32_t slots[LINK_QUEUES];
};

enum link_event_kind { LINK_SENT, LINK_ARRIVED };

struct link_event {
    enum link_event_kind kind;
    enum link_queue queue;
    uint32_t id;      /* SENT: the token given to send(); ARRIVED: which receive slot */
    uint32_t n_bytes; /* ARRIVED */
};

/* Memory that a link may send from: `extent` says with which key. */
struct link_buffer {
    uint8_t *bytes;
    int extent;
};

struct link;

struct link_ops {
    const char *kind; /* "verbs" */

    /* Whether send() may be called now on this queue. */
    bool (*room)(const struct link *link, enum link_queue queue);

    /* Hands over the first n_bytes of a buffer. The buffer belongs to the link until an event SENT
     * with this token. On failure nothing was handed over. */
    jackal_status (*send)(struct link *link, enum link_queue queue,
                          const struct link_buffer *buffer, uint32_t n_bytes, uint32_t token,
                          struct base_error *error);

    /* Takes up to `room` events; returns how many, or −1 with `error` filled. */
    int (*poll)(struct link *link, struct link_event *events, int room, struct base_error *error);

    /* Bytes of a receive slot that has arrived and not been reposted. */
    const uint8_t *(*slot)(const struct link *link, enum link_queue queue, uint32_t id);

    /* Gives a receive slot back for the next message. */
    jackal_status (*repost)(struct link *link, enum link_queue queue, uint32_t id,
                            struct base_error *error);

    /* Frees everything, in any state; NULL-safe by link_close(). */
    void (*close)(struct link *link);
};

/* First member of every kind's own struct. */
struct link {
    const struct link_ops *ops;
    int peer;
    int wire;
    char device[64]; /* what it is called here, for messages and statistics */
};

static inline void link_close(struct link *link) {
    if (link != NULL)
        link->ops->close(link);
}

#endif
