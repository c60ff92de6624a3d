/* SPDX-License-Identifier: MIT */
/*
 * A verbs library, loaded when it is first needed. Nothing of Jackal links against one: a machine
 * without it simply has no RDMA. Struct layouts come from the platform's own header.
 */
#ifndef VERBS_LIBRARY_H
#define VERBS_LIBRARY_H

#include "base/error.h"

#include <infiniband/verbs.h>

/* The header turns some calls into macros for versioned variants; we bind the plain symbols. */
#undef ibv_query_port
#undef ibv_reg_mr

/* X(field, result, parameters): the symbol is ibv_<field>. Posting and polling are inline calls
 * through the context and need no symbol. */
#define VERBS_SYMBOL_TABLE(X)                                                                      \
    X(get_device_list, struct ibv_device **, (int *n_devices))                                     \
    X(free_device_list, void, (struct ibv_device * *list))                                         \
    X(get_device_name, const char *, (struct ibv_device * device))                                 \
    X(open_device, struct ibv_context *, (struct ibv_device * device))                             \
    X(close_device, int, (struct ibv_context * context))                                           \
    X(query_device, int, (struct ibv_context * context, struct ibv_device_attr * attr))            \
    X(query_port, int, (struct ibv_context * context, uint8_t port, struct ibv_port_attr * attr))  \
    X(query_gid, int, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid)) \
    X(alloc_pd, struct ibv_pd *, (struct ibv_context * context))                                   \
    X(dealloc_pd, int, (struct ibv_pd * pd))                                                       \
    X(reg_mr, struct ibv_mr *, (struct ibv_pd * pd, void *bytes, size_t n_bytes, int access))      \
    X(dereg_mr, int, (struct ibv_mr * mr))                                                         \
    X(create_cq, struct ibv_cq *,                                                                  \
      (struct ibv_context * context, int n_entries, void *cq_context,                              \
       struct ibv_comp_channel *channel, int vector))                                              \
    X(destroy_cq, int, (struct ibv_cq * cq))                                                       \
    X(create_qp, struct ibv_qp *, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))            \
    X(modify_qp, int, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))                   \
    X(query_qp, int,                                                                               \
      (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask, struct ibv_qp_init_attr *init))    \
    X(destroy_qp, int, (struct ibv_qp * qp))                                                       \
    X(wc_status_str, const char *, (enum ibv_wc_status status))

struct verbs_library {
    void *handle;
    char path[512]; /* what was loaded, for messages */
    /* The emulated fabric says more than an errno value; other providers have no such call. */
    const char *(*explain)(void);
#define VERBS_FIELD(field, result, parameters) result(*field) parameters;
    VERBS_SYMBOL_TABLE(VERBS_FIELD)
#undef VERBS_FIELD
};

/*
 * Loads a provider: "system" (the platform's library), "fabric" (the emulated one, looked for
 * beside this library) or a path.
 * Errors: JACKAL_ERR_NO_DEVICE with what was tried and why it did not load, or with the symbol
 * that a library lacks.
 */
jackal_status verbs_library_open(struct verbs_library *library, const char *provider,
                                 struct base_error *error);

/* What the provider says of its last failure, with ": " in front, or "". */
const char *verbs_library_explain(const struct verbs_library *library, char *text, size_t n_bytes);

void verbs_library_close(struct verbs_library *library);

#endif
