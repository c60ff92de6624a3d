/* SPDX-License-Identifier: MIT */
/*
 * Jackal binds the symbols of a verbs library at run time and takes its structs from the platform's
 * header. A header of another family than the library would compile, run and corrupt memory (C19).
 * On the platform whose layout is known for good it is pinned here, at compile time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verbs/library.h"

#if defined(__linux__) && defined(__LP64__)

#define SIZE(type, n_bytes)                                                                        \
    _Static_assert(sizeof(struct type) == (n_bytes), "size of struct " #type)
#define AT(type, field, n_bytes)                                                                   \
    _Static_assert(offsetof(struct type, field) == (n_bytes), "place of " #type "." #field)

/* clang-format off */
SIZE(ibv_device, 664);
AT(ibv_device, node_type, 16);
AT(ibv_device, name, 24);
SIZE(ibv_device_attr, 232);
AT(ibv_device_attr, max_mr_size, 80);
AT(ibv_device_attr, max_qp, 108);
AT(ibv_device_attr, max_qp_wr, 112);
AT(ibv_device_attr, max_sge, 120);
AT(ibv_device_attr, max_cqe, 132);
AT(ibv_device_attr, max_mr, 136);
AT(ibv_device_attr, max_pd, 140);
AT(ibv_device_attr, phys_port_cnt, 227);
SIZE(ibv_port_attr, 52);
AT(ibv_port_attr, state, 0);
AT(ibv_port_attr, active_mtu, 8);
AT(ibv_port_attr, gid_tbl_len, 12);
AT(ibv_port_attr, max_msg_sz, 20);
AT(ibv_port_attr, lid, 34);
AT(ibv_port_attr, link_layer, 46);
SIZE(ibv_context, 328);
AT(ibv_context, device, 0);
AT(ibv_context, ops, 8);
AT(ibv_context, cmd_fd, 264);
SIZE(ibv_context_ops, 256);
AT(ibv_context_ops, poll_cq, 88);
AT(ibv_context_ops, post_send, 200);
AT(ibv_context_ops, post_recv, 208);
SIZE(ibv_pd, 16);
AT(ibv_pd, context, 0);
SIZE(ibv_mr, 48);
AT(ibv_mr, addr, 16);
AT(ibv_mr, length, 24);
AT(ibv_mr, lkey, 36);
AT(ibv_mr, rkey, 40);
AT(ibv_cq, context, 0);
AT(ibv_cq, cqe, 28);
AT(ibv_qp, context, 0);
AT(ibv_qp, pd, 16);
AT(ibv_qp, send_cq, 24);
AT(ibv_qp, qp_num, 52);
AT(ibv_qp, state, 56);
AT(ibv_qp, qp_type, 60);
SIZE(ibv_qp_init_attr, 64);
AT(ibv_qp_init_attr, send_cq, 8);
AT(ibv_qp_init_attr, recv_cq, 16);
AT(ibv_qp_init_attr, srq, 24);
AT(ibv_qp_init_attr, cap, 32);
AT(ibv_qp_init_attr, qp_type, 52);
AT(ibv_qp_init_attr, sq_sig_all, 56);
SIZE(ibv_qp_cap, 20);
AT(ibv_qp_cap, max_inline_data, 16);
SIZE(ibv_qp_attr, 144);
AT(ibv_qp_attr, qp_state, 0);
AT(ibv_qp_attr, path_mtu, 8);
AT(ibv_qp_attr, rq_psn, 20);
AT(ibv_qp_attr, sq_psn, 24);
AT(ibv_qp_attr, dest_qp_num, 28);
AT(ibv_qp_attr, qp_access_flags, 32);
AT(ibv_qp_attr, cap, 36);
AT(ibv_qp_attr, ah_attr, 56);
AT(ibv_qp_attr, pkey_index, 120);
AT(ibv_qp_attr, port_num, 129);
SIZE(ibv_ah_attr, 32);
AT(ibv_ah_attr, grh, 0);
AT(ibv_ah_attr, dlid, 24);
AT(ibv_ah_attr, is_global, 29);
AT(ibv_ah_attr, port_num, 30);
SIZE(ibv_global_route, 24);
AT(ibv_global_route, sgid_index, 20);
AT(ibv_global_route, hop_limit, 21);
SIZE(ibv_sge, 16);
AT(ibv_sge, addr, 0);
AT(ibv_sge, length, 8);
AT(ibv_sge, lkey, 12);
SIZE(ibv_send_wr, 128);
AT(ibv_send_wr, wr_id, 0);
AT(ibv_send_wr, next, 8);
AT(ibv_send_wr, sg_list, 16);
AT(ibv_send_wr, num_sge, 24);
AT(ibv_send_wr, opcode, 28);
AT(ibv_send_wr, send_flags, 32);
SIZE(ibv_recv_wr, 32);
AT(ibv_recv_wr, wr_id, 0);
AT(ibv_recv_wr, next, 8);
AT(ibv_recv_wr, sg_list, 16);
AT(ibv_recv_wr, num_sge, 24);
SIZE(ibv_wc, 48);
AT(ibv_wc, wr_id, 0);
AT(ibv_wc, status, 8);
AT(ibv_wc, opcode, 12);
AT(ibv_wc, byte_len, 20);
AT(ibv_wc, qp_num, 28);
/* clang-format on */

#endif

/* Values that go over the library's border, the same on every platform. */
_Static_assert(IBV_QPT_UC == 3, "a queue pair is UC");
_Static_assert(IBV_WR_SEND == 2 && IBV_SEND_SIGNALED == 2, "a send");
_Static_assert(IBV_WC_SUCCESS == 0 && IBV_WC_RECV == 128, "a completion");
_Static_assert(IBV_QPS_INIT == 1 && IBV_QPS_RTR == 2 && IBV_QPS_RTS == 3, "states");
_Static_assert(IBV_PORT_ACTIVE == 4, "a port that is up");
_Static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5, "MTU codes");
_Static_assert(sizeof(union ibv_gid) == 16, "a GID");

/* Each function pointer is filled by copying a data pointer. */
static void a_symbol_fits_a_pointer(void **state) {
    struct verbs_library library;
    (void)state;
    assert_int_equal(sizeof library.query_gid, sizeof(void *));
    assert_int_equal(sizeof library.explain, sizeof(void *));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_symbol_fits_a_pointer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
