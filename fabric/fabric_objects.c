/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions, completion queues. */
#include "fabric_error.h"
#include "fabric_state.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

FABRIC_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct fabric_device *device = fabric_device_of(context);
    struct fabric_pd *pd = calloc(1, sizeof *pd);

    if (pd == NULL) {
        fabric_fail(ENOMEM, "no memory for a protection domain");
        return NULL;
    }
    fabric_state_lock();
    if (device->n_pd == FABRIC_MAX_PD) {
        fabric_state_unlock();
        free(pd);
        fabric_fail(ENOMEM, "%s has %d protection domains already", device->base.name,
                    FABRIC_MAX_PD);
        return NULL;
    }
    device->n_pd++;
    fabric_context_of(context)->n_children++;
    fabric_state_unlock();
    pd->base.context = context;
    return &pd->base;
}

FABRIC_EXPORT int ibv_dealloc_pd(struct ibv_pd *base) {
    struct fabric_pd *pd = (struct fabric_pd *)(void *)base;
    int n;

    fabric_state_lock();
    n = pd->n_children;
    if (n == 0) {
        fabric_device_of(base->context)->n_pd--;
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

static int mr_check(void *address, size_t length, int access) {
    const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    const unsigned known = remote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (length == 0 || (uintptr_t)address + length < (uintptr_t)address) {
        return fabric_fail(EINVAL, "a memory region of %zu bytes", length);
    }
    if ((uintptr_t)address % page != 0) {
        return fabric_fail(EINVAL, "the memory region at %p does not start at a page of %zu bytes",
                           address, page);
    }
    if (((unsigned)access & ~known) != 0 ||
        (((unsigned)access & remote) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        return fabric_fail(EINVAL,
                           "access flags 0x%x: only local write, remote read, remote write "
                           "and remote atomic, the last two with local write",
                           (unsigned)access);
    }
    return 0;
}

/* A key names its slot in the low byte and its use of the slot above, so an old key is unknown. */
static struct fabric_mr_slot *mr_take_slot(struct fabric_device *device, uint32_t *lkey_p) {
    for (uint32_t i = 0; i < FABRIC_MAX_MR; i++) {
        struct fabric_mr_slot *slot = &device->mrs[i];

        if (atomic_load_explicit(&slot->lkey, memory_order_relaxed) == 0) {
            device->mr_generation = (device->mr_generation + 1) & 0xffffff;
            *lkey_p = device->mr_generation << 8 | (i + 1);
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

FABRIC_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length,
                                        int access) {
    struct fabric_device *device = fabric_device_of(pd->context);
    struct fabric_mr *mr;

    if (mr_check(address, length, access) != 0) {
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
    mr->slot = mr_take_slot(device, &mr->base.lkey);
    if (mr->slot == NULL) {
        fabric_state_unlock();
        free(mr);
        fabric_fail(ENOMEM, "%s has %d memory regions already", device->base.name, FABRIC_MAX_MR);
        return NULL;
    }
    mr_fill(mr->slot, &mr->base, access);
    device->n_mr++;
    ((struct fabric_pd *)(void *)pd)->n_children++;
    fabric_state_unlock();
    return &mr->base;
}

FABRIC_EXPORT int ibv_dereg_mr(struct ibv_mr *base) {
    struct fabric_mr *mr = (struct fabric_mr *)(void *)base;

    fabric_state_lock();
    atomic_store_explicit(&mr->slot->lkey, 0, memory_order_release);
    fabric_device_of(base->context)->n_mr--;
    ((struct fabric_pd *)(void *)base->pd)->n_children--;
    fabric_state_unlock();
    free(mr);
    return 0;
}

uint8_t *fabric_mr_bytes(struct fabric_device *device, const struct ibv_pd *pd,
                         const struct fabric_wqe *wqe, bool is_written) {
    uint32_t place = wqe->lkey & 0xff;
    struct fabric_mr_slot *slot;
    uintptr_t address;
    size_t length;

    if (wqe->lkey == 0 || place == 0 || place > FABRIC_MAX_MR) {
        return NULL;
    }
    slot = &device->mrs[place - 1];
    if (atomic_load_explicit(&slot->lkey, memory_order_acquire) != wqe->lkey ||
        atomic_load_explicit(&slot->pd, memory_order_relaxed) != (uintptr_t)pd) {
        return NULL;
    }
    if (is_written &&
        (atomic_load_explicit(&slot->access, memory_order_relaxed) & IBV_ACCESS_LOCAL_WRITE) == 0) {
        return NULL;
    }
    address = atomic_load_explicit(&slot->address, memory_order_relaxed);
    length = atomic_load_explicit(&slot->length, memory_order_relaxed);
    if (wqe->address < address || wqe->length > length ||
        wqe->address - address > length - wqe->length) {
        return NULL;
    }
    return (uint8_t *)(uintptr_t)wqe->address;
}

FABRIC_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                           struct ibv_comp_channel *channel, int vector) {
    struct fabric_device *device = fabric_device_of(context);
    struct fabric_cq *cq;

    if (channel != NULL) {
        fabric_fail(EOPNOTSUPP, "the fabric has no completion channels");
        return NULL;
    }
    if (cqe < 1 || cqe > FABRIC_MAX_CQE || vector != 0) {
        fabric_fail(EINVAL, "a completion queue of %d entries on vector %d: 1 to %d on 0", cqe,
                    vector, FABRIC_MAX_CQE);
        return NULL;
    }
    cq = calloc(1, sizeof *cq);
    if (cq == NULL) {
        fabric_fail(ENOMEM, "no memory for a completion queue");
        return NULL;
    }
    fabric_state_lock();
    if (device->n_cq == FABRIC_MAX_CQ) {
        fabric_state_unlock();
        free(cq);
        fabric_fail(ENOMEM, "%s has %d completion queues already", device->base.name,
                    FABRIC_MAX_CQ);
        return NULL;
    }
    device->n_cq++;
    fabric_context_of(context)->n_children++;
    fabric_state_unlock();
    cq->base.context = context;
    cq->base.cq_context = cq_context;
    cq->base.cqe = cqe;
    pthread_mutex_init(&cq->base.mutex, NULL);
    pthread_cond_init(&cq->base.cond, NULL);
    return &cq->base;
}

FABRIC_EXPORT int ibv_destroy_cq(struct ibv_cq *base) {
    struct fabric_cq *cq = (struct fabric_cq *)(void *)base;
    uint32_t n;

    fabric_state_lock();
    fabric_lock_take(&cq->lock);
    n = cq->n_qps;
    fabric_lock_drop(&cq->lock);
    if (n == 0) {
        fabric_device_of(base->context)->n_cq--;
        fabric_context_of(base->context)->n_children--;
    }
    fabric_state_unlock();
    if (n > 0) {
        return fabric_fail(EBUSY, "the completion queue still has %u queue pairs", n);
    }
    pthread_cond_destroy(&cq->base.cond);
    pthread_mutex_destroy(&cq->base.mutex);
    free(cq->qps);
    free(cq);
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
