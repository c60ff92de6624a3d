/* SPDX-License-Identifier: MIT */
/* Reads the images of examples/data. Nothing here has to do with Jackal. */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "examples/data/digits.csv"
#endif

static FILE *open_data(const char *program, const char *given) {
    const char *slash = strrchr(program, '/');
    char beside[1024];
    snprintf(beside, sizeof beside, "%.*s/data/digits.csv", slash ? (int)(slash - program) : 1,
             slash ? program : ".");
    const char *names[] = {given ? given : beside, given ? NULL : DIGITS_CSV};
    for (int i = 0; i < 2 && names[i]; ++i) {
        FILE *file = fopen(names[i], "r");
        if (file) {
            return file;
        }
    }
    fprintf(stderr, "data_parallel: cannot read the images, tried %s%s%s; give --data FILE\n",
            names[0], names[1] ? " and " : "", names[1] ? names[1] : "");
    exit(1);
}

/* One image a line: 64 pixels from 0 to 16 and the digit, with commas between. */
static int parse_line(char *line, float *pixels, int *digit) {
    for (int i = 0; i <= PIXELS; ++i) {
        char *end;
        long value = strtol(line, &end, 10);
        char separator = i < PIXELS ? ',' : '\n';
        if (end == line || *end != separator || value < 0 || value > (i < PIXELS ? 16 : 9)) {
            return 0;
        }
        line = end + 1;
        if (i < PIXELS) {
            pixels[i] = (float)value / 16;
        } else {
            *digit = (int)value;
        }
    }
    return 1;
}

struct images digits_read(const char *program, const char *name) {
    FILE *file = open_data(program, name);
    struct images images = {0};
    char line[512];
    while (fgets(line, sizeof line, file)) {
        size_t next = (size_t)images.count + 1;
        images.pixels = realloc(images.pixels, next * PIXELS * sizeof *images.pixels);
        images.digits = realloc(images.digits, next * sizeof *images.digits);
        if (!images.pixels || !images.digits ||
            !parse_line(line, images.pixels + (next - 1) * PIXELS, &images.digits[next - 1])) {
            fprintf(stderr, "data_parallel: line %zu of the images is not 64 pixels and a digit\n",
                    next);
            exit(1);
        }
        ++images.count;
    }
    fclose(file);
    return images;
}

void digits_free(struct images *images) {
    free(images->pixels);
    free(images->digits);
}
