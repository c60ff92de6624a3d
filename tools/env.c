/* SPDX-License-Identifier: MIT */
/* `jackal env`: the table of settings with the values in force here. */
#include "option.h"
#include "tool.h"

#include <jackal/inspect.h>
#include <jackal/jackal.h>

#include <jansson.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const struct option env_options[] = {
    {"json", 0, OPTION_FLAG, NULL, "print the table as a JSON array"},
};

static const struct option_command env_command = {
    "jackal env",
    "[--json]",
    "Prints every setting of the library: its variable, the value in force in this environment,\n"
    "where that comes from, what is allowed and what it means. A JACKAL_* variable that is no\n"
    "setting gets a warning.",
    NULL,
    env_options,
    sizeof env_options / sizeof env_options[0],
};

static const char *text_of(const json_t *setting, const char *key) {
    const char *text = json_string_value(json_object_get(setting, key));
    return text ? text : "";
}

static void print_setting(const json_t *setting, int width) {
    char *value = json_dumps(json_object_get(setting, "value"), JSON_ENCODE_ANY);
    const json_t *given = json_object_get(setting, "value");
    const char *shown = json_is_string(given) ? json_string_value(given)
                        : json_is_null(given) ? "(unset)"
                        : value               ? value
                                              : "(unset)";
    const char *unit = text_of(setting, "unit"), *range = text_of(setting, "range");
    printf("%-*s  %s%s%s  (%s)\n", width, text_of(setting, "variable"), shown, unit[0] ? " " : "",
           unit, text_of(setting, "source"));
    printf("%-*s    %s\n", width, "", text_of(setting, "help"));
    printf("%-*s    %s%s%s", width, "", text_of(setting, "type"), range[0] ? ", " : "", range);
    const char *fallback = text_of(setting, "default");
    if (fallback[0]) {
        printf(", default %s", fallback);
    }
    const json_t *aliases = json_object_get(setting, "aliases");
    for (size_t i = 0; i < json_array_size(aliases); ++i) {
        printf("%s%s", i == 0 ? ", also " : ", ", json_string_value(json_array_get(aliases, i)));
    }
    putchar('\n');
    free(value);
}

static void print_table(const json_t *settings) {
    size_t i, width = 0;
    json_t *setting;
    json_array_foreach(settings, i, setting) {
        size_t length = strlen(text_of(setting, "variable"));
        width = length > width ? length : width;
    }
    json_array_foreach(settings, i, setting) {
        print_setting(setting, (int)width);
    }
}

/* A mistyped variable is silently without effect anywhere else, so say it here. */
static void warn_unknown(const json_t *settings) {
    size_t count = json_array_size(settings);
    const char **names = tool_resize(NULL, count, sizeof *names);
    for (size_t i = 0; i < count; ++i) {
        names[i] = text_of(json_array_get(settings, i), "variable");
    }
    for (char **entry = environ; *entry; ++entry) {
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, "JACKAL_", 7) != 0 || !equals) {
            continue;
        }
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)(equals - *entry), *entry);
        bool known = false;
        for (size_t i = 0; i < count && !known; ++i) {
            known = strcmp(names[i], name) == 0;
        }
        if (!known) {
            const char *nearest = tool_nearest(name, names, count, sizeof *names);
            fprintf(stderr, "jackal env: warning: %s is not a setting and has no effect%s%s%s\n",
                    name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                    nearest ? "?" : "");
        }
    }
    free(names);
}

static int print_settings(bool as_json) {
    char *text = NULL;
    jackal_status status = jackal_inspect("settings", NULL, &text);
    if (status != JACKAL_OK) {
        fprintf(stderr, "jackal env: cannot read the settings: %s\n", jackal_status_name(status));
        return TOOL_FAILED;
    }
    json_error_t error;
    json_t *settings = json_loads(text, 0, &error);
    jackal_free_text(text);
    if (!json_is_array(settings)) {
        fprintf(stderr, "jackal env: the table of settings is not a JSON array: %s\n",
                settings ? "another type" : error.text);
        json_decref(settings);
        return TOOL_FAILED;
    }
    if (as_json) {
        json_dumpf(settings, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        print_table(settings);
    }
    fflush(stdout);
    warn_unknown(settings);
    json_decref(settings);
    return TOOL_GOOD;
}

int tool_env(int argc, char **argv) {
    struct option_scan scan;
    bool as_json = false;
    option_start(&scan, &env_command, argc, argv);
    for (;;) {
        int found = option_next(&scan);
        if (found == OPTION_HELP) {
            return TOOL_GOOD;
        }
        if (found == OPTION_END && scan.index >= scan.argc) {
            return print_settings(as_json);
        }
        if (found == OPTION_BAD) {
            return TOOL_USAGE;
        }
        if (found < 0) {
            option_error(&env_command, "takes no operand, got \"%s\"",
                         scan.value ? scan.value : scan.argv[scan.index]);
            return TOOL_USAGE;
        }
        as_json = true;
    }
}
