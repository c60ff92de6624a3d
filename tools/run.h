/* SPDX-License-Identifier: MIT */
/*
 * The parts of `jackal run`.
 *
 *   run.c         options
 *   run_plan.c    what each rank gets: arguments, environment, device matrix, listening socket
 *   run_spawn.c   fork and exec
 *   run_guard.c   process groups, and the guard process that ends them if the launcher is killed
 *   run_folder.c  removes the folder of the emulated fabric
 *   run_output.c  what ranks print, line by line
 *   run_input.c   what they read
 *   run_loop.c    the launcher's one loop: poll, deaths, signals, deadlines
 *   run_report.c  the last lines
 *
 * The launcher has one thread. Each rank leads a process group of its own, and stays a zombie until
 * the end of the job, so that its number cannot come to mean another process.
 */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include "tool.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    RUN_MAX_RANKS = 64,
    RUN_DEFAULT_RANKS = 2,    /* the fewest that communicate */
    RUN_DEFAULT_HOSTS = 8,    /* of a fabric that nothing describes */
    RUN_KILL_AFTER_MS = 1500, /* from SIGTERM to SIGKILL: a job is over 2 s after the grace */
    RUN_LAST_OUTPUT_MS = 400, /* from SIGKILL to closing pipes that somebody still holds */
    RUN_SAME_TIME_MS = 300, /* deaths this close may be seen in another order than they happened */
    RUN_GIVE_UP_MS = 2000,  /* then, until processes that SIGKILL does not end are left alone */
};

enum run_stdin { RUN_STDIN_NONE, RUN_STDIN_RANK0, RUN_STDIN_ALL };

struct run_options {
    int n_ranks;           /* 0 = not given */
    const char **settings; /* K=V of --env */
    size_t n_settings;
    const char *cwd;
    const char *log_dir;
    int64_t grace_ms;
    int64_t timeout_ms; /* 0 = none */
    bool prefix;
    bool keep_going;
    enum run_stdin stdin_mode;
    bool fabric_given;
    const char *fabric; /* NULL = the default mesh */
    char **argv;        /* of the program, ends with NULL */
};

/* What --cwd, -n, --env and --fabric come to. */
/* Of the description of a fabric; one without any is the default mesh. */
struct json_t;
struct run_fabric {
    int n_hosts;
    int n_wires; /* of a mesh */
    struct json_t *description;
};

/* Prints an error line and returns an exit status if the text or file is no description, else 0. */
int run_fabric_read(struct run_fabric *fabric_p, const char *text);
void run_fabric_free(struct run_fabric *fabric);
/*
 * The device matrix of the first n_ranks hosts, in the order in which they are described. Cell
 * [i][j] holds the devices of host i that lead to host j; null if there are none.
 */
char *run_fabric_matrix(const struct run_fabric *fabric, int n_ranks);

struct run_plan {
    const struct run_options *options;
    int n_ranks;
    struct run_fabric described;
    bool has_fabric;       /* the ranks are hosts of an emulated fabric */
    char *fabric;          /* JACKAL_FABRIC, or NULL */
    char *devices;         /* JACKAL_DEVICES, NULL for one rank */
    char job[33];          /* JACKAL_JOB */
    char fabric_name[25];  /* JACKAL_FABRIC_NAME */
    char coordinator[32];  /* JACKAL_COORDINATOR */
    int listener;          /* of rank 0, until it has it; else -1 */
    struct rlimit n_files; /* what ranks get back: the launcher raises its own limit */
    sigset_t mask;         /* and the signal mask and dispositions that the launcher found */
    struct sigaction interrupt, terminate, hang_up, broken_pipe, child;
};

/* Prints an error line and returns an exit status if it cannot be done, else 0. */
int run_plan_make(struct run_plan *plan, const struct run_options *options);
/* Environment of one rank, one allocation per string and one for the array, ends with NULL. */
char **run_plan_environment(const struct run_plan *plan, int rank);
void run_plan_environment_free(char **environment);
void run_plan_free(struct run_plan *plan);
/* True for the variables that differ by rank or name the job, which --env cannot set. */
bool run_plan_owns(const char *variable, size_t n_name);

/* Group `id` and when its leader started, in a unit of the platform; 0 = not known. */
struct run_group {
    pid_t id;
    uint64_t start;
    bool gone;
};

uint64_t run_process_start(pid_t id);
/*
 * SIGTERM to what is left of the groups, SIGKILL RUN_KILL_AFTER_MS later, until all are gone or
 * another RUN_GIVE_UP_MS have passed. A group whose leader started at another time is not ours.
 */
void run_groups_end(struct run_group *groups, size_t count);

struct run_guard {
    pid_t id;
    int pipe; /* write end */
};

/* `folder` = of the fabric, removed at the end; NULL = there is none. 0 or an exit status. */
int run_guard_start(struct run_guard *guard, const char *folder);
/* From here on the guard ends this group if the launcher dies. */
void run_guard_watch(const struct run_guard *guard, const struct run_group *group);
/* All groups are gone: has the folder removed and waits for that. */
void run_guard_finish(struct run_guard *guard, const char *folder);

/* Path of the folder of this plan's fabric, or NULL if it has none. To be freed. */
char *run_folder_path(const struct run_plan *plan);
/* Removes that one folder, its plain files, and the folder above if that leaves it empty. */
void run_folder_remove(const char *path);

struct run_rank {
    struct run_group group;
    bool alive;
    int status;   /* exit status, or 128 + signal */
    int signal;   /* that it died of, 0 = it exited */
    int pipes[3]; /* the launcher's ends: stdin (-1 = none), stdout, stderr */
};

/*
 * Starts a rank; `guard` knows it before the program runs. 0, or an exit status after an error
 * line: 127 not found, 126 found but not executable, 2 no such --cwd, 1 anything else.
 */
int run_spawn(struct run_plan *plan, const struct run_guard *guard, int rank,
              struct run_rank *process);
/* A pipe that no other program inherits. 0 or -1. */
int run_pipe(int ends[2]);
int run_set_flag(int fd, int get, int set, int flag);

/* Where output goes: the launcher's stdout or stderr, or both if they are the same file. */
struct run_sink {
    int fd;
    bool is_file;             /* never blocks, needs no poll */
    int error;                /* errno of a write that failed: nothing more is written */
    bool open_line;           /* the last byte was not a newline */
    size_t n_line;            /* bytes of that line */
    struct run_stream *owner; /* the stream whose line is open and may go on */
    struct tool_buffer queue;
};

/* What one rank writes to one of its two pipes. */
struct run_stream {
    int fd; /* -1 = at its end */
    int rank;
    int log_fd;      /* of --log-dir, or -1 */
    bool cut;        /* its line was interrupted by another */
    size_t n_whole;  /* bytes of `held` up to the last newline */
    int64_t last_ms; /* when it last wrote, or was last kept from it */
    size_t quota;    /* bytes that are still read once the job is over */
    struct run_sink *sink;
    struct tool_buffer held;
    struct tool_buffer tail; /* stderr: the last bytes, for the report */
};

struct run_output {
    bool prefix;
    bool direct; /* one rank without prefix: bytes pass as they come */
    int width;   /* of the rank in the prefix */
    size_t n_streams;
    struct run_sink sinks[2];
    struct run_sink *by_fd[2];                    /* stdout, stderr */
    struct run_stream streams[2 * RUN_MAX_RANKS]; /* 2 r = stdout of rank r, 2 r + 1 = stderr */
};

enum { RUN_TAIL_BYTES = 8192 };

/* 0 or an exit status after an error line. */
int run_output_start(struct run_output *output, const struct run_plan *plan);
/* The pipes of a rank that was started; the output owns them now. */
void run_output_add(struct run_output *output, int rank, const struct run_rank *process,
                    int64_t now_ms);
/* True if there is room for what this stream has to say. */
bool run_stream_wants(struct run_stream *stream, int64_t now_ms);
void run_stream_read(struct run_output *output, struct run_stream *stream, int64_t now_ms);
/* From now on only what is in the pipe already. */
void run_stream_last(struct run_stream *stream);
/* Moves what may go from the streams to the sinks. */
void run_output_push(struct run_output *output, int64_t now_ms);
/* When run_output_push() has something to do although nobody wrote, or -1. */
int64_t run_output_due(const struct run_output *output);
void run_sink_write(struct run_sink *sink);
/* Puts a text of the launcher on a line of its own. */
void run_sink_say(struct run_sink *sink, const char *text, size_t n_bytes);
bool run_output_done(const struct run_output *output);
void run_output_free(struct run_output *output);

/* The launcher's stdin on its way to the ranks that asked for it. */
struct run_input {
    bool open;
    size_t length;
    int fds[RUN_MAX_RANKS]; /* -1 = does not read */
    size_t sent[RUN_MAX_RANKS];
    int n_ranks;
    char buffer[16384];
};

void run_input_start(struct run_input *input, int n_ranks);
void run_input_add(struct run_input *input, int rank, int fd);
bool run_input_wants(const struct run_input *input);
void run_input_read(struct run_input *input);
bool run_input_pending(const struct run_input *input, int rank);
void run_input_write(struct run_input *input, int rank);
void run_input_close(struct run_input *input);

enum run_level { RUN_GOING, RUN_TERMINATED, RUN_KILLED, RUN_LAST_WORDS, RUN_ABANDONED };

struct run_job {
    struct run_plan *plan;
    struct run_guard guard;
    int n_ranks;
    int n_alive;
    int first;        /* rank that failed first, -1 = none */
    int64_t first_ms; /* when that was seen */
    int interrupted;  /* signal that the launcher got, 0 = none */
    bool timed_out;
    enum run_level level; /* how hard the ranks were asked to end */
    int64_t deadline_ms;  /* of the next level, -1 = none */
    int64_t limit_ms;     /* of --timeout, -1 = none */
    int64_t flush_ms;     /* until when output is delivered after a signal, -1 = no limit */
    int signal_pipe;      /* what the handlers write to */
    struct run_rank ranks[RUN_MAX_RANKS];
    struct run_output output;
    struct run_input input;
};

int64_t run_now_ms(void);
/* Keeps the signals of the launcher for run_loop(); `plan` keeps what was there before. */
int run_signals_start(struct run_job *job);
/* From the first rank's start until all are gone and everything they wrote is delivered. */
void run_loop(struct run_job *job);
/* Queues the summary on stderr; returns the exit status of the job. */
int run_report(struct run_job *job);

#endif
