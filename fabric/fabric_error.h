/* SPDX-License-Identifier: MIT */
#ifndef FABRIC_ERROR_H
#define FABRIC_ERROR_H

#if defined(__GNUC__)
#define FABRIC_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define FABRIC_PRINTF(text, first)
#endif

/* Keeps the text for jackal_fabric_error, sets errno to code and returns code. */
int fabric_fail(int code, const char *format, ...) FABRIC_PRINTF(2, 3);

#endif
