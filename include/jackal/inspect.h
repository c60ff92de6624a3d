/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Looking inside, as JSON text: what `jackal env` and `jackal bench` print comes from here.
 */
#ifndef JACKAL_INSPECT_H
#define JACKAL_INSPECT_H

#include <jackal/types.h>

JACKAL_BEGIN_DECLS

/**
 * Describes something that needs no group.
 *
 * what      "settings": array of {name, variable, aliases, type, default, range, unit, help, value,
 *           source}. "devices": array of the RDMA devices of this process's verbs provider.
 * argument  NULL; for later kinds
 * json_p    text, NUL-terminated; free with jackal_free_text()
 * Errors    JACKAL_ERR_ARGUMENT for an unknown kind; JACKAL_ERR_NO_DEVICE without a provider.
 * Threads   any thread.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_inspect(const char *what, const char *argument,
                                                         char **json_p);

/**
 * What a group has moved so far: {rank, size, backend, operations, wires: [{peer, wire, device,
 * bytes_sent, bytes_received, messages_sent, messages_received}]}. Payload bytes, headers excluded.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_group_stats(jackal_group *group, char **json_p);

/** Frees a text that this library returned; NULL is allowed. */
JACKAL_API void jackal_free_text(char *text);

JACKAL_END_DECLS

#endif
