/* SPDX-License-Identifier: MIT */
/*
 * Values of the description. Each function looks for `key` in `object`, which stands at `path`
 * ("cables[2]", "" = the top level); an absent key leaves *value_p as it is. A value that is not
 * allowed is EINVAL with a text that begins with its path ("cables[2].rate").
 */
#ifndef FABRIC_JSON_H
#define FABRIC_JSON_H

#include "fabric_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define FABRIC_PATH_MAX 128

/* "JACKAL_FABRIC: <path>: <text>" */
int fabric_json_bad(const char *path, const char *format, ...) FABRIC_PRINTF(2, 3);
/* Writes "path.key" or, at the top level, "key"; and "path[i]". */
void fabric_json_join(char *joined, const char *path, const char *key);
void fabric_json_index(char *joined, const char *path, size_t index);

/* Whether it is an object with known keys only; allowed is NULL-terminated. */
int fabric_json_keys(const json_t *object, const char *path, const char *const *allowed);
int fabric_json_integer(const json_t *object, const char *path, const char *key, json_int_t low,
                        json_int_t high, json_int_t *value_p);
int fabric_json_u32(const json_t *object, const char *path, const char *key, uint32_t low,
                    uint32_t high, uint32_t *value_p);
int fabric_json_real(const json_t *object, const char *path, const char *key, double low,
                     double high, double *value_p);
int fabric_json_bool(const json_t *object, const char *path, const char *key, bool *value_p);
int fabric_json_string(const json_t *object, const char *path, const char *key,
                       const char **value_p);
/* One of `words`, NULL-terminated; *value_p is its place. */
int fabric_json_word(const json_t *object, const char *path, const char *key,
                     const char *const *words, int *value_p);
/* "4.15us": ns, us, ms, s, min, h. */
int fabric_json_time(const json_t *object, const char *path, const char *key, uint64_t *ns_p);
/* "64MB/s": B/s, KB/s, MB/s, GB/s (decimal), Mbit/s, Gbit/s. */
int fabric_json_rate(const json_t *object, const char *path, const char *key, double *rate_p);
/* NULL if it is not there; EINVAL in *rc_p if it is no array. */
const json_t *fabric_json_array(const json_t *object, const char *path, const char *key, int *rc_p);
/* The number and unit of a text; false if it is not "<number><unit>" with one of the units. */
struct fabric_json_unit {
    const char *name;
    double factor;
};
bool fabric_json_measure(const char *text, const struct fabric_json_unit *units, double *value_p);
extern const struct fabric_json_unit fabric_json_times[];

#endif
