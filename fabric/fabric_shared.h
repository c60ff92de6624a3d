/* SPDX-License-Identifier: MIT */
/*
 * What lies in shared memory. Each process has one file: a header, a table of ends, and from
 * FABRIC_RINGS_AT on the rings of its queue pairs, each at an offset that is never used again.
 *
 * The rule that makes it safe: a process writes its own file only and maps those of others
 * read-only, but for the page of the doorbell, where a wrong value costs a look in vain. An end is
 * one half of a connection; its owner writes the bytes it sends into its own ring and publishes
 * `head`; the reader at the other side publishes `tail` in *its* end. So a peer that is stale, slow
 * or gone can at worst make the other side read old bytes; it writes nobody's memory.
 *
 * An end is bound by its `serial`, which no other use of any end has. Who reads a counter of
 * another process loads it with acquire and then checks that the serial (or `attached`) is still
 * the one it was bound to: an owner changes those first and the counters later.
 */
#ifndef FABRIC_SHARED_H
#define FABRIC_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

#define FABRIC_MAGIC  0x4a4b4642u
#define FABRIC_LAYOUT 2u
#define FABRIC_LINE   128 /* Apple's cores; two lines of x86, whose prefetcher takes pairs */

#define FABRIC_MAX_ENDS  4096u
#define FABRIC_BELL_AT   65536u /* a page of any size in use */
#define FABRIC_ENDS_AT   131072u
#define FABRIC_RINGS_AT  ((uint64_t)FABRIC_ENDS_AT + FABRIC_MAX_ENDS * 512u)
#define FABRIC_RING_SIZE (576u * 1024u) /* eight messages of 64 KiB with headers, and some room */

struct fabric_header {
    _Atomic uint32_t magic; /* stored last: the file is complete */
    uint32_t layout;
    uint32_t topology_hash;
    _Atomic uint32_t gone; /* set by who finds the owner dead */
    _Atomic uint32_t n_ends;
};

enum fabric_sleep { FABRIC_AWAKE, FABRIC_ASLEEP, FABRIC_NAPPING };

/* At FABRIC_BELL_AT, writable by all: the owner's NIC thread sleeps on `word`, which whoever rings
 * changes before it looks at `sleep`; the thread does both the other way round. */
struct fabric_bell {
    _Atomic uint32_t word;
    _Atomic uint32_t sleep;
};

struct fabric_end {
    /* Identity. serial is stored last and cleared first; 0 = free. */
    _Atomic uint64_t serial;
    _Atomic uint32_t host;
    _Atomic uint32_t device;
    _Atomic uint32_t qpn;
    _Atomic uint32_t peer_qpn; /* with ring_at: set when the queue pair connects */
    _Atomic uint32_t peer_host;
    _Atomic uint32_t peer_device;
    _Atomic uint64_t ring_at;      /* file offset of the ring, 0 = not connected */
    _Atomic uint32_t is_ready;     /* its state lets it take messages */
    _Atomic uint32_t rings_wanted; /* the owner's bell is to be rung for whatever happens here */
    _Atomic uint64_t rnr_ns;       /* how long a sender pauses when no receive is posted */
    /* The sending half: bytes in the ring so far; messages that may be delivered. */
    _Alignas(FABRIC_LINE) _Atomic uint64_t head;
    _Atomic uint64_t limit;
    _Atomic uint64_t noted; /* messages whose acknowledgement was seen or is not needed */
    /* The receiving half. */
    _Alignas(FABRIC_LINE) _Atomic uint64_t tail; /* bytes taken out of the peer's ring */
    _Atomic uint64_t posted;   /* receives posted so far, told only while attached */
    _Atomic uint64_t taken;    /* messages consumed */
    _Atomic uint64_t attached; /* serial of the end whose ring is mapped here */
    _Atomic uint64_t refused;  /* (number + 1) << 8 | status of the message that failed; 0 = none */
    uint8_t spare[FABRIC_LINE - 5 * sizeof(uint64_t)];
    uint8_t unused[FABRIC_LINE];
};

_Static_assert(sizeof(struct fabric_end) == 512, "the ends have a fixed place in the file");
_Static_assert(sizeof(struct fabric_header) <= FABRIC_BELL_AT, "the header is before the bell");

enum fabric_kind {
    FABRIC_KIND_SEND,
    FABRIC_KIND_WRITE,
    FABRIC_KIND_READ,    /* asks for bytes: header only */
    FABRIC_KIND_RESPONSE /* to the oldest READ that has none */
};

#define FABRIC_FLAG_IMMEDIATE 1u
#define FABRIC_FLAG_SOLICITED 2u

/* In front of each message in a ring; the payload follows, filled up to a multiple of its size. */
struct fabric_message {
    uint64_t number; /* 0-based in this ring: a reader that lost its place notices */
    uint32_t length;
    uint32_t status;     /* what the receive completes with */
    uint64_t arrives_ns; /* not to be taken before; 0 = at once */
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t immediate; /* as it was given: network byte order */
    uint8_t kind;
    uint8_t flags;
    uint8_t spare[22];
};

#define FABRIC_UNIT 64u
_Static_assert(sizeof(struct fabric_message) == FABRIC_UNIT, "messages keep lines whole");
_Static_assert(FABRIC_RING_SIZE % FABRIC_UNIT == 0 && FABRIC_RING_SIZE % 65536 == 0,
               "a ring is whole units and whole pages of any size in use");

#endif
