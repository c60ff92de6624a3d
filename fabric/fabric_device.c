/* SPDX-License-Identifier: MIT */
/* Device lists, contexts, and what can be asked of a device. */
#include "fabric_cable.h"
#include "fabric_error.h"
#include "fabric_state.h"
#include "fabric_world.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
    }
    if (topology != NULL && fabric_fault_call("ibv_get_device_list") != 0) {
        fabric_topology_drop(topology);
        topology = NULL;
    }
    if (topology != NULL) {
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

/* The hang of a second open ends, since a test must be able to. */
#define DEVICE_HANG_S 30

/* A device that is open in this process already. */
static int device_open_again(struct fabric_device *device) {
    enum fabric_second_open rule = device->rules->second_open;
    uint32_t n_open;

    fabric_state_lock();
    n_open = device->n_objects[FABRIC_OBJECT_CONTEXT];
    fabric_state_unlock();
    if (n_open == 0 || rule == FABRIC_SECOND_OPEN_FINE) {
        return 0;
    }
    if (rule == FABRIC_SECOND_OPEN_HANG) {
        const struct timespec nap = {.tv_sec = DEVICE_HANG_S};

        nanosleep(&nap, NULL);
    }
    return fabric_fail(EBUSY, "%s is open in this process already", device->base.name);
}

static int device_enter(struct fabric_device *device) {
    int rc = device_open_again(device);

    if (rc == 0) {
        rc = fabric_state_enter(device->topology);
    }
    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    if (fabric_world_is_removed(device->port)) {
        rc = fabric_fail(ENODEV, "%s was removed", device->base.name);
    }
    if (rc == 0 && device->mrs == NULL) {
        device->mrs = calloc(device->rules->max_mr, sizeof *device->mrs);
        if (device->mrs == NULL) {
            rc = fabric_fail(ENOMEM, "no memory for a context");
        }
    }
    if (rc == 0) {
        rc = fabric_object_claim(device, FABRIC_OBJECT_CONTEXT);
    }
    fabric_state_unlock();
    if (rc != 0) {
        fabric_state_leave(device->topology);
        errno = rc;
    }
    return rc;
}

static void device_leave(struct fabric_device *device) {
    fabric_state_lock();
    fabric_object_release(device, FABRIC_OBJECT_CONTEXT);
    fabric_state_unlock();
    fabric_state_leave(device->topology);
}

FABRIC_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    struct fabric_device *self = (struct fabric_device *)(void *)device;
    struct fabric_context *context;
    int rc;

    if (fabric_fault_call("ibv_open_device") != 0) {
        return NULL;
    }
    context = calloc(1, sizeof *context);
    if (context == NULL) {
        fabric_fail(ENOMEM, "no memory for a context");
        return NULL;
    }
    context->device = self;
    rc = device_enter(self);
    if (rc == 0) {
        rc = fabric_event_open(context);
        if (rc != 0) {
            device_leave(self);
        }
    }
    if (rc != 0) {
        free(context);
        errno = rc;
        return NULL;
    }
    context->base.device = device;
    context->base.ops.poll_cq = fabric_poll_cq;
    context->base.ops.req_notify_cq = fabric_req_notify_cq;
    context->base.ops.post_send = fabric_post_send;
    context->base.ops.post_recv = fabric_post_recv;
    context->base.cmd_fd = -1;
    context->base.num_comp_vectors = 1;
    pthread_mutex_init(&context->base.mutex, NULL);
    return &context->base;
}

FABRIC_EXPORT int ibv_close_device(struct ibv_context *base) {
    struct fabric_context *context = fabric_context_of(base);
    bool is_moving;
    int n;

    if (fabric_fault_call("ibv_close_device") != 0) {
        return errno;
    }
    fabric_state_lock();
    n = context->n_children;
    is_moving = context->device->n_objects[FABRIC_OBJECT_QP] > 0 ||
                context->device->n_objects[FABRIC_OBJECT_MR] > 0;
    fabric_state_unlock();
    if (n > 0 && !is_moving) {
        /* perftest forgets a completion queue, and no library minds: it stays, as if this context
         * were open, until the process ends, and is reported then. */
        return 0;
    }
    if (n > 0) {
        return fabric_fail(EBUSY,
                           "%s still has queue pairs or memory regions, and %d protection domains "
                           "or completion queues",
                           base->device->name, n);
    }
    fabric_event_close(context);
    device_leave(context->device);
    pthread_mutex_destroy(&context->base.mutex);
    free(context);
    return 0;
}

FABRIC_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    const struct fabric_device *device = fabric_device_of(context);
    const struct fabric_rules *rules = device->rules;

    if (fabric_fault_call("ibv_query_device") != 0) {
        return errno;
    }
    memset(attr, 0, sizeof *attr);
    strcpy(attr->fw_ver, "1.0");
    attr->node_guid = device->guid;
    attr->sys_image_guid = device->guid;
    attr->max_mr_size = UINT64_MAX >> 16;
    attr->page_size_cap = (uint64_t)sysconf(_SC_PAGESIZE);
    attr->vendor_id = rules->is_roce ? 0x2c9 : 0x5ac;
    attr->hw_ver = 1;
    attr->max_qp = (int)rules->max_qp_said;
    attr->max_qp_wr = (int)rules->max_depth;
    attr->max_sge = (int)rules->max_sge;
    attr->max_sge_rd = rules->has_rdma ? (int)rules->max_sge : 0;
    attr->max_cq = (int)(rules->max_cq + rules->held_cq);
    attr->max_cqe = (int)rules->max_cqe;
    attr->max_mr = (int)(rules->max_mr + rules->held_mr);
    attr->max_pd = (int)(rules->max_pd + rules->held_pd);
    attr->max_qp_rd_atom = rules->has_rdma ? 16 : 0;
    attr->max_qp_init_rd_atom = attr->max_qp_rd_atom;
    attr->max_ah = rules->has_ud ? 65536 : 0;
    attr->max_srq = rules->has_srq ? 1024 : 0;
    attr->max_srq_wr = rules->has_srq ? (int)rules->max_depth : 0;
    attr->max_srq_sge = rules->has_srq ? (int)rules->max_sge : 0;
    attr->atomic_cap = IBV_ATOMIC_NONE;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

static int device_check_port(const struct ibv_context *context, uint32_t port) {
    return port == 1
               ? 0
               : fabric_fail(EINVAL, "%s has no port %u, only port 1", context->device->name, port);
}

/* Writes what the structure held when this symbol got its version: callers of old may have no more
 * room, and the header's wrapper has zeroed the rest. */
FABRIC_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                                 struct _compat_ibv_port_attr *attr_p) {
    const struct fabric_device *device = fabric_device_of(context);
    struct ibv_port_attr attr = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = FABRIC_GID_TABLE,
        .port_cap_flags = IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = device->rules->max_message,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .active_width = 2,  /* 4 lanes */
        .active_speed = 32, /* 25 Gb/s each */
        .phys_state = 5,    /* link up */
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    if (fabric_fault_call("ibv_query_port") != 0) {
        return errno;
    }
    if (device_check_port(context, port) != 0) {
        return EINVAL;
    }
    if (fabric_world_is_removed(device->port)) {
        return fabric_fail(ENODEV, "%s was removed", device->base.name);
    }
    if (!fabric_cable_is_up(device)) {
        attr.state = IBV_PORT_DOWN;
        attr.phys_state = 3; /* disabled */
    }
    memcpy(attr_p, &attr, offsetof(struct ibv_port_attr, flags) + sizeof attr.flags);
    return 0;
}

/* The entry at index, zeros where nothing is; -1 with errno if there can be none. */
static int device_gid(struct ibv_context *context, uint32_t port, int index, union ibv_gid *gid_p,
                      uint32_t *type_p) {
    const struct fabric_device *device = fabric_device_of(context);
    const struct fabric_topology *topology = device->topology;

    if (device_check_port(context, port) != 0) {
        return -1;
    }
    if (index < 0 || index >= FABRIC_GID_TABLE) {
        fabric_fail(EINVAL, "%s: GID index %d is not below %d", context->device->name, index,
                    FABRIC_GID_TABLE);
        return -1;
    }
    fabric_gid_at(topology, &topology->ports[device->port], (uint32_t)index, gid_p, type_p);
    return 0;
}

FABRIC_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                                union ibv_gid *gid_p) {
    uint32_t type;

    if (fabric_fault_call("ibv_query_gid") != 0) {
        return -1;
    }
    return device_gid(context, port, index, gid_p, &type);
}

FABRIC_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                                 __be16 *pkey_p) {
    if (fabric_fault_call("ibv_query_pkey") != 0) {
        return -1;
    }
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
