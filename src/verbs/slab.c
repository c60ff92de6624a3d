/* SPDX-License-Identifier: MIT */
/*
 * One slab of memory for the whole process, in at most VERBS_MAX_EXTENTS extents, since every
 * extent costs a region on every device. A group says first what it needs in all, which takes one
 * extent at most, and each extent is at least as large as all before it together; so a process runs
 * out of them only with ever larger groups at once. Extents are never given back: a region that was
 * deregistered may be lost until reboot.
 */
#include "verbs/registry.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define UNIT_BYTES         ((size_t)16384)
#define FIRST_EXTENT_BYTES ((size_t)4 << 20)

enum { MAX_RANGES = 256 };

struct extent {
    uint8_t *bytes;
    size_t n_bytes;
    size_t n_ranges; /* taken, sorted by address */
    struct {
        size_t at, n_bytes;
    } ranges[MAX_RANGES];
};

static struct extent extents[VERBS_MAX_EXTENTS];

/* First fit; the extent's ranges stay sorted. */
static uint8_t *take_from(struct extent *extent, size_t n_bytes) {
    size_t at = 0, i = 0;
    for (; i < extent->n_ranges && extent->ranges[i].at - at < n_bytes; i++)
        at = extent->ranges[i].at + extent->ranges[i].n_bytes;
    if (extent->n_ranges == MAX_RANGES || extent->n_bytes - at < n_bytes)
        return NULL;
    memmove(&extent->ranges[i + 1], &extent->ranges[i],
            (extent->n_ranges - i) * sizeof extent->ranges[0]);
    extent->ranges[i].at = at;
    extent->ranges[i].n_bytes = n_bytes;
    extent->n_ranges++;
    return extent->bytes + at;
}

static jackal_status add_extent(int index, size_t n_bytes, struct base_error *error) {
    size_t total = FIRST_EXTENT_BYTES;
    for (int i = 0; i < index; i++)
        total += extents[i].n_bytes;
    size_t size = n_bytes > total ? n_bytes : total;
    /* A unit more, since the system aligns to its own pages only. */
    uint8_t *bytes =
        mmap(NULL, size + UNIT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (bytes == MAP_FAILED)
        return base_fail_errno(error, JACKAL_ERR_MEMORY, errno, "no %zu bytes for message slots",
                               size);
    extents[index].bytes = bytes + (UNIT_BYTES - (uintptr_t)bytes % UNIT_BYTES) % UNIT_BYTES;
    extents[index].n_bytes = size;
    return JACKAL_OK;
}

static size_t largest_hole(const struct extent *extent) {
    size_t at = 0, largest = 0;
    for (size_t i = 0; i <= extent->n_ranges; i++) {
        bool last = i == extent->n_ranges;
        size_t end = last ? extent->n_bytes : extent->ranges[i].at;
        largest = end - at > largest ? end - at : largest;
        at = last ? end : end + extent->ranges[i].n_bytes;
    }
    return largest;
}

jackal_status verbs_slab_reserve(size_t n_bytes, int n_ranges, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    n_bytes += (size_t)n_ranges * UNIT_BYTES;
    pthread_mutex_lock(&verbs_registry_mutex);
    for (int index = 0; index < VERBS_MAX_EXTENTS; index++) {
        if (extents[index].bytes == NULL) {
            status = add_extent(index, n_bytes, error);
            break;
        }
        if (largest_hole(&extents[index]) >= n_bytes)
            break;
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
    return status;
}

jackal_status verbs_slab_take(size_t n_bytes, struct verbs_range *range_p,
                              struct base_error *error) {
    n_bytes = (n_bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    jackal_status status = JACKAL_OK;
    uint8_t *bytes = NULL;
    int index = 0;
    pthread_mutex_lock(&verbs_registry_mutex);
    for (; index < VERBS_MAX_EXTENTS && bytes == NULL && status == JACKAL_OK; index++) {
        if (extents[index].bytes == NULL)
            status = add_extent(index, n_bytes, error);
        if (status == JACKAL_OK)
            bytes = take_from(&extents[index], n_bytes);
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
    if (status != JACKAL_OK)
        return status;
    if (bytes == NULL)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "the slab has its %d extents and no room for %zu bytes more; close other "
                         "groups of this process first",
                         VERBS_MAX_EXTENTS, n_bytes);
    memset(bytes, 0, n_bytes);
    *range_p = (struct verbs_range){bytes, n_bytes, index - 1};
    return JACKAL_OK;
}

void verbs_slab_give(struct verbs_range *range) {
    if (range->bytes == NULL)
        return;
    pthread_mutex_lock(&verbs_registry_mutex);
    struct extent *extent = &extents[range->extent];
    size_t at = (size_t)(range->bytes - extent->bytes);
    for (size_t i = 0; i < extent->n_ranges; i++) {
        if (extent->ranges[i].at != at)
            continue;
        memmove(&extent->ranges[i], &extent->ranges[i + 1],
                (extent->n_ranges - i - 1) * sizeof extent->ranges[0]);
        extent->n_ranges--;
        break;
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
    range->bytes = NULL;
}

static jackal_status explain_refusal(const struct verbs_device *device, size_t n_bytes,
                                     int reg_errno, struct base_error *error) {
    struct rlimit limit = {0, 0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (reg_errno == ENOMEM && limit.rlim_cur < n_bytes)
        return base_fail_errno(error, JACKAL_ERR_LIMIT, reg_errno,
                               "RDMA device %s does not register %zu bytes; this process may lock "
                               "%llu bytes (ulimit -l): raise it",
                               device->name, n_bytes, (unsigned long long)limit.rlim_cur);
    return base_fail_errno(error, JACKAL_ERR_LIMIT, reg_errno,
                           "RDMA device %s does not register %zu bytes; it allows %d regions in "
                           "all, those of crashed programs included until a restart",
                           device->name, n_bytes, device->attributes.max_mr);
}

jackal_status verbs_device_register(struct verbs_device *device, const struct verbs_range *range,
                                    struct base_error *error) {
    jackal_status status = JACKAL_OK;
    pthread_mutex_lock(&verbs_registry_mutex);
    const struct extent *extent = &extents[range->extent];
    if (device->regions[range->extent] == NULL) {
        errno = 0;
        device->regions[range->extent] =
            device->library->reg_mr(device->pd, extent->bytes, extent->n_bytes, VERBS_ACCESS);
        if (device->regions[range->extent] == NULL)
            status = explain_refusal(device, extent->n_bytes, errno, error);
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
    return status;
}
