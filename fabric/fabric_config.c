/* SPDX-License-Identifier: MIT */
/*
 * The settings. Everything is checked before anything is built, and a key that nobody knows is an
 * error: a misspelt fault that silently does nothing would make a test pass that tests nothing.
 */
#include "fabric_error.h"
#include "fabric_topology.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __APPLE__
/* What the static jansson takes for stdin, see CMakeLists.txt. It only compares streams with it. */
extern FILE *__wrap_stdin;
FILE *__wrap_stdin;
#endif

static int config_bad(const char *format, const char *what, const char *value) {
    return fabric_fail(EINVAL, format, what, value);
}

/* Unknown keys of an object; allowed is NULL-terminated. */
static int config_keys(const json_t *object, const char *where, const char *const *allowed) {
    const char *key;
    json_t *value;

    if (!json_is_object(object)) {
        return config_bad("JACKAL_FABRIC: %s must be an object%s", where, "");
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;

        while (allowed[i] != NULL && strcmp(allowed[i], key) != 0) {
            i++;
        }
        if (allowed[i] == NULL) {
            return config_bad("JACKAL_FABRIC: %s has an unknown key '%s'", where, key);
        }
    }
    return 0;
}

/* An integer of an object; absent leaves *value_p as it is. */
static int config_integer(const json_t *object, const char *where, const char *key, json_int_t low,
                          json_int_t high, json_int_t *value_p) {
    const json_t *item = json_object_get(object, key);

    if (item == NULL) {
        return 0;
    }
    if (!json_is_integer(item) || json_integer_value(item) < low ||
        json_integer_value(item) > high) {
        return fabric_fail(EINVAL, "JACKAL_FABRIC: '%s' of %s must be an integer from %lld to %lld",
                           key, where, (long long)low, (long long)high);
    }
    *value_p = json_integer_value(item);
    return 0;
}

static int config_mesh(const json_t *root, struct fabric_topology *topology) {
    static const char *const keys[] = {"hosts", "wires", NULL};
    const json_t *mesh = json_object_get(root, "mesh");
    json_int_t n_hosts = 8, n_wires = 1;
    int rc = 0;

    if (mesh != NULL) {
        rc = config_keys(mesh, "mesh", keys);
        if (rc == 0) {
            rc = config_integer(mesh, "mesh", "hosts", 2, FABRIC_MAX_HOSTS, &n_hosts);
        }
        if (rc == 0) {
            rc = config_integer(mesh, "mesh", "wires", 1, FABRIC_MAX_WIRES, &n_wires);
        }
    }
    topology->n_hosts = (uint32_t)n_hosts;
    topology->n_wires = (uint32_t)n_wires;
    return rc;
}

/* A whole decimal number below limit that starts at *text_p; moves *text_p behind it. */
static int config_number(const char **text_p, uint32_t limit, uint32_t *value_p) {
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

/* "h3.rdma_en5" to host 3, device index 3. */
static int config_device(const struct fabric_topology *topology, const char *text,
                         struct fabric_fault *fault) {
    static const char middle[] = ".rdma_en";
    uint32_t n_devices = fabric_topology_devices_per_host(topology), number = 0;
    const char *at = text + 1;

    if (text[0] != 'h' || config_number(&at, topology->n_hosts, &fault->host) != 0 ||
        strncmp(at, middle, sizeof middle - 1) != 0) {
        return EINVAL;
    }
    at += sizeof middle - 1;
    if (config_number(&at, n_devices + 2, &number) != 0 || number < 2 || *at != '\0') {
        return EINVAL;
    }
    fault->device = number - 2;
    return 0;
}

static int config_fault_kind(const json_t *item, struct fabric_fault *fault) {
    static const char *const flip[] = {"kind", "device", "message", "bit", NULL};
    static const char *const drop[] = {"kind", "device", "message", NULL};
    static const char *const status[] = {"kind", "device", "message", "status", NULL};
    const char *kind = json_string_value(json_object_get(item, "kind"));

    if (kind == NULL) {
        return config_bad("JACKAL_FABRIC: a fault needs the string '%s'%s", "kind", "");
    }
    if (strcmp(kind, "flip") == 0) {
        fault->kind = FABRIC_FAULT_FLIP;
        return config_keys(item, "a flip fault", flip);
    }
    if (strcmp(kind, "drop") == 0) {
        fault->kind = FABRIC_FAULT_DROP;
        return config_keys(item, "a drop fault", drop);
    }
    if (strcmp(kind, "status") == 0) {
        fault->kind = FABRIC_FAULT_STATUS;
        return config_keys(item, "a status fault", status);
    }
    return config_bad("JACKAL_FABRIC: %s '%s' is not flip, drop or status", "fault kind", kind);
}

static int config_fault(const struct fabric_topology *topology, const json_t *item,
                        struct fabric_fault *fault) {
    json_int_t message = -1, bit = 0, status = IBV_WC_GENERAL_ERR;
    const char *device = json_string_value(json_object_get(item, "device"));
    int rc = config_fault_kind(item, fault);

    if (rc != 0) {
        return rc;
    }
    if (device == NULL || config_device(topology, device, fault) != 0) {
        return config_bad("JACKAL_FABRIC: %s '%s' must be a device of the fabric, as h0.rdma_en2",
                          "'device' of a fault:", device == NULL ? "(none)" : device);
    }
    rc = config_integer(item, "a fault", "message", 0, INT64_MAX, &message);
    if (rc == 0 && message < 0) {
        rc = config_bad("JACKAL_FABRIC: a fault needs the integer '%s'%s", "message", "");
    }
    if (rc == 0) {
        rc = config_integer(item, "a fault", "bit", 0, INT64_MAX, &bit);
    }
    if (rc == 0) {
        rc = config_integer(item, "a fault", "status", 0, IBV_WC_GENERAL_ERR, &status);
    }
    fault->message = (uint64_t)message;
    fault->bit = (uint64_t)bit;
    fault->status = (uint32_t)status;
    return rc;
}

static int config_faults(const json_t *root, struct fabric_topology *topology) {
    const json_t *list = json_object_get(root, "faults");
    size_t n;

    if (list == NULL) {
        return 0;
    }
    if (!json_is_array(list)) {
        return config_bad("JACKAL_FABRIC: '%s' must be an array%s", "faults", "");
    }
    n = json_array_size(list);
    topology->faults = calloc(n + 1, sizeof *topology->faults);
    if (topology->faults == NULL) {
        return fabric_fail(ENOMEM, "no memory for %zu faults", n);
    }
    for (size_t i = 0; i < n; i++) {
        int rc = config_fault(topology, json_array_get(list, i), &topology->faults[i]);

        if (rc != 0) {
            return rc;
        }
    }
    topology->n_faults = n;
    return 0;
}

static int config_json(struct fabric_topology *topology) {
    static const char *const keys[] = {"mesh", "faults", NULL};
    const char *text = getenv("JACKAL_FABRIC");
    json_error_t error;
    json_t *root;
    int rc;

    topology->n_hosts = 8;
    topology->n_wires = 1;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    root = text[0] == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, &error)
                          : json_load_file(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        return fabric_fail(EINVAL, "JACKAL_FABRIC: %s, line %d, column %d: %s",
                           text[0] == '{' ? "the JSON itself" : text, error.line, error.column,
                           error.text);
    }
    rc = config_keys(root, "the top level", keys);
    if (rc == 0) {
        rc = config_mesh(root, topology);
    }
    if (rc == 0) {
        rc = config_faults(root, topology);
    }
    json_decref(root);
    return rc;
}

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
    if (config_number(&at, topology->n_hosts, &topology->self) != 0 || *at != '\0') {
        return fabric_fail(EINVAL, "JACKAL_FABRIC_HOST: '%s' is neither * nor a host from 0 to %u",
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
        return config_bad("%s: '%s' must be at most 64 letters, digits, '-', '_' or '.', no dot "
                          "in front",
                          "JACKAL_FABRIC_NAME", text);
    }
    memcpy(topology->name, text, length + 1);
    return 0;
}

static int config_personality(void) {
    const char *text = getenv("JACKAL_FABRIC_PERSONALITY");

    if (text != NULL && text[0] != '\0' && strcmp(text, "thunderbolt") != 0) {
        return config_bad("%s: '%s' is not known, only thunderbolt is", "JACKAL_FABRIC_PERSONALITY",
                          text);
    }
    return 0;
}

struct fabric_topology *fabric_config_read(void) {
    struct fabric_topology *topology = calloc(1, sizeof *topology);
    int rc;

    if (topology == NULL) {
        fabric_fail(ENOMEM, "no memory for the topology");
        return NULL;
    }
    rc = config_personality();
    if (rc == 0) {
        rc = config_json(topology);
    }
    if (rc == 0) {
        rc = config_host(topology);
    }
    if (rc == 0) {
        rc = config_name(topology);
    }
    if (rc == 0 && fabric_topology_build(topology) != 0) {
        rc = fabric_fail(ENOMEM, "no memory for the devices of %u hosts", topology->n_hosts);
    }
    if (rc != 0) {
        fabric_topology_free(topology);
        errno = rc;
        return NULL;
    }
    return topology;
}
