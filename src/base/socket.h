/* SPDX-License-Identifier: MIT */
/*
 * TCP sockets as everything here uses them: non-blocking, closed on exec, without delay, without
 * SIGPIPE, restarted on EINTR, in pieces of at most 1 GiB (some systems refuse INT_MAX and more),
 * and every wait ends at a deadline.
 *
 * The one exception is getaddrinfo(), which has no time limit of its own: a name whose server
 * does not answer may take longer than the deadline. Numeric addresses never do.
 */
#ifndef BASE_SOCKET_H
#define BASE_SOCKET_H

#include "base/address.h"
#include "base/clock.h"
#include "base/error.h"

#include <poll.h>
#include <stddef.h>

enum { BASE_SOCKET_NAME_BYTES = 80, BASE_SOCKET_CLOSED = -1 };

/* ---- making ---------------------------------------------------------------------------------- */

/* Listens on the first address of the host that can be bound; the port may be 0. */
jackal_status base_socket_listen(const struct base_address *address, int backlog, int *fd_p,
                                 struct base_error *error);

/*
 * Takes over the inherited listening socket of "fd:N". The number may be stale, or by now belong
 * to something else; so N must be a listening socket, and on port `port` unless that is 0.
 * Its backlog becomes `backlog`. Returns N, or −1 with the reason in `error`. The descriptor then
 * belongs to the caller.
 */
int base_socket_adopt(const char *text, uint16_t port, int backlog, struct base_error *error);

/*
 * Connects, trying all addresses of the host in turn (families alternate), again and again with
 * growing pauses of up to a second. At the deadline: JACKAL_ERR_INIT_TIMEOUT with the last error.
 */
jackal_status base_socket_connect(const struct base_address *address, uint64_t deadline_ns,
                                  int *fd_p, struct base_error *error);

/* One waiting connection, or −1 with errno (EAGAIN = none). Never blocks. */
int base_socket_accept(int listener);

/* Closes unless fd is −1. errno is kept. */
void base_socket_close(int fd);

/* ---- settings and names ---------------------------------------------------------------------- */

/*
 * Lets the kernel give up on a host that acknowledges nothing for that long, whether data is under
 * way or not. The host's kernel answers, so a stopped process is not taken for a dead one.
 */
jackal_status base_socket_set_peer_timeout(int fd, unsigned timeout_ms, struct base_error *error);

/* The address of the other end (own = false) or of this one, numeric. Returns `text`. */
const char *base_socket_name(int fd, bool own, char *text, size_t n_bytes);

/* The local port, 0 = not a bound socket. */
uint16_t base_socket_port(int fd);

/* ---- moving bytes ---------------------------------------------------------------------------- */

/*
 * Moves what can be moved now. Returns 0 and the count (0 = would block), BASE_SOCKET_CLOSED when
 * the peer closed in order, or an errno value.
 */
int base_socket_send_some(int fd, const void *bytes, size_t n_bytes, size_t *done_p);
int base_socket_recv_some(int fd, void *bytes, size_t n_bytes, size_t *done_p);

/*
 * Moves exactly n_bytes: JACKAL_ERR_TIMEOUT at the deadline, JACKAL_ERR_PEER_LOST if the
 * connection ends; the text tells how many bytes had come.
 */
jackal_status base_socket_send(int fd, const void *bytes, size_t n_bytes, uint64_t deadline_ns,
                               struct base_error *error);
jackal_status base_socket_recv(int fd, void *bytes, size_t n_bytes, uint64_t deadline_ns,
                               struct base_error *error);

/* poll() that goes on after a signal. Returns the number of ready entries, 0 at the deadline,
 * −1 with errno if it cannot be asked at all. */
int base_socket_poll(struct pollfd *polls, size_t n_polls, uint64_t deadline_ns);

/* Waits for `events` of one descriptor; false at the deadline. */
bool base_socket_ready(int fd, short events, uint64_t deadline_ns);

#endif
