/* SPDX-License-Identifier: MIT */
/* Descriptions as JSON text. */
#include "api/handles.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jackal_status give(json_t *json, char **json_p) {
    *json_p = json != NULL ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    return *json_p != NULL ? JACKAL_OK : JACKAL_ERR_MEMORY;
}

/* The environment may hold any bytes, JSON only UTF-8: what is not is shown as '?'. */
static json_t *text_or_null(const char *text) {
    if (text == NULL)
        return json_null();
    json_t *json = json_string(text);
    char *copy = json == NULL ? strdup(text) : NULL;
    for (char *c = copy; c != NULL && *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    if (copy != NULL)
        json = json_string(copy);
    free(copy);
    return json;
}

static json_t *aliases_of(const struct base_setting *setting) {
    json_t *list = json_array();
    for (const char *at = setting->aliases; at[0] != '\0';) {
        size_t span = strcspn(at, " ");
        json_array_append_new(list, json_stringn(at, span));
        at += span + strspn(at + span, " ");
    }
    return list;
}

static void range_of(const struct base_setting *setting, char *text, size_t n_bytes) {
    static const char *const fixed[] = {"", "0|1", "", ""};
    if (setting->type == SETTING_INTEGER)
        snprintf(text, n_bytes, "%lld to %lld", (long long)setting->low, (long long)setting->high);
    else
        snprintf(text, n_bytes, "%s",
                 setting->type == SETTING_WORD ? setting->unit : fixed[setting->type]);
}

static json_t *describe_setting(const struct base_settings *settings, enum base_setting_id id) {
    static const char *const types[] = {"integer", "boolean", "text", "word"};
    const struct base_setting *setting = &base_setting_table[id];
    char range[160];
    range_of(setting, range, sizeof range);
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:s, s:s, s:s, s:o, s:s}", "name", setting->name,
                     "variable", setting->variable, "aliases", aliases_of(setting), "type",
                     types[setting->type], "default", text_or_null(setting->fallback), "range",
                     range, "unit", setting->type == SETTING_INTEGER ? setting->unit : "", "help",
                     setting->help, "value", text_or_null(base_settings_text(settings, id)),
                     "source", base_settings_source(settings, id));
}

/* A value that is out of range is shown as it is: this is where people look for what is wrong. */
static jackal_status describe_settings(char **json_p) {
    struct base_settings settings;
    struct base_error ignored;
    memset(&settings, 0, sizeof settings);
    base_settings_read_environment(&settings, &ignored);
    json_t *list = json_array();
    for (int id = 0; id < SETTING_COUNT; id++)
        json_array_append_new(list, describe_setting(&settings, (enum base_setting_id)id));
    base_settings_free(&settings);
    return give(list, json_p);
}

static json_t *list_devices(struct verbs_provider *provider) {
    enum { NAME_BYTES = 66 }; /* with what separates it from the next */
    char none[1];
    size_t room = NAME_BYTES * (size_t)verbs_provider_devices(provider, none, sizeof none) + 1;
    char *names = malloc(room);
    if (names == NULL)
        return NULL;
    verbs_provider_devices(provider, names, room);
    json_t *list = json_array();
    char *rest = names;
    for (char *name = strtok_r(names, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest))
        json_array_append_new(list, json_pack("{s:s}", "name", name));
    free(names);
    return list;
}

static jackal_status describe_devices(char **json_p) {
    struct base_settings settings;
    struct base_error error;
    struct verbs_provider *provider = NULL;
    memset(&settings, 0, sizeof settings);
    jackal_status status = base_settings_read_environment(&settings, &error);
    if (status == JACKAL_OK)
        status =
            verbs_provider_acquire(base_settings_text(&settings, SETTING_verbs), &provider, &error);
    base_settings_free(&settings);
    if (status != JACKAL_OK)
        return status;
    json_t *list = list_devices(provider);
    verbs_provider_release(provider);
    return give(list, json_p);
}

jackal_status jackal_inspect(const char *what, const char *argument, char **json_p) {
    (void)argument;
    if (what == NULL || json_p == NULL)
        return JACKAL_ERR_ARGUMENT;
    *json_p = NULL;
    if (strcmp(what, "settings") == 0)
        return describe_settings(json_p);
    if (strcmp(what, "devices") == 0)
        return describe_devices(json_p);
    return JACKAL_ERR_ARGUMENT;
}

static json_t *describe_wire(const struct engine_wire_stats *stats) {
    return json_pack(
        "{s:i, s:i, s:s, s:I, s:I, s:I, s:I}", "peer", stats->peer, "wire", stats->wire, "device",
        stats->device, "bytes_sent", (json_int_t)stats->bytes_sent, "bytes_received",
        (json_int_t)stats->bytes_received, "messages_sent", (json_int_t)stats->messages_sent,
        "messages_received", (json_int_t)stats->messages_received);
}

jackal_status jackal_group_stats(jackal_group *group, char **json_p) {
    jackal_status status = api_check_group(group);
    if (status != JACKAL_OK || json_p == NULL)
        return status != JACKAL_OK ? status : JACKAL_ERR_ARGUMENT;
    struct group *it = group->group;
    json_t *wires = json_array();
    for (int peer = 0; peer < it->size; peer++) {
        for (int wire = 0; wire < it->wires; wire++) {
            struct engine_wire_stats stats;
            if (engine_wire_stats(it->engine, peer, wire, &stats))
                json_array_append_new(wires, describe_wire(&stats));
        }
    }
    return give(json_pack("{s:i, s:i, s:s, s:I, s:o}", "rank", it->rank, "size", it->size,
                          "backend", it->backend, "operations",
                          (json_int_t)engine_operations(it->engine), "wires", wires),
                json_p);
}

void jackal_free_text(char *text) {
    free(text);
}
