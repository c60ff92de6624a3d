/* SPDX-License-Identifier: MIT */
/*
 * Who is cabled to whom: the device matrix. Cell [i][j] holds the devices on rank i that reach rank
 * j; the k-th name of [i][j] and of [j][i] are the two ends of one cable.
 */
#ifndef TOPOLOGY_TOPOLOGY_H
#define TOPOLOGY_TOPOLOGY_H

#include "base/error.h"

enum {
    TOPOLOGY_NAME_BYTES = 64,
    TOPOLOGY_MAX_WIRES = 4, /* between two ranks */
    TOPOLOGY_MAX_SIZE = 64,
    TOPOLOGY_MESH_MAX_SIZE = 8 /* ranks of a mesh over verbs */
};

struct topology_cell {
    int n_names;
    char names[TOPOLOGY_MAX_WIRES][TOPOLOGY_NAME_BYTES];
};

struct topology {
    int size;
    struct topology_cell cells[]; /* [i · size + j] */
};

/*
 * Reads a device matrix: the JSON itself if the value begins with [ or {, else the path of a file.
 * Rows of cells: null or [] (no link), "name", or ["name", …].
 * Errors: JACKAL_ERR_CONFIG with line and column, or with the path ("[1][2]") of the cell.
 * Owner of the result: caller, topology_free().
 */
jackal_status topology_read(const char *value, struct topology **topology_p,
                            struct base_error *error);
void topology_free(struct topology *topology);

const struct topology_cell *topology_cell(const struct topology *topology, int from, int to);

/*
 * A mesh has at least one cable between every two ranks. `wires_p` is what every pair has.
 * Errors: JACKAL_ERR_CONFIG naming the pair, JACKAL_ERR_LIMIT for more than a mesh may have.
 */
jackal_status topology_check_mesh(const struct topology *topology, int *wires_p,
                                  struct base_error *error);

#endif
