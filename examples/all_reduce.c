/* SPDX-License-Identifier: MIT */
#include <jackal/collective.h>
#include <jackal/jackal.h>
#include <stdio.h>
int main(void) {
    jackal_config *config = jackal_config_new(); /* takes what the launcher set */
    jackal_group *group = NULL;
    if (jackal_init(config, &group) != JACKAL_OK)
        return fprintf(stderr, "%s\n", jackal_config_error(config)), 1;
    float data[3] = {(float)jackal_rank(group), 1, 10};
    if (jackal_all_sum(group, data, data, 3, JACKAL_FLOAT32) != JACKAL_OK)
        return fprintf(stderr, "%s\n", jackal_error_message(group)), 1;
    printf("rank %d: %g %g %g\n", jackal_rank(group), data[0], data[1], data[2]);
    jackal_group_free(group);
    jackal_config_free(config);
}
