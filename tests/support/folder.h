/* SPDX-License-Identifier: MIT */
#ifndef RANKS_FOLDER_H
#define RANKS_FOLDER_H

#include <stddef.h>

/* Path of the fabric's folder of this name. */
void folder_path(const char *name, char *path, size_t n_bytes);

/* Removes the fabric's folder of this name; returns how many files lay in it, −1 = there was none.
 */
int folder_remove(const char *name);

#endif
