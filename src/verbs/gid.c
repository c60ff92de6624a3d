/* SPDX-License-Identifier: MIT */
/*
 * Which GID a port sends from. On Thunderbolt the IPv4-mapped entry stands at index 1 or later, is
 * there only while the interface has an address, and may appear seconds late; sending from another
 * index than the advertised value's makes the peer's queue pair refuse us (EINVAL) or never answer.
 */
#include "base/clock.h"
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { SCORE_NONE = 0, SCORE_LINK_LOCAL = 1, SCORE_GLOBAL = 2, SCORE_IPV4 = 3 };

/* How long a port may take to show its address, and how often we look. */
#define WAIT_MS  5000
#define SLEEP_US 50000

int verbs_gid_score(const uint8_t *bytes) {
    static const uint8_t zero[16];
    static const uint8_t ipv4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (memcmp(bytes, zero, 16) == 0 || memcmp(bytes + 8, zero, 8) == 0)
        return SCORE_NONE;
    if (memcmp(bytes, ipv4_mapped, sizeof ipv4_mapped) == 0)
        return SCORE_IPV4;
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 ? SCORE_LINK_LOCAL : SCORE_GLOBAL;
}

static int scan(const struct verbs_device *device, int n_entries, struct verbs_gid *best) {
    int best_score = SCORE_NONE;
    for (int index = 0; index < n_entries; index++) {
        union ibv_gid gid;
        memset(&gid, 0, sizeof gid);
        if (device->library->query_gid(device->context, VERBS_PORT, index, &gid) != 0)
            continue;
        int score = verbs_gid_score(gid.raw);
        if (score <= best_score)
            continue;
        best_score = score;
        memcpy(best->bytes, gid.raw, 16);
        best->index = index;
    }
    return best_score;
}

static void print_table(const struct verbs_device *device, int n_entries, char *text,
                        size_t n_bytes) {
    size_t used = 0;
    snprintf(text, n_bytes, "empty");
    for (int index = 0; index < n_entries; index++) {
        union ibv_gid gid;
        char address[INET6_ADDRSTRLEN];
        memset(&gid, 0, sizeof gid);
        if (device->library->query_gid(device->context, VERBS_PORT, index, &gid) != 0 ||
            verbs_gid_score(gid.raw) == SCORE_NONE)
            continue;
        inet_ntop(AF_INET6, gid.raw, address, sizeof address);
        int n = snprintf(text + used, n_bytes - used, "%s[%d] %s", used > 0 ? ", " : "", index,
                         address);
        if (n < 0 || used + (size_t)n >= n_bytes)
            return;
        used += (size_t)n;
    }
}

jackal_status verbs_gid_choose(const struct verbs_device *device, uint64_t deadline_ns,
                               struct verbs_gid *gid_p, struct base_error *error) {
    struct ibv_port_attr port;
    jackal_status status = verbs_device_port(device, &port, error);
    if (status != JACKAL_OK)
        return status;
    uint64_t patience_ns = base_deadline_ns(WAIT_MS);
    for (;;) {
        int score = scan(device, port.gid_tbl_len, gid_p);
        if (score >= SCORE_GLOBAL)
            return JACKAL_OK;
        if (base_expired(patience_ns) || base_expired(deadline_ns))
            break;
        base_sleep_us(SLEEP_US);
    }
    char table[256];
    print_table(device, port.gid_tbl_len, table, sizeof table);
    return base_fail(error, JACKAL_ERR_NO_GID,
                     "RDMA device %s has no usable GID after %d ms (table: %s): give its network "
                     "interface an IPv4 address of its own, not only the bridge",
                     device->name, WAIT_MS, table);
}
