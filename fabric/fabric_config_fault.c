/* SPDX-License-Identifier: MIT */
/* "faults": a list, or {"seed": …, "list": [ … ]}. Each kind takes its own keys and no others. */
#include "fabric_config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum fault_needs {
    FAULT_MESSAGE = 1,      /* message or probability */
    FAULT_DEVICE = 2,       /* a device, not a host alone */
    FAULT_TIME = 4,         /* time */
    FAULT_WHEN = 8,         /* at or message */
    FAULT_PROBABILITY = 16, /* probability */
    FAULT_HOST = 32,        /* a host */
};

static const struct fault_row {
    const char *name;
    enum fabric_fault_kind kind;
    int needs;
    const char *keys[8]; /* beside kind */
} fault_rows[] = {
    {"flip",
     FABRIC_FAULT_FLIP,
     FAULT_MESSAGE,
     {"device", "host", "message", "probability", "bit", NULL}},
    {"drop", FABRIC_FAULT_DROP, FAULT_MESSAGE, {"device", "host", "message", "probability", NULL}},
    {"duplicate",
     FABRIC_FAULT_DUPLICATE,
     FAULT_MESSAGE,
     {"device", "host", "message", "probability", NULL}},
    {"delay",
     FABRIC_FAULT_DELAY,
     FAULT_MESSAGE | FAULT_TIME,
     {"device", "host", "message", "probability", "time", NULL}},
    {"status",
     FABRIC_FAULT_STATUS,
     FAULT_MESSAGE,
     {"device", "host", "message", "probability", "status", NULL}},
    {"call", FABRIC_FAULT_CALL, 0, {"host", "call", "number", "times", "errno", NULL}},
    {"poll", FABRIC_FAULT_CALL, 0, {"host", "number", "times", NULL}},
    {"reorder", FABRIC_FAULT_REORDER, FAULT_PROBABILITY, {"device", "host", "probability", NULL}},
    {"slow", FABRIC_FAULT_SLOW, FAULT_TIME | FAULT_HOST, {"host", "time", NULL}},
    {"pause", FABRIC_FAULT_PAUSE, FAULT_HOST, {"host", "at", "for", NULL}},
    {"unplug",
     FABRIC_FAULT_UNPLUG,
     FAULT_DEVICE | FAULT_WHEN,
     {"device", "at", "message", "for", NULL}},
    {"replug", FABRIC_FAULT_REPLUG, FAULT_DEVICE | FAULT_WHEN, {"device", "at", "message", NULL}},
    {"remove", FABRIC_FAULT_REMOVE, FAULT_DEVICE | FAULT_WHEN, {"device", "at", "message", NULL}},
};

static const struct {
    const char *name;
    int code;
} fault_errnos[] = {
    {"EPERM", EPERM},         {"EIO", EIO},       {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM},
    {"EACCES", EACCES},       {"EFAULT", EFAULT}, {"EBUSY", EBUSY},   {"ENODEV", ENODEV},
    {"EINVAL", EINVAL},       {"EMFILE", EMFILE}, {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS},
    {"ETIMEDOUT", ETIMEDOUT}, {"EPROTO", EPROTO}, {"EINTR", EINTR},   {"EOPNOTSUPP", EOPNOTSUPP},
};

static int fault_kind(const json_t *item, const char *path, const struct fault_row **row_p) {
    const char *keys[10] = {"kind"};
    const char *kind = json_string_value(json_object_get(item, "kind"));
    char where[FABRIC_PATH_MAX];
    size_t n = 1;

    if (!json_is_object(item) || kind == NULL) {
        return fabric_json_bad(path, "a fault needs the string 'kind'");
    }
    for (size_t i = 0; i < sizeof fault_rows / sizeof fault_rows[0]; i++) {
        if (strcmp(fault_rows[i].name, kind) == 0) {
            for (size_t k = 0; fault_rows[i].keys[k] != NULL; k++) {
                keys[n++] = fault_rows[i].keys[k];
            }
            keys[n] = NULL;
            *row_p = &fault_rows[i];
            return fabric_json_keys(item, path, keys);
        }
    }
    fabric_json_join(where, path, "kind");
    return fabric_json_bad(where,
                           "'%s' is none of flip, drop, duplicate, delay, status, call, poll, "
                           "reorder, slow, pause, unplug, replug, remove",
                           kind);
}

static int fault_place(const struct fabric_topology *topology, const json_t *item, const char *path,
                       const struct fault_row *row, struct fabric_fault *fault) {
    const char *device = NULL, *host = NULL;
    char where[FABRIC_PATH_MAX];
    int rc = fabric_json_string(item, path, "device", &device);

    if (rc == 0) {
        rc = fabric_json_string(item, path, "host", &host);
    }
    fault->host = FABRIC_ANY;
    fault->device = FABRIC_ANY;
    if (rc == 0 && device != NULL) {
        const struct fabric_port *port = fabric_topology_find(topology, device);

        fabric_json_join(where, path, "device");
        if (port == NULL || host != NULL) {
            return fabric_json_bad(
                where, "'%s' must be a device of the fabric, as %s.%s, without 'host'", device,
                topology->hosts[0].name, topology->is_roce ? "rocep1" : "rdma_en2");
        }
        fault->host = port->host;
        fault->device = port->index;
    } else if (rc == 0 && host != NULL) {
        for (uint32_t h = 0; h < topology->n_hosts && fault->host == FABRIC_ANY; h++) {
            fault->host = strcmp(topology->hosts[h].name, host) == 0 ? h : FABRIC_ANY;
        }
        fabric_json_join(where, path, "host");
        if (fault->host == FABRIC_ANY) {
            return fabric_json_bad(where, "'%s' is no host of the fabric", host);
        }
    }
    if (rc == 0 && (row->needs & FAULT_DEVICE) != 0 && fault->device == FABRIC_ANY) {
        return fabric_json_bad(path, "needs the string 'device'");
    }
    if (rc == 0 && (row->needs & FAULT_HOST) != 0 && fault->host == FABRIC_ANY) {
        return fabric_json_bad(path, "needs the string 'host'");
    }
    return rc;
}

static int fault_when(const json_t *item, const char *path, const struct fault_row *row,
                      struct fabric_fault *fault) {
    bool has_message = json_object_get(item, "message") != NULL;
    bool has_probability = json_object_get(item, "probability") != NULL;
    bool has_at = json_object_get(item, "at") != NULL;
    json_int_t message = 0;
    int rc = fabric_json_integer(item, path, "message", 0, INT64_MAX, &message);

    if (rc == 0) {
        rc = fabric_json_real(item, path, "probability", 0, 1, &fault->probability);
    }
    if (rc == 0) {
        rc = fabric_json_time(item, path, "at", &fault->at_ns);
    }
    fault->message = (uint64_t)message;
    fault->by_message = has_message;
    if (rc == 0 && (row->needs & FAULT_MESSAGE) != 0 && has_message == has_probability) {
        return fabric_json_bad(path, "a fault needs the integer 'message' or a 'probability'");
    }
    if (rc == 0 && (row->needs & FAULT_WHEN) != 0 && has_message == has_at) {
        return fabric_json_bad(path, "needs the time 'at' or the integer 'message'");
    }
    if (rc == 0 && (row->needs & FAULT_PROBABILITY) != 0 &&
        (!has_probability || fault->probability > 0.99)) {
        return fabric_json_bad(path, "needs a 'probability' up to 0.99");
    }
    if (rc == 0 && (row->needs & FAULT_TIME) != 0 && json_object_get(item, "time") == NULL) {
        return fabric_json_bad(path, "needs the time 'time'");
    }
    return rc == 0 ? fabric_json_time(item, path, "time", &fault->delay_ns) : rc;
}

static int fault_errno(const json_t *item, const char *path, struct fabric_fault *fault) {
    const json_t *value = json_object_get(item, "errno");
    const char *name = json_string_value(value);
    char where[FABRIC_PATH_MAX];

    fault->code = EIO;
    if (value == NULL) {
        return 0;
    }
    if (json_is_integer(value) && json_integer_value(value) > 0 &&
        json_integer_value(value) < 4096) {
        fault->code = (int)json_integer_value(value);
        return 0;
    }
    for (size_t i = 0; name != NULL && i < sizeof fault_errnos / sizeof fault_errnos[0]; i++) {
        if (strcmp(fault_errnos[i].name, name) == 0) {
            fault->code = fault_errnos[i].code;
            return 0;
        }
    }
    fabric_json_join(where, path, "errno");
    return fabric_json_bad(where, "must be a name as \"ENOMEM\" or a number from 1 to 4095");
}

static int fault_call(const json_t *item, const char *path, struct fabric_fault *fault) {
    json_int_t number = 0, times = 1;
    const char *call = NULL;
    char where[FABRIC_PATH_MAX];
    int rc = fabric_json_integer(item, path, "number", 0, INT64_MAX, &number);

    if (rc == 0) {
        rc = fabric_json_integer(item, path, "times", 1, INT64_MAX, &times);
    }
    if (rc == 0) {
        rc = fabric_json_string(item, path, "call", &call);
    }
    if (rc == 0 && call != NULL &&
        (strncmp(call, "ibv_", 4) != 0 || strlen(call) > FABRIC_CALL_NAME_MAX)) {
        fabric_json_join(where, path, "call");
        return fabric_json_bad(where, "'%s' is no call's name, as \"ibv_reg_mr\"", call);
    }
    fault->message = (uint64_t)number;
    fault->times = (uint64_t)times;
    if (rc == 0 && call != NULL) {
        snprintf(fault->call, sizeof fault->call, "%s", call);
    }
    return rc == 0 ? fault_errno(item, path, fault) : rc;
}

static int fault_rest(const json_t *item, const char *path, struct fabric_fault *fault) {
    json_int_t bit = 0;
    int rc = fabric_json_integer(item, path, "bit", 0, INT64_MAX, &bit);

    fault->bit = (uint64_t)bit;
    fault->status = IBV_WC_GENERAL_ERR;
    if (rc == 0) {
        rc = fabric_json_u32(item, path, "status", 0, IBV_WC_GENERAL_ERR, &fault->status);
    }
    if (rc == 0 && fault->kind == FABRIC_FAULT_PAUSE) {
        if (json_object_get(item, "for") == NULL) {
            return fabric_json_bad(path, "needs the time 'for'");
        }
        rc = fabric_json_time(item, path, "for", &fault->delay_ns);
    }
    return rc;
}

int fabric_config_fault(const struct fabric_topology *topology, const json_t *item,
                        const char *path, struct fabric_fault faults[2], size_t *n_faults_p) {
    const struct fault_row *row = NULL;
    struct fabric_fault *fault = &faults[0];
    uint64_t for_ns = 0;
    int rc = fault_kind(item, path, &row);

    memset(fault, 0, sizeof *fault);
    if (rc != 0) {
        return rc;
    }
    fault->kind = row->kind;
    rc = fault_place(topology, item, path, row, fault);
    if (rc == 0) {
        rc = fault_when(item, path, row, fault);
    }
    if (rc == 0 && fault->kind == FABRIC_FAULT_CALL) {
        rc = fault_call(item, path, fault);
        if (rc == 0 && strcmp(row->name, "poll") == 0) {
            snprintf(fault->call, sizeof fault->call, "ibv_poll_cq");
        }
    }
    if (rc == 0) {
        rc = fault_rest(item, path, fault);
    }
    *n_faults_p = 1;
    if (rc != 0 || fault->kind != FABRIC_FAULT_UNPLUG || json_object_get(item, "for") == NULL) {
        return rc;
    }
    if (fault->by_message) {
        return fabric_json_bad(path, "'for' goes with 'at', not with 'message'");
    }
    rc = fabric_json_time(item, path, "for", &for_ns);
    faults[1] = *fault;
    faults[1].kind = FABRIC_FAULT_REPLUG;
    faults[1].at_ns += for_ns;
    *n_faults_p = 2;
    return rc;
}

int fabric_config_faults(const json_t *root, struct fabric_topology *topology) {
    static const char *const keys[] = {"seed", "list", NULL};
    const json_t *faults = json_object_get(root, "faults");
    const char *list_path = "faults";
    char path[FABRIC_PATH_MAX];
    json_int_t seed = 1;
    int rc = 0;

    topology->seed = 1;
    if (json_is_object(faults)) {
        rc = fabric_json_keys(faults, "faults", keys);
        if (rc == 0) {
            rc = fabric_json_integer(faults, "faults", "seed", 0, INT64_MAX, &seed);
        }
        topology->seed = (uint64_t)seed;
        if (rc == 0 && json_object_get(faults, "list") == NULL) {
            return fabric_json_bad("faults", "needs the array 'list'");
        }
        faults = rc == 0 ? fabric_json_array(faults, "faults", "list", &rc) : NULL;
        list_path = "faults.list";
    } else if (faults != NULL && !json_is_array(faults)) {
        return fabric_json_bad("faults", "must be an array, or an object with 'seed' and 'list'");
    }
    if (rc != 0 || faults == NULL) {
        return rc;
    }
    topology->faults = calloc(2 * json_array_size(faults) + 1, sizeof *topology->faults);
    if (topology->faults == NULL) {
        return fabric_fail(ENOMEM, "no memory for %zu faults", json_array_size(faults));
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(faults); i++) {
        size_t n = 0;

        fabric_json_index(path, list_path, i);
        rc = fabric_config_fault(topology, json_array_get(faults, i), path,
                                 &topology->faults[topology->n_faults], &n);
        topology->n_faults += rc == 0 ? n : 0;
    }
    if (rc == 0 && topology->n_faults > FABRIC_MAX_FAULTS) {
        return fabric_json_bad(list_path, "%zu faults, at most %d", topology->n_faults,
                               FABRIC_MAX_FAULTS);
    }
    return rc;
}
