/* SPDX-License-Identifier: MIT */
/*
 * The platform's verbs header with its inline wrappers taken away, so that the plain names can be
 * defined here as the real symbols.
 */
#ifndef FABRIC_VERBS_H
#define FABRIC_VERBS_H

#include <infiniband/verbs.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#if defined(__GNUC__)
#define FABRIC_EXPORT __attribute__((visibility("default")))
#else
#define FABRIC_EXPORT
#endif

/* The text of this thread's last failed call; empty if there was none. Valid until the next one. */
FABRIC_EXPORT const char *jackal_fabric_error(void);

#endif
