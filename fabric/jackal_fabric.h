/* SPDX-License-Identifier: MIT */
/*
 * What libjackal-fabric offers beside verbs: looking at fabrics that run, changing them, checking
 * descriptions. Any thread may call these at any time, in a process that is in a fabric or not.
 *
 * Each call returns 0 or more on success and -1 with errno and a text on failure.
 */
#ifndef JACKAL_FABRIC_H
#define JACKAL_FABRIC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of this thread's last failed call, verbs or these; empty if there was none. Valid until
 * the next one. */
const char *jackal_fabric_error(void);

/*
 * Checks a description: the path of a JSON file, or the JSON itself if it begins with '{'. Returns
 * how many hosts it has.
 */
int jackal_fabric_check(const char *description);

/*
 * Writes the names of all fabrics of this user that somebody is in, a line each. Returns the
 * length of the whole text, of which no more than n_bytes - 1 are written.
 */
long jackal_fabric_list(char *text, size_t n_bytes);

/*
 * Writes what a running fabric is like as a JSON object: {"name", "personality", "switched",
 * "age_s", "processes": [{"pid", "host"}], "hosts": [{"name", "devices": [{"name", "state",
 * "plugged", "up", "peer", "rate", "latency_ns", "factor", "flaps", "sent": {"bytes", "messages",
 * "frames"}, "received": {…}, "objects": {"contexts", …, "processes": [{"pid", …}]}}]}],
 * "faults": n}. Returns its length as above.
 */
long jackal_fabric_status(const char *name, char *json, size_t n_bytes);

/*
 * Changes a running fabric. `command` is one of:
 *   unplug DEVICE | replug DEVICE | down DEVICE | up DEVICE | remove DEVICE
 *   slow DEVICE FACTOR        the rate of its cable, 0 < FACTOR <= 1000; 1 = as described
 *   fault JSON                one object as in the "faults" of a description
 *   faults clear              takes back all faults that were added this way
 * DEVICE is "A.rdma_en2" or, without the "rdma_", "A.en2". Times of a fault ("at") count from now.
 */
int jackal_fabric_control(const char *name, const char *command);

#ifdef __cplusplus
}
#endif

#endif
