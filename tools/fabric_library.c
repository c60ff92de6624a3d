/* SPDX-License-Identifier: MIT */
#include "fabric_library.h"

#include "tool.h"

#include <jackal/jackal.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#define FABRIC_LIBRARY "libjackal-fabric.dylib"
#else
#define FABRIC_LIBRARY "libjackal-fabric.so"
#endif

/* Beside libjackal, or in its folder jackal/, or in lib/ beside the folder of this program. */
static void *open_library(char *path, size_t n_bytes) {
    static const char *const places[] = {"", "jackal/", "../lib/", "../lib/jackal/"};
    const char *(*anchor)(void) = jackal_version;
    const char *given = getenv("JACKAL_VERBS");
    void *address = NULL;
    Dl_info info;
    if (given && strchr(given, '/')) {
        snprintf(path, n_bytes, "%s", given);
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    memcpy(&address, &anchor, sizeof address);
    const char *slash = NULL;
    if (dladdr(address, &info) != 0 && info.dli_fname) {
        slash = strrchr(info.dli_fname, '/');
    }
    int n_folder = slash ? (int)(slash - info.dli_fname) + 1 : 0;
    void *handle = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !handle; ++i) {
        snprintf(path, n_bytes, "%.*s%s%s", n_folder, slash ? info.dli_fname : "", places[i],
                 FABRIC_LIBRARY);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

int tool_fabric_load(struct tool_fabric *library) {
    char path[1024];
    void *handle = open_library(path, sizeof path);
    if (!handle) {
        fprintf(stderr, "jackal fabric: the emulated provider does not load: %s\n", dlerror());
        return TOOL_FAILED;
    }
    void *symbols[5] = {dlsym(handle, "jackal_fabric_error"), dlsym(handle, "jackal_fabric_check"),
                        dlsym(handle, "jackal_fabric_list"), dlsym(handle, "jackal_fabric_status"),
                        dlsym(handle, "jackal_fabric_control")};
    for (size_t i = 0; i < 5; ++i) {
        if (!symbols[i]) {
            fprintf(stderr,
                    "jackal fabric: %s is not the emulated provider of this version; set "
                    "JACKAL_VERBS to its path\n",
                    path);
            return TOOL_FAILED;
        }
    }
    memcpy(&library->error, &symbols[0], sizeof symbols[0]);
    memcpy(&library->check, &symbols[1], sizeof symbols[0]);
    memcpy(&library->list, &symbols[2], sizeof symbols[0]);
    memcpy(&library->status, &symbols[3], sizeof symbols[0]);
    memcpy(&library->control, &symbols[4], sizeof symbols[0]);
    return 0;
}
