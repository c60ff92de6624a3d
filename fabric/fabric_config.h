/* SPDX-License-Identifier: MIT */
/* The parts of the description, each read by one file. All return 0 or an errno with a text. */
#ifndef FABRIC_CONFIG_H
#define FABRIC_CONFIG_H

#include "fabric_json.h"
#include "fabric_topology.h"

/* A whole decimal number below limit that starts at *text_p; moves *text_p behind it. */
int fabric_config_number(const char **text_p, uint32_t limit, uint32_t *value_p);

/* fabric_config_rules.c: "limits", "strict", "idle_death" into the rules of all devices; the
 * "limits" of one. */
int fabric_config_rules(const json_t *root, struct fabric_topology *topology);
int fabric_config_limits(const json_t *object, const char *path, struct fabric_rules *rules);

/* fabric_config_world.c: "link" (first), "mesh", or "hosts" and "cables". */
int fabric_config_world(const json_t *root, struct fabric_topology *topology);

/* fabric_config_fault.c: "faults", of a topology whose ports are known. */
int fabric_config_faults(const json_t *root, struct fabric_topology *topology);
/* One fault, which may become two; *n_faults_p of them are written to faults[0..1]. */
int fabric_config_fault(const struct fabric_topology *topology, const json_t *item,
                        const char *path, struct fabric_fault faults[2], size_t *n_faults_p);

#endif
