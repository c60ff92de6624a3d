/* SPDX-License-Identifier: MIT */
#include "base/address.h"

#include <stdio.h>
#include <string.h>

static jackal_status refuse(struct base_error *error, const char *text, const char *why) {
    return base_fail(error, JACKAL_ERR_CONFIG, "address \"%.200s\": %s", text, why);
}

/* Strictly digits: strtol would take " 80", "+80" and "80abc". */
static bool parse_port(const char *text, uint16_t *port_p) {
    unsigned value = 0;
    size_t n = strlen(text);
    if (n == 0 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    if (value > UINT16_MAX)
        return false;
    *port_p = (uint16_t)value;
    return true;
}

/* Finds the host and what follows its colon. */
static const char *split(const char *text, const char **host_p, size_t *n_host_p,
                         const char **why_p) {
    const char *colon;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        *why_p = end == NULL ? "the bracket is not closed" : "a port must follow, \"[host]:port\"";
        if (end == NULL || end[1] != ':')
            return NULL;
        *host_p = text + 1;
        *n_host_p = (size_t)(end - text) - 1;
        colon = end + 1;
        *why_p = "there is no IPv6 address between the brackets";
        if (memchr(*host_p, ':', *n_host_p) == NULL)
            return NULL;
        return colon + 1;
    }
    colon = strchr(text, ':');
    *why_p = "a port must follow, \"host:port\"";
    if (colon == NULL)
        return NULL;
    *why_p = "bracket the IPv6 address, \"[host]:port\"";
    if (strchr(colon + 1, ':') != NULL)
        return NULL;
    *host_p = text;
    *n_host_p = (size_t)(colon - text);
    return colon + 1;
}

jackal_status base_address_parse(const char *text, bool port_0_allowed,
                                 struct base_address *address_p, struct base_error *error) {
    const char *host, *why;
    size_t n_host;
    const char *port_text = split(text, &host, &n_host, &why);
    if (port_text == NULL)
        return refuse(error, text, why);
    if (n_host == 0)
        return refuse(error, text, "the host is missing, \"host:port\"");
    if (n_host >= BASE_HOST_BYTES)
        return refuse(error, text, "the host is longer than 255 characters");
    for (size_t i = 0; i < n_host; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == '[' || host[i] == ']' || host[i] == '/')
            return refuse(error, text, "the host holds a blank, a bracket or a slash");
    uint16_t port;
    if (!parse_port(port_text, &port) || (port == 0 && !port_0_allowed))
        return refuse(error, text,
                      port_0_allowed ? "the port must be a number from 0 to 65535"
                                     : "the port must be a number from 1 to 65535");
    memcpy(address_p->host, host, n_host);
    address_p->host[n_host] = '\0';
    address_p->port = port;
    return JACKAL_OK;
}

const char *base_address_format(const struct base_address *address, char *text) {
    bool v6 = strchr(address->host, ':') != NULL;
    snprintf(text, BASE_ADDRESS_BYTES, v6 ? "[%s]:%u" : "%s:%u", address->host,
             (unsigned)address->port);
    return text;
}
