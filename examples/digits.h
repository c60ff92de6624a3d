/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

enum { PIXELS = 64, DIGITS = 10 };

struct images {
    int count;
    float *pixels; /* count × PIXELS, 0 … 1 */
    int *digits;
};

/*
 * Reads the file `name`, or where that is NULL data/digits.csv beside the program or the file of
 * the source tree. Ends the program with an error line if there is none.
 */
struct images digits_read(const char *program, const char *name);
void digits_free(struct images *images);

#endif
