/* SPDX-License-Identifier: MIT */
#include "fake_link.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 128 };

static atomic_int faults, open_ends;

struct message {
    const uint8_t *bytes;
    uint32_t n_bytes, token;
};

/* One direction of one queue; `to` is the receiving end. */
struct path {
    struct message sent[MAX_SLOTS]; /* under way */
    uint32_t first_sent, n_sent;
    uint32_t posted[MAX_SLOTS]; /* receive slots, oldest first */
    uint32_t first_posted, n_posted;
    struct link_event arrived[MAX_SLOTS], done[MAX_SLOTS];
    uint32_t first_arrived, n_arrived, first_done, n_done;
    uint8_t *slots;
    uint32_t lose;        /* counts down; the message at 1 is lost */
    uint32_t outstanding; /* sends without an event */
};

struct wire {
    pthread_mutex_t mutex;
    struct link_geometry geometry;
    struct path paths[2][LINK_QUEUES]; /* [sender's side] */
    uint64_t random;
    int users;
};

struct end {
    struct link base;
    struct wire *wire;
    int side;
};

static uint64_t next_random(struct wire *wire) {
    wire->random = wire->random * 6364136223846793005u + 1442695040888963407u;
    return wire->random >> 33;
}

static struct end *end_of(const struct link *link) {
    return (struct end *)(uintptr_t)link;
}

#define PUSH(path, list, value)                                                                    \
    ((path)->list[((path)->first_##list + (path)->n_##list++) % MAX_SLOTS] = (value))
#define POP(path, list)                                                                            \
    ((path)->n_##list--, (path)->first_##list = ((path)->first_##list + 1) % MAX_SLOTS,            \
     &(path)->list[((path)->first_##list + MAX_SLOTS - 1) % MAX_SLOTS])

/* Moves some of what is under way. */
static void move(struct wire *wire, struct path *path, enum link_queue queue) {
    uint64_t n = next_random(wire) % 4;
    while (n-- > 0 && path->n_sent > 0) {
        struct message message = *POP(path, sent);
        struct link_event done = {LINK_SENT, queue, message.token, 0};
        PUSH(path, done, done);
        if (path->lose > 0 && --path->lose == 0)
            continue;
        if (path->n_posted == 0) {
            atomic_fetch_add(&faults, 1);
            continue;
        }
        uint32_t id = *POP(path, posted);
        memcpy(path->slots + (size_t)id * wire->geometry.slot_bytes[queue], message.bytes,
               message.n_bytes);
        struct link_event arrived = {LINK_ARRIVED, queue, id, message.n_bytes};
        PUSH(path, arrived, arrived);
    }
}

static bool room(const struct link *link, enum link_queue queue) {
    struct end *end = end_of(link);
    pthread_mutex_lock(&end->wire->mutex);
    bool is_free =
        end->wire->paths[end->side][queue].outstanding < end->wire->geometry.slots[queue];
    pthread_mutex_unlock(&end->wire->mutex);
    return is_free;
}

static jackal_status send(struct link *link, enum link_queue queue,
                          const struct link_buffer *buffer, uint32_t n_bytes, uint32_t token,
                          struct base_error *error) {
    struct end *end = end_of(link);
    struct wire *wire = end->wire;
    struct path *path = &wire->paths[end->side][queue];
    if (n_bytes > wire->geometry.slot_bytes[queue] || !room(link, queue)) {
        atomic_fetch_add(&faults, 1);
        return base_fail(error, JACKAL_ERR_LINK_DOWN, "a send that cannot be");
    }
    pthread_mutex_lock(&wire->mutex);
    path->outstanding++;
    struct message message = {buffer->bytes, n_bytes, token};
    PUSH(path, sent, message);
    /* Counted here, where the rule is broken, and not when it is moved. */
    if (path->n_sent > path->n_posted && path->lose == 0)
        atomic_fetch_add(&faults, 1);
    pthread_mutex_unlock(&wire->mutex);
    return JACKAL_OK;
}

static int poll(struct link *link, struct link_event *events, int n_room,
                struct base_error *error) {
    struct end *end = end_of(link);
    struct wire *wire = end->wire;
    int n = 0;
    (void)error;
    pthread_mutex_lock(&wire->mutex);
    for (int queue = 0; queue < LINK_QUEUES; queue++) {
        struct path *out = &wire->paths[end->side][queue];
        struct path *in = &wire->paths[1 - end->side][queue];
        move(wire, out, (enum link_queue)queue);
        move(wire, in, (enum link_queue)queue);
        while (n < n_room && in->n_arrived > 0)
            events[n++] = *POP(in, arrived);
        /* A buffer comes back late now and then. */
        while (n < n_room && out->n_done > 0 && next_random(wire) % 3 != 0) {
            events[n++] = *POP(out, done);
            out->outstanding--;
        }
    }
    pthread_mutex_unlock(&wire->mutex);
    return n;
}

static const uint8_t *slot(const struct link *link, enum link_queue queue, uint32_t id) {
    struct end *end = end_of(link);
    return end->wire->paths[1 - end->side][queue].slots +
           (size_t)id * end->wire->geometry.slot_bytes[queue];
}

static jackal_status repost(struct link *link, enum link_queue queue, uint32_t id,
                            struct base_error *error) {
    struct end *end = end_of(link);
    struct path *path = &end->wire->paths[1 - end->side][queue];
    (void)error;
    pthread_mutex_lock(&end->wire->mutex);
    memset(path->slots + (size_t)id * end->wire->geometry.slot_bytes[queue], 0xdd,
           end->wire->geometry.slot_bytes[queue]);
    PUSH(path, posted, id);
    pthread_mutex_unlock(&end->wire->mutex);
    return JACKAL_OK;
}

static void close_end(struct link *link) {
    struct end *end = end_of(link);
    struct wire *wire = end->wire;
    pthread_mutex_lock(&wire->mutex);
    int left = --wire->users;
    pthread_mutex_unlock(&wire->mutex);
    atomic_fetch_add(&open_ends, -1);
    free(end);
    if (left > 0)
        return;
    for (int side = 0; side < 2; side++)
        for (int queue = 0; queue < LINK_QUEUES; queue++)
            free(wire->paths[side][queue].slots);
    pthread_mutex_destroy(&wire->mutex);
    free(wire);
}

static const struct link_ops ops = {.kind = "fake",
                                    .room = room,
                                    .send = send,
                                    .poll = poll,
                                    .slot = slot,
                                    .repost = repost,
                                    .close = close_end};

static struct link *new_end(struct wire *wire, int side, int peer, int number) {
    struct end *end = calloc(1, sizeof *end);
    if (end == NULL)
        return NULL;
    end->base = (struct link){.ops = &ops, .peer = peer, .wire = number, .device = "fake"};
    end->wire = wire;
    end->side = side;
    wire->users++;
    atomic_fetch_add(&open_ends, 1);
    return &end->base;
}

jackal_status fake_link_pair(const struct link_geometry *geometry, int a, int b, int number,
                             uint64_t seed, struct link **of_a_p, struct link **of_b_p) {
    struct wire *wire = calloc(1, sizeof *wire);
    if (wire == NULL)
        return JACKAL_ERR_MEMORY;
    pthread_mutex_init(&wire->mutex, NULL);
    wire->geometry = *geometry;
    wire->random = seed;
    *of_a_p = new_end(wire, 0, b, number);
    *of_b_p = new_end(wire, 1, a, number);
    for (int side = 0; side < 2; side++) {
        for (int queue = 0; queue < LINK_QUEUES; queue++) {
            struct path *path = &wire->paths[side][queue];
            path->slots = malloc((size_t)geometry->slots[queue] * geometry->slot_bytes[queue]);
            for (uint32_t id = 0; id < geometry->slots[queue]; id++)
                PUSH(path, posted, id);
            if (path->slots == NULL)
                return JACKAL_ERR_MEMORY;
        }
    }
    return *of_a_p != NULL && *of_b_p != NULL ? JACKAL_OK : JACKAL_ERR_MEMORY;
}

void fake_link_lose(struct link *link, enum link_queue queue, uint32_t n) {
    struct end *end = end_of(link);
    pthread_mutex_lock(&end->wire->mutex);
    end->wire->paths[end->side][queue].lose = n;
    pthread_mutex_unlock(&end->wire->mutex);
}

int fake_link_faults(void) {
    return atomic_load(&faults);
}

int fake_link_open_ends(void) {
    return atomic_load(&open_ends);
}
