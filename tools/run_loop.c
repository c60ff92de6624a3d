/* SPDX-License-Identifier: MIT */
/*
 * The launcher's loop. It sleeps in poll() until a rank prints, reads or dies, a signal comes, or a
 * deadline passes; nothing in it blocks otherwise.
 *
 * How a job ends, by levels, each with a deadline for the next:
 *   GOING       a rank failed: the others have the grace to report what they saw
 *   TERMINATED  they got SIGTERM (or the launcher's own signal, which has the grace after it)
 *   KILLED      they got SIGKILL
 *   LAST_WORDS  pipes that somebody outside the groups still holds are emptied and closed
 *   ABANDONED   a process did not go even so
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STATUS_SIGNAL = 128 };

/* A handler can know nothing but a global. */
static volatile sig_atomic_t handler_pipe = -1;

int64_t run_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void on_signal(int signal) {
    int error = errno;
    unsigned char byte = (unsigned char)signal;
    /* A full pipe has woken the loop already, and only SIGCHLD comes often enough to fill it. */
    ssize_t ignored = write(handler_pipe, &byte, 1);
    (void)ignored;
    errno = error;
}

static void catch_signal(int signal, struct sigaction *before) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    sigaction(signal, NULL, before);
    if (before->sa_handler != SIG_IGN || signal == SIGCHLD) { /* nohup stays nohup */
        sigaction(signal, &action, NULL);
    }
}

int run_signals_start(struct run_job *job) {
    struct run_plan *plan = job->plan;
    int ends[2];
    if (run_pipe(ends) != 0) {
        fprintf(stderr, "jackal run: no pipe for signals: %s\n", strerror(errno));
        return TOOL_FAILED;
    }
    run_set_flag(ends[0], F_GETFL, F_SETFL, O_NONBLOCK);
    run_set_flag(ends[1], F_GETFL, F_SETFL, O_NONBLOCK);
    job->signal_pipe = ends[0];
    handler_pipe = ends[1];
    sigset_t needed;
    sigemptyset(&needed);
    sigaddset(&needed, SIGCHLD);
    sigaddset(&needed, SIGINT);
    sigaddset(&needed, SIGTERM);
    sigaddset(&needed, SIGHUP);
    sigprocmask(SIG_UNBLOCK, &needed, &plan->mask);
    catch_signal(SIGINT, &plan->interrupt);
    catch_signal(SIGTERM, &plan->terminate);
    catch_signal(SIGHUP, &plan->hang_up);
    catch_signal(SIGCHLD, &plan->child);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &plan->broken_pipe);
    return 0;
}

static void signal_groups(const struct run_job *job, int signal) {
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        kill(-job->ranks[rank].group.id, signal);
    }
}

static void give_up(struct run_job *job) {
    job->n_alive = 0; /* run_rank.alive still tells which */
    job->level = RUN_ABANDONED;
    job->deadline_ms = -1;
}

static void last_words(struct run_job *job) {
    for (size_t i = 0; i < job->output.n_streams; ++i) {
        run_stream_last(&job->output.streams[i]);
    }
}

/* The deadline has passed: one level up. */
static void escalate(struct run_job *job, int64_t now_ms) {
    switch (job->level) {
    case RUN_GOING:
        job->level = RUN_TERMINATED;
        job->deadline_ms = now_ms + RUN_KILL_AFTER_MS;
        signal_groups(job, SIGTERM);
        break;
    case RUN_TERMINATED:
        job->level = RUN_KILLED;
        job->deadline_ms = now_ms + RUN_LAST_OUTPUT_MS;
        signal_groups(job, SIGKILL);
        break;
    case RUN_KILLED:
        job->level = RUN_LAST_WORDS;
        job->deadline_ms = job->n_alive > 0 ? now_ms + RUN_GIVE_UP_MS : -1;
        last_words(job);
        break;
    default:
        give_up(job);
        break;
    }
}

static void interrupt(struct run_job *job, int signal, int64_t now_ms) {
    if (job->interrupted == 0) {
        job->interrupted = signal;
        signal_groups(job, signal);
        if (job->level < RUN_TERMINATED) {
            job->level = RUN_TERMINATED;
            job->deadline_ms = now_ms + job->plan->options->grace_ms;
        }
    } else if (job->level <= RUN_TERMINATED) {
        job->level = RUN_TERMINATED; /* a second one is impatience */
        escalate(job, now_ms);
    } else {
        job->flush_ms = now_ms;
    }
}

/*
 * The death is looked at without reaping. Of ranks that die at nearly the same time the one that a
 * signal killed is taken to be the first: its connections close before its death can be seen here,
 * so others may have noticed, and exited, before.
 */
static bool comes_first(const struct run_job *job, int rank, int64_t now_ms) {
    if (job->first < 0) {
        return true;
    }
    return job->ranks[rank].signal != 0 && job->ranks[job->first].signal == 0 &&
           now_ms - job->first_ms <= RUN_SAME_TIME_MS;
}

static void note_death(struct run_job *job, int rank, const siginfo_t *death, int64_t now_ms) {
    struct run_rank *process = &job->ranks[rank];
    process->alive = false;
    --job->n_alive;
    bool by_signal = death->si_code != CLD_EXITED;
    process->signal = by_signal ? death->si_status : 0;
    process->status = by_signal ? STATUS_SIGNAL + death->si_status : death->si_status & 0xff;
    bool asked = job->level != RUN_GOING;
    if (process->status == 0 || asked) {
        return;
    }
    if (comes_first(job, rank, now_ms)) {
        job->first = rank;
        job->first_ms = now_ms;
    }
}

static void look_for_deaths(struct run_job *job, int64_t now_ms) {
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        siginfo_t death;
        memset(&death, 0, sizeof death);
        if (job->ranks[rank].alive &&
            waitid(P_PID, (id_t)job->ranks[rank].group.id, &death, WEXITED | WNOHANG | WNOWAIT) ==
                0 &&
            death.si_pid != 0) {
            note_death(job, rank, &death, now_ms);
        }
    }
    if (job->first >= 0 && !job->plan->options->keep_going && job->deadline_ms < 0 &&
        job->level == RUN_GOING) {
        job->deadline_ms = now_ms + job->plan->options->grace_ms;
    }
}

static void read_signals(struct run_job *job, int64_t now_ms) {
    unsigned char bytes[64];
    ssize_t n_bytes = read(job->signal_pipe, bytes, sizeof bytes);
    for (ssize_t i = 0; i < n_bytes; ++i) {
        if (bytes[i] != SIGCHLD) {
            look_for_deaths(job, now_ms); /* what failed before the signal came counts first */
            interrupt(job, bytes[i], now_ms);
        }
    }
    look_for_deaths(job, now_ms);
}

static void check_deadlines(struct run_job *job, int64_t now_ms) {
    if (job->limit_ms >= 0 && now_ms >= job->limit_ms && job->n_alive > 0) {
        job->limit_ms = -1;
        if (job->level == RUN_GOING) {
            job->timed_out = true;
            escalate(job, now_ms);
        }
    }
    bool stopped = job->interrupted != 0 || job->timed_out;
    if (job->n_alive == 0 && job->deadline_ms < 0 && job->level < RUN_LAST_WORDS) {
        /* All ranks are done; what they started may hold their pipes for the grace. */
        job->deadline_ms = now_ms + job->plan->options->grace_ms;
    }
    if (job->n_alive == 0 && stopped && job->flush_ms < 0) {
        job->flush_ms = now_ms + job->plan->options->grace_ms + RUN_LAST_OUTPUT_MS;
    }
    if (job->deadline_ms >= 0 && now_ms >= job->deadline_ms) {
        escalate(job, now_ms);
    }
}

static bool is_over(const struct run_job *job, int64_t now_ms) {
    if (job->n_alive > 0) {
        return false;
    }
    return run_output_done(&job->output) || (job->flush_ms >= 0 && now_ms >= job->flush_ms);
}

static int next_wait(const struct run_job *job, int64_t now_ms) {
    const int64_t longest_ms = 3600000;
    int64_t until = now_ms + longest_ms;
    const int64_t candidates[] = {job->deadline_ms, job->n_alive > 0 ? job->limit_ms : -1,
                                  job->flush_ms, run_output_due(&job->output)};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; ++i) {
        if (candidates[i] >= 0 && candidates[i] < until) {
            until = candidates[i];
        }
    }
    return until > now_ms ? (int)(until - now_ms) : 0;
}

enum { MAX_POLLED = 2 * RUN_MAX_RANKS + RUN_MAX_RANKS + 4 };

/* What to do when a descriptor is ready: the entries of one turn of the loop. */
struct turn {
    nfds_t count;
    struct pollfd polled[MAX_POLLED];
    struct run_stream *streams[MAX_POLLED];
    struct run_sink *sinks[MAX_POLLED];
    int readers[MAX_POLLED]; /* rank whose stdin can be written, -1 = none, -2 = our stdin */
};

enum { NO_READER = -1, OWN_STDIN = -2 };

static void add(struct turn *turn, int fd, short events, struct run_stream *stream,
                struct run_sink *sink, int reader) {
    turn->polled[turn->count] = (struct pollfd){fd, events, 0};
    turn->streams[turn->count] = stream;
    turn->sinks[turn->count] = sink;
    turn->readers[turn->count++] = reader;
}

static void collect(struct run_job *job, struct turn *turn, int64_t now_ms) {
    turn->count = 0;
    add(turn, job->signal_pipe, POLLIN, NULL, NULL, NO_READER);
    for (size_t i = 0; i < job->output.n_streams; ++i) {
        struct run_stream *stream = &job->output.streams[i];
        if (run_stream_wants(stream, now_ms)) {
            add(turn, stream->fd, POLLIN, stream, NULL, NO_READER);
        }
    }
    for (int i = 0; i < 2; ++i) {
        struct run_sink *sink = &job->output.sinks[i];
        if (sink->queue.length > 0) {
            add(turn, sink->fd, POLLOUT, NULL, sink, NO_READER);
        }
    }
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        if (run_input_pending(&job->input, rank)) {
            add(turn, job->input.fds[rank], POLLOUT, NULL, NULL, rank);
        }
    }
    if (run_input_wants(&job->input)) {
        add(turn, 0, POLLIN, NULL, NULL, OWN_STDIN);
    }
}

static void act(struct run_job *job, const struct turn *turn, int64_t now_ms) {
    for (nfds_t i = 1; i < turn->count; ++i) {
        if (turn->polled[i].revents == 0) {
            continue;
        }
        if (turn->streams[i]) {
            run_stream_read(&job->output, turn->streams[i], now_ms);
        } else if (turn->sinks[i]) {
            run_sink_write(turn->sinks[i]);
        } else if (turn->readers[i] == OWN_STDIN) {
            run_input_read(&job->input);
        } else {
            run_input_write(&job->input, turn->readers[i]);
        }
    }
    if (turn->polled[0].revents != 0) {
        read_signals(job, now_ms);
    }
}

void run_loop(struct run_job *job) {
    struct turn turn;
    int64_t now_ms = run_now_ms();
    if (job->plan->options->timeout_ms > 0) {
        job->limit_ms = now_ms + job->plan->options->timeout_ms;
    }
    look_for_deaths(job, now_ms);
    for (;;) {
        check_deadlines(job, now_ms);
        run_output_push(&job->output, now_ms);
        if (is_over(job, now_ms)) {
            break;
        }
        collect(job, &turn, now_ms);
        int n_ready = poll(turn.polled, turn.count, next_wait(job, now_ms));
        now_ms = run_now_ms();
        if (n_ready > 0) {
            act(job, &turn, now_ms);
        }
    }
    run_input_close(&job->input);
}
