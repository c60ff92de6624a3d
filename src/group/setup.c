/* SPDX-License-Identifier: MIT */
/*
 * Set-up of a group, in the order that the strictest provider needs:
 *
 *   meet → open devices and queue pairs → exchange addresses → RTR, RTS, post receives → meet →
 *   ping every wire → meet
 *
 * Every arrow is a round of the meeting point, and a rank that fails says so in the next one.
 */
#include "group/setup.h"

#include "base/clock.h"
#include "link/verbs/verbs_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A wire that carries nothing is found long before the init limit. */
#define PING_MS 10000

/* How long a rank whose settings are wrong tries to tell the others. */
#define TELL_MS 3000

struct setup {
    const struct group_options *options;
    struct group *group;
    struct topology *topology;
    struct link_geometry geometry;
    struct link **links;           /* [peer · wires + wire]; NULL once the engine has them */
    struct wire_endpoint *ends;    /* own, the same order */
    struct wire_endpoint *remotes; /* those the links lead to */
    bool whole_slots;
    uint64_t deadline_ns;
};

static const char *text(const struct setup *setup, enum base_setting_id id) {
    return base_settings_text(setup->options->settings, id);
}

static int64_t number(const struct setup *setup, enum base_setting_id id) {
    return base_settings_integer(setup->options->settings, id, 0);
}

/* ---- engine -----------------------------------------------------------------------------------
 */

static bool is_crowded(const struct setup *setup) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    bool all_here = strcmp(text(setup, SETTING_verbs), "system") != 0;
    return all_here && processors > 0 && setup->group->size > processors;
}

/* The engine takes the links over, also when it fails. */
static jackal_status start_engine(struct setup *setup, struct base_error *error) {
    struct group *group = setup->group;
    struct link **links = setup->links;
    setup->links = NULL;
    int64_t progress_ms = number(setup, SETTING_progress_timeout_ms);
    const char *algorithm = text(setup, SETTING_algorithm);
    struct engine_options options = {
        .rank = group->rank,
        .size = group->size,
        .wires = group->wires,
        .links = links,
        .geometry = setup->geometry,
        .staging = {group->staging.bytes, group->staging.extent},
        .whole_slots = setup->whole_slots,
        .checksum = number(setup, SETTING_checksum) != 0,
        .algorithm = strcmp(algorithm, "auto") == 0 ? NULL : algorithm,
        .incarnation = group->boot != NULL ? boot_incarnation(group->boot) : 0,
        .progress_timeout_ms = progress_ms > 0 ? (uint64_t)progress_ms : 0,
        .crowded = is_crowded(setup),
        .log = &group->log,
        .agree = group_agree,
        .context = group};
    return engine_new(&options, &group->engine, error);
}

/* ---- links ------------------------------------------------------------------------------------
 */

static jackal_status allocate(struct setup *setup, struct base_error *error) {
    size_t n = (size_t)setup->group->size * (size_t)setup->group->wires;
    setup->links = calloc(n, sizeof *setup->links);
    setup->ends = calloc(n, sizeof *setup->ends);
    setup->remotes = calloc(n, sizeof *setup->remotes);
    if (setup->links == NULL || setup->ends == NULL || setup->remotes == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for %zu wires", n);
    return JACKAL_OK;
}

static jackal_status read_topology(struct setup *setup, struct base_error *error) {
    jackal_status status = topology_read(setup->options->devices, &setup->topology, error);
    if (status != JACKAL_OK)
        return status;
    if (setup->topology->size != setup->group->size)
        return base_fail(error, JACKAL_ERR_CONFIG, "the device matrix has %d rows for %d ranks",
                         setup->topology->size, setup->group->size);
    return topology_check_mesh(setup->topology, &setup->group->wires, error);
}

static jackal_status reserve_slab(struct setup *setup, struct base_error *error) {
    const struct link_geometry *geometry = &setup->geometry;
    int n_wires = (setup->group->size - 1) * setup->group->wires;
    size_t n_bytes = engine_staging_bytes(geometry, n_wires);
    for (int queue = 0; queue < LINK_QUEUES; queue++)
        n_bytes += (size_t)n_wires * geometry->slots[queue] * geometry->slot_bytes[queue];
    return verbs_slab_reserve(n_bytes, n_wires + 1, error);
}

static jackal_status open_links(struct setup *setup, struct base_error *error) {
    struct group *group = setup->group;
    for (int peer = 0; peer < group->size; peer++) {
        if (peer == group->rank)
            continue;
        const struct topology_cell *cell = topology_cell(setup->topology, group->rank, peer);
        for (int wire = 0; wire < group->wires; wire++) {
            int at = peer * group->wires + wire;
            jackal_status status =
                verbs_link_open(group->provider, cell->names[wire], peer, wire, &setup->geometry,
                                setup->deadline_ns, &setup->links[at], &setup->ends[at], error);
            if (status != JACKAL_OK)
                return status;
        }
    }
    return JACKAL_OK;
}

static jackal_status open_staging(struct setup *setup, struct base_error *error) {
    struct group *group = setup->group;
    int n_wires = (group->size - 1) * group->wires;
    jackal_status status =
        verbs_slab_take(engine_staging_bytes(&setup->geometry, n_wires), &group->staging, error);
    for (int i = 0; i < group->size * group->wires && status == JACKAL_OK; i++)
        if (setup->links[i] != NULL)
            status = verbs_link_register(setup->links[i], &group->staging, error);
    return status;
}

/* Everything that needs no other rank. */
static jackal_status prepare(struct setup *setup, struct base_error *error) {
    jackal_status status = allocate(setup, error);
    if (status == JACKAL_OK)
        status = verbs_provider_acquire(text(setup, SETTING_verbs), &setup->group->provider, error);
    if (status == JACKAL_OK)
        status = reserve_slab(setup, error);
    if (status == JACKAL_OK)
        status = open_links(setup, error);
    if (status == JACKAL_OK)
        status = open_staging(setup, error);
    return status;
}

/* ---- exchange ---------------------------------------------------------------------------------
 */

/* A rank publishes the ends of its wires by peer, then wire, without itself. */
static size_t encode_ends(const struct setup *setup, uint8_t *bytes, size_t room) {
    const struct group *group = setup->group;
    size_t used = 0;
    for (int i = 0; i < group->size * group->wires; i++)
        if (setup->links[i] != NULL)
            used += wire_endpoint_encode(&setup->ends[i], bytes + used, room - used);
    return used;
}

/* Reads what `source` published; keeps the ends that face this rank. */
static jackal_status decode_ends(struct setup *setup, int source, const struct boot_blob *blob,
                                 struct base_error *error) {
    const struct group *group = setup->group;
    size_t at = 0;
    for (int peer = 0; peer < group->size; peer++) {
        for (int wire = 0; wire < group->wires && peer != source; wire++) {
            struct wire_endpoint end;
            size_t used = 0;
            jackal_status status =
                wire_endpoint_decode(blob->bytes + at, blob->n_bytes - at, &end, &used, error);
            if (status != JACKAL_OK)
                return base_fail_peer(error, JACKAL_ERR_PROTOCOL, source,
                                      "rank %d published a wire this version cannot read: %s",
                                      source, error->text);
            at += used;
            setup->whole_slots = setup->whole_slots || end.frames_counted;
            if (peer == group->rank)
                setup->remotes[source * group->wires + wire] = end;
        }
    }
    return JACKAL_OK;
}

static jackal_status meet(struct setup *setup, struct base_error *error) {
    struct boot_blob blobs[TOPOLOGY_MAX_SIZE];
    return boot_all_gather(setup->group->boot, NULL, 0, blobs, setup->deadline_ns, error);
}

/* The number of wires comes first: it follows from the matrix, which ranks may have differently. */
static jackal_status exchange(struct setup *setup, struct base_error *error) {
    struct group *group = setup->group;
    struct boot_blob blobs[TOPOLOGY_MAX_SIZE];
    size_t room = 1 + (size_t)(group->size * group->wires) * WIRE_ENDPOINT_MAX;
    uint8_t *bytes = malloc(room);
    if (bytes == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for addresses");
    bytes[0] = (uint8_t)group->wires;
    size_t n_bytes = 1 + encode_ends(setup, bytes + 1, room - 1);
    jackal_status status =
        boot_all_gather(group->boot, bytes, n_bytes, blobs, setup->deadline_ns, error);
    for (int source = 0; source < group->size && status == JACKAL_OK; source++) {
        struct boot_blob ends = blobs[source];
        if (ends.n_bytes == 0 || ends.bytes[0] != group->wires)
            status = base_fail_peer(error, JACKAL_ERR_CONFIG, source,
                                    "rank %d has %d wires to each rank, this rank %d: give all "
                                    "ranks the same device matrix",
                                    source, ends.n_bytes == 0 ? 0 : ends.bytes[0], group->wires);
        ends.bytes++;
        ends.n_bytes--;
        if (status == JACKAL_OK)
            status = decode_ends(setup, source, &ends, error);
    }
    free(bytes);
    return status;
}

static jackal_status connect_links(struct setup *setup, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    for (int i = 0; i < setup->group->size * setup->group->wires && status == JACKAL_OK; i++)
        if (setup->links[i] != NULL)
            status = verbs_link_connect(setup->links[i], &setup->remotes[i], error);
    return status;
}

static bool has_given_up(void *context) {
    const struct group *group = context;
    return boot_is_over(group->boot);
}

/* A rank that gave up meanwhile is not an error here: the meeting that follows says which and why.
 */
static jackal_status ping(struct setup *setup, struct base_error *error) {
    uint64_t ping_ns = base_deadline_ns(PING_MS);
    uint64_t deadline_ns = ping_ns < setup->deadline_ns ? ping_ns : setup->deadline_ns;
    jackal_status status =
        engine_ping(setup->group->engine, deadline_ns, has_given_up, setup->group, error);
    return status == JACKAL_PENDING ? JACKAL_OK : status;
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static jackal_status connect_boot(struct setup *setup, struct base_error *error) {
    const struct group *group = setup->group;
    struct boot_setting agreed[SETTING_COUNT];
    char values[SETTING_COUNT][32];
    size_t n_agreed = 0;
    for (int id = 0; id < SETTING_COUNT; id++) {
        if (!base_setting_table[id].agreed)
            continue;
        base_settings_normal(setup->options->settings, (enum base_setting_id)id, values[id],
                             sizeof values[id]);
        agreed[n_agreed++] = (struct boot_setting){base_setting_table[id].name, values[id]};
    }
    struct boot_options options = {.rank = group->rank,
                                   .size = group->size,
                                   .coordinator = text(setup, SETTING_coordinator),
                                   .listen = text(setup, SETTING_listen),
                                   .job = text(setup, SETTING_job),
                                   .settings = agreed,
                                   .n_settings = n_agreed,
                                   .deadline_ns = setup->deadline_ns,
                                   .peer_timeout_ms =
                                       (uint32_t)number(setup, SETTING_peer_timeout_ms),
                                   .log = &group->log};
    return boot_connect(&options, &setup->group->boot, error);
}

static jackal_status set_up(struct setup *setup, struct base_error *error) {
    jackal_status status = prepare(setup, error);
    if (status == JACKAL_OK)
        status = exchange(setup, error);
    if (status == JACKAL_OK)
        status = connect_links(setup, error);
    if (status == JACKAL_OK)
        status = meet(setup, error);
    if (status == JACKAL_OK)
        status = start_engine(setup, error);
    if (status == JACKAL_OK)
        status = ping(setup, error);
    if (status == JACKAL_OK)
        status = meet(setup, error);
    if (status == JACKAL_OK)
        status = group_watch(setup->group, error);
    return status;
}

static void describe(struct setup *setup) {
    struct group *group = setup->group;
    if (group->size == 1) {
        snprintf(group->backend, sizeof group->backend, "self (a group of one)");
        return;
    }
    snprintf(group->backend, sizeof group->backend,
             "jaccl mesh (%d ranks, %d wire%s between every two, verbs provider %s, canonical "
             "order; taken because a device matrix is set)",
             group->size, group->wires, group->wires == 1 ? "" : "s", text(setup, SETTING_verbs));
    base_log(&group->log, JACKAL_LOG_INFO, "%s", group->backend);
}

/*
 * What is wrong with the matrix is known before the meeting. The others are told if they are there
 * within a short time; nobody waits the whole limit for a rank that cannot come.
 */
static jackal_status refuse_early(struct setup *setup, struct base_error *why) {
    struct base_error answer;
    uint64_t limit_ns = base_deadline_ns(TELL_MS);
    if (limit_ns < setup->deadline_ns)
        setup->deadline_ns = limit_ns;
    jackal_status status = connect_boot(setup, &answer);
    if (status == JACKAL_OK)
        boot_fail(setup->group->boot, why);
    else if (status == JACKAL_ERR_CONFIG)
        *why = answer; /* rank 0 refuses this rank for a reason of its own, which all will see */
    return why->status;
}

static jackal_status open_mesh(struct setup *setup, struct base_error *error) {
    jackal_status status = read_topology(setup, error);
    if (status != JACKAL_OK)
        return refuse_early(setup, error);
    status = connect_boot(setup, error);
    if (status != JACKAL_OK)
        return status;
    status = set_up(setup, error);
    if (status != JACKAL_OK && status != JACKAL_ERR_REMOTE)
        boot_fail(setup->group->boot, error);
    return status;
}

static jackal_status open_single(struct setup *setup, struct base_error *error) {
    setup->group->wires = 1;
    jackal_status status = allocate(setup, error);
    return status == JACKAL_OK ? start_engine(setup, error) : status;
}

jackal_status group_open(const struct group_options *options, struct group **group_p,
                         struct base_error *error) {
    struct group *group = calloc(1, sizeof *group);
    if (group == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for a group");
    group_prepare_forks();
    group->rank = options->rank;
    group->size = options->size;
    group->log = options->log;
    struct setup setup = {.options = options, .group = group};
    setup.deadline_ns = base_deadline_ns((uint64_t)number(&setup, SETTING_init_timeout_ms));
    engine_geometry((uint32_t)number(&setup, SETTING_slot_frames), &setup.geometry);
    jackal_status status =
        options->size == 1 ? open_single(&setup, error) : open_mesh(&setup, error);
    if (status == JACKAL_OK)
        describe(&setup);
    topology_free(setup.topology);
    free(setup.ends);
    free(setup.remotes);
    /* Links that no engine has taken over. */
    for (int i = 0; setup.links != NULL && i < group->size * group->wires; i++)
        link_close(setup.links[i]);
    free(setup.links);
    if (status != JACKAL_OK) {
        group_close(group);
        return status;
    }
    *group_p = group;
    return JACKAL_OK;
}
