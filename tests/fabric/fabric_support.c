/* SPDX-License-Identifier: MIT */
#include "fabric_support.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn void support_failed(const char *file, int line, const char *text) {
    fprintf(stderr, "%s:%d: not so: %s (errno %d, fabric says: %s)\n", file, line, text, errno,
            jackal_fabric_error());
    _exit(1);
}

void support_nap_ms(int ms) {
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&nap, NULL);
}

int64_t support_now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void support_set(const char *name, const char *value) {
    if (value == NULL) {
        unsetenv(name);
    } else {
        setenv(name, value, 1);
    }
}

const char *support_name(void) {
    static char name[32];

    if (name[0] == '\0') {
        snprintf(name, sizeof name, "test-%d", (int)getpid());
    }
    return name;
}

const char *support_folder(void) {
    static char folder[512];
#ifdef __APPLE__
    const char *base = getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR");
#else
    const char *base = "/dev/shm";
#endif

    snprintf(folder, sizeof folder, "%s/jackal-%u/%s", base, (unsigned)geteuid(), support_name());
    return folder;
}

void support_settings(const char *host, const char *json) {
    support_set("JACKAL_FABRIC", json);
    support_set("JACKAL_FABRIC_HOST", host);
    support_set("JACKAL_FABRIC_NAME", support_name());
    support_set("JACKAL_FABRIC_PERSONALITY", NULL);
}

struct ibv_device *support_device(struct ibv_device **list, const char *name) {
    for (int i = 0; list[i] != NULL; i++) {
        if (strcmp(ibv_get_device_name(list[i]), name) == 0) {
            return list[i];
        }
    }
    return NULL;
}

void support_open(struct support_end *end, const char *device, size_t n_bytes) {
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_device *found;
    void *bytes;

    memset(end, 0, sizeof *end);
    end->list = ibv_get_device_list(NULL);
    SUPPORT_CHECK(end->list != NULL);
    found = support_device(end->list, device);
    SUPPORT_CHECK(found != NULL);
    end->context = ibv_open_device(found);
    SUPPORT_CHECK(end->context != NULL);
    end->pd = ibv_alloc_pd(end->context);
    SUPPORT_CHECK(end->pd != NULL);
    end->cq = ibv_create_cq(end->context, 4096, NULL, NULL, 0);
    SUPPORT_CHECK(end->cq != NULL);
    SUPPORT_CHECK(posix_memalign(&bytes, 65536, n_bytes) == 0);
    memset(bytes, 0, n_bytes);
    end->bytes = bytes;
    end->n_bytes = n_bytes;
    end->mr = ibv_reg_mr(end->pd, bytes, n_bytes, access);
    SUPPORT_CHECK(end->mr != NULL);
}

void support_close(struct support_end *end) {
    if (end->qp != NULL) {
        SUPPORT_CHECK(ibv_destroy_qp(end->qp) == 0);
    }
    SUPPORT_CHECK(ibv_dereg_mr(end->mr) == 0);
    SUPPORT_CHECK(ibv_destroy_cq(end->cq) == 0);
    SUPPORT_CHECK(ibv_dealloc_pd(end->pd) == 0);
    SUPPORT_CHECK(ibv_close_device(end->context) == 0);
    ibv_free_device_list(end->list);
    free(end->bytes);
}

struct ibv_qp *support_qp(struct support_end *end, enum ibv_qp_type type, uint32_t depth) {
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type,
    };

    return ibv_create_qp(end->pd, &init);
}

struct ibv_qp_attr support_attr_init(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  IBV_ACCESS_REMOTE_WRITE};

    return attr;
}

struct ibv_qp_attr support_attr_rtr(uint32_t peer_qpn, const union ibv_gid *gid) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .rq_psn = 7,
        .dest_qp_num = peer_qpn,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 1}},
    };

    return attr;
}

struct ibv_qp_attr support_attr_rts(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = 7};

    return attr;
}

union ibv_gid support_gid(struct support_end *end) {
    union ibv_gid gid;

    SUPPORT_CHECK(ibv_query_gid(end->context, 1, 1, &gid) == 0);
    return gid;
}

void support_connect(struct support_end *end, uint32_t peer_qpn, const union ibv_gid *gid) {
    struct ibv_qp_attr init = support_attr_init();
    struct ibv_qp_attr rtr = support_attr_rtr(peer_qpn, gid);
    struct ibv_qp_attr rts = support_attr_rts();

    SUPPORT_CHECK(ibv_modify_qp(end->qp, &init, SUPPORT_MASK_INIT) == 0);
    SUPPORT_CHECK(ibv_modify_qp(end->qp, &rtr, SUPPORT_MASK_RTR) == 0);
    SUPPORT_CHECK(ibv_modify_qp(end->qp, &rts, SUPPORT_MASK_RTS) == 0);
}

void support_pair(struct support_end *a, struct support_end *b, size_t n_bytes) {
    support_pair_of(a, "h0.rdma_en2", b, "h1.rdma_en2", n_bytes);
}

void support_pair_of(struct support_end *a, const char *device_a, struct support_end *b,
                     const char *device_b, size_t n_bytes) {
    union ibv_gid gid_a, gid_b;

    support_open(a, device_a, n_bytes);
    support_open(b, device_b, n_bytes);
    a->qp = support_qp(a, IBV_QPT_UC, 32);
    b->qp = support_qp(b, IBV_QPT_UC, 32);
    SUPPORT_CHECK(a->qp != NULL && b->qp != NULL);
    gid_a = support_gid(a);
    gid_b = support_gid(b);
    support_connect(a, b->qp->qp_num, &gid_b);
    support_connect(b, a->qp->qp_num, &gid_a);
}

void support_unpair(struct support_end *a, struct support_end *b) {
    support_close(a);
    support_close(b);
}

int support_send(struct support_end *end, uint64_t wr_id, size_t offset, uint32_t length) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)end->bytes + offset, .length = length, .lkey = end->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad = NULL;
    int rc = ibv_post_send(end->qp, &wr, &bad);

    SUPPORT_CHECK((rc == 0) == (bad == NULL));
    return rc;
}

int support_recv(struct support_end *end, uint64_t wr_id, size_t offset, uint32_t length) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)end->bytes + offset, .length = length, .lkey = end->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    int rc = ibv_post_recv(end->qp, &wr, &bad);

    SUPPORT_CHECK((rc == 0) == (bad == NULL));
    return rc;
}

struct ibv_wc support_wait(struct support_end *end) {
    int64_t deadline = support_now_ms() + SUPPORT_WAIT_MS;
    struct ibv_wc wc;

    memset(&wc, 0, sizeof wc);
    for (uint32_t i = 1;; i++) {
        int n = ibv_poll_cq(end->cq, 1, &wc);

        SUPPORT_CHECK(n >= 0);
        if (n == 1) {
            return wc;
        }
        if (i % 64 == 0) { /* the peer may need this very core */
            SUPPORT_CHECK(support_now_ms() < deadline);
            sched_yield();
        }
    }
}

bool support_is_silent(struct support_end *end, int for_ms) {
    int64_t deadline = support_now_ms() + for_ms;
    struct ibv_wc wc;

    do {
        if (ibv_poll_cq(end->cq, 1, &wc) != 0) {
            return false;
        }
        support_nap_ms(1);
    } while (support_now_ms() < deadline);
    return true;
}

static uint32_t support_word(uint32_t who, uint32_t number, size_t index) {
    return (who * 0x9e3779b1u + number) * 0x85ebca6bu + (uint32_t)index;
}

void support_fill(uint8_t *bytes, uint32_t who, uint32_t number, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 4) {
        uint32_t word = support_word(who, number, i / 4);

        memcpy(bytes + i, &word, n_bytes - i < 4 ? n_bytes - i : 4);
    }
}

bool support_is_filled(const uint8_t *bytes, uint32_t who, uint32_t number, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 4) {
        uint32_t word = support_word(who, number, i / 4);

        if (memcmp(bytes + i, &word, n_bytes - i < 4 ? n_bytes - i : 4) != 0) {
            return false;
        }
    }
    return true;
}

struct support_meeting *support_meeting_new(void) {
    void *memory = mmap(NULL, sizeof(struct support_meeting), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    SUPPORT_CHECK(memory != MAP_FAILED);
    support_name(); /* before any fork, so that all processes have the same */
    return memory;
}

void support_meeting_free(struct support_meeting *meeting) {
    munmap(meeting, sizeof *meeting);
}

void support_meet(struct support_meeting *meeting, unsigned point) {
    int64_t deadline = support_now_ms() + SUPPORT_WAIT_MS;

    atomic_fetch_add(&meeting->n_met[point], 1);
    while (atomic_load(&meeting->n_met[point]) < 2) {
        SUPPORT_CHECK(support_now_ms() < deadline);
        support_nap_ms(1);
    }
}

void support_join(struct support_end *end, struct support_meeting *meeting, unsigned side,
                  size_t n_bytes) {
    /* Hosts 0 and 1: both reach the other by their first device. */
    union ibv_gid gid;

    support_settings(side == 0 ? "0" : "1", NULL);
    support_open(end, "rdma_en2", n_bytes);
    end->qp = support_qp(end, IBV_QPT_UC, 32);
    SUPPORT_CHECK(end->qp != NULL);
    atomic_store(&meeting->qpn[side], end->qp->qp_num);
    support_meet(meeting, 0);
    gid = support_gid(end);
    gid.raw[15] ^= 3; /* one end of a cable is .1, the other .2 */
    support_connect(end, atomic_load(&meeting->qpn[1 - side]), &gid);
}

int support_child(void (*body)(struct support_meeting *, unsigned), struct support_meeting *meeting,
                  unsigned side) {
    pid_t child;

    fflush(NULL);
    child = fork();
    SUPPORT_CHECK(child >= 0);
    if (child == 0) {
        atomic_store(&meeting->pid[side], (uint32_t)getpid());
        body(meeting, side);
        exit(0);
    }
    return child;
}

int support_reap(int child) {
    int64_t deadline = support_now_ms() + 2 * SUPPORT_WAIT_MS;
    int status = 0;

    for (;;) {
        pid_t got = waitpid(child, &status, WNOHANG);

        if (got == child) {
            return status;
        }
        SUPPORT_CHECK(got == 0);
        if (support_now_ms() > deadline) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return status;
        }
        support_nap_ms(1);
    }
}

int support_n_files(void) {
    DIR *folder = opendir(support_folder());
    struct dirent *entry;
    int n = 0;

    if (folder == NULL) {
        return -1;
    }
    while ((entry = readdir(folder)) != NULL) {
        n += entry->d_name[0] == 'p'; /* not the file that all share */
    }
    closedir(folder);
    return n;
}
