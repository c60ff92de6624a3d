/* SPDX-License-Identifier: MIT */
/*
 * How every layer reports a failure: it returns a jackal_status and fills a base_error that the
 * caller owns. The place that chooses the code writes the text, once; callers only pass it up.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <jackal/types.h>

enum { BASE_ERROR_TEXT_BYTES = 640 };

struct base_error {
    jackal_status status;
    int peer; /* the rank to blame, −1 = none known */
    char text[BASE_ERROR_TEXT_BYTES];
};

#if defined(__GNUC__) || defined(__clang__)
#define BASE_PRINTF(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
#else
#define BASE_PRINTF(format_index, first_index)
#endif

/* Success, no text, no peer. */
void base_error_clear(struct base_error *error);

/* Fills `error` (NULL allowed) and returns `status`, so that "return base_fail(…)" reads well. */
jackal_status base_fail(struct base_error *error, jackal_status status, const char *format, ...)
    BASE_PRINTF(3, 4);

/* As base_fail, with the rank to blame. */
jackal_status base_fail_peer(struct base_error *error, jackal_status status, int peer,
                             const char *format, ...) BASE_PRINTF(4, 5);

/* As base_fail, with ": ENAME (text)" of an errno value behind the message. */
jackal_status base_fail_errno(struct base_error *error, jackal_status status, int errno_value,
                              const char *format, ...) BASE_PRINTF(4, 5);

/* The macro name of an errno value, "ECONNREFUSED"; "errno 4711" style in `buffer` if unknown. */
const char *base_errno_name(int errno_value, char *buffer, size_t n_bytes);

#endif
