/* SPDX-License-Identifier: MIT */
/*
 * A link over UC queue pairs: one for small slots, one for bulk, on one completion queue.
 *
 * Set-up follows the strictest provider: queue pairs to INIT, addresses exchanged, RTR, RTS, then
 * receives are posted, then all ranks meet, and only then anybody sends.
 */
#ifndef LINK_VERBS_LINK_H
#define LINK_VERBS_LINK_H

#include "link/link.h"
#include "verbs/verbs.h"
#include "wire/endpoint.h"

/*
 * Opens a device and two queue pairs in INIT, and says what the peer must know.
 * Errors as verbs_device_acquire(), verbs_gid_choose(), verbs_queue_open(); each names the device.
 */
jackal_status verbs_link_open(struct verbs_provider *provider, const char *device, int peer,
                              int wire, const struct link_geometry *geometry, uint64_t deadline_ns,
                              struct link **link_p, struct wire_endpoint *own_p,
                              struct base_error *error);

/* Takes both queue pairs to RTS and posts every receive slot. */
jackal_status verbs_link_connect(struct link *link, const struct wire_endpoint *peer,
                                 struct base_error *error);

/* Lets the link send from this part of the slab. */
jackal_status verbs_link_register(struct link *link, const struct verbs_range *range,
                                  struct base_error *error);

#endif
