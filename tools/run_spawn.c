/* SPDX-License-Identifier: MIT */
/*
 * fork and exec of one rank.
 *
 * Between fork and exec the child waits for a byte of the launcher ("go"), which is sent only after
 * the guard has been told of the child. A launcher that is killed before that leaves a child that
 * reads the end of the pipe and exits, so there is no moment at which a rank is nobody's.
 * The "result" pipe closes by itself when exec succeeds and carries errno when it does not.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { START_MS = 30000 }; /* a program on a network file system may take a while */

enum spawn_stage { SPAWN_SETUP, SPAWN_CWD, SPAWN_EXEC };

struct spawn_result {
    enum spawn_stage stage;
    int error;
};

struct spawn_pipes {
    int go[2];
    int result[2];
    int standard[3][2]; /* stdin, stdout, stderr; -1 = none */
};

int run_set_flag(int fd, int get, int set, int flag) {
    int flags = fcntl(fd, get);
    return flags < 0 ? -1 : fcntl(fd, set, flag ? flags | flag : 0);
}

int run_pipe(int ends[2]) {
    if (pipe(ends) != 0) {
        ends[0] = ends[1] = -1;
        return -1;
    }
    if (run_set_flag(ends[0], F_GETFD, F_SETFD, FD_CLOEXEC) != 0 ||
        run_set_flag(ends[1], F_GETFD, F_SETFD, FD_CLOEXEC) != 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        ends[0] = ends[1] = -1;
        errno = error;
        return -1;
    }
    return 0;
}

static void close_end(int *fd) {
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void close_pipes(struct spawn_pipes *pipes) {
    for (int end = 0; end < 2; ++end) {
        close_end(&pipes->go[end]);
        close_end(&pipes->result[end]);
        for (int fd = 0; fd < 3; ++fd) {
            close_end(&pipes->standard[fd][end]);
        }
    }
}

static int open_pipes(struct spawn_pipes *pipes, const struct run_plan *plan, int rank) {
    memset(pipes, 0xff, sizeof *pipes); /* all -1 */
    enum run_stdin mode = plan->options->stdin_mode;
    bool reads = mode == RUN_STDIN_ALL || (mode == RUN_STDIN_RANK0 && rank == 0);
    if (run_pipe(pipes->go) != 0 || run_pipe(pipes->result) != 0 ||
        (reads && run_pipe(pipes->standard[0]) != 0) || run_pipe(pipes->standard[1]) != 0 ||
        run_pipe(pipes->standard[2]) != 0) {
        return -1;
    }
    if (!reads) {
        pipes->standard[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (pipes->standard[0][0] < 0) {
            return -1;
        }
    }
    return 0;
}

static void restore_signals(const struct run_plan *plan) {
    sigaction(SIGINT, &plan->interrupt, NULL);
    sigaction(SIGTERM, &plan->terminate, NULL);
    sigaction(SIGHUP, &plan->hang_up, NULL);
    sigaction(SIGPIPE, &plan->broken_pipe, NULL);
    sigaction(SIGCHLD, &plan->child, NULL);
    sigprocmask(SIG_SETMASK, &plan->mask, NULL);
}

/* In the child; returns only the reason why it could not become the program. */
static struct spawn_result become(const struct run_plan *plan, const struct run_guard *guard,
                                  int rank, struct spawn_pipes *pipes, char **environment) {
    struct spawn_result result = {SPAWN_SETUP, 0};
    char go;
    close(guard->pipe); /* it must close when the launcher dies */
    close_end(&pipes->go[1]);
    setpgid(0, 0);
    if (read(pipes->go[0], &go, 1) != 1) {
        _exit(TOOL_FAILED);
    }
    if (dup2(pipes->standard[0][0], 0) < 0 || dup2(pipes->standard[1][1], 1) < 0 ||
        dup2(pipes->standard[2][1], 2) < 0 ||
        (rank == 0 && plan->listener >= 0 &&
         run_set_flag(plan->listener, F_GETFD, F_SETFD, 0) != 0)) {
        result.error = errno;
        return result;
    }
    setrlimit(RLIMIT_NOFILE, &plan->n_files);
    if (plan->options->cwd && chdir(plan->options->cwd) != 0) {
        result.stage = SPAWN_CWD;
        result.error = errno;
        return result;
    }
    environ = environment; /* so that a PATH of --env is the one searched */
    restore_signals(plan);
    execvp(plan->options->argv[0], plan->options->argv);
    result.stage = SPAWN_EXEC;
    result.error = errno;
    return result;
}

static int explain(const struct run_plan *plan, const struct spawn_result *result) {
    const char *program = plan->options->argv[0];
    switch (result->stage) {
    case SPAWN_CWD:
        fprintf(stderr, "jackal run: cannot start in --cwd \"%s\": %s\n", plan->options->cwd,
                strerror(result->error));
        return TOOL_USAGE;
    case SPAWN_EXEC:
        fprintf(stderr, "jackal run: cannot start \"%s\": %s%s\n", program, strerror(result->error),
                result->error == ENOENT ? "; check its name, PATH and the interpreter it names"
                                        : "");
        return result->error == ENOENT || result->error == ENOTDIR ? 127 : 126;
    default:
        fprintf(stderr, "jackal run: cannot set up a rank: %s\n", strerror(result->error));
        return TOOL_FAILED;
    }
}

/* Reads the result, or the end of the pipe: true = the child became the program. */
static bool has_started(int pipe_end, struct spawn_result *result) {
    int64_t end_ms = run_now_ms() + START_MS;
    for (;;) {
        int64_t left_ms = end_ms - run_now_ms();
        struct pollfd ready = {pipe_end, POLLIN, 0};
        int n_ready = poll(&ready, 1, left_ms > 0 ? (int)left_ms : 0);
        if (n_ready > 0) {
            return read(pipe_end, result, sizeof *result) != (ssize_t)sizeof *result;
        }
        if (n_ready == 0 || errno != EINTR) {
            *result = (struct spawn_result){SPAWN_EXEC, n_ready == 0 ? ETIMEDOUT : errno};
            return false;
        }
    }
}

/* In the launcher: lets the child go on and hears whether it became the program. */
static int release(const struct run_plan *plan, const struct run_guard *guard,
                   struct run_rank *process, struct spawn_pipes *pipes) {
    struct spawn_result result = {SPAWN_SETUP, 0};
    process->group.start = run_process_start(process->group.id);
    run_guard_watch(guard, &process->group);
    close_end(&pipes->result[1]);
    if (write(pipes->go[1], "g", 1) != 1) {
        result.error = errno;
    } else if (has_started(pipes->result[0], &result)) {
        return 0;
    }
    kill(process->group.id, SIGKILL);
    waitpid(process->group.id, NULL, 0);
    return explain(plan, &result);
}

int run_spawn(struct run_plan *plan, const struct run_guard *guard, int rank,
              struct run_rank *process) {
    struct spawn_pipes pipes;
    sigset_t all;
    if (open_pipes(&pipes, plan, rank) != 0) {
        fprintf(stderr, "jackal run: no pipes for rank %d: %s\n", rank, strerror(errno));
        close_pipes(&pipes);
        return TOOL_FAILED;
    }
    char **environment = run_plan_environment(plan, rank);
    sigfillset(&all); /* no handler of the launcher may run in the child */
    sigset_t before;
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t id = fork();
    if (id == 0) {
        struct spawn_result result = become(plan, guard, rank, &pipes, environment);
        ssize_t n_bytes = write(pipes.result[1], &result, sizeof result);
        _exit(n_bytes == (ssize_t)sizeof result ? TOOL_FAILED : TOOL_USAGE);
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    run_plan_environment_free(environment);
    int status = TOOL_FAILED;
    if (id < 0) {
        fprintf(stderr, "jackal run: cannot fork rank %d: %s\n", rank, strerror(error));
    } else {
        setpgid(id, id); /* as the child does: whoever is first */
        *process = (struct run_rank){.group = {.id = id}, .alive = true};
        status = release(plan, guard, process, &pipes);
    }
    if (status == 0) {
        process->pipes[0] = pipes.standard[0][1];
        process->pipes[1] = pipes.standard[1][0];
        process->pipes[2] = pipes.standard[2][0];
        pipes.standard[0][1] = pipes.standard[1][0] = pipes.standard[2][0] = -1;
    }
    close_pipes(&pipes);
    if (rank == 0 && plan->listener >= 0) {
        close(plan->listener); /* rank 0 has it, and nobody else ever does */
        plan->listener = -1;
    }
    return status;
}
