/* SPDX-License-Identifier: MIT */
/*
 * A verbs library that stands between Jackal and the fabric, passes everything on, and writes down
 * what it was asked for. It is loaded by path as any other provider.
 */
#ifndef WATCHER_H
#define WATCHER_H

#include <stdatomic.h>

struct watcher {
    /* What was asked for, and how often it broke a rule. */
    atomic_int n_qps, n_not_uc, n_wrong_sge, n_inline, n_srq, n_dirty;
    atomic_int n_sends, n_not_signalled, n_not_send, n_lists, n_wrong_length;
    atomic_int n_recvs, n_padded, n_leaks;
    atomic_int max_open_of_a_device, max_regions_of_a_device;
    /* Alive now. */
    atomic_int qps, cqs, mrs, pds, contexts;
    /* The k-th call that can fail fails; 0 = none. Counts from the start of the process. */
    atomic_int fail_at, n_calls;
    atomic_int has_failed;
};

#define WATCHER_SYMBOL "watcher_state"

#endif
