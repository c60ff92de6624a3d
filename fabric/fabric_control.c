/* SPDX-License-Identifier: MIT */
/*
 * Looking at fabrics and changing them from outside: by their files, without entering. Nothing is
 * locked, so a process that hangs cannot make these hang; what is read is a picture of numbers that
 * move.
 */
#include "fabric_config.h"
#include "fabric_state.h"
#include "fabric_world.h"
#include "jackal_fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct control {
    int folder_fd;
    char place[256];
    struct fabric_world world;
};

static int control_root(char *place, size_t n_bytes) {
    char name[32];
    int fd, rc;

    fabric_segment_root_name(name);
    snprintf(place, n_bytes, "%.80s/%s", fabric_segment_base(), name);
    fd = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    rc = errno;
    if (fd < 0 && rc != ENOENT) {
        fabric_fail(rc, "%s: %s", place, strerror(rc));
    }
    return fd;
}

/* The life lock keeps this process from entering or leaving meanwhile: closing the world file here
 * would drop the lock that it holds then. */
static int control_open(struct control *control, const char *name) {
    char root[128];
    int root_fd, rc;

    *control = (struct control){.folder_fd = -1, .world = {.fd = -1}};
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return fabric_fail(EINVAL, "'%s' is no name of a fabric", name == NULL ? "" : name);
    }
    pthread_mutex_lock(&fabric_state.life);
    root_fd = control_root(root, sizeof root);
    snprintf(control->place, sizeof control->place, "%s/%.64s", root, name);
    if (root_fd >= 0) {
        control->folder_fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(root_fd);
    }
    if (control->folder_fd < 0) {
        rc = fabric_fail(ENOENT, "there is no fabric '%s' of this user (%s)", name, control->place);
    } else {
        rc = fabric_world_look(&control->world, control->folder_fd, control->place);
    }
    if (rc != 0) {
        if (control->folder_fd >= 0) {
            close(control->folder_fd);
        }
        pthread_mutex_unlock(&fabric_state.life);
    }
    return rc;
}

static void control_close(struct control *control) {
    fabric_world_close(&control->world);
    close(control->folder_fd);
    pthread_mutex_unlock(&fabric_state.life);
}

/* A process of the fabric that lives; the own file, if this process is in it, cannot be asked. */
static bool control_is_alive(const struct control *control, uint32_t slot) {
    uint32_t pid = atomic_load_explicit(&control->world.slots[slot].pid, memory_order_relaxed);

    if (pid == 0) {
        return false;
    }
    return pid == (uint32_t)getpid() || fabric_segment_is_alive(control->folder_fd, slot);
}

static long control_give(const char *text, size_t length, char *buffer, size_t n_bytes) {
    if (n_bytes > 0) {
        size_t n = length < n_bytes ? length : n_bytes - 1;

        memcpy(buffer, text, n);
        buffer[n] = '\0';
    }
    return (long)length;
}

/* ------------------------------------------------------------- checking, listing */

FABRIC_EXPORT int jackal_fabric_check(const char *description) {
    struct fabric_topology *topology;
    int n_hosts;

    if (description == NULL || description[0] == '\0') {
        fabric_fail(EINVAL, "no description is given");
        return -1;
    }
    topology = fabric_config_parse(description);
    if (topology == NULL) {
        return -1;
    }
    n_hosts = (int)topology->n_hosts;
    fabric_topology_free(topology);
    return n_hosts;
}

/* Whether anybody alive is in a fabric. The life lock is held. The own file is not looked at, since
 * closing it would drop the lock that says that this process lives. */
static bool control_has_processes(int root_fd, const char *name) {
    int fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_alive = fabric_state.n_open > 0 && fabric_state.segment.owner == getpid() &&
                    strcmp(fabric_state.segment.folder_name, name) == 0;

    for (uint32_t slot = 1; fd >= 0 && slot <= FABRIC_SLOTS && !is_alive; slot++) {
        is_alive = fabric_segment_is_alive(fd, slot);
    }
    if (fd >= 0) {
        close(fd);
    }
    return is_alive;
}

FABRIC_EXPORT long jackal_fabric_list(char *text, size_t n_bytes) {
    char root[128];
    struct dirent *entry;
    size_t length = 0;
    int fd;
    DIR *folder;

    if (n_bytes > 0) {
        text[0] = '\0';
    }
    errno = 0;
    fd = control_root(root, sizeof root);
    if (fd < 0) {
        return errno == ENOENT ? 0 : -1;
    }
    folder = fdopendir(fd);
    if (folder == NULL) {
        fabric_fail(errno, "%s: %s", root, strerror(errno));
        close(fd);
        return -1;
    }
    pthread_mutex_lock(&fabric_state.life);
    while ((entry = readdir(folder)) != NULL) {
        size_t n = strlen(entry->d_name);

        if (entry->d_name[0] == '.' || !control_has_processes(fd, entry->d_name)) {
            continue;
        }
        if (length + n + 1 < n_bytes) {
            memcpy(text + length, entry->d_name, n);
            text[length + n] = '\n';
            text[length + n + 1] = '\0';
        }
        length += n + 1;
    }
    pthread_mutex_unlock(&fabric_state.life);
    closedir(folder);
    return (long)length;
}

/* -------------------------------------------------------------------- status */

static const char *const control_objects[FABRIC_N_OBJECTS] = {
    "contexts",    "protection_domains",    "memory_regions",      "completion_queues",
    "queue_pairs", "shared_receive_queues", "completion_channels", "address_handles"};

static void control_set(json_t *object, const char *key, uint64_t value) {
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *control_flow(const struct fabric_world_flow *flow) {
    json_t *object = json_object();
    uint64_t n_messages = atomic_load_explicit(&flow->n_messages, memory_order_relaxed);

    control_set(object, "bytes", atomic_load_explicit(&flow->n_bytes, memory_order_relaxed));
    control_set(object, "messages", n_messages);
    control_set(object, "frames",
                n_messages + atomic_load_explicit(&flow->n_more_frames, memory_order_relaxed));
    return object;
}

static json_t *control_claims(const struct control *control, uint32_t number) {
    const struct fabric_world *world = &control->world;
    json_t *list = json_array();

    for (uint32_t slot = 1; slot <= FABRIC_SLOTS; slot++) {
        if (!control_is_alive(control, slot)) {
            continue;
        }
        for (uint32_t i = 0; i < world->n_claims; i++) {
            const struct fabric_world_claim *claim = &world->claims[slot * world->n_claims + i];
            json_t *item;

            if (atomic_load_explicit(&claim->port, memory_order_relaxed) != number + 1) {
                continue;
            }
            item = json_object();
            control_set(item, "pid",
                        atomic_load_explicit(&world->slots[slot].pid, memory_order_relaxed));
            for (int k = 0; k < FABRIC_N_OBJECTS; k++) {
                control_set(item, control_objects[k],
                            atomic_load_explicit(&claim->n_objects[k], memory_order_relaxed));
            }
            json_array_append_new(list, item);
        }
    }
    return list;
}

static uint32_t control_get(const _Atomic uint32_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

static json_t *control_device(const struct control *control, uint32_t number) {
    const struct fabric_world *world = &control->world;
    const struct fabric_world_port *port = &world->ports[number];
    json_t *device = json_object(), *objects = json_object();
    const char *state = control_get(&port->is_removed) != 0 ? "removed"
                        : control_get(&port->is_down) != 0  ? "down"
                                                            : "active";
    char label[2 * FABRIC_LABEL_MAX + 4] = "";

    if (port->peer < world->n_ports) {
        const struct fabric_world_port *peer = &world->ports[port->peer];

        if (peer->host < world->n_hosts) {
            snprintf(label, sizeof label, "%.31s.%.31s", world->hosts[peer->host].name, peer->name);
        }
    }
    json_object_set_new(device, "name", json_string(port->name));
    json_object_set_new(device, "state", json_string(state));
    json_object_set_new(device, "plugged", json_boolean(control_get(&port->is_unplugged) == 0));
    json_object_set_new(device, "up", json_boolean(control_get(&port->is_up) != 0));
    json_object_set_new(device, "peer", label[0] == '\0' ? json_null() : json_string(label));
    json_object_set_new(
        device, "rate",
        json_real(port->pace.rate > 0 || control_get(&port->factor) == FABRIC_FACTOR_ONE
                      ? port->pace.rate
                      : FABRIC_UNPACED_RATE));
    control_set(device, "latency_ns", port->pace.latency_ns);
    json_object_set_new(device, "factor",
                        json_real((double)control_get(&port->factor) / FABRIC_FACTOR_ONE));
    control_set(device, "flaps", control_get(&port->n_flaps));
    json_object_set_new(device, "sent", control_flow(&port->sent));
    json_object_set_new(device, "received", control_flow(&port->received));
    for (int k = 0; k < FABRIC_N_OBJECTS; k++) {
        control_set(objects, control_objects[k], control_get(&port->n_objects[k]));
    }
    json_object_set_new(objects, "processes", control_claims(control, number));
    json_object_set_new(device, "objects", objects);
    return device;
}

static json_t *control_hosts(const struct control *control) {
    const struct fabric_world *world = &control->world;
    json_t *hosts = json_array();

    for (uint32_t h = 0; h < world->n_hosts; h++) {
        json_t *host = json_object(), *devices = json_array();

        json_object_set_new(host, "name", json_string(world->hosts[h].name));
        for (uint32_t p = 0; p < world->n_ports; p++) {
            if (world->ports[p].host == h) {
                json_array_append_new(devices, control_device(control, p));
            }
        }
        json_object_set_new(host, "devices", devices);
        json_array_append_new(hosts, host);
    }
    return hosts;
}

static json_t *control_processes(const struct control *control) {
    const struct fabric_world *world = &control->world;
    json_t *list = json_array();

    for (uint32_t slot = 1; slot <= FABRIC_SLOTS; slot++) {
        uint32_t host = control_get(&world->slots[slot].host);
        json_t *item;

        if (!control_is_alive(control, slot)) {
            continue;
        }
        item = json_object();
        control_set(item, "pid", control_get(&world->slots[slot].pid));
        json_object_set_new(item, "host",
                            json_string(host < world->n_hosts ? world->hosts[host].name : "*"));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *control_picture(const struct control *control, const char *name) {
    const struct fabric_world *world = &control->world;
    json_t *root = json_object();
    uint32_t n_faults = 0;

    for (uint32_t i = 0; i < FABRIC_MAX_FAULTS; i++) {
        n_faults += control_get(&world->faults[i].is_active) != 0;
    }
    json_object_set_new(root, "name", json_string(name));
    json_object_set_new(root, "personality",
                        json_string(world->header->is_roce != 0 ? "roce" : "thunderbolt"));
    json_object_set_new(root, "switched", json_boolean(world->is_switched));
    json_object_set_new(root, "age_s",
                        json_real((double)(fabric_now_ns() - world->header->created_ns) / 1e9));
    json_object_set_new(root, "processes", control_processes(control));
    json_object_set_new(root, "hosts", control_hosts(control));
    control_set(root, "faults", n_faults);
    return root;
}

FABRIC_EXPORT long jackal_fabric_status(const char *name, char *json, size_t n_bytes) {
    struct control control;
    json_t *root;
    char *text;
    long length;

    if (control_open(&control, name) != 0) {
        return -1;
    }
    root = control_picture(&control, name);
    text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(root);
    control_close(&control);
    if (text == NULL) {
        fabric_fail(ENOMEM, "no memory for the status of '%s'", name);
        return -1;
    }
    length = control_give(text, strlen(text), json, n_bytes);
    free(text);
    return length;
}

/* ------------------------------------------------------------------- changing */

/* As much of a topology as names of devices need. */
static struct fabric_topology *control_topology(const struct fabric_world *world) {
    struct fabric_topology *topology = calloc(1, sizeof *topology);

    if (topology == NULL) {
        return NULL;
    }
    topology->is_roce = world->header->is_roce != 0;
    topology->n_hosts = world->n_hosts;
    topology->hosts = calloc(topology->n_hosts + 1u, sizeof *topology->hosts);
    topology->ports = calloc(world->n_ports + 1u, sizeof *topology->ports);
    if (topology->hosts == NULL || topology->ports == NULL) {
        fabric_topology_free(topology);
        return NULL;
    }
    topology->n_ports = world->n_ports;
    for (uint32_t h = 0; h < topology->n_hosts; h++) {
        memcpy(topology->hosts[h].name, world->hosts[h].name, FABRIC_LABEL_MAX);
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        struct fabric_port *port = &topology->ports[p];

        memcpy(port->name, world->ports[p].name, FABRIC_LABEL_MAX);
        port->host = world->ports[p].host < topology->n_hosts ? world->ports[p].host : 0;
        port->index = topology->hosts[port->host].n_ports++;
    }
    return topology;
}

static int control_add_fault(struct fabric_world *world, const struct fabric_fault *fault) {
    for (uint32_t i = 0; i < FABRIC_MAX_FAULTS; i++) {
        struct fabric_world_fault *place = &world->faults[i];
        uint32_t n = control_get(&world->header->n_faults);

        /* A place that was used is not taken again: somebody may still be reading it. */
        if (i < n) {
            continue;
        }
        place->fault = *fault;
        atomic_store_explicit(&place->is_active, 1, memory_order_release);
        atomic_store_explicit(&world->header->n_faults, i + 1, memory_order_release);
        return 0;
    }
    return fabric_fail(ENOSPC, "%d faults were added to this fabric, which is all it takes",
                       FABRIC_MAX_FAULTS);
}

static int control_fault(struct fabric_world *world, const struct fabric_topology *topology,
                         const char *text) {
    struct fabric_fault faults[2];
    json_error_t error;
    size_t n = 0;
    json_t *item = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    int rc;

    if (item == NULL) {
        return fabric_fail(EINVAL, "the fault: line %d, column %d: %s", error.line, error.column,
                           error.text);
    }
    rc = fabric_config_fault(topology, item, "fault", faults, &n);
    json_decref(item);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (faults[i].kind == FABRIC_FAULT_UNPLUG || faults[i].kind == FABRIC_FAULT_REPLUG ||
            faults[i].kind == FABRIC_FAULT_REMOVE) {
            if (!faults[i].by_message) {
                return fabric_fail(EINVAL, "a fault at a time is for descriptions; give the "
                                           "command unplug, replug or remove at that time");
            }
        }
        faults[i].at_ns += fabric_now_ns() - world->header->created_ns;
        rc = control_add_fault(world, &faults[i]);
    }
    return rc;
}

static void control_clear(struct fabric_world *world) {
    for (uint32_t i = 0; i < FABRIC_MAX_FAULTS; i++) {
        atomic_store_explicit(&world->faults[i].is_active, 0, memory_order_release);
    }
}

static int control_slow(struct fabric_world *world, uint32_t port, const char *text) {
    static const struct fabric_json_unit none[] = {{"", 1}, {NULL, 0}};
    double factor = 0;

    if (!fabric_json_measure(text, none, &factor) || factor < 1e-6 || factor > 1000) {
        return fabric_fail(EINVAL, "slow: '%s' is no factor above 0 and up to 1000", text);
    }
    fabric_world_slow(world, port, factor);
    return 0;
}

static int control_device_command(struct fabric_world *world,
                                  const struct fabric_topology *topology, const char *verb,
                                  const char *device, const char *rest) {
    static const struct {
        const char *verb;
        enum fabric_change change;
    } changes[] = {{"unplug", FABRIC_CHANGE_UNPLUG},
                   {"replug", FABRIC_CHANGE_REPLUG},
                   {"down", FABRIC_CHANGE_DOWN},
                   {"up", FABRIC_CHANGE_UP},
                   {"remove", FABRIC_CHANGE_REMOVE}};
    const struct fabric_port *port = fabric_topology_find(topology, device);
    uint32_t number;

    if (port == NULL) {
        return fabric_fail(EINVAL, "%s: '%s' is no device of this fabric, as %s.%s", verb, device,
                           topology->hosts[0].name,
                           topology->n_ports > 0 ? topology->ports[0].name : "rdma_en2");
    }
    number = (uint32_t)(port - topology->ports);
    if (strcmp(verb, "slow") == 0) {
        return control_slow(world, number, rest);
    }
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        if (strcmp(changes[i].verb, verb) == 0 && rest[0] == '\0') {
            fabric_world_change(world, number, changes[i].change, 0);
            return 0;
        }
    }
    return fabric_fail(EINVAL,
                       "'%s %s%s%s' is no command: unplug, replug, down, up, remove DEVICE; slow "
                       "DEVICE FACTOR; fault JSON; faults clear",
                       verb, device, rest[0] == '\0' ? "" : " ", rest);
}

static int control_command(struct fabric_world *world, const struct fabric_topology *topology,
                           const char *command) {
    char verb[16] = "", device[80] = "", rest[32] = "";

    if (strncmp(command, "fault ", 6) == 0) {
        return control_fault(world, topology, command + 6);
    }
    if (strcmp(command, "faults clear") == 0) {
        control_clear(world);
        return 0;
    }
    sscanf(command, "%15s %79s %31s", verb, device, rest);
    return control_device_command(world, topology, verb, device, rest);
}

FABRIC_EXPORT int jackal_fabric_control(const char *name, const char *command) {
    struct fabric_topology *topology;
    struct control control;
    int rc;

    if (control_open(&control, name) != 0) {
        return -1;
    }
    topology = control_topology(&control.world);
    rc = topology == NULL ? fabric_fail(ENOMEM, "no memory to change '%s'", name)
                          : control_command(&control.world, topology, command);
    fabric_topology_free(topology);
    control_close(&control);
    if (rc != 0) {
        errno = rc;
        return -1;
    }
    return 0;
}
