/* SPDX-License-Identifier: MIT */
/* Sums its rank over all ranks and prints the result: enough to know that everything is found. */
#include <jackal/collective.h>
#include <jackal/jackal.h>
#include <stdio.h>

int main(void) {
    jackal_group *group = NULL;
    if (jackal_init(NULL, &group) != JACKAL_OK) {
        fprintf(stderr, "%s\n", jackal_config_error(NULL));
        return 1;
    }
    int32_t rank = jackal_rank(group), sum = -1;
    jackal_status status = jackal_all_sum(group, &rank, &sum, 1, JACKAL_INT32);
    if (status == JACKAL_OK)
        printf("jackal %s sum %d\n", jackal_version(), (int)sum);
    jackal_group_free(group);
    return status == JACKAL_OK ? 0 : 1;
}
