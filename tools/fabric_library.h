/* SPDX-License-Identifier: MIT */
/* The emulated provider's own calls (its jackal_fabric.h), loaded from where libjackal would. */
#ifndef TOOLS_FABRIC_LIBRARY_H
#define TOOLS_FABRIC_LIBRARY_H

#include <stddef.h>

struct tool_fabric {
    const char *(*error)(void);
    int (*check)(const char *description);
    long (*list)(char *text, size_t n_bytes);
    long (*status)(const char *name, char *json, size_t n_bytes);
    int (*control)(const char *name, const char *command);
};

/* 0, or TOOL_FAILED after an error line. Stays loaded until the process ends. */
int tool_fabric_load(struct tool_fabric *library);

#endif
