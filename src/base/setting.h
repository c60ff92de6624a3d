/* SPDX-License-Identifier: MIT */
/*
 * The settings of one config: explicit values, a snapshot of the environment, defaults, in that
 * order of precedence. What settings there are stands in settings.def.
 */
#ifndef BASE_SETTING_H
#define BASE_SETTING_H

#include "base/error.h"

#include <stdbool.h>

enum base_setting_id {
#define SETTING(id, variable, aliases, type, fallback, low, high, unit, agreed, help) SETTING_##id,
#include "base/settings.def"
#undef SETTING
    SETTING_COUNT
};

enum base_setting_type { SETTING_INTEGER, SETTING_BOOLEAN, SETTING_TEXT, SETTING_WORD };

struct base_setting {
    const char *name;
    const char *variable;
    const char *aliases;
    enum base_setting_type type;
    const char *fallback; /* NULL = no default */
    int64_t low, high;    /* INTEGER */
    const char *unit;     /* WORD: the words, separated by | */
    bool agreed;
    const char *help;
};

extern const struct base_setting base_setting_table[SETTING_COUNT];

struct base_settings {
    char *explicit_values[SETTING_COUNT];
    char *environment[SETTING_COUNT];
    char environment_names[SETTING_COUNT][64]; /* the variable that the value came from */
    bool environment_read;
};

void base_settings_free(struct base_settings *settings);

/* Sets or (value NULL) takes back an explicit value. JACKAL_ERR_CONFIG names what is allowed. */
jackal_status base_settings_set(struct base_settings *settings, const char *name, const char *value,
                                struct base_error *error);

/* Takes the snapshot of the environment; an empty variable counts as unset. All variables are taken
 * over, and the first that is wrong is the error. */
jackal_status base_settings_read_environment(struct base_settings *settings,
                                             struct base_error *error);

/* Value in force, or NULL. */
const char *base_settings_text(const struct base_settings *settings, enum base_setting_id id);

/* "explicit", "default", or the name of the environment variable. */
const char *base_settings_source(const struct base_settings *settings, enum base_setting_id id);

/* The value in force in its one spelling ("1", not "yes" or "01"), for comparing it between ranks.
 */
void base_settings_normal(const struct base_settings *settings, enum base_setting_id id, char *text,
                          size_t n_bytes);

/* Value of an INTEGER or BOOLEAN setting that has a value; else `otherwise`. */
int64_t base_settings_integer(const struct base_settings *settings, enum base_setting_id id,
                              int64_t otherwise);

/* Position of the value among the words of a WORD setting. */
int base_settings_word(const struct base_settings *settings, enum base_setting_id id);

/*
 * The first variable of the environment from `*place_p` on that looks like a setting (JACKAL_…) and
 * is none; NULL if there is no more. Begin with *place_p = 0. JACKAL_TEST_… belongs to the tests.
 */
const char *base_setting_unknown(size_t *place_p);

/* Index of a setting by its name, −1 if there is none. */
int base_setting_find(const char *name);

#endif
