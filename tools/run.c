/* SPDX-License-Identifier: MIT */
/* `jackal run`: its options, and the order in which a job is set up and taken down. */
#include "run.h"
#include "option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    OPTION_N,
    OPTION_ENV,
    OPTION_CWD,
    OPTION_GRACE,
    OPTION_TIMEOUT,
    OPTION_KEEP_GOING,
    OPTION_LOG_DIR,
    OPTION_NO_PREFIX,
    OPTION_STDIN,
    OPTION_FABRIC
};

enum { LONGEST_S = 31536000 };

static const struct option run_options[] = {
    [OPTION_N] = {NULL, 'n', OPTION_REQUIRED, "N",
                  "number of ranks, 1 to 64 (default 2, or as many as\n"
                  "the fabric of --fabric=F has hosts)"},
    [OPTION_ENV] = {"env", 0, OPTION_REQUIRED, "K=V",
                    "set a variable in every rank; may be repeated"},
    [OPTION_CWD] = {"cwd", 0, OPTION_REQUIRED, "D", "folder in which the program starts"},
    [OPTION_GRACE] = {"grace", 0, OPTION_REQUIRED, "S",
                      "seconds that ranks have to end by themselves after one\n"
                      "failed or the launcher got a signal (default 5)"},
    [OPTION_TIMEOUT] = {"timeout", 0, OPTION_REQUIRED, "S",
                        "end the job after so many seconds, with status 124\n"
                        "(default 0 = no limit)"},
    [OPTION_KEEP_GOING] = {"keep-going", 0, OPTION_FLAG, NULL,
                           "leave the other ranks alone when one fails"},
    [OPTION_LOG_DIR] = {"log-dir", 0, OPTION_REQUIRED, "D",
                        "also write what each rank prints to D/rank-R.out and\n"
                        "D/rank-R.err; D is made if it is missing"},
    [OPTION_NO_PREFIX] = {"no-prefix", 0, OPTION_FLAG, NULL,
                          "print lines without \"[rank] \" before them"},
    [OPTION_STDIN] = {"stdin", 0, OPTION_REQUIRED, "WHO",
                      "who reads the launcher's stdin: none (default), rank0,\n"
                      "or all (each gets everything)"},
    [OPTION_FABRIC] = {"fabric", 0, OPTION_IF_ATTACHED, "F",
                       "emulated fabric: a JSON file or the JSON itself;\n"
                       "without F the default full mesh (default $JACKAL_FABRIC)"},
};

static const struct option_command run_command = {
    "jackal run",
    "[OPTION...] [--] PROGRAM [ARGUMENT...]",
    "Starts the ranks of a program on this machine, connected by the emulated fabric, forwards\n"
    "what they print and ends them all when one fails.",
    "Each rank gets JACKAL_RANK and JACKAL_SIZE; with two or more also JACKAL_JOB,\n"
    "JACKAL_COORDINATOR, JACKAL_VERBS, JACKAL_DEVICES, JACKAL_FABRIC_NAME and JACKAL_FABRIC_HOST,\n"
    "rank 0 also JACKAL_LISTEN, and JACKAL_LOG is warning unless it is set. PROGRAM is executed "
    "directly, no shell reads its arguments.\n"
    "\n"
    "Exit status: that of the first rank that failed (128 + signal if it was killed); 0 if none\n"
    "did; 124 after --timeout; 128 + signal if the launcher got one; 127 or 126 if PROGRAM is not\n"
    "found or not executable; 2 wrong usage; 1 if the launcher itself failed.",
    run_options,
    sizeof run_options / sizeof run_options[0],
};

static int parse_env(struct run_options *options, const char *value) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value) {
        return option_error(&run_command, "--env takes NAME=VALUE, got \"%s\"", value);
    }
    if (run_plan_owns(value, (size_t)(equals - value))) {
        return option_error(&run_command,
                            "--env cannot set %.*s, the launcher gives it to each rank",
                            (int)(equals - value), value);
    }
    options->settings =
        tool_resize(options->settings, options->n_settings + 1, sizeof *options->settings);
    options->settings[options->n_settings++] = value;
    return 0;
}

static int parse_stdin(struct run_options *options, const char *value) {
    static const char *const words[] = {"none", "rank0", "all"};
    for (int i = 0; i < 3; ++i) {
        if (strcmp(value, words[i]) == 0) {
            options->stdin_mode = (enum run_stdin)i;
            return 0;
        }
    }
    return option_error(&run_command, "--stdin takes none, rank0 or all, got \"%s\"", value);
}

static int parse_one(struct run_options *options, const struct option_scan *scan, int found) {
    int64_t number = 0;
    int bad = 0;
    switch (found) {
    case OPTION_N:
        bad = option_integer(scan, found, 1, RUN_MAX_RANKS, &number);
        options->n_ranks = (int)number;
        return bad;
    case OPTION_ENV:
        return parse_env(options, scan->value);
    case OPTION_CWD:
        options->cwd = scan->value;
        return 0;
    case OPTION_GRACE:
        return option_seconds(scan, found, LONGEST_S, &options->grace_ms);
    case OPTION_TIMEOUT:
        return option_seconds(scan, found, LONGEST_S, &options->timeout_ms);
    case OPTION_KEEP_GOING:
        options->keep_going = true;
        return 0;
    case OPTION_LOG_DIR:
        options->log_dir = scan->value;
        return 0;
    case OPTION_NO_PREFIX:
        options->prefix = false;
        return 0;
    case OPTION_STDIN:
        return parse_stdin(options, scan->value);
    default:
        options->fabric_given = true;
        options->fabric = scan->value;
        return 0;
    }
}

/* OPTION_END, OPTION_HELP or OPTION_BAD. */
static int parse(struct run_options *options, int argc, char **argv) {
    struct option_scan scan;
    option_start(&scan, &run_command, argc, argv);
    int found;
    while ((found = option_next(&scan)) >= 0) {
        if (parse_one(options, &scan, found) != 0) {
            return OPTION_BAD;
        }
    }
    if (found == OPTION_HELP || found == OPTION_BAD) {
        return found;
    }
    options->argv = argv + scan.index - (found == OPTION_OPERAND);
    if (!options->argv[0]) {
        return option_error(&run_command, "no program given");
    }
    return OPTION_END;
}

/* Descriptors 0 to 2 must be taken, or a pipe of ours would become somebody's stdout. */
static int open_standard(void) {
    for (;;) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            return TOOL_FAILED;
        }
        if (fd > 2) {
            close(fd);
            return 0;
        }
        run_set_flag(fd, F_GETFD, F_SETFD, 0);
    }
}

/* Not every rank could be started: those that were cannot do anything useful. */
static void undo_spawn(struct run_job *job, int n_started) {
    for (int rank = 0; rank < n_started; ++rank) {
        kill(-job->ranks[rank].group.id, SIGKILL);
        waitpid(job->ranks[rank].group.id, NULL, 0);
    }
}

static int spawn_all(struct run_job *job) {
    run_input_start(&job->input, job->n_ranks);
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        int status = run_spawn(job->plan, &job->guard, rank, &job->ranks[rank]);
        if (status != 0) {
            undo_spawn(job, rank);
            return status;
        }
        run_output_add(&job->output, rank, &job->ranks[rank], run_now_ms());
        run_input_add(&job->input, rank, job->ranks[rank].pipes[0]);
        ++job->n_alive;
    }
    return 0;
}

/* The leaders are zombies; what else is in their groups has outlived the job. */
static void end_groups(struct run_job *job) {
    struct run_group groups[RUN_MAX_RANKS];
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        groups[rank] = job->ranks[rank].group;
        waitpid(groups[rank].id, NULL, WNOHANG);
    }
    run_groups_end(groups, (size_t)job->n_ranks);
}

static int run_job(struct run_job *job) {
    int status = run_output_start(&job->output, job->plan);
    if (status != 0) {
        return status;
    }
    char *folder = run_folder_path(job->plan);
    status = run_guard_start(&job->guard, folder);
    if (status == 0) {
        status = run_signals_start(job);
    }
    if (status == 0) {
        status = spawn_all(job);
    }
    if (status == 0) {
        run_loop(job);
        end_groups(job);
    }
    run_guard_finish(&job->guard, folder);
    free(folder);
    return status == 0 ? run_report(job) : status;
}

int tool_run(int argc, char **argv) {
    struct run_options options = {.grace_ms = 5000, .prefix = true};
    struct run_plan plan = {.listener = -1};
    int status = TOOL_USAGE;
    int parsed = parse(&options, argc, argv);
    if (parsed == OPTION_HELP) {
        status = TOOL_GOOD;
    } else if (parsed == OPTION_END) {
        status = open_standard();
        if (status != 0) {
            fprintf(stderr, "jackal run: cannot open /dev/null: %s\n", strerror(errno));
        } else {
            status = run_plan_make(&plan, &options);
        }
        if (status == 0) {
            struct run_job *job = tool_resize(NULL, 1, sizeof *job);
            memset(job, 0, sizeof *job);
            job->plan = &plan;
            job->n_ranks = plan.n_ranks;
            job->guard.pipe = -1;
            job->first = -1;
            job->deadline_ms = job->limit_ms = job->flush_ms = -1;
            status = run_job(job);
            run_output_free(&job->output);
            free(job);
        }
    }
    run_plan_free(&plan);
    free(options.settings);
    return status;
}
