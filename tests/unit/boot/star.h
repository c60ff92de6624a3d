/* SPDX-License-Identifier: MIT */
/*
 * The ranks of a meeting as threads of one process, and raw connections that are none. Threads
 * only record what they got; the test's own thread judges it.
 */
#ifndef STAR_H
#define STAR_H

#include "boot/boot_internal.h"

#include <pthread.h>

enum { STAR_MAX = 16 };

struct star_rank {
    struct star *star;
    pthread_t thread;
    struct boot_options options; /* filled by star_prepare(); a test changes what it wants wrong */
    unsigned delay_ms;           /* before it connects */
    struct boot *boot;           /* NULL unless it met */
    jackal_status status;
    struct base_error error;
    uint64_t took_ms;
};

struct star {
    int n; /* threads; more or fewer than the size that they claim, if a test wants so */
    struct star_rank ranks[STAR_MAX];
    int listener;
    uint16_t port;
    char coordinator[32];
    char listen[16];
    void (*body)(struct star_rank *rank); /* runs after the meeting, or NULL */
    struct base_log log;
};

/* Ranks 0…size−1 at an inherited listener of a free port. */
void star_prepare(struct star *star, int size, unsigned timeout_ms);

void star_start(struct star *star);

/* Joins all threads. */
void star_wait(struct star *star);

/* Start and wait. */
void star_run(struct star *star);

/* Frees what is left of the boots. */
void star_free(struct star *star);

/* A connection to the star's port, −1 = none. */
int star_connect(const struct star *star);

/* Sends a hello made of `hello`; returns whether it went out. */
bool star_say(int fd, const struct wire_hello *hello);

/* Reads a head and one frame that carries a failure; false if the connection ended before. */
bool star_read_refusal(int fd, struct wire_hello_head *head, struct base_error *failure);

/* Waits for the end of the connection; false if it lives after timeout_ms. */
bool star_closed(int fd, unsigned timeout_ms);

/* Watches until something happens; QUIET = nothing did in time. */
struct boot_event star_event(struct boot *boot, unsigned timeout_ms);

#endif
