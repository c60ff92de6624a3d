/* SPDX-License-Identifier: MIT */
#include "fabric_world.h"
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WORLD_LOCK_TRIES 5000 /* of a millisecond */

struct fabric_world fabric_world = {.fd = -1};

static void world_set(_Atomic uint32_t *word, uint32_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint32_t world_get(const _Atomic uint32_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* ---------------------------------------------------------- the file, its lock */

static int world_try_lock(int fd) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    const struct timespec nap = {.tv_nsec = 1000000};

    for (int i = 0; i < WORLD_LOCK_TRIES; i++) {
        if (fcntl(fd, F_SETLK, &range) == 0) {
            return 0;
        }
        if (errno != EACCES && errno != EAGAIN) {
            return errno;
        }
        nanosleep(&nap, NULL);
    }
    return EBUSY;
}

int fabric_world_lock(struct fabric_world *world, int folder_fd, const char *place) {
    for (int i = 0; i < 64; i++) {
        struct stat status;
        int fd =
            openat(folder_fd, FABRIC_WORLD_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        int rc;

        if (fd < 0) {
            rc = errno;
            return rc == ENOENT ? rc
                                : fabric_fail(rc, "%s/" FABRIC_WORLD_FILE ": cannot be opened: %s",
                                              place, strerror(rc));
        }
        rc = world_try_lock(fd);
        if (rc == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0) {
            world->fd = fd;
            return 0;
        }
        close(fd);
        if (rc != 0) {
            return fabric_fail(rc,
                               "%s/" FABRIC_WORLD_FILE ": a process that enters or leaves the "
                               "fabric holds the lock for too long: %s",
                               place, strerror(rc));
        }
    }
    return ENOENT;
}

int fabric_world_hold(struct fabric_world *world) {
    return world_try_lock(world->fd);
}

void fabric_world_unlock(struct fabric_world *world) {
    struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    (void)fcntl(world->fd, F_SETLK, &range);
}

/* ------------------------------------------------------------------- layout */

static uint64_t world_line(uint64_t at) {
    return (at + FABRIC_LINE - 1) / FABRIC_LINE * FABRIC_LINE;
}

static void world_layout(struct fabric_world_header *header, uint32_t n_hosts, uint32_t n_ports) {
    header->layout = FABRIC_WORLD_LAYOUT;
    header->n_hosts = n_hosts;
    header->n_ports = n_ports;
    header->n_claims = n_ports < FABRIC_WORLD_CLAIMS ? n_ports : FABRIC_WORLD_CLAIMS;
    header->hosts_at = world_line(sizeof *header);
    header->ports_at = world_line(header->hosts_at + n_hosts * sizeof(struct fabric_world_host));
    header->faults_at = world_line(header->ports_at + n_ports * sizeof(struct fabric_world_port));
    header->slots_at =
        world_line(header->faults_at + FABRIC_MAX_FAULTS * sizeof(struct fabric_world_fault));
    header->claims_at =
        world_line(header->slots_at + (FABRIC_SLOTS + 1) * sizeof(struct fabric_world_slot));
    header->size = header->claims_at + (uint64_t)(FABRIC_SLOTS + 1) * header->n_claims *
                                           sizeof(struct fabric_world_claim);
}

static void *world_at(const struct fabric_world *world, uint64_t at) {
    return world->mapping + at;
}

/* The layout is computed from the numbers, never taken from the file. */
static int world_map(struct fabric_world *world, const struct fabric_world_header *layout) {
    void *mapping = mmap(NULL, layout->size, PROT_READ | PROT_WRITE, MAP_SHARED, world->fd, 0);

    if (mapping == MAP_FAILED) {
        return errno;
    }
    world->mapping = mapping;
    world->size = layout->size;
    world->n_hosts = layout->n_hosts;
    world->n_ports = layout->n_ports;
    world->n_claims = layout->n_claims;
    world->header = mapping;
    world->hosts = world_at(world, layout->hosts_at);
    world->ports = world_at(world, layout->ports_at);
    world->faults = world_at(world, layout->faults_at);
    world->slots = world_at(world, layout->slots_at);
    world->claims = world_at(world, layout->claims_at);
    return 0;
}

/* ------------------------------------------------------------------- states */

static void world_refresh(struct fabric_world *world, uint32_t number) {
    struct fabric_world_port *port = &world->ports[number];
    bool is_up = world_get(&port->is_down) == 0 && world_get(&port->is_unplugged) == 0 &&
                 world_get(&port->is_removed) == 0;

    if (!world->is_switched) {
        const struct fabric_world_port *peer =
            port->peer < world->n_ports ? &world->ports[port->peer] : NULL;

        is_up = is_up && peer != NULL && world_get(&peer->is_down) == 0 &&
                world_get(&peer->is_removed) == 0;
    }
    world_set(&port->is_up, is_up);
}

static bool world_has_pace(const struct fabric_pace *pace) {
    return pace->rate > 0 || pace->latency_ns > 0 || pace->gap_ns > 0 || pace->frame_gap_ns > 0;
}

static void world_fill_port(struct fabric_world_port *port, const struct fabric_port *from,
                            bool is_unplugged) {
    memcpy(port->name, from->name, sizeof port->name);
    port->host = from->host;
    port->peer = from->peer;
    port->pace = from->pace;
    world_set(&port->is_paced, world_has_pace(&from->pace));
    world_set(&port->factor, FABRIC_FACTOR_ONE);
    world_set(&port->is_down, from->starts_down);
    world_set(&port->is_unplugged, is_unplugged);
}

static void world_fill(struct fabric_world *world, const struct fabric_topology *topology) {
    struct fabric_world_header *header = world->header;

    header->topology_hash = fabric_topology_hash(topology);
    header->is_roce = topology->is_roce;
    header->is_switched = topology->is_switched;
    world->is_switched = topology->is_switched;
    header->created_ns = fabric_now_ns();
    for (uint32_t h = 0; h < topology->n_hosts; h++) {
        memcpy(world->hosts[h].name, topology->hosts[h].name, sizeof world->hosts[h].name);
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        const struct fabric_port *port = &topology->ports[p];

        world_fill_port(&world->ports[p], port,
                        port->cable != FABRIC_ANY &&
                            topology->cables[port->cable].starts_unplugged);
    }
    for (uint32_t p = 0; p < topology->n_ports; p++) {
        world_refresh(world, p);
    }
    atomic_store_explicit(&header->magic, FABRIC_WORLD_MAGIC, memory_order_release);
}

/* --------------------------------------------------------- entering, leaving */

static int world_make(struct fabric_world *world, const struct fabric_topology *topology,
                      const char *place) {
    struct fabric_world_header layout = {0};
    int rc;

    world_layout(&layout, topology->n_hosts, topology->n_ports);
    rc = fchmod(world->fd, 0600) != 0 ? errno : fabric_segment_reserve(world->fd, 0, layout.size);
    if (rc == 0) {
        rc = world_map(world, &layout);
    }
    if (rc != 0) {
        return fabric_fail(rc, "%s/" FABRIC_WORLD_FILE ": no space for %llu bytes: %s", place,
                           (unsigned long long)layout.size, strerror(rc));
    }
    world_layout(world->header, topology->n_hosts, topology->n_ports);
    world_fill(world, topology);
    return 0;
}

/* What of a foreign file can be trusted after this: that it is as long as its numbers say. */
static int world_open_mapped(struct fabric_world *world, const char *place) {
    struct fabric_world_header head = {0}, layout = {0};
    struct stat status;
    ssize_t n = pread(world->fd, &head, sizeof head, 0);
    bool is_whole = n == (ssize_t)sizeof head && head.magic == FABRIC_WORLD_MAGIC &&
                    head.layout == FABRIC_WORLD_LAYOUT && head.n_ports <= FABRIC_MAX_PORTS &&
                    head.n_hosts <= FABRIC_MAX_HOSTS;
    int rc;

    if (is_whole) {
        world_layout(&layout, head.n_hosts, head.n_ports);
        is_whole = fstat(world->fd, &status) == 0 && (uint64_t)status.st_size >= layout.size;
    }
    if (!is_whole) {
        return fabric_fail(EINVAL,
                           "%s/" FABRIC_WORLD_FILE ": is not complete or of another version; end "
                           "the processes of this fabric, or use another JACKAL_FABRIC_NAME",
                           place);
    }
    rc = world_map(world, &layout);
    world->is_switched = head.is_switched != 0;
    return rc == 0 ? 0
                   : fabric_fail(rc, "%s/" FABRIC_WORLD_FILE ": cannot be mapped: %s", place,
                                 strerror(rc));
}

int fabric_world_join(struct fabric_world *world, struct fabric_segment *segment,
                      const struct fabric_topology *topology, bool is_first) {
    struct stat status;
    int rc;

    if (is_first && fstat(world->fd, &status) == 0 && status.st_size > 0) {
        /* Left by dead processes. A new file, because somebody may be looking at the old one. */
        unlinkat(segment->folder_fd, FABRIC_WORLD_FILE, 0);
        close(world->fd);
        world->fd = -1;
        rc = fabric_world_lock(world, segment->folder_fd, segment->place);
        if (rc != 0) {
            return rc;
        }
    }
    rc = is_first ? world_make(world, topology, segment->place)
                  : world_open_mapped(world, segment->place);
    if (rc == 0 && world->header->topology_hash != fabric_topology_hash(topology)) {
        munmap(world->mapping, world->size);
        world->mapping = NULL;
        world->header = NULL;
        rc = fabric_fail(EINVAL,
                         "%s: a running process has another description of this fabric; use the "
                         "same for all or another JACKAL_FABRIC_NAME",
                         segment->place);
    }
    if (rc != 0) {
        return rc;
    }
    fabric_world_reclaim(world, segment);
    fabric_world_forget_slot(world, segment->slot);
    world_set(&world->slots[segment->slot].host, topology->self);
    world_set(&world->slots[segment->slot].pid, (uint32_t)getpid());
    return 0;
}

void fabric_world_forget_slot(struct fabric_world *world, uint32_t slot) {
    uint32_t n_claims = world->n_claims;

    for (uint32_t i = 0; i < n_claims; i++) {
        struct fabric_world_claim *claim = &world->claims[slot * n_claims + i];
        uint32_t port = atomic_exchange_explicit(&claim->port, 0, memory_order_relaxed);

        for (int k = 0; k < FABRIC_N_OBJECTS; k++) {
            uint16_t n = atomic_exchange_explicit(&claim->n_objects[k], 0, memory_order_relaxed);

            if (port != 0 && port <= world->n_ports) {
                atomic_fetch_sub_explicit(&world->ports[port - 1].n_objects[k], n,
                                          memory_order_relaxed);
            }
        }
    }
    world_set(&world->slots[slot].pid, 0);
}

void fabric_world_reclaim(struct fabric_world *world, const struct fabric_segment *segment) {
    for (uint32_t slot = 1; slot <= FABRIC_SLOTS; slot++) {
        if (slot != segment->slot && world_get(&world->slots[slot].pid) != 0 &&
            !fabric_segment_is_alive(segment->folder_fd, slot)) {
            fabric_world_forget_slot(world, slot);
        }
    }
}

void fabric_world_close(struct fabric_world *world) {
    if (world->mapping != NULL) {
        munmap(world->mapping, world->size);
    }
    if (world->fd >= 0) {
        close(world->fd);
    }
    *world = (struct fabric_world){.fd = -1};
}

int fabric_world_look(struct fabric_world *world, int folder_fd, const char *place) {
    int rc;

    *world = (struct fabric_world){.fd = -1};
    world->fd = openat(folder_fd, FABRIC_WORLD_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (world->fd < 0) {
        rc = errno;
        return fabric_fail(rc, "%s: no process is in this fabric", place);
    }
    rc = world_open_mapped(world, place);
    if (rc != 0) {
        fabric_world_close(world);
    }
    return rc;
}

/* -------------------------------------------------------------------- asking */

uint64_t fabric_world_age_ns(void) {
    return fabric_world.header == NULL ? 0 : fabric_now_ns() - fabric_world.header->created_ns;
}

uint32_t fabric_world_n_flaps(uint32_t port) {
    return fabric_world.header == NULL ? 0 : world_get(&fabric_world.ports[port].n_flaps);
}

bool fabric_world_is_removed(uint32_t port) {
    return fabric_world.header != NULL && world_get(&fabric_world.ports[port].is_removed) != 0;
}

/* ------------------------------------------------------------------ changing */

static void world_apply(struct fabric_world_port *port, enum fabric_change change) {
    switch (change) {
    case FABRIC_CHANGE_UNPLUG:
        world_set(&port->is_unplugged, 1);
        break;
    case FABRIC_CHANGE_REPLUG:
        if (atomic_exchange_explicit(&port->is_unplugged, 0, memory_order_relaxed) != 0) {
            atomic_fetch_add_explicit(&port->n_flaps, 1, memory_order_relaxed);
        }
        break;
    case FABRIC_CHANGE_DOWN:
        world_set(&port->is_down, 1);
        break;
    case FABRIC_CHANGE_UP:
        world_set(&port->is_down, 0);
        break;
    case FABRIC_CHANGE_REMOVE:
        world_set(&port->is_removed, 1);
        break;
    }
}

/* Whether nobody was here before with this event or a later one. */
static bool world_is_news(struct fabric_world_port *port, uint64_t at_ns) {
    uint64_t last = atomic_load_explicit(&port->changed_at_ns, memory_order_relaxed);

    while (at_ns > last) {
        if (atomic_compare_exchange_weak_explicit(&port->changed_at_ns, &last, at_ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

void fabric_world_change(struct fabric_world *world, uint32_t number, enum fabric_change change,
                         uint64_t at_ns) {
    struct fabric_world_port *port = &world->ports[number];
    bool has_peer = port->peer < world->n_ports;

    if (at_ns != 0 && !world_is_news(port, at_ns)) {
        return;
    }
    world_apply(port, change);
    if (has_peer && (change == FABRIC_CHANGE_UNPLUG || change == FABRIC_CHANGE_REPLUG)) {
        world_apply(&world->ports[port->peer], change);
    }
    world_refresh(world, number);
    if (has_peer) {
        world_refresh(world, port->peer);
    }
    atomic_fetch_add_explicit(&world->header->epoch, 1, memory_order_release);
}

static void world_slow_port(struct fabric_world_port *port, double factor) {
    world_set(&port->factor, (uint32_t)(factor * FABRIC_FACTOR_ONE));
    world_set(&port->is_paced, world_has_pace(&port->pace) || factor != 1);
}

void fabric_world_slow(struct fabric_world *world, uint32_t number, double factor) {
    struct fabric_world_port *port = &world->ports[number];

    world_slow_port(port, factor);
    if (port->peer < world->n_ports) {
        world_slow_port(&world->ports[port->peer], factor);
    }
    atomic_fetch_add_explicit(&world->header->epoch, 1, memory_order_release);
}
