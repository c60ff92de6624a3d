/* SPDX-License-Identifier: MIT */
#include "plan/cache.h"

#include <stdlib.h>
#include <string.h>

/* Twice what may be pinned, so that there is always something to keep and something to give up. */
enum { CACHE_ENTRIES = 2 * PLAN_CACHE_PINNED };

struct entry {
    struct plan *plan;
    struct plan_request request;
    bool filled;
    uint32_t pins;
    uint64_t used_at;
};

struct plan_cache {
    uint64_t now; /* counts look-ups */
    struct entry entries[CACHE_ENTRIES];
};

struct plan_cache *plan_cache_new(int size, int wires) {
    struct plan_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return NULL;
    for (int i = 0; i < CACHE_ENTRIES; i++) {
        cache->entries[i].plan = plan_new(size, wires);
        if (cache->entries[i].plan == NULL) {
            plan_cache_free(cache);
            return NULL;
        }
    }
    return cache;
}

void plan_cache_free(struct plan_cache *cache) {
    if (cache == NULL)
        return;
    for (int i = 0; i < CACHE_ENTRIES; i++)
        plan_free(cache->entries[i].plan);
    free(cache);
}

/* Rank, size, wires, limits and the preferred algorithm are those of the cache's group. */
static bool same(const struct plan_request *a, const struct plan_request *b) {
    return a->operation == b->operation && a->count == b->count &&
           a->element_bytes == b->element_bytes && a->root == b->root;
}

/* The entry that has the plan, else one to build it in; NULL = it would be one pinned too many. */
static struct entry *find(struct plan_cache *cache, const struct plan_request *request) {
    struct entry *found = NULL, *oldest = NULL;
    int n_pinned = 0;
    for (int i = 0; i < CACHE_ENTRIES; i++) {
        struct entry *entry = &cache->entries[i];
        n_pinned += entry->pins > 0;
        if (entry->filled && same(&entry->request, request))
            found = entry;
        if (entry->pins == 0 && (oldest == NULL || entry->used_at < oldest->used_at))
            oldest = entry;
    }
    if (n_pinned == PLAN_CACHE_PINNED && (found == NULL || found->pins == 0))
        return NULL;
    if (found != NULL)
        return found;
    oldest->filled = false; /* there is one: twice as many entries as may be pinned */
    return oldest;
}

jackal_status plan_cache_get(struct plan_cache *cache, const struct plan_request *request,
                             const struct plan **plan_p, struct base_error *error) {
    struct entry *entry = find(cache, request);
    if (entry == NULL)
        return base_fail(error, JACKAL_ERR_LIMIT, "more than %d operations at once",
                         PLAN_CACHE_PINNED);
    if (!entry->filled) {
        jackal_status status = plan_build(entry->plan, request, error);
        if (status != JACKAL_OK)
            return status;
        entry->request = *request;
        entry->filled = true;
    }
    entry->pins++;
    entry->used_at = ++cache->now;
    *plan_p = entry->plan;
    return JACKAL_OK;
}

void plan_cache_release(struct plan_cache *cache, const struct plan *plan) {
    for (int i = 0; i < CACHE_ENTRIES; i++)
        if (cache->entries[i].plan == plan)
            cache->entries[i].pins--;
}
