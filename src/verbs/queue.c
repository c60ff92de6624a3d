/* SPDX-License-Identifier: MIT */
#include "verbs/verbs.h"

#include <errno.h>
#include <string.h>

/* Every member of the family starts at 7; the other end is told ours, so any number would do. */
enum { FIRST_PSN = 7 };

static jackal_status explain_refusal(const struct verbs_device *device, uint32_t depth,
                                     int create_errno, struct base_error *error) {
    if (create_errno == EBUSY)
        return base_fail_errno(error, JACKAL_ERR_LIMIT, create_errno,
                               "RDMA device %s has no queue pair left (it says %d in all; other "
                               "groups of this process and other programs, also crashed ones, "
                               "may hold some): close them, or restart the machine",
                               device->name, device->attributes.max_qp);
    return base_fail_errno(error, JACKAL_ERR_LIMIT, create_errno,
                           "RDMA device %s gives no queue pair of depth %u (it says at most %d "
                           "requests); lower JACKAL_SLOT_FRAMES on all ranks",
                           device->name, depth, device->attributes.max_qp_wr);
}

/* The provider may grant other depths than asked: what counts is what it says afterwards. */
static jackal_status check_depth(const struct verbs_queue *queue, uint32_t depth,
                                 struct base_error *error) {
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr granted;
    memset(&attributes, 0, sizeof attributes);
    memset(&granted, 0, sizeof granted);
    int failed = queue->device->library->query_qp(queue->qp, &attributes, IBV_QP_CAP, &granted);
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_LIMIT, failed,
                               "RDMA device %s does not tell the depth of a queue pair",
                               queue->device->name);
    if (granted.cap.max_send_wr < depth || granted.cap.max_recv_wr < depth)
        return base_fail(error, JACKAL_ERR_LIMIT,
                         "RDMA device %s grants a queue depth of %u and %u, %u are needed; lower "
                         "JACKAL_SLOT_FRAMES on all ranks",
                         queue->device->name, granted.cap.max_send_wr, granted.cap.max_recv_wr,
                         depth);
    return JACKAL_OK;
}

static jackal_status to_init(const struct verbs_queue *queue, struct base_error *error) {
    struct ibv_qp_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = VERBS_PORT;
    attributes.qp_access_flags = VERBS_ACCESS;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    int failed = queue->device->library->modify_qp(queue->qp, &attributes, mask);
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_LINK_DOWN, failed,
                               "a queue pair of RDMA device %s does not go to INIT",
                               queue->device->name);
    return JACKAL_OK;
}

jackal_status verbs_queue_open(struct verbs_device *device, struct ibv_cq *cq, uint32_t n_requests,
                               uint32_t frames_each, struct verbs_queue *queue,
                               struct base_error *error) {
    uint32_t depth = device->frames_counted ? n_requests * frames_each : n_requests;
    struct ibv_qp_init_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.send_cq = cq;
    attributes.recv_cq = cq;
    attributes.qp_type = IBV_QPT_UC;
    attributes.cap.max_send_wr = depth;
    attributes.cap.max_recv_wr = depth;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    queue->device = device;
    queue->psn = FIRST_PSN;
    errno = 0;
    queue->qp = device->library->create_qp(device->pd, &attributes);
    if (queue->qp == NULL)
        return explain_refusal(device, depth, errno, error);
    jackal_status status = check_depth(queue, depth, error);
    if (status == JACKAL_OK)
        status = to_init(queue, error);
    if (status != JACKAL_OK)
        verbs_queue_close(queue);
    return status;
}

static jackal_status explain_rtr(const struct verbs_queue *queue, int failed,
                                 struct base_error *error) {
    const char *advice = "";
    if (failed == EINVAL)
        advice = "; the source GID is wrong or gone: the interface lost its address or got a new "
                 "one since set-up began";
    else if (failed == ETIMEDOUT)
        advice = "; the peer's GID cannot be reached from this port: is the cable where the device "
                 "matrix says it is?";
    else if (failed == EBUSY || failed == EFAULT)
        advice = "; resources of a crashed program are in the way: restart the machine";
    return base_fail_errno(error, JACKAL_ERR_LINK_DOWN, failed,
                           "a queue pair of RDMA device %s does not go to RTR%s",
                           queue->device->name, advice);
}

static void fill_address(struct ibv_qp_attr *attributes, const struct verbs_gid *own,
                         const struct verbs_address *peer) {
    static const uint8_t zero[8];
    attributes->ah_attr.dlid = peer->lid;
    attributes->ah_attr.port_num = VERBS_PORT;
    if (memcmp(peer->gid + 8, zero, sizeof zero) == 0)
        return;
    attributes->ah_attr.is_global = 1;
    memcpy(attributes->ah_attr.grh.dgid.raw, peer->gid, 16);
    attributes->ah_attr.grh.sgid_index = (uint8_t)own->index;
    attributes->ah_attr.grh.hop_limit = 1;
}

jackal_status verbs_queue_connect(struct verbs_queue *queue, const struct verbs_gid *own,
                                  const struct ibv_port_attr *port,
                                  const struct verbs_address *peer, struct base_error *error) {
    struct ibv_qp_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu =
        (uint32_t)port->active_mtu < peer->mtu ? port->active_mtu : (enum ibv_mtu)peer->mtu;
    attributes.dest_qp_num = peer->qpn;
    attributes.rq_psn = peer->psn;
    fill_address(&attributes, own, peer);
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    int failed = queue->device->library->modify_qp(queue->qp, &attributes, mask);
    if (failed != 0)
        return explain_rtr(queue, failed, error);

    memset(&attributes, 0, sizeof attributes);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = queue->psn;
    failed =
        queue->device->library->modify_qp(queue->qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (failed != 0)
        return base_fail_errno(error, JACKAL_ERR_LINK_DOWN, failed,
                               "a queue pair of RDMA device %s does not go to RTS",
                               queue->device->name);
    return JACKAL_OK;
}

void verbs_queue_close(struct verbs_queue *queue) {
    if (queue->qp != NULL)
        queue->device->library->destroy_qp(queue->qp);
    queue->qp = NULL;
}
