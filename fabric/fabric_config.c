/* SPDX-License-Identifier: MIT */
/*
 * The settings. Everything is checked before anything is built, and a key that nobody knows is an
 * error: a misspelt fault that silently does nothing would make a test pass that tests nothing.
 */
#include "fabric_config.h"
#include "fabric_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __APPLE__
/* What the static jansson takes for stdin, see CMakeLists.txt. It only compares streams with it. */
extern FILE *__wrap_stdin;
FILE *__wrap_stdin;
#endif

int fabric_config_number(const char **text_p, uint32_t limit, uint32_t *value_p) {
    char *end;
    unsigned long value;

    if (**text_p < '0' || **text_p > '9') {
        return EINVAL;
    }
    errno = 0;
    value = strtoul(*text_p, &end, 10);
    if (errno != 0 || value >= limit) {
        return EINVAL;
    }
    *text_p = end;
    *value_p = (uint32_t)value;
    return 0;
}

/* The word of the description and that of the variable must not contradict each other. */
static int config_personality(const json_t *root, struct fabric_topology *topology) {
    static const char *const words[] = {"thunderbolt", "roce", NULL};
    const char *text = getenv("JACKAL_FABRIC_PERSONALITY");
    int word = -1, rc;

    rc = root == NULL ? 0 : fabric_json_word(root, "", "personality", words, &word);
    if (rc != 0) {
        return rc;
    }
    if (text != NULL && text[0] != '\0') {
        int given = strcmp(text, "thunderbolt") == 0 ? 0 : strcmp(text, "roce") == 0 ? 1 : -1;

        if (given < 0) {
            return fabric_fail(
                EINVAL, "JACKAL_FABRIC_PERSONALITY: '%s' is neither thunderbolt nor roce", text);
        }
        if (word >= 0 && word != given) {
            return fabric_json_bad("personality", "'%s', but JACKAL_FABRIC_PERSONALITY says '%s'",
                                   words[word], text);
        }
        word = given;
    }
    topology->is_roce = word == 1;
    if (topology->is_roce) {
        fabric_rules_roce(&topology->rules);
    } else {
        fabric_rules_thunderbolt(&topology->rules);
    }
    return 0;
}

static int config_root(const json_t *root, struct fabric_topology *topology) {
    static const char *const keys[] = {"$schema",    "comment", "personality", "mesh",   "switched",
                                       "link",       "hosts",   "cables",      "limits", "strict",
                                       "idle_death", "faults",  NULL};
    int rc = root == NULL ? 0 : fabric_json_keys(root, "", keys);

    if (rc == 0) {
        rc = config_personality(root, topology);
    }
    if (rc == 0) {
        rc = fabric_config_rules(root, topology);
    }
    if (rc == 0) {
        rc = fabric_config_world(root, topology);
    }
    if (rc == 0) {
        rc = fabric_config_faults(root, topology);
    }
    return rc;
}

static int config_text(const char *text, struct fabric_topology *topology) {
    json_error_t error;
    json_t *root;
    int rc;

    if (text == NULL || text[0] == '\0') {
        return config_root(NULL, topology);
    }
    root = text[0] == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, &error)
                          : json_load_file(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return fabric_fail(EINVAL, "JACKAL_FABRIC: %s, line %d, column %d: %s",
                           text[0] == '{' ? "the JSON itself" : text, error.line, error.column,
                           error.text);
    }
    rc = config_root(root, topology);
    json_decref(root);
    return rc;
}

/* A number, the name of a host, or "*". */
static int config_host(struct fabric_topology *topology) {
    const char *text = getenv("JACKAL_FABRIC_HOST");
    const char *at = text;

    topology->self = 0;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    if (strcmp(text, "*") == 0) {
        topology->self = FABRIC_ALL_HOSTS;
        return 0;
    }
    for (uint32_t h = 0; h < topology->n_hosts; h++) {
        if (strcmp(topology->hosts[h].name, text) == 0) {
            topology->self = h;
            return 0;
        }
    }
    if (fabric_config_number(&at, topology->n_hosts, &topology->self) != 0 || *at != '\0') {
        return fabric_fail(EINVAL,
                           "JACKAL_FABRIC_HOST: '%s' is neither *, nor the name of a host, nor a "
                           "number from 0 to %u",
                           text, topology->n_hosts - 1);
    }
    return 0;
}

/* The name becomes a folder: letters, digits, '-', '_' and, not in front, '.'. */
static int config_name(struct fabric_topology *topology) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const char *text = getenv("JACKAL_FABRIC_NAME");
    size_t length;

    if (text == NULL || text[0] == '\0') {
        text = "default";
    }
    length = strlen(text);
    if (length > FABRIC_NAME_MAX || text[0] == '.' || strspn(text, allowed) != length) {
        return fabric_fail(EINVAL,
                           "JACKAL_FABRIC_NAME: '%s' must be at most %d letters, digits, '-', '_' "
                           "or '.', no dot in front",
                           text, FABRIC_NAME_MAX);
    }
    memcpy(topology->name, text, length + 1);
    return 0;
}

static struct fabric_topology *config_finish(struct fabric_topology *topology, int rc) {
    if (rc != 0) {
        fabric_topology_free(topology);
        errno = rc;
        return NULL;
    }
    return topology;
}

struct fabric_topology *fabric_config_parse(const char *text) {
    struct fabric_topology *topology = calloc(1, sizeof *topology);

    if (topology == NULL) {
        fabric_fail(ENOMEM, "no memory for the topology");
        return NULL;
    }
    return config_finish(topology, config_text(text, topology));
}

struct fabric_topology *fabric_config_read(void) {
    struct fabric_topology *topology = fabric_config_parse(getenv("JACKAL_FABRIC"));
    int rc;

    if (topology == NULL) {
        return NULL;
    }
    rc = config_host(topology);
    if (rc == 0) {
        rc = config_name(topology);
    }
    if (rc == 0 && fabric_topology_build(topology) != 0) {
        rc = fabric_fail(ENOMEM, "no memory for the devices of %u hosts", topology->n_hosts);
    }
    if (rc == 0) {
        fabric_plan_use(topology);
    }
    return config_finish(topology, rc);
}
