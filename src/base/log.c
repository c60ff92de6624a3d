/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const char *level_word(int level) {
    static const char *const words[] = {"", "error", "warning", "info", "debug"};
    return level >= 1 && level <= 4 ? words[level] : "";
}

void base_log(const struct base_log *log, int level, const char *format, ...) {
    if (log == NULL || level > log->level)
        return;
    int saved_errno = errno;
    char line[1024];
    int used = log->rank >= 0 ? snprintf(line, sizeof line, "rank %d: ", log->rank) : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    if (log->function != NULL)
        log->function(log->context, level, line);
    else
        fprintf(stderr, "jackal: %s: %s\n", level_word(level), line);
    errno = saved_errno;
}
