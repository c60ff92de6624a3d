/* SPDX-License-Identifier: MIT */
/* The part of the harness that runs on the ranks' side. */
#include "board.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int board_listeners[RANKS_MEETINGS];
char board_coordinators[RANKS_MEETINGS][32];

static _Thread_local int own_rank = -1;

struct board *board(void) {
    static struct board *it;
    if (it != NULL)
        return it;
    void *bytes = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        perror("no shared memory for the tests");
        exit(1);
    }
    it = bytes;
    return it;
}

void board_clear(void) {
    memset(board(), 0, sizeof *board());
}

void board_be_rank(int rank) {
    own_rank = rank;
    atomic_store(&board()->ranks[rank].state, BOARD_RUNNING);
}

void *ranks_memory(void) {
    return board()->memory;
}

void ranks_at(const char *format, ...) {
    struct board_rank *me = &board()->ranks[own_rank];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(me->where, sizeof me->where, format, arguments);
    va_end(arguments);
}

/* A rank that is a process dies; one that is a thread ends, and the parent kills the others. */
void ranks_failed(const char *file, int line, const char *format, ...) {
    char text[sizeof board()->ranks[0].failure];
    const char *name = strrchr(file, '/');
    int used = snprintf(text, sizeof text, "%s:%d: ", name != NULL ? name + 1 : file, line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    if (own_rank < 0) {
        fprintf(stderr, "%s\n", text);
        _exit(1);
    }
    struct board_rank *me = &board()->ranks[own_rank];
    memcpy(me->failure, text, sizeof text);
    atomic_store(&me->state, BOARD_FAILED);
    if (ranks_are_threads())
        pthread_exit(NULL);
    _exit(1);
}

jackal_group *ranks_init(jackal_config *config) {
    jackal_group *group = NULL;
    jackal_status status = jackal_init(config, &group);
    if (status != JACKAL_OK)
        ranks_failed(__FILE__, __LINE__, "init: %s: %s", jackal_status_name(status),
                     jackal_config_error(config));
    return group;
}

void ranks_meet(int point, int n) {
    atomic_int *met = &board()->met[point];
    atomic_fetch_add(met, 1);
    while (atomic_load(met) < n)
        ranks_nap_ms(1);
}

void ranks_meeting(jackal_config *config, int rank, int k) {
    char text[32];
    RANKS_EQUAL(jackal_config_set(config, "coordinator", board_coordinators[k]), JACKAL_OK);
    if (rank != 0)
        return;
    /* The library closes what it is given; the socket itself stays for the next group. */
    snprintf(text, sizeof text, "fd:%d", dup(board_listeners[k]));
    RANKS_EQUAL(jackal_config_set(config, "listen", text), JACKAL_OK);
}

double ranks_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void ranks_nap_ms(unsigned ms) {
    struct timespec nap = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&nap, NULL);
}

double ranks_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

uint64_t ranks_random(uint64_t *state_p) {
    return ranks_hash(*state_p += 1, 0, 0);
}

static uint64_t mix(uint64_t x) {
    /* The finaliser of splitmix64. */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t ranks_hash(uint64_t a, uint64_t b, uint64_t c) {
    return mix(mix(a * 0x9e3779b97f4a7c15u + b * 0xd1342543de82ef95u) + c * 0x2545f4914f6cdd1du);
}
