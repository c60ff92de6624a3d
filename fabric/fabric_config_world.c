/* SPDX-License-Identifier: MIT */
/* Hosts, devices, addresses, cables: as a mesh by two numbers, or one by one. */
#include "fabric_config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int world_no_memory(void) {
    return fabric_fail(ENOMEM, "no memory for the topology");
}

static int world_name(const json_t *object, const char *path, char *name) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const char *text = NULL;
    char where[FABRIC_PATH_MAX];
    int rc = fabric_json_string(object, path, "name", &text);
    size_t length = text == NULL ? 0 : strlen(text);

    if (rc != 0) {
        return rc;
    }
    if (length == 0 || length > FABRIC_LABEL_MAX - 1 || strspn(text, allowed) != length) {
        fabric_json_join(where, path, "name");
        return fabric_json_bad(where, "'%s' must be 1 to %d letters, digits, '-' or '_'",
                               text == NULL ? "" : text, FABRIC_LABEL_MAX - 1);
    }
    memcpy(name, text, length + 1);
    return 0;
}

/* ----------------------------------------------------------------- GID tables */

static int gid_add(struct fabric_port *port, const char *path,
                   const struct fabric_gid_entry *entry) {
    struct fabric_gid_entry *grown;

    if (entry->index >= FABRIC_GID_TABLE) {
        return fabric_json_bad(path, "index %u is not below %d", entry->index, FABRIC_GID_TABLE);
    }
    grown = realloc(port->gids, (port->n_gids + 1) * sizeof *grown);
    if (grown == NULL) {
        return world_no_memory();
    }
    port->gids = grown;
    port->gids[port->n_gids++] = *entry;
    return 0;
}

static int gid_value(const json_t *value, const char *path, union ibv_gid *gid_p) {
    const char *text = json_string_value(value);

    if (text == NULL || inet_pton(AF_INET6, text, gid_p->raw) != 1) {
        return fabric_json_bad(path, "'%s' must be an IPv6 address as \"::ffff:169.254.1.2\"",
                               text == NULL ? "" : text);
    }
    return 0;
}

/* "fe80::1" at place k of the list: index k, or 2 k as RoCE v1 and 2 k + 1 as RoCE v2. */
static int gid_plain(const struct fabric_topology *topology, const json_t *item, const char *path,
                     struct fabric_port *port, uint32_t place) {
    struct fabric_gid_entry entry = {.index = place,
                                     .type = FABRIC_GID_ROCE_V2,
                                     .until_ns = UINT64_MAX,
                                     .until_flap = UINT32_MAX};
    int rc = gid_value(item, path, &entry.value);

    if (rc != 0 || !topology->is_roce) {
        return rc == 0 ? gid_add(port, path, &entry) : rc;
    }
    entry.index = 2 * place;
    entry.type = FABRIC_GID_ROCE_V1;
    rc = gid_add(port, path, &entry);
    entry.index++;
    entry.type = FABRIC_GID_ROCE_V2;
    return rc == 0 ? gid_add(port, path, &entry) : rc;
}

static int gid_timed(const json_t *item, const char *path, struct fabric_port *port) {
    static const char *const keys[] = {"index", "value",     "type",       "from",
                                       "until", "from_flap", "until_flap", NULL};
    static const char *const types[] = {"v1", "v2", NULL};
    struct fabric_gid_entry entry = {
        .index = UINT32_MAX, .until_ns = UINT64_MAX, .until_flap = UINT32_MAX};
    char where[FABRIC_PATH_MAX];
    int type = 1, rc = fabric_json_keys(item, path, keys);

    if (rc == 0) {
        rc = fabric_json_u32(item, path, "index", 0, FABRIC_GID_TABLE - 1, &entry.index);
    }
    if (rc == 0) {
        fabric_json_join(where, path, "value");
        rc = gid_value(json_object_get(item, "value"), where, &entry.value);
    }
    if (rc == 0) {
        rc = fabric_json_word(item, path, "type", types, &type);
    }
    if (rc == 0) {
        rc = fabric_json_time(item, path, "from", &entry.from_ns);
    }
    if (rc == 0) {
        rc = fabric_json_time(item, path, "until", &entry.until_ns);
    }
    if (rc == 0) {
        rc = fabric_json_u32(item, path, "from_flap", 0, UINT32_MAX, &entry.from_flap);
    }
    if (rc == 0) {
        rc = fabric_json_u32(item, path, "until_flap", 0, UINT32_MAX, &entry.until_flap);
    }
    if (rc == 0 && entry.index == UINT32_MAX) {
        return fabric_json_bad(path, "needs the integer 'index'");
    }
    entry.type = type == 0 ? FABRIC_GID_ROCE_V1 : FABRIC_GID_ROCE_V2;
    return rc == 0 ? gid_add(port, path, &entry) : rc;
}

static int world_gids(const struct fabric_topology *topology, const json_t *object,
                      const char *path, struct fabric_port *port) {
    char list_path[FABRIC_PATH_MAX], where[FABRIC_PATH_MAX];
    int rc = 0;
    const json_t *list = fabric_json_array(object, path, "gids", &rc);

    if (list == NULL) {
        return rc;
    }
    port->has_gids = true;
    fabric_json_join(list_path, path, "gids");
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        fabric_json_index(where, list_path, i);
        rc = json_is_object(item) ? gid_timed(item, where, port)
                                  : gid_plain(topology, item, where, port, (uint32_t)i);
    }
    return rc;
}

/* ---------------------------------------------------------------------- paces */

static int world_pace(const json_t *object, const char *path, struct fabric_pace *pace) {
    int rc = fabric_json_rate(object, path, "rate", &pace->rate);

    if (rc == 0) {
        rc = fabric_json_time(object, path, "latency", &pace->latency_ns);
    }
    if (rc == 0) {
        rc = fabric_json_time(object, path, "gap", &pace->gap_ns);
    }
    if (rc == 0) {
        rc = fabric_json_time(object, path, "frame_gap", &pace->frame_gap_ns);
    }
    return rc;
}

static int world_link(const json_t *root, struct fabric_topology *topology) {
    static const char *const keys[] = {"rate", "latency", "gap", "frame_gap", NULL};
    const json_t *link = json_object_get(root, "link");
    int rc;

    if (link == NULL) {
        return 0;
    }
    rc = fabric_json_keys(link, "link", keys);
    return rc == 0 ? world_pace(link, "link", &topology->pace) : rc;
}

/* ------------------------------------------------------------- hosts, devices */

static int world_device(struct fabric_topology *topology, const json_t *item, const char *path,
                        struct fabric_port *port) {
    static const char *const keys[] = {"name",    "gids", "state",     "limits", "rate",
                                       "latency", "gap",  "frame_gap", NULL};
    static const char *const states[] = {"active", "down", NULL};
    const json_t *limits = json_object_get(item, "limits");
    char where[FABRIC_PATH_MAX];
    int state = 0, rc = fabric_json_keys(item, path, keys);

    if (rc == 0) {
        rc = world_name(item, path, port->name);
    }
    if (rc == 0) {
        rc = world_gids(topology, item, path, port);
    }
    if (rc == 0) {
        rc = fabric_json_word(item, path, "state", states, &state);
    }
    port->starts_down = state == 1;
    if (rc == 0) {
        rc = world_pace(item, path, &port->pace);
    }
    if (rc == 0 && limits != NULL) {
        port->own_rules = malloc(sizeof *port->own_rules);
        if (port->own_rules == NULL) {
            return world_no_memory();
        }
        *port->own_rules = topology->rules;
        port->rules = port->own_rules;
        fabric_json_join(where, path, "limits");
        rc = fabric_config_limits(limits, where, port->own_rules);
    }
    return rc;
}

static int world_devices(struct fabric_topology *topology, const json_t *list, const char *path,
                         uint32_t h) {
    struct fabric_host *host = &topology->hosts[h];
    char where[FABRIC_PATH_MAX], name_path[FABRIC_PATH_MAX];
    int rc = 0;

    for (uint32_t d = 0; rc == 0 && d < host->n_ports; d++) {
        struct fabric_port *port = &topology->ports[host->first_port + d];

        port->host = h;
        port->index = d;
        port->cable = FABRIC_ANY;
        port->peer = FABRIC_ANY;
        port->rules = &topology->rules;
        port->pace = topology->pace;
        fabric_json_index(where, path, d);
        rc = world_device(topology, json_array_get(list, d), where, port);
        for (uint32_t other = 0; rc == 0 && other < d; other++) {
            if (strcmp(topology->ports[host->first_port + other].name, port->name) == 0) {
                fabric_json_join(name_path, where, "name");
                rc = fabric_json_bad(name_path, "'%s' is there already", port->name);
            }
        }
    }
    return rc;
}

static int world_host(struct fabric_topology *topology, const json_t *item, uint32_t h) {
    static const char *const keys[] = {"name", "devices", NULL};
    struct fabric_host *host = &topology->hosts[h];
    char path[FABRIC_PATH_MAX], where[FABRIC_PATH_MAX];
    const json_t *list;
    struct fabric_port *ports;
    int rc;

    fabric_json_index(path, "hosts", h);
    rc = fabric_json_keys(item, path, keys);
    if (rc == 0) {
        rc = world_name(item, path, host->name);
    }
    if (rc == 0 && host->name[0] >= '0' && host->name[0] <= '9') {
        fabric_json_join(where, path, "name");
        return fabric_json_bad(where, "'%s' must not begin with a digit, as a host's number does",
                               host->name);
    }
    for (uint32_t other = 0; rc == 0 && other < h; other++) {
        if (strcmp(topology->hosts[other].name, host->name) == 0) {
            fabric_json_join(where, path, "name");
            return fabric_json_bad(where, "'%s' is there already", host->name);
        }
    }
    list = rc == 0 ? fabric_json_array(item, path, "devices", &rc) : NULL;
    fabric_json_join(where, path, "devices");
    host->first_port = topology->n_ports;
    if (rc != 0 || json_array_size(list) == 0) {
        return rc;
    }
    if (json_array_size(list) > 252) {
        return fabric_json_bad(where, "%zu devices, at most 252", json_array_size(list));
    }
    host->n_ports = (uint32_t)json_array_size(list);
    ports = realloc(topology->ports, (topology->n_ports + host->n_ports) * sizeof *ports);
    if (ports == NULL) {
        return world_no_memory();
    }
    topology->ports = ports;
    memset(&ports[topology->n_ports], 0, host->n_ports * sizeof *ports);
    topology->n_ports += host->n_ports;
    return world_devices(topology, list, where, h);
}

static int world_hosts(struct fabric_topology *topology, const json_t *list) {
    size_t n = json_array_size(list);
    int rc = 0;

    if (n < 1 || n > FABRIC_MAX_HOSTS) {
        return fabric_json_bad("hosts", "%zu hosts, must be 1 to %d", n, FABRIC_MAX_HOSTS);
    }
    topology->hosts = calloc(n, sizeof *topology->hosts);
    if (topology->hosts == NULL) {
        return world_no_memory();
    }
    for (size_t h = 0; rc == 0 && h < n; h++) {
        topology->n_hosts++;
        rc = world_host(topology, json_array_get(list, h), (uint32_t)h);
    }
    return rc;
}

/* --------------------------------------------------------------------- cables */

static int cable_end(struct fabric_topology *topology, const json_t *ends, const char *path,
                     uint32_t number, int side) {
    const char *label = json_string_value(json_array_get(ends, (size_t)side));
    const struct fabric_port *found = label == NULL ? NULL : fabric_topology_find(topology, label);
    char ends_path[FABRIC_PATH_MAX], where[FABRIC_PATH_MAX];
    uint32_t p;

    fabric_json_join(ends_path, path, "ends");
    fabric_json_index(where, ends_path, (size_t)side);
    if (found == NULL) {
        return fabric_json_bad(where, "'%s' is no device of the fabric, as \"A.rdma_en2\"",
                               label == NULL ? "" : label);
    }
    p = (uint32_t)(found - topology->ports);
    if (found->cable != FABRIC_ANY) {
        return fabric_json_bad(where, "'%s' has a cable already, cables[%u]", label, found->cable);
    }
    topology->ports[p].cable = number;
    topology->cables[number].ends[side] = p;
    return 0;
}

static int world_cable(struct fabric_topology *topology, const json_t *item, uint32_t number) {
    static const char *const keys[] = {"ends", "state",     "rate", "latency",
                                       "gap",  "frame_gap", NULL};
    static const char *const states[] = {"plugged", "unplugged", NULL};
    struct fabric_cable *cable = &topology->cables[number];
    struct fabric_pace pace = topology->pace;
    char path[FABRIC_PATH_MAX], where[FABRIC_PATH_MAX];
    const json_t *ends = json_object_get(item, "ends");
    int state = 0, rc;

    fabric_json_index(path, "cables", number);
    fabric_json_join(where, path, "ends");
    rc = fabric_json_keys(item, path, keys);
    if (rc == 0 && json_array_size(ends) != 2) {
        rc = fabric_json_bad(where, "must be an array of two devices");
    }
    for (int side = 0; rc == 0 && side < 2; side++) {
        rc = cable_end(topology, ends, path, number, side);
    }
    if (rc == 0) {
        rc = fabric_json_word(item, path, "state", states, &state);
    }
    if (rc == 0) {
        rc = world_pace(item, path, &pace);
    }
    if (rc != 0) {
        return rc;
    }
    cable->starts_unplugged = state == 1;
    for (int side = 0; side < 2; side++) {
        topology->ports[cable->ends[side]].peer = cable->ends[1 - side];
        topology->ports[cable->ends[side]].pace = pace;
    }
    return 0;
}

static int world_cables(struct fabric_topology *topology, const json_t *list) {
    size_t n = json_array_size(list);
    int rc = 0;

    topology->cables = calloc(n + 1, sizeof *topology->cables);
    if (topology->cables == NULL) {
        return world_no_memory();
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        topology->n_cables++;
        rc = world_cable(topology, json_array_get(list, i), (uint32_t)i);
    }
    return rc;
}

/* ------------------------------------------------------------------- together */

static int world_mesh(const json_t *root, struct fabric_topology *topology) {
    static const char *const keys[] = {"hosts", "wires", NULL};
    const json_t *mesh = json_object_get(root, "mesh");
    int rc = 0;

    topology->n_hosts = 8;
    topology->n_wires = 1;
    if (mesh != NULL) {
        rc = fabric_json_keys(mesh, "mesh", keys);
        if (rc == 0) {
            rc = fabric_json_u32(mesh, "mesh", "hosts", 2, FABRIC_MAX_HOSTS, &topology->n_hosts);
        }
        if (rc == 0) {
            rc = fabric_json_u32(mesh, "mesh", "wires", 1, FABRIC_MAX_WIRES, &topology->n_wires);
        }
    }
    if (rc != 0) {
        topology->n_hosts = 0;
        return rc;
    }
    return fabric_topology_mesh(topology) == 0 ? 0 : world_no_memory();
}

int fabric_config_world(const json_t *root, struct fabric_topology *topology) {
    int rc = world_link(root, topology);
    const json_t *hosts = rc == 0 ? fabric_json_array(root, "", "hosts", &rc) : NULL;
    const json_t *cables = rc == 0 ? fabric_json_array(root, "", "cables", &rc) : NULL;

    topology->is_switched = topology->is_roce && cables == NULL;
    if (rc == 0) {
        rc = fabric_json_bool(root, "", "switched", &topology->is_switched);
    }
    if (rc != 0) {
        return rc;
    }
    if (topology->is_switched && (!topology->is_roce || cables != NULL)) {
        return fabric_json_bad("switched", "needs the personality roce, and no cables");
    }
    if (hosts == NULL && cables != NULL) {
        return fabric_json_bad("cables", "needs 'hosts'");
    }
    if (hosts == NULL) {
        return world_mesh(root, topology);
    }
    if (json_object_get(root, "mesh") != NULL) {
        return fabric_json_bad("mesh", "cannot stand beside 'hosts'");
    }
    rc = world_hosts(topology, hosts);
    return rc == 0 ? world_cables(topology, cables) : rc;
}
