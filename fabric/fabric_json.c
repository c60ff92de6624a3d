/* SPDX-License-Identifier: MIT */
#include "fabric_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fabric_json_bad(const char *path, const char *format, ...) {
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fabric_fail(EINVAL, "JACKAL_FABRIC: %s: %s", path[0] == '\0' ? "the top level" : path,
                       text);
}

void fabric_json_join(char *joined, const char *path, const char *key) {
    snprintf(joined, FABRIC_PATH_MAX, "%.80s%s%.40s", path, path[0] == '\0' ? "" : ".", key);
}

void fabric_json_index(char *joined, const char *path, size_t index) {
    snprintf(joined, FABRIC_PATH_MAX, "%.80s[%zu]", path, index);
}

int fabric_json_keys(const json_t *object, const char *path, const char *const *allowed) {
    const char *key;
    json_t *value;

    if (!json_is_object(object)) {
        return fabric_json_bad(path, "must be an object");
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;

        while (allowed[i] != NULL && strcmp(allowed[i], key) != 0) {
            i++;
        }
        if (allowed[i] == NULL) {
            return fabric_json_bad(path, "has an unknown key '%s'", key);
        }
    }
    return 0;
}

int fabric_json_integer(const json_t *object, const char *path, const char *key, json_int_t low,
                        json_int_t high, json_int_t *value_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];

    if (item == NULL) {
        return 0;
    }
    if (!json_is_integer(item) || json_integer_value(item) < low ||
        json_integer_value(item) > high) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be an integer from %lld to %lld", (long long)low,
                               (long long)high);
    }
    *value_p = json_integer_value(item);
    return 0;
}

int fabric_json_u32(const json_t *object, const char *path, const char *key, uint32_t low,
                    uint32_t high, uint32_t *value_p) {
    json_int_t value = *value_p;
    int rc = fabric_json_integer(object, path, key, low, high, &value);

    if (rc == 0) {
        *value_p = (uint32_t)value;
    }
    return rc;
}

int fabric_json_real(const json_t *object, const char *path, const char *key, double low,
                     double high, double *value_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];

    if (item == NULL) {
        return 0;
    }
    if (!json_is_number(item) || json_number_value(item) < low || json_number_value(item) > high) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be a number from %g to %g", low, high);
    }
    *value_p = json_number_value(item);
    return 0;
}

int fabric_json_bool(const json_t *object, const char *path, const char *key, bool *value_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];

    if (item == NULL) {
        return 0;
    }
    if (!json_is_boolean(item)) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be true or false");
    }
    *value_p = json_is_true(item);
    return 0;
}

int fabric_json_string(const json_t *object, const char *path, const char *key,
                       const char **value_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];

    if (item == NULL) {
        return 0;
    }
    if (!json_is_string(item)) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be a string");
    }
    *value_p = json_string_value(item);
    return 0;
}

int fabric_json_word(const json_t *object, const char *path, const char *key,
                     const char *const *words, int *value_p) {
    const char *text = NULL;
    char where[FABRIC_PATH_MAX], all[200] = "";
    int rc = fabric_json_string(object, path, key, &text);

    if (rc != 0 || text == NULL) {
        return rc;
    }
    for (int i = 0; words[i] != NULL; i++) {
        size_t at = strlen(all);

        if (strcmp(words[i], text) == 0) {
            *value_p = i;
            return 0;
        }
        snprintf(all + at, sizeof all - at, "%s%s", i == 0 ? "" : ", ", words[i]);
    }
    fabric_json_join(where, path, key);
    return fabric_json_bad(where, "'%s' is none of %s", text, all);
}

/* Not strtod: the host program's locale may have another decimal point. */
static const char *json_decimal(const char *text, double *value_p) {
    double value = 0, place = 1;

    while (*text >= '0' && *text <= '9') {
        value = value * 10 + (*text++ - '0');
    }
    if (*text == '.') {
        for (text++; *text >= '0' && *text <= '9'; text++) {
            place /= 10;
            value += place * (*text - '0');
        }
    }
    *value_p = value;
    return text;
}

bool fabric_json_measure(const char *text, const struct fabric_json_unit *units, double *value_p) {
    double value;
    const char *end = json_decimal(text, &value);

    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    for (size_t i = 0; units[i].name != NULL; i++) {
        if (strcmp(units[i].name, end) == 0) {
            *value_p = value * units[i].factor;
            return *value_p < 1e18;
        }
    }
    return false;
}

const struct fabric_json_unit fabric_json_times[] = {
    {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}, {NULL, 0}};

int fabric_json_time(const json_t *object, const char *path, const char *key, uint64_t *ns_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];
    double value = 0;

    if (item == NULL) {
        return 0;
    }
    if (!json_is_string(item) ||
        !fabric_json_measure(json_string_value(item), fabric_json_times, &value)) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be a time as \"4.15us\" (ns, us, ms, s, min, h)");
    }
    *ns_p = (uint64_t)value;
    return 0;
}

int fabric_json_rate(const json_t *object, const char *path, const char *key, double *rate_p) {
    static const struct fabric_json_unit units[] = {
        {"B/s", 1},          {"KB/s", 1e3},       {"MB/s", 1e6}, {"GB/s", 1e9},
        {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {NULL, 0}};
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];
    double value = 0;

    if (item == NULL) {
        return 0;
    }
    if (!json_is_string(item) || !fabric_json_measure(json_string_value(item), units, &value) ||
        value < 1) {
        fabric_json_join(where, path, key);
        return fabric_json_bad(where, "must be a rate as \"8.9GB/s\" (B/s, KB/s, MB/s, GB/s, "
                                      "Mbit/s, Gbit/s), at least 1B/s");
    }
    *rate_p = value;
    return 0;
}

const json_t *fabric_json_array(const json_t *object, const char *path, const char *key,
                                int *rc_p) {
    const json_t *item = json_object_get(object, key);
    char where[FABRIC_PATH_MAX];

    if (item != NULL && !json_is_array(item)) {
        fabric_json_join(where, path, key);
        *rc_p = fabric_json_bad(where, "must be an array");
        return NULL;
    }
    return item;
}
