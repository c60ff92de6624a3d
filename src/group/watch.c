/* SPDX-License-Identifier: MIT */
/*
 * The one progress thread of a process. It sleeps in poll() on the meeting-point connections of all
 * groups, so a death is known at once, whatever the data links do and whether or not somebody
 * waits.
 *
 * Lock order: watch.mutex, then anything that boot_watch() and engine_fail() take.
 */
#include "base/thread.h"
#include "group/group.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* boot_watch() sends the beats that a vanished host does not answer; it must be called this often.
 */
#define LOOK_MS 500

static struct {
    pthread_mutex_t mutex;   /* guards all of it */
    pthread_mutex_t joining; /* one start or end of the thread at a time; taken before mutex */
    struct group *groups;
    pthread_t thread;
    bool running;
    bool stop;
    int wake[2]; /* a byte here makes the thread look again */
} watch = {.mutex = PTHREAD_MUTEX_INITIALIZER, .joining = PTHREAD_MUTEX_INITIALIZER};

static void wake_thread(void) {
    char byte = 0;
    while (write(watch.wake[1], &byte, 1) < 0 && errno == EINTR) {
    }
}

void group_look(void) {
    wake_thread();
}

/* ---- fork --------------------------------------------------------------------------------------
 */

static unsigned forks; /* changed in the child of a fork, where there is one thread */

static void before_fork(void) {
    pthread_mutex_lock(&watch.joining);
    pthread_mutex_lock(&watch.mutex);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&watch.mutex);
    pthread_mutex_unlock(&watch.joining);
}

/* The child lets go of the parent's connections: held open, they would hide the parent's death. */
static void after_fork_in_child(void) {
    for (struct group *group = watch.groups; group != NULL; group = group->next_watched)
        boot_abandon(group->boot);
    if (watch.running) {
        close(watch.wake[0]);
        close(watch.wake[1]);
    }
    watch.groups = NULL;
    watch.running = false;
    forks++;
    after_fork_in_parent();
}

static void register_fork(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void group_prepare_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
}

unsigned group_forks(void) {
    return forks;
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static void take_events(struct group *group) {
    struct boot_event event;
    for (;;) {
        boot_watch(group->boot, &event);
        if (event.kind == BOOT_QUIET)
            return;
        if (event.kind == BOOT_LEFT) {
            engine_peer_left(group->engine, event.error.peer);
            continue;
        }
        engine_fail(group->engine, &event.error); /* first: a log function may take its time */
        base_log(&group->log, JACKAL_LOG_ERROR, "the group failed: %s", event.error.text);
    }
}

/* Under mutex: fills the set with the wake pipe and every connection; NULL = out of memory. */
static struct pollfd *collect(nfds_t *n_p) {
    size_t room = 1;
    for (struct group *group = watch.groups; group != NULL; group = group->next_watched)
        room += (size_t)group->size;
    struct pollfd *set = calloc(room, sizeof *set);
    int *descriptors = calloc(room, sizeof *descriptors);
    nfds_t n = 0;
    if (set != NULL && descriptors != NULL) {
        set[n++] = (struct pollfd){.fd = watch.wake[0], .events = POLLIN};
        for (struct group *group = watch.groups; group != NULL; group = group->next_watched) {
            size_t n_group = boot_descriptors(group->boot, descriptors);
            for (size_t i = 0; i < n_group; i++)
                set[n++] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
        }
    }
    free(descriptors);
    *n_p = n;
    return set;
}

static void *run(void *unused) {
    (void)unused;
    pthread_mutex_lock(&watch.mutex);
    while (!watch.stop) {
        nfds_t n = 0;
        struct pollfd *set = collect(&n);
        pthread_mutex_unlock(&watch.mutex);
        /* Without memory for the set this only waits, and looks again. */
        poll(set, n, LOOK_MS);
        if (n > 0 && (set[0].revents & POLLIN) != 0) {
            char bytes[64];
            while (read(watch.wake[0], bytes, sizeof bytes) > 0) {
            }
        }
        free(set);
        pthread_mutex_lock(&watch.mutex);
        for (struct group *group = watch.groups; group != NULL; group = group->next_watched)
            take_events(group);
    }
    pthread_mutex_unlock(&watch.mutex);
    return NULL;
}

static int open_pipe(int *ends) {
    if (pipe(ends) != 0)
        return errno;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

/* Under joining. */
static jackal_status start(struct base_error *error) {
    int failed = open_pipe(watch.wake);
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_LIMIT, failed, "no pipe for the progress thread");
    watch.stop = false;
    failed = base_thread_start(&watch.thread, run, NULL);
    if (failed != 0) {
        close(watch.wake[0]);
        close(watch.wake[1]);
        return base_fail_errno(error, JACKAL_ERR_LIMIT, failed, "no progress thread");
    }
    watch.running = true;
    return JACKAL_OK;
}

jackal_status group_watch(struct group *group, struct base_error *error) {
    pthread_mutex_lock(&watch.joining);
    jackal_status status = watch.running ? JACKAL_OK : start(error);
    if (status == JACKAL_OK) {
        pthread_mutex_lock(&watch.mutex);
        group->next_watched = watch.groups;
        watch.groups = group;
        pthread_mutex_unlock(&watch.mutex);
        wake_thread();
    }
    pthread_mutex_unlock(&watch.joining);
    return status;
}

void group_unwatch(struct group *group) {
    pthread_mutex_lock(&watch.joining);
    pthread_mutex_lock(&watch.mutex);
    struct group **place = &watch.groups;
    while (*place != NULL && *place != group)
        place = &(*place)->next_watched;
    bool found = *place != NULL;
    if (found)
        *place = group->next_watched;
    bool last = found && watch.groups == NULL;
    watch.stop = last;
    pthread_mutex_unlock(&watch.mutex);
    if (found)
        wake_thread();
    if (last) {
        pthread_join(watch.thread, NULL);
        close(watch.wake[0]);
        close(watch.wake[1]);
        watch.running = false;
    }
    pthread_mutex_unlock(&watch.joining);
}
