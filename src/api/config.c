/* SPDX-License-Identifier: MIT */
/* Settings of the caller, and what group they describe. */
#include "api/handles.h"

#include <stdlib.h>
#include <string.h>

jackal_config *jackal_config_new(void) {
    jackal_config *config = calloc(1, sizeof *config);
    if (config != NULL)
        base_error_clear(&config->error);
    return config;
}

void jackal_config_free(jackal_config *config) {
    if (config == NULL)
        return;
    base_settings_free(&config->settings);
    free(config);
}

jackal_status jackal_config_set(jackal_config *config, const char *name, const char *value) {
    if (config == NULL || name == NULL)
        return JACKAL_ERR_ARGUMENT;
    return base_settings_set(&config->settings, name, value, &config->error);
}

const char *jackal_config_get(jackal_config *config, const char *name) {
    if (config == NULL || name == NULL)
        return NULL;
    struct base_error ignored;
    int id = base_setting_find(name);
    if (id < 0)
        return NULL;
    /* A wrong variable is jackal_init()'s business; it does not hide the others. */
    if (!config->settings.environment_read)
        base_settings_read_environment(&config->settings, &ignored);
    return base_settings_text(&config->settings, (enum base_setting_id)id);
}

jackal_status jackal_config_from_env(jackal_config *config) {
    if (config == NULL)
        return JACKAL_ERR_ARGUMENT;
    return base_settings_read_environment(&config->settings, &config->error);
}

const char *jackal_config_error(const jackal_config *config) {
    return config != NULL ? config->error.text : api_init_error.text;
}

void jackal_config_set_log(jackal_config *config, jackal_log_function function, void *context) {
    if (config == NULL)
        return;
    config->log_function = function;
    config->log_context = context;
}
