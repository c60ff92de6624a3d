/* SPDX-License-Identifier: MIT */
/* Device lists, contexts, and what can be asked of a device. */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The array that the caller sees has the topology it came from in front of it. */
struct device_list {
    struct fabric_topology *topology;
    struct ibv_device *devices[];
};

static struct fabric_topology *device_topology(void) {
    if (fabric_state.topology == NULL) {
        fabric_state.topology = fabric_config_read();
    }
    return fabric_state.topology;
}

FABRIC_EXPORT struct ibv_device **ibv_get_device_list(int *n_devices_p) {
    struct device_list *list = NULL;
    struct fabric_topology *topology;

    if (n_devices_p != NULL) {
        *n_devices_p = 0;
    }
    fabric_state_lock();
    topology = device_topology();
    if (topology != NULL) {
        topology->refs++;
        list = calloc(1, sizeof *list + (topology->n_devices + 1) * sizeof list->devices[0]);
        if (list == NULL) {
            fabric_topology_drop(topology);
            fabric_fail(ENOMEM, "no memory for a device list");
        }
    }
    if (list != NULL) {
        list->topology = topology;
        for (size_t i = 0; i < topology->n_devices; i++) {
            list->devices[i] = &topology->devices[i].base;
        }
        if (n_devices_p != NULL) {
            *n_devices_p = (int)topology->n_devices;
        }
    }
    fabric_state_unlock();
    return list == NULL ? NULL : list->devices;
}

FABRIC_EXPORT void ibv_free_device_list(struct ibv_device **devices) {
    struct device_list *list;

    if (devices == NULL) {
        return;
    }
    list = (struct device_list *)(void *)((char *)devices - offsetof(struct device_list, devices));
    fabric_state_lock();
    fabric_topology_drop(list->topology);
    fabric_state_unlock();
    free(list);
}

FABRIC_EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}

/* Completion channels come with a later version. */
static int device_no_notify(struct ibv_cq *cq, int solicited_only) {
    (void)cq;
    (void)solicited_only;
    return fabric_fail(EOPNOTSUPP, "the fabric has no completion channels");
}

FABRIC_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct fabric_device *self = (struct fabric_device *)(void *)device;
    struct fabric_context *context = calloc(1, sizeof *context);
    int rc;

    if (context == NULL) {
        fabric_fail(ENOMEM, "no memory for a context");
        return NULL;
    }
    rc = fabric_state_enter(self->topology);
    if (rc != 0) {
        free(context);
        errno = rc;
        return NULL;
    }
    context->device = self;
    context->base.device = device;
    context->base.ops.poll_cq = fabric_poll_cq;
    context->base.ops.req_notify_cq = device_no_notify;
    context->base.ops.post_send = fabric_post_send;
    context->base.ops.post_recv = fabric_post_recv;
    context->base.cmd_fd = -1;
    context->base.async_fd = -1;
    context->base.num_comp_vectors = 1;
    pthread_mutex_init(&context->base.mutex, NULL);
    return &context->base;
}

FABRIC_EXPORT int ibv_close_device(struct ibv_context *base) {
    struct fabric_context *context = fabric_context_of(base);
    int n;

    fabric_state_lock();
    n = context->n_children;
    fabric_state_unlock();
    if (n > 0) {
        return fabric_fail(EBUSY, "%s still has %d protection domains or completion queues",
                           base->device->name, n);
    }
    fabric_state_leave(context->device->topology);
    pthread_mutex_destroy(&context->base.mutex);
    free(context);
    return 0;
}

FABRIC_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    const struct fabric_device *device = fabric_device_of(context);

    memset(attr, 0, sizeof *attr);
    strcpy(attr->fw_ver, "1.0");
    attr->node_guid = device->guid;
    attr->sys_image_guid = device->guid;
    attr->max_mr_size = UINT64_MAX >> 16;
    attr->page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE);
    attr->vendor_id = 0x5ac;
    attr->hw_ver = 1;
    attr->max_qp = FABRIC_REPORTED_QP;
    attr->max_qp_wr = (int)FABRIC_MAX_DEPTH;
    attr->max_sge = 1;
    attr->max_sge_rd = 0;
    attr->max_cq = FABRIC_MAX_CQ;
    attr->max_cqe = FABRIC_MAX_CQE;
    attr->max_mr = FABRIC_MAX_MR;
    attr->max_pd = FABRIC_MAX_PD;
    attr->atomic_cap = IBV_ATOMIC_NONE;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

static int device_check_port(const struct ibv_context *context, uint8_t port) {
    return port == 1
               ? 0
               : fabric_fail(EINVAL, "%s has no port %u, only port 1", context->device->name, port);
}

/* Writes what the structure held when this symbol got its version: callers of old may have no more
 * room, and the header's wrapper has zeroed the rest. */
FABRIC_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                                 struct _compat_ibv_port_attr *attr_p) {
    struct ibv_port_attr attr = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = FABRIC_GID_TABLE,
        .port_cap_flags = IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = FABRIC_MAX_MESSAGE,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .active_width = 2,  /* 4 lanes */
        .active_speed = 32, /* 25 Gb/s each */
        .phys_state = 5,    /* link up */
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    if (device_check_port(context, port) != 0) {
        return EINVAL;
    }
    memcpy(attr_p, &attr, offsetof(struct ibv_port_attr, flags) + sizeof attr.flags);
    return 0;
}

FABRIC_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                                union ibv_gid *gid_p) {
    const struct fabric_device *device = fabric_device_of(context);

    if (device_check_port(context, port) != 0) {
        return -1;
    }
    if (index < 0 || index >= FABRIC_GID_TABLE) {
        fabric_fail(EINVAL, "%s: GID index %d is not below %d", context->device->name, index,
                    FABRIC_GID_TABLE);
        return -1;
    }
    memset(gid_p, 0, sizeof *gid_p);
    if (index < FABRIC_N_GIDS) {
        *gid_p = device->gids[index];
    }
    return 0;
}

FABRIC_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                                 __be16 *pkey_p) {
    if (device_check_port(context, port) != 0) {
        return -1;
    }
    if (index != 0) {
        fabric_fail(EINVAL, "%s: P_Key index %d is not 0", context->device->name, index);
        return -1;
    }
    *pkey_p = 0xffff;
    return 0;
}
