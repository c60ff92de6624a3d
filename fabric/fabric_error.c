/* SPDX-License-Identifier: MIT */
/*
 * A verbs call has only errno to say what went wrong. The text beside it is kept per thread,
 * because a provider must not print.
 */
#include "fabric_error.h"
#include "fabric_verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char error_text[512];

int fabric_fail(int code, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    errno = code;
    return code;
}

const char *jackal_fabric_error(void) {
    return error_text;
}
