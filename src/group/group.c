/* SPDX-License-Identifier: MIT */
/* Failure and end of a group; its beginning is in setup.c. */
#include "group/group.h"

#include "base/clock.h"
#include "group/setup.h"

#include <stdlib.h>

/* How long a rank waits for what all agree on, and how long the last sends may take to leave. */
#define VERDICT_MS 300
#define DRAIN_MS   300

/*
 * Runs on the thread that found the failure. The first report that rank 0 sees is the verdict, and
 * every rank waits for it, so that all return the same error. Rank 0 does too: another rank's
 * report may have come first.
 */
void group_agree(void *context, struct base_error *error) {
    struct group *group = context;
    base_fail_peer(error, error->status, error->peer, "rank %d: %s", group->rank, error->text);
    base_log(&group->log, JACKAL_LOG_ERROR, "%s", error->text);
    if (group->boot == NULL)
        return;
    boot_report(group->boot, error);
    group_look();
    uint64_t deadline_ns = base_deadline_ns(VERDICT_MS);
    while (!base_expired(deadline_ns)) {
        if (engine_state(group->engine, error) != JACKAL_OK)
            return;
        base_sleep_us(500);
    }
}

void group_abort(struct group *group, const struct base_error *why) {
    if (group->boot != NULL)
        boot_report(group->boot, why);
    engine_fail(group->engine, why);
}

void group_close(struct group *group) {
    if (group == NULL)
        return;
    if (group->engine != NULL && group->boot != NULL)
        engine_drain(group->engine, base_deadline_ns(DRAIN_MS));
    if (group->boot != NULL)
        boot_leave(group->boot);
    if (group->engine != NULL)
        engine_stop(group->engine);
    group_unwatch(group);
    engine_free(group->engine);
    verbs_slab_give(&group->staging);
    verbs_provider_release(group->provider);
    boot_free(group->boot);
    free(group);
}
