/* SPDX-License-Identifier: MIT */
/* Making, asking and ending groups. */
#include "api/handles.h"
#include "api/resolve.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The outcome of this thread's last call, with the serial of the group it was made on. */
static _Thread_local struct {
    uint64_t serial;
    struct base_error error;
} last_call;

_Thread_local struct base_error api_init_error = {.peer = -1};

jackal_status api_done(const jackal_group *group, const struct base_error *error) {
    if (error->status == JACKAL_OK)
        return JACKAL_OK;
    last_call.serial = group->serial;
    last_call.error = *error;
    return error->status;
}

jackal_status api_bad_argument(const jackal_group *group, const char *call,
                               struct base_error *error) {
    base_fail(error, JACKAL_ERR_ARGUMENT, "jackal_%s: %s", call, error->text);
    return api_done(group, error);
}

jackal_status api_check_group(const jackal_group *group) {
    struct base_error error;
    if (group == NULL)
        return JACKAL_ERR_ARGUMENT;
    if (group->forks == group_forks())
        return JACKAL_OK;
    base_fail(&error, JACKAL_ERR_FORKED,
              "the group belongs to the parent of this process: a forked child cannot use it");
    return api_done(group, &error);
}

static jackal_status check_init(jackal_group **group_p, struct base_error *error) {
    if (group_p == NULL)
        return base_fail(error, JACKAL_ERR_ARGUMENT, "jackal_init: group_p is NULL");
    *group_p = NULL;
    if (group_forks() > 0)
        return base_fail(error, JACKAL_ERR_FORKED,
                         "this process was forked off after its parent had used the library: start "
                         "such processes by exec, or fork before the first group is made");
    return JACKAL_OK;
}

jackal_status jackal_init(jackal_config *config, jackal_group **group_p) {
    static atomic_uint_fast64_t serials;
    jackal_status checked = check_init(group_p, config != NULL ? &config->error : &api_init_error);
    if (checked != JACKAL_OK)
        return checked;
    jackal_config *own = config == NULL ? jackal_config_new() : NULL;
    config = config == NULL ? own : config;
    jackal_group *group = calloc(1, sizeof *group);
    if (config == NULL || group == NULL) {
        free(group);
        jackal_config_free(own);
        return JACKAL_ERR_MEMORY;
    }
    struct group_options options;
    base_error_clear(&config->error);
    jackal_status status = api_resolve(config, &options, &config->error);
    if (status == JACKAL_OK)
        status = group_open(&options, &group->group, &config->error);
    if (status == JACKAL_OK) {
        group->serial = atomic_fetch_add(&serials, 1) + 1;
        group->forks = group_forks();
        *group_p = group;
    } else {
        base_log(&options.log, JACKAL_LOG_ERROR, "init failed: %s", config->error.text);
        free(group);
    }
    api_init_error = config->error;
    jackal_config_free(own);
    return status;
}

int jackal_is_available(const char *backend) {
    if (backend == NULL || (strcmp(backend, "any") != 0 && strcmp(backend, "jaccl") != 0))
        return 0;
    struct base_settings settings;
    struct base_error error;
    struct verbs_provider *provider = NULL;
    int n_devices = 0;
    char names[64];
    memset(&settings, 0, sizeof settings);
    if (base_settings_read_environment(&settings, &error) == JACKAL_OK &&
        verbs_provider_acquire(base_settings_text(&settings, SETTING_verbs), &provider, &error) ==
            JACKAL_OK)
        n_devices = verbs_provider_devices(provider, names, sizeof names);
    verbs_provider_release(provider);
    base_settings_free(&settings);
    return n_devices > 0;
}

/* Ends the calls of other threads; they come out at once. */
static void wait_for_callers(jackal_group *group) {
    if (atomic_load_explicit(&group->n_inside, memory_order_acquire) == 0)
        return;
    engine_stop(group->group->engine);
    while (atomic_load_explicit(&group->n_inside, memory_order_acquire) > 0)
        base_sleep_us(50);
}

void jackal_group_free(jackal_group *group) {
    if (group == NULL)
        return;
    /* In a forked child there is nothing that is its own but the handle. */
    if (group->forks == group_forks()) {
        wait_for_callers(group);
        group_close(group->group);
    }
    free(group);
}

int jackal_rank(const jackal_group *group) {
    return group != NULL ? group->group->rank : -1;
}

int jackal_size(const jackal_group *group) {
    return group != NULL ? group->group->size : 0;
}

const char *jackal_backend(const jackal_group *group) {
    return group != NULL ? group->group->backend : "";
}

jackal_status jackal_group_state(const jackal_group *group) {
    return group != NULL ? engine_state(group->group->engine, NULL) : JACKAL_ERR_ARGUMENT;
}

/* This thread's own last error comes first; another thread's call may have poisoned the group. */
static const struct base_error *find_error(const jackal_group *group) {
    static const struct base_error none = {.status = JACKAL_OK, .peer = -1, .text = ""};
    static _Thread_local struct base_error copy;
    if (group == NULL)
        return &none;
    if (last_call.serial == group->serial)
        return &last_call.error;
    return engine_state(group->group->engine, &copy) != JACKAL_OK ? &copy : &none;
}

const char *jackal_error_message(const jackal_group *group) {
    return find_error(group)->text;
}

int jackal_error_peer(const jackal_group *group) {
    return find_error(group)->peer;
}

void jackal_abort(jackal_group *group, const char *text) {
    struct base_error error;
    if (api_check_group(group) != JACKAL_OK)
        return;
    base_fail_peer(&error, JACKAL_ERR_ABORTED, group->group->rank, "rank %d aborted the group: %s",
                   group->group->rank, text != NULL ? text : "no reason given");
    group_abort(group->group, &error);
}
