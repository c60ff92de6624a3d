/* SPDX-License-Identifier: MIT */
#include "base/thread.h"

#include <signal.h>

int base_thread_start(pthread_t *thread, void *(*function)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
