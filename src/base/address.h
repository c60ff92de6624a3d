/* SPDX-License-Identifier: MIT */
/*
 * "host:port", "[v6]:port" and "[fe80::1%en2]:port": how addresses are written in settings,
 * host files and messages. Parsing asks nobody; names are resolved when a socket is made.
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    BASE_HOST_BYTES = 256,                   /* a DNS name has at most 253 */
    BASE_ADDRESS_BYTES = BASE_HOST_BYTES + 9 /* with brackets, colon and port */
};

struct base_address {
    char host[BASE_HOST_BYTES]; /* without brackets, with the scope: "fe80::1%en2" */
    uint16_t port;
};

/* JACKAL_ERR_CONFIG with the value quoted. Port 0 ("any free one") only if the caller allows it. */
jackal_status base_address_parse(const char *text, bool port_0_allowed,
                                 struct base_address *address_p, struct base_error *error);

/* The written form; `text` has room for BASE_ADDRESS_BYTES. Returns `text`. */
const char *base_address_format(const struct base_address *address, char *text);

#endif
