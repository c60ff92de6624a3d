/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void base_error_clear(struct base_error *error) {
    error->status = JACKAL_OK;
    error->peer = -1;
    error->text[0] = '\0';
}

static jackal_status fail(struct base_error *error, jackal_status status, int peer,
                          const char *format, va_list arguments) {
    if (error == NULL)
        return status;
    error->status = status;
    error->peer = peer;
    /* Through a copy, since callers wrap an earlier text of the same record. */
    char text[BASE_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    /* One line, whatever the values in it hold. */
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    memcpy(error->text, text, sizeof text);
    return status;
}

jackal_status base_fail(struct base_error *error, jackal_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, -1, format, arguments);
    va_end(arguments);
    return status;
}

jackal_status base_fail_peer(struct base_error *error, jackal_status status, int peer,
                             const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, peer, format, arguments);
    va_end(arguments);
    return status;
}

jackal_status base_fail_errno(struct base_error *error, jackal_status status, int errno_value,
                              const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fail(error, status, -1, format, arguments);
    va_end(arguments);
    if (error == NULL)
        return status;
    char unknown[32];
    size_t used = strlen(error->text);
    snprintf(error->text + used, sizeof error->text - used, ": %s (%s)",
             base_errno_name(errno_value, unknown, sizeof unknown), strerror(errno_value));
    return status;
}

/* glibc has strerrorname_np(), macOS has nothing: a table of what sockets, files and verbs return.
 */
#define ERRNO_TABLE(X)                                                                             \
    X(EPERM)                                                                                       \
    X(ENOENT)                                                                                      \
    X(EINTR)                                                                                       \
    X(EIO)                                                                                         \
    X(ENXIO)                                                                                       \
    X(E2BIG)                                                                                       \
    X(EBADF)                                                                                       \
    X(EAGAIN)                                                                                      \
    X(ENOMEM)                                                                                      \
    X(EACCES)                                                                                      \
    X(EFAULT)                                                                                      \
    X(EBUSY)                                                                                       \
    X(EEXIST)                                                                                      \
    X(ENODEV)                                                                                      \
    X(ENOTDIR)                                                                                     \
    X(EISDIR)                                                                                      \
    X(EINVAL)                                                                                      \
    X(ENFILE)                                                                                      \
    X(EMFILE)                                                                                      \
    X(ENOSPC)                                                                                      \
    X(EPIPE)                                                                                       \
    X(ERANGE)                                                                                      \
    X(ELOOP)                                                                                       \
    X(EPROTO)                                                                                      \
    X(EOVERFLOW)                                                                                   \
    X(ENOTSOCK)                                                                                    \
    X(EMSGSIZE)                                                                                    \
    X(EPROTONOSUPPORT)                                                                             \
    X(EOPNOTSUPP)                                                                                  \
    X(EAFNOSUPPORT)                                                                                \
    X(EADDRINUSE)                                                                                  \
    X(EADDRNOTAVAIL)                                                                               \
    X(ENETDOWN)                                                                                    \
    X(ENETUNREACH)                                                                                 \
    X(ENETRESET)                                                                                   \
    X(ECONNABORTED)                                                                                \
    X(ECONNRESET)                                                                                  \
    X(ENOBUFS)                                                                                     \
    X(ENOTCONN)                                                                                    \
    X(ETIMEDOUT)                                                                                   \
    X(ECONNREFUSED)                                                                                \
    X(EHOSTDOWN)                                                                                   \
    X(EHOSTUNREACH)                                                                                \
    X(EINPROGRESS)                                                                                 \
    X(ENOSYS)

const char *base_errno_name(int errno_value, char *buffer, size_t n_bytes) {
    static const struct {
        int value;
        const char *name;
    } table[] = {
#define ROW(name) {name, #name},
        ERRNO_TABLE(ROW)
#undef ROW
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].value == errno_value)
            return table[i].name;
    snprintf(buffer, n_bytes, "errno %d", errno_value);
    return buffer;
}
