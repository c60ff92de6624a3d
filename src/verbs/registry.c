/* SPDX-License-Identifier: MIT */
/* The process-wide registry: providers, their devices, and who uses them. */
#include "verbs/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t verbs_registry_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_provider *providers;

jackal_status verbs_provider_acquire(const char *name, struct verbs_provider **provider_p,
                                     struct base_error *error) {
    jackal_status status = JACKAL_OK;
    pthread_mutex_lock(&verbs_registry_mutex);
    struct verbs_provider *provider = providers;
    while (provider != NULL && strcmp(provider->name, name) != 0)
        provider = provider->next;
    if (provider == NULL) {
        provider = calloc(1, sizeof *provider);
        if (provider == NULL) {
            status = base_fail(error, JACKAL_ERR_MEMORY, "out of memory for a verbs provider");
            goto out;
        }
        snprintf(provider->name, sizeof provider->name, "%s", name);
        status = verbs_library_open(&provider->library, name, error);
        if (status != JACKAL_OK) {
            free(provider);
            goto out;
        }
        provider->next = providers;
        providers = provider;
    }
    provider->users++;
    *provider_p = provider;
out:
    pthread_mutex_unlock(&verbs_registry_mutex);
    return status;
}

void verbs_provider_release(struct verbs_provider *provider) {
    if (provider == NULL)
        return;
    pthread_mutex_lock(&verbs_registry_mutex);
    if (--provider->users == 0 && provider->devices == NULL) {
        struct verbs_provider **place = &providers;
        while (*place != provider)
            place = &(*place)->next;
        *place = provider->next;
        verbs_library_close(&provider->library);
        free(provider);
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
}

int verbs_provider_devices(struct verbs_provider *provider, char *names, size_t n_bytes) {
    int n_devices = 0;
    size_t used = 0;
    names[0] = '\0';
    struct ibv_device **list = provider->library.get_device_list(&n_devices);
    if (list == NULL)
        return 0;
    for (int i = 0; i < n_devices; i++) {
        const char *name = provider->library.get_device_name(list[i]);
        size_t room = n_bytes - used;
        int n = snprintf(names + used, room, "%s%s", i > 0 ? ", " : "", name);
        used = n > 0 && (size_t)n < room ? used + (size_t)n : n_bytes - 1;
    }
    provider->library.free_device_list(list);
    return n_devices;
}

/* rdma_en<digits>, with or without "host." in front (one process on all hosts of a fabric). */
static bool is_thunderbolt(const char *name) {
    const char *dot = strrchr(name, '.');
    const char *plain = dot != NULL ? dot + 1 : name;
    return strncmp(plain, "rdma_en", 7) == 0 && plain[7] >= '0' && plain[7] <= '9';
}

static jackal_status open_context(struct verbs_device *device, struct base_error *error) {
    const struct verbs_library *library = device->library;
    int n_devices = 0;
    char more[256];
    errno = 0;
    struct ibv_device **list = library->get_device_list(&n_devices);
    if (list == NULL || n_devices == 0) {
        if (list != NULL)
            library->free_device_list(list);
        return base_fail(error, JACKAL_ERR_NO_DEVICE,
                         "%s lists no RDMA devices, so there is no \"%s\"%s", library->path,
                         device->name, verbs_library_explain(library, more, sizeof more));
    }
    struct ibv_device *found = NULL;
    for (int i = 0; i < n_devices && found == NULL; i++)
        if (strcmp(library->get_device_name(list[i]), device->name) == 0)
            found = list[i];
    device->context = found != NULL ? library->open_device(found) : NULL;
    int open_errno = errno;
    library->free_device_list(list);
    if (found == NULL) {
        char names[256];
        verbs_provider_devices(device->provider, names, sizeof names);
        return base_fail(error, JACKAL_ERR_NO_DEVICE,
                         "there is no RDMA device \"%s\"; this machine has %s", device->name,
                         names);
    }
    if (device->context == NULL)
        return base_fail_errno(error, JACKAL_ERR_NO_DEVICE, open_errno,
                               "RDMA device %s does not open%s", device->name,
                               verbs_library_explain(library, more, sizeof more));
    return JACKAL_OK;
}

static void close_device(struct verbs_device *device) {
    for (int extent = 0; extent < VERBS_MAX_EXTENTS; extent++)
        if (device->regions[extent] != NULL)
            device->library->dereg_mr(device->regions[extent]);
    if (device->pd != NULL)
        device->library->dealloc_pd(device->pd);
    if (device->context != NULL)
        device->library->close_device(device->context);
    free(device);
}

static jackal_status open_device(struct verbs_provider *provider, const char *name,
                                 struct verbs_device **device_p, struct base_error *error) {
    struct verbs_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return base_fail(error, JACKAL_ERR_MEMORY, "out of memory for RDMA device %s", name);
    device->provider = provider;
    device->library = &provider->library;
    snprintf(device->name, sizeof device->name, "%s", name);
    device->frames_counted = is_thunderbolt(name);
    jackal_status status = open_context(device, error);
    if (status != JACKAL_OK)
        goto err_device;
    int failed = provider->library.query_device(device->context, &device->attributes);
    if (failed != 0) {
        status = base_fail_errno(error, JACKAL_ERR_NO_DEVICE, failed,
                                 "RDMA device %s does not tell its attributes", name);
        goto err_device;
    }
    errno = 0;
    device->pd = provider->library.alloc_pd(device->context);
    if (device->pd == NULL) {
        status = base_fail_errno(error, JACKAL_ERR_LIMIT, errno,
                                 "RDMA device %s gives no protection domain; after crashes of "
                                 "other programs a restart of the machine frees them",
                                 name);
        goto err_device;
    }
    *device_p = device;
    return JACKAL_OK;
err_device:
    close_device(device);
    return status;
}

jackal_status verbs_device_acquire(struct verbs_provider *provider, const char *name,
                                   struct verbs_device **device_p, struct base_error *error) {
    jackal_status status = JACKAL_OK;
    pthread_mutex_lock(&verbs_registry_mutex);
    struct verbs_device *device = provider->devices;
    while (device != NULL && strcmp(device->name, name) != 0)
        device = device->next;
    if (device == NULL) {
        status = open_device(provider, name, &device, error);
        if (status == JACKAL_OK) {
            device->next = provider->devices;
            provider->devices = device;
        }
    }
    if (status == JACKAL_OK) {
        device->users++;
        *device_p = device;
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
    return status;
}

void verbs_device_release(struct verbs_device *device) {
    if (device == NULL)
        return;
    pthread_mutex_lock(&verbs_registry_mutex);
    /* On a provider that leaks regions until reboot an unused device stays open for the next
     * group of this process. */
    if (--device->users == 0 && !device->frames_counted) {
        struct verbs_device **place = &device->provider->devices;
        while (*place != device)
            place = &(*place)->next;
        *place = device->next;
        close_device(device);
    }
    pthread_mutex_unlock(&verbs_registry_mutex);
}

jackal_status verbs_device_port(const struct verbs_device *device, struct ibv_port_attr *port_p,
                                struct base_error *error) {
    memset(port_p, 0, sizeof *port_p);
    int failed = device->library->query_port(device->context, VERBS_PORT, port_p);
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_LINK_DOWN, failed,
                               "port %d of RDMA device %s does not tell its state", VERBS_PORT,
                               device->name);
    if (port_p->state != IBV_PORT_ACTIVE)
        return base_fail(error, JACKAL_ERR_LINK_DOWN,
                         "port %d of RDMA device %s is not active (state %d): plug the cable in, "
                         "and enable RDMA on both of its ends",
                         VERBS_PORT, device->name, (int)port_p->state);
    return JACKAL_OK;
}
