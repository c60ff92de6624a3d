/* SPDX-License-Identifier: MIT */
/*
 * The end of a job: who failed first, with the last lines it wrote, and how the others ended. Later
 * failures are mostly consequences of the first, so it is the one that stands at the end.
 */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    LAST_LINES = 5,
    REPORT_MS = 5000,
    STATUS_TIMEOUT = 124, /* as timeout(1) has it */
    STATUS_SIGNAL = 128,
    STATUS_BROKEN_PIPE = 141
};

static void print_signal(struct tool_buffer *text, int signal) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
        {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGSYS, "SIGSYS"},
        {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        if (names[i].number == signal) {
            tool_buffer_print(text, "%s", names[i].name);
            return;
        }
    }
    tool_buffer_print(text, "signal %d", signal);
}

static void print_end(struct tool_buffer *text, const struct run_rank *process, bool plural) {
    if (process->alive) {
        tool_buffer_print(text, "did not end after SIGKILL");
    } else if (process->signal) {
        tool_buffer_print(text, "%s killed by ", plural ? "were" : "was");
        print_signal(text, process->signal);
    } else {
        tool_buffer_print(text, "exited with %d", process->status);
    }
}

static bool same_end(const struct run_rank *a, const struct run_rank *b) {
    return a->alive == b->alive && a->status == b->status && a->signal == b->signal;
}

/* "jackal run: ranks 0, 2, 3 were killed by SIGTERM": one line for each way to end. */
static void print_others(struct tool_buffer *text, const struct run_job *job) {
    bool told[RUN_MAX_RANKS] = {false};
    for (int rank = 0; rank < job->n_ranks; ++rank) {
        if (told[rank] || rank == job->first) {
            continue;
        }
        struct tool_buffer ranks = {0};
        int count = 0;
        for (int other = rank; other < job->n_ranks; ++other) {
            if (other != job->first && same_end(&job->ranks[rank], &job->ranks[other])) {
                tool_buffer_print(&ranks, "%s%d", count++ ? ", " : "", other);
                told[other] = true;
            }
        }
        tool_buffer_print(text, "jackal run: rank%s %.*s ", count > 1 ? "s" : "", (int)ranks.length,
                          tool_buffer_data(&ranks));
        print_end(text, &job->ranks[rank], count > 1);
        tool_buffer_print(text, "\n");
        tool_buffer_free(&ranks);
    }
}

static void print_last_lines(struct tool_buffer *text, const struct run_stream *stream) {
    const char *data = tool_buffer_data(&stream->tail);
    size_t end = stream->tail.length, start, lines = 0;
    if (end == 0) {
        tool_buffer_print(text, "jackal run: it wrote nothing to stderr\n");
        return;
    }
    end -= data[end - 1] == '\n';
    for (start = end; start > 0; --start) {
        if (data[start - 1] == '\n' && ++lines == LAST_LINES) {
            break;
        }
    }
    tool_buffer_print(text, "jackal run: its last lines on stderr:\n");
    while (start < end) {
        const char *newline = memchr(data + start, '\n', end - start);
        size_t n_bytes = newline ? (size_t)(newline - data) - start : end - start;
        tool_buffer_add(text, "  ", 2);
        tool_buffer_add(text, data + start, n_bytes);
        tool_buffer_add(text, "\n", 1);
        start += n_bytes + 1;
    }
}

static int print_summary(struct tool_buffer *text, const struct run_job *job) {
    int status = TOOL_GOOD;
    if (job->first >= 0 || job->timed_out || job->interrupted) {
        print_others(text, job);
    }
    if (job->timed_out) {
        tool_buffer_print(text, "jackal run: ended the job after --timeout %g s\n",
                          (double)job->plan->options->timeout_ms / 1000.0);
        status = STATUS_TIMEOUT;
    } else if (job->interrupted) {
        tool_buffer_print(text, "jackal run: ended the job after ");
        print_signal(text, job->interrupted);
        tool_buffer_print(text, "\n");
        status = STATUS_SIGNAL + job->interrupted;
    }
    if (job->first >= 0) {
        const struct run_rank *first = &job->ranks[job->first];
        tool_buffer_print(text, "jackal run: rank %d ", job->first);
        print_end(text, first, false);
        tool_buffer_print(text, " first\n");
        print_last_lines(text, &job->output.streams[2 * job->first + 1]);
        status = first->status;
    }
    return status;
}

/* Whether everything arrived; a reader that went away is told by the status alone, as usual. */
static int delivery(struct tool_buffer *text, const struct run_job *job) {
    int status = TOOL_GOOD;
    for (int i = 0; i < 2; ++i) {
        int error = job->output.sinks[i].error;
        if (error != 0) {
            status = error == EPIPE ? STATUS_BROKEN_PIPE : TOOL_FAILED;
        }
        if (error != 0 && error != EPIPE) {
            tool_buffer_print(text, "jackal run: cannot write to %s: %s\n", i ? "stderr" : "stdout",
                              strerror(error));
        }
    }
    return status;
}

int run_report(struct run_job *job) {
    struct tool_buffer text = {0};
    struct run_sink *sink = job->output.by_fd[1];
    int delivered = delivery(&text, job);
    int status = print_summary(&text, job);
    int64_t end_ms = run_now_ms() + REPORT_MS;
    run_sink_say(sink, tool_buffer_data(&text), text.length);
    while (sink->queue.length > 0 && run_now_ms() < end_ms) {
        struct pollfd ready = {sink->fd, POLLOUT, 0};
        if (poll(&ready, 1, 100) == 1) {
            run_sink_write(sink);
        }
    }
    tool_buffer_free(&text);
    return status != TOOL_GOOD ? status : delivered;
}
