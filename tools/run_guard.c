/* SPDX-License-Identifier: MIT */
/*
 * The guard: a process of the launcher's own that outlives it.
 *
 * It reads records from a pipe whose only write end is the launcher's. At the end of the pipe
 * without a last record the launcher is dead: the guard ends the groups that it knows of and
 * removes the fabric's folder. It has a session of its own and ignores what a terminal or a service
 * manager sends to everybody; it keeps no descriptor of the launcher open but the pipe.
 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

enum { POLL_MS = 20, FINISH_MS = 3000, MANY_DESCRIPTORS = 1024 };

/* group.id 0 = the job is over. Smaller than PIPE_BUF, so records are never torn. */
struct guard_record {
    struct run_group group;
};

#ifdef __APPLE__

uint64_t run_process_start(pid_t id) {
    int name[4] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, id};
    struct kinfo_proc process;
    size_t length = sizeof process;
    if (sysctl(name, 4, &process, &length, NULL, 0) != 0 || length < sizeof process) {
        return 0;
    }
    return (uint64_t)process.kp_proc.p_starttime.tv_sec * 1000000U +
           (uint64_t)process.kp_proc.p_starttime.tv_usec;
}

/* Here kill() fails for a group of zombies. */
static bool has_living_member(pid_t group) {
    (void)group;
    return true;
}

#else

struct process_state {
    char state;
    long group;
    uint64_t start;
};

/*
 * Fields 3, 5 and 22 of /proc/<id>/stat; field 2 is the name, in brackets, and may contain any
 * character. False if there is no such process.
 */
static bool read_process(const char *id, struct process_state *process) {
    enum { GROUP_FIELD = 5, START_FIELD = 22 };
    char text[1024];
    snprintf(text, sizeof text, "/proc/%.20s/stat", id);
    int fd = open(text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n_bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[n_bytes < 0 ? 0 : n_bytes] = '\0';
    const char *field = strrchr(text, ')');
    field = field ? strchr(field, ' ') : NULL;
    for (int number = 3; field && number <= START_FIELD; ++number) {
        if (number == 3) {
            process->state = field[1];
        } else if (number == GROUP_FIELD) {
            process->group = strtol(field, NULL, 10);
        } else if (number == START_FIELD) {
            process->start = strtoull(field, NULL, 10);
            return true;
        }
        field = strchr(field + 1, ' ');
    }
    return false;
}

uint64_t run_process_start(pid_t id) {
    struct process_state process = {0};
    char text[24];
    snprintf(text, sizeof text, "%ld", (long)id);
    return read_process(text, &process) ? process.start : 0;
}

/*
 * Here kill() also finds zombies, and some containers have a first process that is slow to reap
 * them or never does.
 */
static bool has_living_member(pid_t group) {
    DIR *entries = opendir("/proc");
    bool found = entries == NULL; /* not known */
    struct dirent *entry;
    while (!found && (entry = readdir(entries)) != NULL) {
        struct process_state process = {0};
        found = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
                read_process(entry->d_name, &process) && process.group == (long)group &&
                process.state != 'Z' && process.state != 'X';
    }
    if (entries) {
        closedir(entries);
    }
    return found;
}

#endif

/*
 * The number of a group stays taken while the group has a member, so once a look every POLL_MS has
 * found it gone it is never signalled again, and a leader that started at another time belongs to a
 * new group. A group whose leader is gone is ours: it was a moment ago.
 */
static bool is_there(struct run_group *group) {
    if (group->gone) {
        return false;
    }
    uint64_t start = run_process_start(group->id);
    if (kill(-group->id, 0) != 0 || (start != 0 && group->start != 0 && start != group->start) ||
        !has_living_member(group->id)) {
        group->gone = true;
    }
    return !group->gone;
}

/* Signals what is there until nothing is or the time is over; true if nothing is. */
static bool signal_and_wait(struct run_group *groups, size_t count, int signal, int64_t limit_ms) {
    int64_t end_ms = run_now_ms() + limit_ms;
    bool sent = false;
    for (;;) {
        bool any = false;
        for (size_t i = 0; i < count; ++i) {
            if (is_there(&groups[i])) {
                any = true;
                if (!sent || signal == SIGKILL) { /* a fork may have slipped past the first */
                    kill(-groups[i].id, signal);
                }
            }
        }
        if (!any || run_now_ms() >= end_ms) {
            return !any;
        }
        sent = true;
        poll(NULL, 0, POLL_MS);
    }
}

void run_groups_end(struct run_group *groups, size_t count) {
    if (!signal_and_wait(groups, count, SIGTERM, RUN_KILL_AFTER_MS)) {
        signal_and_wait(groups, count, SIGKILL, RUN_GIVE_UP_MS);
    }
}

static void leave_everything(int pipe_end) {
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGTSTP,
                                  SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; ++i) {
        signal(signals[i], SIG_IGN);
    }
    setsid();
    if (chdir("/") != 0) {
        _exit(TOOL_FAILED);
    }
    /* Without /dev/null they stay closed; the guard opens nothing that could take their place. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; ++fd) {
        if (null < 0 || dup2(null, fd) < 0) {
            close(fd);
        }
    }
    /* The launcher's own, and what a shell may have passed on to it. */
    for (int fd = 3; fd < MANY_DESCRIPTORS; ++fd) {
        if (fd != pipe_end) {
            close(fd);
        }
    }
}

static void guard_main(int pipe_end, const char *folder) {
    struct run_group groups[RUN_MAX_RANKS];
    size_t count = 0;
    struct guard_record record;
    leave_everything(pipe_end);
    for (;;) {
        ssize_t n_bytes = read(pipe_end, &record, sizeof record);
        if (n_bytes < 0 && errno == EINTR) {
            continue;
        }
        if (n_bytes != (ssize_t)sizeof record) {
            run_groups_end(groups, count);
            break;
        }
        if (record.group.id == 0) {
            break;
        }
        if (count < RUN_MAX_RANKS) {
            groups[count++] = record.group;
        }
    }
    if (folder) {
        run_folder_remove(folder);
    }
    _exit(TOOL_GOOD);
}

int run_guard_start(struct run_guard *guard, const char *folder) {
    int ends[2];
    if (run_pipe(ends) != 0) {
        fprintf(stderr, "jackal run: no pipe for the guard process: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    guard->id = fork();
    if (guard->id == 0) {
        close(ends[1]);
        guard_main(ends[0], folder);
    }
    close(ends[0]);
    guard->pipe = ends[1];
    if (guard->id < 0) {
        fprintf(stderr, "jackal run: cannot fork the guard process: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    return 0;
}

static void send_record(const struct run_guard *guard, const struct run_group *group) {
    struct guard_record record;
    memset(&record, 0, sizeof record);
    record.group = *group;
    ssize_t n_bytes;
    do {
        n_bytes = write(guard->pipe, &record, sizeof record);
    } while (n_bytes < 0 && errno == EINTR);
    /* A guard that somebody killed cannot be told; run_guard_finish() does its work then. */
}

void run_guard_watch(const struct run_guard *guard, const struct run_group *group) {
    send_record(guard, group);
}

void run_guard_finish(struct run_guard *guard, const char *folder) {
    const struct run_group over = {0};
    int status = -1;
    if (guard->pipe < 0) {
        return;
    }
    if (guard->id > 0) {
        send_record(guard, &over);
        int64_t end_ms = run_now_ms() + FINISH_MS;
        pid_t ended;
        while ((ended = waitpid(guard->id, &status, WNOHANG)) == 0 && run_now_ms() < end_ms) {
            poll(NULL, 0, 1);
        }
        if (ended == 0) {
            kill(guard->id, SIGKILL);
            waitpid(guard->id, &status, 0);
        }
    }
    close(guard->pipe);
    guard->pipe = -1;
    if (status != 0 && folder) {
        run_folder_remove(folder);
    }
}
