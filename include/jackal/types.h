/* SPDX-License-Identifier: MIT */
/**
 * @file
 * The words that every other Jackal header uses: status codes, element types, operators, handles.
 *
 * The two lists in this file are tables: the enums, the names that `jackal_status_name()` returns
 * and the pages in docs/ are all made from them, so they cannot disagree.
 */
#ifndef JACKAL_TYPES_H
#define JACKAL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define JACKAL_BEGIN_DECLS extern "C" {
#define JACKAL_END_DECLS   }
#else
#define JACKAL_BEGIN_DECLS
#define JACKAL_END_DECLS
#endif

#if defined(__GNUC__) || defined(__clang__)
#define JACKAL_API       __attribute__((visibility("default")))
#define JACKAL_MUST_READ __attribute__((warn_unused_result))
#else
#define JACKAL_API
#define JACKAL_MUST_READ
#endif

JACKAL_BEGIN_DECLS

/** What a call returns: 0 is success, a positive value "not finished", a negative one an error. */
typedef int32_t jackal_status;

/**
 * X(name, number, category, retryable, text)
 *
 * The category is what a program switches on; `retryable` is 1 where the same call may succeed
 * later without anybody changing anything (see jackal_status_retryable()).
 */
#define JACKAL_STATUS_TABLE(X)                                                                     \
    X(OK, 0, "ok", 0, "success")                                                                   \
    X(PENDING, 1, "ok", 0, "not finished yet; the request goes on")                                \
    X(ERR_ARGUMENT, -1, "usage", 0, "an argument of the call is not allowed")                      \
    X(ERR_CONFIG, -2, "usage", 0, "a setting is missing, malformed or contradicts another")        \
    X(ERR_NO_DEVICE, -3, "local", 0, "no such RDMA device, or no verbs library")                   \
    X(ERR_NO_GID, -4, "local", 1, "the port has no usable GID")                                    \
    X(ERR_LIMIT, -5, "local", 0, "a limit of the device or of the system is used up")              \
    X(ERR_MEMORY, -6, "local", 0, "out of memory")                                                 \
    X(ERR_SYSTEM, -7, "local", 0, "a system call failed")                                          \
    X(ERR_TIMEOUT, -8, "timeout", 0, "nothing was completed within the progress limit")            \
    X(ERR_INIT_TIMEOUT, -9, "timeout", 1, "not all ranks met within the init limit")               \
    X(ERR_PEER_LOST, -10, "peer", 0, "a rank is gone")                                             \
    X(ERR_REMOTE, -11, "peer", 0, "another rank failed and said so")                               \
    X(ERR_LINK_DOWN, -12, "link", 0, "a wire stopped working")                                     \
    X(ERR_COMPLETION, -13, "link", 0, "a transfer completed with an error")                        \
    X(ERR_MISMATCH, -14, "usage", 0, "ranks called different operations, or sizes differ")         \
    X(ERR_TRUNCATED, -15, "usage", 0, "a message is longer than the buffer for it")                \
    X(ERR_DATA_LOST, -16, "link", 0, "a message was lost, cut or damaged on the way")              \
    X(ERR_PROTOCOL, -17, "protocol", 0, "a peer sent what this version does not understand")       \
    X(ERR_AUTH, -18, "protocol", 0, "a peer could not prove that it belongs here")                 \
    X(ERR_UNSUPPORTED, -19, "usage", 0, "this backend cannot do that")                             \
    X(ERR_ABORTED, -20, "peer", 0, "the group was aborted by a caller")                            \
    X(ERR_FORKED, -21, "usage", 0, "the handle belongs to the parent process")

#define JACKAL_STATUS_ENUM_(name, number, category, retryable, text) JACKAL_##name = (number),
enum { JACKAL_STATUS_TABLE(JACKAL_STATUS_ENUM_) };

/** The type of an element. The numbers are those of MLX and travel on the wire. */
typedef int32_t jackal_dtype;

/** X(name, number, bytes, word that the command line takes) */
#define JACKAL_DTYPE_TABLE(X)                                                                      \
    X(BOOL, 0, 1, "bool")                                                                          \
    X(INT8, 1, 1, "int8")                                                                          \
    X(INT16, 2, 2, "int16")                                                                        \
    X(INT32, 3, 4, "int32")                                                                        \
    X(INT64, 4, 8, "int64")                                                                        \
    X(UINT8, 5, 1, "uint8")                                                                        \
    X(UINT16, 6, 2, "uint16")                                                                      \
    X(UINT32, 7, 4, "uint32")                                                                      \
    X(UINT64, 8, 8, "uint64")                                                                      \
    X(FLOAT16, 9, 2, "float16")                                                                    \
    X(BFLOAT16, 10, 2, "bfloat16")                                                                 \
    X(FLOAT32, 11, 4, "float32")                                                                   \
    X(FLOAT64, 12, 8, "float64")                                                                   \
    X(COMPLEX64, 13, 8, "complex64")

#define JACKAL_DTYPE_ENUM_(name, number, bytes, word) JACKAL_##name = (number),
enum { JACKAL_DTYPE_TABLE(JACKAL_DTYPE_ENUM_) JACKAL_DTYPE_COUNT = 14 };

/** How elements are combined. */
typedef int32_t jackal_op;

/** X(name, number, word that the command line takes) */
#define JACKAL_OP_TABLE(X)                                                                         \
    X(SUM, 0, "sum")                                                                               \
    X(MAX, 1, "max")                                                                               \
    X(MIN, 2, "min")                                                                               \
    X(PROD, 3, "prod")                                                                             \
    X(MEAN, 4, "mean")

#define JACKAL_OP_ENUM_(name, number, word) JACKAL_##name = (number),
enum { JACKAL_OP_TABLE(JACKAL_OP_ENUM_) JACKAL_OP_COUNT = 5 };

/** Settings for one jackal_init(); made by jackal_config_new(). */
typedef struct jackal_config jackal_config;

/** A group of ranks that call collectives together; made by jackal_init(). */
typedef struct jackal_group jackal_group;

JACKAL_END_DECLS

#endif
