/* SPDX-License-Identifier: MIT */
/*
 * The launcher's stdin to the ranks of --stdin. One buffer for all: it is filled again when every
 * rank that still reads has had all of it, so the slowest of them sets the pace.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void run_input_start(struct run_input *input, int n_ranks) {
    input->open = false;
    input->length = 0;
    input->n_ranks = n_ranks;
    for (int rank = 0; rank < RUN_MAX_RANKS; ++rank) {
        input->fds[rank] = -1;
        input->sent[rank] = 0;
    }
}

void run_input_add(struct run_input *input, int rank, int fd) {
    input->fds[rank] = fd;
    if (fd >= 0) {
        input->open = true;
        run_set_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK);
    }
}

bool run_input_pending(const struct run_input *input, int rank) {
    return input->fds[rank] >= 0 && input->sent[rank] < input->length;
}

bool run_input_wants(const struct run_input *input) {
    for (int rank = 0; rank < input->n_ranks; ++rank) {
        if (run_input_pending(input, rank)) {
            return false;
        }
    }
    return input->open;
}

static void drop(struct run_input *input, int rank) {
    bool any = false;
    close(input->fds[rank]);
    input->fds[rank] = -1;
    for (int other = 0; other < input->n_ranks; ++other) {
        any = any || input->fds[other] >= 0;
    }
    input->open = input->open && any;
}

void run_input_read(struct run_input *input) {
    ssize_t n_bytes = read(0, input->buffer, sizeof input->buffer);
    if (n_bytes < 0 && (errno == EINTR || errno == EAGAIN)) {
        return;
    }
    if (n_bytes <= 0) {
        run_input_close(input);
        return;
    }
    input->length = (size_t)n_bytes;
    for (int rank = 0; rank < input->n_ranks; ++rank) {
        input->sent[rank] = 0;
    }
}

void run_input_write(struct run_input *input, int rank) {
    size_t sent = input->sent[rank];
    ssize_t n_bytes = write(input->fds[rank], input->buffer + sent, input->length - sent);
    if (n_bytes >= 0) {
        input->sent[rank] += (size_t)n_bytes;
    } else if (errno != EINTR && errno != EAGAIN) {
        drop(input, rank); /* it closed its stdin; the others may still read */
    }
}

void run_input_close(struct run_input *input) {
    input->open = false;
    for (int rank = 0; rank < input->n_ranks; ++rank) {
        if (input->fds[rank] >= 0) {
            drop(input, rank);
        }
    }
}
