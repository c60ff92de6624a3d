/* SPDX-License-Identifier: MIT */
/*
 * The files of others, mapped read-only but for the doorbell, and their rings. Where the other end
 * of a cable is in this very process, its file is the own one: that must not be opened again
 * (closing it would drop the lock), so the mappings that are there already are used.
 */
#include "fabric_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void peer_release(struct fabric_peer *peer) {
    munmap(peer->header, FABRIC_RINGS_AT);
    close(peer->fd);
    free(peer);
}

/* Maps an opened file of another process if its owner lives and is of our kind; takes over fd. */
static struct fabric_peer *peer_map(struct fabric_segment *segment, uint32_t slot, int fd) {
    struct fabric_peer *peer = calloc(1, sizeof *peer);
    struct stat status;
    void *mapping;

    if (peer == NULL || fstat(fd, &status) != 0 || status.st_size < (off_t)FABRIC_RINGS_AT ||
        !fabric_segment_is_locked(fd)) {
        free(peer);
        close(fd);
        return NULL;
    }
    mapping = mmap(NULL, FABRIC_RINGS_AT, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping != MAP_FAILED &&
        mmap((uint8_t *)mapping + FABRIC_BELL_AT, FABRIC_ENDS_AT - FABRIC_BELL_AT,
             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             (off_t)FABRIC_BELL_AT) == MAP_FAILED) {
        munmap(mapping, FABRIC_RINGS_AT);
        mapping = MAP_FAILED;
    }
    if (mapping == MAP_FAILED) {
        free(peer);
        close(fd);
        return NULL;
    }
    peer->slot = slot;
    peer->refs = 1;
    peer->fd = fd;
    peer->inode = status.st_ino;
    peer->header = mapping;
    peer->ends = (struct fabric_end *)(void *)((uint8_t *)mapping + FABRIC_ENDS_AT);
    if (atomic_load_explicit(&peer->header->magic, memory_order_acquire) != FABRIC_MAGIC ||
        peer->header->layout != FABRIC_LAYOUT ||
        peer->header->topology_hash != segment->header->topology_hash) {
        peer_release(peer);
        return NULL;
    }
    peer->next = segment->peers;
    segment->peers = peer;
    return peer;
}

struct fabric_peer *fabric_peer_find(struct fabric_segment *segment, uint32_t qpn) {
    uint32_t slot = qpn >> 16;
    char name[16];
    struct stat status;
    int fd;

    if (slot == segment->slot) {
        segment->self.refs++;
        return &segment->self;
    }
    if (slot == 0 || slot > FABRIC_SLOTS) {
        return NULL;
    }
    snprintf(name, sizeof name, "p%03u", slot);
    fd = fabric_segment_open_other(segment, name, O_RDWR);
    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &status) == 0) {
        for (struct fabric_peer *peer = segment->peers; peer != NULL; peer = peer->next) {
            if (peer->slot == slot && peer->inode == status.st_ino) {
                peer->refs++;
                close(fd);
                return peer;
            }
        }
    }
    return peer_map(segment, slot, fd);
}

void fabric_peer_drop(struct fabric_segment *segment, struct fabric_peer *peer) {
    struct fabric_peer **at = &segment->peers;

    if (peer == NULL || --peer->refs > 0 || peer == &segment->self) {
        return;
    }
    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    peer_release(peer);
}

bool fabric_peer_is_dead(const struct fabric_peer *peer) {
    return peer->fd >= 0 && (atomic_load_explicit(&peer->header->gone, memory_order_relaxed) != 0 ||
                             !fabric_segment_is_locked(peer->fd));
}

static struct fabric_own_ring **own_ring_find(struct fabric_segment *segment, uint64_t at) {
    struct fabric_own_ring **place = &segment->rings;

    while (*place != NULL && (*place)->at != at) {
        place = &(*place)->next;
    }
    return place;
}

const uint8_t *fabric_ring_map(struct fabric_segment *segment, struct fabric_peer *peer,
                               uint64_t at) {
    void *bytes;

    if (peer == &segment->self) {
        struct fabric_own_ring *ring = *own_ring_find(segment, at);

        if (ring == NULL) {
            errno = ENOENT;
            return NULL;
        }
        ring->refs++;
        return ring->bytes;
    }
    /* The offset comes from the peer's file: behind its end every access would be a SIGBUS. */
    struct stat entry;
    if (fstat(peer->fd, &entry) != 0 || at < FABRIC_RINGS_AT || at % FABRIC_UNIT != 0 ||
        at > (uint64_t)entry.st_size || (uint64_t)entry.st_size - at < FABRIC_RING_SIZE) {
        errno = EINVAL;
        return NULL;
    }
    bytes = mmap(NULL, FABRIC_RING_SIZE, PROT_READ, FABRIC_MAP_RING, peer->fd, (off_t)at);
    return bytes == MAP_FAILED ? NULL : bytes;
}

void fabric_ring_unmap(struct fabric_segment *segment, const struct fabric_peer *peer, uint64_t at,
                       const uint8_t *bytes) {
    struct fabric_own_ring **place;
    struct fabric_own_ring *ring;

    if (peer != &segment->self) {
        munmap((void *)(uintptr_t)bytes, FABRIC_RING_SIZE);
        return;
    }
    place = own_ring_find(segment, at);
    ring = *place;
    if (ring != NULL && --ring->refs == 0) {
        *place = ring->next;
        munmap(ring->bytes, FABRIC_RING_SIZE);
        free(ring);
    }
}
