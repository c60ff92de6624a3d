/* SPDX-License-Identifier: MIT */
#ifndef DECODE_ANY_H
#define DECODE_ANY_H

#include <stddef.h>
#include <stdint.h>

/*
 * Gives bytes[1…] to the decoder that bytes[0] selects and aborts if what it lets through breaks
 * its promises. The bytes are copied to a block of their exact size, so that a sanitizer sees any
 * read beyond them. Returns 1 if they were taken.
 */
int decode_any(const uint8_t *bytes, size_t n_bytes);

enum { DECODERS = 7 };

#endif
