/* SPDX-License-Identifier: MIT */
/* "limits", "strict" and "idle_death": what is different from the personality's rules. */
#include "fabric_config.h"

#include <stddef.h>

#define RULES_IDLE_DEATH_NS (23u * 60u * 1000000000ull) /* as reported from the field */

static const struct limit_key {
    const char *key;
    uint32_t low, high;
    size_t offset;
} limit_keys[] = {
    {"max_mr", 1, 65535, offsetof(struct fabric_rules, max_mr)},
    {"max_pd", 1, 65535, offsetof(struct fabric_rules, max_pd)},
    {"max_cq", 1, 65535, offsetof(struct fabric_rules, max_cq)},
    {"max_cqe", 1, 16777215, offsetof(struct fabric_rules, max_cqe)},
    {"max_sge", 1, 64, offsetof(struct fabric_rules, max_sge)},
    {"max_message", 1, 1u << 31, offsetof(struct fabric_rules, max_message)},
    {"depth", 1, 65536, offsetof(struct fabric_rules, max_depth)},
    {"least_depth", 1, 65536, offsetof(struct fabric_rules, least_depth)},
};

static uint32_t *limit_of(struct fabric_rules *rules, size_t offset) {
    return (uint32_t *)(void *)((char *)rules + offset);
}

/* What others hold of a limit is not there; a device with nothing left can still be opened. */
static int limits_held(const json_t *object, const char *path, struct fabric_rules *rules) {
    static const char *const keys[] = {"qp", "mr", "pd", "cq", NULL};
    const json_t *held = json_object_get(object, "held");
    uint32_t *const left[] = {&rules->max_qp_usable, &rules->max_mr, &rules->max_pd,
                              &rules->max_cq};
    uint32_t taken[4] = {0};
    char where[FABRIC_PATH_MAX];
    int rc;

    if (held == NULL) {
        return 0;
    }
    fabric_json_join(where, path, "held");
    rc = fabric_json_keys(held, where, keys);
    for (int i = 0; rc == 0 && i < 4; i++) {
        rc = fabric_json_u32(held, where, keys[i], 0, *left[i], &taken[i]);
        *left[i] -= taken[i];
    }
    rules->held_mr = taken[1];
    rules->held_pd = taken[2];
    rules->held_cq = taken[3];
    return rc;
}

int fabric_config_limits(const json_t *object, const char *path, struct fabric_rules *rules) {
    static const char *const keys[] = {"max_qp", "max_qp_said", "max_mr",  "max_pd",
                                       "max_cq", "max_cqe",     "max_sge", "max_message",
                                       "depth",  "least_depth", "held",    NULL};
    uint32_t max_qp = 0;
    int rc = fabric_json_keys(object, path, keys);

    if (rc == 0) {
        rc = fabric_json_u32(object, path, "max_qp", 1, 4096, &max_qp);
    }
    if (rc == 0 && max_qp > 0) {
        rules->max_qp_said = max_qp;
        rules->max_qp_usable = max_qp;
    }
    if (rc == 0) {
        rc = fabric_json_u32(object, path, "max_qp_said", 1, 1u << 20, &rules->max_qp_said);
    }
    for (size_t i = 0; rc == 0 && i < sizeof limit_keys / sizeof limit_keys[0]; i++) {
        const struct limit_key *limit = &limit_keys[i];

        rc = fabric_json_u32(object, path, limit->key, limit->low, limit->high,
                             limit_of(rules, limit->offset));
    }
    if (rc == 0 && rules->least_depth > rules->max_depth) {
        if (json_object_get(object, "least_depth") != NULL) {
            return fabric_json_bad(path, "least_depth %u is more than depth %u", rules->least_depth,
                                   rules->max_depth);
        }
        rules->least_depth = rules->max_depth;
    }
    return rc == 0 ? limits_held(object, path, rules) : rc;
}

static int rules_strict(const json_t *strict, struct fabric_rules *rules) {
    static const char *const keys[] = {
        "all", "second_open", "local_write_alone", "recv_before_rts", "no_receive", NULL};
    static const char *const opens[] = {"fine", "busy", "hang", NULL};
    static const char *const receives[] = {"wait", "drop", "dead", NULL};
    int open = -1, receive = -1, rc = fabric_json_keys(strict, "strict", keys);
    bool all = false;

    if (rc == 0) {
        rc = fabric_json_bool(strict, "strict", "all", &all);
    }
    if (rc == 0 && all) {
        rules->second_open = FABRIC_SECOND_OPEN_BUSY;
        rules->local_write_alone_fails = true;
        rules->recv_before_rts_fails = true;
        rules->no_receive = FABRIC_NO_RECEIVE_DEAD;
        rules->idle_death_ns = RULES_IDLE_DEATH_NS;
    }
    if (rc == 0) {
        rc = fabric_json_word(strict, "strict", "second_open", opens, &open);
    }
    if (rc == 0) {
        rc = fabric_json_bool(strict, "strict", "local_write_alone",
                              &rules->local_write_alone_fails);
    }
    if (rc == 0) {
        rc = fabric_json_bool(strict, "strict", "recv_before_rts", &rules->recv_before_rts_fails);
    }
    if (rc == 0) {
        rc = fabric_json_word(strict, "strict", "no_receive", receives, &receive);
    }
    if (open >= 0) {
        rules->second_open = (enum fabric_second_open)open;
    }
    if (receive >= 0) {
        rules->no_receive = (enum fabric_no_receive)receive;
    }
    return rc;
}

int fabric_config_rules(const json_t *root, struct fabric_topology *topology) {
    const json_t *limits = json_object_get(root, "limits");
    const json_t *strict = json_object_get(root, "strict");
    int rc = 0;

    if (limits != NULL) {
        rc = fabric_config_limits(limits, "limits", &topology->rules);
    }
    if (rc == 0 && strict != NULL) {
        rc = rules_strict(strict, &topology->rules);
    }
    if (rc == 0) {
        rc = fabric_json_time(root, "", "idle_death", &topology->rules.idle_death_ns);
    }
    return rc;
}
