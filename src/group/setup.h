/* SPDX-License-Identifier: MIT */
/* What setup.c needs of group.c. */
#ifndef GROUP_SETUP_H
#define GROUP_SETUP_H

#include "group/group.h"

/* The engine's `agree`: tells the others why this rank fails and takes over what all agree on. */
void group_agree(void *context, struct base_error *error);

#endif
