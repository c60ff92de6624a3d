/* SPDX-License-Identifier: MIT */
/* Numbers of the thunderbolt personality; where they come from is told in docs/fabric.md. */
#ifndef FABRIC_LIMITS_H
#define FABRIC_LIMITS_H

#define FABRIC_FRAME       4096u
#define FABRIC_MAX_MESSAGE 16773120u /* 4095 frames */
#define FABRIC_MIN_DEPTH   1023u     /* frames granted whatever was asked */
#define FABRIC_MAX_DEPTH   8192u
#define FABRIC_USABLE_QP   10
#define FABRIC_REPORTED_QP 11
#define FABRIC_MAX_MR      100
#define FABRIC_MAX_PD      64
#define FABRIC_MAX_CQ      256
#define FABRIC_MAX_CQE     65535
#define FABRIC_GID_TABLE   16
#define FABRIC_ERRNO_TRANSPORT                                                                     \
    102 /* ENETRESET on Linux, EOPNOTSUPP on macOS: the number is the rule */
#define FABRIC_MAX_HOSTS  64
#define FABRIC_MAX_WIRES  4
#define FABRIC_NAME_MAX   64
#define FABRIC_LABEL_MAX  31    /* of a host or device; both and a dot fit a device's name */
#define FABRIC_MAX_PORTS  16128 /* those of the largest mesh */
#define FABRIC_MAX_FAULTS 256

#endif
