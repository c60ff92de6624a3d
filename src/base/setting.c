/* SPDX-License-Identifier: MIT */
#include "base/setting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct base_setting base_setting_table[SETTING_COUNT] = {
#define SETTING(id, variable, aliases, type, fallback, low, high, unit, agreed, help)              \
    {#id, variable, aliases, SETTING_##type, fallback, low, high, unit, agreed, help},
#include "base/settings.def"
#undef SETTING
};

static bool parse_integer(const char *text, int64_t *value_p) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr("-0123456789", text[0]) == NULL)
        return false;
    *value_p = value;
    return true;
}

static bool parse_boolean(const char *text, int64_t *value_p) {
    static const char *const no[] = {"0", "false", "no", "off"};
    static const char *const yes[] = {"1", "true", "yes", "on"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, no[i]) == 0 || strcasecmp(text, yes[i]) == 0) {
            *value_p = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* Position of `text` in "a|b|c", −1 if it is not one of the words. */
static int find_word(const char *words, const char *text) {
    size_t length = strlen(text);
    int position = 0;
    for (const char *word = words; word != NULL; position++) {
        size_t span = strcspn(word, "|");
        if (span == length && strncmp(word, text, length) == 0)
            return position;
        word = word[span] == '|' ? word + span + 1 : NULL;
    }
    return -1;
}

static jackal_status check(const struct base_setting *setting, const char *given_as,
                           const char *value, struct base_error *error) {
    int64_t number = 0;
    switch (setting->type) {
    case SETTING_INTEGER:
        if (!parse_integer(value, &number) || number < setting->low || number > setting->high)
            return base_fail(error, JACKAL_ERR_CONFIG,
                             "%s is \"%.80s\"; want a whole number from %lld to %lld", given_as,
                             value, (long long)setting->low, (long long)setting->high);
        return JACKAL_OK;
    case SETTING_BOOLEAN:
        if (!parse_boolean(value, &number))
            return base_fail(error, JACKAL_ERR_CONFIG,
                             "%s is \"%.80s\"; want 1, true, yes, on or 0, false, no, off",
                             given_as, value);
        return JACKAL_OK;
    case SETTING_WORD:
        if (find_word(setting->unit, value) < 0)
            return base_fail(error, JACKAL_ERR_CONFIG, "%s is \"%.80s\"; want one of %s", given_as,
                             value, setting->unit);
        return JACKAL_OK;
    case SETTING_TEXT:
        break;
    }
    return JACKAL_OK;
}

int base_setting_find(const char *name) {
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(base_setting_table[i].name, name) == 0)
            return i;
    return -1;
}

extern char **environ;

static bool is_variable(const char *entry) {
    size_t length = strcspn(entry, "=");
    for (int id = 0; id < SETTING_COUNT; id++)
        if (strlen(base_setting_table[id].variable) == length &&
            strncmp(base_setting_table[id].variable, entry, length) == 0)
            return true;
    return false;
}

const char *base_setting_unknown(size_t *place_p) {
    while (environ != NULL && environ[*place_p] != NULL) {
        const char *entry = environ[(*place_p)++];
        if (strncmp(entry, "JACKAL_", 7) == 0 && strncmp(entry, "JACKAL_TEST_", 12) != 0 &&
            !is_variable(entry))
            return entry;
    }
    return NULL;
}

void base_settings_free(struct base_settings *settings) {
    for (int i = 0; i < SETTING_COUNT; i++) {
        free(settings->explicit_values[i]);
        free(settings->environment[i]);
    }
    memset(settings, 0, sizeof *settings);
}

jackal_status base_settings_set(struct base_settings *settings, const char *name, const char *value,
                                struct base_error *error) {
    int id = base_setting_find(name);
    if (id < 0)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "there is no setting \"%.80s\"; `jackal env` lists them", name);
    char *copy = NULL;
    if (value != NULL) {
        char label[64];
        snprintf(label, sizeof label, "setting %s", name);
        jackal_status status = check(&base_setting_table[id], label, value, error);
        if (status != JACKAL_OK)
            return status;
        copy = strdup(value);
        if (copy == NULL)
            return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for setting %s", name);
    }
    free(settings->explicit_values[id]);
    settings->explicit_values[id] = copy;
    return JACKAL_OK;
}

/* The first of the variable and its aliases (in table order) that is set and not empty. */
static const char *find_variable(const struct base_setting *setting, char *name, size_t n_bytes) {
    const char *value = getenv(setting->variable);
    snprintf(name, n_bytes, "%s", setting->variable);
    const char *alias = setting->aliases;
    while ((value == NULL || value[0] == '\0') && alias[0] != '\0') {
        size_t span = strcspn(alias, " ");
        snprintf(name, n_bytes, "%.*s", (int)span, alias);
        value = getenv(name);
        alias += span + strspn(alias + span, " ");
    }
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Takes one variable over, also a wrong value: `jackal env` shows it. */
static jackal_status read_variable(struct base_settings *settings, int id,
                                   struct base_error *error) {
    const struct base_setting *setting = &base_setting_table[id];
    char name[64];
    const char *value = find_variable(setting, name, sizeof name);
    free(settings->environment[id]);
    settings->environment[id] = NULL;
    if (value == NULL)
        return JACKAL_OK;
    settings->environment[id] = strdup(value);
    snprintf(settings->environment_names[id], sizeof settings->environment_names[id], "%s", name);
    if (settings->environment[id] == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for %s", name);
    return settings->explicit_values[id] == NULL ? check(setting, name, value, error) : JACKAL_OK;
}

jackal_status base_settings_read_environment(struct base_settings *settings,
                                             struct base_error *error) {
    jackal_status first = JACKAL_OK;
    for (int id = 0; id < SETTING_COUNT; id++) {
        struct base_error later;
        jackal_status status = read_variable(settings, id, first == JACKAL_OK ? error : &later);
        first = first == JACKAL_OK ? status : first;
    }
    settings->environment_read = first == JACKAL_OK;
    return first;
}

const char *base_settings_text(const struct base_settings *settings, enum base_setting_id id) {
    if (settings->explicit_values[id] != NULL)
        return settings->explicit_values[id];
    if (settings->environment[id] != NULL)
        return settings->environment[id];
    return base_setting_table[id].fallback;
}

const char *base_settings_source(const struct base_settings *settings, enum base_setting_id id) {
    if (settings->explicit_values[id] != NULL)
        return "explicit";
    return settings->environment[id] != NULL ? settings->environment_names[id] : "default";
}

int64_t base_settings_integer(const struct base_settings *settings, enum base_setting_id id,
                              int64_t otherwise) {
    const char *text = base_settings_text(settings, id);
    int64_t value = 0;
    if (text == NULL)
        return otherwise;
    bool good = base_setting_table[id].type == SETTING_BOOLEAN ? parse_boolean(text, &value)
                                                               : parse_integer(text, &value);
    return good ? value : otherwise;
}

void base_settings_normal(const struct base_settings *settings, enum base_setting_id id, char *text,
                          size_t n_bytes) {
    enum base_setting_type type = base_setting_table[id].type;
    const char *value = base_settings_text(settings, id);
    if (value != NULL && (type == SETTING_INTEGER || type == SETTING_BOOLEAN))
        snprintf(text, n_bytes, "%lld", (long long)base_settings_integer(settings, id, 0));
    else
        snprintf(text, n_bytes, "%s", value != NULL ? value : "");
}

int base_settings_word(const struct base_settings *settings, enum base_setting_id id) {
    return find_word(base_setting_table[id].unit, base_settings_text(settings, id));
}
