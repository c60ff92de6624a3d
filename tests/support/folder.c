/* SPDX-License-Identifier: MIT */
#include "folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void root_path(char *path, size_t n_bytes) {
#ifdef __APPLE__
    const char *base = getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR");
#else
    const char *base = "/dev/shm";
#endif
    snprintf(path, n_bytes, "%.200s/jackal-%u", base, (unsigned)geteuid());
}

void folder_path(const char *name, char *path, size_t n_bytes) {
    char root[256];
    root_path(root, sizeof root);
    snprintf(path, n_bytes, "%s/%s", root, name);
}

int folder_remove(const char *name) {
    char path[512], root[256];
    folder_path(name, path, sizeof path);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return -1;
    int n = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        n += unlinkat(dirfd(folder), entry->d_name, 0) == 0;
    }
    closedir(folder);
    rmdir(path);
    root_path(root, sizeof root);
    rmdir(root); /* fails while another fabric lives */
    return n;
}
