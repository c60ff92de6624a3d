/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Operations of a group, in their blocking form.
 *
 * What holds for all of them
 * Units    `count` is in elements, `n_bytes` in bytes; both 64-bit, 0 is allowed (then buffers may
 *          be NULL).
 * Buffers  any alignment. Caller owns them and leaves them alone during the call. Inputs are never
 *          written. `in == out` where the text says so; any other overlap is JACKAL_ERR_ARGUMENT.
 * Order    all ranks call the collectives of a group in the same order with the same count, dtype,
 *          op and root; anything else is JACKAL_ERR_MISMATCH. Sends and receives are ordered only
 *          among themselves, per peer and direction.
 * Threads  calls on one group are serialised; calls on different groups may run at the same time.
 * Waiting  a call ends with JACKAL_ERR_TIMEOUT when it completed nothing for
 *          JACKAL_PROGRESS_TIMEOUT_MS, with JACKAL_ERR_PEER_LOST when a rank is gone.
 * Errors   JACKAL_ERR_ARGUMENT changes nothing: this rank has not taken part, and the others wait
 * for it; repeat the call as they made it, or jackal_abort(). Any other error of a collective
 *          poisons the group: it and every later call return that error; see
 *          jackal_error_message(). A rank that needs nothing from the one that differs (the root of
 *          a broadcast, for example) may learn of a mismatch only in a later call.
 * Bits     every rank gets the same bytes. docs/numerics.md has the rules.
 */
#ifndef JACKAL_COLLECTIVE_H
#define JACKAL_COLLECTIVE_H

#include <jackal/types.h>

JACKAL_BEGIN_DECLS

/**
 * Combines one vector of every rank; every rank gets the result.
 *
 * Shapes   in[count], out[count]; in == out allowed.
 * Op       JACKAL_SUM, JACKAL_MAX, JACKAL_MIN, JACKAL_PROD; JACKAL_MEAN for floats and complex64.
 * Moves    2(N−1)/N · bytes per rank and direction (mesh), or (N−1) · bytes when short.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_all_reduce(jackal_group *group, const void *in,
                                                            void *out, uint64_t count,
                                                            jackal_dtype dtype, jackal_op op);

/** jackal_all_reduce() with JACKAL_SUM. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_all_sum(jackal_group *group, const void *in,
                                                         void *out, uint64_t count,
                                                         jackal_dtype dtype);

/** jackal_all_reduce() with JACKAL_MAX. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_all_max(jackal_group *group, const void *in,
                                                         void *out, uint64_t count,
                                                         jackal_dtype dtype);

/** jackal_all_reduce() with JACKAL_MIN. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_all_min(jackal_group *group, const void *in,
                                                         void *out, uint64_t count,
                                                         jackal_dtype dtype);

/**
 * Puts the vectors of all ranks one behind the other; every rank gets them all.
 *
 * Shapes   in[count] (count per rank), out[size · count]; in may be out + rank · count elements.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_all_gather(jackal_group *group, const void *in,
                                                            void *out, uint64_t count,
                                                            jackal_dtype dtype);

/**
 * Combines one vector of every rank; rank r gets the r-th part of the result.
 *
 * Shapes   in[size · count], out[count] (count of the output); out may be in + rank · count
 *          elements, and is then the only part of `in` that is written.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_reduce_scatter(jackal_group *group, const void *in,
                                                                void *out, uint64_t count,
                                                                jackal_dtype dtype, jackal_op op);

/** jackal_reduce_scatter() with JACKAL_SUM, by the name that MLX gives it. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_sum_scatter(jackal_group *group, const void *in,
                                                             void *out, uint64_t count,
                                                             jackal_dtype dtype);

/** Copies data[count] of rank `root` into data[count] of every other rank. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_broadcast(jackal_group *group, void *data,
                                                           uint64_t count, jackal_dtype dtype,
                                                           int root);

/** Returns once every rank has called it. */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_barrier(jackal_group *group);

/**
 * Sends n_bytes to rank `dst`, which receives them with jackal_recv() of the same n_bytes.
 *
 * Returns  when `data` may be used again: at once up to the eager limit (one bulk slot: 65472 bytes
 *          unless JACKAL_SLOT_FRAMES says otherwise), above it after the receiver posted. A
 * receiver that does not receive holds at most 16 small slots (4032 bytes) and 4 bulk slots of such
 *          messages from each peer; then a send waits for it. A message that nobody has received
 *          when the group is freed is dropped.
 * Errors   JACKAL_ERR_ARGUMENT for dst == own rank; JACKAL_ERR_TRUNCATED or _MISMATCH when the
 *          receiver expects another length and n_bytes is above the eager limit. These two leave
 *          the group intact.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_send(jackal_group *group, const void *data,
                                                      uint64_t n_bytes, int dst);

/**
 * Receives exactly n_bytes from rank `src`.
 *
 * Errors   JACKAL_ERR_TRUNCATED if the message is longer, JACKAL_ERR_MISMATCH if it is shorter;
 *          nothing is written behind data[n_bytes], the message is consumed and the group stays
 *          intact.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_recv(jackal_group *group, void *data,
                                                      uint64_t n_bytes, int src);

/**
 * Sends to `dst` and receives from `src` at the same time, so that ranks may do it in a circle.
 * The buffers must not overlap.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_sendrecv(jackal_group *group, const void *send,
                                                          uint64_t n_send_bytes, int dst,
                                                          void *recv, uint64_t n_recv_bytes,
                                                          int src);

JACKAL_END_DECLS

#endif
