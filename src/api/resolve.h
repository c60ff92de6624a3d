/* SPDX-License-Identifier: MIT */
#ifndef API_RESOLVE_H
#define API_RESOLVE_H

#include "api/handles.h"

/*
 * What group the settings describe. Never a smaller one than they promise: if any launch variable
 * is present, all that it needs must be there.
 */
jackal_status api_resolve(jackal_config *config, struct group_options *options_p,
                          struct base_error *error);

#endif
