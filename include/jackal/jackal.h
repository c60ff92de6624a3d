/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Settings, groups and errors: everything a program needs before and after its collectives.
 *
 * A program makes a config (usually from the environment that a launcher prepared), turns it into a
 * group, calls collectives on it (jackal/collective.h) and frees both:
 *
 *     jackal_config *config = jackal_config_new();
 *     jackal_group *group = NULL;
 *     if (jackal_init(config, &group) != JACKAL_OK)
 *         fprintf(stderr, "%s\n", jackal_config_error(config));
 *
 * Every call may be made from C++, ctypes, bindgen and the like: handles are opaque, no struct
 * passes by value, nothing is inline.
 */
#ifndef JACKAL_JACKAL_H
#define JACKAL_JACKAL_H

#include <jackal/types.h>

JACKAL_BEGIN_DECLS

#define JACKAL_VERSION_MAJOR 0
#define JACKAL_VERSION_MINOR 1
#define JACKAL_VERSION_PATCH 0

/** Version of the library that is loaded, for example "0.1.0". Any thread. */
JACKAL_API const char *jackal_version(void);

/** Name of a status without its prefix, for example "ERR_TIMEOUT"; "UNKNOWN" if there is none. */
JACKAL_API const char *jackal_status_name(jackal_status status);

/** One line that says what a status means in general. Any thread. Never NULL. */
JACKAL_API const char *jackal_status_text(jackal_status status);

/** 1 if the same call may succeed later by itself, 0 if something has to be changed first. */
JACKAL_API int jackal_status_retryable(jackal_status status);

/* ---- settings ------------------------------------------------------------------------------ */

/**
 * A new, empty config; jackal_init() fills what is not set from the environment.
 *
 * Returns  NULL only when memory is out. Owner: caller, jackal_config_free().
 * Threads  one thread per config.
 */
JACKAL_API jackal_config *jackal_config_new(void);

/** Frees a config; NULL is allowed. Groups made from it stay. */
JACKAL_API void jackal_config_free(jackal_config *config);

/**
 * Sets one setting; an explicit value beats the environment.
 *
 * name   as in `jackal env`: "rank" is the setting that JACKAL_RANK sets from outside
 * value  text; NULL takes an earlier value back. Copied.
 * Errors JACKAL_ERR_CONFIG: no such setting, or a value outside its type or range; the text is in
 *        jackal_config_error().
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_config_set(jackal_config *config, const char *name,
                                                            const char *value);

/**
 * The value a setting has now: explicit, else from the environment, else its default; NULL if it
 * has none or does not exist. Valid until the next call with this config.
 */
JACKAL_API const char *jackal_config_get(jackal_config *config, const char *name);

/**
 * Reads all settings from the environment now and keeps them, so that later changes of the
 * environment do not matter. jackal_init() does it itself where this was not called.
 *
 * Errors JACKAL_ERR_CONFIG with the variable, the value and what is allowed.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_config_from_env(jackal_config *config);

/**
 * What went wrong in the last failed call with this config, jackal_init() included; "" if nothing.
 * NULL asks for this thread's last jackal_init(), for those who gave it no config.
 */
JACKAL_API const char *jackal_config_error(const jackal_config *config);

/**
 * How loud a log line is. The library writes nothing unless a function is set or JACKAL_LOG asks.
 */
enum { JACKAL_LOG_ERROR = 1, JACKAL_LOG_WARNING = 2, JACKAL_LOG_INFO = 3, JACKAL_LOG_DEBUG = 4 };

/** Receives log lines; `line` has no newline and is valid during the call. May run on any thread.
 */
typedef void (*jackal_log_function)(void *context, int level, const char *line);

/** Sends the log lines of groups made from this config to a function instead of stderr. */
JACKAL_API void jackal_config_set_log(jackal_config *config, jackal_log_function function,
                                      void *context);

/* ---- groups -------------------------------------------------------------------------------- */

/**
 * Meets the other ranks, connects all wires, tries each of them and returns a ready group.
 *
 * config   NULL = environment only
 * group_p  the new group; NULL on failure
 * Errors   JACKAL_ERR_CONFIG, _NO_DEVICE, _NO_GID, _LIMIT, _MEMORY, _SYSTEM, _INIT_TIMEOUT,
 *          _PEER_LOST, _REMOTE (another rank failed; its text is passed on), _PROTOCOL,
 *          _LINK_DOWN (a wire did not carry the first message, or cables are crossed).
 * Blocks   at most JACKAL_INIT_TIMEOUT_MS.
 * Threads  any thread; several may init different groups at the same time.
 */
JACKAL_API JACKAL_MUST_READ jackal_status jackal_init(jackal_config *config,
                                                      jackal_group **group_p);

/**
 * 1 if this machine could connect ranks by this backend ("any", "jaccl"), else 0. Makes nothing.
 * (A group of one needs no backend and is always possible.)
 */
JACKAL_API int jackal_is_available(const char *backend);

/**
 * Closes a group: local, bounded (under 1 s), also after a failure; NULL is allowed. A call in
 * which another thread waits ends with JACKAL_ERR_ABORTED first. The handle is gone afterwards.
 */
JACKAL_API void jackal_group_free(jackal_group *group);

/** Rank of this process, 0 … size − 1. */
JACKAL_API int jackal_rank(const jackal_group *group);

/** Number of ranks. */
JACKAL_API int jackal_size(const jackal_group *group);

/** What carries the data and why it was taken, for example "jaccl mesh (…)". Lives with the group.
 */
JACKAL_API const char *jackal_backend(const jackal_group *group);

/** JACKAL_OK while the group works, else the first error, which every later call returns. */
JACKAL_API jackal_status jackal_group_state(const jackal_group *group);

/** Text of the last error of this group on the calling thread, or of the group's first; "" if none.
 */
JACKAL_API const char *jackal_error_message(const jackal_group *group);

/** The rank that is to blame for jackal_error_message(), −1 if none is known. */
JACKAL_API int jackal_error_peer(const jackal_group *group);

/**
 * Fails the group on every rank with JACKAL_ERR_ABORTED and this text; does not wait. Any thread.
 */
JACKAL_API void jackal_abort(jackal_group *group, const char *text);

JACKAL_END_DECLS

#endif
