/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions, completion queues. */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

FABRIC_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct fabric_pd *pd;
    int rc = fabric_fault_call("ibv_alloc_pd");

    if (rc != 0) {
        errno = rc;
        return NULL;
    }
    pd = calloc(1, sizeof *pd);
    if (pd == NULL) {
        fabric_fail(ENOMEM, "no memory for a protection domain");
        return NULL;
    }
    fabric_state_lock();
    rc = fabric_object_claim(fabric_device_of(context), FABRIC_OBJECT_PD);
    if (rc == 0) {
        fabric_context_of(context)->n_children++;
    }
    fabric_state_unlock();
    if (rc != 0) {
        free(pd);
        errno = rc;
        return NULL;
    }
    pd->base.context = context;
    return &pd->base;
}

FABRIC_EXPORT int ibv_dealloc_pd(struct ibv_pd *base) {
    struct fabric_pd *pd = (struct fabric_pd *)(void *)base;
    int n;
    int rc = fabric_fault_call("ibv_dealloc_pd");

    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    n = pd->n_children;
    if (n == 0) {
        fabric_object_release(fabric_device_of(base->context), FABRIC_OBJECT_PD);
        fabric_context_of(base->context)->n_children--;
    }
    fabric_state_unlock();
    if (n > 0) {
        return fabric_fail(EBUSY,
                           "the protection domain still has %d memory regions or queue "
                           "pairs",
                           n);
    }
    free(pd);
    return 0;
}

/* Relaxed ordering: a hint that any provider may ignore; not in every platform's header. */
#define MR_RELAXED (1u << 20)

static int mr_check_access(const struct fabric_rules *rules, unsigned access) {
    const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    const unsigned known = remote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                           (rules->is_roce ? MR_RELAXED : 0);

    if ((access & ~known) != 0 ||
        ((access & remote) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        return fabric_fail(EINVAL,
                           "access flags 0x%x: only local write, remote read, remote write "
                           "and remote atomic, the last two with local write",
                           access);
    }
    if (rules->local_write_alone_fails && access == IBV_ACCESS_LOCAL_WRITE) {
        return fabric_fail(EINVAL, "local write alone is not possible, add remote rights");
    }
    return 0;
}

static int mr_check(const struct fabric_rules *rules, void *address, size_t length, int access) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (length == 0 || (uintptr_t)address + length < (uintptr_t)address) {
        return fabric_fail(EINVAL, "a memory region of %zu bytes", length);
    }
    if (rules->needs_page_alignment && (uintptr_t)address % page != 0) {
        return fabric_fail(EINVAL, "the memory region at %p does not start at a page of %zu bytes",
                           address, page);
    }
    return mr_check_access(rules, (unsigned)access);
}

/* A key names its slot in the low bits and its use of the slot above, so an old key is unknown. */
#define MR_PLACE_BITS 14
#define MR_PLACE      ((1u << MR_PLACE_BITS) - 1)

static struct fabric_mr_slot *mr_take_slot(struct fabric_device *device, uint32_t *lkey_p) {
    uint32_t n_slots = fabric_rules_of(device)->max_mr;

    for (uint32_t i = 0; i < n_slots && i < MR_PLACE; i++) {
        struct fabric_mr_slot *slot = &device->mrs[i];

        if (atomic_load_explicit(&slot->lkey, memory_order_relaxed) == 0) {
            device->mr_generation = (device->mr_generation + 1) & (UINT32_MAX >> MR_PLACE_BITS);
            *lkey_p = device->mr_generation << MR_PLACE_BITS | (i + 1);
            return slot;
        }
    }
    return NULL;
}

static void mr_fill(struct fabric_mr_slot *slot, const struct ibv_mr *mr, int access) {
    atomic_store_explicit(&slot->address, (uintptr_t)mr->addr, memory_order_relaxed);
    atomic_store_explicit(&slot->length, mr->length, memory_order_relaxed);
    atomic_store_explicit(&slot->access, (uint32_t)access, memory_order_relaxed);
    atomic_store_explicit(&slot->pd, (uintptr_t)mr->pd, memory_order_relaxed);
    atomic_store_explicit(&slot->lkey, mr->lkey, memory_order_release);
}

/* Finds a place for a new region; state lock held. */
static int mr_enter(struct fabric_device *device, struct fabric_mr *mr, int access) {
    int rc = fabric_object_claim(device, FABRIC_OBJECT_MR);

    if (rc != 0) {
        return rc;
    }
    mr->slot = mr_take_slot(device, &mr->base.lkey);
    if (mr->slot == NULL) {
        fabric_object_release(device, FABRIC_OBJECT_MR);
        return fabric_fail(ENOMEM, "%s has no memory region left", device->base.name);
    }
    mr->base.rkey = fabric_rules_of(device)->has_rdma ? mr->base.lkey : 0;
    mr_fill(mr->slot, &mr->base, access);
    ((struct fabric_pd *)(void *)mr->base.pd)->n_children++;
    return 0;
}

FABRIC_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length,
                                        int access) {
    struct fabric_device *device = fabric_device_of(pd->context);
    struct fabric_mr *mr;
    int rc = fabric_fault_call("ibv_reg_mr");

    if (rc != 0 || mr_check(fabric_rules_of(device), address, length, access) != 0) {
        errno = rc != 0 ? rc : errno;
        return NULL;
    }
    mr = calloc(1, sizeof *mr);
    if (mr == NULL) {
        fabric_fail(ENOMEM, "no memory for a memory region");
        return NULL;
    }
    mr->base.context = pd->context;
    mr->base.pd = pd;
    mr->base.addr = address;
    mr->base.length = length;
    fabric_state_lock();
    rc = mr_enter(device, mr, access);
    fabric_state_unlock();
    if (rc != 0) {
        free(mr);
        errno = rc;
        return NULL;
    }
    return &mr->base;
}

FABRIC_EXPORT int ibv_dereg_mr(struct ibv_mr *base) {
    struct fabric_mr *mr = (struct fabric_mr *)(void *)base;
    int rc = fabric_fault_call("ibv_dereg_mr");

    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    atomic_store_explicit(&mr->slot->lkey, 0, memory_order_release);
    fabric_object_release(fabric_device_of(base->context), FABRIC_OBJECT_MR);
    ((struct fabric_pd *)(void *)base->pd)->n_children--;
    fabric_state_unlock();
    free(mr);
    return 0;
}

bool fabric_mr_allows(struct fabric_device *device, const struct ibv_pd *pd, uint32_t key,
                      uint64_t at, uint64_t n_bytes, unsigned access) {
    uint32_t place = key & MR_PLACE;
    struct fabric_mr_slot *slot;
    uintptr_t address;
    size_t length;

    if (place == 0 || place > device->rules->max_mr) {
        return false;
    }
    slot = &device->mrs[place - 1];
    if (atomic_load_explicit(&slot->lkey, memory_order_acquire) != key ||
        atomic_load_explicit(&slot->pd, memory_order_relaxed) != (uintptr_t)pd ||
        (access & ~atomic_load_explicit(&slot->access, memory_order_relaxed)) != 0) {
        return false;
    }
    address = atomic_load_explicit(&slot->address, memory_order_relaxed);
    length = atomic_load_explicit(&slot->length, memory_order_relaxed);
    return at >= address && n_bytes <= length && at - address <= length - n_bytes;
}

static struct fabric_cq *cq_new(struct ibv_context *context, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel) {
    struct fabric_cq *cq = calloc(1, sizeof *cq);

    if (cq != NULL) {
        cq->base.context = context;
        cq->base.channel = channel;
        cq->base.cq_context = cq_context;
        cq->base.cqe = cqe;
        pthread_mutex_init(&cq->base.mutex, NULL);
        pthread_cond_init(&cq->base.cond, NULL);
    }
    return cq;
}

static void cq_free(struct fabric_cq *cq) {
    pthread_cond_destroy(&cq->base.cond);
    pthread_mutex_destroy(&cq->base.mutex);
    free(cq->qps);
    free(cq);
}

static int cq_check(struct ibv_context *context, int cqe, const struct ibv_comp_channel *channel,
                    int vector) {
    uint32_t most = fabric_rules_of(fabric_device_of(context))->max_cqe;

    if (channel != NULL && channel->context != context) {
        return fabric_fail(EINVAL, "the completion channel is of another context");
    }
    if (cqe < 1 || (uint32_t)cqe > most || vector < 0 || vector >= context->num_comp_vectors) {
        return fabric_fail(EINVAL, "a completion queue of %d entries on vector %d: 1 to %u on 0",
                           cqe, vector, most);
    }
    return 0;
}

FABRIC_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                           struct ibv_comp_channel *channel, int vector) {
    struct fabric_cq *cq;
    int rc = fabric_fault_call("ibv_create_cq");

    if (rc != 0 || cq_check(context, cqe, channel, vector) != 0) {
        errno = rc != 0 ? rc : errno;
        return NULL;
    }
    cq = cq_new(context, cqe, cq_context, channel);
    if (cq == NULL) {
        fabric_fail(ENOMEM, "no memory for a completion queue");
        return NULL;
    }
    fabric_state_lock();
    rc = fabric_object_claim(fabric_device_of(context), FABRIC_OBJECT_CQ);
    if (rc == 0) {
        fabric_context_of(context)->n_children++;
        if (channel != NULL) {
            channel->refcnt++;
        }
    }
    fabric_state_unlock();
    if (rc != 0) {
        cq_free(cq);
        errno = rc;
        return NULL;
    }
    return &cq->base;
}

FABRIC_EXPORT int ibv_destroy_cq(struct ibv_cq *base) {
    struct fabric_cq *cq = (struct fabric_cq *)(void *)base;
    uint32_t n;
    int rc = fabric_fault_call("ibv_destroy_cq");

    if (rc != 0) {
        return rc;
    }
    fabric_state_lock();
    fabric_lock_take(&cq->lock);
    n = cq->n_qps;
    fabric_lock_drop(&cq->lock);
    if (n == 0) {
        fabric_object_release(fabric_device_of(base->context), FABRIC_OBJECT_CQ);
        fabric_context_of(base->context)->n_children--;
    }
    fabric_state_unlock();
    if (n > 0) {
        return fabric_fail(EBUSY, "the completion queue still has %u queue pairs", n);
    }
    fabric_event_forget_cq(cq); /* its channel is there until then */
    if (base->channel != NULL) {
        fabric_state_lock();
        base->channel->refcnt--;
        fabric_state_unlock();
    }
    cq_free(cq);
    return 0;
}

FABRIC_EXPORT int ibv_fork_init(void) {
    return 0;
}

FABRIC_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
        [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "work request flushed",
        [IBV_WC_MW_BIND_ERR] = "memory window bind error",
        [IBV_WC_BAD_RESP_ERR] = "bad response",
        [IBV_WC_LOC_ACCESS_ERR] = "local access error",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retries exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "receiver-not-ready retries exceeded",
        [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation",
        [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
        [IBV_WC_REM_ABORT_ERR] = "remote abort",
        [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
        [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
        [IBV_WC_FATAL_ERR] = "fatal error",
        [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout",
        [IBV_WC_GENERAL_ERR] = "general error",
    };
    size_t n = sizeof names / sizeof names[0];

    return (size_t)status < n && names[status] != NULL ? names[status] : "unknown status";
}
