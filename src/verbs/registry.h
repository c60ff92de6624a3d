/* SPDX-License-Identifier: MIT */
/* What the files of this folder share about the registry. */
#ifndef VERBS_REGISTRY_H
#define VERBS_REGISTRY_H

#include "verbs/verbs.h"

#include <pthread.h>

struct verbs_provider {
    char name[512];
    struct verbs_library library;
    struct verbs_device *devices;
    uint32_t users;
    struct verbs_provider *next;
};

/* Guards providers, devices, regions and the slab. Held while a device is opened: never two opens
 * at once. No other lock is taken under it. */
extern pthread_mutex_t verbs_registry_mutex;

#endif
