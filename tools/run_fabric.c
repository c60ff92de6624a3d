/* SPDX-License-Identifier: MIT */
/*
 * What the launcher has to know of a fabric's description: how many hosts it has, and which devices
 * of one lead to which other. All else is the provider's, which also says what is wrong with it.
 */
#include "fabric_library.h"
#include "run.h"

#include <jansson.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_WIRES = 4 /* of the fabric */ };

static int bad_fabric(const char *source, const char *what) {
    fprintf(stderr, "jackal run: fabric %s: %s\n", source, what);
    return TOOL_USAGE;
}

/* A whole number of the "mesh" object, or `otherwise` if it is not there; -1 = not allowed. */
static int mesh_number(const json_t *mesh, const char *key, int otherwise, int high) {
    const json_t *value = json_object_get(mesh, key);
    if (!value) {
        return otherwise;
    }
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 1 && number <= high ? (int)number : -1;
}

static bool is_roce(const json_t *fabric) {
    const char *personality = json_string_value(json_object_get(fabric, "personality"));
    if (!personality) {
        personality = getenv("JACKAL_FABRIC_PERSONALITY");
    }
    return personality && strcmp(personality, "roce") == 0;
}

static bool is_switched(const json_t *fabric) {
    const json_t *switched = json_object_get(fabric, "switched");
    if (switched) {
        return json_is_true(switched);
    }
    return is_roce(fabric) && !json_object_get(fabric, "cables");
}

/* Before anything is started: what the provider would refuse, each rank would say again. */
static int check_description(const char *source, const char *text) {
    struct tool_fabric library;
    int status = tool_fabric_load(&library);
    if (status != 0) {
        return status;
    }
    if (library.check(text) >= 0) {
        return 0;
    }
    static const char prefix[] = "JACKAL_FABRIC: "; /* where the provider thinks it came from */
    const char *why = library.error();
    size_t skip = strncmp(why, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    return bad_fabric(source, why + skip);
}

int run_fabric_read(struct run_fabric *fabric_p, const char *text) {
    json_error_t error;
    bool is_json = text[0] == '{';
    const char *source = is_json ? "given as JSON" : text;
    char message[JSON_ERROR_TEXT_LENGTH + 80];
    struct stat entry;
    if (!is_json && stat(text, &entry) == 0 && !S_ISREG(entry.st_mode)) {
        return bad_fabric(source, "is not a file"); /* a pipe would be waited for for ever */
    }
    json_t *fabric = is_json ? json_loads(text, 0, &error) : json_load_file(text, 0, &error);
    if (!fabric && error.line < 1) {
        return bad_fabric(source, error.text);
    }
    if (!fabric) {
        snprintf(message, sizeof message, "line %d, column %d: %s", error.line, error.column,
                 error.text);
        return bad_fabric(source, message);
    }
    const json_t *mesh = json_object_get(fabric, "mesh");
    const json_t *hosts = json_object_get(fabric, "hosts");
    int n_hosts = mesh_number(mesh, "hosts", RUN_DEFAULT_HOSTS, 65535);
    fabric_p->n_wires = mesh_number(mesh, "wires", 1, MAX_WIRES);
    if (!json_is_object(fabric) || (mesh && !json_is_object(mesh)) || n_hosts < 0 ||
        fabric_p->n_wires < 0 || (hosts && json_array_size(hosts) == 0)) {
        json_decref(fabric);
        return bad_fabric(source,
                          "takes an object like {\"mesh\":{\"hosts\":8,\"wires\":1}}, hosts "
                          "from 1 to 65535, wires from 1 to 4, or {\"hosts\":[...],"
                          "\"cables\":[...]}");
    }
    int status = check_description(source, text);
    if (status != 0) {
        json_decref(fabric);
        return status;
    }
    fabric_p->n_hosts = hosts ? (int)json_array_size(hosts) : n_hosts;
    fabric_p->description = fabric;
    return 0;
}

void run_fabric_free(struct run_fabric *fabric) {
    json_decref(fabric->description);
    fabric->description = NULL;
}

/* ---------------------------------------------------------------- the matrix */

static void begin_cell(struct tool_buffer *text, int n_devices) {
    tool_buffer_add(text, n_devices == 0 ? "[" : ",", 1);
}

/* The k-th group of n_wires devices leads to the k-th other host; on a switch all lead anywhere. */
static int mesh_cell(struct tool_buffer *text, const struct run_fabric *fabric, int i, int j) {
    bool roce = is_roce(fabric->description);
    int first = is_switched(fabric->description) ? 0 : (j < i ? j : j - 1) * fabric->n_wires;
    for (int wire = 0; wire < fabric->n_wires; ++wire) {
        begin_cell(text, wire);
        tool_buffer_print(text, "\"%s%d\"", roce ? "rocep" : "rdma_en",
                          first + wire + (roce ? 1 : 2));
    }
    return fabric->n_wires;
}

/* Whether `end`, "HOST.DEVICE" or without the "rdma_" of the device, is that device. */
static bool is_end(const char *end, const char *host, const char *device) {
    size_t n_host = host ? strlen(host) : 0;
    if (!end || !host || !device || strncmp(end, host, n_host) != 0 || end[n_host] != '.') {
        return false;
    }
    const char *name = end + n_host + 1;
    return strcmp(name, device) == 0 ||
           (strncmp(device, "rdma_", 5) == 0 && strcmp(name, device + 5) == 0);
}

static const char *end_of(const json_t *cable, size_t side) {
    return json_string_value(json_array_get(json_object_get(cable, "ends"), side));
}

static bool is_on_host(const char *end, const char *host) {
    size_t n_host = host ? strlen(host) : 0;
    return end && host && strncmp(end, host, n_host) == 0 && end[n_host] == '.';
}

/* Whether a cable leads from that device to that host. */
static bool leads_to(const json_t *fabric, const char *host, const char *device,
                     const char *other) {
    size_t c;
    json_t *cable;
    json_array_foreach(json_object_get(fabric, "cables"), c, cable) {
        for (size_t side = 0; side < 2; ++side) {
            if (is_end(end_of(cable, side), host, device) &&
                is_on_host(end_of(cable, 1 - side), other)) {
                return true;
            }
        }
    }
    return false;
}

static int listed_cell(struct tool_buffer *text, const json_t *fabric, int i, int j) {
    const json_t *hosts = json_object_get(fabric, "hosts");
    const json_t *host = json_array_get(hosts, (size_t)i);
    const char *name = json_string_value(json_object_get(host, "name"));
    const char *other =
        json_string_value(json_object_get(json_array_get(hosts, (size_t)j), "name"));
    bool switched = is_switched(fabric);
    int n_devices = 0;
    size_t d;
    json_t *item;
    json_array_foreach(json_object_get(host, "devices"), d, item) {
        const char *device = json_string_value(json_object_get(item, "name"));
        /* A name that JSON would have to escape is none, as the provider will say. */
        if (device && !strpbrk(device, "\"\\") &&
            (switched || leads_to(fabric, name, device, other))) {
            begin_cell(text, n_devices++);
            tool_buffer_print(text, "\"%s\"", device);
        }
    }
    return n_devices;
}

char *run_fabric_matrix(const struct run_fabric *fabric, int n_ranks) {
    bool listed = json_object_get(fabric->description, "hosts") != NULL;
    struct tool_buffer text = {0};
    for (int i = 0; i < n_ranks; ++i) {
        tool_buffer_add(&text, i == 0 ? "[[" : ",[", 2);
        for (int j = 0; j < n_ranks; ++j) {
            int n_devices = 0;
            tool_buffer_add(&text, ",", j > 0);
            if (i != j) {
                n_devices = listed ? listed_cell(&text, fabric->description, i, j)
                                   : mesh_cell(&text, fabric, i, j);
            }
            tool_buffer_print(&text, "%s", n_devices > 0 ? "]" : "null");
        }
        tool_buffer_add(&text, "]", 1);
    }
    tool_buffer_add(&text, "]", 2);
    char *matrix = tool_copy(tool_buffer_data(&text));
    tool_buffer_free(&text);
    return matrix;
}
