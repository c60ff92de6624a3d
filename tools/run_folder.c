/* SPDX-License-Identifier: MIT */
/*
 * The folder in which the processes of an emulated fabric meet. They remove it themselves; after a
 * SIGKILL of the last one nobody is left to, and its name is used only once. Every step down is
 * taken relative to an open folder without following links, so that nothing else can be removed.
 */
#include "run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

char *run_folder_path(const struct run_plan *plan) {
    struct tool_buffer path = {0};
    const char *base = "/dev/shm";
    char **environment = NULL;
    if (!plan->has_fabric) {
        return NULL;
    }
#ifdef __APPLE__
    environment = run_plan_environment(plan, 0); /* --env may have set another TMPDIR */
    base = "/tmp";
    for (char **entry = environment; *entry; ++entry) {
        if (strncmp(*entry, "TMPDIR=/", 8) == 0) {
            base = *entry + 7;
        }
    }
#endif
    tool_buffer_print(&path, "%s/jackal-%lu/%s", base, (unsigned long)geteuid(), plan->fabric_name);
    if (environment) {
        run_plan_environment_free(environment);
    }
    char *text = tool_copy(tool_buffer_data(&path));
    tool_buffer_free(&path);
    return text;
}

static void remove_files(int folder) {
    int fd = dup(folder);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        struct stat status;
        if (fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode)) {
            unlinkat(folder, entry->d_name, 0);
        }
    }
    closedir(entries);
}

static void remove_in(int parent, const char *name) {
    struct stat status;
    int folder = openat(parent, name, FOLDER_FLAGS);
    if (folder < 0) {
        return;
    }
    if (fstat(folder, &status) == 0 && status.st_uid == geteuid()) {
        remove_files(folder);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
    close(folder);
}

void run_folder_remove(const char *path) {
    char *copy = tool_copy(path);
    char *name = strrchr(copy, '/');
    struct stat status;
    *name++ = '\0';
    int parent = open(copy, FOLDER_FLAGS);
    if (parent >= 0) {
        if (fstat(parent, &status) == 0 && status.st_uid == geteuid()) {
            remove_in(parent, name);
            rmdir(copy); /* fails, as it should, while another fabric is in it */
        }
        close(parent);
    }
    free(copy);
}
