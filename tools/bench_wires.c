/* SPDX-License-Identifier: MIT */
/*
 * How much each wire carried. Two cables of which one is idle look like one slow cable in every
 * other number, so the bytes are shown per wire. Only measured and checked calls count: what the
 * bench itself tells other ranks would hide an idle wire.
 */
#include "bench.h"

#include <jackal/collective.h>
#include <jackal/inspect.h>

#include <stdlib.h>
#include <string.h>

static json_t *read_stats(const struct bench *bench, int *failed_p) {
    char *text = NULL;
    json_error_t error;
    *failed_p = bench_failed(bench, "group_stats", jackal_group_stats(bench->group, &text));
    if (*failed_p) {
        return NULL;
    }
    json_t *stats = json_loads(text, 0, &error);
    jackal_free_text(text);
    if (!json_is_array(json_object_get(stats, "wires"))) {
        fprintf(stderr, "jackal bench: rank %d: the statistics of the group have no wires: %s\n",
                bench->rank, stats ? "no such array" : error.text);
        json_decref(stats);
        *failed_p = TOOL_FAILED;
        return NULL;
    }
    return stats;
}

static struct bench_wire *find_wire(struct bench_wires *wires, int peer, int index) {
    for (size_t i = 0; i < wires->count; ++i) {
        if (wires->items[i].peer == peer && wires->items[i].index == index) {
            return &wires->items[i];
        }
    }
    wires->items = tool_resize(wires->items, wires->count + 1, sizeof *wires->items);
    struct bench_wire *wire = &wires->items[wires->count++];
    *wire = (struct bench_wire){.peer = peer, .index = index};
    return wire;
}

static int64_t number_of(const json_t *object, const char *key) {
    return (int64_t)json_integer_value(json_object_get(object, key));
}

/* sign −1 takes the counters off at the start, +1 adds them at the end. */
static int count_wires(struct bench *bench, int sign) {
    int failed;
    json_t *stats = read_stats(bench, &failed), *item;
    size_t i;
    json_array_foreach(json_object_get(stats, "wires"), i, item) {
        struct bench_wire *wire =
            find_wire(&bench->wires, (int)number_of(item, "peer"), (int)number_of(item, "wire"));
        const char *device = json_string_value(json_object_get(item, "device"));
        snprintf(wire->device, sizeof wire->device, "%s", device ? device : "?");
        wire->sent += sign * number_of(item, "bytes_sent");
        wire->received += sign * number_of(item, "bytes_received");
        wire->messages +=
            sign * (number_of(item, "messages_sent") + number_of(item, "messages_received"));
    }
    json_decref(stats);
    return failed;
}

/*
 * A rank may receive what belongs to the next stage before it has left this one. Barriers carry no
 * payload, so between two of them the counters of all ranks stand still.
 */
static int count_at_rest(struct bench *bench, int sign) {
    int failed = bench_failed(bench, "barrier", jackal_barrier(bench->group));
    failed = failed ? failed : count_wires(bench, sign);
    return failed ? failed : bench_failed(bench, "barrier", jackal_barrier(bench->group));
}

int bench_wires_start(struct bench *bench) {
    return count_at_rest(bench, -1);
}

int bench_wires_stop(struct bench *bench) {
    return count_at_rest(bench, 1);
}

void bench_wires_free(struct bench_wires *wires) {
    free(wires->items);
    memset(wires, 0, sizeof *wires);
}

static char *describe_own(const struct bench *bench) {
    json_t *list = json_array();
    for (size_t i = 0; i < bench->wires.count; ++i) {
        const struct bench_wire *wire = &bench->wires.items[i];
        json_array_append_new(list, json_pack("{s:i,s:i,s:s,s:I,s:I,s:I}", "peer", wire->peer,
                                              "wire", wire->index, "device", wire->device,
                                              "bytes_sent", (json_int_t)wire->sent,
                                              "bytes_received", (json_int_t)wire->received,
                                              "messages", (json_int_t)wire->messages));
    }
    json_t *own = json_pack("{s:i,s:o}", "rank", bench->rank, "wires", list);
    char *text = json_dumps(own, JSON_COMPACT);
    json_decref(own);
    if (!text) {
        fprintf(stderr, "jackal bench: rank %d: out of memory for the wire counters\n",
                bench->rank);
        exit(TOOL_FAILED);
    }
    return text;
}

static int parse_all(const struct bench *bench, const char *texts, uint64_t length,
                     json_t **ranks_p) {
    json_t *ranks = json_array();
    for (int rank = 0; rank < bench->size; ++rank) {
        json_error_t error;
        json_t *one = json_loads(texts + (uint64_t)rank * length, 0, &error);
        if (!one) {
            fprintf(stderr, "jackal bench: the wire counters of rank %d arrived damaged: %s\n",
                    rank, error.text);
            json_decref(ranks);
            return TOOL_FAILED;
        }
        json_array_append_new(ranks, one);
    }
    *ranks_p = ranks;
    return 0;
}

int bench_wires_gather(const struct bench *bench, json_t **ranks_p) {
    char *own = describe_own(bench), *padded = NULL, *texts = NULL;
    uint64_t length = strlen(own) + 1;
    *ranks_p = NULL;
    int failed = bench_failed(bench, "all_max of the length of the wire counters",
                              jackal_all_max(bench->group, &length, &length, 1, JACKAL_UINT64));
    if (!failed) {
        padded = tool_resize(NULL, length, 1);
        texts = tool_resize(NULL, length, (size_t)bench->size);
        memset(padded, 0, length);
        memcpy(padded, own, strlen(own));
        failed = bench_failed(bench, "all_gather of the wire counters",
                              jackal_all_gather(bench->group, padded, texts, length, JACKAL_UINT8));
    }
    if (!failed && bench->rank == 0) {
        failed = parse_all(bench, texts, length, ranks_p);
    }
    free(own);
    free(padded);
    free(texts);
    return failed;
}
