/* SPDX-License-Identifier: MIT */
/* What the processes of a job share: how far each rank is, and what it has to say. */
#ifndef RANKS_BOARD_H
#define RANKS_BOARD_H

#include "ranks.h"

#include <stdatomic.h>

enum { BOARD_POINTS = 64 };

enum board_state { BOARD_IDLE, BOARD_RUNNING, BOARD_DONE, BOARD_FAILED };

struct board_rank {
    atomic_int state;
    char where[160];
    char failure[1024];
};

struct board {
    struct board_rank ranks[RANKS_MAX];
    atomic_int met[BOARD_POINTS];
    _Alignas(64) unsigned char memory[RANKS_MEMORY_BYTES];
};

/* Mapped once a program; cleared by board_clear(). */
struct board *board(void);
void board_clear(void);

/* Which rank the calling thread is. */
void board_be_rank(int rank);

/* The job's listening sockets, in the child that needs them. */
extern int board_listeners[RANKS_MEETINGS];
extern char board_coordinators[RANKS_MEETINGS][32];

#endif
