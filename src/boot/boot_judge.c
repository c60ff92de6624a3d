/* SPDX-License-Identifier: MIT */
/*
 * Does a hello belong to this group? Each answer names rank, address and both values, since it is
 * printed on either end.
 */
#include "boot/boot_meeting.h"

/* Long values are cut in messages; a hello may hold kilobytes. */
enum { SHOWN = 80 };

static int shown(size_t n_bytes) {
    return n_bytes < SHOWN ? (int)n_bytes : SHOWN;
}

static jackal_status judge_run(const struct boot_options *options, const struct wire_hello *hello,
                               const char *from, struct base_error *error) {
    const char *job = options->job != NULL ? options->job : "";
    if (job[0] != '\0' && hello->job[0] != '\0' && strcmp(job, hello->job) != 0)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "stale run: rank %u at %s belongs to run \"%.*s\", this is run \"%.*s\"",
                         (unsigned)hello->rank, from, SHOWN, hello->job, SHOWN, job);
    if (hello->incarnation != 0)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "stale run: rank %u at %s belongs to an earlier meeting of this run",
                         (unsigned)hello->rank, from);
    return JACKAL_OK;
}

static jackal_status judge_place(const struct boot_meeting *meeting, const struct wire_hello *hello,
                                 const char *from, struct base_error *error) {
    int size = meeting->boot->size;
    if (hello->size != (uint32_t)size)
        return base_fail_peer(error, JACKAL_ERR_CONFIG,
                              hello->rank < (uint32_t)size ? (int)hello->rank : -1,
                              "size mismatch: rank %u at %s was started with size %u, rank 0 with "
                              "size %d",
                              (unsigned)hello->rank, from, (unsigned)hello->size, size);
    if (hello->rank >= (uint32_t)size)
        return base_fail(error, JACKAL_ERR_CONFIG,
                         "rank %u of %d: the process at %s has a rank out of range, 0 to %d are "
                         "allowed",
                         (unsigned)hello->rank, size, from, size - 1);
    const struct boot_link *taken = &meeting->boot->links[hello->rank];
    if (hello->rank == 0 || taken->fd >= 0)
        return base_fail_peer(error, JACKAL_ERR_CONFIG, (int)hello->rank,
                              "duplicate rank %u: claimed by %s and by %s: give every process a "
                              "rank of its own",
                              (unsigned)hello->rank,
                              hello->rank == 0 ? "the process that listens" : taken->name, from);
    return JACKAL_OK;
}

static jackal_status other_value(const struct wire_hello *hello, const char *from,
                                 struct wire_text name, const struct wire_text *theirs,
                                 const char *ours, struct base_error *error) {
    return base_fail_peer(error, JACKAL_ERR_CONFIG, (int)hello->rank,
                          "setting mismatch: %.*s is %s%.*s%s on rank %u at %s and %s%.*s%s on "
                          "rank 0: it must be the "
                          "same on all ranks",
                          shown(name.n_bytes), name.bytes, theirs != NULL ? "\"" : "",
                          theirs != NULL ? shown(theirs->n_bytes) : 7,
                          theirs != NULL ? theirs->bytes : "unknown", theirs != NULL ? "\"" : "",
                          (unsigned)hello->rank, from, ours != NULL ? "\"" : "", SHOWN,
                          ours != NULL ? ours : "unknown", ours != NULL ? "\"" : "");
}

/* Finds a setting of ours in the hello. */
static bool find(const struct wire_hello *hello, const char *name, struct wire_text *value_p) {
    struct wire_reader settings = hello->settings;
    for (size_t i = 0; i < hello->n_settings; i++) {
        struct wire_text key;
        wire_hello_setting(&settings, &key, value_p);
        if (wire_text_is(key, name))
            return true;
    }
    return false;
}

static bool is_ours(const struct boot_options *options, struct wire_text name) {
    for (size_t i = 0; i < options->n_settings; i++)
        if (wire_text_is(name, options->settings[i].name))
            return true;
    return false;
}

static jackal_status judge_settings(const struct boot_options *options,
                                    const struct wire_hello *hello, const char *from,
                                    struct base_error *error) {
    for (size_t i = 0; i < options->n_settings; i++) {
        const struct boot_setting *ours = &options->settings[i];
        struct wire_text value, name = {ours->name, strlen(ours->name)};
        if (!find(hello, ours->name, &value))
            return other_value(hello, from, name, NULL, ours->value, error);
        if (!wire_text_is(value, ours->value))
            return other_value(hello, from, name, &value, ours->value, error);
    }
    struct wire_reader settings = hello->settings;
    for (size_t i = 0; i < hello->n_settings; i++) {
        struct wire_text name, value;
        wire_hello_setting(&settings, &name, &value);
        if (!is_ours(options, name))
            return other_value(hello, from, name, &value, NULL, error);
    }
    return JACKAL_OK;
}

jackal_status boot_hello_judge(const struct boot_meeting *meeting, const struct wire_hello *hello,
                               const char *from, bool *fatal_p, struct base_error *error) {
    jackal_status status = judge_run(meeting->options, hello, from, error);
    *fatal_p = status == JACKAL_OK;
    if (status == JACKAL_OK)
        status = judge_place(meeting, hello, from, error);
    if (status == JACKAL_OK)
        status = judge_settings(meeting->options, hello, from, error);
    if (status == JACKAL_OK)
        return JACKAL_OK;
    /* Parts of the text come from the network: keep it one line. */
    for (char *c = error->text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    return status;
}
