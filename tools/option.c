/* SPDX-License-Identifier: MIT */
#include "option.h"
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26 };

void option_start(struct option_scan *scan, const struct option_command *command, int argc,
                  char **argv) {
    scan->command = command;
    scan->argc = argc;
    scan->argv = argv;
    scan->index = 1;
    scan->value = NULL;
}

int option_error(const struct option_command *command, const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s: ", command->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see %s --help\n", command->name);
    return OPTION_BAD;
}

static void print_option(const struct option *option) {
    char left[80];
    const char *open = option->takes == OPTION_IF_ATTACHED ? "[=" : option->name ? "=" : " ";
    const char *close = option->takes == OPTION_IF_ATTACHED ? "]" : "";
    char letter[8] = "    ";
    if (option->letter) {
        snprintf(letter, sizeof letter, "-%c%s", option->letter, option->name ? ", " : "");
    }
    snprintf(left, sizeof left, "  %s%s%s%s%s%s", letter, option->name ? "--" : "",
             option->name ? option->name : "", option->value ? open : "",
             option->value ? option->value : "", option->value ? close : "");
    printf("%-*s", HELP_COLUMN, left);
    if (strlen(left) >= HELP_COLUMN) {
        printf("\n%*s", HELP_COLUMN, "");
    }
    for (const char *text = option->help; *text; ++text) {
        putchar(*text);
        if (*text == '\n') {
            printf("%*s", HELP_COLUMN, "");
        }
    }
    putchar('\n');
}

static void print_help(const struct option_command *command) {
    static const struct option help = {"help", 'h', OPTION_FLAG, NULL, "print this and exit"};
    printf("usage: %s %s\n\n%s\n\n", command->name, command->usage, command->summary);
    for (size_t i = 0; i < command->n_options; ++i) {
        print_option(&command->options[i]);
    }
    print_option(&help);
    if (command->notes) {
        printf("\n%s\n", command->notes);
    }
}

static int unknown_option(const struct option_scan *scan, const char *word, size_t n_name) {
    const struct option_command *command = scan->command;
    const char **names = tool_resize(NULL, command->n_options, sizeof *names);
    size_t count = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(n_name < 63 ? n_name : 63), word + 2);
    for (size_t i = 0; i < command->n_options; ++i) {
        if (command->options[i].name) {
            names[count++] = command->options[i].name;
        }
    }
    const char *nearest = tool_nearest(name, names, count, sizeof *names);
    free(names);
    if (nearest) {
        return option_error(command, "unknown option --%s, did you mean --%s?", name, nearest);
    }
    return option_error(command, "unknown option --%s", name);
}

static int missing_value(const struct option_scan *scan, const char *word, int found) {
    return option_error(scan->command, "%s needs a value, %s, and it is the last word", word,
                        scan->command->options[found].value);
}

static int next_long(struct option_scan *scan, const char *word) {
    const struct option_command *command = scan->command;
    const char *equals = strchr(word, '=');
    size_t n_name = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    if (n_name == 4 && strncmp(word, "--help", 6) == 0 && !equals) {
        print_help(command);
        return OPTION_HELP;
    }
    for (size_t i = 0; i < command->n_options; ++i) {
        const struct option *option = &command->options[i];
        if (!option->name || strlen(option->name) != n_name ||
            strncmp(option->name, word + 2, n_name) != 0) {
            continue;
        }
        if (equals && option->takes == OPTION_FLAG) {
            return option_error(command, "--%s takes no value, got \"%s\"", option->name,
                                equals + 1);
        }
        if (equals) {
            scan->value = equals + 1;
        } else if (option->takes == OPTION_REQUIRED) {
            if (scan->index >= scan->argc) {
                return missing_value(scan, word, (int)i);
            }
            scan->value = scan->argv[scan->index++];
        }
        return (int)i;
    }
    return unknown_option(scan, word, n_name);
}

static int next_short(struct option_scan *scan, const char *word) {
    const struct option_command *command = scan->command;
    if (strcmp(word, "-h") == 0) {
        print_help(command);
        return OPTION_HELP;
    }
    for (size_t i = 0; i < command->n_options; ++i) {
        const struct option *option = &command->options[i];
        if (!option->letter || option->letter != word[1]) {
            continue;
        }
        if (option->takes == OPTION_REQUIRED) {
            if (word[2]) {
                scan->value = word + 2;
            } else if (scan->index >= scan->argc) {
                return missing_value(scan, word, (int)i);
            } else {
                scan->value = scan->argv[scan->index++];
            }
        } else if (word[2]) {
            return option_error(command, "-%c takes no value, got \"%s\"", word[1], word + 2);
        }
        return (int)i;
    }
    return option_error(command, "unknown option %s", word);
}

int option_next(struct option_scan *scan) {
    scan->value = NULL;
    if (scan->index >= scan->argc) {
        return OPTION_END;
    }
    const char *word = scan->argv[scan->index++];
    if (strcmp(word, "--") == 0) {
        return OPTION_END;
    }
    if (strncmp(word, "--", 2) == 0) {
        return next_long(scan, word);
    }
    if (word[0] == '-' && word[1]) {
        return next_short(scan, word);
    }
    scan->value = word;
    return OPTION_OPERAND;
}

/* How the option was probably written, for error lines. */
static const char *spelling(const struct option_scan *scan, int found, char *text, size_t size) {
    const struct option *option = &scan->command->options[found];
    if (option->name) {
        snprintf(text, size, "--%s", option->name);
    } else {
        snprintf(text, size, "-%c", option->letter);
    }
    return text;
}

int option_integer(const struct option_scan *scan, int found, int64_t low, int64_t high,
                   int64_t *number_p) {
    char name[80], *end;
    bool digits = scan->value[0] == '-' ? scan->value[1] >= '0' && scan->value[1] <= '9'
                                        : scan->value[0] >= '0' && scan->value[0] <= '9';
    errno = 0;
    long long number = strtoll(scan->value, &end, 10);
    if (!digits || *end || errno || number < low || number > high) {
        return option_error(scan->command, "%s takes a whole number from %lld to %lld, got \"%s\"",
                            spelling(scan, found, name, sizeof name), (long long)low,
                            (long long)high, scan->value);
    }
    *number_p = number;
    return 0;
}

int option_seconds(const struct option_scan *scan, int found, int64_t high_s, int64_t *ms_p) {
    char name[80];
    const char *text = scan->value;
    int64_t ms = 0, weight = 1000;
    bool digits = false, valid = true, fraction = false;
    for (; *text && valid; ++text) {
        if (*text == '.' && !fraction) {
            fraction = true;
        } else if (*text < '0' || *text > '9') {
            valid = false;
        } else if (!fraction) {
            ms = ms * 10 + (int64_t)(*text - '0') * 1000;
            valid = ms <= high_s * 1000;
            digits = true;
        } else {
            weight /= 10; /* digits below a millisecond count nothing */
            ms += (int64_t)(*text - '0') * weight;
            digits = true;
        }
    }
    if (!digits || !valid || ms > high_s * 1000) {
        return option_error(scan->command, "%s takes seconds from 0 to %lld, got \"%s\"",
                            spelling(scan, found, name, sizeof name), (long long)high_s,
                            scan->value);
    }
    *ms_p = ms;
    return 0;
}
