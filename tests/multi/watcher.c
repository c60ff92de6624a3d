/* SPDX-License-Identifier: MIT */
#include "watcher.h"

#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header has macros and inline functions of these names. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_get_device_list

#define EXPORT __attribute__((visibility("default")))

enum { HEADER_BYTES = 64, PAYLOAD_BYTES_AT = 8, MAX_DEVICES = 256 };

extern struct watcher watcher_state;
EXPORT struct watcher watcher_state;

static struct {
    pthread_once_t once;
    void *library;
    int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
} real = {.once = PTHREAD_ONCE_INIT};

/* Per device: how often it is open and how many regions it has. */
static struct {
    pthread_mutex_t mutex;
    char names[MAX_DEVICES][IBV_SYSFS_NAME_MAX];
    int open[MAX_DEVICES], regions[MAX_DEVICES];
} devices = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void load(void) {
    real.library = dlopen(WATCHED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (real.library == NULL) {
        fprintf(stderr, "watcher: %s\n", dlerror());
        abort();
    }
}

static void *find(const char *name) {
    pthread_once(&real.once, load);
    void *symbol = dlsym(real.library, name);
    if (symbol == NULL) {
        fprintf(stderr, "watcher: no %s\n", name);
        abort();
    }
    return symbol;
}

/* Calls the real function of the same name. */
#define REAL(result, name, parameters)                                                             \
    result(*call) parameters;                                                                      \
    void *symbol = find(name);                                                                     \
    memcpy(&call, &symbol, sizeof call)

static bool fails_now(void) {
    int at = atomic_load(&watcher_state.fail_at);
    if (atomic_fetch_add(&watcher_state.n_calls, 1) + 1 != at)
        return false;
    atomic_store(&watcher_state.has_failed, 1);
    errno = ENOMEM;
    return true;
}

static void note_device(const char *name, int opened, int registered) {
    pthread_mutex_lock(&devices.mutex);
    int i = 0;
    while (i < MAX_DEVICES - 1 && devices.names[i][0] != '\0' &&
           strcmp(devices.names[i], name) != 0)
        i++;
    snprintf(devices.names[i], sizeof devices.names[i], "%s", name);
    devices.open[i] += opened;
    devices.regions[i] += registered;
    if (devices.open[i] > atomic_load(&watcher_state.max_open_of_a_device))
        atomic_store(&watcher_state.max_open_of_a_device, devices.open[i]);
    if (devices.regions[i] > atomic_load(&watcher_state.max_regions_of_a_device))
        atomic_store(&watcher_state.max_regions_of_a_device, devices.regions[i]);
    pthread_mutex_unlock(&devices.mutex);
}

/* ---- the data path ----------------------------------------------------------------------------
 */

/* C20: behind the payload that its header announces, a message is zero to its end. */
static void check_padding(const struct ibv_sge *sge) {
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)sge->addr;
    uint32_t payload = 0;
    for (int i = 3; i >= 0; i--)
        payload = payload << 8 | bytes[PAYLOAD_BYTES_AT + i];
    if (sge->length < HEADER_BYTES || payload > sge->length - HEADER_BYTES) {
        atomic_fetch_add(&watcher_state.n_wrong_length, 1);
        return;
    }
    bool is_dirty = false;
    for (uint32_t i = HEADER_BYTES + payload; i < sge->length; i++)
        is_dirty = is_dirty || bytes[i] != 0;
    atomic_fetch_add(&watcher_state.n_padded, HEADER_BYTES + payload < sge->length);
    atomic_fetch_add(&watcher_state.n_leaks, is_dirty);
}

static int watch_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    atomic_fetch_add(&watcher_state.n_sends, 1);
    atomic_fetch_add(&watcher_state.n_lists, wr->next != NULL);
    atomic_fetch_add(&watcher_state.n_not_send, wr->opcode != IBV_WR_SEND);
    atomic_fetch_add(&watcher_state.n_not_signalled, wr->send_flags != IBV_SEND_SIGNALED);
    atomic_fetch_add(&watcher_state.n_wrong_sge, wr->num_sge != 1);
    if (wr->num_sge == 1)
        check_padding(&wr->sg_list[0]);
    return real.post_send(qp, wr, bad);
}

static int watch_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    atomic_fetch_add(&watcher_state.n_recvs, 1);
    atomic_fetch_add(&watcher_state.n_lists, wr->next != NULL);
    atomic_fetch_add(&watcher_state.n_wrong_sge, wr->num_sge != 1);
    return real.post_recv(qp, wr, bad);
}

/* ---- devices ----------------------------------------------------------------------------------
 */

EXPORT struct ibv_device **ibv_get_device_list(int *n_devices) {
    REAL(struct ibv_device **, "ibv_get_device_list", (int *));
    return fails_now() ? NULL : call(n_devices);
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
    REAL(void, "ibv_free_device_list", (struct ibv_device **));
    call(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    REAL(const char *, "ibv_get_device_name", (struct ibv_device *));
    return call(device);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    REAL(struct ibv_context *, "ibv_open_device", (struct ibv_device *));
    struct ibv_context *context = fails_now() ? NULL : call(device);
    if (context == NULL)
        return NULL;
    pthread_mutex_lock(&devices.mutex);
    real.post_send = context->ops.post_send;
    real.post_recv = context->ops.post_recv;
    pthread_mutex_unlock(&devices.mutex);
    context->ops.post_send = watch_send;
    context->ops.post_recv = watch_recv;
    atomic_fetch_add(&watcher_state.contexts, 1);
    note_device(device->name, 1, 0);
    return context;
}

EXPORT int ibv_close_device(struct ibv_context *context) {
    REAL(int, "ibv_close_device", (struct ibv_context *));
    note_device(context->device->name, -1, 0);
    atomic_fetch_add(&watcher_state.contexts, -1);
    return call(context);
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    REAL(int, "ibv_query_device", (struct ibv_context *, struct ibv_device_attr *));
    return fails_now() ? ENOMEM : call(context, attr);
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                          struct _compat_ibv_port_attr *attr) {
    REAL(int, "ibv_query_port", (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *));
    return fails_now() ? ENOMEM : call(context, port, attr);
}

#ifndef WATCHER_LACKS_GID
EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    REAL(int, "ibv_query_gid", (struct ibv_context *, uint8_t, int, union ibv_gid *));
    return call(context, port, index, gid);
}
#endif

/* ---- objects ----------------------------------------------------------------------------------
 */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    REAL(struct ibv_pd *, "ibv_alloc_pd", (struct ibv_context *));
    struct ibv_pd *pd = fails_now() ? NULL : call(context);
    atomic_fetch_add(&watcher_state.pds, pd != NULL);
    return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
    REAL(int, "ibv_dealloc_pd", (struct ibv_pd *));
    atomic_fetch_add(&watcher_state.pds, -1);
    return call(pd);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *bytes, size_t n_bytes, int access) {
    REAL(struct ibv_mr *, "ibv_reg_mr", (struct ibv_pd *, void *, size_t, int));
    struct ibv_mr *mr = fails_now() ? NULL : call(pd, bytes, n_bytes, access);
    if (mr != NULL) {
        atomic_fetch_add(&watcher_state.mrs, 1);
        note_device(pd->context->device->name, 0, 1);
    }
    return mr;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
    REAL(int, "ibv_dereg_mr", (struct ibv_mr *));
    note_device(mr->context->device->name, 0, -1);
    atomic_fetch_add(&watcher_state.mrs, -1);
    return call(mr);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n_entries, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector) {
    REAL(struct ibv_cq *, "ibv_create_cq",
         (struct ibv_context *, int, void *, struct ibv_comp_channel *, int));
    struct ibv_cq *cq = fails_now() ? NULL : call(context, n_entries, cq_context, channel, vector);
    atomic_fetch_add(&watcher_state.cqs, cq != NULL);
    return cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
    REAL(int, "ibv_destroy_cq", (struct ibv_cq *));
    atomic_fetch_add(&watcher_state.cqs, -1);
    return call(cq);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    REAL(struct ibv_qp *, "ibv_create_qp", (struct ibv_pd *, struct ibv_qp_init_attr *));
    struct watcher *state = &watcher_state;
    atomic_fetch_add(&state->n_qps, 1);
    atomic_fetch_add(&state->n_not_uc, attr->qp_type != IBV_QPT_UC);
    atomic_fetch_add(&state->n_inline, attr->cap.max_inline_data != 0);
    atomic_fetch_add(&state->n_srq, attr->srq != NULL);
    atomic_fetch_add(&state->n_wrong_sge,
                     attr->cap.max_send_sge != 1 || attr->cap.max_recv_sge != 1);
    atomic_fetch_add(&state->n_dirty, attr->qp_context != NULL);
    struct ibv_qp *qp = fails_now() ? NULL : call(pd, attr);
    atomic_fetch_add(&state->qps, qp != NULL);
    return qp;
}

/* C13: what the mask does not name is zero. */
static bool is_clean(const struct ibv_qp_attr *attr, int mask) {
    struct ibv_qp_attr rest;
    memcpy(&rest, attr, sizeof rest);
    rest.qp_state = 0;
    if ((mask & IBV_QP_PORT) != 0)
        rest.port_num = 0;
    if ((mask & IBV_QP_PKEY_INDEX) != 0)
        rest.pkey_index = 0;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0)
        rest.qp_access_flags = 0;
    if ((mask & IBV_QP_AV) != 0)
        memset(&rest.ah_attr, 0, sizeof rest.ah_attr);
    if ((mask & IBV_QP_PATH_MTU) != 0)
        rest.path_mtu = 0;
    if ((mask & IBV_QP_DEST_QPN) != 0)
        rest.dest_qp_num = 0;
    if ((mask & IBV_QP_RQ_PSN) != 0)
        rest.rq_psn = 0;
    if ((mask & IBV_QP_SQ_PSN) != 0)
        rest.sq_psn = 0;
    const uint8_t *bytes = (const uint8_t *)&rest;
    for (size_t i = 0; i < sizeof rest; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    REAL(int, "ibv_modify_qp", (struct ibv_qp *, struct ibv_qp_attr *, int));
    atomic_fetch_add(&watcher_state.n_dirty, !is_clean(attr, mask));
    return fails_now() ? ENOMEM : call(qp, attr, mask);
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                        struct ibv_qp_init_attr *init) {
    REAL(int, "ibv_query_qp",
         (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *));
    return fails_now() ? ENOMEM : call(qp, attr, mask, init);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp) {
    REAL(int, "ibv_destroy_qp", (struct ibv_qp *));
    atomic_fetch_add(&watcher_state.qps, -1);
    return call(qp);
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
    REAL(const char *, "ibv_wc_status_str", (enum ibv_wc_status));
    return call(status);
}
