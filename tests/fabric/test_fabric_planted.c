/* SPDX-License-Identifier: MIT */
/*
 * Two threads pass messages through a ring whose head is published without release. The program
 * itself succeeds; the test is that ThreadSanitizer reports the race, so that its silence about the
 * sound library means something.
 */
#include "fabric_support.h"

#include <pthread.h>

static void *receive(void *argument) {
    struct support_end *end = argument;

    for (uint32_t i = 0; i < 10; i++) {
        (void)support_wait(end);
    }
    return NULL;
}

int main(void) {
    struct support_end a, b;
    pthread_t thread;

    support_settings("*", NULL);
    support_pair(&a, &b, 65536);
    for (uint32_t i = 0; i < 10; i++) {
        SUPPORT_CHECK(support_recv(&b, i, 0, 4096) == 0);
    }
    SUPPORT_CHECK(pthread_create(&thread, NULL, receive, &b) == 0);
    for (uint32_t i = 0; i < 10; i++) {
        support_fill(a.bytes, 1, i, 4096);
        SUPPORT_CHECK(support_send(&a, i, 0, 4096) == 0);
        (void)support_wait(&a);
    }
    pthread_join(thread, NULL);
    support_unpair(&a, &b);
    return 0;
}
