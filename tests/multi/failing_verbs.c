/* SPDX-License-Identifier: MIT */
#include "failing_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))

static struct failing_orders nothing = {.at = UINT64_MAX};
static struct failing_orders *orders = &nothing;
static struct ibv_context_ops real_ops;
static char text[96];

EXPORT void failing_verbs_use(struct failing_orders *use);
EXPORT void failing_verbs_use(struct failing_orders *use) {
    orders = use;
}

static void *real(const char *name) {
    static void *library;
    if (library == NULL)
        library = dlopen(FAILING_VERBS_OF, RTLD_NOW | RTLD_LOCAL);
    void *call = library == NULL ? NULL : dlsym(library, name);
    if (call == NULL) {
        fprintf(stderr, "failing_verbs: %s\n", dlerror());
        abort();
    }
    return call;
}

/* Function pointers come out of dlsym as objects. */
#define REAL(result, name, ...)                                                                    \
    result (*call)(__VA_ARGS__);                                                                   \
    void *found = real(name);                                                                      \
    memcpy(&call, &found, sizeof call)

/* The errno that this call fails with, or 0. */
static int strikes(enum failing_family family, const char *name) {
    uint64_t n = atomic_fetch_add(&orders->n_calls[family], 1);
    text[0] = '\0';
    if (atomic_load(&orders->has_struck) != 0) {
        if (strcmp(orders->struck, name) == 0)
            atomic_fetch_add(&orders->n_after, 1);
        return 0;
    }
    bool is_it = orders->name[0] != '\0'
                     ? strcmp(orders->name, name) == 0
                     : family == (enum failing_family)orders->family && n == orders->at;
    if (!is_it)
        return 0;
    snprintf(orders->struck, sizeof orders->struck, "%s", name);
    atomic_store(&orders->has_struck, 1);
    snprintf(text, sizeof text, "%s was made to fail", name);
    errno = orders->code != 0 ? orders->code : EIO;
    return errno;
}

static void made(enum failing_object object, const void *what) {
    if (what != NULL) {
        atomic_fetch_add(&orders->n_live[object], 1);
        atomic_fetch_add(&orders->n_made[object], 1);
    }
}

static void gave(enum failing_object object) {
    atomic_fetch_sub(&orders->n_live[object], 1);
}

EXPORT const char *jackal_fabric_error(void);
EXPORT const char *jackal_fabric_error(void) {
    REAL(const char *, "jackal_fabric_error", void);
    return text[0] != '\0' ? text : call();
}

EXPORT struct ibv_device **ibv_get_device_list(int *n_p) {
    REAL(struct ibv_device **, "ibv_get_device_list", int *);
    struct ibv_device **list = strikes(FAILING_SETUP, "ibv_get_device_list") ? NULL : call(n_p);
    if (list != NULL && orders->has_no_devices && n_p != NULL)
        *n_p = 0;
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
    REAL(void, "ibv_free_device_list", struct ibv_device **);
    call(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    REAL(const char *, "ibv_get_device_name", struct ibv_device *);
    return call(device);
}

static void count_sent(const struct ibv_send_wr *request) {
    for (; request != NULL; request = request->next) {
        uint64_t n_bytes = 0;
        for (int i = 0; i < request->num_sge; i++)
            n_bytes += request->sg_list[i].length;
        atomic_fetch_add(&orders->n_bytes_sent, n_bytes);
        atomic_fetch_add(&orders->n_part_frames, n_bytes % 4096 != 0);
    }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
    int code = strikes(FAILING_SEND, "ibv_post_send");
    count_sent(request);
    if (code == 0)
        return real_ops.post_send(qp, request, bad);
    *bad = request;
    return code;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *request, struct ibv_recv_wr **bad) {
    int code = strikes(FAILING_RECV, "ibv_post_recv");
    if (code == 0)
        return real_ops.post_recv(qp, request, bad);
    *bad = request;
    return code;
}

static int poll_cq(struct ibv_cq *cq, int n_entries, struct ibv_wc *entries) {
    return strikes(FAILING_POLL, "ibv_poll_cq") ? -1 : real_ops.poll_cq(cq, n_entries, entries);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    REAL(struct ibv_context *, "ibv_open_device", struct ibv_device *);
    struct ibv_context *context = strikes(FAILING_SETUP, "ibv_open_device") ? NULL : call(device);
    made(FAILING_CONTEXT, context);
    if (context != NULL) {
        real_ops = context->ops;
        context->ops.post_send = post_send;
        context->ops.post_recv = post_recv;
        context->ops.poll_cq = poll_cq;
    }
    return context;
}

/* X(name, object or -1, declared parameters, passed ones): calls whose result is an errno value. */
#define CODE_CALLS(X)                                                                              \
    X(close_device, FAILING_CONTEXT, (struct ibv_context * a), (a))                                \
    X(query_device, -1, (struct ibv_context * a, struct ibv_device_attr * b), (a, b))              \
    X(dealloc_pd, FAILING_PD, (struct ibv_pd * a), (a))                                            \
    X(dereg_mr, FAILING_MR, (struct ibv_mr * a), (a))                                              \
    X(destroy_cq, FAILING_CQ, (struct ibv_cq * a), (a))                                            \
    X(destroy_qp, FAILING_QP, (struct ibv_qp * a), (a))                                            \
    X(modify_qp, -1, (struct ibv_qp * a, struct ibv_qp_attr * b, int c), (a, b, c))                \
    X(query_qp, -1,                                                                                \
      (struct ibv_qp * a, struct ibv_qp_attr * b, int c, struct ibv_qp_init_attr *d),              \
      (a, b, c, d))

#define CODE_CALL(name, object, declared, passed)                                                  \
    EXPORT int ibv_##name declared {                                                               \
        int(*call) declared;                                                                       \
        void *found = real("ibv_" #name);                                                          \
        memcpy(&call, &found, sizeof call);                                                        \
        int code = strikes(FAILING_SETUP, "ibv_" #name);                                           \
        if (object >= 0) {                                                                         \
            /* Given back in any case, so that what remains is the caller's fault. */              \
            gave((enum failing_object)(object));                                                   \
            int result = call passed;                                                              \
            return code != 0 ? code : result;                                                      \
        }                                                                                          \
        return code != 0 ? code : call passed;                                                     \
    }
CODE_CALLS(CODE_CALL)

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                          struct _compat_ibv_port_attr *attr_p) {
    REAL(int, "ibv_query_port", struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
    int code = strikes(FAILING_SETUP, "ibv_query_port");
    if (code == 0)
        code = call(context, port, attr_p);
    if (code == 0 && orders->has_port_down)
        ((struct ibv_port_attr *)(void *)attr_p)->state = IBV_PORT_DOWN;
    return code;
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                         union ibv_gid *gid_p) {
    REAL(int, "ibv_query_gid", struct ibv_context *, uint8_t, int, union ibv_gid *);
    return strikes(FAILING_SETUP, "ibv_query_gid") ? -1 : call(context, port, index, gid_p);
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    REAL(struct ibv_pd *, "ibv_alloc_pd", struct ibv_context *);
    struct ibv_pd *pd = strikes(FAILING_SETUP, "ibv_alloc_pd") ? NULL : call(context);
    made(FAILING_PD, pd);
    return pd;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *bytes, size_t n_bytes, int access) {
    REAL(struct ibv_mr *, "ibv_reg_mr", struct ibv_pd *, void *, size_t, int);
    struct ibv_mr *mr =
        strikes(FAILING_SETUP, "ibv_reg_mr") ? NULL : call(pd, bytes, n_bytes, access);
    made(FAILING_MR, mr);
    return mr;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int n_entries, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector) {
    REAL(struct ibv_cq *, "ibv_create_cq", struct ibv_context *, int, void *,
         struct ibv_comp_channel *, int);
    struct ibv_cq *cq = strikes(FAILING_SETUP, "ibv_create_cq")
                            ? NULL
                            : call(context, n_entries, cq_context, channel, vector);
    made(FAILING_CQ, cq);
    return cq;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    REAL(struct ibv_qp *, "ibv_create_qp", struct ibv_pd *, struct ibv_qp_init_attr *);
    struct ibv_qp *qp = strikes(FAILING_SETUP, "ibv_create_qp") ? NULL : call(pd, attr);
    made(FAILING_QP, qp);
    if (attr->qp_type != IBV_QPT_UC)
        atomic_fetch_add(&orders->n_not_uc, 1);
    return qp;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
    REAL(const char *, "ibv_wc_status_str", enum ibv_wc_status);
    return call(status);
}
