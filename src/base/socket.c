/* SPDX-License-Identifier: MIT */
#include "base/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Linux suppresses SIGPIPE call by call, macOS socket by socket. */
#ifdef MSG_NOSIGNAL
#define SEND_FLAGS MSG_NOSIGNAL
#else
#define SEND_FLAGS 0
#endif

/* Our own deadline; ETIMEDOUT comes from the kernel, when a host acknowledges nothing. */
enum { TIMED_OUT = -2 };

static const size_t piece_bytes = (size_t)1 << 30;

void base_socket_close(int fd) {
    int saved_errno = errno;
    /* No retry on EINTR: the descriptor is gone on Linux and macOS, and may be reused already. */
    if (fd >= 0)
        close(fd);
    errno = saved_errno;
}

/* What every socket of ours has; false with errno. */
static bool prepare(int fd) {
    int one = 1;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return false;
#ifdef SO_NOSIGPIPE
    if (setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one) < 0)
        return false;
#endif
    /* Refused by macOS when the peer is gone already; the next call on the socket tells. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return true;
}

static int open_socket(int family) {
#ifdef SOCK_CLOEXEC
    /* At once, so that a fork in another thread cannot inherit it in between. */
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
#else
    int fd = socket(family, SOCK_STREAM, 0);
#endif
    if (fd >= 0 && !prepare(fd)) {
        base_socket_close(fd);
        return -1;
    }
    return fd;
}

/* The addresses of a host; a name that does not resolve gives NULL and the resolver's words. */
static struct addrinfo *resolve(const struct base_address *address, int flags, const char **why_p) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    hints.ai_flags = AI_NUMERICSERV | flags;
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)address->port);
    struct addrinfo *list = NULL;
    int result = getaddrinfo(address->host, port, &hints, &list);
    *why_p = result == 0 ? NULL : gai_strerror(result);
    return result == 0 ? list : NULL;
}

/* ---- listening ------------------------------------------------------------------------------- */

static int listen_on(const struct addrinfo *where, int backlog) {
    int fd = open_socket(where->ai_family);
    if (fd < 0)
        return -1;
    int one = 1, zero = 0;
    /* Takes a port whose old connections linger; never SO_REUSEPORT, which would share a live one.
     */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (where->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, where->ai_addr, where->ai_addrlen) == 0 && listen(fd, backlog) == 0)
        return fd;
    base_socket_close(fd);
    return -1;
}

static bool family_is_missing(int errno_value) {
    return errno_value == EAFNOSUPPORT || errno_value == EPROTONOSUPPORT;
}

jackal_status base_socket_listen(const struct base_address *address, int backlog, int *fd_p,
                                 struct base_error *error) {
    char name[BASE_ADDRESS_BYTES];
    const char *why;
    struct addrinfo *list = resolve(address, AI_PASSIVE, &why);
    if (list == NULL)
        return base_fail(error, JACKAL_ERR_CONFIG, "cannot listen on %s: %s",
                         base_address_format(address, name), why);
    int fd = -1, first_errno = 0;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = listen_on(a, backlog);
        if (fd < 0 && (first_errno == 0 || family_is_missing(first_errno)))
            first_errno = errno;
    }
    freeaddrinfo(list);
    if (fd < 0)
        return base_fail_errno(
            error, JACKAL_ERR_SYSTEM, first_errno, "cannot listen on %s%s",
            base_address_format(address, name),
            first_errno == EADDRINUSE
                ? " (another process has the port: choose another, or is there a second rank 0?)"
            : first_errno == EADDRNOTAVAIL
                ? " (no such address on this host: name one of its own to listen on)"
                : "");
    *fd_p = fd;
    return JACKAL_OK;
}

/*
 * A second group of this process wants the port again although connections of the first closed on
 * this side and linger. The system allows it only where those have the option too, and what came
 * in before an inherited listener got it has not.
 */
static void reuse_address(int fd) {
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

int base_socket_adopt(const char *text, uint16_t port, int backlog, struct base_error *error) {
    char *end;
    errno = 0;
    long number = strncmp(text, "fd:", 3) == 0 ? strtol(text + 3, &end, 10) : -1;
    if (number < 0 || number > INT32_MAX || errno != 0 || end == text + 3 || *end != '\0') {
        base_fail(error, JACKAL_ERR_CONFIG, "\"%.60s\" is not \"fd:\" and a number", text);
        return -1;
    }
    int fd = (int)number, listening = 0;
    socklen_t n_bytes = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n_bytes) < 0) {
        base_fail_errno(error, JACKAL_ERR_CONFIG, errno, "descriptor %d is no listening socket",
                        fd);
        return -1;
    }
    if (listening == 0 || (port != 0 && base_socket_port(fd) != port)) {
        base_fail(error, JACKAL_ERR_CONFIG, "descriptor %d is not a socket that listens on port %u",
                  fd, (unsigned)port);
        return -1;
    }
    reuse_address(fd);
    if (!prepare(fd) || listen(fd, backlog) < 0) {
        base_fail_errno(error, JACKAL_ERR_SYSTEM, errno, "cannot set up listening descriptor %d",
                        fd);
        return -1;
    }
    return fd;
}

int base_socket_accept(int listener) {
    for (;;) {
#ifdef SOCK_CLOEXEC
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
#else
        int fd = accept(listener, NULL, NULL);
#endif
        if (fd >= 0 && prepare(fd)) {
            reuse_address(fd);
            return fd;
        }
        base_socket_close(fd);
        /* A connection that was given up in the queue is nobody's error: take the next. */
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED && errno != EPROTO)
            return -1;
    }
}

/* ---- connecting ------------------------------------------------------------------------------ */

enum { ADDRESSES_MAX = 32 };

/*
 * Two sockets of the same port that open towards each other connect without any listener; with a
 * port of the ephemeral range a socket does that to itself.
 */
static bool connected_to_itself(int fd) {
    struct sockaddr_storage own, peer;
    socklen_t n_own = sizeof own, n_peer = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return getsockname(fd, (struct sockaddr *)&own, &n_own) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &n_peer) == 0 && n_own == n_peer &&
           memcmp(&own, &peer, n_own) == 0;
}

/* One attempt; the descriptor, or −1 with errno. */
static int connect_once(const struct addrinfo *where, uint64_t deadline_ns) {
    int fd = open_socket(where->ai_family);
    if (fd < 0)
        return -1;
    int problem = 0;
    socklen_t n_bytes = sizeof problem;
    if (connect(fd, where->ai_addr, where->ai_addrlen) < 0) {
        /* After EINTR the attempt goes on in the background, as with EINPROGRESS. */
        problem = errno == EINPROGRESS || errno == EINTR ? 0 : errno;
        if (problem == 0 && !base_socket_ready(fd, POLLOUT, deadline_ns))
            problem = ETIMEDOUT;
        if (problem == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &n_bytes) < 0)
            problem = errno;
    }
    if (problem == 0 && connected_to_itself(fd))
        problem = ECONNREFUSED;
    if (problem == 0)
        return fd;
    base_socket_close(fd);
    errno = problem;
    return -1;
}

/* The order of the resolver, but families take turns: a dead one costs at most every second try. */
static size_t interleave(struct addrinfo *list, struct addrinfo **order) {
    struct addrinfo *same = list, *other = list;
    size_t n = 0;
    while (n < ADDRESSES_MAX && (same != NULL || other != NULL)) {
        while (same != NULL && same->ai_family != list->ai_family)
            same = same->ai_next;
        if (same != NULL) {
            order[n++] = same;
            same = same->ai_next;
        }
        while (other != NULL && other->ai_family == list->ai_family)
            other = other->ai_next;
        if (other != NULL && n < ADDRESSES_MAX) {
            order[n++] = other;
            other = other->ai_next;
        }
    }
    return n;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns) {
    return a_ns < b_ns ? a_ns : b_ns;
}

/* One round over all addresses; −1 with the most telling errno. */
static int connect_round(struct addrinfo *list, uint64_t deadline_ns) {
    struct addrinfo *order[ADDRESSES_MAX];
    size_t n = interleave(list, order);
    int last_errno = 0;
    for (size_t i = 0; i < n && (i == 0 || !base_expired(deadline_ns)); i++) {
        /* Long enough for two lost SYNs if there is no other address to try meanwhile. */
        uint64_t limit_ns = base_deadline_ns(n == 1 ? 8000 : 2000);
        int fd = connect_once(order[i], earlier(limit_ns, deadline_ns));
        if (fd >= 0)
            return fd;
        if (last_errno == 0 || !family_is_missing(errno))
            last_errno = errno;
    }
    errno = last_errno;
    return -1;
}

static jackal_status give_up(const struct base_address *address, const char *why, int last_errno,
                             struct base_error *error) {
    char name[BASE_ADDRESS_BYTES];
    base_address_format(address, name);
    if (why != NULL)
        return base_fail(error, JACKAL_ERR_INIT_TIMEOUT, "cannot resolve %s: %s", name, why);
    const char *hint = "";
#ifdef __APPLE__
    if (last_errno == EHOSTUNREACH)
        hint = " (if ping works: allow the program under Privacy & Security, Local Network)";
#endif
    return base_fail_errno(error, JACKAL_ERR_INIT_TIMEOUT, last_errno, "cannot connect to %s%s",
                           name, hint);
}

jackal_status base_socket_connect(const struct base_address *address, uint64_t deadline_ns,
                                  int *fd_p, struct base_error *error) {
    uint64_t pause_us = 10000;
    for (;;) {
        const char *why;
        int last_errno = 0;
        /* Resolved again each round: at the start of a cluster names may still be on their way. */
        struct addrinfo *list = resolve(address, 0, &why);
        if (list != NULL) {
            int fd = connect_round(list, deadline_ns);
            last_errno = errno;
            freeaddrinfo(list);
            if (fd >= 0) {
                *fd_p = fd;
                return JACKAL_OK;
            }
        }
        /* Nothing of these gets better by waiting. */
        if (last_errno == EMFILE || last_errno == ENFILE || last_errno == EACCES)
            return base_fail_errno(error, JACKAL_ERR_SYSTEM, last_errno,
                                   "cannot open a socket to "
                                   "%s (see ulimit -n)",
                                   address->host);
        uint64_t now_ns = base_now_ns();
        if (now_ns >= deadline_ns)
            return give_up(address, why, last_errno, error);
        base_sleep_us(earlier(pause_us, (deadline_ns - now_ns) / 1000 + 1));
        pause_us = earlier(pause_us * 2, 1000000);
    }
}

/* ---- settings and names ---------------------------------------------------------------------- */

jackal_status base_socket_set_peer_timeout(int fd, unsigned timeout_ms, struct base_error *error) {
    int one = 1;
    int seconds = (int)((timeout_ms + 999) / 1000);
    int failed = setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
#if defined(TCP_USER_TIMEOUT)
    /* Probes of an idle connection begin after a third, so that the limit is kept there too. */
    int third = seconds > 3 ? seconds / 3 : 1;
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &third, sizeof third);
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &third, sizeof third);
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
#elif defined(TCP_RXT_CONNDROPTIME)
    int third = seconds > 3 ? seconds / 3 : 1, probes = 2;
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPALIVE, &third, sizeof third);
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &third, sizeof third);
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    failed |= setsockopt(fd, IPPROTO_TCP, TCP_RXT_CONNDROPTIME, &seconds, sizeof seconds);
#endif
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_SYSTEM, errno,
                               "cannot set a time limit of %u ms on a connection", timeout_ms);
    return JACKAL_OK;
}

const char *base_socket_name(int fd, bool own, char *text, size_t n_bytes) {
    struct sockaddr_storage storage;
    socklen_t n_storage = sizeof storage;
    char host[64], port[8];
    struct sockaddr *name = (struct sockaddr *)&storage;
    int result = own ? getsockname(fd, name, &n_storage) : getpeername(fd, name, &n_storage);
    if (result < 0 || getnameinfo(name, n_storage, host, sizeof host, port, sizeof port,
                                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, n_bytes, "unknown address");
    else
        snprintf(text, n_bytes, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
    return text;
}

uint16_t base_socket_port(int fd) {
    struct sockaddr_storage storage;
    socklen_t n_bytes = sizeof storage;
    if (getsockname(fd, (struct sockaddr *)&storage, &n_bytes) < 0)
        return 0;
    if (storage.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&storage)->sin_port);
    if (storage.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&storage)->sin6_port);
    return 0;
}

/* ---- moving bytes ---------------------------------------------------------------------------- */

int base_socket_send_some(int fd, const void *bytes, size_t n_bytes, size_t *done_p) {
    *done_p = 0;
    for (;;) {
        ssize_t n = send(fd, bytes, n_bytes < piece_bytes ? n_bytes : piece_bytes, SEND_FLAGS);
        if (n >= 0) {
            *done_p = (size_t)n;
            return 0;
        }
        if (errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
}

int base_socket_recv_some(int fd, void *bytes, size_t n_bytes, size_t *done_p) {
    *done_p = 0;
    if (n_bytes == 0)
        return 0;
    for (;;) {
        ssize_t n = recv(fd, bytes, n_bytes < piece_bytes ? n_bytes : piece_bytes, 0);
        if (n >= 0) {
            *done_p = (size_t)n;
            return n > 0 ? 0 : BASE_SOCKET_CLOSED;
        }
        if (errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
}

static jackal_status broken(int fd, const char *verb, int result, size_t done, size_t n_bytes,
                            struct base_error *error) {
    char name[BASE_SOCKET_NAME_BYTES];
    base_socket_name(fd, false, name, sizeof name);
    if (result == BASE_SOCKET_CLOSED)
        return base_fail(error, JACKAL_ERR_PEER_LOST,
                         "%s closed the connection (%zu of %zu bytes %s)", name, done, n_bytes,
                         verb);
    if (result == TIMED_OUT)
        return base_fail(error, JACKAL_ERR_TIMEOUT, "%s: only %zu of %zu bytes %s in time", name,
                         done, n_bytes, verb);
    return base_fail_errno(error, JACKAL_ERR_PEER_LOST, result,
                           "connection to %s broke (%zu of %zu bytes %s)", name, done, n_bytes,
                           verb);
}

jackal_status base_socket_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns,
                               struct base_error *error) {
    const char *from = bytes;
    for (size_t done = 0; done < n_bytes;) {
        size_t n;
        int result = base_socket_send_some(fd, from + done, n_bytes - done, &n);
        done += n;
        if (result == 0 && n == 0 && !base_socket_ready(fd, POLLOUT, deadline_ns))
            result = TIMED_OUT;
        if (result != 0)
            return broken(fd, "sent", result, done, n_bytes, error);
    }
    return JACKAL_OK;
}

jackal_status base_socket_recv(int fd, void *bytes, size_t n_bytes, uint64_t deadline_ns,
                               struct base_error *error) {
    char *to = bytes;
    for (size_t done = 0; done < n_bytes;) {
        size_t n;
        int result = base_socket_recv_some(fd, to + done, n_bytes - done, &n);
        done += n;
        if (result == 0 && n == 0 && !base_socket_ready(fd, POLLIN, deadline_ns))
            result = TIMED_OUT;
        if (result != 0)
            return broken(fd, "received", result, done, n_bytes, error);
    }
    return JACKAL_OK;
}

int base_socket_poll(struct pollfd *polls, size_t n_polls, uint64_t deadline_ns) {
    for (;;) {
        int left_ms = base_left_ms(deadline_ns);
        int n = poll(polls, (nfds_t)n_polls, left_ms);
        if (n > 0)
            return n;
        if (n == 0 && (left_ms == 0 || base_expired(deadline_ns)))
            return 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -1;
        if (n < 0 && base_expired(deadline_ns))
            return 0;
    }
}

bool base_socket_ready(int fd, short events, uint64_t deadline_ns) {
    struct pollfd entry = {.fd = fd, .events = events};
    return base_socket_poll(&entry, 1, deadline_ns) > 0;
}
