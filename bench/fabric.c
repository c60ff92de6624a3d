/* SPDX-License-Identifier: MIT */
/*
 * How fast the emulated fabric is, beside what two processes of this machine can do at best.
 *
 *   bench-fabric [thunderbolt|roce]
 *
 * One pair of processes takes turns between four things, seven times: a cache line that goes back
 * and forth, a message that does (64 bytes), a pipe of 8 slots of 64 KiB in shared memory (copied
 * in by one, copied out by the other), and messages of 64 KiB with 8 under way. So a busy machine
 * slows all of them, and the ratios of one turn can be compared. docs/bench.md says how to read it.
 */
#include <infiniband/verbs.h>

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURNS       7
#define BATCHES     40
#define EXCHANGES   100 /* of a batch */
#define SLOTS       8
#define SLOT_BYTES  65536u
#define N_MESSAGES  2000 /* of 64 KiB in a turn */
#define SMALL_BYTES 64u
#define LIMIT_S     60

/* What the two share; nobody else's cache line lies beside a flag. */
struct shared {
    _Alignas(128) _Atomic uint64_t line;
    _Alignas(128) _Atomic uint64_t n_met[2];
    _Alignas(128) _Atomic uint64_t n_put;
    _Alignas(128) _Atomic uint64_t n_taken;
    _Alignas(128) uint32_t qpn[2];
    union ibv_gid gid[2];
    double bandwidth_s; /* of the receiver's last stretch */
    _Alignas(4096) uint8_t slots[SLOTS][SLOT_BYTES];
};

struct end {
    struct shared *shared;
    int self; /* 0 begins and prints */
    uint8_t *bytes;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    uint64_t n_sent, n_received; /* completions */
    uint64_t line;               /* what the cache line holds between batches */
};

_Noreturn static void give_up(const char *what) {
    perror(what);
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Spins a while, then lets others have the processor: there may be fewer than two free. */
static void breathe(unsigned *n_spins_p) {
    if (++*n_spins_p % 4096 == 0)
        sched_yield();
}

static void wait_for(const _Atomic uint64_t *value, uint64_t least) {
    unsigned n_spins = 0;
    while (atomic_load_explicit(value, memory_order_acquire) < least)
        breathe(&n_spins);
}

static void meet(struct end *end) {
    uint64_t n = atomic_fetch_add(&end->shared->n_met[end->self], 1) + 1;
    wait_for(&end->shared->n_met[1 - end->self], n);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return values[n / 2];
}

/* ---- the references ---------------------------------------------------------------------------
 */

static void exchange_line(struct end *end) {
    struct shared *shared = end->shared;
    uint64_t at = end->line;
    for (uint64_t i = 0; i < EXCHANGES; i++) {
        if (end->self == 0)
            atomic_store_explicit(&shared->line, at + 2 * i + 1, memory_order_release);
        wait_for(&shared->line, at + 2 * i + (end->self == 0 ? 2 : 1));
        if (end->self == 1)
            atomic_store_explicit(&shared->line, at + 2 * i + 2, memory_order_release);
    }
    end->line = at + 2 * EXCHANGES;
}

static void move_through_pipe(struct end *end) {
    struct shared *shared = end->shared;
    uint64_t at = atomic_load(end->self == 0 ? &shared->n_put : &shared->n_taken);
    for (uint64_t n = at; n < at + N_MESSAGES; n++) {
        uint8_t *bytes = end->bytes + n % SLOTS * SLOT_BYTES;
        if (end->self == 0) {
            wait_for(&shared->n_taken, n < SLOTS ? 0 : n - SLOTS + 1);
            memcpy(shared->slots[n % SLOTS], bytes, SLOT_BYTES);
            atomic_store_explicit(&shared->n_put, n + 1, memory_order_release);
        } else {
            wait_for(&shared->n_put, n + 1);
            memcpy(bytes, shared->slots[n % SLOTS], SLOT_BYTES);
            atomic_store_explicit(&shared->n_taken, n + 1, memory_order_release);
        }
    }
}

/* ---- the fabric -------------------------------------------------------------------------------
 */

static void post_receive(struct end *end, uint64_t n, uint32_t n_bytes) {
    struct ibv_sge sge = {.addr = (uintptr_t)end->bytes + n % SLOTS * SLOT_BYTES,
                          .length = n_bytes,
                          .lkey = end->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(end->qp, &request, &bad) != 0)
        give_up("bench-fabric: ibv_post_recv");
}

static void post_send(struct end *end, uint64_t n, uint32_t n_bytes) {
    struct ibv_sge sge = {.addr = (uintptr_t)end->bytes + n % SLOTS * SLOT_BYTES,
                          .length = n_bytes,
                          .lkey = end->mr->lkey};
    struct ibv_send_wr request = {.sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    if (ibv_post_send(end->qp, &request, &bad) != 0)
        give_up("bench-fabric: ibv_post_send");
}

/* Until so many sends and receives have completed since the start. */
static void complete(struct end *end, uint64_t n_sent, uint64_t n_received) {
    unsigned n_spins = 0;
    while (end->n_sent < n_sent || end->n_received < n_received) {
        struct ibv_wc entries[SLOTS];
        int n = ibv_poll_cq(end->cq, SLOTS, entries);
        for (int i = 0; i < n; i++) {
            if (entries[i].status != IBV_WC_SUCCESS) {
                fprintf(stderr, "bench-fabric: %s\n", ibv_wc_status_str(entries[i].status));
                exit(1);
            }
            end->n_sent += entries[i].wr_id == 0;
            end->n_received += entries[i].wr_id == 1;
        }
        if (n == 0)
            breathe(&n_spins);
    }
}

/* A receive is posted before this begins, and one is left when it ends. */
static void exchange_message(struct end *end) {
    uint64_t n = end->n_received;
    for (uint64_t i = 0; i < EXCHANGES; i++) {
        if (end->self == 0)
            post_send(end, 0, SMALL_BYTES);
        complete(end, 0, n + i + 1);
        post_receive(end, 1, SMALL_BYTES);
        if (end->self == 1)
            post_send(end, 0, SMALL_BYTES);
        complete(end, n + i + 1, 0); /* as many sends as receives so far */
    }
}

static void move_messages(struct end *end) {
    uint64_t sent = end->n_sent, received = end->n_received;
    for (uint64_t n = 0; n < N_MESSAGES; n++) {
        if (end->self == 0) {
            complete(end, n < SLOTS ? 0 : sent + n - SLOTS + 1, 0);
            post_send(end, n, SLOT_BYTES);
        } else {
            complete(end, 0, received + n + 1);
            if (n + SLOTS < N_MESSAGES)
                post_receive(end, n, SLOT_BYTES);
        }
    }
    if (end->self == 0)
        complete(end, sent + N_MESSAGES, 0);
}

static void use_fabric(const char *name, const char *personality, int host) {
    char text[16];
    snprintf(text, sizeof text, "%d", host);
    setenv("JACKAL_FABRIC", "{\"mesh\":{\"hosts\":2}}", 1);
    setenv("JACKAL_FABRIC_NAME", name, 1);
    setenv("JACKAL_FABRIC_PERSONALITY", personality, 1);
    setenv("JACKAL_FABRIC_HOST", text, 1);
}

static void open_end(struct end *end) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
                                    .cap = {.max_send_wr = SLOTS * 16,
                                            .max_recv_wr = SLOTS * 16,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    if (list == NULL || list[0] == NULL)
        give_up("bench-fabric: no device");
    end->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (end->context == NULL || (end->pd = ibv_alloc_pd(end->context)) == NULL ||
        (end->cq = ibv_create_cq(end->context, SLOTS * 64, NULL, NULL, 0)) == NULL)
        give_up("bench-fabric: opening the device");
    end->mr = ibv_reg_mr(end->pd, end->bytes, SLOTS * SLOT_BYTES,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    init.send_cq = init.recv_cq = end->cq;
    end->qp = ibv_create_qp(end->pd, &init);
    if (end->mr == NULL || end->qp == NULL)
        give_up("bench-fabric: memory region and queue pair");
}

static void connect_end(struct end *end, int gid_index) {
    struct shared *shared = end->shared;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int other = 1 - end->self;
    int rc = ibv_modify_qp(end->qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    rc = rc == 0 ? ibv_query_gid(end->context, 1, gid_index, &shared->gid[end->self]) : rc;
    shared->qpn[end->self] = end->qp->qp_num;
    meet(end);
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = shared->qpn[other];
    attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = shared->gid[other];
    attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
    rc = rc == 0 ? ibv_modify_qp(end->qp, &attr,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN)
                 : rc;
    attr.qp_state = IBV_QPS_RTS;
    rc = rc == 0 ? ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) : rc;
    if (rc != 0)
        give_up("bench-fabric: connecting the queue pair");
    post_receive(end, 1, SMALL_BYTES);
    meet(end);
}

static void close_end(struct end *end) {
    meet(end);
    if (ibv_destroy_qp(end->qp) != 0 || ibv_dereg_mr(end->mr) != 0 ||
        ibv_destroy_cq(end->cq) != 0 || ibv_dealloc_pd(end->pd) != 0 ||
        ibv_close_device(end->context) != 0)
        give_up("bench-fabric: closing");
}

/* ---- measuring --------------------------------------------------------------------------------
 */

/* Nanoseconds one way: the median of batches. */
static double time_exchange(struct end *end, void (*exchange)(struct end *)) {
    double batches[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        meet(end);
        double start = seconds();
        exchange(end);
        batches[b] = (seconds() - start) * 1e9 / (2 * EXCHANGES);
    }
    return median(batches, BATCHES);
}

/* Gigabytes a second as the receiver has them. */
static double time_stream(struct end *end, void (*move)(struct end *)) {
    meet(end);
    double start = seconds();
    move(end);
    if (end->self == 1)
        end->shared->bandwidth_s = seconds() - start;
    meet(end);
    return 1e-9 * (double)SLOT_BYTES * N_MESSAGES / end->shared->bandwidth_s;
}

/* The receive that waits for a small message gives way to those for large ones, and comes back. */
static double time_messages(struct end *end) {
    if (end->self == 0)
        post_send(end, 0, SMALL_BYTES);
    else
        complete(end, 0, end->n_received + 1);
    complete(end, end->n_sent + (end->self == 0), 0);
    for (uint64_t n = 0; n < SLOTS && end->self == 1; n++)
        post_receive(end, n, SLOT_BYTES);
    double rate = time_stream(end, move_messages);
    /* Both ends count alike again. */
    end->n_sent = end->n_received = 0;
    if (end->self == 1)
        post_receive(end, 1, SMALL_BYTES);
    meet(end);
    return rate;
}

static void print_row(const char *what, const char *unit, const char *reference, double *measured,
                      double *best, double *ratios) {
    printf("%-16s %8.2f %-5s %-20s %8.2f %-5s %6.2f\n", what, median(measured, TURNS), unit,
           reference, median(best, TURNS), unit, median(ratios, TURNS));
}

static void measure(struct end *end) {
    double line[TURNS], message[TURNS], lines[TURNS], pipe[TURNS], stream[TURNS], share[TURNS];
    for (int t = -1; t < TURNS; t++) { /* the first warms up and does not count */
        int at = t < 0 ? 0 : t;
        line[at] = time_exchange(end, exchange_line);
        message[at] = time_exchange(end, exchange_message);
        pipe[at] = time_stream(end, move_through_pipe);
        stream[at] = time_messages(end);
        lines[at] = message[at] / line[at];
        share[at] = stream[at] / pipe[at];
    }
    if (end->self != 0)
        return;
    print_row("64 B one way", "ns", "a cache line", message, line, lines);
    print_row("64 KiB", "GB/s", "a pipe of 8 slots", stream, pipe, share);
}

static int run(struct end *end, const char *name, const char *personality) {
    alarm(LIMIT_S); /* nobody waits for one that died */
    if (posix_memalign((void **)&end->bytes, 65536, SLOTS * SLOT_BYTES) != 0)
        give_up("bench-fabric: no memory");
    memset(end->bytes, 1, SLOTS * SLOT_BYTES);
    use_fabric(name, personality, end->self);
    open_end(end);
    connect_end(end, strcmp(personality, "roce") == 0 ? 3 : 1);
    measure(end);
    close_end(end);
    free(end->bytes);
    return 0;
}

int main(int argc, char **argv) {
    const char *personality = argc > 1 ? argv[1] : "thunderbolt";
    char name[32];
    int status = 0;
    if (argc > 2 || (strcmp(personality, "thunderbolt") != 0 && strcmp(personality, "roce") != 0)) {
        fprintf(stderr, "usage: bench-fabric [thunderbolt|roce]\n");
        return 2;
    }
    struct end end = {.shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    if (end.shared == MAP_FAILED)
        give_up("bench-fabric: no shared memory");
    memset(end.shared, 0, sizeof *end.shared);
    snprintf(name, sizeof name, "bench-%d", (int)getpid());
    printf("%s, medians of %d turns\n", personality, TURNS);
    printf("%-16s %14s %-20s %14s %6s\n", "fabric", "", "beside", "", "ratio");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        give_up("bench-fabric: fork");
    end.self = child == 0 ? 1 : 0;
    run(&end, name, personality);
    if (child == 0)
        return 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
