/* SPDX-License-Identifier: MIT */
/* Names and texts, all from the tables in jackal/types.h. */
#include "api/handles.h"

struct row {
    jackal_status status;
    const char *name;
    const char *text;
    int retryable;
};

static const struct row rows[] = {
#define ROW(name, number, category, retryable, text) {number, #name, text, retryable},
    JACKAL_STATUS_TABLE(ROW)
#undef ROW
};

static const struct row *find(jackal_status status) {
    static const struct row unknown = {0, "UNKNOWN", "not a status of this version", 0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return &rows[i];
    return &unknown;
}

const char *jackal_status_name(jackal_status status) {
    return find(status)->name;
}

const char *jackal_status_text(jackal_status status) {
    return find(status)->text;
}

int jackal_status_retryable(jackal_status status) {
    return find(status)->retryable;
}

#define TEXT_OF(x)    #x
#define JOIN(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *jackal_version(void) {
    return JOIN(JACKAL_VERSION_MAJOR, JACKAL_VERSION_MINOR, JACKAL_VERSION_PATCH);
}
