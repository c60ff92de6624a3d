/* SPDX-License-Identifier: MIT */
/*
 * What the subcommands of `jackal` share: their entry points, exit statuses and a growable buffer.
 *
 * An entry point gets the arguments from its own name on (argv[0] is "run", "bench", ...) and
 * returns the exit status of the command.
 */
#ifndef TOOLS_TOOL_H
#define TOOLS_TOOL_H

#include <stddef.h>

enum tool_exit {
    TOOL_GOOD = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2, /* wrong usage or input; nothing was done */
};

int tool_run(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_env(int argc, char **argv);
int tool_fabric(int argc, char **argv);

/*
 * Bytes that are added at the end and taken from the front. Zeroed = empty. Running out of memory
 * ends the process with a line and status 1; a launcher that goes like this is cleaned up after by
 * its guard.
 */
struct tool_buffer {
    char *storage;
    size_t capacity;
    size_t start; /* first byte that was not taken */
    size_t length;
};

const char *tool_buffer_data(const struct tool_buffer *buffer);
/* Room for n_bytes at the end; what is written there counts after tool_buffer_grow(). */
char *tool_buffer_room(struct tool_buffer *buffer, size_t n_bytes);
void tool_buffer_grow(struct tool_buffer *buffer, size_t n_bytes);
void tool_buffer_add(struct tool_buffer *buffer, const void *data, size_t n_bytes);
__attribute__((format(printf, 2, 3))) void tool_buffer_print(struct tool_buffer *buffer,
                                                             const char *format, ...);
void tool_buffer_take(struct tool_buffer *buffer, size_t n_bytes);
void tool_buffer_free(struct tool_buffer *buffer);

/* realloc() and strdup() that do not fail. */
void *tool_resize(void *memory, size_t count, size_t n_bytes_each);
char *tool_copy(const char *text);

/*
 * The word of the list that `word` was probably meant to be, or NULL. `names` holds `count`
 * pointers to strings that lie `stride` bytes apart, so that it may be a column of a table.
 */
const char *tool_nearest(const char *word, const void *names, size_t count, size_t stride);

#endif
