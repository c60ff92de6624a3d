/* SPDX-License-Identifier: MIT */
/*
 * The files of a fabric: the one of this process, and those of its peers. All functions are called
 * with the state lock held.
 */
#ifndef FABRIC_SEGMENT_H
#define FABRIC_SEGMENT_H

#include "fabric_shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

#define FABRIC_SLOTS 255u /* upper 8 bits of a queue pair number; 0 is nobody */

/* Rings are mapped with their pages, so that the data path meets no page faults. */
#ifdef MAP_POPULATE
#define FABRIC_MAP_RING (MAP_SHARED | MAP_POPULATE)
#else
#define FABRIC_MAP_RING MAP_SHARED
#endif

/* A mapped ring of the own file. Both ends of a cable in one process use the same mapping. */
struct fabric_own_ring {
    struct fabric_own_ring *next;
    uint64_t at;
    uint8_t *bytes;
    int refs;
};

/* Another process's file, read-only; or this one's own (fd -1). */
struct fabric_peer {
    struct fabric_peer *next;
    uint32_t slot;
    int refs;
    int fd;
    ino_t inode;
    struct fabric_header *header;
    struct fabric_end *ends;
};

struct fabric_segment {
    int root_fd;   /* jackal-<uid> */
    int folder_fd; /* its folder <name> */
    int fd;        /* the own file, locked; closed only at the very end */
    pid_t owner;
    uint32_t slot;
    char file_name[16];
    char folder_name[80];
    char place[256]; /* for texts */
    uint8_t *mapping;
    struct fabric_header *header;
    struct fabric_end *ends;
    uint64_t next_serial;
    uint64_t next_ring;
    uint32_t next_end; /* where the search for a free end goes on: the longest free one is taken */
    uint16_t next_number;
    struct fabric_own_ring *rings;
    struct fabric_peer *peers;
    struct fabric_peer self;
};

struct fabric_topology;

/* Enters the fabric that the topology is a description of. Returns 0 or an errno with a text. */
int fabric_segment_open(struct fabric_segment *segment, const struct fabric_topology *topology);
/* Leaves it: file, and folders that are empty then, are gone. After a fork only the parent's
 * counts. */
void fabric_segment_close(struct fabric_segment *segment);
/* The part of it that others see; for the end of a process that may still use the mapping. */
void fabric_segment_unlink(struct fabric_segment *segment);

/* A queue pair number no live process of this fabric has. */
uint32_t fabric_segment_number(struct fabric_segment *segment);

/* A free end, reserved, with serial still 0. Returns 0 or an errno with a text. */
int fabric_segment_take_end(struct fabric_segment *segment, struct fabric_end **end_p);

/* Reserves and maps a ring. Returns 0 or an errno with a text. */
int fabric_segment_take_ring(struct fabric_segment *segment, uint64_t *at_p, uint8_t **bytes_p);
/* Gives the memory of a ring back to the system; mappings stay valid and read as zeros. */
void fabric_segment_punch_ring(struct fabric_segment *segment, uint64_t at);

/* Storage for a range, so that a full disk is an error here and not a SIGBUS later. */
int fabric_segment_reserve(int fd, uint64_t at, uint64_t n_bytes);
/* Whether the process that has this file of a folder lives; not for the own one. */
bool fabric_segment_is_alive(int folder_fd, uint32_t slot);
/* Where all fabrics are, and the folder in it of those of this user. */
const char *fabric_segment_base(void);
void fabric_segment_root_name(char name[32]);

/* For fabric_peer.c: whether somebody else holds the lock of an opened file; opening one. */
bool fabric_segment_is_locked(int fd);
int fabric_segment_open_other(const struct fabric_segment *segment, const char *name, int flags);

/* fabric_peer.c. The file of the process that owns a queue pair number; NULL if there is none
 * alive. */
struct fabric_peer *fabric_peer_find(struct fabric_segment *segment, uint32_t qpn);
void fabric_peer_drop(struct fabric_segment *segment, struct fabric_peer *peer);
bool fabric_peer_is_dead(const struct fabric_peer *peer);

/* A ring in a peer's file. NULL with errno. */
const uint8_t *fabric_ring_map(struct fabric_segment *segment, struct fabric_peer *peer,
                               uint64_t at);
void fabric_ring_unmap(struct fabric_segment *segment, const struct fabric_peer *peer, uint64_t at,
                       const uint8_t *bytes);

#endif
