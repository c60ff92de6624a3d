/* SPDX-License-Identifier: MIT */
/* The data path of a verbs link: post, poll, repost. No allocation, no system call, no lock. */
#include "link/verbs/verbs_internal.h"

#include <string.h>

/* A work request's id: queue and direction in the upper half, slot or token in the lower. */
#define ID_SEND        (UINT64_C(1) << 32)
#define ID_QUEUE_SHIFT 33

enum { POLL_BATCH = 16 };

static uint64_t make_id(uint64_t direction, enum link_queue queue, uint32_t id) {
    return direction | (uint64_t)queue << ID_QUEUE_SHIFT | id;
}

static bool room(const struct link *base, enum link_queue queue) {
    const struct verbs_link *link = verbs_link_of_const(base);
    return link->sending[queue] < link->geometry.slots[queue];
}

static jackal_status post_failed(const struct link *link, int failed, const char *what,
                                 struct base_error *error) {
    base_fail_errno(error, JACKAL_ERR_LINK_DOWN, failed,
                    "wire %d to rank %d: RDMA device %s refused a %s", link->wire, link->peer,
                    link->device, what);
    error->peer = link->peer;
    return JACKAL_ERR_LINK_DOWN;
}

static jackal_status send(struct link *base, enum link_queue queue,
                          const struct link_buffer *buffer, uint32_t n_bytes, uint32_t token,
                          struct base_error *error) {
    struct verbs_link *link = verbs_link_of(base);
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)buffer->bytes,
                          .length = n_bytes,
                          .lkey = link->device->regions[buffer->extent]->lkey};
    struct ibv_send_wr request, *bad = NULL;
    memset(&request, 0, sizeof request);
    request.wr_id = make_id(ID_SEND, queue, token);
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    int failed = ibv_post_send(link->queues[queue].qp, &request, &bad);
    if (failed != 0)
        return post_failed(base, failed, "send", error);
    link->sending[queue]++;
    return JACKAL_OK;
}

static const uint8_t *slot(const struct link *base, enum link_queue queue, uint32_t id) {
    const struct verbs_link *link = verbs_link_of_const(base);
    return link->receive.bytes + link->receive_at[queue] +
           (size_t)id * link->geometry.slot_bytes[queue];
}

static jackal_status repost(struct link *base, enum link_queue queue, uint32_t id,
                            struct base_error *error) {
    struct verbs_link *link = verbs_link_of(base);
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)slot(base, queue, id),
                          .length = link->geometry.slot_bytes[queue],
                          .lkey = link->device->regions[link->receive.extent]->lkey};
    struct ibv_recv_wr request, *bad = NULL;
    memset(&request, 0, sizeof request);
    request.wr_id = make_id(0, queue, id);
    request.sg_list = &sge;
    request.num_sge = 1;
    int failed = ibv_post_recv(link->queues[queue].qp, &request, &bad);
    return failed == 0 ? JACKAL_OK : post_failed(base, failed, "receive", error);
}

/* Of a failed completion only wr_id, status and qp_num may be trusted. */
static int completion_failed(const struct verbs_link *link, const struct ibv_wc *completion,
                             struct base_error *error) {
    const struct link *base = &link->base;
    base_fail_peer(error, JACKAL_ERR_COMPLETION, base->peer,
                   "wire %d to rank %d: a %s on RDMA device %s ended with status %d (%s)",
                   base->wire, base->peer, (completion->wr_id & ID_SEND) != 0 ? "send" : "receive",
                   base->device, (int)completion->status,
                   link->device->library->wc_status_str(completion->status));
    return -1;
}

static int poll(struct link *base, struct link_event *events, int n_room,
                struct base_error *error) {
    struct verbs_link *link = verbs_link_of(base);
    struct ibv_wc completions[POLL_BATCH];
    int n = ibv_poll_cq(link->cq, n_room < POLL_BATCH ? n_room : POLL_BATCH, completions);
    if (n < 0) {
        base_fail_peer(error, JACKAL_ERR_LINK_DOWN, base->peer,
                       "wire %d to rank %d: the completion queue of RDMA device %s failed (%d)",
                       base->wire, base->peer, base->device, n);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        const struct ibv_wc *completion = &completions[i];
        if (completion->status != IBV_WC_SUCCESS)
            return completion_failed(link, completion, error);
        enum link_queue queue = (enum link_queue)(completion->wr_id >> ID_QUEUE_SHIFT);
        bool sent = (completion->wr_id & ID_SEND) != 0;
        events[i] = (struct link_event){.kind = sent ? LINK_SENT : LINK_ARRIVED,
                                        .queue = queue,
                                        .id = (uint32_t)completion->wr_id,
                                        .n_bytes = sent ? 0 : completion->byte_len};
        if (sent)
            link->sending[queue]--;
    }
    return n;
}

const struct link_ops verbs_link_ops = {
    .kind = "verbs",
    .room = room,
    .send = send,
    .poll = poll,
    .slot = slot,
    .repost = repost,
    .close = verbs_link_close,
};
