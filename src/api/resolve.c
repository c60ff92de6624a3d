/* SPDX-License-Identifier: MIT */
#include "api/resolve.h"

#include "base/address.h"

#include <stdlib.h>
#include <string.h>

/* Settings that only a launcher sets. */
static const enum base_setting_id launch_settings[] = {SETTING_rank, SETTING_size, SETTING_devices,
                                                       SETTING_coordinator};

static bool is_launched(const struct base_settings *settings) {
    for (size_t i = 0; i < sizeof launch_settings / sizeof launch_settings[0]; i++)
        if (base_settings_text(settings, launch_settings[i]) != NULL)
            return true;
    return false;
}

/* Launch variables of backends that this version does not have: never a silent group of one. */
static jackal_status refuse_foreign(const struct base_settings *settings,
                                    struct base_error *error) {
    const char *hostfile = getenv("MLX_HOSTFILE");
    if (hostfile == NULL || hostfile[0] == '\0' ||
        base_settings_text(settings, SETTING_devices) != NULL)
        return JACKAL_OK;
    return base_fail(error, JACKAL_ERR_UNSUPPORTED,
                     "MLX_HOSTFILE asks for the TCP ring, which this version does not have; set "
                     "JACKAL_DEVICES or take MLX_HOSTFILE away");
}

static jackal_status resolve_size(const struct base_settings *settings,
                                  struct group_options *options, struct base_error *error) {
    options->size = (int)base_settings_integer(settings, SETTING_size, 0);
    if (options->size > 0)
        return JACKAL_OK;
    if (options->devices == NULL)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "neither JACKAL_SIZE nor JACKAL_DEVICES is set, so the number of ranks is "
                         "unknown: set one of them or start with `jackal run`");
    struct topology *topology = NULL;
    jackal_status status = topology_read(options->devices, &topology, error);
    if (status != JACKAL_OK)
        return status;
    options->size = topology->size;
    topology_free(topology);
    return JACKAL_OK;
}

static jackal_status resolve_rank(const struct base_settings *settings,
                                  struct group_options *options, struct base_error *error) {
    int64_t rank = base_settings_integer(settings, SETTING_rank, options->size == 1 ? 0 : -1);
    if (rank < 0)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "JACKAL_RANK is not set, want 0 to %d for %d ranks", options->size - 1,
                         options->size);
    /* Where there is a meeting point, rank 0 is to hear of it; boot_connect() refuses it there. */
    bool can_tell = options->size > 1 && base_settings_text(settings, SETTING_coordinator) != NULL;
    if (rank >= options->size && !can_tell)
        return base_fail(error, JACKAL_ERR_CONFIG, "%s is %lld, want 0 to %d for %d ranks",
                         base_settings_source(settings, SETTING_rank), (long long)rank,
                         options->size - 1, options->size);
    options->rank = (int)rank;
    return JACKAL_OK;
}

/* host:port, or fd:N for JACKAL_LISTEN; here, so that the message names the variable. */
static jackal_status check_address(const struct base_settings *settings, enum base_setting_id id,
                                   const char *value, struct base_error *error) {
    struct base_address address;
    bool descriptor = id == SETTING_listen && strncmp(value, "fd:", 3) == 0;
    size_t n_digits = descriptor ? strspn(value + 3, "0123456789") : 0;
    if (descriptor && n_digits > 0 && value[3 + n_digits] == '\0')
        return JACKAL_OK;
    jackal_status status = base_address_parse(value, false, &address, error);
    if (status == JACKAL_OK)
        return status;
    return base_fail(error, JACKAL_ERR_CONFIG, "%s: %s", base_settings_source(settings, id),
                     error->text);
}

static jackal_status require_links(const struct base_settings *settings,
                                   const struct group_options *options, struct base_error *error) {
    const char *coordinator = base_settings_text(settings, SETTING_coordinator);
    const char *listen = base_settings_text(settings, SETTING_listen);
    if (options->size == 1)
        return JACKAL_OK;
    if (options->devices == NULL)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "JACKAL_DEVICES is not set: %d ranks need a device matrix (this version "
                         "has no TCP links), or start with `jackal run`",
                         options->size);
    if (coordinator == NULL)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "JACKAL_COORDINATOR is not set: %d ranks need the host:port where rank 0 "
                         "meets them",
                         options->size);
    jackal_status status = check_address(settings, SETTING_coordinator, coordinator, error);
    if (status == JACKAL_OK && listen != NULL && options->rank == 0)
        status = check_address(settings, SETTING_listen, listen, error);
    if (status != JACKAL_OK)
        return status;
    if (options->size > TOPOLOGY_MESH_MAX_SIZE)
        return base_fail(error, JACKAL_ERR_LIMIT, "a mesh has at most %d ranks, not %d",
                         TOPOLOGY_MESH_MAX_SIZE, options->size);
    return JACKAL_OK;
}

static jackal_status resolve_group(const struct base_settings *settings,
                                   struct group_options *options, struct base_error *error) {
    jackal_status status = refuse_foreign(settings, error);
    if (status != JACKAL_OK)
        return status;
    if (!is_launched(settings)) {
        if (base_settings_integer(settings, SETTING_strict, 1) != 0)
            return base_fail(error, JACKAL_ERR_CONFIG,
                             "no launch variable is set: start with `jackal run`, set JACKAL_SIZE, "
                             "or set JACKAL_STRICT=0 to get a group of one");
        options->size = 1;
        return JACKAL_OK;
    }
    options->devices = base_settings_text(settings, SETTING_devices);
    status = resolve_size(settings, options, error);
    if (status == JACKAL_OK)
        status = resolve_rank(settings, options, error);
    return status == JACKAL_OK ? require_links(settings, options, error) : status;
}

/* A function that was set asks for lines; JACKAL_LOG says how many, where it says anything. */
static int log_level(const jackal_config *config) {
    int asked = base_settings_word(&config->settings, SETTING_log);
    return asked == 0 && config->log_function != NULL ? JACKAL_LOG_INFO : asked;
}

/* A mistyped name would otherwise be without effect and without a word. */
static void warn_unknown(const struct base_log *log) {
    size_t place = 0;
    const char *entry;
    while ((entry = base_setting_unknown(&place)) != NULL)
        base_log(log, JACKAL_LOG_WARNING,
                 "%.*s is not a setting and has no effect; `jackal env` lists them",
                 (int)strcspn(entry, "="), entry);
}

jackal_status api_resolve(jackal_config *config, struct group_options *options_p,
                          struct base_error *error) {
    struct base_settings *settings = &config->settings;
    memset(options_p, 0, sizeof *options_p);
    options_p->settings = settings;
    options_p->log.rank = -1;
    options_p->log.function = config->log_function;
    options_p->log.context = config->log_context;
    jackal_status status =
        settings->environment_read ? JACKAL_OK : base_settings_read_environment(settings, error);
    if (status != JACKAL_OK)
        return status;
    options_p->log.level = log_level(config);
    status = resolve_group(settings, options_p, error);
    options_p->log.rank = options_p->rank;
    if (options_p->rank == 0)
        warn_unknown(&options_p->log);
    return status;
}
