/* SPDX-License-Identifier: MIT */
/*
 * A verbs library in front of the fabric's: it passes every call on, counts, and lets one of them
 * fail. A rank loads it as its provider, and tells it by failing_verbs_use() where its orders are.
 */
#ifndef FAILING_VERBS_H
#define FAILING_VERBS_H

#include <stdatomic.h>
#include <stdint.h>

enum failing_family {
    FAILING_SETUP, /* every call through a symbol that can fail */
    FAILING_SEND,  /* ibv_post_send */
    FAILING_RECV,  /* ibv_post_recv */
    FAILING_POLL,  /* ibv_poll_cq */
    FAILING_FAMILIES
};

enum failing_object {
    FAILING_CONTEXT,
    FAILING_PD,
    FAILING_MR,
    FAILING_CQ,
    FAILING_QP,
    FAILING_OBJECTS
};

struct failing_orders {
    /* Orders: call number `at` (from 0) of the family fails, or the first one of this name. */
    int family;
    uint64_t at;
    char name[32]; /* set: this call only, whatever at says */
    int code;
    int has_no_devices;
    int has_port_down;
    /* What happened. */
    _Atomic uint64_t n_calls[FAILING_FAMILIES];
    _Atomic int has_struck;
    char struck[32];
    _Atomic int n_after; /* calls of that name after it */
    /* Made and not given back; a call that was made to fail gave it back, too. */
    _Atomic int n_live[FAILING_OBJECTS];
    _Atomic int n_made[FAILING_OBJECTS];
    _Atomic int n_not_uc; /* queue pairs of another type */
    _Atomic uint64_t n_bytes_sent;
    _Atomic int n_part_frames; /* sends that were no whole number of frames */
};

typedef void (*failing_verbs_use_function)(struct failing_orders *orders);

#endif
