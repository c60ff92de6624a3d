/* SPDX-License-Identifier: MIT */
#include "verbs/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef __APPLE__
#define SYSTEM_LIBRARY "librdma.dylib"
#define FABRIC_LIBRARY "libjackal-fabric.dylib"
#else
#define SYSTEM_LIBRARY "libibverbs.so.1"
#define FABRIC_LIBRARY "libjackal-fabric.so"
#endif

/* Folder of this library in the file system, with a slash behind it; "" if it is not known. */
static void own_folder(char *folder, size_t n_bytes) {
    static const char anchor = 0;
    Dl_info info;
    folder[0] = '\0';
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash != NULL)
        snprintf(folder, n_bytes, "%.*s/", (int)(slash - info.dli_fname), info.dli_fname);
}

/*
 * The fabric lies beside libjackal in a build tree, in lib/jackal/ when installed; a program that
 * has Jackal linked in statically finds it by the folder that was configured at build time.
 */
static void *open_fabric(char *path, size_t n_bytes) {
    char folder[512];
    own_folder(folder, sizeof folder);
    static const char *const places[] = {"%s" FABRIC_LIBRARY, "%sjackal/" FABRIC_LIBRARY,
                                         "%s../lib/" FABRIC_LIBRARY};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(path, n_bytes, places[i], folder);
#pragma GCC diagnostic pop
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL)
            return handle;
    }
    snprintf(path, n_bytes, "%s", JACKAL_FABRIC_FOLDER "/" FABRIC_LIBRARY);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static jackal_status bind_symbols(struct verbs_library *library, struct base_error *error) {
    const char *missing = NULL;
    void *symbol = NULL;
#define BIND(field, result, parameters)                                                            \
    symbol = dlsym(library->handle, "ibv_" #field);                                                \
    if (symbol == NULL && missing == NULL)                                                         \
        missing = "ibv_" #field;                                                                   \
    memcpy(&library->field, &symbol, sizeof symbol);
    VERBS_SYMBOL_TABLE(BIND)
#undef BIND
    symbol = dlsym(library->handle, "jackal_fabric_error");
    memcpy(&library->explain, &symbol, sizeof symbol);
    if (missing == NULL)
        return JACKAL_OK;
    return base_fail(error, JACKAL_ERR_NO_DEVICE,
                     "RDMA is not available: %s has no symbol %s; it is not a verbs library of "
                     "this kind, set JACKAL_VERBS to another one",
                     library->path, missing);
}

jackal_status verbs_library_open(struct verbs_library *library, const char *provider,
                                 struct base_error *error) {
    memset(library, 0, sizeof *library);
    if (strcmp(provider, "fabric") == 0) {
        library->handle = open_fabric(library->path, sizeof library->path);
    } else {
        snprintf(library->path, sizeof library->path, "%s",
                 strcmp(provider, "system") == 0 ? SYSTEM_LIBRARY : provider);
        library->handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL);
    }
    if (library->handle == NULL)
        return base_fail(error, JACKAL_ERR_NO_DEVICE,
                         "RDMA is not available: the verbs provider \"%s\" does not load: %s",
                         provider, dlerror());
    jackal_status status = bind_symbols(library, error);
    if (status != JACKAL_OK)
        verbs_library_close(library);
    return status;
}

const char *verbs_library_explain(const struct verbs_library *library, char *text, size_t n_bytes) {
    const char *more = library->explain != NULL ? library->explain() : NULL;
    if (more == NULL || more[0] == '\0')
        return "";
    snprintf(text, n_bytes, ": %s", more);
    return text;
}

void verbs_library_close(struct verbs_library *library) {
    if (library->handle != NULL)
        dlclose(library->handle);
    library->handle = NULL;
}
