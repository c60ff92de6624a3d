/* SPDX-License-Identifier: MIT */
/* The `jackal` command: finds the subcommand; everything else is theirs. */
#include "tool.h"

#include <jackal/jackal.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct subcommand {
    const char *name;
    int (*function)(int argc, char **argv);
    const char *help;
    const char *needs; /* what has to be there for it to do anything useful */
} subcommands[] = {
    {"run", tool_run, "start the ranks of a program and look after them", "nothing"},
#ifdef JACKAL_TOOL_BENCH
    {"bench", tool_bench, "measure collectives and check their results",
     "ranks: start it with "
     "jackal run"},
#endif
    {"env", tool_env, "print all settings and where their values come from", "nothing"},
    {"fabric", tool_fabric, "look at emulated fabrics and change them", "a job on one"},
};

enum { N_SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0] };

static void print_help(FILE *stream) {
    fprintf(stream, "usage: jackal SUBCOMMAND [OPTION...]\n"
                    "\n"
                    "Collective communication between the machines of one program.\n"
                    "\n"
                    "  subcommand  does                                                 needs\n");
    for (size_t i = 0; i < N_SUBCOMMANDS; ++i) {
        fprintf(stream, "  %-11s %-52s %s\n", subcommands[i].name, subcommands[i].help,
                subcommands[i].needs);
    }
    fprintf(stream, "\n"
                    "  --help      print this; jackal SUBCOMMAND --help explains a subcommand\n"
                    "  --version   print the version of the library\n");
}

static int unknown(const char *word) {
    const char *nearest =
        tool_nearest(word, &subcommands[0].name, N_SUBCOMMANDS, sizeof subcommands[0]);
    fprintf(stderr, "jackal: unknown %s \"%s\"%s%s%s; see jackal --help\n",
            word[0] == '-' ? "option" : "subcommand", word, nearest ? ", did you mean \"" : "",
            nearest ? nearest : "", nearest ? "\"?" : "");
    return TOOL_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return TOOL_GOOD;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("jackal %s\n", jackal_version());
        return TOOL_GOOD;
    }
    for (size_t i = 0; i < N_SUBCOMMANDS; ++i) {
        if (strcmp(argv[1], subcommands[i].name) == 0) {
            return subcommands[i].function(argc - 1, argv + 1);
        }
    }
    return unknown(argv[1]);
}

int main(int argc, char **argv) {
    int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "jackal: cannot write to stdout: %s\n", strerror(errno));
        return status == TOOL_GOOD ? TOOL_FAILED : status;
    }
    return status;
}
