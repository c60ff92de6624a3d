/* SPDX-License-Identifier: MIT */
/*
 * Log lines of one group. Silent unless asked: level 0 prints nothing. The data path never logs.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/error.h"

#include <jackal/jackal.h>

struct base_log {
    int level;                    /* lines above it are dropped; 0 = silent */
    int rank;                     /* printed in front; −1 = not known yet */
    jackal_log_function function; /* NULL = stderr */
    void *context;
};

/* Any thread; errno is preserved; `log` NULL = silent. */
void base_log(const struct base_log *log, int level, const char *format, ...) BASE_PRINTF(3, 4);

#endif
