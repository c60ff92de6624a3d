/* SPDX-License-Identifier: MIT */
/* Sums its rank over all ranks in two groups, one after the other, and prints the result: enough to
 * know that everything is found, and that the first group leaves the port to the second. */
#include <jackal/collective.h>
#include <jackal/jackal.h>
#include <stdio.h>

static int sum_ranks(void) {
    jackal_group *group = NULL;
    if (jackal_init(NULL, &group) != JACKAL_OK) {
        fprintf(stderr, "%s\n", jackal_config_error(NULL));
        return -1;
    }
    int32_t rank = jackal_rank(group), sum = -1;
    if (jackal_all_sum(group, &rank, &sum, 1, JACKAL_INT32) != JACKAL_OK)
        fprintf(stderr, "%s\n", jackal_error_message(group));
    jackal_group_free(group);
    return (int)sum;
}

int main(void) {
    int first = sum_ranks();
    int second = first < 0 ? first : sum_ranks();
    if (second >= 0 && second == first)
        printf("jackal %s sum %d\n", jackal_version(), second);
    return second >= 0 ? 0 : 1;
}
