/* SPDX-License-Identifier: MIT */
/*
 * A group: meeting point, wires and engine put together, and what happens when one of them fails.
 */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "base/setting.h"
#include "boot/boot.h"
#include "engine/engine.h"
#include "topology/topology.h"
#include "verbs/verbs.h"

struct group_options {
    int rank, size;
    const char *devices;                  /* value of the setting; NULL for a group of one */
    const struct base_settings *settings; /* the rest is read from here */
    struct base_log log;
};

struct group {
    int rank, size;
    int wires; /* between every two ranks */
    char backend[256];
    struct base_log log;
    struct boot *boot; /* NULL for a group of one */
    struct verbs_provider *provider;
    struct verbs_range staging;
    struct engine *engine;
    struct group *next_watched; /* group/watch.c */
};

/*
 * Sets a group up. Whatever fails on this rank is told to the others before it returns, and what
 * failed on another rank is JACKAL_ERR_REMOTE with its text. Blocks up to the init limit.
 */
jackal_status group_open(const struct group_options *options, struct group **group_p,
                         struct base_error *error);

/* Local and bounded; NULL is allowed. */
void group_close(struct group *group);

/* Fails the group here and tells the others. Any thread. */
void group_abort(struct group *group, const struct base_error *why);

/*
 * How often this process was forked off since the first group was made: a handle with another
 * number belongs to an ancestor. A child has none of its parent's threads, and its devices are not
 * its own.
 */
unsigned group_forks(void);

/* ---- watch.c: the progress thread -------------------------------------------------------------
 */

/* Starts watching the meeting-point connections of a group; the thread starts with the first. */
jackal_status group_watch(struct group *group, struct base_error *error);

/* Lets the thread look now instead of at its next beat. For a group that is watched. */
void group_look(void);

/* To be called before the first group of a process is made; see group_forks(). */
void group_prepare_forks(void);

/* Ends it; the thread ends with the last. No event of this group comes after it. */
void group_unwatch(struct group *group);

#endif
