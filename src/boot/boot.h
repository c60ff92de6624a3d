/* SPDX-License-Identifier: MIT */
/*
 * The meeting point: how N processes that know only an address become N ranks, exchange what they
 * need for their links, and notice each other's end.
 *
 * A TCP star: rank 0 listens, the others connect. The connections stay open for the life of the
 * group. After boot_connect() a boot is used by one thread at a time during set-up; afterwards
 * boot_watch() belongs to one thread (the progress thread), and boot_report() and boot_leave() may
 * be called by any.
 */
#ifndef BOOT_BOOT_H
#define BOOT_BOOT_H

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdbool.h>

struct boot;

/* A setting that must be the same on all ranks; rank 0 compares and names rank and key. */
struct boot_setting {
    const char *name;
    const char *value;
};

struct boot_options {
    int rank;
    int size;                /* at least 2 */
    const char *coordinator; /* "host:port" or "[v6]:port" of rank 0 */
    const char *listen;      /* rank 0: NULL = the coordinator address, "host:port", or "fd:N",
                                an inherited listening socket */
    const char *job;         /* id of the run; "" matches any */
    uint64_t features;       /* bits that this version knows */
    const struct boot_setting *settings;
    size_t n_settings;
    uint64_t deadline_ns;     /* for the whole meeting */
    uint32_t peer_timeout_ms; /* a host that acknowledges nothing for so long is gone; 0 = 10000 */
    const struct base_log *log;
};

/*
 * Meets all ranks. Strangers are turned away and waited past; a wrong rank, size, job, version or
 * setting is an error of its own on both ends.
 */
jackal_status boot_connect(const struct boot_options *options, struct boot **boot_p,
                           struct base_error *error);

/* Random number of this meeting, the same on all ranks; stale messages do not carry it. */
uint64_t boot_incarnation(const struct boot *boot);

/* What one rank gave to an all_gather; `bytes` belongs to the boot until the next all_gather. */
struct boot_blob {
    const uint8_t *bytes;
    size_t n_bytes;
};

/*
 * Every rank gives n_bytes (its own number, up to 1 MiB) and gets size blobs in rank order.
 * A rank that called boot_fail() instead makes it JACKAL_ERR_REMOTE with that rank and its text.
 */
jackal_status boot_all_gather(struct boot *boot, const void *bytes, size_t n_bytes,
                              struct boot_blob *blobs, uint64_t deadline_ns,
                              struct base_error *error);

/*
 * During set-up, for a loop that waits for something else: whether a rank has given up or is gone,
 * so that the next boot_all_gather() will say which. Only looks, takes nothing.
 */
bool boot_is_over(const struct boot *boot);

/* Tells the others why this rank gives up its set-up. Bounded to a second; then boot_free(). */
void boot_fail(struct boot *boot, const struct base_error *why);

/* ---- after set-up --------------------------------------------------------------------------- */

enum boot_event_kind {
    BOOT_QUIET, /* nothing to report */
    BOOT_LEFT,  /* `error.peer` closed its group in order */
    BOOT_FAILED /* the verdict: error has the status, culprit and text that all ranks get */
};

struct boot_event {
    enum boot_event_kind kind;
    struct base_error error;
};

/* Descriptors to poll for reading, at most size − 1 of them; returns how many. */
size_t boot_descriptors(const struct boot *boot, int *descriptors);

/*
 * Takes the next thing that came in; never blocks. To be called at least every 500 ms, input or
 * not: it sends the beats that a vanished host does not acknowledge. Rank 0 forwards reports and
 * deaths to the others by itself; the first verdict is the only one. A death is BOOT_FAILED with
 * JACKAL_ERR_PEER_LOST.
 */
void boot_watch(struct boot *boot, struct boot_event *event_p);

/* Reports the failure of this rank to rank 0 (rank 0: makes it the verdict). Never blocks long. */
void boot_report(struct boot *boot, const struct base_error *why);

/* Says that this rank leaves in order, so that the others do not take it for dead. */
void boot_leave(struct boot *boot);

/* In the child of a fork: closes the descriptors, which are copies, and says nothing to anybody. */
void boot_abandon(struct boot *boot);

/* Closes every connection. NULL is allowed. */
void boot_free(struct boot *boot);

#endif
