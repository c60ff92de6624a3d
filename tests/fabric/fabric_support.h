/* SPDX-License-Identifier: MIT */
/* What the tests of the fabric share: one end of a connection with all it needs, and processes. */
#ifndef FABRIC_SUPPORT_H
#define FABRIC_SUPPORT_H

#include "fabric_verbs.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUPPORT_WAIT_MS 10000

/* cmocka's assertions jump, which threads and forked children must not do. */
#define SUPPORT_CHECK(condition)                                                                   \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            support_failed(__FILE__, __LINE__, #condition);                                        \
        }                                                                                          \
    } while (0)
_Noreturn void support_failed(const char *file, int line, const char *text);

struct support_end {
    struct ibv_device **list;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq; /* both directions */
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *bytes; /* page aligned */
    size_t n_bytes;
};

/* Settings of the next device list; NULL unsets. The fabric's name is fresh in each test program.
 */
void support_settings(const char *host, const char *json);
const char *support_name(void);
/* The folder of the fabric of this test program. */
const char *support_folder(void);

/* Finds a device by name in a list, NULL if it is not there. */
struct ibv_device *support_device(struct ibv_device **list, const char *name);

void support_open(struct support_end *end, const char *device, size_t n_bytes);
void support_close(struct support_end *end);
struct ibv_qp *support_qp(struct support_end *end, enum ibv_qp_type type, uint32_t depth);

struct ibv_qp_attr support_attr_init(void);
struct ibv_qp_attr support_attr_rtr(uint32_t peer_qpn, const union ibv_gid *gid);
struct ibv_qp_attr support_attr_rts(void);
#define SUPPORT_MASK_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define SUPPORT_MASK_RTR                                                                           \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define SUPPORT_MASK_RTS (IBV_QP_STATE | IBV_QP_SQ_PSN)

union ibv_gid support_gid(struct support_end *end);
/* INIT, RTR, RTS. */
void support_connect(struct support_end *end, uint32_t peer_qpn, const union ibv_gid *gid);
/* Both ends of the cable h0.rdma_en2 - h1.rdma_en2 in this process, connected. */
void support_pair(struct support_end *a, struct support_end *b, size_t n_bytes);
/* The same of any cable. */
void support_pair_of(struct support_end *a, const char *device_a, struct support_end *b,
                     const char *device_b, size_t n_bytes);
void support_unpair(struct support_end *a, struct support_end *b);

int support_send(struct support_end *end, uint64_t wr_id, size_t offset, uint32_t length);
int support_recv(struct support_end *end, uint64_t wr_id, size_t offset, uint32_t length);
/* One completion; fails the test after SUPPORT_WAIT_MS. */
struct ibv_wc support_wait(struct support_end *end);
/* Polls for that long; true if nothing came. */
bool support_is_silent(struct support_end *end, int for_ms);

/* Bytes that encode who sent them, which message it was, and where in it they are. */
void support_fill(uint8_t *bytes, uint32_t who, uint32_t number, size_t n_bytes);
bool support_is_filled(const uint8_t *bytes, uint32_t who, uint32_t number, size_t n_bytes);

/* Two processes that know each other's numbers and can meet. */
struct support_meeting {
    _Atomic uint32_t qpn[2];
    _Atomic uint32_t n_met[16];
    _Atomic uint32_t pid[2];
};
struct support_meeting *support_meeting_new(void);
void support_meeting_free(struct support_meeting *meeting);
/* Returns when both sides have called it with the same point. */
void support_meet(struct support_meeting *meeting, unsigned point);
/* In a child: opens the device towards the other host and connects. */
void support_join(struct support_end *end, struct support_meeting *meeting, unsigned side,
                  size_t n_bytes);

/* Forks a child that runs body(meeting, side) and exits with 0. Returns its id. */
int support_child(void (*body)(struct support_meeting *, unsigned), struct support_meeting *meeting,
                  unsigned side);
/* Waits for a child, kills it at the deadline. Returns the status of waitpid. */
int support_reap(int child);
/* Number of processes' files in the folder of the fabric, -1 if it is not there. */
int support_n_files(void);
void support_nap_ms(int ms);
int64_t support_now_ms(void);

#endif
