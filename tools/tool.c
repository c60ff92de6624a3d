/* SPDX-License-Identifier: MIT */
#include "tool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *tool_resize(void *memory, size_t count, size_t n_bytes_each) {
    if (count == 0) {
        count = 1;
    }
    if (n_bytes_each != 0 && count <= SIZE_MAX / n_bytes_each) {
        void *resized = realloc(memory, count * n_bytes_each);
        if (resized) {
            return resized;
        }
    }
    fprintf(stderr, "jackal: out of memory for %zu x %zu bytes\n", count, n_bytes_each);
    exit(TOOL_FAILED);
}

char *tool_copy(const char *text) {
    size_t n_bytes = strlen(text) + 1;
    return memcpy(tool_resize(NULL, n_bytes, 1), text, n_bytes);
}

const char *tool_buffer_data(const struct tool_buffer *buffer) {
    return buffer->storage ? buffer->storage + buffer->start : "";
}

char *tool_buffer_room(struct tool_buffer *buffer, size_t n_bytes) {
    if (buffer->start + buffer->length + n_bytes > buffer->capacity || !buffer->storage) {
        if (buffer->start > 0) {
            memmove(buffer->storage, buffer->storage + buffer->start, buffer->length);
            buffer->start = 0;
        }
        if (buffer->length + n_bytes > buffer->capacity || !buffer->storage) {
            buffer->capacity = 2 * (buffer->length + n_bytes) + 64;
            buffer->storage = tool_resize(buffer->storage, buffer->capacity, 1);
        }
    }
    return buffer->storage + buffer->start + buffer->length;
}

void tool_buffer_grow(struct tool_buffer *buffer, size_t n_bytes) {
    buffer->length += n_bytes;
}

void tool_buffer_add(struct tool_buffer *buffer, const void *data, size_t n_bytes) {
    if (n_bytes > 0) {
        memcpy(tool_buffer_room(buffer, n_bytes), data, n_bytes);
        buffer->length += n_bytes;
    }
}

void tool_buffer_print(struct tool_buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        return; /* only an encoding error of wide characters, of which there are none */
    }
    char *room = tool_buffer_room(buffer, (size_t)length + 1);
    va_start(arguments, format);
    vsnprintf(room, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

void tool_buffer_take(struct tool_buffer *buffer, size_t n_bytes) {
    buffer->start += n_bytes;
    buffer->length -= n_bytes;
    if (buffer->length == 0) {
        buffer->start = 0;
    }
}

void tool_buffer_free(struct tool_buffer *buffer) {
    free(buffer->storage);
    memset(buffer, 0, sizeof *buffer);
}

enum { NEAREST_MAX = 48 };

/* Edits (insert, delete, replace, swap of neighbours) that turn one word into the other. */
static size_t edit_distance(const char *a, const char *b) {
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t rows[3][NEAREST_MAX + 1];
    if (n_a > NEAREST_MAX || n_b > NEAREST_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n_b; ++j) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= n_a; ++i) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n_b; ++j) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) {
                best = above[j] + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_above[j - 2] + 1 < best) {
                best = two_above[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

const char *tool_nearest(const char *word, const void *names, size_t count, size_t stride) {
    const char *nearest = NULL;
    /* A third of the letters may be wrong; more is a different word. */
    size_t limit = strlen(word) / 3 + (strlen(word) < 3);
    size_t best = (limit < 3 ? limit : 3) + 1;
    for (size_t i = 0; i < count; ++i) {
        const char *name;
        memcpy(&name, (const char *)names + i * stride, sizeof name);
        size_t distance = edit_distance(word, name);
        if (distance < best) {
            best = distance;
            nearest = name;
        }
    }
    return nearest;
}
