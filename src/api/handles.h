/* SPDX-License-Identifier: MIT */
/* What is behind the public handles. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "base/setting.h"
#include "group/group.h"

#include <jackal/collective.h>
#include <jackal/inspect.h>
#include <jackal/jackal.h>

#include <stdatomic.h>

struct jackal_config {
    struct base_settings settings;
    struct base_error error;
    jackal_log_function log_function;
    void *log_context;
};

struct jackal_group {
    struct group *group;
    uint64_t serial;     /* never used twice, unlike an address */
    unsigned forks;      /* group_forks() when it was made */
    atomic_int n_inside; /* threads in a call: jackal_group_free() waits for them */
};

/* How this thread's last jackal_init() ended: what jackal_config_error(NULL) tells. */
extern _Thread_local struct base_error api_init_error;

/*
 * Remembers the outcome of a call for jackal_error_message() on this thread; returns the status, so
 * that every public call can end with it.
 */
jackal_status api_done(const jackal_group *group, const struct base_error *error);

/* JACKAL_OK, _ERR_ARGUMENT without a group, or _ERR_FORKED if the group is the parent process's. */
jackal_status api_check_group(const jackal_group *group);

/* Name of the public call in front of what arguments.c found. */
jackal_status api_bad_argument(const jackal_group *group, const char *call,
                               struct base_error *error);

#endif
