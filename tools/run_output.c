/* SPDX-License-Identifier: MIT */
/*
 * From the ranks' pipes to the launcher's stdout and stderr.
 *
 * Lines of different ranks are never mixed. A stream passes on whole lines; an unfinished one stays
 * in `held` until its newline, the end of the stream, HELD_BYTES of it or IDLE_MS of silence. Then
 * it is passed on as far as it goes and the stream owns the sink: what follows of the line passes
 * at once, and other streams wait. An owner that has been silent for IDLE_MS, or whose line is
 * longer than LINE_BYTES, loses the sink when another stream waits: the launcher ends the line
 * itself, and the rest of it comes later on a line of its own that begins with "[r]+" in place of
 * "[r] ", so that a reader can put it together again. Without prefix no byte is ever added.
 *
 * Back-pressure: a stream is read only while its sink has room and little is held, so a slow reader
 * of the launcher slows the ranks down, as it would without a launcher. If the reader is gone, the
 * pipes of the ranks are closed, and they get what they would have got from their own stdout.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    HELD_BYTES = 65536,
    LINE_BYTES = 1 << 20,
    SINK_BYTES = 262144,
    IDLE_MS = 100,
    FILE_WRITE_BYTES = 65536,
    WRITES_PER_TURN = 64,
    /* A blocking pipe that poll() calls writable takes this much without blocking. */
    PIPE_WRITE_BYTES = PIPE_BUF < 4096 ? PIPE_BUF : 4096
};

static int open_log(const char *folder, int rank, const char *suffix) {
    struct tool_buffer path = {0};
    tool_buffer_print(&path, "%s/rank-%d.%s", folder, rank, suffix);
    int fd = open(tool_buffer_data(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        fprintf(stderr, "jackal run: cannot write \"%s\": %s\n", tool_buffer_data(&path),
                strerror(errno));
    }
    tool_buffer_free(&path);
    return fd;
}

static int open_logs(struct run_output *output, const char *folder) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "jackal run: cannot make --log-dir \"%s\": %s\n", folder, strerror(errno));
        return TOOL_USAGE;
    }
    for (size_t i = 0; i < output->n_streams; ++i) {
        output->streams[i].log_fd = open_log(folder, (int)(i / 2), i % 2 ? "err" : "out");
        if (output->streams[i].log_fd < 0) {
            return TOOL_USAGE;
        }
    }
    return 0;
}

int run_output_start(struct run_output *output, const struct run_plan *plan) {
    struct stat status[2] = {{0}};
    output->prefix = plan->options->prefix;
    output->direct = !output->prefix && plan->n_ranks == 1;
    output->width = plan->n_ranks > 10 ? 2 : 1;
    output->n_streams = 2 * (size_t)plan->n_ranks;
    for (int i = 0; i < 2; ++i) {
        output->sinks[i].fd = i + 1;
        output->sinks[i].is_file = fstat(i + 1, &status[i]) == 0 && S_ISREG(status[i].st_mode);
        output->by_fd[i] = &output->sinks[i];
    }
    if (status[0].st_ino == status[1].st_ino && status[0].st_dev == status[1].st_dev) {
        output->by_fd[1] = &output->sinks[0]; /* one terminal: lines of the two must not mix */
    }
    for (size_t i = 0; i < output->n_streams; ++i) {
        struct run_stream *stream = &output->streams[i];
        stream->fd = stream->log_fd = -1;
        stream->rank = (int)(i / 2);
        stream->sink = output->by_fd[i % 2];
        stream->quota = SIZE_MAX;
    }
    return plan->options->log_dir ? open_logs(output, plan->options->log_dir) : 0;
}

void run_output_add(struct run_output *output, int rank, const struct run_rank *process,
                    int64_t now_ms) {
    for (int i = 0; i < 2; ++i) {
        struct run_stream *stream = &output->streams[2 * rank + i];
        stream->fd = process->pipes[1 + i];
        stream->last_ms = now_ms;
        run_set_flag(stream->fd, F_GETFL, F_SETFL, O_NONBLOCK);
    }
}

bool run_stream_wants(struct run_stream *stream, int64_t now_ms) {
    if (stream->fd < 0) {
        return false;
    }
    if (stream->sink->queue.length >= SINK_BYTES || stream->held.length >= 2 * HELD_BYTES) {
        stream->last_ms = now_ms; /* it is kept waiting, not silent */
        return false;
    }
    return true;
}

/* Bytes of `data` that do not end within a UTF-8 character. */
static size_t whole_characters(const char *data, size_t n_bytes) {
    for (size_t back = 1; back <= 3 && back <= n_bytes; ++back) {
        unsigned char byte = (unsigned char)data[n_bytes - back];
        if ((byte & 0xc0) == 0x80) {
            continue;
        }
        size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        return length > back ? n_bytes - back : n_bytes;
    }
    return n_bytes;
}

static void keep_tail(struct run_stream *stream, const char *data, size_t n_bytes) {
    if (n_bytes > RUN_TAIL_BYTES) {
        data += n_bytes - RUN_TAIL_BYTES;
        n_bytes = RUN_TAIL_BYTES;
    }
    tool_buffer_add(&stream->tail, data, n_bytes);
    if (stream->tail.length > RUN_TAIL_BYTES) {
        tool_buffer_take(&stream->tail, stream->tail.length - RUN_TAIL_BYTES);
    }
}

static void write_log(struct run_stream *stream, const char *data, size_t n_bytes) {
    while (stream->log_fd >= 0 && n_bytes > 0) {
        ssize_t n_written = write(stream->log_fd, data, n_bytes);
        if (n_written >= 0) {
            data += n_written;
            n_bytes -= (size_t)n_written;
        } else if (errno != EINTR) {
            struct tool_buffer text = {0};
            tool_buffer_print(&text, "jackal run: log file of rank %d ends here: %s\n",
                              stream->rank, strerror(errno));
            run_sink_say(stream->sink, tool_buffer_data(&text), text.length);
            tool_buffer_free(&text);
            close(stream->log_fd);
            stream->log_fd = -1;
        }
    }
}

static void end_stream(struct run_stream *stream) {
    close(stream->fd);
    stream->fd = -1;
    stream->n_whole = stream->held.length;
    if (stream->held.length == 0 && stream->sink->owner == stream) {
        stream->sink->owner = NULL;
    }
}

void run_stream_last(struct run_stream *stream) {
    int n_bytes = 0;
    if (stream->fd >= 0 && stream->quota == SIZE_MAX) {
        stream->quota =
            ioctl(stream->fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0 ? (size_t)n_bytes : 0;
        if (stream->quota == 0) {
            end_stream(stream);
        }
    }
}

void run_stream_read(struct run_output *output, struct run_stream *stream, int64_t now_ms) {
    size_t n_wanted = stream->quota < READ_BYTES ? stream->quota : READ_BYTES;
    size_t n_before = stream->held.length;
    char *room = tool_buffer_room(&stream->held, n_wanted);
    ssize_t n_bytes = read(stream->fd, room, n_wanted);
    if (n_bytes < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n_bytes > 0) {
        size_t n_read = (size_t)n_bytes;
        stream->last_ms = now_ms;
        write_log(stream, room, n_read);
        if ((stream - output->streams) % 2 == 1) {
            keep_tail(stream, room, n_read);
        }
        if (stream->sink->error == 0) {
            tool_buffer_grow(&stream->held, n_read);
            for (size_t i = n_read; i > 0; --i) {
                if (room[i - 1] == '\n') {
                    stream->n_whole = n_before + i;
                    break;
                }
            }
        }
        stream->quota -= stream->quota == SIZE_MAX ? 0 : n_read;
    }
    bool unheard = stream->sink->error != 0 && stream->log_fd < 0;
    if (n_bytes <= 0 || stream->quota == 0 || unheard) {
        end_stream(stream);
    }
}

/* How much of what is held may go if the sink is free. */
static size_t sendable(const struct run_output *output, const struct run_stream *stream,
                       int64_t now_ms) {
    size_t n_held = stream->held.length;
    if (output->direct || stream->fd < 0) {
        return n_held;
    }
    if (stream->sink->owner == stream || n_held - stream->n_whole >= HELD_BYTES ||
        now_ms - stream->last_ms >= IDLE_MS) {
        size_t whole = whole_characters(tool_buffer_data(&stream->held), n_held);
        return whole > stream->n_whole ? whole : stream->n_whole;
    }
    return stream->n_whole;
}

static bool may_cut(const struct run_sink *sink, int64_t now_ms) {
    return now_ms - sink->owner->last_ms >= IDLE_MS || sink->n_line >= LINE_BYTES;
}

static void begin_line(const struct run_output *output, struct run_stream *stream) {
    struct run_sink *sink = stream->sink;
    if (output->prefix) {
        if (sink->open_line) {
            tool_buffer_add(&sink->queue, "\n", 1);
        }
        tool_buffer_print(&sink->queue, "[%*d]%c", output->width, stream->rank,
                          stream->cut ? '+' : ' ');
    }
    stream->cut = false;
    sink->n_line = 0;
}

static void emit(const struct run_output *output, struct run_stream *stream, size_t n_bytes) {
    struct run_sink *sink = stream->sink;
    const char *data = tool_buffer_data(&stream->held);
    size_t done = 0;
    while (done < n_bytes) {
        const char *newline = memchr(data + done, '\n', n_bytes - done);
        size_t n_part = newline ? (size_t)(newline - data) + 1 - done : n_bytes - done;
        if (sink->owner != stream) {
            begin_line(output, stream);
        }
        tool_buffer_add(&sink->queue, data + done, n_part);
        sink->n_line += n_part;
        sink->open_line = newline == NULL;
        sink->owner = newline ? NULL : stream;
        done += n_part;
    }
    tool_buffer_take(&stream->held, n_bytes);
    stream->n_whole -= stream->n_whole < n_bytes ? stream->n_whole : n_bytes;
    if (stream->fd < 0 && sink->owner == stream) {
        sink->owner = NULL; /* what comes next begins a line of its own */
    }
}

static void push(const struct run_output *output, struct run_stream *stream, int64_t now_ms) {
    struct run_sink *sink = stream->sink;
    size_t n_bytes = sendable(output, stream, now_ms);
    if (n_bytes == 0) {
        return;
    }
    if (sink->owner && sink->owner != stream && !output->direct) {
        if (!may_cut(sink, now_ms)) {
            return;
        }
        sink->owner->cut = true;
        sink->owner = NULL;
    }
    emit(output, stream, n_bytes);
}

void run_output_push(struct run_output *output, int64_t now_ms) {
    for (size_t i = 0; i < output->n_streams; ++i) {
        struct run_stream *stream = &output->streams[i];
        if (stream->sink->error != 0) {
            tool_buffer_take(&stream->held, stream->held.length);
            stream->n_whole = 0;
        } else if (stream->held.length > 0 && stream->sink->queue.length < SINK_BYTES) {
            push(output, stream, now_ms);
        }
    }
}

int64_t run_output_due(const struct run_output *output) {
    int64_t due = -1;
    for (size_t i = 0; i < output->n_streams; ++i) {
        const struct run_stream *stream = &output->streams[i];
        const struct run_sink *sink = stream->sink;
        if (stream->held.length == 0 || sink->queue.length >= SINK_BYTES) {
            continue; /* nothing to do before the sink was written to */
        }
        int64_t at = stream->last_ms + IDLE_MS;
        if (sendable(output, stream, at) == 0) {
            continue; /* part of a character: more of it will come, or the end */
        }
        if (sink->owner && sink->owner != stream && sink->owner->last_ms + IDLE_MS > at) {
            at = sink->owner->last_ms + IDLE_MS;
        }
        due = due < 0 || at < due ? at : due;
    }
    return due;
}

void run_sink_write(struct run_sink *sink) {
    size_t limit = sink->is_file ? FILE_WRITE_BYTES : PIPE_WRITE_BYTES;
    for (int turn = 0; turn < WRITES_PER_TURN && sink->queue.length > 0; ++turn) {
        struct pollfd ready = {sink->fd, POLLOUT, 0};
        if (!sink->is_file && turn > 0 && poll(&ready, 1, 0) != 1) {
            return;
        }
        size_t n_bytes = sink->queue.length < limit ? sink->queue.length : limit;
        ssize_t n_written = write(sink->fd, tool_buffer_data(&sink->queue), n_bytes);
        if (n_written >= 0) {
            tool_buffer_take(&sink->queue, (size_t)n_written);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            sink->error = errno;
            tool_buffer_take(&sink->queue, sink->queue.length);
        }
    }
}

void run_sink_say(struct run_sink *sink, const char *text, size_t n_bytes) {
    if (sink->error != 0 || n_bytes == 0) {
        return;
    }
    if (sink->owner) {
        sink->owner->cut = true;
        sink->owner = NULL;
    }
    if (sink->open_line) {
        tool_buffer_add(&sink->queue, "\n", 1);
    }
    tool_buffer_add(&sink->queue, text, n_bytes);
    sink->open_line = text[n_bytes - 1] != '\n';
}

bool run_output_done(const struct run_output *output) {
    for (size_t i = 0; i < output->n_streams; ++i) {
        if (output->streams[i].fd >= 0 || output->streams[i].held.length > 0) {
            return false;
        }
    }
    return output->sinks[0].queue.length == 0 && output->sinks[1].queue.length == 0;
}

void run_output_free(struct run_output *output) {
    for (size_t i = 0; i < output->n_streams; ++i) {
        struct run_stream *stream = &output->streams[i];
        if (stream->fd >= 0) {
            close(stream->fd);
        }
        if (stream->log_fd >= 0) {
            close(stream->log_fd);
        }
        tool_buffer_free(&stream->held);
        tool_buffer_free(&stream->tail);
    }
    tool_buffer_free(&output->sinks[0].queue);
    tool_buffer_free(&output->sinks[1].queue);
}
