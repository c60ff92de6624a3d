/* SPDX-License-Identifier: MIT */
#include "topology/topology.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LABEL "device matrix"

/* A pipe without a writer would be waited for for ever, and a folder reads as empty. */
static jackal_status check_file(const char *path, struct base_error *error) {
    struct stat entry;
    if (stat(path, &entry) != 0)
        return base_fail_errno(error, JACKAL_ERR_CONFIG, errno, LABEL " %.200s cannot be read",
                               path);
    if (!S_ISREG(entry.st_mode))
        return base_fail(error, JACKAL_ERR_CONFIG, LABEL " %.200s is not a file", path);
    return JACKAL_OK;
}

static jackal_status read_json(const char *value, json_t **json_p, struct base_error *error) {
    json_error_t where;
    char first = value[strspn(value, " \t\r\n")];
    bool inlined = first == '[' || first == '{';
    jackal_status status = inlined ? JACKAL_OK : check_file(value, error);
    if (status != JACKAL_OK)
        return status;
    *json_p = inlined ? json_loads(value, JSON_REJECT_DUPLICATES, &where)
                      : json_load_file(value, JSON_REJECT_DUPLICATES, &where);
    if (*json_p != NULL)
        return JACKAL_OK;
    if (where.line < 0)
        return base_fail(error, JACKAL_ERR_CONFIG, LABEL " %.200s: %s", value, where.text);
    return base_fail(error, JACKAL_ERR_CONFIG, LABEL "%s%.200s: line %d, column %d: %s",
                     inlined ? "" : " ", inlined ? "" : value, where.line, where.column,
                     where.text);
}

static jackal_status read_name(const json_t *json, struct topology_cell *cell, const char *path,
                               struct base_error *error) {
    const char *name = json_string_value(json);
    if (name == NULL || name[0] == '\0' || strlen(name) >= TOPOLOGY_NAME_BYTES)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         LABEL " %s: want a device name of 1 to %d characters", path,
                         TOPOLOGY_NAME_BYTES - 1);
    if (cell->n_names == TOPOLOGY_MAX_WIRES)
        return base_fail(error, JACKAL_ERR_CONFIG, LABEL " %s: more than %d devices", path,
                         TOPOLOGY_MAX_WIRES);
    for (int k = 0; k < cell->n_names; k++)
        if (strcmp(cell->names[k], name) == 0)
            return base_fail(error, JACKAL_ERR_CONFIG, LABEL " %s: %s is listed twice", path, name);
    strcpy(cell->names[cell->n_names++], name);
    return JACKAL_OK;
}

static jackal_status read_cell(const json_t *json, struct topology_cell *cell, int i, int j,
                               struct base_error *error) {
    char path[48];
    snprintf(path, sizeof path, "[%d][%d]", i, j);
    if (json_is_null(json))
        return JACKAL_OK;
    if (json_is_string(json))
        return read_name(json, cell, path, error);
    if (!json_is_array(json))
        return base_fail(error, JACKAL_ERR_CONFIG,
                         LABEL " %s: want null, a device name or a list of device names", path);
    for (size_t k = 0; k < json_array_size(json); k++) {
        snprintf(path, sizeof path, "[%d][%d][%zu]", i, j, k);
        jackal_status status = read_name(json_array_get(json, k), cell, path, error);
        if (status != JACKAL_OK)
            return status;
    }
    return JACKAL_OK;
}

static jackal_status read_row(const json_t *row, struct topology *topology, int i,
                              struct base_error *error) {
    if (!json_is_array(row) || json_array_size(row) != (size_t)topology->size)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         LABEL " [%d]: want a row of %d cells, as there are %d rows", i,
                         topology->size, topology->size);
    for (int j = 0; j < topology->size; j++) {
        struct topology_cell *cell = &topology->cells[i * topology->size + j];
        jackal_status status = read_cell(json_array_get(row, (size_t)j), cell, i, j, error);
        if (status != JACKAL_OK)
            return status;
        if (i == j && cell->n_names > 0)
            return base_fail(error, JACKAL_ERR_CONFIG,
                             LABEL " [%d][%d]: a rank has no cable to itself, want null", i, j);
    }
    return JACKAL_OK;
}

jackal_status topology_read(const char *value, struct topology **topology_p,
                            struct base_error *error) {
    json_t *json = NULL;
    struct topology *topology = NULL;
    jackal_status status = read_json(value, &json, error);
    if (status != JACKAL_OK)
        return status;
    size_t size = json_array_size(json); /* 0 if it is no array */
    if (!json_is_array(json) || size < 2 || size > TOPOLOGY_MAX_SIZE) {
        status = base_fail(error, JACKAL_ERR_CONFIG,
                           LABEL ": want a list of 2 to %d rows, one per rank", TOPOLOGY_MAX_SIZE);
        goto out;
    }
    topology = calloc(1, sizeof *topology + size * size * sizeof topology->cells[0]);
    if (topology == NULL) {
        status = base_fail(error, JACKAL_ERR_MEMORY, "out of memory for the " LABEL);
        goto out;
    }
    topology->size = (int)size;
    for (int i = 0; i < topology->size && status == JACKAL_OK; i++)
        status = read_row(json_array_get(json, (size_t)i), topology, i, error);
out:
    json_decref(json);
    if (status != JACKAL_OK) {
        topology_free(topology);
        return status;
    }
    *topology_p = topology;
    return JACKAL_OK;
}

void topology_free(struct topology *topology) {
    free(topology);
}

const struct topology_cell *topology_cell(const struct topology *topology, int from, int to) {
    return &topology->cells[from * topology->size + to];
}

jackal_status topology_check_mesh(const struct topology *topology, int *wires_p,
                                  struct base_error *error) {
    int wires = TOPOLOGY_MAX_WIRES;
    if (topology->size > TOPOLOGY_MESH_MAX_SIZE)
        return base_fail(error, JACKAL_ERR_LIMIT, "a mesh has at most %d ranks, not %d",
                         TOPOLOGY_MESH_MAX_SIZE, topology->size);
    for (int i = 0; i < topology->size; i++) {
        for (int j = 0; j < topology->size; j++) {
            int here = topology_cell(topology, i, j)->n_names;
            int there = topology_cell(topology, j, i)->n_names;
            if (i == j)
                continue;
            if (here == 0)
                return base_fail(error, JACKAL_ERR_CONFIG,
                                 LABEL " [%d][%d]: no cable from rank %d to rank %d, and a mesh "
                                       "needs one between every two ranks",
                                 i, j, i, j);
            if (here != there)
                return base_fail(error, JACKAL_ERR_CONFIG,
                                 LABEL " [%d][%d] lists %d devices but [%d][%d] lists %d; a cable "
                                       "has two ends",
                                 i, j, here, j, i, there);
            wires = here < wires ? here : wires;
        }
    }
    *wires_p = wires;
    return JACKAL_OK;
}
