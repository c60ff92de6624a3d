/* SPDX-License-Identifier: MIT */
/*
 * Options of a subcommand, from one table: parsing, error lines and --help cannot disagree.
 *
 * Long options take their value as `--name=value` or `--name value`, short ones as `-n value` or
 * `-nvalue`. `--` ends the options. --help (-h) is part of every command and not in its table.
 */
#ifndef TOOLS_OPTION_H
#define TOOLS_OPTION_H

#include <stddef.h>
#include <stdint.h>

enum option_value {
    OPTION_FLAG,       /* takes no value */
    OPTION_REQUIRED,   /* takes a value */
    OPTION_IF_ATTACHED /* takes a value only as --name=value */
};

struct option {
    const char *name; /* without the dashes; NULL = only a letter */
    char letter;      /* 0 = only a name */
    enum option_value takes;
    const char *value; /* what the value is called in the help, NULL for a flag */
    const char *help;  /* a newline starts a new line of the help */
};

struct option_command {
    const char *name;    /* "jackal run" */
    const char *usage;   /* what follows the name in the first line of the help */
    const char *summary; /* text between usage and options */
    const char *notes;   /* text after the options, or NULL */
    const struct option *options;
    size_t n_options;
};

struct option_scan {
    const struct option_command *command;
    int argc;
    char **argv;
    int index;         /* next word */
    const char *value; /* of the option found, NULL if none; or the operand */
};

enum option_found {
    OPTION_END = -1,     /* no options are left; operands may be, from argv[index] on */
    OPTION_OPERAND = -2, /* argv[index - 1] is not an option */
    OPTION_HELP = -3,    /* the help was printed: exit 0 */
    OPTION_BAD = -4,     /* an error line was printed: exit 2 */
};

/* argv[0] is the name of the subcommand. */
void option_start(struct option_scan *scan, const struct option_command *command, int argc,
                  char **argv);

/* Index in the table of the next option, or an option_found. */
int option_next(struct option_scan *scan);

/* Prints one line to stderr, `<command>: <text>; see <command> --help`; returns OPTION_BAD. */
__attribute__((format(printf, 2, 3))) int option_error(const struct option_command *command,
                                                       const char *format, ...);

/*
 * The value of option `found` as a number in low..high; 0 if it is one, else OPTION_BAD after an
 * error line. Seconds may have a fraction and are given back in milliseconds.
 */
int option_integer(const struct option_scan *scan, int found, int64_t low, int64_t high,
                   int64_t *number_p);
int option_seconds(const struct option_scan *scan, int found, int64_t high_s, int64_t *ms_p);

#endif
